"""What it costs to tokenize a corpus into files: `python benchmarks/caching.py [--megabytes 24] [--repeats 3]`.

It needs this package with its extra `cache`. The documents are made of the embedded corpus, one to three of its documents each, or
of the text files below a folder (`--text`), in one file of JSON Lines; the tokenizer is the default SentencePiece model, or a
`tokenizer.json` (`--tokenizer`), or a byte-level BPE of 32,000 ids that is trained on the documents (`--tokenizer bpe`), which all
jobs can read. Each job is a process of its own, in turn:

* bare tokenizer: reads and parses JSON Lines, and calls the tokenizer's library for each document. It writes nothing;
* ul2 cache, and with `--workers 2`; with gigatoken, where it is installed, from the first text on;
* seqio_cache_tasks: SeqIO's own job on our corpus, on Beam's FnApiRunner;
* datasets, litdata, streaming: `map` in batches and `save_to_disk`; `optimize` with its TokensLoader; `MDSWriter`, an array each;
* datatrove and megatron: the first one's reader and DocumentTokenizer; what a worker of the second's preprocess_data.py does with
  each line, and its IndexedDatasetBuilder. These two want a `tokenizer.json`.

CPU time and peak memory are the operating system's figures for the process and its children. The same job on ten documents is
its start-up, which is told apart: what remains is the work. Medians over repeats. On one core: `taskset -c 0`, and
TOKENIZERS_PARALLELISM=false.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
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
import types
from collections.abc import Callable, Iterator

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

from measure import HERE, in_new_process, machine, medians, print_table

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
}
OF_PEERS = ("datasets", "datatrove", "megatron", "litdata", "streaming")
JOBS |= {name: (__file__, "--child", name, "{path}", "{tokenizer}", "{out}") for name in OF_PEERS}
END = "<|endoftext|>"  # of a tokenizer.json, after each document of a peer
settings = {"tokenizer": str(MODEL)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=24, help="of text")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=[job for job in JOBS if job not in OF_PEERS])
    parser.add_argument("--text", default="", help="folder")
    parser.add_argument("--tokenizer", default=str(MODEL))
    parser.add_argument("--output", type=pathlib.Path, help="a file for the result, JSON")
    if sys.argv[1:2] == ["--child"]:
        what, *rest = sys.argv[2:]
        print(json.dumps(globals()[what](*rest)))
        return
    arguments = parser.parse_args()
    settings["tokenizer"] = arguments.tokenizer
    with tempfile.TemporaryDirectory() as folder:
        # Another process makes the corpora: the peak memory of a child is at least that of the process that starts it.
        count = in_new_process(__file__, "make", folder, arguments.megabytes, arguments.text)
        if arguments.tokenizer == "bpe":
            settings["tokenizer"] = in_new_process(__file__, "train", folder)
        rounds = [{job: measured(job, pathlib.Path(folder)) for job in arguments.jobs} for _ in range(arguments.repeats)]
        found = {job: medians([one[job] for one in rounds]) for job in arguments.jobs}
    rows = []
    for job, of_job in found.items():
        ratio = of_job["work"] / found["bare tokenizer"]["work"] if "bare tokenizer" in found else float("nan")
        numbers = [of_job["work"], ratio, *(of_job[key] for key in ("startup", "wall", "peak_mb")), of_job["bytes"] / 1e6]
        rows.append([job, *(f"{number:,.2f}" for number in numbers)])
    columns = ["", "work, CPU s", "to the bare tokenizer", "start-up, CPU s", "wall s", "peak MB", "MB written"]
    print_table(f"{count:,} documents, {arguments.megabytes} MB", columns, rows)
    if arguments.output:
        result = {"machine": machine(), "documents": count, "megabytes": arguments.megabytes, "jobs": found}
        arguments.output.write_text(json.dumps(result, indent=1) + "\n")


def make(folder: str, megabytes: str, text: str) -> int:
    """Writes the corpora, of all documents and of the first ten; returns how many there are."""
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
        pathlib.Path(folder, f"{name}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in some))
    return len(documents)


def train(folder: str) -> str:
    """Trains a tokenizer on the documents; gives its path."""
    from tokenizers import ByteLevelBPETokenizer

    made = ByteLevelBPETokenizer()
    made.train_from_iterator(documents_of(f"{folder}/all.jsonl"), vocab_size=32_000, special_tokens=[END], show_progress=False)
    made.save(f"{folder}/tokenizer.json")
    pathlib.Path(folder, "tokenizer_config.json").write_text(json.dumps({"eos_token": END}))
    return f"{folder}/tokenizer.json"


def documents_of(path: str) -> Iterator[str]:
    with open(path, encoding="utf-8") as file:
        yield from (json.loads(line)["text"] for line in file)


def encoder(tokenizer: str) -> Callable[[str], list[int]]:
    if tokenizer.endswith(".json"):
        from tokenizers import Tokenizer

        of_json = Tokenizer.from_file(tokenizer)
        return lambda text: of_json.encode(text).ids
    from sentencepiece import SentencePieceProcessor

    return SentencePieceProcessor(model_file=tokenizer).encode


def bare(path: str, tokenizer: str) -> int:
    return sum(map(len, map(encoder(tokenizer), documents_of(path))))


def cache(*arguments: str) -> None:
    from ul2_tasks.cli import main as command
    from ul2_tasks.tokenizers import fast

    fast._FIRST = 0
    command([*arguments])


def datatrove(path: str, tokenizer: str, out: str) -> None:
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.tokens import DocumentTokenizer

    folder, name = os.path.split(path)
    writer = DocumentTokenizer(f"{out}/tokens", tokenizer, eos_token=END, shuffle_documents=False)
    LocalPipelineExecutor([JsonlReader(folder, glob_pattern=name), writer], tasks=1, logging_dir=f"{out}/log").run()


def megatron(path: str, tokenizer: str, out: str) -> None:
    import numpy as np
    import torch
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder
    from transformers import PreTrainedTokenizerFast

    of_json = PreTrainedTokenizerFast(tokenizer_file=tokenizer, eos_token=END)
    builder = IndexedDatasetBuilder(f"{out}/tokens.bin", dtype=np.int32)
    for text in documents_of(path):
        ids = [*of_json(text).input_ids, of_json.eos_token_id]
        builder.add_document(torch.IntTensor(ids), [len(ids)])
    builder.finalize(f"{out}/tokens.idx")


def datasets(path: str, tokenizer: str, out: str) -> None:
    from datasets import load_dataset

    encode = encoder(tokenizer)
    texts = load_dataset("json", data_files=path, split="train", cache_dir=f"{out}/cache")
    made = texts.map(lambda some: {"ids": list(map(encode, some["text"]))}, batched=True, remove_columns=["text"])
    made.save_to_disk(f"{out}/ids")


def tensors_of(path: str, tokenizer: str) -> Iterator:
    import torch

    encode = encoder(tokenizer)
    yield from (torch.tensor(encode(text), dtype=torch.int32) for text in documents_of(path))


def litdata(path: str, tokenizer: str, out: str) -> None:
    from litdata import TokensLoader, optimize

    fn = functools.partial(tensors_of, tokenizer=tokenizer)
    optimize(fn=fn, inputs=[path], output_dir=f"{out}/chunks", chunk_bytes="64MB", item_loader=TokensLoader(), num_workers=1)


def streaming(path: str, tokenizer: str, out: str) -> None:
    import numpy as np
    import transformers  # noqa: F401, which asks for torchvision, too

    if not importlib.util.find_spec("torchvision"):  # it is for images, and there may be no build of it for the CPU alone
        names = ("torchvision", "torchvision.datasets", "torchvision.transforms", "torchvision.transforms.functional")
        sys.modules |= dict.fromkeys(names, types.SimpleNamespace(VisionDataset=object, to_tensor=None))  # type: ignore[arg-type]
    from streaming import MDSWriter

    encode = encoder(tokenizer)
    with MDSWriter(out=f"{out}/mds", columns={"ids": "ndarray:int32"}) as writer:
        for text in documents_of(path):
            writer.write({"ids": np.array(encode(text), np.int32)})


def measured(job: str, folder: pathlib.Path) -> dict[str, float]:
    few, all_of_it = (run(job, folder / f"{name}.jsonl", folder / "out") for name in ("few", "all"))
    return {**all_of_it, "startup": few["cpu"], "work": all_of_it["cpu"] - few["cpu"]}


def run(job: str, path: pathlib.Path, out: pathlib.Path) -> dict[str, float]:
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    command = [sys.executable, *(part.format(path=path, out=out, tokenizer=settings["tokenizer"]) for part in JOBS[job])]
    search = os.pathsep.join([str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": search, "BENCH_CORPUS": str(path), "BENCH_TOKENIZER": settings["tokenizer"]}
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

    register("bench", open_source(os.environ["BENCH_CORPUS"]), os.environ["BENCH_TOKENIZER"])
