"""`ul2`, without a command: the mixture that comes with this package, an example, and what is checked, on one screen."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ul2_tasks.corpus.documents import documents_of
from ul2_tasks.inspect.printing import print_checks
from ul2_tasks.inspect.run import Run
from ul2_tasks.inspect.show import flow, show
from ul2_tasks.inspect.statistics import Check
from ul2_tasks.mixtures.mixture import Mixture, described_tasks

LENGTHS = {"inputs": 512, "targets": 512}
EXAMPLE = {"inputs": 40, "targets": 20}  # the lengths of the example: it is shown as a whole
CHECKED = 4000
_COMMANDS = """\
[bold]ul2 show --denoiser r2[/]   more examples         [bold]ul2 stats[/]    all statistics
[bold]ul2 lengths[/]              packing advice        [bold]ul2 report[/]   a web page
[bold]ul2 doctor mine --corpus 'texts/*.jsonl'[/]       check your own data"""


def print_overview(console: Console) -> None:
    """Prints the mixture and an example at once, and the checks when they are done, some seconds later."""
    mixture = Mixture()
    tokens = documents_of(mixture.corpus(), "train", use_cached=False).tokens.tokens
    console.print(Text.assemble(("ul2_mix", "bold"), f": T5Gemma 2's UL2 mixture on a small built-in corpus ({tokens:,} tokens)"))
    console.print(_table(mixture), "", highlight=False)
    (view,) = show(Run(mixture, EXAMPLE, is_beginning=True), count=1, denoisers=["r1"]).views
    console.print(Text.assemble("An example of ", ("ul2_r1", "bold"), ": each masked span has the colour of its sentinel"))
    parts = Table.grid(padding=(0, 2))
    parts.add_column(no_wrap=True, style="dim")
    parts.add_column()
    for key, stretches in view.features.items():
        parts.add_row(key, flow(stretches))
    console.print(parts, "")
    _print_checks(_checks(), console)
    console.print(_COMMANDS, highlight=False)


def _table(mixture: Mixture) -> Table:
    """A row for each denoiser, with its full-length chunk."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("task")
    table.add_column("mode")
    for column in ("mean span", "corrupted", "chunk", "inputs", "targets", "of examples"):
        table.add_column(column, justify="right")
    tasks = {task.denoiser.name: task for task in described_tasks(mixture)}
    weights = sum(denoiser.weight for denoiser in mixture.denoisers)
    for denoiser in mixture.denoisers:
        full = tasks[denoiser.name].solve(LENGTHS).full
        fields = dataclasses.asdict(denoiser)
        span = "suffix" if denoiser.single_span else f"{fields['mean_span_length']:g}"
        sizes = (f"{size:,}" for size in (full.length, full.inputs, full.targets))
        share = denoiser.weight / weights
        table.add_row(tasks[denoiser.name].name, denoiser.mode, span, f"{fields['noise_density']:.0%}", *sizes, f"{share:.1%}")
    return table


def _checks() -> Sequence[Check]:
    from ul2_tasks.inspect.measure import statistics_of

    return statistics_of(Mixture(), LENGTHS, CHECKED).checks


def _print_checks(checks: Sequence[Check], console: Console) -> None:
    passed = sum(check.passed for check in checks)
    verdict = ("PASS", "bold green") if passed == len(checks) else ("FAIL", "bold red")
    console.print(Text.assemble(f"Checked on {CHECKED:,} examples, seed 0: {passed} of {len(checks)} ", verdict))
    console.print(Padding(Text(" · ".join(check.name for check in checks if check.passed), "dim"), (0, 0, 0, 2)))
    if passed < len(checks):
        print_checks([check for check in checks if not check.passed], console)
    console.print()
