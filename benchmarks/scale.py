"""A corpus of 10^12 tokens, opened on one machine: `python benchmarks/scale.py [--pairs 16384] [--documents N] [--tokens N]`.

It makes a cache as `ul2 cache` writes it, and removes it at the end. All pairs have one content: each `.bin` and `.idx` is a hard
link to the first, so that a terabyte takes the disk of one pair. What reads it cannot tell, and does what it would do with files
of their own; only the page cache can hold more of it.

In a new process each, over the large cache and over one pair of it: seconds until

* the cache is checked and open (`ul2_tasks.examples`), after imports;
* the first 128 examples of one host of 1,024 are there, then 128 more;
* `seqio.get_dataset` gives its first batch of 128 packed rows, and a run that goes on after 10^6 steps of 2,048 has its first;
* `where` says where an example is from, and `when` finds those of a document;

and the memory that the process then has, in all, and without the pages of files.

`python benchmarks/scale.py --schedule` measures three corpora in blocks instead, of these tokens together: by one ratio, and by
a schedule of 20 stages that change it each 100,000 steps.

`python benchmarks/scale.py --corpora 5 50 500` measures mixtures of so many small corpora, each with a cache of its own: seconds
until the mixture is open, and until its first 128 examples are there.

`python benchmarks/scale.py --reading` measures blocks of 512 chunks at random places of 16 pairs instead: warm; with the page cache
dropped before each block; from `memory://`; and from a file system of fsspec that answers each request after 20 ms.
`benchmarks/cold.py` measures what of that is left in a pipeline.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
from rich.console import Console
from rich.table import Table

LENGTHS = {"inputs": 512, "targets": 512}
CORPORA = ("scale_a", "scale_b", "scale_c")
HOSTS, ROWS, STEP, BATCH = 1024, 128, 10**6, 2048


def main() -> None:
    arguments = parse_arguments()
    if arguments.child:
        measures = {"stages": measure_schedule, "corpora": measure_corpora}.get(arguments.what, measure)
        print(json.dumps(measures(arguments.child, *filter(None, [arguments.number]))))
        return
    if arguments.reading:
        reading(arguments.folder)
        return
    folder = pathlib.Path(tempfile.mkdtemp(prefix="scale-", dir=arguments.folder))
    size = f"{arguments.tokens:.0e} tokens, {arguments.documents:.0e} documents, {arguments.pairs:,} pairs"
    try:
        of_pair = (arguments.documents // arguments.pairs, arguments.tokens // arguments.pairs)
        if arguments.schedule:
            pairs = arguments.pairs // len(CORPORA)
            for name in CORPORA:
                make(folder, pairs, *of_pair, name)
            found = {f"{stages} stages": in_new_process(folder, "stages", stages) for stages in (1, 20)}
            report(found, size)
            return
        if arguments.corpora:
            for number in range(max(arguments.corpora)):
                make(folder, 1, 100, 100_000, f"scale{number:03d}")
            report({f"{number} corpora": in_new_process(folder, "corpora", number) for number in arguments.corpora})
            return
        found = {}
        for name, pairs in (("one pair", 1), ("large", arguments.pairs)):
            make(folder / name, pairs, *of_pair)
            found[name] = in_new_process(folder / name)
        report(found, size)
    finally:
        shutil.rmtree(folder)


def in_new_process(folder: pathlib.Path, what: str = "", number: int = 0) -> dict[str, float]:
    """What a new process measures over this folder."""
    command = [sys.executable, __file__, "--child", str(folder), "--what", what, "--number", str(number)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    return json.loads(done.stdout.splitlines()[-1])


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=16384)
    parser.add_argument("--documents", type=int, default=10**9)
    parser.add_argument("--tokens", type=int, default=10**12)
    parser.add_argument("--folder", default=".", help="where the cache is made; a pair's bytes and two names a pair")
    parser.add_argument("--reading", action="store_true", help="measure the reading of blocks")
    parser.add_argument("--schedule", action="store_true", help="measure a schedule of 20 stages over three corpora in blocks")
    parser.add_argument("--corpora", type=int, nargs="+", help="measure the start of mixtures of so many corpora")
    for name, kind in (("child", str), ("what", str), ("number", int)):
        parser.add_argument(f"--{name}", type=kind, help=argparse.SUPPRESS)
    return parser.parse_args()


def make(folder: pathlib.Path, pairs: int, documents: int, tokens: int, name: str = "scale") -> None:
    """A cache of a corpus, each pair with so many documents and tokens."""
    from ul2_tasks.corpus import cache
    from ul2_tasks.corpus.build_cache import manifest_of
    from ul2_tasks.corpus.corpus import corpus_settings
    from ul2_tasks.store.write import PairWriter

    corpus = registered(name)
    folder = folder / corpus.name
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    cuts = np.sort(rng.choice(tokens - 1, documents - 1, replace=False)) + 1
    with PairWriter(f"{folder}/first.bin", f"{folder}/first.idx", np.dtype(np.uint16)) as pair:
        pair.add(rng.integers(300, 1000, tokens, np.int32), np.diff(cuts, prepend=0, append=tokens))
    shards = []
    for number in range(pairs):
        shard = f"train-{number:05d}-of-{pairs:05d}"
        for kind in ("bin", "idx"):
            os.link(folder / f"first.{kind}", folder / f"{shard}.{kind}")
        files = [{"file": f"{shard}.{kind}", **entry} for kind, entry in pair.entries.items()]
        counts = {"documents": documents, "tokens": tokens, "empty": 0, "skipped": 0}
        origins = {"source": "", "origins": {"file": "", "is_part": False, "rows": None}, "reads": ""}
        shards.append({"shard": shard, **counts, "bytes": sum(file["bytes"] for file in files), "files": files, **origins})
    for kind in ("bin", "idx"):
        (folder / f"first.{kind}").unlink()
    manifest = manifest_of(corpus, {"settings": corpus_settings(corpus), "read_as": "", **cache.MOST}, {"train": shards}, None)
    cache.write_manifest(str(folder), manifest)
    (folder / "info.train.json").write_text(json.dumps({"num_shards": pairs, "features": {}, "seqio_version": ""}))
    (folder / "stats.train.json").write_text(json.dumps({"examples": pairs * documents}))
    (folder / cache.COMPLETED).write_text("")


def registered(name: str = "scale", **settings):
    """The task of a corpus. Its cache is made up, so its texts are never read."""
    import seqio

    import ul2_tasks

    ul2_tasks.register(name, "embedded", **settings)
    return seqio.TaskRegistry.get(f"{name}_corpus")


def measure(folder: str) -> dict[str, float]:
    """Seconds by stage, and memory in MB."""
    import seqio

    import ul2_tasks

    registered()
    seqio.add_global_cache_dirs([folder])
    ul2_tasks.examples("ul2_mix", LENGTHS)  # TensorFlow's own start
    found, began = {}, time.perf_counter()

    def reached(stage: str) -> None:
        nonlocal began
        found[stage] = time.perf_counter() - began
        began = time.perf_counter()

    examples = ul2_tasks.examples("scale_mix", LENGTHS)
    reached("open")
    examples.__getitems__(range(0, ROWS * HOSTS, HOSTS) if len(examples) > ROWS * HOSTS else range(ROWS))
    reached("first batch")
    examples.__getitems__(range(1, ROWS * HOSTS, HOSTS) if len(examples) > ROWS * HOSTS else range(ROWS, 2 * ROWS))
    reached("next batch")
    read_by_seqio("scale_mix", reached)
    found["MB"], found["MB without files"] = memory("VmRSS"), memory("RssAnon")
    began = time.perf_counter()
    where = examples.locate(len(examples) // 2)
    reached("where")
    numbers = examples.find(where.documents[0][0])
    reached("when")
    assert len(examples) // 2 in numbers
    return found | {"examples": len(examples)}


def read_by_seqio(mixture: str, reached: Callable[[str], None]) -> None:
    """Reads packed sequences as a host does, from the first step on and from another one, and says what is reached."""
    import seqio

    import ul2_tasks
    from ul2_tasks.random_access.dataset import continued

    rows = seqio.get_dataset(
        mixture,
        LENGTHS,
        ul2_tasks.EncDecFeatureConverter(pack=True),
        dataset_split="train",
        shuffle=True,
        num_epochs=None,
        use_cached=True,
        seed=0,
        shard_info=seqio.ShardInfo(0, HOSTS),
    )
    next(iter(rows.batch(ROWS, drop_remainder=True)))
    reached("seqio.get_dataset, first batch")
    next(iter(continued(rows, STEP * BATCH // HOSTS).batch(ROWS, drop_remainder=True)))
    reached("goes on at step 10^6, first batch")


def measure_schedule(folder: str, stages: int) -> dict[str, float]:
    """Seconds by what is measured, of three corpora in blocks."""
    import seqio

    import ul2_tasks

    for name in CORPORA:
        registered(name, block_shuffle=ul2_tasks.BlockShuffle())
    weights = [dict(zip(map("{}_mix".format, CORPORA), (1 - 0.04 * number, 0.2, 0.1 + 0.07 * number))) for number in range(stages)]
    schedule = [ul2_tasks.Stage(100_000 * number, of_stage) for number, of_stage in enumerate(weights)]
    mixture = ul2_tasks.mix("planned", schedule=schedule, batch_size=BATCH, steps=2 * STEP)
    seqio.add_global_cache_dirs([folder])
    ul2_tasks.examples("ul2_mix", LENGTHS)  # TensorFlow's own start
    found, began = {}, time.perf_counter()

    def reached(stage: str) -> None:
        nonlocal began
        found[stage] = time.perf_counter() - began
        began = time.perf_counter()

    examples = ul2_tasks.examples(mixture, LENGTHS)
    reached("open")
    examples.__getitems__(range(0, ROWS * HOSTS, HOSTS))
    reached("first batch")
    examples.__getitems__(range(STEP * BATCH, STEP * BATCH + ROWS * HOSTS, HOSTS))
    reached("batch of step 10^6")
    for place in ("first", "second"):
        where = examples.locate(STEP * BATCH + 1)
        reached(f"where, {place} time")
        numbers = examples.find(where.documents[0][0], where.corpus)
        reached(f"when, {place} time")
        assert STEP * BATCH + 1 in numbers
    read_by_seqio(mixture, reached)
    return found | {"MB": memory("VmRSS"), "MB without files": memory("RssAnon")}


def measure_corpora(folder: str, number: int) -> dict[str, float]:
    """Seconds by what is measured, of a mixture of so many corpora."""
    import ul2_tasks

    mixtures = [ul2_tasks.Mixture(f"scale{each:03d}", "embedded") for each in range(number)]
    mix = ul2_tasks.Mix("many", {mixture: 1 + each for each, mixture in enumerate(mixtures)})
    ul2_tasks.examples(ul2_tasks.Mixture("scale000"), LENGTHS, cache_dirs=[folder]).__getitems__(range(ROWS))  # what is compiled
    began = time.perf_counter()
    examples = ul2_tasks.examples(mix, LENGTHS, cache_dirs=[folder])
    opened = time.perf_counter()
    examples.__getitems__(range(ROWS))
    first = time.perf_counter()
    examples.__getitems__(range(ROWS, 2 * ROWS))
    found = {"open": opened - began, "first batch": first - opened, "next batch": time.perf_counter() - first}
    return found | {"open, by corpus": found["open"] / number}


def reading(folder: str) -> None:
    """Prints milliseconds a block, medians of 15 blocks at random places, each after one that is not counted."""
    import fsspec
    from fsspec.asyn import AsyncFileSystem

    from ul2_tasks.store.read import Store
    from ul2_tasks.store.write import PairWriter

    class Slow(AsyncFileSystem):
        """The files of `memory://`, each request after 20 ms."""

        protocol = "slow"

        async def _cat_file(self, path, start=None, end=None, **keywords):
            await asyncio.sleep(0.02)
            return fsspec.filesystem("memory").cat_file(path, start, end)

        async def _info(self, path, **keywords):
            await asyncio.sleep(0.02)
            return fsspec.filesystem("memory").info(path)

    fsspec.register_implementation("slow", Slow)
    rng, pairs, tokens = np.random.default_rng(0), 16, 10_000_000
    with tempfile.TemporaryDirectory(prefix="scale-", dir=folder) as place:
        for number in range(pairs):
            with PairWriter(f"{place}/{number}.bin", f"{place}/{number}.idx", np.dtype(np.uint16)) as pair:
                pair.add(rng.integers(300, 1000, tokens, np.int32), np.full(tokens // 1000, 1000))
            for kind in ("bin", "idx"):
                fsspec.filesystem("memory").put(f"{place}/{number}.{kind}", f"/scale/{number}.{kind}")
        os.sync()
        table = Table(title="Milliseconds for a block of 512 chunks", title_justify="left")
        for column in ("tokens of a chunk", "warm", "cold", "memory://", "20 ms a request"):
            table.add_column(column, justify="right")
        for length in (570, 2300, 9000, 20000):
            figures = []
            for beginning, is_cold in ((place, False), (place, True), ("memory://scale", False), ("slow://scale", False)):
                prefixes, seconds = [f"{beginning}/{number}" for number in range(pairs)], []
                store = Store(prefixes, [tokens // 1000] * pairs, [tokens] * pairs)
                for _ in range(16):
                    if is_cold:
                        store = Store(prefixes, [tokens // 1000] * pairs, [tokens] * pairs)
                        store.read_chunks(firsts := np.arange(pairs) * tokens, firsts + 1)  # opens the pairs
                        drop([f"{prefix}.bin" for prefix in prefixes])
                    starts = rng.integers(0, store.tokens - length, 512)
                    began = time.perf_counter()
                    store.read_chunks(starts, starts + length)
                    seconds.append(time.perf_counter() - began)
                figures.append(f"{1000 * np.median(seconds[1:]):.1f}")
            table.add_row(f"{length:,}", *figures)
        Console().print(table)


def drop(paths: list[str]) -> None:
    """Drops these files from the page cache, except what a memory map has touched."""
    for path in paths:
        file = os.open(path, os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def memory(key: str) -> float:
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:")) / 1024


def report(found: dict[str, dict[str, float]], size: str = "") -> None:
    table = Table(title=f"{size}: seconds, and MB" if size else "seconds", title_justify="left")
    for column in ("", *found):
        table.add_column(column, justify="right" if column else "left")
    for stage in next(iter(found.values())):
        form = ",.0f" if stage.startswith(("MB", "examples")) else ",.3f"
        table.add_row(stage, *(format(of_cache[stage], form) for of_cache in found.values()))
    Console().print(table)


if __name__ == "__main__":
    main()
