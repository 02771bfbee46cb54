"""The folder of an export: its manifest, whether it is whole, and how it is read. `export` writes it.

    FOLDER/train-00000-of-00008.parquet ..    a file for each shard
    FOLDER/_manifest.json                     tools that read a folder of Parquet files skip names that begin with "_"

In schema 1 the manifest was `manifest.json`, an example had no task, and examples were counted by denoiser. Exports of schema 1
are read, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa
import tensorflow as tf

from ul2_tasks.example_features import DENOISER, TASK, TOKEN_FEATURES
from ul2_tasks.export.formats import Examples, open_format
from ul2_tasks.files.systems import exists, is_folder, names_in, place
from ul2_tasks.jobs.forms import EACH, NAME
from ul2_tasks.jobs.manifest import FILE, altered, differences, faults, load, load_manifest, missing_or_resized
from ul2_tasks.jobs.shards import unfinished

SCHEMA_VERSION = 2
MANIFEST = "_manifest.json"
_OLD_MANIFEST = "manifest.json"  # of schema 1. The manifest of a cache has the same name, but no list "shards".
_COUNTED_BY = {1: DENOISER, SCHEMA_VERSION: TASK}
COUNTED = ("examples", *(f"{key}_tokens" for key in TOKEN_FEATURES))
_REMEDY = "Delete what is wrong, and run the same export again, which writes what is missing."


def read_examples(folder: str, *, verify: bool = True) -> Iterator[dict[str, np.ndarray | str]]:
    """Returns an iterator over the examples of an export, shard by shard, in the order in which they were written.

    Args:
        folder: the export's folder, the --output of `ul2 export`.
        verify: whether to compare the SHA-256 of each shard before its first example, so that each shard is read twice. Sizes and
            counts are always compared.

    Returns:
        An iterator of {"inputs": [T] int32, "targets": [T] int32, "denoiser": str, "task": str}. The manifest says under "ids"
        what the ids mean. The denoiser is "" where the task has none, and the task is "" in exports of schema 1.

    Raises:
        ValueError: the folder has no finished export; or a shard, which the message names, is missing, truncated, altered or not in
            the manifest, or has other counts than the manifest.
        ImportError: the format needs a package that is not installed.
    """
    manifest = read_manifest(folder)
    wrong = list(missing_or_resized(folder, manifest["shards"], _present(folder, manifest)))
    if wrong:
        raise ValueError(f"the export {folder} must be as its {MANIFEST} describes it, but is not: {'; '.join(wrong)}. {_REMEDY}")
    return _read(folder, manifest, open_format(manifest["arguments"]["format"]).read, verify)


def verify(folder: str) -> Iterator[str]:
    """Reads an export again. Gives a sentence for each shard that is missing, truncated or altered, or not in the manifest."""
    manifest = read_manifest(folder)
    yield from faults(folder, manifest["shards"], _present(folder, manifest))


def is_export(folder: str) -> bool:
    """Whether a folder has a complete export."""
    return manifest_path(folder) is not None


def manifest_path(folder: str) -> str | None:
    """The path of an export's manifest; None if there is no manifest, or only that of a cache."""
    new, old = place(folder, MANIFEST), place(folder, _OLD_MANIFEST)
    if exists(new):
        return new
    found = load(old) if exists(old) else None
    return old if isinstance(found, Mapping) and "shards" in found else None


def read_manifest(folder: str) -> dict:
    """The manifest of an export, as JSON has it.

    * "arguments": those of `write_examples`.
    * "pipeline": what made the examples. The vocabulary and source of each corpus; the denoiser, rate, mode and full chunk of
      each task.
    * "ids": what the ids mean. The ids of sentinels, modes, EOS and padding, and how many ids there are.
    * "shards": for each file, in order, "file", "bytes", "sha256", "examples", "inputs_tokens", "targets_tokens", and under
      "tasks" the last three for each task.
    * "totals": the sums over the shards.

    Raises a ValueError where there is none, or it has a schema that this version of the package cannot read, or was altered.
    """
    if not is_folder(folder):
        raise ValueError(f"the folder must be one that `ul2 export` wrote, got {folder!r}, which does not exist.")
    path = manifest_path(folder)
    if path is None:
        raise ValueError(
            unfinished(folder) or f"the folder must be one that `ul2 export` wrote, got {folder}, which has no {MANIFEST}."
        )
    return load_manifest(path, tuple(_COUNTED_BY), "Export again.", _form)


def _form(manifest: Mapping) -> dict:
    """See `forms`."""
    counts = {f"{_COUNTED_BY[manifest['schema_version']]}s": {EACH: dict.fromkeys(COUNTED, int)}}
    return {"arguments": {"format": NAME}, "shards": [{**FILE, **counts}], "totals": {}}


def count(examples: Examples, counts: dict[str, dict[str, int]], by: str = TASK) -> None:
    """Adds examples to the counts of their tasks, or (`by=DENOISER`) of their denoisers."""
    for name in np.unique(examples.names[by]):
        own, is_own = counts.setdefault(str(name), dict.fromkeys(COUNTED, 0)), examples.names[by] == name
        own["examples"] += int(is_own.sum())
        for key in TOKEN_FEATURES:
            own[f"{key}_tokens"] += int(examples.lengths[key][is_own].sum())


def no_counts(names: Iterable[str]) -> dict[str, dict[str, int]]:
    """Counts of 0, for tasks or denoisers of these names."""
    return {name: dict.fromkeys(COUNTED, 0) for name in names}


def _read(
    folder: str, manifest: Mapping, read: Callable[[str], Iterator[Examples]], verify: bool
) -> Iterator[dict[str, np.ndarray | str]]:
    by = _COUNTED_BY[manifest["schema_version"]]
    for shard in manifest["shards"]:
        if verify and (sentence := altered(folder, shard)):
            raise ValueError(f"{folder}: {sentence}. {_REMEDY}")
        counts = no_counts(shard[f"{by}s"])
        for examples in _readable(read(place(folder, shard["file"])), f"{folder}: {shard['file']}"):
            count(examples, counts, by)
            yield from examples
        changes = "; ".join(differences(shard[f"{by}s"], counts))
        if changes:
            raise ValueError(f"{folder}: {shard['file']} has other counts than the manifest: {changes}. {_REMEDY}")


def _readable(batches: Iterator[Examples], where: str) -> Iterator[Examples]:
    """The same examples. Whatever the format's reader raises becomes a ValueError that names the file."""
    try:
        yield from batches
    except (OSError, RuntimeError, ValueError, LookupError, pa.ArrowException, tf.errors.OpError) as error:
        raise ValueError(f"{where} cannot be read ({type(error).__name__}: {error}). {_REMEDY}") from error


def _present(folder: str, manifest: Mapping) -> set[str]:
    return {name for name in names_in(folder) if name.endswith(f".{manifest['arguments']['format']}")}
