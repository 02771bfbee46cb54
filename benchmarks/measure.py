"""What several benchmarks need: a measurement in a new process, memory, a table of medians."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

HERE = pathlib.Path(__file__).parent
PACKAGES = (
    *("ul2_tasks", "t5", "seqio", "tensorflow", "torch", "transformers", "torchdata", "grain", "tokenizers", "datasets"),
    *("datatrove", "mosaicml-streaming", "litdata", "megatron-core"),
)


def in_new_process(script: str, *arguments: object) -> Any:
    """What a script prints last, as JSON, with `--child` and these arguments."""
    search = os.pathsep.join([str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": search, "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, script, "--child", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{command} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def memory(key: str) -> float:
    """MB of this process: VmRSS, VmHWM (the peak) or RssAnon (without the pages of files)."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:")) / 1024


def medians(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Of each number of several runs."""
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def machine() -> dict[str, Any]:
    """What a result was found on, and with."""
    versions = {}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # such as a checkout that is on the path only
            versions[package] = importlib.metadata.version(package)
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines() if os.path.exists("/proc/cpuinfo") else []
    processor = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
    return {"processor": processor, "cpus": os.cpu_count(), "python": platform.python_version(), **versions}


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    Console(width=140).print(table)
