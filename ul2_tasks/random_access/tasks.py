"""Which of a mixture's tasks each target token is of: `task_id`, an index into the tasks in the order of their names."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from ul2_tasks.random_access.kinds import Task
from ul2_tasks.scalars import is_finite


@dataclasses.dataclass(frozen=True)
class TaskInfo:
    """A task of a mixture, which is a denoiser that reads a corpus.

    Attributes:
        task: its name.
        denoiser: the name of its denoiser; "" where it has none, as prompt-completion pairs.
        corpus: the name of its corpus; "" where it has none, as the texts that a collator gets.
    """

    task: str
    denoiser: str
    corpus: str


def tasks_of(members: Sequence[Task]) -> tuple[TaskInfo, ...]:
    """The tasks of members, each once, in the order of their names. Stages of a schedule have the same task several times."""
    by_name = {member.task: TaskInfo(member.task, member.denoiser, member.corpus.name) for member in members}
    return tuple(by_name[name] for name in sorted(by_name))


def task_ids(members: Sequence[Task]) -> list[int]:
    """The index of each member's task among `tasks_of` them."""
    numbers = {info.task: number for number, info in enumerate(tasks_of(members))}
    return [numbers[member.task] for member in members]


def task_weights(tasks: Sequence[TaskInfo], loss_weights: Mapping[str, float]) -> list[float]:
    """The weight of each task: the product of the weights of its name, its denoiser and its corpus; a name without one has 1.

    >>> tasks = [TaskInfo("web_s", "s", "web_corpus"), TaskInfo("web_x1", "x1", "web_corpus"), TaskInfo("own_s", "s", "own_corpus")]
    >>> task_weights(tasks, {"s": 0.5, "own_corpus": 3})
    [0.5, 1.0, 1.5]

    Raises:
        ValueError: a name is unknown, or a weight is not a number of at least 0, or all are 0.
    """
    return label_weights([sorted({info.task, info.denoiser, info.corpus} - {""}) for info in tasks], loss_weights)


def label_weights(groups: Sequence[Sequence[str]], loss_weights: Mapping[str, float]) -> list[float]:
    """The weight of each kind of label, whose groups are given by their names: the product of their weights, which else are 1.

    Raises:
        ValueError: see `task_weights`.
    """
    names = {name for of_kind in groups for name in of_kind}
    for name, weight in loss_weights.items():
        if name not in names:
            raise ValueError(f"loss_weights must have names of groups, {sorted(names)}, got {name!r}.")
        if not is_finite(weight) or weight < 0:
            raise ValueError(f"loss_weights must be numbers of at least 0, got {weight!r} for {name!r}.")
    weights = [math.prod(float(loss_weights.get(name, 1)) for name in of_kind) for of_kind in groups]
    if not any(weights):
        raise ValueError(f"loss_weights must have a weight above 0, got {dict(loss_weights)}.")
    return weights


def products(tasks: Sequence[TaskInfo], loss_weights: Mapping[str, float]) -> list[float]:
    """The same, of weights that were checked, of which some may be of other tasks."""
    names = ({info.task, info.denoiser, info.corpus} - {""} for info in tasks)
    return [math.prod(float(loss_weights.get(name, 1)) for name in sorted(of_task)) for of_task in names]
