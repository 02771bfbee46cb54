"""`examples`: a mixture as a sequence, as it is described or as it is registered."""

from __future__ import annotations

import dataclasses
import functools
import os
import types
import zlib
from collections.abc import Mapping, Sequence

from ul2_tasks.cached import cached_property
from ul2_tasks.corpus.identity import reads
from ul2_tasks.example_features import token_features
from ul2_tasks.mixtures.description import Description, corpus_in, folders
from ul2_tasks.mixtures.mixture import documents_in
from ul2_tasks.mixtures.names import as_description, cache_dirs_of
from ul2_tasks.order.permutation import keyed
from ul2_tasks.random_access.batches import features_of, members_of
from ul2_tasks.random_access.exclude import Documents, leave_out
from ul2_tasks.random_access.fingerprint import fingerprint
from ul2_tasks.random_access.kinds import Task
from ul2_tasks.random_access.numbering import MemberSchedule, Numbering, kinds_in, number_examples
from ul2_tasks.random_access.sequence import Examples
from ul2_tasks.random_access.windows import Corpora
from ul2_tasks.scalars import as_python, check_flag, is_integer

_LENGTHS = {"inputs": 512, "targets": 512}


def examples(
    mixture: Description | str,
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
            makes chats. A schedule whose stages have lengths takes those of one of them, and any for another split than "train".
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
    reading = _reading(mixture, sequence_length, split, seed, shuffle, use_cached=None, cache_dirs=cache_dirs)
    found = number_examples(reading.schedule, kinds_in(split, documents_in(split)), reading.order_seed, bool(shuffle))
    whole = _examples(reading, found, pack, task_id)
    steps = reading.schedule.steps
    if steps and batch_size not in (None, steps.size(0)):
        raise ValueError(f"batch_size must be that of the schedule, {steps.size(0)}, got {batch_size!r}. Leave it out.")
    return leave_out(whole, exclude, skip, steps or batch_size)


def open_examples(
    mixture: Description | str,
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
    cached = use_cached if isinstance(mixture, str) else None
    reading = _reading(mixture, sequence_length, split, seed, shuffle, use_cached=cached, cache_dirs=cache_dirs)
    corpora = reading.corpora()
    windows = corpora if corpora.in_windows else None
    return _examples(reading, corpora.numbering, pack, windows=windows), windows


@dataclasses.dataclass(frozen=True)
class Reading:
    """Which examples of a description are read, and in which order.

    `name` is what it is registered under, or one of its tasks. Where `use_cached` is None, a cache is read if there is one, in one
    of these folders.
    """

    description: Description
    name: str
    sequence_length: Mapping[str, int]
    split: str
    seed: int
    shuffle: bool
    use_cached: bool | None
    cache_dirs: Sequence[str | os.PathLike]

    @cached_property
    def schedule(self) -> MemberSchedule:
        """The tasks of each stage."""
        return self.description.schedule_of(self.sequence_length, self.cache_dirs, is_run=self.split == "train")

    @property
    def members(self) -> list[Task]:
        """All tasks."""
        return list({member.task: member for stage in self.schedule.stages for member in stage.members}.values())

    @property
    def order_seed(self) -> int:
        """The seed of the order: another one for each task alone, so that a stock mixture of them reads different orders."""
        salt = self.description.salt(self.name)
        return self.seed if salt is None else keyed(self.seed, zlib.crc32(salt.encode()))

    def corpora(self) -> Corpora:
        """The corpora, in windows where they are large."""
        return Corpora(self.schedule, self.split, self.use_cached, self.order_seed, self.shuffle)

    def fingerprint(
        self,
        numbering: Numbering,
        windows: Corpora | None,
        seed: int | str,
        rates: Mapping[str, float] | None = None,
        others: Mapping[str, str] = types.MappingProxyType({}),
    ) -> dict[str, object]:
        """What must be the same for a number to be the same example; see `random_access.fingerprint`."""
        corpora = {member.corpus.name: member.corpus for member in self.members}
        read = {
            key: corpus.cache_dir if self.use_cached is not False and not corpus.is_tokens else None
            for key, corpus in corpora.items()
        }
        told = fingerprint(
            self.name,
            self.members,
            numbering,
            self.sequence_length,
            rates=rates or {member.task: member.rate for member in self.members},
            cache_dirs=read,
            split=self.split,
            shuffle=self.shuffle,
            seed=seed,
            others=others,
            schedule=self.schedule,
        )
        if windows:  # the numbering is of the beginnings alone
            told["windows"] = {key: reads(corpora[key].source, self.split) for key in windows.in_windows}
            told["window"] = list(windows.window)
        return told | {"use_cached": any(read.values())}


def _reading(
    mixture: Description | str,
    sequence_length: Mapping[str, int] | None,
    split: str,
    seed: int,
    shuffle: bool,
    *,
    use_cached: bool | None,
    cache_dirs: Sequence[str | os.PathLike],
) -> Reading:
    if not is_integer(seed, at_least=-(1 << 63)):
        raise ValueError(f"seed must be an integer, because it decides the examples, got {seed!r}.")
    description = as_description(mixture)
    if not isinstance(sequence_length, Mapping):
        raise ValueError(f"sequence_length must be lengths in tokens by feature, got {sequence_length!r}. Give such as {_LENGTHS}.")
    name = description.registered_name(sequence_length)
    if isinstance(mixture, str):
        if cache_dirs:
            raise ValueError(
                f"cache_dirs must be left out for what is registered, got {cache_dirs!r}. Name the folder with"
                " seqio.add_global_cache_dirs."
            )
        name = mixture if mixture in description.tasks else name
    for leaf in description.leaves if cache_dirs else ():
        corpus_in(leaf, cache_dirs)
    found = (*folders(cache_dirs), *cache_dirs_of(mixture))
    return Reading(description, name, sequence_length, split, int(seed), bool(shuffle), use_cached, found)


def _examples(
    reading: Reading, numbering: Numbering, pack: bool, task_id: bool = False, windows: Corpora | None = None
) -> Examples:
    """The examples of a numbering, or packed rows of them. Those of `windows` are of the beginning."""
    of_tokens = token_features(features_of(members_of(numbering)))
    asked = reading.schedule.stages[0].lengths or reading.sequence_length
    budgets = {key: as_python(asked.get(key)) for key in of_tokens}
    numbering = numbering.in_rows(budgets) if pack else numbering
    if not windows:
        numbering.warn_of_unread()
    describe = functools.cache(functools.partial(reading.fingerprint, numbering, windows, reading.seed))
    return Examples(numbering, budgets, describe, task_id=task_id)
