"""What whole records cost: `python benchmarks/records.py [--documents 200000] [--repeats 5] [--opened 1e7]`.

It writes a cache of documents with lengths like those of C4 (log-normal, a median of 250 tokens, a mean of 480), and one of
conversations, into a temporary folder, and then measures in one process, in turns, medians of `--repeats` of CPU time:

* ns a token of text of `examples` at 512/512, of joined documents, of documents kept apart, and of both in packed sequences;
* ns a token of conversations packed at 4,096, of `examples`, and of the stream of `get_dataset` with `ChatFeatureConverter`;
* seconds to open a corpus of `--opened` documents, until its first batch, unpacked and packed, to count the packed sequences of
  an epoch, and to take up these counts. Its index is written, and its tokens are a sparse file.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator

import numpy as np
from rich.console import Console
from rich.table import Table

import ul2_tasks
from ul2_tasks.store.index import serialize

LENGTHS, CHAT = {"inputs": 512, "targets": 512}, {"tokens": 4096}
AT_A_TIME = 512


def lengths_of(count: int) -> np.ndarray:
    """The lengths of documents in tokens, [count] int64."""
    return np.maximum(1, np.random.default_rng(0).lognormal(np.log(250), 1.14, count)).astype(np.int64)


def pair(folder: pathlib.Path, lengths: np.ndarray) -> ul2_tasks.Mixture:
    """Documents of these lengths as a pair of files, whose tokens are all the same where there are many."""
    folder.mkdir(parents=True)
    (folder / "all.idx").write_bytes(serialize(lengths, np.dtype(np.uint16)))
    with open(folder / "all.bin", "wb") as file:
        if lengths.sum() < 1 << 28:
            np.random.default_rng(1).integers(300, 4000, lengths.sum()).astype("<u2").tofile(file)
        else:
            os.truncate(file.fileno(), 2 * int(lengths.sum()))
    return ul2_tasks.Mixture("whole", f"megatron:{folder / 'all'}")


def conversations(path: pathlib.Path, count: int) -> None:
    """Conversations of some 600 tokens, with reasoning and an answer."""
    random = np.random.default_rng(2)
    words = [f"word{number}" for number in range(40)]
    with open(path, "w") as file:
        for _ in range(count):
            messages = []
            for _ in range(int(random.integers(1, 4))):
                for role, channel, mean in (("user", None, 60), ("assistant", "analysis", 80), ("assistant", "final", 60)):
                    text = " ".join(random.choice(words, int(random.lognormal(np.log(mean), 0.8)) + 1).tolist())
                    messages.append({"role": role, "content": text} | ({"channel": channel} if channel else {}))
            file.write(json.dumps({"messages": messages}) + "\n")


def ns_a_token(read: Callable[[], Iterator[int]], seconds: float) -> float:
    """Reads batches for so many seconds of CPU time. `read` yields the tokens of each."""
    begun, tokens = time.process_time(), 0
    for count in read():
        tokens += count
        if time.process_time() - begun > seconds:
            break
    return (time.process_time() - begun) * 1e9 / tokens


def batches(found: ul2_tasks.Examples, tokens: float) -> Callable[[], Iterator[int]]:
    """Reads an epoch in batches, of elements with so many tokens of text on average."""

    def read() -> Iterator[int]:
        while True:
            for first in range(0, len(found) - AT_A_TIME, AT_A_TIME):
                found[first : first + AT_A_TIME]
                yield round(AT_A_TIME * tokens)

    return read


def stream(name: str) -> Callable[[], Iterator[int]]:
    import seqio

    def read() -> Iterator[int]:
        while True:
            dataset = seqio.get_dataset(
                name, CHAT, ul2_tasks.ChatFeatureConverter(pack=True), num_epochs=None, seed=0, shuffle=True
            )
            for row in dataset.batch(64).as_numpy_iterator():
                yield int((row["decoder_segment_ids"] > 0).sum())

    return read


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=float, default=2e5)
    parser.add_argument("--conversations", type=float, default=2e4)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3, help="of each measurement")
    parser.add_argument("--opened", type=float, default=1e7, help="documents of the corpus that is opened")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(pathlib.Path(folder), arguments)


def measure(folder: pathlib.Path, arguments: argparse.Namespace) -> None:
    import dataclasses

    console, lengths = Console(), lengths_of(int(arguments.documents))
    joined = pair(folder / "texts", lengths)
    apart = dataclasses.replace(joined, merge_examples=False)
    readers: dict[str, Callable[[], Iterator[int]]] = {}
    for name, mixture in (("joined", joined), ("apart", apart)):
        for pack in (False, True):
            found = ul2_tasks.examples(mixture, LENGTHS, pack=pack)
            readers[f"{name}, {'packed' if pack else 'alone'}"] = batches(found, lengths.sum() / len(found))
    conversations(folder / "chats.jsonl", int(arguments.conversations))
    chat = ul2_tasks.Chat("talks", str(folder / "chats.jsonl"), truncation="drop")
    chat.cache(str(folder / "cache"))
    packed = ul2_tasks.examples(chat, CHAT, pack=True, cache_dirs=[str(folder / "cache")])
    tokens = sum(int((row["tokens_segment_ids"] > 0).sum()) for row in packed)
    readers["conversations at 4,096, packed"] = batches(packed, tokens / len(packed))
    import seqio

    seqio.add_global_cache_dirs([str(folder / "cache")])
    ul2_tasks.register_chat("talks", str(folder / "chats.jsonl"), truncation="drop")
    readers["conversations at 4,096, packed, the stream"] = stream("talks_chat")
    found_ns: dict[str, list[float]] = {name: [] for name in readers}
    for read in readers.values():
        ns_a_token(read, 0.5)
    for _ in range(arguments.repeats):
        for name, read in readers.items():
            found_ns[name].append(ns_a_token(read, arguments.seconds))
    table = Table("examples", "ns/token", "lowest to highest", "to joined, alone")
    base = statistics.median(found_ns["joined, alone"])
    for name, values in found_ns.items():
        median = statistics.median(values)
        table.add_row(name, f"{median:.1f}", f"{min(values):.1f} to {max(values):.1f}", f"{median / base:.2f}")
    console.print(table)
    rows = ul2_tasks.examples(apart, LENGTHS, pack=True)[:2000]
    fill = np.mean([[(row[f"{key}_segment_ids"] > 0).mean() for key in LENGTHS] for row in rows], axis=0)
    console.print(f"fill of packed sequences of documents kept apart: inputs {fill[0]:.1%}, targets {fill[1]:.1%}")
    console.print(f"fill of packed sequences of conversations: {tokens / (len(packed) * CHAT['tokens']):.1%}")
    opened(folder / "many", int(arguments.opened), console)


def opened(folder: pathlib.Path, documents: int, console: Console) -> None:
    """Times the opening of a corpus of so many documents."""
    import dataclasses

    mixture = dataclasses.replace(pair(folder, lengths_of(documents)), merge_examples=False)
    ul2_tasks.examples(dataclasses.replace(mixture, name="warm"), LENGTHS, pack=True)  # machine code is there
    times = {}
    begun = time.perf_counter()
    found = ul2_tasks.examples(mixture, LENGTHS)
    times["open"] = time.perf_counter() - begun
    packed = ul2_tasks.examples(mixture, LENGTHS, pack=True)
    begun = time.perf_counter()
    packed.numbering.slots(np.arange(128))
    times["first packed batch is known"] = time.perf_counter() - begun
    begun = time.perf_counter()
    rows = len(packed)
    times["all packed sequences of an epoch are counted"] = time.perf_counter() - begun
    again = ul2_tasks.examples(mixture, LENGTHS, pack=True)
    begun = time.perf_counter()
    assert len(again) == rows
    times["the counts are taken up by another run"] = time.perf_counter() - begun
    console.print(f"{documents:,} documents, {len(found):,} pieces, {rows:,} packed sequences, seconds:")
    for name, seconds in times.items():
        console.print(f"  {name}: {seconds:.2f}")


if __name__ == "__main__":
    main()
