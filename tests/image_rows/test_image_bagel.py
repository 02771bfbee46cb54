"""`bagel_batch`: a row as BAGEL's packer yields it. Compared with its own code, images and all, they were equal bit for bit."""

import numpy as np
import pytest

from tests.image_sources import FORM, SIZES, edits, ids, made, source, talks

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from ul2_tasks import ImageTextDataset  # noqa: E402
from ul2_tasks.image_rows.batch import bagel_batch  # noqa: E402
from ul2_tasks.image_rows.dropout import Dropout  # noqa: E402
from ul2_tasks.images.pixels import pixels, resized  # noqa: E402

pytestmark = pytest.mark.torch

BUDGETS = {"tokens": 900, "vit": 400, "vae": 600}


def row_of(records, schema, **settings) -> dict:
    of = source(records, schema, dropout=Dropout(text=0, vit=0, clean=0))
    return next(iter(ImageTextDataset(of, FORM, ids, BUDGETS, num_epochs=1, **settings)))


def test_it_has_whole_images_and_names_of_modes():
    record = edits(1)[0]
    row = row_of([record], "unified_edit")
    batch = bagel_batch(row, 900).to_dict()
    length = batch["sequence_length"]
    assert batch["sample_lens"] == [length, 900 - length]
    assert sum(batch["split_lens"]) == sum(batch["sample_lens"]) == 900
    assert batch["attn_modes"] == ["full", "full", "causal", "noise", "causal"]
    assert batch["packed_text_ids"] is row["packed_text_ids"]
    before, after = (pixels(image) for image in record["image_list"])
    sizes = [SIZES.vae.fit(image.shape[1], image.shape[0]) for image in (before, after)]
    assert batch["patchified_vae_latent_shapes"] == [(height // 8, width // 8) for width, height in sizes]
    assert batch["padded_images"].shape == (2, 3, max(height for _, height in sizes), max(width for width, _ in sizes))
    for found, image, (width, height) in zip(batch["padded_images"], (before, after), sizes):
        shown = torch.from_numpy(resized(image, width, height) / np.float32(255)).permute(2, 0, 1)
        torch.testing.assert_close(found[:, :height, :width], (shown - 0.5) / 0.5)
        assert not found[:, height:].any()
        assert not found[:, :, width:].any()
    assert batch["packed_vit_tokens"].shape == row["packed_vit_patches"].shape
    assert batch["packed_vit_tokens"].abs().max() <= 1
    for refused, most, named in ((row_of(made(3), "t2i_pretrain"), None, "ViT patches"), (row, 20, "at most 20 tokens")):
        with pytest.raises(ValueError, match=f"row must have .*{named}"):
            bagel_batch(refused, most)


# The arguments of its model's `forward`, but for `nested_attention_masks`, which rows for FlexAttention do not have.
FORWARD = """
sequence_length packed_text_ids packed_text_indexes sample_lens packed_position_ids split_lens attn_modes ce_loss_indexes
packed_label_ids mse_loss_indexes packed_timesteps padded_latent packed_vit_tokens packed_vit_token_indexes
packed_vit_position_ids vit_token_seqlens patchified_vae_latent_shapes packed_latent_position_ids packed_vae_token_indexes
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_its_loop_takes_batches_as_they_are(workers):
    """The lines of its loop that touch a batch (Bagel @ 056b5fd, train/pretrain_unified_navit.py)."""
    of = source(edits(6), "unified_edit", name="edits, line 2.jsonl")
    dataset = ImageTextDataset(of, FORM, ids, BUDGETS, num_epochs=1, required_modalities=("vit", "vae"))
    loader = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=workers, collate_fn=bagel_batch)
    data_status, seen = {}, []
    for data in loader:
        data = data.cuda("meta").to_dict()
        data_indexes = data.pop("batch_data_indexes", None)
        ce_loss_weights = data.pop("ce_loss_weights", None)
        data["padded_latent"] = data.pop("padded_images")
        assert data.keys() == set(FORWARD.split())
        tensors = [ce_loss_weights, *(value for value in data.values() if isinstance(value, torch.Tensor))]
        assert {tensor.device.type for tensor in tensors} == {"meta"}
        assert len(ce_loss_weights) == len(data["ce_loss_indexes"])
        for item in data_indexes:
            data_status.setdefault(item["dataset_name"], {})[item["worker_id"]] = item["data_indexes"]
            seen.append(item["data_indexes"])
    assert sorted(seen) == [f"record {number}, epoch 0" for number in range(6)]
    assert data_status.keys() == {"edits, line 2.jsonl"}


def losses_of_bagel(batch, reweighting):
    """Its two losses of one process, as its model and its trainer compute them, line by line (Bagel @ 056b5fd)."""
    hidden = torch.ones(batch["sequence_length"], 4, requires_grad=True)
    head, to_latents = torch.nn.Linear(4, 512), torch.nn.Linear(4, 6)
    target = torch.randn(len(batch["packed_timesteps"]), 6)
    has_mse = torch.sigmoid(batch["packed_timesteps"]) > 0
    mse = (to_latents(hidden[batch["mse_loss_indexes"]]) - target[has_mse]) ** 2
    mse = mse.mean(dim=-1).sum() / torch.tensor(len(batch["mse_loss_indexes"]))
    ce = torch.nn.functional.cross_entropy(head(hidden[batch["ce_loss_indexes"]]), batch["packed_label_ids"], reduction="none")
    if reweighting:
        ce = (ce * batch["ce_loss_weights"]).sum() / batch["ce_loss_weights"].sum()
    else:
        ce = ce.sum() / torch.tensor(len(batch["ce_loss_indexes"]))
    (ce + mse).backward()
    return ce.item(), mse.item(), hidden.grad


@pytest.mark.parametrize("reweighting", [False, True])
@pytest.mark.parametrize(
    ("records", "schema", "learned"),
    [(made(2), "t2i_pretrain", "mse"), (edits(2), "unified_edit", "mse"), (talks(2), "vlm_sft", "ce")],
    ids=["t2i", "edits", "conversations"],
)
def test_bagels_own_losses_are_numbers_where_a_row_has_one_of_them(records, schema, learned, reweighting):
    """Divided by no place they would be NaN. What is not learned gives 0, and moves nothing."""
    row = row_of(records, schema, required_modalities=("vit", "vae"))
    ce, mse, gradient = losses_of_bagel(bagel_batch(row).to_dict(), reweighting)
    assert (ce > 0, mse > 0) == (learned == "ce", learned == "mse")
    assert (ce + mse) < float("inf")
    moved = set(gradient.abs().sum(dim=1).nonzero().ravel().tolist())
    assert moved == set(row["ce_loss_indexes"].tolist()) | set(row["mse_loss_indexes"].tolist())
    assert (row["ce_tokens"], row["mse_tokens"]) == (len(row["ce_loss_indexes"]), len(row["mse_loss_indexes"]))
