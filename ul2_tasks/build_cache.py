"""Writes the cache of a corpus as a Beam job; needs the extra `cache`. What a cache is, `cache` says.

Every worker turns one shard of the source into a few files: it writes them, hashes them and then moves them to their places.
So memory does not grow with the corpus, and a killed job leaves behind what it has finished. `COMPLETED` is written last,
because SeqIO takes a folder without it for no cache.

The stock `seqio_cache_tasks` writes the same records, but it shuffles all documents, for which the runner on one machine holds
all of them in memory. This job shuffles documents among `SHUFFLE_BUFFER` others of their shard, and writes the same bytes
whenever it is run again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import itertools
import json
import os
import shlex
import time
import uuid
import zlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import seqio
import tensorflow as tf
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ul2_tasks import cache
from ul2_tasks.corpora import CorpusTask, corpus_settings
from ul2_tasks.jobs import (
    BEGUN,
    FAILURES,
    differences,
    import_beam,
    in_words,
    load,
    names_in,
    place,
    progress,
    removed_on_failure,
    run_on_beam,
    sha256,
    size,
    write_atomically,
)

MIN_FILES = 64  # of each split, as in seqio_cache_tasks: hosts share out files
SHUFFLE_BUFFER = 10_000
_RECORDS = "parts"  # the folder of an unfinished job
_IMPORT = functools.partial(importlib.import_module, "ul2_tasks")


@dataclasses.dataclass(frozen=True)
class InputShard:
    """One shard of the source, and the names of the files that it becomes."""

    corpus: str
    split: str
    index: int
    num_shards: int
    files: tuple[str, ...]
    max_documents: int | None
    cache_dir: str

    @property
    def records(self) -> str:
        """The folder of the records of the job, such as `done`, and of temporary files."""
        return place(self.cache_dir, _RECORDS)

    @property
    def done(self) -> str:
        """The file that says that this shard is written, and what is in its files."""
        return f"{self.records}/{self.split}-{self.index:05d}-of-{self.num_shards:05d}.json"


def build(
    corpus: str,
    output_dir: str,
    *,
    max_documents: int | None = None,
    prepare: Callable[[], object] = _IMPORT,
    pipeline_options: Sequence[str] = ("--runner=FnApiRunner",),
    console: Console | None = None,
) -> dict:
    """Caches a corpus, or goes on where an interrupted job stopped.

    Args:
        corpus: the name of its task, such as "ul2_corpus".
        output_dir: one of SeqIO's global cache directories, on any file system that TensorFlow reads. The cache becomes a
            folder in it. All workers must see it.
        max_documents: the most documents of each split, for a smoke build.
        prepare: what each worker calls first, so that it has the task too: `Registration.apply`, or the import of a module.
        pipeline_options: Beam's.
        console: where progress and the summary go.

    Returns:
        The manifest.

    Raises:
        ValueError: there is no such corpus; the cache exists, or an unfinished one was begun with other settings, which are
            named; the corpus has no token.
        ImportError: Apache Beam is not installed.
        RuntimeError: a source cannot be read, or a file cannot be written; says which, and why.
    """
    console = console or Console(stderr=True)
    import_beam()
    task = _corpus_task(corpus)
    absolute = output_dir if "://" in output_dir else os.path.abspath(output_dir)  # workers may be in other folders
    cache_dir = os.path.join(absolute, seqio.get_task_dir_from_name(corpus))
    settings = corpus_settings(task)
    if cache.is_cache(cache_dir):
        return _existing(cache_dir, corpus, settings, max_documents, console)

    input_shards = list(_input_shards(task, cache_dir, max_documents))
    begun = {
        "schema_version": cache.SCHEMA_VERSION,
        "settings": settings,
        "max_documents": max_documents,
        "parts": len(input_shards),
    }
    waiting = _begin(cache_dir, begun, input_shards)
    started = time.monotonic()
    records, to_come = place(cache_dir, _RECORDS), [os.path.basename(shard.done) for shard in waiting]
    with progress(corpus, len(input_shards), records, to_come, console):
        run_on_beam(pipeline_options, functools.partial(write_shard, prepare=prepare), waiting, records)
    manifest = _finish(cache_dir, corpus, begun, input_shards)
    _summarize(manifest, cache_dir, output_dir, time.monotonic() - started, console)
    return manifest


def write_shard(shard: InputShard, prepare: Callable[[], object]) -> str:
    """Writes the files of one input shard, unless they are written, and returns `shard.done`. Runs on a worker.

    Raises:
        RuntimeError: the source cannot be read, or the files cannot be written; says which, and why.
    """
    if tf.io.gfile.exists(shard.done):
        return shard.done
    prepare()
    try:
        written = _write(shard, _read(shard))
        write_atomically(shard.done, json.dumps([dataclasses.asdict(file) for file in written]))
    except FAILURES as error:
        name = seqio.TaskRegistry.get(shard.corpus).source.list_shards(shard.split)[shard.index]
        where = f"{shard.corpus}, split {shard.split}, shard {shard.index + 1} of {shard.num_shards} ({name})"
        raise RuntimeError(f"{where}: {in_words(error)}") from error
    return shard.done


def _read(shard: InputShard) -> Iterator[dict[str, np.ndarray | bytes]]:
    """The tokenized documents of an input shard, in the order in which they are written."""
    task = seqio.TaskRegistry.get(shard.corpus)
    present = len(task.source.list_shards(shard.split))
    if present != shard.num_shards:
        raise OSError(
            f"there were {shard.num_shards} shards when the job began, and now there are {present}; do not touch the corpus"
        )
    seed = zlib.crc32(f"{shard.corpus}/{shard.split}/{shard.index}".encode())
    source = task.source.get_dataset(
        split=shard.split, shuffle=False, seed=seed, shard_info=seqio.ShardInfo(shard.index, shard.num_shards)
    )
    if shard.max_documents is not None:
        source = source.take(shard.max_documents)
    documents = task.preprocess_precache(source, seed=seed)
    return documents.shuffle(SHUFFLE_BUFFER, seed=seed).prefetch(tf.data.AUTOTUNE).as_numpy_iterator()


def _write(shard: InputShard, documents: Iterator[dict[str, np.ndarray | bytes]]) -> list[cache.Shard]:
    """Writes the documents to the shard's files in turn, then moves the files to their places."""
    temporary = [place(shard.records, f"{name}.{uuid.uuid4().hex}.tmp") for name in shard.files]
    counts = [cache.no_counts() for _ in shard.files]
    with removed_on_failure(*temporary):
        with contextlib.ExitStack() as open_files:
            writers = [open_files.enter_context(tf.io.TFRecordWriter(path)) for path in temporary]
            for document, (writer, count) in zip(documents, itertools.cycle(zip(writers, counts))):
                writer.write(_serialize(document))
                cache.count(count, document["document"].decode(), len(document["targets"]))
        written = [
            cache.Shard(file=name, bytes=size(path), sha256=sha256(path), **count)
            for name, path, count in zip(shard.files, temporary, counts)
        ]
        for path, name in zip(temporary, shard.files):
            tf.io.gfile.rename(path, place(shard.cache_dir, name), overwrite=True)
    return written


def _serialize(document: dict[str, np.ndarray | bytes]) -> bytes:
    tokens = tf.train.Feature(int64_list=tf.train.Int64List(value=document["targets"].tolist()))
    name = tf.train.Feature(bytes_list=tf.train.BytesList(value=[document["document"]]))
    example = tf.train.Example(features=tf.train.Features(feature={"targets": tokens, "document": name}))
    return example.SerializeToString(deterministic=True)


def _corpus_task(corpus: str) -> CorpusTask:
    tasks = {name: seqio.TaskRegistry.get(name) for name in sorted(seqio.TaskRegistry.names())}
    corpora = {name: task for name, task in tasks.items() if isinstance(task, CorpusTask)}
    if corpus not in corpora:
        raise ValueError(f"there is no corpus {corpus!r}, only {[*corpora]}; name one, or the module that registers it")
    return corpora[corpus]


def _input_shards(task: CorpusTask, cache_dir: str, max_documents: int | None) -> Iterator[InputShard]:
    """The shards of all splits. Each becomes as many files as it takes for a split to have `MIN_FILES`."""
    for split in task.splits:
        num_shards = len(task.source.list_shards(split))
        if not num_shards:
            raise ValueError(f"{task.name!r} has no files in split {split!r}")
        files_each = -(-MIN_FILES // num_shards)
        count = num_shards * files_each
        names = [f"{split}.tfrecord-{file:05d}-of-{count:05d}" for file in range(count)]
        for index in range(num_shards):
            share = None if max_documents is None else max_documents // num_shards + (index < max_documents % num_shards)
            yield InputShard(task.name, split, index, num_shards, tuple(names[index::num_shards]), share, cache_dir)


def _existing(cache_dir: str, corpus: str, settings: dict[str, str], max_documents: int | None, console: Console) -> dict:
    manifest = cache.check(cache_dir, corpus, settings)
    if manifest["max_documents"] != max_documents:
        raise ValueError(
            f"{cache_dir} is complete, with max_documents {manifest['max_documents']}, not {max_documents}; delete it, or name"
            " another folder"
        )
    _forget(cache_dir)
    console.print(f"{cache_dir} is complete already, and was made with these settings", markup=False, soft_wrap=True)
    return manifest


def _begin(cache_dir: str, begun: dict[str, object], shards: Sequence[InputShard]) -> list[InputShard]:
    """Makes the folder, and returns the shards that are not written yet. Keeps those that an interrupted job has finished."""
    path = f"{cache_dir}/{_RECORDS}/{BEGUN}"
    if tf.io.gfile.exists(path) and (changes := "; ".join(differences(load(path), begun))):
        raise ValueError(f"{cache_dir} was begun with other settings: {changes}; delete it, or name another folder")
    tf.io.gfile.makedirs(f"{cache_dir}/{_RECORDS}")
    waiting = [shard for shard in shards if not tf.io.gfile.exists(shard.done)]
    _remove_files(cache_dir, but={name for shard in set(shards) - set(waiting) for name in shard.files})
    write_atomically(path, json.dumps(begun))
    return waiting


def _remove_files(cache_dir: str, but: set[str]) -> None:
    """Removes what an interrupted job has left, except finished files."""
    for folder in (cache_dir, place(cache_dir, _RECORDS)):
        for name in names_in(folder):
            if name.startswith("beam-temp-"):
                tf.io.gfile.rmtree(place(folder, name))
            elif name.endswith(".tmp") or (".tfrecord-" in name and name not in but):
                tf.io.gfile.remove(place(folder, name))


def _forget(cache_dir: str) -> None:
    """Removes the records of the job, which a job that was killed after `COMPLETED` has left, too."""
    if _RECORDS in names_in(cache_dir):
        tf.io.gfile.rmtree(place(cache_dir, _RECORDS))


def _finish(cache_dir: str, corpus: str, begun: dict[str, object], input_shards: Sequence[InputShard]) -> dict:
    """Writes what SeqIO reads beside the files, then the manifest, and `COMPLETED` last."""
    splits: dict[str, list[cache.Shard]] = {}
    for written in input_shards:
        splits.setdefault(written.split, []).extend(cache.Shard(**shard) for shard in load(written.done))
    shards = [shard for in_split in splits.values() for shard in in_split]
    if not any(shard.tokens for shard in shards):
        _remove_files(cache_dir, but=set())
        _forget(cache_dir)
        kinds = {kind: sum(getattr(shard, kind) for shard in shards) for kind in ("records", "skipped", "empty")}
        raise ValueError(
            f"{corpus!r} has no token, so there is nothing to cache: of its {kinds['records']} records {kinds['skipped']} were"
            f" skipped, and {kinds['empty']} are empty; `ul2 doctor` says more"
        )
    for split, shards in splits.items():
        shards.sort(key=lambda shard: shard.file)
        features = {"targets": {"shape": [None], "dtype": "int32"}, "document": {"shape": [], "dtype": "string"}}
        info = {"num_shards": len(shards), "features": features, "seqio_version": seqio.__version__}
        stats = {"examples": sum(shard.records for shard in shards), "targets_tokens": sum(shard.tokens for shard in shards)}
        write_atomically(seqio.get_cached_info_path(cache_dir, split), json.dumps(info, indent=2))
        write_atomically(seqio.get_cached_stats_path(cache_dir, split), json.dumps(stats, indent=2))
    manifest = cache.manifest_of(corpus, begun["settings"], splits, begun["max_documents"])
    cache.write_manifest(cache_dir, manifest)
    write_atomically(place(cache_dir, cache.COMPLETED), "")
    _forget(cache_dir)
    return manifest


def _summarize(manifest: dict, cache_dir: str, output_dir: str, seconds: float, console: Console) -> None:
    table = Table(title=Text(f"{cache_dir}, {seconds:.1f} s"))
    for column in ("split", "documents", "tokens", "tokens a document", "empty", "skipped", "bytes", "files"):
        table.add_column(column, justify="left" if column == "split" else "right")
    for name, split in manifest["splits"].items():
        each = split["tokens"] / split["documents"] if split["documents"] else 0
        counts = (split[key] for key in ("empty", "skipped", "bytes"))
        numbers = (split["documents"], split["tokens"], round(each, 1), *counts, len(split["shards"]))
        table.add_row(name, *(f"{number:,}" for number in numbers))
    console.print(table)
    mixture = f"{manifest['corpus'].removesuffix('_corpus')}_mix"
    for line in (
        f"To use it, in Python, where {mixture} is registered:",
        f"    import seqio, ul2_tasks; seqio.add_global_cache_dirs([{output_dir!r}])",
        f"    dataset = seqio.get_mixture_or_task({mixture!r}).get_dataset({{'inputs': 512, 'targets': 512}}, use_cached=True)",
        "With t5x:",
        f"    {shlex.quote(f'--seqio_additional_cache_dirs={output_dir}')} --gin.USE_CACHED_TASKS=True",
    ):
        console.print(line, soft_wrap=True, markup=False, highlight=False)
