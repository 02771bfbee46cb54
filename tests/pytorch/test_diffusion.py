"""Rows of diffusion: what attends to what, and the loss of published implementations."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")
import torch

import ul2_tasks
from tests.denoisers.test_diffusion import LENGTHS, MASK, OF_MASK, examples
from tests.recipes.recipe import imported
from ul2_tasks import BlockDiffusion, CanvasDiffusion, DiffusionConverter, ExamplesCollator, MaskDiffusion, packed_attention_masks

pytestmark = pytest.mark.torch
KINDS = [(MaskDiffusion(**OF_MASK), False), (BlockDiffusion(**OF_MASK, block_length=16), True)]


def batch_of(denoiser, clean, count=8):
    found = examples(denoiser, pack=True)
    return ExamplesCollator(DiffusionConverter(clean), found)(found[:count])


@pytest.mark.parametrize(("denoiser", "clean"), KINDS)
def test_no_place_attends_to_another_text_or_to_a_later_block(denoiser, clean):
    torch.manual_seed(0)
    batch = batch_of(denoiser, clean, 1)
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0, batch_first=True)
    model, embedding = torch.nn.TransformerEncoder(layer, 2).eval(), torch.nn.Embedding(4096, 16)
    mask = packed_attention_masks(batch)["decoder"][0, 0]
    segments, blocks, positions = (batch[key][0].tolist() for key in ("segment_ids", "block_ids", "position_ids"))
    length, half = len(segments), LENGTHS["inputs"]

    def outputs(ids):
        with torch.no_grad():
            return model(embedding(ids)[None], mask=~mask)[0]

    before = outputs(batch["input_ids"][0])
    for changed in range(0, length, 3):
        ids = batch["input_ids"][0].clone()
        ids[changed] = (ids[changed] + 1) % 4096
        for place in (outputs(ids) - before).abs().amax(dim=1).gt(1e-6).nonzero()[:, 0].tolist():
            assert segments[place] == segments[changed]
            if clean and segments[place]:  # block-causal: clean ones may be seen by later blocks, noised ones by their own alone
                own, other = positions[place] // 16, positions[changed] // 16
                assert (other == own and place < half) if changed < half else (other < own or (other == own and place >= half))
    if clean:  # BD3-LM's mask of one text is block diagonal, offset block causal, and block causal
        at = [place for place, segment in enumerate(segments) if segment == 1]
        is_clean, block = np.array(at) >= half, np.array([positions[place] // 16 for place in at])
        q, k = block[:, None], block[None]
        diagonal = (q == k) & (is_clean[:, None] == is_clean[None])
        published = diagonal | ((q > k) & is_clean[None] & ~is_clean[:, None]) | ((q >= k) & is_clean[None] & is_clean[:, None])
        np.testing.assert_array_equal(mask[at][:, at].numpy(), published)
    assert len({*blocks}) > 2 or not clean


@pytest.mark.parametrize("framework", ["torch", "jax"])
@pytest.mark.parametrize(("denoiser", "clean"), KINDS)
def test_the_loss_of_the_recipe_is_the_published_one(denoiser, clean, framework):
    """LLaDA's: over masked tokens the sum of CE / p_mask, by tokens. BD3-LM's: the mean over tokens of 1 / t times -log p, where
    unmasked tokens, which are carried over, have 0; logits are of the noised half."""
    for package in ("transformers", *(("jax", "optax") if framework == "jax" else ())):
        pytest.importorskip(package, reason=f"{package} is not installed")
    recipe, batch = imported("diffusion"), batch_of(denoiser, clean)
    logits = torch.randn(*batch["input_ids"].shape, 4096, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    half = LENGTHS["inputs"]
    found = examples(denoiser, pack=True)
    noisy, clean_ids, t = (
        torch.stack([torch.from_numpy(row[key].copy()) for row in found[:8]]) for key in ("inputs", "targets", "t")
    )
    log_p = logits[:, :half].log_softmax(-1).gather(-1, clean_ids.long()[..., None])[..., 0]
    is_masked, is_token = noisy == MASK, t > 0
    by_llada = (-log_p[is_masked] / t[is_masked]).sum() / is_token.sum()
    by_bd3 = (torch.where(is_masked, -log_p, 0.0) / torch.where(is_token, t, 1.0))[is_token].mean()
    if framework == "jax":
        loss = recipe.loss_in_jax(logits.float().numpy(), {key: values.numpy() for key, values in batch.items()})
    else:
        loss = recipe.loss_in_torch(logits, batch)
    for published in (by_llada, by_bd3):
        assert float(loss) == pytest.approx(published.item(), rel=1e-6)


@pytest.mark.parametrize("clean", [False, True])
def test_a_canvas_attends_to_itself_and_to_what_is_clean_before_it(clean):
    batch = (
        batch_of(CanvasDiffusion(block_length=16, clean_weight=0.5), True, 4)
        if clean
        else batch_of(CanvasDiffusion(block_length=16), False, 4)
    )
    mask = packed_attention_masks(batch)["decoder"][:, 0]
    for row in range(4):
        ids, labels, weights, t, positions, segments, _ = (batch[key][row].numpy() for key in batch)
        is_canvas = t > 0
        same = segments[:, None] == segments[None]
        before = positions[None] < positions[:, None]
        for segment in range(1, segments.max() + 1):
            own = np.flatnonzero((segments == segment) & is_canvas)
            clean_of = np.flatnonzero((segments == segment) & ~is_canvas)
            first = positions[own].min()
            expected = {*own.tolist(), *clean_of[positions[clean_of] < first].tolist()}
            for place in own:
                assert {*np.flatnonzero(mask[row, place]).tolist()} == expected
                assert weights[place] == 1
            prefix = clean_of[positions[clean_of] < first]
            assert (
                mask[row][prefix]
                == torch.from_numpy((same & ~is_canvas[None] & (before | (positions[None] == positions[:, None])))[prefix])
            ).all()
            if clean:  # each token but the first has one loss: that of the canvas, or from the place before it
                text = clean_of
                following = {int(positions[place]) + 1: labels[place] for place in text if weights[place] == 0.5}
                of_canvas = {int(positions[place]): labels[place] for place in own}
                both = following | of_canvas
                assert not following.keys() & of_canvas.keys()
                assert [both.get(place, ids[text[0]]) for place in range(len(text))] == ids[text].tolist()


def test_what_does_not_fit_is_refused():
    mixed = ul2_tasks.Mixture("mixed", denoisers=[MaskDiffusion(**OF_MASK), ul2_tasks.T5GEMMA2[0]], merge_examples=False)
    read = {"sequence_length": LENGTHS, "rank": 0, "world_size": 1}
    with pytest.raises(ValueError, match="examples must be of diffusion denoisers"):
        next(iter(ul2_tasks.UL2IterableDataset(mixed, **read, feature_converter=DiffusionConverter())))
    with pytest.raises(ValueError, match="feature_converter must be a DiffusionConverter"):
        ul2_tasks.UL2IterableDataset(mixed, **read, feature_converter=ul2_tasks.HuggingFaceFeatureConverter(pack=True))


def test_seqio_gives_the_same_rows():
    seqio = pytest.importorskip("seqio", reason="seqio is not installed")
    name = ul2_tasks.register("noised", denoisers=[KINDS[1][0]], merge_examples=False)
    found = ul2_tasks.examples(name, LENGTHS, pack=True)
    rows = ExamplesCollator(DiffusionConverter(True), found)(found[:5])
    settings = {"dataset_split": "train", "shuffle": True, "seed": 0}
    read = seqio.get_dataset(name, LENGTHS, feature_converter=ul2_tasks.seqio_converter(DiffusionConverter(True)), **settings)
    for number, row in enumerate(read.take(5).as_numpy_iterator()):
        assert all(np.array_equal(rows[key][number], row[key]) for key in rows)


def test_a_model_of_packed_rows_takes_no_diffusion_as_causal():
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=4096, **sizes))
    with pytest.raises(ValueError, match="a batch of a DiffusionConverter must come as"):
        ul2_tasks.accept_packed_sequences(model)(**batch_of(*KINDS[0], 1))
