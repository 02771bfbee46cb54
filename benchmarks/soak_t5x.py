"""A t5x run that is killed again and again, on one host, two and four: `python benchmarks/soak_t5x.py [--kills 20] [--seed 0]`.

It needs t5x (docs/guides/train_with_t5x.md) and, for the full disk, the right to mount a file system. From the repository's root it
trains the tiny model of `gin/ul2_tiny.gin`, with one layer, and `gin/elastic.gin`. It saves each ten steps. The hosts are processes
of this machine that train together. One run has these segments:

* on 2, 1, 4 and 2 hosts, ten steps each, to their end;
* `--kills` segments on 1, 2 or 4 hosts, as the seed draws. A host that is drawn gets SIGKILL at a moment that is drawn: one time in
  five before the first step, otherwise within 15 seconds after it. The other hosts get it up to 2 seconds later;
* after a third of these, the largest file of the last checkpoint is cut in half. The run is started, and where it ends with an
  error the checkpoint's folder is removed, as one would;
* after two thirds, the disk of the run, 64 MB of memory that are mounted, is filled while the run trains, but for 1 MB. When
  the run has ended, or can't go on, the disk gets its room back;
* at the end some more steps, to their end.

Each host writes down what it trains on: a digest of each row of each step's batch, as the device has it, and the loss of the step.
Beside the run there are the same steps on one host, which nothing interrupts, and the same rows from `seqio.get_dataset`, without
t5x. The script prints the segments and the first losses, and ends with status 1 unless

* each step had the rows of the uninterrupted run, the first time and whenever it was done again;
* each segment began at the last whole checkpoint, so that the steps that made the last model are each step once;
* the losses are the same to the last digit wherever a step was done again after the same steps on the same numbers of hosts, and
  within 1e-3 of those of the uninterrupted run.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import itertools
import json
import multiprocessing
import os
import pathlib
import random
import re
import runpy
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

REPOSITORY = pathlib.Path(__file__).parent.parent
LENGTHS, BATCH, PERIOD = {"inputs": 128, "targets": 128}, 8, 10  # of gin/ul2_tiny.gin
HOSTS = (1, 2, 4)
FILES = ("gin/ul2_tiny.gin", "gin/elastic.gin")
PLANNED = (2, 1, 4, 2)
DISK, LEFT = 64 << 20, 1 << 20  # bytes: what is left is room for logs, not for a checkpoint
ENDLESS = 1_000_000
HANGING, STARTING = 240, 900  # seconds after which a run that does no step any more is ended, and one that has not begun
GIN = """
from __gin__ import dynamic_registration
import __main__ as train_script
import soak_t5x
from t5x import trainer
from t5x.examples.t5 import network
network.T5Config.num_encoder_layers = 1  # they compile in half the time
network.T5Config.num_decoder_layers = 1
train_script.train:
  train_eval_dataset_cfg = None
  stats_period = 1
  trainer_cls = @soak_t5x.recording_trainer
soak_t5x.recording_trainer:
  trainer_cls = @trainer.Trainer
  folder = %RECORDS
"""


# ---------------------------------------------------------------- in the processes of t5x
def recording_trainer(trainer_cls: Callable[..., Any], folder: str, **arguments: Any) -> Any:
    """A trainer of t5x that writes each step's rows and its loss into a file of this host, a line for each."""
    import jax

    made = trainer_cls(**arguments)
    train = made.train
    path = f"{folder}/{jax.process_index()}"

    def write(**found: Any) -> None:
        with open(path, "a") as file:
            file.write(json.dumps(found) + "\n")

    def recording_train(batches: Iterator[Mapping[str, Any]], num_steps: int, start_step: int) -> Any:
        assert num_steps == 1  # stats_period
        batch = next(batches)
        write(step=start_step, rows=digests({key: local(value) for key, value in batch.items()}))
        summary = train(iter([batch]), 1, start_step=start_step)
        write(step=start_step, loss=float(summary.result()["loss_per_nonpadding_target_token"].value))
        return summary

    made.train = recording_train
    return made


def local(array: Any) -> np.ndarray:
    """What the devices of this host have of an array."""
    shards = sorted(array.addressable_shards, key=lambda shard: shard.index[0].start or 0)
    return np.concatenate([np.asarray(shard.data) for shard in shards])


def digests(batch: Mapping[str, np.ndarray]) -> list[str]:
    """A digest of all features of each row."""
    columns = [(key.encode(), np.asarray(batch[key])) for key in sorted(batch)]
    return [
        hashlib.blake2b(
            b"".join(part for key, column in columns for part in (key, column[row].tobytes())), digest_size=8
        ).hexdigest()
        for row in range(len(columns[0][1]))
    ]


def run_t5x(arguments: list[str], log: str) -> None:
    """What `python -m t5x.train ARGUMENTS` does in the repository's root, with its output in a file, in this process."""
    for descriptor in (1, 2):
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
    os.chdir(REPOSITORY)
    sys.argv[:] = ["t5x.train", *arguments]
    try:
        runpy.run_module("t5x.train", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code:
            raise
    import jax

    jax.distributed.shutdown()  # waits for the other hosts. JAX calls it when Python exits, which such a process does not


# ---------------------------------------------------------------- one segment
class Segment(NamedTuple):
    """What a segment did.

    Attributes:
        name, hosts: what it was for, and on how many hosts.
        checkpoint: the step of the last whole checkpoint when it began.
        rows: the digests of the batch by step, of the steps that all hosts began.
        parts: of each host, the digests of its share by step.
        losses: by step.
        end: how it ended.
        seconds: how long it took.
    """

    name: str
    hosts: int
    checkpoint: int
    rows: dict[int, list[str]]
    parts: list[dict[int, list[str]]]
    losses: dict[int, float]
    end: str
    seconds: float


class Run:
    """A run of t5x in a folder: its checkpoints, on a disk of its own if `disk`, and the records of its segments.

    `files` are its gin files, before those of this script.
    """

    def __init__(self, folder: pathlib.Path, cache: pathlib.Path, disk: bool, files: Sequence[str] = FILES):
        self.folder, self.cache, self.files, self.segments = folder, cache, files, []
        folder.mkdir(parents=True)
        self.disk = folder / "disk"
        self.disk.mkdir()
        self.model_dir = self.disk / "model"
        self.is_mounted = (
            disk
            and not subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", self.disk], stderr=subprocess.DEVNULL
            ).returncode
        )
        self.model_dir.mkdir()
        (folder / "soak.gin").write_text(GIN)

    def close(self) -> None:
        if self.is_mounted:
            subprocess.run(["umount", self.disk], check=True)

    def checkpoints(self) -> list[int]:
        """The steps of whole checkpoints."""
        names = (re.fullmatch(r"checkpoint_(\d+)", path.name) for path in self.model_dir.iterdir())
        return sorted(int(name[1]) for name in names if name)

    def segment(self, name: str, hosts: int, until: int, interrupt: Callable[[Processes], str] | None = None) -> Segment:
        """Trains until a step, or until `interrupt` ends it, which says how it did."""
        records = self.folder / f"records-{len(self.segments):03d}"
        records.mkdir()
        checkpoint, began = max(self.checkpoints(), default=0), time.monotonic()
        processes = Processes(self, hosts, until, records)
        try:
            end = (interrupt or Processes.wait)(processes)
        finally:
            processes.kill()
        parts, losses = read_records(records, hosts)
        whole = sorted(set.intersection(*map(set, parts)))
        rows = {step: list(itertools.chain(*zip(*(part[step] for part in parts)))) for step in whole}
        found = Segment(name, hosts, checkpoint, rows, parts, losses, end, time.monotonic() - began)
        self.segments.append(found)
        print(f"{len(self.segments):3d} {describe(found)}", flush=True)
        return found


class Processes:
    """The hosts of a segment, started."""

    def __init__(self, run: Run, hosts: int, until: int, records: pathlib.Path):
        self.run, self.records = run, records
        arguments = [f"--gin_file={file}" for file in (*run.files, run.folder / "soak.gin")]
        arguments += [f"--seqio_additional_cache_dirs={run.cache}", f"--gin.TRAIN_STEPS={until}"]
        arguments += [f'--gin.MODEL_DIR="{run.model_dir}"', f'--gin.RECORDS="{records}"']
        if hosts > 1:
            arguments += ["--multiprocess_gpu", f"--coordinator_address=127.0.0.1:{free_port()}", f"--process_count={hosts}"]
        self.started = []
        for host in range(hosts):
            own = [f"--process_index={host}"] if hosts > 1 else []
            process = multiprocessing.get_context("fork").Process(
                target=run_t5x, args=([*arguments, *own], f"{records}-{host}.log")
            )
            process.start()
            self.started.append(process)

    def wait(self) -> str:
        """Until all have ended. Where one fails, or nothing happens any more, the others are ended."""
        while any(process.exitcode is None for process in self.started):
            failed = [process for process in self.started if process.exitcode]
            if failed or self.quiet() > (HANGING if self.has_begun() else STARTING):
                self.end_within(20 if failed else 0)
                return f"failed: {self.error()}"
            time.sleep(0.1)
        return f"failed: {self.error()}" if any(process.exitcode for process in self.started) else "to its end"

    def kill_at_random(self, rng: random.Random) -> str:
        """One host at a moment that is drawn, the others soon after."""
        before_first_step, seconds = rng.random() < 0.2, rng.random()
        until_the_others, victim = 2 * rng.random(), rng.choice(self.started)
        if not before_first_step:
            while not self.has_begun():
                if any(process.exitcode is not None for process in self.started) or self.quiet() > STARTING:
                    return f"failed: {self.error()}"
                time.sleep(0.02)
        wait = seconds * (30 if before_first_step else 15)
        time.sleep(wait)
        if any(process.exitcode is not None for process in self.started):
            return f"failed: {self.error()}"
        where = "the start" if before_first_step else "the first step"
        victim.kill()
        time.sleep(until_the_others)
        self.kill()
        return f"killed {wait:.1f} s after {where}"

    def has_begun(self) -> bool:
        """Whether a step has been done, which all hosts do together."""
        return any("loss" in path.read_text() for path in self.records.iterdir())

    def quiet(self) -> float:
        """Seconds since something was recorded, or the start."""
        changes = [self.records.stat().st_mtime, *(path.stat().st_mtime for path in self.records.iterdir())]
        return time.time() - max(changes)

    def end_within(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and any(process.exitcode is None for process in self.started):
            time.sleep(0.1)
        self.kill()

    def kill(self) -> None:
        for process in self.started:
            process.kill()
        for process in self.started:
            process.join()

    def error(self) -> str:
        """The last error in the log of the first host that has one."""
        for host in range(len(self.started)):
            text = pathlib.Path(f"{self.records}-{host}.log").read_text(errors="replace")
            if found := re.findall(r"^(?:[\w.]*(?:Error|Exception)\b.*)$", text, re.MULTILINE):
                return found[-1][:90]
        return "no error was told"


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def read_records(folder: pathlib.Path, hosts: int) -> tuple[list[dict[int, list[str]]], dict[int, float]]:
    """The digests by host and step, and the losses by step. A line that a kill has cut is none."""
    parts, losses = [{} for _ in range(hosts)], {}
    for path in folder.iterdir():
        for line in path.read_text().splitlines():
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                continue
            if "rows" in record:
                parts[int(path.name)][record["step"]] = record["rows"]
            else:
                losses.setdefault(record["step"], record["loss"])
    return parts, losses


def describe(segment: Segment) -> str:
    steps = f"steps {min(segment.rows)} to {max(segment.rows)}" if segment.rows else "no step"
    return f"{segment.name}, {segment.hosts} hosts, from {segment.checkpoint}: {steps}, {segment.end}, {segment.seconds:.0f} s"


# ---------------------------------------------------------------- the whole
def soak(run: Run, kills: int, rng: random.Random) -> list[str]:
    """All segments; returns what went wrong in them that is not in the data."""
    problems = []

    def to_its_end(name: str, hosts: int, steps: int) -> None:
        done = run.segment(name, hosts, max(run.checkpoints(), default=0) + steps)
        if done.end != "to its end":
            problems.append(f"{name} {done.end}")

    for hosts in PLANNED:
        to_its_end("planned", hosts, PERIOD)
    for kill in range(kills):
        if kill == kills // 3:
            problems += corrupted_checkpoint(run, rng)
        if kill == 2 * kills // 3 and run.is_mounted:
            problems += full_disk(run, rng)
        run.segment("kill", rng.choice(HOSTS), ENDLESS, lambda processes: processes.kill_at_random(rng))
        if not run.segments[-1].end.startswith("killed"):
            problems.append(f"a segment that was to be killed {run.segments[-1].end}")
    to_its_end("last", rng.choice(HOSTS), 2 * PERIOD)
    return problems


def corrupted_checkpoint(run: Run, rng: random.Random) -> list[str]:
    """Cuts the largest file of the last checkpoint in half, starts the run, and removes the checkpoint."""
    last = run.checkpoints()[-1]
    folder = run.model_dir / f"checkpoint_{last}"
    largest = max((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    os.truncate(largest, largest.stat().st_size // 2)
    found = run.segment("corrupted checkpoint", rng.choice(HOSTS), last + PERIOD)
    shutil.rmtree(folder)
    return [] if found.end.startswith("failed") and not found.rows else [f"a corrupted checkpoint of step {last} was trained from"]


def full_disk(run: Run, rng: random.Random) -> list[str]:
    """Fills the run's disk while it trains, but for some room."""
    filler = run.disk / "filler"

    def fill(processes: Processes) -> str:
        while not processes.has_begun() and processes.quiet() < STARTING:
            time.sleep(0.02)
        with open(filler, "wb", buffering=0) as file:
            while True:
                try:
                    file.write(bytes(4096))
                except OSError:
                    break
            file.truncate(file.tell() - LEFT)
        return processes.wait()

    found = run.segment("full disk", rng.choice(HOSTS), ENDLESS, fill)
    filler.unlink()
    return [] if found.end.startswith("failed") else [f"with a full disk it went {found.end}"]


def from_seqio(cache: pathlib.Path, steps: int, mixture: str = "ul2_mix") -> Iterator[list[str]]:
    """The digests of each step's rows, from the pipeline alone."""
    import seqio

    import ul2_tasks

    seqio.add_global_cache_dirs([str(cache)])
    settings = {"dataset_split": "train", "shuffle": True, "num_epochs": None, "seed": 0, "use_cached": True}
    rows = seqio.get_dataset(mixture, LENGTHS, ul2_tasks.EncDecFeatureConverter(pack=True), **settings)
    return map(digests, rows.batch(BATCH).take(steps).as_numpy_iterator())


def compare(segments: list[Segment], whole: Segment, expected: list[list[str]]) -> tuple[list[str], dict[str, Any]]:
    """What differs, and counts for the summary."""
    problems, last, redone, seen = [], len(expected), 0, set()
    for number, segment in enumerate([*segments, whole], 1):
        for host, part in enumerate(segment.parts):
            for step, rows in part.items():
                if step < last and rows != expected[step][host :: segment.hosts]:
                    problems.append(f"segment {number}, step {step}, host {host} of {segment.hosts}: other rows than uninterrupted")
        if segment.rows and min(segment.rows) != segment.checkpoint:
            problems.append(f"segment {number} began at step {min(segment.rows)}, and the last checkpoint was {segment.checkpoint}")
        redone += len(seen & set(segment.rows)) if segment is not whole else 0
        seen |= set(segment.rows)
    if whole.end != "to its end":
        problems.append(f"the uninterrupted run {whole.end}")
    if sorted(whole.rows) != list(range(last)):
        problems.append(f"the uninterrupted run has {len(whole.rows)} steps, expected {last}")
    # The steps that made the last model: of each segment those before the next one's first.
    model, hosts_of, exact, same, furthest = [], [], {}, 0, 0.0
    for segment in segments:
        del model[segment.checkpoint :], hosts_of[segment.checkpoint :]
        for step in sorted(segment.rows):
            if step != len(model):
                problems.append(f"after {len(model)} steps came step {step}")
            model.append(segment.rows[step])
            hosts_of.append(segment.hosts)
            if step in segment.losses:
                loss, history = segment.losses[step], (step, tuple(hosts_of))
                same += history in exact
                if exact.setdefault(history, loss) != loss:
                    problems.append(f"step {step}, done again on {segment.hosts} hosts, has loss {loss}, and had {exact[history]}")
                if step in whole.losses:
                    furthest = max(furthest, abs(loss / whole.losses[step] - 1))
    if list(itertools.chain(*model)) != list(itertools.chain(*expected)):
        problems.append("the rows of the steps that made the last model are not those of the uninterrupted run")
    if furthest > 1e-3:
        problems.append(f"a loss is {furthest:.1e} of its size away from the uninterrupted run's")
    counts = {
        "steps that made the last model": len(model),
        "their rows": sum(map(len, model)),
        "steps that were done again": redone,
        "of them after the same steps on the same hosts": same,
        "largest relative difference of a loss": f"{furthest:.1e}",
    }
    return problems, counts


def report(segments: list[Segment], whole: Segment, counts: Mapping[str, Any]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(width=160)
    table = Table("", "segment", "hosts", "checkpoint", "first step", "last step", "how it ended", "seconds", box=box.SIMPLE)
    for number, segment in enumerate(segments, 1):
        steps = (str(min(segment.rows)), str(max(segment.rows))) if segment.rows else ("", "")
        row = (segment.name, str(segment.hosts), str(segment.checkpoint), *steps, segment.end, f"{segment.seconds:.0f}")
        table.add_row(str(number), *row)
    console.print(table)
    losses = Table("step", "hosts", "loss", "uninterrupted, 1 host", "difference", box=box.SIMPLE)
    for segment in segments[: len(PLANNED)]:
        for step, loss in sorted(segment.losses.items()):
            alone = whole.losses[step]
            losses.add_row(str(step), str(segment.hosts), f"{loss:.7f}", f"{alone:.7f}", f"{loss - alone:.0e}")
    console.print(losses)
    for what, count in counts.items():
        console.print(f"{what}: {count}")


def prepare(cache: pathlib.Path) -> None:
    """Imports what t5x does, before it is asked to: each process of a run is a copy of this one. What is compiled once is kept."""
    os.environ |= {"JAX_COMPILATION_CACHE_DIR": str(cache / "jax"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "benchmarks")]
    for name in ("ul2_tasks", "t5x.train", "t5x.examples.t5.network"):
        importlib.import_module(name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", help="an empty or new folder for all that is written, and stays; without it a temporary one")
    arguments = parser.parse_args()
    folder = pathlib.Path(arguments.folder or tempfile.mkdtemp(prefix="soak-")).absolute()
    cache = folder / "cache"
    subprocess.run([sys.executable, "-m", "ul2_tasks", "cache", "ul2", "--output", str(cache)], cwd=REPOSITORY, check=True)
    prepare(cache)
    run = Run(folder / "run", cache, disk=True)
    if not run.is_mounted:
        print("no file system can be mounted here: the segment with a full disk is left out")
    try:
        problems = soak(run, arguments.kills, random.Random(arguments.seed))
    finally:
        run.close()
    steps = len({step for segment in run.segments[-1:] for step in segment.rows} | set(range(run.segments[-1].checkpoint)))
    whole = Run(folder / "whole", cache, disk=False).segment("uninterrupted", 1, steps)
    found, counts = compare(run.segments, whole, list(from_seqio(cache, steps)))
    report(run.segments, whole, counts)
    for problem in [*problems, *found]:
        print(f"PROBLEM: {problem}")
    if not arguments.folder and not (problems or found):
        shutil.rmtree(folder)
    sys.exit(bool(problems or found))


if __name__ == "__main__":
    main()
