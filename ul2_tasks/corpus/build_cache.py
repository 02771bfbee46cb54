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
import zlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import seqio
import tensorflow as tf
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ul2_tasks.corpus import cache
from ul2_tasks.corpus.view import CorpusTask, corpus_settings
from ul2_tasks.jobs.manifest import absolute, differences, load, names_in, place, sha256, size, write_atomically
from ul2_tasks.jobs.shards import (
    BEGUN,
    JobShard,
    all_shards,
    begin,
    finished_shards,
    import_beam,
    remove_records,
    run,
    temporary_files,
    write_shard,
)

MIN_FILES = 64  # of each split, as in seqio_cache_tasks: hosts share out files
SHUFFLE_BUFFER = 10_000
_RECORDS = "parts"  # earlier versions used this name, too
_IMPORT = functools.partial(importlib.import_module, "ul2_tasks")


@dataclasses.dataclass(frozen=True)
class SourceShard(JobShard):
    """One shard of the source, and the files that it becomes.

    Attributes:
        corpus: the name of the corpus's task.
        split: of the corpus.
        number: of the shard, from 0.
        num_shards: of the split.
        max_documents: how many documents of it are written; None for all.
    """

    corpus: str
    split: str
    number: int
    num_shards: int
    max_documents: int | None


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
    cache_dir = os.path.join(absolute(output_dir), seqio.get_task_dir_from_name(corpus))
    settings = corpus_settings(task)
    if cache.is_cache(cache_dir):
        return _existing(cache_dir, corpus, settings, max_documents, console)

    shards = list(_source_shards(task, cache_dir, max_documents))
    begun = {
        "schema_version": cache.SCHEMA_VERSION,
        "settings": settings,
        "max_documents": max_documents,
        "parts": len(shards),
    }
    waiting = _begin(cache_dir, begun, shards)
    started = time.monotonic()
    run(corpus, shards, waiting, functools.partial(_write_shard, prepare=prepare), pipeline_options, console)
    manifest = _finish(cache_dir, corpus, begun, shards)
    _summarize(manifest, cache_dir, output_dir, time.monotonic() - started, console)
    return manifest


def _write_shard(shard: SourceShard, prepare: Callable[[], object]) -> None:
    """Writes a shard, see `shards.write_shard`. Runs on a worker."""

    def where() -> str:
        name = seqio.TaskRegistry.get(shard.corpus).source.list_shards(shard.split)[shard.number]
        return f"{shard.corpus}, split {shard.split}, shard {shard.number + 1} of {shard.num_shards} ({name})"

    write_shard(shard, prepare, lambda: _write_files(shard, _read(shard)), where)


def _read(shard: SourceShard) -> Iterator[dict[str, np.ndarray | bytes]]:
    """The tokenized documents of a shard, in the order in which they are written."""
    task = seqio.TaskRegistry.get(shard.corpus)
    present = len(task.source.list_shards(shard.split))
    if present != shard.num_shards:
        raise OSError(
            f"there were {shard.num_shards} shards when the job began, and now there are {present}; do not touch the corpus"
        )
    seed = zlib.crc32(f"{shard.corpus}/{shard.split}/{shard.number}".encode())
    source = task.source.get_dataset(
        split=shard.split, shuffle=False, seed=seed, shard_info=seqio.ShardInfo(shard.number, shard.num_shards)
    )
    if shard.max_documents is not None:
        source = source.take(shard.max_documents)
    documents = task.preprocess_precache(source, seed=seed)
    return documents.shuffle(SHUFFLE_BUFFER, seed=seed).prefetch(tf.data.AUTOTUNE).as_numpy_iterator()


def _write_files(shard: SourceShard, documents: Iterator[dict[str, np.ndarray | bytes]]) -> list[dict]:
    """Writes the documents to the shard's files in turn; returns what the manifest says of these files."""
    counts = [cache.no_counts() for _ in shard.files]
    with temporary_files(shard) as temporary:
        with contextlib.ExitStack() as open_files:
            writers = [open_files.enter_context(tf.io.TFRecordWriter(path)) for path in temporary]
            for document, (writer, count) in zip(documents, itertools.cycle(zip(writers, counts))):
                writer.write(_serialize(document))
                cache.count(count, document["document"].decode(), len(document["targets"]))
        return [
            dataclasses.asdict(cache.Shard(file=name, bytes=size(path), sha256=sha256(path), **count))
            for name, path, count in zip(shard.files, temporary, counts)
        ]


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


def _source_shards(task: CorpusTask, cache_dir: str, max_documents: int | None) -> Iterator[SourceShard]:
    """The shards of all splits. Each becomes as many files as it takes for a split to have `MIN_FILES`."""
    for split in task.splits:
        num_shards = len(task.source.list_shards(split))
        if not num_shards:
            raise ValueError(f"{task.name!r} has no files in split {split!r}")
        files_each = -(-MIN_FILES // num_shards)
        count = num_shards * files_each
        names = [f"{split}.tfrecord-{file:05d}-of-{count:05d}" for file in range(count)]
        for number in range(num_shards):
            share = None if max_documents is None else max_documents // num_shards + (number < max_documents % num_shards)
            yield SourceShard(
                name=f"{split}-{number:05d}-of-{num_shards:05d}",
                files=tuple(names[number::num_shards]),
                folder=cache_dir,
                records=place(cache_dir, _RECORDS),
                corpus=task.name,
                split=split,
                number=number,
                num_shards=num_shards,
                max_documents=share,
            )


def _existing(cache_dir: str, corpus: str, settings: dict[str, str], max_documents: int | None, console: Console) -> dict:
    manifest = cache.check(cache_dir, corpus, settings)
    if manifest["max_documents"] != max_documents:
        raise ValueError(
            f"{cache_dir} is complete, with max_documents {manifest['max_documents']}, not {max_documents}; delete it, or name"
            " another folder"
        )
    remove_records(place(cache_dir, _RECORDS))
    console.print(f"{cache_dir} is complete already, and was made with these settings", markup=False, soft_wrap=True)
    return manifest


def _begin(cache_dir: str, begun: dict[str, object], shards: Sequence[SourceShard]) -> list[SourceShard]:
    """Makes the folder, and returns the shards that are not written yet. Keeps those that an interrupted job has finished."""
    path = place(place(cache_dir, _RECORDS), BEGUN)
    if tf.io.gfile.exists(path) and (changes := "; ".join(differences(load(path), begun))):
        raise ValueError(f"{cache_dir} was begun with other settings: {changes}; delete it, or name another folder")
    finished = finished_shards(shards)
    _remove_files(cache_dir, but={name for shard in shards if shard.name in finished for name in shard.files})
    return begin(shards, finished, begun)


def _remove_files(cache_dir: str, but: set[str]) -> None:
    """Removes the files that an interrupted job left, this one or SeqIO's own, except finished files."""
    for name in names_in(cache_dir):
        if name.startswith("beam-temp-"):
            tf.io.gfile.rmtree(place(cache_dir, name))
        elif ".tfrecord-" in name and name not in but:
            tf.io.gfile.remove(place(cache_dir, name))


def _finish(cache_dir: str, corpus: str, begun: dict[str, object], source_shards: Sequence[SourceShard]) -> dict:
    """Writes what SeqIO reads beside the files, then the manifest, and `COMPLETED` last."""
    written = all_shards(source_shards)
    splits: dict[str, list[cache.Shard]] = {}
    for shard in source_shards:
        splits.setdefault(shard.split, []).extend(cache.Shard(**entry) for entry in written[shard.name])
    shards = [shard for in_split in splits.values() for shard in in_split]
    if not any(shard.tokens for shard in shards):
        _remove_files(cache_dir, but=set())
        remove_records(place(cache_dir, _RECORDS))
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
    remove_records(place(cache_dir, _RECORDS))
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
