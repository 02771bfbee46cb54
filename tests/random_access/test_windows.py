"""Streams: a corpus that has no cache, and is larger than a window, is read window after window."""

import itertools
import json

import pytest
import seqio
import tensorflow as tf

import ul2_tasks
from tests.support import described
from ul2_tasks.denoisers.reconstruction import invert
from ul2_tasks.tasks.vocabulary import id_shift, special_in_seqio

LENGTHS = {"inputs": 64, "targets": 64}
TOKENS = 1500  # of a window
FILES, DOCUMENTS = 6, 40


@pytest.fixture(autouse=True)
def small_windows(monkeypatch):
    monkeypatch.setattr("ul2_tasks.random_access.windows.WINDOW_TOKENS", TOKENS)


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


def chunks(name, found):
    """The tokens of each example before it was denoised."""
    made = []
    for example in found:
        task = seqio.TaskRegistry.get(example["task"].decode())
        special = special_in_seqio(described(task).special_tokens(), task.description.vocabulary)
        made.append(invert({key: example[key] for key in LENGTHS}, task.denoiser, special).chunk.tolist())
    return made


def test_more_hosts_than_shards_are_refused(corpus):
    with pytest.raises(ValueError, match=f"shard .*got {FILES}"):
        dataset(registered("hosts", corpus), shard_info=seqio.ShardInfo(0, FILES + 1))


def test_a_corpus_of_one_window_is_indexed(corpus, monkeypatch):
    monkeypatch.setattr("ul2_tasks.random_access.windows.WINDOW_TOKENS", 1 << 20)
    name = registered("fits", corpus)
    found = ul2_tasks.examples(name, LENGTHS, seed=3)
    hosts = [dataset(name, shard_info=seqio.ShardInfo(host, 7)).as_numpy_iterator() for host in range(7)]
    read = [each for of_step in itertools.zip_longest(*hosts) for each in of_step if each]
    shift = id_shift(seqio.get_mixture_or_task(name).output_features["targets"].vocabulary)
    assert [each["inputs"].tolist() for each in read] == [(each["inputs"] + shift).tolist() for each in found]


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


def write_lines(folder, name, records):
    (folder / name).mkdir()
    for file in range(4):
        lines = [record if isinstance(record, str) else json.dumps(record) for record in records[file::4]]
        (folder / name / f"{file}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return f"{folder}/{name}/*.jsonl"


def conversation(number: int, words: int = 3) -> dict:
    question, answer = f"question {number}? " * words, f"answer {number} " * words
    answered = {"role": "assistant", "channel": "final", "content": answer}
    return {"messages": [{"role": "user", "content": question}, answered]}


@pytest.mark.parametrize("pairs", [False, True])
def test_conversations_of_one_window_are_those_of_the_index(tmp_path, monkeypatch, pairs):
    monkeypatch.setattr("ul2_tasks.random_access.windows.WINDOW_TOKENS", 1 << 20)
    chat = ul2_tasks.Chat(f"one_window_{pairs}", write_lines(tmp_path, "talks", [*map(conversation, range(40))]))
    lengths = {"inputs": 128, "targets": 128} if pairs else {"tokens": 128}
    name = ul2_tasks.register_chat(chat.name, chat.source, format="prompt_completion" if pairs else "chat")
    read = list(seqio.get_mixture_or_task(name).get_dataset(lengths, seed=3, num_epochs=1).as_numpy_iterator())
    shift = id_shift(chat.renderer.vocabulary)
    found = ul2_tasks.examples(chat, lengths, seed=3)
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
    with pytest.raises(ValueError, match=r"passed_by_corpus.*got none: \d+ too long"):
        seqio.get_mixture_or_task(name).get_dataset({"tokens": 128}, seed=3)
    records[0] = conversation(0)  # in the beginning there is one, then
    name = ul2_tasks.register_chat("passed", write_lines(tmp_path, "others", records), truncation="drop", turns="all")
    read = seqio.get_mixture_or_task(name).get_dataset({"tokens": 128}, seed=3, num_epochs=2).as_numpy_iterator()
    assert len(list(read)) == 2 * 5


def test_too_long_an_example_is_an_error_that_names_its_conversation(tmp_path):
    records = [conversation(number, words=90 if number == 199 else 3) for number in range(200)]
    name = ul2_tasks.register_chat("raised", write_lines(tmp_path, "talks", records))
    with pytest.raises(tf.errors.OpError, match=r"3\.jsonl, line 50: the conversation must have at most 128 tokens"):
        list(seqio.get_mixture_or_task(name).get_dataset({"tokens": 128}, seed=3, num_epochs=1))


def test_denoisers_keep_their_ratio(corpus):
    name = registered("ratio", corpus)
    found = [
        each["task"].decode()
        for each in dataset(name, num_epochs=None, passthrough_features=["task"]).take(800).as_numpy_iterator()
    ]
    counts = {denoiser.name: sum(task.endswith(f"_{denoiser.name}") for task in found) for denoiser in ul2_tasks.T5GEMMA2}
    assert abs(counts["s"] - 400) < 40
    assert all(abs(counts[key] - 100) < 25 for key in ("r1", "r2", "x1", "x2"))
