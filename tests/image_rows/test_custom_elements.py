"""Kinds of elements of your own: what `ElementKind` refuses, what a dataset of them does, and what commands show of it."""

import dataclasses
import functools

import numpy as np
import pytest

from tests.image_sources import FORM, ids, image, recipe, source
from ul2_tasks.image_rows.custom import Custom, ElementKind
from ul2_tasks.image_rows.inspect.measure import measure_images
from ul2_tasks.image_rows.inspect.show import draw_records
from ul2_tasks.image_rows.problems import RecordError
from ul2_tasks.image_rows.row_arrays import custom_arrays, lay_out
from ul2_tasks.image_rows.rows import RowMaker
from ul2_tasks.images.elements import Image, Text, letters


def ramp(size):
    return np.arange(size * 2, dtype=np.float64).reshape(size, 2)


SOUND = ElementKind("sound", 300, 301, int, ramp, width=2, dtype="float16")
BUDGETS = {"tokens": 400, "vit": 0, "vae": 200, "sound": 9, "steps": 9}
STEPS = ElementKind("steps", 302, 303, int, ramp, width=2, causal=True, dropout=0.5)


def both(record, draws):
    return [
        Text("a", droppable=False),
        Custom(SOUND, record["sound"], after="text"),
        Custom(STEPS, record["steps"]),
        Image(record["image"], "clean", droppable=False),
    ]


def of_both(records=None, **settings):
    records = records or [{"sound": 1 + n % 5, "steps": 2 + n % 3, "image": image(n)} for n in range(40)]
    made = recipe(source(records, both), on_error="skip")
    return dataclasses.replace(made, **{"budgets": BUDGETS, "kinds": (SOUND, STEPS), **settings})


def test_the_row_of_two_kinds():
    """Positions: a text's own; one for all features that see each other; one for each that sees those before it."""
    maker = RowMaker(of_both([{"sound": 3, "steps": 2, "image": image(1)}], seed=2))
    [[each]] = maker.packed(0)
    sample = each.sample
    assert all(sample.kept)
    assert letters(sample.layout) == "T S S C"
    vae = sample.counts["vae"]
    assert sample.counts == {"tokens": 3 + 5 + 4 + 2 + vae, "vit": 0, "vae": vae, "sound": 3, "steps": 2}
    row = maker.row([each])
    assert row["packed_position_ids"][:13].tolist() == [0, 1, 2, *[3] * 5, 4, 5, 6, 7, 8]
    assert row["split_lens"][:3].tolist() == [3, 5, 4]
    assert row["attn_modes"].tolist() == [0, 1, 0, 1]
    assert row["packed_text_ids"].tolist() == [1, *ids("a"), 2, 300, 301, 302, 303, 3, 4]
    assert row["packed_sound_token_indexes"].tolist() == [4, 5, 6]
    assert row["packed_steps_token_indexes"].tolist() == [9, 10]
    assert (row["packed_label_ids"].tolist(), row["ce_loss_indexes"].tolist()) == ([1], [7])
    assert row["packed_sound_features"].tolist() == ramp(3).tolist()
    assert (row["packed_sound_features"].dtype, row["packed_steps_features"].dtype) == (np.float16, np.float32)


def test_every_row_has_the_arrays_and_keeps_the_budgets():
    made, dropped = of_both(), 0
    maker = RowMaker(made)
    for pool in range(3):
        for named in maker.packed(pool):
            samples, row = [each.sample for each in named], maker.row(named)
            arrays = lay_out(samples, made.special_tokens)
            own = [custom_arrays(samples, kind) for kind in made.kinds]
            places = [arrays.packed_text_indexes, arrays.packed_vae_token_indexes, *(each[next(iter(each))] for each in own)]
            assert np.array_equal(np.sort(np.concatenate(places)), np.arange(len(arrays.packed_position_ids)))
            for kind in made.kinds:
                features, lengths = row[f"packed_{kind.name}_features"], row[f"{kind.name}_token_seqlens"]
                assert len(features) == lengths.sum() <= 9
                np.testing.assert_array_equal(features, np.concatenate([np.zeros((0, 2)), *map(ramp, lengths)]))
            dropped += len(samples) - len(row["steps_token_seqlens"])
    assert 8 < dropped < 32


def test_looking_knows_kinds_of_your_own():
    assert measure_images(of_both()).fill.keys() == {"tokens", "vit", "vae", "sound", "steps"}
    drawn = next(draw_records(of_both(), 1))
    assert drawn["elements"][1]["features"] == drawn["counts"]["sound"]


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        *(
            (functools.partial(dataclasses.replace, SOUND, **{name: value}), name)
            for name, value in (("name", "vae"), ("name", "a b"), ("start_id", -1), ("width", 0), ("dropout", 2))
        ),
        (lambda: of_both(kinds=("sound",)), "kinds"),
        (lambda: of_both(kinds=(SOUND, SOUND)), "kinds"),
        (lambda: of_both(kinds=(SOUND,)), "budgets"),
        (lambda: of_both(kinds=(SOUND, dataclasses.replace(STEPS, end_id=300))), "end_id"),
        (lambda: of_both(kinds=(dataclasses.replace(SOUND, start_id=FORM.eoi_id), STEPS)), "start_id"),
        (lambda: of_both(budgets={**BUDGETS, "steps": -1}), "steps"),
    ],
)
def test_kinds_that_cannot_be_are_refused(make, argument):
    with pytest.raises(ValueError, match=argument):
        make()


def of_three(value):
    return np.zeros((value, 3))


@pytest.mark.parametrize(
    ("record", "kinds", "said"),
    [
        ({"sound": 1, "steps": 1}, (SOUND, dataclasses.replace(STEPS, width=3)), "kinds must have"),
        ({"sound": 0, "steps": 1}, (SOUND, STEPS), "size_of of sound"),
        ({"sound": 4, "steps": 1}, (dataclasses.replace(SOUND, read=of_three), STEPS), "read of sound"),
    ],
)
def test_an_element_that_does_not_fit_its_kind_is_a_problem_of_its_record(record, kinds, said):
    def schema(record, draws):
        return [Custom(kinds[0], record["sound"]), Custom(STEPS, record["steps"])]

    made = recipe(source([record], schema))
    maker = RowMaker(dataclasses.replace(made, kinds=kinds, budgets=BUDGETS))
    with pytest.raises(RecordError, match=f"^made, record 0.*: {said}"):
        maker.row(maker.packed(0)[0])


def test_no_text_becomes_a_mark_of_a_kind_and_a_state_is_of_its_kinds():
    with pytest.raises(RecordError, match="special_tokens"):
        RowMaker(of_both(encode=lambda text: [303], on_error="raise")).packed(0)
    for change in ({"read": str}, {"width": 4}, {"dropout": 0.1}):
        other = of_both(kinds=(dataclasses.replace(SOUND, **change), STEPS))
        assert of_both().settings() == of_both().settings()
        assert (other.settings() | other.identity) != (of_both().settings() | of_both().identity)
