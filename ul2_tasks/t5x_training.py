"""What the models and trainers of t5x in this package share, and a trainer that measures how long it waits for data.

It imports t5x, so only gin files that need it import this module.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import flax
import jax
import jax.numpy as jnp
import numpy as np
from clu import metrics as clu_metrics
from t5x import losses, models, partitioning, trainer
from t5x import metrics as t5x_metrics

Batch = Mapping[str, jax.Array]
WAITING = "timing/data_loading_fraction"


@flax.struct.dataclass
class Mean(clu_metrics.Average):
    """A mean, which is 0 of nothing."""

    def compute(self) -> jax.Array:
        return self.total / jnp.maximum(self.count, 1)


def token_losses(
    logits: jax.Array, targets: jax.Array, label_smoothing: float = 0.0, z_loss: float = 0.0
) -> tuple[jax.Array, jax.Array]:
    """The loss of each token as t5x has it, and the part of it that is z-loss, [B, L] each."""

    def of_one(logits: jax.Array, target: jax.Array) -> tuple[jax.Array, jax.Array]:
        loss, of_z, _ = losses.compute_weighted_cross_entropy(logits, target, label_smoothing=label_smoothing, z_loss=z_loss)
        return loss, of_z

    return jax.vmap(jax.vmap(of_one))(logits, targets)


def base_metrics(batch: Batch, logits: jax.Array, mask: jax.Array, loss: jax.Array, z_loss: jax.Array) -> dict[str, Any]:
    """The metrics that t5x's own models have; `loss` and `z_loss` are sums over the tokens of `mask`, [B, L]."""
    packed = {key.removesuffix("_segment_ids"): ids for key, ids in batch.items() if key.endswith("_segment_ids")}
    padded = {key: ids != 0 for key, ids in batch.items() if key in ("encoder_input_tokens", "decoder_target_tokens")}
    metrics: dict[str, Any] = models.compute_base_metrics(
        logits=logits,
        targets=batch["decoder_target_tokens"],
        mask=mask,
        loss=loss,
        z_loss=z_loss,
        segment_ids=packed or padded,
    )
    return metrics


def partitioned_train_step(
    prepared: Callable[[Batch], Batch],
    *,
    model: models.BaseTransformerModel,
    partitioner: partitioning.BasePartitioner,
    train_state_axes: Any,
    rng: jax.Array,
    learning_rate_fn: trainer.LearningRateCallable,
    num_microbatches: int | None,
    weight_metrics_computer: trainer.WeightMetricsComputer | None = None,
    **others: Any,
) -> trainer.PartitionedTrainCallable:
    """The training step of `t5x.trainer.Trainer` of these arguments, with a batch that is prepared before it is split."""

    def train_step(train_state: Any, batch: Batch) -> tuple[Any, Any]:
        return trainer.train_with_lr(
            train_state,
            prepared(batch),
            learning_rate=learning_rate_fn(train_state.step),
            dropout_rng=jax.random.fold_in(rng, train_state.step),
            model=model,
            num_microbatches=num_microbatches,
            weight_metrics_computer=weight_metrics_computer,
            data_partition_spec=partitioner.data_partition_spec,
        )

    return partitioner.partition(
        train_step,
        in_axis_resources=(train_state_axes, partitioner.data_partition_spec),
        out_axis_resources=(train_state_axes, None),
        donate_argnums=(0,),
    )


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
