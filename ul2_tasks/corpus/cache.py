"""The cached corpus: what made it, whether it is the one that is asked for, and whether it is whole. `read_cache` reads it.

A cache is a folder. `ul2 cache` writes a token store, see `store`: `train-00000-of-00016.bin` and `.idx` .., and beside them
`info.SPLIT.json` and `stats.SPLIT.json`, which SeqIO knows, `manifest.json`, and last of all `COMPLETED`. The stock
`seqio_cache_tasks` writes TFRecords instead, and no manifest, see `tfrecords`; the first use of such a cache adds one.

The manifest has the settings that made the cache, and the bytes, SHA-256, documents and tokens of its files.
"""

from __future__ import annotations

import functools
import hashlib
import json
import pathlib
import re
import subprocess
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from absl import logging

from ul2_tasks.corpus.cached_files import COMPLETED, COUNTED, expected_files, is_cache, stats_path
from ul2_tasks.corpus.configuration import CorpusConfiguration
from ul2_tasks.corpus.made_of import has_settings
from ul2_tasks.files import systems
from ul2_tasks.files.systems import exists, is_folder, names_in, parallel_map, place
from ul2_tasks.imported import failures
from ul2_tasks.jobs.forms import EACH, NAME, check_form
from ul2_tasks.jobs.manifest import FILE, faults, load_object, missing_or_resized, parse_manifest, sizes, total
from ul2_tasks.jobs.manifest import write_manifest as write_manifest_of_job
from ul2_tasks.jobs.shards import unfinished
from ul2_tasks.jobs.trial import in_words
from ul2_tasks.store.provenance import TABLE, Provenance, Table, documents_in
from ul2_tasks.store.read import Store, open_pair
from ul2_tasks.version import __version__, version_of
from ul2_tasks.vocabulary.special_ids import Mode

if TYPE_CHECKING:
    from ul2_tasks.corpus.corpus import Corpus

SCHEMA_VERSION = 4
_READABLE = (1, 2, 3, SCHEMA_VERSION)  # in 1, `documents` counted the empty and the skipped ones too; 3 has stores, too; 4 origins
MANIFEST = "manifest.json"
REFUSED = "refused.jsonl"  # what the name of a list of records that were skipped ends with
STORE, TFRECORD = "store", "tfrecord"  # the formats of a cache
MOST: Mapping[str, int | None] = {"max_documents": None, "max_tokens": None}  # of a trial run, see `jobs.trial`
_OF_ORIGINS = {"source": object, "origins": {"file": str, "is_part": bool, "rows": int | None}}  # of a shard, see `forms`


def check_documents(cache_dir: str, split: str, manifest: Mapping | None, num_shards: int) -> None:
    """Raises a ValueError where a split has no document, or fewer documents than there are hosts."""
    documents = _documents(cache_dir, split, manifest)
    if documents < num_shards:
        raise ValueError(
            f"the cache {cache_dir} must have a document of split {split!r} for each of {num_shards} hosts, got {documents}. Use"
            " fewer hosts. See docs/help/troubleshooting.md#too-few-documents-for-the-hosts."
        )


def is_store(manifest: Mapping) -> bool:
    """Whether a cache is a token store, which can be read at any place."""
    return _format(manifest) == STORE


def reads(manifest: Mapping) -> dict[str, list[str]]:
    """What each shard of each split was made of, see `made_of`; empty texts where the manifest does not say."""
    return {split: [str(shard.get("reads", "")) for shard in entry["shards"]] for split, entry in manifest["splits"].items()}


def open_store(cache_dir: str, manifest: Mapping, split: str, column: str | None = None) -> Store:
    """The store of a split: one for all who read it, as each of its files that is mapped is an open file.

    `column` is what the corpus has beside the tokens, see `corpus.Encoded`; None for the tokens.
    """
    shards = manifest["splits"][split]["shards"]
    held = [shard for shard in shards if shard["documents"]]
    counts = (tuple(shard[count] for shard in held) for count in ("documents", column or "tokens"))
    tables, end = (None, None) if column else (_tables(cache_dir, shards), manifest.get("end"))
    return _store(_hash(shards), tuple(place(cache_dir, pair_name(shard["shard"], column)) for shard in held), *counts, tables, end)


def _tables(cache_dir: str, shards: Sequence[Mapping]) -> tuple[Table, ...] | None:
    """Where the documents of each pair of a split are from; None where the cache does not say it of all."""
    tables, before = [], dict[str, int | None]()
    for shard in shards:
        listed = {file["file"]: file["sha256"] for file in shard["files"]}
        name, about = f"{shard['shard']}.{TABLE}", shard.get("origins")
        if about is None or (shard["documents"] and name not in listed):
            return None
        file, rows = about["file"], before.get(about["file"], 0)
        if about["is_part"]:
            before[file] = None if rows is None or about["rows"] is None else rows + about["rows"]
        if shard["documents"]:
            where, first = (file, rows) if rows is not None else (str(shard["source"]), 0)
            tables.append(Table(place(cache_dir, name), where, first, shard["documents"], listed[name]))
    return tuple(tables)


def refused_records(cache_dir: str, manifest: Mapping, split: str) -> Iterator[dict]:
    """The records of a split that were skipped: the file, row, id and cause of each. Before schema 4 none are listed."""
    for shard in manifest["splits"][split]["shards"]:
        yield from refused_of(cache_dir, shard)


def refused_of(cache_dir: str, shard: Mapping) -> Iterator[dict]:
    """Those of one shard of a manifest, see `refused_records`."""
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
    return Store(prefixes, documents, tokens, None if tables is None else Provenance(tables), end)


def check(cache_dir: str, corpus: Corpus, expected: Mapping[str, str]) -> dict:
    """Raises a ValueError unless these settings made the cache and all of its files are there. Returns its manifest.

    Where there is no manifest it is made, of all that the cache holds.
    """
    return check_manifest(cache_dir, corpus, expected, read_manifest(cache_dir))


def check_manifest(cache_dir: str, corpus: Corpus, expected: Mapping[str, str], manifest: dict | None) -> dict:
    if manifest is None:
        check_records(cache_dir, expected)
        logging.info("%s has no %s; reading it all once to make one", cache_dir, MANIFEST)
        manifest = make_manifest(cache_dir, corpus)
        try:
            write_manifest(cache_dir, manifest)
        except failures() as error:
            logging.warning("could not write %s beside the cache, so it is made again next time: %s", MANIFEST, error)
    if manifest["settings"] is not None and not has_settings(manifest, reads(manifest), corpus, expected):
        raise _other_settings(cache_dir, manifest["settings"], expected)
    if words := in_words(manifest):
        logging.warning("%s is %s", cache_dir, words)
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
    if manifest is not None and is_store(manifest):
        shards = manifest["splits"].get(split, {"shards": []})["shards"]
        return f"store of {len(shards)} shards, sha256 {_hash(shards)[:16]}"
    _check_split(cache_dir, split)
    names = expected_files(cache_dir, split)
    found = sizes(cache_dir, names)
    return f"{len(names)} files, {sum(found)} bytes, crc32 {zlib.crc32(repr(found).encode())}"


def verify(cache_dir: str) -> Iterator[str]:
    """Reads all of a cache again. Gives a sentence for each file that is missing, truncated, altered or too many.

    Where there is none, it gives one for each pair of files that holds other numbers of documents or values than the manifest says.
    A folder without a finished cache, or without a manifest, raises a ValueError.
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
        raise ValueError(f"{cache_dir} has no {MANIFEST}. Use the cache once, which writes it.")
    wrong = list(faults(cache_dir, *_listed_and_present(cache_dir, manifest)))
    yield from wrong
    if is_store(manifest) and not wrong:
        yield from _miscounted(cache_dir, manifest)


def splits(cache_dir: str) -> list[str]:
    """The names of the splits of a cache. Files such as `info.train.json~`, the copy of an editor, are ignored."""
    return sorted(found.group(1) for name in names_in(cache_dir) if (found := re.fullmatch(r"info\.(.+)\.json", name)))


def read_manifest(cache_dir: str) -> dict | None:
    """The manifest, or None where there is none. Nobody may change it: all who read it get the same dictionary."""
    path = place(cache_dir, MANIFEST)
    return _parsed(path, systems.read(path)) if exists(path) else None


@functools.lru_cache(maxsize=16)
def _parsed(path: str, content: bytes) -> dict:
    """What this content says. Each opening of a cache asks twice, and ten thousand shards take a second."""
    manifest = parse_manifest(path, content, _READABLE, "Write the cache again.", _form)
    if is_store(manifest):
        _check_names(path, manifest)
    return manifest


def _form(manifest: Mapping) -> dict:
    """See `forms`."""
    counts = {"documents": int, "tokens": int}
    shard = {"shard": NAME, "files": [FILE], **counts} if is_store(manifest) else {**FILE, "documents": int}
    of_store = {"dtype": str, "id_shift": int} if is_store(manifest) else {}
    most = {name: int | None for name in MOST if name in manifest}
    return {"settings": dict | None, **most, "splits": {EACH: {"shards": [shard]}}, "totals": {}, **of_store}


def _check_names(path: str, manifest: Mapping) -> None:
    """Raises a ValueError where a shard is not named as its files are: it would be read, and they be verified; see also `forms`."""
    for shard in (shard for split in manifest["splits"].values() for shard in split["shards"]):
        if shard.get("origins") is not None:
            check_form(shard, _OF_ORIGINS, path, "Write the cache again.")
        prefixes = {file["file"].rpartition(".")[0] for file in pairs_of(shard)}
        columns = [prefix.removeprefix(f"{shard['shard']}.") for prefix in prefixes - {shard["shard"]}]
        is_counted = all(isinstance(shard.get(name), int) and shard[name] >= 0 for name in ("documents", "tokens", *columns))
        if not is_counted or (shard["documents"] and shard["shard"] not in prefixes):
            raise ValueError(
                f"{path} is not as it was written: the files of the shard {shard['shard']!r}, of {shard['documents']} documents"
                f" and {shard['tokens']} tokens, are {sorted(prefixes)}. Write the cache again."
            )


def write_manifest(cache_dir: str, manifest: Mapping[str, object]) -> None:
    """Writes the manifest of a cache; see `files.atomic.write_atomically`."""
    write_manifest_of_job(place(cache_dir, MANIFEST), manifest)


def make_manifest(cache_dir: str, corpus: Corpus) -> dict:
    """Makes the manifest of a cache of TFRecords that has none; reads all of the cache."""
    from ul2_tasks.corpus.tfrecords import read_shard

    shards, settings = {}, None
    for split in splits(cache_dir):
        names = expected_files(cache_dir, split)
        found = parallel_map(read_shard, [place(cache_dir, name) for name in names])
        shards[split] = [shard for shard, _ in found]
        settings = next((named for _, named in found if named), settings)
    return manifest_of(corpus, settings, {"format": TFRECORD}, shards, most=MOST)


def manifest_of(
    corpus: Corpus,
    settings: Mapping[str, str] | None,
    format: Mapping[str, object],
    shards: Mapping[str, Sequence[Mapping]],
    most: Mapping[str, int | None],
    revision: str | None = None,
) -> dict:
    """Makes a manifest, of what JSON knows.

    `settings` made the cache; None if it has no record that names them. `format` has "format", and for a store "dtype" and
    "id_shift", by how much ids are higher here than in the files. `shards` are those of each split, with their counts (`COUNTED`)
    and "bytes", and "file", or for a store "shard" and "files". `most` has what `MOST` has, and `revision` is a git revision; None
    is that of this package.
    """
    configuration = getattr(corpus, "configuration", CorpusConfiguration())
    return {
        "schema_version": SCHEMA_VERSION,
        "corpus": corpus.name,
        "versions": {"ul2_tasks": __version__, "seqio": version_of("seqio")},
        "git_revision": revision or git_revision(),
        **format,
        "settings": None if settings is None else dict(settings),
        "modes": _plain(configuration.special_tokens.modes),
        "split_rule": getattr(corpus.source, "split_rule", "the source's own splits"),
        **most,
        "splits": {split: {**_totals(in_split), "shards": list(in_split)} for split, in_split in shards.items()},
        "totals": _totals([shard for in_split in shards.values() for shard in in_split]),
    }


def _hash(shards: Sequence[Mapping]) -> str:
    """Of the hashes of their files."""
    return hashlib.sha256(json.dumps([pairs_of(shard) for shard in shards]).encode()).hexdigest()


def _format(manifest: Mapping) -> str:
    return manifest.get("format", TFRECORD)  # before schema 3 there was no other


def _documents(cache_dir: str, split: str, manifest: Mapping | None) -> int:
    """How many documents a split has. Raises a ValueError where there is none."""
    _check_split(cache_dir, split)
    if manifest is None:
        path = stats_path(cache_dir, split)
        documents = load_object(path, {"examples": int}, "Write the cache again.")["examples"]
    else:
        documents = sum(shard["documents"] for shard in manifest["splits"][split]["shards"])
    if not documents:
        raise ValueError(f"the cache {cache_dir} has no document in split {split!r}. Name another split.")
    return documents


def record_files(cache_dir: str, split: str, manifest: Mapping | None) -> list[str]:
    """The files of TFRecords of a split that are not empty."""
    if manifest is not None:
        return [place(cache_dir, shard["file"]) for shard in manifest["splits"][split]["shards"] if shard["documents"]]
    paths = [place(cache_dir, name) for name in expected_files(cache_dir, split)]
    return [path for path, size in zip(paths, systems.sizes(paths)) if size]


def _check_split(cache_dir: str, split: str) -> None:
    if split not in splits(cache_dir):
        raise ValueError(f"split must be one of {splits(cache_dir)} in the cache {cache_dir}, got {split!r}.")


def _listed_and_present(cache_dir: str, manifest: Mapping) -> tuple[list[Mapping], set[str]]:
    """The files of the manifest, and the names of the files that are there."""
    shards = [shard for split in manifest["splits"].values() for shard in split["shards"]]
    listed = [file for shard in shards for file in shard["files"]] if is_store(manifest) else shards
    return listed, {name for name in names_in(cache_dir) if is_data(name)}


def _miscounted(cache_dir: str, manifest: Mapping) -> Iterator[str]:
    """A sentence for each pair of files with other counts than the manifest's, such as one beside the tokens of fewer documents."""
    for shard in (shard for split in manifest["splits"].values() for shard in split["shards"]):
        if any(file["file"].endswith(TABLE) for file in shard["files"]):
            name = f"{shard['shard']}.{TABLE}"
            if (rows := documents_in(place(cache_dir, name))) != shard["documents"]:
                yield f"{name} has {rows} documents, but the manifest says {shard['documents']}"
        for pair in sorted({file["file"].rpartition(".")[0] for file in pairs_of(shard)}):
            column = pair.removeprefix(shard["shard"]).removeprefix(".") or "tokens"
            index, _ = open_pair(place(cache_dir, pair))
            found, said = (index.documents, index.tokens), (shard["documents"], shard[column])
            if found != said:
                yield f"{pair} has {found[0]} documents and {found[1]} {column}, but the manifest says {said[0]} and {said[1]}"


def is_data(name: str) -> bool:
    """Whether a file of this name holds tokens, or what is beside them."""
    return ".tfrecord-" in name or name.endswith((".bin", ".idx", f".{TABLE}", f".{REFUSED}"))


def check_records(cache_dir: str, expected: Mapping[str, str]) -> None:
    """Raises a ValueError if a cache without a manifest was made with other settings; names them."""
    from ul2_tasks.corpus.tfrecords import other_settings

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


def _totals(shards: Sequence[Mapping]) -> dict[str, int]:
    return total(shards, (*COUNTED, "bytes"))


def _plain(modes: Mapping[str, Mode] | None) -> dict[str, str | list[int]] | None:
    """Modes as JSON has them: an id, or ids of any kind, are a list of int."""
    if modes is None:
        return None
    return {name: mode if isinstance(mode, str) else np.atleast_1d(mode).tolist() for name, mode in modes.items()}


def git_revision() -> str | None:
    """The last revision of this package in its git checkout; None without one."""
    folder = pathlib.Path(__file__).parents[1]
    command = ["git", "-C", str(folder), "log", "-1", "--format=%H", "--", str(folder)]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() or None
    except (OSError, subprocess.CalledProcessError):
        return None
