"""t5x with the loss of each denoiser and corpus. Imports t5x, so only gin files that need it import this module.

Each token that is trained on is of a task of the mixture, which is a denoiser that reads a corpus. `decoder_task_ids` of a batch
says which, so the losses of all tasks come from the forward pass that a step makes anyway. Tasks may also have weights in the loss:

    L = N * sum(w * l) / sum(w)

l is the loss of a token and w the weight of its task. Both sums are over the N tokens of the global batch, of all microbatches,
devices and processes. So weights change which tokens count, and not how large the loss is. With equal weights L is t5x's own sum.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import seqio
from t5x import losses, models, trainer
from t5x import metrics as t5x_metrics

from ul2_tasks.converters.t5x import PrefixLMTaskIdFeatureConverter, TaskIdFeatureConverter
from ul2_tasks.random_access.tasks import TaskInfo, task_weights
from ul2_tasks.t5x_training import Batch, Mean, WaitingTrainer, base_metrics, partitioned_train_step, token_losses
from ul2_tasks.tasks.providers import is_ours

TASK_WEIGHTS = "decoder_task_weights"  # of each target, its weight in L; where a batch lacks it, all are 1


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
    denoisers = [getattr(getattr(task, "denoiser", None), "name", "") for task in tasks]
    found = [TaskInfo(task.name, denoiser, task.corpus.name) for task, denoiser in zip(tasks, denoisers)]
    return tuple(sorted(found, key=lambda info: info.task))


def groups_of(tasks: Sequence[TaskInfo]) -> dict[str, list[int]]:
    """What has a loss of its own, by name, and the indices of its tasks: each task; and of several corpora each, and each denoiser.

    >>> groups_of([TaskInfo("code_r1", "r1", "code"), TaskInfo("web_r1", "r1", "web"), TaskInfo("web_s", "s", "web")])
    {'code_r1': [0], 'web_r1': [1], 'web_s': [2], 'code': [0], 'web': [1, 2], 'r1': [0, 1], 's': [2]}
    """
    names = [info.task for info in tasks]
    if len({info.corpus for info in tasks}) > 1:
        names += [info.corpus for info in tasks] + [info.denoiser for info in tasks if info.denoiser]
    return {name: [at for at, info in enumerate(tasks) if name in (info.task, info.denoiser, info.corpus)] for name in names}


def token_weights(task_ids: jax.Array, weights: jax.Array) -> jax.Array:
    """The weight of each token's loss in L, N * w / sum(w).

    `task_ids` is [B, L], of the global batch, -1 where a token is not trained on, and `weights` [tasks]. The result is [B, L]
    float32, and 0 where a token is not trained on. All are 0 where that is all that the weights leave.
    """
    is_trained = task_ids >= 0
    of_each = jnp.where(is_trained, weights[task_ids], 0)
    total = jnp.sum(of_each)
    return of_each * jnp.where(total > 0, jnp.sum(is_trained) / total, 0)


class _TaskLosses(models.BaseTransformerModel):
    """What a model of t5x needs for the metrics of each task of a mixture."""

    CONVERTER: ClassVar[Callable[..., seqio.FeatureConverter]]

    def __init__(
        self,
        *arguments: Any,
        mixture: str,
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
        loss_normalizing_factor: float | str | losses.SpecialLossNormalizingFactor | None = None,
        **keywords: Any,
    ):
        """
        Args:
            mixture: the name of the mixture that is trained on.
            arguments, label_smoothing, z_loss, loss_normalizing_factor, keywords: see the model of t5x; but no
                `feature_converter_cls`, which is given.

        Raises:
            ValueError: the mixture has tasks that are not of ul2_tasks.
        """
        self.tasks = tasks_of(mixture)
        super().__init__(
            *arguments,
            feature_converter_cls=functools.partial(self.CONVERTER, tuple(info.task for info in self.tasks)),
            label_smoothing=label_smoothing,
            z_loss=z_loss,
            loss_normalizing_factor=loss_normalizing_factor,
            **keywords,
        )
        self._settings = {"label_smoothing": label_smoothing, "z_loss": z_loss}
        self._factor = loss_normalizing_factor

    def loss_fn(self, params: Any, batch: Batch, dropout_rng: jax.Array | None) -> tuple[jax.Array, dict[str, Any]]:
        """The loss of t5x's own model, or L where `TaskLossTrainer` has weights, and its metrics.

        Each task, and of several corpora each corpus and each denoiser, has `loss/NAME` and `accuracy/NAME`, means over its tokens,
        and `tokens/NAME`, their number per step. They know no weights; the metrics of t5x named `loss` are of L.
        """
        logits = self._compute_logits(params, batch, dropout_rng)
        targets, task_ids = batch["decoder_target_tokens"], batch["decoder_task_ids"]
        factor, weights = losses.get_loss_normalizing_factor_and_weights(self._factor, batch)
        each_loss, each_z_loss = token_losses(logits, targets, **self._settings)
        in_loss = weights * batch[TASK_WEIGHTS] if TASK_WEIGHTS in batch else weights
        loss, z_loss = (jnp.sum(each * in_loss if factor is None else each * in_loss / factor) for each in (each_loss, each_z_loss))
        metrics = base_metrics(batch, logits, weights, loss, z_loss)

        is_of = task_ids == jnp.arange(len(self.tasks))[:, None, None]  # [tasks, B, L]
        values = {"loss": each_loss, "accuracy": jnp.argmax(logits, axis=-1) == targets, "tokens": jnp.ones_like(task_ids)}
        sums = {name: jnp.sum(jnp.where(is_of, value, 0), axis=(1, 2)) for name, value in values.items()}
        for group, numbers in groups_of(self.tasks).items():
            of_group = {name: jnp.sum(of_each[jnp.array(numbers)]) for name, of_each in sums.items()}
            for name in ("loss", "accuracy"):
                metrics[f"{name}/{group}"] = Mean(total=of_group[name], count=of_group["tokens"])
            metrics[f"tokens/{group}"] = t5x_metrics.AveragePerStep(total=of_group["tokens"])
        return loss, metrics


class TaskLossEncoderDecoderModel(_TaskLosses, models.EncoderDecoderModel):
    """`t5x.models.EncoderDecoderModel` with the metrics of each task of a mixture."""

    CONVERTER = TaskIdFeatureConverter


class TaskLossDecoderOnlyModel(_TaskLosses, models.DecoderOnlyModel):
    """`t5x.models.DecoderOnlyModel` with the metrics of each task of a mixture, as a prefix LM with a loss on the targets."""

    CONVERTER = PrefixLMTaskIdFeatureConverter


class TaskLossTrainer(WaitingTrainer):
    """`t5x_training.WaitingTrainer` with weights of tasks in the loss, for any number of microbatches, devices and processes."""

    def __init__(
        self,
        *,
        model: models.BaseTransformerModel,
        learning_rate_fn: trainer.LearningRateCallable,
        num_microbatches: int | None = None,
        loss_weights: Mapping[str, float] = MappingProxyType({}),
        **keywords: Any,
    ):
        """
        Args:
            loss_weights: weights of tasks, denoisers or corpora in L, by name; a task's is the product of those that name it, and
                else 1. Evaluations have no weights.
            model: one of this module.
            learning_rate_fn, num_microbatches, keywords: see `t5x.trainer.Trainer`.

        Raises:
            ValueError: the model is another one; or a weight has no such name, is negative, or leaves nothing.
        """
        if not isinstance(model, _TaskLosses):
            raise ValueError(
                "model must be a TaskLossEncoderDecoderModel or TaskLossDecoderOnlyModel of ul2_tasks.t5x_task_loss, got"
                f" {type(model).__name__}. Pass gin/loss_by_task.gin after the model's file."
            )
        keywords = {"model": model, "learning_rate_fn": learning_rate_fn, "num_microbatches": num_microbatches, **keywords}
        super().__init__(**keywords)
        weights = task_weights(model.tasks, loss_weights)
        self._weighted_train_step = None
        if len(set(weights)) > 1:
            of_tasks = jnp.array(weights, jnp.float32)

            def weighted(batch: Batch) -> Batch:
                return {**batch, TASK_WEIGHTS: token_weights(batch["decoder_task_ids"], of_tasks)}

            self._weighted_train_step = partitioned_train_step(weighted, **keywords)

    @property
    def _partitioned_train_step(self) -> trainer.PartitionedTrainCallable:
        return self._weighted_train_step or super()._partitioned_train_step
