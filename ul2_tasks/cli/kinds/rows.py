"""Image-text records that a schema lays out and that are packed into sequences: no mixture, and nothing of SeqIO."""

from __future__ import annotations

from typing import Any, ClassVar

from ul2_tasks.cli.kinds.seam import LEAVE_OUT, LOOK, Kind
from ul2_tasks.cli.options import Data, excludes

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
        return _rows(data).recipe.budgets

    def show(self, data, as_json, *, count, step, host, batch_size, **others):
        if step is not None and "record" in data.given:
            raise excludes("--record", "--step")
        _rows(data).show(as_json, count=count, step=step, host=host, batch_size=batch_size)

    def find(self, data, *, epochs, batch_size, **others):
        _looking().find_rows(_rows(data).recipe, data.given["record"], epochs, batch_size)

    def measure(self, data, **others):
        return _looking().measure_images(_rows(data).recipe, data.given.get("examples", _RECORDS))

    def print_statistics(self, statistics, console):
        _looking().print_images(statistics, console)

    def report(self, data, output, *, count, **others):
        return _rows(data).report(output, data.given.get("examples", _RECORDS), count)

    def examined(self, data, split):
        return {"budgets": _rows(data).looked_at[0].budgets}

    def examine(self, data, split):
        from ul2_tasks.inspect.findings import each_once, examine_image_packages, examine_installation

        return each_once([*examine_installation(), *examine_image_packages(), *_looking().examine_recipe(*_rows(data).looked_at)])


def _dataset(data: Data) -> Any:
    """The `ImageTextDataset` that a module has under NAME; None where there is none."""
    from ul2_tasks.imported import is_instance

    if data.source or data.arguments:  # which are of what is registered
        return None
    return next((each for each in data.in_modules if is_instance(each, "ul2_tasks.image_rows.dataset", "ImageTextDataset")), None)


def _rows(data: Data) -> Any:
    """What is looked at."""
    return _looking().Rows(_dataset(data), data.given)


def _looking() -> Any:
    """All that the package has of image rows, by way of one module."""
    from ul2_tasks.image_rows.inspect import command

    return command
