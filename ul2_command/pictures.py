"""What `ul2 show`, `stats`, `doctor` and `report` do with records of texts and pictures, which --plan names."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import click

from ul2_command.errors import PROBLEMS_FOUND
from ul2_command.options import files, given_of, tables

NAME = "pictures"  # the embedded set
_RECORDS = 1000
_OF_RECORDS = {"name", "spec", "plan", "folder", "tables", "vocabulary", "sequence_length", "seed"}
_OPTIONS = [
    click.option(
        "--plan",
        metavar="KIND|MODULE:FUNCTION",
        help="NAME is texts and pictures: t2i_pretrain, unified_edit, vlm_sft, or a plan of one's own.",
    ),
    click.option("--folder", shell_complete=files, help="Where the paths of pictures in records begin.  [default: their file's]"),
    click.option(
        "--tables", type=tables, metavar="VIT,VAE", help="The sides of the model's tables of patch positions, such as 70,64."
    ),
]


def or_pictures(look: Callable[..., None], *own: str) -> Callable:
    """Adds options that name records of texts and pictures. Where they do, `look` is called, with a recipe, and not the command.

    Args:
        look: takes a recipe, and its own options by their names.
        own: the names of these.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def wrapped(plan: str | None, folder: str | None, tables: tuple[int, int] | None, **options) -> None:
            embedded = options["name"] == NAME and not (options["module"] or options["spec"] or options["preset"])
            if plan is None and not embedded:
                if alone := list(given_of("folder", "tables")):
                    raise click.UsageError(f"--{alone[0]} goes with texts and pictures; give --plan, too")
                command(**options)
                return
            given = given_of(*options)
            if wrong := [name for name in given if name not in _OF_RECORDS.union(own)]:
                option = next(one.opts[0] for one in click.get_current_context().command.params if one.name == wrong[0])
                raise click.UsageError(f"{option} does not go with texts and pictures; leave it out")
            arguments = {name: options[name] for name in own}
            if "examples" in arguments and "examples" not in given:
                arguments["examples"] = _RECORDS
            look(_recipe(plan, folder, given, options.get("seed", 0)), tables, **arguments)

        return functools.reduce(lambda function, option: option(function), reversed(_OPTIONS), wrapped)

    return decorate


def show(recipe, tables, count: int, as_json: bool) -> None:
    """`ul2 show`."""
    from ul2_tasks.inspection.picture_show import show_pictures, show_pictures_json

    _check_tables(recipe, tables)
    (show_pictures_json if as_json else show_pictures)(recipe, count)


def stats(recipe, tables, examples: int, to_json: bool) -> None:
    """`ul2 stats`."""
    from rich.console import Console

    from ul2_tasks.inspection.picture_table import print_pictures
    from ul2_tasks.inspection.printing import as_json
    from ul2_tasks.statistics.picture_measure import measure_pictures

    _check_tables(recipe, tables)
    statistics = measure_pictures(recipe, examples)
    if to_json:
        click.echo(as_json(statistics), nl=False)
    else:
        print_pictures(statistics, Console())
    if not statistics.holds:
        sys.exit(PROBLEMS_FOUND)


def doctor(recipe, tables, as_json: bool) -> None:
    """`ul2 doctor`."""
    from rich.console import Console

    from ul2_tasks.inspection.findings import print_findings
    from ul2_tasks.inspection.picture_doctor import examine_pictures

    findings = examine_pictures(recipe, _form(recipe, tables))
    if as_json:
        examined = {"budgets": recipe.budgets._asdict(), "findings": list(map(dataclasses.asdict, findings))}
        click.echo(json.dumps(examined, indent=1, ensure_ascii=False))
    else:
        print_findings(findings, Console())
    if any(finding.kind == "problem" for finding in findings):
        sys.exit(PROBLEMS_FOUND)


def report(recipe, tables, examples: int, count: int, output: str) -> None:
    """`ul2 report`."""
    from ul2_tasks.inspection.page import check_path, packages
    from ul2_tasks.inspection.picture_report import write_picture_report

    packages()
    check_path(output)
    _check_tables(recipe, tables)
    statistics, path = write_picture_report(recipe, output, records=examples, count=count)
    click.echo(f"wrote {path}")
    if not statistics.holds:
        sys.exit(PROBLEMS_FOUND)


def _check_tables(recipe, tables: tuple[int, int] | None) -> None:
    for source in recipe.sources:
        _form(recipe, tables).check(source.sizes)


def _form(recipe, tables: tuple[int, int] | None):
    return recipe.form if tables is None else dataclasses.replace(recipe.form, vit_side=tables[0], vae_side=tables[1])


def _recipe(plan: str | None, folder: str | None, given: dict[str, Any], seed: int):
    """What --plan and the other options name."""
    from ul2_tasks.images.samples import Counts
    from ul2_tasks.statistics.picture_measure import BUDGETS, recipe_to_look_at
    from ul2_tasks.vocabulary.by_name import open_vocabulary

    lengths = given.get("sequence_length", BUDGETS._asdict())
    if set(lengths) != set(Counts._fields):
        raise click.UsageError("--lengths: expected tokens, ViT patches and patches of latents, such as 36864,16384,28672")
    vocabulary = open_vocabulary(given["vocabulary"]) if "vocabulary" in given else None
    return recipe_to_look_at(_sources(plan, folder, list(given.get("spec", ()))), vocabulary, Counts(**lengths), seed)


def _sources(plan: str | None, folder: str | None, spec: list[str]) -> list:
    from ul2_tasks.images.example_set import example_records, example_sources
    from ul2_tasks.images.plans import PLANS
    from ul2_tasks.images.recipe import Source
    from ul2_tasks.images.records import listed_records, open_records

    if plan is None:
        return example_sources()
    if not spec and plan not in PLANS:
        raise click.UsageError(f"--plan: got {plan!r}, expected one of {', '.join(PLANS)}, or a --corpus beside it")
    records = open_records(spec, folder) if spec else listed_records(example_records(plan), f"embedded set, {plan}")
    return [Source(records, plan if plan in PLANS else _own_plan(plan))]


def _own_plan(name: str) -> Callable:
    """The function that "module:function" names."""
    from ul2_tasks.images.plans import PLANS

    module, _, function = name.partition(":")
    if not (module and function):
        raise click.UsageError(
            f"--plan: got {name!r}, expected one of {', '.join(PLANS)}, or MODULE:FUNCTION of a plan of one's own"
        )
    sys.path.insert(0, os.getcwd())  # as with --module
    found = getattr(importlib.import_module(module), function, None)
    if not callable(found):
        raise click.UsageError(f"--plan: the module {module!r} has no function {function!r}")
    return found
