"""What an example costs: CPU time of `ul2_tasks.preprocessors` and of the same recipe from `t5.data.preprocessors`, in one run.

    python benchmarks/cost.py [--lengths 512,2048,8192] [--tokens 2000000] [--repeats 5] [--output cost.json]

It needs this package with its extra `t5`. For each length (the budget of inputs and of targets alike) and each of the five
denoisers of `T5GEMMA2`, both sides make examples of the same documents, tokens in memory:

* ours: `chunk` and `corrupt`, called as a SeqIO task calls them.
* t5: `select_random_chunk`, `reduce_concat_tokens`, `split_tokens`, `denoise` with `random_spans_noise_mask` and unique
  sentinels, as its own `span_corruption` combines them, then a map that prepends the mode, then SeqIO's `append_eos`. It
  splits at our chunk's length, so that the examples are equally long; S is its mask with one span.

Both run under one seed, with the parallelism that each has by default and the same tf.data options, and end in padded
batches, so that Python's price for an element is not what is measured. The clock starts after the graph is built and its
iterator made, and stops at the end of the data. Time is CPU time, of all threads; the table has medians over repeats
that alternate between the two sides.

Not in it: reading, tokenizing, trimming, shuffling, mixing and feature conversion. The documents come from a tf.data cache
in memory, which costs little; it is measured alone, and no figure has it subtracted.

Equal work is checked before it is timed: both sides give out every token of the source, and all full chunks have the
solved lengths. t5 joins 128 documents at a time and so ends each such batch with a shorter example; we join all, and
have one at the end. Cost per example is therefore time / (source tokens / chunk tokens) on both sides. t5 also cuts
documents above 65,536 tokens and drops the rest; there are none here.
"""

from __future__ import annotations

import argparse
import functools
import importlib.metadata
import json
import os
import pathlib
import platform
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
import seqio
import t5.data.preprocessors as t5
import tensorflow as tf
from rich.console import Console
from rich.progress import track
from rich.table import Table

from ul2_tasks import T5GEMMA2, chunk_length
from ul2_tasks.denoisers import Denoiser
from ul2_tasks.lengths import Chunk
from ul2_tasks.preprocessors import chunk, corrupt

SEED = 0
MEAN_DOCUMENT = 800
MAX_DOCUMENT = 65536
T5_DOCUMENTS_PER_BATCH = 128
EXAMPLES_PER_BATCH = 128
MODES = {"[R]": 259, "[S]": 260, "[X]": 261}  # the first ids after ByT5's text, which has 3 to 258


def main() -> None:
    arguments = parse_arguments()
    documents = draw_documents(arguments.tokens)
    source = in_memory(documents)
    source_runs = timed_repeats({"source": batched(source)}, arguments.repeats)["source"]
    jobs = [(length, denoiser) for length in arguments.lengths for denoiser in T5GEMMA2]
    console = Console()
    rows = [
        measure(source, documents, length, denoiser, arguments.repeats)
        # Refreshed between jobs only: a display with a thread of its own would be in the CPU time.
        for length, denoiser in track(jobs, "measuring", console=console, auto_refresh=False, transient=True)
    ]
    totals = [together([row for row in rows if row["length"] == length]) for length in arguments.lengths]
    report(console, rows, totals)
    tokens = sum(map(len, documents))
    source_ns = statistics.median(run["cpu"] for run in source_runs) / tokens * 1e9
    console.print(f"{len(documents):,} documents, {tokens:,} tokens; source alone {source_ns:.1f} ns/token", soft_wrap=True)
    costs = [total["ours_ns_per_token"] for total in totals]
    flat = max(costs) / min(costs)
    by_length = ", ".join(f"{cost:.1f} at {total['length']}" for cost, total in zip(costs, totals))
    console.print(f"ours, five together, ns/token: {by_length}; flat within {flat:.2f} times", soft_wrap=True)
    if arguments.output:
        result = {
            "machine": machine(),
            "repeats": arguments.repeats,
            "documents": len(documents),
            "tokens": tokens,
            "source": {"ns_per_token": source_ns, "runs": source_runs},
            "denoisers": rows,
            "together": totals,
            "flat_within": flat,
        }
        arguments.output.write_text(json.dumps(result, indent=2) + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", type=lambda text: [int(length) for length in text.split(",")], default=[512, 2048, 8192])
    parser.add_argument("--tokens", type=int, default=2_000_000, help="about how many tokens the documents have together")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=pathlib.Path, help="a JSON file for all results")
    return parser.parse_args()


def draw_documents(tokens: int) -> list[np.ndarray]:
    """Random bytes as ByT5's ids, in documents of lognormal lengths."""
    random = np.random.default_rng(SEED)
    lengths = random.lognormal(np.log(MEAN_DOCUMENT) - 1 / 2, 1, size=max(1, tokens // MEAN_DOCUMENT))
    lengths = np.clip(lengths, 1, MAX_DOCUMENT).astype(int)
    return [random.integers(3, 259, size=length, dtype=np.int32) for length in lengths]


def in_memory(documents: Sequence[np.ndarray]) -> tf.data.Dataset:
    ragged = tf.RaggedTensor.from_row_lengths(np.concatenate(documents), [len(document) for document in documents])
    # The cache is not for speed of reading but against the map: a function call per document would cost as much as we do.
    return tf.data.Dataset.from_tensor_slices(ragged).map(lambda tokens: {"targets": tokens}).cache()


def ours(
    dataset: tf.data.Dataset, sequence_length: Mapping[str, int], features: Mapping[str, seqio.Feature], denoiser: Denoiser
) -> tf.data.Dataset:
    for preprocessor in (chunk, corrupt):
        dataset = preprocessor(dataset, sequence_length, features, denoiser=denoiser, modes=MODES)
    return dataset


def peer(dataset: tf.data.Dataset, features: Mapping[str, seqio.Feature], denoiser: Denoiser, full: Chunk) -> tf.data.Dataset:
    # A mean span of the whole chunk is the one span that S has.
    mean_span_length = getattr(denoiser, "mean_span_length", full.length)
    dataset = t5.select_random_chunk(dataset, features, max_length=MAX_DOCUMENT)
    dataset = t5.reduce_concat_tokens(dataset, batch_size=T5_DOCUMENTS_PER_BATCH)
    dataset = t5.split_tokens(dataset, min_tokens_per_segment=None, max_tokens_per_segment=full.length)
    dataset = t5.denoise(
        dataset,
        features,
        noise_density=denoiser.noise_density,
        noise_mask_fn=functools.partial(t5.random_spans_noise_mask, mean_noise_span_length=mean_span_length),
        inputs_fn=t5.noise_span_to_unique_sentinel,
        targets_fn=t5.nonnoise_span_to_unique_sentinel,
    )
    mode = [MODES[denoiser.mode]]
    dataset = dataset.map(
        lambda example: {**example, "inputs": tf.concat([mode, example["inputs"]], axis=0)},
        num_parallel_calls=tf.data.AUTOTUNE,
    )
    return seqio.preprocessors.append_eos(dataset, features)


def batched(dataset: tf.data.Dataset) -> tf.data.Dataset:
    options = tf.data.Options()
    options.threading.private_threadpool_size = os.cpu_count()
    return dataset.padded_batch(EXAMPLES_PER_BATCH).with_options(options)


def measure(
    source: tf.data.Dataset, documents: Sequence[np.ndarray], length: int, denoiser: Denoiser, repeats: int
) -> dict[str, Any]:
    """One row of the table, and all that it comes from."""
    sequence_length = {"inputs": length, "targets": length}
    full = chunk_length(denoiser, sequence_length)
    most_spans = max(chunk_length(each, sequence_length).spans for each in T5GEMMA2)
    vocabulary = seqio.ByteVocabulary(extra_ids=len(MODES) + most_spans)
    features = {key: seqio.Feature(vocabulary) for key in ("inputs", "targets")}
    with seqio.utils.map_seed_manager(SEED):
        our_examples = ours(source, sequence_length, features, denoiser)
    with seqio.utils.map_seed_manager(SEED):
        t5_examples = peer(source, features, denoiser, full)
    sides = {"t5": batched(t5_examples), "ours": batched(our_examples)}
    tokens = sum(map(len, documents))
    most_short = {"t5": -(-len(documents) // T5_DOCUMENTS_PER_BATCH), "ours": 1}
    examples = {side: check(batches, full, tokens, most_short[side]) for side, batches in sides.items()}
    runs = timed_repeats(sides, repeats)
    cpu = {side: statistics.median(run["cpu"] for run in runs[side]) for side in sides}
    wall = {side: statistics.median(run["wall"] for run in runs[side]) for side in sides}
    full_chunks = tokens / full.length
    return {
        "length": length,
        "denoiser": denoiser.name,
        "chunk": full.length,
        "t5_us": cpu["t5"] / full_chunks * 1e6,
        "ours_us": cpu["ours"] / full_chunks * 1e6,
        "ratio": cpu["t5"] / cpu["ours"],
        "ours_ns_per_token": cpu["ours"] / tokens * 1e9,
        "t5_wall_us": wall["t5"] / full_chunks * 1e6,
        "ours_wall_us": wall["ours"] / full_chunks * 1e6,
        "examples": examples,
        "runs": runs,
    }


def check(batches: tf.data.Dataset, full: Chunk, tokens: int, most_short: int) -> dict[str, int]:
    """Asserts that a side does the whole work, and counts its examples."""
    text, lengths = [], []
    for batch in batches.as_numpy_iterator():
        values = [batch["inputs"], batch["targets"]]
        text.append(sum(np.count_nonzero((ids >= 3) & (ids < 259), axis=1) for ids in values))
        lengths.append(np.stack([np.count_nonzero(ids, axis=1) for ids in values], axis=1))
    text, lengths = np.concatenate(text), np.concatenate(lengths)
    is_full = text == full.length
    assert text.sum() == tokens, f"{text.sum()} tokens came out, expected {tokens}"
    assert (text <= full.length).all(), f"a chunk has {text.max()} tokens, expected at most {full.length}"
    assert (lengths[is_full] == (full.inputs, full.targets)).all(), f"full chunks with other lengths than {full}"
    assert (~is_full).sum() <= most_short, f"{(~is_full).sum()} chunks are shorter than {full.length}, expected {most_short}"
    return {"full": int(is_full.sum()), "short": int((~is_full).sum())}


def timed_repeats(sides: Mapping[str, tf.data.Dataset], repeats: int) -> dict[str, list[dict[str, float]]]:
    """Seconds of each repeat of each side, the sides in turn; a first, uncounted round warms up."""
    rounds = [{side: timed(batches) for side, batches in sides.items()} for _ in range(1 + repeats)]
    return {side: [each[side] for each in rounds[1:]] for side in sides}


def timed(batches: tf.data.Dataset) -> dict[str, float]:
    iterator = iter(batches)
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in iterator:
        pass
    return {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}


def together(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One example of each denoiser."""
    total = {key: sum(row[key] for row in rows) for key in ("chunk", "t5_us", "ours_us", "t5_wall_us", "ours_wall_us")}
    return {
        "length": rows[0]["length"],
        **total,
        "ratio": total["t5_us"] / total["ours_us"],
        "ours_ns_per_token": total["ours_us"] / total["chunk"] * 1e3,
    }


def report(console: Console, rows: Sequence[Mapping[str, Any]], totals: Sequence[Mapping[str, Any]]) -> None:
    table = Table(title="CPU time per example, medians; chunk in tokens, ratio t5 / ours", title_justify="left")
    for column in ("length", "denoiser", "chunk", "t5 µs", "ours µs", "ratio", "ours ns/token"):
        table.add_column(column, justify="left" if column == "denoiser" else "right")
    for total in totals:
        of_length = [row for row in rows if row["length"] == total["length"]]
        for row in [*of_length, {**total, "denoiser": "five together"}]:
            figures = [f"{row['t5_us']:,.1f}", f"{row['ours_us']:,.1f}", f"{row['ratio']:.1f}", f"{row['ours_ns_per_token']:.1f}"]
            table.add_row(str(row["length"]), row["denoiser"], f"{row['chunk']:,}", *figures)
        table.add_section()
    console.print(table)


def machine() -> dict[str, Any]:
    versions = {package: importlib.metadata.version(package) for package in ("tensorflow", "seqio", "t5")}
    return {"platform": platform.platform(), "cpus": os.cpu_count(), "python": platform.python_version(), **versions}


if __name__ == "__main__":
    main()
