"""The tokens of a corpus for Megatron-LM: one pair of files, read back as a corpus."""

import pathlib

import numpy as np
import pytest
import seqio
from click.testing import CliRunner
from rich.console import Console

from tests.support import at_once, byte_vocabulary, corpus_named, refused
from ul2_tasks import T5GEMMA2, open_source, register
from ul2_tasks.cli import main
from ul2_tasks.corpus.build_cache import build
from ul2_tasks.export.megatron import write_megatron
from ul2_tasks.sources.memory import MemoryDataSource
from ul2_tasks.store.read import Store

BYTES, MODES = byte_vocabulary()
TEXTS = [f"document {number}" for number in range(50)]

SUFFIXES = ("bin", "idx", "origins.arrow")


def corpus(name, validation=0.2):
    register(name, MemoryDataSource(lambda: TEXTS, validation=validation), BYTES, T5GEMMA2[:1], modes=MODES)
    return seqio.TaskRegistry.get(f"{name}_corpus").corpus


def texts(prefix, end: bool) -> list[str]:
    tokens, lengths = (store := Store.open([prefix])).read_documents(np.arange(store.documents))
    documents = [part.tolist() for part in np.split(tokens, np.cumsum(lengths)[:-1])]
    assert not end or {document[-1] for document in documents} == {1}
    return [BYTES.decode(document[: len(document) - end]) for document in documents]


@pytest.mark.parametrize("append_eod", [True, False])
def test_a_split_becomes_a_pair_with_an_eos_after_each_document(tmp_path, append_eod):
    task = corpus(f"to_megatron_{append_eod}")
    found = {}
    for split in ("train", "validation"):
        written = write_megatron(task, str(tmp_path), split, append_eod=append_eod)
        assert written["prefix"] == f"{tmp_path}/to_megatron_{append_eod}-{split}"
        found[split] = texts(written["prefix"], append_eod)
        assert (written["documents"], written["documents"]) == (len(found[split]), task.source.count(split))
    assert sorted(found["train"] + found["validation"]) == sorted(TEXTS)


def test_of_a_cache_and_back_again_as_a_corpus(tmp_path, monkeypatch):
    """By hash of the text of Python's own source; then another export of what was exported is the same bytes."""
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.jsonl").write_text("".join(f'{{"text": "{text}"}}\n' for text in TEXTS))
    register("megatron_cached", open_source(str(folder), validation=0.2), BYTES, T5GEMMA2[:1], modes=MODES)
    task = seqio.TaskRegistry.get("megatron_cached_corpus").corpus
    manifest = build(corpus_named(task.name), str(tmp_path / "cache"), console=Console(quiet=True))
    counts = [split["documents"] for split in manifest["splits"].values()]
    assert sum(counts) == 50 > counts[0] > counts[1] > 0, "one reading gives both splits"
    before = seqio.get_global_cache_dirs()
    seqio.set_global_cache_dirs([str(tmp_path / "cache")])
    try:
        cached = write_megatron(task, str(tmp_path / "of_cache"), use_cached=True)
    finally:
        seqio.set_global_cache_dirs(before)
    uncached = write_megatron(task, str(tmp_path / "of_text"))
    register("megatron_again", f"megatron:{cached['prefix']}", BYTES, T5GEMMA2[:1], modes=MODES)
    again = write_megatron(seqio.TaskRegistry.get("megatron_again_corpus").corpus, str(tmp_path / "again"))
    for suffix in ("bin", "idx"):
        paths = [f"{written['prefix']}.{suffix}" for written in (cached, uncached, again)]
        assert len({pathlib.Path(path).read_bytes() for path in paths}) == 1


def test_what_is_there_or_empty_is_refused(tmp_path):
    task = corpus("megatron_refused", validation=1e-9)
    with pytest.raises(ValueError, match="has no document in split 'validation', and Megatron-LM opens no empty dataset"):
        write_megatron(task, str(tmp_path), "validation")
    with pytest.raises(ValueError, match=r"split must be one of .* in 'megatron_refused_corpus', got 'test'"):
        write_megatron(task, str(tmp_path), "test")
    assert list(tmp_path.iterdir()) == []
    write_megatron(task, str(tmp_path))
    with pytest.raises(ValueError, match=r"megatron_refused-train\.bin exists\. Delete it, or name another folder"):
        write_megatron(task, str(tmp_path))


def test_of_jobs_that_write_one_pair_one_alone_does_and_the_others_are_refused(tmp_path):
    task = corpus("megatron_at_once")
    found = at_once(lambda: write_megatron(task, str(tmp_path)), count=4)
    (written,) = (one for one in found if isinstance(one, dict))
    too_late = [one for one in found if isinstance(one, ValueError) and ".bin exists" in str(one)]  # it had ended
    assert len(refused(found)) + len(too_late) == 3
    assert len(texts(written["prefix"], True)) == written["documents"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"megatron_at_once-train.{suffix}" for suffix in SUFFIXES]


def test_what_a_killed_job_left_is_removed_by_the_next(tmp_path):
    left = tmp_path / "megatron_killed-train_parts"
    left.mkdir()
    (left / "bin.tmp").write_bytes(b"half")
    write_megatron(corpus("megatron_killed"), str(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"megatron_killed-train.{suffix}" for suffix in SUFFIXES]


def test_the_command_says_what_it_wrote_and_refuses_what_goes_with_examples(tmp_path):
    mixture = corpus("megatron_command").name.removesuffix("_corpus")
    command = ["export", mixture, "--format", "megatron", "--output", str(tmp_path)]
    done = CliRunner().invoke(main, command)
    assert (done.exit_code, done.stdout.split(": ")[0]) == (0, f"{tmp_path}/megatron_command-train")
    assert "documents" in done.stdout
    for options in (["--lengths", "64,64"], ["--seed", "3"], ["--shards", "2"]):
        refused = CliRunner().invoke(main, [*command, *options])
        assert refused.exit_code == 2
        assert f"{options[0]} must be left out with --format megatron, which writes tokens instead of examples." in refused.stderr
