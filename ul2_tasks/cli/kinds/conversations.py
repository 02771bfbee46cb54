"""Conversations, some of whose messages count in the loss."""

from __future__ import annotations

import itertools
from typing import ClassVar

import click

from ul2_tasks.cli.kinds.seam import BY_SOURCE, INSTEAD_OF_REPORT, LEAVE_OUT, LOOK, Kind, write_examples_of


class Conversations(Kind):
    name = "conversations"
    parts = frozenset({"Chat"})
    cannot: ClassVar = {
        "schedule": LOOK,
        "show --source": BY_SOURCE,
        **dict.fromkeys(("show --denoiser", "show --text"), LEAVE_OUT),
        "report": INSTEAD_OF_REPORT,
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

    def show(self, data, as_json, *, count, split, seed, step, host, texts, denoisers, **of_run):
        if step is not None:
            from ul2_tasks.inspect.steps import show_step

            run = self.run_of(data, split=split, seed=seed, **of_run)
            show_step(run, step, host, count=count, as_json=as_json)
            return
        from ul2_tasks.inspect.chat_samples import as_plain
        from ul2_tasks.inspect.conversations.show import draw_chat, show_chat
        from ul2_tasks.inspect.printing import print_json_lines

        asked = {"count": count, "split": split, "seed": seed}
        if as_json:
            print_json_lines(itertools.starmap(as_plain, draw_chat(data.description, self.lengths_of(data), **asked)))
        else:
            show_chat(data.description, self.lengths_of(data), **asked)

    def left_out(self, parts):
        return [
            f"conversations: {part.name}_prompt_completion. Run `ul2 export {part.name}_chat`, which writes loss masks, too."
            for part in parts
        ]

    def export(self, data, output, **options):
        write_examples_of(data, self.lengths_of(data), output, **options)
