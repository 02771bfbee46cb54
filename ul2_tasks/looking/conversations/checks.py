"""What must hold of each example of a conversation, and whether it does."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import seqio

from ul2_tasks.chat.harmony import CALL, END, RETURN, HarmonyRenderer
from ul2_tasks.chat.messages import Message, parts_of
from ul2_tasks.chat.segments import CHANNELS, HEADER, KIND, LENGTH, ROLES, WEIGHT, kind_name
from ul2_tasks.looking.chat_samples import ChatExample
from ul2_tasks.looking.statistics import Check, Tally
from ul2_tasks.tasks.chat import ChatTask
from ul2_tasks.vocabulary.batches import encode_batch
from ul2_tasks.vocabulary.special_ids import piece_id

CHECKS = {
    "whole": "each example is whole messages of its conversation, in their order",
    "mask": "a token has a loss group above 0 exactly where loss_mask is 1",
    "others": "no token of another role, of a message of weight 0, of a mode or of EOD is trained on",
    "ends": "every run of tokens trained on ends with the token that ends a message",
    "groups": "each token trained on has the loss group of its message",
    "text": "the content of each final message decodes to its text",
    "ids": "all ids are in the vocabulary, and none is padding",
    "long": "no example is longer than the lengths, where that raises an error",
}
_ASSISTANT = ROLES.index("assistant")


class Rules(NamedTuple):
    """What the checks need to know of a task.

    Attributes:
        groups: [kinds], see `Supervision.group_of_kinds`.
        stops: [n], the ids that end a message; None where any last token of a message does.
    """

    groups: np.ndarray
    stops: np.ndarray | None
    vocabulary: seqio.Vocabulary


def rules_of(task: ChatTask) -> Rules:
    """The rules of a task."""
    renderer = task.corpus.renderer
    vocabulary = renderer.vocabulary
    stops = None
    if isinstance(renderer, HarmonyRenderer):
        stops = np.array([piece_id(vocabulary, name) for name in (END, CALL, RETURN)])
    return Rules(task.supervision.group_of_kinds(), stops, vocabulary)


def faults(example: ChatExample, rules: Rules) -> Iterator[tuple[str, str]]:
    """Yields the checks that an example breaks, by their keys in `CHECKS`, each with what was found."""
    trained = example.loss_mask > 0
    wrong = (example.loss_mask > 1) | (trained != (example.span_id > 0))
    if wrong.any():
        at = int(wrong.argmax())
        yield "mask", f"token {at} has the loss mask {example.loss_mask[at]} and the loss group {example.span_id[at]}"
    bad = (example.ids < 1) | (example.ids >= rules.vocabulary.vocab_size)
    if bad.any():
        yield "ids", f"token {int(bad.argmax())} is {example.ids[bad.argmax()]}"
    if not example.numbers:
        yield "whole", "its tokens are not whole messages"
        return
    message = np.full(len(example.ids), -1)  # which message each token is of
    message[example.first : example.ends[-1]] = np.repeat(np.arange(len(example.messages)), example.messages[:, LENGTH])
    rows = example.messages
    # The last item is for tokens of no message.
    kinds = np.append(rows[:, KIND], 0)[message]
    may = (np.append((rows[:, KIND] // 8 == _ASSISTANT) & (rows[:, WEIGHT] > 0), False)[message]) & trained
    if (trained & ~may).any():
        at = int((trained & ~may).argmax())
        yield "others", f"token {at} is trained on, of {'no message' if message[at] < 0 else kind_name(int(kinds[at]))}"
    other = may & (example.span_id != rules.groups[kinds])
    if other.any():
        at = int(other.argmax())
        yield "groups", f"token {at}, of {kind_name(int(kinds[at]))}, has the loss group {example.span_id[at]}"
    ends = np.flatnonzero(trained & ~np.append(trained[1:], False))
    is_end = np.isin(ends, example.ends - 1)
    if rules.stops is not None:
        is_end &= np.isin(example.ids[ends], rules.stops)
    if not is_end.all():
        yield "ends", f"token {ends[is_end.argmin()]} is the last of a run"


def text_faults(
    example: ChatExample, messages: Sequence[Message | None], rules: Rules, is_whole: bool
) -> Iterator[tuple[str, str]]:
    """Yields ("text", what was found) for a final message that does not decode to its text, and ("lost", "") where the vocabulary
    does not keep that text.

    `messages` are those of each segment, see `Rendered.message_of_segments`. `is_whole` says whether the content is all between a
    message's header and its last token, or only a part of it.
    """
    for number, row, start, end in zip(example.numbers, example.messages, example.starts, example.ends):
        if row[KIND] // 8 != _ASSISTANT or CHANNELS[row[KIND] % 8 // 2] not in ("final", None):
            continue
        message = messages[number]
        if message is None:
            continue
        texts = [part for part in parts_of(message) if isinstance(part, str)]
        text = "".join(texts)
        found = rules.vocabulary.decode(example.ids[start + row[HEADER] : end - is_whole].tolist())
        if found == text or (not is_whole and text.strip() in found):
            continue
        ids, _ = encode_batch(rules.vocabulary, [part.encode() for part in texts])
        if is_whole and found == rules.vocabulary.decode(ids.tolist()):
            yield "lost", ""
        else:
            yield "text", f"message {number + 1} decodes to {found[:40]!r}, expected {text[:40]!r}"


def checks_of(faults: Tally, examples: int, said: Mapping[str, str]) -> list[Check]:
    """All checks; `said` has what else is said of those that hold."""
    checks = []
    for key, check in CHECKS.items():
        of = examples + faults.counts["long"] * (key == "long")  # those that are too long are no examples
        counted = Check.counted(check, key, faults, of)
        checks.append(dataclasses.replace(counted, found=said[key]) if counted.passed and key in said else counted)
    return checks
