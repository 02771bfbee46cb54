"""The arrays of `attention.places` as PyTorch's FlexAttention takes them."""

import numpy as np
import pytest

from ul2_tasks.image_rows.attention import Places, dense_mask, places, sees

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
flex = pytest.importorskip("torch.nn.attention.flex_attention", reason="this torch has no FlexAttention")

pytestmark = pytest.mark.torch


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_with_the_arrays_is_attention_with_the_dense_mask():
    """Two samples of causal, noised and whole splits; uncompiled, on the CPU."""
    found = places(np.array([20, 12]), np.array([3, 6, 5, 6, 4, 8]), np.array([0, 2, 1, 2, 0, 1]))
    tensors = Places(*map(torch.from_numpy, found))

    def mask_mod(batch, head, query, key):
        return sees(tensors, query, key)

    length = len(found.sample)
    mask = torch.from_numpy(dense_mask(found))
    assert (flex.create_mask(mask_mod, 1, 1, length, length, device="cpu")[0, 0] == mask).all()
    query, key, value = torch.randn(3, 1, 2, length, 16, generator=torch.Generator().manual_seed(0))
    block_mask = flex.create_block_mask(mask_mod, None, None, length, length, device="cpu")
    one = flex.flex_attention(query, key, value, block_mask=block_mask)
    other = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
