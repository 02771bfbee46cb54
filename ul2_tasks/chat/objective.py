"""`Objective`: which examples conversations make, for a decoder or for an encoder and a decoder."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np

from ul2_tasks.chat.choices import CORRUPT, FEATURES, Choices, Problem, Rules, choose, counter_of, rules_of
from ul2_tasks.chat.examples import Examples, Stops, write_examples
from ul2_tasks.chat.reading import messages_of, read_conversations
from ul2_tasks.chat.segments import KINDS, Conversations
from ul2_tasks.chat.supervision import ConversationError, Supervision, check_kinds
from ul2_tasks.example_features import CHAT as CHAT_FEATURES
from ul2_tasks.example_features import PROMPT_COMPLETION as PROMPT_COMPLETION_FEATURES
from ul2_tasks.example_features import Feature, token_features
from ul2_tasks.scalars import is_integer
from ul2_tasks.store.columns import Columns

CHAT, PROMPT_COMPLETION = FORMATS = ("chat", "prompt_completion")
AT_A_TIME = 64  # conversations
_SALTS = {CHAT: "chat", PROMPT_COMPLETION: "reply"}


@dataclasses.dataclass(frozen=True)
class Objective:
    """Which examples are made.

    Attributes:
        format: "chat" or "prompt_completion".
        supervision: which tokens are trained on, and what happens to an example that is too long.
        stops: how the renderer writes a history.
        mode: the ids before the inputs of prompt-completion pairs, the tokenizer's own.
    """

    format: str
    supervision: Supervision
    stops: Stops
    mode: tuple[int, ...] = ()

    @property
    def features(self) -> Mapping[str, Feature]:
        return CHAT_FEATURES if self.format == CHAT else PROMPT_COMPLETION_FEATURES

    def lengths(self, sequence_length: Mapping[str, int | None] | None, name: str) -> dict[str, int | None]:
        """The most tokens of "tokens", or of "inputs" and "targets"; None for any number. `name` is that of the task."""
        keys = token_features(self.features)
        given = dict(sequence_length or {})
        if unknown := sorted(given.keys() - {*keys, "loss_mask", "span_id"}):
            raise ValueError(f"sequence_length of {name!r} must have keys among {list(keys)}, got {unknown}.")
        for key, length in given.items():
            if length is not None and not is_integer(length, at_least=1):
                raise ValueError(f"sequence_length[{key!r}] must be an integer of at least 1, or None, got {length!r}.")
        return {key: None if (length := given.get(key)) is None else int(length) for key in keys}

    def examples(self, columns: Columns, numbers: np.ndarray, lengths: Mapping[str, int | None]) -> Examples:
        """The examples of some conversations, by their indices [n] int64, with the tokenizer's own ids.

        Raises a ValueError as `made_of` does, with the location of the conversation.
        """
        try:
            found = self.made_of(read_conversations(columns, numbers), lengths)
        except ConversationError as error:
            raise ValueError(f"{columns.locate(int(numbers[error.number]))}: {error.what}") from error
        return found._replace(conversations=numbers[found.conversations])

    def made_of(self, conversations: Conversations, lengths: Mapping[str, int | None]) -> Examples:
        """The examples of some conversations in memory.

        Raises a ConversationError where an example is too long and `truncation` is "raise", where a message is of a kind without a
        loss group, or where it cannot be a message.
        """
        found = self.choose(conversations.messages, conversations.counts, lengths)
        if found.problem:
            raise _error(conversations, self.supervision, found.problem, self._rules(lengths))
        return self.write(conversations, found)

    def choose(
        self, messages: np.ndarray, counts: np.ndarray, lengths: Mapping[str, int | None], examples: int | None = None
    ) -> Choices:
        """Which examples conversations make, by their messages [messages, 5] int32 and how many each has, [conversations] int64.

        For `examples` see `choices.choose`.
        """
        return choose(messages, counts, self.supervision.group_of_kinds(), self._rules(lengths), examples)

    def write(self, conversations: Conversations, choices: Choices) -> Examples:
        """Writes examples, in the order of the choices."""
        is_pairs = self.format == PROMPT_COMPLETION
        return write_examples(conversations, choices, is_pairs, self.supervision, self.stops.final, self.mode)

    def left_out(self, columns: Columns, numbers: np.ndarray, lengths: Mapping[str, int | None]) -> Iterator[tuple[int, str]]:
        """The conversation and the cause of each example that some conversations do not make, or that is shortened."""
        messages, counts = messages_of(columns, numbers)
        for number, own, count in zip(numbers.tolist(), np.split(messages, np.cumsum(counts)[:-1]), np.split(counts, len(counts))):
            for cause, examples in counter_of(self.choose(own, count, lengths, 0).left_out).items():
                yield from [(number, cause)] * examples

    def _rules(self, lengths: Mapping[str, int | None]) -> Rules:
        return rules_of(self.format == PROMPT_COMPLETION, self.supervision, self.stops.keeps_history, lengths, len(self.mode))


def _error(conversations: Conversations, supervision: Supervision, problem: Problem, rules: Rules) -> ConversationError:
    """The error of a problem; a message of a kind without a loss group comes before what is too long, wherever it is."""
    if problem.feature == CORRUPT:
        return ConversationError(
            problem.number,
            f"its messages must have kinds from 0 to {len(KINDS) - 1}, and prompts that are parts of them, got others. Write the"
            " cache again.",
        )
    check_kinds(conversations, supervision)
    budget, feature = (rules.most, rules.most_targets)[problem.feature], FEATURES[bool(rules.is_pairs)][problem.feature]
    return ConversationError(
        problem.number,
        f"the conversation must have at most {budget} {feature}, got {problem.tokens}. Raise the length, or pass truncation='drop',"
        " which drops and counts it, or truncation='drop_oldest_turns'. See"
        " docs/help/troubleshooting.md#a-conversation-is-longer-than-the-lengths.",
    )


def salt_of(name: str, format: str) -> str:
    """What the order of the examples of `register_chat(name)` in a format is salted with; another one gives another order."""
    return f"{name}_{_SALTS[format]}"
