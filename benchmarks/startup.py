"""How long until the first example, and how much memory: `python benchmarks/startup.py [--repeats 3] [--lengths 512,2048]`.

It needs this package with its extra `t5`. Seconds from the start of a Python interpreter until an import is done (`ul2_tasks`,
and for comparison `seqio` alone), and until the first example and the first 128 of the mixture on the embedded corpus are there,
shuffled; and the peak of resident memory until then. Sides:

* described, named, worker: a cache of the embedded corpus by number, at 512: of a `ul2_tasks.Mixture`; by its name, registered
  with SeqIO; and with its examples unpickled, as in a DataLoader's worker that is spawned;
* ours: `ul2_mix` from text, as a stream;
* t5: the recipe from `t5.data.preprocessors` as five stock tasks of the same documents in a stock mixture.

Each in a new process, one at a time, in turn; medians.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pickle
import tempfile
import time
from collections.abc import Callable, Iterable

from measure import in_new_process, medians, memory, print_table

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

LENGTHS = {"inputs": 512, "targets": 512}
EXAMPLES = {1: "first example", 128: "128 examples"}
SETTINGS = {"split": "train", "shuffle": True, "seed": 0, "num_epochs": None}
Reached = Callable[[str], None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=lambda text: [int(length) for length in text.split(",")], default=[512, 2048])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--child", nargs=4, metavar=("SIDE", "LENGTH", "FOLDER", "STARTED"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(*arguments.child)
        return
    of_length = {"ours": arguments.lengths, "t5": arguments.lengths}
    jobs = [(side, length) for side in arguments.sides for length in of_length.get(side, [512])]
    with tempfile.TemporaryDirectory() as folder:
        in_new_process(__file__, "cache", 512, folder, 0)
        rounds = [{job: in_new_process(__file__, *job, folder, time.time()) for job in jobs} for _ in range(arguments.repeats)]
    rows = []
    for job in jobs:
        found = medians([one[job] for one in rounds])
        stages = [(found.get(stage), found.get(f"{stage}, MB")) for stage in ("import", *EXAMPLES.values())]
        rows.append([f"{job[0]}, {job[1]}", *(f"{seconds:.1f} s, {peak:,.0f} MB" if seconds else "" for seconds, peak in stages)])
    print_table("Seconds since the start of Python, and peak MB until then", ["", "import", *EXAMPLES.values()], rows)


def child(side: str, length: str, folder: str, started: str) -> None:
    found: dict[str, float] = {}

    def reached(stage: str) -> None:
        found.update({stage: time.time() - float(started), f"{stage}, MB": memory("VmHWM")})

    for count, _ in enumerate({**SIDES, "cache": write_cache}[side](int(length), folder, reached), 1):
        if count in EXAMPLES:
            reached(EXAMPLES[count])
        if count == max(EXAMPLES):
            break
    print(json.dumps(found))


def write_cache(length: int, folder: str, reached: Reached) -> Iterable:
    import ul2_tasks

    ul2_tasks.Mixture().cache(folder)
    examples = ul2_tasks.examples(ul2_tasks.Mixture(), LENGTHS, cache_dirs=[folder])
    with open(f"{folder}/examples.pickle", "wb") as file:
        pickle.dump(examples, file)
    return []


def seqio(length: int, folder: str, reached: Reached) -> Iterable:
    importlib.import_module("seqio")

    reached("import")
    return []


def described(length: int, folder: str, reached: Reached) -> Iterable:
    import ul2_tasks

    reached("import")
    return ul2_tasks.examples(ul2_tasks.Mixture(), LENGTHS, cache_dirs=[folder])


def named(length: int, folder: str, reached: Reached) -> Iterable:
    import ul2_tasks

    reached("import")
    import seqio

    seqio.add_global_cache_dirs([folder])
    return ul2_tasks.examples("ul2_mix", LENGTHS)


def worker(length: int, folder: str, reached: Reached) -> Iterable:
    reached("import")
    with open(f"{folder}/examples.pickle", "rb") as file:
        return pickle.load(file)


def ours(length: int, folder: str, reached: Reached) -> Iterable:
    import ul2_tasks

    reached("import")
    import seqio

    mixture = seqio.get_mixture_or_task(ul2_tasks.register())
    return mixture.get_dataset({"inputs": length, "targets": length}, **SETTINGS).as_numpy_iterator()


def t5(length: int, folder: str, reached: Reached) -> Iterable:
    import seqio
    from recipe import add_t5_of_text

    from ul2_tasks import T5GEMMA2

    reached("import")
    name = add_t5_of_text("t5", T5GEMMA2)
    return seqio.get_mixture_or_task(name).get_dataset({"inputs": length, "targets": length}, **SETTINGS).as_numpy_iterator()


SIDES: dict[str, Callable[[int, str, Reached], Iterable]] = {
    each.__name__: each for each in (seqio, described, named, worker, ours, t5)
}

if __name__ == "__main__":
    main()
