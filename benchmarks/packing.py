"""How full packed rows are: the share of real tokens in inputs and in targets, side by side.

    python benchmarks/packing.py [--budgets 512/512,1024/1024,2048/512,16384/16384] [--examples 4096] [--output packing.json]

It needs this package with its extra `benchmarks`. The mixture is that of `T5GEMMA2`, 1:1:1:1:4, and the examples are those that
`get_dataset` gives, of the embedded corpus. Sides:

* t5, SeqIO's packing: the recipe from `t5.data.preprocessors` in a stock mixture, full chunks, `seqio.EncDecFeatureConverter`;
* full chunks: ours, by `ul2_tasks.EncDecFeatureConverter`;
* advised chunks: the same with the `chunk_tokens` of `best_chunk_tokens`, whose average is told;
* advised chunks, SeqIO's packing;
* random access, of full-length and of recommended chunks: the rows of an index (`order.rows`).

`bound` is what rows of the advised chunks could hold if examples could be divided at will (`advice.expected_fill`). Only whole
pools are counted of ours, as of SeqIO's: so many examples that the last row of a pool does not matter.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
from collections.abc import Mapping

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
import seqio
import tensorflow as tf
from measure import print_table
from recipe import add_t5_of_text, seqio_vocabulary
from rich.progress import track

from ul2_tasks import T5GEMMA2, EncDecFeatureConverter, best_chunk_tokens, chunk_length, register
from ul2_tasks.mixtures.advice import expected_fill
from ul2_tasks.order.cycles import nearest_cycle
from ul2_tasks.order.pack import best_fit

VOCABULARY, SENTINEL_IDS = seqio_vocabulary()
TOKENS = {"inputs": "encoder_input_tokens", "targets": "decoder_target_tokens"}
CONVERTERS = {"ours": EncDecFeatureConverter, "seqio": seqio.EncDecFeatureConverter}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budgets", type=budgets, default=budgets("512/512,1024/1024,2048/512,16384/16384"))
    parser.add_argument("--examples", type=int, default=4096, help="at 512/512; fewer at larger budgets, but at least 512")
    parser.add_argument("--output", type=pathlib.Path, help="a JSON file for all results")
    arguments = parser.parse_args()
    add_t5_of_text("t5", T5GEMMA2)
    rows = [row for budgets in track(arguments.budgets, "packing") for row in measure(budgets, arguments.examples)]
    report(rows)
    if arguments.output:
        arguments.output.write_text(json.dumps(rows, indent=1) + "\n")


def budgets(text: str) -> list[dict[str, int]]:
    return [dict(zip(TOKENS, map(int, pair.split("/")))) for pair in text.split(",")]


def measure(lengths: Mapping[str, int], examples: int) -> list[dict]:
    examples = max(512, examples * 1024 // sum(lengths.values()))
    name, advice = "/".join(map(str, lengths.values())), best_chunk_tokens(T5GEMMA2, lengths)
    given = {"vocabulary": VOCABULARY, "sentinels": SENTINEL_IDS}
    of_task = name.replace("/", "_")
    ours = {
        chunks: register(f"pack_{chunks}_{of_task}", "embedded", chunk_tokens=caps, **given)
        for chunks, caps in (("full", None), ("advised", advice))
    }
    sides = {
        "full chunks, by number": (None, "", None),
        "advised chunks, by number": (None, "", advice),
        "t5, SeqIO's packing": ("t5_mix", "seqio", None),
        "full chunks": (ours["full"], "ours", None),
        "advised chunks, SeqIO's packing": (ours["advised"], "seqio", advice),
        "advised chunks": (ours["advised"], "ours", advice),
    }
    return [
        {
            **{"budgets": name, "side": side, "examples": examples, "chunk_tokens": caps, "mean_chunk": mean_chunk(lengths, caps)},
            "fill": fill(mixture, lengths, CONVERTERS[converter], examples) if mixture else row_fill(lengths, caps),
            "bound": expected_fill(T5GEMMA2, lengths, caps),
        }
        for side, (mixture, converter, caps) in sides.items()
    ]


def fill(mixture: str, lengths: Mapping[str, int], converter: type[seqio.FeatureConverter], examples: int) -> dict[str, float]:
    drawn = seqio.get_mixture_or_task(mixture).get_dataset(lengths, split="train", seed=0, num_epochs=None).take(examples)
    rows, real = 0, dict.fromkeys(TOKENS, 0)
    for batch in converter(pack=True)(drawn, lengths).batch(32):
        rows += int(batch[TOKENS["inputs"]].shape[0])
        for key, feature in TOKENS.items():
            real[key] += int(tf.math.count_nonzero(batch[feature]))
    return {key: real[key] / (rows * lengths[key]) for key in TOKENS}


def row_fill(lengths: Mapping[str, int], caps: Mapping[str, int] | None) -> dict[str, float]:
    chunks = [chunk_length(denoiser, lengths, chunk_tokens=caps[denoiser.name] if caps else None) for denoiser in T5GEMMA2]
    sizes = np.array([(chunk.inputs, chunk.targets) for chunk in chunks])
    counts = np.array(nearest_cycle([denoiser.weight for denoiser in T5GEMMA2]).counts) * (1 << 11)
    rows = best_fit(np.repeat(sizes, counts, axis=0), tuple(lengths.values())).max() + 1
    return {key: tokens / (rows * lengths[key]) for key, tokens in zip(lengths, (counts @ sizes).tolist())}


def mean_chunk(lengths: Mapping[str, int], caps: Mapping[str, int] | None) -> float:
    chunks = [chunk_length(d, lengths, chunk_tokens=caps[d.name] if caps else None).length * d.weight for d in T5GEMMA2]
    return sum(chunks) / sum(denoiser.weight for denoiser in T5GEMMA2)


def report(rows: list[dict]) -> None:
    columns = ("budgets and side", "mean chunk", "inputs", "targets", "bound", "chunk_tokens")
    of_each = []
    for row in rows:
        bound = " ".join(f"{share:.1%}" for share in row["bound"].values())
        caps = " ".join(f"{name} {tokens}" for name, tokens in (row["chunk_tokens"] or {}).items())
        figures = [f"{row['mean_chunk']:,.0f}", *(f"{share:.1%}" for share in row["fill"].values())]
        of_each.append([f"{row['budgets']} {row['side']}", *figures, bound, caps])
    print_table("Real tokens in packed rows, %: inputs and targets", columns, of_each)


if __name__ == "__main__":
    main()
