"""What may stand for a description: itself, or a name. SeqIO's registries have more names, see `tasks.names`."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from ul2_tasks.mixtures.chat import Chat
from ul2_tasks.mixtures.description import Description
from ul2_tasks.mixtures.mixture import Mixture


@functools.singledispatch
def as_description(mixture: object) -> Description:
    """The description that is meant. Raises a ValueError for what is none."""
    raise ValueError(
        f"mixture must be a Mixture, a Mix, a Chat, an ImageText, or the name of a registered mixture, got {mixture!r:.100}."
        " Register others, and read them with get_dataset."
    )


@as_description.register
def _(mixture: Description) -> Description:
    return mixture


@as_description.register
def _(mixture: str) -> Description:
    for built_in in (Mixture(), Chat()):
        if mixture in (f"{built_in.name}_mix", built_in.name):
            return built_in
        if mixture in built_in.tasks:
            return built_in.tasks[mixture]
    raise ValueError(f"mixture must be registered in this process, got {mixture!r}. Import seqio, and register it first.")


@functools.singledispatch
def cache_dirs_of(mixture: object) -> Sequence[str]:
    """The folders that have the caches of what is registered under a name; of a description nobody but its user knows them."""
    return ()
