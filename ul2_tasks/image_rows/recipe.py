"""Everything that decides which rows a data set has: sources, the model's special tokens and budgets, what to do with errors."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from ul2_tasks.cached import cached_property
from ul2_tasks.image_rows.custom import Custom, ElementKind, marks_of
from ul2_tasks.image_rows.dropout import Dropout
from ul2_tasks.image_rows.pools import Pools
from ul2_tasks.image_rows.problems import MOST_IN_A_ROW, Problems
from ul2_tasks.image_rows.records import Records, listed_records
from ul2_tasks.image_rows.samples import Sizes, dummy
from ul2_tasks.image_rows.schemas import SCHEMAS, story
from ul2_tasks.image_rows.sizes import VIT_CONVERSATION
from ul2_tasks.image_rows.special_tokens import SpecialTokenConfig
from ul2_tasks.images.draws import Draws
from ul2_tasks.images.elements import Element, elements_of
from ul2_tasks.images.example_set import KINDS, example_records
from ul2_tasks.images.schemas import Record, vlm_sft
from ul2_tasks.scalars import as_python, check_on_error, digest_of, is_integer
from ul2_tasks.sources.words import code_in_words

_PLAIN_SETTINGS = ("seed", "pool", "epochs", "on_error", "shrink", "shuffle_blocks")
_PLAIN = (bool, int, float, str, bytes, type(None))


@dataclasses.dataclass(frozen=True)
class Source:
    """Records with a schema, sizes, dropout and a weight.

    Attributes:
        records: of `open_records` or `listed_records`.
        schema: a name of `schemas.SCHEMAS`, or a function of a record and its `draws` that returns a layout.
        sizes: how images are resized; by default as in BAGEL, with its sizes of conversations for `vlm_sft`.
        dropout: how often droppable elements are dropped.
        weight: its part of the samples, relative to the weights of the other sources.
    """

    records: Records
    schema: str | Callable[[Record, Draws], Sequence[Element]]
    sizes: Sizes = None  # type: ignore[assignment]  # which __post_init__ sets
    dropout: Dropout = dataclasses.field(default_factory=Dropout)
    weight: float = 1.0

    def __post_init__(self):
        if not isinstance(self.records, Records):
            kind = type(self.records).__name__
            raise ValueError(f"records must be what open_records or listed_records returns, got a value of type {kind}.")
        if not callable(self.schema) and self.schema not in SCHEMAS:
            raise ValueError(
                f"schema must be one of {list(SCHEMAS)}, or a function of a record and its draws, got {self.schema!r}."
            )
        if self.sizes is None:
            schema = getattr(self._schema, "func", self._schema)  # of one with other frames
            object.__setattr__(self, "sizes", Sizes(vit=VIT_CONVERSATION) if schema is vlm_sft else Sizes())

    def elements(self, record: Record, draws: Draws) -> Sequence[Element]:
        """The layout of a record."""
        return elements_of(self._schema, record, draws)

    @property
    def _schema(self) -> Callable[[Record, Draws], Sequence[Element]]:
        return self.schema if callable(self.schema) else SCHEMAS[self.schema]


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Everything that decides which rows there are.

    Attributes:
        sources: at least one.
        special_tokens: see `SpecialTokenConfig`.
        encode: the ids of a text.
        budgets: "tokens", "vit" and "vae" (patches) of a row, and of each of `kinds` by its name.
        seed: of the order and all draws.
        pool: how many records are packed together. More fill rows better, and need more memory.
        epochs: see `pools.Pools`.
        shuffle_blocks: how many pieces of a source, such as row groups, are shuffled together, record by record; 0 keeps the order
            of the records in a piece. A worker holds that many pieces of each source in memory.
        kinds: kinds of elements of your own, each with a budget.
        on_error: whether a record with an error, or one that is too long, ends the run, or is skipped and counted.
        shrink: whether the images of a sample that is too long are made smaller until it fits.
        required_modalities: which of "vit" and "vae" every row has; one that lacks it gets `samples.dummy`,
            whose counts are taken off the budgets.
    """

    sources: Sequence[Source]
    special_tokens: SpecialTokenConfig
    encode: Callable[[str], Sequence[int]]
    budgets: Mapping[str, int]
    seed: int = 0
    pool: int = 256
    epochs: int | None = None
    on_error: Literal["raise", "skip"] = "raise"
    shrink: bool = False
    required_modalities: Sequence[Literal["vit", "vae"]] = ()
    shuffle_blocks: int = 0
    kinds: Sequence[ElementKind] = ()

    def __post_init__(self):
        self._check_kinds()
        numbers = {"pool": self.pool, "epochs": 1 if self.epochs is None else self.epochs, "shuffle_blocks": self.shuffle_blocks}
        for name, value in {**self.budgets, **numbers}.items():
            least = 1 if name in ("tokens", "pool", "epochs") else 0
            if not is_integer(value, at_least=least):
                raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}.")
        if not is_integer(self.seed, at_least=-math.inf):
            raise ValueError(f"seed must be an integer, got {self.seed!r}.")
        check_on_error(self.on_error)
        if unknown := set(self.required_modalities) - {"vit", "vae"}:
            raise ValueError(f"required_modalities must be of 'vit' and 'vae', got {sorted(unknown)}.")
        if not self.sources:
            raise ValueError("sources must have at least one source, got none.")
        if min(self.room.values()) < 0:
            raise ValueError(
                f"budgets must leave room for required_modalities={tuple(self.required_modalities)}, got {dict(self.budgets)}."
                " Raise them."
            )
        for source in self.sources:
            if not isinstance(source, Source):
                raise ValueError(f"sources must be of Source, got a value of type {type(source).__name__}.")
            self.special_tokens.check(source.sizes)
            first = self.sources[0].sizes
            if (source.sizes.vit.patch_size, source.sizes.vae.patch_size) != (first.vit.patch_size, first.vae.patch_size):
                raise ValueError("sizes must have the same patch sizes in all sources, got several. Pass one for all of a row.")

    @property
    def room(self) -> dict[str, int]:
        """What samples may take of each budget."""
        spared = [dummy(name).counts for name in self.required_modalities]
        return {name: budget - sum(counts.get(name, 0) for counts in spared) for name, budget in self.budgets.items()}

    def check_kinds(self, layout: Sequence[Element]) -> None:
        """Raises a ValueError if an element is of a kind that is not among `kinds`."""
        if other := next((each for each in layout if isinstance(each, Custom) and each.of not in self.kinds), None):
            known = [kind.name for kind in self.kinds]
            raise ValueError(
                f"kinds must have the kind of each element, got {known} and an element of {other.kind!r}. Pass it, too."
            )

    def _check_kinds(self) -> None:
        names = [getattr(kind, "name", None) for kind in self.kinds]
        if not all(isinstance(kind, ElementKind) for kind in self.kinds) or len(set(names)) < len(names):
            raise ValueError(f"kinds must be of ElementKind, each with another name, got {names}.")
        budgets = ["tokens", "vit", "vae", *map(str, names)]
        if set(self.budgets) != set(budgets):
            raise ValueError(f"budgets must have a number for each of {', '.join(budgets)}, got {dict(self.budgets)!r}.")
        object.__setattr__(self, "budgets", {name: self.budgets[name] for name in budgets})
        marks = [*self.special_tokens.ids, *marks_of(self.kinds)]
        if shared := [id for id in marks_of(self.kinds) if marks.count(id) > 1]:
            raise ValueError(f"start_id and end_id of kinds must be ids that no other mark has, got {shared[0]} more than once.")

    def pools(self, iteration: int = 0) -> Pools:
        """In which order records come in an iteration: each has other epochs, `epochs` of them, or one where they have no end."""
        pieces = tuple(tuple(piece.records for piece in source.records.pieces) for source in self.sources)
        first = iteration * (self.epochs or 1)
        weights = tuple(source.weight for source in self.sources)
        return Pools(pieces, weights, self.pool, self.epochs, self.seed, first, self.shuffle_blocks)

    def places_of(self, record: str) -> list[tuple[int, tuple[int, int]]]:
        """The sources that have a record of this name, each with its piece and the number in it. A ValueError where none has."""
        found = [(number, source.records.find(record)) for number, source in enumerate(self.sources)]
        if not any(place for _, place in found):
            records = self.sources[0].records
            first, _ = next(records.read(records.pieces[0], 0))
            raise ValueError(f"record must be the name of a record of the sources, such as {first!r}, got {record!r}.")
        return [(number, place) for number, place in found if place is not None]

    def problems(self, file: str | None = None, *, is_told: bool = True) -> Problems:
        """Counts problems of these sources, see `Problems`. Sources with fewer records than may be in a row end sooner."""
        return Problems(self.names_of_sources, file, min(MOST_IN_A_ROW, sum(len(each.records) for each in self.sources)), is_told)

    def settings(self) -> dict[str, str]:
        """The recipe in words. Two recipes that differ have different words."""
        sources = [_in_words(source) for source in self.sources]
        probe = list(self.encode("The quick brown fox, 3 + 4: 狐\n"))
        return {
            "sources": _few_words(sources),
            "special_tokens": repr(self.special_tokens),
            "text": f"{len(probe)} ids of a text, {_digest(probe)}",
            "budgets": repr(tuple(map(as_python, self.budgets.values()))),
            "required_modalities": repr(tuple(self.required_modalities)),
            "kinds": "; ".join(map(_kind_in_words, self.kinds)),
            **{name: repr(as_python(getattr(self, name))) for name in _PLAIN_SETTINGS},
        }

    @property
    def names_of_sources(self) -> list[str]:
        """A name for each source, which no other has."""
        named = (f"{source.records.what}, schema {_name(source.schema)}" for source in self.sources)
        return [f"source {number}: {name}" for number, name in enumerate(named, 1)]

    @cached_property
    def identity(self) -> dict[str, str]:
        """What `settings` names and does not know: the contents of files and of records, and the code of functions. Made once."""
        of_kinds = [function for kind in self.kinds for function in (kind.size_of, kind.read)]
        functions = [*(source.schema for source in self.sources), self.encode, *of_kinds]
        has_code = (types.FunctionType, types.MethodType, functools.partial, type)
        return {
            "files": _few_words([source.records.content() for source in self.sources]),
            "code": code_in_words(each if isinstance(each, has_code) else type(each) for each in functions),
        }


def example_sources(count: int = 32, seed: int = 0) -> list[Source]:
    """Returns the built-in set as sources, one of each kind.

    Args:
        count, seed: see `example_records`.

    Raises:
        ImportError: Pillow is not installed.
    """
    return [
        Source(listed_records(example_records(kind, count, seed), f"embedded set, {kind}"), kind if kind in SCHEMAS else story)
        for kind in KINDS
    ]


def _few_words(sources: Sequence[str]) -> str:
    """What is said of each source, but not of many."""
    return "; ".join(sources) if len(sources) < 5 else f"{len(sources)} sources, {_digest(sources)}"


def _in_words(source: Source) -> str:
    details = _digest([source.sizes, source.dropout])
    return f"{source.records.what}, schema {_name(source.schema)}, sizes and dropout {details}, weight {source.weight}"


def _kind_in_words(kind: ElementKind) -> str:
    others = kind.start_id, kind.end_id, kind.width, kind.dtype, kind.causal, kind.dropout
    return f"{kind.name} of {_name(kind.size_of)} and {_name(kind.read)}, {_digest(others)}"


def _name(function: object) -> str:
    """What a function is called, and the plain values that a partial, a closure, or an object that is called has beside it."""
    values: list[Any]
    if isinstance(function, functools.partial):
        name, values = _name(function.func), [function.args, sorted(function.keywords.items())]
    elif isinstance(function, str):
        return function
    elif hasattr(function, "__qualname__"):
        closed = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
        name, values = function.__qualname__, [value for value in closed if isinstance(value, _PLAIN)]
    else:
        name, values = type(function).__qualname__, sorted(getattr(function, "__dict__", {}).items())
    return f"{name} with {_digest(values)}" if values else name


def _digest(value: object) -> str:
    """`digest_of` of a value's words, which are the same in any process."""
    return digest_of(re.sub(r" at 0x[0-9a-f]+", "", repr(value)))
