"""A corpus of 10^12 tokens, opened on one machine: `python benchmarks/scale.py [--pairs 16384] [--documents N] [--tokens N]`.

It makes a cache as `ul2 cache` writes it, and removes it at the end. All pairs have one content: each `.bin` and `.idx` is a hard
link to the first, so that a terabyte takes the disk of one pair. What reads it cannot tell, and does what it would do with files
of their own; only the page cache can hold more of it.

In a new process each, over the large cache and over one pair of it: seconds until

* the cache is checked and open (`ul2_tasks.examples`), after imports;
* the first 128 examples of one host of 1,024 are there, then 128 more;
* `seqio.get_dataset` gives its first batch of 128 packed rows, and a run that goes on after 10^6 steps of 2,048 has its first;
* `locate` says where an example is from, and `find` finds those of a document;
* a mixture of it and one pair more in 20 stages is open, and the first 128 examples of the last stage are there;

and the memory that the process then has, in all, and without the pages of files."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import tempfile
import time
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
from measure import in_new_process, memory, print_table

LENGTHS = {"inputs": 512, "targets": 512}
HOSTS, ROWS, STEP, BATCH = 1024, 128, 10**6, 2048
STAGES, STEPS = 20, 50_000  # how many stages, of so many steps each


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=16384)
    parser.add_argument("--documents", type=int, default=10**9)
    parser.add_argument("--tokens", type=int, default=10**12)
    parser.add_argument("--folder", default=".", help="where the cache is made; a pair's bytes and two names a pair")
    parser.add_argument("--child", metavar="FOLDER", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(measure(arguments.child)))
        return
    place = pathlib.Path(tempfile.mkdtemp(prefix="scale-", dir=arguments.folder))
    try:
        of_pair, found = (arguments.documents // arguments.pairs, arguments.tokens // arguments.pairs), {}
        for name, pairs in (("one pair", 1), ("large", arguments.pairs)):
            make(place / name, pairs, *of_pair)
            make(place / name, 1, *of_pair, "scale_more")
            found[name] = in_new_process(__file__, place / name)
    finally:
        shutil.rmtree(place)
    stages = next(iter(found.values()))
    rows = [[stage, *(f"{side[stage]:,.{3 if side[stage] < 100 else 0}f}" for side in found.values())] for stage in stages]
    size = f"{arguments.tokens:.0e} tokens, {arguments.documents:.0e} documents, {arguments.pairs:,} pairs: "
    print_table(f"{size}seconds, and MB", ["", *found], rows)


def make(folder: pathlib.Path, pairs: int, documents: int, tokens: int, name: str = "scale") -> None:
    """A cache of a corpus, each pair with so many documents and tokens."""
    import seqio

    import ul2_tasks
    from ul2_tasks.corpus import cache
    from ul2_tasks.corpus.build_cache import manifest_of
    from ul2_tasks.corpus.corpus import corpus_settings
    from ul2_tasks.store.write import PairWriter

    ul2_tasks.register(name, "embedded")  # whose texts are never read, as its cache is made up
    corpus = seqio.TaskRegistry.get(f"{name}_corpus").corpus
    folder = folder / corpus.name
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    cuts = np.sort(rng.choice(tokens - 1, documents - 1, replace=False)) + 1
    with PairWriter(f"{folder}/first.bin", f"{folder}/first.idx", np.dtype(np.uint16)) as pair:
        pair.add(rng.integers(300, 1000, tokens, np.int32), np.diff(cuts, prepend=0, append=tokens))
    shards: list[dict[str, Any]] = []
    for number in range(pairs):
        shard = f"train-{number:05d}-of-{pairs:05d}"
        for kind in ("bin", "idx"):
            os.link(folder / f"first.{kind}", folder / f"{shard}.{kind}")
        files: list[dict[str, Any]] = [{"file": f"{shard}.{kind}", **entry} for kind, entry in pair.entries.items()]
        counts = {"documents": documents, "tokens": tokens, "empty": 0, "skipped": 0}
        origins = {"source": "", "origins": {"file": "", "is_part": False, "rows": None}, "reads": [["", ""]]}
        shards.append({"shard": shard, **counts, "bytes": sum(file["bytes"] for file in files), "files": files, **origins})
    for kind in ("bin", "idx"):
        (folder / f"first.{kind}").unlink()
    manifest = manifest_of(corpus, {"settings": corpus_settings(corpus), "read_as": "", **cache.MOST}, {"train": shards}, None)
    cache.write_manifest(str(folder), manifest)
    (folder / "info.train.json").write_text(json.dumps({"num_shards": pairs, "features": {}, "seqio_version": ""}))
    (folder / "stats.train.json").write_text(json.dumps({"examples": pairs * documents}))
    (folder / cache.COMPLETED).write_text("")


def measure(folder: str) -> dict[str, float]:
    """Seconds by stage, and memory in MB."""
    import seqio

    import ul2_tasks
    from ul2_tasks.tasks.tf_data import reading_of

    for name in ("scale", "scale_more"):
        ul2_tasks.register(name, "embedded")
    seqio.add_global_cache_dirs([folder])
    ul2_tasks.examples("ul2_mix", LENGTHS)  # TensorFlow's own start
    found, began = dict[str, float](), time.perf_counter()

    def reached(stage: str) -> None:
        nonlocal began
        found[stage], began = time.perf_counter() - began, time.perf_counter()

    examples = ul2_tasks.examples("scale_mix", LENGTHS)
    reached("open")
    is_large = len(examples) > ROWS * HOSTS
    examples.__getitems__(range(0, ROWS * HOSTS, HOSTS) if is_large else range(ROWS))
    reached("first batch")
    examples.__getitems__(range(1, ROWS * HOSTS, HOSTS) if is_large else range(ROWS, 2 * ROWS))
    reached("next batch")
    given = {"dataset_split": "train", "shuffle": True, "num_epochs": None, "use_cached": True, "seed": 0}
    converter, hosts = ul2_tasks.EncDecFeatureConverter(pack=True), seqio.ShardInfo(0, HOSTS)
    rows = seqio.get_dataset("scale_mix", LENGTHS, converter, shard_info=hosts, **given)
    next(iter(rows.batch(ROWS, drop_remainder=True)))
    reached("seqio.get_dataset, first batch")
    reading = reading_of(rows)
    assert reading is not None, "a cache is read by number"
    next(iter(reading.continued(STEP * BATCH // HOSTS).batch(ROWS, drop_remainder=True)))
    reached("goes on at step 10^6, first batch")
    where = examples.locate(len(examples) // 2)
    assert not isinstance(where, list)
    reached("locate")
    numbers = examples.find(where.documents[0][0])
    reached("find")
    assert len(examples) // 2 in numbers
    mixed = [ul2_tasks.Stage(each * STEPS, {"scale_mix": 1 + each, "scale_more_mix": STAGES}) for each in range(STAGES)]
    staged = ul2_tasks.mix("scale_staged", schedule=mixed, batch_size=BATCH, steps=STAGES * STEPS)
    examples = ul2_tasks.examples(staged, LENGTHS)
    reached(f"open in {STAGES} stages")
    examples.__getitems__(range(len(examples) - ROWS, len(examples)))
    reached("first batch of the last stage")
    return found | {"MB": memory("VmRSS"), "MB without files": memory("RssAnon")}


if __name__ == "__main__":
    main()
