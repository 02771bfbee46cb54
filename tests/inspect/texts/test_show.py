"""`ul2 show`: what a researcher sees first."""

import io
import re

import pytest
from rich.console import Console

from ul2_tasks import description_of, register
from ul2_tasks.inspect.printing import visible
from ul2_tasks.inspect.texts.show import show
from ul2_tasks.sources.memory import MemoryDataSource

LENGTHS = {"inputs": 96, "targets": 96}
TEXT = (
    "A text in [bold]brackets[/bold] :smile: with \x1b[31mescapes\x07 and\ttabs,\r\nline\nends\u2028of all kinds and a \u202eturn."
    " 日本語の文章です。我能吞下玻璃而不伤身体。 나는 유리를 먹을 수 있어요. أنا قادر على أكل الزجاج 👨‍👩‍👧‍👦🇨🇿👍🏽"
)


def shown(mixture: str, width: int = 1000, **settings) -> str:
    console = Console(file=io.StringIO(), width=width, legacy_windows=False)
    show(description_of(mixture), LENGTHS, console=console, **settings)
    return console.file.getvalue()


@pytest.fixture(scope="module")
def odd() -> str:
    """A mixture of one text with everything in it that can break a screen; a byte is a token."""
    return register("odd", MemoryDataSource(lambda: [TEXT], validation=0), vocabulary="bytes", merge_examples=False)


def test_only_a_terminal_gets_colours_and_nothing_in_a_text_is_a_command(odd):
    settings = {"denoisers": ["s"], "count": 8}
    plain = shown(odd, **settings)
    assert not set(plain) & {*map(chr, range(32)), "\x7f", "\u2028", "\u202e"} - {"\n"}
    console = Console(file=io.StringIO(), width=150, force_terminal=True, color_system="256", legacy_windows=False)
    show(description_of(odd), LENGTHS, console=console, **settings)
    coloured = console.file.getvalue()
    without = re.sub(r"\x1b\[[\d;]*m", "", coloured)
    assert without == shown(odd, 150, **settings)
    assert len(coloured) > len(without)
    for literal in ("[bold]", ":smile:", "\\u001b[31m", "\\u0007", "\\u2028", "\\u202e"):
        assert literal in plain.replace("\n", "")


def test_characters_that_move_the_cursor_are_symbols():
    assert visible("a\tb\r\nc\rd\x00\u2029\u200f") == "a⇥b⏎\nc\\u000dd\\u0000\\u2029\\u200f"
    same = "👨‍👩‍👧 é e\u0301 \u00a0 [red] אנא 日\u3000本"
    assert visible(same) == same
