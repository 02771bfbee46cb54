"""Spans begin and end where words, lines and sentences do, as the text tells it; and their counts stay exact (see the laws)."""

import re

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

import ul2_tasks
from ul2_tasks import SpanDenoiser
from ul2_tasks.denoisers.reconstruction import invert
from ul2_tasks.tokenizers.special_ids import SpecialTokensRequest

TEXT = "".join(
    f'Chapter {number} begins.\n\n"Who goes there?" she {"very " * (number % 4)}asked; nobody answered.\n    What now!  Nothing.\n'
    for number in range(60)
)
# Where one ends, of which | is the end.
OF_TEXT = {"words": r"\s\||\|\s", "lines": r"\n\s*\|", "sentences": r"([.?!]\"?|\n)\s*\|"}


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory):
    """A vocabulary as those of GPT-2, Llama 3 and Qwen are."""
    path = tmp_path_factory.mktemp("byte_level") / "tokenizer.json"
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("Ġ", "a"), ("e", "r"), ("i", "n"), ("Ċ", "Ċ"), (".", "Ċ")]
    pieces = [*letters, *("".join(pair) for pair in merges)]
    tokenizer = Tokenizer(models.BPE({piece: id for id, piece in enumerate(pieces)}, merges))
    tokenizer.pre_tokenizer, tokenizer.decoder = (
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        decoders.ByteLevel(),
    )
    tokenizer.add_special_tokens(["</s>"])
    tokenizer.save(str(path))
    (path.parent / "tokenizer_config.json").write_text('{"eos_token": "</s>"}')
    return ul2_tasks.open_vocabulary(str(path.parent))


@pytest.mark.parametrize(("borders", "cut"), [("words", 0), ("lines", 1), ("sentences", 1)])
@pytest.mark.parametrize("placement", ["t5", "uniform"])
def test_spans_end_at_borders_of_the_text_but_for_one_that_makes_the_count_exact(byte_level, borders, cut, placement):
    denoiser = SpanDenoiser(name="r", mean_span_length=60, noise_density=0.3, placement=placement, borders=borders)
    special = SpecialTokensRequest().tokens(byte_level, denoiser)
    ids, cuts = byte_level.encode(TEXT)[:3000], []
    for key in range(20):
        found = invert(ul2_tasks.denoise(ids, denoiser, key, vocabulary=byte_level), denoiser, special)
        assert (found.is_noise.sum(), len(found.spans)) == denoiser.noise_counts(len(ids))
        ends = np.flatnonzero(np.diff(found.is_noise)) + 1
        texts = [byte_level.decode(ids[:end]) + "|" + byte_level.decode(ids[end:]) for end in ends.tolist()]
        cuts.append(sum(not re.search(OF_TEXT[borders], text) for text in texts))
    assert sum(cuts) <= cut * 20


def test_what_is_wrong_is_said():
    with pytest.raises(ValueError, match="borders must be"):
        SpanDenoiser(name="r", mean_span_length=3, noise_density=0.15, borders="chapters")
