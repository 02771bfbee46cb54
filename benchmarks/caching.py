"""What it costs to tokenize a corpus into files: `ul2 cache`, beside others, and beside the bare tokenizer.

    python benchmarks/caching.py [--megabytes 24] [--formats jsonl zst parquet text] [--repeats 3] [--megatron CHECKOUT]

It needs this package with its extras `cache` and `huggingface`. The documents are made of the embedded corpus, one to three of
its documents each, and lie in one file. Two tokenizers: the default SentencePiece model, and a byte-level BPE for `tokenizers`,
which is trained on the embedded corpus. Each job is a process of its own:

* bare tokenizer: reads and parses the file, and calls the tokenizer's library, a document at a time (SentencePiece), or a list
  at a time (`tokenizers`, whose single calls are slow). It writes nothing;
* ul2 cache; with `--workers 2`, too, of the first format and SentencePiece alone;
* seqio_cache_tasks: SeqIO's own job on our corpus, on Beam's FnApiRunner, of the same alone;
* datasets.map: Hugging Face's, batched, with the same tokenizer, saved to disk;
* preprocess_data.py: Megatron-LM's, where a checkout of it is named (JSON Lines alone).

CPU time and peak memory are the operating system's figures for the process and its children. The same job on ten documents is
its start-up, which is told apart: what remains is the work. The jobs take turns; medians over repeats.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

PEERS = pathlib.Path(__file__).parent / "caching_peers.py"
FORMATS = ("jsonl", "zst", "parquet", "text")
SUFFIXES = dict(zip(FORMATS, ("jsonl", "jsonl.zst", "parquet", "txt")))
MODEL = PEERS.parents[1] / "ul2_tasks" / "data" / "default.model"


def main() -> None:
    arguments = parse_arguments()
    results = {}
    with tempfile.TemporaryDirectory() as folder, Progress(console=Console(stderr=True)) as progress:
        root = pathlib.Path(folder)
        # Another process makes the corpora: the peak memory of a child is at least that of the process that starts it.
        subprocess.run([sys.executable, str(PEERS), "make", folder, str(arguments.megabytes)], env=environment(), check=True)
        tokenizers = {"SentencePiece": MODEL, "tokenizers": root / "bpe"}
        cases = [(format, tokenizer) for format in arguments.formats for tokenizer in tokenizers]
        bar = progress.add_task("caching", total=len(cases))
        for format, tokenizer in cases:
            paths = {size: root / f"{size}.{SUFFIXES[format]}" for size in ("few", "all")}
            commands = jobs(format, tokenizers[tokenizer], arguments, is_first=(format, tokenizer) == cases[0])
            results[f"{format}, {tokenizer}"] = measure(root, paths, commands, arguments.repeats)
            progress.advance(bar)
        lines = (root / "all.txt").read_bytes()
        report(results, len(lines), lines.count(b"\n"))
    if arguments.output:
        arguments.output.write_text(json.dumps(results, indent=2) + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=float, default=24, help="of text")
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--megatron", type=pathlib.Path, help="a checkout of Megatron-LM; the environment needs its packages")
    parser.add_argument("--output", type=pathlib.Path, help="a JSON file for all results")
    return parser.parse_args()


def environment(**more: str) -> dict[str, str]:
    search = os.pathsep.join([str(PEERS.parent), str(PEERS.parents[1]), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": search, "TOKENIZERS_PARALLELISM": "false", **more}


def jobs(format: str, tokenizer: pathlib.Path, arguments: argparse.Namespace, is_first: bool) -> dict[str, list[str]]:
    """The commands; {path} is the corpus's file, and {out} a folder."""
    cache = ["-m", "ul2_tasks", "cache", "bench", "--corpus={path}", f"--vocabulary={tokenizer}", "--output={out}"]
    cache += ["--documents=line"] if format == "text" else []
    found = {
        "bare tokenizer": [str(PEERS), "bare", format, str(tokenizer), "{path}", "{out}"],
        "ul2 cache": cache,
        "datasets.map": [str(PEERS), "datasets", format, str(tokenizer), "{path}", "{out}"],
    }
    if is_first:
        found["ul2 cache --workers 2"] = [*cache, "--workers=2"]
        found["seqio_cache_tasks"] = [
            "-m", "seqio.scripts.cache_tasks_main", "--module_import=caching_peers", "--tasks=bench_.*",
            "--output_cache_dir={out}", "--pipeline_options=--runner=FnApiRunner",
        ]  # fmt: skip
    if arguments.megatron and format == "jsonl":
        kind = ["--tokenizer-type=HuggingFaceTokenizer", f"--tokenizer-model={tokenizer}"]
        if tokenizer == MODEL:
            kind = ["--tokenizer-type=SentencePieceTokenizer", f"--tokenizer-model={tokenizer}"]
        # Before an installed megatron-core, which may be of another version than the script.
        checkout = f"import runpy, sys; sys.path.insert(0, '{arguments.megatron.resolve()}')"
        script = ["-c", f"{checkout}; runpy.run_path(sys.path[0] + '/tools/preprocess_data.py', run_name='__main__')"]
        found["preprocess_data.py"] = [*script, "--input={path}", "--output-prefix={out}/m", "--workers=1", "--append-eod", *kind]
    return found


def measure(root: pathlib.Path, paths: dict[str, pathlib.Path], commands: dict[str, list[str]], repeats: int) -> dict[str, dict]:
    """Of each job the figures with all documents, and its CPU time with few."""
    runs: dict[str, dict[str, list]] = {job: {"few": [], "all": []} for job in commands}
    for _ in range(repeats):
        for job, command in commands.items():
            for size, path in paths.items():
                out = root / "out"
                shutil.rmtree(out, ignore_errors=True)
                out.mkdir()
                runs[job][size].append(run([part.format(path=path, out=out) for part in command], path, out))
    found = {}
    for job, by_size in runs.items():
        figures = {key: statistics.median(run[key] for run in by_size["all"]) for key in by_size["all"][0]}
        few = {key: statistics.median(run[key] for run in by_size["few"]) for key in ("cpu", "wall")}
        found[job] = figures | {f"{key}_startup": value for key, value in few.items()}
    return found


def run(command: list[str], path: pathlib.Path, out: pathlib.Path) -> dict[str, float]:
    started = time.perf_counter()
    with open(os.devnull, "w") as nowhere:
        process = subprocess.Popen(
            [sys.executable, *command], env=environment(BENCH_CORPUS=str(path)), stdout=nowhere, stderr=subprocess.PIPE
        )
    error = process.stderr.read() if process.stderr else b""
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, f"{command} ended with {status}: {error.decode()[-2000:]}"
    return {
        "cpu": usage.ru_utime + usage.ru_stime,
        "wall": time.perf_counter() - started,
        "peak_mb": usage.ru_maxrss / 1024,
        "bytes": sum(file.stat().st_size for file in out.rglob("*") if file.is_file()),
    }


def report(results: dict[str, dict], size: int, count: int) -> None:
    title = f"{count:,} documents, {size / 1e6:.1f} MB; ratios are to the work of the bare tokenizer"
    table = Table(title=title, title_justify="left")
    for column in ("corpus", "job", "work, CPU s", "ratio", "start-up, CPU s", "wall s", "peak MB", "MB written"):
        table.add_column(column, justify="left" if column in ("corpus", "job") else "right")
    for case, by_job in results.items():
        bare = by_job["bare tokenizer"]["cpu"] - by_job["bare tokenizer"]["cpu_startup"]
        for job, figures in by_job.items():
            work = figures["cpu"] - figures["cpu_startup"]
            cells = [f"{work:.2f}", f"{work / bare:.2f}", f"{figures['cpu_startup']:.1f}", f"{figures['wall']:.1f}"]
            table.add_row(case, job, *cells, f"{figures['peak_mb']:,.0f}", f"{figures['bytes'] / 1e6:.1f}")
            case = ""
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
