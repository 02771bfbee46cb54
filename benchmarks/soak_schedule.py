"""A t5x run with a schedule that is killed again and again, and whose future changes: `python benchmarks/soak_schedule.py`.

It needs what `soak_t5x.py` needs. The run has `gin/schedule.gin`: three stages over corpora in blocks. One joins at the second.
At the third the weights change in a ramp, and one corpus is read by one denoiser alone. The run begins with four hosts. Each of
`--kills` segments gets SIGKILL at a moment that is drawn, and the next is on another number of hosts. After half of them all stages
that have not begun are replaced by two others, and with the first of these a third corpus joins.

The script prints the segments, the schedule, a digest of the rows of some steps and how often the tokens of each corpus were read,
and ends with status 1 unless

* each step had the rows of an uninterrupted run on one host with the schedule of its segment, whenever it was done, and `seqio`
  gives the same rows without t5x;
* each segment began at the last whole checkpoint, and the steps that made the last model are each step once;
* of each corpus no token was read twice in an epoch, and each token of all epochs before the last. A stage shuffles some packed
  sequences among each other, and the run ends in their middle. So tokens are counted beyond the last step, until all are read
  that come before the last one read.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import multiprocessing
import os
import pathlib
import random
import shutil
import sys
import tempfile
import time
from typing import Any

import numpy as np
from soak_t5x import BATCH, HOSTS, LENGTHS, PERIOD, REPOSITORY, Processes, Run, Segment, from_seqio, prepare

CORPORA = ("web", "code", "books")
BLOCKS = {"block_tokens": 2048, "partitions": 4, "window_blocks": 2}
# The first step, the weights, and ramp_steps and ramp_every.
FIRST = (0, {"web_mix": 1.0})
SECOND = (14, {"web_mix": 0.7, "code_mix": 0.3})
LAST = {"web_s": 0.25, "code_mix": 0.75}
GIN = """
from __gin__ import dynamic_registration
import ul2_tasks
ul2_tasks.open_source.validation = 0.05
books/ul2_tasks.register:
  name = 'books'
  source = @books/ul2_tasks.open_source()
books/ul2_tasks.open_source.spec = %BOOKS_FILES
BOOKS = @books/ul2_tasks.register()
"""
Stages = list[tuple[Any, ...]]


def as_gin(folder: pathlib.Path, stages: Stages) -> str:
    """What follows `gin/schedule.gin`: the files of the corpora, and these stages."""
    lines = [GIN, "ul2_tasks.BlockShuffle:", *(f"  {key} = {value}" for key, value in BLOCKS.items())]
    lines += [f"{name.upper()}_FILES = {str(folder / name)!r}" for name in CORPORA]
    lines.append(f"ul2_tasks.mix.schedule = [{', '.join(f'@stage{number}/ul2_tasks.Stage()' for number in range(len(stages)))}]")
    for number, (first_step, weights, *ramp) in enumerate(stages):
        named = (name.removesuffix("_mix") for name in weights)
        pairs = ((f"%{name.upper()}" if name in CORPORA else repr(name), weight) for name, weight in zip(named, weights.values()))
        lines += [f"stage{number}/ul2_tasks.Stage:", f"  first_step = {first_step}"]
        lines.append(f"  mixtures = [{', '.join(f'({name}, {weight})' for name, weight in pairs)}]")
        lines += [f"  {key} = {value}" for key, value in zip(("ramp_steps", "ramp_every"), ramp)]
    return "\n".join(lines) + "\n"


def registered(stages: Stages, steps: int) -> str:
    """The mixture with these stages, also where it had others before."""
    import seqio

    import ul2_tasks

    if "planned_mix" in seqio.MixtureRegistry.names():
        seqio.MixtureRegistry.remove("planned_mix")
    schedule = [ul2_tasks.Stage(*stage) for stage in stages]
    return ul2_tasks.mix("planned", schedule=schedule, batch_size=BATCH, steps=steps)


def register_corpora(folder: pathlib.Path) -> None:
    """The mixtures of the three corpora."""
    import ul2_tasks

    for name in CORPORA:
        source = ul2_tasks.open_source(str(folder / name), validation=0.05)
        ul2_tasks.register(name, source, block_shuffle=ul2_tasks.BlockShuffle(**BLOCKS))


def make_corpora(folder: pathlib.Path) -> None:
    """Three corpora of the documents that come with the package, and their caches."""
    from rich.console import Console

    import ul2_tasks
    from ul2_tasks.corpus.build_cache import build

    for number, name in enumerate(CORPORA):
        (folder / name).mkdir(parents=True)
        texts = ul2_tasks.embedded_documents()[number :: len(CORPORA)]
        (folder / name / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    register_corpora(folder)
    for name in CORPORA:
        build(f"{name}_corpus", str(folder / "cache"), console=Console(quiet=True))


def changed(stages: Stages, now: int) -> Stages:
    """The stages that have begun before a step, and two others."""
    begun = [stage for stage in stages if stage[0] < max(1, now)]
    step = max(now + 3, begun[-1][0] + sum(begun[-1][2:3]) + 1)
    more = (step, {"web_mix": 0.5, "code_mix": 0.25, "books_mix": 0.25}), (step + 9, {**LAST, "books_mix": 0.5}, 6, 2)
    return [*begun, *more]


def soak(run: Run, folder: pathlib.Path, kills: int, rng: random.Random, third: int) -> tuple[list[Stages], list[str]]:
    """All segments; the schedule of each, and what went wrong in them that is not in the data."""
    stages, of_each, problems = [FIRST, SECOND, (third, LAST, 8, 3)], [], []
    hosts = 4
    for kill in range(kills + 1):
        if kill == kills // 2:
            stages = changed(stages, max(run.checkpoints(), default=0))
            print(f"the schedule changes: from step {stages[-2][0]} on", flush=True)
        (folder / "stages.gin").write_text(as_gin(folder, stages))
        of_each.append(stages)
        if kill == kills:
            done = run.segment("last", hosts, max(run.checkpoints(), default=0) + 2 * PERIOD)
            problems += [] if done.end == "to its end" else [f"the last segment {done.end}"]
            break
        run.segment("kill", hosts, 100_000, lambda processes: Processes.kill_at_random(processes, rng))
        if not run.segments[-1].end.startswith("killed"):
            problems.append(f"a segment that was to be killed {run.segments[-1].end}")
        hosts = rng.choice([other for other in HOSTS if other != hosts])
    return of_each, problems


def compare(segments: list[Segment], expected: list[list[list[str]]]) -> tuple[list[str], dict[str, Any]]:
    """What differs from the rows that each segment is to have, by step; and counts."""
    problems, model, seen, redone = [], [], set(), 0
    for number, (segment, rows) in enumerate(zip(segments, expected), 1):
        for host, part in enumerate(segment.parts):
            wrong = [step for step, digests in part.items() if digests != rows[step][host :: segment.hosts]]
            problems += [f"segment {number}, host {host} of {segment.hosts}: other rows in steps {wrong}"] if wrong else []
        if segment.rows and min(segment.rows) != segment.checkpoint:
            problems.append(f"segment {number} began at step {min(segment.rows)}, and the last checkpoint was {segment.checkpoint}")
        redone += len(seen & set(segment.rows))
        seen |= set(segment.rows)
        del model[segment.checkpoint :]
        model += [segment.rows[step] for step in sorted(segment.rows)]
    if model != expected[-1][: len(model)]:
        problems.append("the rows of the steps that made the last model are not those of the uninterrupted run")
    counts = {
        "steps that made the last model": len(model),
        "their packed sequences": sum(map(len, model)),
        "of them different": len(set(itertools.chain(*model))),
        "steps that were done again": redone,
    }
    return problems, counts


def count_tokens(mixture: str, steps: int) -> tuple[list[str], list[str]]:
    """What is wrong with how often tokens were read in these steps, and a line for each corpus."""
    import ul2_tasks

    numbering = ul2_tasks.examples(mixture, LENGTHS, pack=True).numbering
    stage, elements = numbering.timeline.stages[-1], steps * BATCH
    units = -(-(elements - stage.first) // stage.mixing.unit)
    while any(taken < len(left) for taken, left in zip(stage.mixing.taken(units), stage.left)):
        units += 1
    stop = stage.first + units * stage.mixing.unit
    problems, told = [], []
    for name in sorted({corpus.name for corpus in numbering.corpora}):
        by_epoch: dict[int, np.ndarray] = {}
        read = 0
        for first, last in ((0, elements), (elements, stop)):
            slots = numbering.slots(np.arange(first, last))
            for number, corpus in enumerate(numbering.corpora):
                of = slots.corpora == number
                if corpus.name == name and of.any():
                    ranges = corpus.order.ranges(slots.epochs[of], slots.slots[of])
                    for epoch, start, end in zip(slots.epochs[of][ranges.of], ranges.starts, ranges.stops):
                        by_epoch.setdefault(int(epoch), np.zeros(corpus.store.tokens, np.int64))[start:end] += 1
            read = read or sum(int(counts.sum()) for counts in by_epoch.values())
        last = max(by_epoch)
        if any(counts.max() > 1 for counts in by_epoch.values()):
            problems.append(f"{name}: a token was read twice in an epoch")
        if set(by_epoch) != set(range(last + 1)) or any(by_epoch[epoch].min() < 1 for epoch in range(last)):
            problems.append(f"{name}: a token of an epoch was left out")
        tokens, part = len(by_epoch[last]), by_epoch[last].mean()
        told.append(
            f"{name} has {tokens:,} tokens. The run read {read:,}. {stop - elements:,} packed sequences later these are"
            f" {last} epochs, each token once in each, and {part:.0%} of the next, none twice"
        )
    return problems, told


def digest_of(rows: list[str]) -> str:
    """Of the rows of a step, in any order."""
    return hashlib.blake2b("".join(sorted(rows)).encode(), digest_size=8).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--third", type=int, default=40, help="the first step of the third stage, before the schedule changes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", help="an empty or new folder for all that is written, and stays; without it a temporary one")
    arguments = parser.parse_args()
    folder, began = pathlib.Path(arguments.folder or tempfile.mkdtemp(prefix="soak-")).absolute(), time.monotonic()
    os.chdir(REPOSITORY)
    prepare(folder / "cache")
    making = multiprocessing.get_context("spawn").Process(target=make_corpora, args=(folder,))  # this process stays as it is forked
    making.start()
    making.join()
    files = ("gin/ul2_tiny.gin", "gin/schedule.gin", str(folder / "stages.gin"), "gin/elastic.gin")
    run = Run(folder / "run", folder / "cache", disk=False, files=files)
    of_each, problems = soak(run, folder, arguments.kills, random.Random(arguments.seed), arguments.third)
    steps = run.checkpoints()[-1]

    whole = Run(folder / "whole", folder / "cache", disk=False, files=files).segment("uninterrupted", 1, steps)
    register_corpora(folder)
    most = max(max(segment.rows, default=0) for segment in run.segments) + 1
    rows: dict[str, list[list[str]]] = {}
    for stages in of_each:
        if str(stages) not in rows:
            rows[str(stages)] = list(from_seqio(folder / "cache", most, registered(stages, steps)))
    found, counts = compare(run.segments, [rows[str(stages)] for stages in of_each])
    if [whole.rows.get(step) for step in range(steps)] != rows[str(of_each[-1])][:steps]:
        found.append("the uninterrupted run on one host has other rows than seqio's")
    losses = {step: loss for segment in run.segments for step, loss in segment.losses.items()}
    counts["largest relative difference of a loss"] = f"{max(abs(losses[s] / whole.losses[s] - 1) for s in range(steps)):.1e}"
    wrong, told = count_tokens(registered(of_each[-1], steps), steps)

    for stages in (of_each[0], of_each[-1]):
        print("schedule:", *stages, sep="\n    ")
    for step in sorted({0, 1, *(stage[0] for stage in of_each[-1]), steps - 1}):
        ours = [digest_of(segment.rows[step]) for segment in run.segments if step in segment.rows][-1]
        print(f"step {step}: digest {ours}, uninterrupted on one host {digest_of(whole.rows[step])}")
    print(*told, *(f"{what}: {count}" for what, count in counts.items()), sep="\n")
    for problem in [*problems, *found, *wrong]:
        print(f"PROBLEM: {problem}")
    print(f"{time.monotonic() - began:.0f} s")
    if not arguments.folder and not (problems or found or wrong):
        shutil.rmtree(folder)
    sys.exit(bool(problems or found or wrong))


if __name__ == "__main__":
    main()
