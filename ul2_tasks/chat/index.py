"""`ChatIndex`: all examples of conversations, numbered, and the length of each, without reading tokens.

Of each conversation it has the number of its first example, among which an example's conversation is found by a binary search. What
the example is made of follows from the messages of that conversation alone.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ul2_tasks.chat.choices import CAUSES, SHORTENED, Choices, counter_of, sizes_of
from ul2_tasks.chat.examples import Examples
from ul2_tasks.chat.objective import AT_A_TIME, PROMPT_COMPLETION, Objective
from ul2_tasks.chat.reading import MESSAGES, messages_of, messages_within, read_conversations
from ul2_tasks.store.columns import TOKENS, Columns

_AT_ONCE = 1 << 16  # conversations whose messages are read together: some 8 MB


class Counted(NamedTuple):
    """What is counted once, and is the same whenever the conversations, the objective and the lengths are.

    Attributes:
        firsts: [conversations + 1] int64, the first example of each, and how many all make.
        left_out: [causes] int64, how many examples are left out, by `choices.CAUSES`.
    """

    firsts: np.ndarray
    left_out: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class ChatIndex:
    """The examples of conversations, numbered in the order of the conversations.

    Attributes:
        columns, objective, lengths: see `Objective.examples`.
        counted: see `Counted`.
    """

    columns: Columns
    objective: Objective
    lengths: Mapping[str, int | None]
    counted: Counted

    READ = (TOKENS, MESSAGES)  # the columns that `read` reads

    def __post_init__(self):
        if len(self.counted.firsts) != self.columns.count + 1:
            raise self._of_others()

    @property
    def count(self) -> int:
        """How many examples there are."""
        return int(self.counted.firsts[-1])

    @property
    def left_out(self) -> dict[str, int]:
        """How many examples are left out, by cause: "without a token to train on", "too long"."""
        return {cause: number for cause, number in self._counts.items() if cause != SHORTENED}

    @property
    def shortened(self) -> int:
        """How many examples are without the oldest turns of their conversation."""
        return self._counts[SHORTENED]

    @property
    def settings(self) -> str:
        """What is made of the conversations, in words."""
        return repr((self.objective, dict(self.lengths)))

    def records(self, numbers: np.ndarray) -> np.ndarray:
        """The conversation that each of some examples is of: [n] integers in any order -> [n] int64.

        Raises an IndexError where there is no such example.
        """
        return self._found(numbers)[0]

    def examples_of(self, record: int) -> tuple[int, int]:
        """The examples [first, stop) of a conversation."""
        if not 0 <= record < self.columns.count:
            raise IndexError(f"record must be from 0 to {self.columns.count - 1}, got {record}.")
        first, stop = self.counted.firsts[record : record + 2].tolist()
        return first, stop

    def sizes(self, numbers: np.ndarray, *_: np.ndarray) -> np.ndarray:
        """How many tokens some examples have: [n] integers -> [n, features] int64, of "tokens"; or of "inputs" and "targets"."""
        records, places = self._found(numbers)
        of_all, which = np.unique(records, return_inverse=True)
        chosen = self._chosen(of_all, *messages_of(self.columns, of_all))
        return sizes_of(chosen.table[_rows(chosen, which, places)], self.objective.format == PROMPT_COMPLETION)

    def read(self, numbers: np.ndarray, *_: np.ndarray) -> Examples:
        """Some examples, in the order of their numbers, [n] integers. A conversation is read once, if several are of it."""
        records, places = self._found(numbers)
        of_all, which = np.unique(records, return_inverse=True)
        conversations = read_conversations(self.columns, of_all)
        chosen = self._chosen(of_all, conversations.messages, conversations.counts)
        table, none = chosen.table[_rows(chosen, which, places)], np.zeros_like(chosen.left_out)
        return self.objective.write(conversations, chosen._replace(table=table, left_out=none))._replace(conversations=records)

    def why_none(self, record: int) -> str:
        """Why a conversation makes no example."""
        return "it is too long, or has no token to train on"

    @property
    def _counts(self) -> collections.Counter[str]:
        return counter_of(self.counted.left_out)

    def _found(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The conversation of each example, and which of its examples it is, from 0."""
        numbers = np.asarray(numbers, np.int64)
        if len(wrong := numbers[(numbers < 0) | (numbers >= self.count)]):
            raise IndexError(f"numbers must be from 0 to {self.count - 1}, got {wrong[0]}.")
        records = np.searchsorted(self.counted.firsts, numbers, side="right") - 1
        return records, numbers - self.counted.firsts[records]

    def _chosen(self, records: np.ndarray, messages: np.ndarray, counts: np.ndarray) -> Choices:
        of_each = self.counted.firsts[records + 1] - self.counted.firsts[records]
        found = self.objective.choose(messages, counts, self.lengths, examples=int(of_each.sum()))
        if found.problem or (found.of_each != of_each).any():
            raise self._of_others()
        return found

    def _of_others(self) -> ValueError:
        return ValueError(
            f"{self.columns.identity} must be the conversations whose examples were counted, got others. Make the index again."
        )


def index_conversations(columns: Columns, objective: Objective, lengths: Mapping[str, int | None]) -> ChatIndex:
    """The index of all examples of conversations. Reads their messages once, and no token.

    `lengths` are those of `Objective.lengths`. Raises a ValueError as `Objective.examples` does, with the location of the
    conversation, where an example is too long and `truncation` is "raise", or a message is of a kind without a loss group.
    """
    return ChatIndex(columns, objective, lengths, count_examples(columns, objective, lengths))


def count_examples(columns: Columns, objective: Objective, lengths: Mapping[str, int | None]) -> Counted:
    """Counts the examples of all conversations, see `index_conversations`."""
    of_each, left_out = [np.zeros([1], np.int64)], np.zeros(len(CAUSES), np.int64)
    for first in range(0, columns.count, _AT_ONCE):
        messages, counts = messages_within(columns, first, min(first + _AT_ONCE, columns.count))
        found = objective.choose(messages, counts, lengths, examples=0)
        if found.problem:
            batch = (first + found.problem.number) // AT_A_TIME * AT_A_TIME
            objective.examples(columns, np.arange(batch, min(batch + AT_A_TIME, columns.count)), lengths)  # raises the error
        of_each.append(found.of_each)
        left_out += found.left_out
    return Counted(np.cumsum(np.concatenate(of_each)), left_out)


def _rows(chosen: Choices, which: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The rows of examples in the table: `which` of the conversations each is of, and its place among the examples of it."""
    return (np.cumsum(chosen.of_each) - chosen.of_each)[which.reshape(-1)] + places
