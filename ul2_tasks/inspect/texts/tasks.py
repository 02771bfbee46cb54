"""The denoising tasks of a mixture that is registered or described, and the tasks beside them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from ul2_tasks.mixtures.mixture import DescribedTask, Mixture, described_tasks, name_of, with_denoisers

if TYPE_CHECKING:
    from ul2_tasks.tasks.providers import UL2Task


def tasks_of(mixture: str | Mixture, denoisers: Collection[str] | None = None) -> Sequence[DescribedTask | UL2Task]:
    """The denoising tasks, by name; with `denoisers` those that have these. Raises a ValueError where there is no such one."""
    if isinstance(mixture, Mixture):
        return with_denoisers(name_of(mixture), described_tasks(mixture), denoisers)
    from ul2_tasks.tasks.providers import denoising_tasks

    return denoising_tasks(mixture, denoisers)


def others_of(mixture: str | Mixture) -> list[str]:
    """The names of the tasks that are no denoising tasks; a description has none."""
    if isinstance(mixture, Mixture):
        return []
    from ul2_tasks.tasks.providers import other_tasks

    return [task.name for task in other_tasks(mixture)]
