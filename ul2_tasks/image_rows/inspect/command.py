"""What the command `ul2` does with image rows: it names the data by the values of its options, and imports nothing else of them."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import io
import os
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from ul2_tasks.cached import cached_property
from ul2_tasks.files.atomic import write_atomically
from ul2_tasks.image_rows.inspect.doctor import examine_recipe as examine_recipe
from ul2_tasks.image_rows.inspect.measure import BUDGETS, ImageStatistics, measure_images, recipe_to_look_at
from ul2_tasks.image_rows.inspect.show import draw_record, draw_records, draw_rows, show_record, show_records, show_rows
from ul2_tasks.image_rows.inspect.show import find_rows as find_rows
from ul2_tasks.image_rows.inspect.table import print_images
from ul2_tasks.image_rows.recipe import Recipe, Source, example_sources
from ul2_tasks.image_rows.records import listed_records, open_records
from ul2_tasks.image_rows.schemas import SCHEMAS
from ul2_tasks.image_rows.special_tokens import SpecialTokenConfig
from ul2_tasks.images.example_set import example_records
from ul2_tasks.inspect.printing import print_json_lines
from ul2_tasks.tokenizers.by_name import open_vocabulary


@dataclasses.dataclass(frozen=True)
class Rows:
    """The rows that a command looks at: those of an `ImageTextDataset`, or of records that its options name.

    `options` are the values of the options that were given.
    """

    dataset: Any
    options: Mapping[str, Any]

    @property
    def recipe(self) -> Recipe:
        """What decides the rows. Images that do not fit the tables of position embeddings raise a ValueError."""
        recipe, special_tokens = self.looked_at
        for source in recipe.sources:
            special_tokens.check(source.sizes)
        return recipe

    @cached_property
    def looked_at(self) -> tuple[Recipe, SpecialTokenConfig]:
        """The recipe, and the special tokens with the tables of position embeddings that the options name."""
        given = self.options
        if self.dataset is not None:
            return self.dataset.recipe, self.dataset.recipe.special_tokens
        vocabulary = open_vocabulary(given["vocabulary"]) if "vocabulary" in given else None
        lengths = given.get("sequence_length", BUDGETS)
        if set(lengths) != set(BUDGETS):
            got = ",".join(map(str, lengths.values()))
            raise ValueError(f"--lengths must be tokens, ViT patches and VAE patches, such as 36864,16384,28672, got {got!r}.")
        found = recipe_to_look_at(self._sources(), vocabulary, lengths, given.get("seed", 0))
        if "position_embeddings" not in given:
            return found, found.special_tokens
        vit, vae = given["position_embeddings"]
        return found, dataclasses.replace(found.special_tokens, vit_patches_per_side=vit, vae_patches_per_side=vae)

    def show(self, as_json: bool, *, count: int, step: int | None, host: Any, batch_size: int | None) -> None:
        """`ul2 show`."""
        record = self.options.get("record")
        ways: tuple[Any, Any, list[Any]] = (draw_records, show_records, [count])
        if step is not None:
            ways = (draw_rows, show_rows, [step, batch_size, host, count])
        elif record is not None:
            ways = (draw_record, show_record, [record])
        draw, show, asked = ways
        if as_json:
            print_json_lines(draw(self.recipe, *asked))
        else:
            show(self.recipe, *asked, Console())

    def report(self, output: str, records: int, count: int) -> tuple[ImageStatistics, pathlib.Path]:
        """`ul2 report`: a page of what `ul2 stats` and `ul2 show` print."""
        console, statistics = Console(record=True, width=132, file=io.StringIO()), measure_images(self.recipe, records)
        print_images(statistics, console)
        console.print()
        show_records(self.recipe, count, console)
        write_atomically(output, console.export_html())
        return statistics, pathlib.Path(output)

    def _sources(self) -> Sequence[Source]:
        schema, spec = self.options.get("schema"), list(self.options.get("spec", ()))
        if schema is None:
            return example_sources()
        if not spec and schema not in SCHEMAS:
            raise ValueError(f"--schema must be one of {', '.join(SCHEMAS)} without --corpus, got {schema!r}. Pass --corpus, too.")
        of_set = functools.partial(listed_records, name=f"embedded set, {schema}")
        records = open_records(spec, self.options.get("folder")) if spec else of_set(example_records(schema))
        return [Source(records, schema if schema in SCHEMAS else _own_schema(schema))]


def _own_schema(name: str) -> Any:
    """The function that "module:function" names."""
    module, _, function = name.partition(":")
    if not (module and function):
        raise ValueError(f"--schema must be one of {', '.join(SCHEMAS)}, or MODULE:FUNCTION, got {name!r}.")
    sys.path.insert(0, os.getcwd())  # as with --module
    found = getattr(importlib.import_module(module), function, None)
    if not callable(found):
        raise ValueError(f"--schema must name a function of {module!r}, got {function!r}.")
    return found
