"""How long `ul2 --help` and `ul2 completion bash` take, beside Python alone and `import seqio`, which other commands need.

    python benchmarks/command.py [--repeats 7]

It needs this package, and nothing else. Each is a process of its own, in turns; the figures are medians of the wall clock.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

from rich.console import Console
from rich.progress import track
from rich.table import Table

SIDES = {
    "python -c pass": ["-c", "pass"],
    "ul2 --help": ["-m", "ul2_command", "--help"],
    "ul2 stats --help": ["-m", "ul2_command", "stats", "--help"],
    "ul2 completion bash": ["-m", "ul2_command", "completion", "bash"],
    "import seqio": ["-c", "import seqio"],
    "python -m ul2_tasks --help": ["-m", "ul2_tasks", "--help"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    seconds = {side: [] for side in SIDES}
    for _ in track(range(parser.parse_args().repeats), "starting processes"):
        for side, arguments in SIDES.items():
            before = time.perf_counter()
            subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
            seconds[side].append(time.perf_counter() - before)
    table = Table("process", "seconds", "times Python's own", title="from start to end")
    python = statistics.median(seconds["python -c pass"])
    for side, figures in seconds.items():
        median = statistics.median(figures)
        table.add_row(side, f"{median:.2f}", f"{median / python:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
