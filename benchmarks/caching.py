"""What it costs to tokenize a corpus into files: `python benchmarks/caching.py [--megabytes 24] [--repeats 3]`.

It needs this package with its extra `cache`. The documents are made of the embedded corpus, one to three of its documents each, or
of the text files below a folder (`--text`), in one file (`--format`); the tokenizer is the default SentencePiece model, or a
`tokenizer.json` (`--tokenizer`). Each job is a process of its own, in turn:

* bare tokenizer: reads and parses JSON Lines, and calls the tokenizer's library for each document. It writes nothing;
* ul2 cache, and with `--workers 2`; with gigatoken, where it is installed, from the first text on;
* seqio_cache_tasks: SeqIO's own job on our corpus, on Beam's FnApiRunner;
* datatrove and megatron, with the Python of `--peers`: the first one's reader and DocumentTokenizer; what a worker of the second's
  preprocess_data.py does with each line, and its IndexedDatasetBuilder.

CPU time and peak memory are the operating system's figures for the process and its children. The same job on ten documents is
its start-up, which is told apart: what remains is the work. Medians over repeats. On one core: `taskset -c 0`, and
TOKENIZERS_PARALLELISM=false.
"""

from __future__ import annotations

import argparse
import itertools
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
CACHE = (__file__, "--child", "cache", "cache", "bench", "--corpus={path}", "--vocabulary={tokenizer}", "--output={out}")
JOBS = {  # {path} is the corpus's file, and {out} a folder
    "bare tokenizer": (__file__, "--child", "bare", "{path}", "{tokenizer}"),
    "ul2 cache": CACHE,
    "ul2 cache --workers 2": (*CACHE, "--workers=2"),
    "seqio_cache_tasks": (
        *("-m", "seqio.scripts.cache_tasks_main", "--module_import=caching", "--tasks=bench_.*"),
        *("--output_cache_dir={out}", "--pipeline_options=--runner=FnApiRunner"),
    ),
    "datatrove": (__file__, "--child", "datatrove", "{path}", "{tokenizer}", "{out}"),
    "megatron": (__file__, "--child", "megatron", "{path}", "{tokenizer}", "{out}"),
}
OF_PEERS = ("datatrove", "megatron")
END = "<|endoftext|>"  # of a tokenizer.json, after each document of a peer


settings = {"tokenizer": str(MODEL), "format": "jsonl", "peers": sys.executable}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=24, help="of text")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=[job for job in JOBS if job not in OF_PEERS])
    parser.add_argument("--text", default="", help="folder")
    parser.add_argument("--format", choices=("jsonl", "jsonl.zst", "parquet"), default="jsonl")
    parser.add_argument("--tokenizer", default=str(MODEL))
    parser.add_argument("--peers", default=sys.executable, help="the Python of an environment with datatrove and megatron-core")
    if sys.argv[1:2] == ["--child"]:
        what, *rest = sys.argv[2:]
        print(json.dumps({each.__name__: each for each in (make, bare, cache, datatrove, megatron)}[what](*rest)))
        return
    arguments = parser.parse_args()
    settings.update(tokenizer=arguments.tokenizer, format=arguments.format, peers=arguments.peers)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        # Another process makes the corpora: the peak memory of a child is at least that of the process that starts it.
        count = in_new_process(__file__, "make", folder, arguments.megabytes, arguments.format, arguments.text)
        rounds = [{job: measured(job, pathlib.Path(folder)) for job in arguments.jobs} for _ in range(arguments.repeats)]
        found = {job: medians([one[job] for one in rounds]) for job in arguments.jobs}
    rows = []
    for job, of_job in found.items():
        ratio = of_job["work"] / found["bare tokenizer"]["work"] if "bare tokenizer" in found else float("nan")
        rate = arguments.megabytes / of_job["work"]
        numbers = [f"{of_job['work']:.2f}", f"{rate:.1f}", f"{ratio:.2f}", f"{of_job['startup']:.1f}", f"{of_job['wall']:.1f}"]
        rows.append([job, *numbers, f"{of_job['peak_mb']:,.0f}", f"{of_job['bytes'] / 1e6:.1f}"])
    columns = ["", "work, CPU s", "MB/s", "to the bare tokenizer", "start-up, CPU s", "wall s", "peak MB", "MB written"]
    print_table(f"{count:,} documents, {arguments.megabytes} MB", columns, rows)


def make(folder: str, megabytes: str, format: str, text: str) -> int:
    """Writes the corpora, of all documents and of the first ten; returns how many there are."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from backports import zstd
    from exact_ids import texts

    from ul2_tasks import embedded_documents

    draw, embedded, documents, size = random.Random(0), embedded_documents(), [], 0
    made = (" ".join(" ".join(draw.choice(embedded).split()) for _ in range(draw.randint(1, 3))) for _ in itertools.count())
    for document in texts(text, float(megabytes) * 1e6) if text else made:
        if size >= float(megabytes) * 1e6:
            break
        documents.append(document)
        size += len(document.encode())
    for name, some in (("few", documents[:FEW]), ("all", documents)):
        path = pathlib.Path(folder, f"{name}.{format}")
        if format == "parquet":
            pq.write_table(pa.table({"text": some}), path, compression="zstd", row_group_size=4096)
        else:
            lines = "".join(json.dumps({"text": text}) + "\n" for text in some).encode()
            path.write_bytes(zstd.compress(lines) if format == "jsonl.zst" else lines)
    return len(documents)


def bare(path: str, tokenizer: str) -> int:
    if tokenizer.endswith(".json"):
        from tokenizers import Tokenizer

        of_json = Tokenizer.from_file(tokenizer)
        with open(path, encoding="utf-8") as file:
            return sum(len(of_json.encode(json.loads(line)["text"]).ids) for line in file)
    from sentencepiece import SentencePieceProcessor

    processor = SentencePieceProcessor(model_file=tokenizer)
    with open(path, encoding="utf-8") as file:
        return sum(len(processor.encode(json.loads(line)["text"])) for line in file)


def cache(*arguments: str) -> None:
    from ul2_tasks.cli import main as command
    from ul2_tasks.tokenizers import fast

    fast._FIRST = 0
    command([*arguments])


def datatrove(path: str, tokenizer: str, out: str) -> None:
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.readers import JsonlReader, ParquetReader
    from datatrove.pipeline.tokens import DocumentTokenizer

    folder, name = os.path.split(path)
    reader = (ParquetReader if name.endswith(".parquet") else JsonlReader)(folder, glob_pattern=name)
    writer = DocumentTokenizer(f"{out}/tokens", tokenizer, eos_token=END, shuffle_documents=False)
    LocalPipelineExecutor([reader, writer], tasks=1, logging_dir=f"{out}/log").run()


def megatron(path: str, tokenizer: str, out: str) -> None:
    import numpy as np
    import torch
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder
    from transformers import PreTrainedTokenizerFast

    of_json = PreTrainedTokenizerFast(tokenizer_file=tokenizer, eos_token=END)
    builder = IndexedDatasetBuilder(f"{out}/tokens.bin", dtype=np.int32)
    with open(path, encoding="utf-8") as file:
        for line in file:
            ids = [*of_json(json.loads(line)["text"]).input_ids, of_json.eos_token_id]
            builder.add_document(torch.IntTensor(ids), [len(ids)])
    builder.finalize(f"{out}/tokens.idx")


def measured(job: str, folder: pathlib.Path) -> dict[str, float]:
    few, all_of_it = (run(job, folder / f"{name}.{settings['format']}", folder / "out") for name in ("few", "all"))
    return {**all_of_it, "startup": few["cpu"], "work": all_of_it["cpu"] - few["cpu"]}


def run(job: str, path: pathlib.Path, out: pathlib.Path) -> dict[str, float]:
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    python = settings["peers"] if job in OF_PEERS else sys.executable
    command = [python, *(part.format(path=path, out=out, tokenizer=settings["tokenizer"]) for part in JOBS[job])]
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
