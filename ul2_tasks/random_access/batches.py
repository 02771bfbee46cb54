"""From elements' numbers to their rows.

numbers   -> Numbering.slots    corpus, epoch and slot of each example
          -> Order.ranges       denoiser and tokens
          -> read_batch         the tokens, and a key of the noise of each example
          -> write_batch        inputs and targets, in the rows of their elements
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ul2_tasks.aligned import zeros_for_tensors
from ul2_tasks.compiled import compiled
from ul2_tasks.denoising.write import example_sizes, longest_examples, recipe_of, write_examples, write_segments
from ul2_tasks.example_features import EXAMPLE, IMAGES, LOSS_MASK, NO_TASK, SPAN_ID, TASK_ID, TEXT, token_features
from ul2_tasks.random_access.corpora import Member
from ul2_tasks.random_access.numbering import Numbering
from ul2_tasks.random_access.records import OrderedRecords, RecordMember, features_of, has_images, images_of
from ul2_tasks.random_access.tasks import task_ids


class Batch(NamedTuple):
    """What the m examples of some elements are made of.

    `places` say, ascending, of which element each example is, `members` the number of its task among those of `members_of`, `keys`,
    uint64, its noise, and `starts` and `stops` its chunk among the tokens, [tokens] int32.

    An example of a record is made already. `starts` and `stops` are then its first feature of tokens, and `later_starts` and
    `later_stops`, [m] int64, its second, if there is one. `groups`, [tokens] uint8, are loss groups. Where there are no such
    examples, these three are empty. `images`, encoded, are those of one example after the other; `image_counts`, [m] int64, say how
    many each has.
    """

    places: np.ndarray
    members: np.ndarray
    keys: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    tokens: np.ndarray
    later_starts: np.ndarray = np.zeros([0], np.int64)
    later_stops: np.ndarray = np.zeros([0], np.int64)
    groups: np.ndarray = np.zeros([0], np.uint8)
    images: np.ndarray = np.zeros([0], object)
    image_counts: np.ndarray = np.zeros([0], np.int64)


Task = Member | RecordMember


def no_batch() -> Batch:
    """That of no elements."""
    none = np.zeros([0], np.int64)
    return Batch(none, none, none.astype(np.uint64), none, none, none.astype(np.int32))


def members_of(numbering: Numbering) -> list[Task]:
    """The tasks of all corpora."""
    return [member for corpus in numbering.corpora for member in corpus.members]


def widest(members: Sequence[Task]) -> dict[str, int | None]:
    """The longest features of tokens of these tasks, in tokens; None where records have them."""
    longest = [
        {} if isinstance(member, RecordMember) else {key: getattr(member.solution.full, key) for key in EXAMPLE}
        for member in members
    ]
    return {key: max(each[key] for each in longest) if all(longest) else None for key in token_features(features_of(members))}


def read_batch(numbering: Numbering, numbers: np.ndarray) -> Batch:
    """Reads the tokens of elements, [n] integers."""
    found = numbering.slots(numbers)
    members, starts, stops, later_starts, later_stops = (np.zeros_like(found.slots) for _ in range(5))
    keys = np.zeros(len(members), np.uint64)
    tokens: list[np.ndarray] = [np.zeros([0], np.int32)]
    groups: list[np.ndarray] = [np.zeros([0], np.uint8)]
    with_records = has_records(numbering)
    images: list[list[bytes]] = [[]] * len(members) if with_records else []
    firsts = np.cumsum([0, *(len(corpus.members) for corpus in numbering.corpora)])
    for number in [0] if len(numbering.corpora) == 1 else np.unique(found.corpora).tolist():
        corpus, of_corpus = numbering.corpora[number], np.flatnonzero(found.corpora == number)
        epochs, slots = found.epochs[of_corpus], found.slots[of_corpus]
        before = sum(map(len, tokens))
        if isinstance(corpus, OrderedRecords):
            kinds, made = corpus.read(epochs, slots)
            corpus.fetch_ahead(epochs, slots)
            members[of_corpus] = kinds + firsts[number]
            bounds = (starts, stops), (later_starts, later_stops)
            for key, (first, last) in zip(token_features(corpus.members[0].features), bounds):
                last[of_corpus] = np.cumsum(made.lengths[key]) + sum(map(len, tokens))
                first[of_corpus] = last[of_corpus] - made.lengths[key]
                tokens.append(made.values[key])
            of_tokens = sum(map(len, tokens)) - before
            of_groups = np.zeros([of_tokens], np.uint8) if SPAN_ID not in made.values else made.values[SPAN_ID]
            groups += [np.zeros([of_tokens - len(of_groups)], np.uint8), of_groups]  # of the last feature of tokens
            for place, own in zip(of_corpus.tolist(), images_of(made)):
                images[place] = own
            continue
        ranges = corpus.ranges(epochs, slots)
        members[of_corpus] = ranges.kinds + firsts[number]
        keys[of_corpus] = corpus.order.noise_keys(epochs, slots)
        stops[of_corpus] = np.cumsum(ranges.sizes) + before
        starts[of_corpus] = stops[of_corpus] - ranges.sizes
        tokens.append(corpus.read(ranges.starts, ranges.stops))
        corpus.fetch_ahead(epochs, slots)
        if with_records:
            groups.append(np.zeros([len(tokens[-1])], np.uint8))
    joined = Batch(found.places, members, keys, starts, stops, tokens[1] if len(tokens) == 2 else np.concatenate(tokens))
    if not with_records:
        return joined
    return joined._replace(
        later_starts=later_starts,
        later_stops=later_stops,
        groups=np.concatenate(groups),
        images=np.array(list(itertools.chain.from_iterable(images)), object),
        image_counts=np.array(list(map(len, images)), np.int64),
    )


def has_records(numbering: Numbering) -> bool:
    """Whether some examples are those of records."""
    return any(isinstance(corpus, OrderedRecords) for corpus in numbering.corpora)


def write_batch(
    batch: Batch, members: Sequence[Task], lengths: Mapping[str, int | None], pack: bool, with_task_id: bool = False
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Makes the examples of a batch.

    `lengths` are those of the rows, {"inputs": int, "targets": int}; None is as long as is needed, and a row without room for what
    is written there raises a ValueError. With `pack` the examples of an element share a row; else each has its own. Gives
    {"inputs": [rows, length] int32, "targets": [rows, length] int32}, or other features, see `features_of`, padded with 0; packed
    rows have `<feature>_segment_ids` and `<feature>_positions` of each feature of tokens, too, see
    `converters.encoder_decoder.pack_rows`. `with_task_id` adds "task_id", of each target the index of its task, see `tasks`, and -1
    in the padding. Then gives {"inputs": [m] int64, "targets": [m] int64}, how many tokens each has.
    """
    count, spec = len(batch.members), features_of(members)
    of_tokens = token_features(spec)
    held = np.flatnonzero(np.bincount(batch.members)).tolist()
    of_members = [(np.flatnonzero(batch.members == number), members[number]) for number in held]
    longest = np.zeros([count, len(of_tokens)], np.int64)
    for of_member, member in of_members:
        of_each = (batch.stops - batch.starts)[of_member]
        if isinstance(member, RecordMember):
            longest[of_member] = np.stack([last - first for first, last in _bounds(batch, of_member, of_tokens)], axis=1)
        elif pack:
            one_each = of_each.astype(np.int32), np.arange(len(of_each) + 1)
            longest[of_member] = example_sizes(recipe_of(member.solution), *one_each, batch.keys[of_member])
        else:
            longest[of_member] = longest_examples(member.solution)[of_each]
    if pack:
        rows = batch.places - batch.places[:1]
        before = np.cumsum(longest, axis=0) - longest
        places = before - before[np.searchsorted(rows, rows)]
    else:
        rows, places = np.arange(count), np.zeros_like(longest)
    needed = (places + longest).max(axis=0, initial=0).tolist()
    room: dict[str, int] = {}
    for key, most in zip(of_tokens, needed):
        length = lengths[key]
        room[key] = most if length is None else length
    if any(most > room[key] for most, key in zip(needed, of_tokens)):
        raise ValueError(
            f"examples of {needed[0]} input and {needed[1]} target tokens do not fit packed sequences of {room['inputs']} and"
            f" {room['targets']}. Raise the lengths, or lower chunk_tokens."
        )

    height = int(rows[-1]) + 1 if count else 0
    arrays = {key: zeros_for_tensors(3 if pack else 1, (height, room[key])) for key in of_tokens}
    written = {key: each[0] for key, each in arrays.items()}
    sizes, groups = longest.copy(), None
    if SPAN_ID in spec:
        groups = np.zeros([height, room[spec[SPAN_ID].per_token_of]], np.uint8)
    for of_member, member in of_members:
        if isinstance(member, RecordMember):
            for number, (key, (starts, stops)) in enumerate(zip(of_tokens, _bounds(batch, of_member, of_tokens))):
                at = starts, stops, rows[of_member], places[of_member, number]
                copy_ranges(batch.tokens, *at, written[key])
                if SPAN_ID in member.features and spec[SPAN_ID].per_token_of == key:
                    copy_ranges(batch.groups, *at, groups)
        else:
            starts, of_each = batch.starts[of_member], (batch.stops - batch.starts)[of_member].astype(np.int32)
            chunks = starts, of_each, np.arange(len(starts) + 1), *(each[of_member] for each in (batch.keys, rows, places))
            sizes[of_member] = write_examples(recipe_of(member.solution), batch.tokens, *chunks, *written.values())
        if groups is not None and SPAN_ID not in getattr(member, "features", EXAMPLE):
            fill_ranges(TEXT, rows[of_member], places[of_member, -1], sizes[of_member, -1], groups)
    if with_task_id:
        written[TASK_ID] = np.full([height, room[of_tokens[-1]]], NO_TASK, np.int32)
        for number, (of_member, _) in zip(np.array(task_ids(members))[held].tolist(), of_members):
            fill_ranges(number, rows[of_member], places[of_member, -1], sizes[of_member, -1], written[TASK_ID])
    if pack:
        of_row = np.arange(count) - np.searchsorted(rows, rows) + 1
        for number, key in enumerate(of_tokens):
            _, segment_ids, positions = arrays[key]
            write_segments(rows, places[:, number], sizes[:, number], of_row, segment_ids, positions)
            written |= {f"{key}_segment_ids": segment_ids, f"{key}_positions": positions}
    if groups is not None:
        written |= {LOSS_MASK: (groups > 0).view(np.uint8), SPAN_ID: groups}
    of_each = dict(zip(of_tokens, sizes.T))
    if has_images(members):
        written[IMAGES] = np.full([height, batch.image_counts.max(initial=0)], b"", object)
        written[IMAGES][np.arange(written[IMAGES].shape[1]) < batch.image_counts[:, np.newaxis]] = batch.images
        of_each[IMAGES] = batch.image_counts
    return written, of_each


def _bounds(batch: Batch, of: np.ndarray, of_tokens: Sequence[str]) -> list[tuple[np.ndarray, np.ndarray]]:
    """The ranges of tokens of each feature of examples of records."""
    return [(batch.starts[of], batch.stops[of]), (batch.later_starts[of], batch.later_stops[of])][: len(of_tokens)]


@compiled
def copy_ranges(values, starts, stops, rows, places, written):
    """Writes the values of n ranges [start, stop) into rows, from a place of each on; all four are [n] int64."""
    for number in range(len(starts)):
        row = written[rows[number]]
        for offset in range(stops[number] - starts[number]):
            row[places[number] + offset] = values[starts[number] + offset]


@compiled
def fill_ranges(value, rows, places, sizes, written):
    """Writes a value into so many places of rows, from a place of each on; all three are [n] int64."""
    for number in range(len(rows)):
        row = written[rows[number]]
        for offset in range(sizes[number]):
            row[places[number] + offset] = value
