"""Sizes are BAGEL's for an image alone; those of several keep the limits that they share, and use them."""

import json
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ul2_tasks.image_rows.sizes import VAE, VIT_CONVERSATION, VIT_EDIT, Grid, Size

RULES = {"vae": VAE, "vit_edit": VIT_EDIT, "vit_vlm": VIT_CONVERSATION}
GOLDEN = json.loads((pathlib.Path(__file__).parent / "bagel" / "sizes.json").read_text())


def test_an_image_alone_gets_bagels_size():
    alone = [line for line in GOLDEN if line[3] == 1]
    assert len(alone) == 693
    for rule, width, height, _, *expected in alone:
        assert RULES[rule].fit(width, height) == tuple(expected)


def test_images_that_share_a_limit_use_it():
    """BAGEL shrinks both sides by the ratio of the areas: of a limit of 2,007,040 it leaves 83 % unused here."""
    width, height = VIT_CONVERSATION.fit(980, 980, images=12)
    assert 0.92 < 12 * width * height / VIT_CONVERSATION.max_pixels <= 1
    assert min(width, height) >= VIT_CONVERSATION.shortest_edge


sides = st.integers(1, 4000)


@given(sides, sides, st.integers(1, 16), st.integers(1, 70), st.integers(200_000, 4_000_000), st.booleans())
def test_the_limits_are_kept(width, height, images, patches, pixels, shared):
    rule = Size(longest_edge=14 * patches, shortest_edge=14, patch_size=14, max_pixels=pixels, shared=shared)
    found = rule.fit(width, height, images)
    assert all(side % 14 == 0 and side >= 14 for side in found)
    assert max(found) <= rule.longest_edge
    assert found[0] * found[1] * (images if shared else 1) <= pixels or min(found) == 14
    assert rule.grid(width, height, images) == Grid(found[1] // 14, found[0] // 14)


@pytest.mark.parametrize(
    ("longest", "shortest", "pixels", "named"),
    [(1000, 14, 9, "longest_edge"), (14, 28, 9, "shortest_edge"), (14, 14, 0, "max_pixels"), (14, 14, 9, "image")],
)
def test_what_cannot_be_a_size_is_refused(longest, shortest, pixels, named):
    with pytest.raises(ValueError, match=named):
        Size(longest_edge=longest, shortest_edge=shortest, patch_size=14, max_pixels=pixels).fit(0, 5)
