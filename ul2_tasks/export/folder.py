"""The folder of an export: its manifest, whether it is whole, and how it is read. `export` writes it.

FOLDER/train-00000-of-00008.parquet ..    a file for each shard
FOLDER/_manifest.json                     tools that read a folder of Parquet files skip names that begin with "_"
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ul2_tasks.example_features import IMAGES, LOSS_MASK, TASK, features_named, token_features
from ul2_tasks.export.formats import Examples, open_format
from ul2_tasks.files.opening import is_unreachable
from ul2_tasks.files.systems import exists, is_folder, names_in, place, read
from ul2_tasks.jobs.manifest import altered, differences, faults, missing_or_resized, parse_manifest
from ul2_tasks.jobs.shards import unfinished
from ul2_tasks.jobs.trial import in_words

_logger = logging.getLogger(__name__)
SCHEMA_VERSION = 4
MANIFEST = "_manifest.json"
_REMEDY = "Delete what is wrong, and run the same export again, which writes what is missing."


def read_examples(folder: str, *, verify: bool = True) -> Iterator[dict[str, Any]]:
    """Returns an iterator over the examples of an export, shard by shard, in the order in which they were written.

    Args:
        folder: the export's folder, the --output of `ul2 export`.
        verify: whether to compare the SHA-256 of each shard before its first example, so that each shard is read twice. Sizes and
            counts are always compared.

    Returns:
        An iterator of {"inputs": [T] int32, "targets": [T] int32, "denoiser": str, "task": str}. With images there is "images":
        list of bytes, in the order of their placeholders. Conversations have "loss_mask" and "span_id": [T] uint8, of the targets;
        or as one sequence {"tokens": [T] int32, "loss_mask", "span_id", ..}. The manifest says under "ids" what the ids and loss
        groups mean. The denoiser is "" where the task has none. Where the corpus records it there is "origins": list of `Origin`,
        the file, row, id and hash of each document that the example has tokens of.

    Raises:
        ValueError: the folder has no finished export; or a shard, which the message names, is missing, truncated, altered or not in
            the manifest, or has other counts than the manifest.
    """
    manifest = read_manifest(folder)
    wrong = list(missing_or_resized(folder, _files(manifest), _present(folder, manifest)))
    if wrong:
        raise ValueError(f"the export {folder} must be as its {MANIFEST} describes it, but is not: {'; '.join(wrong)}. {_REMEDY}")
    if words := in_words(manifest["arguments"]):
        _logger.warning("%s is %s", folder, words)
    format = open_format(manifest["arguments"]["format"])
    return _read(folder, manifest, lambda paths: format.read(paths, manifest["features"]), verify)


def verify(folder: str, quick: bool = False) -> Iterator[str]:
    """Reads an export again, or with `quick` compares sizes alone.

    Gives a sentence for each shard that is missing, truncated or altered, or not in the manifest.
    """
    manifest = read_manifest(folder)
    yield from faults(folder, _files(manifest), _present(folder, manifest), quick)


def is_export(folder: str) -> bool:
    """Whether a folder has a complete export."""
    return exists(place(folder, MANIFEST))


def read_manifest(folder: str) -> dict:
    """The manifest of an export, as JSON has it.

    * "arguments": those of `write_examples`; with a `max_examples` or `max_tokens` this is a trial run.
    * "pipeline": what made the examples: the fingerprint of a run of them.
    * "features": the features of the examples.
    * "ids": what the ids mean. The ids of sentinels, modes and EOS, and how many ids there are; the loss groups of conversations.
    * "shards": for each, in order, its name under "shard", "files", with "file", "bytes" and "sha256" of each, the counts of
      `counted`, and under "tasks" these for each task.
    * "totals": the sums over the shards.
    * "left_out": of each corpus of records that is read by number, how many examples an epoch leaves out, by cause.

    Raises a ValueError where there is none, or it has a schema that this version of the package cannot read, or was altered.
    """
    if not is_folder(folder):
        raise ValueError(f"the folder must be one that `ul2 export` wrote, got {folder!r}, which does not exist.")
    if not is_export(folder):
        raise ValueError(
            unfinished(folder) or f"the folder must be one that `ul2 export` wrote, got {folder}, which has no {MANIFEST}."
        )
    path = place(folder, MANIFEST)
    return parse_manifest(path, read(path), SCHEMA_VERSION, "Export again.", ["arguments", "features", "shards", "totals"])


def _files(manifest: Mapping) -> list[dict[str, Any]]:
    """The files of all shards."""
    return [file for shard in manifest["shards"] for file in shard["files"]]


def counted(names: Collection[str]) -> tuple[str, ...]:
    """What is counted of examples that have features of these names: "examples", "inputs_tokens", "trained_tokens", "images" .."""
    of_tokens = (key if key == "tokens" else f"{key}_tokens" for key in token_features(features_named(names)))
    return ("examples", *of_tokens, *(["trained_tokens"] if LOSS_MASK in names else []), *([IMAGES] if IMAGES in names else []))


def count(examples: Examples, counts: dict[str, dict[str, int]]) -> None:
    """Adds examples to the counts of their tasks."""
    of_each = _counts_of_each(examples)
    for name in np.unique(examples.names[TASK]):
        own, is_own = counts.setdefault(str(name), dict.fromkeys(of_each, 0)), examples.names[TASK] == name
        for key, values in of_each.items():
            own[key] += int(values[is_own].sum())


def _counts_of_each(examples: Examples) -> dict[str, np.ndarray]:
    """What `counted` names, of each example, [N] integers."""
    found = [np.ones(len(examples), np.int64), *(examples.lengths[key] for key in token_features(examples.features))]
    if LOSS_MASK in examples.ids:
        ends = np.cumsum(examples.lengths[examples.features[LOSS_MASK].per_token_of])
        trained = np.concatenate([[0], np.cumsum(examples.ids[LOSS_MASK], dtype=np.int64)])
        found.append(np.diff(trained[np.concatenate([[0], ends])]))
    if examples.images is not None:
        found.append(np.array([len(images) for images in examples.images]))
    return dict(zip(counted([*examples.ids, *([] if examples.images is None else [IMAGES])]), found))


def no_counts(tasks: Iterable[str], names: Collection[str]) -> dict[str, dict[str, int]]:
    """Counts of 0, for tasks whose examples have features of these names."""
    return {task: dict.fromkeys(counted(names), 0) for task in tasks}


def _read(
    folder: str, manifest: Mapping, read: Callable[[Sequence[str]], Iterator[Examples]], verify: bool
) -> Iterator[dict[str, Any]]:
    for shard in manifest["shards"]:
        names = [file["file"] for file in shard["files"]]
        for sentence in filter(None, (altered(folder, file) for file in (shard["files"] if verify else ()))):
            raise ValueError(f"{folder}: {sentence}. {_REMEDY}")
        counts = no_counts(shard["tasks"], manifest["features"])
        for examples in _readable(read([place(folder, name) for name in names]), f"{folder}: {', '.join(names)}"):
            count(examples, counts)
            yield from examples
        changes = "; ".join(differences(shard["tasks"], counts))
        if changes:
            raise ValueError(f"{folder}: {', '.join(names)} has other counts than the manifest: {changes}. {_REMEDY}")


def _readable(batches: Iterator[Examples], where: str) -> Iterator[Examples]:
    """The same examples. Whatever the format's reader raises becomes a ValueError that names the file."""
    try:
        yield from batches
    except (OSError, RuntimeError, ValueError, LookupError, TypeError, pa.ArrowException) as error:
        if is_unreachable(error):
            raise
        raise ValueError(f"{where} cannot be read ({type(error).__name__}: {error}). {_REMEDY}") from error


def _present(folder: str, manifest: Mapping) -> set[str]:
    return {name for name in names_in(folder) if name.endswith(open_format(manifest["arguments"]["format"]).endings)}
