"""How random a shuffle of blocks is: `python benchmarks/randomness.py [--tokens 1e10] [--batches 256,2048] [--places 100]`.

It needs no data, because an order is arithmetic. The corpus is the worst case: it is sorted, so an example's place in the corpus
is its topic. Documents have lengths like those of C4 (log-normal, with a mean of 480 tokens). Chunks are those of `T5GEMMA2` at
512/512. At random places of ten epochs it takes ten consecutive batches from

* the full permutation, which is the order without blocks;
* shuffles of blocks of several sizes;
* a shuffle buffer of 1,000 examples, as SeqIO has it, over one file, and over 1,024 files in a random order, of which 16 are read
  in turn, 16 examples of each (tf.data's interleave, as in SeqIO's `FileDataSource`);
* with `--streaming CHECKOUT`, `py1e` of MosaicML Streaming with its default block sizes, over samples of the mean length of a chunk
  in shards of 64 MiB. A batch has equally many samples of each canonical node.

and measures

* the serial correlation of the places in the corpus of examples i and i + 1;
* the distance of an example to the nearest one of its batch, on average, over what it is for uniform places (Clark and Evans);
* chi-square of a batch over 64 equal parts of the corpus, over its degrees of freedom: 1 for uniform places;
* how much of that comes again in the next batch: the correlation of the deviations over these parts in a batch and in the next;
* how many blocks of 2**20 tokens, and how many documents, have tokens in a batch.

The last table is what each needs, of tokens of two bytes: a host holds the windows that it reads, and those that come next.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import pathlib
import sys
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.table import Table

from ul2_tasks import T5GEMMA2, BlockShuffle, chunk_length
from ul2_tasks.order.blocks import order_of
from ul2_tasks.order.cycles import nearest_cycle

CYCLE = nearest_cycle([denoiser.weight for denoiser in T5GEMMA2])
LENGTHS = tuple(chunk_length(denoiser, {"inputs": 512, "targets": 512}).length for denoiser in T5GEMMA2)
BATCHES, PARTS, GRID, EPOCHS, HOSTS = 10, 64, 1 << 20, 10, (1, 8, 64)
BUFFER, FILES, FILES_AT_A_TIME, IN_A_ROW = 1000, 1024, 16, 16
SHUFFLES = (
    BlockShuffle(),
    BlockShuffle(window_blocks=4),
    BlockShuffle(window_blocks=64),
    BlockShuffle(partitions=256),
    BlockShuffle(block_tokens=1 << 18, partitions=256, window_blocks=64),
    BlockShuffle(block_tokens=1 << 18, window_blocks=64),
    BlockShuffle(block_tokens=1 << 18, partitions=256),
    BlockShuffle(block_tokens=1 << 23, window_blocks=2),
)

Numbers = np.ndarray
Sampler = Callable[[np.random.Generator, int], tuple[Numbers, Numbers]]


def main() -> None:
    arguments = parse_arguments()
    tokens, documents = int(arguments.tokens), document_starts()
    orders: dict[str, tuple[Sampler, BlockShuffle | None]] = {"full permutation": (ordered(tokens, None), None)}
    for blocks in SHUFFLES:
        if tokens // blocks.block_tokens >= blocks.partitions:
            orders[name_of(blocks)] = ordered(tokens, blocks), blocks
    orders["buffer of 1,000, one file"] = buffered(tokens, is_interleaved=False), None
    orders["buffer of 1,000, 16 of 1,024 files"] = buffered(tokens, is_interleaved=True), None
    if arguments.streaming:
        for nodes in (8, 64):
            orders[f"Streaming's py1e, {nodes} canonical nodes"] = streamed(tokens, arguments.streaming, nodes), None
    console = Console(width=max(150, Console().width))
    for batch in arguments.batches:
        console.print(randomness(tokens, batch, arguments.places, orders, documents))
    console.print(needs({name: blocks for name, (_, blocks) in orders.items() if blocks}, tokens))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=float, default=1e10)
    parser.add_argument("--batches", type=numbers, default=(256, 2048), help="how many examples a batch has")
    parser.add_argument("--places", type=int, default=100, help="where ten consecutive batches are taken")
    parser.add_argument("--streaming", type=pathlib.Path, help="a checkout of mosaicml/streaming, to measure its shuffle too")
    return parser.parse_args()


def numbers(value: str) -> tuple[int, ...]:
    return tuple(map(int, value.split(",")))


def name_of(blocks: BlockShuffle) -> str:
    return f"1 << {blocks.block_tokens.bit_length() - 1}, {blocks.partitions}, {blocks.window_blocks}"


def document_starts() -> Numbers:
    """[10**6 + 1] int64, where documents begin in a stretch of the corpus, which repeats; last where the stretch ends."""
    lengths = np.random.default_rng(0).lognormal(np.log(480) - 0.5, 1, 10**6)
    return np.concatenate([[0], np.cumsum(np.maximum(8, lengths.astype(np.int64)))])


def documents_at(starts: Numbers, tokens: Numbers) -> Numbers:
    """The document of each token."""
    stretches, places = np.divmod(tokens, starts[-1])
    return stretches * (len(starts) - 1) + np.searchsorted(starts, places, side="right") - 1


def ordered(tokens: int, blocks: BlockShuffle | None) -> Sampler:
    """The chunks of consecutive examples of the package's order, from a random place on: [n] int64 starts and stops."""
    order = order_of(CYCLE, LENGTHS, tokens, 7, True, blocks)

    def sample(rng: np.random.Generator, count: int) -> tuple[Numbers, Numbers]:
        first = int(rng.integers(EPOCHS * order.examples))
        found = order.ranges(*order.slots(first + np.arange(count)))
        firsts = np.flatnonzero(np.diff(found.of, prepend=-1))  # of a chunk that crosses two blocks its first part
        return found.starts[firsts], found.stops[firsts]

    return sample


def buffered(tokens: int, is_interleaved: bool) -> Sampler:
    """The same of the corpus in its order, through a shuffle buffer."""
    order = order_of(CYCLE, LENGTHS, tokens, 7, False, None)

    def sample(rng: np.random.Generator, count: int) -> tuple[Numbers, Numbers]:
        total = count + BUFFER
        if is_interleaved:
            in_file = order.examples // FILES
            files = rng.choice(FILES, FILES_AT_A_TIME, replace=False)
            rounds, places = np.divmod(np.arange(total), FILES_AT_A_TIME * IN_A_ROW)
            which, within = np.divmod(places, IN_A_ROW)
            inner = rng.integers(in_file) + rounds * IN_A_ROW + within
            numbers = (files[which] + inner // in_file) % FILES * in_file + inner % in_file
        else:
            numbers = int(rng.integers(order.examples - total)) + np.arange(total)
        found = order.ranges(*order.slots(shuffled(numbers, count, rng)))
        firsts = np.flatnonzero(np.diff(found.of, prepend=-1))
        return found.starts[firsts], found.stops[firsts]

    return sample


def shuffled(numbers: Numbers, count: int, rng: np.random.Generator) -> Numbers:
    """As tf.data shuffles: a random one of the buffer comes next, and the next of the input takes its place."""
    held, chosen = numbers[:BUFFER].tolist(), np.zeros(count, np.int64)
    for place, number in enumerate(rng.integers(BUFFER, size=count).tolist()):
        chosen[place] = held[number]
        held[number] = numbers[BUFFER + place]
    return chosen


def streamed(tokens: int, checkout: pathlib.Path, nodes: int) -> Sampler:
    """The same of samples that Streaming shuffles."""
    for name in ("py1s", "py1e"):  # without the package, which imports what is not needed here
        spec = importlib.util.spec_from_file_location(
            f"streaming.base.shuffle.{name}", checkout / "streaming" / "base" / "shuffle" / f"{name}.py"
        )
        sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[spec.name])
    length = round(np.average(LENGTHS, weights=CYCLE.counts))
    samples, in_shard = tokens // length, (1 << 26) // (2 * length)
    shards = np.array([in_shard] * (samples // in_shard) + [samples % in_shard])
    block = max(4_000_000 // nodes, 1 << 18)
    ids = sys.modules["streaming.base.shuffle.py1e"].get_shuffle_py1e(shards, nodes, 7, 0, block)

    def sample(rng: np.random.Generator, count: int) -> tuple[Numbers, Numbers]:
        rounds, node = np.divmod(np.arange(count), nodes)
        first = int(rng.integers(samples // nodes - count // nodes - 1))
        starts = ids[node * (samples // nodes) + first + rounds] * length
        return starts, starts + length

    return sample


@dataclasses.dataclass
class Measured:
    """What is counted of the batches of an order."""

    serial: float
    nearest: float
    chi_square: float
    comes_again: float
    blocks: float
    documents: float


def measure(sample: Sampler, tokens: int, batch: int, places: int, documents: Numbers) -> Measured:
    rng = np.random.default_rng(1)
    products, squares, nearest, chi, lagged, blocks, held = ([] for _ in range(7))
    for _ in range(places):
        starts, stops = sample(rng, BATCHES * batch)
        centred = starts / tokens - 0.5
        products.append(np.mean(centred[1:] * centred[:-1]))
        squares.append(np.mean(centred**2))
        counts = np.stack([np.bincount(of * PARTS // tokens, minlength=PARTS) for of in starts.reshape(BATCHES, batch)])
        deviations = counts - batch / PARTS
        chi.append((deviations**2).sum(axis=1).mean() / (batch / PARTS) / (PARTS - 1))
        lagged.append((deviations[1:] * deviations[:-1]).sum(axis=1).mean() / (batch / PARTS) / (PARTS - 1))
        for of, until in zip(starts.reshape(BATCHES, batch), stops.reshape(BATCHES, batch)):
            nearest.append(nearest_distances(of, tokens) / (tokens / (2 * batch)))
            blocks.append(len(np.unique(of // GRID)))
            firsts, lasts = documents_at(documents, of), documents_at(documents, until - 1)
            held.append(len(union(firsts, lasts)))
    serial, comes_again = np.mean(products) / np.mean(squares), np.mean(lagged) / np.mean(chi)
    return Measured(*map(float, map(np.mean, (serial, nearest, chi, comes_again, blocks, held))))


def nearest_distances(places: Numbers, tokens: int) -> float:
    """How far the nearest other one is, on average, on a corpus whose end meets its beginning."""
    gaps = np.diff(np.sort(places), append=np.min(places) + tokens)
    return float(np.minimum(gaps, np.roll(gaps, 1)).mean())


def union(firsts: Numbers, lasts: Numbers) -> Numbers:
    counts = lasts - firsts + 1
    before = np.repeat(np.cumsum(counts) - counts, counts)
    return np.unique(np.repeat(firsts, counts) + np.arange(counts.sum()) - before)


def randomness(tokens: int, batch: int, places: int, orders: dict, documents: Numbers) -> Table:
    table = Table(title=f"{tokens:.0e} tokens, batches of {batch:,}, {places * BATCHES} batches each", title_justify="left")
    for column in ("block_tokens, partitions, window_blocks", "serial", "nearest", "chi2/df", "again", "blocks", "documents"):
        table.add_column(column, justify="left" if column.startswith("block_tokens") else "right")
    for name, (sample, _) in orders.items():
        found = measure(sample, tokens, batch, places, documents)
        figures = (found.serial, found.nearest, found.chi_square, found.comes_again)
        table.add_row(name, *(f"{each:.3f}" for each in figures), f"{found.blocks:,.0f}", f"{found.documents:,.0f}")
    return table


def needs(shuffles: dict[str, BlockShuffle], tokens: int) -> Table:
    table = Table(title="what is mixed, requested and held", title_justify="left")
    for column in ("order", "million tokens mixed", "blocks mixed", "requests/million tokens", *(f"MB, {n} hosts" for n in HOSTS)):
        table.add_column(column, justify="left" if column == "order" else "right")
    whole = order_of(CYCLE, LENGTHS, tokens, 7, True, None)
    table.add_row("full permutation", "all", "", f"{1e6 * whole.examples / tokens:,.0f}", *(["0"] * len(HOSTS)))
    for name, blocks in shuffles.items():
        mixed = blocks.partitions * blocks.window_blocks * blocks.block_tokens
        held = (2 * 2 * mixed / hosts / 1e6 if blocks.partitions % hosts == 0 else np.nan for hosts in HOSTS)
        requests = 1e6 / blocks.block_tokens
        many = f"{blocks.partitions * blocks.window_blocks:,}"
        table.add_row(name, f"{mixed / 1e6:,.0f}", many, f"{requests:.2f}", *(f"{each:,.0f}" for each in held))
    return table


if __name__ == "__main__":
    main()
