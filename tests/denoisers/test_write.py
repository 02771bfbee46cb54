"""Examples by their keys: the same wherever they are written. `tests/laws/test_law_of_masks.py` has what they are."""

import dataclasses

import numpy as np
import pytest

from tests.support import denoiser_id
from ul2_tasks import T5GEMMA2, UL2, SpanDenoiser
from ul2_tasks.denoisers.denoisers import Denoiser
from ul2_tasks.denoisers.write import example_sizes, recipe, write_examples
from ul2_tasks.order.order import noise_keys
from ul2_tasks.tokenizers.special_ids import SpecialTokens

SPECIAL = SpecialTokens(sentinels=tuple(range(100, 500)), mode=(5, 6), eos=1, reserved=frozenset())


def recipe_of(denoiser, length):
    return recipe(denoiser, SPECIAL, length, (True, True))


def chunks_of(lengths, width, seed=0):
    rows = len(lengths)
    tokens = np.random.default_rng(seed).integers(1000, 30000, [rows, width]).astype(np.int32)
    tokens[np.arange(width) >= lengths[:, np.newaxis]] = 0
    return tokens, lengths.astype(np.int32), noise_keys(seed, np.zeros(rows, np.int64), np.arange(rows))


def written(made_of, room, tokens, lengths, keys, starts=None):
    """Each example in a row of its own, and the sizes."""
    rows = np.arange(len(lengths))
    starts = np.zeros([len(rows), 2], np.int64) if starts is None else starts
    features = [np.full([len(rows), length], -1, np.int32) for length in room]
    first = rows * tokens.shape[1]
    chunks = first, lengths, np.arange(len(lengths) + 1), keys
    sizes = write_examples(made_of, tokens.ravel(), *chunks, rows, starts, *features)
    assert example_sizes(made_of, *chunks[1:]).tolist() == sizes.tolist()
    return features, sizes


@pytest.mark.parametrize("denoiser", [T5GEMMA2[0], UL2[2]], ids=denoiser_id)
def test_an_example_is_the_same_at_any_place_of_any_row_and_writes_nothing_beside(denoiser):
    made_of, count, room = recipe_of(denoiser, 40), 30, np.array(denoiser.example_lengths(40, len(SPECIAL.mode)))
    chunks = chunks_of(np.random.default_rng(2).integers(1, 41, count), 40)
    alone, sizes = written(made_of, room, *chunks)
    starts = np.random.default_rng(3).integers(0, 20, [count, 2])
    moved, sizes_moved = written(made_of, room + 20, *chunks, starts)
    np.testing.assert_array_equal(sizes, sizes_moved)
    for before, after, own_starts, own_sizes in zip(alone, moved, starts.T, sizes.T):
        for here, there, start, size in zip(before, after, own_starts, own_sizes):
            np.testing.assert_array_equal(there[start : start + size], here[:size])
            assert (np.delete(there, np.arange(start, start + size)) == -1).all()


def test_a_chunk_that_a_reader_sees():
    denoiser = SpanDenoiser(name="toy", mean_span_length=2, noise_density=0.5)
    chunk = np.arange(11, 19, dtype=np.int32)[np.newaxis]
    (inputs, targets), sizes = written(recipe_of(denoiser, 8), [9, 7], chunk, np.array([8], np.int32), np.array([1], np.uint64))
    assert inputs[0, : sizes[0, 0]].tolist() == [5, 6, 11, 12, 100, 15, 16, 101, 1]
    assert targets[0, : sizes[0, 1]].tolist() == [100, 13, 14, 101, 17, 18, 1]


@dataclasses.dataclass(frozen=True, kw_only=True)
class WrongDenoiser(Denoiser):
    """It says of a chunk of five tokens what cannot be."""

    name: str = "wrong"
    mode: str | None = None
    weight: float = 1
    spans: int
    fewest: int
    most: int
    placement = "t5"

    def noise_counts(self, length):
        return (self.fewest, self.spans) if length == 5 else (1, 1)

    def noise_range(self, length):
        return (self.fewest, self.most) if length == 5 else (1, 1)


@pytest.mark.parametrize(("spans", "fewest", "most"), [(3, 3, 3), (2, 1, 2), (0, 1, 1), (1, 0, 1), (1, 2, 1), (1, 1, 6), (2, 2, 4)])
def test_a_denoiser_that_says_what_cannot_be_is_refused(spans, fewest, most):
    denoiser = WrongDenoiser(spans=spans, fewest=fewest, most=most)
    with pytest.raises(ValueError, match="noise_counts"):
        recipe_of(denoiser, 9)
