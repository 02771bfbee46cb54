"""The folder of exported conversations, for Megatron-LM: its files, its manifest, and how it is verified.

    FOLDER/train/shard_00_tokens.bin .idx      int32, the tokenizer's own ids; a sequence is an example, with its EOD
    FOLDER/train/shard_00_lossmask.bin .idx    uint8, 1 where the token at the same position is trained on
    FOLDER/train/shard_00_span.bin .idx        uint8, the loss group of the token
    FOLDER/valid/shard_00_tokens.bin ..        the split `validation`
    FOLDER/train/shard_00_tokens.origins.arrow where the conversation of each sequence is from, see `store.provenance`
    FOLDER/train/shard_00.left_out.jsonl       the file, row, id and cause of each conversation, or turn of one, that is left out
    FOLDER/manifest.json

A shard without an example has no pairs, because Megatron-LM cannot open an empty dataset; the manifest lists it. There is no table
of a cache without.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ul2_tasks.files.systems import exists, names_in, place, read
from ul2_tasks.jobs.manifest import faults, load, parse_manifest
from ul2_tasks.jobs.shards import unfinished
from ul2_tasks.store.provenance import TABLE

SCHEMA_VERSION = 2
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
    return parse_manifest(path, read(path), SCHEMA_VERSION, "Export again.", ["eod", "splits", "totals"])


def verify(folder: str) -> Iterator[str]:
    """Reads an export again. Yields a sentence for each fault.

    Faults are a file that is missing, truncated, altered or not in the manifest.
    """
    manifest = read_manifest(folder)
    for split, entry in manifest["splits"].items():
        where = place(folder, folder_of(split))
        files = [file for shard in entry["shards"] for file in shard["files"]]
        present = {name for name in names_in(where) if name.endswith((".bin", ".idx", f".{TABLE}", f".{LEFT_OUT}"))}
        yield from (f"{folder_of(split)}/{sentence}" for sentence in faults(where, files, present))


def table_of(shard: str) -> str:
    """The name of the table that is beside the tokens of a shard."""
    return f"{shard}_tokens.{TABLE}"
