"""`ul2 show`: what a researcher sees first."""

import dataclasses
import functools
import io
import json
import pathlib
import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from ul2_tasks import T5GEMMA2, chunk_length, register
from ul2_tasks.looking.printing import visible
from ul2_tasks.looking.readable import Stretch, stretches
from ul2_tasks.looking.samples import Flow
from ul2_tasks.looking.texts.draw import draw
from ul2_tasks.looking.texts.show import show, show_json
from ul2_tasks.sources.memory import MemoryDataSource
from ul2_tasks.vocabulary.by_name import open_vocabulary
from ul2_tasks.vocabulary.special_ids import special_tokens

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


def test_it_marks_where_another_document_begins(output, odd, drawn_once):
    samples = drawn_once("ul2_mix", LENGTHS, 2, 0, "train", None)
    borders = sum(part.kind == "border" for sample in samples for part in (*sample.inputs, *sample.targets))
    assert borders > 0
    assert output.count("‖") == borders + 1
    assert "‖ = document boundary\n" in output
    assert "‖" not in shown(odd, denoisers=["s"]), "its documents are not joined"


def test_the_budgets_the_seed_and_the_split_are_shown(output):
    assert output.startswith("ul2_mix: inputs of at most 96 tokens, targets of at most 96; split train, seed 0\n")
    other = shown("ul2_mix", denoisers=["r1"], count=1, seed=7, split="validation")
    assert "split validation, seed 7\n" in other
    assert re.findall(r"^ul2_\w+ ─", other, re.MULTILINE) == ["ul2_r1 ─"]
    assert other.count("example ") == 1


@pytest.mark.parametrize(("width", "beside"), [(100, True), (99, False), (20, False)])
def test_inputs_and_targets_are_side_by_side_where_there_is_room(odd, width, beside):
    output = shown(odd, width, denoisers=["s"])
    lines = output.splitlines()
    assert max(map(cell_len, lines)) <= width
    for title in ("inputs", "targets"):
        assert output.count(f"{title}, ") >= 2
    assert all(("targets, " in line) == beside for line in lines if line.startswith("inputs, "))


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


def test_a_span_has_one_colour_on_both_sides_and_its_neighbours_have_others():
    (sample,) = draw("ul2_mix", LENGTHS, 1, denoisers=["r1"])
    colours = {}
    for parts in (sample.inputs, sample.targets):
        text = Flow(parts).wrapped(10**6)
        styles = [str(span.style) for span in text.spans]
        assert len(styles) >= sample.counts.spans
        for part, begin in zip(parts, _begins(parts)):
            (style,) = {str(span.style) for span in text.spans if span.start <= begin < span.end} or {""}
            if part.kind == "sentinel":
                assert "bold reverse" in style
            if part.span is not None:
                colours.setdefault(part.span, set()).add(style.split()[-1])
            else:
                assert style == {"mode": "bold reverse", "eos": "dim", "text": "", "border": "bold"}[part.kind]
    assert len(colours) == sample.counts.spans == 5
    assert all(len(found) == 1 for found in colours.values())
    assert len(set.union(*colours.values())) == 5


def _begins(parts) -> list[int]:
    lengths = [1 if part.kind == "border" else len(visible(part.text)) for part in parts]
    return [sum(lengths[:number]) for number in range(len(parts))]


def test_json_is_one_sample_a_line(capsys, odd):
    show_json(odd, LENGTHS, count=2, seed=3, denoisers=["r1"])
    lines = capsys.readouterr().out.split("\n")
    expected = [dataclasses.asdict(sample) for sample in draw(odd, LENGTHS, 2, seed=3, denoisers=["r1"])]
    assert [json.loads(line) for line in lines if line] == expected
    assert len(expected) == 2
    assert "日" in "".join(lines), "as letters, not as numbers"
    file = io.StringIO()
    show_json(odd, LENGTHS, denoisers=["s"], file=file)
    assert len(file.getvalue().split("\n")) == 2 + 1


def test_ids_as_text_name_what_is_not_text():
    vocabulary = open_vocabulary("default")
    special = special_tokens(vocabulary, "[X]")
    ids = [*special.mode, *vocabulary.encode("déjà vu"), special.sentinels[3], *vocabulary.encode("日本"), special.eos]
    flow = Flow(stretches(vocabulary, ids, special, "inputs"))
    assert flow.wrapped(80).plain == "[X] déjà vu<extra_id_3> 日本</s>"
    assert flow.width == cell_len("[X] déjà vu<extra_id_3> 日本</s>")


kinds = st.sampled_from(["text", "sentinel", "bytes"])
words = st.text(st.sampled_from("ab 日本Ω\n\t👍é"), min_size=1)
names = {"sentinel": "<extra_id_0>", "bytes": "<0xE6><0x97>"}
parts = st.builds(lambda kind, text: Stretch(kind, names.get(kind, text), 1, None), kinds, words)


@given(parts=st.lists(parts), width=st.integers(12, 40))
def test_lines_are_no_longer_than_they_may_and_nothing_but_spaces_at_their_ends_is_lost(parts, width):
    lines = Flow(parts).wrapped(width).plain.split("\n")
    assert max(map(cell_len, lines)) <= width
    everything = "".join(visible(part.text) for part in parts)
    assert re.sub(r"\s", "", "".join(lines)) == re.sub(r"\s", "", everything)
    whole = [line.count("<extra_id_0>") for line in lines]
    assert sum(whole) == sum(part.kind == "sentinel" for part in parts), "no line end in a sentinel"
    assert Flow(parts).wrapped(10**6).plain == everything


def test_lines_break_at_spaces_and_ideographs_rather_than_in_words():
    kept, sentinel = Stretch("text", "one two un", 3, None), Stretch("sentinel", "<0>", 1, 0)
    assert Flow([kept, sentinel, Stretch("text", "ed it", 2, None)]).wrapped(12).plain == "one two \nun<0>ed it"
    assert Flow([Stretch("text", "日本語の文章", 3, None)]).wrapped(7).plain == "日本語\nの文章"
    assert Flow([Stretch("text", "abcdefgh", 3, None)]).wrapped(3).plain == "abc\ndef\ngh"
    spans = [sentinel, Stretch("text", "ab", 1, 0), Stretch("sentinel", "<1>", 1, 1), Stretch("text", "cd", 1, 1)]
    assert Flow(spans).wrapped(9).plain == "<0>ab\n<1>cd", "in targets a span can begin a line"


def test_characters_that_move_the_cursor_are_symbols():
    assert visible("a\tb\r\nc\rd\x00\u2029\u200f") == "a⇥b⏎\nc\\u000dd\\u0000\\u2029\\u200f"
    same = "👨‍👩‍👧 é e\u0301 \u00a0 [red] אנא 日\u3000本"
    assert visible(same) == same


def test_the_figure_of_a_sentence_is_what_the_denoisers_make_now():
    """In a process with the package's own sizes of buffers; `python docs/draw_hero.py` draws it again."""
    docs = pathlib.Path(__file__).parents[3] / "docs"
    program = f"import runpy; print(runpy.run_path({str(docs / 'draw_hero.py')!r})['draw'](), end='')"
    done = subprocess.run([sys.executable, "-c", program], cwd=docs.parent, capture_output=True, text=True, check=True)
    assert done.stdout == (docs / "hero.svg").read_text()
