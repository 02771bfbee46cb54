"""Which of a mixture's tasks each target token is of: `task_id`, an index into the tasks in the order of their names."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ul2_tasks.random_access.corpora import Member
from ul2_tasks.random_access.records import RecordMember


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


def tasks_of(members: Sequence[Member | RecordMember]) -> tuple[TaskInfo, ...]:
    """The tasks of members, each once, in the order of their names. Stages of a schedule have the same task several times."""
    by_name = {member.task: TaskInfo(member.task, member.denoiser, member.corpus.name) for member in members}
    return tuple(by_name[name] for name in sorted(by_name))


def task_ids(members: Sequence[Member | RecordMember]) -> list[int]:
    """The index of each member's task among `tasks_of` them."""
    names = [info.task for info in tasks_of(members)]
    return [names.index(member.task) for member in members]
