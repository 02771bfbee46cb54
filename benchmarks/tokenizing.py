"""What a token of text costs uncached: the documents of a corpus as denoisers read them, beside the bare tokenizer.

    python benchmarks/tokenizing.py [--megabytes 10] [--repeats 3] [--output tokenizing.json]

It needs this package with its extra `huggingface`. The embedded corpus, some 140 tokens a document, and six of its documents
joined, some 800, are repeated, and read to their end three ways: from memory, from JSON Lines, and from JSON Lines by SeqIO's own
task, a document at a time, which is what `seqio_cache_tasks` reads. The bare tokenizer is SentencePiece, or `tokenizers`, called
from Python on the same texts in memory. CPU time of the process, all threads, a token; in turn, the median of the repeats.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import seqio
from caching_peers import encoder, make
from rich.console import Console
from rich.progress import track
from rich.table import Table

from ul2_tasks import MemoryDataSource, embedded_documents, open_source, register
from ul2_tasks.vocabulary.sentencepiece import DEFAULT_MODEL

JOINED = {"140": 1, "800": 6}


def main() -> None:
    arguments = parse_arguments()
    times: dict[tuple[str, str, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        make(folder, "1")
        readers = [
            (tokenizer, size, what, reader)
            for tokenizer, model in {"SentencePiece": str(DEFAULT_MODEL), "tokenizers": f"{folder}/bpe"}.items()
            for size, joined in JOINED.items()
            for what, reader in all_readers(folder, tokenizer, model, texts(joined, arguments.megabytes), size).items()
        ]
        for _ in track(range(arguments.repeats), "tokenizing", console=Console(stderr=True)):
            for tokenizer, size, what, reader in readers:
                started = time.process_time()
                tokens = reader()
                times.setdefault((tokenizer, size, what), []).append((time.process_time() - started) / tokens * 1e9)
    medians = {key: statistics.median(found) for key, found in times.items()}
    report(medians)
    if arguments.output:
        arguments.output.write_text(json.dumps({", ".join(key): value for key, value in medians.items()}, indent=2) + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=float, default=10, help="of text")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--output", type=pathlib.Path, help="a JSON file for all results")
    return parser.parse_args()


def texts(joined: int, megabytes: float) -> list[str]:
    embedded = embedded_documents()
    documents = [" ".join(embedded[first : first + joined]) for first in range(0, len(embedded), joined)]
    return documents * max(1, round(megabytes * 1e6 / sum(map(len, documents))))


def all_readers(folder: str, tokenizer: str, model: str, documents: list[str], size: str) -> dict[str, Callable[[], int]]:
    """Functions that read all documents, and return how many tokens they have."""
    path = pathlib.Path(folder) / f"{size}.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    encode = encoder(model)
    names = {
        "memory": register(f"memory_{tokenizer}_{size}", MemoryDataSource(lambda: documents, validation=0), model),
        "JSON Lines": register(f"files_{tokenizer}_{size}", open_source(str(path)), model),
    }

    def bare() -> int:
        return sum(sum(map(len, encode(documents[first : first + 1000]))) for first in range(0, len(documents), 1000))

    def as_denoisers_read(mixture: str) -> int:
        task = seqio.get_mixture_or_task(mixture).tasks[0]
        return sum(int(batch["targets"].flat_values.shape[0]) for batch in task.source.get_dataset("train", seed=0))

    def one_by_one() -> int:
        task = seqio.get_mixture_or_task(names["JSON Lines"].replace("_mix", "_corpus"))
        documents = task.preprocess_precache(task.source.get_dataset("train", shuffle=False), seed=0)
        return sum(int(document["targets"].shape[0]) for document in documents)

    return {
        "bare": bare,
        "memory": lambda: as_denoisers_read(names["memory"]),
        "JSON Lines": lambda: as_denoisers_read(names["JSON Lines"]),
        "JSON Lines, one by one": one_by_one,
    }


def report(medians: dict[tuple[str, str, str], float]) -> None:
    table = Table(title="CPU time, ns a token, and its ratio to the bare tokenizer's", title_justify="left")
    for column in ("tokenizer", "tokens a document", *dict.fromkeys(what for *_, what in medians)):
        table.add_column(column, justify="left" if column == "tokenizer" else "right")
    for tokenizer, size in dict.fromkeys(key[:2] for key in medians):
        found = {what: value for (*key, what), value in medians.items() if key == [tokenizer, size]}
        cells = [f"{value:,.0f} ({value / found['bare']:.2f}x)" for value in found.values()]
        table.add_row(tokenizer, size, *cells)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
