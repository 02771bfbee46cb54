"""The cached corpus: what made it, whether it is the one that is asked for, and whether it is whole.

A cache is a folder. `ul2 cache` writes a token store, see `store`: `train-00000-of-00016.bin` and `.idx` .., and beside them
`info.SPLIT.json` and `stats.SPLIT.json`, which SeqIO knows, `manifest.json`, and last of all `COMPLETED`. The stock
`seqio_cache_tasks` writes TFRecords instead, and no manifest, see `tfrecords`.

The manifest has the settings that made the cache, and the bytes, SHA-256, documents and tokens of its files.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import logging
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ul2_tasks.corpus.cached_files import COMPLETED, expected_files, is_cache, stats_path
from ul2_tasks.corpus.made_of import has_settings
from ul2_tasks.corpus.tfrecords import other_settings
from ul2_tasks.files import systems
from ul2_tasks.files.systems import is_folder, names_in, parallel_map, place
from ul2_tasks.jobs.manifest import faults, load_object, missing_or_resized, parse_manifest, sizes
from ul2_tasks.jobs.manifest import write_manifest as write_manifest_of_job
from ul2_tasks.jobs.shards import unfinished
from ul2_tasks.jobs.trial import in_words
from ul2_tasks.store.columns import TOKENS, Columns
from ul2_tasks.store.index import read_index
from ul2_tasks.store.provenance import TABLE, Provenance, Table, documents_in
from ul2_tasks.store.read import Store

if TYPE_CHECKING:
    from ul2_tasks.corpus.corpus import Corpus

_logger = logging.getLogger(__name__)
SCHEMA_VERSION = 6
MANIFEST = "manifest.json"
REFUSED = "refused.jsonl"  # what the name of a list of records that were skipped ends with
MOST: Mapping[str, int | None] = {"max_documents": None, "max_tokens": None}  # of a trial run, see `jobs.trial`


def check_documents(cache_dir: str, split: str, manifest: Mapping | None) -> None:
    """Raises a ValueError where a split has no document."""
    _check_split(cache_dir, split)
    if manifest is None:
        path = stats_path(cache_dir, split)
        documents = load_object(path, "Write the cache again.", ["examples"])["examples"]
    else:
        documents = sum(shard["documents"] for shard in manifest["splits"][split]["shards"])
    if not documents:
        raise ValueError(f"the cache {cache_dir} has no document in split {split!r}. Name another split.")


def reads(manifest: Mapping) -> dict[str, list[list[str]]]:
    """What each shard of the source of each split was, see `made_of`; empty texts where the source does not tell."""
    return {split: [part for shard in entry["shards"] for part in shard["reads"]] for split, entry in manifest["splits"].items()}


def open_store(cache_dir: str, manifest: Mapping, split: str, column: str | None = None) -> Store:
    """The store of a split: one for all who read it, as each of its files that is mapped is an open file.

    `column` is what the corpus has beside the tokens, see `corpus.Encoded`; None for the tokens.
    """
    shards = manifest["splits"][split]["shards"]
    held = [shard for shard in shards if shard["documents"]]
    counts = (tuple(shard[count] for shard in held) for count in ("documents", column or "tokens"))
    tables, end = (None, None) if column else (_tables(cache_dir, shards), manifest.get("end"))
    return _store(_hash(shards), tuple(place(cache_dir, pair_name(shard["shard"], column)) for shard in held), *counts, tables, end)


def open_columns(corpus: Corpus, cache_dir: str, manifest: Mapping, split: str) -> Columns:
    """The documents of a split, with what the corpus has beside their tokens."""
    stores = {column or TOKENS: open_store(cache_dir, manifest, split, column) for column in (None, *corpus.columns)}
    return Columns(stores, [shard["shard"] for shard in manifest["splits"][split]["shards"] if shard["documents"]])


def _tables(cache_dir: str, shards: Sequence[Mapping]) -> tuple[Table, ...] | None:
    """Where the documents of each pair of a split are from; None where the cache does not say it of all."""
    tables, before = [], dict[str, int | None]()
    for shard in shards:
        listed = {file["file"]: file["sha256"] for file in shard["files"]}
        name, about = f"{shard['shard']}.{TABLE}", shard["origins"]
        if shard["documents"] and name not in listed:
            return None
        file, rows = about["file"], before.get(about["file"], 0)
        if about["is_part"]:
            before[file] = None if rows is None or about["rows"] is None else rows + about["rows"]
        if shard["documents"]:
            where, first = (file, rows) if rows is not None else (shard["source"], 0)
            tables.append(Table(place(cache_dir, name), where, first, shard["documents"], listed[name]))
    return tuple(tables)


def refused_of(cache_dir: str, shard: Mapping) -> Iterator[dict]:
    """The records of a shard of a manifest that were skipped: the file, row, id and cause of each."""
    name = f"{shard['shard']}.{REFUSED}"
    if any(file["file"] == name for file in shard["files"]):
        yield from map(json.loads, systems.read(place(cache_dir, name)).splitlines())


def pairs_of(shard: Mapping) -> list[Mapping]:
    """The files of a shard that are pairs, and so decide what is read."""
    return [file for file in shard["files"] if not file["file"].endswith((TABLE, REFUSED))]


def pair_name(shard: str, column: str | None) -> str:
    """The name of a shard's pair of files, without their endings: of its tokens, or of a column beside them."""
    return f"{shard}.{column}" if column else shard


@functools.lru_cache(maxsize=16)
def _store(
    hashes: str,
    prefixes: tuple[str, ...],
    documents: tuple[int, ...],
    tokens: tuple[int, ...],
    tables: tuple[Table, ...] | None,
    end: int | None,
) -> Store:
    """Under other hashes it is another: the cache was written anew."""
    del hashes
    return Store(prefixes, documents, tokens, None if tables is None else Provenance(tables), end=end)


def check_stored(cache_dir: str, corpus: Corpus, expected: Mapping[str, str]) -> dict:
    """`check` for a corpus that reads caches of `ul2 cache` alone."""
    if (manifest := check(cache_dir, corpus, expected)) is None:
        raise ValueError(f"the cache {cache_dir} must be one of `ul2 cache`, got one of SeqIO's own. Write it with `ul2 cache`.")
    return manifest


def check(cache_dir: str, corpus: Corpus, expected: Mapping[str, str]) -> dict | None:
    """Raises a ValueError unless these settings made the cache and all of its files are there.

    Returns its manifest; None where it has none, because SeqIO's own job wrote it.
    """
    manifest = read_manifest(cache_dir)
    if manifest is None:
        _check_records(cache_dir, expected)
        return None
    if not has_settings(manifest, reads(manifest), corpus, expected):
        raise _other_settings(cache_dir, manifest["settings"], expected)
    if words := in_words(manifest):
        _logger.warning("%s is %s", cache_dir, words)
    wrong = list(missing_or_resized(cache_dir, *_listed_and_present(cache_dir, manifest)))
    if wrong:
        raise ValueError(
            f"the cache {cache_dir} must be as its {MANIFEST} describes it, but is not: {'; '.join(wrong)}. Write it again. See"
            " docs/help/troubleshooting.md#the-cache-is-damaged."
        )
    return manifest


def identity_of(corpus: Corpus, cache_dir: str, split: str) -> str:
    """Describes what the tokens of a split are read from: its pairs of files, of a corpus that is tokens, or its cache."""
    if corpus.is_tokens:
        store = corpus.source.store(split)
        return f"{len(store.prefixes)} pairs, {store.documents} documents, {store.tokens} tokens"
    return identity(cache_dir, split)


def identity(cache_dir: str, split: str) -> str:
    """Describes the files of a split in few words: the same on every host, and others for a cache that was written anew."""
    manifest = read_manifest(cache_dir)
    if manifest is not None:
        shards = manifest["splits"].get(split, {"shards": []})["shards"]
        return f"store of {len(shards)} shards, sha256 {_hash(shards)[:16]}"
    _check_split(cache_dir, split)
    names = expected_files(cache_dir, split)
    found = sizes(cache_dir, names)
    return f"{len(names)} files, {sum(found)} bytes, crc32 {zlib.crc32(repr(found).encode())}"


def verify(cache_dir: str, quick: bool = False) -> Iterator[str]:
    """Reads all of a cache again, or with `quick` compares sizes alone.

    Gives a sentence for each file that is missing, truncated, altered or too many. Where there is none, it gives one for each pair
    of files that holds other numbers of documents or values than the manifest says. A folder without a finished cache, or without a
    manifest, raises a ValueError.
    """
    if not is_folder(cache_dir):
        raise ValueError(f"the folder must be of one corpus, such as OUTPUT/ul2_corpus, got {cache_dir!r}, which does not exist.")
    if sentence := unfinished(cache_dir):
        raise ValueError(sentence)
    if not is_cache(cache_dir):
        raise ValueError(
            f"{cache_dir} must be a complete cache, but has no {COMPLETED}. If a job began it, re-run its command to finish it."
        )
    manifest = read_manifest(cache_dir)
    if manifest is None:
        raise ValueError(f"{cache_dir} must have a {MANIFEST} to compare it with, got a cache of SeqIO's own, which has none.")
    wrong = list(faults(cache_dir, *_listed_and_present(cache_dir, manifest), quick))
    yield from wrong
    if not wrong and not quick:
        shards = (shard for split in manifest["splits"].values() for shard in split["shards"])
        yield from itertools.chain(*parallel_map(functools.partial(_miscounted, cache_dir), shards))


def splits(cache_dir: str) -> list[str]:
    """The names of the splits of a cache. Files such as `info.train.json~`, the copy of an editor, are ignored."""
    return sorted(found.group(1) for name in names_in(cache_dir) if (found := re.fullmatch(r"info\.(.+)\.json", name)))


def read_manifest(cache_dir: str) -> dict | None:
    """The manifest, or None where there is none. Nobody may change it: all who read it get the same dictionary."""
    path = place(cache_dir, MANIFEST)
    try:
        return _parsed(path, systems.read(path))
    except FileNotFoundError:
        return None


@functools.lru_cache(maxsize=16)
def _parsed(path: str, content: bytes) -> dict:
    """What this content says. Each opening of a cache asks twice, and ten thousand shards take a second."""
    return parse_manifest(path, content, SCHEMA_VERSION, "Write the cache again.", ["settings", "splits", "totals"])


def write_manifest(cache_dir: str, manifest: Mapping[str, object]) -> None:
    """Writes the manifest of a cache; see `files.atomic.write_atomically`."""
    write_manifest_of_job(place(cache_dir, MANIFEST), manifest)


def _hash(shards: Sequence[Mapping]) -> str:
    """Of the hashes of their files."""
    return hashlib.sha256(json.dumps([pairs_of(shard) for shard in shards]).encode()).hexdigest()


def record_files(cache_dir: str, split: str) -> list[str]:
    """The files of TFRecords of a split that are not empty."""
    paths = [place(cache_dir, name) for name in expected_files(cache_dir, split)]
    return [path for path, size in zip(paths, systems.sizes(paths)) if size]


def _check_split(cache_dir: str, split: str) -> None:
    if split not in splits(cache_dir):
        raise ValueError(f"split must be one of {splits(cache_dir)} in the cache {cache_dir}, got {split!r}.")


def _listed_and_present(cache_dir: str, manifest: Mapping) -> tuple[list[Mapping], set[str]]:
    """The files of the manifest, and the names of the files that are there."""
    shards = [shard for split in manifest["splits"].values() for shard in split["shards"]]
    return [file for shard in shards for file in shard["files"]], {name for name in names_in(cache_dir) if is_data(name)}


def _miscounted(cache_dir: str, shard: Mapping) -> list[str]:
    """A sentence for each pair of files with other counts than the manifest's, such as one beside the tokens of fewer documents."""
    found = []
    if any(file["file"].endswith(TABLE) for file in shard["files"]):
        name = f"{shard['shard']}.{TABLE}"
        if (rows := documents_in(place(cache_dir, name))) != shard["documents"]:
            found.append(f"{name} has {rows} documents, but the manifest says {shard['documents']}")
    for pair in sorted({file["file"].rpartition(".")[0] for file in pairs_of(shard)}):
        column = pair.removeprefix(shard["shard"]).removeprefix(".") or "tokens"
        index = read_index(place(cache_dir, f"{pair}.idx"))
        held, said = (index.documents, index.tokens), (shard["documents"], shard[column])
        if held != said:
            found.append(f"{pair} has {held[0]} documents and {held[1]} {column}, but the manifest says {said[0]} and {said[1]}")
    return found


def is_data(name: str) -> bool:
    """Whether a file of this name holds tokens, or what is beside them."""
    return ".tfrecord-" in name or name.endswith((".bin", ".idx", f".{TABLE}", f".{REFUSED}"))


def _check_records(cache_dir: str, expected: Mapping[str, str]) -> None:
    """Raises a ValueError if a cache without a manifest was made with other settings; names them."""
    for split in splits(cache_dir):
        if (found := other_settings(cache_dir, split, expected)) is not None:
            raise _other_settings(cache_dir, found, expected)


def _other_settings(cache_dir: str, found: object, expected: Mapping[str, str]) -> ValueError:
    before = found if isinstance(found, Mapping) else expected
    different = [key for key in {**expected, **before} if before.get(key) != expected.get(key)]
    changes = "; ".join(f"{key} is {before.get(key)!r} in the cache, and {expected.get(key)!r} here" for key in different)
    return ValueError(
        f"the cache {cache_dir} was made with other settings: {changes or f'{found} in the cache, and {dict(expected)} here'}."
        " Register with the cache's settings, or write another cache. See docs/help/troubleshooting.md#the-cache-is-rejected."
    )
