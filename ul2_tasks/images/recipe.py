"""Everything that decides which rows a data set has: sources, form and budgets of the model, what to do with wrong records."""

from __future__ import annotations

import dataclasses
import functools
import math
import types
from collections.abc import Callable, Sequence
from typing import Literal

from ul2_tasks.images.draws import Draws
from ul2_tasks.images.dropout import Dropout
from ul2_tasks.images.elements import Element, planned
from ul2_tasks.images.identity import code_of, digest, function_in_words, is_own, python_version
from ul2_tasks.images.pools import Pools
from ul2_tasks.images.records import Records
from ul2_tasks.images.row_arrays import Form
from ul2_tasks.images.samples import Counts, Sizes, dummy
from ul2_tasks.images.schemas import PLANS, Record, vlm_sft
from ul2_tasks.images.sizes import VIT_CONVERSATION
from ul2_tasks.scalars import as_python, check_on_error, is_integer


@dataclasses.dataclass(frozen=True)
class Source:
    """Records of one kind.

    Attributes:
        records: see `records.open_records`.
        plan: a name of `plans.PLANS`, or a function of a record and its draws that gives the elements.
        sizes: how large images are; by default BAGEL's, with those of conversations for `vlm_sft`.
        dropout: how often droppable elements are dropped.
        weight: its share of the samples, to the weights of the other sources.
    """

    records: Records
    plan: str | Callable[[Record, Draws], Sequence[Element]]
    sizes: Sizes = None  # type: ignore[assignment]  # which __post_init__ sets
    dropout: Dropout = dataclasses.field(default_factory=Dropout)
    weight: float = 1.0

    def __post_init__(self):
        if not isinstance(self.records, Records):
            kind = type(self.records).__name__
            raise ValueError(f"the records are of type {kind}, expected what open_records or listed_records gives")
        if not callable(self.plan) and self.plan not in PLANS:
            raise ValueError(f"the plan is {self.plan!r}, expected one of {list(PLANS)}, or a function of a record and its draws")
        if self.sizes is None:
            plan = getattr(self._plan, "func", self._plan)  # of one with other frames
            object.__setattr__(self, "sizes", Sizes(vit=VIT_CONVERSATION) if plan is vlm_sft else Sizes())

    def elements(self, record: Record, draws: Draws) -> Sequence[Element]:
        """The plan of a record."""
        return planned(self._plan, record, draws)

    @property
    def _plan(self) -> Callable[[Record, Draws], Sequence[Element]]:
        return self.plan if callable(self.plan) else PLANS[self.plan]


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Everything that decides which rows there are.

    Attributes:
        sources: at least one.
        form: the marks and tables of the model.
        encode: the ids of a text.
        budgets: places of a row, ViT patches, and patches of latents.
        seed: of the order and all draws.
        pool: how many records are packed together. More fill rows better, and need more memory.
        epochs: see `pools.Pools`.
        on_error: whether a record that is wrong, or too long, ends the run, or is skipped and counted.
        shrink: whether the images of a sample that is too long are made smaller until it fits.
        always: which of "vit" and "vae" every row has; one that lacks it gets `samples.dummy`. Budgets are less by its counts.
    """

    sources: Sequence[Source]
    form: Form
    encode: Callable[[str], Sequence[int]]
    budgets: Counts
    seed: int = 0
    pool: int = 256
    epochs: int | None = None
    on_error: Literal["raise", "skip"] = "raise"
    shrink: bool = False
    always: Sequence[Literal["vit", "vae"]] = ()

    def __post_init__(self):
        numbers = zip((*Counts._fields, "pool", "epochs"), (*self.budgets, self.pool, 1 if self.epochs is None else self.epochs))
        for name, value in numbers:
            least = 0 if name in ("vit", "vae") else 1
            if not is_integer(value, at_least=least):
                raise ValueError(f"{name} is {value!r}, expected an integer of at least {least}")
        if not is_integer(self.seed, at_least=-math.inf):
            raise ValueError(f"seed is {self.seed!r}, expected an integer")
        check_on_error(self.on_error)
        if unknown := set(self.always) - {"vit", "vae"}:
            raise ValueError(f"always has {sorted(unknown)}, expected 'vit', 'vae', or both")
        if not self.sources:
            raise ValueError("there is no source")
        if min(self.room) < 0:
            raise ValueError(f"the budgets are {tuple(self.budgets)}, too little for what always={self.always} gives each row")
        for source in self.sources:
            if not isinstance(source, Source):
                raise ValueError(f"a source is of type {type(source).__name__}, expected a Source")
            self.form.check(source.sizes)
            first = self.sources[0].sizes
            if (source.sizes.vit.stride, source.sizes.vae.stride) != (first.vit.stride, first.vae.stride):
                raise ValueError("the strides of the sources' sizes differ, expected the same patches in all of a row")

    @property
    def room(self) -> Counts:
        """What samples may take of each budget."""
        spared = [dummy("vit" if name == "vit" else "clean").counts for name in self.always]
        return Counts(*(budget - sum(counts) for budget, *counts in zip(self.budgets, *spared)))

    def pools(self) -> Pools:
        """In which order records come."""
        pieces = tuple(tuple(piece.records for piece in source.records.pieces) for source in self.sources)
        return Pools(pieces, tuple(source.weight for source in self.sources), self.pool, self.epochs, self.seed)

    def settings(self) -> dict[str, str]:
        """The recipe in words. Two recipes that differ have different words."""
        sources = [_in_words(source) for source in self.sources]
        probe = list(self.encode("The quick brown fox, 3 + 4: 狐\n"))
        return {
            "sources": _few_words(sources),
            "form": repr(self.form),
            "text": f"{len(probe)} ids of a text, {digest(probe)}",
            "budgets": repr(tuple(map(as_python, self.budgets))),
            "always": repr(tuple(self.always)),
            **{name: repr(as_python(getattr(self, name))) for name in ("seed", "pool", "epochs", "on_error", "shrink")},
        }

    @property
    def names_of_sources(self) -> list[str]:
        """A name for each source, which no other has."""
        named = (f"{source.records.what}, plan {_name(source.plan)}" for source in self.sources)
        return [f"source {number}: {name}" for number, name in enumerate(named, 1)]

    @functools.cached_property
    def identity(self) -> dict[str, str]:
        """What `settings` names and does not know: the contents of files and of records, and the code of functions.

        It is made once. Where a state has no such words, or those of another version of Python, there is nothing to compare.
        """
        plans = [source.plan for source in self.sources]
        is_of_user = isinstance(self.encode, types.FunctionType) and not is_own(self.encode)
        codes = [code_of(function) for function in (*filter(callable, plans), *([self.encode] if is_of_user else []))]
        return {
            "files": _few_words([source.records.content() for source in self.sources]),
            "plans": _few_words([function_in_words(plan) if callable(plan) else plan for plan in plans]),
            "encoder": function_in_words(self.encode) if is_of_user else "vocabulary",
            f"code in {python_version()}": digest(codes),
        }


def _few_words(sources: Sequence[str]) -> str:
    """What is said of each source, but not of many."""
    return "; ".join(sources) if len(sources) < 5 else f"{len(sources)} sources, {digest(sources)}"


def _in_words(source: Source) -> str:
    details = digest([source.sizes, source.dropout])
    return f"{source.records.what}, plan {_name(source.plan)}, sizes and dropout {details}, weight {source.weight}"


def _name(plan: object) -> str:
    """What a plan is called, the same in any process."""
    if isinstance(plan, functools.partial):
        return f"{_name(plan.func)} with {digest([plan.args, sorted(plan.keywords.items())])}"
    return plan if isinstance(plan, str) else getattr(plan, "__qualname__", type(plan).__qualname__)
