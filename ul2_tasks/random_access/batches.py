"""From elements' numbers to their rows.

numbers   -> Numbering.slots    corpus, epoch and slot of each example
          -> Order.ranges       denoiser and tokens
          -> read_batch         the tokens, and a key of the noise of each example
          -> write_batch        inputs and targets, in the rows of their elements
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ul2_tasks.aligned import zeros_for_tensors
from ul2_tasks.denoising.write import longest_examples, recipe_of, write_examples, write_segments
from ul2_tasks.example_features import EXAMPLE
from ul2_tasks.random_access.corpora import Member
from ul2_tasks.random_access.numbering import Numbering


class Batch(NamedTuple):
    """What the m examples of some elements are made of.

    `places` say, ascending, of which element each example is, `members` the number of its task among those of `members_of`, `keys`,
    uint64, its noise, and `starts` and `stops` its chunk among the tokens, [tokens] int32.
    """

    places: np.ndarray
    members: np.ndarray
    keys: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    tokens: np.ndarray


def no_batch() -> Batch:
    """That of no elements."""
    none = np.zeros([0], np.int64)
    return Batch(none, none, none.astype(np.uint64), none, none, none.astype(np.int32))


def members_of(numbering: Numbering) -> list[Member]:
    """The tasks of all corpora."""
    return [member for corpus in numbering.corpora for member in corpus.members]


def widest(members: Sequence[Member]) -> dict[str, int]:
    """The longest inputs and targets of these tasks, in tokens."""
    return {key: max(getattr(member.solution.full, key) for member in members) for key in EXAMPLE}


def read_batch(numbering: Numbering, numbers: np.ndarray) -> Batch:
    """Reads the tokens of elements, [n] integers."""
    found = numbering.slots(numbers)
    members, starts, stops = (np.zeros_like(found.slots) for _ in range(3))
    keys = np.zeros(len(members), np.uint64)
    tokens: list[np.ndarray] = [np.zeros([0], np.int32)]
    firsts = np.cumsum([0, *(len(corpus.members) for corpus in numbering.corpora)])
    for number in np.unique(found.corpora).tolist():
        corpus, of_corpus = numbering.corpora[number], np.flatnonzero(found.corpora == number)
        epochs, slots = found.epochs[of_corpus], found.slots[of_corpus]
        corpus.fetch_ahead(epochs, slots)
        ranges = corpus.order.ranges(epochs, slots)
        members[of_corpus] = ranges.kinds + firsts[number]
        keys[of_corpus] = corpus.order.noise_keys(epochs, slots)
        stops[of_corpus] = np.cumsum(ranges.sizes) + sum(map(len, tokens))
        starts[of_corpus] = stops[of_corpus] - ranges.sizes
        tokens.append(corpus.read(ranges.starts, ranges.stops))
    return Batch(found.places, members, keys, starts, stops, tokens[1] if len(tokens) == 2 else np.concatenate(tokens))


def write_batch(
    batch: Batch, members: Sequence[Member], lengths: Mapping[str, int], pack: bool
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Makes the examples of a batch.

    `lengths` are those of the rows, {"inputs": int, "targets": int}; a row without room for what is written there raises a
    ValueError. With `pack` the examples of an element, which have fixed lengths, share a row; else each has its own. Gives
    {"inputs": [rows, length] int32, "targets": [rows, length] int32}, padded with 0; packed rows have `<feature>_segment_ids` and
    `<feature>_positions` of each, too, see `converters.encoder_decoder.pack_rows`. Then gives {"inputs": [m] int64, "targets": [m]
    int64}, how many tokens each example has.
    """
    count = len(batch.members)
    of_members = [(np.flatnonzero(batch.members == number), members[number]) for number in np.unique(batch.members).tolist()]
    longest = np.zeros([count, len(EXAMPLE)], np.int64)
    for of_member, member in of_members:
        longest[of_member] = longest_examples(member.solution)[(batch.stops - batch.starts)[of_member]]
    if pack:
        rows = batch.places - batch.places[:1]
        before = np.cumsum(longest, axis=0) - longest
        places = before - before[np.searchsorted(rows, rows)]
    else:
        rows, places = np.arange(count), np.zeros_like(longest)
    room = [lengths[key] for key in EXAMPLE]
    if (places + longest > room).any():
        needed = (places + longest).max(axis=0).tolist()
        raise ValueError(
            f"examples of {needed[0]} input and {needed[1]} target tokens do not fit packed sequences of {room[0]} and {room[1]}."
            " Raise the lengths, or lower chunk_tokens."
        )

    shapes = {key: (int(rows[-1]) + 1 if count else 0, lengths[key]) for key in EXAMPLE}
    arrays = {key: zeros_for_tensors(3 if pack else 1, shapes[key]) for key in EXAMPLE}
    written = {key: each[0] for key, each in arrays.items()}
    sizes = np.zeros_like(longest)
    for of_member, member in of_members:
        chunks = (each[of_member] for each in (batch.starts, batch.stops, batch.keys, rows, places))
        sizes[of_member] = write_examples(recipe_of(member.solution), batch.tokens, *chunks, *written.values())
    if pack:
        of_row = np.arange(count) - np.searchsorted(rows, rows) + 1
        for number, key in enumerate(EXAMPLE):
            _, segment_ids, positions = arrays[key]
            write_segments(rows, places[:, number], sizes[:, number], of_row, segment_ids, positions)
            written |= {f"{key}_segment_ids": segment_ids, f"{key}_positions": positions}
    return written, dict(zip(EXAMPLE, sizes.T))
