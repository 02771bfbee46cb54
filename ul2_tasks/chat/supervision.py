"""`Supervision`: what of a conversation is learned, which span each token belongs to, and which turns make an example."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from ul2_tasks.chat.segments import KIND, KINDS, Conversations, kind_name
from ul2_tasks.scalars import is_integer

REASONING, ANSWER, TOOL_CALL = 1, 2, 3
TEXT = 4  # of the targets of a mixture's other tasks, which are no conversations

# What is learned of the assistant's messages, by their kind: the span that their tokens belong to, or 0 for not learned.
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

SUPERVISE = ("whole", "sampled", "content")
TURNS = ("all", "last", "each")
TOO_LONG = ("raise", "drop", "oldest")


@dataclasses.dataclass(frozen=True)
class Supervision:
    """What is learned.

    Attributes:
        spans: the span of each kind of the assistant's messages, such as "assistant/final": 1 .. 255 where it is learned, 0 where
            it is context. A kind that is missing is refused when a conversation has it. What others say is always context. Or
            the name of a preset: "harmony", "harmony_tools", "plain".
        supervise: what of a message: "whole", its markers too; "sampled", exactly what the model itself gives at inference; or
            "content", what is said, and the token that ends it.
        turns: "all", a conversation is one example; "last", of its last turn alone is learned; or "each", every turn is an
            example. A turn is a user's message with all up to the next one. Before the turn that is learned in "last" and
            "each", the history is as at inference: without the reasoning that led to an earlier answer.
        too_long: what becomes of an example that is longer than asked for: "raise"; "drop", counted; or "oldest", its oldest
            turns are left out, as whole ones, and it is dropped only if the last is still too long.

    >>> Supervision("harmony").spans["assistant/final"]
    2
    """

    spans: Mapping[str, int] | str = "harmony_tools"
    supervise: str = "whole"
    turns: str = "all"
    too_long: str = "raise"

    def __post_init__(self):
        spans = PRESETS.get(self.spans) if isinstance(self.spans, str) else self.spans
        if not isinstance(spans, Mapping):
            raise ValueError(f"spans is {self.spans!r}, expected one of {sorted(PRESETS)}, or a table such as {HARMONY}")
        for name, span in spans.items():
            if name not in KINDS or not name.startswith("assistant"):
                kinds = [kind for kind in KINDS if kind.startswith("assistant")]
                raise ValueError(f"spans has the kind {name!r}, expected some of {kinds}; what others say is never learned")
            if not is_integer(span, at_least=0) or span > 255:
                raise ValueError(f"spans has {span!r} for {name!r}, expected 0 for context, or a span from 1 to 255")
        object.__setattr__(self, "spans", {name: int(span) for name, span in spans.items()})
        for name, choices in (("supervise", SUPERVISE), ("turns", TURNS), ("too_long", TOO_LONG)):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} is {getattr(self, name)!r}, expected one of {list(choices)}")

    def span_of_kinds(self) -> np.ndarray:
        """[kinds] int16: the span of each kind, 0 for context; -1 for a kind that is refused."""
        spans = np.zeros(len(KINDS), np.int16)
        for name, kind in KINDS.items():
            if name.startswith("assistant"):
                spans[kind] = self.spans.get(name, -1)  # type: ignore[union-attr]  # a table by now
        return spans


class ConversationError(ValueError):
    """What is wrong with one of some conversations. `number` says which of them, from 0."""

    def __init__(self, number: int, what: str):
        super().__init__(f"conversation {number}: {what}")
        self.number, self.what = number, what


def check_kinds(conversations: Conversations, supervision: Supervision) -> None:
    """Raises a ConversationError where a message is of a kind of which the table does not say whether it is learned."""
    kinds = conversations.messages[:, KIND]
    wrong = np.flatnonzero(supervision.span_of_kinds()[kinds] < 0)
    if not len(wrong):
        return
    ends = np.cumsum(conversations.counts)
    number = int(np.searchsorted(ends, wrong[0], side="right"))
    count = int(conversations.counts[number])
    message, name = int(wrong[0] - ends[number]) + count + 1, kind_name(int(kinds[wrong[0]]))
    raise ConversationError(
        number,
        f"message {message} of {count} is of the kind {name!r}, of which spans, {supervision.spans}, does not say whether it is"
        f" learned; give spans with {name!r}: {TOOL_CALL}, or with 0 where it is context, or a preset: {sorted(PRESETS)}",
    )
