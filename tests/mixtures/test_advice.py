"""The advice on chunks and lengths, against visible arithmetic."""

import dataclasses
import re

import numpy as np
import pytest

import ul2_tasks
from ul2_tasks import T5GEMMA2, UL2R, SequentialDenoiser, SpanDenoiser, chunk_length
from ul2_tasks.mixtures.advice import best_chunk_tokens, best_lengths, expected_fill, lone_span

ADVICE = {"r1": 403, "r2": 467, "x1": 424, "x2": 490, "s": 282}  # what best_chunk_tokens says for T5GEMMA2 at 512/512


def test_expected_fill_is_demand_over_budget():
    toy = [
        SpanDenoiser(name="spans", mean_span_length=2, noise_density=0.2, weight=1),
        SequentialDenoiser(name="suffix", noise_density=0.75, weight=3),
    ]
    # L 20: n 4, k 2: inputs 16 + 2 + 1 = 19, targets 4 + 2 + 1 = 7. L 8: n 6: inputs 2 + 1 + 1 = 4, targets 6 + 1 + 1 = 8.
    fill = expected_fill(toy, {"inputs": 32, "targets": 16}, {"spans": 20, "suffix": 8})
    demand_inputs, demand_targets = (1 * 19 + 3 * 4) / 4 / 32, (1 * 7 + 3 * 8) / 4 / 16  # of a row, per average example
    assert fill == {"inputs": pytest.approx(demand_inputs / demand_targets), "targets": 1}


def test_the_advice_fills_both_sides():
    lengths = {"inputs": 512, "targets": 512}
    advice = best_chunk_tokens(T5GEMMA2, lengths)
    assert advice == ADVICE, "what README says"
    rows = ul2_tasks.examples(ul2_tasks.Mixture(chunk_tokens=advice), lengths, pack=True)
    filled = [np.mean([row[f"{key}_segment_ids"] > 0 for row in rows]) for key in lengths]
    assert 0.93 <= min(filled) <= min(expected_fill(T5GEMMA2, lengths, advice).values())
    # No cheap win by tiny chunks: three rows hold r1 and two of s, x1 and two of s, r2 and x2, eight examples as the weights are.
    weights = {denoiser.name: denoiser.weight / 8 for denoiser in T5GEMMA2}
    assert sum(weights[name] * tokens for name, tokens in advice.items()) > 350
    for row in (("r1", "s", "s"), ("x1", "s", "s"), ("r2", "x2")):
        chunks = [chunk_length(d, lengths, chunk_tokens=advice[name]) for name in row for d in T5GEMMA2 if d.name == name]
        assert 480 <= sum(chunk.inputs for chunk in chunks) <= 512
        assert 480 <= sum(chunk.targets for chunk in chunks) <= 512


def test_advice_leaves_two_spans_where_a_full_chunk_has_them():
    for denoisers, length, known in ((T5GEMMA2, 512, ADVICE), (UL2R, 512, None), (T5GEMMA2, 280, None)):
        lengths = {"inputs": length, "targets": length}
        advice = known or best_chunk_tokens(denoisers, lengths)
        for denoiser in denoisers:
            if isinstance(denoiser, SpanDenoiser):
                assert chunk_length(denoiser, lengths).spans >= 2
                assert chunk_length(denoiser, lengths, chunk_tokens=advice[denoiser.name]).spans >= 2


def test_a_lone_span_is_told_with_the_lengths_that_give_two():
    lengths, long = ({key: length for key in ("inputs", "targets")} for length in (128, 512))
    x1 = T5GEMMA2[2]
    _, remedy = lone_span(x1, chunk_length(x1, lengths), lengths)
    inputs, targets = map(int, re.search(r"two spans need (\d+),(\d+)", remedy).groups())
    assert chunk_length(x1, {"inputs": inputs, "targets": targets}).spans == 2
    for shorter in ({"inputs": inputs - 1, "targets": targets}, {"inputs": inputs, "targets": targets - 1}):
        assert chunk_length(x1, shorter).spans == 1
    assert "chunk_tokens of at least 317" in lone_span(x1, chunk_length(x1, long, chunk_tokens=286), long)[1]
    assert [chunk_length(x1, long, chunk_tokens=length).spans for length in (316, 317)] == [1, 2]
    uniform = dataclasses.replace(x1, placement="uniform")
    for denoiser, of in ((x1, long), (uniform, lengths), (T5GEMMA2[-1], lengths)):
        assert lone_span(denoiser, chunk_length(denoiser, of), of) is None


@pytest.mark.parametrize("denoisers", [T5GEMMA2, UL2R, T5GEMMA2[:2]], ids=["T5GEMMA2", "UL2R", "R"])
@pytest.mark.parametrize(("inputs", "targets"), [(512, 512), (2048, 512), (100, 61)])
def test_the_advised_lengths_have_as_many_tokens_and_the_highest_bound(denoisers, inputs, targets):
    advice = best_lengths(denoisers, {"inputs": inputs, "targets": targets})
    assert sum(advice.values()) == inputs + targets
    bound = min(expected_fill(denoisers, advice).values())
    for other in range(24, inputs + targets - 23, 8):
        lengths = {"inputs": other, "targets": inputs + targets - other}
        assert min(expected_fill(denoisers, lengths).values()) <= bound + 0.05
    assert best_lengths(denoisers, advice) == advice, "there is nothing better"


@pytest.mark.parametrize("question", [expected_fill, best_chunk_tokens, best_lengths])
@pytest.mark.parametrize("lengths", [{"inputs": 512}, {"inputs": 512, "targets": 2}])
def test_budgets_that_no_chunk_fits_are_named(question, lengths):
    with pytest.raises(ValueError, match="sequence_length"):
        question(T5GEMMA2, lengths)
