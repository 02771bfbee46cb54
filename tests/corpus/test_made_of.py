"""What a cache or an export was made of: complete only while its source is as it was, and a changed file costs its shards alone."""

import functools
import io
import os
import pathlib
import re

import pytest
from rich.console import Console

from tests.chat import test_register_chat
from tests.laws.pipelines import program
from tests.support import byte_vocabulary, corpus_named, telling, write_jsonl
from ul2_tasks import T5GEMMA2, Mixture, open_source, register, register_chat
from ul2_tasks.corpus.build_cache import build
from ul2_tasks.export.write import write_examples

BYTES, MODES = byte_vocabulary()
QUIET = Console(quiet=True)
FILES = 4


def texts(path, number):
    write_jsonl(path, [f"document {line} of file {number}" for line in range(20)])


def conversations(path, number):
    test_register_chat.write_jsonl(path, test_register_chat.CONVERSATIONS[number * 5 : number * 5 + 5])


def build_told(register, output, prepare=lambda: None, **arguments):
    """In a program in which nothing was registered."""
    with program():
        register()
        return build(telling(corpus_named("made_of_corpus"), prepare), str(output), **{"console": QUIET, **arguments})


def cached(spec, output, **arguments):
    source = open_source(spec, validation=0.2)
    return build_told(lambda: register("made_of", source, BYTES, T5GEMMA2[-1:], modes=MODES), output, **arguments)


def cached_chat(spec, output, **arguments):
    return build_told(lambda: register_chat("made_of", spec, validation=0.2), output, **arguments)


def exported(spec, output, **arguments):
    mixture = Mixture("made_of", open_source(spec, validation=0.2), BYTES, T5GEMMA2[-1:], modes=MODES)
    folder, lengths = f"{output}/made_of_corpus", {"inputs": 64, "targets": 64}
    return write_examples(mixture, folder, lengths, **{"format": "parquet", "shards": 1, "console": QUIET, **arguments})


JOBS = {  # each: what writes a file, what runs the job
    "a cache": (texts, cached),
    "a cache of conversations": (conversations, cached_chat),
    "an export": (texts, exported),
}
BY_SHARD = list(JOBS)[:2]


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
    write, run = JOBS[name]
    spec = write_corpus(corpus, write)
    manifest = run(spec, tmp_path / "out")
    console = Console(record=True, width=300, file=io.StringIO())
    assert run(spec, tmp_path / "out", console=console) == manifest
    assert "is complete already" in console.export_text()
    before = contents(tmp_path / "out")
    spoil(corpus / "2.jsonl")
    with pytest.raises(ValueError, match=rf"{corpus}/2\.jsonl"):
        run(spec, tmp_path / "out")
    (corpus / "3.jsonl").unlink()
    with pytest.raises(ValueError, match=r"3\.jsonl|shards"):
        run(spec, tmp_path / "out")
    assert contents(tmp_path / "out") == before, "nothing was touched"


@pytest.mark.parametrize("name", BY_SHARD)
def test_a_file_that_changed_in_an_unfinished_job_costs_its_shards_and_the_rest_stays(tmp_path, corpus, name):
    write, run = JOBS[name]
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
    of_changed = [path for path in written if "00001-of" in path]
    assert set(kept) == set(written) - set(of_changed)
    run(spec, tmp_path / "fresh")
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")


def test_a_path_is_known_by_what_it_leads_to(tmp_path, corpus, monkeypatch):
    """And not by its spelling, to the job and to who reads the cache."""
    monkeypatch.chdir(tmp_path)
    write_corpus(corpus, texts)
    (tmp_path / "link").symlink_to("corpus")
    manifest = cached("corpus/*.jsonl", tmp_path / "out")
    for spelled in (f"{corpus}/*.jsonl", "link/*.jsonl", [f"{corpus}/{n}.jsonl" for n in range(4)]):
        console = Console(record=True, width=300, file=io.StringIO())
        assert cached(spelled, tmp_path / "out", console=console) == manifest
        assert "is complete already" in console.export_text(), spelled
    (tmp_path / "other").mkdir()
    write_corpus(tmp_path / "other", texts)
    for other in ("other/*.jsonl", [f"{corpus}/{n}.jsonl" for n in (1, 0, 2, 3)], "corpus/[012].jsonl"):
        with pytest.raises(ValueError, match="source is"):
            cached(other, tmp_path / "out")
