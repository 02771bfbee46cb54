"""What a run is fed: its examples by number, its steps, and the record that lies in its folder."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ul2_tasks.cached import cached_property
from ul2_tasks.corpus.corpus import Corpus
from ul2_tasks.files.systems import exists, place
from ul2_tasks.inspect.beginnings import first_examples
from ul2_tasks.jobs.manifest import differences, load_object
from ul2_tasks.mixtures.chat import Chat
from ul2_tasks.mixtures.examples import examples
from ul2_tasks.mixtures.mixture import Mixture
from ul2_tasks.mixtures.names import as_description
from ul2_tasks.order.steps import Steps
from ul2_tasks.random_access.exclude import Documents, leave_out, list_name
from ul2_tasks.random_access.fingerprint import NUMBERED_VERSION, steps_of
from ul2_tasks.random_access.numbering import NO_END, RUN_RECORD
from ul2_tasks.random_access.sequence import Examples
from ul2_tasks.store.read import TokenStore
from ul2_tasks.version import check_version

_SEARCHED = 1 << 20  # examples of a step of any size
_OF_RECORD = ("mixture", "sequence_length", "split", "seed", "shuffle", "pack", "batch_size", "first_step")


@dataclasses.dataclass(frozen=True)
class Run:
    """What decides which examples a run is fed, and when.

    Step n is the batch that takes the model from step n to n + 1.

    Attributes:
        mixture: the name of a registered mixture; or a description of one.
        sequence_length: {"inputs": int, "targets": int}, or {"tokens": int} of chats, the budgets in tokens.
        split, seed, shuffle: see `mixtures.examples.examples`.
        pack: whether several examples share a row. What is numbered is then the rows.
        batch_size: the examples, or rows, of a step on all hosts together; None where steps do not matter.
        first_step: the step that begins with example 0.
        cache_dirs: of a description, where its cache may be.
        exclude, skip: what is left out, see `mixtures.examples.examples`. Steps count as those of the model.
        is_beginning: whether of a corpus without a cache the first documents are read alone, to look at examples.
        earlier: the lists that were left out before, each with the element until which it was; None of none.
    """

    mixture: str | Mixture | Chat
    sequence_length: Mapping[str, int]
    split: str = "train"
    seed: int = 0
    shuffle: bool = True
    pack: bool = False
    batch_size: int | None = None
    first_step: int = 0
    cache_dirs: Sequence[str] = ()
    exclude: Documents | None = None
    skip: Sequence[tuple[int, int]] = ()
    is_beginning: bool = False
    earlier: Sequence[tuple[int, Documents | None]] = ()

    @property
    def name(self) -> str:
        """The name of the mixture."""
        return self.mixture if isinstance(self.mixture, str) else self.mixture.registered_name(self.sequence_length)

    @property
    def unit(self) -> str:
        """What is numbered."""
        return "row" if self.pack else "example"

    def examples(self) -> Examples:
        """The examples, or rows, of the first epoch; see `mixtures.examples.examples`, also for what is refused."""
        return self.parts[-1][2]

    def examples_at(self, number: int) -> Examples:
        """The same, as they were read at an element."""
        return next(found for _, stop, found in self.parts if number < stop)

    @cached_property
    def _whole(self) -> Examples:
        """All, before something is left out."""
        shared: dict[str, Any] = {key: getattr(self, key) for key in ("split", "seed", "cache_dirs", "shuffle", "pack")}
        return examples(self.mixture, self.sequence_length, **shared)

    @cached_property
    def parts(self) -> list[tuple[int, int, Examples]]:
        """What the run reads, with each list that was left out: its elements [first, stop), and the examples."""
        if self.is_beginning:
            shared: dict[str, Any] = {key: getattr(self, key) for key in ("split", "seed", "cache_dirs")}
            return [(0, NO_END, first_examples(self.mixture, self.sequence_length, **shared))]
        lists = [*self.earlier, (NO_END, self.exclude)]
        return [
            (first, stop, leave_out(self._whole, each, self.skip, self.steps, self.first_step))
            for first, (stop, each) in zip([0, *(stop for stop, _ in self.earlier)], lists)
        ]

    def numbers(self, step: int, host: tuple[int, int] = (0, 1)) -> range:
        """The numbers, over all epochs, of the examples or rows of a step; `host` is which host, and of how many.

        Without a batch size those of the first step are the first of all, more than anybody looks at.

        >>> run = Run("ul2_mix", {"inputs": 512, "targets": 512}, batch_size=8, first_step=100)
        >>> run.numbers(102), run.numbers(102, host=(1, 4))
        (range(16, 24), range(17, 24, 4))
        """
        if self.batch_size is None and step == self.first_step:
            return range(host[0], _SEARCHED, host[1])
        return numbers_of_step(step, self.steps, host, self.first_step)

    @cached_property
    def steps(self) -> Steps | None:
        """The elements of each step, counted from the first one; None where there is no batch size."""
        planned = None if self.is_beginning else getattr(as_description(self.mixture), "planned", None)
        if planned is None:
            return None if self.batch_size is None else Steps.of(self.batch_size)
        if self.batch_size not in (None, size := planned.in_steps.size(0)):
            raise ValueError(
                f"--batch_size must be that of the schedule of {self.name!r}, {size}, got {self.batch_size}. Leave it out, or"
                f" pass mix(.., batch_size={self.batch_size})."
            )
        return planned.in_steps

    def in_words(self, step: int, host: tuple[int, int] = (0, 1)) -> str:
        """Which examples, or rows, a step has; empty without a batch size."""
        if self.steps is None:
            return ""
        numbers = self.numbers(step)
        found = self.examples_at(numbers[0])
        first, last = (found.at(number)[0].number for number in (numbers[0], numbers[-1]))
        epochs = f"epoch {first}" if first == last else f"epochs {first} to {last}"
        index, hosts = host
        of_host = f"; host {index} of {hosts} has those whose number mod {hosts} is {index}" if hosts > 1 else ""
        return (
            f"step {step}, batch of {len(numbers):,}: {self.unit}s {numbers[0]} to {numbers[-1]}, in {epochs}"
            f" ({len(found):,} {self.unit}s an epoch){of_host}"
        )

    def step_of(self, number: int) -> int | None:
        """The step of an example or a row; None without a batch size."""
        return None if self.steps is None else self.first_step + self.steps.step(number)

    def check(self, record: Mapping[str, object], folder: str) -> None:
        """Raises a ValueError unless what is read now is what the record in a run's folder is of; says what differs."""
        now = json.loads(json.dumps(identities(self)))
        different = [words for key in now if key in record for words in differences(record[key], now[key], key)]
        if different:
            raise ValueError(
                f"the run in {folder} reads other data than what is registered here: {'; '.join(different)}. Register what it"
                " reads, and name the cache from which it reads."
            )


def numbers_of_step(step: int, steps: int | Steps | None, host: tuple[int, int] = (0, 1), first_step: int = 0) -> range:
    """The numbers of what a host reads at a step, over all epochs. `steps` may be one batch size.

    Raises a ValueError where there is no such step.
    """
    if steps is None:
        raise ValueError("a step needs a batch size, and there is none. Pass --batch_size, or --run with the folder of a run.")
    if step < first_step:
        raise ValueError(f"step must be at least {first_step}, with which the run began, got {step}.")
    steps = Steps.of(steps)
    first, batch_size = steps.element(step - first_step), steps.size(step - first_step)
    if first + batch_size > NO_END:
        raise ValueError(f"step must be below 2^60 divided by the batch size of {batch_size}, got {step}.")
    index, hosts = host
    if batch_size % hosts:
        raise ValueError(f"the number of hosts must divide the batch of {batch_size}, got {hosts}.")
    return range(first + index, first + batch_size, hosts)


def run_of(record: Mapping[str, Any], folder: str = "") -> Run:
    """The run that the record in a folder is of."""
    first_step, lists, steps = record["first_step"], record.get("exclude", []), steps_of(record)
    paths = [place(folder, list_name(each["list"])) for each in lists]
    if missing := [path for path in paths if not exists(path)]:
        raise ValueError(
            f"{folder} must have the lists of documents that {RUN_RECORD} names, but lacks {missing[0]}. Put it there, or resume"
            " the run, which writes it again."
        )
    skips = [[first_step + steps.step(each["first"] + more) for more in (0, each["elements"])] for each in record.get("skip", [])]
    held = [(each["first"], path) for each, path in zip(lists, [None, *paths])]
    return Run(
        **{key: record[key] for key in _OF_RECORD},
        exclude=paths[-1] if paths else None,
        earlier=tuple(each for each in held if each[0]),
        skip=tuple((first, stop) for first, stop in skips),
    )


def read_record(folder: str) -> dict:
    """The record of what a run reads, from its folder."""
    path = place(folder, RUN_RECORD)
    if not exists(path):
        raise ValueError(
            f"there is no {RUN_RECORD} in {folder}. Name the folder of a run with random access (a cache, elastic.gin), which"
            " writes it."
        )
    record = load_object(path, "Name the folder of a run, which writes it.", _OF_RECORD)
    check_version(path, record.get("numbered_version"), NUMBERED_VERSION, "Look at it with the package that began the run.")
    return record


def stores(found: Examples) -> dict[str, tuple[Corpus, TokenStore]]:
    """The corpora of a mixture's examples, by the names of their tasks, and where their tokens lie."""
    return {corpus.name: (corpus.members[0].corpus, corpus.store) for corpus in found.numbering.corpora}


def identities(run: Run) -> dict[str, object]:
    """What a run's record says of what it reads, as it is named now."""
    told = run.examples().describe()
    keys = ("numbered_version", "vocabulary", "tasks", "rates", "corpora", "schedule", "kinds", "rows_version", "sources", "skip")
    return {key: told[key] for key in keys if key in told}
