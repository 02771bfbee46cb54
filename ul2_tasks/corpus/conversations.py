"""`Chats`: conversations, whose cache has their tokens and, in second files, their messages."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from ul2_tasks.chat.by_name import Renderer, render_all
from ul2_tasks.chat.messages import Conversation, conversation_in, parse
from ul2_tasks.chat.reading import MESSAGES, columns_of
from ul2_tasks.chat.segments import Segment, as_arrays
from ul2_tasks.chat.supervision import ConversationError, Supervision, check_kinds
from ul2_tasks.corpus import cache
from ul2_tasks.corpus.check_texts import find_problems
from ul2_tasks.corpus.corpus import Corpus, Encoded, corpus_settings
from ul2_tasks.corpus.token_batches import origins_of, tokenize_shards
from ul2_tasks.sources.records import Record
from ul2_tasks.sources.splits import conversation_key
from ul2_tasks.store.columns import Columns, in_memory
from ul2_tasks.store.provenance import Origin, Provenance
from ul2_tasks.tokenizers.base import Vocabulary

if TYPE_CHECKING:
    pass


class Part(NamedTuple):
    """Some conversations of a corpus.

    `numbers`, [n] int64, are their indices in the reader. `id_hashes`, [n] uint64, see `TokenBatch.id_hashes`, are None where the
    cache is read. `origins` gives where some of them are from, by their indices; None where the cache does not say it.
    """

    reader: Columns
    numbers: np.ndarray
    id_hashes: np.ndarray | None
    origins: Callable[[np.ndarray], list[Origin]] | None


@dataclasses.dataclass(frozen=True)
class Chats:
    """The `Encoder` of conversations, which a renderer writes.

    `supervision` is that of its tasks. A message of a kind without a loss group is an error when it is rendered, where its file and
    row are known. A cache does not depend on it.
    """

    renderer: Renderer
    supervision: Supervision

    columns: ClassVar[Mapping[str, np.dtype]] = {MESSAGES: np.dtype(np.int32)}
    counts_ids = True
    read_as: ClassVar[tuple[str, dict[str, int]]] = ("chat", {"tokens": 4096})

    def encode(self, corpus: Corpus, records: Sequence[Record]) -> Encoded:
        """Renders conversations. A record that cannot be rendered is a problem, with the location of the record."""
        rendered, problems = [], []
        for record, segments in zip(records, self._render(records)):
            problem = f"{_where(record)}: {segments}" if isinstance(segments, ValueError) else record.problem
            rendered.append([] if isinstance(segments, ValueError) else segments)
            problems.append(problem.encode(errors="replace"))
        problems = find_problems(corpus.configuration.on_error, [b""] * len(records), problems)
        found = as_arrays(rendered, self.renderer.eod)
        try:
            check_kinds(found, self.supervision)
        except ConversationError as error:
            raise ValueError(f"{_where(records[error.number])}: {error.what}") from error
        return Encoded(columns_of(found), problems)

    def hashed(self, record: Record) -> bytes:
        """The messages, the same in each file format."""
        messages, settings, _ = conversation_of(record)
        return conversation_key([messages, settings] if settings else messages)

    def _render(self, records: Sequence[Record]) -> list[list[Segment] | ValueError]:
        """The segments of each record, none of one with a problem; or why it cannot be rendered."""
        found: list[Conversation | ValueError | None] = []
        for record in records:
            try:
                found.append(None if record.problem else conversation_of(record))
            except ValueError as error:
                found.append(error)
        rendered = iter(render_all(self.renderer, [one for one in found if isinstance(one, Conversation)]))
        return [next(rendered) if isinstance(one, Conversation) else one or [] for one in found]

    def own_ids(self, vocabulary: Vocabulary) -> frozenset[int]:
        return frozenset()

    def settings(self, vocabulary: Vocabulary) -> dict[str, str]:
        return {"renderer": self.renderer.identity}


def _manifest(corpus: Corpus) -> dict:
    return cache.check_stored(corpus.cache_folder, corpus, corpus_settings(corpus))


def repeated_ids(corpus: Corpus) -> dict[str, int | None]:
    """How many conversations of the cache have the id of an earlier one, in each split, and in all under "totals".

    None where the cache does not record it.
    """
    manifest = _manifest(corpus)
    counted = manifest["splits"] | {"totals": manifest["totals"]}
    return {name: entry.get("repeated_ids") for name, entry in counted.items()}


def stored_hashes(corpus: Corpus, split: str) -> list[str]:
    """What the cache holds of each shard of the source: a hash of the hashes of its files."""
    shards = _manifest(corpus)["splits"][split]["shards"]
    return [hashlib.sha256(json.dumps(cache.pairs_of(shard)).encode()).hexdigest()[:16] for shard in shards]


def parts_of(
    corpus: Corpus,
    split: str,
    shards: Sequence[int],
    use_cached: bool,
    refuse: Callable[[Mapping], object] = lambda record: None,
) -> Iterator[Part]:
    """The conversations of all shards of the source that are of one file, in its order and never all in memory.

    Calls `refuse` with the file, row, id and cause of each record that is skipped.
    """
    if use_cached:
        manifest = _manifest(corpus)
        reader = cache.open_columns(corpus, corpus.cache_folder, manifest, split)
        of = None if reader.tokens.provenance is None else reader.tokens.provenance.of
        held = [shard["documents"] for shard in manifest["splits"][split]["shards"]]
        ends = np.cumsum(held)
        for shard in shards:
            for record in cache.refused_of(corpus.cache_folder, manifest["splits"][split]["shards"][shard]):
                refuse(record)
            yield Part(reader, np.arange(ends[shard] - held[shard], ends[shard]), None, of)
        return
    for batch, file, before in tokenize_shards(corpus, split, shards):
        for record in batch.refused(split):
            refuse({"file": file, **record})
        documents = batch.documents(split)
        found = in_memory(documents.columns, documents.names)
        origins = functools.cache(functools.partial(origins_of, batch, split, corpus.encoder.hashed, file, before))
        yield Part(found, np.arange(found.count), batch.id_hashes(split), functools.partial(_some, origins))


def files_of(corpus: Corpus, split: str, shards: Sequence[int], use_cached: bool) -> list[str]:
    """The files that the conversations of `parts_of` are from; none where a cache does not say it."""
    if not use_cached:
        of_split = corpus.source.shards(split)
        return list(dict.fromkeys(of_split[shard].path for shard in shards))
    manifest = _manifest(corpus)
    found = cache.open_store(corpus.cache_folder, manifest, split).provenance
    held = [shard for shard, entry in enumerate(manifest["splits"][split]["shards"]) if entry["documents"]]
    return [] if found is None else Provenance(tuple(found.tables[held.index(shard)] for shard in shards if shard in held)).files


def conversation_of(record: Record) -> Conversation:
    """The conversation of a record, see `messages.parse`."""
    found = parse(record.text) if record.value is None else conversation_in(record.value)
    return found._replace(unread=(*record.unread, *found.unread))


def _some(origins: Callable[[], list[Origin]], numbers: np.ndarray) -> list[Origin]:
    return [origins()[number] for number in numbers.tolist()]


def _where(record: Record) -> str:
    return str(record.where) or "a conversation"
