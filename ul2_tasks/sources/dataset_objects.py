"""`DatasetSource`: documents in objects of Hugging Face's `datasets`, which the user has made."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

from ul2_tasks.files.listing import contents
from ul2_tasks.files.retries import retried_items
from ul2_tasks.sources.base import RecordSource, kept
from ul2_tasks.sources.columns import check_fields, check_kind
from ul2_tasks.sources.files import MAX_SHARDS, At, Layout, Shard, numbered
from ul2_tasks.sources.records import Record, document_of, grouped

if TYPE_CHECKING:
    import datasets

    Dataset: TypeAlias = datasets.Dataset | datasets.IterableDataset
    Datasets: TypeAlias = Dataset | datasets.DatasetDict | datasets.IterableDatasetDict

# The steps of an IterableDataset whose shards together have the rows of the whole. `take`, for one, takes others of each shard.
_SAME_IN_SHARDS = {
    "ExamplesIterable",
    "ArrowExamplesIterable",
    "RebatchedArrowExamplesIterable",
    "SelectColumnsIterable",
    "MappedExamplesIterable",
    "FilteredExamplesIterable",
    "FormattedExamplesIterable",
    "VerticallyConcatenatedMultiSourcesExamplesIterable",
    "BufferShuffledExamplesIterable",
    "RepeatExamplesIterable",
}


def is_dataset(value: object) -> TypeGuard[Dataset]:
    """Whether a value is a `Dataset` or an `IterableDataset` of the package datasets, by what is asked of it here."""
    return all(hasattr(type(value), name) for name in ("iter", "shard", "select_columns", "info"))


def datasets_by_split(spec: object) -> Mapping[str, Dataset] | None:
    """The datasets of each split, where a specification is of such objects; a single one is `train`. None of anything else.

    Raises a ValueError where only some of its splits are.
    """
    if is_dataset(spec):
        return {"train": spec}
    if not isinstance(spec, Mapping) or not any(map(is_dataset, spec.values())):
        return None
    if others := sorted(split for split, value in spec.items() if not is_dataset(value)):
        raise ValueError(
            f"source must have a Dataset for each of its splits, got something else for {others}. Load the files with"
            " datasets.load_dataset, or register both separately, and mix them."
        )
    return dict(spec)


class DatasetSource(RecordSource):
    """`Dataset` and `IterableDataset` objects of Hugging Face's `datasets`, by split.

    A `Dataset` is read in up to 64 ranges of rows, from its memory-mapped files, and an `IterableDataset` by its shards. One whose
    shards would give other rows than the whole, such as after `take`, is read as a single one.
    """

    def __init__(self, by_split: Mapping[str, Dataset], layout: Layout, name: str | None = None):
        """`name` is what errors and shards call it; by default its class and its own name."""
        super().__init__(by_split, layout.text_key, layout.id_key)
        self._layout, self._called = layout, name
        self.identities = {split: identity_of(dataset) for split, dataset in by_split.items()}
        self._unread = {split: _unread(dataset, self._layout) for split, dataset in by_split.items()}
        self._datasets = {split: _plain(dataset, self._layout) for split, dataset in by_split.items()}
        for split, dataset in self._datasets.items():
            if not _is_transformed(dataset):
                check_fields(f"{self._name(split)},", dataset.column_names, self._layout)
                if dataset.features is not None:
                    check_kind(self._name(split), dataset.features.arrow_schema, self._layout)

    def __repr__(self) -> str:
        return f"DatasetSource({', '.join([repr(self.identities), *self._layout.changed])})"

    @kept
    def contents(self, split: str) -> str:
        """The local files that an `IterableDataset` reads, see `listing.contents`, and how; empty where it reads none."""
        dataset = self._datasets[split]
        paths = [] if _has_rows(dataset) else sorted({*_local_files(getattr(dataset, "_ex_iterable", None))})
        return ", ".join([contents(paths), self.identities[split], *self._layout.changed]) if paths else ""

    def count(self, split: str) -> int | None:
        dataset = self._datasets[split]
        return len(dataset) if _has_rows(dataset) else None

    def shards(self, split: str, at_least: int = 0) -> Sequence[Shard]:
        """The ranges of rows of a `Dataset`, whose rows are counted in the whole; the shards of an `IterableDataset`."""
        dataset, name = self._datasets[split], self._name(split)
        if _has_rows(dataset):
            ranges = [range(len(dataset))] if self._layout.group_by else _ranges(len(dataset))
            return numbered(split, [Shard(name, rows.start, rows.stop) for rows in ranges])
        return numbered(split, [Shard(f"{name}, shard {number}") for number in range(_num_shards(dataset))])

    def read(self, shard: Shard) -> Iterator[Record]:
        dataset = self._datasets[shard.split]
        if _has_rows(dataset):
            dataset = dataset.select(range(shard.start, shard.stop or 0))
        elif shard.of > 1:
            dataset = dataset.shard(num_shards=shard.of, index=shard.number)
        unread = self._unread[shard.split]
        rows = enumerate(rows_of(dataset, shard.path), shard.start)
        places = ((row, At(f"{shard.path}, row {number}", number)) for number, row in rows)
        for record in grouped((document_of(row, where, self._layout) for row, where in places), self._layout):
            yield record._replace(unread=unread) if unread else record

    def _name(self, split: str) -> str:
        """A split in words."""
        if self._called:
            return f"{self._called}, split {split}"
        dataset = self._datasets[split]
        return " ".join(filter(None, [type(dataset).__name__, dataset.info and dataset.info.dataset_name])) + f", split {split}"


def rows_of(dataset: Dataset, name: str) -> Iterator[Mapping[str, Any]]:
    """Yields all rows of a dataset that errors call `name`. Those that cannot be read are tried again, see `retried_items`."""

    def rows_from(number: int) -> Iterator[Mapping[str, Any]]:
        if _has_rows(dataset):
            return iter(dataset.select(range(number, len(dataset))) if number else dataset)
        # In a worker of a DataLoader, `iter` of an `IterableDataset` would leave out the rows of other workers.
        rows = ({name: values[0] for name, values in batch.items()} for batch in dataset.iter(batch_size=1))
        return itertools.islice(rows, number, None)

    return retried_items(rows_from, name)


def _has_rows(dataset: Dataset) -> TypeGuard[datasets.Dataset]:
    """Whether it is a `Dataset`, whose rows have numbers."""
    return hasattr(dataset, "select")


def _is_transformed(dataset: Dataset) -> bool:
    """Whether a function makes its rows when they are read, by `set_transform`, which may need any column."""
    return _has_rows(dataset) and dataset.format["type"] == "custom"


def _plain(dataset: Dataset, layout: Layout) -> Dataset:
    """The dataset with the columns that are read, as Python's values. No image beside a text is decoded."""
    if _is_transformed(dataset):
        return dataset
    dataset, columns = dataset.with_format(None), dataset.column_names
    kept = [name for name in dict.fromkeys(layout.read) if name in (columns or ())]
    return dataset.select_columns(kept) if layout.text_key in kept else dataset


def _unread(dataset: Dataset, layout: Layout) -> tuple[str, ...]:
    """The columns of conversations that nothing reads."""
    names = dataset.column_names if layout.as_json and not _is_transformed(dataset) else None
    return tuple(name for name in names or () if name not in layout.read)


def _ranges(rows: int) -> list[range]:
    """The numbers of rows, in up to 64 ranges of about equal size."""
    count = max(1, min(MAX_SHARDS, rows))
    bounds = [rows * index // count for index in range(count + 1)]
    return [range(start, stop) for start, stop in itertools.pairwise(bounds)]


def _num_shards(dataset: datasets.IterableDataset) -> int:
    return dataset.num_shards if _is_same_in_shards(getattr(dataset, "_ex_iterable", None)) else 1


def _is_same_in_shards(step: Any) -> bool:
    if type(step).__name__ not in _SAME_IN_SHARDS or getattr(step, "with_indices", False):
        return False
    return all(map(_is_same_in_shards, [step.ex_iterable] if hasattr(step, "ex_iterable") else getattr(step, "ex_iterables", [])))


def identity_of(dataset: Dataset) -> str:
    """What a dataset holds, in words that are the same in each process: the fingerprint that `datasets` gives it.

    An `IterableDataset` has none, so what it is made of is hashed as `datasets` does for fingerprints. Where that fails, the words
    have an address, by which a source equals itself alone.
    """
    if _has_rows(dataset):
        return f"{len(dataset)} rows, fingerprint {dataset._fingerprint}"
    from datasets.fingerprint import Hasher

    try:
        # A shard of one is a copy at the beginning: the steps themselves hold how far they have been read.
        return f"fingerprint {Hasher.hash(dataset.shard(num_shards=1, index=0)._ex_iterable)}"
    except Exception:  # whatever pickle says of an object of the user
        return object.__repr__(dataset)


def _local_files(value: Any) -> Iterator[str]:
    """The paths of files on this machine within the steps of an `IterableDataset`."""
    if isinstance(value, str):
        path = value.rpartition("::")[2]
        if os.path.isabs(path) and os.path.isfile(path):
            yield path
    elif isinstance(value, Mapping):
        yield from _local_files([*value.values()])
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _local_files(each)
    elif type(value).__module__.startswith("datasets.") and not is_dataset(value):
        yield from _local_files(getattr(value, "__dict__", None))
