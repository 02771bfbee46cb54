"""Writes corrupted examples to files for other trainers; see `export_folder` for what comes of it, and to read it.

Shard i of n has the examples that host i of n would train on, in their order:

    mixture.get_dataset(sequence_length, split, shuffle=True, seed=seed, num_epochs=epochs, shard_info=seqio.ShardInfo(i, n))

So it ends where that ends: when the first denoiser has read its documents `epochs` times. (Rates count examples, so the others
have read fewer of theirs by then.) The same arguments give the same bytes, whoever writes them, in whatever order.

What a killed export has finished stays: a shard that is whole moves to its place, and then leaves a note in the folder `_parts`,
which goes when the manifest, the last to come, is there.
"""

from __future__ import annotations

import functools
import importlib
import json
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import seqio
import tensorflow as tf
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ul2_tasks.export_folder import (
    COUNTED,
    MANIFEST,
    SCHEMA_VERSION,
    count,
    is_export,
    manifest_path,
    no_counts,
    read_examples,
    read_manifest,
    total,
    verify,
)
from ul2_tasks.export_formats import IDS, NAMES, NO_TOKEN, Examples, open_format
from ul2_tasks.export_plan import PARTS, Export, describe, describe_ids, plan_export
from ul2_tasks.files import parallel_map
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

__all__ = ["is_export", "read_examples", "read_manifest", "verify", "write_examples"]

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
    if pipeline_options is not None:
        import_beam()  # before anything is written
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
    if len(notes) == shards and is_export(export.folder):
        _forget(export)
        console.print(f"{export.folder} is complete already, and was made with these arguments", markup=False, soft_wrap=True)
        return read_manifest(export.folder)
    export.dataset(shards - 1)  # which raises what is wrong with it before anything is written
    _begin(export, notes)
    waiting = [shard for shard in range(shards) if shard not in notes]
    to_come = [f"{export.files[shard]}.json" for shard in waiting]
    with progress(mixture, shards, export.parts, to_come, console) as advance:
        write = functools.partial(_write_shard, export=export, prepare=prepare)
        if pipeline_options is None:
            for shard in waiting:
                write(shard, advance=advance)
        else:
            run_on_beam(pipeline_options, write, waiting, export.parts)
    manifest = _finish(export)
    _summarize(manifest, export.folder, console)
    return manifest


def _check_folder(export: Export) -> None:
    """Raises a ValueError unless the folder is empty, or has this export, whole or in part."""
    paths = [manifest_path(export.folder), place(export.parts, BEGUN), place(place(export.folder, "parts"), BEGUN)]
    known = [load(path) for path in paths if path and tf.io.gfile.exists(path)]
    others = sorted(names_in(export.folder) - {PARTS})
    if others and not known:
        raise ValueError(f"{export.folder} has files that are no export's, such as {others[0]!r}; name an empty or a new folder")
    for before in known:
        if before.get("schema_version") != SCHEMA_VERSION:
            raise ValueError(f"{export.folder} has an export of another version of this package; delete it, or name another folder")
        by_key = ("; ".join(differences(before.get(key), value, key)) for key, value in _begun(export).items())
        changes = next(filter(None, by_key), "")  # other arguments make another pipeline, of which nothing need be said
        if changes:
            raise ValueError(f"{export.folder} has an export with other arguments: {changes}; delete it, or name another folder")


def _begun(export: Export) -> dict[str, object]:
    """What tells an export from another one."""
    return {"schema_version": SCHEMA_VERSION, "arguments": export.arguments, "pipeline": export.pipeline}


def _notes(export: Export) -> dict[int, dict]:
    """Of each shard that is there, and of the size that it was written with, what the manifest has or will have."""
    written, parts = names_in(export.folder), names_in(export.parts)
    manifest = read_manifest(export.folder) if is_export(export.folder) else {"shards": []}
    notes = {note["file"]: note for note in manifest["shards"]}
    there = [name for name in export.files if f"{name}.json" in parts]
    notes |= dict(zip(there, parallel_map(lambda name: load(export.note(name)), there)))

    def is_whole(name: str) -> bool:
        return name in notes and name in written and size(place(export.folder, name)) == notes[name]["bytes"]

    return {shard: notes[name] for shard, name in enumerate(export.files) if is_whole(name)}


def _begin(export: Export, notes: Mapping[int, dict]) -> None:
    """Makes the folder; of an interrupted export keeps the whole shards and removes the rest."""
    tf.io.gfile.makedirs(export.parts)
    write_atomically(place(export.parts, BEGUN), json.dumps(_begun(export)))
    unfinished = {name for shard, name in enumerate(export.files) if shard not in notes}
    for folder, wrong in ((export.folder, unfinished), (export.parts, {f"{name}.json" for name in unfinished})):
        for name in names_in(folder):
            if name in wrong or name.endswith(".tmp"):
                tf.io.gfile.remove(place(folder, name))


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
        write_atomically(note, json.dumps(_write(shard, export, advance)))
    except FAILURES as error:
        raise RuntimeError(f"{export.arguments['mixture']}, {name}: {in_words(error)}") from error
    return name


def _write(shard: int, export: Export, advance: Callable[[int], None]) -> dict:
    """Writes a shard's file, which then moves to its place; returns what the manifest has of it."""
    name = export.files[shard]
    counts = no_counts(export.pipeline["tasks"])
    temporary = place(export.parts, f"{name}.{uuid.uuid4().hex}.tmp")
    # Not all formats can be written to a remote file system.
    with tempfile.TemporaryDirectory() as spool, removed_on_failure(temporary):
        local = place(spool, name) if "://" in temporary else temporary
        open_format(export.arguments["format"]).write(local, _counted(_batches(shard, export), counts, advance))
        sums = total(counts.values())
        if not sums["examples"]:
            raise ValueError(f"{name} would have no example: the corpus is too small for so many shards; write fewer")
        written = {"file": name, "bytes": size(local), "sha256": sha256(local), **sums, "tasks": counts}
        if local != temporary:
            tf.io.gfile.copy(local, temporary)
        tf.io.gfile.rename(temporary, place(export.folder, name), overwrite=True)
    return written


def _batches(shard: int, export: Export) -> Iterator[Examples]:
    at_a_time = max(1, min(_EXAMPLES_AT_A_TIME, _TOKENS_AT_A_TIME // sum(export.arguments["sequence_length"].values())))
    padding = {**dict.fromkeys(IDS, np.int32(NO_TOKEN)), **dict.fromkeys(NAMES, "")}
    # Single examples would cost tf.data more than all that is done to them, and so would ragged batches.
    batches = export.dataset(shard).padded_batch(at_a_time, padding_values=padding).prefetch(tf.data.AUTOTUNE)
    return map(functools.partial(Examples.from_padded, id_shift=export.id_shift), batches.as_numpy_iterator())


def _counted(batches: Iterable[Examples], counts: dict[str, dict[str, int]], advance: Callable[[int], None]) -> Iterator[Examples]:
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
        **_begun(export),
        "versions": {"ul2_tasks": __version__, "seqio": seqio.__version__, "tensorflow": tf.__version__},
        "ids": describe_ids(export.arguments),
        "totals": {
            **total(shards, ("bytes", *COUNTED)),
            "tasks": {name: total(shard["tasks"][name] for shard in shards) for name in shards[0]["tasks"]},
        },
        "shards": shards,
    }
    write_atomically(place(export.folder, MANIFEST), json.dumps(manifest, indent=1) + "\n")
    _forget(export)
    return manifest


def _forget(export: Export) -> None:
    """Removes what is known of the parts; a job that was killed after it wrote the manifest has left that, too."""
    if PARTS in names_in(export.folder):
        tf.io.gfile.rmtree(export.parts)


def _summarize(manifest: Mapping, folder: str, console: Console) -> None:
    totals = manifest["totals"]
    table = Table(title=Text(f"{folder}: {len(manifest['shards'])} shards, {totals['bytes']:,} bytes"))
    for column in ("task", *COUNTED):
        table.add_column(column.replace("_", " "), justify="left" if column == "task" else "right")
    for name, counts in {**totals["tasks"], "all": totals}.items():
        table.add_row(name, *(f"{counts[key]:,}" for key in COUNTED))
    console.print(table)
    read = f"from ul2_tasks.export import read_examples; examples = read_examples({folder!r})"
    console.print(f"To read it, in Python:\n    {read}", soft_wrap=True, markup=False, highlight=False)
