"""Image-text records that are packed into sequences: no mixture, and nothing of SeqIO."""

from __future__ import annotations

from typing import Any, ClassVar

import click

from ul2_tasks.cli.kinds.seam import LEAVE_OUT, LOOK, Kind
from ul2_tasks.cli.options import excludes

_RECORDS = 1000
_IN_PYTHON = "Write the settings in FILE.py."
_BY_SOURCE = "Pass --source with the name of a record."


class Rows(Kind):
    name = "image rows"
    parts = frozenset({"Recipe"})
    cannot: ClassVar = {
        "audit": "An epoch has each record once. Use `ul2 find --source`, which lists its rows.",
        "schedule": LOOK,
        "contamination": LOOK,
        "lengths": f"They have no denoisers. {LOOK}",
        "cache": f"Training reads them from their files. {LOOK}",
        "export": f"Training reads them from their files. {LOOK}",
        **dict.fromkeys(("--lengths", "--seed"), _IN_PYTHON),
        **dict.fromkeys(("--split", "--cache", "--run", "--packed", "--exclude", "--skip", "--denoiser", "show --text"), LEAVE_OUT),
        **dict.fromkeys(("--document", "--id", "--list", "find --text"), _BY_SOURCE),
    }

    def name_of(self, data):
        return data.name

    def lengths_of(self, data):
        return data.description.budgets

    def show(self, data, as_json, *, count, step, host, batch_size, source=None, **others):
        if step is not None and source is not None:
            raise excludes("--source", "--step")
        _looking().show(data.description, as_json, count=count, record=source, step=step, host=host, batch_size=batch_size)

    def find(self, data, *, epochs, batch_size, **others):
        if len(records := data.given["sources"]) > 1:
            raise click.UsageError(f"--source must be one record for image rows, got {len(records)}. Run the command for each.")
        _looking().find_rows(data.description, records[0], epochs, batch_size)

    def measure(self, data, **others):
        return _looking().measure_images(data.description, data.given.get("examples", _RECORDS))

    def print_statistics(self, statistics, console):
        _looking().print_images(statistics, console)

    def report(self, data, output, *, count, **others):
        return _looking().report(data.description, output, data.given.get("examples", _RECORDS), count)

    def examined(self, data, split):
        return {"budgets": data.description.budgets}

    def examine(self, data, split):
        from ul2_tasks.inspect.doctor import each_once, examine_image_packages, examine_installation

        return each_once([*examine_installation(), *examine_image_packages(), *_looking().examine_recipe(data.description)])


def _looking() -> Any:
    from ul2_tasks.cli.described import packed_rows

    return packed_rows()
