"""`ul2 show` of conversations: examples message by message, with the tokens trained on, as text in the terminal or as JSON."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.text import Text

from ul2_tasks.corpus.documents import documents_of
from ul2_tasks.inspect.chat_samples import ChatExample, shown_chat
from ul2_tasks.inspect.conversations.drawing import AT_A_TIME, budgets, read_examples, that_drops
from ul2_tasks.inspect.conversations.records import first_conversations
from ul2_tasks.inspect.tasks import ChatTask, Folders, chat_tasks

if TYPE_CHECKING:
    from ul2_tasks.mixtures.description import Description
    from ul2_tasks.mixtures.mix import Mix

CONVERSATIONS = 1000  # the first ones of a source, of which some are shown


def show_chat(
    chats: Description | Mix,
    sequence_length: Mapping[str, int | None],
    console: Console | None = None,
    *,
    split: str = "train",
    seed: int = 0,
    **options: Any,
) -> None:
    """Prints examples of each chat task, message by message; see `draw_chat` for the options.

    Tokens that are not trained on are dim; each loss group has its colour; the token that ends a message is reversed if it is
    trained on. A line below each message's kind has the number of its tokens that are trained on, and their loss group, also
    without colours.
    """
    console = console or Console()
    lengths = ", ".join(f"{key} {length:,}" for key, length in sequence_length.items() if length is not None)
    console.print(
        Text.assemble(
            (chats.registered_name(sequence_length), "bold"),
            f": split {split}, seed {seed}, tokens at most: {lengths or 'any number'}",
        )
    )
    for task, example in draw_chat(chats, sequence_length, split=split, seed=seed, **options):
        console.print("", *shown_chat(task, example), sep="\n")


def draw_chat(
    chats: Description | Mix,
    sequence_length: Mapping[str, int | None],
    *,
    count: int = 2,
    split: str = "train",
    seed: int = 0,
    cache_dirs: Folders = (),
) -> Iterator[tuple[ChatTask, ChatExample]]:
    """Yields `count` examples of each chat task, task by task, in the order of the seed.

    They come from the whole cache (`cache_dirs`), or from the first conversations of the source.
    """
    readers: dict[str, Any] = {}
    for task in chat_tasks(chats, sequence_length, cache_dirs):
        if (corpus := task.corpus).name not in readers:
            cached = documents_of(corpus, split, use_cached=True) if cache_dirs else None
            readers[corpus.name] = cached or first_conversations(corpus, split, CONVERSATIONS).reader
        reader, lengths, dropping = readers[corpus.name], budgets(task, sequence_length), that_drops(task)
        order = np.random.default_rng(seed).permutation(reader.count)
        batches = (order[start : start + AT_A_TIME] for start in range(0, len(order), AT_A_TIME))
        found = (example for batch in batches for example in read_examples(dropping, reader, batch, lengths)[0])
        drawn = list(itertools.islice(found, count))
        if not drawn:
            raise ValueError(f"{task.name!r} must have an example in split {split!r} with {lengths}, got none. See `ul2 stats`.")
        yield from ((task, example._replace(where=reader.locate(example.conversation))) for example in drawn)
