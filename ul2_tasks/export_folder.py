"""An export as it lies in its folder: its manifest, whether it is whole, and how it is read.

A folder has a file of each shard, `SPLIT-00000-of-00008.FORMAT` .., and `manifest.json`. `export` writes it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import tensorflow as tf

from ul2_tasks import cache
from ul2_tasks.export_formats import IDS, Examples, open_format
from ul2_tasks.files import parallel_map

SCHEMA_VERSION = 1
COUNTED = ("examples", *(f"{key}_tokens" for key in IDS))
_MEND = "delete what is wrong, and run the same export again, which writes what is missing"


def read_examples(folder: str, *, verify: bool = True) -> Iterator[dict[str, np.ndarray | str]]:
    """The examples of an export, shard by shard, in the order in which they were written.

    Args:
        folder: what `write_examples` wrote to.
        verify: whether each shard's SHA-256 is compared before its first example is given, for which it is read twice. Sizes
            and counts always are.

    Returns:
        An iterator of {"inputs": [T] int32, "targets": [T] int32, "denoiser": str}.

    Raises:
        ValueError: it is no finished export. Or a shard is missing, truncated, altered or too many, or holds other counts than
            the manifest; names it.
        ImportError: the format needs a package that is not installed.
    """
    manifest = read_manifest(folder)
    wrong = list(_missing_or_resized(folder, manifest))
    if wrong:
        raise ValueError(f"the export {folder} is not as its {cache.MANIFEST} has it: {'; '.join(wrong)}; {_MEND}")
    return _read(folder, manifest, open_format(manifest["arguments"]["format"]).read, verify)


def verify(folder: str) -> Iterator[str]:
    """Reads an export again, and gives a sentence for each shard that is missing, truncated, altered or too many."""
    manifest = read_manifest(folder)
    wrong = list(_missing_or_resized(folder, manifest))
    yield from wrong
    rest = [shard for shard in manifest["shards"] if not any(shard["file"] in sentence for sentence in wrong)]
    yield from filter(None, parallel_map(functools.partial(_altered, folder), rest))


def is_export(folder: str) -> bool:
    """Whether a manifest in this folder is an export's, not a cache's."""
    path = place(folder, cache.MANIFEST)
    return tf.io.gfile.exists(path) and "shards" in load(path)


def read_manifest(folder: str) -> dict:
    """The manifest of an export, as JSON has it.

    "arguments" are those of `write_examples`. "pipeline" is what made the examples: of each corpus the vocabulary and source, of
    each task the denoiser, its rate, ids and full chunk. "shards" has of each file, in order, "bytes", "sha256", "examples",
    "inputs_tokens", "targets_tokens", and under "denoisers" the last three of each denoiser. "totals" are the sums.

    Raises:
        ValueError: there is no such folder; no manifest in it; one of another schema than this version of the package reads.
    """
    if not tf.io.gfile.isdir(folder):
        raise ValueError(f"there is no folder {folder!r}; expected one that `ul2 export` wrote")
    path = place(folder, cache.MANIFEST)
    if not tf.io.gfile.exists(path):
        raise ValueError(
            f"{folder} has no {cache.MANIFEST}: no export wrote it, or one that was interrupted, which the same line finishes"
        )
    manifest = load(path)
    if manifest.get("schema_version") != SCHEMA_VERSION:
        raise ValueError(f"{path} has schema_version {manifest.get('schema_version')}, expected {SCHEMA_VERSION}; export again")
    return manifest


def count(examples: Examples, counts: Mapping[str, dict[str, int]]) -> None:
    """Adds examples to the counts of their denoisers."""
    for name in np.unique(examples.denoisers):
        own, is_own = counts[str(name)], examples.denoisers == name
        own["examples"] += int(is_own.sum())
        for key in IDS:
            own[f"{key}_tokens"] += int(examples.lengths[key][is_own].sum())


def no_counts(denoisers: Iterable[str]) -> dict[str, dict[str, int]]:
    """Counts to begin with."""
    return {name: dict.fromkeys(COUNTED, 0) for name in denoisers}


def total(counts: Iterable[Mapping[str, int]], keys: Sequence[str] = COUNTED) -> dict[str, int]:
    """The sums of counts."""
    counts = list(counts)
    return {key: sum(count[key] for count in counts) for key in keys}


def differences(before: object, now: object, path: str = "") -> Iterator[str]:
    """A sentence for each value that is another one, or is there in one alone, in nested dictionaries."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in {**before, **now}:
            yield from differences(before.get(key), now.get(key), f"{path}.{key}" if path else key)
    elif before != now:
        yield f"{path} is {before!r} there, and {now!r} here"


def place(folder: str, name: str) -> str:
    """The path of a file in a folder."""
    return f"{folder.rstrip('/')}/{name}"


def names(folder: str) -> set[str]:
    """What is in a folder; nothing, if it is not there."""
    return {name.rstrip("/") for name in tf.io.gfile.listdir(folder)} if tf.io.gfile.isdir(folder) else set()


def load(path: str) -> dict:
    """A JSON file's value."""
    with tf.io.gfile.GFile(path) as file:
        return json.load(file)


def size(path: str) -> int:
    """The bytes of a file."""
    return tf.io.gfile.stat(path).length


def _read(
    folder: str, manifest: Mapping, read: Callable[[str], Iterator[Examples]], verify: bool
) -> Iterator[dict[str, np.ndarray | str]]:
    for shard in manifest["shards"]:
        if verify and (sentence := _altered(folder, shard)):
            raise ValueError(f"{folder}: {sentence}; {_MEND}")
        counts = no_counts(shard["denoisers"])
        for examples in _readable(read(place(folder, shard["file"])), f"{folder}: {shard['file']}"):
            count(examples, counts)
            yield from examples
        changes = "; ".join(differences(shard["denoisers"], counts))
        if changes:
            raise ValueError(f"{folder}: {shard['file']} has other counts than the manifest: {changes}; {_MEND}")


def _readable(batches: Iterator[Examples], where: str) -> Iterator[Examples]:
    """The same, but what cannot be read raises one kind of error."""
    try:
        yield from batches
    except (OSError, RuntimeError, ValueError, LookupError, pa.ArrowException, tf.errors.OpError) as error:
        raise ValueError(f"{where} cannot be read: {type(error).__name__}: {error}; {_MEND}") from error


def _missing_or_resized(folder: str, manifest: Mapping) -> Iterator[str]:
    listed = {shard["file"]: shard["bytes"] for shard in manifest["shards"]}
    present = {name for name in names(folder) if name.endswith(f".{manifest['arguments']['format']}")}
    yield from (f"{name} is missing" for name in sorted(listed.keys() - present))
    yield from (f"{name} is not in the manifest" for name in sorted(present - listed.keys()))
    both = sorted(listed.keys() & present)
    for name, found in zip(both, parallel_map(lambda name: size(place(folder, name)), both)):
        if found != listed[name]:
            kind = "truncated" if found < listed[name] else "too long"
            yield f"{name} is {kind}: {found} bytes, the manifest says {listed[name]}"


def _altered(folder: str, shard: Mapping) -> str | None:
    found = cache.sha256(place(folder, shard["file"]))
    if found == shard["sha256"]:
        return None
    return f"{shard['file']} is altered: SHA-256 {found}, the manifest says {shard['sha256']}"
