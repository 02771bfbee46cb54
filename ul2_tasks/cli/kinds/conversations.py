"""Conversations, some of whose messages count in the loss."""

from __future__ import annotations

from typing import ClassVar

import click

from ul2_tasks.cli.kinds.seam import BY_SOURCE, Kind, write_examples_of


class Conversations(Kind):
    name = "conversations"
    parts = frozenset({"Chat"})
    cannot: ClassVar = {
        "show --source": BY_SOURCE,
    }

    def lengths_of(self, data):
        """The lengths that were given, for the format that is asked for; any number of tokens where none were."""
        found = data.lengths or dict.fromkeys(("inputs", "targets") if data.format == "prompt_completion" else ("tokens",))
        keys = {"chat": ("tokens",), "prompt_completion": ("inputs", "targets")}.get(data.format or "", tuple(found))
        if tuple(found) != keys:
            expected = "one number of tokens, such as 4096" if len(keys) == 1 else "two numbers of tokens, such as 512,512"
            got = ",".join(map(str, found.values()))
            raise click.UsageError(f"--lengths must be {expected}, for {data.mixture}, got {got}.")
        return found

    def left_out(self, parts):
        return [
            f"conversations: {part.name}_prompt_completion. Run `ul2 export {part.name}_chat`, which writes loss masks, too."
            for part in parts
        ]

    def export(self, data, output, **options):
        write_examples_of(data, self.lengths_of(data), output, **options)
