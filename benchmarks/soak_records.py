"""Whole records, read by hosts that are killed: `python benchmarks/soak_records.py [--kills 4] [--seed 0]`.

It needs t5x (docs/guides/train_with_t5x.md), whose configuration the hosts have, and reads what they would train on; nothing is
trained, so that a start costs seconds. `tests/test_t5x_chat.py` trains on such a run, and `soak_t5x.py` on joined text.

Each kind of data has a run: documents that are kept apart, joined text whose examples have random lengths, conversations as one
sequence and as pairs, and a mixture of texts and replies; packed. Hosts are processes of this machine. A checkpoint is a folder
that is made when all hosts have done its step. Each of `--kills` segments is on 1, 2 or 3 hosts. One host that is drawn gets
SIGKILL at a moment that is drawn, and the others soon after it. The last segment reads to its end.

The script prints the segments, and for each kind a digest of all rows of the steps that made the last model, and that of one host
that nothing interrupts. It ends with status 1 unless these are equal, each host had its rows in each step whenever it was done,
each segment began at its checkpoint, and `ul2_run.json` stayed what it was.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import multiprocessing
import pathlib
import random
import shutil
import sys
import tempfile
import time
from typing import Any

from soak_t5x import REPOSITORY, digests, read_records

BATCH, PERIOD, HOSTS = 6, 5, (1, 2, 3)
A_STEP = 0.02  # seconds that a host waits in each step, as if it trained
TOKENS, PAIRS = {"tokens": 512}, {"inputs": 512, "targets": 512}
# The mixture, the converter, and the lengths of the rows.
KINDS = {
    "documents apart": ("apart_mix", "EncDecFeatureConverter", PAIRS),
    "text, random lengths": ("web_mix", "EncDecFeatureConverter", PAIRS),
    "conversations": ("told_chat", "ChatFeatureConverter", TOKENS),
    "replies": ("told_prompt_completion", "PromptCompletionFeatureConverter", PAIRS),
    "text and replies": ("text_and_replies_mix", "PromptCompletionFeatureConverter", PAIRS),
}


def register_kinds(cache: pathlib.Path) -> None:
    """The mixtures of `KINDS`, of the corpora that come with the package."""
    import seqio

    import ul2_tasks

    replies = ul2_tasks.register_chat("told", format="prompt_completion", random_access=True)
    vocabulary = seqio.get_mixture_or_task(replies).output_features["targets"].vocabulary
    web = ul2_tasks.register("web", vocabulary=vocabulary, denoisers="UL2", random_access=True)
    ul2_tasks.register("apart", vocabulary=vocabulary, merge_examples=False, random_access=True)
    ul2_tasks.mix("text_and_replies", {web: 3, replies: 1})
    seqio.set_global_cache_dirs([str(cache)])


def make_caches(folder: pathlib.Path) -> None:
    from rich.console import Console

    from ul2_tasks.corpus.build_cache import build

    register_kinds(folder)
    for corpus in ("told", "web", "apart"):
        build(f"{corpus}_corpus", str(folder), console=Console(quiet=True))


def read(kind: str, host: int, hosts: int, last: int, cache: pathlib.Path, model_dir: pathlib.Path, records: pathlib.Path) -> None:
    """What a host of a run reads, from the last checkpoint to step `last`, a line for each step."""
    from t5x import utils

    import ul2_tasks
    from ul2_tasks.t5x_dataset import find_start

    register_kinds(cache)
    mixture, converter, lengths = KINDS[kind]
    config = utils.DatasetConfig(
        mixture, lengths, split="train", batch_size=BATCH, shuffle=True, seed=0, use_cached=True, pack=True
    )
    checkpoints = utils.CheckpointConfig(save=utils.SaveCheckpointConfig(), restore=None)
    started = {"model_dir": str(model_dir), "checkpoint_cfg": checkpoints}
    batches = ul2_tasks.get_dataset_at_step(config, host, hosts, getattr(ul2_tasks, converter), **started)
    first = find_start(str(model_dir), checkpoints, None).step
    with open(records / str(host), "a", buffering=1) as file:
        for step, batch in zip(range(first, last), batches.as_numpy_iterator()):
            file.write(json.dumps({"step": step, "rows": digests(batch)}) + "\n")
            time.sleep(A_STEP)


class Run:
    """A run of one kind: its folder, and all rows that it read, by step."""

    def __init__(self, kind: str, folder: pathlib.Path, cache: pathlib.Path):
        self.kind, self.folder, self.cache, self.model_dir = kind, folder, cache, folder / "model"
        self.model_dir.mkdir(parents=True)
        self.segments: list[tuple[int, int, list[dict[int, list[str]]]]] = []

    def last_checkpoint(self) -> int:
        return max((int(path.name.split("_")[1]) for path in self.model_dir.glob("checkpoint_*")), default=0)

    def segment(self, hosts: int, last: int, rng: random.Random | None = None) -> None:
        """Reads until a step, or until a host is killed at a moment that is drawn."""
        first, records = self.last_checkpoint(), self.folder / f"records-{len(self.segments)}"
        records.mkdir()
        started = [
            multiprocessing.get_context("spawn").Process(
                target=read, args=(self.kind, host, hosts, last, self.cache, self.model_dir, records)
            )
            for host in range(hosts)
        ]
        for process in started:
            process.start()
        kill_at = None
        while any(process.exitcode is None for process in started):
            done = [max(part, default=-1) + 1 for part in read_records(records, hosts)[0]]
            if min(done) and rng and kill_at is None:
                kill_at = time.monotonic() + 1.5 * rng.random()
            for step in range(first + PERIOD, min(done) + 1, PERIOD):
                (self.model_dir / f"checkpoint_{step}").mkdir(exist_ok=True)
            if kill_at and time.monotonic() > kill_at:
                rng.choice(started).kill()
                time.sleep(0.2 * rng.random())
                for process in started:
                    process.kill()
                break
            time.sleep(0.02)
        for process in started:
            process.join()
        parts = read_records(records, hosts)[0]
        for step in range(first + PERIOD, min(max(part, default=-1) for part in parts) + 2, PERIOD):
            (self.model_dir / f"checkpoint_{step}").mkdir(exist_ok=True)
        self.segments.append((hosts, first, parts))
        steps = [f"{min(part)}-{max(part)}" if part else "none" for part in parts]
        print(f"{self.kind}: {hosts} hosts from step {first}, {'killed' if rng else 'to its end'}, steps {steps}", flush=True)


def problems_of(segments: list[tuple[int, int, list[dict[int, list[str]]]]], expected: list[list[str]]) -> list[str]:
    """What differs from the rows of one host that nothing interrupts."""
    found = []
    for number, (hosts, first, parts) in enumerate(segments, 1):
        for host, part in enumerate(parts):
            if part and min(part) != first:
                found.append(f"segment {number}, host {host} began at step {min(part)}, and the last checkpoint was {first}")
            if wrong := [step for step, rows in part.items() if rows != expected[step][host::hosts]]:
                found.append(f"segment {number}, host {host} of {hosts} had other rows in steps {wrong}")
    return found


def rows_of_last(segments: list[tuple[int, int, list[dict[int, list[str]]]]]) -> list[str]:
    """The rows of all steps, of the segment that did each last, in the order of the steps."""
    steps: dict[int, list[str]] = {}
    for _, first, parts in segments:
        for step in range(first, min(max(part, default=-1) for part in parts) + 1):
            steps[step] = list(itertools.chain(*zip(*(part[step] for part in parts))))
    return list(itertools.chain(*(steps[step] for step in sorted(steps))))


def digest_of(rows: list[str]) -> str:
    return hashlib.blake2b("".join(rows).encode(), digest_size=8).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--steps", type=int, default=200, help="of each run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=KINDS, action="append", help="only these kinds")
    arguments = parser.parse_args()
    sys.path[:0] = [str(REPOSITORY)]
    folder, rng, all_problems = pathlib.Path(tempfile.mkdtemp(prefix="soak-")), random.Random(arguments.seed), []
    making = multiprocessing.get_context("spawn").Process(target=make_caches, args=(folder / "cache",))
    making.start()
    making.join()
    for kind in arguments.kind or KINDS:
        whole = Run(kind, folder / f"{kind} whole", folder / "cache")
        whole.segment(1, arguments.steps)
        expected = [whole.segments[0][2][0][step] for step in range(arguments.steps)]
        run, record = Run(kind, folder / kind, folder / "cache"), None
        for kill in range(arguments.kills + 1):
            run.segment(rng.choice(HOSTS), arguments.steps, rng if kill < arguments.kills else None)
            now: Any = json.loads((run.model_dir / "ul2_run.json").read_text())
            all_problems += [f"{kind}: ul2_run.json has changed"] if record not in (None, now) else []
            record = now
        ours, alone = digest_of(rows_of_last(run.segments)), digest_of(list(itertools.chain(*expected)))
        all_problems += [f"{kind}: {problem}" for problem in problems_of(run.segments, expected)]
        all_problems += [] if ours == alone else [f"{kind}: the rows of all steps differ"]
        rows = set(itertools.chain(*expected))
        print(f"{kind}: {arguments.steps} steps, {len(rows)} different rows; digest {ours}, uninterrupted on one host {alone}")
    for problem in all_problems:
        print(f"PROBLEM: {problem}")
    shutil.rmtree(folder)
    sys.exit(bool(all_problems))


if __name__ == "__main__":
    main()
