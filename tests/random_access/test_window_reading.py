"""How windows are read: each once, in a forked process, too; of tokens in files; what hosts share, and what one lacks."""

import collections
import contextlib
import dataclasses
import json
import os
import signal

import numpy as np
import pytest

import ul2_tasks
from tests.support import byte_vocabulary
from ul2_tasks import open_source
from ul2_tasks.random_access import windows
from ul2_tasks.random_access.numbering import MemberSchedule, members_by_stage
from ul2_tasks.store.write import PairWriter

BYTES, MODES = byte_vocabulary()

LENGTHS = {"inputs": 64, "targets": 64}


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
        of_mixture = mixture.members(lengths)
        whole = sum(member.rate for member in of_mixture)
        found += [dataclasses.replace(member, rate=member.rate / whole * share) for member in of_mixture]
    return found


def opened(members, host=0, hosts=1, epochs=1, lengths=None, shuffle=True):
    return windows.Corpora(MemberSchedule.of(members), "train", False, 3, shuffle).stream(lengths, host, hosts, epochs)


def read(stream, most, state=None, until=10_000):
    """The stretches from a state on, each with the state before it."""
    state, count = stream.start if state is None else state, 0
    while count < until:
        after, stretch = stream.read(state, most)
        if not len(stretch.numbers):
            return
        yield state, stretch
        state, count = after, count + len(stretch.numbers)


def tokens_of(stretch):
    """The tokens of examples of each corpus, each as it is, in the order of the examples."""
    found = collections.defaultdict(list)
    for number, corpus in enumerate(stretch.corpora):
        of = stretch.slots.corpora == number
        if of.any():
            origin = corpus.kind.origin(corpus.order.ranges(stretch.slots.epochs[of], stretch.slots.slots[of]))
            found[number] += corpus.kind.store.read_chunks(origin.starts, origin.stops).tolist()
    return found


def test_hosts_share_what_is_in_memory_beside_windows(described):
    members = members_of([(described(texts(300)), 0.9), (described(texts(6, 1), "small", shards=1), 0.1)])
    found = []
    for host in range(3):
        for _, stretch in read(opened(members, host, 3, epochs=None), 40, until=240):
            of = stretch.slots.corpora == 1
            found += zip(stretch.slots.epochs[of].tolist(), stretch.slots.slots[of].tolist())
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


def test_a_window_whose_read_failed_is_read_again(described, tmp_path):
    feed = opened(members_of([(described(texts(300)), 1)]), epochs=None).feeds[0]
    place = feed.window(windows.Place()).following
    (tmp_path / "corpus").rename(tmp_path / "away")
    with contextlib.suppress(FileNotFoundError):
        while True:  # it reads ahead, so the next window may still be there
            place = feed.window(place).following
    (tmp_path / "away").rename(tmp_path / "corpus")
    assert feed.window(place).stop


def test_a_corpus_of_a_later_stage_is_read_when_that_begins(described, monkeypatch):
    read_of, documents_at = [], windows.Windows._documents

    def noted(self, shards, place):
        read_of.append(self._corpus.name)
        return documents_at(self, shards, place)

    monkeypatch.setattr(windows.Windows, "_documents", noted)
    first, second = (members_of([(described(texts(300, number), name), 1)]) for number, name in enumerate(["first", "second"]))
    stages = [(0, {member.task: member.rate for member in first}), (2, {member.task: member.rate for member in second})]
    schedule = members_by_stage([*first, *second], stages, batch_size=10, steps=4)
    stream = windows.Corpora(schedule, "train", False, 3, True).stream(None)
    state, _ = stream.read(stream.start, 20)
    assert "first_corpus" in read_of
    assert "second_corpus" not in read_of
    stream.read(state, 20)
    assert "second_corpus" in read_of


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


def test_a_host_without_a_token_is_told(described):
    documents = texts(60)
    documents[1::3] = [""] * 20
    members = members_of([(described(documents, shards=3), 1)])
    streams = [opened(members, host, 3) for host in range(3)]
    empty = [stream for stream in streams if stream.feeds[0]._shards_of(0) == [1]]
    assert len(empty) == 1
    with pytest.raises(ValueError, match="must have an example of split 'train' in the shards of host"):
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
