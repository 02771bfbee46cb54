"""From records to rows: read, lay out, drop, count, pack. Only the images of a row are decoded, when the row is made.

    a pool of records -> layouts -> what is dropped -> ids, sizes from headers, counts -> rows of samples -> pixels, arrays

Memory holds the encoded images of one pool, and the pixels of one row. The rows of a pool are a function of its number alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ul2_tasks.image_rows.custom import Custom, marks_of
from ul2_tasks.image_rows.packing import pack
from ul2_tasks.image_rows.patches import patches
from ul2_tasks.image_rows.pools import in_order
from ul2_tasks.image_rows.problems import Problems, RecordError, Step, told_as
from ul2_tasks.image_rows.recipe import Recipe, Source
from ul2_tasks.image_rows.records import Reader
from ul2_tasks.image_rows.row_arrays import Row, custom_arrays, lay_out
from ul2_tasks.image_rows.samples import Sample, Sizes, dummy, fitted, sample_of, taken
from ul2_tasks.image_rows.sizes import Grid, Size
from ul2_tasks.images.draws import Draws, draws_of
from ul2_tasks.images.elements import Image
from ul2_tasks.images.pixels import pixels, resized, size_of
from ul2_tasks.images.schemas import Record


class Placed(NamedTuple):
    """A sample, and where it is from."""

    sample: Sample
    source: int  # from 0
    file: str  # the name of records in memory
    record: str  # its name, as in errors
    epoch: int  # of the source, from 0
    id: str = ""  # of the record, in words

    @property
    def name(self) -> str:
        """The record and the epoch, which no other sample has."""
        return f"{self.record}, epoch {self.epoch}"


class RowMaker:
    """Makes the rows of pools. `problems` are those that were skipped, where no others are given."""

    def __init__(self, recipe: Recipe, skipped_file: str | None = None, iteration: int = 0):
        """Opens no file. For `skipped_file` see `Problems`, for `iteration` see `Recipe.pools`."""
        self.problems = recipe.problems(skipped_file)
        self._recipe = recipe
        self._pools = recipe.pools(iteration)
        self._readers = [Reader(source.records, recipe.shuffle_blocks) for source in recipe.sources]
        self._dummies = {name: dummy(name) for name in recipe.required_modalities}

    def packed(self, pool: int, problems: Problems | None = None) -> list[list[Placed]]:
        """The samples of each row of a pool. Nothing is decoded for it.

        A record that is wrong, or too long, raises a `RecordError`, where that is not to be skipped. Too many that were skipped in
        a row raise a ValueError.
        """
        samples = self._samples(pool, problems or self.problems)
        room = self._recipe.room
        rows = pack([taken(each.sample.counts, room) for each in samples], list(room.values()))
        return [[samples[number] for number in row] for row in in_order(rows, self._recipe.seed, pool, self._pools.first)]

    def row(self, placed: Sequence[Placed], problems: Problems | None = None) -> dict[str, Any] | None:
        """The arrays of a row, see `ImageTextDataset`; None if each of its samples was skipped."""
        names: list[str] = []
        samples: list[Sample] = []
        shown: list[tuple[str, np.ndarray]] = []
        sizes = self._recipe.sources[0].sizes  # of which the strides count
        for each in placed:
            with (
                self._counted("decoded", each.source, problems or self.problems),
                told_as("image", f"{each.name}{each.id}", each.name),
            ):
                shown.extend(decoded(each.sample, sizes))
                names.append(each.name)
                samples.append(each.sample)
        if not samples:
            return None
        for kind, added in self._dummies.items():
            if not any(sample.counts[kind] for sample in samples):
                names.append("dummy")
                samples.append(added)
                shown.append((kind, np.zeros((1, getattr(sizes, kind).patch_size ** 2 * 3), np.uint8)))
        row = dict(zip(Row._fields, lay_out(samples, self._recipe.special_tokens)))
        for own in self._recipe.kinds:
            row |= custom_arrays(samples, own)
            none = np.zeros((0, own.width), own.dtype)
            row[f"packed_{own.name}_features"] = np.concatenate([none, *(array for of, array in shown if of == own.name)])
        return {
            **row,
            "packed_vit_patches": _joined(shown, "vit", sizes.vit),
            "packed_vae_patches": _joined(shown, "vae", sizes.vae),
            "ce_tokens": len(row["ce_loss_indexes"]),
            "ce_weight": float(row["ce_loss_weights"].sum(dtype=np.float64)),
            "mse_tokens": len(row["mse_loss_indexes"]),
            "samples": names,
        }

    def _samples(self, pool: int, problems: Problems) -> list[Placed]:
        found = []
        for number, epoch, piece, start, stop in self._pools.stretches(pool):
            source = self._recipe.sources[number]
            records = source.records
            for name, record in self._readers[number].read(piece, start, stop):
                # Files may be moved with their folder; records in memory have a name that no others have.
                key = f"{number}, {name.removeprefix(records.root)}" if records.root else name
                with self._counted("planned", number, problems):
                    sample = self._sample(source, draws_of(self._recipe.seed, epoch, key), name, record)
                    found.append(Placed(sample, number, records.pieces[piece].path, name, epoch, _id_of(record)))
        return found

    def _sample(self, source: Source, draws: Draws, name: str, record: Record | ValueError) -> Sample:
        told = f"{name}{_id_of(record)}"
        with told_as("record", told, name):
            if isinstance(record, ValueError):
                raise record
        with told_as("schema", told, name):
            layout = source.elements(record, draws)
            self._recipe.check_kinds(layout)

        def measure(sizes: Sizes) -> Sample:
            return sample_of(layout, draws, self._encode, size_of, sizes, source.dropout)

        with told_as("sample", told, name):
            sample = measure(source.sizes)
        with told_as("too long", told, name):
            return fitted(sample, measure, source.sizes, self._recipe.room, self._recipe.shrink)

    def _encode(self, text: str) -> Any:
        ids = np.asarray(self._recipe.encode(text))
        if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
            raise ValueError(f"vocabulary must return a list of ids, got an array of {ids.dtype} with the shape {ids.shape}.")
        if ids.size and ids.min() < 0:
            raise ValueError(f"vocabulary must return ids from 0, got {ids.min()}.")
        self._recipe.special_tokens.check_ids(ids, *marks_of(self._recipe.kinds))
        return ids.astype(np.int64, copy=False)

    @contextlib.contextmanager
    def _counted(self, step: Step, source: int, problems: Problems) -> Iterator[None]:
        """Skips a problem of the source of this number, where that is wanted."""
        try:
            yield
            problems.right(step, source)
        except RecordError as problem:
            if self._recipe.on_error == "raise":
                raise
            problems.skip(problem, step, source)


def decoded(sample: Sample, sizes: Sizes) -> list[tuple[str, np.ndarray]]:
    """The patches of each image that is kept, and "vit" or "vae"; the features of each element of your own kinds, and its kind.

    An image that is used twice is decoded once.
    """
    whole: dict[int, np.ndarray] = {}
    cut: dict[tuple[int, Grid, int], np.ndarray] = {}
    found = []
    for element, kept, grid in zip(sample.layout, sample.kept, sample.contents):
        if kept and isinstance(element, Image) and isinstance(grid, Grid):
            image, patch_size = id(element.image), sizes.of(element).patch_size
            if image not in whole:
                whole[image] = pixels(element.image)
            if (image, grid, patch_size) not in cut:
                array, height, width = whole[image], grid.rows * patch_size, grid.columns * patch_size
                array = array if array.shape[:2] == (height, width) else resized(array, width, height)
                cut[image, grid, patch_size] = patches(array, patch_size)
            found.append(("vit" if element.kind == "vit" else "vae", cut[image, grid, patch_size]))
        elif kept and isinstance(element, Custom) and isinstance(grid, int):
            found.append((element.kind, element.of.features(element.value, grid)))
    return found


def _id_of(record: object) -> str:
    """The id that a record has, behind its name; nothing where it has none.

    >>> _id_of({"id": "00017", "image": b".."}), _id_of({"image": b".."})
    (", id '00017'", '')
    """
    id = record.get("id") if isinstance(record, Mapping) else None
    return f", id {id!r}" if isinstance(id, str | int) else ""


def _joined(shown: Sequence[tuple[str, np.ndarray]], kind: str, size: Size) -> np.ndarray:
    return np.concatenate([np.zeros((0, size.patch_size**2 * 3), np.uint8), *(array for of, array in shown if of == kind)])
