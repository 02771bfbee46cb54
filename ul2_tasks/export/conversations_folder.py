"""The folder of exported conversations, for Megatron-LM: its files, its manifest, and how it is verified.

    FOLDER/train/shard_00_tokens.bin .idx      int32, the tokenizer's own ids; a sequence is an example, with its EOD
    FOLDER/train/shard_00_lossmask.bin .idx    uint8, 1 where the token at the same position is trained on
    FOLDER/train/shard_00_span.bin .idx        uint8, the loss group of the token
    FOLDER/valid/shard_00_tokens.bin ..        the split `validation`
    FOLDER/train/shard_00_tokens.origins.arrow where the conversation of each sequence is from, see `store.provenance`
    FOLDER/train/shard_00.left_out.jsonl       the file, row, id and cause of each conversation, or turn of one, that is left out
    FOLDER/manifest.json

A shard without an example has no pairs, because Megatron-LM cannot open an empty dataset; the manifest lists it. There is no table
of a cache without, nor in exports before 2.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ul2_tasks.files.systems import exists, names_in, place, read
from ul2_tasks.jobs.manifest import faults, load, parse_manifest
from ul2_tasks.jobs.shards import unfinished
from ul2_tasks.store.provenance import TABLE, documents_in
from ul2_tasks.store.read import Store, open_pair

SCHEMA_VERSION = 1
MANIFEST = "manifest.json"
KIND = "conversations"
COLUMNS: dict[str, np.dtype] = {"tokens": np.dtype(np.int32), "lossmask": np.dtype(np.uint8), "span": np.dtype(np.uint8)}
LEFT_OUT = "left_out.jsonl"
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

    Raises a ValueError where there is none, or it was altered, or has a schema that this version of the package cannot read.
    """
    if not is_export(folder):
        raise ValueError(
            unfinished(folder) or f"{folder} must have the {MANIFEST} of exported conversations, got none. Pass an export's folder."
        )
    path = place(folder, MANIFEST)
    return parse_manifest(path, read(path), (SCHEMA_VERSION,), "Export again.", ["eod", "splits", "totals"])


def verify(folder: str) -> Iterator[str]:
    """Reads an export again. Yields a sentence for each fault.

    Faults are: a file that is missing, truncated, altered or not in the manifest; three files of a shard that differ in the bounds
    of sequences; tokens, masks and loss groups that do not match each other, or the counts of the manifest; origins of another
    number of sequences, and a list of another number of conversations that are left out.
    """
    manifest = read_manifest(folder)
    for split, entry in manifest["splits"].items():
        where = place(folder, folder_of(split))
        files = [file for shard in entry["shards"] for file in shard["files"]]
        wrong = list(
            faults(where, files, {name for name in names_in(where) if name.endswith((".bin", ".idx", f".{TABLE}", f".{LEFT_OUT}"))})
        )
        yield from (f"{folder_of(split)}/{sentence}" for sentence in wrong)
        if not wrong:
            for shard in entry["shards"]:
                yield from (f"{folder_of(split)}/{sentence}" for sentence in _disagreements(where, shard, manifest["eod"]))


def read_shard(where: str, shard: str, most: int | None = None) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The tokens, masks and loss groups of a shard, [tokens] each, and the length of each sequence, [sequences] int64.

    `shard` is its name, such as "shard_00", in `where`, the folder of its split. Reads the first `most` sequences; None for all.
    """
    index, _ = open_pair(place(where, f"{shard}_tokens"))
    lengths = np.asarray(index.lengths[:most], np.int64)
    stores = {column: Store.open([place(where, f"{shard}_{column}")]) for column in COLUMNS}
    return {column: store.read_tokens(0, int(lengths.sum())) for column, store in stores.items()}, lengths


def table_of(shard: str) -> str:
    """The name of the table that is beside the tokens of a shard."""
    return f"{shard}_tokens.{TABLE}"


def _not_told(where: str, shard: Mapping) -> Iterator[str]:
    """What is wrong with the table and the list of a shard, where it has them."""
    name, listed = shard["shard"], {file["file"] for file in shard["files"]}
    if table_of(name) in listed and (found := documents_in(place(where, table_of(name)))) != shard["sequences"]:
        yield f"{table_of(name)} must have {shard['sequences']} sequences, as the manifest lists, got {found}"
    left_out = f"{name}.{LEFT_OUT}"
    if left_out in listed and (found := read(place(where, left_out)).count(b"\n")) != (
        lines := sum(shard.get("left_out", {}).values())
    ):
        yield f"{left_out} must have {lines} lines, as the manifest lists, got {found}"


def _disagreements(where: str, shard: Mapping, eod: int) -> Iterator[str]:
    name = shard["shard"]
    yield from _not_told(where, shard)
    if not shard["sequences"]:
        return
    indexes = {column: open_pair(place(where, f"{name}_{column}"))[0] for column in COLUMNS}
    for column, index in indexes.items():
        if index.dtype != COLUMNS[column]:
            yield f"{name}_{column} must have values of {COLUMNS[column]}, got {index.dtype}"
        for array in ("lengths", "documents"):
            if not np.array_equal(getattr(index, array), getattr(indexes["tokens"], array)):
                yield f"{name}_{column}.idx must have the {array} of {name}_tokens.idx, got others: they are of different exports"
                return
    values, lengths = read_shard(where, name)
    if len(lengths) != shard["sequences"] or lengths.sum() != shard["tokens"]:
        found = f"{len(lengths)} sequences and {lengths.sum()} tokens"
        yield f"{name} must have {shard['sequences']} sequences and {shard['tokens']} tokens, as the manifest lists, got {found}"
    if not np.array_equal(values["lossmask"], values["span"] > 0):
        yield f"{name} has tokens with a loss mask and without a loss group, or with a loss group and without a loss mask"
    ends = np.cumsum(lengths) - 1
    if (values["tokens"][ends] != eod).any() or values["lossmask"][ends].any():
        yield f"{name} has sequences that do not end with {eod}, or train on it"
    groups, counts = np.unique(values["span"][values["span"] > 0], return_counts=True)
    if (tokens := dict(zip(map(str, groups.tolist()), counts.tolist()))) != shard["spans"]:
        yield f"{name} must have the tokens of each loss group that the manifest lists, {shard['spans']}, got {tokens}"
