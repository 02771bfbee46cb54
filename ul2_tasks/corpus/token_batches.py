"""The documents of a corpus without tf.data, in lists, with the tokenizer's own ids: what files of tokens have."""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ul2_tasks.corpus import cache
from ul2_tasks.corpus.check_texts import count_skipped
from ul2_tasks.corpus.corpus import Corpus, corpus_settings
from ul2_tasks.corpus.tfrecords import read_file
from ul2_tasks.example_features import DOCUMENTS_PER_BATCH, LOSS_WEIGHT
from ul2_tasks.scalars import check_split
from ul2_tasks.sources.lines import row_in_file
from ul2_tasks.sources.records import Record, in_lists
from ul2_tasks.sources.splits import id_hash
from ul2_tasks.store.columns import TOKENS
from ul2_tasks.store.index import dtype_of
from ul2_tasks.store.provenance import Origin, hashes_of
from ul2_tasks.store.read import Store

_RECORDS_AT_A_TIME, _BYTES_AT_A_TIME = 1024, 1 << 20


class Documents(NamedTuple):
    """Some documents of a split, with the tokenizer's own ids.

    `columns` have their values, see `corpus.Encoded`, `names` the location of each, where the corpus has more columns than tokens,
    and `problems` what is wrong with records among them that are skipped. `origins` gives their origins; it is None where these are
    not known.
    """

    columns: Mapping[str, tuple[np.ndarray, np.ndarray]]
    names: Sequence[object] = ()
    problems: Sequence[bytes] = ()
    origins: Callable[[], list[Origin]] | None = None

    @property
    def tokens(self) -> np.ndarray:
        """One document's after the other's, [tokens] int32."""
        return self.columns[TOKENS][0]

    @property
    def lengths(self) -> np.ndarray:
        """How many tokens each has, [documents] int64."""
        return self.columns[TOKENS][1]

    @property
    def size(self) -> int:
        """How many bytes they take."""
        return sum(values.nbytes for values, _ in self.columns.values()) + sum(map(len, self.problems))


class TokenBatch(NamedTuple):
    """Some records as documents, with the tokenizer's own ids. `splits` are theirs; see `corpus.Encoded` for the others."""

    splits: np.ndarray
    columns: Mapping[str, tuple[np.ndarray, np.ndarray]]
    problems: Sequence[bytes]
    records: Sequence[Record]

    @property
    def lengths(self) -> np.ndarray:
        """How many tokens each has, [records] int64."""
        return self.columns[TOKENS][1]

    @property
    def are_whole(self) -> np.ndarray:
        """Which are documents, [records] bool: the others are records that are skipped."""
        return np.array([not problem for problem in self.problems], bool)

    def documents(self, split: str) -> Documents:
        """The documents of a split that have a token."""
        places = self.places(split) if len(self.columns) > 1 else ()
        return Documents(_of(self.columns, self._kept(split)), places, list(filter(None, self.problems)))

    def first(self, tokens: dict[str, int]) -> TokenBatch:
        """The first records of each split that have no more tokens than these, of which theirs are taken off.

        Once a document has too many, there are none left: no later one is taken in its place.
        """
        kept = np.zeros(len(self.splits), bool)
        for split, left in tokens.items():
            own = np.flatnonzero(self.splits == split)
            ends = np.cumsum([0, *self.lengths[own]])
            count = int(np.searchsorted(ends, left, "right")) - 1 if left else 0
            kept[own[:count]] = True
            tokens[split] = int(left - ends[count]) if count == len(own) else 0
        problems, records = ([each[number] for number in np.flatnonzero(kept)] for each in (self.problems, self.records))
        return TokenBatch(self.splits[kept], _of(self.columns, kept), problems, records)

    def places(self, split: str) -> list[object]:
        """The places of those documents."""
        return [self.records[number].where for number in np.flatnonzero(self._kept(split))]

    def origins(self, split: str, hashed: Callable[[Record], bytes]) -> tuple[np.ndarray, list[bytes], np.ndarray]:
        """The rows, the ids and the hashes of those documents, see `provenance`; `hashed` gives what is hashed of a record."""
        kept = [self.records[number] for number in np.flatnonzero(self._kept(split)).tolist()]
        rows = np.array([getattr(record.where, "row", 0) for record in kept], np.int64)
        return rows, [record.id for record in kept], hashes_of(map(hashed, kept))

    @property
    def last_place(self) -> object:
        """Where a late record is; None where it is not known of any."""
        return next((record.where for record in reversed(self.records) if hasattr(record.where, "row")), None)

    @property
    def is_cut(self) -> bool:
        """Whether the rest of a part of a file could not be read: a problem that has no row says so."""
        return any(not hasattr(self.records[number].where, "row") for number in np.flatnonzero(~self.are_whole).tolist())

    def refused(self, split: str) -> Iterator[dict[str, object]]:
        """The records of a split that are skipped: the row, if it is known, the id and the cause of each."""
        for number in np.flatnonzero((self.splits == split) & ~self.are_whole).tolist():
            record, cause = self.records[number], self.problems[number].decode(errors="replace")
            yield {"row": row_in_file(record.where), "id": record.id.decode(errors="backslashreplace"), "cause": cause}

    def id_hashes(self, split: str) -> np.ndarray:
        """The hashes of the ids of those documents, [documents] uint64; without an id the tokens are hashed."""
        (tokens, lengths), hashes = self.columns[TOKENS], []
        ends = np.cumsum(lengths)
        for number in np.flatnonzero(self._kept(split)):
            own = tokens[ends[number] - lengths[number] : ends[number]]
            hashes.append(id_hash(self.records[number].id or own.tobytes()))
        return np.array(hashes, np.uint64)

    def _kept(self, split: str) -> np.ndarray:
        return (self.splits == split) & (self.lengths > 0)


def _of(columns: Mapping[str, tuple[np.ndarray, np.ndarray]], kept: np.ndarray) -> Mapping[str, tuple[np.ndarray, np.ndarray]]:
    """The columns of those documents that are kept, [documents] bool."""
    if kept.all():
        return columns
    return {name: (values[np.repeat(kept, lengths)], lengths[kept]) for name, (values, lengths) in columns.items()}


def tokenize_records(corpus: Corpus, records: Iterable[tuple[str, Record]], counts: bool = True) -> Iterator[TokenBatch]:
    """Tokenizes records, each with its split, in lists of at most 1,024, or of a megabyte. The ids are the tokenizer's own.

    Records that are skipped are counted, unless they were before.
    """
    source = str(corpus.source)
    for batch in in_lists(records, _RECORDS_AT_A_TIME, _BYTES_AT_A_TIME, lambda item: item[1].size):
        splits, of_each = zip(*batch)
        columns, problems = corpus.encoder.encode(corpus, of_each)
        if counts:
            count_skipped(source, problems)
        yield TokenBatch(np.array(splits), columns, problems, of_each)


def corpus_documents(corpus: Corpus, split: str, use_cached: bool, counts: bool = True) -> Iterator[Documents]:
    """Yields the documents of a split in the order of the corpus, or of its cache. For errors see `cache.check`.

    See `tokenize_records` for `counts`.
    """
    check_split(split, corpus.splits, corpus.name)
    if use_cached or corpus.is_tokens:
        count, read = document_shards(corpus, split, use_cached, 0)
        for shard in range(count):
            yield from (documents for documents, _ in read(shard, 0, counts))
        return
    for batch, file, before in tokenize_shards(corpus, split, range(len(corpus.source.shards(split))), counts):
        origins = functools.partial(origins_of, batch, split, corpus.encoder.hashed, file, before)
        yield batch.documents(split)._replace(origins=origins)


def tokenize_shards(
    corpus: Corpus, split: str, shards: Iterable[int], counts: bool = True
) -> Iterator[tuple[TokenBatch, str, int]]:
    """Tokenizes the records of a split in some shards of the source, which have all parts of a file before the ones that they have.

    Each batch comes with the file that it is from, and with how many rows of that are before those that its places count. See
    `tokenize_records` for `counts`.
    """
    reader, before = corpus.source, collections.Counter[str]()
    of_split = reader.shards(split)
    for shard in map(of_split.__getitem__, shards):
        first, seen = before[shard.path] if shard.before is None else 0, _Seen()
        records = seen.of(reader.read_group(shard))
        for batch in tokenize_records(corpus, ((name, record) for name, record in records if name == split), counts):
            yield batch, shard.path, first
        if shard.before is None:
            before[shard.path] += reader.rows_of(shard, seen.records, seen.last)


class DocumentShards(NamedTuple):
    """The documents of a split in so many shards.

    `read` yields those of a shard from one of its records on, each time with how many records of the shard there are up to them.
    Its last argument says whether records that are skipped are counted.
    """

    shards: int
    read: Callable[[int, int, bool], Iterator[tuple[Documents, int]]]


def document_shards(corpus: Corpus, split: str, use_cached: bool, wanted: int) -> DocumentShards:
    """The documents of a split, as they are stored or from the source: in as many shards as wanted, where any number will do."""
    check_split(split, corpus.splits, corpus.name)
    if not (use_cached or corpus.is_tokens):
        return _shards_of_source(corpus, split, wanted)
    store = _store_of(corpus, split)
    if store is None:
        return _shards_of_records(corpus, split)
    if store.documents < wanted:
        raise ValueError(
            f"{corpus.name!r} must have a document of split {split!r} for each of {wanted} hosts, got {store.documents}. Use fewer"
            " hosts. See docs/help/troubleshooting.md#too-few-documents-for-the-hosts."
        )
    return _shards_of_store(store, corpus.source.weights(split) if corpus.is_tokens else None, wanted)


def _shards_of_source(corpus: Corpus, split: str, wanted: int) -> DocumentShards:
    reader = corpus.source
    shards = reader.shards(split, at_least=wanted)

    def read(shard: int, first: int, counts: bool) -> Iterator[tuple[Documents, int]]:
        seen = _Seen()
        records = itertools.islice(seen.of(reader.read_group(shards[shard])), first, None)
        for batch in tokenize_records(corpus, (record for record in records if record[0] == split), counts):
            yield batch.documents(split), seen.records

    return DocumentShards(len(shards), read)


def _shards_of_store(store: Store, weights: Store | None, wanted: int) -> DocumentShards:
    count = max(len(store.prefixes), wanted)

    def read(shard: int, first: int, counts: bool) -> Iterator[tuple[Documents, int]]:
        start, stop = (store.documents * each // count for each in (shard, shard + 1))
        for begin in range(start + first, stop, DOCUMENTS_PER_BATCH):
            numbers = np.arange(begin, min(begin + DOCUMENTS_PER_BATCH, stop))
            origins = None if store.provenance is None else functools.partial(store.provenance.of, numbers)
            columns = {TOKENS: store.read_documents(numbers)}
            if weights is not None:
                (found, whole), (_, lengths) = weights.read_documents(numbers), columns[TOKENS]
                kept = np.arange(len(found)) < np.repeat(np.cumsum(whole) - whole + lengths, whole)  # without ends
                found = found[kept].astype(np.float32).view(np.int32) if weights.is_mask else found[kept]
                columns[LOSS_WEIGHT] = found, lengths
            yield Documents(columns, origins=origins), begin + len(numbers) - start

    return DocumentShards(count, read)


def _shards_of_records(corpus: Corpus, split: str) -> DocumentShards:
    """Those of a cache of TFRecords: its files."""
    files = cache.record_files(corpus.cache_folder, split)
    higher = np.int32(corpus.vocabulary.uses_0)  # SeqIO wrote them, which pads with 0: see `tasks/vocabulary.py`

    def read(shard: int, first: int, counts: bool) -> Iterator[tuple[Documents, int]]:
        seen = 0
        for tokens, lengths in read_file(files[shard]):
            seen += len(lengths)
            if seen > first:
                yield Documents({TOKENS: (tokens - higher, lengths)}), seen

    return DocumentShards(len(files), read)


@dataclasses.dataclass
class _Seen:
    """The records of a shard as they are read: how many, and where the last one is."""

    records: int = 0
    last: object = None

    def of(self, records: Iterable[tuple[str, Record]]) -> Iterator[tuple[str, Record]]:
        for split, record in records:
            self.records, self.last = self.records + 1, record.where or self.last
            yield split, record


def files_of(corpus: Corpus, split: str, use_cached: bool) -> list[str] | None:
    """The files that the documents of a split are from, as their origins have them; None where these are not known."""
    check_split(split, corpus.splits, corpus.name)
    if not (use_cached or corpus.is_tokens):
        return list(dict.fromkeys(shard.path for shard in corpus.source.shards(split)))
    store = _store_of(corpus, split)
    return store.provenance.files if store and store.provenance else None


def origins_of(batch: TokenBatch, split: str, hashed: Callable[[Record], bytes], file: str, before: int) -> list[Origin]:
    """Where the documents of a batch are from, see `tokenize_shards`."""
    rows, ids, hashes = batch.origins(split, hashed)
    told = zip((rows + before).tolist(), ids, hashes.tolist())
    return [Origin(file, row, id.decode(errors="backslashreplace"), hash) for row, id, hash in told]


def _store_of(corpus: Corpus, split: str) -> Store | None:
    """The store of the files that a corpus is, or of its cache; None of a cache of TFRecords."""
    if corpus.is_tokens:
        return corpus.stored(split)
    manifest = cache.check(corpus.cache_folder, corpus, corpus_settings(corpus))
    cache.check_documents(corpus.cache_folder, split, manifest)
    return cache.open_store(corpus.cache_folder, manifest, split) if manifest else None


def stored_dtype(corpus: Corpus) -> np.dtype:
    """The dtype in which the tokens of a corpus are stored; see `index.dtype_of`."""
    return dtype_of(corpus.vocabulary.vocab_size)
