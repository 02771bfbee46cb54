"""Writes corrupted examples to files for other trainers; see `export_folder` for what comes of it, and to read it.

Shard i of n has the examples that host i of n would train on, in their order:

    mixture.get_dataset(sequence_length, split, shuffle=True, seed=seed, num_epochs=epochs, shard_info=seqio.ShardInfo(i, n))

So it ends where that ends: when the first denoiser has read its documents `epochs` times. (Rates count examples, so the others
have read fewer of theirs by then.) The same arguments give the same bytes, whoever writes them, in whatever order.

What a killed export has finished stays: a shard that is whole moves to its place, and then leaves a note in the folder `parts`,
which goes when the manifest, the last to come, is there.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import seqio
import tensorflow as tf
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ul2_tasks import cache
from ul2_tasks.export_folder import (
    COUNTED,
    SCHEMA_VERSION,
    count,
    differences,
    is_export,
    load,
    names,
    no_counts,
    place,
    read_examples,
    read_manifest,
    size,
    total,
    verify,
)
from ul2_tasks.export_formats import IDS, NO_TOKEN, Examples, open_format
from ul2_tasks.export_plan import PARTS, Export, describe, plan_export
from ul2_tasks.files import parallel_map
from ul2_tasks.providers import DENOISER

__all__ = ["is_export", "read_examples", "read_manifest", "verify", "write_examples"]

_BEGUN = "begun.json"
_EXAMPLES_AT_A_TIME, _TOKENS_AT_A_TIME = 256, 1 << 20
_IMPORT = functools.partial(importlib.import_module, "ul2_tasks")


def write_examples(
    mixture: str,
    output: str,
    sequence_length: Mapping[str, int],
    *,
    format: str,
    split: str = "train",
    seed: int = 0,
    epochs: int = 1,
    shards: int = 1,
    use_cached: bool = False,
    prepare: Callable[[], object] = _IMPORT,
    pipeline_options: Sequence[str] | None = None,
    console: Console | None = None,
) -> dict:
    """Writes the examples of a mixture to files, or goes on where an interrupted export stopped.

    The examples are those that training would read with the same arguments, in their order; the top of this file says where an
    epoch of a mixture ends. Memory does not grow with a shard; on a remote folder's way a shard is a local temporary file.

    Args:
        mixture: the name of a mixture that `register` or `mix` returned.
        output: a folder, new, empty, or with a part of this export; on any file system of TensorFlow's. All workers must see it.
        sequence_length: {"inputs": int, "targets": int}, the budgets in tokens.
        format: "tfrecord", "parquet", "jsonl" or "arrayrecord"; see `export_formats`.
        split: of the corpus.
        seed: others draw other examples.
        epochs: of the mixture, at least 1.
        shards: files, at least 1. Each reads its own share of the corpus.
        use_cached: whether the corpora are read from their caches, in SeqIO's cache directories. Without, each denoiser
            tokenizes its documents anew, which takes most of the time.
        prepare: what workers call first, so that they have the mixture too; `Registration.apply`, or the import of a module.
        pipeline_options: of Beam. None for one shard after the other in this process, without Beam.
        console: where progress and the summary go.

    Returns:
        The manifest, see `read_manifest`.

    Raises:
        ValueError: there is no such mixture, split or format; a number is out of range; the lengths do not fit, see
            `lengths.chunk_length`; there are too many shards for the corpus; the folder has other files, or an export with
            other arguments, which are named.
        ImportError: the format, or Beam, needs a package that is not installed.
        RuntimeError: the corpus cannot be read or a file not written; says which, and why.
    """
    console = console or Console(stderr=True)
    run = _run_here if pipeline_options is None else functools.partial(_run_on_beam, _import_beam(), pipeline_options)
    arguments = {
        "mixture": mixture,
        "sequence_length": dict(sequence_length),
        "format": format,
        "split": split,
        "seed": seed,
        "epochs": epochs,
        "shards": shards,
        "use_cached": use_cached,
    }
    export = plan_export(output, arguments)
    _check_folder(export)
    notes = _notes(export)
    if len(notes) == shards and cache.MANIFEST in names(export.folder):
        _forget(export)
        console.print(f"{export.folder} is complete already, and was made with these arguments")
        return read_manifest(export.folder)
    export.dataset(shards - 1)  # which raises what is wrong with it before anything is written
    _begin(export, notes)
    with _progress(export, len(notes), console) as advance:
        run(export, [shard for shard in range(shards) if shard not in notes], prepare, advance)
    manifest = _finish(export)
    _summarize(manifest, export.folder, console)
    return manifest


def _check_folder(export: Export) -> None:
    """Raises a ValueError unless the folder is empty, or has this export, whole or in part."""
    wanted = {"arguments": export.arguments, "pipeline": export.pipeline}
    paths = [place(export.folder, cache.MANIFEST), place(export.parts, _BEGUN)]
    known = [load(path) for path in paths if tf.io.gfile.exists(path)]
    others = sorted(names(export.folder) - {PARTS})
    if others and not known:
        raise ValueError(f"{export.folder} has files that are no export's, such as {others[0]!r}; name an empty or a new folder")
    for before in known:
        by_key = ("; ".join(differences(before.get(key), value, key)) for key, value in wanted.items())
        changes = next(filter(None, by_key), "")  # other arguments make another pipeline, of which nothing need be said
        if changes:
            raise ValueError(f"{export.folder} has an export with other arguments: {changes}; delete it, or name another folder")


def _notes(export: Export) -> dict[int, dict]:
    """Of each shard that is there, and of the size that it was written with, what the manifest has or will have."""
    written, parts = names(export.folder), names(export.parts)
    manifest = read_manifest(export.folder) if cache.MANIFEST in written else {"shards": []}
    notes = {note["file"]: note for note in manifest["shards"]}
    there = [name for name in export.files if f"{name}.json" in parts]
    notes |= dict(zip(there, parallel_map(lambda name: load(export.note(name)), there)))

    def is_whole(name: str) -> bool:
        return name in notes and name in written and size(place(export.folder, name)) == notes[name]["bytes"]

    return {shard: notes[name] for shard, name in enumerate(export.files) if is_whole(name)}


def _begin(export: Export, notes: Mapping[int, dict]) -> None:
    """Makes the folder; of an interrupted export keeps the whole shards and removes the rest."""
    tf.io.gfile.makedirs(export.parts)
    begun = {"arguments": export.arguments, "pipeline": export.pipeline}
    cache.write_atomically(place(export.parts, _BEGUN), json.dumps(begun))
    unfinished = {name for shard, name in enumerate(export.files) if shard not in notes}
    for folder, wrong in ((export.folder, unfinished), (export.parts, {f"{name}.json" for name in unfinished})):
        for name in names(folder):
            if name in wrong or name.endswith(".tmp"):
                tf.io.gfile.remove(place(folder, name))


def _run_here(export: Export, shards: Iterable[int], prepare: Callable, advance: Callable[[int], None]) -> None:
    for shard in shards:
        _write_shard(shard, export, prepare, advance)


def _run_on_beam(beam, options: Sequence[str], export: Export, shards: Iterable[int], prepare: Callable, advance: Callable) -> None:
    with beam.Pipeline(options=beam.options.pipeline_options.PipelineOptions(list(options))) as pipeline:
        _ = pipeline | beam.Create(list(shards)) | beam.Reshuffle() | beam.Map(_write_shard, export=export, prepare=prepare)


def _import_beam():
    try:
        import apache_beam
    except ImportError as error:
        raise ImportError(f"a Beam job needs Apache Beam ({error}); pip install 'ul2_tasks[cache]'") from error
    return apache_beam


def _write_shard(
    shard: int, export: Export, prepare: Callable[[], object], advance: Callable[[int], None] = lambda examples: None
) -> str:
    """Writes a shard, and then its note, unless that is there; returns the name of its file. Runs on a worker."""
    name = export.files[shard]
    note = export.note(name)
    if tf.io.gfile.exists(note):
        return name
    prepare()
    seqio.add_global_cache_dirs(export.cache_dirs)
    changes = "; ".join(differences(export.pipeline, describe(export.arguments)))
    if changes:
        raise RuntimeError(f"a worker would write other examples: {changes}; give all workers the same corpus and package")
    try:
        written = _write(shard, export, advance)
    except (OSError, tf.errors.OpError) as error:
        reason = error.message if isinstance(error, tf.errors.OpError) else error
        raise RuntimeError(f"{export.arguments['mixture']}, {name}: {type(error).__name__}: {reason}") from error
    cache.write_atomically(note, json.dumps(written))
    return name


def _write(shard: int, export: Export, advance: Callable[[int], None]) -> dict:
    """Writes a shard's file, which then moves to its place; returns what the manifest has of it."""
    name = export.files[shard]
    counts = no_counts(task["denoiser"]["name"] for task in export.pipeline["tasks"].values())
    temporary = place(export.folder, f"{name}.{uuid.uuid4().hex}.tmp")
    with tempfile.TemporaryDirectory() as spool:  # not all formats can be written to a remote file system
        local = place(spool, name) if "://" in temporary else temporary
        try:
            open_format(export.arguments["format"]).write(local, _counted(_batches(shard, export), counts, advance))
            sums = total(counts.values())
            if not sums["examples"]:
                raise ValueError(f"{name} would have no example: the corpus is too small for so many shards; write fewer")
            written = {"file": name, "bytes": size(local), "sha256": cache.sha256(local), **sums, "denoisers": counts}
            if local != temporary:
                tf.io.gfile.copy(local, temporary)
            tf.io.gfile.rename(temporary, place(export.folder, name), overwrite=True)
        except BaseException:
            if tf.io.gfile.exists(temporary):
                tf.io.gfile.remove(temporary)
            raise
    return written


def _batches(shard: int, export: Export) -> Iterator[Examples]:
    at_a_time = max(1, min(_EXAMPLES_AT_A_TIME, _TOKENS_AT_A_TIME // sum(export.arguments["sequence_length"].values())))
    padding = {**dict.fromkeys(IDS, np.int32(NO_TOKEN)), DENOISER: ""}
    # Single examples would cost tf.data more than all that is done to them, and so would ragged batches.
    batches = export.dataset(shard).padded_batch(at_a_time, padding_values=padding).prefetch(tf.data.AUTOTUNE)
    return map(Examples.from_padded, batches.as_numpy_iterator())


def _counted(
    batches: Iterable[Examples], counts: Mapping[str, dict[str, int]], advance: Callable[[int], None]
) -> Iterator[Examples]:
    for batch in batches:
        count(batch, counts)
        advance(len(batch))
        yield batch


def _finish(export: Export) -> dict:
    """Writes the manifest, last of all."""
    from ul2_tasks import __version__  # which may come to import this file

    notes = _notes(export)
    missing = [name for shard, name in enumerate(export.files) if shard not in notes]
    if missing:
        raise RuntimeError(f"{export.folder} lacks {missing}, which workers have written: let all of them see this folder")
    shards = list(notes.values())
    manifest = {
        "schema_version": SCHEMA_VERSION,
        "versions": {"ul2_tasks": __version__, "seqio": seqio.__version__, "tensorflow": tf.__version__},
        "arguments": export.arguments,
        "pipeline": export.pipeline,
        "totals": {
            **total(shards, ("bytes", *COUNTED)),
            "denoisers": {name: total(shard["denoisers"][name] for shard in shards) for name in shards[0]["denoisers"]},
        },
        "shards": shards,
    }
    cache.write_manifest(export.folder, manifest)
    _forget(export)
    return manifest


def _forget(export: Export) -> None:
    """Removes what is known of the parts; a job that was killed after it wrote the manifest has left that, too."""
    if PARTS in names(export.folder):
        tf.io.gfile.rmtree(export.parts)


@contextlib.contextmanager
def _progress(export: Export, finished: int, console: Console) -> Iterator[Callable[[int], None]]:
    """Shows how many shards are written, wherever the workers are: each leaves a note. Gives a function that counts examples."""
    examples = TextColumn("{task.fields[examples]}")
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), examples, TimeElapsedColumn()
    shards, written, stop = len(export.files), 0, threading.Event()
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task(f"{export.arguments['mixture']}: shards", total=shards, completed=finished, examples="")
        before = names(export.parts)

        def advance(examples: int) -> None:
            nonlocal written
            written += examples
            progress.update(bar, examples=f"{written:,} examples")

        def watch() -> None:
            while not stop.wait(0.5):
                new = names(export.parts) - before
                progress.update(bar, completed=finished + sum(name.endswith(".json") for name in new))

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield advance
            progress.update(bar, completed=shards)
        finally:
            stop.set()
            watcher.join()


def _summarize(manifest: Mapping, folder: str, console: Console) -> None:
    totals = manifest["totals"]
    table = Table(title=f"{folder}: {len(manifest['shards'])} shards, {totals['bytes']:,} bytes")
    for column in ("denoiser", *COUNTED):
        table.add_column(column.replace("_", " "), justify="left" if column == "denoiser" else "right")
    for name, counts in {**totals["denoisers"], "all": totals}.items():
        table.add_row(name, *(f"{counts[key]:,}" for key in COUNTED))
    console.print(table)
