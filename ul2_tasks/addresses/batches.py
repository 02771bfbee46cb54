"""From elements' numbers to their rows.

numbers   -> Numbering.slots    corpus, epoch and slot of each example
          -> Order.chunks       denoiser and tokens
          -> read_batch         for each denoiser [rows, tokens], their lengths, and a key of the noise of each
          -> write_batch        inputs and targets, in the rows of their elements
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ul2_tasks.addresses.corpora import Member
from ul2_tasks.addresses.numbering import Numbering
from ul2_tasks.denoising.write import longest_examples, recipe_of, write_examples, write_segments
from ul2_tasks.example_features import EXAMPLE


class Chunks(NamedTuple):
    """The chunks of one denoiser.

    Attributes:
        tokens: [R, L] int32, padded with 0 at their end.
        lengths: [R] int32, tokens of each.
        keys: [R] uint64, of their noise.
    """

    tokens: np.ndarray
    lengths: np.ndarray
    keys: np.ndarray


class Batch(NamedTuple):
    """What the examples of some elements are made of.

    Attributes:
        places: [m] int64, ascending, which of the elements each example is of.
        members: [m] int64, the number of its task among those of `members_of`.
        chunks: of each task.
    """

    places: np.ndarray
    members: np.ndarray
    chunks: list[Chunks]


def members_of(numbering: Numbering) -> list[Member]:
    """The tasks of all corpora."""
    return [member for corpus in numbering.corpora for member in corpus.members]


def no_batch(members: Sequence[Member]) -> Batch:
    """That of no elements."""
    none = np.zeros([0], np.int64)
    chunks = [
        Chunks(np.zeros([0, member.solution.full.length], np.int32), none.astype(np.int32), none.astype(np.uint64))
        for member in members
    ]
    return Batch(none, none, chunks)


def widest(members: Sequence[Member]) -> dict[str, int]:
    """The longest inputs and targets of these tasks, in tokens."""
    return {key: max(getattr(member.solution.full, key) for member in members) for key in EXAMPLE}


def read_batch(numbering: Numbering, numbers: np.ndarray) -> Batch:
    """Reads the tokens of elements, [n] integers.

    Raises:
        ValueError: see `OrderedCorpus.read`.
    """
    found = numbering.slots(numbers)
    members = np.zeros_like(found.slots)
    chunks: list[Chunks] = []
    for number, corpus in enumerate(numbering.corpora):
        of_corpus = np.flatnonzero(found.corpora == number)
        epochs, slots = found.epochs[of_corpus], found.slots[of_corpus]
        kinds, starts, stops = corpus.order.chunks(epochs, slots)
        members[of_corpus] = len(chunks) + kinds
        noise = corpus.order.noise_keys(epochs, slots)
        by_kind = np.argsort(kinds, kind="stable")
        bounds = np.searchsorted(kinds[by_kind], np.arange(len(corpus.members) + 1))
        tokens = corpus.read(starts[by_kind], stops[by_kind]) if len(kinds) else np.zeros([0], np.int32)
        lengths = (stops - starts)[by_kind]
        ends = np.concatenate([[0], np.cumsum(lengths)])
        for member, first, last in zip(corpus.members, bounds, bounds[1:]):
            rows = _in_rows(tokens[ends[first] : ends[last]], lengths[first:last], member.solution.full.length)
            chunks.append(Chunks(rows, lengths[first:last].astype(np.int32), noise[by_kind[first:last]]))
    return Batch(found.places, members, chunks)


def write_batch(
    batch: Batch, members: Sequence[Member], lengths: Mapping[str, int], pack: bool
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Makes the examples of a batch.

    Args:
        batch: of these tasks.
        members: the tasks; where rows are packed, their examples have fixed lengths.
        lengths: of the rows, {"inputs": int, "targets": int}, with room for what is written there.
        pack: whether the examples of an element share a row; else each has its own.

    Returns:
        {"inputs": [rows, length] int32, "targets": [rows, length] int32}, padded with 0; packed rows have `<feature>_segment_ids`
        and `<feature>_positions` of each, too, see `converters.encoder_decoder.pack_rows`.
        {"inputs": [m] int64, "targets": [m] int64}, how many tokens each example has.

    Raises:
        ValueError: a row has no room.
    """
    count = len(batch.members)
    of_members = [np.flatnonzero(batch.members == number) for number in range(len(members))]
    longest = np.zeros([count, len(EXAMPLE)], np.int64)
    for of_member, member, chunks in zip(of_members, members, batch.chunks):
        longest[of_member] = longest_examples(member.solution)[chunks.lengths]
    if pack:
        rows = batch.places - batch.places[:1]
        before = np.cumsum(longest, axis=0) - longest
        starts = before - before[np.searchsorted(rows, rows)]
    else:
        rows, starts = np.arange(count), np.zeros_like(longest)
    room = [lengths[key] for key in EXAMPLE]
    if (starts + longest > room).any():
        raise ValueError(f"{(starts + longest).max(axis=0).tolist()} tokens of inputs and targets are for rows of {room}")

    written = {key: np.zeros([rows[-1] + 1 if count else 0, lengths[key]], np.int32) for key in EXAMPLE}
    sizes = np.zeros_like(longest)
    for of_member, member, chunks in zip(of_members, members, batch.chunks):
        recipe = recipe_of(member.solution)
        sizes[of_member] = write_examples(*chunks, recipe, rows[of_member], starts[of_member], *written.values())
    if pack:
        numbers = np.arange(count) - np.searchsorted(rows, rows) + 1
        for place, key in enumerate(EXAMPLE):
            segment_ids, positions = np.zeros_like(written[key]), np.zeros_like(written[key])
            write_segments(rows, starts[:, place], sizes[:, place], numbers, segment_ids, positions)
            written |= {f"{key}_segment_ids": segment_ids, f"{key}_positions": positions}
    return written, dict(zip(EXAMPLE, sizes.T))


def _in_rows(tokens: np.ndarray, lengths: np.ndarray, length: int) -> np.ndarray:
    """[R, length] int32, chunks that stand one after the other; only those of the end of an epoch are shorter than others."""
    if len(tokens) == len(lengths) * length:
        return tokens.reshape(-1, length)
    rows = np.zeros([len(lengths), length], np.int32)
    rows[np.arange(length) < lengths[:, np.newaxis]] = tokens
    return rows
