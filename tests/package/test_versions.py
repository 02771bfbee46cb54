"""What an earlier version wrote is refused with its version, and what to do about it."""

import json

import pytest
from rich.console import Console

import ul2_tasks
from tests.support import built
from ul2_tasks.corpus import cache
from ul2_tasks.export import folder
from ul2_tasks.export.write import write_examples
from ul2_tasks.inspect.run import read_record
from ul2_tasks.random_access.numbering import RUN_RECORD
from ul2_tasks.t5x.dataset import Start, begin_or_compare

QUIET = Console(quiet=True)
LENGTHS = {"inputs": 64, "targets": 64}
TEXTS = ["a text that is long enough for an example " * 4] * 20


def registered() -> str:
    return ul2_tasks.register("versions", ul2_tasks.MemoryDataSource(lambda: TEXTS, validation=0))


def older(path, key="schema_version"):
    """The same file as of the version before."""
    written = json.loads(path.read_text())
    path.write_text(json.dumps({**written, key: written[key] - 1}))
    return written[key] - 1


def of_cache(path):
    registered()
    built("versions_corpus", path)
    return older(path / "versions_corpus" / cache.MANIFEST), lambda: built("versions_corpus", path)


def of_export(path):
    write_examples(ul2_tasks.description_of(registered()), str(path), LENGTHS, format="parquet", shards=1, console=QUIET)
    return older(path / folder.MANIFEST), lambda: ul2_tasks.read_examples(str(path))


def of_run(path):
    record = {"mixture": "m", "sequence_length": {}, "split": "train", "seed": 0, "shuffle": True, "pack": False, "batch_size": 8}
    (path / RUN_RECORD).write_text(json.dumps({**record, "first_step": 0, "numbered_version": 2}))
    return 2, lambda: read_record(str(path))


def of_resumed_run(path):
    (path / RUN_RECORD).write_text(json.dumps({"numbered_version": 2, "first_step": 0, "batch_size": 8}))
    return 2, lambda: begin_or_compare(str(path), {}, Start(5, True, ""), is_writer=True)


def of_torch(path):
    dataset = ul2_tasks.UL2IterableDataset(registered(), LENGTHS, seed=0)
    state = dataset.state_dict()
    return state["version"] - 1, lambda: dataset.load_state_dict({**state, "version": state["version"] - 1})


WRITTEN = [of_cache, of_export, of_run, of_resumed_run, pytest.param(of_torch, marks=pytest.mark.torch)]


@pytest.mark.parametrize("written", WRITTEN)
def test_what_another_version_wrote_is_refused_with_its_version(tmp_path, written):
    version, read = written(tmp_path)
    with pytest.raises(ValueError, match=f"version {version}"):
        read()
