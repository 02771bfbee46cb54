"""What is printed of every kind of data: texts, numbers, checks, and JSON."""

from __future__ import annotations

import dataclasses
import json
import sys
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from ul2_tasks.inspect.statistics import Check

NOTHING = "–"
APART = "\N{NO-BREAK SPACE}%"  # the unit in sentences and lists
LINE_END = "⏎\n"
_MOVING = ("Cc", "Zl", "Zp")  # the Unicode categories of characters that move the cursor
_TURNING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")  # the direction of writing


def visible(text: str) -> str:
    """The text without characters that move the cursor or turn the direction of writing.

    A line end becomes ⏎ and a new line, a tab becomes ⇥, and any other such character becomes its number.

    >>> visible("tab\\there, bell\\x07")
    'tab⇥here, bell\\\\u0007'
    """
    return "".join(map(_visible, text.replace("\r\n", "\n")))


def _visible(character: str) -> str:
    if character in "\n\t":
        return {"\n": LINE_END, "\t": "⇥"}[character]
    is_text = unicodedata.category(character) not in _MOVING and character not in _TURNING
    return character if is_text else f"\\u{ord(character):04x}"


def percent(part: float | None, digits: int = 1, unit: str = "%") -> str:
    """A part of a whole, with so many digits behind the point.

    >>> percent(0.1258), percent(0.1258, 2), percent(None)
    ('12.6%', '12.58%', '–')
    """
    return NOTHING if part is None else f"{100 * part:.{digits}f}{unit}"


def number(value: float | None) -> str:
    """A number with at most three digits behind the point, such as 12, 1.25 or 1,250.5."""
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if value == round(value) else f"{value:,.2f}" if value < 10 else f"{value:,.1f}"


def plain_table(first: str, columns: Sequence[str]) -> Table:
    """A table without lines between columns, so that it fits a terminal of 80 columns."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column(first, overflow="fold")
    for column in columns:
        table.add_column(column, justify="right", overflow="fold")
    return table


def list_table(*columns: str, left: Collection[str] = (), gap: int = 3) -> Table:
    """A table without lines; columns of numbers are right, and those of these names left."""
    table = Table(box=None, padding=(0, gap, 0, 0), header_style="dim")
    for column in columns:
        table.add_column(column, justify="left" if column in left else "right", overflow="fold")
    return table


def print_checks(checks: Sequence[Check], console: Console) -> None:
    """Prints a line for each check, and whether all hold."""
    for check in checks:
        verdict = ("PASS", "green") if check.passed else ("FAIL", "bold red")
        console.print(Text.assemble(verdict, f"  {check.name}: {check.found}"))
    broken = sum(not check.passed for check in checks)
    told = f"{broken} of {len(checks)} checks fail" if broken else f"{len(checks)} of {len(checks)} checks pass"
    console.print(told, style="bold")


def shown_problems(problems: Mapping[str, int], first: Mapping[str, str]) -> Iterator[str]:
    """Each cause, the most frequent first, with how many there are and what was said of the first."""
    for cause in sorted(problems, key=lambda cause: -problems[cause]):
        yield f"{problems[cause]:,} ({cause}), the first: {visible(first[cause])}"


def as_json(found: Any) -> str:
    """A dictionary or a dataclass as a text of JSON."""
    plain = found if isinstance(found, dict) else dataclasses.asdict(found)
    return json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def print_json_lines(lines: Iterable[Mapping[str, Any]], file: IO[str] | None = None) -> None:
    """Prints JSON Lines to a file, by default to standard output."""
    for line in lines:
        print(json.dumps(line, ensure_ascii=False, allow_nan=False), file=file or sys.stdout)


def bars() -> Progress:
    """Bars of what takes long, on a terminal alone; they go when all is done."""
    console, columns = Console(stderr=True), (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def print_head(console: Console, mixture: str, sequence_length: Mapping[str, int | None], split: str, seed: int) -> None:
    """Prints what is shown: the mixture, its budgets, the split and the seed."""
    inputs, targets, tokens = map(sequence_length.get, ("inputs", "targets", "tokens"))
    budgets = "of any length" if tokens is None else f"at most {tokens:,} tokens"
    if inputs is not None and targets is not None:
        budgets = f"inputs of at most {inputs} tokens, targets of at most {targets}"
    console.print(Text.assemble((mixture, "bold"), f": {budgets}; split {split}, seed {seed}"))


def kinds_lost(lost: Sequence[str]) -> str:
    """The kinds of text that `check_round_trip` lists, without its examples.

    >>> kinds_lost([r"tabs: 'a\tb' comes back as 'a b'", "spaces at the end: 'a ' comes back as 'a'"])
    'tabs, spaces at the end'
    """
    return ", ".join(each.partition(":")[0] for each in lost)


def ranges_in_words(ranges: Iterable[tuple[int, int]]) -> str:
    """Ranges (start, stop) with their last numbers, for people.

    >>> ranges_in_words([(90, 100), (0, 1)])
    '90 to 99 and 0'
    """
    return " and ".join(f"{start} to {stop - 1}" if stop > start + 1 else f"{start}" for start, stop in ranges)
