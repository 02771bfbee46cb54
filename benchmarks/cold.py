"""How fast rows are made when their tokens are not in the page cache: `python benchmarks/cold.py [--lengths 512,2048,8192]`.

It writes two equal stores of made-up tokens, one for warm and one for cold reading, and puts the same into `memory://`. Of each it
reads batches of 128 rows through `seqio.get_dataset`, shuffled, so that no two chunks of a batch are near each other:

* warm: all files are in the page cache;
* cold: its files were dropped from the page cache before the process began. A part of them is read, so most pages come from disk;
* `memory://`;
* a file system of fsspec that answers each request after 20 ms, many at a time.

For each length there are `--repeats` turns, each in a new process, which takes the four one after the other: after two seconds,
which are not counted, it counts the text tokens of the batches that come in `--seconds` seconds, the process's CPU time, and what
it had the disk read. Printed are medians, and the share of warm in the same turn. The seconds are wall time, so the machine
should have nothing else to do. Its memory holds the warm store, and that of `memory://` as well.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np

KINDS = ("warm", "cold", "memory", "slow")
BATCH, DELAY, BEFORE = 128, 0.02, 2.0
PAIR = 25_000_000  # tokens


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", default="512,2048,8192")
    parser.add_argument("--pairs", type=int, default=60, help="of 50 MB each")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--kinds", default=",".join(KINDS), help="the first is what the others are compared with")
    parser.add_argument("--folder", default=".", help="where the stores are made, and removed")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(measure(arguments)))
        return
    from rich.progress import track

    kinds = arguments.kinds.split(",")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="cold-", dir=arguments.folder))
    try:
        make(folder, arguments.pairs)
        found = {length: {kind: [] for kind in kinds} for length in arguments.lengths.split(",")}
        for length, of_length in track([(length, of) for length, of in found.items() for _ in range(arguments.repeats)], "turns"):
            for path in (folder / "warm").iterdir():
                path.read_bytes()
            drop([str(path) for path in (folder / "cold").iterdir()])
            command = [sys.executable, __file__, *sys.argv[1:], "--lengths", length, "--child", str(folder)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(done.stderr[-3000:])
            for kind, figures in json.loads(done.stdout.splitlines()[-1]).items():
                of_length[kind].append(figures)
        report(found, kinds)
    finally:
        shutil.rmtree(folder)


def make(folder: pathlib.Path, pairs: int) -> None:
    from ul2_tasks.store.write import PairWriter

    tokens = np.random.default_rng(0).integers(300, 1000, PAIR, np.int32)
    with PairWriter(f"{folder}/first.bin", f"{folder}/first.idx", np.dtype(np.uint16)) as pair:
        pair.add(tokens, np.full(PAIR // 1000, 1000))
    for kind in ("warm", "cold"):
        (folder / kind).mkdir()
        for number in range(pairs):
            for end in ("bin", "idx"):
                shutil.copy(folder / f"first.{end}", folder / kind / f"{number}.{end}")
    os.sync()


def drop(paths: list[str]) -> None:
    """Drops files that no process has mapped from the page cache."""
    for path in paths:
        file = os.open(path, os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def from_disk() -> int:
    """Bytes that this process has had the disk read."""
    lines = pathlib.Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))


def measure(arguments: argparse.Namespace) -> dict[str, tuple[float, float, float]]:
    """Of each kind: text tokens a second, nanoseconds of CPU time a text token, and bytes from the disk a text token."""
    import fsspec
    import seqio

    import ul2_tasks

    register_slow()
    kinds, length = arguments.kinds.split(","), int(arguments.lengths)
    places = {
        "warm": f"{arguments.child}/warm",
        "cold": f"{arguments.child}/cold",
        "memory": "memory://cold",
        "slow": "slow://cold",
    }
    if {"memory", "slow"} & set(kinds):
        fsspec.filesystem("memory").put(f"{places['warm']}/*", "/cold/")
    vocabulary = ul2_tasks.open_vocabulary("default", sentinels=1024)
    lengths = {"inputs": length, "targets": length}
    settings = {"dataset_split": "train", "shuffle": True, "num_epochs": None, "seed": 0}
    found = {}
    for kind in kinds:
        source = ul2_tasks.open_source({"train": [f"megatron:{places[kind]}/{number}" for number in range(arguments.pairs)]})
        mixture = ul2_tasks.register(f"cold_{kind}", source, vocabulary)
        rows = seqio.get_dataset(mixture, lengths, ul2_tasks.EncDecFeatureConverter(pack=False), **settings)
        a_batch = BATCH * ul2_tasks.examples(mixture, lengths).numbering.tokens_per_element
        batches = iter(rows.batch(BATCH, drop_remainder=True).prefetch(2))
        for seconds in (BEFORE, arguments.seconds):
            tokens, began, cpu, read = 0, time.perf_counter(), time.process_time(), from_disk()
            while time.perf_counter() < began + seconds:
                next(batches)
                tokens += a_batch
            took = time.perf_counter() - began
            found[kind] = tokens / took, 1e9 * (time.process_time() - cpu) / tokens, (from_disk() - read) / tokens
        del batches
    return found


def register_slow() -> None:
    import fsspec
    from fsspec.asyn import AsyncFileSystem

    memory = fsspec.filesystem("memory")

    class Slow(AsyncFileSystem):
        """The files of `memory://`, each request after a delay."""

        protocol = "slow"

        async def _cat_file(self, path, start=None, end=None, **keywords):
            await asyncio.sleep(DELAY)
            return memory.cat_file(path, start, end)

        async def _info(self, path, **keywords):
            await asyncio.sleep(DELAY)
            return memory.info(path)

    fsspec.register_implementation("slow", Slow)


def report(found: dict[str, dict[str, list[tuple[float, float, float]]]], kinds: list[str]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(
        "inputs, targets",
        *kinds,
        box=box.SIMPLE,
        title="Text tokens a second, share of warm, CPU time and bytes from the disk a token",
        title_justify="left",
    )
    for length, of_kind in found.items():
        cells = []
        for kind in kinds:
            speed, cpu, read = np.median(of_kind[kind], axis=0)
            shares = [mine[0] / first[0] for mine, first in zip(of_kind[kind], of_kind[kinds[0]])]
            cells.append(
                f"{speed / 1e6:.1f} M ({np.median(shares):.0%}, {min(shares):.0%} to {max(shares):.0%}) {cpu:.0f} ns, {read:.1f} B"
            )
        table.add_row(length, *cells)
    Console(width=200).print(table)


if __name__ == "__main__":
    main()
