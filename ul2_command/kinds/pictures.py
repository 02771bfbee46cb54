"""Texts with pictures in places, of which denoisers make examples: what `register_pictures` registers."""

from __future__ import annotations

from typing import ClassVar

from ul2_command.kinds.seam import Kind, of_denoisers

_NO_NUMBERS = "{it}, whose examples have no numbers; {elsewhere}"


class Pictures(Kind):
    name = "texts with pictures"
    parts: ClassVar = {"ul2_tasks.tasks.pictures": "PicturesTask"}
    cannot: ClassVar = {
        "find": _NO_NUMBERS,
        "show --step": _NO_NUMBERS,
        **dict.fromkeys(("show --text", "show --file"), "{it}, and --text has none; leave it out"),
        "stats --output": "--output goes with texts alone; --json prints the statistics of texts with pictures",
        "stats --cache": "{it}, of which the first records are measured; leave --cache out",
        "report": "{it}, of which there is no page; {elsewhere}",
        "lengths": "{it}, whose chunks have no one length; {elsewhere}",
        "export": "{it}, which is not exported: `ul2 cache` writes it, and training reads that (use_cached=True); {elsewhere}",
    }

    def lengths_of(self, data):
        of_denoisers(data.lengths)
        return data.given.get("sequence_length") or data.tasks[0].corpus.read_as[1]  # that of texts has no room for pictures

    def show(self, data, as_json, *, count, denoisers, split, seed, **others):
        from ul2_tasks.looking.images.show import as_plain, draw_picture_tasks, show_picture_tasks
        from ul2_tasks.looking.printing import print_json_lines

        asked = {"count": count, "seed": seed, "split": split, "denoisers": denoisers or None}
        if as_json:
            print_json_lines(map(as_plain, draw_picture_tasks(data.mixture, self.lengths_of(data), **asked)))
        else:
            show_picture_tasks(data.mixture, self.lengths_of(data), **asked)

    def measure(self, data, *, examples, split, seed):
        from ul2_tasks.looking.images.measure import RECORDS, measure_picture_tasks

        records = data.given.get("examples", RECORDS)
        return measure_picture_tasks(data.mixture, self.lengths_of(data), split=split, seed=seed, records=records)

    def print_statistics(self, statistics, console):
        from ul2_tasks.looking.images.table import print_picture_tasks

        print_picture_tasks(statistics, console)

    def examine(self, data, split):
        from ul2_tasks.looking.images.doctor import examine_picture_tasks

        return examine_picture_tasks(data.mixture, self.lengths_of(data), split)
