"""What examples cost, and what holds of them, beside what else there is, in one run: tokens at rest to batches of arrays.

    python benchmarks/peers [--cases span,ul2,packed] [--lengths 512,2048] [--sides ..] [--rounds 5] [--tokens 8000000]
        [--tries lost,hosts,resume,mixing] [--output docs/peers.json]

All sides have the same documents, the same vocabulary, and the same lengths of inputs and targets, and make batches of 128 rows:

    span      span corruption alone, T5's: mean span 3, rate 0.15
    ul2       the five denoisers of T5Gemma 2, mixed 1:1:1:1:4
    packed    the same, packed

`sides.py` has a function for each side, and says what it is. Each side is a process (with workers, several), and all of a case play
their rounds in turn, so that what else the machine does meets all of them. Figures are medians of rounds, of CPU time of all
threads and processes from rest to rest, for a token of text. That all do the same work is checked: shares of noise, and lengths
of spans, may differ by a tenth.

Tries, each for span corruption at the first length (or another case, where a side has no other):

    lost      one epoch: the share of the corpus that does not come out
    hosts     whether two processes together read, batch by batch, what one reads
    resume    killed with SIGKILL at a batch, and started again from its state: whether the batches are those of a run without
    mixing    two corpora, 7 : 3: how far, at worst, the examples of the first are from their share, in the first 10,240

A side whose package is not installed is left out, and named. What is in the output already, and was not asked for with `--cases ''`
or `--tries ''`, stays there.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import IO, Any

from sides import SHARES, SIDES
from vocabulary import DENOISERS, fixed_chunk

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))  # for `measure`
BATCH = 128
UNCOUNTED = 2  # rounds
ROUND_SECONDS = 0.5
TRIES = ("lost", "hosts", "resume", "mixing")
SAME = 0.1  # how much shares of noise may differ


class FailedError(Exception):
    """A side that does not run here."""


class Worker:
    """A process of one side."""

    def __init__(self, root: pathlib.Path, side: str, task: str, environment: dict[str, str] | None = None, **spec: Any):
        self.began = time.perf_counter()
        self._errors: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115, the process writes to it as long as it lives
        paths = os.pathsep.join([str(HERE.parent), str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")])
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "worker.py"), json.dumps({"root": str(root), "side": side, "task": task, **spec})],
            env={**os.environ, "PYTHONPATH": paths, **(environment or {})},
            cwd=root,
            text=True,
            bufsize=1,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )

    def answer(self) -> Any:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self._errors.seek(0)
            raise FailedError("".join(self._errors.readlines()[-12:]))
        found = json.loads(line)
        if isinstance(found, str):
            raise FailedError(found)
        return found

    def ask(self, batches: int) -> dict[str, float]:
        print(batches, file=self.process.stdin, flush=True)
        return self.answer()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # it, and its workers
        self.process.wait()


def measured(root: pathlib.Path, case: str, length: int, sides: list[str], rounds: int) -> Iterator[dict[str, Any]]:
    """A row for each side."""
    found: dict[str, dict[str, Any]] = {}
    with contextlib.ExitStack() as stack:
        workers: dict[str, Worker] = {}
        for side in sides:
            worker = stack.enter_context(Worker(root, side, "play", case=case, length=length))
            try:
                size = worker.answer()
                found[side] = {"first_batch_s": time.perf_counter() - worker.began, **size, **worker.answer()}
                workers[side] = worker
            except FailedError as reason:
                yield {"case": case, "length": length, "side": side, "failed": str(reason)}
        # SeqIO packs as many examples at a time as a row has tokens: a round has several of such pools.
        least = 4 if case != "packed" else 4 * length // BATCH
        batches = dict.fromkeys(workers, least)
        played: dict[str, list[dict[str, float]]] = {side: [] for side in workers}
        for number in range(UNCOUNTED + rounds):
            for side, worker in workers.items():
                one = worker.ask(batches[side])
                if number < UNCOUNTED:  # it tells how long a round must be
                    batches[side] = min(2048, max(least, round(batches[side] * ROUND_SECONDS / max(one["wall"], 1e-3))))
                else:
                    played[side].append({**one, "batches": batches[side]})
    first = found[next(iter(workers))]
    for side, runs in played.items():
        about = found[side]
        if side.startswith("copy"):
            about["tokens"] = first["tokens"]
        elif not side.startswith(("Megatron", "UL2_5")):  # whose masks are others'
            assert abs(about["noise"] / first["noise"] - 1) < SAME, f"{side}: {about} beside {first}"
            assert abs(about["span"] / first["span"] - 1) < SAME, f"{side}: {about} beside {first}"
        tokens = [run["batches"] * about["tokens"] for run in runs]
        yield {
            **{"case": case, "length": length, "side": side, **about},
            "cpu_ns": statistics.median(run["cpu"] / count * 1e9 for run, count in zip(runs, tokens)),
            "tokens_per_s": statistics.median(count / run["wall"] for run, count in zip(runs, tokens)),
            "memory_mb": max(run["memory_mb"] for run in runs),
        }


def rows_of(root: pathlib.Path, side: str, case: str, length: int, count: int, **spec: Any) -> list[tuple[str, list[str]]]:
    """The states and the digests of so many batches, of a process that would make more, and is then killed."""
    with Worker(root, side, "rows", case=case, length=length, count=1000, **spec) as worker:
        return [worker.answer() for _ in range(count)]


def try_lost(root: pathlib.Path, side: str, case: str, length: int) -> float:
    import numpy as np

    total = int(np.load(root / "all" / "lengths.npy").sum())
    with Worker(root, side, "once", case=case, length=length, once=True) as worker:
        return 1 - worker.answer() / total


def free_port() -> str:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


def try_hosts(root: pathlib.Path, side: str, case: str, length: int) -> bool:
    count, batch = 8, BATCH // 2
    alone = rows_of(root, side, case, length, count, batch=BATCH)
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    with contextlib.ExitStack() as stack:
        spec = {"case": case, "length": length, "count": 1000, "batch": batch, "world": 2}
        pair = [stack.enter_context(Worker(root, side, "rows", meeting, rank=rank, **spec)) for rank in range(2)]
        together = [[worker.answer()[1] for worker in pair] for _ in range(count)]
    return all(sorted(itertools.chain.from_iterable(rows)) == sorted(whole) for rows, (_, whole) in zip(together, alone))


def try_resume(root: pathlib.Path, side: str, case: str, length: int) -> bool:
    count, killed_at = 20, 9
    whole = [rows for _, rows in rows_of(root, side, case, length, count)]
    before = rows_of(root, side, case, length, killed_at)
    after = rows_of(root, side, case, length, count - killed_at, state=before[-1][0])
    return [rows for _, rows in [*before, *after]] == whole


def try_mixing(root: pathlib.Path, side: str, case: str, length: int) -> float:
    share = SHARES["even"]
    with Worker(root, side, "mixed", case=case, length=length, mixed=True, count=80) as worker:
        counts = worker.answer()
    return max(abs(sum(counts[:number]) - share * BATCH * number) for number in range(1, len(counts) + 1))


def tried(root: pathlib.Path, what: str, side: str, case: str, length: int) -> Any:
    try:
        return {"lost": try_lost, "hosts": try_hosts, "resume": try_resume, "mixing": try_mixing}[what](root, side, case, length)
    except FailedError as reason:
        return str(reason).strip().splitlines()[-1] if str(reason).strip() else "it ended"


def report(result: dict[str, Any]) -> None:
    from measure import print_table

    columns = ["", "CPU ns a token", "to ours", "M tokens/s", "MB", "first batch, s", "fill, %"]
    for case, length in dict.fromkeys((row["case"], row["length"]) for row in result["rows"]):
        of_case = [row for row in result["rows"] if (row["case"], row["length"]) == (case, length)]
        least = next(row["cpu_ns"] for row in of_case if "cpu_ns" in row)
        table = []
        for row in of_case:
            if "failed" in row:
                table.append([row["side"], "not here", *[""] * 5])
                continue
            fill = f"{row['fill_inputs'] * 100:.1f} {row['fill_targets'] * 100:.1f}"
            numbers = [f"{row['cpu_ns']:.1f}", f"{row['cpu_ns'] / least:.1f}", f"{row['tokens_per_s'] / 1e6:.2f}"]
            table.append([row["side"], *numbers, f"{row['memory_mb']:,.0f}", f"{row['first_batch_s']:.1f}", fill])
        print_table(f"{case}, {length}", columns, table)
    if result["tries"]:
        asked = list(next(iter(result["tries"].values())))
        print_table("", ["", *asked], [[side, *(str(of[what]) for what in asked)] for side, of in result["tries"].items()])
    print(json.dumps(result["machine"]))


def main() -> None:
    from measure import machine

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=lambda text: text.split(",") if text else [], default=list(DENOISERS))
    parser.add_argument("--lengths", type=lambda text: [int(each) for each in text.split(",")], default=[512, 2048])
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=8_000_000, help="of the corpus; the tries have a tenth of it")
    parser.add_argument("--tries", type=lambda text: text.split(",") if text else [], default=list(TRIES))
    parser.add_argument("--output", type=pathlib.Path, help="a file for the result, JSON")
    arguments = parser.parse_args()
    chunks = [fixed_chunk("span", length) for length in arguments.lengths]
    jobs = [(case, length) for case in arguments.cases for length in arguments.lengths]
    rows: list[dict[str, Any]] = []
    tries: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        roots = {name: pathlib.Path(folder, name) for name in ("large", "small")}
        for name, root in roots.items():
            root.mkdir()
            size = arguments.tokens // (1 if name == "large" else 10)
            command = [sys.executable, str(HERE / "corpus.py"), str(root), str(size), *map(str, chunks)]
            paths = os.pathsep.join([str(HERE.parent), str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")])
            done = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f"{command} ended with {done.returncode}:\n{done.stderr[-3000:]}")
        for case, length in jobs:
            print(f"{case} at {length}", file=sys.stderr)
            sides = [side for side in arguments.sides if case in SIDES[side][1]]
            rows += measured(roots["large"], case, length, sides, arguments.rounds)
        for side in arguments.sides:
            if arguments.tries and not side.startswith("copy"):
                print(f"tries of {side}", file=sys.stderr)
                place = SIDES[side][1][0], arguments.lengths[0]
                tries[side] = {what: tried(roots["small"], what, side, *place) for what in arguments.tries}
    result: dict[str, Any] = {"machine": machine(), "rows": rows, "tries": tries}
    report(result)
    if arguments.output and arguments.output.exists():  # what was not asked for stays there
        before = json.loads(arguments.output.read_text())
        result = {"machine": machine(), "rows": rows or before["rows"], "tries": {**before["tries"], **tries}}
    if arguments.output:
        arguments.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
