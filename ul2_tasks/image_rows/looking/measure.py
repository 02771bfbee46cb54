"""Measures records of texts and images: their layouts, what they take of each budget, what is wrong, and the rows they make."""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import seqio

from ul2_tasks.image_rows.custom import Custom
from ul2_tasks.image_rows.problems import Problems, RecordError, Step
from ul2_tasks.image_rows.recipe import Recipe, Source
from ul2_tasks.image_rows.row_arrays import Row, custom_arrays, lay_out
from ul2_tasks.image_rows.rows import RowMaker
from ul2_tasks.image_rows.samples import Counts, Sample, taken
from ul2_tasks.image_rows.special_tokens import SpecialTokenConfig
from ul2_tasks.images.elements import Element, Image, letters
from ul2_tasks.images.problems import sentence_of
from ul2_tasks.looking.statistics import Check, Checked, Summary, Tally, without_particulars
from ul2_tasks.version import __version__
from ul2_tasks.vocabulary.sentencepiece import default_vocabulary
from ul2_tasks.vocabulary.special_ids import text_vocabulary

BUDGETS = Counts(tokens=36_864, vit=16_384, vae=28_672)
PERCENTS = (50, 90, 99)
_LACKING = {"vit": "packed_vit_token_indexes", "vae": "packed_vae_token_indexes", "text": "ce_loss_indexes"}
_NO_LIMIT = 2**40  # of each budget


@dataclasses.dataclass(frozen=True)
class Looked:
    """What was read of a source.

    Attributes:
        records: how many were read, of its first epoch's.
        samples: the name of each that is right, and the sample, however long it is.
        problems: those that are not, by where that was found and what it is, without numbers and texts.
    """

    source: Source
    records: int
    samples: Sequence[tuple[str, Sample]]
    problems: Tally


@dataclasses.dataclass(frozen=True)
class ImageSourceStatistics:
    """The measurements of a source.

    Attributes:
        layouts: how many samples have which layout, in letters.
        elements: of each kind of element how many there are, and how many of these are dropped.
        counts: of each budget what samples take of it.
        too_long: how many samples take more of a budget than a row has; "any" those that do of any.
        problems, first: see `Looked`.
    """

    schema: str
    records: int
    looked_at: int
    layouts: Mapping[str, int]
    elements: Mapping[str, Mapping[str, int]]
    counts: Mapping[str, Summary | None]
    too_long: Mapping[str, int]
    problems: Mapping[str, int]
    first: Mapping[str, str]

    @property
    def empty(self) -> int:
        """How many samples are in no row, because each of their elements was dropped."""
        return self.looked_at - sum(self.layouts.values()) - sum(self.problems.values())


@dataclasses.dataclass(frozen=True)
class ImageStatistics(Checked):
    """The measurements.

    Attributes:
        rows: how many were packed, of all sources as the recipe mixes them.
        fill: the part of each budget that is used; None where there is none.
        lacking: how many rows have no "vit", no "vae", no "text" that is learned.
        rows_of_epoch: about how many rows there are in the time in which the source that takes longest has an epoch.
    """

    version: str
    seed: int
    budgets: Mapping[str, int]
    sources: Sequence[ImageSourceStatistics]
    rows: int
    samples: int
    fill: Mapping[str, float | None]
    lacking: Mapping[str, int]
    rows_of_epoch: int
    checks: Sequence[Check]


class _Facts(NamedTuple):
    """What is kept of a row's arrays."""

    counts: tuple[int, ...]
    lacking: set[str]
    is_whole: bool


class _Noted(Problems):
    """Problems that are tallied, and of which there may be any number in a row."""

    def __init__(self) -> None:
        super().__init__()
        self.found = Tally()

    def right(self, step: Step, source: int) -> None:
        """There is nothing to count."""

    def skip(self, problem: RecordError, step: Step, source: int, most: int) -> None:
        cause = problem.__cause__
        said = sentence_of(cause) if isinstance(cause, Exception) else str(problem)
        self.found.add(f"{problem.cause}: {without_particulars(said)}", str(problem))


def recipe_to_look_at(
    sources: Sequence[Source], vocabulary: seqio.Vocabulary | None = None, budgets: Counts = BUDGETS, seed: int = 0
) -> Recipe:
    """A recipe without a model: its marks come after the vocabulary's ids, and its tables are as large as images need them."""
    vocabulary = vocabulary or default_vocabulary()
    first = vocabulary.vocab_size
    special_tokens = SpecialTokenConfig(
        bos_id=first,
        eos_id=first + 1,
        boi_id=first + 2,
        eoi_id=first + 3,
        vit_patches_per_side=max((source.sizes.vit.patches_per_side for source in sources), default=1),
        vae_patches_per_side=max((source.sizes.vae.patches_per_side for source in sources), default=1),
    )
    return Recipe(tuple(sources), special_tokens, text_vocabulary(vocabulary, ()).encode, budgets, seed)


def look_at(recipe: Recipe, records: int, images: bool = True) -> Iterator[Looked]:
    """Reads the first records of each source, in the order of its first epoch. No image is decoded.

    `records` is per source, and the recipe's budgets do not count. `images` says whether samples have theirs, which take memory.
    """
    for source in recipe.sources:
        pool = min(records, recipe.pool)
        no_limit = type(recipe.budgets)(*(_NO_LIMIT for _ in recipe.budgets))
        alone = dataclasses.replace(
            recipe, sources=(source,), budgets=no_limit, pool=pool, epochs=1, on_error="skip", shrink=False, required_modalities=()
        )
        maker, noted = RowMaker(alone), _Noted()
        maker.problems = noted
        count = min(records, len(source.records))
        found = itertools.chain.from_iterable(row for number in range(-(-count // pool)) for row in maker.packed(number))
        samples = [(name, sample if images else _without_images(sample)) for name, sample in itertools.islice(found, count)]
        yield Looked(source, count, samples, noted.found)


def measure_images(recipe: Recipe, records: int = 1000) -> ImageStatistics:
    """Measures records, and the rows that they make as training reads them. No image is decoded.

    Records that are wrong or too long are counted, whatever the recipe says.
    """
    sources = [_source(found, recipe.budgets) for found in look_at(recipe, records, images=False)]
    named = [[(name, _without_images(sample)) for name, sample in row] for row in first_rows(recipe, records)]
    rows = [[sample for _, sample in row] for row in named]
    used = np.array([np.sum([taken(sample.counts, recipe.budgets) for sample in row], axis=0) for row in rows])
    used = used.reshape(len(rows), len(recipe.budgets))
    facts = [_facts(lay_out(row, recipe.special_tokens), [custom_arrays(row, kind) for kind in recipe.kinds]) for row in rows]
    return ImageStatistics(
        version=__version__,
        seed=recipe.seed,
        budgets=recipe.budgets._asdict(),
        sources=sources,
        rows=len(rows),
        samples=sum(map(len, rows)),
        fill={
            name: float(used[:, number].mean() / budget) if rows and budget else None
            for number, (name, budget) in enumerate(recipe.budgets._asdict().items())
        },
        lacking={name: sum(name in row.lacking for row in facts) for name in _LACKING},
        rows_of_epoch=round(len(rows) / (_pools(recipe, records) * recipe.pool) * _epoch(recipe)),
        checks=list(_checks(recipe, named, facts, used)),
    )


def first_rows(recipe: Recipe, records: int) -> Iterator[list[tuple[str, Sample]]]:
    """The first rows of training, of at least so many records of all sources, as names and samples.

    `records` is how many of each source, on average. What is wrong or too long is left out.
    """
    maker = RowMaker(dataclasses.replace(recipe, on_error="skip"))
    maker.problems = _Noted()
    for pool in range(_pools(recipe, records)):
        yield from maker.packed(pool)


def schema_name(source: Source) -> str:
    """What the schema of a source is called."""
    schema = source.schema.func if isinstance(source.schema, functools.partial) else source.schema
    return schema if isinstance(schema, str) else getattr(schema, "__name__", type(schema).__name__)


def _pools(recipe: Recipe, records: int) -> int:
    """How many pools have so many records of each source on average, or an epoch's."""
    return max(1, -(-min(records * len(recipe.sources), _epoch(recipe)) // recipe.pool))


def _epoch(recipe: Recipe) -> int:
    """How many records there are in the time in which the source that takes longest has an epoch."""
    weights = sum(source.weight for source in recipe.sources)
    return round(max(len(source.records) * weights / source.weight for source in recipe.sources))


def _without_images(sample: Sample) -> Sample:
    def without(one: Element) -> Element:
        if isinstance(one, Custom):
            return dataclasses.replace(one, value=None)
        return dataclasses.replace(one, image=None) if isinstance(one, Image) else one

    return sample._replace(layout=tuple(map(without, sample.layout)))


def _source(found: Looked, budgets: Counts) -> ImageSourceStatistics:
    samples = [sample for _, sample in found.samples]
    elements: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for sample in samples:
        for element, kept in zip(sample.layout, sample.kept):
            elements[element.kind].update({"all": 1, "dropped": not kept})
    counts = [type(budgets)(*taken(sample.counts, budgets)) for sample in samples]
    names = tuple(budgets._asdict())
    above = [{name for name, count, most in zip(names, each, budgets) if count > most} for each in counts]
    return ImageSourceStatistics(
        schema=schema_name(found.source),
        records=len(found.source.records),
        looked_at=found.records,
        layouts=dict(collections.Counter(letters(sample.layout) for sample in samples).most_common()),
        elements={kind: dict(counted) for kind, counted in sorted(elements.items())},
        counts={name: Summary.of([getattr(each, name) for each in counts], PERCENTS) for name in names},
        too_long={**{name: sum(name in each for each in above) for name in names}, "any": sum(map(bool, above))},
        problems=dict(found.problems.counts),
        first=found.problems.first,
    )


def _checks(
    recipe: Recipe, rows: Sequence[Sequence[tuple[str, Sample]]], facts: Sequence[_Facts], used: np.ndarray
) -> Iterator[Check]:
    above = int((used > np.array(recipe.budgets)).any(axis=1).sum())
    yield Check("no row has more than its budgets", not above, f"{above} of {len(rows)} rows have")
    differ = sum(row.counts != tuple(counts) for row, counts in zip(facts, used.tolist()))
    yield Check("what is counted before decoding is what a row has", not differ, f"{differ} of {len(rows)} rows differ")
    broken = sum(not row.is_whole for row in facts)
    yield Check("each place is a text's, or one patch", not broken, f"{broken} of {len(rows)} rows break it")
    seen = collections.Counter(name for row in rows for name, _ in row)
    twice = sum(count > 1 for count in seen.values())
    yield Check("no sample is in two rows", not twice, f"{twice} of {len(seen)} samples are")


def _facts(row: Row, of_kinds: Sequence[Mapping[str, np.ndarray]]) -> _Facts:
    own = [places for arrays in of_kinds for name, places in arrays.items() if name.endswith("_indexes")]
    places = np.concatenate([row.packed_text_indexes, row.packed_vit_token_indexes, row.packed_vae_token_indexes, *own])
    known = len(row.packed_position_ids), len(row.packed_vit_position_ids), len(row.packed_latent_position_ids)
    counts = (*known, *map(len, own))
    lacking = {name for name, key in _LACKING.items() if not len(getattr(row, key))}
    return _Facts(counts, lacking, np.array_equal(np.sort(places), np.arange(counts[0])))
