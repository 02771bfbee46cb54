"""What a cache or an export was made of: complete only while its source is as it was, and a changed file costs its shards alone."""

import functools
import importlib.util
import io
import json
import os
import pathlib
import re
import sys

import pytest
import seqio
from rich.console import Console
from support import byte_vocabulary
from test_register_chat import CONVERSATIONS, write_jsonl

from ul2_tasks import T5GEMMA2, open_source, register, register_chat
from ul2_tasks.corpus.build_cache import build
from ul2_tasks.corpus.made_of import changes
from ul2_tasks.export.conversations import write_conversations
from ul2_tasks.export.write import write_examples

BYTES, MODES = byte_vocabulary()
QUIET = Console(quiet=True)
FILES = 4


@pytest.fixture(autouse=True)
def clean_registries(monkeypatch):
    """As in another program, that registers otherwise."""
    for registry in (seqio.TaskRegistry, seqio.MixtureRegistry):
        monkeypatch.setattr(registry, "_REGISTRY", {})


def again():
    """Forgets what is registered, as the next program does."""
    for registry in (seqio.TaskRegistry, seqio.MixtureRegistry):
        registry._REGISTRY.clear()


def texts(path, number):
    path.write_text("".join(json.dumps({"text": f"document {line} of file {number}"}) + "\n" for line in range(20)))


def conversations(path, number):
    write_jsonl(path, CONVERSATIONS[number * 5 : number * 5 + 5])


def cached(spec, output, **arguments):
    again()
    register("made_of", open_source(spec, validation=0.2), BYTES, T5GEMMA2[-1:], modes=MODES)
    return build("made_of_corpus", str(output), **{"console": QUIET, **arguments})


def cached_chat(spec, output, **arguments):
    again()
    register_chat("made_of", spec, validation=0.2)
    return build("made_of_corpus", str(output), **{"console": QUIET, **arguments})


def exported_chat(spec, output, **arguments):
    again()
    name = register_chat("made_of", spec, validation=0.2)
    return write_conversations(name, f"{output}/made_of_corpus", **{"console": QUIET, **arguments})


def exported(spec, output, **arguments):
    again()
    mixture = register("made_of", open_source(spec, validation=0.2), BYTES, T5GEMMA2[-1:], modes=MODES)
    folder, lengths = f"{output}/made_of_corpus", {"inputs": 64, "targets": 64}
    return write_examples(mixture, folder, lengths, **{"format": "parquet", "shards": 1, "console": QUIET, **arguments})


JOBS = {  # each: what writes a file, what runs the job, the file that says that it is complete
    "a cache": (texts, cached, "COMPLETED"),
    "a cache of conversations": (conversations, cached_chat, "COMPLETED"),
    "an export of conversations": (conversations, exported_chat, "manifest.json"),
    "an export": (texts, exported, "_manifest.json"),
}
BY_SHARD = list(JOBS)[:3]


@pytest.fixture
def corpus(tmp_path):
    (tmp_path / "corpus").mkdir()
    return tmp_path / "corpus"


def write_corpus(corpus, write):
    for number in range(FILES):
        write(corpus / f"{number}.jsonl", number)
    return f"{corpus}/*.jsonl"


def change(path):
    """Another content of the same size."""
    path.write_text(re.sub("document 1|The|the", lambda found: found[0].swapcase(), path.read_text()))
    os.utime(path, (1, 1))


def touch(path):
    os.utime(path, (1, 1))


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(pathlib.Path(folder).rglob("*")) if path.is_file()}


def times(folder):
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in pathlib.Path(folder).rglob("*") if path.is_file()}


@pytest.mark.parametrize(("name", "spoil"), [*((name, change) for name in JOBS), ("a cache", touch)])
def test_complete_already_is_said_only_while_the_source_is_as_it_was(tmp_path, corpus, name, spoil):
    write, run, _ = JOBS[name]
    spec = write_corpus(corpus, write)
    manifest = run(spec, tmp_path / "out")
    console = Console(record=True, width=300, file=io.StringIO())
    assert run(spec, tmp_path / "out", console=console) == manifest
    assert "is complete already" in console.export_text()
    before = contents(tmp_path / "out")
    spoil(corpus / "2.jsonl")
    with pytest.raises(ValueError, match=rf"{corpus}/2\.jsonl was '\d+ bytes, .*', and is now '\d+ bytes, 1970.*'\..* [Dd]elete"):
        run(spec, tmp_path / "out")
    (corpus / "3.jsonl").unlink()
    with pytest.raises(ValueError, match=r"3\.jsonl is gone|3\.jsonl was '.*', and is now None|shards was 8, and is now 6|pieces"):
        run(spec, tmp_path / "out")
    assert contents(tmp_path / "out") == before, "nothing was touched"


@pytest.mark.parametrize("name", BY_SHARD)
def test_a_file_that_changed_in_an_unfinished_job_costs_its_shards_and_the_rest_stays(tmp_path, corpus, name):
    write, run, _ = JOBS[name]
    spec, prepared = write_corpus(corpus, write), []

    def interrupted():
        prepared.append(1)
        if len(prepared) == FILES:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(spec, tmp_path / "out", prepare=interrupted)
    written = {path: time for path, time in times(tmp_path / "out").items() if path.endswith(".bin")}
    change(corpus / "1.jsonl")
    console, prepared = Console(record=True, width=300, file=io.StringIO()), []
    run(spec, tmp_path / "out", console=console, prepare=functools.partial(prepared.append, 1))
    assert re.search(r"changed since the job began: .*1\.jsonl was '.*', and is now .* written again", console.export_text())
    now = times(tmp_path / "out")
    kept = [path for path, time in written.items() if now[path] == time]
    of_changed = [path for path in written if re.search(r"00001-of|shard_01", path)]
    assert set(kept) == set(written) - set(of_changed)
    run(spec, tmp_path / "fresh")
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")


def test_a_complete_cache_is_mended_where_its_mark_was_deleted(tmp_path, corpus):
    spec = write_corpus(corpus, texts)
    cached(spec, tmp_path / "out")
    written = times(tmp_path / "out")
    change(corpus / "1.jsonl")
    (tmp_path / "out" / "made_of_corpus" / "COMPLETED").unlink()
    cached(spec, tmp_path / "out")
    now = times(tmp_path / "out")
    again = {path for path, time in written.items() if path.endswith((".bin", ".idx")) and now[path] != time}
    assert again
    assert all("-00001-of-00004." in path for path in again), again
    cached(spec, tmp_path / "fresh")
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")


@pytest.mark.parametrize("name", JOBS)
def test_what_an_earlier_version_wrote_which_did_not_say_what_it_was_made_of_stays_complete(tmp_path, corpus, name):
    write, run, _ = JOBS[name]
    spec = write_corpus(corpus, write)
    run(spec, tmp_path / "out")
    path = tmp_path / "out" / "made_of_corpus" / ("_manifest.json" if name == "an export" else "manifest.json")
    manifest = json.loads(path.read_text())
    for entry in (manifest, *(shard for split in manifest.get("splits", {}).values() for shard in split["shards"])):
        for key in ("reads", "read_as"):
            entry.pop(key, None)
    path.write_text(json.dumps(manifest))
    change(corpus / "2.jsonl")
    console = Console(record=True, width=300, file=io.StringIO())
    assert run(spec, tmp_path / "out", console=console) == manifest
    assert "is complete already" in console.export_text()


def test_an_unfinished_cache_of_an_earlier_version_goes_on_with_the_same_files_alone(tmp_path, corpus):
    spec = write_corpus(corpus, texts)
    cached(spec, tmp_path / "fresh")
    prepared = []

    def interrupted():
        prepared.append(1)
        if len(prepared) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached(spec, tmp_path / "out", prepare=interrupted)
    from ul2_tasks.sources.shard_records import stamps

    records = tmp_path / "out" / "made_of_corpus" / "parts"
    for path in records.glob("*.json"):
        value = json.loads(path.read_text())
        value.pop("reads")
        if value.pop("read_as", None):
            value["source"] = stamps(open_source(spec))
        path.write_text(json.dumps(value))
    console = Console(record=True, width=300, file=io.StringIO())
    touched = (corpus / "3.jsonl").stat()
    touch(corpus / "3.jsonl")
    with pytest.raises(ValueError, match=r"was begun with other settings: source\..*3\.jsonl was"):
        cached(spec, tmp_path / "out")
    os.utime(corpus / "3.jsonl", ns=(touched.st_atime_ns, touched.st_mtime_ns))
    cached(spec, tmp_path / "out", console=console)
    assert "2 of 4 shards are there already" in console.export_text()


def test_a_path_is_known_by_what_it_leads_to(tmp_path, corpus, monkeypatch):
    """And not by its spelling, to the job and to who reads the cache."""
    monkeypatch.chdir(tmp_path)
    write_corpus(corpus, texts)
    (tmp_path / "link").symlink_to("corpus")
    manifest = cached("corpus/*.jsonl", tmp_path / "out")
    for spelled in ("./corpus/*.jsonl", f"{corpus}/*.jsonl", "link/*.jsonl", "corpus", [f"{corpus}/{n}.jsonl" for n in range(4)]):
        console = Console(record=True, width=300, file=io.StringIO())
        assert cached(spelled, tmp_path / "out", console=console) == manifest
        assert "is complete already" in console.export_text(), spelled
    (tmp_path / "other").mkdir()
    write_corpus(tmp_path / "other", texts)
    for other in ("other/*.jsonl", [f"{corpus}/{n}.jsonl" for n in (1, 0, 2, 3)], "corpus/[012].jsonl"):
        with pytest.raises(ValueError, match="was made with other settings: source is"):
            cached(other, tmp_path / "out")


def test_what_the_function_of_a_source_does_is_part_of_it(tmp_path):
    module = pathlib.Path(tmp_path, "own_source_of_made_of.py")

    def run(text):
        again()
        module.write_text(f"import tensorflow as tf\ndef texts(split, shuffle_files, seed=None):\n    return {text}\n")
        spec = importlib.util.spec_from_file_location(module.stem, module)
        sys.modules[module.stem] = loaded = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded)
        register("made_of", seqio.FunctionDataSource(loaded.texts, splits=["train"]), BYTES, T5GEMMA2[:1], modes=MODES)
        return build("made_of_corpus", str(tmp_path / "out"), console=QUIET)

    texts = "tf.data.Dataset.from_tensor_slices({'text': ['%s', 'b']})"
    assert run(texts % "a") == run(texts % "a")
    with pytest.raises(ValueError, match=r"train, shard 0 was 'python .*', and is now 'python .*'"):
        run(texts % "another")  # of another size: Python compares no more of a module that it has compiled within a second


def test_the_words_of_changes():
    was = {"train": ["a[0:9]: 9 bytes, then", "b: 2 bytes, then", "c: 3 bytes, then"]}
    assert changes(was, was) == ("", True)
    assert changes({"train": ["", "", ""]}, was) == ("", True), "an earlier version did not say it"
    assert changes(was, {"train": ["a[0:9]: 9 bytes, now", *was["train"][1:]]}) == (
        "a[0:9] was '9 bytes, then', and is now '9 bytes, now'",
        True,
    )
    assert changes(was, {"train": [*was["train"][:2], "d: 1 bytes, then"]}) == ("c is gone; d is new", False)
    assert changes(was, {"train": was["train"][::-1]}) == ("the files of 'train' come in another order", False)
    many = {"train": [f"{number}: then" for number in range(9)]}
    assert changes(many, {"train": [f"{number}: now" for number in range(9)]})[0].endswith("; and 6 more")
