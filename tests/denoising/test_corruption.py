"""Tokens and spans to inputs and targets: goldens that a reader sees, losslessness, sentinels."""

import numpy as np
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from ul2_tasks.denoising.corruption import corrupt_rows

EOS = 1
SENTINELS = range(100, 110)


def corrupt_row(tokens, kept, noise, mode=(), sentinels=SENTINELS, eos=((EOS,), (EOS,))):
    examples = corrupt_rows(
        tf.constant([tokens], tf.int32),
        tf.constant([kept], tf.int32),
        tf.constant([noise], tf.int32),
        sentinels=list(sentinels),
        mode=list(mode),
        eos=eos,
    )
    return examples["inputs"].to_list()[0], examples["targets"].to_list()[0]


def test_golden_of_the_design():
    """A B C D E F G H with spans [B C] [F G] and the mode [R]; the last kept run, H, is not empty."""
    a, b, c, d, e, f, g, h, mode = (*range(11, 19), 50)
    inputs, targets = corrupt_row([a, b, c, d, e, f, g, h], kept=[1, 2, 1], noise=[2, 2], mode=[mode])
    assert inputs == [mode, a, 100, d, e, 101, h, EOS]
    assert targets == [100, b, c, 101, f, g, EOS]


def test_golden_a_span_at_position_0_still_gets_its_sentinel_in_both():
    inputs, targets = corrupt_row([11, 12, 13, 14], kept=[0, 1, 0], noise=[2, 1])
    assert inputs == [100, 13, 101, EOS]
    assert targets == [100, 11, 12, 101, 14, EOS]


@st.composite
def blocks(draw):
    """Rows of different lengths with arbitrary spans, some with the first or the last kept run empty."""
    max_spans = draw(st.integers(1, 5))
    rows = []
    for _ in range(draw(st.integers(1, 5))):
        spans = draw(st.integers(0, max_spans))
        noise = draw(st.lists(st.integers(1, 4), min_size=spans, max_size=spans))
        kept = draw(st.lists(st.integers(0, 4), min_size=spans + 1, max_size=spans + 1))
        kept[1:spans] = [length + 1 for length in kept[1:spans]]
        rows.append((kept + [0] * (max_spans - spans), noise + [0] * (max_spans - spans)))
    return rows


@given(blocks(), st.integers(0, 2), st.booleans())
def test_any_block_is_lossless_row_by_row(rows, mode_tokens, with_sentinels):
    kept, noise = (np.array(part, np.int32) for part in zip(*rows))
    lengths = kept.sum(1) + noise.sum(1)
    width = max(1, lengths.max())
    tokens = np.zeros((len(rows), width), np.int32)
    for row, length in enumerate(lengths):
        tokens[row, :length] = 1000 * (row + 1) + np.arange(length)
    sentinels = list(SENTINELS) if with_sentinels else []
    examples = corrupt_rows(
        tf.constant(tokens),
        tf.constant(kept),
        tf.constant(noise),
        sentinels=sentinels,
        mode=[60] * mode_tokens,
        eos=([EOS], [EOS]),
    )
    for row in range(len(rows)):
        # Written out with Python lists: the definition, token by token.
        inputs, targets, position = [60] * mode_tokens, [], 0
        for span in range(noise.shape[1]):
            inputs += list(tokens[row, position : position + kept[row, span]])
            position += kept[row, span]
            if noise[row, span]:
                inputs += sentinels[span : span + 1]
                targets += sentinels[span : span + 1]
                targets += list(tokens[row, position : position + noise[row, span]])
                position += noise[row, span]
        inputs += list(tokens[row, position : position + kept[row, -1]])
        assert examples["inputs"][row].numpy().tolist() == [*inputs, EOS]
        assert examples["targets"][row].numpy().tolist() == [*targets, EOS]
