"""Writes the cache of a corpus as a Beam job; the extra `cache`. See `cache` for what comes of it.

Every worker turns one shard of the source into a few files, which it writes, hashes and then moves to their place, so
memory does not grow with the corpus and what a killed job has finished stays. `COMPLETED` comes last: SeqIO takes nothing
without it for a cache.

The stock `seqio_cache_tasks` writes the same records. It shuffles all documents, and on one machine's runner for that
holds them all in memory; here they are shuffled within `SHUFFLE_BUFFER` of a shard, and twice the same job gives the same bytes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import itertools
import json
import os
import threading
import time
import uuid
import zlib
from collections.abc import Callable, Iterator, Sequence

import apache_beam as beam
import numpy as np
import seqio
import tensorflow as tf
from apache_beam.options.pipeline_options import PipelineOptions
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ul2_tasks import cache
from ul2_tasks.corpora import corpus_settings

MIN_FILES = 64  # of each split, as in seqio_cache_tasks: hosts share out files
SHUFFLE_BUFFER = 10_000
_PARTS = "parts"
_IMPORT = functools.partial(importlib.import_module, "ul2_tasks")


@dataclasses.dataclass(frozen=True)
class Part:
    """One shard of the source, and the files that it becomes."""

    corpus: str
    split: str
    shard: int
    num_shards: int
    files: tuple[str, ...]
    max_documents: int | None
    cache_dir: str

    @property
    def done(self) -> str:
        """The file that says that this part is written, and what is in it."""
        return f"{self.cache_dir}/{_PARTS}/{self.split}-{self.shard:05d}-of-{self.num_shards:05d}.json"


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
        output_dir: a folder on any file system of TensorFlow's, for SeqIO's global cache directories; the cache is a
            folder in it. All workers must see it.
        max_documents: a limit for each split, for a smoke build.
        prepare: what workers call first, so that they have the task too; `Registration.apply`, or the import of a module.
        pipeline_options: of Beam.
        console: where progress and the summary go.

    Returns:
        The manifest.

    Raises:
        ValueError: there is no such corpus; the cache exists already, or what was begun has other settings.
    """
    console = console or Console(stderr=True)
    task = _corpus_task(corpus)
    absolute = output_dir if "://" in output_dir else os.path.abspath(output_dir)  # workers may be in other folders
    cache_dir = os.path.join(absolute, seqio.get_task_dir_from_name(corpus))
    settings = corpus_settings(task)
    if tf.io.gfile.exists(f"{cache_dir}/{cache.COMPLETED}"):
        return _existing(cache_dir, corpus, settings, max_documents, console)

    parts = list(_plan(task, cache_dir, max_documents))
    begun = {"settings": settings, "max_documents": max_documents, "parts": len(parts)}
    _begin(cache_dir, begun, parts)
    started = time.monotonic()
    with _progress(parts, console), beam.Pipeline(options=PipelineOptions(list(pipeline_options))) as pipeline:
        _ = pipeline | beam.Create(parts) | beam.Reshuffle() | beam.Map(write_part, prepare=prepare)
    manifest = _finish(cache_dir, corpus, begun, parts)
    _summarize(manifest, cache_dir, output_dir, time.monotonic() - started, console)
    return manifest


def write_part(part: Part, prepare: Callable[[], object]) -> str:
    """Writes the files of one part, unless they are written; returns its name. Runs on a worker.

    Raises:
        RuntimeError: the source cannot be read or the files not written; says which, and why.
    """
    if tf.io.gfile.exists(part.done):
        return part.done
    prepare()
    try:
        shards = _write(part, _read(part))
    except (OSError, tf.errors.OpError) as error:
        name = seqio.TaskRegistry.get(part.corpus).source.list_shards(part.split)[part.shard]
        where = f"{part.corpus}, split {part.split}, shard {part.shard + 1} of {part.num_shards} ({name})"
        reason = error.message if isinstance(error, tf.errors.OpError) else error
        raise RuntimeError(f"{where}: {type(error).__name__}: {reason}") from error
    cache.write_atomically(part.done, json.dumps([dataclasses.asdict(shard) for shard in shards]))
    return part.done


def _read(part: Part) -> Iterator[dict[str, np.ndarray | bytes]]:
    """The tokenized documents of a part, in the order in which they are written."""
    task = seqio.TaskRegistry.get(part.corpus)
    present = len(task.source.list_shards(part.split))
    if present != part.num_shards:
        raise OSError(
            f"there were {part.num_shards} shards when the job began, and now there are {present}; do not touch the corpus"
        )
    seed = zlib.crc32(f"{part.corpus}/{part.split}/{part.shard}".encode())
    source = task.source.get_dataset(
        split=part.split, shuffle=False, seed=seed, shard_info=seqio.ShardInfo(part.shard, part.num_shards)
    )
    if part.max_documents is not None:
        source = source.take(part.max_documents)
    documents = task.preprocess_precache(source, seed=seed)
    return documents.shuffle(SHUFFLE_BUFFER, seed=seed).prefetch(tf.data.AUTOTUNE).as_numpy_iterator()


def _write(part: Part, documents: Iterator[dict[str, np.ndarray | bytes]]) -> list[cache.Shard]:
    """Deals the documents out to the part's files, which then move to their places."""
    paths = [f"{part.cache_dir}/{name}" for name in part.files]
    temporary = [f"{path}.{uuid.uuid4().hex}.tmp" for path in paths]
    counts = [dict.fromkeys(("documents", "tokens", "skipped"), 0) for _ in paths]
    try:
        with contextlib.ExitStack() as open_files:
            writers = [open_files.enter_context(tf.io.TFRecordWriter(path)) for path in temporary]
            for document, (writer, count) in zip(documents, itertools.cycle(zip(writers, counts))):
                writer.write(_serialize(document))
                count["documents"] += 1
                count["tokens"] += len(document["targets"])
                count["skipped"] += document["document"].startswith(cache.SKIPPED.encode())
        shards = [
            cache.Shard(file=name, bytes=tf.io.gfile.stat(path).length, sha256=cache.sha256(path), **count)
            for name, path, count in zip(part.files, temporary, counts)
        ]
        for path, destination in zip(temporary, paths):
            tf.io.gfile.rename(path, destination, overwrite=True)
    except BaseException:
        for path in filter(tf.io.gfile.exists, temporary):
            tf.io.gfile.remove(path)
        raise
    return shards


def _serialize(document: dict[str, np.ndarray | bytes]) -> bytes:
    tokens = tf.train.Feature(int64_list=tf.train.Int64List(value=document["targets"].tolist()))
    name = tf.train.Feature(bytes_list=tf.train.BytesList(value=[document["document"]]))
    example = tf.train.Example(features=tf.train.Features(feature={"targets": tokens, "document": name}))
    return example.SerializeToString(deterministic=True)


def _corpus_task(corpus: str) -> seqio.Task:
    names = sorted(name for name in seqio.TaskRegistry.names() if name.endswith("_corpus"))
    if corpus not in names:
        raise ValueError(f"there is no corpus {corpus!r}, only {names}; name one, or the module that registers it")
    return seqio.TaskRegistry.get(corpus)


def _plan(task: seqio.Task, cache_dir: str, max_documents: int | None) -> Iterator[Part]:
    for split in task.splits:
        num_shards = len(task.source.list_shards(split))
        if not num_shards:
            raise ValueError(f"{task.name!r} has no files in split {split!r}")
        files_each = -(-MIN_FILES // num_shards)
        count = num_shards * files_each
        names = [f"{split}.tfrecord-{file:05d}-of-{count:05d}" for file in range(count)]
        for shard in range(num_shards):
            share = None if max_documents is None else max_documents // num_shards + (shard < max_documents % num_shards)
            yield Part(task.name, split, shard, num_shards, tuple(names[shard::num_shards]), share, cache_dir)


def _existing(cache_dir: str, corpus: str, settings: dict[str, str], max_documents: int | None, console: Console) -> dict:
    manifest = cache.check(cache_dir, corpus, settings)
    if manifest["max_documents"] != max_documents:
        raise ValueError(
            f"{cache_dir} is complete, with max_documents {manifest['max_documents']}, not {max_documents}; delete it, or name"
            " another folder"
        )
    console.print(f"{cache_dir} is complete already, and was made with these settings")
    return manifest


def _begin(cache_dir: str, begun: dict[str, object], parts: Sequence[Part]) -> None:
    """Makes the folder; of an interrupted job's files keeps the finished parts and removes the rest."""
    tf.io.gfile.makedirs(f"{cache_dir}/{_PARTS}")
    path = f"{cache_dir}/{_PARTS}/begun.json"
    if tf.io.gfile.exists(path):
        with tf.io.gfile.GFile(path) as file:
            before = json.load(file)
        if before != begun:
            raise ValueError(
                f"{cache_dir} was begun with {before}, and is asked for with {begun}; delete it, or name another folder"
            )
    finished = {name for part in parts if tf.io.gfile.exists(part.done) for name in part.files}
    for name in tf.io.gfile.listdir(cache_dir):
        if name.startswith("beam-temp-"):
            tf.io.gfile.rmtree(f"{cache_dir}/{name}")
        elif ".tfrecord-" in name and name not in finished:
            tf.io.gfile.remove(f"{cache_dir}/{name}")
    cache.write_atomically(path, json.dumps(begun))


def _finish(cache_dir: str, corpus: str, begun: dict[str, object], parts: Sequence[Part]) -> dict:
    """Writes what SeqIO wants to read beside the files, then the manifest, and `COMPLETED` last."""
    splits: dict[str, list[cache.Shard]] = {}
    for part in parts:
        with tf.io.gfile.GFile(part.done) as file:
            splits.setdefault(part.split, []).extend(cache.Shard(**shard) for shard in json.load(file))
    for split, shards in splits.items():
        shards.sort(key=lambda shard: shard.file)
        features = {"targets": {"shape": [None], "dtype": "int32"}, "document": {"shape": [], "dtype": "string"}}
        info = {"num_shards": len(shards), "features": features, "seqio_version": seqio.__version__}
        stats = {"examples": sum(shard.documents for shard in shards), "targets_tokens": sum(shard.tokens for shard in shards)}
        cache.write_atomically(seqio.get_cached_info_path(cache_dir, split), json.dumps(info, indent=2))
        cache.write_atomically(seqio.get_cached_stats_path(cache_dir, split), json.dumps(stats, indent=2))
    manifest = cache.manifest_of(corpus, begun["settings"], splits, begun["max_documents"])
    if not manifest["totals"]["tokens"]:
        tf.io.gfile.rmtree(f"{cache_dir}/{_PARTS}")  # for a job after the corpus was mended to begin anew
        held = ", ".join(f"{manifest['totals'][key]} {key}" for key in ("documents", "skipped"))
        raise ValueError(
            f"{corpus!r} has no token: {held}; this is no cache. Look at the source and its text_key with `ul2 doctor`"
        )
    cache.write_manifest(cache_dir, manifest)
    cache.write_atomically(f"{cache_dir}/{cache.COMPLETED}", "")
    tf.io.gfile.rmtree(f"{cache_dir}/{_PARTS}")
    return manifest


@contextlib.contextmanager
def _progress(parts: Sequence[Part], console: Console) -> Iterator[None]:
    """Shows how many parts are written, wherever the workers are: each leaves a file."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    stop = threading.Event()
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task(f"{parts[0].corpus}: shards", total=len(parts))

        def watch() -> None:
            folder = f"{parts[0].cache_dir}/{_PARTS}"
            names = {os.path.basename(part.done) for part in parts}
            while not stop.wait(0.5):
                progress.update(bar, completed=len(names & set(tf.io.gfile.listdir(folder))))

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
            progress.update(bar, completed=len(parts))
        finally:
            stop.set()
            watcher.join()


def _summarize(manifest: dict, cache_dir: str, output_dir: str, seconds: float, console: Console) -> None:
    table = Table(title=f"{cache_dir}, {seconds:.1f} s")
    for column in ("split", "documents", "tokens", "tokens a document", "skipped", "bytes", "files"):
        table.add_column(column, justify="left" if column == "split" else "right")
    for name, split in manifest["splits"].items():
        each = split["tokens"] / split["documents"] if split["documents"] else 0
        numbers = (split["documents"], split["tokens"], round(each, 1), split["skipped"], split["bytes"], len(split["shards"]))
        table.add_row(name, *(f"{number:,}" for number in numbers))
    console.print(table)
    console.print(
        f"To use it: seqio.add_global_cache_dirs([{output_dir!r}]), and get_dataset(..., use_cached=True)", soft_wrap=True
    )
    console.print(f"with t5x:  --seqio_additional_cache_dirs={output_dir} --gin.USE_CACHED_TASKS=True", soft_wrap=True)
