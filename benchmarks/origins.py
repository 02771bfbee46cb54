"""What it costs `ul2 cache` to say of each document where it is from: a table beside each pair of files.

    python benchmarks/origins.py [--megabytes 24] [--characters 200 2000] [--pairs 5] [--documents 2000000] [--searches 3]

Jobs of one process take turns, with tables and without, in pairs, over documents of the embedded corpus that are cut to some number
of characters. The ratio is the median over pairs, of CPU time, with the least and the most. Then: the bytes of a table for each
document beside its id, and how long it takes to find a thousand ids and a thousand hashes among many documents.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import itertools
import json
import pathlib
import statistics
import tempfile
import time

import numpy as np
from rich.console import Console

import ul2_tasks
from ul2_tasks.corpus import build_cache
from ul2_tasks.corpus.token_batches import TokenBatch
from ul2_tasks.store.provenance import Provenance, Table, TableWriter


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=float, default=24, help="of text")
    parser.add_argument("--characters", type=int, nargs="+", default=[200, 2000], help="of a document")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--documents", type=int, default=2_000_000, help="that are looked through")
    parser.add_argument("--searches", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for characters in arguments.characters:
            path = pathlib.Path(folder) / f"{characters}.jsonl"
            count = write(path, characters, arguments.megabytes)
            ratios = []
            for number in range(arguments.pairs):
                turns = (True, False) if number % 2 else (False, True)  # neither is always first
                seconds = {turn: job(path, folder, f"m{characters}_{number}_{turn}", turn) for turn in turns}
                ratios.append(seconds[True] / seconds[False])
            told = f"{count:,} documents of {characters} characters: with tables {statistics.median(ratios):.3f} times the CPU time"
            print(f"{told} ({min(ratios):.3f} to {max(ratios):.3f})")
        search(pathlib.Path(folder) / "table", arguments.documents, arguments.searches)


def write(path: pathlib.Path, characters: int, megabytes: float) -> int:
    text = " ".join(ul2_tasks.embedded_documents())
    starts = itertools.cycle(range(0, len(text) - characters, characters))
    count = int(megabytes * 1e6 / characters)
    with open(path, "w") as file:
        for number, start in zip(range(count), starts):
            id = hashlib.blake2b(str(number).encode(), digest_size=8).hexdigest()
            file.write(json.dumps({"id": id, "text": text[start : start + characters]}) + "\n")
    return count


def job(path: pathlib.Path, folder: str, name: str, has_tables: bool) -> float:
    """The CPU time of a cache, in seconds."""
    origins = TokenBatch.origins
    nothing = np.zeros(0, np.int64), [], np.zeros(0, np.uint64)
    try:
        if not has_tables:
            TokenBatch.origins = lambda batch, split, hashed: nothing
        corpus = ul2_tasks.Mixture(name, str(path)).corpus()
        started = time.process_time()
        build_cache.build(corpus, f"{folder}/{name}", prepare=lambda: None, console=Console(file=io.StringIO()))
        return time.process_time() - started
    finally:
        TokenBatch.origins = origins


def search(path: pathlib.Path, documents: int, times: int) -> None:
    random = np.random.default_rng(0)
    with TableWriter(str(path), "a file") as table:
        for first in range(0, documents, 1000):
            numbers = range(first, first + 1000)
            table.add(
                np.array(numbers), [b"%016x" % number for number in numbers], random.integers(1 << 63, size=1000, dtype=np.uint64)
            )
    print(f"a table takes {table.entry['bytes'] / documents - 16:.2f} bytes a document beside its id")
    found = Provenance((Table(str(path), "a file", 0, documents),))
    chosen = random.integers(documents, size=1000)
    origins = found.of(chosen)
    for what, find, values in (
        ("ids", found.with_ids, [origin.id for origin in origins]),
        ("hashes", found.with_hashes, [origin.hash for origin in origins]),
    ):
        seconds = []
        for _ in range(times):
            started = time.perf_counter()
            assert set(chosen.tolist()) <= set(find(values).documents.tolist())
            seconds.append(time.perf_counter() - started)
        median = statistics.median(seconds)
        print(f"a thousand {what} among {documents:,} documents: {median:.2f} s, {documents / median:,.0f} documents a second")


if __name__ == "__main__":
    main()
