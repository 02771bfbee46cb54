"""Interleaved image-text data, of which denoisers make examples: what `register_image_text` registers."""

from __future__ import annotations

from typing import ClassVar

import click

from ul2_tasks.cli.kinds.seam import (
    BY_SOURCE,
    Kind,
    not_of_tokens,
    of_denoisers,
    write_examples_of,
)


class ImageText(Kind):
    name = "interleaved image-text data"
    parts = frozenset({"ImageText"})
    cannot: ClassVar = {
        "show --source": BY_SOURCE,
    }

    def refusal(self, data):
        return not_of_tokens(data) or super().refusal(data)

    def lengths_of(self, data):
        of_denoisers(data.lengths)
        own = next(filter(self.owns, data.description.leaves)).corpus().read_as[1]  # those of text are too short for images
        return data.lengths or own

    def export(self, data, output, *, written_as, **options):
        if written_as != "megatron":
            write_examples_of(data, self.lengths_of(data), output, written_as=written_as, **options)
            return
        raise click.UsageError(
            f"--format must be parquet or tfrecord for images, got 'megatron' for {data.mixture}. Files of Megatron-LM hold ids of"
            " tokens, and no images."
        )

    def left_out(self, parts):
        return [f"images, which such files cannot hold: {part.name}." for part in parts]
