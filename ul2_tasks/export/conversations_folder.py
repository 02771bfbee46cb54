"""The folder of exported conversations, for Megatron-LM: its files, its manifest, and whether it is whole.

    FOLDER/train/shard_00_tokens.bin .idx      int32, the tokenizer's own ids; a sequence is an example, with its EOD
    FOLDER/train/shard_00_lossmask.bin .idx    uint8, 1 where the token at the same place is learned
    FOLDER/train/shard_00_span.bin .idx        uint8, which span it belongs to
    FOLDER/valid/shard_00_tokens.bin ..        the split `validation`
    FOLDER/manifest.json

A shard without an example has no files, because Megatron-LM opens no empty dataset; the manifest says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ul2_tasks.files.systems import exists, names_in, place
from ul2_tasks.jobs.forms import EACH, NAME
from ul2_tasks.jobs.manifest import FILE, faults, load, load_manifest
from ul2_tasks.jobs.shards import unfinished
from ul2_tasks.store.read import Store, open_pair

SCHEMA_VERSION = 1
MANIFEST = "manifest.json"
KIND = "conversations"
COLUMNS: dict[str, np.dtype] = {"tokens": np.dtype(np.int32), "lossmask": np.dtype(np.uint8), "span": np.dtype(np.uint8)}
_SHARD = {"shard": NAME, "sequences": int, "tokens": int, "spans": dict, "files": [FILE]}
_FORM = {"eod": int, "splits": {EACH: {"shards": [_SHARD]}}, "totals": {}}  # of the manifest, see `forms`
FOLDERS = {"validation": "valid"}  # of splits whose folder has another name


def folder_of(split: str) -> str:
    """The name of a split's folder."""
    return FOLDERS.get(split, split)


def is_export(folder: str) -> bool:
    """Whether a folder has exported conversations, all of them."""
    path = place(folder, MANIFEST)
    found = load(path) if exists(path) else None
    return isinstance(found, Mapping) and found.get("kind") == KIND


def read_manifest(folder: str) -> dict:
    """The manifest, as JSON has it; see `conversations.write_conversations`.

    Raises a ValueError where there is none, or it has a schema that this version of the package cannot read, or was altered.
    """
    if not is_export(folder):
        raise ValueError(unfinished(folder) or f"{folder} has no exported conversations: its {MANIFEST} is missing, or another's")
    return load_manifest(place(folder, MANIFEST), (SCHEMA_VERSION,), "Export again.", lambda manifest: _FORM)


def verify(folder: str) -> Iterator[str]:
    """Reads an export again. Gives a sentence for each thing that is wrong.

    That is: a file is missing, truncated, altered or not in the manifest; the three files of a shard differ in the borders of
    sequences; tokens, masks and spans do not go together, or are not what the manifest counted.
    """
    manifest = read_manifest(folder)
    for split, entry in manifest["splits"].items():
        where = place(folder, folder_of(split))
        files = [file for shard in entry["shards"] for file in shard["files"]]
        wrong = list(faults(where, files, {name for name in names_in(where) if name.endswith((".bin", ".idx"))}))
        yield from (f"{folder_of(split)}/{sentence}" for sentence in wrong)
        if not wrong:
            for shard in entry["shards"]:
                yield from (f"{folder_of(split)}/{sentence}" for sentence in _disagreements(where, shard, manifest["eod"]))


def read_shard(where: str, shard: str, most: int | None = None) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The tokens, masks and spans of a shard, [tokens] each, and [sequences] int64, how many of them each sequence has.

    `shard` is its name, such as "shard_00", in `where`, the folder of its split. At most `most` sequences are read, from the first;
    None for all.
    """
    index, _ = open_pair(place(where, f"{shard}_tokens"))
    lengths = np.asarray(index.lengths[:most], np.int64)
    stores = {column: Store.open([place(where, f"{shard}_{column}")]) for column in COLUMNS}
    return {column: store.read_tokens(0, int(lengths.sum())) for column, store in stores.items()}, lengths


def _disagreements(where: str, shard: Mapping, eod: int) -> Iterator[str]:
    name = shard["shard"]
    if not shard["sequences"]:
        return
    indexes = {column: open_pair(place(where, f"{name}_{column}"))[0] for column in COLUMNS}
    for column, index in indexes.items():
        if index.dtype != COLUMNS[column]:
            yield f"{name}_{column} has values of {index.dtype}, expected {COLUMNS[column]}"
        for array in ("lengths", "documents"):
            if not np.array_equal(getattr(index, array), getattr(indexes["tokens"], array)):
                yield f"{name}_{column}.idx has other {array} than {name}_tokens.idx: they do not belong together"
                return
    values, lengths = read_shard(where, name)
    if len(lengths) != shard["sequences"] or lengths.sum() != shard["tokens"]:
        found = f"{len(lengths)} sequences and {lengths.sum()} tokens"
        yield f"{name} has {found}, the manifest says {shard['sequences']} and {shard['tokens']}"
    if not np.array_equal(values["lossmask"], values["span"] > 0):
        yield f"{name} has tokens that are learned and of no span, or of a span and not learned"
    ends = np.cumsum(lengths) - 1
    if (values["tokens"][ends] != eod).any() or values["lossmask"][ends].any():
        yield f"{name} has sequences that do not end with {eod}, or learn it"
    counts = {str(span): int(number) for span, number in zip(*np.unique(values["span"][values["span"] > 0], return_counts=True))}
    if counts != shard["spans"]:
        yield f"{name} has {counts} tokens by span, the manifest says {shard['spans']}"
