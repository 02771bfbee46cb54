"""Kills what reads and writes data at random moments, goes on with it, and compares the end with an uninterrupted run.

    python benchmarks/soak.py [--kills 20] [--seed 0] [--only torch cache export dask_cache dask_export]

    torch        a DataLoader of `UL2IterableDataset`, with 0, 1 or 2 workers, another number each time: each batch is seen once,
                 and is the one that an uninterrupted run sees at its place
    cache        `ul2 cache`, here or on Beam with 2 or 3 processes: the files have the same bytes, and there are no others
    export       `ul2 export`, the same
    dask_cache   `ul2 cache` on a Dask cluster of two processes, of which one is killed once both are there, and another starts
    dask_export  `ul2 export`, the same

SIGKILL ends a process with all that it started; on Dask it ends one worker, and the command lives on. A command that ends before
its moment begins again in a new folder. Each run is forked from this process, which imports all that a run needs, and runs nothing
itself. The status is 1 where something differs.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import itertools
import json
import os
import pathlib
import pickle
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["PYTHONPATH"] = os.pathsep.join([str(pathlib.Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])

import apache_beam  # noqa: F401 (see above)
import numpy as np
import seqio
import torch
from rich.console import Console
from rich.progress import Progress, TaskID
from rich.table import Table

import ul2_tasks
import ul2_tasks.corpus.build_cache
import ul2_tasks.export.write
from ul2_command import main as command
from ul2_tasks.sources.memory import embedded_documents

FILES, ROWS, BATCHES = 24, 4, 3000
MOST_SECONDS = 1000  # of a run that is not killed
LENGTHS = {"inputs": 64, "targets": 64}
CORPUS = ("own", "--corpus", "texts", "--vocabulary", "default")
DASK = "apache_beam.runners.dask.dask_runner.DaskRunner"
CLUSTER = """
import random, subprocess, sys, time
from distributed import LocalCluster

def start():
    options = ("--no-nanny", "--nthreads", "1", "--no-dashboard")
    return subprocess.Popen([sys.executable, "-m", "distributed.cli.dask_worker", cluster.scheduler_address, *options])

def wait_for(workers):
    while len(cluster.scheduler.workers) != workers:
        time.sleep(0.05)

with LocalCluster(n_workers=0, dashboard_address=None) as cluster:
    workers = [start(), start()]
    wait_for(2)
    print(cluster.scheduler_address, flush=True)
    for line in sys.stdin:
        wait_for(2)
        worker = workers.pop(random.Random(line).randrange(2))
        worker.kill()
        worker.wait()
        wait_for(1)
        workers.append(start())
        print("killed", flush=True)
    for worker in workers:
        worker.kill()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=SUBJECTS, default=list(SUBJECTS))
    arguments = parser.parse_args()
    table, failed = Table("what", "kills", "goes", "ended before", "seconds", "the same"), False
    with tempfile.TemporaryDirectory() as folder, Progress(console=Console(stderr=True), auto_refresh=False) as progress:
        os.chdir(folder)
        make_corpus()
        for name in arguments.only:
            bar = progress.add_task(name, total=arguments.kills)
            draw, begun = random.Random(f"{arguments.seed}/{name}"), time.monotonic()
            kills, goes, ended, differences = SUBJECTS[name](arguments.kills, draw, lambda bar=bar: shown(progress, bar))
            failed |= bool(differences)
            told = "[red]no[/red]" if differences else "yes"
            table.add_row(name, *map(str, (kills, goes, ended, round(time.monotonic() - begun))), told)
            for difference in differences[:5]:
                progress.console.print(f"{name}: {difference}", markup=False)
    Console().print(table)
    sys.exit(failed)


def shown(progress: Progress, bar: TaskID) -> None:
    """One kill more. No thread shows it, because one that is forked could hold a lock without end."""
    progress.advance(bar)
    progress.refresh()


def make_corpus() -> None:
    os.mkdir("texts")
    documents = list(embedded_documents())
    for number in range(FILES):
        lines = (json.dumps({"text": text}) + "\n" for text in documents[number::FILES])
        pathlib.Path(f"texts/{number:02}.jsonl").write_text("".join(lines))


def forked(run: Callable[[], object], log: str) -> int:
    """Runs a function in a new process, the first of its group, and gives its id."""
    process = os.fork()
    if process:
        return process
    status = 1
    try:
        os.setsid()
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(output, stream)
        run()
        status = 0
    except SystemExit as end:
        status = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def ends_within(process: int, seconds: float) -> bool:
    """Whether a process ends in so many seconds; one that fails is an error."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            if status:
                raise RuntimeError(f"it ended with status {status}: {pathlib.Path('log').read_text()[-2000:]}")
            return True
        time.sleep(0.01)
    return False


def finish(process: int) -> None:
    """Waits for a process to end; one that hangs is an error."""
    if not ends_within(process, MOST_SECONDS):
        kill(process)
        raise RuntimeError(f"it did not end in {MOST_SECONDS:,} seconds: {pathlib.Path('log').read_text()[-2000:]}")


def kill(process: int) -> None:
    os.killpg(process, signal.SIGKILL)
    os.waitpid(process, 0)


def run_command(kind: str, output: str, options: tuple[str, ...]) -> int:
    of_kind = {"cache": (), "export": ("--format", "parquet", "--shards", str(FILES), "--lengths", "64,64")}[kind]
    arguments = [kind, *CORPUS, "--output", output, *of_kind, *options]
    return forked(lambda: command(arguments, prog_name="ul2"), "log")


def contents(folder: str) -> dict[str, str]:
    """The SHA-256 of each file in a folder."""
    files = sorted(path for path in pathlib.Path(folder).rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def compared(found: dict[str, str], wanted: dict[str, str]) -> list[str]:
    return [f"{name} differs" for name in sorted(found.keys() | wanted.keys()) if found.get(name) != wanted.get(name)]


def of_command(kind: str, kills: int, draw: random.Random, advance: Callable[[], None]) -> tuple[int, int, int, list[str]]:
    begun = time.monotonic()
    finish(run_command(kind, "wanted", ()))
    seconds, wanted = time.monotonic() - begun, contents("wanted")
    killed, goes, ended, differences = 0, 0, 0, []
    while killed < kills or os.path.exists("out"):
        workers = draw.choice((1, 1, 2, 3))
        on_beam = () if workers == 1 else ("--workers", str(workers))
        process = run_command(kind, "out", on_beam)
        goes += 1
        # On Beam a run first starts processes, which takes as long as several runs.
        moment = draw.uniform(0.1, 0.9) * seconds + (draw.uniform(0, 15) if on_beam else 0)
        is_last = killed == kills
        if is_last:
            finish(process)
        if is_last or ends_within(process, moment):
            ended += not is_last
            differences += compared(contents("out"), wanted)
            shutil.rmtree("out")
        else:
            kill(process)
            killed += 1
            advance()
    shutil.rmtree("wanted")
    return killed, goes, ended, differences


@contextlib.contextmanager
def dask_cluster() -> Iterator[tuple[str, subprocess.Popen]]:
    """The address of a cluster, and its process, which kills a worker for each line."""
    pathlib.Path("cluster.py").write_text(CLUSTER)
    # Dask blames a task for workers that die while they run it, and gives it up after four. Here no task is to blame.
    environment = {**os.environ, "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1000"}
    with open("cluster.log", "w") as log:
        cluster = subprocess.Popen([sys.executable, "cluster.py"], stdin=-1, stdout=-1, stderr=log, text=True, env=environment)
    try:
        yield cluster.stdout.readline().strip(), cluster
    finally:
        cluster.communicate(timeout=60)


def of_dask(kind: str, kills: int, draw: random.Random, advance: Callable[[], None]) -> tuple[int, int, int, list[str]]:
    finish(run_command(kind, "wanted", ()))
    wanted = contents("wanted")
    killed, goes, ended, differences = 0, 0, 0, []
    with dask_cluster() as (address, cluster):
        options = ("--runner", DASK, f"--pipeline_option=--dask_client_address={address}")
        while killed < kills:
            process = run_command(kind, "out", options)
            goes += 1
            while not (is_over := ends_within(process, draw.uniform(0.5, 6))) and killed < kills:
                print(killed, file=cluster.stdin, flush=True)
                cluster.stdout.readline()
                killed += 1
                advance()
            if not is_over:
                finish(process)
            ended += is_over
            differences += compared(contents("out"), wanted)
            shutil.rmtree("out")
    shutil.rmtree("wanted")
    return killed, goes, ended, differences


def of_torch(kills: int, draw: random.Random, advance: Callable[[], None]) -> tuple[int, int, int, list[str]]:
    finish(run_command("cache", "cached", ()))
    finish(forked(lambda: see("uninterrupted", 0), "log"))
    wanted, seen = pathlib.Path("uninterrupted").read_text(), pathlib.Path("seen")
    killed, goes, ended = 0, 0, 0
    seen.touch()
    while killed < kills or seen.read_text() != wanted:
        there = seen.read_text()
        if not wanted.startswith(there):
            return killed, goes, ended, [f"after {killed} kills other batches were seen"]
        workers = draw.randrange(3)
        process = forked(lambda workers=workers: see("seen", workers), "log")
        goes += 1
        is_over = killed == kills
        if is_over:
            finish(process)
        while not is_over and seen.read_text() == there:  # the moment is after its first batch: most of its time goes by before
            is_over = ends_within(process, 0.01)
        if is_over or ends_within(process, draw.uniform(0, 0.2)):
            if killed < kills:
                ended += 1
                seen.write_text("" if seen.read_text() == wanted else seen.read_text())
        else:
            kill(process)
            killed += 1
            advance()
    return killed, goes, ended, []


def see(log: str, workers: int) -> None:
    """Writes a line for each batch, its number and what is in it, from where the lines end."""
    seqio.add_global_cache_dirs(["cached"])
    mixture = ul2_tasks.register("own", "texts")
    dataset = ul2_tasks.UL2IterableDataset(mixture, LENGTHS, use_cached=True, rank=0, world_size=1, batch_size=ROWS)
    state, lines = pathlib.Path("state"), pathlib.Path(log)
    first = len(lines.read_text().splitlines()) if lines.exists() else 0
    if state.exists():
        dataset.load_state_dict({**pickle.loads(state.read_bytes()), "number": first * ROWS})
    loader = torch.utils.data.DataLoader(dataset, batch_size=ROWS, num_workers=workers, collate_fn=list)
    with open(log, "a") as opened:
        for number, batch in enumerate(itertools.islice(loader, BATCHES - first), first):
            content = repr([{key: np.asarray(value).tolist() for key, value in example.items()} for example in batch])
            os.write(opened.fileno(), f"{number} {hashlib.sha256(content.encode()).hexdigest()}\n".encode())
    if not state.exists():
        state.write_bytes(pickle.dumps(dataset.state_dict()))


SUBJECTS: dict[str, Callable] = {
    "torch": of_torch,
    "cache": lambda *arguments: of_command("cache", *arguments),
    "export": lambda *arguments: of_command("export", *arguments),
    "dask_cache": lambda *arguments: of_dask("cache", *arguments),
    "dask_export": lambda *arguments: of_dask("export", *arguments),
}

if __name__ == "__main__":
    main()
