"""The laws of masks: lossless, exact, sentinels in order, and for the same keys the same bytes of machine code and of the graph.

`tests/denoisers/test_spans.py` has their distribution.
"""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import DENOISERS, denoiser_id
from ul2_tasks import BlockDiffusion, CausalDenoiser, FIMDenoiser, MaskDiffusion, SequentialDenoiser, SpanDenoiser, UniformDiffusion
from ul2_tasks.denoisers.reconstruction import invert
from ul2_tasks.denoisers.write import made, recipe
from ul2_tasks.tasks.preprocessors import corrupt_chunks
from ul2_tasks.tokenizers.special_ids import SpecialTokens

SENTINELS, EOS = tuple(range(100, 900)), 1
BORDERS = bytes([*np.random.default_rng(0).choice(8, 3000, p=[0.3, *[0.1] * 7])])  # of each id
KEYS = st.integers(0, 2**64 - 1)
DENSITIES = st.floats(0.01, 0.99)
ANY = st.one_of(
    st.builds(
        SpanDenoiser,
        name=st.just("spans"),
        mean_span_length=st.floats(1, 20),
        noise_density=DENSITIES,
        placement=st.sampled_from(["t5", "uniform", "touching"]),
        targets=st.sampled_from([None, "whole"]),
        mask=st.sampled_from([None, "<mask>"]),
        borders=st.sampled_from([None, "words"]),
    ),
    st.builds(
        SequentialDenoiser,
        name=st.just("suffix"),
        noise_density=DENSITIES,
        split=st.sampled_from(["fixed", "uniform"]),
        sentinel=st.booleans(),
    ),
    st.just(CausalDenoiser(mode=None)),
    st.builds(MaskDiffusion, block_length=st.sampled_from([None, 7])),
    st.builds(BlockDiffusion, targets_end_in_eos=st.booleans()),
    st.just(UniformDiffusion()),
    st.builds(
        FIMDenoiser,
        tokens=st.sampled_from(["qwen", "codellama"]),
        rate=st.sampled_from([0.5, 1]),
        loss=st.sampled_from(["all", "middle"]),
        keep_first=st.integers(0, 3),
    ),
)


def check(denoiser, lengths, keys, mode=(), eos=EOS, add_eos=(True, True)) -> None:
    """The laws of chunks of these lengths, with these keys."""
    sentinels, borders = SENTINELS[: len(denoiser.own_tokens) or None], BORDERS if denoiser.borders else b""
    special = SpecialTokens(sentinels, tuple(mode), eos, frozenset(), borders, text_ids=np.array([2000, 2001], np.int32).tobytes())
    lengths, keys = np.array(lengths, np.int32), np.array(keys, np.uint64)
    chunks = [np.arange(1000, 1000 + length, dtype=np.int32) for length in lengths]
    common = {"denoiser": denoiser, "special": special, "length": int(lengths.max()), "add_eos": add_eos}
    written, sizes = made(recipe(**common), np.concatenate(chunks), lengths, np.arange(len(lengths) + 1), keys)
    graph = corrupt_chunks(tf.RaggedTensor.from_row_lengths(np.concatenate(chunks), lengths), tf.constant(keys), **common)
    for key, values, own in zip(("inputs", "targets"), written, sizes.T):
        np.testing.assert_array_equal(graph[key].flat_values, values)
        np.testing.assert_array_equal(graph[key].row_lengths(), own)

    if add_eos == (True, True):
        rows = zip(*(np.split(values, np.cumsum(own)[:-1]) for values, own in zip(written, sizes.T)))
        for chunk, (inputs, targets) in zip(chunks, rows):
            found = invert({"inputs": inputs, "targets": targets}, denoiser, special)  # refuses sentinels out of order
            np.testing.assert_array_equal(found.chunk, chunk)
            fewest, most = denoiser.noise_range(len(chunk))
            assert fewest <= found.is_noise.sum() <= most
            assert len(found.spans) == denoiser.noise_counts(len(chunk))[1]


@pytest.mark.parametrize("denoiser", [*DENOISERS, pytest.param(CausalDenoiser(), id="causal")], ids=denoiser_id)
def test_of_every_denoiser(denoiser):
    generator = np.random.default_rng(0)
    for length in (1, 2, 13, 100, 731):
        lengths = [length] * 5 + generator.integers(1, length + 1, 15).tolist()
        check(denoiser, lengths, generator.integers(0, 2**64, len(lengths), dtype=np.uint64), mode=(5, 6))


@settings(deadline=None)
@given(denoiser=ANY, chunks=st.lists(st.tuples(st.integers(1, 60), KEYS), min_size=1, max_size=8))
def test_of_any_denoiser(denoiser, chunks):
    check(denoiser, *zip(*chunks))


@settings(deadline=None, max_examples=20)
@given(
    denoiser=ANY,
    chunks=st.lists(st.tuples(st.integers(1, 60), KEYS), min_size=1, max_size=3),
    mode=st.sampled_from([(), (5,), (5, 6)]),
    add_eos=st.tuples(st.booleans(), st.booleans()),
    eos=st.sampled_from([EOS, None]),
)
def test_with_any_mode_and_ends(denoiser, chunks, mode, add_eos, eos):
    check(denoiser, *zip(*chunks), mode=mode, add_eos=add_eos, eos=eos)
