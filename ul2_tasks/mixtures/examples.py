"""`examples`: a mixture as a sequence, as it is described or as it is registered."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ul2_tasks.corpus.identity import reads
from ul2_tasks.example_features import token_features
from ul2_tasks.mixtures.chat import Chat
from ul2_tasks.mixtures.image_text import ImageText
from ul2_tasks.mixtures.mix import Mix
from ul2_tasks.mixtures.mixture import Mixture, documents_in
from ul2_tasks.random_access.batches import features_of, members_of
from ul2_tasks.random_access.exclude import Documents, leave_out
from ul2_tasks.random_access.fingerprint import fingerprint
from ul2_tasks.random_access.numbering import MemberSchedule, Numbering, kinds_in, number_examples
from ul2_tasks.random_access.sequence import Examples
from ul2_tasks.random_access.windows import Corpora
from ul2_tasks.scalars import as_python, check_flag, is_integer

_LENGTHS = {"inputs": 512, "targets": 512}


def examples(
    mixture: Mixture | Mix | Chat | ImageText | str,
    sequence_length: Mapping[str, int],
    *,
    split: str = "train",
    seed: int = 0,
    shuffle: bool = True,
    pack: bool = False,
    cache_dirs: Sequence[str | os.PathLike] = (),
    exclude: Documents | None = None,
    skip: Sequence[tuple[int, int]] = (),
    batch_size: int | None = None,
    task_id: bool = False,
) -> Examples:
    """Returns the examples of a mixture, or its packed sequences, as a map-style dataset with random access.

    They are the examples that `get_dataset` reads from a cache or from memory, in the same order.

    Args:
        mixture: a `Mixture`, a `Mix` of several, a `Chat` or an `ImageText`; or the name of a mixture that `register` or `mix`
            returned, or of one of its tasks.
        sequence_length: {"inputs": int, "targets": int}, the lengths in tokens. Of a `Chat` they make replies, and {"tokens": int}
            makes chats.
        split: the split of the corpora.
        seed: an integer; another one gives another order and other masks.
        shuffle: whether examples come in a pseudo-random permutation of all of an epoch; else in the order of the corpus.
        pack: whether the elements are packed sequences, as `EncDecFeatureConverter(pack=True)` makes them.
        cache_dirs: of a description, the folders that `ul2 cache` or its `cache` wrote into. What is registered has its cache in
            SeqIO's cache directories (`seqio.add_global_cache_dirs`).
        exclude: documents that no element has tokens of: the path of a list (docs/guides/leave_out.md), or its entries, such as
            [{"id": "77f2"}]. An example that would have such tokens has others in their place; all else stays the same.
        skip: pairs of steps (first, stop), ascending, whose elements are never read. Step `first` reads those of step `stop`. Each
            pair counts steps with the earlier pairs already skipped.
        batch_size: how many elements a step has; needed with `skip`.
        task_id: whether each element has `task_id`, too, [targets] int32, of chats [tokens], which of the mixture's tasks each is
            of, an index into the `tasks` of the result.

    Raises:
        ValueError: the seed is not an integer; the mixture does not exist, or SeqIO made it; it has a task that is not a task of
            ul2_tasks; a corpus has no cache and is too large to be read into memory; a length is too short; a list has an error; or
            it leaves out all of a corpus.

    >>> import ul2_tasks
    >>> found = ul2_tasks.examples(ul2_tasks.Mixture(), {"inputs": 512, "targets": 512})
    >>> found[3]["inputs"].tolist() == ul2_tasks.examples("ul2_mix", {"inputs": 512, "targets": 512})[3]["inputs"].tolist()
    True
    """
    check_flag(task_id, "task_id")
    named = _named(mixture, sequence_length, split, seed, cache_dirs, None)
    found = number_examples(named.schedule, kinds_in(split, documents_in(split)), named.order_seed, shuffle)
    whole = _examples(named, found, shuffle, pack, task_id)
    size = named.schedule.batch_size
    if size and batch_size not in (None, size):
        raise ValueError(f"batch_size must be that of the schedule, {size}, got {batch_size!r}. Leave it out.")
    return leave_out(whole, exclude, skip, size if batch_size is None else batch_size)


def open_examples(
    mixture: Mixture | Mix | Chat | ImageText | str,
    sequence_length: Mapping[str, int] | None,
    *,
    split: str,
    seed: int,
    shuffle: bool,
    pack: bool,
    use_cached: bool,
    cache_dirs: Sequence[str | os.PathLike],
) -> tuple[Examples, Corpora | None]:
    """As `examples`; where a corpus is read in windows, of its beginning, and the corpora, which have the whole stream.

    What is registered is read from its cache with `use_cached`.
    """
    named = _named(mixture, sequence_length, split, seed, cache_dirs, use_cached)
    corpora = Corpora(named.schedule, split, named.use_cached, named.order_seed, bool(shuffle))
    windows = corpora if corpora.in_windows else None
    return _examples(named, corpora.numbering, shuffle, pack, windows=windows), windows


class _Named(NamedTuple):
    """A mixture's name, its tasks, the seed of its order, and whether its cache is read, None where that is if there is one; and
    the arguments."""

    name: str
    schedule: MemberSchedule
    order_seed: int
    use_cached: bool | None
    sequence_length: Mapping[str, int]
    split: str
    seed: int


def _named(
    mixture: Mixture | Mix | Chat | ImageText | str,
    sequence_length: Mapping[str, int] | None,
    split: str,
    seed: int,
    cache_dirs: Sequence[str | os.PathLike],
    use_cached: bool | None,
) -> _Named:
    if not is_integer(seed, at_least=-(1 << 63)):
        raise ValueError(f"seed must be an integer, because it decides the examples, got {seed!r}.")
    if not isinstance(mixture, Mixture | Mix | Chat | ImageText | str):
        raise ValueError(
            f"mixture must be a Mixture, a Mix, a Chat, an ImageText, or the name of a registered mixture, got {mixture!r:.100}."
            " Register others, and read them with get_dataset."
        )
    if not isinstance(sequence_length, Mapping):
        raise ValueError(f"sequence_length must be lengths in tokens by feature, got {sequence_length!r}. Give such as {_LENGTHS}.")
    if isinstance(mixture, str):
        if cache_dirs:
            raise ValueError(
                f"cache_dirs must be left out for what is registered, got {cache_dirs!r}. Name the folder with"
                " seqio.add_global_cache_dirs."
            )
        found = _registered(mixture, sequence_length, int(seed))
        return _Named(mixture, *found, use_cached, sequence_length, split, int(seed))
    name, schedule = mixture.registered_name(sequence_length), mixture.schedule_of(sequence_length, cache_dirs)
    return _Named(name, schedule, int(seed), None, sequence_length, split, int(seed))


def _examples(
    named: _Named,
    numbering: Numbering,
    shuffle: bool,
    pack: bool,
    task_id: bool = False,
    windows: Corpora | None = None,
) -> Examples:
    """The examples of a numbering, or packed rows of them. Those of `windows` are of the beginning."""
    of_tokens = token_features(features_of(members_of(numbering)))
    budgets = {key: as_python(named.sequence_length.get(key)) for key in of_tokens}
    numbering = numbering.in_rows(budgets) if pack else numbering
    if not windows:
        numbering.warn_of_unread()
    members = list({member.task: member for stage in named.schedule.stages for member in stage.members}.values())
    corpora = {member.corpus.name: member.corpus for member in members}
    is_cached = named.use_cached is not False
    folders = {  # as they are now
        key: corpus.cache_dir if is_cached and not corpus.is_tokens else None for key, corpus in corpora.items()
    }

    @functools.cache
    def describe() -> dict[str, object]:
        told = fingerprint(
            named.name,
            members,
            numbering,
            named.sequence_length,
            rates={member.task: member.rate for member in members},
            cache_dirs=folders,
            split=named.split,
            shuffle=bool(shuffle),
            seed=named.seed,
            schedule=named.schedule,
        )
        if windows:
            told["windows"] = {key: reads(corpora[key].source, named.split) for key in windows.in_windows}
            told["window"] = list(windows.window)
        return told | {"use_cached": any(folders.values())}

    return Examples(numbering, budgets, describe, task_id=task_id)


def _registered(name: str, sequence_length: Mapping[str, int], seed: int) -> tuple[MemberSchedule, int]:
    """The tasks of what is registered with SeqIO, and the seed of its order."""
    import seqio

    from ul2_tasks.tasks.chat import ChatMixture
    from ul2_tasks.tasks.providers import (
        DenoisingMixture,
        indexed_members,
        is_ours,
        order_seed,
        planned_members_of,
    )

    if name not in (registered := {*seqio.MixtureRegistry.names(), *seqio.TaskRegistry.names()}):
        raise ValueError(
            f"mixture must be registered in this process, got {name!r}, and {sorted(registered)} are. Register it first."
        )
    provider = seqio.get_mixture_or_task(name)
    tasks = list(seqio.get_subtasks(provider))
    if others := [task.name for task in tasks if not is_ours(task)]:
        raise ValueError(
            f"mixture must have tasks of ul2_tasks alone, got {name!r} with {others}, which SeqIO makes. Read it with get_dataset."
        )
    if isinstance(provider, seqio.Mixture) and not isinstance(provider, DenoisingMixture | ChatMixture):
        raise ValueError(
            f"mixture must be one of ul2_tasks, got {name!r} of SeqIO, which chooses its tasks as it reads and so has no random"
            " access. Mix the same with ul2_tasks.mix, or read it with get_dataset."
        )
    rates = [provider.get_rate(task) if isinstance(provider, seqio.Mixture) else 1.0 for task in tasks]
    members = indexed_members(tasks, rates, sequence_length)
    return planned_members_of(provider, members), order_seed(provider, seed)
