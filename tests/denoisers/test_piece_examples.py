"""Which records in pieces make an example under each of several denoisers: those of which each denoiser says so alone."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ul2_tasks import T5GEMMA2, UL2R, SequentialDenoiser, SpanDenoiser
from ul2_tasks.denoisers.lengths import sentinels_needed
from ul2_tasks.denoisers.pieces import CAUSES, PieceLimits, find_causes, problem_of, rules_of
from ul2_tasks.tokenizers.special_ids import SpecialTokens

SPECIAL = SpecialTokens(sentinels=tuple(range(100, 106)), mode=(5,), eos=1, reserved=frozenset())
PREFIX = SequentialDenoiser(name="prefix", noise_density=0.5, sentinel=False)
SHORT = SpanDenoiser(name="short", mean_span_length=1, noise_density=0.3, placement="uniform")
TOGETHER = {
    "pieces": ((T5GEMMA2[0], T5GEMMA2[3], T5GEMMA2[4]), "pieces"),
    "last image": ((T5GEMMA2[1], T5GEMMA2[4]), "last_image"),
    "no sentinel": ((SHORT, PREFIX, UL2R[3]), "pieces"),
}
RECORDS = st.lists(
    st.lists(st.tuples(st.integers(1, 30), st.integers(0, 60)), max_size=4).flatmap(
        lambda pairs: st.integers(0, 60).map(lambda first: [first, *itertools.chain.from_iterable(pairs)])
    ),
    min_size=1,
    max_size=6,
)


def limits_of(denoisers, split="pieces", special=SPECIAL) -> list[PieceLimits]:
    return [PieceLimits(each.name, each, split, special, (44, 40), (True, True)) for each in denoisers]


def causes_of(records, limits) -> list[tuple[int, str]]:
    starts = np.cumsum([0, *map(len, records)])[:-1]
    causes, denoisers = (np.full(len(records), 9, np.uint8) for _ in range(2))
    needed = np.zeros(len(records), np.int64)
    find_causes(rules_of(limits), 4 * starts, np.concatenate(records).astype(np.int32), 0, causes, denoisers, needed)
    return [(denoiser, CAUSES[cause]) for denoiser, cause in zip(denoisers.tolist(), causes.tolist())]


def makes_one(limits: PieceLimits, pieces) -> bool:
    """Whether the longest example of these pieces fits."""
    texts, denoiser = [length for length in pieces[::2] if length], limits.denoiser
    if limits.recipe.splits_once:
        fewest = most = pieces[-1]
        sentinels = int(denoiser.sentinel)
        right = len(pieces) > 1 and most > 0
    else:
        fewest, most = np.sum([denoiser.noise_range(length) for length in texts], axis=0, initial=0)[:2] if texts else (0, 0)
        sentinels = sum(sentinels_needed(denoiser, length) for length in texts)
        right = bool(texts) and (denoiser.sentinel or len(texts) == 1)
    inputs, targets = 1 + sum(pieces) - fewest + sentinels + 1, most + sentinels + 1
    return bool(right and sentinels <= len(SPECIAL.sentinels) and inputs <= limits.lengths[0] and targets <= limits.lengths[1])


@pytest.mark.parametrize("name", TOGETHER)
@given(records=RECORDS)
def test_a_record_is_an_example_of_each_denoiser_or_of_none(name, records):
    denoisers, split = TOGETHER[name]
    limits = limits_of(denoisers, split)
    expected = [(denoiser, problem.cause) for denoiser, problem in (problem_of(limits, record) for record in records)]
    found = causes_of(records, limits)
    assert found == expected
    for record, (denoiser, cause) in zip(records, found):
        assert all(makes_one(each, record) for each in limits[:denoiser])
        assert makes_one(limits[denoiser], record) == (not cause)


def test_a_problem_has_its_numbers():
    several = [2, 1] * 6 + [2]
    of_sentinels, of_inputs, of_none = (problem_of(limits_of(T5GEMMA2[:1]), each)[1] for each in (several, [40, 90, 0], [9]))
    assert of_sentinels.numbers == ": it needs 7, and the vocabulary has 6"
    assert of_inputs.numbers == ": up to 128 tokens with all images, 1, of 44 in sequence_length"  # mode, 34 + 90, 2 sentinels, EOS
    assert of_none == ("", "")


def test_a_text_of_any_length_is_measured():
    """Also one that is longer than both budgets together."""
    ((_, cause),) = causes_of([[100_000]], limits_of(T5GEMMA2[2:3]))
    assert cause


def test_an_eos_that_a_vocabulary_has_not_is_not_measured():
    special = [SPECIAL, dataclasses.replace(SPECIAL, eos=None)]
    for run, causes in ((11, ["", ""]), (12, ["its inputs are too long", ""])):  # 44 and 45 inputs with EOS, of 44
        assert [causes_of([[34, run, 0]], limits_of(T5GEMMA2[:1], special=each))[0][1] for each in special] == causes
