"""What caching costs: five stock tasks the usual way, and one corpus for all five; then a mixture read from each.

    python benchmarks/caching.py [--copies 40] [--examples 5120] [--repeats 3] [--output caching.json]

It needs this package with its extras `cache` and `t5`. The corpus is the embedded one, in 16 files of text lines, so many
copies of it. Three jobs write caches of it, each in a process of its own:

* five stock tasks: `seqio_cache_tasks` on `t5_r1` .. `t5_s` of `caching_tasks.py`, tokenized by SeqIO's step as it comes,
  which also stores the text; the denoising after the cache is the recipe from `t5.data.preprocessors` (see `speed/peers.py`);
* one corpus, stock job: `seqio_cache_tasks` on `ours_.*`;
* one corpus, ul2 cache: `python -m ul2_tasks cache ours`.

All on Beam's FnApiRunner. CPU time and peak memory are the operating system's figures for the process and its children;
peak memory is told for a twentieth of the corpus too. Then examples of the mixture at 512 / 512 are read from each cache,
cached, shuffled, mixed 1:1:1:1:4, in padded batches of 128 (after one that warms up), by SeqIO's mixture of t5's tasks and
by ours; medians over repeats in turn. Mean tokens an example are those of the same solved chunks on both sides.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from ul2_tasks.sources.memory import embedded_documents

HERE = pathlib.Path(__file__).parent
FILES = 16
STOCK = ["-m", "seqio.scripts.cache_tasks_main", "--module_import=caching_tasks", "--pipeline_options=--runner=FnApiRunner"]
JOBS = {
    "five stock tasks": ([*STOCK, "--tasks=t5_.*", "--output_cache_dir={}"], "t5_mix"),
    "one corpus, stock job": ([*STOCK, "--tasks=ours_.*", "--output_cache_dir={}"], "ours_mix"),
    "one corpus, ul2 cache": (["-m", "ul2_tasks", "cache", "ours", "--module=caching_tasks", "--output={}"], "ours_mix"),
}


def main() -> None:
    arguments = parse_arguments()
    sizes = (max(1, arguments.copies // 20), arguments.copies)
    results: dict[str, dict] = {job: {"reading": []} for job in JOBS}
    with tempfile.TemporaryDirectory() as folder, Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task("caching and reading", total=len(JOBS) * (2 + arguments.repeats))
        root = pathlib.Path(folder)
        for copies in sizes:
            write_corpus(root / str(copies), copies)
            for job, (command, _) in JOBS.items():
                results[job][copies] = cached(root / str(copies), [part.format(job) for part in command], job)
                progress.advance(bar)
        for _ in range(arguments.repeats):
            for job, (_, mixture) in JOBS.items():
                results[job]["reading"].append(read(root / str(arguments.copies), mixture, job, arguments.examples))
                progress.advance(bar)
    report(results, sizes, arguments.examples)
    if arguments.output:
        arguments.output.write_text(json.dumps(results, indent=2) + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--copies", type=int, default=40, help="of the embedded corpus, 450 kB each; 20 or more")
    parser.add_argument("--examples", type=int, default=5120, help="how many examples of the mixture are read")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--output", type=pathlib.Path, help="a JSON file for all results")
    return parser.parse_args()


def write_corpus(folder: pathlib.Path, copies: int) -> None:
    (folder / "corpus").mkdir(parents=True)
    documents = embedded_documents() * copies
    for file in range(FILES):
        (folder / "corpus" / f"{file}.txt").write_text("\n".join(documents[file::FILES]) + "\n")


def cached(folder: pathlib.Path, command: list[str], job: str) -> dict[str, float]:
    started = time.perf_counter()
    process = start(folder, command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, f"{command} ended with {status}"
    return {
        "cpu": usage.ru_utime + usage.ru_stime,
        "wall": time.perf_counter() - started,
        "peak_mb": usage.ru_maxrss / 1024,
        "bytes": sum(path.stat().st_size for path in (folder / job).rglob("*") if path.is_file()),
    }


def read(folder: pathlib.Path, mixture: str, job: str, examples: int) -> dict[str, float]:
    process = start(folder, [str(HERE / "caching_tasks.py"), mixture, job, str(examples)], stdout=subprocess.PIPE)
    output, _ = process.communicate()
    assert process.returncode == 0, f"reading {mixture} from {job} ended with {process.returncode}"
    return json.loads(output.splitlines()[-1])


def start(folder: pathlib.Path, command: list[str], **settings) -> subprocess.Popen:
    paths = os.pathsep.join([str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths}
    return subprocess.Popen(
        [sys.executable, *command], cwd=folder, env=environment, text=True, stderr=subprocess.DEVNULL, **settings
    )


def report(results: dict[str, dict], sizes: tuple[int, int], examples: int) -> None:
    small, large = sizes
    table = Table(title=f"{large} copies of the embedded corpus; ratios to five stock tasks", title_justify="left")
    for column in (
        "cache",
        "MB",
        "CPU s",
        "wall s",
        f"peak MB, {small} copies",
        f"peak MB, {large}",
        "examples / CPU s",
        "examples / s",
    ):
        table.add_column(column, justify="left" if column == "cache" else "right")
    first = None
    for job, result in results.items():
        reading = {key: statistics.median(run[key] for run in result["reading"]) for key in ("cpu", "wall")}
        of_large = result[large]
        figures = [of_large["bytes"] / 1e6, of_large["cpu"], of_large["wall"], result[small]["peak_mb"], of_large["peak_mb"]]
        figures += [examples / reading["cpu"], examples / reading["wall"]]
        first = first or figures
        ratios = [f"{figure:,.1f} ({figure / base:.2f}x)" for figure, base in zip(figures, first)]
        table.add_row(job, *ratios)
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
