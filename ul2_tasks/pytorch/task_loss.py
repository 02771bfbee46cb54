"""The loss of each task of a mixture, by denoiser and by corpus, from the forward pass that trains; and weights for these losses.

    L = sum(weight * loss) / sum(weight)        over the targets of an optimizer step, each with the weight of its task

A mean within a microbatch or a process would give a target another weight in each of them. So sums are kept, and divided last.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from ul2_tasks.example_features import IGNORED
from ul2_tasks.random_access.tasks import TaskInfo, task_weights

try:
    import torch
except ImportError as error:
    raise ImportError(f"ul2_tasks.pytorch.task_loss needs the package torch ({error}); pip install 'ul2_tasks[torch]'") from error


class TaskLosses:
    """The mean loss of each task over steps and processes, for a training loop of your own.

        losses = TaskLosses(dataset.tasks)  # of batches with task_id
        for step, batch in enumerate(loader, 1):
            task_id = batch.pop("task_id")
            outputs = model(**batch)
            losses.add(outputs.logits, batch["labels"], task_id)
            outputs.loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if step % 100 == 0:
                wandb.log(losses.means())

    Sums are on the device of the logits, and no step waits for them. `means` adds up those of all processes of
    `torch.distributed`, and resets them. To train with a weight for each task, call `loss` instead of `add`.
    """

    def __init__(
        self, tasks: Sequence[TaskInfo], loss_weights: Mapping[str, float] | None = None, *, decoder_only: bool = False
    ) -> None:
        """
        Args:
            tasks: those of the dataset or the collator that makes the batches.
            loss_weights: the weight of the losses of tasks in `loss`, by name, see `task_weights`.
            decoder_only: whether the model has no encoder, so that a token's logits predict the label of the next one.

        Raises:
            ValueError: there are no tasks; a name is unknown; or a weight is not a number of at least 0.
        """
        self.tasks, self._decoder_only = tuple(tasks), decoder_only
        if not self.tasks:
            raise ValueError("tasks must be those of a dataset or a collator, got none. Pass dataset.tasks or collator.tasks.")
        self._weights = torch.tensor(task_weights(self.tasks, loss_weights or {}))
        self._sums: torch.Tensor | None = None

    def add(self, logits: torch.Tensor, labels: torch.Tensor, task_id: torch.Tensor) -> None:
        """Adds the losses of a batch, without a gradient.

        Args:
            logits: [B, tokens, ids], of the model.
            labels: [B, tokens] integers, which are not shifted; -100 where there is no loss.
            task_id: [B, tokens] integers, the task of each label, -1 where that is -100.
        """
        with torch.no_grad():
            self.loss(logits, labels, task_id)

    def loss(
        self, logits: torch.Tensor, labels: torch.Tensor, task_id: torch.Tensor, total_weight: torch.Tensor | None = None
    ) -> torch.Tensor:
        """The part of a batch in the weighted loss of its step, with a gradient. Adds its losses, too.

        Args:
            logits, labels, task_id: see `add`.
            total_weight: the sum of `weight` over all batches of the step, of all microbatches and processes. None where the step
                has this batch alone.
        """
        if labels.shape != task_id.shape:
            shapes = f"{list(labels.shape)}, got {list(task_id.shape)}"
            raise ValueError(f"task_id must have the shape of labels, {shapes}. Pass both as they are in the batch.")
        losses = token_losses(logits, labels, decoder_only=self._decoder_only)
        task_id = shifted(task_id, self._decoder_only).to(losses.device)
        sums = task_sums(losses.detach(), task_id, len(self.tasks)).sum(0)
        self._sums = sums if self._sums is None else self._sums + sums
        weights = weights_of(task_id, self._weights)
        return (losses * weights).sum() / divisor(weights.sum() if total_weight is None else total_weight)

    def weight(self, task_id: torch.Tensor) -> torch.Tensor:
        """The sum of the weights of a batch's labels."""
        return weights_of(task_id, self._weights).sum()

    def means(self, name: str = "loss") -> dict[str, float]:
        """The mean losses since the last call: "loss" over all targets, and others, see `task_means`.

        With several processes call it in each of them; all get the same. It is empty where nothing was added.
        """
        sums = torch.zeros(len(self.tasks), 2, dtype=torch.float64) if self._sums is None else self._sums
        self._sums = None
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            # All processes need one kind of device, also those in which nothing was added, and NCCL has no CPU.
            if "cpu:" in torch.distributed.get_backend_config():
                sums = sums.cpu()
            elif sums.device.type == "cpu":
                sums = sums.cuda()
            torch.distributed.all_reduce(sums)
        return task_means(sums, self.tasks, name)


def token_losses(
    logits: torch.Tensor, labels: torch.Tensor, *, decoder_only: bool = False, label_smoothing: float = 0.0
) -> torch.Tensor:
    """The loss of each label, [B, tokens] float32, 0 where it is -100; of a decoder-only model [B, tokens - 1], from the second on.

    `logits` are [B, tokens, ids], and `labels` [B, tokens] integers, which are not shifted.
    """
    labels = shifted(labels, decoder_only).to(logits.device)
    loss_of = functools.partial(
        torch.nn.functional.cross_entropy, reduction="none", ignore_index=IGNORED, label_smoothing=label_smoothing
    )
    # Row by row, as all logits at once in float32 would need their memory once more.
    return torch.stack([loss_of(row[: labels.shape[1]].float(), own) for row, own in zip(logits, labels)])


def task_sums(losses: torch.Tensor, task_id: torch.Tensor, tasks: int) -> torch.Tensor:
    """The sum of the losses and the number of targets of each task, [B, tasks, 2].

    `losses` are [B, tokens], and so is `task_id`, -1 where a token is no target.

    >>> task_sums(torch.tensor([[1.0, 2.0, 4.0, 0.0]]), torch.tensor([[1, 0, 1, -1]]), 2).tolist()
    [[[2.0, 1.0], [5.0, 2.0]]]
    """
    # Sums and counts are of many steps, beyond the 24 bits of float32.
    dtype = torch.float32 if losses.device.type == "mps" else torch.float64  # which mps does not have
    values = torch.stack([losses, torch.ones_like(losses)], -1).to(dtype)
    # What is of no task is put beside them: to leave it out, a device would have to say how many others there are.
    first = torch.arange(len(losses), device=losses.device)[:, None] * (tasks + 1)
    made = values.new_zeros(len(losses) * (tasks + 1), 2)
    made.index_add_(0, (first + 1 + task_id).flatten(), values.flatten(0, 1))
    return made.view(len(losses), tasks + 1, 2)[:, 1:]


def task_means(sums: torch.Tensor, tasks: Sequence[TaskInfo], name: str = "loss") -> dict[str, float]:
    """The mean loss over all targets, and those of each denoiser. Of several corpora also those of each corpus and each task.

    A task without a denoiser has its own name. There is no mean where there are no targets.

    >>> tasks = [TaskInfo("web_s", "s", "web_corpus"), TaskInfo("web_x1", "x1", "web_corpus")]
    >>> task_means(torch.tensor([[6.0, 2.0], [4.0, 2.0]]), tasks)
    {'loss': 2.5, 'loss_s': 3.0, 'loss_x1': 2.0}
    """
    of_groups = {key: sums[of_group].sum(0).tolist() for key, of_group in groups_of(tasks).items()}
    return {f"{name}_{key}" if key else name: loss / count for key, (loss, count) in of_groups.items() if count}


def groups_of(tasks: Sequence[TaskInfo]) -> dict[str, list[int]]:
    """Which tasks each mean is of, by its name: all, ""; those of each denoiser; of several corpora also of each corpus and task.

    >>> groups_of([TaskInfo("web_s", "s", "web_corpus"), TaskInfo("web_x1", "x1", "web_corpus")])
    {'': [0, 1], 's': [0], 'x1': [1]}
    """
    several = len({info.corpus for info in tasks}) > 1
    found: dict[str, list[int]] = {}
    for number, info in enumerate(tasks):
        for key in {"", info.denoiser or info.task} | ({info.corpus, info.task} if several else set()):
            found.setdefault(key, []).append(number)
    return dict(sorted(found.items()))


def weights_of(task_id: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """The weight of each token by its task, 0 where it is no target. `weights` are those of the tasks."""
    return torch.where(task_id < 0, 0, weights.to(task_id.device)[task_id])


def divisor(total_weight: torch.Tensor) -> torch.Tensor:
    """What a sum of weighted losses is divided by: 1 where nothing has a weight, so that the loss is 0."""
    return torch.where(total_weight > 0, total_weight, 1)


def shifted(values: torch.Tensor, decoder_only: bool) -> torch.Tensor:
    """What is said of labels, [B, tokens], as the logits from the first on predict them."""
    return values[:, 1:] if decoder_only else values
