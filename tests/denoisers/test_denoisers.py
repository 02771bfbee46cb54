"""The table: validation, and the presets' values as their papers give them."""

import pytest

from ul2_tasks import T5GEMMA2, UL2, UL2R, SequentialDenoiser, SpanDenoiser
from ul2_tasks.denoisers.denoisers import check_denoisers

GOOD = {"name": "d", "mean_span_length": 3, "noise_density": 0.15}


@pytest.mark.parametrize("rate", [0, 1, float("nan"), "0.15", True])
@pytest.mark.parametrize("kind", [SpanDenoiser, SequentialDenoiser])
def test_a_rate_outside_the_open_unit_range_is_refused(kind, rate):
    fields = {"mean_span_length": 3} if kind is SpanDenoiser else {}
    with pytest.raises(ValueError, match="noise_density"):
        kind(name="d", noise_density=rate, **fields)


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        (SpanDenoiser, "mean_span_length", 0.99),
        (SpanDenoiser, "placement", "random"),
        (SpanDenoiser, "name", "R 1"),
        (SpanDenoiser, "mode", ""),
        (SpanDenoiser, "weight", 0),
        (SequentialDenoiser, "split", "half"),
        (SequentialDenoiser, "sentinel", 1),
    ],
)
def test_a_bad_field_is_named(kind, field, value):
    fields = {SpanDenoiser: GOOD, SequentialDenoiser: {"name": "s", "noise_density": 0.75}}[kind]
    with pytest.raises(ValueError, match=f"{kind.__name__} .*: {field} must be"):
        kind(**{**fields, field: value})


@pytest.mark.parametrize(
    "denoisers", [[], [(3, 0.15)], [*T5GEMMA2, UL2], "t5", 3, [SpanDenoiser(**GOOD), SpanDenoiser(**GOOD)]], ids=str
)
def test_what_is_no_list_of_denoisers_is_refused(denoisers):
    with pytest.raises(ValueError, match="denoisers"):
        check_denoisers(denoisers)


def test_a_presets_name_one_denoiser_and_a_generator_are_denoisers():
    assert [check_denoisers(name) for name in ("T5GEMMA2", "ul2", "Ul2R")] == [T5GEMMA2, UL2, UL2R]
    assert check_denoisers(T5GEMMA2[0]) == T5GEMMA2[:1]
    assert check_denoisers(denoiser for denoiser in T5GEMMA2) == T5GEMMA2


def rows(preset):
    return [(d.name, d.mode, getattr(d, "mean_span_length", None), d.noise_density, d.weight) for d in preset]


def test_t5gemma2_is_the_papers_table():
    assert rows(T5GEMMA2) == [
        ("r1", "[R]", 3, 0.15, 1),
        ("r2", "[R]", 12, 0.50, 1),
        ("x1", "[X]", 32, 0.15, 1),
        ("x2", "[X]", 32, 0.50, 1),
        ("s", "[S]", None, 0.75, 4),
    ]
    assert T5GEMMA2[-1].split == "fixed"
    assert T5GEMMA2[-1].sentinel


def test_ul2_is_table_1():
    spans = sorted((d.mode, d.mean_span_length, d.noise_density) for d in UL2 if isinstance(d, SpanDenoiser))
    assert spans == [
        ("[R]", 3, 0.15),
        ("[R]", 8, 0.15),
        ("[X]", 3, 0.50),
        ("[X]", 8, 0.50),
        ("[X]", 64, 0.15),
        ("[X]", 64, 0.50),
    ]
    (sequential,) = (d for d in UL2 if isinstance(d, SequentialDenoiser))
    assert (sequential.noise_density, sequential.split, sequential.sentinel) == (0.25, "uniform", False)


def test_ul2r_shares_are_half_sequential_and_a_quarter_each_of_regular_and_extreme():
    share = {mode: sum(d.weight for d in UL2R if d.mode == mode) / sum(d.weight for d in UL2R) for mode in ("[S]", "[R]", "[X]")}
    assert share == {"[S]": 0.5, "[R]": 0.25, "[X]": 0.25}
