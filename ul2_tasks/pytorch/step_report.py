"""What Megatron's log shows of each group of labels in a step: its mean loss, how many labels it has, and its weight in the loss.

A loss function of Megatron returns a dictionary of pairs. They are summed over microbatches and data-parallel processes, and the
first number divided by the second is logged. So each entry here is a pair whose sums have the right quotient:

    loss_NAME    [sum of losses, labels]
    tokens_NAME  [labels, part of the step]
    weight_NAME  [labels, each with its weight; what the loss divides them by]

    loss of the step = sum of weight_NAME * loss_NAME over the groups
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ul2_tasks.pytorch.group_loss import EQUAL, LossGroupWeights, group_counts, group_sums
from ul2_tasks.pytorch.task_loss import groups_of, task_sums
from ul2_tasks.random_access.tasks import TaskInfo, task_weights

try:
    import torch
except ImportError as error:
    raise ImportError(f"ul2_tasks.pytorch.step_report needs the package torch ({error}); pip install 'ul2_tasks[torch]'") from error

_NONE = 1e-12  # labels, of a group without any: Megatron divides by it


def group_report(
    losses: torch.Tensor, span_id: torch.Tensor, counts: torch.Tensor, weights: LossGroupWeights = EQUAL, *, parts: int
) -> dict[str, torch.Tensor]:
    """Returns the loss, the tokens and the weight of each loss group, as a loss function of Megatron reports them.

    Args:
        losses, span_id, counts, weights: those of `group_loss`.
        parts: into how many parts the step is split: microbatches times data-parallel processes.

    Returns:
        loss_NAME, tokens_NAME and weight_NAME of reasoning, answer and other, [2] float32 each. Their first numbers, divided by
        their second ones, both summed over the parts, are the values of the step; its `group_loss` is the sum of weight times loss.

    >>> losses, span_id = torch.tensor([1.0, 2.0, 4.0, 8.0]), torch.tensor([1, 2, 2, 0])
    >>> report = group_report(losses, span_id, torch.tensor([1.0, 4.0, 1.0]), LossGroupWeights(answer=0.5), parts=1)
    >>> {name: (first / second).item() for name, (first, second) in report.items() if "answer" in name}
    {'loss_answer': 3.0, 'tokens_answer': 2.0, 'weight_answer': 0.25}
    """
    sums, found = group_sums(losses.detach().flatten(), span_id.flatten()), group_counts(span_id)
    weighted = found * found.new_tensor(weights)
    return _entries(LossGroupWeights._fields, sums, found, weighted, counts.to(found).clamp(min=1) / parts, parts)


def task_report(
    losses: torch.Tensor,
    task_id: torch.Tensor,
    tasks: Sequence[TaskInfo],
    loss_weights: Mapping[str, float] | None = None,
    *,
    parts: int,
) -> dict[str, torch.Tensor]:
    """Returns the loss, the targets and the weight of each denoiser, as a loss function of Megatron reports them.

    Args:
        losses: [.., tokens], of each label.
        task_id: [.., tokens] integers, the task of each label, -1 where there is none.
        tasks: of the dataset or the collator that makes the batches.
        loss_weights: the weight of the losses of tasks, by name, as for `TaskLosses`.
        parts: see `group_report`.

    Returns:
        loss, and loss_NAME, tokens_NAME and weight_NAME of each denoiser, see `group_report`; of several corpora also those of each
        corpus and each task. The weighted mean over all targets of the step is the sum of weight times loss over the denoisers.
    """
    task_id = task_id.flatten()[None]
    sums, counts = task_sums(losses.detach().flatten()[None], task_id, len(tasks))[0].float().T
    weighted = counts * counts.new_tensor(task_weights(tasks, loss_weights or {}))
    groups = groups_of(tasks)
    of_groups = [torch.stack([values[groups[name]].sum() for name in groups]) for values in (sums, counts, weighted)]
    found = _entries(groups, of_groups[0], of_groups[1], of_groups[2], weighted.sum().expand(len(groups)), parts)
    return {name.rstrip("_"): pair for name, pair in found.items() if name not in ("tokens_", "weight_")}


def _entries(
    names: Iterable[str], sums: torch.Tensor, counts: torch.Tensor, weighted: torch.Tensor, totals: torch.Tensor, parts: int
) -> dict[str, torch.Tensor]:
    """The pairs of each name. All others are [names]."""
    pairs = {
        "loss": (sums.float(), counts.clamp(min=_NONE)),
        "tokens": (counts, torch.full_like(counts, 1 / parts)),
        "weight": (weighted, totals.clamp(min=_NONE)),
    }
    return {f"{what}_{name}": pair for what, both in pairs.items() for name, pair in zip(names, torch.stack(both, 1))}
