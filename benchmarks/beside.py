"""What examples cost beside another version: `python benchmarks/beside.py TREE [--lengths 512,2048] [--repeats 5]`.

TREE is a checkout of another version of this package, such as the tag of a release. Both read the same made-up documents, of 300
words on average, from a cache of their own. In each round each version has a process of its own, and they take turns at going
first. A process reads two epochs uncounted, and then so many whole ones, of which it counts the CPU time of all threads:

    examples   `ul2_tasks.examples(..)`, 256 at a time
    packed     the same, packed sequences
    batches    `seqio.get_dataset(.., EncDecFeatureConverter(pack=False))` from the cache, in batches of 128
    rows       the same, packed

Printed are microseconds of CPU for an example or a row, this version's and the other's, medians over rounds, and the median of the
rounds' ratios with the least and the most. Below 1 this version is faster.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

OURS = pathlib.Path(__file__).resolve().parent.parent
DOCUMENTS, WORDS, AT_A_TIME, BATCH = 4000, 300, 256, 128
CASES = ("examples", "packed", "batches", "rows")


def write_documents(path: pathlib.Path, documents: int = DOCUMENTS) -> None:
    words = [f"{start}{end}" for start in ("ba", "do", "fi", "gu", "le", "ne") for end in ("lor", "mit", "nas", "pel", "tum")]
    with path.open("w") as file:
        for number in range(documents):
            chosen = (words[(number * 31 + place * place * 7) % len(words)] for place in range(WORDS // 2 + number % WORDS))
            file.write(json.dumps({"text": " ".join(chosen)}) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=pathlib.Path)
    parser.add_argument("--lengths", default="512,2048,8192")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--worker", type=pathlib.Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    lengths = [int(length) for length in arguments.lengths.split(",")]
    if arguments.worker:
        print(json.dumps(dict(measured(arguments.worker, lengths, arguments.epochs))))
        return
    with tempfile.TemporaryDirectory() as folder:
        trees = {"this": OURS, "other": arguments.tree.resolve()}
        write_documents(pathlib.Path(folder) / "documents.jsonl")
        rounds = []
        for round_ in range(arguments.repeats):
            found = {}
            for name, tree in sorted(trees.items(), reverse=bool(round_ % 2)):
                own = pathlib.Path(folder) / name
                command = [sys.executable, __file__, str(tree), "--worker", str(own)]
                command += ["--lengths", arguments.lengths, "--epochs", str(arguments.epochs)]
                environment = {**os.environ, "PYTHONPATH": str(tree), "TF_CPP_MIN_LOG_LEVEL": "3"}
                done = subprocess.run(command, env=environment, cwd=tree, stdout=subprocess.PIPE, text=True, check=True)
                found[name] = json.loads(done.stdout.splitlines()[-1])
            rounds.append(found)
    print(f"{'case':10} {'length':>7} {'this, µs':>10} {'other, µs':>10} {'ratio':>7}")
    for length, case in itertools.product(lengths, CASES):
        key = f"{case} {length}"
        this, other = ([each[name][key] for each in rounds] for name in trees)
        ratios = [one / two for one, two in zip(this, other)]
        medians = (f"{statistics.median(values):10.1f}" for values in (this, other))
        spread = f"{statistics.median(ratios):7.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        print(f"{case:10} {length:7}", *medians, spread)


def measured(folder: pathlib.Path, lengths: list[int], epochs: int) -> Iterator[tuple[str, float]]:
    """The microseconds of each case, in the process of one version."""
    import seqio

    import ul2_tasks

    vocabulary = ul2_tasks.open_vocabulary("default", sentinels=1024)
    mixture = ul2_tasks.Mixture("beside", str(folder.parent / "documents.jsonl"), vocabulary)
    if not folder.exists():
        mixture.cache(str(folder))
    ul2_tasks.register("beside", str(folder.parent / "documents.jsonl"), vocabulary)
    seqio.add_global_cache_dirs([str(folder)])
    for length in lengths:
        budgets = {"inputs": length, "targets": length}
        for case in CASES:
            packs = case in ("packed", "rows")
            if case in ("examples", "packed"):
                read = functools.partial(_slices, ul2_tasks.examples(mixture, budgets, pack=packs, cache_dirs=[str(folder)]))
            else:
                converter = ul2_tasks.EncDecFeatureConverter(pack=packs)
                dataset = seqio.get_dataset("beside_mix", budgets, converter, use_cached=True, num_epochs=1, seed=0)
                read = functools.partial(_batches, dataset.batch(BATCH))
            read(), read()
            began = time.process_time()
            made = sum(read() for _ in range(epochs))
            yield f"{case} {length}", (time.process_time() - began) / made * 1e6


def _slices(examples) -> int:
    """Reads all examples, and says how many there are."""
    return sum(len(examples[first : first + AT_A_TIME]) for first in range(0, len(examples), AT_A_TIME))


def _batches(dataset) -> int:
    return sum(len(batch["encoder_input_tokens"]) for batch in dataset.as_numpy_iterator())


if __name__ == "__main__":
    main()
