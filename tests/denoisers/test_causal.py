"""Causal language modelling: windows of the stream, exact to the token, alone and mixed with the other denoisers."""

import numpy as np
import pytest
import seqio

import ul2_tasks
from tests.support import byte_vocabulary, denoise, flat
from ul2_tasks import CausalDenoiser
from ul2_tasks.sources.memory import texts_in_memory

VOCABULARY = byte_vocabulary()[0]
LM = 262  # the id after the three modes of byte_vocabulary
MODES = {"[C]": LM}
EOS = 1
STREAM = [[*range(11, 19)], [*range(21, 24)]]  # 8 tokens and an EOS, 3 tokens and an EOS: 13


def windows(documents, length, **settings):
    lengths = {"inputs": 4, "targets": length}
    examples = denoise(documents, lengths, CausalDenoiser(), VOCABULARY, modes=MODES, **settings)
    assert all(example["inputs"].tolist() == [LM, EOS] for example in examples), "the mode, and nothing else"
    return [example["targets"].tolist() for example in examples]


def test_windows_of_5_in_a_stream_of_13():
    stream = [11, 12, 13, 14, 15, 16, 17, 18, EOS, 21, 22, 23, EOS]
    assert windows(STREAM, 5, separate_documents=True) == [stream[0:5], stream[5:10], stream[10:13]]
    assert windows(STREAM, 5) == [[11, 12, 13, 14, 15], [16, 17, 18, 21, 22], [23]]
    assert windows(STREAM, 5, merge_examples=False) == [[11, 12, 13, 14, 15], [16, 17, 18], [21, 22, 23]]
    assert windows([[], []], 5) == []


@pytest.mark.parametrize(
    ("denoiser", "lengths", "argument"),
    [
        (CausalDenoiser(), {"inputs": 1, "targets": 5}, "sequence_length"),
        (CausalDenoiser(), {"inputs": 4}, "sequence_length"),
        (CausalDenoiser(mode="[Q]"), {"inputs": 4, "targets": 5}, "mode"),
    ],
)
def test_what_does_not_fit_is_said(denoiser, lengths, argument):
    with pytest.raises(ValueError, match=argument):
        denoise(STREAM, lengths, denoiser, VOCABULARY, modes=MODES)


def test_seqios_decoder_converter_shifts_by_one():
    """Ten letters and two EOS in windows of 6."""
    ul2_tasks.register("causal", texts_in_memory(["a" * 7, "b" * 3]), "bytes", [CausalDenoiser()], separate_documents=True)
    settings = {"feature_converter": seqio.LMFeatureConverter(pack=False), "dataset_split": "train", "shuffle": False}
    rows = list(seqio.get_dataset("causal_lm", {"targets": 6}, **settings).as_numpy_iterator())
    a, b = 100, 101  # ByT5: the byte and three
    assert sorted(flat(row["decoder_target_tokens"] for row in rows)) == sorted([a] * 7 + [b] * 3 + [EOS] * 2)
    for row in rows:
        np.testing.assert_array_equal(row["decoder_input_tokens"], [0, *row["decoder_target_tokens"][:-1]])
        np.testing.assert_array_equal(row["decoder_loss_weights"], row["decoder_target_tokens"] > 0)
