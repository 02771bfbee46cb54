"""From records to rows: read, lay out, drop, count, pack. Only the images of a row are decoded, when the row is made.

    a pool of records -> layouts -> what is dropped -> ids, sizes from headers, counts -> rows of samples -> pixels, arrays

Memory holds the encoded images of one pool, and the pixels of one row. The rows of a pool are a function of its number alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ul2_tasks.image_rows.custom import Custom
from ul2_tasks.image_rows.fitting import fitted
from ul2_tasks.image_rows.left import Left
from ul2_tasks.image_rows.packing import pack
from ul2_tasks.image_rows.patches import patches
from ul2_tasks.image_rows.pools import ALL, in_order
from ul2_tasks.image_rows.problems import MOST_IN_A_ROW, Problems, RecordError, Step, told_as
from ul2_tasks.image_rows.recipe import Recipe, Source
from ul2_tasks.image_rows.row_arrays import Row, custom_arrays, lay_out
from ul2_tasks.image_rows.samples import Sample, Sizes, dummy, sample_of, taken
from ul2_tasks.image_rows.sizes import Grid, Size
from ul2_tasks.images.draws import draws_of
from ul2_tasks.images.elements import Image
from ul2_tasks.images.pixels import pixels, resized, size_of
from ul2_tasks.images.schemas import Record
from ul2_tasks.sources.image_records import Reader


class _Origin(NamedTuple):
    source: int
    id: str  # of the record, in words
    file: str


class RowMaker:
    """Makes the rows of pools. `problems` are those that were skipped."""

    def __init__(self, recipe: Recipe, skipped_file: str | None = None, iteration: int = 0):
        """Opens no file. For `skipped_file` see `Problems`, for `iteration` see `Recipe.pools`."""
        self.problems = Problems(recipe.names_of_sources, skipped_file)
        self._recipe = recipe
        self._pools = recipe.pools(iteration)
        self._readers = [Reader(source.records, recipe.shuffle_blocks) for source in recipe.sources]
        self._most_problems = min(MOST_IN_A_ROW, sum(len(source.records) for source in recipe.sources))
        self._origins: dict[int, tuple[Sample, _Origin]] = {}  # of the samples of the last pool, by their identities
        self._dummies = {name: dummy("vit" if name == "vit" else "clean") for name in recipe.required_modalities}

    @property
    def pools_of_epoch(self) -> int:
        """See `Pools.of_epoch`."""
        return self._pools.of_epoch

    def shard(self, shard: int, shards: int, left: Left = ALL) -> Iterator[int]:
        """See `Pools.shard`."""
        return self._pools.shard(shard, shards, left)

    def pool_of(self, source: int, epoch: int, piece: int, number: int) -> int | None:
        """See `Pools.pool_of`."""
        return self._pools.pool_of(source, epoch, piece, number)

    def packed(self, pool: int) -> list[list[tuple[str, Sample]]]:
        """The rows of a pool: the name of each sample and the sample. Nothing is decoded for it.

        A record that is wrong, or too long, raises a `RecordError`, where that is not to be skipped. Too many that were skipped in
        a row raise a ValueError.
        """
        samples = self._samples(pool)
        room = self._recipe.room
        rows = pack([taken(sample.counts, room) for _, sample in samples], room)
        return [[samples[number] for number in row] for row in in_order(rows, self._recipe.seed, pool, self._pools.first)]

    def source_of(self, sample: Sample) -> int:
        """The number of the source of a sample of the last pool."""
        return self._origins[id(sample)][1].source

    def file_of(self, sample: Sample) -> str:
        """The file of a sample of the last pool; the name of records in memory."""
        return self._origins[id(sample)][1].file

    def row(self, named: Sequence[tuple[str, Sample]]) -> dict[str, Any] | None:
        """The arrays of a row, see `ImageTextDataset`; None if each of its samples was skipped."""
        names: list[str] = []
        samples: list[Sample] = []
        shown: list[tuple[str, np.ndarray]] = []
        sizes = self._recipe.sources[0].sizes  # of which the strides count
        for name, sample in named:
            _, origin = self._origins.get(id(sample), (sample, _Origin(0, "", "")))
            with self._counted("decoded", origin.source), told_as("image", f"{name}{origin.id}", name):
                shown.extend(decoded(sample, sizes))
                names.append(name)
                samples.append(sample)
        if not samples:
            return None
        for kind, added in self._dummies.items():
            if not any(getattr(sample.counts, kind) for sample in samples):
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

    def _samples(self, pool: int) -> list[tuple[str, Sample]]:
        found = []
        self._origins = {}
        for source, epoch, piece, start, stop in self._pools.stretches(pool):
            file = self._recipe.sources[source].records.pieces[piece].path
            for name, record in self._readers[source].read(piece, start, stop):
                with self._counted("planned", source):
                    sample = self._sample(self._recipe.sources[source], epoch, name, record)
                    found.append((f"{name}, epoch {epoch}", sample))
                    self._origins[id(sample)] = sample, _Origin(source, _id_of(record), file)
        return found

    def _sample(self, source: Source, epoch: int, name: str, record: Record | ValueError) -> Sample:
        draws, told = draws_of(self._recipe.seed, epoch, name), f"{name}{_id_of(record)}"
        with told_as("record", told, name):
            if isinstance(record, ValueError):
                raise record
        with told_as("schema", told, name):
            layout = source.elements(record, draws)
            self._recipe.check_kinds(layout)
        size_once = _by_identity(size_of)

        def measure(sizes: Sizes) -> Sample:
            return sample_of(layout, draws, self._encode, size_once, sizes, source.dropout)

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
        self._recipe.special_tokens.check_ids(ids, *self._recipe.marks_of_kinds)
        return ids.astype(np.int64, copy=False)

    @contextlib.contextmanager
    def _counted(self, step: Step, source: int) -> Iterator[None]:
        """Skips a problem of the source of this number, where that is wanted."""
        try:
            yield
            self.problems.right(step, source)
        except RecordError as problem:
            if self._recipe.on_error == "raise":
                raise
            self.problems.skip(problem, step, source, self._most_problems)


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
                cut[image, grid, patch_size] = patches(
                    _of_size(whole[image], grid.columns * patch_size, grid.rows * patch_size), patch_size
                )
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


def _by_identity(size_of: Callable[[object], tuple[int, int]]) -> Callable[[object], tuple[int, int]]:
    """The same function, called once for each image, by its identity: an image may have no hash, or a slow one."""
    sizes: dict[int, tuple[int, int]] = {}

    def once(image: object) -> tuple[int, int]:
        if id(image) not in sizes:
            sizes[id(image)] = size_of(image)
        return sizes[id(image)]

    return once


def _of_size(pixels: np.ndarray, width: int, height: int) -> np.ndarray:
    return pixels if pixels.shape[:2] == (height, width) else resized(pixels, width, height)


def _joined(shown: Sequence[tuple[str, np.ndarray]], kind: str, size: Size) -> np.ndarray:
    return np.concatenate([np.zeros((0, size.patch_size**2 * 3), np.uint8), *(array for of, array in shown if of == kind)])
