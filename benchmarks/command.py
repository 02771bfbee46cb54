"""How long commands take and how much memory, beside Python alone and `import seqio`, which other commands need.

    python benchmarks/command.py [--repeats 7]

It needs this package, and nothing else. Each is a process of its own, in turns; the figures are medians of the wall clock and of
the peak of resident memory. `cache` writes the bundled corpus, and `find` reads it from there.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from rich.console import Console
from rich.progress import track
from rich.table import Table

UL2 = ["-m", "ul2_command"]


def sides(folder: str) -> dict[str, list[str]]:
    return {
        "python -c pass": ["-c", "pass"],
        "ul2 --help": [*UL2, "--help"],
        "ul2 stats --help": [*UL2, "stats", "--help"],
        "ul2 completion bash": [*UL2, "completion", "bash"],
        "ul2 cache": [*UL2, "cache", "--output", f"{folder}/new"],
        "ul2 find": [*UL2, "find", "--document", "3", "--cache", f"{folder}/cache"],
        "ul2 show": [*UL2, "show"],
        "ul2 lengths": [*UL2, "lengths", "--lengths", "512,512"],
        "import seqio": ["-c", "import seqio"],
        "python -m ul2_tasks --help": ["-m", "ul2_tasks", "--help"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory() as folder:
        run([*UL2, "cache", "--output", f"{folder}/cache"])
        found: dict[str, list[tuple[float, float]]] = {side: [] for side in sides(folder)}
        for _ in track(range(repeats), "starting processes"):
            for side, arguments in sides(folder).items():
                found[side].append(run(arguments))
                shutil.rmtree(f"{folder}/new", ignore_errors=True)
    table = Table("process", "seconds", "times Python's own", "peak MB", title="from start to end")
    python = statistics.median(seconds for seconds, _ in found["python -c pass"])
    for side, runs in found.items():
        seconds, peak = (statistics.median(figures) for figures in zip(*runs))
        table.add_row(side, f"{seconds:.2f}", f"{seconds / python:.1f}", f"{peak:,.0f}")
    Console().print(table)


def run(arguments: list[str]) -> tuple[float, float]:
    """Seconds, and the peak of resident memory in MB."""
    before = time.perf_counter()
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(arguments)} ended with {os.waitstatus_to_exitcode(status)}")
    return time.perf_counter() - before, usage.ru_maxrss / 1024


if __name__ == "__main__":
    main()
