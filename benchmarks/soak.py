"""Kills what reads and writes data at random moments, goes on with it, and compares the end with an uninterrupted run.

    python benchmarks/soak.py [--kills 20] [--seed 0] [--only torch cache export dask hosts]

    torch   a DataLoader of `UL2IterableDataset`, with 0, 1 or 2 workers, another number each time: each batch is seen once,
            and is the one that an uninterrupted run sees at its place
    cache   `ul2 cache`, here or on Beam with 2 or 3 processes: the files have the same bytes, and there are no others
    export  `ul2 export`, the same
    dask    `ul2 cache` on a Dask cluster of two processes, of which one is killed once both are there, and another starts
    hosts   what 1, 2 or 3 hosts of a t5x run with `elastic.gin` would train on, from the last checkpoint: each step has the rows of
            one host that nothing interrupts. A run for each of `KINDS`, one of which changes its mixture; left out without t5x

SIGKILL ends a process with all that it started; on Dask it ends one worker, and the command lives on. A command that ends before
its moment begins again in a new folder. Each run is forked from this process, which imports all that a run needs, and runs nothing
itself. The status is 1 where something differs.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import importlib.util
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
from typing import IO, NamedTuple

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["PYTHONPATH"] = os.pathsep.join([str(pathlib.Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])

import apache_beam  # noqa: F401 (see above)
import numpy as np
import seqio
import torch
from measure import print_table
from rich.console import Console

import ul2_tasks
import ul2_tasks.corpus.build_cache
import ul2_tasks.export.write
import ul2_tasks.t5x.dataset
from ul2_tasks.cli import main as command

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
STEPS, PERIOD, BATCH, A_STEP = 120, 5, 6, 0.02  # of `hosts`: steps of a run and between checkpoints, rows, seconds of a step
TOKENS, PAIRS = {"tokens": 512}, {"inputs": 512, "targets": 512}
KINDS = {  # the mixture, the converter, and the lengths of the rows
    "documents apart": ("apart_mix", "EncDecFeatureConverter", PAIRS),
    "text, random lengths": ("web_mix", "EncDecFeatureConverter", PAIRS),
    "conversations": ("told_chat", "ChatFeatureConverter", TOKENS),
    "text and replies": ("both_mix", "PromptCompletionFeatureConverter", PAIRS),
    "a schedule": ("planned_mix", "PromptCompletionFeatureConverter", PAIRS),
}


class Outcome(NamedTuple):
    """Of a subject: how often it was killed and started, how many runs ended before their moment, and what differs."""

    kills: int
    starts: int
    ended: int
    differences: list[str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=SUBJECTS, default=list(SUBJECTS))
    arguments = parser.parse_args()
    rows, failed = [], False
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        make_corpus()
        for name in arguments.only:
            draw, begun = random.Random(f"{arguments.seed}/{name}"), time.monotonic()
            outcome = SUBJECTS[name](arguments.kills, draw)
            failed |= bool(outcome.differences)
            numbers = (*outcome[:3], round(time.monotonic() - begun))
            rows.append([name, *map(str, numbers), "[red]no[/red]" if outcome.differences else "yes"])
            print(*(f"{name}: {difference}" for difference in outcome.differences[:5]), sep="\n", end="", flush=True)
        os.chdir("/")
    print_table("", ["what", "kills", "starts", "ended before", "seconds", "the same"], rows)
    sys.exit(failed)


def make_corpus() -> None:
    os.mkdir("texts")
    documents = ul2_tasks.embedded_documents()
    for number in range(FILES):
        lines = (json.dumps({"text": text}) + "\n" for text in documents[number::FILES])
        pathlib.Path(f"texts/{number:02}.jsonl").write_text("".join(lines))


# Processes.


def forked(run: Callable[[], object], log: str = "log") -> int:
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
    if not ends_within(process, MOST_SECONDS):
        kill(process)
        raise RuntimeError(f"it did not end in {MOST_SECONDS:,} seconds: {pathlib.Path('log').read_text()[-2000:]}")


def kill(process: int) -> None:
    os.killpg(process, signal.SIGKILL)
    os.waitpid(process, 0)


# Commands.


def run_command(kind: str, output: str, options: tuple[str, ...] = ()) -> int:
    of_kind = {"cache": (), "export": ("--format", "parquet", "--shards", str(FILES), "--lengths", "64,64")}[kind]
    arguments = [kind, *CORPUS, "--output", output, *of_kind, *options]
    return forked(lambda: command(arguments, prog_name="ul2"))


def contents(folder: str) -> dict[str, str]:
    """The SHA-256 of each file in a folder."""
    files = sorted(path for path in pathlib.Path(folder).rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def compared(found: dict[str, str], wanted: dict[str, str]) -> list[str]:
    return [f"{name} differs" for name in sorted(found.keys() | wanted.keys()) if found.get(name) != wanted.get(name)]


def of_command(kind: str, kills: int, draw: random.Random) -> Outcome:
    begun = time.monotonic()
    finish(run_command(kind, "wanted"))
    seconds, wanted = time.monotonic() - begun, contents("wanted")
    killed, starts, ended = 0, 0, 0
    differences: list[str] = []
    while killed < kills or os.path.exists("out"):
        workers = draw.choice((1, 1, 2, 3))
        process = run_command(kind, "out", () if workers == 1 else ("--workers", str(workers)))
        starts += 1
        # On Beam a run first starts processes, which takes as long as several runs.
        moment = draw.uniform(0.1, 0.9) * seconds + (draw.uniform(0, 15) if workers > 1 else 0)
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
    shutil.rmtree("wanted")
    return Outcome(killed, starts, ended, differences)


@contextlib.contextmanager
def dask_cluster() -> Iterator[tuple[IO[str], IO[str]]]:
    """The lines to and from a cluster: it tells its address, and kills a worker for each line."""
    pathlib.Path("cluster.py").write_text(CLUSTER)
    # Dask blames a task for workers that die while they run it, and gives it up after four. Here no task is to blame.
    environment = {**os.environ, "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1000"}
    with open("cluster.log", "w") as log:
        cluster = subprocess.Popen([sys.executable, "cluster.py"], stdin=-1, stdout=-1, stderr=log, text=True, env=environment)
    assert cluster.stdin
    assert cluster.stdout
    try:
        yield cluster.stdin, cluster.stdout
    finally:
        cluster.communicate(timeout=60)


def of_dask(kills: int, draw: random.Random) -> Outcome:
    finish(run_command("cache", "wanted"))
    wanted = contents("wanted")
    killed, starts, ended = 0, 0, 0
    differences: list[str] = []
    with dask_cluster() as (to_cluster, from_cluster):
        options = (
            f"--pipeline_option=--runner={DASK}",
            f"--pipeline_option=--dask_client_address={from_cluster.readline().strip()}",
        )
        while killed < kills:
            process = run_command("cache", "out", options)
            starts += 1
            while not (is_over := ends_within(process, draw.uniform(0.5, 6))) and killed < kills:
                print(killed, file=to_cluster, flush=True)
                from_cluster.readline()
                killed += 1
            if not is_over:
                finish(process)
            ended += is_over
            differences += compared(contents("out"), wanted)
            shutil.rmtree("out")
    shutil.rmtree("wanted")
    return Outcome(killed, starts, ended, differences)


# A DataLoader.


def of_torch(kills: int, draw: random.Random) -> Outcome:
    finish(run_command("cache", "cached"))
    finish(forked(lambda: see("uninterrupted", 0)))
    wanted, seen = pathlib.Path("uninterrupted").read_text(), pathlib.Path("seen")
    killed, starts, ended = 0, 0, 0
    seen.touch()
    while killed < kills or seen.read_text() != wanted:
        there = seen.read_text()
        if not wanted.startswith(there):
            return Outcome(killed, starts, ended, [f"after {killed} kills other batches were seen"])
        workers = draw.randrange(3)
        process = forked(functools.partial(see, "seen", workers))
        starts += 1
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
    return Outcome(killed, starts, ended, [])


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


# Hosts of t5x.


def of_hosts(kills: int, draw: random.Random) -> Outcome:
    if importlib.util.find_spec("t5x") is None:
        return Outcome(0, 0, 0, [])
    finish(forked(write_caches))
    differences: list[str] = []
    of_each = -(-kills // len(KINDS))
    for kind in KINDS:
        run, whole = pathlib.Path("runs", kind), pathlib.Path("runs", f"{kind}, whole")
        expected = segment(kind, whole, 1, None, draw)[0]
        records = []
        for number in range(of_each + 1):
            hosts, first = draw.choice((1, 2, 3)), last_checkpoint(run)
            for host, rows in enumerate(segment(kind, run, hosts, draw.uniform(0, 1.5) if number < of_each else None, draw)):
                where = f"{kind}, host {host} of {hosts} from step {first}"
                differences += [f"{where} began at step {min(rows)}"] if rows and min(rows) != first else []
                wrong = [step for step, own in rows.items() if own != expected[step][host::hosts]]
                differences += [f"{where}: other rows in steps {wrong}"] if wrong else []
            records.append((run / "ul2_run.json").read_text())
        differences += [] if len(set(records)) == 1 and max(rows) == STEPS - 1 else [f"{kind}: another record, or not to its end"]
    return Outcome(of_each * len(KINDS), (of_each + 2) * len(KINDS), 0, differences)


def register_kinds() -> None:
    """The mixtures of `KINDS`, of the corpora that come with the package."""
    replies = ul2_tasks.register_chat("told", format="prompt_completion")
    vocabulary = seqio.get_mixture_or_task(replies).output_features["targets"].vocabulary
    web = ul2_tasks.register("web", vocabulary=vocabulary, denoisers="UL2")
    apart = ul2_tasks.register("apart", vocabulary=vocabulary, merge_examples=False)
    ul2_tasks.mix("both", {web: 3, replies: 1})
    stages = [ul2_tasks.Stage(0, {web: 1}), ul2_tasks.Stage(40, {web: 1, replies: 1, apart: 1}, ramp_steps=20, ramp_every=5)]
    ul2_tasks.mix("planned", schedule=stages, batch_size=BATCH, steps=STEPS)
    seqio.set_global_cache_dirs(["caches"])


def write_caches() -> None:
    register_kinds()
    for corpus in ("told", "web", "apart"):
        ul2_tasks.corpus.build_cache.build(seqio.TaskRegistry.get(f"{corpus}_corpus").corpus, "caches", console=Console(quiet=True))


def last_checkpoint(run: pathlib.Path) -> int:
    return max((int(path.name.split("_")[1]) for path in run.glob("checkpoint_*")), default=0)


def segment(kind: str, run: pathlib.Path, hosts: int, moment: float | None, draw: random.Random) -> list[dict[int, list[str]]]:
    """The rows that each host read, by step: to the end, or until all are killed one after the other. Then checkpoints are made."""
    run.mkdir(parents=True, exist_ok=True)
    first, lines = last_checkpoint(run), [pathlib.Path(f"rows-{host}") for host in range(hosts)]
    for path in lines:
        path.write_text("")
    processes = [forked(functools.partial(read, kind, run, host, hosts), f"log-{host}") for host in range(hosts)]
    if moment is None:
        for process in processes:
            finish(process)
    else:
        deadline = time.monotonic() + MOST_SECONDS
        while time.monotonic() < deadline and not all(path.stat().st_size for path in lines):
            time.sleep(0.02)
        time.sleep(moment)
        for process in draw.sample(processes, hosts):
            kill(process)
            time.sleep(draw.uniform(0, 0.2))
    parts = [dict(map(json.loads, path.read_text().rpartition("\n")[0].splitlines())) for path in lines]  # not a line that is cut
    for step in range(first + PERIOD, min(max(part, default=-1) for part in parts) + 2, PERIOD):
        (run / f"checkpoint_{step}").mkdir(exist_ok=True)
    return parts


def read(kind: str, run: pathlib.Path, host: int, hosts: int) -> None:
    """What a host reads, from the last checkpoint to the end: a line for each step, with digests of its rows."""
    from t5x import utils

    register_kinds()
    mixture, converter, lengths = KINDS[kind]
    config = utils.DatasetConfig(
        mixture, lengths, split="train", batch_size=BATCH, shuffle=True, seed=0, use_cached=True, pack=True
    )
    checkpoints = utils.CheckpointConfig(save=utils.SaveCheckpointConfig(), restore=None)
    started = {"model_dir": str(run), "checkpoint_cfg": checkpoints}
    batches = ul2_tasks.get_dataset_at_step(config, host, hosts, getattr(ul2_tasks, converter), **started)
    first = ul2_tasks.t5x.dataset.find_start(str(run), checkpoints, None).step
    with open(f"rows-{host}", "a", buffering=1) as file:
        for step, batch in zip(range(first, STEPS), batches.as_numpy_iterator()):
            rows = zip(*(np.asarray(batch[key]) for key in sorted(batch)))
            digests = [hashlib.blake2b(b"".join(value.tobytes() for value in row), digest_size=8).hexdigest() for row in rows]
            file.write(json.dumps([step, digests]) + "\n")
            time.sleep(A_STEP)  # as if it trained


SUBJECTS: dict[str, Callable[[int, random.Random], Outcome]] = {
    "torch": of_torch,
    "cache": lambda kills, draw: of_command("cache", kills, draw),
    "export": lambda kills, draw: of_command("export", kills, draw),
    "dask": of_dask,
    "hosts": of_hosts,
}

if __name__ == "__main__":
    main()
