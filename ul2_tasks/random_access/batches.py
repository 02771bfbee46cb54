"""From elements' numbers to their rows.

numbers   -> Numbering.slots    corpus, epoch and slot of each example
          -> Order.ranges       denoiser and units
          -> Kind.read          its tokens, and how long the example is
          -> Made.write         inputs and targets, in the rows of their elements
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from ul2_tasks.aligned import zeros_for_tensors
from ul2_tasks.denoisers.write import write_segments
from ul2_tasks.example_features import (
    IMAGES,
    LOSS_MASK,
    LOSS_WEIGHT,
    NO_TASK,
    RATE,
    RATES,
    SPAN_ID,
    TASK_ID,
    Feature,
    token_features,
)
from ul2_tasks.random_access.corpora import Made, OrderedCorpus
from ul2_tasks.random_access.kinds import Task, fill_ranges
from ul2_tasks.random_access.numbering import Slots
from ul2_tasks.random_access.tasks import task_ids


class Batch(NamedTuple):
    """The rows of some elements, see `make_batch`; of each of their m examples how long its features of tokens are, [m] int64, and
    which of `members_of` it is of, [m] int64."""

    rows: dict[str, np.ndarray]
    sizes: dict[str, np.ndarray]
    members: np.ndarray


class Mixed(Protocol):
    """What elements are of: a `Numbering`, or a stretch of a stream. They are packed rows where `packed` is not empty."""

    @property
    def corpora(self) -> Sequence[OrderedCorpus]: ...
    @property
    def packed(self) -> Sequence[object]: ...


def members_of(numbering: Mixed) -> list[Task]:
    """The tasks of all corpora."""
    return [member for corpus in numbering.corpora for member in corpus.members]


def has_images(members: Sequence[Task]) -> bool:
    """Whether some examples of members have images."""
    return any(member.has_images for member in members)


def features_of(members: Sequence[Task]) -> Mapping[str, Feature]:
    """The features of the examples of members: with masks and weights where one of them has some."""
    forms = {tuple(token_features(member.features)) for member in members}
    found = {key: feature for member in members for key, feature in member.features.items()}
    if len(forms) > 1 or {SPAN_ID, RATE} <= found.keys():
        what = f"features of tokens, got {sorted(forms)}" if len(forms) > 1 else "marks, got conversations and diffusion"
        raise ValueError(f"the tasks of a mixture must have the same {what}. Mix tasks of one form.")
    return found


def widest(members: Sequence[Task]) -> dict[str, int | None]:
    """The longest features of tokens of these tasks, in tokens; None where one does not know its own."""
    longest = [member.longest for member in members]
    return {key: max(each[key] for each in longest) if all(longest) else None for key in token_features(features_of(members))}


def room_of(numbering: Mixed, lengths: Mapping[str, int | None]) -> Mapping[str, int | None]:
    """The lengths of arrays for elements of a stage with these: of packed rows these, else those of the longest examples."""
    if numbering.packed:
        return lengths
    return widest([each for corpus in numbering.corpora if corpus.lengths in (None, lengths) for each in corpus.members])


def make_batch(
    numbering: Mixed,
    found: Slots,
    lengths: Mapping[str, int | None],
    with_task_id: bool = False,
) -> Batch:
    """Makes the examples of slots, whose places are their elements.

    `lengths` are those of the rows, {"inputs": int, "targets": int}; None is as long as is needed, and a row without room for what
    is written there raises a ValueError. Each example has a row, or where elements are packed rows those of an element share it.
    Gives {"inputs": [rows, length] int32, "targets": [rows, length] int32}, or other features, see `features_of`, padded with 0;
    packed rows have `<feature>_segment_ids` and `<feature>_positions` of each feature of tokens, too, see
    `converters.arrays.model_arrays`. `with_task_id` adds "task_id", of each target the index of its task, see `tasks`, and -1
    in the padding. Id 0 can also be a token: what is padding say the sizes, and in packed rows the segment ids.
    """
    members, pack = members_of(numbering), bool(numbering.packed)
    of_members, spec, count = np.zeros_like(found.slots), features_of(members), len(found.slots)
    of_row = np.arange(count) - np.searchsorted(found.places, found.places)
    of_tokens = token_features(spec)
    sizes = np.zeros([count, len(of_tokens)], np.int64)
    parts: list[tuple[np.ndarray, Made]] = []
    firsts = np.cumsum([0, *(len(corpus.members) for corpus in numbering.corpora)])
    for number in np.unique(found.corpora).tolist():
        of = np.flatnonzero(found.corpora == number)
        kinds, made = numbering.corpora[number].read(found.epochs[of], found.slots[of], found.indices[of], of_row[of])
        of_members[of], sizes[of] = kinds + firsts[number], made.sizes
        parts.append((of, made))
    if pack:
        rows = found.places - found.places[:1]
        before = np.cumsum(sizes, axis=0) - sizes
        places = before - before[np.searchsorted(rows, rows)]
    else:
        rows, places = np.arange(count), np.zeros_like(sizes)
    needed = dict(zip(of_tokens, (places + sizes).max(axis=0, initial=0).tolist()))
    room = {key: needed[key] if (given := lengths[key]) is None else given for key in of_tokens}
    if any(needed[key] > room[key] for key in of_tokens):
        raise ValueError(f"examples of {needed} tokens do not fit sequences of {room}. Raise the lengths, or lower chunk_tokens.")

    height = int(rows[-1]) + 1 if count else 0
    arrays = {key: zeros_for_tensors(3 if pack else 1, (height, room[key])) for key in of_tokens}
    written = {key: each[0] for key, each in arrays.items()}
    if SPAN_ID in spec:
        written[SPAN_ID] = np.zeros([height, room[spec[SPAN_ID].per_token_of]], np.uint8)
    written |= {key: np.zeros([height, room["targets"]], of.dtype) for key, of in RATES.items() if key in spec}
    if LOSS_WEIGHT in spec:  # 1 where a kind has none
        fill_ranges(1, rows, places[:, -1], sizes[:, -1], written[LOSS_WEIGHT])
    for of, made in parts:
        made.write(rows[of], places[of], written)
    if SPAN_ID in spec:
        written |= {LOSS_MASK: (written[SPAN_ID] > 0).view(np.uint8), SPAN_ID: written.pop(SPAN_ID)}
    if with_task_id:
        written[TASK_ID] = np.full([height, room[of_tokens[-1]]], NO_TASK, np.int32)
        numbers_of_tasks = np.array(task_ids(members))[of_members]
        for number in np.unique(numbers_of_tasks).tolist():
            of = np.flatnonzero(numbers_of_tasks == number)
            fill_ranges(number, rows[of], places[of, -1], sizes[of, -1], written[TASK_ID])
    for number, key in enumerate(of_tokens):
        at = rows, places[:, number], sizes[:, number]
        if pack:
            _, segment_ids, positions = arrays[key]
            write_segments(*at, of_row + 1, segment_ids, positions)
            written |= {f"{key}_segment_ids": segment_ids, f"{key}_positions": positions}
    of_each = dict(zip(of_tokens, sizes.T))
    if has_images(members):
        images: list = [()] * count
        for of, made in parts:
            for place, own in zip(of.tolist(), made.images):
                images[place] = own
        of_each[IMAGES] = np.array(list(map(len, images)), np.int64)
        written[IMAGES] = np.full([height, of_each[IMAGES].max(initial=0)], b"", object)
        for row, own in zip(written[IMAGES], images):
            row[: len(own)] = own
    return Batch(written, of_each, of_members)
