"""Groups of labels, each with a loss of its own: an integer for each label says which groups it is in.

    feature   the integer of a label                        its groups
    task_id   its task, a denoiser that reads a corpus      the denoiser; of several corpora also the corpus and the task
    span_id   its loss group in a conversation, 0 for none  "reasoning", 1; "answer", 2; "other", from 3 on; of these "text", 4

An optimizer step has C[k] labels of the integer k, in all microbatches and processes. With weights its loss is one of two means:

    mean="all"    sum(w * loss) / sum(w)                w of a label is the product of its groups' weights
    mean="each"   sum over groups of weight * mean      a mean over the labels of the group; one without labels has no part

Both are sums of v[k] * loss over the labels, and v depends on the counts of the step alone. So the counts come first, and then each
part of the step adds its own sum. With a mean in a microbatch or a process, a label would have another weight in each of them.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from ul2_tasks.example_features import SPAN_ID, TASK_ID, TEXT
from ul2_tasks.random_access.tasks import TaskInfo
from ul2_tasks.scalars import is_finite

_OTHERS = (("other", "text") if span_id == TEXT else ("other",) for span_id in range(3, 256))
_OF_SPANS: tuple[tuple[str, ...], ...] = ((), ("reasoning",), ("answer",), *_OTHERS)


@dataclasses.dataclass(frozen=True)
class TokenGroups:
    """The groups of labels, and their weights in the loss; see `of_tasks` and `of_chat`.

    Attributes:
        feature: of a batch, the integer of each label, "task_id" or "span_id".
        names: for each integer from 0 on, the names of its groups. A label of -1, or of an integer without names, has no loss.
        loss_weights: of groups, by name; None where the loss is the model's own, and mean is "all".
        mean: "all" or "each", see the beginning of this file.

    >>> groups = TokenGroups.of_chat({"reasoning": 1.0, "answer": 0.5, "other": 2.0})
    >>> groups.parts(np.bincount([1, 2, 2, 7], minlength=257))[[1, 2, 7]]  # weight / count
    array([1.  , 0.25, 2.  ])
    """

    feature: str
    names: tuple[tuple[str, ...], ...]
    loss_weights: Mapping[str, float] | None = None
    mean: Literal["all", "each"] = "all"

    @classmethod
    def of_tasks(
        cls, tasks: Sequence[TaskInfo], loss_weights: Mapping[str, float] | None = None, mean: Literal["all", "each"] = "all"
    ) -> TokenGroups:
        """The denoisers of a mixture, and where it has several corpora each corpus and each task, too.

        Args:
            tasks: those of a dataset, of `examples`, or of a collator, such as `dataset.tasks`.
            loss_weights: of groups, by name; with mean="all" a name without one has 1. None for the model's own loss.
            mean: "all" or "each", see the beginning of the file.

        Raises:
            ValueError: there are no tasks; a name is unknown; a weight is not a number of at least 0, or none is above 0; or with
                mean="each" a label has no group with a weight.

        >>> TokenGroups.of_tasks([TaskInfo("web_r1", "r1", "web"), TaskInfo("web_s", "s", "web")]).names
        (('r1',), ('s',))
        >>> TokenGroups.of_tasks([TaskInfo("web_r1", "r1", "web"), TaskInfo("code_r1", "r1", "code")]).names
        (('r1', 'web', 'web_r1'), ('r1', 'code', 'code_r1'))
        """
        if not tasks:
            raise ValueError("tasks must be those of a dataset or a collator, got none. Pass dataset.tasks or collator.tasks.")
        return cls(TASK_ID, _names(tasks, len({info.corpus for info in tasks}) > 1), loss_weights, mean)._checked()

    @classmethod
    def of_chat(cls, loss_weights: Mapping[str, float] | None = None, mean: Literal["all", "each"] = "each") -> TokenGroups:
        """Reasoning, answers, and what is other in conversations; of the latter also the text that is mixed in.

        Args:
            loss_weights: such as {"reasoning": 1.0, "answer": 2.0, "other": 1.0}; None for the model's own loss.
            mean: "all" or "each", see the beginning of the file.

        Raises:
            ValueError: see `of_tasks`.
        """
        return cls(SPAN_ID, _OF_SPANS, loss_weights, mean)._checked()

    def with_tasks(self, tasks: Sequence[TaskInfo]) -> TokenGroups:
        """The same of other tasks, as an evaluation has them, with the weights of those that are there."""
        names = _names(tasks, any(len(of_label) > 1 for of_label in self.names))
        there = {*itertools.chain(*names)}
        weights = None if self.loss_weights is None else {name: each for name, each in self.loss_weights.items() if name in there}
        return dataclasses.replace(self, names=names, loss_weights=weights)

    def members(self) -> dict[str, np.ndarray]:
        """Which integers are in each group, [integers + 1] bool; the last is -1, which is in none."""
        every = dict.fromkeys(itertools.chain(*self.names))
        return {name: np.array([*(name in names for names in self.names), False]) for name in every}

    def label_weights(self) -> np.ndarray:
        """The product of the weights of each integer's groups, [integers + 1]; 1 for -1."""
        weights = self.loss_weights or {}
        return np.array([*(math.prod(weights.get(name, 1.0) for name in names) for names in self.names), 1.0])

    def parts(self, counts: Any, array: Callable[[Any], Any] = np.asarray) -> Any:
        """v: what the loss of a label of each integer is multiplied by in the loss of a step, [integers + 1].

        Args:
            counts: how many labels of each integer the step has, [integers + 1], in NumPy, PyTorch or JAX.
            array: makes an array of that package.
        """
        if self.mean == "all":
            weights = array(self.label_weights())
            total = (weights * counts).sum()
            return weights / (total + (total == 0))
        members, given = self.members(), self.loss_weights or {}
        of_groups = array(np.array([members[name] for name in given], np.float64))
        of_each = of_groups @ (counts + array(np.zeros(len(self.names) + 1)))
        return (array(np.array([*given.values()], np.float64)) / (of_each + (of_each == 0))) @ of_groups

    def _checked(self) -> TokenGroups:
        weights, names = self.loss_weights, sorted({*itertools.chain(*self.names)})
        if self.mean not in ("all", "each"):
            raise ValueError(f"mean must be 'all' or 'each', got {self.mean!r}.")
        for name, weight in (weights or {}).items():
            if name not in names:
                raise ValueError(f"loss_weights must have names of groups, {names}, got {name!r}.")
            if not is_finite(weight) or weight < 0:
                raise ValueError(f"loss_weights must be numbers of at least 0, got {weight!r} for {name!r}.")
        if weights is None:
            return dataclasses.replace(self, mean="all")
        if self.mean == "each" and (missing := [names for names in self.names if names and not weights.keys() & {*names}]):
            raise ValueError(
                f"loss_weights must name a group of each label with mean='each', got {dict(weights)}. Add one of"
                f" {sorted({*itertools.chain(*missing)})}."
            )
        if not any(self.label_weights()[[*map(bool, self.names), False]]):
            raise ValueError(f"loss_weights must have a weight above 0, got {dict(weights)}.")
        return self


def _names(tasks: Sequence[TaskInfo], several: bool) -> tuple[tuple[str, ...], ...]:
    if not several:
        return tuple((info.denoiser or info.task,) for info in tasks)
    return tuple(tuple(dict.fromkeys(filter(None, (info.denoiser, info.corpus, info.task)))) for info in tasks)
