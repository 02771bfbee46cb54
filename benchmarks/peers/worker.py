"""A process of this benchmark, one side: `python worker.py '{"side": .., "task": .., ..}'`, with what a `Spec` has.

Tasks, each of which answers in lines of JSON:

    play    for each line N of its standard input, N more batches: CPU and wall time, memory. First, what a batch has
    once    one epoch: how many tokens of text come out of it
    rows    the digests of the rows of so many batches, a line each, and in front of it the file of the state behind it
    mixed   how many examples of the first corpus each of so many batches has
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import pickle
import resource
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

os.environ.update({"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "TOKENIZERS_PARALLELISM": "false"})

import numpy as np

QUIET_SECONDS = 0.15
POLL_SECONDS = 0.01
POLL_CPU_SECONDS = 0.001  # a thread at work takes most of a poll
COUNTED = 32  # batches
INPUTS = ("inputs", "input_ids", "packed_input_ids", "encoder_input_tokens", "text_enc")
TARGETS = ("targets", "labels", "decoder_target_tokens")


class Text:
    """Tells text from all else by the ids that the corpus has."""

    def __init__(self, root: pathlib.Path):
        self._is_text = np.zeros(1 << 17, bool)
        for name in ("all", "even", "odd"):
            self._is_text[np.unique(np.load(root / name / "tokens.npy", mmap_mode="r"))] = True

    def of(self, ids: np.ndarray) -> np.ndarray:
        return self._is_text[ids]


class Halves(NamedTuple):
    """The ids of inputs and targets of a batch, [rows, length], 0 where there is nothing."""

    inputs: np.ndarray
    targets: np.ndarray


def halves(batch: Any) -> Halves:
    found = (np.asarray(next(batch[name] for name in names if name in batch)) for names in (INPUTS, TARGETS))
    return Halves(*(np.maximum(ids, 0) for ids in found))


def counted(batches: list[Halves], text: Text) -> dict[str, float]:
    """Of an average batch; and what shows that all do the same work: the share of noise, and the length of spans."""
    kept, noise = (sum(int(text.of(each[half]).sum()) for each in batches) for half in (0, 1))
    filled = [float(np.mean([(each[half] > 0).mean() for each in batches])) for half in (0, 1)]
    specials = sum(int(((each.targets > 1) & ~text.of(each.targets)).sum()) for each in batches)
    return {
        "tokens": (kept + noise) / len(batches),
        "noise": noise / (kept + noise),
        "span": noise / max(specials, 1),
        "fill_inputs": filled[0],
        "fill_targets": filled[1],
    }


def digests(batch: Halves) -> list[str]:
    """Of each row, however it is padded."""
    rows = zip(*([np.trim_zeros(row, "b").astype(np.int64).tobytes() for row in half] for half in batch))
    return [hashlib.blake2b(b"/".join(row), digest_size=8).hexdigest() for row in rows]


def of_first_corpus(batch: Halves, text: Text) -> int:
    first = [row[text.of(row)][0] for row in np.concatenate(batch, axis=1)]
    return int((np.array(first) % 2 == 0).sum())


def processes() -> list[int]:
    """This process, and those that it and they started."""
    found = [os.getpid()]
    for number in found:
        for children in pathlib.Path(f"/proc/{number}/task").glob("*/children"):
            found += map(int, children.read_text().split())
    return found


def cpu_seconds() -> float:
    ticks = 0
    for number in processes()[1:]:
        fields = pathlib.Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)  # such as workers of an epoch that is over
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK") + ended.ru_utime + ended.ru_stime


def memory_mb() -> float:
    """What all processes hold, a shared page once."""
    lines = (line for number in processes() for line in pathlib.Path(f"/proc/{number}/smaps_rollup").read_text().splitlines())
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def at_rest() -> tuple[float, float]:
    """Waits until nothing runs here; returns the wall clock and the CPU time when it came to that.

    The clocks run from rest to rest: threads and workers fill their buffers ahead of what is asked for, and that work belongs to
    the round whose batches it replaces.
    """
    last = time.perf_counter(), cpu_seconds()
    others = last[1] - time.thread_time()  # this thread only looks
    while time.perf_counter() - last[0] < QUIET_SECONDS:
        time.sleep(POLL_SECONDS)
        cpu, own = cpu_seconds(), time.thread_time()
        if cpu - own - others > POLL_CPU_SECONDS:
            last = time.perf_counter(), cpu
        others = cpu - own
    return last


def play(batches: Iterator[Any], text: Text, say: Any) -> None:
    first = next(batches)
    say({"bytes": sum(np.asarray(values).nbytes for values in first.values())})
    # A copy each: a side may give the same memory again.
    say(counted([Halves(*map(np.copy, halves(next(batches)))) for _ in range(COUNTED)], text))
    for line in sys.stdin:
        count = int(line)
        wall, cpu = at_rest()
        for _ in range(count):
            next(batches)  # let go at once, as in training
        rested, rested_cpu = at_rest()
        say({"cpu": rested_cpu - cpu, "wall": rested - wall, "memory_mb": memory_mb()})


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print is no answer

    def say(what: Any) -> None:
        print(json.dumps(what), file=answers)

    given = json.loads(sys.argv[1])
    side, task, count, state = (given.pop(key, None) for key in ("side", "task", "count", "state"))

    from sides import SIDES, ImpossibleError, Spec

    root = pathlib.Path(given.pop("root"))
    saved = pickle.loads(pathlib.Path(state).read_bytes()) if state else None
    try:
        stream = SIDES[side][0](Spec(root, **given, state=saved))
        if task == "play":
            play(stream.batches, Text(root), say)
        elif task == "once":
            text = Text(root)
            say(sum(int(text.of(half).sum()) for batch in stream.batches for half in halves(batch)))
        elif task == "mixed":
            text = Text(root)
            say([of_first_corpus(halves(batch), text) for batch, _ in zip(stream.batches, range(count))])
        elif not stream.state:
            raise ImpossibleError("it has no state")
        else:
            for number, batch in zip(range(count), stream.batches):
                of_rows = digests(halves(batch))
                path = root / f"state_{os.getpid()}_{number}"
                path.write_bytes(pickle.dumps(stream.state()))
                say([str(path), of_rows])
    except ImpossibleError as reason:
        say(f"no way: {reason}")
    answers.close()
    os._exit(0)  # without the threads of others


if __name__ == "__main__":
    main()
