"""What resuming costs: the size of a checkpoint, and the time until the first batch, after many examples and after none.

    python benchmarks/resume.py [--length 512] [--batch_size 128] [--after 1000000000] [--repeats 5]

It needs this package. A store of 2 million made-up tokens is read through `seqio.get_dataset`, as t5x does, padded and packed, by
number, and as the stream that a cache of TFRecords gives. By number an iterator is also restored after `--after` rows; a stream has
to be read to its place to be saved there, so it is saved after 20 batches. Times are medians, of an iterator that is made, restored
and asked for one batch, in a process that has made one before.
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import tempfile
import time

import numpy as np
import seqio
import tensorflow as tf
from rich import box
from rich.console import Console
from rich.table import Table

import ul2_tasks
from ul2_tasks.random_access.dataset import continued
from ul2_tasks.store.write import PairWriter

DOCUMENTS, TOKENS = 4000, 500  # of each


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--batch_size", type=int, default=128)
    parser.add_argument("--after", type=int, default=10**9)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    table = Table("dataset", "saved after", "checkpoint", "first batch, restored", "first batch, new", box=box.SIMPLE)
    with tempfile.TemporaryDirectory() as folder:
        vocabulary = ul2_tasks.open_vocabulary("default", sentinels=1024)
        by_number = ul2_tasks.register("by_number", f"megatron:{made_up(folder)}", vocabulary)
        # A denoiser that leaves short chunks out has no fixed places.
        texts = ul2_tasks.MemoryDataSource(lambda: ["a text of some words " * 100] * 4000, validation=0)
        stream = ul2_tasks.register("by_stream", texts, vocabulary)
        for name, places in ((by_number, (20, arguments.after // arguments.batch_size)), (stream, (20,))):
            for pack in (False, True):
                for place in places:
                    row = measure(name, pack, place, folder, arguments)
                    table.add_row(f"{'numbers' if name == by_number else 'stream'}, {'packed' if pack else 'padded'}", *row)
    Console().print(table)


def made_up(folder: str) -> str:
    tokens = np.random.default_rng(0).integers(300, 3000, DOCUMENTS * TOKENS)
    with PairWriter(f"{folder}/made_up.bin", f"{folder}/made_up.idx", np.dtype(np.uint16)) as pair:
        pair.add(tokens, np.full(DOCUMENTS, TOKENS))
    return f"{folder}/made_up"


def measure(name: str, pack: bool, place: int, folder: str, arguments: argparse.Namespace) -> tuple[str, ...]:
    lengths = {"inputs": arguments.length, "targets": arguments.length}
    settings = {"dataset_split": "train", "shuffle": True, "seed": 0, "num_epochs": None}
    converter = ul2_tasks.EncDecFeatureConverter(pack=pack)

    def batches() -> tf.data.Dataset:
        return seqio.get_dataset(name, lengths, converter, batch_size=arguments.batch_size, **settings)

    dataset, far = batches(), place > 1000
    if far:
        rows = seqio.get_dataset(name, lengths, converter, **settings)
        saved = iter(continued(rows, place * arguments.batch_size).batch(arguments.batch_size, drop_remainder=True))
    else:
        saved = iter(dataset)
        for _ in range(place):
            next(saved)
    path = pathlib.Path(tf.train.Checkpoint(iterator=saved).write(f"{folder}/{name}_{pack}_{place}"))
    size = sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))
    wanted = next(saved)

    def first_batch(restore: bool) -> float:
        begun = time.perf_counter()
        iterator = iter(dataset)
        if restore:
            tf.train.Checkpoint(iterator=iterator).read(str(path)).assert_consumed()
        batch = next(iterator)
        seconds = time.perf_counter() - begun
        assert not restore or all(np.array_equal(batch[key], wanted[key]) for key in wanted)
        return seconds

    times = {restore: statistics.median(first_batch(restore) for _ in range(arguments.repeats)) for restore in (True, False)}
    return f"{place * arguments.batch_size:,} rows", f"{size / 1000:,.1f} kB", f"{times[True]:.2f} s", f"{times[False]:.2f} s"


if __name__ == "__main__":
    main()
