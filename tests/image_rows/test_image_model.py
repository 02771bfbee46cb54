"""A small transformer gives for a row what it gives for each sample alone: no sample, and no noise, is seen from outside."""

import numpy as np
import pytest
from image_sources import edits, made, recipe, source, talks

from ul2_tasks.image_rows.attention import dense_mask, places
from ul2_tasks.image_rows.rows import RowMaker

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

pytestmark = pytest.mark.train

WIDTH, HEADS = 32, 4


class Model(torch.nn.Module):
    """Two layers over the places of a row: ids, ViT patches, and latents that are as noised as their timesteps say."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.ids = torch.nn.Embedding(300, WIDTH)
        self.positions = torch.nn.Embedding(300, WIDTH)
        self.vit, self.vit_positions = torch.nn.Linear(108, WIDTH), torch.nn.Embedding(64, WIDTH)
        self.vae, self.vae_positions = torch.nn.Linear(192, WIDTH), torch.nn.Embedding(64, WIDTH)
        self.layers = torch.nn.ModuleList(
            [torch.nn.ModuleList([torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)]) for _ in "12"]
        )

    def forward(self, row) -> torch.Tensor:
        row = {name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value for name, value in row.items()}
        hidden = self.positions(row["packed_position_ids"])
        hidden[row["packed_text_indexes"]] += self.ids(row["packed_text_ids"])
        seen = self.vit(row["packed_vit_patches"] / 127.5 - 1) + self.vit_positions(row["packed_vit_position_ids"])
        hidden[row["packed_vit_token_indexes"]] += seen
        noised = torch.sigmoid(row["packed_timesteps"])[:, None]
        latents = self.vae((1 - noised) * (row["packed_vae_patches"] / 127.5 - 1) + noised * 0.3)
        hidden[row["packed_vae_token_indexes"]] += latents + self.vae_positions(row["packed_latent_position_ids"])
        mask = torch.from_numpy(dense_mask(places(row["sample_lens"], row["split_lens"], row["attn_modes"])))
        for attention, after in self.layers:
            query, key, value = (
                part.reshape(-1, HEADS, WIDTH // HEADS).transpose(0, 1) for part in attention(hidden).chunk(3, dim=1)
            )
            seen = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
            hidden = hidden + torch.tanh(after(seen.transpose(0, 1).reshape(-1, WIDTH)))
        return hidden


@pytest.fixture(scope="module")
def packed_row() -> tuple[RowMaker, list]:
    """A row with samples of all three kinds."""
    sources = source(made()), source(edits(), "unified_edit", name="edits"), source(talks(), "vlm_sft", name="talks")
    maker = RowMaker(recipe(*sources, budgets=(1500, 1000, 1000), epochs=None, pool=12))
    packed = max(maker.packed(0), key=len)
    assert {each.file for each in packed} == {"made", "edits", "talks"}
    return maker, packed


@torch.no_grad()
def test_a_row_gives_what_its_samples_give_alone_in_any_order(packed_row):
    maker, packed = packed_row
    model = Model()
    alone = [model(maker.row([named])) for named in packed]
    torch.testing.assert_close(model(maker.row(packed)), torch.cat(alone), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(model(maker.row(packed[::-1])), torch.cat(alone[::-1]), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_noised_image_changes_nothing_but_itself(packed_row):
    maker, packed = packed_row
    model, row = Model(), maker.row(packed)
    before = model(row)
    places_of_noise = set(row["mse_loss_indexes"].tolist())
    at = np.flatnonzero(np.isin(row["packed_vae_token_indexes"], row["mse_loss_indexes"]))
    row["packed_vae_patches"][at] = 255 - row["packed_vae_patches"][at]
    changed = set(torch.nonzero((model(row) - before).abs().amax(dim=1) > 1e-6).ravel().tolist())
    ends = {place + step for place in places_of_noise for step in (-1, 1)}  # its two marks see it
    assert places_of_noise <= changed <= places_of_noise | ends
