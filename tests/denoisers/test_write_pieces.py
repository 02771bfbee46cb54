"""Examples in pieces by their keys: each text as it is alone with its key, sentinels numbered on, and what is between whole."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.images.image_support import text_keys
from tests.support import KINDS, denoiser_id
from ul2_tasks import T5GEMMA2, SequentialDenoiser
from ul2_tasks.denoisers.pieces import PieceLimits
from ul2_tasks.denoisers.write import made, recipe_of_texts
from ul2_tasks.tokenizers.special_ids import SpecialTokens

SPECIAL = SpecialTokens(sentinels=tuple(range(100, 500)), mode=(5, 6), eos=1, reserved=frozenset())
ALONE = SpecialTokens(sentinels=SPECIAL.sentinels, mode=(), eos=None, reserved=frozenset())
SEVERAL = list(dict.fromkeys(denoiser for denoiser in [T5GEMMA2[3], *KINDS] if denoiser.sentinel))  # of several texts
RUN = 10_000  # and more: the ids of runs
ROOM = 400  # tokens, of inputs and of targets
PIECES = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 40)), max_size=3).flatmap(
    lambda pairs: st.integers(0, 40).map(lambda first: [first, *itertools.chain.from_iterable(pairs)])
)
KEYS = st.integers(0, 2**64 - 1)


def tokens_of(pieces) -> list[np.ndarray]:
    return [np.arange(n, dtype=np.int32) + (RUN if number % 2 else 1000) for number, n in enumerate(pieces)]


def alone(denoiser, tokens, key) -> list[np.ndarray]:
    recipe = recipe_of_texts(denoiser, ALONE, ROOM, (False, False))
    return made(recipe, tokens, np.array([len(tokens)], np.int32), np.arange(2), np.array([key], np.uint64))[0]


def expected(limits, pieces, key) -> list[list[int]]:
    """Inputs and targets, put together of texts that are corrupted alone."""
    denoiser, keys = limits.denoiser, text_keys(key, len(pieces) // 2 + 1)
    inputs, targets, used = [*SPECIAL.mode], [], 0
    for number, tokens in enumerate(tokens_of(pieces)):
        if limits.recipe.splits_once and number == len(pieces) - 1:
            sentinel = [100] * denoiser.sentinel
            inputs, targets = [*inputs, *sentinel], [*targets, *sentinel, *tokens.tolist()]
        elif limits.recipe.splits_once or number % 2 or not len(tokens):
            inputs += tokens.tolist()
        else:
            own = [np.where((each >= 100) & (each < 500), each + used, each) for each in alone(denoiser, tokens, keys[number // 2])]
            inputs, targets = inputs + own[0].tolist(), targets + own[1].tolist()
            used += int((own[1] < 500).sum())
    return [[*inputs, 1], [*targets, 1] if limits.add_eos[1] else targets]


def written(limits, examples, keys) -> list[list[list[int]]]:
    pieces = np.concatenate(examples).astype(np.int32), np.cumsum([0, *map(len, examples)])
    tokens = np.concatenate([np.concatenate(tokens_of(each)) for each in examples])
    features, sizes = made(limits.recipe, tokens, *pieces, np.array(keys, np.uint64))
    rows = [np.split(feature, np.cumsum(own)[:-1]) for feature, own in zip(features, sizes.T)]
    return [[row.tolist() for row in pair] for pair in zip(*rows)]


@pytest.mark.parametrize("sentinel", [True, False])
@given(before=PIECES, run=st.integers(1, 5), last=st.integers(1, 9), key=KEYS)
def test_at_the_last_image_all_after_it_is_noise(sentinel, before, run, last, key):
    denoiser = SequentialDenoiser(name="s", noise_density=0.75, sentinel=sentinel)
    limits = PieceLimits("task", denoiser, "last_image", SPECIAL, (ROOM, ROOM), (True, True))
    pieces = [*before, run, last]
    assert written(limits, [pieces], [key]) == [expected(limits, pieces, key)]


@pytest.mark.parametrize("denoiser", SEVERAL, ids=denoiser_id)
@given(examples=st.lists(st.tuples(PIECES.filter(lambda pieces: any(pieces[::2])), KEYS), min_size=1, max_size=3))
def test_each_text_is_as_it_is_alone(denoiser, examples):
    limits = PieceLimits("task", denoiser, "pieces", SPECIAL, (ROOM, ROOM), (True, denoiser.targets_end_in_eos))
    pieces, keys = zip(*examples)
    assert written(limits, pieces, keys) == [expected(limits, *each) for each in examples]
