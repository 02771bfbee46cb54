"""A corpus that is read in windows: each token once, the same from any state, the same tokens on any number of hosts."""

import collections
import dataclasses
import json
import os
import signal

import numpy as np
import pytest
from support import byte_vocabulary

import ul2_tasks
from ul2_tasks import open_source
from ul2_tasks.mixtures.mixture import members_of_mixture
from ul2_tasks.random_access import windows
from ul2_tasks.random_access.batches import make_batch
from ul2_tasks.random_access.numbering import MemberSchedule
from ul2_tasks.store.write import PairWriter

BYTES, MODES = byte_vocabulary()

LENGTHS = {"inputs": 64, "targets": 64}
LONG = {"inputs": 512, "targets": 512}


@pytest.fixture(autouse=True)
def _small_windows(monkeypatch):
    monkeypatch.setattr(windows, "WINDOW_TOKENS", 1500)


def texts(count: int, seed: int = 0) -> list[str]:
    random = np.random.default_rng(seed)
    return [" ".join(f"word{seed}n{number}x{place}" for place in range(random.integers(1, 60))) for number in range(count)]


@pytest.fixture
def described(tmp_path):
    """Makes the mixture of documents in files of their own."""

    def make(documents, name="corpus", shards=6, **arguments):
        folder = tmp_path / name
        folder.mkdir()
        for shard in range(shards):
            lines = [json.dumps({"text": text}) for text in documents[shard::shards]]
            (folder / f"{shard}.jsonl").write_text("".join(f"{line}\n" for line in lines))
        return ul2_tasks.Mixture(name, f"{folder}/*.jsonl", **arguments)

    return make


def members_of(shares, lengths=LENGTHS):
    """The tasks of mixtures, which have these shares of the examples."""
    found = []
    for mixture, share in shares:
        of_mixture = members_of_mixture(mixture, lengths)
        whole = sum(member.rate for member in of_mixture)
        found += [dataclasses.replace(member, rate=member.rate / whole * share) for member in of_mixture]
    return found


def opened(members, host=0, hosts=1, epochs=1, lengths=None, shuffle=True):
    reader = windows.Host(host, hosts, epochs, 3, shuffle)
    _, open_stream = windows.open_corpora(MemberSchedule.of(members), "train", False, reader)
    return open_stream(lengths)


def read(stream, most, state=None, until=10_000):
    """The stretches from a state on, each with the state before it."""
    state, count = stream.start if state is None else state, 0
    while count < until:
        after, stretch = stream.read(state, most)
        if not len(stretch.numbers):
            return
        yield state, stretch
        state, count = after, count + len(stretch.numbers)


def rows_of(stretch, lengths=LENGTHS):
    rows = make_batch(stretch, stretch.numbers, lengths).rows
    return list(zip(*(map(bytes, values) for values in rows.values())))


def tokens_of(stretch):
    """The tokens of examples of each corpus, each as it is, in the order of the examples."""
    found = collections.defaultdict(list)
    for number, corpus in enumerate(stretch.corpora):
        of = stretch.found.corpora == number
        if of.any():
            origin = corpus.kind.origin(corpus.order.ranges(stretch.found.epochs[of], stretch.found.slots[of]))
            found[number] += corpus.kind.store.read_chunks(origin.starts, origin.stops).tolist()
    return found


def tokens_of_corpus(mixture, separate=False):
    store, is_whole = windows.beginning_of(mixture.corpus(), "train", separate, 1 << 30, False)
    assert is_whole
    return store.read_tokens(0, store.tokens).tolist()


@pytest.mark.parametrize("hosts", [1, 2, 6])
@pytest.mark.parametrize("arguments", [{}, {"merge_examples": False}, {"separate_documents": True}, {"chunk_tokens": 20}])
def test_an_epoch_of_all_hosts_has_each_token_once(described, arguments, hosts):
    mixture = described(texts(300), **arguments)
    found = collections.Counter()
    for host in range(hosts):
        for _, stretch in read(opened(members_of([(mixture, 1)]), host, hosts), 50):
            found.update(tokens_of(stretch)[0])
    assert found == collections.Counter(tokens_of_corpus(mixture, arguments.get("separate_documents", False)))


@pytest.mark.parametrize("pack", [False, True])
def test_a_stream_goes_on_from_any_state(described, pack):
    lengths = LONG if pack else LENGTHS
    members = members_of([(described(texts(300), chunk_tokens=40), 0.7), (described(texts(90, 1), "other"), 0.3)], lengths)
    in_rows = lengths if pack else None

    def rows(most, state=None, until=10_000):
        for before, stretch in read(opened(members, epochs=None, lengths=in_rows), most, state, until):
            yield before, rows_of(stretch, lengths)

    whole = list(rows(31, until=400))
    every = [row for _, of_stretch in whole for row in of_stretch]
    for number in (1, len(whole) // 2, len(whole) - 1):
        state = whole[number][0]
        others = [row for _, of_stretch in rows(17, state, 60) for row in of_stretch]
        expected = every[int(state[0]) :]
        shared = min(len(others), len(expected))
        assert shared
        assert others[:shared] == expected[:shared]


def test_corpora_have_their_shares_at_any_element(described):
    shares = [0.6, 0.1, 0.3]
    mixtures = [described(texts(count, seed), f"corpus_{seed}") for seed, count in enumerate([300, 90, 6])]
    stream = opened(members_of(zip(mixtures, shares)), epochs=None)
    assert [type(feed) for feed in stream.feeds] == [windows.Windows, windows.Windows, windows.Held]
    corpora = np.concatenate([stretch.found.corpora for _, stretch in read(stream, 37, until=1500)])
    counts = (corpora[:, np.newaxis] == np.arange(3)).cumsum(axis=0)
    assert np.abs(counts - np.outer(np.arange(1, len(corpora) + 1), shares)).max() <= 1


def test_hosts_share_what_is_in_memory_beside_windows(described):
    members = members_of([(described(texts(300)), 0.9), (described(texts(6, 1), "small", shards=1), 0.1)])
    found = []
    for host in range(3):
        for _, stretch in read(opened(members, host, 3, epochs=None), 40, until=240):
            of = stretch.found.corpora == 1
            found += zip(stretch.found.epochs[of].tolist(), stretch.found.slots[of].tolist())
    assert found
    assert len(set(found)) == len(found)


def test_each_window_is_read_once_however_often_it_is_asked_for(described, monkeypatch):
    read_at, documents_at = [], windows.Windows._documents

    def counted(self, shards, place):
        read_at.append(place)
        return documents_at(self, shards, place)

    monkeypatch.setattr(windows.Windows, "_documents", counted)
    stream = opened(members_of([(described(texts(300)), 1)]))
    assert sum(len(stretch.numbers) for _, stretch in read(stream, 7)) > len(read_at)
    assert len(read_at) == len(set(read_at))


def test_tokens_in_files_are_read_in_windows_where_their_ends_are_taken_off(tmp_path):
    ids = [np.array([*BYTES.encode(text), 1]) for text in texts(300)]
    for pair in range(3):
        with PairWriter(f"{tmp_path}/{pair}.bin", f"{tmp_path}/{pair}.idx", np.dtype("uint16")) as written:
            for document in ids[pair::3]:
                written.add(document, np.array([len(document)]))
    source = open_source(f"megatron:{tmp_path}/*.idx")
    mixture = ul2_tasks.Mixture("stored", source, BYTES, modes=MODES)
    found = collections.Counter()
    for host in range(4):
        for _, stretch in read(opened(members_of([(mixture, 1)]), host, 4), 50):
            found.update(tokens_of(stretch)[0])
    assert found == collections.Counter(np.concatenate([document[:-1] for document in ids]).tolist())


def test_passes_differ(described):
    rows = [row for _, stretch in read(opened(members_of([(described(texts(300)), 1)]), epochs=2), 50) for row in rows_of(stretch)]
    assert len(set(rows)) == len(rows)


def test_a_corpus_of_one_window_is_not_read_in_windows(described, monkeypatch):
    monkeypatch.setattr(windows, "WINDOW_TOKENS", 1 << 22)
    members = members_of([(described(texts(300)), 1)])
    assert windows.open_corpora(MemberSchedule.of(members), "train", False, windows.Host(0, 1, 1, 3, True))[1] is None


def test_fewer_shards_than_hosts_are_refused(described):
    with pytest.raises(ValueError, match="must have a shard of split 'train' for each of 7 hosts, got 6"):
        opened(members_of([(described(texts(300)), 1)]), 0, 7)


def test_a_host_without_a_token_is_told(described):
    documents = texts(60)
    documents[1::3] = [""] * 20
    members = members_of([(described(documents, shards=3), 1)])
    streams = [opened(members, host, 3) for host in range(3)]
    empty = [stream for stream in streams if stream.feeds[0]._shards_of(0) == [1]]
    assert len(empty) == 1
    with pytest.raises(ValueError, match="must have a token of split 'train' in the shards of host"):
        empty[0].read(empty[0].start, 50)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_reads_on(described):
    stream = opened(members_of([(described(texts(300)), 1)]))
    state, stretch = stream.read(stream.start, 50)
    child = os.fork()
    if not child:
        signal.alarm(20)  # of what would wait without end
        for _ in range(5):
            state, stretch = stream.read(state, 50)
        os._exit(0 if len(stretch.numbers) else 1)
    assert os.waitpid(child, 0)[1] == 0
