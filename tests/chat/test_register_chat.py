"""`register_chat`: from files of conversations to examples, cached and not."""

import itertools
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import seqio
from rich.console import Console

import ul2_tasks
from tests.chat.chat_support import GOLDEN
from tests.support import corpus_named
from ul2_tasks.corpus.build_cache import build
from ul2_tasks.mixtures.chat import open_conversations
from ul2_tasks.tasks.sources import seqio_source

CONVERSATIONS = [
    [
        {"role": "system", "content": f"Conversation {number}."},
        *(
            message
            for turn in range(1 + number % 3)
            for message in (
                {"role": "user", "content": f"{number} plus {turn}?"},
                {"role": "assistant", "channel": "analysis", "content": f"I add {number} and {turn}."},
                {"role": "assistant", "channel": "final", "content": f"{number + turn}."},
            )
        ),
    ]
    for number in range(150)
]


def write_jsonl(path, conversations=CONVERSATIONS):
    lines = [json.dumps({"id": f"id {n}", "messages": messages}) for n, messages in enumerate(conversations)]
    path.write_text("".join(line + "\n" for line in lines))
    return str(path)


def examples(name, split="train", count=None, **settings) -> list[dict]:
    dataset = seqio.get_mixture_or_task(name).get_dataset(None, split, **{"seed": 0, "shuffle": False, **settings})
    return [{key: value.tolist() for key, value in one.items()} for one in itertools.islice(dataset.as_numpy_iterator(), count)]


def quiet() -> Console:
    return Console(quiet=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("chat")


@pytest.fixture(scope="module")
def jsonl(folder):
    return ul2_tasks.register_chat("rc_jsonl", write_jsonl(folder / "a.jsonl"))


@pytest.fixture(scope="module")
def cached(jsonl, folder):
    """The cached corpus, beside SeqIO's other cache directories."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seqio.utils, "_GLOBAL_CACHE_DIRECTORIES", [str(folder / "cache")])
        build(corpus_named("rc_jsonl_corpus"), str(folder / "cache"), console=quiet())
        yield jsonl


@pytest.mark.parametrize("format", ["chat", "prompt_completion"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_the_cache_gives_the_examples_of_the_text(cached, format, shuffle):
    name = f"rc_jsonl_{format}"
    of_text = examples(name, shuffle=shuffle)
    assert examples(name, use_cached=True, shuffle=shuffle) == of_text
    assert len(of_text) == (150 if format == "chat" else sum(1 + number % 3 for number in range(150)))


def test_a_bad_conversation_is_named_by_file_and_row_or_skipped_and_counted(folder):
    bad = [GOLDEN, [{"role": "critic", "content": "x"}], [], GOLDEN]
    path = write_jsonl(folder / "bad.jsonl", bad)
    name = ul2_tasks.register_chat("rc_bad", path)
    with pytest.raises(ValueError, match=r"bad\.jsonl, line 2: .*role.*on_error"):
        examples(name)
    skipping = ul2_tasks.register_chat("rc_skip", path, on_error="skip")
    assert len(examples(skipping)) == 2
    manifest = build(corpus_named("rc_skip_corpus"), str(folder / "skip"), console=quiet())
    assert (manifest["totals"]["documents"], manifest["totals"]["skipped"]) == (2, 2)
    with pytest.raises(RuntimeError, match=r"bad\.jsonl, line 2: .*role"):
        build(corpus_named("rc_bad_corpus"), str(folder / "raise"), console=quiet())


def test_lengths_are_kept_or_an_error(jsonl):
    task = seqio.get_mixture_or_task(jsonl)
    longest = max(len(example["tokens"]) for example in examples(jsonl))
    assert len(list(task.get_dataset({"tokens": longest}, "train", shuffle=False))) == 150
    with pytest.raises(ValueError, match=r"a\.jsonl, line \d+: "):
        task.get_dataset({"tokens": longest - 1}, "train", shuffle=False)
    for wrong in ({"targets": 5}, {"tokens": 0}):
        with pytest.raises(ValueError, match="sequence_length"):
            task.get_dataset(wrong, "train")


def test_a_corpus_that_makes_no_example_is_an_error_and_no_endless_loop(folder):
    path = write_jsonl(folder / "long.jsonl", CONVERSATIONS[:3])
    name = ul2_tasks.register_chat("rc_long", path, truncation="drop")
    with pytest.raises(ValueError, match="must have an example in split 'train', got none: 3 too long"):
        seqio.get_mixture_or_task(name).get_dataset({"tokens": 5}, "train", num_epochs=None)
    nobody = write_jsonl(folder / "nobody.jsonl", [[{"role": "user", "content": "Anyone?"}]])
    with pytest.raises(ValueError, match="got none: 1 without a token to train on"):
        examples(ul2_tasks.register_chat("rc_nobody", nobody), num_epochs=None)
    with pytest.raises(ValueError, match="must have an example in split 'train', got none"):
        examples(ul2_tasks.register_chat("rc_none", ul2_tasks.MemoryDataSource(list, validation=0)))


def write_contract(path, ids, metadata):
    """Rows of the columns messages_json and, as far as they are given, synth_id and metadata_json."""
    columns = {"messages_json": [json.dumps({"messages": messages}) for messages in CONVERSATIONS[: len(ids or metadata)]]}
    columns |= {"synth_id": ids} if ids else {}
    columns |= {"metadata_json": [json.dumps(one) for one in metadata]} if metadata else {}
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(dict(zip(columns, row))) + "\n" for row in zip(*columns.values())))
    else:
        pq.write_table(pa.table(columns), path)
    return str(path)


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_the_id_is_in_its_column_or_in_the_metadata(folder, suffix):
    ids = [f"id {number}" for number in range(60)]
    metadata = [{"synth_id": id, "model": "x"} for id in ids]
    found = []
    for number, (own, beside) in enumerate([(ids, None), (None, metadata), (ids, metadata), (ids, [{}] * 60)]):
        path = write_contract(folder / f"ids{number}.{suffix}", own, beside)
        source = open_conversations(path, "messages_json", validation=0.3)
        found.append(list(seqio_source(source).get_dataset("validation", shuffle=False).as_numpy_iterator()))
    assert all(validation == found[0] for validation in found)
    assert 8 <= len(found[0]) <= 28
