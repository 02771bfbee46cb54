"""`HuggingFaceSource`: documents in a dataset of Hugging Face's `datasets`, a package that is imported when it is needed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from ul2_tasks.cached import cached_property
from ul2_tasks.extras import needs
from ul2_tasks.files.listing import contents
from ul2_tasks.sources.base import RecordSource, kept
from ul2_tasks.sources.columns import check_fields, check_kind
from ul2_tasks.sources.dataset_objects import identity_of, rows_of
from ul2_tasks.sources.files import MAX_SHARDS, At, Layout, Shard, numbered
from ul2_tasks.sources.records import Record, document_of


class HuggingFaceSource(RecordSource):
    """A dataset of Hugging Face's `datasets`, streamed: from the hub, from local files, or saved with `save_to_disk`."""

    knows_splits = False

    def __init__(
        self,
        path: str | os.PathLike,
        config: str | None = None,
        *,
        text_key: str = "text",
        id_key: str | None = None,
        as_json: bool = False,
    ):
        """`path` is what `datasets.load_dataset` or `datasets.load_from_disk` takes. For `as_json` see `Layout`."""
        super().__init__((), text_key, id_key)
        self._path, self._config = os.path.expanduser(os.fspath(path)), config
        self._layout = Layout(None, text_key=text_key, id_key=id_key, as_json=as_json)

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
        revision = identity_of(self._dataset(split))  # paths of the hub have a revision, and those of files are in it
        return ", ".join([revision, *self._read_as]) if revision.startswith("fingerprint") else ""

    @cached_property
    def splits(self) -> Sequence[str]:
        saved = self._saved
        if saved is not None:
            return tuple(saved)
        return tuple(_import_datasets().get_dataset_split_names(self._path, self._config))

    def shards(self, split: str, at_least: int = 0) -> Sequence[Shard]:
        return numbered(split, [Shard(f"{self._path}/{split}[{number}]") for number in range(self._dataset(split).num_shards)])

    def read(self, shard: Shard) -> Iterator[Record]:
        name = f"{self._path}, split {shard.split}, shard {shard.number}"
        dataset = self._dataset(shard.split).shard(num_shards=shard.of, index=shard.number)
        return (
            document_of(row, At(f"{name}, row {number}", number), self._layout) for number, row in enumerate(rows_of(dataset, name))
        )

    @cached_property
    def _saved(self):
        """The datasets that `save_to_disk` wrote, by split; None where the path is no such folder."""
        if not any(os.path.exists(f"{self._path}/{name}") for name in ("state.json", "dataset_dict.json")):
            return None
        loaded = _import_datasets().load_from_disk(self._path)
        return loaded if isinstance(loaded, dict) else {"train": loaded}

    @kept
    def _dataset(self, split: str):
        """A split as an iterable dataset. Raises a ValueError where it lacks a column that is wanted."""
        if self._saved is not None:
            saved = self._saved[split]
            dataset = saved.to_iterable_dataset(num_shards=max(1, min(MAX_SHARDS, len(saved))))
        else:
            if held := sorted(name for _, _, names in os.walk(self._path) for name in names if name.endswith((".xz", ".bz2"))):
                raise ValueError(
                    f"source must have no .xz or .bz2, whose later streams datasets may leave out in silence, got {held[0]!r} in"
                    f" {self._path!r}. Pass its files, as {self._path + '/*'!r}, or compress them as .gz or .zst."
                )
            dataset = _import_datasets().load_dataset(self._path, self._config, split=split, streaming=True)
        columns = dataset.column_names or next(rows_of(dataset, self._path), None)  # of some datasets only a row tells the columns
        if dataset.features is not None:
            check_kind(f"{self._path}, split {split}", dataset.features.arrow_schema, self._layout)
        check_fields(f"{self._path}, split {split},", None if columns is None else sorted(columns), self._layout)
        return dataset


def _is_hidden(path: str) -> bool:
    """Whether `datasets` takes no files of this name for data: one that begins with a stop, or is in a folder that does."""
    return any(part.startswith(".") for part in path.split(os.sep))


def _import_datasets():
    with needs("an 'hf:' source", "huggingface"):
        import datasets
    return datasets
