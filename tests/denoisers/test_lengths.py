"""The solver against brute force, against t5's, and in its errors."""

import itertools

import numpy as np
import pytest
from t5.data.preprocessors import random_spans_helper

from tests.support import SEQUENTIAL, denoiser_id
from ul2_tasks import T5GEMMA2, UL2, SequentialDenoiser, SpanDenoiser, chunk_length
from ul2_tasks.denoisers.lengths import Chunk

GRID = [16, 17, 24, 31, 48, 64, 100, 128, 255, 256, 512, 777, 1024, 2048, 4095, 4096]


def formulas(denoiser, length):
    """n, k and the longest inputs (without the mode) and targets, written out as DESIGN has them."""
    n = max(1, min(length - 1, round(length * denoiser.noise_density)))
    fewest = most = n
    if isinstance(denoiser, SequentialDenoiser):
        k, sentinels = 1, int(denoiser.sentinel)
        if denoiser.split == "uniform":
            fewest, most = n - min(n - 1, length - 1 - n), n + min(n - 1, length - 1 - n)
    else:
        k = sentinels = max(1, min(n, length - n, round(n / denoiser.mean_span_length)))
    return n, k, (length - fewest) + sentinels + 1, most + sentinels + 1


@pytest.mark.parametrize("mode_tokens", [0, 1, 4])
@pytest.mark.parametrize("denoiser", dict.fromkeys([*T5GEMMA2, *UL2, *SEQUENTIAL]), ids=denoiser_id)
def test_the_solver_finds_the_largest_chunk_that_fits_both_budgets(denoiser, mode_tokens):
    chunks = np.arange(2, 2 * max(GRID) + 1)
    n, k, inputs, targets = np.transpose([formulas(denoiser, int(length)) for length in chunks])
    inputs = inputs + mode_tokens
    for inputs_budget, targets_budget in itertools.product(GRID, GRID):
        fits = np.flatnonzero((inputs <= inputs_budget) & (targets <= targets_budget))
        budgets = {"inputs": inputs_budget, "targets": targets_budget}
        best = fits[-1]
        wanted = Chunk(*(int(values[best]) for values in (chunks, n, k, inputs, targets)))
        assert chunk_length(denoiser, budgets, mode_tokens=mode_tokens) == wanted, budgets


@pytest.mark.parametrize("denoiser", [d for d in T5GEMMA2 + UL2 if isinstance(d, SpanDenoiser)], ids=denoiser_id)
def test_it_agrees_with_t5_where_t5_applies(denoiser):
    for inputs_length in [*range(8, 300), 512, 1024, 2048, 4096]:
        t5_length, t5_targets = random_spans_helper(
            inputs_length=inputs_length,
            noise_density=denoiser.noise_density,
            mean_noise_span_length=denoiser.mean_span_length,
            extra_tokens_per_span_inputs=1,
            extra_tokens_per_span_targets=1,
        )
        ours = chunk_length(denoiser, {"inputs": inputs_length, "targets": 10**6}, mode_tokens=0)
        if round(round(t5_length * denoiser.noise_density) / denoiser.mean_span_length) == 0:
            assert t5_length >= ours.length  # difference 3: t5 counts no span, and no sentinel, where its mask makes one
        elif denoiser.noise_density == 0.5 and ours.targets > inputs_length:
            assert (t5_length, t5_targets) == (ours.length - 1, ours.targets - 1)  # difference 2
        else:
            assert (t5_length, t5_targets) == (ours.length, ours.targets)
        # difference 1: with targets no longer than inputs t5's span_corruption raises; here the chunk gets shorter.
        both = chunk_length(denoiser, {"inputs": inputs_length, "targets": max(4, inputs_length // 4)}, mode_tokens=0)
        assert both.length <= ours.length
        assert both.targets <= max(4, inputs_length // 4)


@pytest.mark.parametrize(
    "sequence_length",
    [
        None,
        {"targets": 512},
        {"inputs": 512.0, "targets": 512},
        {"inputs": 3, "targets": 512},
        {"inputs": 512, "targets": 2},
    ],
)
def test_bad_budgets_are_named(sequence_length):
    with pytest.raises(ValueError, match="sequence_length"):
        chunk_length(T5GEMMA2[0], sequence_length)


def test_too_few_sentinels_say_the_cap_that_works():
    """And one token more does not."""
    budgets = {"inputs": 8192, "targets": 8192}
    with pytest.raises(ValueError, match="455 sentinels") as error:
        chunk_length(T5GEMMA2[0], budgets, num_sentinels=100)
    cap = int(str(error.value).split("chunk_tokens=")[1].split()[0])
    assert chunk_length(T5GEMMA2[0], budgets, num_sentinels=100, chunk_tokens=cap).spans == 100
    with pytest.raises(ValueError, match="101 sentinels"):
        chunk_length(T5GEMMA2[0], budgets, num_sentinels=100, chunk_tokens=cap + 1)
    assert chunk_length(T5GEMMA2[0], budgets, num_sentinels=455).spans == 455


def test_no_sentinel_is_needed_without_one():
    plain = SequentialDenoiser(name="s", noise_density=0.75, sentinel=False)
    assert chunk_length(plain, {"inputs": 64, "targets": 64}, num_sentinels=0).targets == 64
    with pytest.raises(ValueError, match="1 sentinels"):
        chunk_length(T5GEMMA2[-1], {"inputs": 64, "targets": 64}, num_sentinels=0)
