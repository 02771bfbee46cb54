"""The loss of conversations: a weighted sum of a mean for reasoning, one for answers, and one for all other tokens.

    L = w_reasoning * mean(losses where span_id is 1) + w_answer * mean(losses where it is 2) + w_other * mean(the others above 0)

The means are over all tokens of an optimizer step. With a mean within a microbatch, a device or a process, the weight of a token
would depend on how the batch is split. So the counts of the step come first, and each part of it adds its sums, divided by them.
"""

from __future__ import annotations

from typing import NamedTuple

try:
    import torch
except ImportError as error:
    raise ImportError(f"ul2_tasks.pytorch.group_loss needs the package torch ({error}); pip install 'ul2_tasks[torch]'") from error


class LossGroupWeights(NamedTuple):
    """The weight of each loss group in the loss.

    Attributes:
        reasoning: of `span_id` 1.
        answer: of `span_id` 2.
        other: of all groups above 2, which have one mean together.
    """

    reasoning: float = 1.0
    answer: float = 1.0
    other: float = 1.0


EQUAL = LossGroupWeights()


def group_sums(values: torch.Tensor, span_id: torch.Tensor) -> torch.Tensor:
    """Returns the sum of values of each loss group, in the order of `LossGroupWeights`. Ignores values where `span_id` is 0.

    Args:
        values: [.., tokens], such as losses.
        span_id: [.., tokens], integers.

    Returns:
        [.., 3], of the values' dtype.

    >>> group_sums(torch.tensor([1.0, 2.0, 4.0, float("nan")]), torch.tensor([1, 2, 2, 0]))
    tensor([1., 6., 0.])
    """
    # One after the other, as three at once would need three times the memory.
    return torch.stack([torch.where(of_group, values, 0).sum(-1) for of_group in _by_group(span_id)], -1)


def group_counts(span_id: torch.Tensor) -> torch.Tensor:
    """Returns the number of tokens of each loss group, in the order of `LossGroupWeights`.

    Args:
        span_id: integers of any shape, shifted as labels are.

    Returns:
        [3] float32. Sum them over processes and microbatches for the counts of a step.

    >>> group_counts(torch.tensor([[0, 1, 2], [2, 2, 7]]))
    tensor([1., 3., 1.])
    """
    return torch.stack([of_group.sum() for of_group in _by_group(span_id)]).float()


def group_loss(
    losses: torch.Tensor, span_id: torch.Tensor, counts: torch.Tensor, weights: LossGroupWeights = EQUAL
) -> torch.Tensor:
    """Returns the part of some tokens in the loss of a step. The sum of all parts is the loss, however the step is split.

    Args:
        losses: [.., tokens], of each token.
        span_id: [.., tokens], of the same tokens: shifted as labels are.
        counts: [3], the tokens of each loss group in the step, in all microbatches and processes (`group_counts`); or fixed
            counts, such as their mean over the corpus.
        weights: of the loss groups.

    Returns:
        A number with a gradient. A loss group without a token adds 0.

    >>> losses, span_id = torch.tensor([1.0, 2.0, 4.0, 8.0]), torch.tensor([1, 2, 2, 0])
    >>> group_loss(losses, span_id, group_counts(span_id))
    tensor(4.)
    """
    means = group_sums(losses, span_id) / counts.clamp(min=1)
    return (means * means.new_tensor(weights)).sum()


def _by_group(span_id: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return span_id == 1, span_id == 2, span_id > 2
