"""Pairs that are read in place: with a manifest, or what is left of a job, beside them they are whole and of the vocabulary."""

import json
import os
import shutil
import uuid

import pytest
import seqio

from tests.support import built, byte_vocabulary, write_jsonl
from ul2_tasks import T5GEMMA2, open_source, register
from ul2_tasks.corpus import cache
from ul2_tasks.export.megatron import write_megatron
from ul2_tasks.jobs.manifest import write_manifest

BYTES, MODES = byte_vocabulary()
TEXTS = [f"document {number} of this part" for number in range(8)]


def corpus_of(name, source, vocabulary=BYTES, modes=MODES):
    register(name, source, vocabulary, T5GEMMA2[:1], modes=modes)
    return seqio.TaskRegistry.get(f"{name}_corpus").corpus


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """Two finished parts of two shards each."""
    folder = tmp_path_factory.mktemp("parts")
    for part in ("web_000", "web_001"):
        os.mkdir(folder / part)
        for file in ("a", "b"):
            write_jsonl(folder / part / f"{file}.jsonl", [f"{part}, {text}" for text in TEXTS])
        built(corpus_of(part, open_source(str(folder / part))).name, folder / "cache")
    return folder / "cache"


@pytest.fixture
def copied(parts, tmp_path):
    return shutil.copytree(parts, tmp_path / "cache")


def read(folder, pattern="web_*_corpus/train-*", **arguments) -> int:
    source = open_source(f"megatron:{folder}/{pattern}")
    return corpus_of(f"read_{uuid.uuid4().hex}", source, **arguments).stored("train").documents


def test_finished_parts_are_read_as_one_and_some_of_their_pairs_are_where_they_are_named(copied):
    assert read(copied) == 4 * len(TEXTS)
    second = copied / "web_001_corpus"
    for path in second.glob("train-00001*"):
        path.unlink()
    assert read(copied, "web_001_corpus/train-00000-of-00002") == len(TEXTS), "which was said"


def kill_at_the_second_shard(folder):
    """What a job leaves that is killed there."""
    records = folder / "parts"
    records.mkdir()
    write_manifest(str(records / "begun.json"), {"parts": 2})
    for path in (*folder.glob("train-00001*"), *folder.glob("manifest.json"), folder / "COMPLETED"):
        path.unlink()


def kill_at_once(folder):
    shutil.rmtree(folder)
    (folder / "parts").mkdir(parents=True)
    (folder / "parts" / "running").write_text("{}")


def remove_a_pair(folder):
    for path in folder.glob("train-00001*"):
        path.unlink()


def truncate(folder):
    os.truncate(folder / "train-00001-of-00002.bin", 10)


HARMS = [kill_at_the_second_shard, kill_at_once, remove_a_pair, truncate]


@pytest.mark.parametrize("harm", HARMS)
def test_a_part_that_is_not_whole_is_named(copied, harm):
    harm(copied / "web_001_corpus")
    with pytest.raises(ValueError, match=r"web_001_corpus"):
        read(copied)


def test_parts_of_another_vocabulary_are_refused_though_all_ids_are_known(copied):
    with pytest.raises(ValueError, match=r"web_000_corpus.* there, and .* here"):
        read(copied, vocabulary=seqio.ByteVocabulary(extra_ids=104))


def test_without_a_manifest_nothing_is_known_and_one_of_another_program_says_nothing(copied):
    for part in ("web_000_corpus", "web_001_corpus"):
        (copied / part / cache.MANIFEST).unlink()
    remove_a_pair(copied / "web_001_corpus")
    assert read(copied, vocabulary=seqio.ByteVocabulary(extra_ids=104)) == 3 * len(TEXTS)
    (copied / "web_000_corpus" / cache.MANIFEST).write_text(json.dumps({"schema_version": 7, "files": []}))
    assert read(copied, "web_00*_corpus/train-*") == 3 * len(TEXTS)


def test_parts_of_which_only_some_end_their_documents_are_refused(copied, tmp_path):
    for part, append_eod in (("web_000", True), ("web_001", False)):
        tokens = open_source(f"megatron:{copied}/{part}_corpus/train-*")
        write_megatron(corpus_of(f"{part}_{tmp_path.name}", tokens), str(tmp_path / "mixed"), append_eod=append_eod)
    with pytest.raises(ValueError, match="EOD"):
        read(tmp_path / "mixed", "web_*-train")
    assert read(tmp_path / "mixed", "web_000*-train") == 2 * len(TEXTS)


def test_a_pair_that_is_still_written_is_missed(copied, tmp_path):
    folder = tmp_path / "megatron"
    for part in ("web_000", "web_001"):
        tokens = open_source(f"megatron:{copied}/{part}_corpus/train-*")
        write_megatron(corpus_of(f"{part}_of_{tmp_path.name}", tokens), str(folder), append_eod=False)
    (folder / f"web_002_of_{tmp_path.name}-train_parts").mkdir()
    with pytest.raises(ValueError, match=r"web_002_of_.*-train_parts"):
        read(folder, "web_*-train")
    assert read(folder, "web_000*-train") == 2 * len(TEXTS)
