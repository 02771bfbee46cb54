"""Measures records of texts and images: their layouts, what they take of each budget, what is wrong, and the rows they make."""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ul2_tasks.image_rows.custom import Custom
from ul2_tasks.image_rows.problems import Noted
from ul2_tasks.image_rows.recipe import Recipe, Source
from ul2_tasks.image_rows.rows import Placed, RowMaker
from ul2_tasks.image_rows.samples import Sample, taken
from ul2_tasks.image_rows.special_tokens import SpecialTokenConfig
from ul2_tasks.images.elements import Element, Image, Text, letters
from ul2_tasks.inspect.statistics import Summary, Tally
from ul2_tasks.tokenizers.base import Vocabulary
from ul2_tasks.tokenizers.sentencepiece import default_vocabulary
from ul2_tasks.version import __version__

BUDGETS = {"tokens": 36_864, "vit": 16_384, "vae": 28_672}
PERCENTS = (50, 90, 99)
_NO_LIMIT = 2**40  # of each budget


class Looked(NamedTuple):
    """What was read of a source."""

    source: Source
    records: int  # that were read, of its first epoch's
    samples: Sequence[Placed]  # those that are right, however long they are
    problems: Tally  # of the others, by where that was found


@dataclasses.dataclass(frozen=True)
class ImageSourceStatistics:
    """The measurements of a source."""

    schema: str
    records: int
    looked_at: int
    layouts: Mapping[str, int]  # samples of each layout, in letters
    elements: Mapping[str, Mapping[str, int]]  # "all" of each kind, and those that are "dropped"
    counts: Mapping[str, Summary | None]  # of each budget what samples take of it
    too_long: Mapping[str, int]  # samples that take more of a budget than a row has; "any" those that do of any
    problems: Mapping[str, int]
    first: Mapping[str, str]

    @property
    def empty(self) -> int:
        """How many samples are in no row, because each of their elements was dropped."""
        return self.looked_at - sum(self.layouts.values()) - sum(self.problems.values())


@dataclasses.dataclass(frozen=True)
class ImageStatistics:
    """The measurements."""

    version: str
    seed: int
    budgets: Mapping[str, int]
    sources: Sequence[ImageSourceStatistics]
    rows: int  # that were packed, of all sources as the recipe mixes them
    samples: int
    fill: Mapping[str, float | None]  # the part of each budget that is used; None where there is none
    lacking: Mapping[str, int]  # rows that have no "vit", no "vae", no "text" that is learned
    rows_of_epoch: int  # about, in the time in which the source that takes longest has an epoch
    passed = True  # there is nothing that `ul2 stats` checks


def recipe_to_look_at(
    sources: Sequence[Source], vocabulary: Vocabulary | None = None, budgets: Mapping[str, int] = BUDGETS, seed: int = 0
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
    return Recipe(tuple(sources), special_tokens, vocabulary.encode, budgets, seed)


def look_at(recipe: Recipe, records: int, images: bool = True) -> Iterator[Looked]:
    """Reads the first records of each source, in the order of its first epoch. No image is decoded.

    `records` is per source, and the recipe's budgets do not count. `images` says whether samples have theirs, which take memory.
    """
    pool = min(records, recipe.pool)
    no_limit = dict.fromkeys(recipe.budgets, _NO_LIMIT)
    free: dict[str, Any] = {"pool": pool, "epochs": 1, "on_error": "skip", "shrink": False, "required_modalities": ()}
    for source in recipe.sources:
        maker, noted = RowMaker(dataclasses.replace(recipe, sources=(source,), budgets=no_limit, **free)), Noted()
        count = min(records, len(source.records))
        found = itertools.chain.from_iterable(row for number in range(-(-count // pool)) for row in maker.packed(number, noted))
        samples = [each if images else _without_images(each) for each in itertools.islice(found, count)]
        problems = Tally()
        for problem, *_ in noted.found:
            if problem is not None:
                problems.add(problem.cause, str(problem))
        yield Looked(source, count, samples, problems)


def measure_images(recipe: Recipe, records: int = 1000) -> ImageStatistics:
    """Measures records, and the rows that they make as training reads them. No image is decoded.

    Records that are wrong or too long are counted, whatever the recipe says.
    """
    sources = [_source(found, recipe.budgets) for found in look_at(recipe, records, images=False)]
    budgets, weights = recipe.budgets, sum(source.weight for source in recipe.sources)
    epoch = round(max(len(source.records) * weights / source.weight for source in recipe.sources))  # in records
    pools = max(1, -(-min(records * len(recipe.sources), epoch) // recipe.pool))
    maker, noted = RowMaker(dataclasses.replace(recipe, on_error="skip")), Noted()
    rows = [[_without_images(each).sample for each in row] for pool in range(pools) for row in maker.packed(pool, noted)]
    used = [np.sum([taken(sample.counts, budgets) for sample in row], axis=0) for row in rows]
    of_each = dict(zip(budgets, np.reshape(used, (len(rows), len(budgets))).T))
    lacking = {name: int((of_each[name] == 0).sum()) for name in ("vit", "vae")}
    lacking["text"] = sum(not any(map(_learns, row)) for row in rows)
    return ImageStatistics(
        version=__version__,
        seed=recipe.seed,
        budgets=budgets,
        sources=sources,
        rows=len(rows),
        samples=sum(map(len, rows)),
        fill={name: float(of.mean() / budgets[name]) if rows and budgets[name] else None for name, of in of_each.items()},
        lacking=lacking,
        rows_of_epoch=round(len(rows) / (pools * recipe.pool) * epoch),
    )


def schema_name(source: Source) -> str:
    """What the schema of a source is called."""
    schema = source.schema.func if isinstance(source.schema, functools.partial) else source.schema
    return schema if isinstance(schema, str) else getattr(schema, "__name__", type(schema).__name__)


def _learns(sample: Sample) -> bool:
    """Whether it has ids that are learned."""
    kept = itertools.compress(sample.layout, sample.kept)
    return any(element.after is not None or (isinstance(element, Text) and element.learned) for element in kept)


def _without_images(placed: Placed) -> Placed:
    def without(one: Element) -> Element:
        if isinstance(one, Custom):
            return dataclasses.replace(one, value=None)
        return dataclasses.replace(one, image=None) if isinstance(one, Image) else one

    return placed._replace(sample=placed.sample._replace(layout=tuple(map(without, placed.sample.layout))))


def _source(found: Looked, budgets: Mapping[str, int]) -> ImageSourceStatistics:
    samples = [each.sample for each in found.samples]
    elements: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for sample in samples:
        for element, kept in zip(sample.layout, sample.kept):
            elements[element.kind].update({"all": 1, "dropped": not kept})
    counts = np.array([taken(sample.counts, budgets) for sample in samples], np.int64).reshape(-1, len(budgets))
    above = counts > [*budgets.values()]
    return ImageSourceStatistics(
        schema=schema_name(found.source),
        records=len(found.source.records),
        looked_at=found.records,
        layouts=dict(collections.Counter(letters(sample.layout) for sample in samples).most_common()),
        elements={kind: dict(counted) for kind, counted in sorted(elements.items())},
        counts={name: Summary.of(of, PERCENTS) for name, of in zip(budgets, counts.T)},
        too_long={**dict(zip(budgets, above.sum(axis=0).tolist())), "any": int(above.any(axis=1).sum())},
        problems=dict(found.problems.counts),
        first=found.problems.first,
    )
