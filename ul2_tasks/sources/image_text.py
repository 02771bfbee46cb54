"""Interleaved image-text data: records of files, or of lists, by a layout."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from ul2_tasks.cached import cached_property
from ul2_tasks.files.listing import contents
from ul2_tasks.files.systems import sizes
from ul2_tasks.images.draws import Draws, draws_of
from ul2_tasks.images.elements import Element, Image, Text, checked, elements_of
from ul2_tasks.images.example_set import example_records
from ul2_tasks.images.interleaved import captioned, texts_and_images
from ul2_tasks.images.paths import Address, folder_of, is_below
from ul2_tasks.images.pixels import file_of, kind_of
from ul2_tasks.images.problems import check_of_record, sentence_of
from ul2_tasks.images.schemas import vlm_sft
from ul2_tasks.scalars import check_split
from ul2_tasks.sources.base import RecordSource, kept
from ul2_tasks.sources.files import ID, At, Rows, Shard, numbered
from ul2_tasks.sources.formats import rows, rows_read, shards_of
from ul2_tasks.sources.image_examples import serialized
from ul2_tasks.sources.image_files import WHOLE, check_no_dataset, plain_name, record_files, with_paths
from ul2_tasks.sources.lines import Line
from ul2_tasks.sources.records import Record, as_id
from ul2_tasks.sources.words import CannotTellError, name_of, words_of

_Schema: TypeAlias = Callable[[Mapping[str, Any], Draws], Iterable[Element]]


def _one(schema: _Schema) -> Callable[[Mapping[str, Any], Draws], Sequence[Sequence[Element]]]:
    return lambda record, draws: [elements_of(schema, record, draws)]


KINDS: Mapping[str, Callable[[Mapping[str, Any], Draws], Sequence[Sequence[Element]]]] = {
    "interleaved": _one(texts_and_images),
    "captions": captioned,
    "vlm_sft": _one(vlm_sft),
}
_EMBEDDED = {"interleaved": "story", "captions": "t2i_pretrain", "vlm_sft": "vlm_sft"}  # records of the embedded set
Held: TypeAlias = str | os.PathLike | Sequence[str | os.PathLike] | Sequence[Mapping[str, Any]]  # files, or records themselves
_RECORD = "record"  # the feature of a record as a text
_HELD = 64  # records of a shard in memory


class ImageTextSource(RecordSource):
    """Records of texts and images, serialized, see `image_examples`.

    At each place is a text, or the bytes of an image, or both, the text first; what is not there is empty.
    """

    def __init__(
        self,
        splits: Mapping[str, Held],
        kind: str | Callable[[Mapping[str, Any], Draws], Sequence[Element]] = "interleaved",
        folder: str | None = None,
    ):
        """See `open_image_text`."""
        for held in splits.values():
            check_no_dataset(held)
        super().__init__(splits=splits, text_key=_RECORD)
        if not callable(kind) and kind not in KINDS:
            raise ValueError(f"kind must be one of {list(KINDS)}, or a function of a record and its draws, got {kind!r}.")
        self._held, self._kind, self._folder = dict(splits), kind, folder
        self._shards: dict[str, list[Shard]] = {}  # listed once, and for all processes that get this source

    def __repr__(self) -> str:
        return self._in_words

    @cached_property
    def _in_words(self) -> str:
        """Made once: all records in memory are hashed for it."""
        held = {split: _in_words(held) for split, held in self._held.items()}
        return f"ImageTextSource({held}, {self._read_as(self._folder)})"

    @property
    def identity(self) -> str | None:
        return self._with_code(self._in_words)

    def reads(self, split: str) -> str | None:
        return self._with_code(f"ImageTextSource({self.contents(split)})")

    def _with_code(self, words: str) -> str | None:
        """The words with those of the function of its records, where these can be told."""
        try:
            return f"{words}; {words_of(self._kind)}" if callable(self._kind) else words
        except CannotTellError:
            return None

    def shards(self, split: str, at_least: int = 0) -> Sequence[Shard]:
        """The parts of the files, such as row groups; of records in memory 64 each."""
        check_split(split, self._held, self)
        if split not in self._shards:
            held: Any = self._held[split]
            if (count := self.count(split)) is None:
                paths = record_files(held)
                found = shards_of(paths, WHOLE, sizes(paths))
            elif count:
                found = [Shard(start=start, stop=min(start + _HELD, count)) for start in range(0, count, _HELD)]
            else:
                raise ValueError("records must have at least one record, got none.")
            self._shards[split] = numbered(split, found)
        return self._shards[split]

    def count(self, split: str) -> int | None:
        """How many records there are in memory; None of those in files."""
        held: Any = self._held[split]
        return len(held) if _are_records(held) else None

    def files(self, split: str) -> list[str]:
        """The files of records; none of records in memory."""
        return list(dict.fromkeys(shard.path for shard in self.shards(split) if shard.path))

    @kept
    def contents(self, split: str) -> str:
        """The records of a split: files by their size and time, see `listing.contents`; records in memory by their SHA-256."""
        paths = self.files(split)
        held = contents(paths) if paths else _in_words(self._held[split])
        folder = self._folder if self._folder is None or "://" in self._folder else os.path.realpath(self._folder)
        return f"{held}, {self._read_as(folder)}"

    def _read_as(self, folder: str | None) -> str:
        kind = name_of(self._kind) if callable(self._kind) else self._kind
        return f"kind={kind!r}, folder={folder!r}"

    def rows_of(self, shard: Shard, records: int, last: object) -> int:
        return rows_read(shard, WHOLE, records, last) if shard.path else records

    def read(self, shard: Shard) -> Iterator[Record]:
        """The records of a shard, each as serialized `tf.train.Example`s: one, or with captions one for each of them."""
        for where, row in rows(shard, WHOLE) if shard.path else self._held_rows(shard):
            name = plain_name(where.brief if isinstance(where, Line) else where)
            place = where if hasattr(where, "row") else ""
            id = b"" if isinstance(row, ValueError) else as_id(row.get(ID))
            try:
                if isinstance(row, ValueError):
                    raise row
                folder = folder_of(shard.path) if self._folder is None else self._folder
                record = with_paths(row, folder, shard.path) if shard.path or self._folder is not None else row
                layouts = (_one(self._kind) if callable(self._kind) else KINDS[self._kind])(record, draws_of(0, 0, name))
                names = [f"{name}, caption {number + 1}" for number in range(len(layouts))] if len(layouts) > 1 else [name]
                read = [
                    Record(_as_example(checked(layout) if layout else layout, each, folder), where=place, id=id)
                    for layout, each in zip(layouts, names)
                ]
            except Exception as error:
                check_of_record(error, name)
                read = [Record(_as_example([], name, ""), problem=sentence_of(error), where=place, id=id)]
            yield from read

    def _held_rows(self, shard: Shard) -> Rows:
        """The records of a shard in memory."""
        held: Any = self._held[shard.split]
        return ((At(f"{shard.split}, record {row}", row), dict(held[row])) for row in range(shard.start, shard.stop or 0))


def open_image_text(
    source: Held | Mapping[str, Held],
    kind: str | Callable[[Mapping[str, Any], Draws], Sequence[Element]] = "interleaved",
    folder: str | None = None,
) -> ImageTextSource:
    """Opens interleaved image-text records for `register_image_text`. No file is opened before a dataset is made.

    Args:
        source: "embedded", built-in records of the kind; files of records, by path, glob, folder or list: Parquet,
            JSON Lines, or tar as WebDataset has it; or records, a list of dictionaries; or a dictionary of these, by the name of
            the split. Otherwise all is `train`.
        kind: what the records are: "interleaved", with `texts` and `images`, two lists of one length, with a text, an image, or a
            text and then an image at each place; "captions", with `image` and `captions`, the image first, and for each caption
            an example of its own; "vlm_sft", see `images.schemas`; or a function of a record and its draws that returns a
            layout, see `images.elements`. Its draws are the same in every epoch, and whatever the seed is.
        folder: where paths of images begin, and stay, also by links; by default the folder of the record's file, and for records
            in memory anywhere on this machine. Images on other file systems are read only below a folder that is an address.

    Raises:
        ValueError: the kind is not one of these.

    >>> source = open_image_text([{"texts": ["A cat:", None], "images": [None, b".."]}])
    >>> [str(record.where) for record in source.read(source.shards("train")[0])]
    ['train, record 0']
    """
    if source == "embedded" and isinstance(kind, str) and kind in KINDS:
        source = example_records(_EMBEDDED[kind])
    return ImageTextSource(source if isinstance(source, Mapping) else {"train": source}, kind, folder)


def _are_records(held: Held) -> bool:
    return not isinstance(held, str | os.PathLike) and all(isinstance(one, Mapping) for one in held)


def _in_words(held: Any) -> object:
    """Files by their names; records by their number and SHA-256."""
    if not _are_records(held):
        return os.fspath(held) if isinstance(held, str | os.PathLike) else [os.fspath(one) for one in held]
    return f"{len(held)} records, sha256 {hashlib.sha256(repr(held).encode()).hexdigest()}"


def _as_example(layout: Sequence[Element], where: str, folder: str) -> bytes:
    texts = [element.text.encode() if isinstance(element, Text) else b"" for element in layout]
    images = [_bytes_of(element.image, folder) if isinstance(element, Image) else b"" for element in layout]
    if drawn := [element.kind for element in layout if element.kind not in ("text", "vit")]:
        raise ValueError(f"images must be seen as 'vit', got {drawn}: no image is generated here.")
    return serialized(texts, images, where.encode())


def _bytes_of(image: object, folder: str) -> bytes:
    if isinstance(image, bytes):
        return image
    if not isinstance(image, str | os.PathLike):
        raise ValueError(f"an image must be bytes or the path of a file, got {kind_of(image)}.")
    with file_of(Address(image) if isinstance(image, str) and is_below(image, folder) else image, "image") as file:
        return file.read()
