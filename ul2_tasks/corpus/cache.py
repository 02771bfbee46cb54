"""The cached corpus: what made it, whether it is the one that is asked for, whether it is whole, and how it is read.

A cache is a folder as `seqio_cache_tasks` writes it: `SPLIT.tfrecord-00000-of-00064` .., `info.SPLIT.json`,
`stats.SPLIT.json`, and last of all `COMPLETED`. Each record is a tf.Example with the tokens of a document, `targets`, and its
name, `document`: the id of the document and a digest of the settings that made it, as "ID/DIGEST". The name of the first
record of each input shard ends with the settings themselves. So a cache says what made it, whatever job wrote it.

A file `manifest.json` beside the records has those settings, and the bytes, SHA-256, documents and tokens of each shard.
`build_cache` writes it. The stock job does not; then the first use of the cache adds it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
import re
import subprocess
import zlib
from collections.abc import Iterator, Mapping

import numpy as np
import seqio
import tensorflow as tf
from absl import logging

from ul2_tasks.graphs import no_autograph
from ul2_tasks.jobs import manifest as jobs_manifest
from ul2_tasks.jobs.manifest import faults, load, missing_or_resized, names_in, place, sha256, size, total
from ul2_tasks.jobs.shards import unfinished
from ul2_tasks.sources.files import parallel_map
from ul2_tasks.version import __version__
from ul2_tasks.vocabulary.special_ids import Mode, SpecialTokensRequest, encodable_ids, vocabulary_identity

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


@dataclasses.dataclass(frozen=True)
class CorpusConfiguration:
    """How records become tokens.

    Attributes:
        text_key: the feature of a record that holds its text.
        on_error: what becomes of a record with a problem, or with a text that is not UTF-8 and that a tokenizer would change
            without a word: "raise", or "skip", which keeps it without tokens, so that a cache counts it.
        special_tokens: the sentinels and modes, which no text becomes.
    """

    text_key: str = "text"
    on_error: str = "raise"
    special_tokens: SpecialTokensRequest = dataclasses.field(default_factory=SpecialTokensRequest)


def settings(vocabulary: seqio.Vocabulary, source: str, configuration: CorpusConfiguration) -> dict[str, str]:
    """Describes all that decides the tokens of a document. Opens the vocabulary.

    A vocabulary of control pieces never finds a sentinel or a mode in a text. Otherwise those that it would find count.

    Args:
        vocabulary: tokenizes the text.
        source: the identity of the source, see `identity.source_identity`.
        configuration: of the corpus.
    """
    in_text = encodable_ids(vocabulary, configuration.special_tokens.ids(vocabulary))
    return {
        "vocabulary": vocabulary_identity(vocabulary),
        "kept_out_of_text": f"{len(in_text)} ids, crc32 {zlib.crc32(repr(in_text).encode())}" if in_text else "none",
        "source": source,
        "text_key": configuration.text_key,
        "on_error": configuration.on_error,
    }


def digest(settings: Mapping[str, str]) -> str:
    """16 hexadecimal digits: the first 64 bits of the SHA-256 of the settings as JSON."""
    return hashlib.sha256(_json(settings).encode()).hexdigest()[:16]


def document_name(number: tf.Tensor, text: tf.Tensor, is_whole: tf.Tensor, settings: Mapping[str, str]) -> tf.Tensor:
    """The feature `document`, a string scalar: "ID/DIGEST", or for the first record of a shard "ID/DIGEST/SETTINGS".

    Args:
        number: int64 scalar, how many records of the input shard come before this one.
        text: string scalar; its FarmHash64 is the id.
        is_whole: bool scalar, whether it is a document; otherwise it is a record that is skipped.
        settings: of the corpus.
    """
    id = tf.strings.as_string(tf.bitcast(tf.fingerprint(text[tf.newaxis])[0], tf.int64))
    ending = tf.where(number == 0, f"/{_json(settings)}", "")
    return tf.strings.join([tf.where(is_whole, id, SKIPPED), f"/{digest(settings)}", ending])


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
    """Reads the documents of a cached corpus, 128 at a time.

    Each host reads some of the files; where there are more hosts than files, some of the documents of all files. In each epoch
    the files are shuffled anew, 16 files are read at a time, and their documents are shuffled among 1,000 others.

    Args:
        cache_dir: the folder of the cache.
        corpus: the name of its task.
        expected: the settings of the corpus that is asked for.
        split: of the cache.
        shuffle: whether files and documents are shuffled.
        seed: of the shuffling.
        shard_info: which of the hosts this is; None for a single one.

    Returns:
        A dataset of {"targets": RaggedTensor [documents, tokens] int32}.

    Raises:
        ValueError: other settings made the cache; it is not whole; the split has no document, or fewer documents than hosts.
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
    """Raises a ValueError unless these settings made the cache and all of its files are there. Returns its manifest.

    Where there is no manifest the first host makes it. The other hosts look at one record of each file, and get None.
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
    """Describes the files of a split in few words: the same on every host, and others for a cache that was written anew."""
    names = _expected_files(cache_dir, split)
    sizes = parallel_map(lambda name: size(place(cache_dir, name)), names)
    return f"{len(names)} files, {sum(sizes)} bytes, crc32 {zlib.crc32(repr(sizes).encode())}"


def verify(cache_dir: str) -> Iterator[str]:
    """Reads all of a cache again. Gives a sentence for each file that is missing, truncated, altered or too many.

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
    """The names of the splits of a cache. Files such as `info.train.json~`, the copy of an editor, are ignored."""
    return sorted(found.group(1) for name in tf.io.gfile.listdir(cache_dir) if (found := re.fullmatch(r"info\.(.+)\.json", name)))


def read_manifest(cache_dir: str) -> dict | None:
    """The manifest, or None where there is none.

    Raises:
        ValueError: it has another schema than this version of the package reads.
    """
    path = place(cache_dir, MANIFEST)
    return jobs_manifest.load_manifest(path, _READABLE, "write the cache again") if tf.io.gfile.exists(path) else None


def write_manifest(cache_dir: str, manifest: Mapping[str, object]) -> None:
    """Writes the manifest of a cache; see `manifest.write_atomically`."""
    jobs_manifest.write_manifest(place(cache_dir, MANIFEST), manifest)


def make_manifest(cache_dir: str, corpus: str) -> dict:
    """Makes the manifest of a cache that has none; reads all of the cache."""
    shards, settings = {}, None
    for split in splits(cache_dir):
        found = parallel_map(_read_shard, [place(cache_dir, name) for name in _expected_files(cache_dir, split)])
        shards[split] = [shard for shard, _ in found]
        settings = next((named for _, named in found if named), settings)
    return manifest_of(corpus, settings, shards, max_documents=None)


def no_counts() -> dict[str, int]:
    """Counts to begin with."""
    return dict.fromkeys(COUNTED, 0)


def count(counts: dict[str, int], name: str, tokens: int) -> None:
    """Adds a record to the counts; `name` is its feature `document`."""
    kind = "skipped" if name.startswith(f"{SKIPPED}/") else "documents" if tokens else "empty"
    counts[kind] += 1
    counts["tokens"] += tokens


def manifest_of(
    corpus: str,
    settings: Mapping[str, str] | None,
    shards: Mapping[str, list[Shard]],
    max_documents: int | None,
) -> dict:
    """Makes a manifest, of what JSON knows.

    Args:
        corpus: the name of the corpus's task.
        settings: those that made the cache; None if it has no record that names them.
        shards: the files of each split.
        max_documents: the limit of a smoke build, or None.
    """
    task = seqio.TaskRegistry.get(corpus) if corpus in seqio.TaskRegistry.names() else None
    configuration = getattr(task, "configuration", CorpusConfiguration())
    return {
        "schema_version": SCHEMA_VERSION,
        "corpus": corpus,
        "versions": {"ul2_tasks": __version__, "seqio": seqio.__version__},
        "git_revision": _git_revision(),
        "settings": None if settings is None else dict(settings),
        "modes": _plain(configuration.special_tokens.modes),
        "split_rule": getattr(task and task.source, "split_rule", "the source's own splits"),
        "max_documents": max_documents,
        "splits": {
            split: {**_totals(in_split), "shards": [dataclasses.asdict(shard) for shard in in_split]}
            for split, in_split in shards.items()
        },
        "totals": _totals([shard for in_split in shards.values() for shard in in_split]),
    }


def _files_and_documents(cache_dir: str, split: str, manifest: Mapping | None) -> tuple[list[str], int]:
    """The files of the split that are not empty, and the number of documents in them."""
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
    """The names of the files of a split. Raises a ValueError if a file is missing, or if there are others."""
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
    """Raises a ValueError if the first record of a file has another digest than expected; names the settings behind it."""
    paths = [place(cache_dir, name) for name in _expected_files(cache_dir, split)]
    for found in parallel_map(_first_digest, paths):
        if found not in (None, digest(expected)):
            named = (settings for _, settings in parallel_map(_read_shard, paths) if settings and digest(settings) == found)
            raise _other_settings(cache_dir, next(named, f"digest {found}"), expected)


def _other_settings(cache_dir: str, found: object, expected: Mapping[str, str]) -> ValueError:
    different = [key for key in expected if isinstance(found, Mapping) and found.get(key) != expected[key]]
    changes = "; ".join(f"{key} is {found.get(key)!r} in the cache, and {expected[key]!r} here" for key in different)
    return ValueError(
        f"the cache {cache_dir} was made with other settings: {changes or f'{found} in the cache, and {dict(expected)} here'};"
        " register with the cache's, or write another cache"
    )


def _parse_tokens(records: tf.Tensor) -> dict[str, tf.RaggedTensor]:
    """Parses [documents] serialized tf.Examples to {"targets": [documents, tokens] int32}."""
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
    """Reads one file. Also returns the settings, if one of its records names them."""
    counts, settings = no_counts(), None
    for records in tf.data.TFRecordDataset(path).batch(1024):
        sizes = _parse_tokens(records)["targets"].row_lengths().numpy()
        for name, tokens in zip(_document_names(records), sizes.tolist()):
            count(counts, name, tokens)
            _, _, *named = name.split("/", 2)
            settings = json.loads(named[0]) if named else settings
    return Shard(path.rsplit("/", 1)[-1], size(path), sha256(path), **counts), settings


def _totals(shards: list[Shard]) -> dict[str, int]:
    return total(map(vars, shards), (*COUNTED, "bytes"))


def _plain(modes: Mapping[str, Mode] | None) -> dict[str, str | list[int]] | None:
    """Modes as JSON has them: an id, or ids of any kind, are a list of int."""
    return modes and {name: mode if isinstance(mode, str) else np.atleast_1d(mode).tolist() for name, mode in modes.items()}


def _json(settings: Mapping[str, str]) -> str:
    return json.dumps(dict(settings), sort_keys=True)


def _git_revision() -> str | None:
    """The last revision of this package in its git checkout; None without one."""
    folder = pathlib.Path(__file__).parents[1]
    command = ["git", "-C", str(folder), "log", "-1", "--format=%H", "--", str(folder)]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() or None
    except (OSError, subprocess.CalledProcessError):
        return None
