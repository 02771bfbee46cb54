"""How many documents `ul2 audit` counts per second and core: `python benchmarks/audit.py`.

A corpus of Megatron-LM's files whose .bin is a hole: no token is read. A run has read half of its third epoch. The baseline is what
finds one document after the other, `Examples.find`.
"""

import argparse
import pathlib
import tempfile
import time

import numpy as np
from rich.console import Console
from rich.table import Table

import ul2_tasks
from ul2_tasks.looking.audit import audit
from ul2_tasks.looking.run import Run
from ul2_tasks.store.index import serialize

LENGTHS = {"inputs": 512, "targets": 512}
BLOCKS = ul2_tasks.BlockShuffle()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=float, default=4e6)
    documents = int(parser.parse_args().documents)
    table = Table(title=f"{documents:,} documents of 480 tokens on average, half of an epoch after two whole ones")
    for column in (
        "order",
        "documents/s a core",
        "hours of a core for 10^9",
        "times Examples.find",
        "with Parquet, s",
        "without, s",
    ):
        table.add_column(column, justify="left" if column == "order" else "right")
    with tempfile.TemporaryDirectory() as folder:
        prefix, rng = pathlib.Path(folder) / "corpus", np.random.default_rng(0)
        lengths = np.maximum(1, rng.lognormal(5.8, 0.85, documents).astype(np.int64))
        prefix.with_suffix(".idx").write_bytes(serialize(lengths, np.dtype(np.uint16)))
        with prefix.with_suffix(".bin").open("wb") as file:
            file.truncate(2 * int(lengths.sum()))
        orders = {
            "joined": {},
            "in blocks": {"block_shuffle": BLOCKS},
            "joined, packed": {},
            "kept apart": {"merge_examples": False},
        }
        for name, arguments in orders.items():
            source = ul2_tasks.open_source(f"megatron:{prefix}", eod="keep")
            mixture = ul2_tasks.Mixture("audited", source, **arguments)
            run = Run(mixture, LENGTHS, batch_size=1024, pack="packed" in name)
            found = run.examples()
            until = int(2.5 * len(found)) // 1024
            audit(run, 1)  # compiles
            begun = time.process_time()
            some = rng.integers(0, documents, 100).tolist()
            for document in some:
                found.epoch(2).find(document)
            one_by_one = (time.process_time() - begun) / len(some)
            begun, clock = time.process_time(), time.perf_counter()
            audit(run, until)
            each, without = (time.process_time() - begun) / documents, time.perf_counter() - clock
            clock = time.perf_counter()
            audit(run, until, [f"{folder}/seen.parquet"])
            took = time.perf_counter() - clock
            numbers = f"{1 / each:,.0f}", f"{each * 1e9 / 3600:.2f}", f"{one_by_one / each:,.0f}", f"{took:.1f}", f"{without:.1f}"
            table.add_row(name, *numbers)
    Console().print(table)


if __name__ == "__main__":
    main()
