"""Which of a mixture's tasks each target token is of: `task_id`, an index into the tasks in the order of their names."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ul2_tasks.random_access.kinds import Task


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
