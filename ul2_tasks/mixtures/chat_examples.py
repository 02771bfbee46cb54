"""`ChatExamples`: the examples of conversations as a sequence."""

from __future__ import annotations

import collections
import dataclasses
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from absl import logging

from ul2_tasks.cached import cached_property
from ul2_tasks.chat.choices import SHORTENED, counter_of
from ul2_tasks.chat.index import count_examples, index_conversations
from ul2_tasks.chat.objective import AT_A_TIME, CHAT, PROMPT_COMPLETION, Objective, no_example, salt_of
from ul2_tasks.chat.reading import Reader
from ul2_tasks.corpus.conversations import ChatCorpus
from ul2_tasks.mixtures.chat import Chat, objective_of
from ul2_tasks.mixtures.description import corpus_in
from ul2_tasks.order.order import BlockShuffle
from ul2_tasks.order.permutation import permute
from ul2_tasks.order.stream_keys import key_of_pass, salted
from ul2_tasks.random_access.kinds import described_blocks
from ul2_tasks.random_access.records import RecordMember
from ul2_tasks.scalars import is_integer


class _Counted(NamedTuple):
    """What is the same in all epochs. `of_each` are how many examples each conversation makes, [conversations] int64."""

    reader: Reader
    objective: Objective
    lengths: Mapping[str, int | None]
    seed: int | None
    of_each: np.ndarray
    counts: collections.Counter[str]


class ChatExamples(Sequence[dict[str, np.ndarray]]):
    """An epoch of the examples of conversations, in the order of the stream that one host reads with the same seed.

    An example is {"tokens": [tokens] int32, "loss_mask", "span_id": [tokens] uint8}; or, as a prompt and a completion, {"inputs",
    "targets": [tokens] int32, "loss_mask", "span_id": [tokens] uint8, of the targets}. Ids are the tokenizer's own, also where
    SeqIO's are offset by one.

    A conversation makes one example; or several, as pairs of prompt and completion and with `turns="each"`; or none, where no token
    is trained on, or it is too long and `truncation` is not "raise". `left_out` counts these. Making the sequence reads the
    lengths and kinds of all messages once, and no token. After that, an example reads its own conversation only.

    It is a map-style dataset for PyTorch and a random-access source for grain. `ul2_tasks.examples` makes it.
    """

    def __init__(self, counted: _Counted, epoch: int = 0):
        """See `chat_examples`."""
        self._counted, self._epoch = counted, epoch

    def __len__(self) -> int:
        """How many examples an epoch has."""
        return int(self._counted.of_each.sum())

    @property
    def left_out(self) -> dict[str, int]:
        """How many examples are left out of each epoch, by cause: "without a token to train on", "too long"."""
        return {cause: number for cause, number in self._counted.counts.items() if cause != SHORTENED}

    def epoch(self, epoch: int) -> ChatExamples:
        """The examples of another epoch, from 0: in another order, if they are shuffled."""
        if not is_integer(epoch, at_least=0):
            raise ValueError(f"epoch must be an integer of at least 0, got {epoch!r}.")
        return ChatExamples(self._counted, int(epoch))

    def __getitem__(self, index):
        """The example at an index, which may be negative; or a list of those of a slice."""
        if isinstance(index, slice):
            return self.__getitems__(range(*index.indices(len(self))))
        return self.__getitems__([index])[0]

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        for first in range(0, len(self), AT_A_TIME):
            yield from self[first : first + AT_A_TIME]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, np.ndarray]]:
        """The examples at several indices. Faster than one at a time."""
        if not len(indices):
            return []
        conversations, places = self._found(indices)
        numbers = np.unique(conversations)
        made = self._counted.objective.examples(self._counted.reader, numbers, self._counted.lengths)
        rows = np.searchsorted(made.conversations, conversations) + places
        stops = {key: np.cumsum(lengths) for key, lengths in made.lengths.items()}
        return [
            {key: values[stops[key][row] - made.lengths[key][row] : stops[key][row]].copy() for key, values in made.values.items()}
            for row in rows
        ]

    def locate(self, index: int) -> str:
        """The location of an example's conversation, as text."""
        return self._counted.reader.locate(int(self._found([index])[0][0]))

    def _found(self, indices: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """The conversation of each example, and which of its examples it is, from 0."""
        numbers = np.array([operator.index(index) for index in indices], np.int64)
        if len(wrong := numbers[(numbers < -len(self)) | (numbers >= len(self))]):
            raise IndexError(f"index must be {-len(self)} to {len(self) - 1}, got {wrong[0]}. Use .epoch(1) for the next epoch.")
        numbers %= len(self)
        order, ends = self._order
        at = np.searchsorted(ends, numbers, side="right")
        return order[at], numbers - ends[at] + self._counted.of_each[order[at]]

    @cached_property
    def _order(self) -> tuple[np.ndarray, np.ndarray]:
        """The conversations in the order of the epoch, and how many examples there are up to each."""
        order = np.arange(len(self._counted.of_each))
        if self._counted.seed is not None:
            order = permute(order, len(order), key_of_pass(self._counted.seed, self._epoch))
        return order, np.cumsum(self._counted.of_each[order])


def chat_member(
    name: str,
    corpus: ChatCorpus,
    objective: Objective,
    sequence_length: Mapping[str, int | None] | None,
    split: str,
    use_cached: bool,
    *,
    blocks: BlockShuffle | None,
    rate: float = 1.0,
) -> RecordMember:
    """The task of conversations as `random_access` takes it. Reads the messages of all once.

    Raises a ValueError where no conversation makes an example, or one is too long and `truncation` is "raise".
    """
    lengths, reader = objective.lengths(sequence_length, name), corpus.conversations(split, use_cached)
    index = index_conversations(reader, objective, lengths)
    if not index.count:
        raise no_example(name, split, collections.Counter(index.left_out))
    told = {
        "format": objective.format,
        "supervision": dataclasses.asdict(objective.supervision),
        "mode": list(objective.mode),
        "renderer": corpus.renderer.identity,
        **described_blocks(blocks),
    }
    for cause, number in index.left_out.items():
        logging.warning("%s: %d examples of split %s are left out, %s", name, number, split, cause)
    return RecordMember(name, corpus, rate, objective.features, corpus.vocabulary, index, told, block_shuffle=blocks)


def chat_examples(
    chat: Chat, sequence_length: Mapping[str, int | None], split: str, seed: int, shuffle: bool, cache_dirs: Sequence
) -> ChatExamples:
    """The examples of conversations, as chats for a length of "tokens", and else as pairs of prompt and completion.

    See `examples.examples`. Raises a ValueError where no conversation makes an example, or one is too long and `truncation` is
    "raise".
    """
    format = CHAT if "tokens" in sequence_length else PROMPT_COMPLETION
    name, objective = f"{chat.name}_{format}", objective_of(chat, format)
    lengths, corpus = objective.lengths(sequence_length, name), corpus_in(chat, cache_dirs)
    reader = corpus.conversations(split, use_cached=bool(corpus.cache_dir))  # type: ignore[attr-defined]
    counted = count_examples(reader, objective, lengths)
    of_each, counts = counted.of_each.astype(np.int64), counter_of(counted.left_out)
    if not of_each.any():
        raise no_example(name, split, counts)
    return ChatExamples(
        _Counted(reader, objective, lengths, salted(seed, salt_of(chat.name, format)) if shuffle else None, of_each, counts)
    )
