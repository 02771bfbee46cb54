"""Diffusion replaces tokens at the rates it says, which are spread evenly over each batch, and its loss is the published one."""

import numpy as np
import pytest

import ul2_tasks
from ul2_tasks import BlockDiffusion, CanvasDiffusion, MaskDiffusion, UniformDiffusion
from ul2_tasks.denoisers.reconstruction import invert
from ul2_tasks.random_access.numbering import Share
from ul2_tasks.random_access.sequence import read_rows
from ul2_tasks.sources.memory import MemoryDataSource
from ul2_tasks.tokenizers.special_ids import SpecialTokensRequest

VOCABULARY = ul2_tasks.default_vocabulary()
MASK = VOCABULARY.piece_id("<extra_id_0>")
OF_MASK = {"mask": "<extra_id_0>", "eps": 0.01}
LENGTHS = {"inputs": 64, "targets": 64}


def examples(denoiser, lengths=LENGTHS, **settings):
    texts = [f"{'a few words ' * (number % 23)}of text {number}" for number in range(2_000)]
    source = MemoryDataSource(lambda: texts, validation=0)
    return ul2_tasks.examples(ul2_tasks.Mixture("own", source, VOCABULARY, [denoiser], merge_examples=False), lengths, **settings)


def test_a_thousand_documents_are_masked_at_their_rates_and_come_back():
    generator, denoiser = np.random.default_rng(0), MaskDiffusion(**OF_MASK, block_length=40)
    special = SpecialTokensRequest().tokens(VOCABULARY, denoiser)
    masked, rates = [], []
    for length in generator.integers(1, 200, 1000).tolist():
        document = generator.integers(600, 3000, length)
        example = ul2_tasks.denoise(document, denoiser, int(generator.integers(1 << 62)), vocabulary=VOCABULARY)
        assert invert(example, denoiser, special).chunk.tolist() == document.tolist()
        is_masked = example["inputs"] == MASK
        np.testing.assert_allclose(example["loss_weight"], np.where(is_masked, 1 / example["t"], 0), rtol=1e-6)
        assert all(len({*example["t"][first : first + 40].tolist()}) == 1 for first in range(0, length + 1, 40))
        masked.append(is_masked)
        rates.append(example["t"])
    masked, rates = map(np.concatenate, (masked, rates))
    tenths = np.minimum((rates * 10).astype(int), 9)
    for tenth in range(10):
        of = tenths == tenth
        assert abs(masked[of].sum() - rates[of].sum()) < 4.5 * np.sqrt((rates * (1 - rates))[of].sum())
        assert of.mean() == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize("pack", [False, True])
def test_rates_cover_each_batch_evenly_on_any_hosts(pack):
    found, batch = examples(BlockDiffusion(**OF_MASK, block_length=16), pack=pack), 64
    are_alike = []
    for hosts in (1, 2, 4):
        shares = [Share(host, hosts) for host in range(hosts)]
        for step in range(20):
            numbers = np.concatenate(
                [share.numbers(np.arange(step * batch // hosts, (step + 1) * batch // hosts)) for share in shares]
            )
            rows, *_ = read_rows(found, numbers[np.argsort(numbers)])
            parts = (rows["t"] - 0.01) / 0.99
            has_two = rows["targets_segment_ids"][:, 16] == 1 if pack else rows["t"][:, 16] > 0
            for place, has_it in ((0, has_two | True), (16, has_two)):  # the first two blocks of the first text
                strata = np.floor(parts[has_it, place] * batch)
                assert len(np.unique(strata)) >= len(strata) - 1  # float32 rounds few rates to a border of strata
            are_alike += ((parts[:, 0] > 0.5) == (parts[:, 16] > 0.5))[has_two].tolist()
    assert len(are_alike) > 1_000
    assert 0.45 < np.mean(are_alike) < 0.55, "each block has a rate of its own"


def test_random_ids_are_of_text_alone_at_their_rates_and_a_canvas_is_any_block():
    generator, document = np.random.default_rng(0), np.full(300, 700)
    replaced, ids, starts = [], [], []
    for key in generator.integers(1 << 62, size=400).tolist():
        one, canvas = (ul2_tasks.denoise(document, each, key) for each in (UniformDiffusion(), CanvasDiffusion(block_length=70)))
        replaced.append((one["inputs"][:300] != 700).sum() - 300 * one["t"][0])
        ids.append(one["inputs"])
        assert one["loss_weight"].tolist() == [1] * 301
        own = np.flatnonzero(canvas["t"])
        assert len(own) == len(canvas["inputs"]) == (70 if own[0] < 280 else 21)
        assert canvas["loss_weight"].tolist() == (canvas["t"] > 0).tolist()
        assert canvas["block_ids"].tolist() == [2 * own[0] + 1 if place in own else 2 * place + 2 for place in range(301)]
        starts.append(int(own[0]))
    assert abs(np.mean(replaced)) < 4.5 * np.sqrt(300 / 6 / 400)  # the mean of t (1 - t) is 1/6
    found = np.concatenate(ids)
    assert all(VOCABULARY.is_ordinary(id) for id in {*found.tolist()} - {VOCABULARY.eos_id})
    assert len({*found.tolist()}) > 3_500
    assert {*starts} == {0, 70, 140, 210, 280}
    assert min(map(starts.count, {*starts})) > 50  # of 80 on average


def test_weights_of_tokens_and_of_rates_are_multiplied():
    settings = {"vocabulary": VOCABULARY, "denoisers": [MaskDiffusion(**OF_MASK)], "merge_examples": False}
    source = MemoryDataSource(lambda: [f"{'a few words ' * 9} of text {number}" for number in range(300)], validation=0)
    one, other = (
        ul2_tasks.examples(ul2_tasks.Mixture("own", source, **settings, repeated_ngrams=repeats), LENGTHS)[:40]
        for repeats in (None, ul2_tasks.RepeatedNgrams(3, 2))
    )
    without, kept = (np.concatenate([each["loss_weight"] for each in of]) for of in (one, other))
    assert all(np.array_equal(each["inputs"], again["inputs"]) for each, again in zip(one, other))
    assert 0 < np.count_nonzero(kept) < 0.7 * np.count_nonzero(without)
    np.testing.assert_array_equal(kept[kept > 0], without[kept > 0])


@pytest.mark.parametrize(("argument", "value"), [("eps", 0), ("block_length", 0), ("targets_end_in_eos", 1)])
def test_what_is_wrong_is_said(argument, value):
    with pytest.raises(ValueError, match=f"{argument} must be"):
        MaskDiffusion(**{argument: value})
