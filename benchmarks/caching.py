"""What it costs to tokenize a corpus into files: `python benchmarks/caching.py [--megabytes 24] [--repeats 3]`.

It needs this package with its extra `cache`. The documents are made of the embedded corpus, one to three of its documents each,
in one file of JSON Lines; the tokenizer is the default SentencePiece model. Each job is a process of its own, in turn:

* bare tokenizer: reads and parses the file, and calls SentencePiece for each document. It writes nothing;
* ul2 cache, and with `--workers 2`;
* seqio_cache_tasks: SeqIO's own job on our corpus, on Beam's FnApiRunner.

CPU time and peak memory are the operating system's figures for the process and its children. The same job on ten documents is
its start-up, which is told apart: what remains is the work. Medians over repeats.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

from measure import HERE, in_new_process, medians, print_table

FEW = 10  # documents, to measure the start-up
MODEL = HERE.parent / "ul2_tasks" / "data" / "default.model"
CACHE = ("-m", "ul2_tasks", "cache", "bench", "--corpus={path}", f"--vocabulary={MODEL}", "--output={out}")
JOBS = {  # {path} is the corpus's file, and {out} a folder
    "bare tokenizer": (__file__, "--child", "bare", "{path}"),
    "ul2 cache": CACHE,
    "ul2 cache --workers 2": (*CACHE, "--workers=2"),
    "seqio_cache_tasks": (
        *("-m", "seqio.scripts.cache_tasks_main", "--module_import=caching", "--tasks=bench_.*"),
        *("--output_cache_dir={out}", "--pipeline_options=--runner=FnApiRunner"),
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=24, help="of text")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        what, *rest = arguments.child
        print(json.dumps(make(*rest) if what == "make" else bare(*rest)))
        return
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        # Another process makes the corpora: the peak memory of a child is at least that of the process that starts it.
        count = in_new_process(__file__, "make", folder, arguments.megabytes)
        rounds = [{job: measured(job, pathlib.Path(folder)) for job in arguments.jobs} for _ in range(arguments.repeats)]
        found = {job: medians([one[job] for one in rounds]) for job in arguments.jobs}
    rows = []
    for job, of_job in found.items():
        ratio = of_job["work"] / found["bare tokenizer"]["work"] if "bare tokenizer" in found else float("nan")
        numbers = [f"{of_job['work']:.2f}", f"{ratio:.2f}", f"{of_job['startup']:.1f}", f"{of_job['wall']:.1f}"]
        rows.append([job, *numbers, f"{of_job['peak_mb']:,.0f}", f"{of_job['bytes'] / 1e6:.1f}"])
    columns = ["", "work, CPU s", "to the bare tokenizer", "start-up, CPU s", "wall s", "peak MB", "MB written"]
    print_table(f"{count:,} documents, {arguments.megabytes} MB", columns, rows)


def make(folder: str, megabytes: str) -> int:
    """Writes the corpora, of all documents and of the first ten; returns how many there are."""
    from ul2_tasks import embedded_documents

    draw, embedded, documents, size = random.Random(0), embedded_documents(), [], 0
    while size < float(megabytes) * 1e6:
        documents.append(" ".join(" ".join(draw.choice(embedded).split()) for _ in range(draw.randint(1, 3))))
        size += len(documents[-1])
    for name, some in (("few", documents[:FEW]), ("all", documents)):
        pathlib.Path(folder, f"{name}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in some))
    return len(documents)


def bare(path: str) -> int:
    from sentencepiece import SentencePieceProcessor

    processor = SentencePieceProcessor(model_file=str(MODEL))
    with open(path, encoding="utf-8") as file:
        return sum(len(processor.encode(json.loads(line)["text"])) for line in file)


def measured(job: str, folder: pathlib.Path) -> dict[str, float]:
    few, all_of_it = (run(job, folder / f"{name}.jsonl", folder / "out") for name in ("few", "all"))
    return {**all_of_it, "startup": few["cpu"], "work": all_of_it["cpu"] - few["cpu"]}


def run(job: str, path: pathlib.Path, out: pathlib.Path) -> dict[str, float]:
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    command = [sys.executable, *(part.format(path=path, out=out) for part in JOBS[job])]
    search = os.pathsep.join([str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": search, "BENCH_CORPUS": str(path)}
    started = time.perf_counter()
    with open(out.parent / "log", "w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{command} ended with {status}: {(out.parent / 'log').read_text()[-2000:]}")
    written = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    cpu, wall = usage.ru_utime + usage.ru_stime, time.perf_counter() - started
    return {"cpu": cpu, "wall": wall, "peak_mb": usage.ru_maxrss / 1024, "bytes": written}


if __name__ == "__main__":
    main()
elif "BENCH_CORPUS" in os.environ:  # in SeqIO's own job
    from ul2_tasks import open_source, register

    register("bench", open_source(os.environ["BENCH_CORPUS"]))
