"""Saves what a release of this package writes, which later ones must go on with: `test_saved.py` loads it.

    git worktree add /tmp/released TAG && cp -r tests/golden /tmp/released/tests/
    cd /tmp/released && PYTHONPATH=. python tests/golden/save_release.py

It writes tests/golden/saved/VERSION, which is not written again: a file that must be made anew no longer shows that old ones load.
"""

from __future__ import annotations

import gzip
import importlib.metadata
import io
import json
import os
import pathlib
import pickle
import platform
import tarfile
import tempfile
import types
from collections.abc import Collection
from typing import Any

import seqio
import tensorflow as tf
from golden_pipelines import (
    CACHED,
    CHECKPOINTS,
    FOLDER,
    LENGTHS,
    digests,
    joined,
    stream,
    talk,
    torch_datasets,
)

from ul2_tasks import EncDecFeatureConverter, examples, read_examples
from ul2_tasks.corpus.build_cache import build
from ul2_tasks.export.conversations import write_conversations
from ul2_tasks.export.megatron import write_megatron
from ul2_tasks.export.write import write_examples
from ul2_tasks.t5x_dataset import Start, begin_or_compare, run_of
from ul2_tasks.tasks.registration import Registration
from ul2_tasks.version import __version__

NEXT = 12  # elements of a continuation that are kept
EXPORTS = {  # their formats, and whether they read the cache
    "tfrecord": ("tfrecord", True),
    "parquet": ("parquet", True),
    "jsonl": ("jsonl", True),
    "jsonl_of_stream": ("jsonl", False),
    "arrayrecord": ("arrayrecord", True),
}


def main() -> None:
    os.chdir(FOLDER)
    saved = FOLDER / "saved" / __version__
    if saved.exists():
        raise SystemExit(f"{saved} is there already")
    with tempfile.TemporaryDirectory() as temporary:
        written = pathlib.Path(temporary)
        continuations: dict[str, Any] = {"caches": save_caches(written / "caches")}
        continuations["exports"] = save_exports(written / "exports")
        continuations["checkpoints"] = save_checkpoints(written / "checkpoints")
        continuations["states"] = save_states(written / "states")
        continuations["run"] = save_run(saved)
        for folder in sorted(written.glob("*/*")):
            pack(folder, saved / folder.parent.name / f"{folder.name}.tar.gz")
    write_json(saved / "continuations.json", continuations)
    versions = {name: importlib.metadata.version(name) for name in ("tensorflow", "seqio", "torch", "pillow")}
    write_json(saved / "versions.json", {"ul2_tasks": __version__, "python": platform.python_version(), **versions})


def write_json(path: pathlib.Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def save_caches(folder: pathlib.Path) -> dict[str, int]:
    """The caches of `CACHED`, which are read from then on. Returns how many documents each has."""
    documents = {}
    for corpus, register in CACHED.items():
        register()
        documents[corpus] = build(corpus, str(folder))["totals"]["documents"]
    seqio.add_global_cache_dirs([str(folder)])
    return documents


def write_exports(folder: pathlib.Path, names: Collection[str] = EXPORTS.keys()) -> None:
    """Exports of conversations, and those of these names; each says so where it is complete already."""
    for name in names:
        format, use_cached = EXPORTS[name]
        settings = {"split": "validation", "seed": 2, "shards": 2, "use_cached": use_cached}
        write_examples(joined(), str(folder / name), LENGTHS, format=format, **settings)
    write_conversations(talk(), str(folder / "conversations"))
    said = Registration("golden_said", (), {"spec": "corpus/chats.jsonl"}, {"renderer": "harmony:default"})
    write_conversations(said.apply(), str(folder / "conversations_of_files"), prepare=said.apply)


def save_exports(folder: pathlib.Path, names: Collection[str] = EXPORTS.keys()) -> dict[str, list[str]]:
    """Exports in all formats. Returns the examples of those of these names."""
    write_exports(folder, names)
    write_megatron(seqio.TaskRegistry.get("golden_corpus"), str(folder / "megatron"), "validation")
    return {name: digests(read_examples(str(folder / name))) for name in names}


def save_checkpoints(folder: pathlib.Path) -> dict[str, list[str]]:
    """tf.data iterators of `CHECKPOINTS`. Returns what each gives next."""
    following = {}
    for name, (make, given) in CHECKPOINTS.items():
        iterator = iter(make())
        for _ in range(given):
            next(iterator)
        tf.train.Checkpoint(iterator=iterator).write(str(folder / name / "place"))
        following[name] = rest_of(map(as_numpy, iterator))
    return following


def save_states(folder: pathlib.Path) -> dict[str, list[str]]:
    """States of `torch_datasets`. Returns what each gives next."""
    following = {}
    for name, (make, given) in torch_datasets().items():
        dataset = make()
        iterator = iter(dataset)
        for _ in range(given):
            next(iterator)
        (folder / name).mkdir(parents=True)
        (folder / name / "state.pickle").write_bytes(pickle.dumps(dataset.state_dict(), protocol=4))
        following[name] = rest_of(iterator)
    return following


def pack(folder: pathlib.Path, path: pathlib.Path) -> None:
    """Packs a folder, the same one into the same bytes."""
    with tarfile.open(fileobj=(held := io.BytesIO()), mode="w") as archive:
        for file in sorted(folder.rglob("*")):
            member = archive.gettarinfo(file, str(file.relative_to(folder)))
            member.mtime, member.mode, member.uid, member.gid, member.uname, member.gname = 0, 0o755, 0, 0, "", ""
            archive.addfile(member, io.BytesIO(file.read_bytes()) if member.isfile() else None)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(held.getvalue(), mtime=0))


def unpack(path: pathlib.Path, folder: pathlib.Path) -> None:
    with tarfile.open(path) as archive:
        archive.extractall(folder, filter="data")


def begin_run(folder: pathlib.Path, step: int, is_resumed: bool) -> int:
    """Begins a run of t5x, or goes on with it; returns the step with which it began."""
    rows = EncDecFeatureConverter(pack=True)(stream(joined(), use_cached=True, num_epochs=None, seed=7), LENGTHS)
    settings = types.SimpleNamespace(mixture_or_task_name=joined(), use_cached=True, pack=True, batch_size=8)
    return begin_or_compare(str(folder), run_of(rows, settings), Start(step, is_resumed), is_writer=True)


def save_run(folder: pathlib.Path) -> list[str]:
    """The record of a run, as it is and with what `ul2 show --run` needs. Returns the first rows of its first step."""
    folder.mkdir(parents=True)
    begin_run(folder, step=100, is_resumed=False)
    return digests(examples(joined(), LENGTHS, seed=7, pack=True)[:NEXT])


def as_numpy(element: Any) -> Any:
    return {key: value.numpy() for key, value in element.items()}


def rest_of(iterator: Any) -> list[str]:
    return digests(element for element, _ in zip(iterator, range(NEXT)))


if __name__ == "__main__":
    main()
