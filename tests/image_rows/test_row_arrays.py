"""Rows and masks are BAGEL's, integer for integer, and follow their laws for layouts that BAGEL did not lay out."""

import functools
import json
import pathlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ul2_tasks.image_rows.attention import dense_mask, places
from ul2_tasks.image_rows.dropout import Dropout
from ul2_tasks.image_rows.row_arrays import MODES, lay_out, patch_positions
from ul2_tasks.image_rows.samples import Sample, Sizes, sample_of
from ul2_tasks.image_rows.sizes import VIT_CONVERSATION, Grid
from ul2_tasks.image_rows.special_tokens import SpecialTokenConfig
from ul2_tasks.images.draws import draws_of
from ul2_tasks.images.elements import Image, Text, checked

BAGEL = pathlib.Path(__file__).parent / "bagel"
FORM = SpecialTokenConfig(bos_id=1, eos_id=2, boi_id=3, eoi_id=4)
NOTHING = -np.inf


@functools.cache
def golden(name):
    return json.loads((BAGEL / f"{name}.json").read_text())


def bagels_sample(told, draws):
    """A sample of BAGEL's as one of ours, of the draws that BAGEL used."""
    ids, shapes, sample = iter(told["ids"]), iter(told["shapes"]), []
    for item in told["plan"]:
        after, kept, timestep = item["special_token_label"] if item["special_token_loss"] else None, True, NOTHING
        options = {"droppable": bool(item["enable_cfg"]), "after": after}
        if item["type"] == "text":
            element, content = Text("", learned=bool(item["loss"]), **options), np.array(next(ids), np.int64)
        else:
            seen_as = "vit" if item["type"] == "vit_image" else "noised" if item["loss"] else "clean"
            patch = 14 if seen_as == "vit" else 16
            _, height, width = next(shapes)
            element, content = Image(None, seen_as, **options), Grid(height // patch, width // patch)
        if item["enable_cfg"]:
            kept = next(draws)[1] >= 0.5
        if element.kind == "noised":
            timestep = next(draws)[1]
        sample.append((element, kept, content, timestep))
    layout, *others = zip(*sample)
    return Sample(checked(layout), *others)


@pytest.mark.parametrize("number", range(120))
def test_a_row_is_bagels(number):
    told = golden("rows")[number]
    draws = iter(told["draws"])
    samples = [bagels_sample(sample, draws) for sample in told["samples"]]
    assert next(draws, None) is None
    found, expected = lay_out(samples, FORM)._asdict(), dict(told["out"])
    assert sum(sample.counts["tokens"] for sample in samples) == expected.pop("curr") == found["sample_lens"].sum()
    expected["attn_modes"] = [MODES.index(mode) for mode in expected["attn_modes"]]
    expected["sample_lens"] = [length for length in expected["sample_lens"] if length]  # ours leaves out what is dropped whole
    for name in ("packed_latent_position_ids", "packed_vit_position_ids"):
        expected[name] = [position for positions in expected[name] for position in positions]
    assert found.keys() == expected.keys()
    for name, array in found.items():
        np.testing.assert_array_equal(array, np.array(expected[name], array.dtype).reshape(-1, *array.shape[1:]), name)


@pytest.mark.parametrize("shape", golden("positions"))
def test_the_positions_of_patches_are_bagels(shape):
    sides, patch, side = shape.split("/")
    rows, columns = (np.array([int(pixels) // int(patch)]) for pixels in sides.split("x"))
    found = [patch_positions(rows, columns, int(side), interpolated).tolist() for interpolated in (False, True)]
    assert found == golden("positions")[shape]


def test_a_mask_is_bagels():
    masks = golden("masks")
    assert len(masks) == 80
    for lengths, modes, lines in masks:
        found = dense_mask(places(np.array([sum(lengths)]), np.array(lengths), np.array([MODES.index(mode) for mode in modes])))
        assert ["".join(map(str, line)) for line in found.astype(int).tolist()] == lines


grids = st.builds(Grid, st.integers(1, 4), st.integers(1, 4))
texts = st.tuples(st.builds(Text, st.just(""), learned=st.booleans()), st.lists(st.integers(5, 99), max_size=5).map(np.array))
images = st.tuples(st.builds(Image, st.none(), st.sampled_from(["vit", "clean", "noised"])), grids)


@st.composite
def random_sample(draw):
    elements, contents = zip(*draw(st.lists(st.one_of(texts, images), min_size=1, max_size=6)))
    kept = [element.kind == "noised" or draw(st.booleans()) for element in elements]
    timesteps = [0.5 if element.kind == "noised" else NOTHING for element in elements]
    return Sample(elements, kept, contents, timesteps)


samples = st.lists(random_sample(), max_size=4)


@given(samples)
def test_each_place_is_in_one_list_of_indexes_and_all_lengths_agree(samples):
    row = lay_out(samples, FORM)
    length = len(row.packed_position_ids)
    lists = [row.packed_text_indexes, row.packed_vit_token_indexes, row.packed_vae_token_indexes]
    assert sorted(np.concatenate(lists).tolist()) == list(range(length))
    assert row.sample_lens.sum() == row.split_lens.sum() == length
    assert 0 not in row.sample_lens
    assert len(row.split_lens) == len(row.attn_modes)
    counts = np.array([[*sample.counts.values()] for sample in samples]).reshape(-1, 3).sum(axis=0)
    assert counts.tolist() == [length, len(row.packed_vit_token_indexes), len(row.packed_vae_token_indexes)]
    assert row.vit_token_seqlens.sum() == counts[1]
    assert row.vae_latent_shapes.prod(axis=1).sum() == counts[2]
    assert np.isin(row.mse_loss_indexes, row.packed_vae_token_indexes).all()
    noised = np.isin(row.packed_vae_token_indexes, row.mse_loss_indexes)
    assert (np.isfinite(row.packed_timesteps) == noised).all()


def attend(row, values):
    """One layer of attention over random features, with the mask of the row."""
    mask = dense_mask(places(row.sample_lens, row.split_lens, row.attn_modes))
    scores = np.where(mask, values @ values.T, -np.inf)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.tanh(weights @ values / weights.sum(axis=1, keepdims=True))


@given(samples.filter(lambda found: any(sample.counts["tokens"] for sample in found)))
def test_attention_over_a_row_gives_what_each_sample_alone_gives(samples):
    row = lay_out(samples, FORM)
    values = np.random.default_rng(0).normal(size=(len(row.packed_position_ids), 8))
    found, begin = attend(row, attend(row, values)), 0
    for sample in samples:
        if tokens := sample.counts["tokens"]:
            part = lay_out([sample], FORM)
            alone = attend(part, attend(part, values[begin : begin + tokens]))
            np.testing.assert_allclose(found[begin : begin + tokens], alone, atol=1e-12)
            begin += tokens


def test_what_is_generated_is_seen_by_itself_alone_and_a_clip_by_all_of_it():
    layout = checked([Text("a"), Image(None, "noised", group=0), Image(None, "noised", group=0), Text("b")])
    sample = Sample(layout, (True,) * 4, (np.array([9]), Grid(1, 1), Grid(1, 2), np.array([9])), (NOTHING, 0.5, 0.5, NOTHING))
    row = lay_out([sample], FORM)
    assert row.split_lens.tolist() == [3, 7, 3]
    assert [MODES[mode] for mode in row.attn_modes] == ["causal", "noise", "causal"]
    mask = dense_mask(places(row.sample_lens, row.split_lens, row.attn_modes))
    assert mask[3:10, :10].all()
    assert not mask[10:, 3:10].any()
    assert mask[10:, :3].all()


def test_positions_go_on_as_far_as_an_element_says():
    layout = checked([Image(None, "clean", advance=5), Image(None, "noised"), Image(None, "clean"), Text("")])
    sample = Sample(layout, (False, True, True, True), (*[Grid(1, 1)] * 3, np.array([], int)), (NOTHING, 0.5, NOTHING, NOTHING))
    assert lay_out([sample], FORM).packed_position_ids.tolist() == [5, 5, 5, 5, 5, 5, 6, 7]


def test_a_table_that_is_too_small_is_refused_before_a_run_and_in_a_row():
    """BAGEL's positions run over, without a word, with the table that is its default."""
    with pytest.raises(ValueError, match=r"vae_patches_per_side must be at least 64 for images of 1024 pixels, got 32"):
        SpecialTokenConfig(1, 2, 3, 4, vae_patches_per_side=32).check(Sizes())
    SpecialTokenConfig(1, 2, 3, 4).check(Sizes())
    SpecialTokenConfig(1, 2, 3, 4, vae_patches_per_side=32, interpolate_pos=True).check(Sizes())
    with pytest.raises(ValueError, match="an image has 33 patches on a side, and the table of their positions has 32"):
        patch_positions(np.array([2]), np.array([33]), 32)
    assert patch_positions(np.array([64]), np.array([64]), 32, interpolate_pos=True).max() == 32**2 - 1


def test_images_that_share_a_limit_are_counted_by_who_sees_them():
    layout = [Image(number, "vit", droppable=False) for number in range(8)] + [Image(8, "noised")]
    sizes = Sizes(vit=VIT_CONVERSATION)
    sample = sample_of(layout, draws_of(0, 0, ""), lambda text: [], lambda image: (980, 980), sizes, Dropout())
    assert sample.contents == [Grid(35, 35)] * 8 + [Grid(61, 61)]
    assert sample.counts["vit"] == 8 * 35 * 35


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: SpecialTokenConfig(1, None, 3, 4), "eos_id"),
        (lambda: SpecialTokenConfig(1, 2, 3, 4, vae_patches_per_side=0), "vae_patches_per_side"),
        (lambda: places(np.array([5]), np.array([4]), np.array([0])), "split_lens"),
        (lambda: lay_out([Sample((Text(""),), (True,), (np.array([9, 3]),), (NOTHING,))], FORM), "special_tokens"),
    ],
)
def test_what_makes_no_row_is_refused(make, argument):
    with pytest.raises(ValueError, match=argument):
        make()
