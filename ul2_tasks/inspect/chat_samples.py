"""Examples of conversations to look at: message by message, with the tokens trained on, as a terminal shows them and as JSON."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ul2_tasks.chat.objective import CHAT, Objective
from ul2_tasks.chat.segments import CHANNELS, HEADER, KIND, LENGTH, ROLES, kind_name
from ul2_tasks.corpus.corpus import Corpus
from ul2_tasks.example_features import LOSS_MASK, SPAN_ID, token_features
from ul2_tasks.inspect.printing import visible
from ul2_tasks.inspect.readable import stretches
from ul2_tasks.tokenizers.base import Vocabulary
from ul2_tasks.tokenizers.special_ids import SpecialTokens

if TYPE_CHECKING:
    pass

GROUPS = {0: "not trained on", 1: "reasoning", 2: "answer", 3: "tool calls"}
_ROLE_COLOURS = dict(zip(ROLES, ("#af5f00", "#af5f00", "#0087af", "#008700", "#875fd7")))
_GROUP_COLOURS = ("", "#d700af", "#008700", "#0087af", "#af5f00", "#875fd7", "#ff0000")  # loss group 0 has none
_UNTRAINED = "dim"
_STOP = "reverse"
_HEADER = "italic"


class ShownChat(Protocol):
    """What is known of a task whose examples are looked at."""

    @property
    def name(self) -> str: ...
    @property
    def objective(self) -> Objective: ...
    @property
    def corpus(self) -> Corpus: ...


class ChatExample(NamedTuple):
    """An example of a chat task, as one list of tokens: those of NAME_prompt_completion are its inputs, and then its targets.

    Attributes:
        ids: [tokens] int32, of the task's vocabulary, with the mode at the beginning, or the EOD at the end.
        loss_mask, span_id: [tokens] uint8; 0 of inputs.
        inputs: how many tokens are inputs; None of NAME_chat.
        first: where its messages begin: after the mode.
        numbers: [messages], which messages of the conversation it has; none where its tokens are not whole messages of it.
        messages: [messages, 5] int32, see `segments.COLUMNS`.
        where: where its conversation is from, where that is told beside the example, as far as the corpus says.
    """

    conversation: int
    ids: np.ndarray
    loss_mask: np.ndarray
    span_id: np.ndarray
    inputs: int | None
    first: int
    numbers: list[int]
    messages: np.ndarray
    where: str = ""

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

    def places_of(self, messages: np.ndarray, start: int, stop: int) -> np.ndarray:
        """Where it has the tokens [start, stop) of its conversation, those that it has, [n] int64; `messages` are all of that."""
        ends = np.cumsum(messages[:, LENGTH], dtype=np.int64)
        tokens = np.arange(start, min(stop, int(ends[-1])))
        of = np.searchsorted(ends, tokens, side="right")
        before = np.full(len(ends), -1, np.int64)
        before[self.numbers] = self.starts
        return (before[of] + tokens - (ends - messages[:, LENGTH])[of])[before[of] >= 0]


class Part(NamedTuple):
    """Tokens of a message in an example: all of them, or those that are inputs or targets; or a mode, or EOD.

    Attributes:
        feature: "tokens", "inputs" or "targets".
        row: of the message, see `segments.COLUMNS`; None of a mode and of EOD.
        start, header, stop, end: places in the example: of its first token, of its first content token, of the token that ends
            the message, and behind its last token. Without a content, or without the end, the places are `end`.
    """

    feature: str
    row: np.ndarray | None
    start: int
    header: int
    stop: int
    end: int


def group_name(group: int) -> str:
    """The name of a loss group, for people.

    >>> group_name(1), group_name(7)
    ('reasoning', 'loss group 7')
    """
    return GROUPS.get(group, f"loss group {group}")


def as_plain(task: ShownChat, example: ChatExample) -> dict[str, Any]:
    """An example as JSON has it.

    It has "task", "conversation" (its index), "messages", each with "role", "channel", "to_tool", "loss_group" (0 where none of it
    is trained on), "trained" (how many tokens), "tokens" and "text" (of its content); and "ids", "loss_mask" and "span_id". That of
    NAME_prompt_completion has "inputs" and "targets" instead of "ids"; "loss_mask" and "span_id" are of the targets, and "feature"
    is the feature that a message is in: both, where its header is in the inputs. Ids are the tokenizer's own.
    """
    targets = example.inputs or 0
    own = example.ids.tolist()
    ids = {"ids": own} if example.inputs is None else {"inputs": own[:targets], "targets": own[targets:]}
    masks = {"loss_mask": example.loss_mask[targets:].tolist(), "span_id": example.span_id[targets:].tolist()}
    messages = [_plain_message(task, example, part) for part in parts_of(example) if part.row is not None]
    return {"task": task.name, "conversation": example.conversation, "messages": messages, **ids, **masks}


def example_of(
    task: ShownChat, conversation: int, values: Mapping[str, np.ndarray], tokens: np.ndarray, messages: np.ndarray
) -> ChatExample:
    """An example of a conversation, with the messages that it is made of.

    `values` are its features, [tokens] each. `tokens`, [tokens] int32, are those of the conversation, and
    `messages`, [messages, 5] int32, see `segments.COLUMNS`.
    """
    renderer, is_chat = task.corpus.encoder.renderer, task.objective.format == CHAT
    ids = np.concatenate([values[key] for key in token_features(task.objective.features)])
    inputs, first = None if is_chat else len(values["inputs"]), len(task.objective.mode)
    own = ids[first:]
    has_end = not is_chat or own[-1:] == renderer.eod
    numbers = _messages_in(tokens, messages, own[:-1] if is_chat else own, task.objective.stops.final) if has_end else []
    before = np.zeros(inputs or 0, np.uint8)
    loss_mask, span_id = (np.concatenate([before, values[key]]) for key in (LOSS_MASK, SPAN_ID))
    return ChatExample(conversation, ids, loss_mask, span_id, inputs, first, numbers, messages[numbers])


def shown_chat(task: ShownChat, example: ChatExample, name: str = "", place: str = "") -> Iterator[RenderableType]:
    """An example message by message, under its name, by default that of its task, and where it is from."""
    yield _title(name or task.name, example)
    if place:
        yield Text(place, "dim")
    for feature, of_feature in itertools.groupby(parts_of(example), key=lambda part: part.feature):
        parts = list(of_feature)
        if feature != "tokens":
            yield Text(f"{feature}, {parts[-1].end - parts[0].start:,} tokens", "bold")
        yield _table(task, example, parts)


def parts_of(example: ChatExample) -> Iterator[Part]:
    """The parts of an example, in its order; tokens that are not a whole message are one part without a row."""
    first = "tokens" if example.inputs is None else "inputs"
    if example.first:
        yield Part(first, None, 0, 0, example.first, example.first)
    end = example.first
    for row, start, end in zip(example.messages, example.starts.tolist(), example.ends.tolist()):
        header = min(start + int(row[HEADER]), end)
        cut = example.inputs
        if cut is None or not start < cut < end:
            feature = "tokens" if cut is None else "inputs" if start < cut else "targets"
            yield Part(feature, row, start, header, max(header, end - 1), end)
        else:
            yield Part("inputs", row, start, min(header, cut), cut, cut)
            yield Part("targets", row, cut, max(header, cut), max(header, end - 1), end)
    if end < len(example.ids):
        yield Part("tokens" if example.inputs is None else "targets", None, end, end, len(example.ids), len(example.ids))


def text_of(vocabulary: Vocabulary, ids: np.ndarray) -> str:
    """Tokens as text that people can read: special tokens by their names."""
    special = SpecialTokens((), (), vocabulary.eos_id, frozenset())
    return "".join(stretch.text for stretch in stretches(vocabulary, ids.tolist(), special, "inputs"))


def runs_of(example: ChatExample, part: Part) -> Iterator[tuple[str, int, np.ndarray]]:
    """The tokens of a part in runs: "header", "content" or "stop"; the loss group, 0 where they are not trained on; and the ids."""
    places = np.arange(part.start, part.end)
    kinds = np.where(places < part.header, 0, np.where(places < part.stop, 1, 2))
    groups = np.where(example.loss_mask, example.span_id, 0)[part.start : part.end]
    borders = np.flatnonzero((np.diff(kinds) != 0) | (np.diff(groups.astype(int)) != 0)) + 1
    for run in np.split(np.arange(len(places)), borders):
        if len(run):
            kind = ("header", "content", "stop")[kinds[run[0]]]
            yield kind, int(groups[run[0]]), example.ids[part.start + run]


def _title(name: str, example: ChatExample) -> Text:
    counts = np.bincount(np.where(example.loss_mask, example.span_id, 0))
    groups = [
        (f"{tokens:,} {group_name(group)}", _colour(group)) for group, tokens in enumerate(counts.tolist()) if group and tokens
    ]
    listed = [part for group in groups for part in (group, ", ")]
    head = f": conversation {example.conversation}, {len(example.ids):,} tokens: "
    return Text.assemble((name, "bold"), head, *listed, (f"{counts[0]:,} {group_name(0)}", _UNTRAINED))


def _table(task: ShownChat, example: ChatExample, parts: list[Part]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    vocabulary = task.corpus.vocabulary
    for part in parts:
        text = Text()
        for kind, group, ids in runs_of(example, part):
            style = {"header": _HEADER, "stop": _STOP if group else "", "content": ""}[kind]
            text.append(visible(text_of(vocabulary, ids)), f"{style} {_colour(group)}".strip())
        table.add_row(_label(example, part), text)
    return table


def label_of(example: ChatExample, part: Part) -> str:
    """The kind of a part's message; or "mode", "end" (the EOD), or "?" for tokens that are not a message."""
    if part.row is not None:
        return kind_name(int(part.row[KIND]))
    return "mode" if part.end == example.first else "end" if part.end == part.start + 1 else "?"


def _label(example: ChatExample, part: Part) -> Text:
    tokens, trained = part.end - part.start, int((example.loss_mask[part.start : part.end] > 0).sum())
    groups = ", ".join(group_name(int(group)) for group in np.unique(example.span_id[part.start : part.end]) if group)
    below = f"\n  {trained:,} of {tokens:,}" + (f": {groups}" if groups else "")
    style = "" if part.row is None else f"bold {_ROLE_COLOURS[ROLES[int(part.row[KIND]) // 8]]}"
    return Text.assemble((label_of(example, part), style), (below, _UNTRAINED))


def _plain_message(task: ShownChat, example: ChatExample, part: Part) -> dict[str, Any]:
    kind = int(part.row[KIND])  # type: ignore[index]  # the caller passes parts that have one
    trained = example.loss_mask[part.start : part.end] > 0
    message = {
        "role": ROLES[kind // 8],
        "channel": CHANNELS[kind % 8 // 2],
        "to_tool": bool(kind % 2),
        "loss_group": int((example.span_id[part.start : part.end] * trained).max(initial=0)),
        "trained": int(trained.sum()),
        "tokens": part.end - part.start,
        "text": task.corpus.vocabulary.decode(example.ids[part.header : part.stop].tolist()),
    }
    return message if example.inputs is None else {"feature": part.feature, **message}


def _colour(group: int) -> str:
    return _GROUP_COLOURS[1 + (group - 1) % (len(_GROUP_COLOURS) - 1)] if group else _UNTRAINED


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
