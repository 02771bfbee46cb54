"""The wall around the core: it needs neither SeqIO nor TensorFlow, and gives what it gives beside them."""

import dataclasses
import itertools
import json
import os
import re
import subprocess
import sys

import core
import pytest
import seqio
from new_process import FOLDERS, TESTS
from rich.console import Console

import ul2_tasks
from ul2_tasks.corpus.build_cache import build
from ul2_tasks.mixtures import advice


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What a process makes in which they cannot be imported, and its folder."""
    pytest.importorskip("PIL", reason="the extra images is not installed")
    folder = tmp_path_factory.mktemp("alone")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS.parent), *FOLDERS])}
    done = subprocess.run([sys.executable, TESTS / "core.py", folder], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1]), folder


def test_each_file_of_the_core_is_imported_where_seqio_and_tensorflow_raise(alone):
    """A file that is no door and needs one of them fails in `alone`. A door that needs neither is in the core."""
    made, _ = alone
    assert made.keys() == {
        "texts",
        "commands",
        "tokens",
        "conversations",
        "interleaved image-text data",
        "images",
        "collated",
        "batches",
    }
    for room, doors in core.CORE.items():
        for door in doors:
            text = (core.PACKAGE / room / f"{door}.py").read_text()
            assert "import tensorflow" in text or "import seqio" in text or "corpus.view import" in text, (room, door)


def test_it_makes_the_same_beside_them(alone, tmp_path, monkeypatch):
    made, _ = alone
    for name in ("POOL", "POOLS", "FRACTIONS"):  # which `core.commands` sets, here for all tests after it
        monkeypatch.setattr(advice, name, getattr(advice, name))
    assert json.loads(json.dumps(core.main(tmp_path))) == made | {"texts": made["texts"] | {"fingerprint": _fingerprint(tmp_path)}}


def _fingerprint(folder) -> str:
    """Of files in another folder, so another one."""
    return ul2_tasks.Mixture("core", str(folder / "texts.jsonl")).fingerprint()


def test_a_mixture_has_the_examples_of_its_name(alone):
    """As a description, in a process without SeqIO; and registered, with its cache in SeqIO's own directories."""
    made, folder = alone
    name = ul2_tasks.register("core", str(folder / "texts.jsonl"))
    before = seqio.get_global_cache_dirs()
    seqio.set_global_cache_dirs([str(folder / "CACHE")])
    try:
        assert core.digest(ul2_tasks.examples(name, core.LENGTHS, seed=3)[:20]) == made["texts"]["from a cache"]
        assert core.digest(ul2_tasks.examples(name, core.LENGTHS, seed=3, pack=True)[:5]) == made["texts"]["packed"]
        cached = seqio.get_mixture_or_task(name).get_dataset(core.LENGTHS, "train", use_cached=True, seed=3, num_epochs=1)
        ul2_tasks.register("also", denoisers="UL2")
        mixed = ul2_tasks.mix("mixed", {name: 2, "also_mix": 1.5})
        assert core.digest(ul2_tasks.examples(mixed, core.LENGTHS, seed=3)[:20]) == made["texts"]["mixed"]
        first = next(cached.as_numpy_iterator())
        assert first["inputs"].tolist() == ul2_tasks.examples(name, core.LENGTHS, seed=3)[0]["inputs"].tolist()
    finally:
        seqio.set_global_cache_dirs(before)
    assert made["texts"]["from memory"] == made["texts"]["from a cache"]


@pytest.mark.parametrize("format", ["chat", "prompt_completion"])
def test_conversations_have_the_examples_of_their_name(alone, format):
    made, folder = alone
    lengths = {"tokens": 4096} if format == "chat" else {"inputs": 4096, "targets": 4096}
    name = ul2_tasks.register_chat("talks", mode="[S]", format=format)
    before = seqio.get_global_cache_dirs()
    seqio.set_global_cache_dirs([str(folder / "CACHE")])
    try:
        cached = seqio.get_mixture_or_task(name).get_dataset(lengths, "train", use_cached=True, seed=3, num_epochs=1)
        found = core.digest(cached.as_numpy_iterator())
    finally:
        seqio.set_global_cache_dirs(before)
    assert found == made["conversations"]["from a cache" if format == "chat" else "replies"]
    assert made["conversations"]["from memory"] == made["conversations"]["from a cache"]


def test_interleaved_data_have_the_cache_of_their_name(alone, tmp_path):
    made, folder = alone
    ul2_tasks.register_image_text("seen", image_tokens=ul2_tasks.ImageTokens(**core.IMAGE))
    registered = build("seen_corpus", str(tmp_path), console=Console(quiet=True))
    files = [file for shard in registered["splits"]["train"]["shards"] for file in shard["files"]]
    assert files == made["interleaved image-text data"]["files"]
    assert registered["totals"] == made["interleaved image-text data"]["totals"]
    assert registered["totals"]["documents"] > 0
    assert len({*made["interleaved image-text data"]["examples"].values()}) == 1, "from memory and from a cache"
    corpus = seqio.TaskRegistry.get("seen_corpus")
    before = seqio.get_global_cache_dirs()
    seqio.set_global_cache_dirs([str(folder / "CACHE")])
    try:
        found = list(corpus.records("train", True, shuffle=False, seed=0, shard_info=None, num_epochs=1).as_numpy_iterator())
    finally:
        seqio.set_global_cache_dirs(before)
    of_source = list(corpus.records("train", False, shuffle=False, seed=0, shard_info=None, num_epochs=1).as_numpy_iterator())
    assert [one["images"].tolist() for one in found] == [one["images"].tolist() for one in of_source]


@pytest.mark.torch
def test_pytorch_reads_of_a_mixture_what_it_reads_of_its_name(alone):
    """The same batches, and the same state, which each loads of the other."""
    pytest.importorskip("torch", reason="the extra torch is not installed")
    made, folder = alone
    name = ul2_tasks.register("core", str(folder / "texts.jsonl"))
    before = seqio.get_global_cache_dirs()
    seqio.set_global_cache_dirs([str(folder / "CACHE")])
    try:
        settings = {"seed": 3, "use_cached": True}
        single = ul2_tasks.UL2IterableDataset(name, core.LENGTHS, **settings)
        padded = ul2_tasks.UL2IterableDataset(
            name, core.LENGTHS, feature_converter=core.converter(), rank=1, world_size=2, **settings
        )
        elements = [next(iter(single)), *itertools.islice(iter(padded), 2)]
        *found, state = made["batches"]
        assert found == [{key: values.tolist() for key, values in element.items()} for element in elements]
        assert state == json.loads(json.dumps(padded.state_dict()))
    finally:
        seqio.set_global_cache_dirs(before)


def test_two_mixtures_are_equal_if_their_arguments_are(tmp_path):
    (tmp_path / "a.txt").write_text("a text\n")
    spec = str(tmp_path / "a.txt")
    source = ul2_tasks.open_source(spec, documents="line")
    same = ul2_tasks.Mixture("one", source), ul2_tasks.Mixture("one", ul2_tasks.open_source(spec, documents="line"))
    assert same[0] == same[1]
    assert hash(same[0]) == hash(same[1])
    assert same[0].fingerprint() == same[1].fingerprint()
    for other in (
        ul2_tasks.Mixture("two", source),
        ul2_tasks.Mixture("one", source, denoisers="UL2"),
        ul2_tasks.Mixture("one", source, "bytes"),
        ul2_tasks.Mixture("one", source, separate_documents=True),
        ul2_tasks.Mixture("one"),
    ):
        assert other != same[0]
    assert ul2_tasks.Mixture("two", source).fingerprint() == same[0].fingerprint(), "a name changes no example"
    assert ul2_tasks.Mixture("one", source, separate_documents=True).fingerprint() != same[0].fingerprint()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"chunk_tokens": {"r9": 5}}, "chunk_tokens must name denoisers of"),
        ({"merge_examples": "yes"}, "merge_examples must be True or False, got 'yes'"),
        ({"name": 5}, "name must be letters, digits and _ . : #, as SeqIO has them"),
        ({"on_error": "stop"}, "on_error must be 'raise' or 'skip', got 'stop'"),
        ({"vocabulary": 5}, "vocabulary must be a path, a fast tokenizer"),
    ],
)
def test_a_mixture_says_what_is_wrong(arguments, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        ul2_tasks.Mixture(**arguments)


def test_examples_say_what_does_not_go_with_a_description():
    causal = ul2_tasks.Mixture(denoisers=[ul2_tasks.CausalDenoiser(name="c", mode=None)])
    with pytest.raises(ValueError, match=r"the chunks of 'ul2_c' must have fixed .*, because its denoiser puts ids between"):
        ul2_tasks.examples(causal, core.LENGTHS)
    with pytest.raises(ValueError, match=r"cache_dirs must be left out for what is registered, got \['CACHE'\]"):
        ul2_tasks.examples("ul2_mix", core.LENGTHS, cache_dirs=["CACHE"])
    with pytest.raises(ValueError, match=r"cache_dirs must be a list of folders, such as \['CACHE'\], got 'CACHE'"):
        ul2_tasks.examples(ul2_tasks.Mixture(), core.LENGTHS, cache_dirs="CACHE")
    with pytest.raises(ValueError, match=r"cache_dirs must have a folder with the cache of 'ul2_corpus', got \['/nowhere'\]"):
        ul2_tasks.examples(ul2_tasks.Mixture(), core.LENGTHS, cache_dirs=["/nowhere"])
    with pytest.raises(ValueError, match=r"split must be one of .*, got 'test'"):
        ul2_tasks.examples(ul2_tasks.Mixture(), core.LENGTHS, split="test")


def test_a_cache_lies_on_any_file_system():
    where = "memory://described"
    mixture = ul2_tasks.Mixture("anywhere", ul2_tasks.MemoryDataSource(few_documents, validation=0))
    mixture.cache(where)
    found = ul2_tasks.examples(mixture, core.LENGTHS, cache_dirs=[where])
    assert core.digest(found[:5]) == core.digest(ul2_tasks.examples(mixture, core.LENGTHS)[:5])
    again = mixture.cache(where)
    assert again["totals"]["documents"] == 20


def test_a_source_that_cannot_tell_what_it_reads_has_examples_and_no_cache_and_no_fingerprint(tmp_path):
    class Reads(ul2_tasks.MemoryDataSource):
        identity = None

        def __repr__(self):
            return object.__repr__(self)

    mixture = ul2_tasks.Mixture("untold", Reads(lambda: few_documents(), validation=0))
    assert len(ul2_tasks.examples(mixture, core.LENGTHS)) > 5
    for call in (lambda: mixture.cache(tmp_path), mixture.fingerprint):
        with pytest.raises(ValueError, match="'untold_corpus' cannot be cached or exported"):
            call()


def test_another_mixtures_cache_is_refused(tmp_path):
    one = ul2_tasks.Mixture("same_name", ul2_tasks.MemoryDataSource(few_documents, validation=0))
    one.cache(tmp_path)
    other = dataclasses.replace(one, vocabulary="bytes")
    with pytest.raises(ValueError, match="was made with other settings: vocabulary is"):
        ul2_tasks.examples(other, core.LENGTHS, cache_dirs=[tmp_path])
    assert dataclasses.replace(one, denoisers="UL2R").denoisers == ul2_tasks.UL2R


def few_documents() -> list[str]:
    return ul2_tasks.embedded_documents()[:20]
