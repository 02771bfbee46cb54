"""Interleaved image-text data, of which denoisers make examples: what `register_image_text` registers."""

from __future__ import annotations

from typing import ClassVar

from ul2_command.kinds.seam import LEAVE_OUT, LOOK, Kind, of_denoisers


class ImageText(Kind):
    name = "interleaved image-text data"
    parts: ClassVar = {"ul2_tasks.tasks.image_text": "ImageTextTask"}
    cannot: ClassVar = {
        "find": LOOK,
        **dict.fromkeys(("show --step", "show --schedule"), LEAVE_OUT),
        **dict.fromkeys(("show --text", "show --file"), LEAVE_OUT),
        "stats --output": "Use --json, which prints the statistics.",
        "stats --cache": LEAVE_OUT,
        "report": LOOK,
        "lengths": f"Its chunks differ in length. {LOOK}",
        "export": "Write a cache with `ul2 cache`, and train on it (use_cached=True).",
    }

    def lengths_of(self, data):
        of_denoisers(data.lengths)
        return data.given.get("sequence_length") or data.tasks[0].corpus.read_as[1]  # that of text is too short for images

    def show(self, data, as_json, *, count, denoisers, split, seed, **others):
        from ul2_tasks.looking.images.show import as_plain, draw_image_tasks, show_image_tasks
        from ul2_tasks.looking.printing import print_json_lines

        asked = {"count": count, "seed": seed, "split": split, "denoisers": denoisers or None}
        if as_json:
            print_json_lines(map(as_plain, draw_image_tasks(data.mixture, self.lengths_of(data), **asked)))
        else:
            show_image_tasks(data.mixture, self.lengths_of(data), **asked)

    def measure(self, data, *, examples, split, seed):
        from ul2_tasks.looking.images.measure import RECORDS, measure_image_tasks

        records = data.given.get("examples", RECORDS)
        return measure_image_tasks(data.mixture, self.lengths_of(data), split=split, seed=seed, records=records)

    def print_statistics(self, statistics, console):
        from ul2_tasks.looking.images.table import print_image_tasks

        print_image_tasks(statistics, console)

    def examine(self, data, split):
        from ul2_tasks.looking.images.doctor import examine_image_tasks

        return examine_image_tasks(data.mixture, self.lengths_of(data), split)
