"""What `UL2DataCollator` costs, beside a notebook's NumPy loop, example by example: `python benchmarks/collator.py`.

Examples are token lists in memory, batches are NumPy arrays padded to a multiple of 8. Both sides draw the denoisers of T5GEMMA2
by weight, make as many spans and noise tokens of each chunk, and the same model inputs of them.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable, Sequence

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from rich.console import Console
from rich.table import Table
from speed.peers import Example, numpy_corrupt

from ul2_tasks import T5GEMMA2, default_vocabulary
from ul2_tasks.pytorch.collator import UL2DataCollator
from ul2_tasks.sources.memory import embedded_documents
from ul2_tasks.vocabulary.special_ids import special_tokens

MULTIPLE = 8


def notebook(seed: int = 0) -> Callable[[Sequence[Sequence[int]]], Example]:
    """Collates as one writes it: a loop over examples, `np.concatenate`, a padded array."""
    random = np.random.default_rng(seed)
    rates = np.array([denoiser.weight for denoiser in T5GEMMA2]) / sum(denoiser.weight for denoiser in T5GEMMA2)
    special = [special_tokens(default_vocabulary(), denoiser.mode) for denoiser in T5GEMMA2]

    def padded(rows: Sequence[np.ndarray], padding: int) -> np.ndarray:
        longest = max(map(len, rows))
        batch = np.full((len(rows), longest + -longest % MULTIPLE), padding, np.int64)
        for row, tokens in zip(batch, rows):
            row[: len(tokens)] = tokens
        return batch

    def collate(batch: Sequence[Sequence[int]]) -> Example:
        chosen = random.choice(len(T5GEMMA2), len(batch), p=rates)
        examples = [
            numpy_corrupt(np.asarray(tokens), T5GEMMA2[index], special[index], random) for tokens, index in zip(batch, chosen)
        ]
        input_ids, labels = padded([each["inputs"] for each in examples], 0), padded([each["targets"] for each in examples], -100)
        mask = labels >= 0
        return {
            "input_ids": input_ids,
            "attention_mask": (input_ids > 0).astype(np.int64),
            "decoder_input_ids": np.pad(np.where(mask, labels, 0)[:, :-1], [(0, 0), (1, 0)]),
            "decoder_attention_mask": mask.astype(np.int64),
            "labels": labels,
        }

    return collate


def microseconds(collate: Callable, batches: Sequence[Sequence], repeats: int) -> tuple[float, float]:
    """Medians of wall and CPU time an example, after one round that is not measured."""
    walls, cpus = [], []
    examples = sum(map(len, batches))
    for _ in range(repeats + 1):
        wall, cpu = time.perf_counter(), time.process_time()
        for batch in batches:
            collate(batch)
        walls.append((time.perf_counter() - wall) / examples * 1e6)
        cpus.append((time.process_time() - cpu) / examples * 1e6)
    return statistics.median(walls[1:]), statistics.median(cpus[1:])


def main(lengths: Sequence[int], batch_size: int, batches: int, repeats: int) -> None:
    text = [id for document in embedded_documents() for id in default_vocabulary().encode(document)]
    random = np.random.default_rng(0)
    table = Table(title=f"microseconds an example, batches of {batch_size}, medians of {repeats} rounds of {batches} batches")
    for column in ("tokens an example", "ours", "ours, CPU", "NumPy", "NumPy, CPU", "NumPy / ours"):
        table.add_column(column, justify="right")
    for length in lengths:
        starts = random.integers(len(text) - length, size=(batches, batch_size))
        examples = [[text[start : start + length] for start in batch] for batch in starts]
        ours = UL2DataCollator(
            "default", {"inputs": length, "targets": length}, pad_to_multiple_of=MULTIPLE, return_tensors="np", chunk_tokens=length
        )
        ours.set_epoch(0)  # so that it does not tell of the repeats
        results = [*microseconds(ours, examples, repeats), *microseconds(notebook(), examples, repeats)]
        table.add_row(f"{length:,}", *(f"{result:,.0f}" for result in results), f"{results[2] / results[0]:.1f}")
    Console().print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", type=lambda text: [int(length) for length in text.split(",")], default=[128, 512, 2048])
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    main(arguments.lengths, arguments.batch_size, arguments.batches, arguments.repeats)
