"""Does the mixture matter? Trains the same model on the same text with several objectives, and compares them.

    python benchmarks/study --output results.jsonl [--size small] [--seeds 3] [--device cpu] [--corpus 'texts/*.jsonl']

It needs this package with its extra `torch`. Each objective and seed is a run. Its results are written when it ends; what is in
the file already is not trained again, so that a study can be stopped and go on. The vocabulary lies beside it, results.model.

The same text: the corpus is cut into chunks of one length. In step n of a seed all objectives have the same chunks, corrupted
by a denoiser that is drawn for each chunk. What differs with the objective is how many tokens the model reads and writes of
it. `text`, `inputs`, `targets` and `flops` say so.

Sizes are `smoke` (of tests), `small` (of one CPU core) and `base` (of a GPU, and of a corpus of 0.7 billion tokens, which
`--corpus` has to name). `python benchmarks/study/plot.py results.jsonl study.svg` draws the results.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
import torch
from corpus import chunks, of_frequencies, open_corpus, trained_vocabulary
from evaluation import evaluate
from objectives import OBJECTIVES
from summary import read_results, tables
from training import SIZES, train


def main() -> None:
    arguments = parse_arguments()
    tf.config.set_visible_devices([], "GPU")  # they are PyTorch's
    if arguments.device == "cpu":
        torch.set_num_threads(1)
    size = SIZES[arguments.size]
    settings = dataclasses.asdict(size) | {"corpus": arguments.corpus or "Python's standard library"}
    results = read_results(arguments.output) if arguments.output.exists() else []
    if others := [result["settings"] for result in results if result["settings"] != settings]:
        raise SystemExit(f"{arguments.output} has results of {others[0]}, not of {settings}; name another file")
    source = open_corpus(arguments.corpus, arguments.documents)
    vocabulary = trained_vocabulary(arguments.output.with_suffix(".model"), source, size.vocabulary, size.sentinels)
    text = chunks(source, "train", vocabulary, size.chunk, most=size.batch * size.steps)
    held_out = chunks(source, "validation", vocabulary, size.chunk, most=size.held_out)
    print(f"{text.size:,} tokens to train on, {held_out.size:,} held out", flush=True)
    print("frequencies of tokens alone: loss {:.2f}, right {:.1%}".format(*of_frequencies(text, held_out, vocabulary.vocab_size)))
    done = {(result["objective"], result["seed"]) for result in results}
    for seed in range(arguments.seeds):
        for name, objective in OBJECTIVES.items():
            if (name, seed) in done:
                continue
            began = time.perf_counter()
            model, seen = train(objective, size, text, vocabulary, seed, torch.device(arguments.device))
            result = {"objective": name, "seed": seed, "settings": settings, **dataclasses.asdict(seen)}
            result |= evaluate(model, objective, size, held_out, vocabulary)
            with arguments.output.open("a") as file:
                file.write(json.dumps(result) + "\n")
            print(f"{name}, seed {seed}: {time.perf_counter() - began:.0f} s", flush=True)
    print(tables(read_results(arguments.output)))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=pathlib.Path, required=True, help="a file of JSON Lines")
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="cpu", help="as PyTorch names it")
    parser.add_argument("--corpus", help="files, or another source of open_source; by default Python's standard library")
    parser.add_argument("--documents", help="what a document of text files is: line, file or paragraph")
    return parser.parse_args()


if __name__ == "__main__":
    main()
