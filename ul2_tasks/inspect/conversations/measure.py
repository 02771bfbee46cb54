"""Measures the examples of conversations: their messages, the tokens trained on, what is left out, and whether the checks pass."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ul2_tasks.chat.segments import HEADER, KIND, KINDS, LENGTH, kind_name
from ul2_tasks.corpus import cache
from ul2_tasks.corpus.corpus import Corpus
from ul2_tasks.corpus.documents import documents_of
from ul2_tasks.inspect.chat_samples import ChatExample
from ul2_tasks.inspect.conversations.drawing import AT_A_TIME, budgets, read_examples, that_drops
from ul2_tasks.inspect.conversations.records import FirstConversations, first_conversations
from ul2_tasks.inspect.printing import tracked
from ul2_tasks.inspect.statistics import Check, Checked, Summary, Tally
from ul2_tasks.inspect.tasks import ChatTask, Folders, chat_tasks
from ul2_tasks.store.columns import Columns
from ul2_tasks.version import __version__

if TYPE_CHECKING:
    from ul2_tasks.mixtures.description import Description
    from ul2_tasks.mixtures.mix import Mix

PERCENTS = (5, 25, 50, 75, 95, 99)


@dataclasses.dataclass(frozen=True)
class ChatCorpusStatistics:
    """What was read of a corpus.

    Attributes:
        conversations: how many were read.
        rejected: how many records were rejected, by cause. Of a cache only their number is known.
    """

    corpus: str
    source: str
    renderer: str
    conversations: int
    is_all: bool
    rejected: Mapping[str, int]


@dataclasses.dataclass(frozen=True)
class KindStatistics:
    """The messages of one kind in the examples of a task, and their tokens: those of the header, those of the content, and one that
    ends each message; and how many of the tokens are trained on."""

    kind: str
    messages: int
    tokens: int
    header: int
    content: int
    stop: int
    trained: int


@dataclasses.dataclass(frozen=True)
class ChatTaskStatistics:
    """The measurements of one task.

    Attributes:
        conversations: how many were read.
        examples: how many they gave.
        left_out: how many were "too long" or "without a token to train on", and how many of the examples are "shortened".
        kinds: of each kind of messages that occurs.
        loss_groups: the tokens of each loss group, by its number as a string; "0" is not trained on.
        tokens: of all examples, with modes and EODs.
        lengths: of "tokens", or of "inputs" and "targets"; None where there is no example.
    """

    task: str
    corpus: str
    format: str
    supervision: Mapping[str, Any]
    conversations: int
    examples: int
    left_out: Mapping[str, int]
    kinds: Sequence[KindStatistics]
    loss_groups: Mapping[str, int]
    tokens: int
    lengths: Mapping[str, Summary | None]


@dataclasses.dataclass(frozen=True)
class ChatStatistics(Checked):
    """The measurements of the chat tasks of a task or mixture; `dataclasses.asdict` makes JSON of it."""

    name: str
    version: str
    split: str
    use_cached: bool
    sequence_length: Mapping[str, int | None]
    corpora: Sequence[ChatCorpusStatistics]
    tasks: Sequence[ChatTaskStatistics]
    checks: Sequence[Check]


def measure_chat(
    chats: Description | Mix,
    sequence_length: Mapping[str, int | None],
    *,
    split: str = "train",
    cache_dirs: Folders = (),
    examples: int = 4000,
) -> ChatStatistics:
    """Measures the conversations of a description.

    With `cache_dirs`, conversations come from all of the corpus's cache. Otherwise the first records are rendered, and the text of
    final messages is compared. Measures `examples` of each task, or a few more, if there are that many.
    """
    tasks = chat_tasks(chats, sequence_length, cache_dirs)
    corpora = {task.corpus.name: task.corpus for task in tasks}
    read = {corpus.name: _read(corpus, split, bool(cache_dirs), examples) for corpus in corpora.values()}
    broken = Tally()
    found = [_Measured(task, sequence_length, read[task.corpus.name], broken) for task in tasks]
    for measured in found:
        measured.measure(examples)
    total = sum(measured.statistics.examples for measured in found) + broken.counts["long"]
    return ChatStatistics(
        chats.registered_name(sequence_length),
        __version__,
        split,
        bool(cache_dirs),
        dict(sequence_length),
        [_corpus(corpus, split, read[corpus.name]) for corpus in corpora.values()],
        [measured.statistics for measured in found],
        [Check.counted("no example is longer than the lengths, where that raises an error", "long", broken, total)],
    )


def _read(corpus: Corpus, split: str, use_cached: bool, most: int) -> FirstConversations | Columns:
    return documents_of(corpus, split, use_cached=True) if use_cached else first_conversations(corpus, split, most)


def _corpus(corpus: Corpus, split: str, read: FirstConversations | Columns) -> ChatCorpusStatistics:
    described = corpus.name, str(corpus.source), corpus.encoder.renderer.identity
    if isinstance(read, FirstConversations):
        return ChatCorpusStatistics(*described, read.reader.count, read.is_all, dict(read.rejected.counts.most_common()))
    manifest = cache.read_manifest(corpus.cache_dir) or {}
    skipped = manifest["splits"][split]["skipped"]
    rejected = {"skipped when the cache was written": skipped} if skipped else {}
    return ChatCorpusStatistics(*described, read.count, True, rejected)


class _Measured:
    """The counts of a task."""

    def __init__(
        self, task: ChatTask, sequence_length: Mapping[str, int | None], read: FirstConversations | Columns, broken: Tally
    ):
        self._task, self._dropping, self._lengths = task, that_drops(task), budgets(task, sequence_length)
        self._reader: Columns = read.reader if isinstance(read, FirstConversations) else read
        self._kinds = np.zeros([len(KINDS), len(dataclasses.fields(KindStatistics)) - 1], np.int64)
        self._groups = np.zeros(256, np.int64)
        self._seen: list[dict[str, int]] = []
        self._left_out: collections.Counter[str] = collections.Counter()
        self._conversations = 0
        self._broken = broken

    def measure(self, examples: int) -> None:
        """Reads up to `examples` examples, or a few more."""
        for numbers in self._batches(examples):
            found, counts = read_examples(self._dropping, self._reader, numbers, self._lengths)
            self._left_out += counts
            self._conversations += len(numbers)
            for example in found:
                self._add(example)
            if len(self._seen) >= examples:
                break
        if self._task.supervision.truncation == "raise" and self._left_out["too long"]:
            what = f"{self._task.name}, at {self._lengths}: it is registered with truncation='raise'"
            self._broken.add("long", what, self._left_out["too long"])

    def _batches(self, examples: int) -> Iterable[np.ndarray]:
        """Conversations of all of the corpus, if there are too many to read them all."""
        numbers = np.linspace(0, self._reader.count - 1, min(self._reader.count, examples)).astype(np.int64)
        batches = -(-len(numbers) // AT_A_TIME)
        return tracked([numbers[start::batches] for start in range(batches)], batches, self._task.name)

    def _add(self, example: ChatExample) -> None:
        self._groups += np.bincount(example.span_id, minlength=256)
        self._seen.append(example.lengths)
        if not example.numbers:
            return
        rows = example.messages
        lengths = rows[:, LENGTH].astype(np.int64)
        headers = np.minimum(rows[:, HEADER], lengths)
        stops = (lengths > headers).astype(np.int64)
        trained_before = np.insert(np.cumsum(example.loss_mask > 0), 0, 0)
        trained = trained_before[example.ends] - trained_before[example.starts]
        counts = np.stack([np.ones_like(lengths), lengths, headers, lengths - headers - stops, stops, trained], axis=1)
        np.add.at(self._kinds, rows[:, KIND], counts)

    @property
    def statistics(self) -> ChatTaskStatistics:
        return ChatTaskStatistics(
            task=self._task.name,
            corpus=self._task.corpus.name,
            format=self._task.format,
            supervision=dataclasses.asdict(self._task.supervision),
            conversations=self._conversations,
            examples=len(self._seen),
            left_out=dict(self._left_out),
            kinds=[KindStatistics(kind_name(kind), *row) for kind, row in enumerate(self._kinds.tolist()) if row[0]],
            loss_groups={str(group): int(tokens) for group, tokens in enumerate(self._groups) if tokens or not group},
            tokens=int(self._groups.sum()),
            lengths={key: Summary.of([lengths[key] for lengths in self._seen], PERCENTS) for key in self._lengths},
        )
