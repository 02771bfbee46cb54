"""Examples in pieces by their keys: those of the graph, bit for bit, wherever they are written."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from image_support import text_keys
from support import KINDS, denoiser_id

from ul2_tasks import T5GEMMA2, SequentialDenoiser
from ul2_tasks.denoising.piece_lengths import PieceLimits, longest
from ul2_tasks.denoising.pieces import corrupt_pieces
from ul2_tasks.denoising.write_pieces import piece_sizes, recipe_of_pieces, write_pieces
from ul2_tasks.vocabulary.special_ids import SpecialTokens

SPECIAL = SpecialTokens(sentinels=tuple(range(100, 500)), mode=(5, 6), eos=1, reserved=frozenset())
SEVERAL = list(dict.fromkeys(denoiser for denoiser in [T5GEMMA2[3], *KINDS] if denoiser.sentinel))  # of several texts
RUN = 10_000  # and more: the ids of runs
ROOM = 400  # tokens, of inputs and of targets


def limits_of(denoiser, split="pieces", lengths=(ROOM, ROOM)):
    return PieceLimits("task", denoiser, split, SPECIAL, lengths, (True, denoiser.targets_end_in_eos))


def tokens_of(pieces):
    return np.concatenate([np.arange(n) + (RUN if number % 2 else 1000) for number, n in enumerate(pieces)]).astype(np.int32)


def of_graph(limits, pieces, key):
    made = corrupt_pieces(
        tf.constant(tokens_of(pieces)),
        tf.constant(pieces, tf.int32),
        tf.constant(text_keys(key, len(pieces) // 2 + 1)),
        denoiser=limits.denoiser,
        split=limits.split,
        special=limits.special,
        max_length=sum(limits.lengths),
        add_eos=limits.add_eos,
    )
    return [made[key].numpy().tolist() for key in ("inputs", "targets")]


def written(limits, examples, keys, places=None, fill=0):
    """Each example in a row of its own, and the sizes."""
    tokens = [tokens_of(pieces) for pieces in examples]
    features = [np.full([len(examples), ROOM], fill, np.int32) for _ in range(2)]
    sizes = write_pieces(
        recipe_of_pieces(limits),
        limits.splits_once,
        np.concatenate(tokens),
        np.cumsum([0, *map(len, tokens)])[:-1],
        np.concatenate(examples).astype(np.int32),
        np.cumsum([0, *map(len, examples)]),
        np.array(keys, np.uint64),
        np.arange(len(examples)),
        np.zeros([len(examples), 2], np.int64) if places is None else places,
        *features,
    )
    of_pieces = np.concatenate(examples).astype(np.int32), np.cumsum([0, *map(len, examples)]), np.array(keys, np.uint64)
    assert piece_sizes(recipe_of_pieces(limits), limits.splits_once, *of_pieces).tolist() == sizes.tolist()
    return features, sizes


def rows(features, sizes, places=None):
    starts = np.zeros_like(sizes) if places is None else places
    return [
        [feature[row, start : start + size].tolist() for feature, start, size in zip(features, starts[row], sizes[row])]
        for row in range(len(sizes))
    ]


PIECES = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 40)), max_size=3).flatmap(
    lambda pairs: st.integers(0, 40).map(lambda first: [first, *itertools.chain.from_iterable(pairs)])
)
KEYS = st.integers(0, 2**64 - 1)


@pytest.mark.parametrize("sentinel", [True, False])
@given(before=PIECES, run=st.integers(1, 5), last=st.integers(1, 9), key=KEYS)
def test_at_the_last_image_they_are_those_of_the_graph(sentinel, before, run, last, key):
    limits = limits_of(SequentialDenoiser(name="s", noise_density=0.75, sentinel=sentinel), "last_image")
    pieces = [*before, run, last]
    (found,) = rows(*written(limits, [pieces], [key]))
    assert found == of_graph(limits, pieces, key)
    assert [len(each) for each in found] == list(longest(pieces, limits.denoiser, limits.split, 2, (True, True))[:2])


@pytest.mark.parametrize("denoiser", SEVERAL, ids=denoiser_id)
@given(examples=st.lists(st.tuples(PIECES.filter(lambda pieces: any(pieces[::2])), KEYS), min_size=1, max_size=3))
def test_they_are_those_of_the_graph(denoiser, examples):
    limits, (pieces, keys) = limits_of(denoiser), zip(*examples)
    assert rows(*written(limits, pieces, keys)) == [of_graph(limits, *each) for each in examples]
