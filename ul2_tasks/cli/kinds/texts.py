"""Text, of which denoisers make examples; in a mixture also beside tasks of other kinds, which are left out."""

from __future__ import annotations

from typing import ClassVar

import click

from ul2_tasks.cli.kinds.seam import BY_SOURCE, Kind, not_of_tokens, of_denoisers, write_examples_of, write_tokens_of

SHOWN = {"inputs": 288, "targets": 288}  # long enough for two spans of 32 tokens in a chunk at a rate of 0.15
TRAINED = {"inputs": 512, "targets": 512}


class Texts(Kind):
    name = "text"
    parts = frozenset({"Mixture"})
    cannot: ClassVar = {"show --source": BY_SOURCE}

    def refusal(self, data):
        return not_of_tokens(data) or super().refusal(data)

    def lengths_of(self, data):
        return of_denoisers(data.lengths) or (SHOWN if data.is_first_look else TRAINED)

    def export(self, data, output, *, written_as, **options):
        lengths = self.lengths_of(data)
        if written_as != "megatron":
            write_examples_of(data, lengths, output, written_as=written_as, **options)
            return
        cache_dirs = options["cache_dirs"]
        texts = [part for part in data.description.leaves if self.owns(part)]
        corpora = list({(corpus := part.corpus(cache_dirs)).name: corpus for part in texts}.values())
        if not corpora:
            raise click.UsageError(
                f"NAME must have a corpus of text for --format megatron, got {data.mixture}. Export another one."
            )
        write_tokens_of(corpora, output, options["split"], cache_dirs)


def print_overview() -> None:
    """`ul2`: the mixture that comes with this package, on one screen."""
    from rich.console import Console

    from ul2_tasks.inspect import overview

    overview.print_overview(Console())
