"""Kills what reads and writes data at random moments, goes on with it, and compares the end with an uninterrupted run.

    python benchmarks/soak.py [--kills 20] [--seed 0] [--only torch cache export dask hosts]

    torch   1, 2 or 3 processes with DataLoaders of `UL2IterableDataset`, the first without workers, from the last state: each step
            has the rows of one process that nothing interrupts. A run of all `FEATURES`, and of 5, 4, 3 and 2 by chance
    cache   `ul2 cache`, here or on Beam with 2 or 3 processes: the files have the same bytes, and there are no others
    export  `ul2 export`, the same
    dask    `ul2 cache` on a Dask cluster of two processes, of which one is killed once both are there, and another starts
    hosts   the same of what hosts of a t5x run with `elastic.gin` would train on: a run for each of `KINDS`, one of which changes
            its mixture; left out without t5x

SIGKILL ends a process with all that it started; on Dask it ends one worker, and the command lives on. A command that ends before
its moment begins again in a new folder. Each run is forked from this process, which imports all that a run needs, and runs nothing
itself. The status is 1 where something differs.
"""

from __future__ import annotations

import argparse
import collections
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
from collections.abc import Callable, Iterable, Iterator
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

FILES = 24
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
STEPS, PERIOD, BATCH, A_STEP = 120, 5, 6, 0.02  # steps of a run and between checkpoints, rows, seconds of a step
TOKENS, PAIRS = {"tokens": 512}, {"inputs": 512, "targets": 512}
KINDS = {  # the mixture, the converter, and the lengths of the rows
    "documents apart": ("apart_mix", "EncDecFeatureConverter", PAIRS),
    "text, random lengths": ("web_mix", "EncDecFeatureConverter", PAIRS),
    "conversations": ("told_chat", "ChatFeatureConverter", TOKENS),
    "text and replies": ("both_mix", "PromptCompletionFeatureConverter", PAIRS),
    "a schedule": ("planned_mix", "PromptCompletionFeatureConverter", PAIRS),
}
FEATURES = (
    "diffusion",
    "in-filling",
    "borders",
    "weights",
    "lengths",
    "tokens",
    "epochs",
    "appended",
    "packed",
    "excluded",
    "cached",
)


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
        lines = (json.dumps({"text": text, "weight": len(text) % 3}) + "\n" for text in documents[number::FILES])
        pathlib.Path(f"texts/{number:02}.jsonl").write_text("".join(lines))


# Processes.


def forked(run: Callable[[], object]) -> int:
    """Runs a function in a new process, the first of its group, and gives its id."""
    process = os.fork()
    if process:
        return process
    status = 1
    try:
        os.setsid()
        output = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
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


# Hosts.


def of_hosts(rows_of: Callable, kinds: Iterable[str], kills: int, draw: random.Random) -> Outcome:
    differences: list[str] = []
    kinds = list(kinds)[:kills]
    of_each, ended = -(-kills // len(kinds)), 0
    for kind in kinds:
        run, whole = pathlib.Path("runs", kind), pathlib.Path("runs", f"{kind}, whole")
        expected = segment(rows_of, kind, whole, 1, None, draw)[0]
        records, before = [], len(differences)
        for number in range(of_each + 1):
            if last_checkpoint(run) == STEPS:
                ended += 1
                shutil.rmtree(run)
            hosts, first = draw.choice((1, 2, 3)), last_checkpoint(run)
            parts = segment(rows_of, kind, run, hosts, draw.uniform(0, 1.5) if number < of_each else None, draw)
            where = f"{kind}, {hosts} hosts from step {first}"
            differences += [f"{where}: one began at step {min(rows)}" for rows in parts if rows and min(rows) != first]
            found = {step: collections.Counter(row for rows in parts for row in rows.get(step, ())) for step in expected}
            wrong = [step for step, rows in expected.items() if found[step] - collections.Counter(rows)]
            differences += [f"{where}: other rows in steps {wrong}"] if wrong else []
            records.append((run / "ul2_run.json").read_text())
        if len(set(records)) > 1 or any(len(rows) != STEPS - first for rows in parts) or len(expected) != STEPS:
            differences.append(f"{kind}: another record, or not to its end")
        print(f"{kind}: {of_each} kills, {len(differences) - before} differences", flush=True)
    return Outcome(of_each * len(kinds), (of_each + 2) * len(kinds), ended, differences)


# PyTorch.


def of_torch(kills: int, draw: random.Random) -> Outcome:
    return of_hosts(rows_of_torch, map(" + ".join, [FEATURES, *(draw.sample(FEATURES, n) for n in (5, 4, 3, 2))]), kills, draw)


def rows_of_torch(kind: str, run: pathlib.Path, host: int, hosts: int) -> Iterator[tuple[int, list[dict]]]:
    """Two corpora in two stages. The first process keeps the state of each checkpoint."""
    has, first, marks = kind.split(" + "), last_checkpoint(run), tuple(f"<extra_id_{number}>" for number in range(3))
    borders = "words" if "borders" in has else None
    spans = ul2_tasks.SpanDenoiser(name="r", mode="[R]", mean_span_length=3, noise_density=0.15, borders=borders)
    denoisers = [spans, ul2_tasks.FIMDenoiser(tokens=marks, borders="words")] if "in-filling" in has else [spans]
    repeated: dict = {"loss_weight_key": "weight", "repeated_ngrams": ul2_tasks.RepeatedNgrams(3, 3)} if "weights" in has else {}
    one = ul2_tasks.Mixture("one", "texts/0*.jsonl", "default", denoisers, **repeated)
    other = ul2_tasks.MaskDiffusion(mask=marks[0]) if "diffusion" in has else ul2_tasks.T5GEMMA2[4]
    two = ul2_tasks.Mixture("two", "texts/1[0-7].jsonl", "default", [other], merge_examples=False)
    larger: dict = {"lengths": {"inputs": 96, "targets": 96}, "batch_size": 2 * BATCH} if "lengths" in has else {}
    ramp = ul2_tasks.Stage(40, {one: 1, two: 1}, ramp_steps=20, ramp_every=5, **larger)
    shares: dict = {"weigh": "tokens" if "tokens" in has else "examples", "max_epochs": {two: 1} if "epochs" in has else {}}
    stages = [ul2_tasks.Stage(0, {one: 3, two: 1}, lengths=LENGTHS if larger else ()), ramp]
    mix, folders = ul2_tasks.Mix("mixed", schedule=stages, batch_size=BATCH, steps=STEPS, **shares), [f"cached/{kind}"]
    if "cached" in has and not os.path.exists(folders[0]):
        mix.cache(folders[0])
    gone = [{"corpus": f"{name}_corpus", "document": 7} for name in ("one", "two")] if "excluded" in has else None
    settings: dict = {"pack": "packed" in has, "exclude": gone, "cache_dirs": folders if "cached" in has else []}
    dataset = ul2_tasks.UL2IterableDataset(ul2_tasks.examples(mix, LENGTHS, **settings), rank=host, world_size=hosts)
    (run / "ul2_run.json").write_text(mix.fingerprint())
    if first:
        dataset.load_state_dict(pickle.loads((run / f"state_{first}").read_bytes()))
    rows = iter(torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=host * (1 + first // PERIOD % 2)))
    for step in range(first, STEPS):
        if step == 50 and "appended" in has and not dataset.stages:
            dataset.append_stage(60, {one: 1, two: 4})
        read = list(itertools.islice(rows, BATCH // hosts))
        if host == 0 and not (step + 1) % PERIOD:
            (run / f"state_{step + 1}").write_bytes(pickle.dumps(dataset.state_dict()))
        yield step, read


# t5x.


def of_t5x(kills: int, draw: random.Random) -> Outcome:
    if importlib.util.find_spec("t5x") is None:
        return Outcome(0, 0, 0, [])
    finish(forked(write_caches))
    return of_hosts(rows_of_t5x, KINDS, kills, draw)


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


def segment(
    rows_of: Callable, kind: str, run: pathlib.Path, hosts: int, moment: float | None, draw: random.Random
) -> list[dict[int, list[str]]]:
    """The rows that each host read, by step: to the end, or until all are killed one after the other. Then checkpoints are made."""
    run.mkdir(parents=True, exist_ok=True)
    first, lines = last_checkpoint(run), [pathlib.Path(f"rows-{host}") for host in range(hosts)]
    for path in lines:
        path.write_text("")
    processes = [forked(functools.partial(read, rows_of(kind, run, host, hosts), host)) for host in range(hosts)]
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


def read(steps: Iterator[tuple[int, list[dict]]], host: int) -> None:
    """Writes a line for each step that a host reads, with digests of its rows."""
    with open(f"rows-{host}", "a", buffering=1) as file:
        for step, rows in steps:
            values = ([np.asarray(row[key]).tobytes() for key in sorted(row)] for row in rows)
            digests = [hashlib.blake2b(b"".join(each), digest_size=8).hexdigest() for each in values]
            file.write(json.dumps([step, digests]) + "\n")
            time.sleep(A_STEP)  # as if it trained


def rows_of_t5x(kind: str, run: pathlib.Path, host: int, hosts: int) -> Iterator[tuple[int, list[dict]]]:
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
    for step, batch in zip(range(first, STEPS), batches.as_numpy_iterator()):
        yield step, [dict(zip(batch, row)) for row in zip(*batch.values())]


SUBJECTS: dict[str, Callable[[int, random.Random], Outcome]] = {
    "torch": of_torch,
    "cache": lambda kills, draw: of_command("cache", kills, draw),
    "export": lambda kills, draw: of_command("export", kills, draw),
    "dask": of_dask,
    "hosts": of_t5x,
}

if __name__ == "__main__":
    main()
