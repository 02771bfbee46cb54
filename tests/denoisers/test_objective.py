"""The objective alone: ids in, inputs and targets out, in the tokenizer's own ids, whatever SeqIO has them as."""

import numpy as np
import pytest
import tokenizers

from tests.support import DENOISERS, byte_vocabulary
from ul2_tasks import T5GEMMA2, CausalDenoiser, HuggingFaceVocabulary, SpanDenoiser, denoise
from ul2_tasks.denoisers.reconstruction import invert
from ul2_tasks.tokenizers.special_ids import as_vocabulary, special_tokens

BYTES, MODES = byte_vocabulary()
IDS = np.random.default_rng(0).integers(3, 259, 300)
WORDS = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"w{id}": id for id in range(50)} | {"</s>": 50}, unk_token="w0"))
WORDS.add_special_tokens(["</s>"])
SHIFTED = HuggingFaceVocabulary(WORDS, eos="</s>")  # in which the tokenizer's id 0 is a word


@pytest.mark.parametrize("denoiser", [*DENOISERS, CausalDenoiser(mode="[X]")], ids=lambda each: each.name)
def test_it_is_lossless_and_a_key_gives_the_same_again(denoiser):
    special = special_tokens(as_vocabulary(BYTES), denoiser.mode, modes=MODES)
    for length in (1, 2, 300):
        made = denoise(IDS[:length], denoiser, 7, vocabulary=BYTES, modes=MODES)
        assert invert(made, denoiser, special).chunk.tolist() == IDS[:length].tolist()
        for key in (np.int64(7), np.uint8(7), 7 + 2**64, 7 - 2**64):
            again = denoise(IDS[:length].tolist(), denoiser, key, vocabulary=BYTES, modes=MODES)
            assert all(np.array_equal(made[name], again[name]) for name in made)
    if denoiser.mode == "[R]":
        other = denoise(IDS, denoiser, 8, vocabulary=BYTES, modes=MODES)
        assert other["targets"].tolist() != made["targets"].tolist()


def test_ids_are_the_tokenizers_own():
    made = denoise(range(50), T5GEMMA2[1], vocabulary=SHIFTED)
    inputs, targets = made["inputs"].tolist(), made["targets"].tolist()
    assert inputs[0] > 50 < targets[0], "the mode, and the first sentinel"
    assert inputs[-1] == targets[-1] == 50
    assert sorted(id for id in [*inputs, *targets] if id < 50) == list(range(50))


@pytest.mark.parametrize(
    ("ids", "denoiser", "key", "named"),
    [
        ([], T5GEMMA2[0], 0, "ids"),
        ([[5]], T5GEMMA2[0], 0, "ids"),
        ([5.0], T5GEMMA2[0], 0, "ids"),
        ([5, 0], T5GEMMA2[0], 0, r"ids .* got \[0\]"),
        ([5, 10**6], T5GEMMA2[0], 0, "ids"),
        ([5], T5GEMMA2[0], 0.5, "key"),
        ([5] * 5000, T5GEMMA2[0], 0, "sentinels"),
        ([5], SpanDenoiser(name="q", mean_span_length=3, noise_density=0.15, mode="[Q]"), 0, r"mode '\[Q\]'"),
    ],
)
def test_what_cannot_be_masked_is_named(ids, denoiser, key, named):
    with pytest.raises(ValueError, match=named):
        denoise(ids, denoiser, key, vocabulary=BYTES, modes=MODES)
