"""A trainer of t5x that writes down what it is fed, for gin files of tests."""

import hashlib
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from ul2_tasks.t5x.training import Batch, WaitingTrainer


class LoggingTrainer(WaitingTrainer):
    """Appends a line for each step to batches-PROCESS.jsonl of the run's folder, with the SHA-256 of each row of this process."""

    def __init__(self, *, summary_dir: str, **keywords: Any):
        super().__init__(summary_dir=summary_dir, **keywords)
        self._path = pathlib.Path(summary_dir, f"batches-{jax.process_index()}.jsonl")

    def train(self, batch_iter: Iterator[Batch], num_steps: int, start_step: int) -> Any:
        return super().train(self._logged(batch_iter, start_step), num_steps, start_step)

    def _logged(self, batches: Iterator[Batch], first: int) -> Iterator[Batch]:
        for step, batch in enumerate(batches, first):
            with self._path.open("a") as log:
                log.write(json.dumps({"step": step, "hosts": jax.process_count(), "rows": digests(batch)}) + "\n")
            yield batch


def digests(batch: Batch) -> list[str]:
    """Of each row on this process's one device, all features with their names and types."""
    parts = {key: np.asarray(value.addressable_shards[0].data) for key, value in sorted(batch.items())}
    rows = range(len(next(iter(parts.values()))))
    contents = ("".join(f"{key} {part.dtype} {part[row].tolist()} " for key, part in parts.items()) for row in rows)
    return [hashlib.sha256(content.encode()).hexdigest() for content in contents]
