"""A trainer of t5x that measures how long it waits for data.

It imports t5x, so only gin files that need it import this module.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
from t5x import metrics as t5x_metrics
from t5x import trainer

Batch = Mapping[str, jax.Array]
WAITING = "timing/data_loading_fraction"


class Waiting:
    """Counts the seconds in which no step was running because its batch was not there.

    t5x asks for a batch, starts a step, and does not wait until the step is done. So the time in which it asks says little: the
    step before may be running. What counts begins when that step is done, and ends when the batch is there.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "done with a step")
        self._done: Future[float] = self._pool.submit(time.monotonic)
        self._seconds = 0.0

    def around(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """The same batches, one at a time."""
        while True:
            asked = time.monotonic()
            try:
                batch = next(batches)
            except StopIteration:
                return
            if self._done.done():
                self._seconds += time.monotonic() - max(asked, self._done.result())
            yield batch

    def started(self, result: Any) -> None:
        """A step was started, which is done when this is there."""

        def done() -> float:
            jax.block_until_ready(result)
            return time.monotonic()

        self._done = self._pool.submit(done)

    def taken(self) -> np.float32:
        """The seconds since it was asked before."""
        seconds, self._seconds = self._seconds, 0.0
        return np.float32(seconds)

    def close(self) -> None:
        """Ends its thread."""
        self._pool.shutdown()


class WaitingTrainer(trainer.Trainer):
    """`t5x.trainer.Trainer` with the metric `timing/data_loading_fraction`.

    It is the fraction of the time of training in which no step was running because the next batch was not there, on the first host,
    which writes the metrics.
    """

    def __init__(self, *, learning_rate_fn: trainer.LearningRateCallable, num_microbatches: int | None = None, **keywords: Any):
        """
        Args:
            learning_rate_fn, num_microbatches, keywords: see `t5x.trainer.Trainer`.
        """
        super().__init__(learning_rate_fn=learning_rate_fn, num_microbatches=num_microbatches, **keywords)
        self._compiled_train_step: trainer.PartitionedTrainCallable | None = None
        self._waiting = Waiting()

    def compile_train(self, batch: Batch) -> None:
        """See `t5x.trainer.Trainer`."""
        super().compile_train(batch)
        compiled = self._compiled_train_step
        assert compiled is not None, "it was compiled just now"

        def step(train_state: Any, batch: Batch) -> tuple[Any, dict[str, Any]]:
            train_state, metrics = compiled(train_state, batch)
            self._waiting.started(metrics)
            return train_state, {**metrics, WAITING: t5x_metrics.TimeRate(numerator=self._waiting.taken())}

        self._compiled_train_step = step

    def train(self, batch_iter: Iterator[Batch], num_steps: int, start_step: int | None = None) -> trainer.ArrayMapFuture:
        """See `t5x.trainer.Trainer`."""
        return super().train(self._waiting.around(batch_iter), num_steps, start_step)

    def close(self) -> None:
        """See `t5x.trainer.Trainer`."""
        super().close()
        self._waiting.close()
