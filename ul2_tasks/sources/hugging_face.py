"""`HuggingFaceSource`: documents in a dataset of Hugging Face's `datasets`, a package that is imported when it is needed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from ul2_tasks.cached import cached_property
from ul2_tasks.extras import needs
from ul2_tasks.files.listing import contents
from ul2_tasks.sources.base import RecordSource, kept
from ul2_tasks.sources.columns import check_fields
from ul2_tasks.sources.dataset_objects import DatasetSource, rows_of
from ul2_tasks.sources.files import Layout, Shard
from ul2_tasks.sources.records import Record


class HuggingFaceSource(RecordSource):
    """A dataset of Hugging Face's `datasets`, streamed: from the hub, from local files, or saved with `save_to_disk`."""

    knows_splits = False

    def __init__(self, path: str | os.PathLike, config: str | None, layout: Layout):
        """`path` is what `datasets.load_dataset` or `datasets.load_from_disk` takes."""
        super().__init__((), layout.text_key, layout.id_key)
        self._path, self._config, self._layout = os.path.expanduser(os.fspath(path)), config, layout

    def __repr__(self) -> str:
        return f"HuggingFaceSource({', '.join([repr(self._path), *self._read_as])})"

    @property
    def _read_as(self) -> list[str]:
        return [repr(self._config), *self._layout.changed]

    @kept
    def contents(self, split: str) -> str:
        """The files that a split may be read from, see `listing.contents`, and how; of one of the hub its revision and files."""
        if self._saved is not None:  # other files in its folders, such as those that `map` keeps, are not read
            top = os.path.join(self._path, split)
            folder = top if os.path.isdir(top) else self._path
            paths = [file["filename"] for file in self._saved[split].cache_files]
            paths += filter(os.path.exists, (f"{folder}/{name}" for name in ("state.json", "dataset_info.json")))
            return ", ".join([contents(paths), *self._read_as])
        if os.path.isdir(self._path):
            walked = os.walk(self._path, followlinks=True)
            found = sorted(os.path.join(folder, name) for folder, _, names in walked for name in names)
            found = [path for path in found if not _is_hidden(os.path.relpath(path, self._path))]
            return ", ".join([contents(found), *self._read_as])
        revision = self._opened(split).identities[split]  # paths of the hub have a revision, and those of files are in it
        return ", ".join([revision, *self._read_as]) if revision.startswith("fingerprint") else ""

    @cached_property
    def splits(self) -> Sequence[str]:
        saved = self._saved
        if saved is not None:
            return tuple(saved)
        return tuple(_import_datasets().get_dataset_split_names(self._path, self._config))

    def shards(self, split: str, at_least: int = 0) -> Sequence[Shard]:
        return self._opened(split).shards(split)

    def read(self, shard: Shard) -> Iterator[Record]:
        return self._opened(shard.split).read(shard)

    @cached_property
    def _saved(self):
        """The datasets that `save_to_disk` wrote, by split; None where the path is no such folder."""
        if not any(os.path.exists(f"{self._path}/{name}") for name in ("state.json", "dataset_dict.json")):
            return None
        loaded = _import_datasets().load_from_disk(self._path)
        return loaded if isinstance(loaded, dict) else {"train": loaded}

    @kept
    def _opened(self, split: str) -> DatasetSource:
        """A split, whose columns are known. Raises a ValueError where it lacks one that is wanted."""
        if self._saved is not None:
            return DatasetSource({split: self._saved[split]}, self._layout, self._path)
        if held := sorted(name for _, _, names in os.walk(self._path) for name in names if name.endswith((".xz", ".bz2"))):
            raise ValueError(
                f"source must have no .xz or .bz2, whose later streams datasets may leave out in silence, got {held[0]!r} in"
                f" {self._path!r}. Pass its files, as {self._path + '/*'!r}, or compress them as .gz or .zst."
            )
        dataset = _import_datasets().load_dataset(self._path, self._config, split=split, streaming=True)
        if dataset.column_names is None and (row := next(rows_of(dataset, self._path), None)) is not None:
            check_fields(
                f"{self._path}, split {split},", sorted(row), self._layout
            )  # of some datasets only a row tells the columns
        return DatasetSource({split: dataset}, self._layout, self._path)


def _is_hidden(path: str) -> bool:
    """Whether `datasets` takes no files of this name for data: one that begins with a stop, or is in a folder that does."""
    return any(part.startswith(".") for part in path.split(os.sep))


def _import_datasets():
    with needs("an 'hf:' source", "huggingface"):
        import datasets
    return datasets
