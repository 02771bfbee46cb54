"""Image-text records that a schema lays out and that are packed into sequences: no mixture, and nothing of SeqIO."""

from __future__ import annotations

import dataclasses
import importlib
import os
import sys
from collections.abc import Callable
from typing import Any, ClassVar

import click

from ul2_command.kinds.seam import LEAVE_OUT, LOOK, Kind
from ul2_command.options import Data, excludes

NAME = "images"  # the built-in set
_RECORDS = 1000
_OPTIONS = {  # that each command takes, beside those of all
    "": {"name", "spec", "schema", "folder", "position_embeddings", "vocabulary", "sequence_length", "seed"},
    "show": {"count", "as_json", "record", "step", "batch_size", "host"},
    "find": {"record", "epochs", "batch_size"},
    "stats": {"examples", "to_json"},
    "doctor": {"as_json"},
    "report": {"examples", "count", "output"},
}


class Rows(Kind):
    name = "image-text records"
    cannot: ClassVar = {
        "audit": "An epoch has each record once. Use `ul2 find --record`, which lists its rows.",
        "show --schedule": LEAVE_OUT,
        "lengths": f"They have no denoisers. {LOOK}",
        "cache": f"Training reads them from their files. {LOOK}",
        "export": f"Training reads them from their files. {LOOK}",
    }

    def is_named(self, data):
        is_built_in = data.name == NAME and not data.given_of("module", "spec", "preset")
        return "schema" in data.given or is_built_in or _dataset(data) is not None

    def name_of(self, data):
        return NAME if _dataset(data) is None else data.name

    def refusal(self, data):
        command, is_own = str(data.command.name), _dataset(data) is not None
        of_all = {"name", "module"} if is_own else _OPTIONS[""]
        wrong = [name for name in data.given if name not in of_all | _OPTIONS.get(command, set())]
        if wrong and command not in self.cannot:
            if wrong[0] in ("document", "text"):  # of `ul2 find`
                return self.unsupported(data, f"{command} {data.option(wrong[0])}", "Pass --record with the name of a record.")
            instead = "Leave it out: the dataset has its own settings." if is_own else LEAVE_OUT
            return self.unsupported(data, f"{command} {data.option(wrong[0])}", instead)
        return super().refusal(data)

    def lengths_of(self, data):
        from ul2_tasks.looking.rows.measure import BUDGETS

        lengths = data.given.get("sequence_length", BUDGETS._asdict())
        if set(lengths) != set(BUDGETS._fields):
            got = ",".join(map(str, lengths.values()))
            raise click.UsageError(
                f"--lengths must be tokens, ViT patches and VAE patches, such as 36864,16384,28672, got {got!r}."
            )
        return lengths

    def show(self, data, as_json, *, count, step, host, batch_size, **others):
        from ul2_tasks.looking.printing import print_json_lines
        from ul2_tasks.looking.rows.record import draw_record, show_record
        from ul2_tasks.looking.rows.show import draw_plain, show_images

        recipe, record = self._fitting(data), data.given.get("record")
        if step is not None:
            if record is not None:
                raise excludes("--record", "--step")
            from ul2_tasks.looking.rows.steps import draw_rows_of_step, show_rows_of_step

            asked = step, batch_size, host, count
            if as_json:
                print_json_lines(draw_rows_of_step(recipe, *asked))
            else:
                show_rows_of_step(recipe, *asked)
        elif as_json:
            print_json_lines(draw_plain(recipe, count) if record is None else draw_record(recipe, record))
        elif record is None:
            show_images(recipe, count)
        else:
            show_record(recipe, record)

    def find(self, data, *, epochs, batch_size, **others):
        from ul2_tasks.looking.rows.steps import find_rows

        find_rows(self._fitting(data), data.given["record"], epochs, batch_size)

    def measure(self, data, **others):
        from ul2_tasks.looking.rows.measure import measure_images

        return measure_images(self._fitting(data), data.given.get("examples", _RECORDS))

    def print_statistics(self, statistics, console):
        from ul2_tasks.looking.rows.table import print_images

        print_images(statistics, console)

    def report(self, data, output, *, count, **others):
        from ul2_tasks.looking.rows.report import write_image_report

        return write_image_report(self._fitting(data), output, records=data.given.get("examples", _RECORDS), count=count)

    def examined(self, data, split):
        return {"budgets": self._recipe(data).budgets._asdict()}

    def examine(self, data, split):
        from ul2_tasks.looking.findings import each_once, examine_image_packages, examine_installation
        from ul2_tasks.looking.rows.doctor import examine_recipe

        recipe = self._recipe(data)
        return each_once(
            [*examine_installation(), *examine_image_packages(), *examine_recipe(recipe, _special_tokens(recipe, data))]
        )

    def _fitting(self, data: Data):
        """The recipe, where its images fit the position embeddings of the model."""
        recipe = self._recipe(data)
        for source in recipe.sources:
            _special_tokens(recipe, data).check(source.sizes)
        return recipe

    def _recipe(self, data: Data):
        from ul2_tasks.images.samples import Counts
        from ul2_tasks.looking.rows.measure import recipe_to_look_at
        from ul2_tasks.vocabulary.by_name import open_vocabulary

        if (own := _dataset(data)) is not None:
            return own.recipe
        budgets = Counts(**self.lengths_of(data))
        vocabulary = open_vocabulary(data.given["vocabulary"]) if "vocabulary" in data.given else None
        return recipe_to_look_at(_sources(data), vocabulary, budgets, data.given.get("seed", 0))


def _dataset(data: Data) -> Any:
    """The `ImageTextDataset` that a module has under NAME; None where there is none."""
    from ul2_tasks.imported import is_instance

    if data.source or data.arguments:  # which are of what is registered
        return None
    return next((each for each in data.in_modules if is_instance(each, "ul2_tasks.pytorch.image_text", "ImageTextDataset")), None)


def _special_tokens(recipe, data: Data):
    if "position_embeddings" not in data.given:
        return recipe.special_tokens
    vit, vae = data.given["position_embeddings"]
    return dataclasses.replace(recipe.special_tokens, vit_patches_per_side=vit, vae_patches_per_side=vae)


def _sources(data: Data) -> list[Any]:
    from ul2_tasks.images.example_set import example_records, example_sources
    from ul2_tasks.images.recipe import Source
    from ul2_tasks.images.records import listed_records, open_records
    from ul2_tasks.images.schemas import SCHEMAS

    schema, spec = data.given.get("schema"), list(data.given.get("spec", ()))
    if schema is None:
        return example_sources()
    if not spec and schema not in SCHEMAS:
        raise click.UsageError(
            f"--schema must be one of {', '.join(SCHEMAS)} without --corpus, got {schema!r}. Pass --corpus, too."
        )
    folder = data.given.get("folder")
    records = open_records(spec, folder) if spec else listed_records(example_records(schema), f"embedded set, {schema}")
    return [Source(records, schema if schema in SCHEMAS else _own_schema(schema))]


def _own_schema(name: str) -> Callable:
    """The function that "module:function" names."""
    from ul2_tasks.images.schemas import SCHEMAS

    module, _, function = name.partition(":")
    if not (module and function):
        raise click.UsageError(f"--schema must be one of {', '.join(SCHEMAS)}, or MODULE:FUNCTION, got {name!r}.")
    sys.path.insert(0, os.getcwd())  # as with --module
    found = getattr(importlib.import_module(module), function, None)
    if not callable(found):
        raise click.UsageError(f"--schema must name a function of {module!r}, got {function!r}.")
    return found
