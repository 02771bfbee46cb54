"""`bagel_batch`: a row as BAGEL's packer yields it. Compared with its own code, pictures and all, they were equal bit for bit."""

import numpy as np
import pytest
from picture_sources import FORM, SIZES, edits, ids, made, source

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from ul2_tasks import PictureRowsDataset  # noqa: E402
from ul2_tasks.images.dropout import Dropout  # noqa: E402
from ul2_tasks.images.pictures import pixels, resized  # noqa: E402
from ul2_tasks.pytorch.bagel import bagel_batch  # noqa: E402

BUDGETS = {"tokens": 900, "vit": 400, "vae": 600}


def row_of(records, plan, **settings) -> dict:
    of = source(records, plan, dropout=Dropout(text=0, vit=0, clean=0))
    return next(iter(PictureRowsDataset(of, FORM, ids, BUDGETS, num_epochs=1, **settings)))


def test_it_has_whole_pictures_and_names_of_modes():
    record = edits(1)[0]
    row = row_of([record], "unified_edit")
    batch = bagel_batch(row, 900)
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


def test_without_padding_and_with_dummies():
    row = row_of(made(3), "t2i_pretrain", always=("vit", "vae"))
    batch = bagel_batch(row)
    assert batch["sample_lens"] == row["sample_lens"].tolist()
    assert batch["packed_vit_tokens"].tolist() == [[-1.0] * 108]


def test_what_its_model_fails_with_is_refused():
    with pytest.raises(ValueError, match=r"the row lacks pictures of a kind; give PictureRowsDataset always="):
        bagel_batch(row_of(made(3), "t2i_pretrain"))
    with pytest.raises(ValueError, match=r"the row has \d+ places, expected at most 20"):
        bagel_batch(row_of(edits(1), "unified_edit"), 20)
