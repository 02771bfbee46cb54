"""What windows cost beside an index, and documents apart beside joined: `python benchmarks/windows.py [--repeats 5]`.

Made-up documents of 300 words on average, as bytes and more than a window holds, are read as padded batches of 128 through
`seqio.get_dataset`. Printed is the CPU time of all threads, medians over rounds, for an example and for a token of text. It is
what epochs take after the first one, so that a dataset's start counts on no side:

    index            from the cache, joined
    index, apart     from the cache, with `merge_examples=False`
    windows          from the text, less what tokenizing it alone takes in the same round
    tokenizing       the text to ids, and nothing else
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import pathlib
import tempfile
import time
from collections.abc import Iterator

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
from measure import medians, print_table

from ul2_tasks.random_access.windows import WINDOW_TOKENS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--documents", type=int, default=4_000)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rounds = [*measured(pathlib.Path(folder), arguments.documents, arguments.length, arguments.repeats)]
    found = medians(rounds)
    rows = []
    for side, of in itertools.product(SIDES, ("example", "token")):
        ratios = sorted(each[f"{side}, {of}"] / each[f"index, {of}"] for each in rounds)
        numbers = found[f"{side}, {of}"], ratios[len(ratios) // 2], ratios[0], ratios[-1]
        rows.append([f"{side}, {of}", *(f"{number:.2f}" for number in numbers)])
    print_table(f"CPU at {arguments.length}", ["", "µs an example, ns a token", "to the index", "least", "most"], rows)


BATCH, WORDS = 128, 300
SIDES = ("index", "index, apart", "windows", "tokenizing")
EPOCHS = 4  # that are counted


def write_documents(path: pathlib.Path, documents: int) -> None:
    random, words = np.random.default_rng(0), ["balor", "domit", "finas", "gupel", "letum"]
    texts = (" ".join(random.choice(words, WORDS // 2 + number % WORDS)) for number in range(documents))
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))


def measured(folder: pathlib.Path, documents: int, length: int, repeats: int) -> Iterator[dict[str, float]]:
    """Of each round the CPU time of an example in microseconds and of a token in nanoseconds, by side."""
    import seqio

    import ul2_tasks
    from ul2_tasks.corpus.token_batches import document_shards

    path = folder / "documents.jsonl"
    write_documents(path, documents)
    mixture = ul2_tasks.Mixture("joined", str(path), ul2_tasks.open_vocabulary("bytes", sentinels=1024))
    tokens = mixture.cache(str(folder))["totals"]["tokens"]
    if tokens <= WINDOW_TOKENS:
        raise SystemExit(f"--documents must be more, got {documents:,}: they fit into a window of {WINDOW_TOKENS:,} tokens.")
    seqio.add_global_cache_dirs([str(folder)])
    ul2_tasks.register("joined", str(path), mixture.vocabulary)
    ul2_tasks.register("apart", mixture, merge_examples=False)

    def read(name: str, use_cached: bool, epochs: int) -> tuple[float, int]:
        began = time.process_time()
        converter, budgets = ul2_tasks.EncDecFeatureConverter(pack=False), dict.fromkeys(("inputs", "targets"), length)
        dataset = seqio.get_dataset(name, budgets, converter, use_cached=use_cached, num_epochs=epochs, seed=0)
        made = sum(len(batch["encoder_input_tokens"]) for batch in dataset.batch(BATCH).as_numpy_iterator())
        return time.process_time() - began, made

    def tokenize() -> tuple[float, int]:
        began, shards = time.process_time(), document_shards(mixture.corpus(), "train", False, 1)
        made = sum(len(each.lengths) for shard in range(shards.shards) for each, _ in shards.read(shard, 0, False))
        return time.process_time() - began, made

    for number in range(repeats + 1):  # in the first all is compiled
        cpu, made = dict[str, float](), dict[str, float]()
        cpu["tokenizing"], made["tokenizing"] = tokenize()
        for side, name, is_cached in zip(SIDES, ("joined_mix", "apart_mix", "joined_mix"), (True, True, False)):
            once, more = read(name, is_cached, 1), read(name, is_cached, 1 + EPOCHS)
            cpu[side], made[side] = ((after - first) / EPOCHS for first, after in zip(once, more))
        cpu["windows"] -= cpu["tokenizing"]
        if number:
            yield {
                f"{side}, {of}": cpu[side] / count * scale
                for side in SIDES
                for of, count, scale in (("example", made[side], 1e6), ("token", tokens, 1e9))
            }


if __name__ == "__main__":
    main()
