"""t5x with a loss for each group of tokens. Imports t5x, so only gin files that need it import this module.

A batch has an integer for each label, `decoder_task_ids` or `decoder_span_ids`, so the losses of all groups come from the forward
pass that a step makes anyway; see `token_groups`. Without weights L is t5x's own, the sum of the losses of all labels. With
mean="all" L is the weighted mean times the number of labels, and with mean="each" the weighted sum of the means. Sums, means and
counts are of the global batch, of all microbatches, devices and processes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import flax
import jax
import jax.numpy as jnp
import seqio
from clu import metrics as clu_metrics
from t5x import losses, models, partitioning, trainer
from t5x import metrics as t5x_metrics

from ul2_tasks.random_access.tasks import TaskInfo
from ul2_tasks.random_access.token_groups import TokenGroups
from ul2_tasks.t5x.training import Batch, WaitingTrainer
from ul2_tasks.tasks.converters import (
    ChatFeatureConverter,
    PrefixLMTaskIdFeatureConverter,
    PromptCompletionFeatureConverter,
    TaskIdFeatureConverter,
)
from ul2_tasks.tasks.providers import is_ours

PARTS = "decoder_parts_in_loss"  # of each label, what its loss is multiplied with in L


def vocabulary_of(task: str) -> seqio.Vocabulary:
    """The vocabulary of a task or mixture, so that gin files have one binding for data, model and embedding.

    Args:
        task: its name.
    """
    features = seqio.get_mixture_or_task(task).output_features
    return features["tokens" if "tokens" in features else "targets"].vocabulary


def tasks_of(mixture: str) -> tuple[TaskInfo, ...]:
    """The tasks of a mixture, in the order of their names.

    Args:
        mixture: its name, or that of a task.

    Raises:
        ValueError: some of them are not of ul2_tasks.
    """
    tasks = seqio.get_subtasks(seqio.get_mixture_or_task(mixture))
    if others := [task.name for task in tasks if not is_ours(task)]:
        raise ValueError(
            f"mixture must have tasks of ul2_tasks.register or register_chat alone, got {mixture!r} with {others}. Leave them out."
        )
    found = [TaskInfo(task.name, task.denoiser.name if task.denoiser else "", task.corpus.name) for task in tasks]
    return tuple(sorted(found, key=lambda info: info.task))


@flax.struct.dataclass
class Mean(clu_metrics.Average):
    """A mean, which is 0 of nothing."""

    def compute(self) -> jax.Array:
        return self.total / jnp.maximum(self.count, 1)


@flax.struct.dataclass
class SumOfMeans(clu_metrics.Metric):
    """L of `mean="each"` over all batches of an evaluation, as over one large batch."""

    means: tuple[Mean, ...]
    weights: tuple[float, ...]

    def merge(self, other: SumOfMeans) -> SumOfMeans:
        return self.replace(means=tuple(one.merge(more) for one, more in zip(self.means, other.means)))

    def compute(self) -> jax.Array:
        return jnp.sum(jnp.array([weight * mean.compute() for weight, mean in zip(self.weights, self.means)]))


class _GroupLosses(models.BaseTransformerModel):
    """What a model of t5x needs for a loss by groups, and for the metrics of each."""

    CONVERTERS: ClassVar[tuple[Callable[..., seqio.FeatureConverter], Callable[..., seqio.FeatureConverter]]]

    def __init__(
        self,
        *arguments: Any,
        mixture: str | None = None,
        loss_weights: Mapping[str, float] = MappingProxyType({}),
        mean: Literal["all", "each"] = "all",
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
        loss_normalizing_factor: float | str | losses.SpecialLossNormalizingFactor | None = None,
        **keywords: Any,
    ):
        """
        Args:
            mixture: the mixture that is trained on. Its denoisers are the groups, and of several corpora also each corpus and each
                task. None for conversations, whose groups are "reasoning", "answer" and "other", and of "other" the "text" that is
                mixed in.
            loss_weights: the weights of groups in L, by name. With `mean="all"` a group that is not named has 1.
            mean: "all" or "each", the formula of L, see `token_groups`.
            arguments, label_smoothing, z_loss, loss_normalizing_factor, keywords: see the model of t5x; but no
                `feature_converter_cls`, which is given.

        Raises:
            ValueError: the mixture has tasks that are not of ul2_tasks; a weight has another name, is negative, or all are 0;
                `mean` is another word; or with `mean="each"` a label has no named group, or there is a `loss_normalizing_factor`.
        """
        if mixture is None:
            self.groups, converter = TokenGroups.of_chat(loss_weights, mean), self.CONVERTERS[0]
        else:
            tasks = tasks_of(mixture)
            self.groups = TokenGroups.of_tasks(tasks, loss_weights, mean)
            converter = functools.partial(self.CONVERTERS[1], tuple(info.task for info in tasks))
        if mean == "each" and loss_normalizing_factor is not None:
            raise ValueError(f"loss_normalizing_factor must be None with mean='each', got {loss_normalizing_factor}. Leave it out.")
        super().__init__(
            *arguments,
            feature_converter_cls=converter,
            label_smoothing=label_smoothing,
            z_loss=z_loss,
            loss_normalizing_factor=loss_normalizing_factor,
            **keywords,
        )
        self._feature = f"decoder_{self.groups.feature}s"
        self._is_weighted = mean == "each" or len({*self.groups.label_weights()}) > 1
        self._of_means = dict(loss_weights) if mean == "each" else {}
        self._settings = {"label_smoothing": label_smoothing, "z_loss": z_loss}
        self._factor = loss_normalizing_factor

    def with_parts(self, batch: Batch) -> Batch:
        """The global batch with `PARTS`, [B, L] float32, where L has weights; all are 0 where the weights leave nothing."""
        if PARTS in batch or not self._is_weighted:
            return batch
        ids, is_label = batch[self._feature], batch["decoder_loss_weights"] > 0
        counts = jnp.zeros(len(self.groups.names) + 1).at[ids].add(is_label.astype(jnp.float32))  # the last is that of -1
        parts = self.groups.parts(counts, jnp.asarray)[ids] * is_label
        return {**batch, PARTS: parts * counts.sum() if self.groups.mean == "all" else parts}

    def loss_fn(self, params: Any, batch: Batch, dropout_rng: jax.Array | None) -> tuple[jax.Array, dict[str, Any]]:
        """L and its metrics.

        Each group has `loss/NAME` and `accuracy/NAME`, means over its tokens, and `tokens/NAME`, their number per step. The metrics
        know no weights, but `loss`, `z_loss` and `cross_ent_loss`, which are of L.
        """
        batch = self.with_parts(batch)
        logits = self._compute_logits(params, batch, dropout_rng)
        targets, ids = batch["decoder_target_tokens"], batch[self._feature]
        factor, weights = losses.get_loss_normalizing_factor_and_weights(self._factor, batch)
        each_loss, each_z_loss = token_losses(logits, targets, **self._settings)

        def sums(weights: jax.Array) -> tuple[jax.Array, jax.Array]:
            weighted = each_loss * weights, each_z_loss * weights
            loss, z_loss = (jnp.sum(each if factor is None else each / factor) for each in weighted)
            return loss, z_loss

        loss, z_loss = sums(weights)
        packed = {key.removesuffix("_segment_ids"): ids for key, ids in batch.items() if key.endswith("_segment_ids")}
        padded = {key: ids != 0 for key, ids in batch.items() if key in ("encoder_input_tokens", "decoder_target_tokens")}
        metrics: dict[str, Any] = models.compute_base_metrics(
            logits=logits, targets=targets, mask=weights, loss=loss, z_loss=z_loss, segment_ids=packed or padded
        )
        if PARTS in batch:
            loss, z_loss = sums(weights * batch[PARTS])
            for name, value in {"loss": loss, "z_loss": z_loss, "cross_ent_loss": loss - z_loss}.items():
                metrics[name] = t5x_metrics.AveragePerStep(total=value)

        is_right = jnp.argmax(logits, axis=-1) == targets
        for name, members in self.groups.members().items():
            is_in = jnp.asarray(members)[ids]
            tokens = jnp.sum(is_in)
            for key, value in (("loss", each_loss), ("accuracy", is_right)):
                metrics[f"{key}/{name}"] = Mean(total=jnp.sum(jnp.where(is_in, value, 0)), count=tokens)
            metrics[f"tokens/{name}"] = t5x_metrics.AveragePerStep(total=tokens)
        return loss, metrics

    def eval_fn(self, params: Any, batch: Batch) -> tuple[jax.Array, dict[str, Any]]:
        """The same, but with `mean="each"` the metric `loss` is L over all batches as over one large batch."""
        loss, metrics = self.loss_fn(params, batch, None)
        if self._of_means:
            means = tuple(metrics[f"loss/{name}"] for name in self._of_means)
            metrics["loss"] = SumOfMeans(means, tuple(self._of_means.values()))
        return loss, metrics


class GroupLossEncoderDecoderModel(_GroupLosses, models.EncoderDecoderModel):
    """`t5x.models.EncoderDecoderModel` with a loss by groups. Train it with a `GroupLossTrainer`."""

    CONVERTERS = PromptCompletionFeatureConverter, TaskIdFeatureConverter


class GroupLossDecoderOnlyModel(_GroupLosses, models.DecoderOnlyModel):
    """`t5x.models.DecoderOnlyModel` with a loss by groups. Train it with a `GroupLossTrainer`.

    With a mixture it is a prefix LM with a loss on the targets.
    """

    CONVERTERS = ChatFeatureConverter, PrefixLMTaskIdFeatureConverter


class GroupLossTrainer(WaitingTrainer):
    """`training.WaitingTrainer` for the models of this module. It computes the part of each label in L before a batch is split.

    t5x adds up the losses of microbatches. With its own trainer the means would be those of each microbatch.
    """

    def __init__(
        self,
        *,
        model: models.BaseTransformerModel,
        partitioner: partitioning.BasePartitioner,
        learning_rate_fn: trainer.LearningRateCallable,
        num_microbatches: int | None = None,
        **keywords: Any,
    ):
        """
        Args:
            model: one of this module.
            partitioner, learning_rate_fn, num_microbatches, keywords: see `t5x.trainer.Trainer`.

        Raises:
            ValueError: the model is not one of this module.
        """
        if not isinstance(model, _GroupLosses):
            raise ValueError(
                "model must be a GroupLossEncoderDecoderModel or GroupLossDecoderOnlyModel of ul2_tasks.t5x.losses, got"
                f" {type(model).__name__}. Pass gin/loss_by_task.gin after the model's file, or see gin/chat.gin."
            )
        keywords |= {"learning_rate_fn": learning_rate_fn, "num_microbatches": num_microbatches}
        super().__init__(model=model, partitioner=partitioner, **keywords)
        spec = partitioner.data_partition_spec
        self._with_parts = partitioner.partition(model.with_parts, in_axis_resources=spec, out_axis_resources=spec)

    def compile_train(self, batch: Batch) -> None:
        """See `t5x.trainer.Trainer`."""
        super().compile_train(self._with_parts(batch))

    def train(self, batch_iter: Iterator[Batch], num_steps: int, start_step: int | None = None) -> trainer.ArrayMapFuture:
        """See `t5x.trainer.Trainer`."""
        return super().train(map(self._with_parts, batch_iter), num_steps, start_step)


def token_losses(
    logits: jax.Array, targets: jax.Array, label_smoothing: float = 0.0, z_loss: float = 0.0
) -> tuple[jax.Array, jax.Array]:
    """The loss of each token as t5x has it, and the part of it that is z-loss, [B, L] each."""

    def of_one(logits: jax.Array, target: jax.Array) -> tuple[jax.Array, jax.Array]:
        loss, of_z, _ = losses.compute_weighted_cross_entropy(logits, target, label_smoothing=label_smoothing, z_loss=z_loss)
        return loss, of_z

    return jax.vmap(jax.vmap(of_one))(logits, targets)
