"""A worker of this benchmark: one side of one case at one length, in a process of its own.

    python worker.py '{"case": .., "side": .., "length": ..}'

It answers each line of its standard input, a round {"batches": .., "bytes": ..}, with a line of JSON: by variant what was
measured and counted in these batches, and the peak memory of the process until then. The side `memcpy` copies that many bytes, in
so many pieces, and needs no TensorFlow.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np

QUIET_SECONDS = 0.15
POLL_SECONDS = 0.01
POLL_CPU_SECONDS = 0.001  # a thread at work takes most of a poll, looking at the clock far less


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print is no answer
    spec = json.loads(sys.argv[1])
    play = memcpy if spec["side"] == "memcpy" else rounds(**spec)
    print(json.dumps({"ready_mb": peak_mb()}), file=answers)
    for line in sys.stdin:
        variants = play(**json.loads(line))
        print(json.dumps({"variants": variants, "peak_mb": peak_mb()}), file=answers)


def rounds(case: str, side: str, length: int) -> Callable[..., dict[str, dict]]:
    from speed import streams  # which imports TensorFlow

    variants = streams.streams(case, side, length)
    kept: dict[str, list] = {variant: [] for variant in variants}
    documents = streams.in_memory() if case == "denoiser" else None

    def play(batches: int, bytes: int) -> dict[str, dict]:
        results = {}
        for variant, stream in variants.items():
            figures, kept[variant] = timed(stream, batches, kept[variant])
            counted = streams.count(kept[variant], case, side, length)
            if documents is not None:
                streams.check_epoch(counted, side, documents)
            results[variant] = {**figures, **counted}
        return results

    return play


def timed(stream: Callable, batches: int, before: list) -> tuple[dict[str, float], list]:
    """The seconds that so many batches take, and copies of them, to be counted off the clock.

    The clocks run from rest to rest: tf.data's threads fill their buffers ahead of what is asked for, and that work belongs
    to the round whose examples it replaces. A batch is let go at once, as in training: to hold all of them takes new memory, which
    costs more than some sides' work. What the copies cost is left out.

    Args:
        stream: see `streams`.
        batches: how many.
        before: the copies of the round before, in whose memory these are put.
    """
    iterator = stream(batches)
    _, cpu = at_rest()
    wall = time.perf_counter()
    kept, copying, copying_wall = [], 0.0, 0.0
    for batch, old in zip(iterator, itertools.chain(before, itertools.repeat({}))):
        own, now = time.thread_time(), time.perf_counter()
        kept.append({key: copied(values, old.get(key)) for key, values in batch.items()})
        copying += time.thread_time() - own
        copying_wall += time.perf_counter() - now
    all_there = time.perf_counter()
    rested, rested_cpu = at_rest()
    walls = {"wall": rested - wall - copying_wall, "wall_until_all_there": all_there - wall - copying_wall}
    return {"cpu": rested_cpu - cpu - copying, **walls}, kept


def copied(values: Any, old: Any) -> Any:
    """A copy, in the memory of an old one of the same shape; ragged values themselves."""
    if not hasattr(values, "__array__"):
        return values
    array = np.asarray(values)
    if getattr(old, "shape", None) != array.shape:
        return array.copy()
    np.copyto(old, array)
    return old


def at_rest() -> tuple[float, float]:
    """Waits until this process does nothing; returns the wall clock and its CPU time when it came to that."""
    last = time.perf_counter(), time.process_time()
    before = last[1]
    while time.perf_counter() - last[0] < QUIET_SECONDS:
        time.sleep(POLL_SECONDS)
        cpu = time.process_time()
        if cpu - before > POLL_CPU_SECONDS:
            last = time.perf_counter(), cpu
        before = cpu
    return last


def memcpy(batches: int, bytes: int) -> dict[str, dict]:
    source, copy = (np.ones(max(1, bytes // batches), np.uint8) for _ in range(2))
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(batches):
        np.copyto(copy, source)
    return {"": {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall, "bytes": bytes}}


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
