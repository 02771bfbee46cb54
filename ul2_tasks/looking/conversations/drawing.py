"""Examples of conversations, each with the messages that it is made of."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ul2_tasks.chat.objective import CHAT
from ul2_tasks.chat.reading import Reader
from ul2_tasks.chat.segments import LENGTH, Conversations
from ul2_tasks.scalars import is_integer
from ul2_tasks.tasks.chat import ChatTask, chat_tasks
from ul2_tasks.vocabulary.special_ids import id_shift

AT_A_TIME = 64  # conversations
_LENGTHS = {"tokens", "inputs", "targets"}


class ChatExample(NamedTuple):
    """An example of a chat task, as one list of tokens: those of NAME_prompt_completion are its inputs, and then its targets.

    Attributes:
        ids: [tokens] int32, of the task's vocabulary, with the mode at the beginning, or the EOD at the end.
        loss_mask, span_id: [tokens] uint8; 0 of inputs.
        inputs: how many tokens are inputs; None of NAME_chat.
        first: where its messages begin: after the mode.
        numbers: [messages], which messages of the conversation it has; none where its tokens are not whole messages of it.
        messages: [messages, 5] int32, see `segments.COLUMNS`.
    """

    conversation: int
    ids: np.ndarray
    loss_mask: np.ndarray
    span_id: np.ndarray
    inputs: int | None
    first: int
    numbers: list[int]
    messages: np.ndarray

    @property
    def lengths(self) -> dict[str, int]:
        """By the features of its task."""
        if self.inputs is None:
            return {"tokens": len(self.ids)}
        return {"inputs": self.inputs, "targets": len(self.ids) - self.inputs}

    @property
    def ends(self) -> np.ndarray:
        """[messages], where each message ends."""
        return self.first + np.cumsum(self.messages[:, LENGTH], dtype=np.int64)

    @property
    def starts(self) -> np.ndarray:
        """[messages], where each message begins."""
        return self.ends - self.messages[:, LENGTH]


def chat_tasks_of(name: str) -> list[ChatTask]:
    """The chat tasks of a task or mixture. Raises a ValueError where it has none."""
    tasks = chat_tasks(name)
    if not tasks:
        raise ValueError(
            f"name must be NAME_chat or NAME_prompt_completion of ul2_tasks.register_chat, or a mixture of these, got {name!r}."
        )
    return tasks


def budgets(task: ChatTask, sequence_length: Mapping[str, int | None] | None) -> dict[str, int | None]:
    """The lengths of a task, of those of a mixture. Raises a ValueError where one is not a length, or is of another feature."""
    given = dict(sequence_length or {})
    if unknown := sorted(given.keys() - _LENGTHS):
        raise ValueError(f"sequence_length must have keys among {sorted(_LENGTHS)}, got {unknown}.")
    for key, length in given.items():
        if length is not None and not is_integer(length, at_least=1):
            raise ValueError(f"sequence_length[{key!r}] must be an integer of at least 1, or None, got {length!r}.")
    return {key: given.get(key) for key in (("tokens",) if task.format == CHAT else ("inputs", "targets"))}


def that_drops(task: ChatTask) -> ChatTask:
    """The same task, which drops and counts examples that are too long where they would raise an error."""
    if task.supervision.truncation != "raise":
        return task
    return ChatTask(task.name, task.corpus, task.format, dataclasses.replace(task.configuration, truncation="drop"))


def read_examples(
    task: ChatTask, reader: Reader, numbers: np.ndarray, lengths: Mapping[str, int | None]
) -> tuple[list[ChatExample], collections.Counter[str]]:
    """The examples of some conversations, and how many were left out, by cause; see `ChatTask.examples`."""
    found = task.examples(reader, numbers, lengths)
    shift = id_shift(task.corpus.renderer.vocabulary)
    conversations = _one_by_one(reader.read(numbers))
    place = {int(number): place for place, number in enumerate(numbers)}
    split = {key: np.split(values, np.cumsum(found.lengths[key])[:-1]) for key, values in found.values.items()}
    of_inputs = 0 if task.format == CHAT else len(task.configuration.mode)
    final_stop = getattr(task.corpus.renderer, "final_stop", None)
    examples = []
    for row, number in enumerate(found.conversations.tolist()):
        tokens, messages = conversations[place[number]]
        values = {key: parts[row] for key, parts in split.items()}
        ids = np.concatenate([values[key] for key in lengths])
        inputs = None if task.format == CHAT else len(values["inputs"])
        before = np.zeros(inputs or 0, np.uint8)
        own = ids[of_inputs:] - shift
        has_end = task.format != CHAT or own[-1:] == task.corpus.renderer.eod
        numbers_of = _messages_in(tokens, messages, own if task.format != CHAT else own[:-1], final_stop) if has_end else []
        loss_mask, span_id = (np.concatenate([before, values[key]]) for key in ("loss_mask", "span_id"))
        examples.append(ChatExample(number, ids, loss_mask, span_id, inputs, of_inputs, numbers_of, messages[numbers_of]))
    return examples, found.counts


def _one_by_one(conversations: Conversations) -> list[tuple[np.ndarray, np.ndarray]]:
    """The tokens and the messages of each conversation."""
    tokens = np.split(conversations.tokens, np.cumsum(conversations.lengths)[:-1])
    return list(zip(tokens, np.split(conversations.messages, np.cumsum(conversations.counts)[:-1])))


def _messages_in(tokens: np.ndarray, messages: np.ndarray, ids: np.ndarray, final_stop: int | None) -> list[int]:
    """Which messages of a conversation, in its order, are `ids`, back to back; none where no choice of them is.

    They are found by their tokens, whatever chose them. The last one may end in `final_stop` instead of its own last token.
    """
    found, place, end = [], 0, 0
    for number, length in enumerate(messages[:, LENGTH].tolist()):
        start, end = end, end + length
        part = ids[place : place + length]
        is_last = place + length == len(ids) and length and part[-1] == final_stop
        if length and np.array_equal(tokens[start : end - is_last], part[: length - is_last]):
            found.append(number)
            place += length
    return found if place == len(ids) else []
