"""t5x on conversations: each loss group has its own mean loss. Imports t5x, so only gin files that need it import this module.

    L = reasoning * mean(loss over the reasoning) + answer * mean(loss over the answer) + other * mean(loss over all else)

The means are over the global batch, of all devices and processes. t5x sums the losses of microbatches, so with a mean within each
the weight of a token would depend on how the batch is split. Here the trainer weighs each token once, before the batch is split, by
the weight of its loss group over the group's number of tokens. Then sums are right, however the batch is split.

A loss group without a token in the batch has no loss, and no part in L.
"""

from __future__ import annotations

from typing import Any

import flax
import jax
import jax.numpy as jnp
import seqio
from clu import metrics as clu_metrics
from t5x import metrics as t5x_metrics
from t5x import models, trainer

from ul2_tasks.example_features import TEXT
from ul2_tasks.t5x_training import Batch, Mean, WaitingTrainer, base_metrics, partitioned_train_step, token_losses

LOSS_GROUPS = ("reasoning", "answer", "other")  # 1, 2, and from 3 on in `decoder_span_ids`; 0 is not trained on


def vocabulary_of(task: str) -> seqio.Vocabulary:
    """The vocabulary of a task or mixture, so that gin files have one binding for data, model and embedding.

    Args:
        task: its name.
    """
    features = seqio.get_mixture_or_task(task).output_features
    return features["tokens" if "tokens" in features else "targets"].vocabulary


def in_groups(span_ids: jax.Array) -> jax.Array:
    """Which of `LOSS_GROUPS` each token is in, [3, B, L] bool."""
    return jnp.stack([span_ids == 1, span_ids == 2, span_ids >= 3])


def token_weights(span_ids: jax.Array, weights: jax.Array) -> jax.Array:
    """The weight of each token's loss in L.

    `span_ids` is [B, L], of the global batch, and `weights` [3], of `LOSS_GROUPS`. The result is [B, L] float32: the weight of the
    token's loss group over the group's number of tokens; 0 where a token is not trained on.
    """
    is_in = in_groups(span_ids)
    each = weights / jnp.maximum(jnp.sum(is_in, axis=(1, 2)), 1)
    return jnp.einsum("s,sbl->bl", each, is_in)


@flax.struct.dataclass
class GroupLoss(clu_metrics.Metric):
    """L over all batches of an evaluation, as over one large batch."""

    weights: jax.Array
    totals: jax.Array
    counts: jax.Array

    def merge(self, other: GroupLoss) -> GroupLoss:
        return GroupLoss(self.weights, self.totals + other.totals, self.counts + other.counts)

    def compute(self) -> jax.Array:
        return jnp.sum(self.weights * self.totals / jnp.maximum(self.counts, 1))


class _GroupLosses(models.BaseTransformerModel):
    """What a model of t5x needs for a loss and metrics of each loss group."""

    def __init__(self, *arguments: Any, label_smoothing: float = 0.0, z_loss: float = 0.0, **keywords: Any):
        """Takes the arguments of the model of t5x, but no `loss_normalizing_factor`: each loss group has a mean already."""
        if (factor := keywords.get("loss_normalizing_factor")) is not None:
            raise ValueError(f"loss_normalizing_factor must be None, got {factor}: each loss group has a mean already.")
        super().__init__(*arguments, label_smoothing=label_smoothing, z_loss=z_loss, **keywords)
        self._settings = {"label_smoothing": label_smoothing, "z_loss": z_loss}

    def loss_fn(self, params: Any, batch: Batch, dropout_rng: jax.Array | None) -> tuple[jax.Array, dict[str, Any]]:
        """The loss, weighted as `decoder_loss_weights` says, and its metrics.

        Each loss group has `reasoning/loss`, `reasoning/accuracy`, `reasoning/tokens` per step, and `reasoning/weight`, its
        weight in L, which is 0 in a step without such tokens. So has `text`, the part of `other` that is not of conversations, in
        a mixture with denoisers. The metrics of t5x are of all tokens that are trained on, except
        `loss`, `z_loss` and `cross_ent_loss`, which are of L.
        """
        logits = self._compute_logits(params, batch, dropout_rng)
        targets, weights, span_ids = (batch[f"decoder_{key}"] for key in ("target_tokens", "loss_weights", "span_ids"))
        is_in = in_groups(span_ids)
        each_loss, each_z_loss = token_losses(logits, targets, **self._settings)
        loss, z_loss = jnp.sum(each_loss * weights), jnp.sum(each_z_loss * weights)

        mask = jnp.any(is_in, axis=0)
        metrics = base_metrics(batch, logits, mask, loss=jnp.sum(each_loss * mask), z_loss=jnp.sum(each_z_loss * mask))
        for name, value in {"loss": loss, "z_loss": z_loss, "cross_ent_loss": loss - z_loss}.items():
            metrics[name] = t5x_metrics.AveragePerStep(total=value)
        is_right = jnp.argmax(logits, axis=-1) == targets
        for group, mask in (*zip(LOSS_GROUPS, is_in), ("text", span_ids == TEXT)):
            tokens = jnp.sum(mask)
            metrics[f"{group}/loss"] = Mean(total=jnp.sum(each_loss * mask), count=tokens)
            metrics[f"{group}/accuracy"] = Mean(total=jnp.sum(is_right * mask), count=tokens)
            metrics[f"{group}/tokens"] = t5x_metrics.AveragePerStep(total=tokens)
            metrics[f"{group}/weight"] = t5x_metrics.AveragePerStep(total=jnp.sum(weights * mask))
        return loss, metrics


class LossGroupDecoderOnlyModel(_GroupLosses, models.DecoderOnlyModel):
    """`t5x.models.DecoderOnlyModel` with the metrics of each loss group. Takes the rows of `ChatFeatureConverter`."""


class LossGroupEncoderDecoderModel(_GroupLosses, models.EncoderDecoderModel):
    """`t5x.models.EncoderDecoderModel` with the metrics of each loss group.

    Takes the rows of `PromptCompletionFeatureConverter`.
    """


class LossGroupTrainer(WaitingTrainer):
    """`t5x_training.WaitingTrainer` with the loss L of this module, for any number of microbatches, devices and processes."""

    def __init__(
        self,
        *,
        model: models.BaseTransformerModel,
        learning_rate_fn: trainer.LearningRateCallable,
        num_microbatches: int | None = None,
        reasoning: float = 1.0,
        answer: float = 1.0,
        other: float = 1.0,
        **keywords: Any,
    ):
        """
        Args:
            reasoning, answer, other: the weights of the loss groups in L.
            model: one of this module.
            learning_rate_fn, num_microbatches, keywords: see `t5x.trainer.Trainer`.

        Raises:
            ValueError: the model is not one of this module.
        """
        if not isinstance(model, _GroupLosses):
            raise ValueError(
                "model must be a LossGroupDecoderOnlyModel or LossGroupEncoderDecoderModel of ul2_tasks.t5x_chat, got a"
                f" {type(model).__name__}. Bind train.model as gin/chat_prompt_completion.gin does."
            )
        keywords = {"model": model, "learning_rate_fn": learning_rate_fn, "num_microbatches": num_microbatches, **keywords}
        super().__init__(**keywords)
        weights = jnp.array([reasoning, answer, other], jnp.float32)

        def weighted(batch: Batch) -> Batch:
            return {**batch, "decoder_loss_weights": token_weights(batch["decoder_span_ids"], weights)}

        def eval_step(train_state: Any, batch: Batch) -> Any:
            metrics = trainer.eval_step(model, train_state, weighted(batch))
            means = [metrics[f"{group}/loss"] for group in LOSS_GROUPS]
            totals, counts = (jnp.stack([getattr(mean, key) for mean in means]) for key in ("total", "count"))
            return {**metrics, "loss": GroupLoss(weights, totals, counts)}

        self._group_train_step = partitioned_train_step(weighted, **keywords)
        partitioner = keywords["partitioner"]
        inputs = keywords["train_state_axes"], partitioner.data_partition_spec
        self._group_eval_step = partitioner.partition(eval_step, in_axis_resources=inputs, out_axis_resources=None)

    @property
    def _partitioned_train_step(self) -> trainer.PartitionedTrainCallable:
        return self._group_train_step

    @property
    def _partitioned_eval_step(self) -> trainer.PartitionedEvalCallable:
        return self._group_eval_step
