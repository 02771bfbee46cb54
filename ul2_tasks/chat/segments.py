"""`Segment`: a rendered message; and conversations as arrays: their tokens, and five numbers for each message.

A store keeps these numbers beside the tokens, so what is learned, and from which turns, is decided when it is read:

    message            user "2+2?"                 assistant, analysis "Easy."
    tokens             <start> user <message> ..   <start> assistant <channel> analysis <message> Easy . <end>

    length             7                           8       tokens of it
    prompt             7                           2       of these given at inference: never sampled
    header             3                           5       of these no content: markers, role, channel
    kind               16                          26      role, channel, and whether it goes to a tool, in one number
    weight             1                           1       0 where the message says that it is not learned

A conversation's messages are followed by one token that ends it (EOD), which belongs to none of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

ROLES = ("system", "developer", "user", "assistant", "tool")
CHANNELS = (None, "analysis", "commentary", "final")
COLUMNS = ("length", "prompt", "header", "kind", "weight")
LENGTH, PROMPT, HEADER, KIND, WEIGHT = range(len(COLUMNS))


class Segment(NamedTuple):
    """A message as it is rendered, or one of the two parts of a message that has reasoning and an answer.

    Attributes:
        role: one of `ROLES`.
        channel: one of `CHANNELS`.
        to_tool: whether it has a recipient.
        weight: 1; or 0, where the message itself says that it is not to be learned.
        ids: the tokenizer's own ids, of the markers, the content, and what ends it.
        prompt: how many of `ids`, at their beginning, are given at inference, and so never sampled.
        header: how many of `ids`, at their beginning, are markers; at least `prompt` where the role is the assistant's.
    """

    role: str
    channel: str | None
    to_tool: bool
    weight: int
    ids: list[int]
    prompt: int
    header: int


class Conversations(NamedTuple):
    """Some conversations.

    Attributes:
        tokens: [tokens] int32, one conversation's after the other's, each with the EOD at its end.
        lengths: [conversations] int64, how many tokens each has.
        messages: [messages, 5] int32, see `COLUMNS`.
        counts: [conversations] int64, how many messages each has.
    """

    tokens: np.ndarray
    lengths: np.ndarray
    messages: np.ndarray
    counts: np.ndarray


def kind_of(role: str, channel: str | None = None, to_tool: bool = False) -> int:
    """The number of a kind of message.

    >>> kind_of("assistant", "analysis"), kind_name(26), kind_name(kind_of("assistant", "commentary", to_tool=True))
    (26, 'assistant/analysis', 'assistant/commentary>tool')
    """
    return 8 * ROLES.index(role) + 2 * CHANNELS.index(channel) + to_tool


def kind_name(kind: int) -> str:
    """The name of a kind, as in `supervision.Supervision.spans`: ROLE, ROLE/CHANNEL, either with ">tool" where it goes to one."""
    role, channel = ROLES[kind // 8], CHANNELS[kind % 8 // 2]
    return role + (f"/{channel}" if channel else "") + (">tool" if kind % 2 else "")


KINDS = {kind_name(kind): kind for kind in range(8 * len(ROLES))}


def as_arrays(conversations: Sequence[Sequence[Segment]], eod: int) -> Conversations:
    """The arrays of rendered conversations; one without segments has no tokens, not even an EOD."""
    tokens: list[int] = []
    lengths, messages = [], []
    for segments in conversations:
        before = len(tokens)
        for segment in segments:
            tokens.extend(segment.ids)
            kind = kind_of(segment.role, segment.channel, segment.to_tool)
            messages.append((len(segment.ids), segment.prompt, segment.header, kind, segment.weight))
        if segments:
            tokens.append(eod)
        lengths.append(len(tokens) - before)
    return Conversations(
        np.array(tokens, np.int32),
        np.array(lengths, np.int64),
        np.array(messages, np.int32).reshape(-1, len(COLUMNS)),
        np.array([len(segments) for segments in conversations], np.int64),
    )
