"""The examples of conversations: their tokens, and of each token whether it is trained on, and its loss group.

A conversation is a list of messages; an example is a choice of them. Of user u, analysis a and final f, in two turns:

    turns="all"     u1 a1 f1 u2 a2 f2      trained on are a1 f1 a2 f2
    turns="last"    u1 f1 u2 a2 f2         a2 f2; as at inference, the reasoning that led to an earlier answer is left out
    turns="each"    u1 a1 f1               a1 f1
                    u1 f1 u2 a2 f2         a2 f2

As a prompt and a completion, for an encoder and a decoder, such an example is split where the model begins to generate: inputs end
with the prompt of inference (`<|start|>assistant`), and targets are the messages that follow, up to the next one of another role. A
turn with a tool call makes two pairs.
"""

from __future__ import annotations

import collections
from typing import NamedTuple

import numpy as np

from ul2_tasks.chat.choices import FEATURES, NUMBER, Choices, counter_of, sizes_of, write
from ul2_tasks.chat.segments import HEADER, PROMPT, Conversations
from ul2_tasks.chat.supervision import Supervision

_TRAINED_FROM = {"all": -1, "generated": PROMPT, "content": HEADER}  # the column that says from which token of a message on


class Stops(NamedTuple):
    """How a renderer writes a history: whether reasoning of earlier turns is in the tokens, and how the last message ends.

    `final` is the tokenizer's own id that ends the last message if it is the final one; None where all ends are the same.
    """

    final: int | None
    keeps_history: bool


class Examples(NamedTuple):
    """Some examples, of some features.

    Attributes:
        values: of each feature, [tokens], one example after the other; ids are int32, the others uint8.
        lengths: of each feature, [examples] int64.
        conversations: [examples] int64, which conversation each is of.
        counts: how many were left out, by cause: "without a token to train on", "too long"; and "shortened".
    """

    values: dict[str, np.ndarray]
    lengths: dict[str, np.ndarray]
    conversations: np.ndarray
    counts: collections.Counter[str]


def write_examples(
    conversations: Conversations,
    choices: Choices,
    is_pairs: bool,
    supervision: Supervision,
    final: int | None,
    mode: tuple[int, ...],
) -> Examples:
    """Writes the examples of choices, in their order.

    For a decoder: "tokens", and of each "loss_mask" and "span_id". Each ends with the EOD, which is not trained on. Or pairs, for
    an encoder and a decoder: "inputs" and "targets", and of the targets "loss_mask" and "span_id". Targets are what the model
    generates, so that `train_on="all"` is like "generated".

    The conversations have the tokenizer's own ids. `final` is that of `Stops`, and `mode` is before the inputs.
    """
    table, keys = choices.table, FEATURES[is_pairs]
    sizes = sizes_of(table, is_pairs)
    lengths = {key: sizes[:, place].copy() for place, key in enumerate(keys)}
    ids = {key: np.empty(lengths[key].sum(), np.int32) for key in keys}
    span_id = np.zeros(len(ids[keys[-1]]), np.uint8)
    write(
        conversations.tokens,
        np.cumsum(conversations.lengths),
        conversations.lengths,
        conversations.messages,
        table,
        supervision.group_of_kinds(),
        _TRAINED_FROM[supervision.train_on],
        -1 if final is None else int(final),
        np.array(mode, np.int32),
        is_pairs,
        ids[keys[0]],
        ids[keys[-1]],
        span_id,
    )
    marks = {"loss_mask": (span_id > 0).view(np.uint8), "span_id": span_id}
    return Examples(
        ids | marks, lengths | dict.fromkeys(marks, lengths[keys[-1]]), table[:, NUMBER].copy(), counter_of(choices.left_out)
    )
