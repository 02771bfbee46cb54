"""Packing whole records: how full rows are, and what is cut, cropped or dropped, beside TRL's packing and nanochat's.

    python benchmarks/packing_records.py [--records 16384] [--repeats 5] [--output packing_records.json]

It needs this package with its extra `benchmarks`; TRL's rules need `trl` as well, and are left out where it is not installed. The
records are lengths alone, drawn with fixed seeds (TRL, which moves tokens, gets zeros):

* documents of C4's lengths: lognormal with the mean 427 of C4's English documents, 156 * 10^9 tokens in 364,868,892 documents
  (Dodge et al., Documenting Large Webtext Corpora, 2021; the dataset card of allenai/c4). The spread is an assumption, that of a
  standard deviation of 1 of the logarithm: half of the documents have less than 259;
* conversations and pairs of prompt and completion: lognormal, many short ones and a long tail, of no particular corpus;
* texts with images: a quarter each of captions, questions, edits and interleaved texts, in tokens, ViT patches and latents.

The five denoisers are those of `T5GEMMA2`, 1:1:1:1:4, each document kept apart. A document of more tokens than the shortest full
chunk, or than three quarters of it, is divided into the fewest pieces that are not longer, of nearly equal lengths. With one budget
a document longer than a row is divided so, too. Of the other records, those longer than a row are dropped, as `truncation="drop"`
does. Rules:

* best fit: ours, `order.best_fit`, of all records at once; nothing is cut;
* pools: ours as streams pack, `order.packing` of 1,024 records at a time, or `images.packing` of 256;
* next fit: SeqIO's, a row ends with the first record that does not fit;
* TRL bfd, bfd_split, wrapped: `trl.pack_dataset`, 1,000 records at a time, as is its default. Its time has the tokens' copies;
* nanochat: its loader, commit 92d63d4, by our own lines: of a buffer of 1,000 documents, refilled by 128, each with a BOS, the
  longest one that fits; when none fits, the shortest one fills the row, and its rest is lost.

Printed are the share of each budget that is filled: the scarcest budget's is the highest, and would be 100 % if records could be
divided at will; tokens that are in no row, cropped from records or with records that are dropped, and records that are in several
rows, in % of all; and CPU ns a record, the least of the repeats.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import os
import pathlib
import time
from collections.abc import Callable
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import datasets
import numpy as np
import pyarrow.compute as pc
from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table

from ul2_tasks import T5GEMMA2, chunk_length
from ul2_tasks.compiled import compiled
from ul2_tasks.denoising.lengths import example_lengths
from ul2_tasks.image_rows.packing import pack
from ul2_tasks.order.best_fit import best_fit
from ul2_tasks.order.packing import assign_rows

if importlib.util.find_spec("trl"):
    from trl.data_utils import pack_dataset

C4_MEAN, C4_MEDIAN = 427, 259  # tokens
POOL, IMAGE_POOL, BATCH, BUFFER, REFILL = 1024, 256, 1000, 1000, 128  # records


class Pool(NamedTuple):
    """Records to pack.

    `sizes` is [n, F], `budgets` are the F sizes of a row, and `record`, [n], is the document that each is a piece of. Of `whole`,
    [records] tokens, some may be `dropped`.
    """

    sizes: np.ndarray
    budgets: tuple[int, ...]
    record: np.ndarray
    whole: np.ndarray
    dropped: int = 0


class Packed(NamedTuple):
    """Rows, the tokens of each feature in them, the shares of tokens cropped and dropped, the share of records in several rows."""

    rows: int
    tokens: np.ndarray
    cropped: float = 0.0
    dropped: float = 0.0
    cut: float = 0.0


def lognormal(generator: np.random.Generator, count: int, mean: float, median: float) -> np.ndarray:
    spread = np.sqrt(2 * np.log(mean / median))
    return np.maximum(2, median * np.exp(spread * generator.standard_normal(count))).astype(np.int64)


def pieces(lengths: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """The lengths of the fewest pieces of nearly equal lengths, none above `most`; the document of each."""
    counts = -(-lengths // most)
    document = np.repeat(np.arange(len(lengths)), counts)
    number = np.arange(len(document)) - np.repeat(np.cumsum(counts) - counts, counts)
    return (number + 1) * lengths[document] // counts[document] - number * lengths[document] // counts[document], document


def denoised(count: int, budget: int, part: float) -> Pool:
    """Documents kept apart, in pieces of at most this part of the shortest full chunk."""
    generator, lengths = np.random.default_rng(0), {"inputs": budget, "targets": budget}
    most = int(part * min(chunk_length(denoiser, lengths).length for denoiser in T5GEMMA2))
    whole = lognormal(generator, count, C4_MEAN, C4_MEDIAN)
    tokens, document = pieces(whole, most)
    which = generator.permutation(np.array([0, 1, 2, 3, 4, 4, 4, 4])[np.arange(len(tokens)) % 8])
    of_length = [[example_lengths(denoiser, length, 1, (True, True)) for length in range(1, most + 1)] for denoiser in T5GEMMA2]
    return Pool(np.array(of_length)[which, np.maximum(tokens, 2) - 1], (budget, budget), document, whole)


def documents(count: int, budget: int) -> Pool:
    """Documents for a decoder, each with an EOS."""
    whole = lognormal(np.random.default_rng(0), count, C4_MEAN, C4_MEDIAN) + 1
    tokens, document = pieces(whole, budget)
    return Pool(tokens[:, np.newaxis], (budget,), document, whole)


def conversations(count: int, budget: int) -> Pool:
    whole = lognormal(np.random.default_rng(0), count, 1200, 700)
    kept = whole <= budget
    return Pool(whole[kept, np.newaxis], (budget,), np.flatnonzero(kept), whole, int(whole[~kept].sum()))


def pairs(count: int, *budgets: int) -> Pool:
    generator = np.random.default_rng(0)
    sizes = np.stack([lognormal(generator, count, 420, 200), lognormal(generator, count, 350, 220)], axis=1)
    kept = (sizes <= budgets).all(axis=1)
    return Pool(sizes[kept], budgets, np.flatnonzero(kept), sizes.sum(axis=1), int(sizes[~kept].sum()))


def texts_with_images(count: int, *budgets: int) -> Pool:
    """Sides of images in pixels as in BAGEL: 224 to 980 in patches of 14, 512 to 1,024 in latents of 16."""
    generator = np.random.default_rng(0)
    kind, text = generator.integers(0, 4, count), lognormal(generator, count, 110, 60)
    vit = np.prod(generator.integers(224 // 14, 980 // 14 + 1, (2, count)), axis=0) * np.array([0, 1, 1, 2])[kind]
    latents = np.prod(generator.integers(512 // 16, 1024 // 16 + 1, (2, count)), axis=0) * np.array([1, 0, 2, 3])[kind]
    sizes = np.stack([text * np.array([1, 6, 1, 4])[kind] + vit + latents, vit, latents], axis=1)
    kept = (sizes <= budgets).all(axis=1)
    return Pool(sizes[kept], budgets, np.flatnonzero(kept), sizes[:, 0], int(sizes[~kept, 0].sum()))


SETTINGS: dict[str, Callable[[int], Pool]] = {
    "documents, five denoisers, 512/512, pieces of a full chunk": lambda count: denoised(count, 512, 1),
    "documents, five denoisers, 512/512, of 3/4 of it": lambda count: denoised(count, 512, 0.75),
    "documents, five denoisers, 2048/2048, pieces of a full chunk": lambda count: denoised(count, 2048, 1),
    "documents, five denoisers, 2048/2048, of 3/4 of it": lambda count: denoised(count, 2048, 0.75),
    "prompts and completions, 2048/1024": lambda count: pairs(count, 2048, 1024),
    "texts with images, 36864/14000/24000": lambda count: texts_with_images(count, 36864, 14000, 24000),
    "documents, a decoder, 2048": lambda count: documents(count, 2048),
    "documents, a decoder, 4096": lambda count: documents(count, 4096),
    "conversations, 4096": lambda count: conversations(count, 4096),
}


def of_rows(pool: Pool, rows: int) -> Packed:
    """Of a rule that takes the pool's pieces as they are."""
    dropped, pieces_of = pool.dropped / pool.whole.sum(), np.bincount(pool.record)
    return Packed(rows, pool.sizes.sum(axis=0), dropped=dropped, cut=(pieces_of > 1).sum() / len(pool.whole))


def next_fit(sizes: np.ndarray, budgets: tuple[int, ...]) -> int:
    rows, room = 0, (-1,) * len(budgets)
    for record in sizes.tolist():
        if any(size > free for size, free in zip(record, room)):
            rows, room = rows + 1, budgets
        room = tuple(free - size for size, free in zip(record, room))
    return rows


def in_pools(pool: Pool) -> int:
    """Of today's packing of streams, whose records take something of every budget; that of images may take nothing."""
    if pool.sizes.min() > 0:
        parts = np.array_split(pool.sizes, -(-len(pool.sizes) // POOL))
        return sum(int(assign_rows(part, pool.budgets).max()) + 1 for part in parts)
    return sum(len(pack(part, pool.budgets)) for part in np.array_split(pool.sizes, -(-len(pool.sizes) // IMAGE_POOL)))


@compiled
def _cropped(lengths, budget, first):
    """Rows, and tokens cropped, of nanochat's rule, after the first so many records have been read."""
    buffer, held, read, rows, cropped = np.empty(BUFFER + REFILL, np.int64), 0, 0, 0, 0
    while True:
        room, lost = budget, 0
        while room:
            while held < BUFFER:
                if read + REFILL > len(lengths):
                    return rows, cropped
                buffer[held : held + REFILL] = lengths[read : read + REFILL]
                held, read = held + REFILL, read + REFILL
            best, shortest = -1, 0
            for place in range(held):
                if buffer[place] <= room and (best < 0 or buffer[place] > buffer[best]):
                    best = place
                if buffer[place] < buffer[shortest]:
                    shortest = place
            taken = best if best >= 0 else shortest
            lost, room = lost + max(0, buffer[taken] - room), room - min(room, buffer[taken])
            buffer[taken : held - 1] = buffer[taken + 1 : held].copy()
            held -= 1
        if read > first:
            rows, cropped = rows + 1, cropped + lost


def nanochat(pool: Pool) -> Packed:
    """See `tokenizing_distributed_data_loader_with_state_bos_bestfit` in nanochat/dataloader.py of karpathy/nanochat.

    A row has one token more than the context. Long documents gather in the buffer until few others are left in it, so that the rule
    runs over 64 times as many records of the pool's lengths, and the second half counts.
    """
    lengths = np.random.default_rng(1).choice(pool.whole, 64 * len(pool.whole))
    rows, cropped = _cropped(lengths, pool.budgets[0] + 1, len(lengths) // 2)
    return Packed(rows, np.array([rows * pool.budgets[0]]), cropped / (rows * (pool.budgets[0] + 1) + cropped))


def trl(pool: Pool, dataset: datasets.Dataset, strategy: str) -> Packed:
    """Of `trl.pack_dataset`, which gets whole records."""
    [budget] = pool.budgets
    rows = pack_dataset(dataset, budget, strategy).with_format("arrow")[:]["input_ids"]
    tokens = int(pc.sum(pc.list_value_length(rows)).as_py())
    ends = np.concatenate([np.cumsum(part) for part in np.split(pool.whole, range(BATCH, len(pool.whole), BATCH))])
    crossing = (ends - pool.whole) // budget < (ends - 1) // budget
    cut = {"bfd": np.zeros(1), "bfd_split": pool.whole > budget, "wrapped": crossing}[strategy].mean()
    return Packed(len(rows), np.array([tokens]), 1 - tokens / pool.whole.sum(), cut=cut)


def rules(pool: Pool) -> dict[str, Callable[[], Packed]]:
    found: dict[str, Callable[[], Packed]] = {
        "best fit": lambda: of_rows(pool, int(best_fit(pool.sizes, pool.budgets).max()) + 1),
        "pools": lambda: of_rows(pool, in_pools(pool)),
        "next fit": lambda: of_rows(pool, next_fit(pool.sizes, pool.budgets)),
    }
    if len(pool.budgets) == 1:
        if importlib.util.find_spec("trl"):
            dataset = datasets.Dataset.from_dict({"input_ids": [np.zeros(length, np.int32) for length in pool.whole]})
            strategies = ("bfd", "bfd_split", "wrapped")
            found |= {f"TRL {strategy}": functools.partial(trl, pool, dataset, strategy) for strategy in strategies}
        found["nanochat"] = lambda: nanochat(pool)
    return found


def measure(count: int, repeats: int) -> list[dict]:
    lines = []
    for setting, draw in track(SETTINGS.items(), "packing"):
        pool = draw(count)
        for name, rule in rules(pool).items():
            packed, seconds = rule(), []
            for _ in range(repeats):
                began = time.process_time()
                rule()
                seconds.append(time.process_time() - began)
            lines.append(
                {
                    "setting": setting,
                    "rule": name,
                    "records": len(pool.sizes),
                    "rows": packed.rows,
                    "fill": (packed.tokens / packed.rows / pool.budgets).tolist(),
                    "cropped": float(packed.cropped),
                    "dropped": float(packed.dropped),
                    "in several rows": float(packed.cut),
                    "ns a record": None if name == "nanochat" else 1e9 * min(seconds) / len(pool.sizes),
                }
            )
    return lines


def report(lines: list[dict]) -> Table:
    table = Table(title="Whole records in rows, %", title_justify="left", box=box.SIMPLE)
    for column in ("", "fill of each budget", "cropped", "dropped", "records in several rows", "ns a record"):
        table.add_column(column, justify="right" if column else "left")
    for setting in dict.fromkeys(line["setting"] for line in lines):
        table.add_section()
        table.add_row(f"[bold]{setting}")
        for line in lines:
            if line["setting"] == setting:
                fill = " / ".join(f"{100 * share:.2f}" for share in line["fill"])
                shares = [f"{100 * line[name]:.1f}" if line[name] else "" for name in ("cropped", "dropped", "in several rows")]
                table.add_row(f"  {line['rule']}", fill, *shares, f"{line['ns a record']:,.0f}" if line["ns a record"] else "")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1 << 14, help="documents, conversations, .. of each setting")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=pathlib.Path, help="a JSON file for all results")
    arguments = parser.parse_args()
    datasets.disable_progress_bars()
    lines = measure(arguments.records, arguments.repeats)
    Console(width=132).print(report(lines))
    if arguments.output:
        arguments.output.write_text(json.dumps(lines, indent=1) + "\n")


if __name__ == "__main__":
    main()
