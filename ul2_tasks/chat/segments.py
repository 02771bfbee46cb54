"""`Segment`: a rendered message; and conversations as arrays: their tokens, and five numbers for each message.

A cache keeps these numbers beside the tokens, so which tokens are trained on, and of which turns, is decided when it is read:

    message            user "2+2?"                 assistant, analysis "Easy."
    tokens             <start> user <message> ..   <start> assistant <channel> analysis <message> Easy . <end>

    length             7                           8       tokens of it
    prompt             7                           2       of these, tokens of the prompt at inference, never generated
    header             3                           5       of these, tokens before the content: special tokens, role, channel
    kind               16                          26      role, channel, and whether it goes to a tool, in one number
    weight             1                           1       0 where the message is left out of the loss

After its messages a conversation has one token that ends it (EOD), which belongs to none of them.
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
        weight: 1; or 0, where the message is left out of the loss.
        ids: [tokens] int32, the tokenizer's own, of the header, the content, and the token that ends it.
        prompt: how many of the first `ids` are in the prompt at inference, and so never generated.
        header: how many of the first `ids` are the header; at least `prompt` where the role is the assistant's.
    """

    role: str
    channel: str | None
    to_tool: bool
    weight: int
    ids: np.ndarray
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
    """The name of a kind, as in `supervision.Supervision.loss_groups`: ROLE or ROLE/CHANNEL, with ">tool" if it goes to one."""
    role, channel = ROLES[kind // 8], CHANNELS[kind % 8 // 2]
    return role + (f"/{channel}" if channel else "") + (">tool" if kind % 2 else "")


KINDS = {kind_name(kind): kind for kind in range(8 * len(ROLES))}


def as_arrays(conversations: Sequence[Sequence[Segment]], eod: int) -> Conversations:
    """The arrays of rendered conversations; one without segments has no tokens, not even an EOD."""
    end = np.array([eod], np.int32)
    tokens = [end[:0]]
    lengths, messages = [], []
    for segments in conversations:
        for segment in segments:
            tokens.append(segment.ids)
            kind = kind_of(segment.role, segment.channel, segment.to_tool)
            messages.append((len(segment.ids), segment.prompt, segment.header, kind, segment.weight))
        if segments:
            tokens.append(end)
        lengths.append(sum(len(segment.ids) for segment in segments) + bool(segments))
    return Conversations(
        np.concatenate(tokens),
        np.array(lengths, np.int64),
        np.array(messages, np.int32).reshape(-1, len(COLUMNS)),
        np.array([len(segments) for segments in conversations], np.int64),
    )
