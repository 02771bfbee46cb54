"""What records in pieces make under several denoisers, found in loops: what each denoiser says of a record alone."""

import collections
import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ul2_tasks import T5GEMMA2, UL2R, SequentialDenoiser, SpanDenoiser
from ul2_tasks.denoising import piece_examples
from ul2_tasks.denoising.joined_pieces import cut
from ul2_tasks.denoising.lengths import chunk_length
from ul2_tasks.denoising.piece_lengths import CAUSES, NO_TEXT, PieceLimits, longest
from ul2_tasks.vocabulary.special_ids import SpecialTokens

SPECIAL = SpecialTokens(sentinels=tuple(range(100, 106)), mode=(5,), eos=1, reserved=frozenset())
PREFIX = SequentialDenoiser(name="prefix", noise_density=0.5, sentinel=False)
SHORT = SpanDenoiser(name="short", mean_span_length=1, noise_density=0.3, placement="uniform")
WHOLE = {
    "pieces": ((T5GEMMA2[0], T5GEMMA2[3], T5GEMMA2[4]), "pieces"),
    "last image": ((T5GEMMA2[1], T5GEMMA2[4]), "last_image"),
    "before the last image": ((T5GEMMA2[4],), "before_last_image"),
    "no sentinel": ((SHORT, PREFIX, UL2R[3]), "pieces"),
}
CUT = {
    "all": T5GEMMA2,
    "short spans": (SHORT, T5GEMMA2[4]),
    "drawn": (SequentialDenoiser(name="s", noise_density=0.4, split="uniform"),),
}
RECORDS = st.lists(
    st.lists(st.tuples(st.integers(1, 30), st.integers(0, 60)), max_size=4).flatmap(
        lambda pairs: st.integers(0, 60).map(lambda first: [first, *itertools.chain.from_iterable(pairs)])
    ),
    min_size=1,
    max_size=6,
)


def limits_of(denoisers, split="pieces", are_cut=False, lengths=(44, 40)) -> list[PieceLimits]:
    return [PieceLimits(each.name, each, split, SPECIAL, lengths, (True, True), are_cut) for each in denoisers]


def arrays_of(records) -> tuple[np.ndarray, np.ndarray]:
    starts = np.cumsum([0, *map(len, records)])[:-1]
    return 4 * starts, np.concatenate([*map(np.array, records)]).astype(np.int32)


def chunks_of(record, limits) -> list[list[int]]:
    """All chunks, those without a text, too."""
    if not piece_examples.are_cut(limits):
        return [record]
    return cut(record, lambda pieces: all(each.fits(pieces) for each in limits), sum(limits[0].lengths), is_end=True)[0] or [record]


def expected(records, limits) -> tuple[list[tuple[int, list[int]]], collections.Counter]:
    """The record and the pieces of each example; and how many make none, by the number of the denoiser and the cause."""
    examples, left_out = [], collections.Counter()
    for number, record in enumerate(records):
        denoiser, problem = piece_examples.problem_of(limits, record)
        if problem.cause and problem.cause != NO_TEXT:
            left_out[denoiser, problem.cause] += 1
            continue
        for chunk in chunks_of(record, limits):
            if problem.cause or (not any(chunk[::2]) and piece_examples.are_cut(limits)):
                left_out[denoiser, NO_TEXT] += 1
            else:
                examples.append((number, chunk))
    return examples, left_out


def check(records, limits) -> None:
    rules, arrays = piece_examples.rules_of(limits), arrays_of(records)
    examples, left_out = expected(records, limits)
    found_out = np.zeros([len(limits), len(CAUSES)], np.int64)
    made, causes = np.zeros(len(records), np.int64), np.zeros(len(records), np.uint8)
    piece_examples.count_examples(rules, *arrays, 0, made, causes, found_out)
    of_records = collections.Counter(record for record, _ in examples)
    assert made.tolist() == [of_records[record] for record in range(len(records))]
    for record in np.flatnonzero(causes == piece_examples.UNKNOWN).tolist():
        denoiser, problem = piece_examples.problem_of(limits, records[record])
        found_out[denoiser, CAUSES.index(problem.cause)] += 1
    which = np.argwhere(found_out).tolist()
    assert {(denoiser, CAUSES[cause]): found_out[denoiser, cause] for denoiser, cause in which} == left_out
    firsts = np.cumsum([0, *np.add.reduceat(made, np.arange(0, len(made), piece_examples.RECORDS))])
    numbers = np.random.default_rng(0).permutation(len(examples))
    blocks = np.searchsorted(firsts, numbers, side="right") - 1
    found = piece_examples.find_examples(rules, *arrays, blocks, numbers - firsts[blocks], np.zeros(len(numbers), bool))
    held, starts = piece_examples.pieces_of(*arrays, found)
    assert [(record, held[start:stop].tolist()) for (record, *_), start, stop in zip(found.tolist(), starts, starts[1:])] == [
        examples[number] for number in numbers
    ]
    for kind, each in enumerate(limits):
        sizes = piece_examples.measure_examples(rules, *arrays, found, np.full(len(found), kind))
        assert sizes.tolist() == [
            list(longest(examples[number][1], each.denoiser, each.split, 1, (True, True))[:2]) for number in numbers
        ]


@pytest.mark.parametrize("name", WHOLE)
@given(records=RECORDS)
def test_a_record_is_an_example_of_each_denoiser_or_of_none(name, records):
    denoisers, split = WHOLE[name]
    check(records, limits_of(denoisers, split))


@pytest.mark.parametrize("name", CUT)
@given(records=RECORDS)
def test_a_record_is_cut_into_the_longest_chunks_that_fit_each_denoiser(name, records):
    check(records, limits_of(CUT[name], are_cut=True))


def test_where_one_denoiser_takes_records_whole_all_do():
    limits = [*limits_of(T5GEMMA2[:2], are_cut=True), *limits_of([PREFIX])]
    check([[100], [9], [3, 4, 0], [3, 4, 5]], limits)


@pytest.mark.parametrize("are_cut", [True, False])
def test_many_records_are_found_by_the_number_of_examples_before_each_few(are_cut):
    rng = np.random.default_rng(1)
    records = [[int(rng.integers(0, 50)), int(rng.integers(1, 35)), int(rng.integers(0, 50))] for _ in range(1500)]
    check(records, limits_of(T5GEMMA2, are_cut=are_cut))


def test_text_alone_is_cut_into_chunks_of_the_shortest_length():
    limits = limits_of(T5GEMMA2, are_cut=True)
    shortest = min(chunk_length(each, {"inputs": 44, "targets": 40}).length for each in T5GEMMA2)
    examples, _ = expected([[1000]], limits)
    assert [pieces for _, pieces in examples] == [[shortest]] * (1000 // shortest) + [[1000 % shortest]]


def test_an_eos_that_a_vocabulary_has_not_is_not_measured():
    limits = limits_of(T5GEMMA2[:1])
    without = [dataclasses.replace(limits[0], special=dataclasses.replace(SPECIAL, eos=None))]
    found, kinds = np.array([[0, 0, 20]]), np.array([0])
    one, other = (
        piece_examples.measure_examples(piece_examples.rules_of(each), *arrays_of([[20]]), found, kinds)
        for each in (limits, without)
    )
    assert (one - other).tolist() == [[1, 1]]
