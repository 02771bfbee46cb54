"""`python -m ul2_tasks`: what a researcher sees first."""

import re
import subprocess
import sys

import pytest
import seqio

from ul2_tasks import T5GEMMA2, chunk_length, default_vocabulary
from ul2_tasks.show import as_text
from ul2_tasks.vocabularies import special_tokens

LENGTHS = {"inputs": 96, "targets": 96}


@pytest.fixture(scope="module")
def output() -> str:
    return subprocess.run([sys.executable, "-m", "ul2_tasks"], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("denoiser", T5GEMMA2, ids=lambda denoiser: denoiser.name)
def test_each_denoiser_is_shown_with_mode_sentinels_lengths_and_counts(output, denoiser):
    (section,) = re.findall(rf"^ul2_{denoiser.name} ─+\n(.*?)(?=^ul2_|\Z)", output, re.MULTILINE | re.DOTALL)
    full = chunk_length(denoiser, LENGTHS)
    assert f"full chunks: {full.length} tokens, {full.noise} noise" in section
    assert section.count(denoiser.mode) == 2 + 1, "in two examples, and in the denoiser's description"
    assert section.count("<extra_id_0>") == 4, "in the inputs and the targets of two examples"
    assert section.count(f"<extra_id_{full.spans - 1}>") == 4
    assert f"<extra_id_{full.spans}>" not in section
    assert section.count(f"{full.inputs} tokens") >= 2
    assert section.count(f"{full.targets} tokens") >= 2
    assert len(re.findall(r"\b(the|of|is|a|to)\b", section)) > 20, "English"


def test_the_measured_rates_are_shown_beside_the_wanted_ones(output):
    assert "4000 mixed examples" in output
    for denoiser in T5GEMMA2:
        wanted = denoiser.weight / 8
        (row,) = re.findall(rf"│ ul2_{denoiser.name} +│(.*)", output)
        _, shown, measured, errors, *_ = (float(cell.strip(" %")) for cell in row.split("│") if cell.strip())
        assert shown == 100 * wanted
        assert abs(measured - shown) < 4 * 100 * (wanted * (1 - wanted) / 4000) ** 0.5
        assert abs(errors) < 4


def test_ids_as_text_name_what_is_not_text():
    vocabulary = default_vocabulary()
    special = special_tokens(vocabulary, "[X]")
    ids = [*special.mode, *vocabulary.encode("déjà vu"), special.sentinels[3], *vocabulary.encode("日本"), special.eos]
    assert as_text(vocabulary, ids, special).plain == "[X] déjà vu <extra_id_3> 日本 </s>"
    vocabulary = seqio.ByteVocabulary(extra_ids=5)
    special = special_tokens(vocabulary, "[R]", modes={"[R]": 259})
    assert as_text(vocabulary, [259, *vocabulary.encode("é"), 263, 1], special).plain == "<259> é <263> <1>"
