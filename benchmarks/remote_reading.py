"""How fast examples are read from an object store: `python benchmarks/remote_reading.py [--seconds 5] [--repeats 5]`.

With `--requests` it counts instead what each command, and training in blocks, asks of a server of S3 on this machine (moto), that
answers after 30 ms, and compares its time with that of the same files on a disk.

It writes 10^8 made-up tokens, uint16, and puts them into a file system of fsspec that answers each request after 20 ms, at 50 MB a
second, and fails at 1 % of them: by a time-out, a reset, a 503 or a short read. It reads examples of 512, 512, a batch at a time:

* local: a memory-mapped file in the page cache, in a permutation of the whole corpus;
* remote: the same from the object store, where each chunk is a request, but for those of a batch within 64 kB of each other, which
  are many in a corpus as small as this;
* blocks: in windows of blocks, each window in a permutation, while the blocks of the next one are fetched ahead.

Printed are text tokens a second, medians of turns in which the three take turns, with the least and the most; the share of local in
the same turn; requests for 10^6 tokens, failed ones too; and bytes read over the bytes of the tokens that were used. A turn begins
with no block, and counts after two seconds. The seconds are wall time.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import itertools
import json
import multiprocessing
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import fsspec
import numpy as np
from click.testing import CliRunner
from fsspec.asyn import AsyncFileSystem
from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table

import ul2_tasks
from ul2_tasks.cli import main as main_command
from ul2_tasks.random_access.sequence import read_rows
from ul2_tasks.store.write import PairWriter

LENGTHS, BATCH = {"inputs": 512, "targets": 512}, 2048
BLOCKS = ul2_tasks.BlockShuffle(partitions=4, window_blocks=4)  # of --requests
BLOCK, PAIRS, DOCUMENT = 1 << 20, 4, 1000  # tokens, and files
DELAY, RATE, FAILURES, BEFORE = 0.02, 50e6, 0.01, 2.0  # seconds, bytes a second of one answer, the share of requests, seconds


class Turn(NamedTuple):
    """Of one turn: text tokens a second, requests for 10^6 tokens, and bytes read over bytes used."""

    speed: float
    requests: float
    read: float


class Store(AsyncFileSystem):
    """The files of `memory://` behind a network, which counts requests, and the bytes of the answers."""

    protocol = "far"
    failures = np.random.default_rng(0)
    counts = np.zeros(2, np.int64)

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **keywords: Any) -> bytes:
        failure = int(self.failures.integers(4)) if self.failures.random() < FAILURES else None
        self.counts[0] += 1
        await asyncio.sleep(DELAY)
        if failure is not None and failure < 3:
            raise [TimeoutError(), ConnectionResetError(104, "Connection reset by peer"), RuntimeError("503 Slow Down")][failure]
        found = fsspec.filesystem("memory").cat_file(path, start, end)
        await asyncio.sleep(len(found) / RATE)
        self.counts[1] += len(found)
        return found[: len(found) // 2] if failure == 3 else found

    async def _info(self, path: str, **keywords: Any) -> dict[str, Any]:
        return fsspec.filesystem("memory").info(path)

    async def _ls(self, path: str, detail: bool = True, **keywords: Any) -> list[Any]:
        return fsspec.filesystem("memory").ls(path, detail)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=96 * BLOCK)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--window", type=int, default=4, help="blocks of 2^20 tokens in a window of a partition")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--folder", default=".", help="where the tokens are written, and removed")
    parser.add_argument("--requests", action="store_true", help="count the requests of commands")
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--file_bytes", type=int, default=1 << 21)
    parser.add_argument("--delay", type=float, default=0.03, help="seconds of each of these requests")
    arguments = parser.parse_args()
    if arguments.requests:
        compare(
            arguments.files, arguments.file_bytes, arguments.tokens // PAIRS // BLOCK * BLOCK, arguments.delay, arguments.repeats
        )
        return
    fsspec.register_implementation("far", Store, clobber=True)
    blocks = ul2_tasks.BlockShuffle(BLOCK, arguments.partitions, arguments.window)
    ul2_tasks.set_block_cache(4 * blocks.partitions * blocks.window_blocks * blocks.block_tokens)
    with tempfile.TemporaryDirectory(prefix="remote-", dir=arguments.folder) as folder:
        make(pathlib.Path(folder), arguments.tokens // PAIRS // BLOCK * BLOCK)
        fsspec.filesystem("memory").put(f"{folder}/*", "/tokens/")
        kinds: dict[str, tuple[str, ul2_tasks.BlockShuffle | None]] = {
            "local": (folder, None),
            "remote": ("far://tokens", None),
            "blocks": ("far://tokens", blocks),
        }
        turns = track(range(arguments.repeats), "turns")
        report([{kind: measure(*place, arguments.seconds) for kind, place in kinds.items()} for _ in turns])


def make(folder: pathlib.Path, tokens: int) -> None:
    rng = np.random.default_rng(0)
    for number in range(PAIRS):
        lengths = np.full(-(-tokens // DOCUMENT), DOCUMENT)
        lengths[-1] -= lengths.sum() - tokens
        with PairWriter(f"{folder}/{number}.bin", f"{folder}/{number}.idx", np.dtype(np.uint16)) as pair:
            pair.add(rng.integers(300, 1000, tokens, np.int32), lengths)


def measure(place: str, blocks: ul2_tasks.BlockShuffle | None, seconds: float) -> Turn:
    """Reads batches in a permutation of the whole corpus, or of windows of blocks."""
    source = ul2_tasks.open_source({"train": [f"megatron:{place}/{number}" for number in range(PAIRS)]})
    examples = ul2_tasks.examples(ul2_tasks.Mixture("far", source, block_shuffle=blocks), LENGTHS)
    firsts = itertools.cycle(range(0, len(examples) - BATCH, BATCH))
    for limit in (BEFORE, seconds):
        tokens, before, began = 0.0, Store.counts.copy(), time.perf_counter()
        while time.perf_counter() < began + limit:
            first = next(firsts)
            read_rows(examples, np.arange(first, first + BATCH))
            tokens += BATCH * examples.numbering.tokens_per_element
        took = time.perf_counter() - began
    requests, read = (Store.counts - before).tolist()
    return Turn(tokens / took, 1e6 * requests / tokens, read / (2 * tokens))


def report(turns: list[dict[str, Turn]]) -> None:
    columns = ("", "tokens a second", "share of local", "requests for 10^6 tokens", "bytes read over used")
    table = Table(*columns, box=box.SIMPLE, title="Examples of 512, 512", title_justify="left")
    for kind in turns[0]:
        speeds = [turn[kind].speed for turn in turns]
        shares = [turn[kind].speed / turn["local"].speed for turn in turns]
        table.add_row(
            kind,
            f"{np.median(speeds) / 1e6:.1f} M ({min(speeds) / 1e6:.1f} to {max(speeds) / 1e6:.1f})",
            f"{np.median(shares):.0%} ({min(shares):.0%} to {max(shares):.0%})",
            f"{np.median([turn[kind].requests for turn in turns]):.2f}",
            f"{np.median([turn[kind].read for turn in turns]):.3f}",
        )
    Console(width=120).print(table)


READERS = (1, 2, 4)


def compare(files: int, file_bytes: int, pair_tokens: int, delay: float, repeats: int) -> None:
    """Prints what each command, and training in blocks, asks of S3, and how long it takes there and on a disk, in Markdown."""
    from tests.stores.object_stores import Proxy, Request, free_port, program

    port, rng = free_port(), np.random.default_rng(0)
    words = np.array(["".join(map(chr, rng.integers(97, 123, rng.integers(1, 9)))) for _ in range(4000)])
    with program(["-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], port), tempfile.TemporaryDirectory() as folder:
        proxy = Proxy(port)
        keys = dict(AWS_ACCESS_KEY_ID="key", AWS_SECRET_ACCESS_KEY="secret", AWS_DEFAULT_REGION="us-east-1")
        os.environ.update(AWS_ENDPOINT_URL=proxy.address, **keys)
        fsspec.filesystem("s3").mkdir("bucket")
        for number in range(files):
            texts = (" ".join(words[rng.integers(0, 4000, 300)]) for _ in range(file_bytes // 1650))
            content = "".join(json.dumps({"id": f"{number}-{row}", "text": text}) + "\n" for row, text in enumerate(texts))
            for place in (folder, "s3://bucket"):
                with fsspec.open(f"{place}/texts/{number:05}.jsonl", "w", auto_mkdir=True) as file:
                    file.write(content)
        os.mkdir(f"{folder}/tokens")
        make(pathlib.Path(folder, "tokens"), pair_tokens)
        fsspec.filesystem("s3").put(f"{folder}/tokens/*", "bucket/tokens/")
        run_command(["show"])  # what is imported and compiled is so in all processes that begin as this one is
        found: dict[str, list[tuple[list[Request], np.ndarray, np.ndarray]]] = {}
        for turn in range(repeats):
            for near, far in zip(tasks(folder, folder, turn).items(), tasks(folder, "s3://bucket", turn).values()):
                name, task = near
                local = seconds_of(*task)
                proxy.reset()
                proxy.before = lambda request: time.sleep(delay)
                store = seconds_of(*far)
                found.setdefault(name, []).append(([*proxy.requests], store, local))
                print(name, len(proxy.requests), store, local, file=sys.stderr, flush=True)
        tokens = json.loads(fsspec.filesystem("s3").cat("bucket/0/mine_corpus/stats.train.json"))["targets_tokens"]
        proxy.stop()
    read = f"{tokens / 1e6:.1f} M tokens, and {PAIRS * pair_tokens / 1e6:.1f} M in blocks"
    print(f"{files} files, {read}; {delay * 1000:.0f} ms a request; medians of {repeats} turns\n")
    print("| | requests | per 10<sup>6</sup> tokens | S3 | local | share of local | of CPU time |\n|---|---|---|---|---|---|---|")
    for name, turns in found.items():
        requests = len(turns[-1][0])
        times = [float(np.median([turn[of][0] for turn in turns])) for of in (1, 2)]
        of_name = PAIRS * pair_tokens if name.startswith("reading") else tokens
        told = [f"{of_name / each / 1e6:.1f} M/s" if name in WHOLE or of_name != tokens else f"{each:.1f} s" for each in times]
        shares = [f"{np.median([local[of] / store[of] for _, store, local in turns]):.0%}" for of in (0, 1)]
        print("|", " | ".join([name, f"{requests:,}", f"{1e6 * requests / of_name:.1f}", *told, *shares]), "|")


WHOLE = ("`cache`", "`verify`", "`export`, in blocks")  # which read all tokens


def tasks(folder: str, place: str, turn: int) -> Mapping[str, tuple[Callable[[int], np.ndarray | None], int]]:
    """What is done of the corpus of a place, and in how many processes."""
    described, output = f"{folder}/{len(place)}.py", f"{place}/{turn}"
    made = f"ul2_tasks.Mixture('mine', '{place}/texts/*.jsonl', 'bytes', block_shuffle=ul2_tasks.{BLOCKS})"
    pathlib.Path(described).write_text(f"import ul2_tasks\n\nmine = {made}\n")
    corpus, rest = (
        ["mine", "--corpus", f"{place}/texts/*.jsonl", "--vocabulary", "bytes"],
        ["--cache", output, "--lengths", "512,512"],
    )
    run = [*corpus, *rest]
    steps = [*run, "--batch_size", "128"]
    commands = {
        "`cache`": ["cache", *corpus, "--output", output],
        "`cache` of a complete one": ["cache", *corpus, "--output", output],
        "`verify`": ["verify", output],
        "`verify --quick`": ["verify", output, "--quick"],
        "`show`": ["show", *run],
        "`show --step`, 128 examples": ["show", *steps, "--step", "3"],
        "`find --document`": ["find", *steps, "--document", "7"],
        "`find --id`": ["find", *steps, "--id", "3-1"],
        "`stats`": ["stats", *run],
        "`audit`": ["audit", *steps, "--until", "20"],
    }

    reading = {f"reading in blocks, {count} readers": (functools.partial(read_epoch, place, count), count) for count in READERS}
    export = ["export", f"{described}:mine", *rest, "--format", "parquet", "--output", f"{place}/exported-{turn}"]
    invoked = {name: (functools.partial(run_command, command), 1) for name, command in commands.items()}
    return invoked | reading | {"`export`, in blocks": (functools.partial(run_command, export), 1)}


def run_command(command: list[str], _: int = 0) -> None:
    done = CliRunner().invoke(main_command, command, catch_exceptions=False)
    assert not done.exit_code, (command, done.output)


def read_epoch(place: str, readers: int, reader: int) -> np.ndarray:
    """As one of so many hosts. Gives the time after the first batch."""
    source = ul2_tasks.open_source({"train": [f"megatron:{place}/tokens/{number}" for number in range(PAIRS)]})
    examples = ul2_tasks.examples(ul2_tasks.Mixture("far", source, block_shuffle=BLOCKS), LENGTHS)
    for first in range(reader, len(examples), BATCH * readers):
        read_rows(examples, np.arange(first, min(first + BATCH * readers, len(examples)), readers))
        if first == reader:
            began = now()
    return now() - began


def now() -> np.ndarray:
    """Seconds: of a clock, and of this process's CPU time."""
    return np.array([time.perf_counter(), time.process_time()])


def seconds_of(task: Callable[[int], np.ndarray | None], processes: int) -> np.ndarray:
    """The time of the slowest of so many processes, which begin as this one is, with nothing that it read; and of all CPUs."""
    context = multiprocessing.get_context("fork")
    times = context.Queue()

    def timed(number: int) -> None:
        began, said = now(), task(number)
        times.put(now() - began if said is None else said)

    began = [context.Process(target=timed, args=(number,)) for number in range(processes)]
    for process in began:
        process.start()
    for process in began:
        process.join()
    found = [times.get(timeout=10) for _ in began]
    return np.array([max(wall for wall, _ in found), sum(cpu for _, cpu in found)])


if __name__ == "__main__":
    main()
