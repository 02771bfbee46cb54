"""`Supervision`: which tokens of a conversation are trained on, the loss group of each, and which turns make an example."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from ul2_tasks.chat.segments import KIND, KINDS, Conversations, kind_name
from ul2_tasks.scalars import is_integer

REASONING, ANSWER, TOOL_CALL = 1, 2, 3  # loss groups, the values of `span_id`

# The loss group of each kind of the assistant's messages; 0 is context.
HARMONY = {"assistant/analysis": REASONING, "assistant/final": ANSWER}
HARMONY_TOOLS = {
    **HARMONY,
    "assistant/analysis>tool": TOOL_CALL,
    "assistant/commentary": TOOL_CALL,  # a preamble, which the user reads before a call
    "assistant/commentary>tool": TOOL_CALL,
    "assistant>tool": TOOL_CALL,
}
PLAIN = {**HARMONY_TOOLS, "assistant": ANSWER}  # conversations without channels
PRESETS = {"harmony": HARMONY, "harmony_tools": HARMONY_TOOLS, "plain": PLAIN}

TRAIN_ON = ("all", "generated", "content")
TURNS = ("all", "last", "each")
TRUNCATION = ("raise", "drop", "drop_oldest_turns")


@dataclasses.dataclass(frozen=True)
class Supervision:
    """Which tokens are trained on.

    Attributes:
        loss_groups: the loss group of each kind of the assistant's messages, such as "assistant/final": 1 to 255 where it is
            trained on, 0 where it is context. A message of a kind that is missing is an error. Messages of other roles are always
            context. Or the name of a preset: "harmony", "harmony_tools", "plain".
        train_on: which tokens of a message: "all", with its header; "generated", those that the model generates at inference; or
            "content", its content and the token that ends it.
        turns: "all", a conversation is one example; "last", only its last turn is trained on; or "each", every turn is an example.
            A turn is a user's message with all up to the next one. In "last" and "each" the history before the turn is as at
            inference: without the reasoning that led to an earlier answer.
        truncation: what happens to an example that is longer than the length: "raise" an error; "drop" it, and count it; or
            "drop_oldest_turns", as whole turns, and drop the example only if its last turn alone is still too long.

    >>> Supervision("harmony").loss_groups["assistant/final"]
    2
    """

    loss_groups: Mapping[str, int] | str = "harmony_tools"
    train_on: str = "all"
    turns: str = "all"
    truncation: str = "raise"

    def __post_init__(self):
        groups = PRESETS.get(self.loss_groups) if isinstance(self.loss_groups, str) else self.loss_groups
        if not isinstance(groups, Mapping):
            raise ValueError(
                f"loss_groups must be one of {sorted(PRESETS)}, or a mapping such as {HARMONY}, got {self.loss_groups!r}."
            )
        for name, group in groups.items():
            if name not in KINDS or not name.startswith("assistant"):
                kinds = [kind for kind in KINDS if kind.startswith("assistant")]
                raise ValueError(
                    f"loss_groups must have kinds among {kinds}, got {name!r}. Leave out other roles: they are context."
                )
            if not is_integer(group, at_least=0) or group > 255:
                raise ValueError(f"loss_groups[{name!r}] must be 0 for context, or a loss group from 1 to 255, got {group!r}.")
        object.__setattr__(self, "loss_groups", {name: int(group) for name, group in groups.items()})
        for name, choices in (("train_on", TRAIN_ON), ("turns", TURNS), ("truncation", TRUNCATION)):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {list(choices)}, got {getattr(self, name)!r}.")

    def group_of_kinds(self) -> np.ndarray:
        """[kinds] int16: the loss group of each kind, 0 for context; -1 for a kind that is an error."""
        groups = np.zeros(len(KINDS), np.int16)
        for name, kind in KINDS.items():
            if name.startswith("assistant"):
                groups[kind] = self.loss_groups.get(name, -1)  # type: ignore[union-attr]  # a mapping by now
        return groups


class ConversationError(ValueError):
    """What is wrong with one of some conversations. `number` says which of them, from 0."""

    def __init__(self, number: int, what: str):
        super().__init__(f"conversation {number}: {what}")
        self.number, self.what = number, what


def check_kinds(conversations: Conversations, supervision: Supervision) -> None:
    """Raises a ConversationError where a message is of a kind that has no loss group, not even 0."""
    kinds = conversations.messages[:, KIND]
    wrong = np.flatnonzero(supervision.group_of_kinds()[kinds] < 0)
    if not len(wrong):
        return
    ends = np.cumsum(conversations.counts)
    number = int(np.searchsorted(ends, wrong[0], side="right"))
    count = int(conversations.counts[number])
    message, name = int(wrong[0] - ends[number]) + count + 1, kind_name(int(kinds[wrong[0]]))
    raise ConversationError(
        number,
        f"loss_groups must have the kind {name!r} of message {message} of {count}, got {supervision.loss_groups}. Add"
        f" {name!r}: {TOOL_CALL}, or 0 to leave it as context, or pass a preset: {sorted(PRESETS)}.",
    )
