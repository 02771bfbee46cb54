"""Reads altered files, and finds what does not end in a sentence.

    python benchmarks/fuzz.py [--minutes 10] [--seed 0] [--only KIND ..] [--findings FOLDER]
    python benchmarks/fuzz.py --replay findings/jsonl-17.json

`fuzz_kinds.py` writes small valid files of each kind and reads them by this package's public functions; `fuzz_mutations.py` alters
them. Each read must end with what was read, or with an error of this package, one sentence that names the file. Findings are

    other error      an error of Python or of a library that went through, or one of ours that tells of such (KeyError: 3)
    nameless         a sentence that does not say which file
    accepted         other data than were written, where a checksum says so
    crash, hang      the process ended, or was silent for four minutes; `slow` is more than 20 s of CPU time
    memory           it grew by more than a gigabyte

They are counted by cause, and the first three cases of each are saved. Cases are read in processes that are forked after the
imports, 25 in each, so that a crash costs one case. It ends with status 1 where something was found.
"""

from __future__ import annotations

import argparse
import base64
import collections
import contextlib
import dataclasses
import faulthandler
import itertools
import json
import os
import pathlib
import random
import re
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from typing import Any, NamedTuple

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import fuzz_kinds
from fuzz_kinds import KINDS, Kind
from rich.console import Console
from rich.live import Live
from rich.table import Table

from ul2_command.errors import sentence_of

BATCH, SAVED = 25, 3
MOST_SECONDS, MOST_CPU, MOST_MEMORY, MOST_MAPPED = 240, 20, 1 << 30, 4 << 30
# An error of ours that tells of one of these was not foreseen.
UNFORESEEN = re.compile(
    r"\b(KeyError|TypeError|IndexError|AttributeError|AssertionError|ZeroDivisionError|UnboundLocalError|RecursionError"
    r"|OverflowError|MemoryError|StopIteration|PanicException|struct\.error|Traceback)\b"
)
OURS = ("/ul2_tasks/", "/ul2_command/", fuzz_kinds.__file__)
GOOD = "good"


class Result(NamedTuple):
    """What became of a case: `cause` is empty where it is as it should be; `said` is the error's sentence, if there was one."""

    number: int
    cause: str
    said: str
    seconds: float
    memory: int


@dataclasses.dataclass
class Tally:
    """The results of a kind."""

    cases: int = 0
    refused: int = 0
    causes: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    seconds: float = 0.0
    memory: int = 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--findings", type=pathlib.Path, default=pathlib.Path("findings"))
    parser.add_argument("--replay", type=pathlib.Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        replayed = None if arguments.replay is None else json.loads(arguments.replay.read_text())
        findings = arguments.findings.absolute()
        os.chdir(folder)
        if replayed is not None:
            sys.exit(replay(replayed))
        sys.exit(fuzz(arguments, findings))


def fuzz(arguments: argparse.Namespace, findings: pathlib.Path) -> int:
    """Reads cases of one kind after the other until the time is over."""
    end, tallies = time.monotonic() + 60 * arguments.minutes, {name: Tally() for name in arguments.only}
    told: dict[tuple[str, str], str] = {}
    console = Console()
    with Live(console=console, refresh_per_second=1) as live, contextlib.suppress(KeyboardInterrupt):
        for name in itertools.cycle(arguments.only):
            if time.monotonic() > end:
                break
            first, tally = tallies[name].cases, tallies[name]
            for result in read_batch(name, arguments.seed, range(first, first + BATCH)):
                tally.cases += 1
                tally.refused += bool(result.said)
                tally.seconds, tally.memory = max(tally.seconds, result.seconds), max(tally.memory, result.memory)
                if result.cause:
                    tally.causes[result.cause] += 1
                    told.setdefault((name, result.cause), result.said)
                    if tally.causes[result.cause] <= SAVED:
                        save(findings, name, arguments.seed, result)
                live.update(summary(tallies))
    for (name, cause), said in told.items():
        console.print(f"[bold]{name}[/bold], {tallies[name].causes[cause]} times:", end=" ")
        console.print(f"{cause}\n    {said[:600]!r}", markup=False, highlight=False)
    return int(bool(told))


def summary(tallies: dict[str, Tally]) -> Table:
    table = Table("kind", "cases", "refused", "read", "findings", "causes", "slowest", "most memory")
    for name, tally in tallies.items():
        if not tally.cases:
            continue
        found = sum(tally.causes.values())
        numbers = (tally.cases, tally.refused, tally.cases - tally.refused, found, len(tally.causes))
        table.add_row(name, *(f"{number:,}" for number in numbers), f"{tally.seconds:.1f} s", f"{tally.memory >> 20} MiB")
    every = [
        sum(column) for column in zip(*((t.cases, t.refused, sum(t.causes.values()), len(t.causes)) for t in tallies.values()))
    ]
    table.add_section()
    table.add_row("all", *(f"{number:,}" for number in (every[0], every[1], every[0] - every[1], *every[2:])), "", "")
    return table


def read_batch(name: str, seed: int, numbers: range) -> Iterator[Result]:
    """The results of some cases; a case that ends its process is one, too."""
    good = pathlib.Path(GOOD, name)
    if not good.exists():
        make_good(name)
    left = list(numbers)
    while left:
        reading, writing = os.pipe()
        process = os.fork()
        if not process:
            os.close(reading)
            _read_cases(name, seed, left, writing)
        os.close(writing)
        with open(reading, "rb", buffering=0) as pipe:
            for fields in _lines_of(pipe, MOST_SECONDS):
                left.pop(0)
                yield Result(*fields)
            hangs = not select.select([pipe], [], [], 0)[0]  # the process still holds the other end, and is silent
        if hangs:
            os.kill(process, signal.SIGKILL)
        status = os.waitpid(process, 0)[1]
        if left:
            log = pathlib.Path("stderr").read_text(errors="replace")
            cause = "hang" if hangs else f"crash {os.waitstatus_to_exitcode(status)}: {_place_of_crash(log)}"
            yield Result(left.pop(0), cause, log[-600:], MOST_SECONDS if hangs else 0, 0)


def _lines_of(pipe: Any, most_seconds: float) -> Iterator[list]:
    """The values in a pipe's lines of JSON, up to its end, or to a silence of so many seconds."""
    rest = b""
    while select.select([pipe], [], [], most_seconds)[0]:
        block = os.read(pipe.fileno(), 1 << 16)
        if not block:
            return
        *lines, rest = (rest + block).split(b"\n")
        yield from map(json.loads, lines)


def _place_of_crash(log: str) -> str:
    """The last function of this package on the stack that `faulthandler` wrote."""
    found = re.search(r'File ".*?/(ul2_\w+/\S+)", line \d+ in (\w+)', log)
    return f"{found[1]}, {found[2]}" if found else log.strip()[-80:]


def make_good(name: str) -> None:
    """Writes the valid files of a kind, in a process of its own, and reads them."""
    process = os.fork()
    if not process:
        try:
            folder = pathlib.Path(GOOD, name)
            folder.mkdir(parents=True)
            KINDS[name].make(folder)
            case = pathlib.Path(f"{GOOD}-{name}")
            shutil.copytree(folder, case)
            baseline = KINDS[name].read(str(case))
            pathlib.Path(f"{GOOD}-{name}.repr").write_text(repr(baseline))
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    if os.waitpid(process, 0)[1]:
        raise SystemExit(f"the valid files of {name} cannot be made, or read")


def _read_cases(name: str, seed: int, numbers: list[int], pipe: int) -> None:
    """Reads cases in this process, which is a fork, and ends it."""
    log = os.open("stderr", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(log, stream)
    faulthandler.enable(log, all_threads=False)
    mapped = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MOST_MAPPED,) * 2)
    try:
        for number in numbers:
            folder = pathlib.Path(f"{name}-case-{number}")
            make_case(folder, name, seed, number)
            result = judged(KINDS[name], str(folder), number, pathlib.Path(f"{GOOD}-{name}.repr").read_text())
            os.write(pipe, json.dumps(result).encode() + b"\n")
            shutil.rmtree(folder)
        os._exit(0)
    except BaseException:  # of this script; a fork that went on would remove the folder of all
        traceback.print_exc()
        os._exit(1)


def make_case(folder: pathlib.Path, name: str, seed: int, number: int) -> None:
    """The files of a case: those of the kind, one or more of them altered. The same ones each time."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(pathlib.Path(GOOD, name), folder)
    draw = random.Random(f"{seed}/{name}/{number}")
    KINDS[name].alter(folder, draw)


def judged(kind: Kind, folder: str, number: int, good: str) -> Result:
    """Reads a case, and says what became of it."""
    _forget_peak()
    memory, seconds = _memory("VmRSS"), time.process_time()
    cause, said = "", ""
    try:
        found = kind.read(folder)
    except BaseException as error:
        said = f"{type(error).__name__}: {error}"
        cause = cause_of(error, folder)
    else:
        if kind.is_guarded and repr(found) != good:
            cause, said = "accepted", f"{found!r:.300} instead of {good:.300}"
    seconds, memory = time.process_time() - seconds, _memory("VmHWM") - memory
    if not cause and seconds > MOST_CPU:
        cause = "slow"
    if not cause and memory > MOST_MEMORY:
        cause = "memory"
    return Result(number, cause, said[:2000].encode(errors="backslashreplace").decode(), seconds, memory)


def cause_of(error: BaseException, folder: str) -> str:
    """Where an error is from that is none of this package's sentences, or has a fault; empty where it is right."""
    message = str(error)
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if any(part in frame.filename for part in OURS)]
    place = f"{'/'.join(pathlib.Path(ours[-1].filename).parts[-2:])}, {ours[-1].name}" if ours else "?"
    of_graph = type(error).__module__.startswith("tensorflow")
    if of_graph:
        message = sentence_of(error)
    is_ours = type(error) in (ValueError, RuntimeError) or type(error).__module__.startswith("ul2_")
    from_us = bool(frames) and frames[-1] in ours
    if not of_graph and not (is_ours and from_us):
        return f"other error {type(error).__name__}: {place}"
    if found := UNFORESEEN.search(message):
        return f"other error {found[0]}, told: {place}"
    if "skipped were, by cause" in message:  # each was logged, with its name
        return ""
    if folder not in message and fuzz_kinds.name_of(folder) not in message:
        return f"nameless: {place}"
    return ""


def _forget_peak() -> None:
    pathlib.Path("/proc/self/clear_refs").write_text("5")


def _memory(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+)", pathlib.Path("/proc/self/status").read_text())
    return int(found[1]) << 10 if found else 0


def save(findings: pathlib.Path, name: str, seed: int, result: Result) -> None:
    """Saves the altered files of a case, for `--replay`."""
    folder = pathlib.Path("saved")
    make_case(folder, name, seed, result.number)
    files = {}
    for path in sorted(folder.rglob("*")):
        before = pathlib.Path(GOOD, name, path.relative_to(folder))
        if path.is_file() and (not before.exists() or before.read_bytes() != path.read_bytes()):
            files[str(path.relative_to(folder))] = base64.b64encode(path.read_bytes()).decode()
    findings.mkdir(parents=True, exist_ok=True)
    case = {"kind": name, "seed": seed, **result._asdict(), "files": files}
    (findings / f"{name}-{result.number}.json").write_text(json.dumps(case, indent=1))


def replay(case: dict) -> int:
    """Reads a saved case in this process, with the traceback of what is raised."""
    name = case["kind"]
    make_good(name)
    folder = pathlib.Path(f"{name}-case-{case['number']}")
    shutil.copytree(pathlib.Path(GOOD, name), folder)
    for file, content in case["files"].items():
        (folder / file).write_bytes(base64.b64decode(content))
    print(f"it was: {case['cause']}\n{case['said']}\n", flush=True)
    faulthandler.enable()
    try:
        print(f"read: {KINDS[name].read(str(folder))!r:.500}")
        return 0
    except BaseException as error:
        traceback.print_exc()
        cause = cause_of(error, str(folder))
        print(f"\nnow: {cause or 'a sentence, as it should be'}")
        return int(bool(cause))


if __name__ == "__main__":
    main()
