"""`ul2 verify`: finds the caches and exports in a folder, and checks that each is as it was written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ul2_tasks.corpus import cache
from ul2_tasks.export import folder as export_folder
from ul2_tasks.files.systems import is_folder, names_in, place
from ul2_tasks.jobs.shards import unfinished
from ul2_tasks.jobs.trial import most_of


def examine(folder: str, quick: bool = False) -> Iterator[tuple[str, list[str], dict[str, int]]]:
    """Reads a cache or export again, or several that are right in a folder, and compares each with what its manifest says.

    With `quick` sizes alone are compared.

    Of each there is its folder; a sentence for each thing that is wrong, such as that it is not finished; and, where nothing is
    wrong, the totals of its manifest, such as {"documents": 525, ..}, and what a trial run has at most.
    """
    if not is_folder(folder):
        raise ValueError(
            f"the folder must be the --output of `ul2 cache` or of `ul2 export`, got {folder!r}, which does not exist."
        )
    found = [folder] if _holds(folder) else [each for name in sorted(names_in(folder)) if _holds(each := place(folder, name))]
    if not found:
        raise ValueError(
            f"the folder must be the --output of `ul2 cache` or of `ul2 export`, got {folder}, in which there is neither a cache"
            " nor an export."
        )
    return (_examine(each, quick) for each in found)


def _holds(folder: str) -> bool:
    """Whether a folder has a cache or an export, finished or not."""
    if cache.is_cache(folder) or export_folder.is_export(folder) or unfinished(folder):
        return True
    return any(map(cache.is_data, names_in(folder)))  # a cache that a job has not finished


def _is_pair(folder: str) -> bool:
    """Whether its files of tokens are those of `ul2 export --format megatron`, whose names have no number of a shard."""
    tokens = list(filter(cache.is_data, names_in(folder)))
    return (
        bool(tokens)
        and not export_folder.is_export(folder)
        and not any(re.search(r"-of-\d+", name) for name in tokens)
        and not unfinished(folder)
    )


def _examine(folder: str, quick: bool) -> tuple[str, list[str], dict[str, int]]:
    if _is_pair(folder):
        return folder, [f"{folder} has .bin and .idx files for Megatron-LM, but no manifest to compare them with."], {}
    written: Any = export_folder if export_folder.is_export(folder) else cache
    try:
        wrong = list(written.verify(folder, quick))
    except ValueError as error:
        wrong = [str(error)]
    manifest = {} if wrong else written.read_manifest(folder)
    counts = {what: count for what, count in manifest.get("totals", {}).items() if isinstance(count, int)}
    counts |= {f"{name} of a trial run": most for name, most in most_of(manifest.get("arguments", manifest)).items()}
    return folder, wrong, counts
