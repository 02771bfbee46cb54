"""`ul2 show` of conversations: examples message by message, with the tokens trained on, as text in the terminal or as JSON."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import seqio
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ul2_tasks.chat.segments import CHANNELS, HEADER, KIND, ROLES, kind_name
from ul2_tasks.looking.conversations.drawing import AT_A_TIME, ChatExample, budgets, chat_tasks_of, read_examples, that_drops
from ul2_tasks.looking.conversations.records import first_conversations
from ul2_tasks.looking.conversations.table import group_name
from ul2_tasks.looking.printing import visible
from ul2_tasks.looking.readable import stretches
from ul2_tasks.tasks.chat import ChatTask
from ul2_tasks.vocabulary.special_ids import SpecialTokens, id_shift

CONVERSATIONS = 1000  # the first ones of a source, of which some are shown
_ROLE_COLOURS = dict(zip(ROLES, ("#af5f00", "#af5f00", "#0087af", "#008700", "#875fd7")))
_GROUP_COLOURS = ("", "#d700af", "#008700", "#0087af", "#af5f00", "#875fd7", "#ff0000")  # loss group 0 has none
_UNTRAINED = "dim"
_STOP = "reverse"
_HEADER = "italic"


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


def show_chat(
    name: str,
    sequence_length: Mapping[str, int | None] | None = None,
    console: Console | None = None,
    *,
    split: str = "train",
    seed: int = 0,
    **options: Any,
) -> None:
    """Prints examples of each chat task of a task or mixture, message by message; see `draw_chat` for the options.

    Tokens that are not trained on are dim; each loss group has its colour; the token that ends a message is reversed if it is
    trained on. A line below each message's kind has the number of its tokens that are trained on, and their loss group, also
    without colours.
    """
    console = console or Console()
    lengths = ", ".join(f"{key} {length:,}" for key, length in (sequence_length or {}).items() if length is not None)
    console.print(Text.assemble((name, "bold"), f": split {split}, seed {seed}, tokens at most: {lengths or 'any number'}"))
    for task, example in draw_chat(name, sequence_length, split=split, seed=seed, **options):
        console.print()
        console.print(_title(task, example))
        for feature, parts in itertools.groupby(parts_of(example), key=lambda part: part.feature):
            own = list(parts)
            if feature != "tokens":
                console.print(Text(f"{feature}, {own[-1].end - own[0].start:,} tokens", "bold"))
            console.print(_table(task, example, own))


def as_plain(task: ChatTask, example: ChatExample) -> dict[str, Any]:
    """An example as JSON has it.

    It has "task", "conversation" (its index), "messages", each with "role", "channel", "to_tool", "loss_group" (0 where none of it
    is trained on), "trained" (how many tokens), "tokens" and "text" (of its content); and "ids", "loss_mask" and "span_id". That of
    NAME_prompt_completion has "inputs" and "targets" instead of "ids"; "loss_mask" and "span_id" are of the targets, and "feature"
    is the feature that a message is in: both, where its header is in the inputs. Ids are the tokenizer's own.
    """
    targets = example.inputs or 0
    own = (example.ids - id_shift(task.corpus.renderer.vocabulary)).tolist()
    ids = {"ids": own} if example.inputs is None else {"inputs": own[:targets], "targets": own[targets:]}
    masks = {"loss_mask": example.loss_mask[targets:].tolist(), "span_id": example.span_id[targets:].tolist()}
    messages = [_plain_message(task, example, part) for part in parts_of(example) if part.row is not None]
    return {"task": task.name, "conversation": example.conversation, "messages": messages, **ids, **masks}


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


def text_of(vocabulary: seqio.Vocabulary, ids: np.ndarray) -> str:
    """Tokens as text that people can read: special tokens by their names."""
    special = SpecialTokens((), (), vocabulary.eos_id, frozenset({0}))
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


def draw_chat(
    name: str,
    sequence_length: Mapping[str, int | None] | None = None,
    *,
    count: int = 2,
    split: str = "train",
    seed: int = 0,
    use_cached: bool = False,
) -> Iterator[tuple[ChatTask, ChatExample]]:
    """Yields `count` examples of each chat task of a task or mixture, task by task, in the order of the seed.

    They come from the whole cache (`use_cached`), or from the first conversations of the source.
    """
    readers: dict[str, Any] = {}
    for task in chat_tasks_of(name):
        if (corpus := task.corpus).name not in readers:
            cached = corpus.conversations(split, use_cached=True) if use_cached else None
            readers[corpus.name] = cached or first_conversations(corpus, split, CONVERSATIONS).reader
        reader, lengths, dropping = readers[corpus.name], budgets(task, sequence_length), that_drops(task)
        order = np.random.default_rng(seed).permutation(reader.count)
        batches = (order[start : start + AT_A_TIME] for start in range(0, len(order), AT_A_TIME))
        found = (example for batch in batches for example in read_examples(dropping, reader, batch, lengths)[0])
        drawn = list(itertools.islice(found, count))
        if not drawn:
            raise ValueError(f"{task.name!r} must have an example in split {split!r} with {lengths}, got none. See `ul2 stats`.")
        yield from ((task, example) for example in drawn)


def _title(task: ChatTask, example: ChatExample) -> Text:
    counts = np.bincount(np.where(example.loss_mask, example.span_id, 0))
    groups = [
        (f"{tokens:,} {group_name(group)}", _colour(group)) for group, tokens in enumerate(counts.tolist()) if group and tokens
    ]
    listed = [part for group in groups for part in (group, ", ")]
    head = f": conversation {example.conversation}, {len(example.ids):,} tokens: "
    return Text.assemble((task.name, "bold"), head, *listed, (f"{counts[0]:,} {group_name(0)}", _UNTRAINED))


def _table(task: ChatTask, example: ChatExample, parts: list[Part]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    vocabulary = task.corpus.renderer.vocabulary
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


def _plain_message(task: ChatTask, example: ChatExample, part: Part) -> dict[str, Any]:
    kind = int(part.row[KIND])  # type: ignore[index]  # the caller passes parts that have one
    trained = example.loss_mask[part.start : part.end] > 0
    message = {
        "role": ROLES[kind // 8],
        "channel": CHANNELS[kind % 8 // 2],
        "to_tool": bool(kind % 2),
        "loss_group": int((example.span_id[part.start : part.end] * trained).max(initial=0)),
        "trained": int(trained.sum()),
        "tokens": part.end - part.start,
        "text": task.corpus.renderer.vocabulary.decode(example.ids[part.header : part.stop].tolist()),
    }
    return message if example.inputs is None else {"feature": part.feature, **message}


def _colour(group: int) -> str:
    return _GROUP_COLOURS[1 + (group - 1) % (len(_GROUP_COLOURS) - 1)] if group else _UNTRAINED
