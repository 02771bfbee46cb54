"""Texts between runs: each has the noise of its own length, and the runs are whole."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from image_support import MODES, SENTINELS, VOCABULARY
from support import DENOISERS, KINDS, denoiser_id, restore

from ul2_tasks.denoising.denoisers import T5GEMMA2
from ul2_tasks.denoising.piece_lengths import longest
from ul2_tasks.denoising.pieces import corrupt_pieces
from ul2_tasks.vocabulary.special_ids import special_tokens

RUN = 1000  # and more: the ids of runs

WITH_SENTINELS = list(dict.fromkeys(denoiser for denoiser in [*T5GEMMA2, *KINDS] if denoiser.sentinel))


def example_of(texts: list[int], runs: list[int], denoiser, split: str = "pieces", seed: int = 0):
    """The tokens of texts and runs of these lengths, the lengths in turn, and what is made of them."""
    pieces = [texts[0], *itertools.chain.from_iterable(zip(runs, texts[1:]))]
    tokens = np.concatenate([np.arange(n) + (RUN if number % 2 else 3) for number, n in enumerate(pieces)]).astype(np.int32)
    special = special_tokens(VOCABULARY, denoiser.mode, SENTINELS, MODES)
    made = corrupt_pieces(
        tf.constant(tokens),
        tf.constant(pieces, tf.int32),
        tf.constant([0, seed], tf.int64),
        denoiser=denoiser,
        split=split,
        special=special,
        max_length=max(texts),
        add_eos=(True, True),
    )
    return tokens.tolist(), pieces, special, {key: value.numpy().tolist() for key, value in made.items()}


@pytest.mark.parametrize("denoiser", WITH_SENTINELS, ids=denoiser_id)
@pytest.mark.parametrize("texts", [[40], [0, 30, 0], [1, 2, 17, 0, 60]], ids=str)
def test_each_text_has_the_noise_of_its_length_and_runs_are_whole(denoiser, texts):
    runs = [4] * (len(texts) - 1)
    tokens, pieces, special, made = example_of(texts, runs, denoiser)
    assert restore(made, denoiser, special) == tokens, "nothing is lost, and the sentinels ascend"
    inputs, targets = made["inputs"][len(special.mode) : -1], np.array(made["targets"][:-1])
    assert max(targets) < RUN
    spans = np.split(targets, np.flatnonzero(np.isin(targets, SENTINELS)))[1:]
    kept = cut_at_runs(inputs, runs)
    for length, piece in zip(texts, kept):
        used = [id for id in piece if id in SENTINELS]
        noise = sum(len(span) - 1 for span in spans if span[0] in used)
        fewest, most = denoiser.noise_range(length) if length else (0, 0)
        assert len(used) == (denoiser.noise_counts(length)[1] if length else 0)
        assert fewest <= noise <= most
        assert len(piece) == length - noise + len(used)
    bound = longest(pieces, denoiser, "pieces", len(special.mode), (True, True))
    assert len(made["inputs"]) <= bound.inputs
    assert len(targets) + 1 <= bound.targets
    assert len(spans) == bound.sentinels


def cut_at_runs(inputs: list[int], runs: list[int]) -> list[list[int]]:
    """The texts between whole runs."""
    texts, rest = [], inputs
    for length in runs:
        start = rest.index(RUN)
        assert rest[start : start + length] == list(range(RUN, RUN + length))
        texts.append(rest[:start])
        rest = rest[start + length :]
    return [*texts, rest]


@settings(max_examples=10)
@given(st.integers(0, 9), st.integers(1, 30), st.booleans())
def test_at_the_last_image_all_before_is_kept_and_all_after_is_noise(first, last, sentinel):
    denoiser = next(each for each in DENOISERS if each.single_span and each.sentinel == sentinel)
    tokens, pieces, special, made = example_of([first, 5, last], [3, 4], denoiser, split="last_image")
    mark = list(SENTINELS[:1]) if sentinel else []
    assert made["inputs"] == [*special.mode, *tokens[:-last], *mark, 1]
    assert made["targets"] == [*mark, *tokens[-last:], 1]
    assert longest(pieces, denoiser, "last_image", 1, (True, True))[:2] == (len(made["inputs"]), len(made["targets"]))
