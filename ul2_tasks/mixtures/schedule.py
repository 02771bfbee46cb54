"""`Stage`: the weights of a mixture from a step of a run on; and schedules, lists of stages."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from ul2_tasks.order.steps import Steps
from ul2_tasks.scalars import as_python, fractions, is_finite, is_integer

_Of = TypeVar("_Of")
_MOST_PARTS = 10_000  # of a ramp
_LENGTHS = {"inputs": 8192, "targets": 8192}


@dataclasses.dataclass(frozen=True)
class Stage(Generic[_Of]):
    """The weights of mixtures from a step of a run on: an element of the `schedule` of `mix` or `Mix`.

    Attributes:
        first_step: the first step with these weights. Step 0 is the run's first, also where the model begins with a checkpoint.
        mixtures: the weights, as `mix` or `Mix` takes them. A mixture of an earlier stage that this one lacks pauses. They become
            pairs of a mixture and its weight, in the order of the names.
        ramp_steps: the number of steps over which the fractions change linearly, from those of the stage before to these.
        ramp_every: for how many steps weights stay the same in a ramp.
        lengths: the `sequence_length` of its examples and rows of the split "train"; by default that of the stage before. Where one
            stage has some, the first has. Joined texts that are not read yet are cut anew, so that each token is in one example of
            an epoch. All else is cut, or left out, for the least lengths of all stages, and longer rows hold more of it.
        batch_size: the global batch size from its first step on; by default that of the stage before, or the mixture's.

    Raises:
        ValueError: a step is not an integer, a weight or a length is not a positive number, or a ramp has more than 10,000 parts.
    """

    first_step: int
    mixtures: Mapping[_Of, float] | Sequence[tuple[_Of, float]]
    ramp_steps: int = 0
    ramp_every: int = 100
    _: dataclasses.KW_ONLY
    lengths: Mapping[str, int] | Any = ()
    batch_size: int | None = None

    def __post_init__(self):
        for name, least in (("first_step", 0), ("ramp_steps", 0), ("ramp_every", 1)):
            value = getattr(self, name)
            if not is_integer(value, at_least=least):
                raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}.")
            object.__setattr__(self, name, int(value))
        if self.ramp_steps > _MOST_PARTS * self.ramp_every:
            raise ValueError(
                f"ramp_every must be at least {-(-self.ramp_steps // _MOST_PARTS)} for ramp_steps={self.ramp_steps}, got"
                f" {self.ramp_every}. A ramp has at most {_MOST_PARTS:,} parts."
            )
        if self.batch_size is not None and not is_integer(self.batch_size, at_least=1):
            raise ValueError(f"batch_size must be an integer of at least 1, or None, got {self.batch_size!r}.")
        is_mapping = isinstance(self.lengths, Mapping | tuple)  # a tuple of pairs, as it becomes
        lengths = dict(self.lengths) if is_mapping else {}
        if not is_mapping or not all(is_integer(length, at_least=1) for length in lengths.values()):
            raise ValueError(f"lengths must be integers of at least 1 by feature, got {self.lengths!r}. Give such as {_LENGTHS}.")
        object.__setattr__(self, "lengths", tuple(sorted((key, int(length)) for key, length in lengths.items())))
        object.__setattr__(self, "batch_size", self.batch_size and int(self.batch_size))
        pairs = ((each, as_python(weight)) for each, weight in weights_of(self.mixtures).items())
        by_name = sorted(pairs, key=lambda pair: str(getattr(pair[0], "name", pair[0])))
        object.__setattr__(self, "mixtures", tuple(by_name))


@dataclasses.dataclass(frozen=True)
class Schedule(Generic[_Of]):
    """The stages of a run of so many steps, with batches of so many elements: examples, or packed sequences."""

    stages: tuple[Stage[_Of], ...]
    batch_size: int
    steps: int

    def __post_init__(self):
        for name in ("batch_size", "steps"):
            if not is_integer(getattr(self, name), at_least=1):
                raise ValueError(
                    f"{name} must be an integer of at least 1 with a schedule, got {getattr(self, name)!r}. Pass that of the run."
                )
            object.__setattr__(self, name, int(getattr(self, name)))
        if not self.stages or not all(isinstance(stage, Stage) for stage in self.stages):
            raise ValueError(f"schedule must be a list of ul2_tasks.Stage, got {self.stages!r:.300}.")
        firsts = [stage.first_step for stage in self.stages]
        if firsts[0] or sorted(set(firsts)) != firsts:
            raise ValueError(f"schedule must have stages with ascending first steps, of which the first is 0, got {firsts}.")
        last = max(self.steps, firsts[-1] + self.stages[-1].ramp_steps)
        if self.in_steps.element(last) >= 1 << 60:
            raise ValueError(
                f"the elements of all steps must be fewer than 2**60, got {self.in_steps.element(last)} of {last} steps. Lower"
                " steps, first_step or batch_size."
            )
        forms = [{key for key, _ in stage.lengths} for stage in self.stages if stage.lengths]
        if forms and (not self.stages[0].lengths or any(form != forms[0] for form in forms)):
            raise ValueError(
                "lengths must be of the same features in the first stage and in all others that have some, got"
                f" {[dict(stage.lengths) for stage in self.stages]}."
            )
        if self.stages[0].ramp_steps:
            raise ValueError(f"ramp_steps must be 0 in the first stage, got {self.stages[0].ramp_steps}. Nothing comes before it.")

    @property
    def in_steps(self) -> Steps:
        """The elements of each step."""
        sizes = {0: self.batch_size} | {stage.first_step: stage.batch_size for stage in self.stages if stage.batch_size}
        return Steps(tuple(sizes.items()))

    @property
    def elements(self) -> int:
        """How many elements the run has."""
        return self.in_steps.element(self.steps)

    @property
    def lengths(self) -> list[tuple[int, dict[str, int]]]:
        """Those of stages that have some, with their first steps."""
        return [(stage.first_step, dict(stage.lengths)) for stage in self.stages if stage.lengths]

    @property
    def average(self) -> dict[_Of, float]:
        """The part of all elements that each mixture has."""
        parts: dict[_Of, float] = {}
        flat = self.flat()
        for (first, weights), stop in zip(flat, [*(first for first, _ in flat[1:]), max(self.steps, flat[-1].first_step + 1)]):
            # A stage after the last step counts for nearly nothing.
            steps = (max(0, min(stop, max(self.steps, 1)) - first) + 1e-9) * self.in_steps.size(first)
            for each, fraction in fractions(weights).items():
                parts[each] = parts.get(each, 0.0) + steps * fraction
        return fractions(parts)

    def flat(self) -> list[FlatStage]:
        """The stages without ramps, each of which is a number of stages, with the weights of its middle, until the next begins."""
        found: list[FlatStage] = []
        for stage in self.stages:
            while found and found[-1].first_step > stage.first_step:
                found.pop()  # of a ramp that this stage ends
            before = fractions(found[-1].weights) if found else {}
            if found and found[-1].first_step == stage.first_step:
                found.pop()
            weights = dict(stage.mixtures)
            if not stage.ramp_steps:
                found.append(FlatStage(stage.first_step, weights))
                continue
            after = fractions(weights)
            for first in range(0, stage.ramp_steps, stage.ramp_every):
                middle = (first + min(first + stage.ramp_every, stage.ramp_steps)) / 2 / stage.ramp_steps
                between = {each: (1 - middle) * before.get(each, 0) + middle * after.get(each, 0) for each in {**before, **after}}
                found.append(FlatStage(stage.first_step + first, between))
            found.append(FlatStage(stage.first_step + stage.ramp_steps, weights))
        return found


class FlatStage(NamedTuple):
    """The weights from a step on."""

    first_step: int
    weights: Mapping[Any, float]


def check_schedule(
    mixtures: object, stages: Sequence[Stage[_Of]] | None, batch_size: int | None, steps: int | None, temperature: float = 1.0
) -> Schedule[_Of] | None:
    """The schedule of these arguments; None of a mixture without one. Raises a ValueError where they cannot be one."""
    if stages is None:
        if batch_size is not None or steps is not None:
            raise ValueError(
                f"batch_size and steps must be left out without a schedule, got {batch_size!r} and {steps!r}. Pass schedule=[..]."
            )
        return None
    if mixtures is not None:
        raise ValueError(
            f"mixtures must be left out with a schedule, got {mixtures!r:.300}. Pass the weights of step 0 as a Stage."
        )
    if temperature != 1:
        raise ValueError(
            f"temperature must be left out with a schedule, got {temperature!r}. Give each Stage weights that are raised to 1 /"
            " temperature."
        )
    if isinstance(stages, str) or not isinstance(stages, Sequence):
        raise ValueError(f"schedule must be a list of ul2_tasks.Stage, got {stages!r:.300}.")
    return Schedule(tuple(stages), batch_size, steps)  # type: ignore[arg-type]  # which it checks


def check_weigh(weigh: object) -> None:
    """Raises a ValueError for what weights do not count."""
    if weigh not in ("examples", "tokens"):
        raise ValueError(f"weigh must be 'examples' or 'tokens', got {weigh!r}.")


def weights_of(mixtures: Mapping[_Of, float] | Sequence[tuple[_Of, float]] | None, temperature: float = 1.0) -> dict[_Of, float]:
    """The weights of what is mixed, each raised to 1 / temperature.

    Raises a ValueError where one is no positive number, or something is there twice.

    >>> weights_of({"web": 100, "code": 4}, temperature=2)
    {'web': 10.0, 'code': 2.0}
    """
    try:
        pairs: list[Any] = list(mixtures.items() if isinstance(mixtures, Mapping) else mixtures or ())
        weights = dict(pairs)
    except (TypeError, ValueError):
        pairs, weights = [], {}
    if not weights or len(weights) < len(pairs) or not all(is_finite(weight) and weight > 0 for weight in weights.values()):
        raise ValueError(
            f"mixtures must map distinct names to positive numbers, got {mixtures!r:.300}. SeqIO's rate functions are not"
            " supported."
        )
    if not (is_finite(temperature) and temperature > 0):
        raise ValueError(
            f"temperature must be a positive number, got {temperature!r}. 1 keeps the weights, and a higher one makes them more"
            " equal."
        )
    if temperature == 1:
        return weights
    try:
        tempered = {each: float(weight) ** (1 / float(temperature)) for each, weight in weights.items()}
    except OverflowError:
        tempered = {}
    if not tempered or not all(weight > 0 for weight in tempered.values()):
        raise ValueError(
            f"temperature must be high enough for these weights, whose power of 1 / {temperature} no float can hold, got"
            f" {mixtures!r:.300}. Divide the weights by their sum, or raise the temperature."
        )
    return tempered
