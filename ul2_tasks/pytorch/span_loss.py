"""The loss of conversations: a mean for reasoning and a mean for the answer, weighed.

    L = w_reasoning * mean(losses where span_id is 1) + w_answer * mean(losses where it is 2) + w_other * mean(the others above 0)

The means are over all tokens of an optimizer's step. A mean within a microbatch, a device or a process would weigh a token by how
many of its span happen to be beside it. So the counts of the step come first, and each part of it adds its sums, divided by them.
"""

from __future__ import annotations

from typing import NamedTuple

try:
    import torch
except ImportError as error:
    raise ImportError(f"ul2_tasks.pytorch.span_loss needs the package torch ({error}); pip install 'ul2_tasks[torch]'") from error


class SpanWeights(NamedTuple):
    """The weight of each span in the loss.

    Attributes:
        reasoning: of `span_id` 1.
        answer: of `span_id` 2.
        other: of any above, which have one mean together.
    """

    reasoning: float = 1.0
    answer: float = 1.0
    other: float = 1.0


EQUAL = SpanWeights()


def span_sums(values: torch.Tensor, span_id: torch.Tensor) -> torch.Tensor:
    """The sum of values of each span, in the order of `SpanWeights`. Values where `span_id` is 0 are not looked at.

    Args:
        values: [.., tokens], such as losses.
        span_id: [.., tokens], integers.

    Returns:
        [.., 3], of the values' dtype.

    >>> span_sums(torch.tensor([1.0, 2.0, 4.0, float("nan")]), torch.tensor([1, 2, 2, 0]))
    tensor([1., 6., 0.])
    """
    # One after the other, as three at once would need three times the memory.
    return torch.stack([torch.where(of_span, values, 0).sum(-1) for of_span in _by_span(span_id)], -1)


def span_counts(span_id: torch.Tensor) -> torch.Tensor:
    """How many tokens each span has, in the order of `SpanWeights`.

    Args:
        span_id: integers of any shape, shifted as labels are.

    Returns:
        [3] float32: sums over processes and microbatches are counts as well.

    >>> span_counts(torch.tensor([[0, 1, 2], [2, 2, 7]]))
    tensor([1., 3., 1.])
    """
    return torch.stack([of_span.sum() for of_span in _by_span(span_id)]).float()


def span_loss(losses: torch.Tensor, span_id: torch.Tensor, counts: torch.Tensor, weights: SpanWeights = EQUAL) -> torch.Tensor:
    """What some tokens add to the loss of a step. The sum over all parts of the step is its loss, however it is divided.

    Args:
        losses: [.., tokens], of each token.
        span_id: [.., tokens], of the same tokens: shifted as labels are.
        counts: [3], how many tokens of each span the whole step has, in all microbatches and processes (`span_counts`); or fixed
            ones, such as their mean over the corpus.
        weights: of the spans.

    Returns:
        A number with a gradient. A span without a token adds 0.

    >>> losses, span_id = torch.tensor([1.0, 2.0, 4.0, 8.0]), torch.tensor([1, 2, 2, 0])
    >>> span_loss(losses, span_id, span_counts(span_id))
    tensor(4.)
    """
    means = span_sums(losses, span_id) / counts.clamp(min=1)
    return (means * means.new_tensor(weights)).sum()


def _by_span(span_id: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return span_id == 1, span_id == 2, span_id > 2
