"""Measures records of texts and images: their layouts, what they take of each budget, what is wrong, and the rows they make."""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import seqio

from ul2_tasks.image_rows.custom import Custom
from ul2_tasks.image_rows.problems import Noted
from ul2_tasks.image_rows.recipe import Recipe, Source
from ul2_tasks.image_rows.rows import Placed, RowMaker
from ul2_tasks.image_rows.samples import Counts, Sample, taken
from ul2_tasks.image_rows.special_tokens import SpecialTokenConfig
from ul2_tasks.images.elements import Element, Image, Text, letters
from ul2_tasks.images.problems import sentence_of
from ul2_tasks.looking.statistics import Summary, Tally, without_particulars
from ul2_tasks.version import __version__
from ul2_tasks.vocabulary.sentencepiece import default_vocabulary
from ul2_tasks.vocabulary.special_ids import text_vocabulary

BUDGETS = Counts(tokens=36_864, vit=16_384, vae=28_672)
PERCENTS = (50, 90, 99)
_NO_LIMIT = 2**40  # of each budget


@dataclasses.dataclass(frozen=True)
class Looked:
    """What was read of a source.

    Attributes:
        records: how many were read, of its first epoch's.
        samples: those that are right, however long they are.
        problems: those that are not, by where that was found and what it is, without numbers and texts.
    """

    source: Source
    records: int
    samples: Sequence[Placed]
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
class ImageStatistics:
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
    passed = True  # there is nothing that `ul2 stats` checks


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
    no_limit = type(recipe.budgets)(*(_NO_LIMIT for _ in recipe.budgets))
    pool = min(records, recipe.pool)
    free = {"budgets": no_limit, "pool": pool, "epochs": 1, "on_error": "skip", "shrink": False, "required_modalities": ()}
    for source in recipe.sources:
        maker, noted = RowMaker(dataclasses.replace(recipe, sources=(source,), **free)), Noted()
        count = min(records, len(source.records))
        found = itertools.chain.from_iterable(row for number in range(-(-count // pool)) for row in maker.packed(number, noted))
        samples = [each if images else _without_images(each) for each in itertools.islice(found, count)]
        problems = Tally()
        for problem, *_ in noted.found:
            if problem is not None:
                cause = problem.__cause__
                said = sentence_of(cause) if isinstance(cause, Exception) else str(problem)
                problems.add(f"{problem.cause}: {without_particulars(said)}", str(problem))
        yield Looked(source, count, samples, problems)


def measure_images(recipe: Recipe, records: int = 1000) -> ImageStatistics:
    """Measures records, and the rows that they make as training reads them. No image is decoded.

    Records that are wrong or too long are counted, whatever the recipe says.
    """
    sources = [_source(found, recipe.budgets) for found in look_at(recipe, records, images=False)]
    names, budgets, epoch = recipe.budgets._fields, np.array(recipe.budgets), _epoch(recipe)
    pools = max(1, -(-min(records * len(recipe.sources), epoch) // recipe.pool))
    rows = list(first_rows(recipe, pools))
    used = np.array([np.sum([taken(sample.counts, recipe.budgets) for sample in row], axis=0) for row in rows])
    used = used.reshape(len(rows), len(budgets))
    is_without = {name: used[:, names.index(name)] == 0 for name in ("vit", "vae")}
    is_without["text"] = np.array([not any(map(_learns, row)) for row in rows], bool)
    return ImageStatistics(
        version=__version__,
        seed=recipe.seed,
        budgets=recipe.budgets._asdict(),
        sources=sources,
        rows=len(rows),
        samples=sum(map(len, rows)),
        fill={name: float(of.mean() / most) if rows and most else None for name, of, most in zip(names, used.T, budgets.tolist())},
        lacking={name: int(lacks.sum()) for name, lacks in is_without.items()},
        rows_of_epoch=round(len(rows) / (pools * recipe.pool) * epoch),
    )


def first_rows(recipe: Recipe, pools: int) -> Iterator[list[Sample]]:
    """The rows of the first pools of training, without images. What is wrong or too long is left out."""
    maker, noted = RowMaker(dataclasses.replace(recipe, on_error="skip")), Noted()
    for pool in range(pools):
        for row in maker.packed(pool, noted):
            yield [_without_images(each).sample for each in row]


def schema_name(source: Source) -> str:
    """What the schema of a source is called."""
    schema = source.schema.func if isinstance(source.schema, functools.partial) else source.schema
    return schema if isinstance(schema, str) else getattr(schema, "__name__", type(schema).__name__)


def _epoch(recipe: Recipe) -> int:
    """How many records there are in the time in which the source that takes longest has an epoch."""
    weights = sum(source.weight for source in recipe.sources)
    return round(max(len(source.records) * weights / source.weight for source in recipe.sources))


def _learns(sample: Sample) -> bool:
    """Whether it has ids that are learned."""
    kept = [element for element, is_kept in zip(sample.layout, sample.kept) if is_kept]
    return any(element.after is not None or (isinstance(element, Text) and element.learned) for element in kept)


def _without_images(placed: Placed) -> Placed:
    def without(one: Element) -> Element:
        if isinstance(one, Custom):
            return dataclasses.replace(one, value=None)
        return dataclasses.replace(one, image=None) if isinstance(one, Image) else one

    return placed._replace(sample=placed.sample._replace(layout=tuple(map(without, placed.sample.layout))))


def _source(found: Looked, budgets: Counts) -> ImageSourceStatistics:
    samples = [each.sample for each in found.samples]
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
