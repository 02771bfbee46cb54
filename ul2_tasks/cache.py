"""The cached corpus: what made it, whether it is the one that is asked for and whole, and how it is read.

A cache is a folder as `seqio_cache_tasks` writes it: `SPLIT.tfrecord-00000-of-00064` .., `info.SPLIT.json`,
`stats.SPLIT.json`, and last of all `COMPLETED`. Each record is a tf.Example of a document's tokens, `targets`, and of
`document`: the document's id, then a digest of the settings that made it, as "ID/DIGEST". The first record of each input
shard has the settings themselves after that. So a cache says what made it, whatever job wrote it.

Beside it is `manifest.json`, with those settings, and of each shard the bytes, SHA-256, documents and tokens. `build_cache`
writes it; to a cache that has none, because the stock job wrote it, the first use adds it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
import re
import subprocess
import zlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import seqio
import tensorflow as tf
from absl import logging

from ul2_tasks import jobs_manifest
from ul2_tasks.files import parallel_map
from ul2_tasks.graphs import no_autograph
from ul2_tasks.jobs_manifest import faults, load, missing_or_resized, names_in, place, sha256, size, total
from ul2_tasks.jobs_shards import unfinished
from ul2_tasks.version import __version__
from ul2_tasks.vocabularies import Mode, literal_ids, special_ids, vocabulary_identity

SCHEMA_VERSION = 2
_READABLE = (1, SCHEMA_VERSION)  # in 1, `documents` counted the empty and the skipped ones too
MANIFEST = "manifest.json"
COMPLETED = "COMPLETED"
SKIPPED = "skipped"  # the id of a record that is no document
COUNTED = ("documents", "tokens", "empty", "skipped")
DOCUMENTS_PER_BATCH = 128
_FILES_AT_A_TIME = 16  # as SeqIO's cached source
_SHUFFLE_BUFFER = seqio.SHUFFLE_BUFFER_SIZE


@dataclasses.dataclass(frozen=True)
class Shard:
    """What one file holds. Its records are documents, which have tokens; empty ones, which have none; and skipped ones."""

    file: str
    bytes: int
    sha256: str
    documents: int
    tokens: int
    empty: int
    skipped: int

    @property
    def records(self) -> int:
        return self.documents + self.empty + self.skipped


def settings(
    vocabulary: seqio.Vocabulary,
    source: str,
    text_key: str,
    on_error: str,
    mode_names: Sequence[str | None] = (),
    sentinels: Sequence[int] | str | None = None,
    modes: Mapping[str, Mode] | None = None,
) -> dict[str, str]:
    """All that decides a document's tokens, in words. Opens the vocabulary.

    Of sentinels and modes it is only those that the vocabulary would find in a text: with control pieces there are none.
    """
    in_text = literal_ids(vocabulary, special_ids(vocabulary, mode_names, sentinels, modes))
    return {
        "vocabulary": vocabulary_identity(vocabulary),
        "kept_out_of_text": f"{len(in_text)} ids, crc32 {zlib.crc32(repr(in_text).encode())}" if in_text else "none",
        "source": source,
        "text_key": text_key,
        "on_error": on_error,
    }


def digest(settings: Mapping[str, str]) -> str:
    """16 hexadecimal digits: the first 64 bits of the SHA-256 of the settings as JSON."""
    return hashlib.sha256(_json(settings).encode()).hexdigest()[:16]


def document_name(number: tf.Tensor, text: tf.Tensor, is_whole: tf.Tensor, settings: Mapping[str, str]) -> tf.Tensor:
    """The feature `document`, a string scalar: "ID/DIGEST", and for the first of a shard "ID/DIGEST/SETTINGS".

    Args:
        number: int64 scalar, the document's place in its input shard.
        text: string scalar; its FarmHash64 is the id.
        is_whole: bool scalar, whether it is a document, and not a record that is skipped.
        settings: of the corpus.
    """
    id = tf.strings.as_string(tf.bitcast(tf.fingerprint(text[tf.newaxis])[0], tf.int64))
    told = tf.where(number == 0, f"/{_json(settings)}", "")
    return tf.strings.join([tf.where(is_whole, id, SKIPPED), f"/{digest(settings)}", told])


@no_autograph
def read(
    cache_dir: str,
    corpus: str,
    expected: Mapping[str, str],
    split: str,
    shuffle: bool,
    seed: int | None,
    shard_info: seqio.ShardInfo | None,
) -> tf.data.Dataset:
    """The documents of a cached corpus, 128 at a time.

    Hosts share out the files, or, where there are more hosts than files, the documents of all files. Each epoch has its
    own order of the files, and within 1,000 documents of what is read from 16 files at a time.

    Returns:
        A dataset of {"targets": RaggedTensor [documents, tokens] int32}.

    Raises:
        ValueError: other settings made the cache; it is not whole; it has no documents in the split, or fewer than hosts.
    """
    manifest = check(cache_dir, corpus, expected, is_first=shard_info is None or shard_info.index == 0)
    index, num_shards = (shard_info.index, shard_info.num_shards) if shard_info else (0, 1)
    files, documents = _files_and_documents(cache_dir, split, manifest)
    if documents < num_shards:
        raise ValueError(f"the cache {cache_dir} has {documents} documents in split {split!r}, too few for {num_shards} hosts")

    names = tf.data.Dataset.from_tensor_slices(files)
    by_file = num_shards <= len(files)
    if by_file:
        names = names.shard(num_shards, index)
    if shuffle:
        names = names.shuffle(len(files), seed=seed)
    records = names.interleave(
        tf.data.TFRecordDataset,
        cycle_length=_FILES_AT_A_TIME,
        block_length=_FILES_AT_A_TIME,
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )
    if not by_file:
        records = records.shard(num_shards, index)
    if shuffle:
        records = records.shuffle(_SHUFFLE_BUFFER, seed=seed)
    return records.batch(DOCUMENTS_PER_BATCH).map(_parse_tokens, num_parallel_calls=tf.data.AUTOTUNE)


def check(cache_dir: str, corpus: str, expected: Mapping[str, str], is_first: bool = True) -> dict | None:
    """Raises a ValueError unless these settings made the cache and its files are there; returns its manifest.

    Where there is no manifest the first host makes it, and the others, for which this returns None, look at one record
    of each file.
    """
    manifest = read_manifest(cache_dir)
    if manifest is None and is_first:
        for split in splits(cache_dir):
            _check_records(cache_dir, split, expected)
        logging.info("%s has no %s; reading it all once to make one", cache_dir, MANIFEST)
        manifest = make_manifest(cache_dir, corpus)
        try:
            write_manifest(cache_dir, manifest)
        except (OSError, tf.errors.OpError) as error:
            logging.warning("could not write %s beside the cache, it will be made again next time: %s", MANIFEST, error)
    if manifest is None:
        for split in splits(cache_dir):
            _check_records(cache_dir, split, expected)
        return None
    if manifest["settings"] is not None and manifest["settings"] != dict(expected):
        raise _other_settings(cache_dir, manifest["settings"], expected)
    if manifest["max_documents"] is not None:
        logging.warning("%s is a smoke build: at most %d documents of each split", cache_dir, manifest["max_documents"])
    wrong = list(missing_or_resized(cache_dir, *_listed_and_present(cache_dir, manifest)))
    if wrong:
        raise ValueError(f"the cache {cache_dir} is not as its {MANIFEST} has it: {'; '.join(wrong)}; write it again")
    return manifest


def identity(cache_dir: str, split: str) -> str:
    """A split's files in few words, the same on every host, and other ones for a cache that was written anew."""
    names = _expected_files(cache_dir, split)
    sizes = parallel_map(lambda name: size(place(cache_dir, name)), names)
    return f"{len(names)} files, {sum(sizes)} bytes, crc32 {zlib.crc32(repr(sizes).encode())}"


def verify(cache_dir: str) -> Iterator[str]:
    """Reads a cache again, and gives a sentence for each file that is missing, truncated, altered or too many.

    Raises:
        ValueError: there is no such folder, no cache in it, an unfinished one, or one without a manifest.
    """
    if not tf.io.gfile.isdir(cache_dir):
        raise ValueError(f"there is no folder {cache_dir!r}; expected that of one corpus, such as OUTPUT/ul2_corpus")
    if sentence := unfinished(cache_dir):
        raise ValueError(sentence)
    if not is_cache(cache_dir):
        raise ValueError(
            f"{cache_dir} has no {COMPLETED}: no cache is in it, or one that a job has not finished, which the same line finishes"
        )
    manifest = read_manifest(cache_dir)
    if manifest is None:
        raise ValueError(f"{cache_dir} has no {MANIFEST}; the first use of the cache makes it")
    yield from faults(cache_dir, *_listed_and_present(cache_dir, manifest))


def is_cache(folder: str) -> bool:
    """Whether a folder is that of a complete cache."""
    return tf.io.gfile.exists(place(folder, COMPLETED))


def splits(cache_dir: str) -> list[str]:
    """The names of a cache's splits. Other files, such as an editor's copy `info.train.json~`, are passed over."""
    return sorted(found.group(1) for name in tf.io.gfile.listdir(cache_dir) if (found := re.fullmatch(r"info\.(.+)\.json", name)))


def read_manifest(cache_dir: str) -> dict | None:
    """The manifest, or None where there is none.

    Raises:
        ValueError: it has another schema than this version of the package reads.
    """
    path = place(cache_dir, MANIFEST)
    return jobs_manifest.load_manifest(path, _READABLE, "write the cache again") if tf.io.gfile.exists(path) else None


def write_manifest(cache_dir: str, manifest: Mapping[str, object]) -> None:
    """Writes the manifest of a cache; see `jobs_manifest.write_atomically`."""
    jobs_manifest.write_manifest(place(cache_dir, MANIFEST), manifest)


def make_manifest(cache_dir: str, corpus: str) -> dict:
    """Reads a cache that has no manifest, all of it, and makes one."""
    shards, settings = {}, None
    for split in splits(cache_dir):
        found = parallel_map(_read_shard, [place(cache_dir, name) for name in _expected_files(cache_dir, split)])
        shards[split] = [shard for shard, _ in found]
        settings = next((told for _, told in found if told), settings)
    return manifest_of(corpus, settings, shards, max_documents=None)


def no_counts() -> dict[str, int]:
    """Counts to begin with."""
    return dict.fromkeys(COUNTED, 0)


def count(counts: dict[str, int], name: str, tokens: int) -> None:
    """Adds a record, of which `name` is the feature `document`, to counts."""
    kind = "skipped" if name.startswith(f"{SKIPPED}/") else "documents" if tokens else "empty"
    counts[kind] += 1
    counts["tokens"] += tokens


def manifest_of(
    corpus: str,
    settings: Mapping[str, str] | None,
    shards: Mapping[str, list[Shard]],
    max_documents: int | None,
) -> dict:
    """A manifest, as JSON has it.

    Args:
        corpus: the name of the corpus's task.
        settings: those that made the cache; None if it has no documents to tell.
        shards: by split.
        max_documents: the limit of a smoke build.
    """
    task = seqio.TaskRegistry.get(corpus) if corpus in seqio.TaskRegistry.names() else None
    return {
        "schema_version": SCHEMA_VERSION,
        "corpus": corpus,
        "versions": {"ul2_tasks": __version__, "seqio": seqio.__version__},
        "git_revision": _git_revision(),
        "settings": None if settings is None else dict(settings),
        "modes": _plain(getattr(task, "modes", None)),
        "split_rule": getattr(task and task.source, "split_rule", "the source's own splits"),
        "max_documents": max_documents,
        "splits": {
            split: {**_totals(in_split), "shards": [dataclasses.asdict(shard) for shard in in_split]}
            for split, in_split in shards.items()
        },
        "totals": _totals([shard for in_split in shards.values() for shard in in_split]),
    }


def _files_and_documents(cache_dir: str, split: str, manifest: Mapping | None) -> tuple[list[str], int]:
    """The split's files that are not empty, and how many documents are in them."""
    _check_split(cache_dir, split)
    if manifest is not None:
        shards = [shard for shard in manifest["splits"][split]["shards"] if shard["documents"]]
        files, documents = [place(cache_dir, shard["file"]) for shard in shards], sum(shard["documents"] for shard in shards)
    else:
        paths = [place(cache_dir, name) for name in _expected_files(cache_dir, split)]
        files = [path for path, size in zip(paths, parallel_map(size, paths)) if size]
        documents = load(seqio.get_cached_stats_path(cache_dir, split))["examples"]
    if not files:
        raise ValueError(f"the cache {cache_dir} has no document in split {split!r}")
    return files, documents


def _check_split(cache_dir: str, split: str) -> None:
    if split not in splits(cache_dir):
        raise ValueError(f"the cache {cache_dir} has no split {split!r}, only {splits(cache_dir)}")


def _expected_files(cache_dir: str, split: str) -> list[str]:
    """The names of a split's files. Raises a ValueError where some are missing, or others lie there too."""
    present = {name for name in tf.io.gfile.listdir(cache_dir) if name.startswith(f"{split}.tfrecord-")}
    _check_split(cache_dir, split)
    count = load(seqio.get_cached_info_path(cache_dir, split)).get("num_shards", len(present))
    names = [f"{split}.tfrecord-{shard:05d}-of-{count:05d}" for shard in range(count)]
    wrong = [f"{name} is missing" for name in names if name not in present] + [
        f"{name} is none of it" for name in present - set(names)
    ]
    if wrong:
        raise ValueError(
            f"the cache {cache_dir} should have {count} files of split {split!r}: {'; '.join(sorted(wrong))}; write it again"
        )
    return names


def _listed_and_present(cache_dir: str, manifest: Mapping) -> tuple[list[Mapping], set[str]]:
    """The shards of the manifest, and the names of the files that are there."""
    listed = [shard for split in manifest["splits"].values() for shard in split["shards"]]
    return listed, {name for name in names_in(cache_dir) if ".tfrecord-" in name}


def _check_records(cache_dir: str, split: str, expected: Mapping[str, str]) -> None:
    """Looks at the first record of each file; on another digest than expected, finds out what it stands for."""
    paths = [place(cache_dir, name) for name in _expected_files(cache_dir, split)]
    for found in parallel_map(_first_digest, paths):
        if found not in (None, digest(expected)):
            told = (told for _, told in parallel_map(_read_shard, paths) if told and digest(told) == found)
            raise _other_settings(cache_dir, next(told, f"digest {found}"), expected)


def _other_settings(cache_dir: str, found: object, expected: Mapping[str, str]) -> ValueError:
    different = [key for key in expected if isinstance(found, Mapping) and found.get(key) != expected[key]]
    changes = "; ".join(f"{key} is {found.get(key)!r} in the cache, and {expected[key]!r} here" for key in different)
    return ValueError(
        f"the cache {cache_dir} was made with other settings: {changes or f'{found} in the cache, and {dict(expected)} here'};"
        " register with the cache's, or write another cache"
    )


def _parse_tokens(records: tf.Tensor) -> dict[str, tf.RaggedTensor]:
    """[documents] of serialized tf.Examples to {"targets": [documents, tokens] int32}."""
    parsed = tf.io.parse_example(records, {"targets": tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64)})
    return {"targets": tf.cast(parsed["targets"], tf.int32)}


def _first_digest(path: str) -> str | None:
    for record in tf.data.TFRecordDataset(path).take(1).as_numpy_iterator():
        return _document_names([record])[0].split("/")[1]
    return None


def _document_names(records: list[bytes]) -> list[str]:
    parsed = tf.io.parse_example(records, {"document": tf.io.FixedLenFeature([], tf.string, default_value="unknown/none")})
    return [name.decode() for name in parsed["document"].numpy()]


def _read_shard(path: str) -> tuple[Shard, dict[str, str] | None]:
    """Reads one file; also returns the settings, if one of its records tells them."""
    counts, settings = no_counts(), None
    for records in tf.data.TFRecordDataset(path).batch(1024):
        sizes = _parse_tokens(records)["targets"].row_lengths().numpy()
        for name, tokens in zip(_document_names(records), sizes.tolist()):
            count(counts, name, tokens)
            _, _, *told = name.split("/", 2)
            settings = json.loads(told[0]) if told else settings
    return Shard(path.rsplit("/", 1)[-1], size(path), sha256(path), **counts), settings


def _totals(shards: list[Shard]) -> dict[str, int]:
    return total(map(vars, shards), (*COUNTED, "bytes"))


def _plain(modes: Mapping[str, Mode] | None) -> dict[str, str | list[int]] | None:
    """Modes as JSON has them: whatever counts as ids there is a list of int here."""
    return modes and {name: mode if isinstance(mode, str) else np.atleast_1d(mode).tolist() for name, mode in modes.items()}


def _json(settings: Mapping[str, str]) -> str:
    return json.dumps(dict(settings), sort_keys=True)


def _git_revision() -> str | None:
    """That of this package's checkout, or None."""
    folder = pathlib.Path(__file__).parent
    command = ["git", "-C", str(folder), "log", "-1", "--format=%H", "--", str(folder)]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() or None
    except (OSError, subprocess.CalledProcessError):
        return None
