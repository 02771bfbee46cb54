"""Examples of conversations, each with the messages that it is made of."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping

import numpy as np

from ul2_tasks.chat.objective import CHAT
from ul2_tasks.chat.reading import read_conversations
from ul2_tasks.chat.segments import Conversations
from ul2_tasks.inspect.chat_samples import ChatExample, example_of
from ul2_tasks.inspect.tasks import ChatTask
from ul2_tasks.scalars import is_integer
from ul2_tasks.store.columns import Columns

AT_A_TIME = 64  # conversations
_LENGTHS = {"tokens", "inputs", "targets"}


def budgets(task: ChatTask, sequence_length: Mapping[str, int | None]) -> dict[str, int | None]:
    """The lengths of a task, of those of a mixture. Raises a ValueError where one is not a length, or is of another feature."""
    given = dict(sequence_length)
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
    return dataclasses.replace(task, configuration=dataclasses.replace(task.configuration, truncation="drop"))


def read_examples(
    task: ChatTask, reader: Columns, numbers: np.ndarray, lengths: Mapping[str, int | None]
) -> tuple[list[ChatExample], collections.Counter[str]]:
    """The examples of some conversations, and how many were left out, by cause; see `Objective.examples`."""
    found = task.objective.examples(reader, numbers, lengths)
    conversations = _one_by_one(read_conversations(reader, numbers))
    place = {int(number): place for place, number in enumerate(numbers)}
    split = {key: np.split(of_all, np.cumsum(found.lengths[key])[:-1]) for key, of_all in found.values.items()}
    examples = [
        example_of(task, number, {key: parts[row] for key, parts in split.items()}, *conversations[place[number]])
        for row, number in enumerate(found.conversations.tolist())
    ]
    return examples, found.counts


def _one_by_one(conversations: Conversations) -> list[tuple[np.ndarray, np.ndarray]]:
    """The tokens and the messages of each conversation."""
    tokens = np.split(conversations.tokens, np.cumsum(conversations.lengths)[:-1])
    return list(zip(tokens, np.split(conversations.messages, np.cumsum(conversations.counts)[:-1])))
