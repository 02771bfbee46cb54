"""How long until the first example, and how much memory: `python benchmarks/startup.py [--repeats 3] [--output startup.json]`.

It needs this package with its extra `t5`. Seconds from the start of a Python interpreter until

* an import is done: `ul2_tasks`, and for comparison `seqio` alone;
* the first example of the mixture on the embedded corpus is there, shuffled, as its iterator gives it to Python;
* the first 128 are, one batch;
* the first 2,000 are;

and the peak of resident memory until then. Sides: ours, `ul2_mix` (from 8192 on the same with more sentinels, as chunks so long
need more than its vocabulary has), and t5, the recipe from `t5.data.preprocessors` as five stock tasks of the same documents in
a stock mixture. t5's side imports `ul2_tasks` too, for the corpus and the solved lengths; see what that takes beside `seqio`.
Three more sides read a cache of the embedded corpus by number, at 512: `described`, a `ul2_tasks.Mixture`; `named`, the same by its
name, registered with SeqIO; and `worker`, its examples unpickled, as in a DataLoader's worker that is spawned.
Each in a fresh process, one at a time, in turn, after one of each side that is not counted; medians.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

from rich.console import Console
from rich.progress import track
from rich.table import Table

FOLDER = "UL2_STARTUP"  # in the environment of a child: the folder of the cache
LENGTHS = {"inputs": 512, "targets": 512}
EXAMPLES = {"first example": 1, "128 examples": 128, "2,000 examples": 2000}
SETTINGS = {"split": "train", "shuffle": True, "seed": 0, "num_epochs": None}


def main() -> None:
    arguments = parse_arguments()
    if arguments.child:
        child(*arguments.child)
        return
    with tempfile.TemporaryDirectory() as folder:
        os.environ[FOLDER] = folder
        write_cache(folder)
        measure(arguments)


def measure(arguments: argparse.Namespace) -> None:
    jobs = [
        ("seqio", 0),
        *((side, 512) for side in INDEXED),
        *((side, length) for length in arguments.lengths for side in ("ours", "t5")),
    ]
    for side in ("seqio", "ours", "t5", *INDEXED):
        measured(side, arguments.lengths[0])
    console = Console(width=max(120, Console().width))
    runs: dict[tuple[str, int], list[dict]] = {job: [] for job in jobs}
    for side, length in track(jobs * arguments.repeats, "starting", console=console, transient=True):
        runs[side, length].append(measured(side, length))
    rows = [
        {"side": side, "length": length, "stages": {stage: medians(of_job, stage) for stage in of_job[0]}, "runs": of_job}
        for (side, length), of_job in runs.items()
    ]
    report(console, rows)
    if arguments.output:
        arguments.output.write_text(json.dumps({"cpus": os.cpu_count(), "rows": rows}, indent=1) + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", type=lambda text: [int(length) for length in text.split(",")], default=[512, 2048, 8192])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--output", type=pathlib.Path, help="a JSON file for all results")
    parser.add_argument("--child", nargs=3, metavar=("SIDE", "LENGTH", "STARTED"), help=argparse.SUPPRESS)
    return parser.parse_args()


def measured(side: str, length: int) -> dict[str, dict[str, float]]:
    """By stage: seconds since the start of the process, and peak MB."""
    command = [sys.executable, __file__, "--child", side, str(length), str(time.time())]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{side} at {length} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def child(side: str, length: str, started: str) -> None:
    stages = {}

    def reached(stage: str) -> None:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        stages[stage] = {"seconds": time.time() - float(started), "peak_mb": peak}

    if side == "seqio":
        import seqio  # noqa: F401

        reached("import")
    elif side in INDEXED:
        next(iter(INDEXED[side](os.environ[FOLDER], reached)))
        reached("first example")
    else:
        examples = {"ours": ours, "t5": t5}[side](int(length), reached)
        by_count = {count: stage for stage, count in EXAMPLES.items()}
        for count, _ in zip(range(1, max(by_count) + 1), examples.as_numpy_iterator()):
            if count in by_count:
                reached(by_count[count])
    print(json.dumps(stages))


def write_cache(folder: str) -> None:
    program = f"""
import pickle, ul2_tasks
mixture = ul2_tasks.Mixture()
mixture.cache({folder!r})
examples = ul2_tasks.examples(mixture, {LENGTHS}, cache_dirs=[{folder!r}])
open({folder!r} + "/examples.pickle", "wb").write(pickle.dumps(examples))
"""
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def described(folder: str, reached):
    import ul2_tasks

    reached("import")
    return ul2_tasks.examples(ul2_tasks.Mixture(), LENGTHS, cache_dirs=[folder])


def named(folder: str, reached):
    import ul2_tasks

    reached("import")
    import seqio

    seqio.add_global_cache_dirs([folder])
    return ul2_tasks.examples("ul2_mix", LENGTHS)


def worker(folder: str, reached):
    import pickle

    reached("import")
    with open(f"{folder}/examples.pickle", "rb") as file:
        return pickle.load(file)


INDEXED = {"described": described, "named": named, "worker": worker}


def ours(length: int, reached):
    import ul2_tasks

    reached("import")
    import seqio

    name = "ul2_mix" if length < 8192 else with_more_sentinels(ul2_tasks)
    return seqio.get_mixture_or_task(name).get_dataset({"inputs": length, "targets": length}, **SETTINGS)


def with_more_sentinels(ul2_tasks) -> str:
    from speed.vocabulary import SENTINEL_IDS, VOCABULARY

    return ul2_tasks.register("startup", "embedded", VOCABULARY, sentinels=SENTINEL_IDS)


def t5(length: int, reached):
    import seqio
    from speed.peers import add_t5_mixture, name_text
    from speed.vocabulary import SENTINEL_IDS, VOCABULARY

    from ul2_tasks.sources.memory import embedded_corpus

    reached("import")
    reading = [functools.partial(name_text, key="text"), seqio.preprocessors.tokenize]
    features = {key: seqio.Feature(VOCABULARY) for key in ("inputs", "targets")}
    mixture = add_t5_mixture("t5", embedded_corpus(), reading, features, SENTINEL_IDS)
    return mixture.get_dataset({"inputs": length, "targets": length}, **SETTINGS)


def medians(runs: list[dict], stage: str) -> dict[str, float]:
    return {key: statistics.median(run[stage][key] for run in runs) for key in ("seconds", "peak_mb")}


def report(console: Console, rows: list[dict]) -> None:
    table = Table(title="Seconds since the start of Python, and peak MB until then; medians", title_justify="left")
    for column in ("length", "side", "import", *EXAMPLES):
        table.add_column(column, justify="left" if column == "side" else "right", no_wrap=True)
    for row in rows:
        stages = [row["stages"].get(stage) for stage in ("import", *EXAMPLES)]
        figures = [f"{stage['seconds']:.1f} s, {stage['peak_mb']:,.0f} MB" if stage else "" for stage in stages]
        table.add_row(str(row["length"] or ""), row["side"], *figures)
    console.print(table)


if __name__ == "__main__":
    main()
