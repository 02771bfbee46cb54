"""What lies beside pairs of tokens that are read in place: the manifest of their cache, or what a killed job left."""

from __future__ import annotations

import fnmatch
import functools
import logging
from collections.abc import Mapping

from ul2_tasks.corpus.cached_files import COMPLETED
from ul2_tasks.files.systems import exists, file_system, is_folder, is_local, names_in, place
from ul2_tasks.jobs.manifest import load, missing_or_resized
from ul2_tasks.jobs.shards import unfinished
from ul2_tasks.sources.tokens import TokenSource

_logger = logging.getLogger(__name__)
_MANIFEST = "manifest.json"
_OF_CACHES = {"schema_version", "corpus", "settings", "splits"}  # fields by which a manifest is one of this package
_PARTS = "parts"  # what the name of the folder of a job ends with


@functools.lru_cache(maxsize=64)
def check_token_files(source: TokenSource, split: str, vocabulary: str) -> None:
    """Raises a ValueError where the pairs of a split are of a job that has not finished, or not as the manifest beside them says.

    `vocabulary` is the identity that the manifest has under this name, see `configuration.settings`. Of pairs without a manifest,
    as other tools write them, nothing is known.
    """
    for pattern in source.patterns(split) if source.format == "megatron" else ():
        folders, _, name = pattern.rpartition("/")
        for folder in _folders(folders):
            _check_jobs(folder, name)
            path = place(folder, _MANIFEST)
            found = load(path) if exists(path) else None
            if isinstance(found, dict) and found.keys() >= _OF_CACHES:
                _check_manifest(folder, name, found, vocabulary)


def _folders(pattern: str) -> list[str]:
    """The folders that match, also those in which there is no pair: a job that was killed early may have written none."""
    if is_folder(pattern or "."):
        return [pattern or "."]
    system, name = file_system(pattern)
    found = sorted(path for path in system.glob(name) if system.isdir(path))
    return found if is_local(pattern) else [system.unstrip_protocol(path) for path in found]


def _matches(name: str, pattern: str) -> bool:
    return name == pattern or fnmatch.fnmatchcase(name, pattern)


def _check_jobs(folder: str, pattern: str) -> None:
    present = names_in(folder)
    left = [name for name in present if name.endswith(f"_{_PARTS}") and _matches(name.removesuffix(f"_{_PARTS}"), pattern)]
    if _PARTS in present and not present & {COMPLETED, _MANIFEST}:
        left.append(_PARTS)
    if sentence := unfinished(folder) or (left and f"{place(folder, min(left))} is of a job that has not finished."):
        raise ValueError(f"{sentence} Its tokens are not read as if they were all.")


def _check_manifest(folder: str, pattern: str, manifest: Mapping, vocabulary: str) -> None:
    shards = {shard["shard"]: shard for split in manifest["splits"].values() for shard in split["shards"]}
    present = names_in(folder)
    named = {name.removesuffix(".idx") for name in present if _matches(name, f"{pattern}.idx")}
    wrong = [f"{name} has no tokens of its texts" for name in sorted(named - shards.keys())]
    files = [file for name, shard in shards.items() if _matches(name, pattern) for file in shard["files"]]
    pairs = [file for file in files if file["file"].endswith((".bin", ".idx"))]
    wrong += missing_or_resized(folder, pairs, present & {file["file"] for file in pairs})
    there = (manifest["settings"] or {}).get("vocabulary", vocabulary)
    if there != vocabulary:
        wrong.append(f"the vocabulary is {there!r} there, and {vocabulary!r} here")
    if wrong:
        raise ValueError(
            f"the pairs {place(folder, pattern)} must be as {_MANIFEST} beside them says: {'; '.join(wrong)}. Register with the"
            " vocabulary that made them, and name the tokens of finished caches."
        )
    if manifest["max_documents"] is not None:
        _logger.warning("%s is a trial run: it has at most %d documents of each split", folder, manifest["max_documents"])
