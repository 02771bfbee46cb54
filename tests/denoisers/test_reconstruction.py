"""`invert` is the way back from every denoiser's examples, and says what is wrong with what is no example."""

import pytest

from ul2_tasks import SequentialDenoiser, SpanDenoiser
from ul2_tasks.denoisers.reconstruction import invert
from ul2_tasks.tokenizers.special_ids import SpecialTokens

SPAN = SpanDenoiser(name="span", mode="[R]", mean_span_length=2, noise_density=0.4)
PREFIX = SequentialDenoiser(name="prefix", mode="[R]", noise_density=0.5, sentinel=False)
SPECIAL = SpecialTokens(sentinels=(90, 91, 92), mode=(80,), eos=1, reserved=frozenset({0, 80, 90, 91, 92}))
INPUTS, TARGETS = [80, 3, 90, 4, 5, 91, 6, 1], [90, 10, 91, 11, 12, 1]


def test_by_hand():
    found = invert({"inputs": INPUTS, "targets": TARGETS}, SPAN, SPECIAL)
    assert found.chunk.tolist() == [3, 10, 4, 5, 11, 12, 6]
    assert found.is_noise.tolist() == [False, True, False, False, True, True, False]
    assert found.spans.tolist() == [1, 2]
    at_the_ends = invert({"inputs": [80, 90, 4, 91, 1], "targets": TARGETS}, SPAN, SPECIAL)
    assert at_the_ends.chunk.tolist() == [10, 4, 11, 12]
    assert at_the_ends.is_noise.tolist() == [True, False, True, True]
    prefix = invert({"inputs": [80, 3, 4, 1], "targets": [5, 6, 7, 1]}, PREFIX, SPECIAL)
    assert (prefix.chunk.tolist(), prefix.spans.tolist()) == ([3, 4, 5, 6, 7], [3])
    one_token = invert({"inputs": [80, 90, 1], "targets": [90, 5, 1]}, SPAN, SPECIAL)
    assert (one_token.chunk.tolist(), one_token.is_noise.tolist()) == ([5], [True])


@pytest.mark.parametrize(
    ("inputs", "targets", "denoiser", "named"),
    [
        (INPUTS[:-1], TARGETS, SPAN, "inputs must end with EOS"),
        (INPUTS, [], SPAN, "targets must end with EOS"),
        (INPUTS, [91, 11, 12, 90, 10, 1], SPAN, "sentinels of targets"),
        ([80, 3, 91, 4, 5, 90, 6, 1], TARGETS, SPAN, "sentinels of inputs"),
        ([80, 3, 4, 1], [5, 1], SPAN, "inputs must have a sentinel"),
        ([80, 3, 4, 1], [1], PREFIX, "targets must have"),
        (INPUTS[1:], TARGETS, SPAN, "mode"),
        (INPUTS, [10, 90, 11, 91, 12, 1], SPAN, "targets must start with the sentinel"),
        (INPUTS, [90, 10, 91, 1], SPAN, "targets must have"),
        ([80, 3, 4, 1], [90, 5, 6, 1], PREFIX, "sentinels"),
    ],
)
def test_what_is_wrong_is_said(inputs, targets, denoiser, named):
    with pytest.raises(ValueError, match=named):
        invert({"inputs": inputs, "targets": targets}, denoiser, SPECIAL)
