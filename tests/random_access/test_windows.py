"""Streams: a corpus that has no cache, and is larger than a window, is read window after window, each once."""

import contextlib
import dataclasses
import itertools
import json
import os
import signal

import numpy as np
import pytest
import seqio
import tensorflow as tf

import ul2_tasks
from ul2_tasks.random_access import windows
from ul2_tasks.random_access.numbering import MemberSchedule
from ul2_tasks.tasks.vocabulary import id_shift

LENGTHS = {"inputs": 64, "targets": 64}
TOKENS = 1500  # of a window
FILES, DOCUMENTS = 6, 40


@pytest.fixture(autouse=True)
def small_windows(monkeypatch):
    monkeypatch.setattr(windows, "WINDOW_TOKENS", TOKENS)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    for file in range(FILES):
        texts = (f"{file} {number} " * (3 + (file + 7 * number) % 11) for number in range(DOCUMENTS))
        (folder / f"{file}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return f"{folder}/*.jsonl"


def registered(name, corpus, **arguments):
    return ul2_tasks.register(name, corpus, "bytes", chunk_tokens=40, **arguments)


def dataset(name, seed=3, **arguments):
    return seqio.get_mixture_or_task(name).get_dataset(LENGTHS, seed=seed, **{"num_epochs": 1, **arguments})


def test_more_hosts_than_shards_are_refused(corpus):
    with pytest.raises(ValueError, match=f"shard .*got {FILES}"):
        dataset(registered("hosts", corpus), shard_info=seqio.ShardInfo(0, FILES + 1))


def test_a_stage_begins_at_its_step(corpus):
    texts = ul2_tasks.MemoryDataSource(lambda: [f"late {number} " * 4 for number in range(20)], validation=0)
    large, late = registered("begun", corpus), registered("late", texts)
    stages = [ul2_tasks.Stage(0, {large: 1}), ul2_tasks.Stage(5, {large: 1, late: 1})]
    mixed = ul2_tasks.mix("staged", schedule=stages, batch_size=4, steps=20)
    found = [
        each["task"].decode()
        for each in dataset(mixed, num_epochs=None, passthrough_features=["task"]).take(80).as_numpy_iterator()
    ]
    assert {name.partition("_")[0] for name in found[:20]} == {"begun"}
    assert sum(name.startswith("late") for name in found[20:]) == 30


def test_nothing_to_read_is_an_error(tmp_path):
    (tmp_path / "empty.jsonl").write_text('{"text": ""}\n')
    with pytest.raises(ValueError, match="nothing_corpus"):
        dataset(ul2_tasks.register("nothing", str(tmp_path / "empty.jsonl")))


def write_lines(folder, name, records, files=4):
    (folder / name).mkdir()
    for file in range(files):
        lines = [record if isinstance(record, str) else json.dumps(record) for record in records[file::files]]
        (folder / name / f"{file}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return f"{folder}/{name}/*.jsonl"


def conversation(number: int, words: int = 3) -> dict:
    question, answer = f"question {number}? " * words, f"answer {number} " * words
    answered = {"role": "assistant", "channel": "final", "content": answer}
    return {"messages": [{"role": "user", "content": question}, answered]}


@pytest.mark.parametrize("format", ["text", "chat", "prompt_completion"])
def test_a_corpus_of_one_window_is_indexed(corpus, tmp_path, monkeypatch, format):
    monkeypatch.setattr(windows, "WINDOW_TOKENS", 1 << 20)
    lengths = {"tokens": 128} if format == "chat" else {"inputs": 128, "targets": 128}
    if format == "text":
        name = registered("fits_text", corpus)
    else:
        name = ul2_tasks.register_chat(
            f"fits_{format}", write_lines(tmp_path, "talks", [*map(conversation, range(40))]), format=format
        )
    provider = seqio.get_mixture_or_task(name)
    hosts = [
        provider.get_dataset(lengths, seed=3, num_epochs=1, shard_info=seqio.ShardInfo(host, 7)).as_numpy_iterator()
        for host in range(7)
    ]
    read = [each for of_step in itertools.zip_longest(*hosts) for each in of_step if each]
    found, shift = ul2_tasks.examples(name, lengths, seed=3), id_shift(next(iter(provider.output_features.values())).vocabulary)
    for key in lengths:
        assert [(each[key] - shift).tolist() for each in read] == [each[key].tolist() for each in found]


def test_what_is_skipped_or_left_out_is_counted_once(tmp_path, caplog):
    """In two epochs, of which the beginning is read once more: of 300 conversations 10 are broken and 20 are too long."""
    records = ["broken" if number % 30 == 7 else conversation(number, words=90 if number % 15 == 4 else 3) for number in range(300)]
    source = write_lines(tmp_path, "talks", records)
    name = ul2_tasks.register_chat("counted", source, on_error="skip", truncation="drop")
    found = seqio.get_mixture_or_task(name).get_dataset({"tokens": 128}, seed=3, num_epochs=2).as_numpy_iterator()
    assert len(list(found)) == 2 * 270
    said = [record.getMessage() for record in caplog.records]
    assert [line.partition(" records")[0].rpartition(" ")[2] for line in said if "skipped" in line] == ["1", "10"]
    left_out = [int(line.partition(" examples")[0].rpartition(" ")[2]) for line in said if "left out until now" in line]
    assert left_out[0] < 10 <= left_out[-1] <= 20
    assert len(left_out) == 2


def test_a_window_without_an_example_is_passed_by(tmp_path):
    """All conversations but the last of each file are too long."""
    records = [conversation(number, words=90 if number < 196 else 3) for number in range(200)]
    name = ul2_tasks.register_chat("passed_by", write_lines(tmp_path, "talks", records), truncation="drop", turns="all")
    with pytest.raises(ValueError, match="passed_by_corpus"):
        seqio.get_mixture_or_task(name).get_dataset({"tokens": 128}, seed=3)
    records[0] = conversation(0)  # in the beginning there is one, then
    name = ul2_tasks.register_chat("passed", write_lines(tmp_path, "others", records), truncation="drop", turns="all")
    read = seqio.get_mixture_or_task(name).get_dataset({"tokens": 128}, seed=3, num_epochs=2).as_numpy_iterator()
    assert len(list(read)) == 2 * 5


def test_too_long_an_example_is_an_error_that_names_its_conversation(tmp_path):
    records = [conversation(number, words=90 if number == 199 else 3) for number in range(200)]
    name = ul2_tasks.register_chat("raised", write_lines(tmp_path, "talks", records))
    with pytest.raises(tf.errors.OpError, match=r"3\.jsonl, line 50"):
        list(seqio.get_mixture_or_task(name).get_dataset({"tokens": 128}, seed=3, num_epochs=1))


def texts(count: int, seed: int = 0) -> list[str]:
    random = np.random.default_rng(seed)
    return [" ".join(f"word{seed}n{number}x{place}" for place in range(random.integers(1, 60))) for number in range(count)]


@pytest.fixture
def described(tmp_path):
    """Makes the mixture of documents in files of their own."""

    def make(documents, name="corpus", shards=6):
        return ul2_tasks.Mixture(name, write_lines(tmp_path, name, [{"text": text} for text in documents], shards))

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


def test_a_host_without_a_token_is_told(described):
    documents = texts(60)
    documents[1::3] = [""] * 20
    members = members_of([(described(documents, shards=3), 1)])
    streams = [opened(members, host, 3) for host in range(3)]
    empty = [stream for stream in streams if stream.feeds[0]._shards_of(0) == [1]]
    assert len(empty) == 1
    with pytest.raises(ValueError, match="shards of host"):
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
