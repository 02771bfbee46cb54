"""`ul2 show`: what a researcher sees first."""

import dataclasses
import functools
import io
import json
import re

import pytest
from hypothesis import strategies as st
from rich.console import Console

from ul2_tasks import T5GEMMA2, chunk_length, register
from ul2_tasks.looking.printing import visible
from ul2_tasks.looking.readable import Stretch
from ul2_tasks.looking.texts.draw import draw
from ul2_tasks.looking.texts.show import show
from ul2_tasks.sources.memory import MemoryDataSource

LENGTHS = {"inputs": 96, "targets": 96}
TEXT = (
    "A text in [bold]brackets[/bold] :smile: with \x1b[31mescapes\x07 and\ttabs,\r\nline\nends\u2028of all kinds and a \u202eturn."
    " 日本語の文章です。我能吞下玻璃而不伤身体。 나는 유리를 먹을 수 있어요. أنا قادر على أكل الزجاج 👨‍👩‍👧‍👦🇨🇿👍🏽"
)


@pytest.fixture(autouse=True, scope="module")
def drawn_once():
    """What is shown several times is drawn once."""

    @functools.cache
    def drawn(mixture, lengths, count, seed, split, denoisers):
        return list(draw(mixture, dict(lengths), count, seed=seed, split=split, denoisers=denoisers))

    def draw_once(mixture, lengths, count, seed, split, denoisers):
        return drawn(mixture, tuple(lengths.items()), count, seed, split, denoisers and tuple(denoisers))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ul2_tasks.looking.texts.show.draw", draw_once)
        yield draw_once


def shown(mixture: str, width: int = 1000, **settings) -> str:
    console = Console(file=io.StringIO(), width=width, legacy_windows=False)
    show(mixture, LENGTHS, console=console, **settings)
    return console.file.getvalue()


@pytest.fixture(scope="module")
def output() -> str:
    return shown("ul2_mix")


@pytest.fixture(scope="module")
def odd() -> str:
    """A mixture of one text with everything in it that can break a screen; a byte is a token."""
    return register("odd", MemoryDataSource(lambda: [TEXT], validation=0), vocabulary="bytes", merge_examples=False)


@pytest.mark.parametrize("denoiser", T5GEMMA2, ids=lambda denoiser: denoiser.name)
def test_each_denoiser_is_shown_with_mode_sentinels_lengths_and_counts(output, denoiser):
    (section,) = re.findall(rf"^ul2_{denoiser.name} ─+\n(.*?)(?=^ul2_|\Z)", output, re.MULTILINE | re.DOTALL)
    full = chunk_length(denoiser, LENGTHS)
    assert f"full-length chunk: {full.length} tokens, {full.noise} masked" in section
    assert all(f"{field} {value}" in section for field, value in dataclasses.asdict(denoiser).items())
    assert section.count(denoiser.mode) == 2 + 1, "in two examples, and in the denoiser's description"
    assert section.count("<extra_id_0>") == 4, "in the inputs and the targets of two examples"
    assert section.count(f"<extra_id_{full.spans - 1}>") == 4
    assert f"<extra_id_{full.spans}>" not in section
    assert section.count(f"inputs, {full.inputs} tokens") == section.count(f"targets, {full.targets} tokens") == 2
    rate = f"{full.noise / full.length:.1%}"
    for number in (1, 2):
        assert f"example {number}: {full.length} tokens, {full.noise} masked ({rate}), spans: {full.spans}\n" in section
    assert len(re.findall(r"\b(the|of|is|a|to)\b", section)) > 10, "English"


def test_only_a_terminal_gets_colours_and_nothing_in_a_text_is_a_command(odd):
    settings = {"denoisers": ["s"]}
    plain = shown(odd, **settings)
    assert not set(plain) & {*map(chr, range(32)), "\x7f", "\u2028", "\u202e"} - {"\n"}
    console = Console(file=io.StringIO(), width=150, force_terminal=True, color_system="256", legacy_windows=False)
    show(odd, LENGTHS, console=console, **settings)
    coloured = console.file.getvalue()
    without = re.sub(r"\x1b\[[\d;]*m", "", coloured)
    assert without == shown(odd, 150, **settings)
    assert len(coloured) > len(without)
    for literal in ("[bold]", ":smile:", "\\u001b[31m", "\\u0007", "\\u2028", "\\u202e"):
        assert literal in plain.replace("\n", "")


def test_json_is_one_sample_a_line(capsys, odd):
    show(odd, LENGTHS, count=2, seed=3, denoisers=["r1"], as_json=True)
    lines = capsys.readouterr().out.split("\n")
    expected = [dataclasses.asdict(sample) for sample in draw(odd, LENGTHS, 2, seed=3, denoisers=["r1"])]
    assert [json.loads(line) for line in lines if line] == expected
    assert len(expected) == 2
    assert "日" in "".join(lines), "as letters, not as numbers"
    file = io.StringIO()
    show(odd, LENGTHS, denoisers=["s"], console=Console(file=file), as_json=True)
    assert len(file.getvalue().split("\n")) == 2 + 1


kinds = st.sampled_from(["text", "sentinel", "bytes"])
words = st.text(st.sampled_from("ab 日本Ω\n\t👍é"), min_size=1)
names = {"sentinel": "<extra_id_0>", "bytes": "<0xE6><0x97>"}
parts = st.builds(lambda kind, text: Stretch(kind, names.get(kind, text), 1, None), kinds, words)


def test_characters_that_move_the_cursor_are_symbols():
    assert visible("a\tb\r\nc\rd\x00\u2029\u200f") == "a⇥b⏎\nc\\u000dd\\u0000\\u2029\\u200f"
    same = "👨‍👩‍👧 é e\u0301 \u00a0 [red] אנא 日\u3000本"
    assert visible(same) == same
