"""What `exclude` costs: `python benchmarks/leaving_out.py [--documents 1e6] [--left_out 0.001] [--repeats 5]`.

It writes documents with lengths like those of C4, and leaves a part of them out, at random. In one process, in turns, medians:

* ns a token of text of `examples` at 512/512, joined and kept apart, alone and in packed sequences, without a list and with one,
  and the ratio of both;
* seconds until the first batch, without a list and with it, which has all of its documents looked up and counted; and the examples
  that get other tokens.
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import tempfile
import time

import numpy as np
from records import AT_A_TIME, LENGTHS, batches, lengths_of, ns_a_token, pair
from rich.console import Console
from rich.table import Table

import ul2_tasks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=float, default=1e6)
    parser.add_argument("--left_out", type=float, default=1e-3, help="the part of the documents")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3, help="of each measurement")
    arguments = parser.parse_args()
    count = int(arguments.documents)
    chosen = np.random.default_rng(3).permutation(count)[: int(count * arguments.left_out)]
    listed = [{"document": number} for number in chosen.tolist()]
    table = Table("", "ns/token", "with a list", "ratio", "first batch, s", "with a list", "examples replaced")
    with tempfile.TemporaryDirectory() as folder:
        lengths = lengths_of(count)
        pair(pathlib.Path(folder) / "data", lengths)
        for apart in (False, True):
            for pack in (False, True):
                mixture = ul2_tasks.Mixture("left", f"megatron:{folder}/data/all", merge_examples=not apart)
                found, opened = {}, {}
                for exclude in (None, listed):
                    begun = time.perf_counter()
                    found[exclude is None] = ul2_tasks.examples(mixture, LENGTHS, pack=pack, exclude=exclude)
                    found[exclude is None][:AT_A_TIME]
                    opened[exclude is None] = time.perf_counter() - begun
                per_element = float(lengths.sum()) / len(found[True])
                measured: dict[bool, list[float]] = {True: [], False: []}
                for _ in range(arguments.repeats):
                    for is_plain, times in measured.items():
                        times.append(ns_a_token(batches(found[is_plain], per_element), arguments.seconds))
                plain, with_list = (statistics.median(measured[key]) for key in (True, False))
                replaced = len(found[False].numbering.slots_left_out(0, 0)) / found[False].numbering.corpora[0].order.examples
                name = f"documents {'kept apart' if apart else 'joined'}{', packed' if pack else ''}"
                times = f"{opened[True]:.2f}", f"{opened[False]:.2f}"
                table.add_row(name, f"{plain:.1f}", f"{with_list:.1f}", f"{with_list / plain:.2f}", *times, f"{replaced:.2%}")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
