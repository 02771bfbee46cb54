"""`rows.RowMaker`: what is counted is laid out, nothing is lost, and problems are told or counted."""

import collections
import dataclasses
import functools
import re

import numpy as np
import pytest

from tests.image_sources import FORM, SIZES, edits, ids, made, png, recipe, source, talks
from ul2_tasks.image_rows.attention import dense_mask, places
from ul2_tasks.image_rows.dropout import Dropout
from ul2_tasks.image_rows.patches import patches
from ul2_tasks.image_rows.problems import RecordError
from ul2_tasks.image_rows.recipe import Source
from ul2_tasks.image_rows.records import listed_records
from ul2_tasks.image_rows.rows import RowMaker
from ul2_tasks.image_rows.sizes import VIT_CONVERSATION, VIT_EDIT, Size
from ul2_tasks.images.elements import Image, Text
from ul2_tasks.images.pixels import Frame, pixels, resized
from ul2_tasks.images.problems import sentence_of
from ul2_tasks.images.schemas import vlm_sft

ALL = {"t2i_pretrain": made(), "unified_edit": edits(), "vlm_sft": talks()}
BAD = {"image": png(8, 8)}
NEVER = Dropout(text=0, vit=0, clean=0)


def packed_rows(maker: RowMaker) -> list[list]:
    return [row for pool in range(maker._recipe.pools().count) for row in maker.packed(pool)]


def all_rows(maker: RowMaker) -> list[dict]:
    return [row for row in map(maker.row, packed_rows(maker)) if row is not None]


@pytest.mark.parametrize("schema", ALL)
@pytest.mark.parametrize("always", [(), ("vit",), ("vae", "vit")])
def test_what_is_counted_is_laid_out_within_the_budgets(schema, always):
    budgets = (400, 200, 300)
    maker = RowMaker(recipe(source(ALL[schema], schema), budgets=budgets, required_modalities=always))
    keys = set()
    for packed in packed_rows(maker):
        row = maker.row(packed)
        counts = np.array([[*each.sample.counts.values()] for each in packed]).sum(axis=0)
        added = np.array([3, 1, 0]) * ("vit" in always and counts[1] == 0) + np.array([3, 0, 1]) * (
            "vae" in always and counts[2] == 0
        )
        found = [len(row[name]) for name in ("packed_position_ids", "packed_vit_position_ids", "packed_latent_position_ids")]
        assert found == (counts + added).tolist()
        assert found <= list(budgets)
        assert [len(row["packed_vit_patches"]), len(row["packed_vae_patches"])] == found[1:]
        assert len(row["samples"]) == len(row["sample_lens"])
        assert (row["ce_tokens"], row["mse_tokens"]) == (len(row["packed_label_ids"]), len(row["mse_loss_indexes"]))
        assert row["ce_weight"] == pytest.approx(row["ce_loss_weights"].sum())
        keys.add(tuple(sorted(row)))
        if "vae" in always:
            assert found[2] > 0
    assert len(keys) == 1


@pytest.mark.parametrize("pool", [1, 7, 64])
def test_each_record_is_in_one_row_and_is_the_same_in_any_pool(pool):
    def samples(pool):
        maker = RowMaker(recipe(source(ALL["unified_edit"], "unified_edit"), pool=pool, seed=2, budgets=(400, 200, 300)))
        return [named for row in packed_rows(maker) for named in row]

    def by_name(samples):
        return {each.name: (each.sample.kept, each.sample.timesteps, each.sample.counts) for each in samples}

    found = samples(pool)
    assert sorted(each.name for each in found) == sorted(f"made, record {number}, epoch 0" for number in range(40))
    assert by_name(found) == by_name(samples(40))


def test_a_row_has_the_pixels_of_its_images_in_their_order():
    maker = RowMaker(recipe(source(edits(6), "unified_edit", dropout=NEVER), budgets=(1000, 1000, 1000)))
    [packed] = packed_rows(maker)
    row = maker.row(packed)
    at = {"vit": 0, "vae": 0}
    for each in packed:
        sample = each.sample
        for element, grid in zip(sample.layout, sample.contents):
            if isinstance(element, Image):
                kind, size = ("vit", SIZES.vit) if element.kind == "vit" else ("vae", SIZES.vae)
                whole = resized(pixels(element.image), grid.columns * size.patch_size, grid.rows * size.patch_size)
                found = row[f"packed_{kind}_patches"][at[kind] : at[kind] + grid.patches]
                assert (found == patches(whole, size.patch_size)).all()
                at[kind] += grid.patches
    assert at == {"vit": len(row["packed_vit_patches"]), "vae": len(row["packed_vae_patches"])}


def test_a_dummy_is_seen_by_no_other_and_learns_nothing():
    maker = RowMaker(recipe(source(made(2)), required_modalities=("vit", "vae")))
    [row] = all_rows(maker)
    assert row["samples"][-1] == "dummy"
    mask = dense_mask(places(row["sample_lens"], row["split_lens"], row["attn_modes"]))
    assert not mask[-3:, :-3].any()
    assert not mask[:-3, -3:].any()
    assert not set(range(len(mask) - 3, len(mask))) & {*row["ce_loss_indexes"], *row["mse_loss_indexes"]}


def test_what_is_too_long_is_told_with_its_numbers_or_counted_or_made_smaller():
    records = [*made(4), {"image": png(64, 64), "captions": "x" * 40}]
    sources = source(records, dropout=NEVER)
    with pytest.raises(
        RecordError, match=r"^made, record 4: .* 100 places, 1 ViT .* 90 of latents, got 108 places, 0 ViT .* 64 of"
    ):
        packed_rows(RowMaker(recipe(sources, budgets=(100, 1, 90))))
    maker = RowMaker(recipe(sources, budgets=(100, 1, 90), on_error="skip"))
    assert sorted(each.name for row in packed_rows(maker) for each in row) == [
        f"made, record {number}, epoch 0" for number in range(4)
    ]
    assert maker.problems.counts == {"too long": 1}
    maker = RowMaker(recipe(sources, budgets=(100, 1, 90), shrink=True))
    found = {each.name: each.sample for row in packed_rows(maker) for each in row}
    assert found["made, record 4, epoch 0"].counts == {"tokens": 42 + 2 + 49, "vit": 0, "vae": 49}
    assert len(found) == 5


def test_images_shrink_only_as_far_and_only_of_the_kind_that_is_too_large():
    sources = source([{"image_list": [png(60, 60), png(50, 50)], "instruction_list": ["x"]}], "unified_edit", dropout=NEVER)
    [[whole]] = packed_rows(RowMaker(recipe(sources, budgets=(500, 500, 500))))
    [[less]] = packed_rows(RowMaker(recipe(sources, budgets=(500, 40, 500), shrink=True)))
    assert [grid for grid in less.sample.contents[::3]] == [grid for grid in whole.sample.contents[::3]]
    assert less.sample.counts["vit"] == 36 < 40 < whole.sample.counts["vit"]
    assert less.sample.timesteps == whole.sample.timesteps
    words = source([{"image": png(60, 60), "captions": "x" * 500}])
    with pytest.raises(RecordError, match=r"a sample must fit into .*, got 56\d places"):
        packed_rows(RowMaker(recipe(words, shrink=True)))


NO_IDS = {"lists": [[7]], "fractions": [1.5], "a mapping": {"input_ids": [7]}, "large": [2**70], "negative": [-1]}


def encode(text: str) -> list[int]:
    if text in NO_IDS:
        return NO_IDS[text]
    return [2 if byte == 0 else 5 + byte for byte in text.encode()]


@pytest.mark.parametrize(
    ("bad", "cause", "named"),
    [
        ({"image": png(8, 8)}, "schema", "captions"),
        ({"image": b"no image", "captions": "a"}, "sample", "the image .* b'no image'"),
        ({"image": "nowhere.png", "captions": "a"}, "sample", "the image .* 'nowhere.png'"),
        ({"image": png(30, 30, 9)[:-300], "captions": "cut"}, "image", "the image is damaged"),
        ({"image": png(64, 64), "captions": "x" * 1000}, "too long", "a sample must fit into"),
        ({"image": png(8, 8), "captions": "a \x00"}, "sample", "a text .* special_tokens"),
        *(({"image": png(8, 8), "captions": each}, "sample", "vocabulary must return ") for each in NO_IDS),
    ],
)
def test_one_is_told_with_the_name_of_the_record_or_skipped_and_counted(bad, cause, named):
    found = recipe(source([bad], dropout=NEVER))
    with pytest.raises(RecordError, match=rf"^made, record 0(, epoch 0)?: {named}") as raised:
        all_rows(RowMaker(dataclasses.replace(found, encode=encode)))
    assert raised.value.cause == cause
    found = recipe(source([*made(3), bad, *made(2)]), on_error="skip")
    maker = RowMaker(dataclasses.replace(found, encode=encode))
    names = sorted(name for row in all_rows(maker) for name in row["samples"])
    assert names == [f"made, record {number}, epoch 0" for number in (0, 1, 2, 4, 5)]
    assert maker.problems.counts == {cause: 1}


@pytest.mark.parametrize("bad", [{"captions": "no image"}, {"captions": "cut", "image": png(30, 30, 9)[:-300]}])
def test_a_hundred_in_a_row_end_the_run(bad):
    good = made(1)
    few = RowMaker(recipe(source([*good, *[bad] * 49] * 2), on_error="skip", pool=1000))
    assert all_rows(few)
    assert sum(few.problems.counts.values()) == 49 * 2
    many = RowMaker(recipe(source([*good, *[bad] * 100]), on_error="skip", pool=7))
    with pytest.raises(ValueError, match=r"^100 records in a row .* made, record "):
        all_rows(many)


def test_a_broken_source_of_a_mixture_ends_the_run_with_its_name():
    """Also where samples of another source are right in between."""
    broken = source([BAD] * 200, name="broken")
    maker = RowMaker(recipe(source(made(200)), broken, epochs=None, on_error="skip", pool=40))
    with pytest.raises(ValueError, match=r"^100 records in a row of source 2: broken, .* broken, record \d+: captions"):
        collections.deque(map(maker.packed, range(9)))


@pytest.mark.parametrize("error", [OSError, KeyError])
@pytest.mark.parametrize("of", ["schema", "sample", "record", "image"])
def test_whatever_is_raised_at_a_record_is_told_with_its_name_or_skipped(of, error):
    def raising(*_):
        raise error("no")

    class Listed(list):
        def __getitem__(self, number):
            return raising() if of == "record" and number == 1 else super().__getitem__(number)

    def schema(record, draws):
        said, image = Text(record["captions"][0]), record["image"]
        return raising() if of == "schema" and said.text == "made 1" else [said, Image(image, "vit", droppable=False)]

    def encode(text):
        return raising() if of == "sample" and text == "made 1" else ids(text)

    records = Listed(made(3))
    if of == "image":
        list.__setitem__(records, 1, {"image": Frame(20, 20, raising), "captions": ["made 1"]})
    found = dataclasses.replace(recipe(source(records, schema)), encode=encode)
    said = re.escape(sentence_of(error("no")))
    with pytest.raises(RecordError, match=rf"^made, record 1(, epoch 0)?: (the record cannot be read: )?{said}$"):
        all_rows(RowMaker(found))
    maker = RowMaker(dataclasses.replace(found, on_error="skip"))
    assert sorted(name for row in all_rows(maker) for name in row["samples"]) == [f"made, record {n}, epoch 0" for n in (0, 2)]
    assert maker.problems.counts == {of: 1}


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt, ImportError])
def test_what_no_record_can_help_ends_the_run(error):
    def schema(record, draws):
        raise error

    with pytest.raises(error):
        packed_rows(RowMaker(recipe(source(made(3), schema), on_error="skip")))


def test_settings_say_what_differs():
    base = recipe().settings()
    changed = {
        "sources": (source(made(41)),),
        "special_tokens": type(FORM)(1, 2, 3, 5, 8, 8),
        "encode": lambda text: [7],
        "budgets": {"tokens": 151, "vit": 100, "vae": 120},
        "required_modalities": ("vit",),
        "seed": 1,
        "pool": 17,
        "epochs": 2,
        "on_error": "skip",
        "shrink": True,
        "shuffle_blocks": 1,
    }
    others = {{"encode": "text"}.get(name, name): dataclasses.replace(recipe(), **{name: value}) for name, value in changed.items()}
    assert base.keys() == others.keys() | {"kinds"}
    for name, other in others.items():
        found = other.settings()
        assert [key for key in base if base[key] != found[key]] == [name]


LARGER, OTHER = (type(SIZES)(vit=SIZES.vit, vae=size) for size in (Size(128, 16, 8, 9999), Size(64, 16, 16, 9999)))


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: recipe(budgets=(0, 1, 1)), "tokens"),
        (lambda: recipe(pool=0), "pool"),
        (lambda: recipe(epochs=-1), "epochs"),
        (lambda: recipe(seed=1.5), "seed"),
        (lambda: recipe(on_error="ignore"), "on_error"),
        (lambda: recipe(required_modalities=("clean",)), "required_modalities"),
        (lambda: recipe(required_modalities=("vit",), budgets=(9000, 0, 9000)), "required_modalities"),
        (lambda: source(made(), "t2i"), "schema"),
        (lambda: Source(made(), "t2i_pretrain"), "records"),
        (lambda: recipe(listed_records(made())), "sources"),
        (lambda: recipe(source(made(), sizes=LARGER)), "vae_patches_per_side"),
        (lambda: recipe(source(made()), source(made(), sizes=OTHER)), "sizes"),
    ],
)
def test_settings_and_sources_that_cannot_be_are_refused(make, argument):
    with pytest.raises(ValueError, match=argument):
        make()


def test_conversations_have_sizes_of_their_own_also_with_other_frames():
    records = listed_records(talks(1))
    for schema in ("vlm_sft", vlm_sft, functools.partial(vlm_sft, frames=lambda file, draws: [])):
        assert Source(records, schema).sizes.vit == VIT_CONVERSATION
    assert Source(records, "unified_edit").sizes.vit == VIT_EDIT


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        (lambda record, draws: None, "schema must return a list of Text and Image"),
        (lambda record, draws: iter([Text(record["nothing"])]), "KeyError: 'nothing'"),
    ],
)
def test_a_schema_may_be_a_generator_and_what_it_stumbles_over_is_a_problem_of_its_record(schema, named):
    generator = recipe(source(made(2), lambda record, draws: (each for each in [Text("a"), Image(record["image"], "vit")])))
    assert sum(map(len, packed_rows(RowMaker(generator)))) == 2
    with pytest.raises(RecordError, match=f"^made, record 0: {named}"):
        packed_rows(RowMaker(recipe(source(made(2), schema))))
