"""Each token has its weight wherever it is a target, and what repeats itself the weight 0, by the definition."""

import json

import numpy as np
import pytest

import ul2_tasks
from tests.denoisers.test_infilling import MARKS
from ul2_tasks import CausalDenoiser, FIMDenoiser, RepeatedNgrams, SpanDenoiser

FIRST, LENGTHS = 600, {"inputs": 64, "targets": 64}  # ids from there on are of text
DENOISERS = (
    *ul2_tasks.T5GEMMA2,
    CausalDenoiser(),
    FIMDenoiser(tokens=MARKS, loss="middle"),
    SpanDenoiser(name="whole", mean_span_length=3, noise_density=0.3, targets="whole", borders="words"),
)


def weight_of(ids):
    return np.float32(np.asarray(ids) % 7 / 4)


def documents(count=300):
    generator = np.random.default_rng(0)
    return [generator.integers(FIRST, 3000, length) for length in generator.integers(1, 90, count)]


def in_records(folder, **settings):
    """The weights are beside the ids, which end with EOS; where all are the same there is one."""
    eos = ul2_tasks.default_vocabulary().eos_id
    with open(folder / "ids.jsonl", "w") as file:
        for ids in documents():
            weights = weight_of(ids).tolist()
            one = weights[0] if len({*weights}) == 1 else [*weights, 9]
            file.write(json.dumps({"ids": [*ids.tolist(), eos], "weights": one}) + "\n")
    return ul2_tasks.Mixture(
        folder.name, str(folder / "ids.jsonl"), denoisers=DENOISERS, text_key="ids", loss_weight_key="weights", **settings
    )


def in_files(folder, dtype="<f4", **settings):
    """Those of others' files of tokens, of which each has one of weights."""
    eos = ul2_tasks.default_vocabulary().eos_id
    for number in range(3):
        ids = np.concatenate([[*each, eos] for each in documents()[number::3]])
        np.save(folder / f"ids_{number}.npy", ids.astype(np.uint16))
        np.save(folder / f"mask_{number}.npy", weight_of(ids).astype(dtype))
    source = ul2_tasks.open_source(f"flat:{folder}/ids_*.npy", eod=eos, loss_weight_key=f"{folder}/mask_*.npy")
    return ul2_tasks.Mixture("files", source, denoisers=DENOISERS, **settings)


def of_examples(mixture, folder, **settings):
    for each in ul2_tasks.examples(mixture, LENGTHS, **settings):
        yield each["targets"], each["loss_weight"]


def of_cache(mixture, folder):
    mixture.cache(folder)
    return of_examples(mixture, folder, cache_dirs=[folder])


def of_t5x(mixture, folder):
    seqio = pytest.importorskip("seqio")
    converter = ul2_tasks.EncDecFeatureConverter(pack=True)
    name = ul2_tasks.register(mixture)
    for row in seqio.get_dataset(name, LENGTHS, feature_converter=converter, num_epochs=1, seed=0).as_numpy_iterator():
        yield row["decoder_target_tokens"], row["decoder_loss_weights"]


def of_torch(mixture, folder):
    converter = ul2_tasks.HuggingFaceFeatureConverter(loss_weight=True, decoder_only=True)
    for row in ul2_tasks.UL2IterableDataset(mixture, LENGTHS, feature_converter=converter, num_epochs=1):
        yield row["labels"].numpy(), row["loss_weight"].numpy()


@pytest.mark.parametrize("read", [of_examples, of_cache, of_t5x, pytest.param(of_torch, marks=pytest.mark.torch)])
@pytest.mark.parametrize("settings", [{"merge_examples": False}, {"separate_documents": True}])
def test_each_target_has_the_weight_of_its_token(read, settings, tmp_path):
    found = [*read(in_records(tmp_path, **settings), tmp_path)]
    assert sum(len(ids) for ids, _ in found) > 5000
    for ids, weights in found:
        is_text = ids >= FIRST
        np.testing.assert_array_equal(weights[is_text], weight_of(ids[is_text]))
        assert weights.dtype == np.float32


@pytest.mark.parametrize("settings", [{"merge_examples": False}, {"separate_documents": True}])
@pytest.mark.parametrize("dtype", ["<f4", "bool"])
def test_each_file_of_tokens_may_have_one_of_weights(dtype, settings, tmp_path):
    mixture = in_files(tmp_path, dtype, **settings)
    for pack in (False, True):
        for ids, weights in of_examples(mixture, tmp_path, pack=pack):
            is_text = ids >= FIRST
            np.testing.assert_array_equal(weights[is_text], weight_of(ids[is_text]).astype(dtype).astype(np.float32))


def test_sentinels_have_the_weight_of_what_follows_and_an_end_that_of_what_is_before(tmp_path):
    for ids, weights in of_examples(in_records(tmp_path, merge_examples=False), tmp_path):
        own = ids >= FIRST
        if own.any():
            following = np.minimum(np.searchsorted(np.flatnonzero(own), np.arange(len(ids))), own.sum() - 1)
            np.testing.assert_array_equal(weights, weight_of(ids[own])[following])


def test_repeated_ngrams_of_a_thousand_documents(tmp_path):
    """A token is left out if it is in `times` n-grams that follow each other and are the same."""
    generator, repeats = np.random.default_rng(1), RepeatedNgrams(3, 4)
    given = [generator.integers(FIRST, FIRST + 2, length).tolist() for length in generator.integers(1, 60, 1000)]
    (tmp_path / "ids.jsonl").write_text("".join(json.dumps({"ids": ids}) + "\n" for ids in given))
    mixture = ul2_tasks.Mixture(
        *("repeats", str(tmp_path / "ids.jsonl"), "default", CausalDenoiser()),
        **{"text_key": "ids", "repeated_ngrams": repeats, "merge_examples": False},
    )
    left_out = 0
    for example in ul2_tasks.examples(mixture, {"inputs": 8, "targets": 64}, shuffle=False):
        ids, expected = example["targets"], np.ones(len(example["targets"]), np.float32)
        for size in range(1, repeats.n + 1):
            for start in range(len(ids) - size * repeats.times + 1):
                stop = start + size * repeats.times
                if (ids[start + size : stop] == ids[start : stop - size]).all():
                    expected[start:stop] = 0
        np.testing.assert_array_equal(example["loss_weight"], expected)
        left_out += int((expected == 0).sum())
    assert left_out > 1000


@pytest.mark.torch
def test_a_trainer_multiplies_the_loss_of_each_label_by_its_weight(tmp_path):
    """Over all microbatches of a step; a model that knows nothing has the same loss for each label."""
    torch = pytest.importorskip("torch")
    logits, groups = torch.randn(2, 5, 9), ul2_tasks.TokenGroups.of_tasks(ul2_tasks.examples("ul2_mix", LENGTHS).tasks, {})
    labels, ids, weights = torch.randint(9, (2, 5)), torch.zeros(2, 5, dtype=torch.int64), torch.rand(2, 5)
    losses = ul2_tasks.GroupLosses(groups)
    counts = sum(losses.counts(ids[row : row + 1], weights[row : row + 1]) for row in range(2))
    parts = [
        losses.loss(*(each[row : row + 1] for each in (logits, labels, ids)), counts, weights[row : row + 1]) for row in range(2)
    ]
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none") * weights.flatten()
    torch.testing.assert_close(sum(parts), expected.sum() / weights.sum())


@pytest.mark.parametrize(
    ("weights", "error"),
    [([1.0], "one for each of 2 ids"), ([1, -1], "at least 0"), ("a", "at least 0"), ([1, float("nan")], "at least 0")],
)
def test_what_is_wrong_is_said(weights, error, tmp_path):
    (tmp_path / "ids.jsonl").write_text(json.dumps({"ids": [FIRST, FIRST], "weights": weights}))
    mixture = ul2_tasks.Mixture("wrong", str(tmp_path / "ids.jsonl"), text_key="ids", loss_weight_key="weights")
    with pytest.raises(ValueError, match=error):
        ul2_tasks.examples(mixture, LENGTHS)
    with pytest.raises(ValueError, match="times must be"):
        RepeatedNgrams(1, 1)


@pytest.mark.torch
def test_rows_of_transformers_have_weights_only_where_asked(tmp_path):
    rows = ul2_tasks.UL2IterableDataset(
        in_records(tmp_path), LENGTHS, feature_converter=ul2_tasks.HuggingFaceFeatureConverter(), num_epochs=1
    )
    with pytest.raises(ValueError, match="loss_weight must be True"):
        list(rows)
