"""Where documents come from: files of all kinds, Hugging Face datasets, TFDS, memory.

All are `seqio.DataSource`s, which shard, shuffle from a seed, and whose iterators can be saved. They give the text under its own
key, which they know as `text_key`, and, where a record can be bad, `problem`, which says what is wrong with it, or is empty.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterator, Mapping, Sequence

import seqio
import tensorflow as tf

from ul2_tasks import files, records
from ul2_tasks.files import Layout, Piece
from ul2_tasks.memory import embedded_corpus
from ul2_tasks.records import PROBLEM, Record
from ul2_tasks.splits import HashSplit
from ul2_tasks.streams import RecordSource

_RECORDS_PER_BATCH = 128

Files = str | os.PathLike | Sequence[str | os.PathLike]


def open_source(
    spec: seqio.DataSource | Files | Mapping[str, Files],
    *,
    text_key: str = "text",
    id_key: str | None = None,
    validation: float | None = None,
    format: str | None = None,
    documents: str = "line",
) -> seqio.DataSource:
    """A source from what one has: the argument `source` of `register`, with what it has to know. Opens no file.

    Args:
        spec: one of
            files: a path, a glob, a folder, or a list of such; local, or of any file system of fsspec or TensorFlow (gs://..).
                Compressed (.gz .bz2 .xz .zst) or not. They are the split `train`; or a dictionary with those of each split.
            "hf:NAME", "hf:NAME:CONFIG" or "hf:FOLDER": a dataset of Hugging Face's `datasets`, streamed.
            "tfds:NAME": a dataset of TensorFlow Datasets, such as "tfds:c4/en:3.1.0".
            "embedded": the corpus that is in every Python.
            any `seqio.DataSource`.
        text_key: the field, column or feature of the text.
        id_key: that of the document's id, for `validation`; by default its text is its id.
        validation: the fraction of documents that are split off as `validation`, chosen by a hash of the id. Every
            document stays where it is, on every machine and in every order.
        format: of files, "text", "jsonl", "parquet", "arrow" or "tfrecord"; by default as their names end.
        documents: what a document is in text files: a "line", a "file", or a "paragraph", which blank lines separate.

    Raises:
        ValueError: an argument is not as above.
    """
    source = _open(spec, text_key, id_key, format, documents)
    return source if validation is None else HashSplit(source, validation, text_key=text_key, id_key=id_key)


def documents(source: seqio.DataSource, split: str, seed: int = 0) -> Iterator[str]:
    """The texts of a split, shuffled a little, as a task that trains on them would read them.

    Raises:
        ValueError: there is no such split; a record has a problem, which it tells.
    """
    if split not in source.splits:
        raise ValueError(f"there is no split {split!r} in {source!r}, only {sorted(source.splits)}")
    for document in source.get_dataset(split, shuffle=True, seed=seed).shuffle(1000, seed=seed).as_numpy_iterator():
        if isinstance(document, bytes):
            yield document.decode()
        elif problem := document.get(PROBLEM):
            raise ValueError(problem.decode())
        else:
            yield document[getattr(source, "text_key", "text")].decode()


class FileSource(RecordSource):
    """Text, JSON Lines, Parquet, Arrow and TFRecord files of any file system, compressed or not.

    Where there are fewer than 64 files, large ones are cut into pieces: JSON Lines and text files with a document a line, if
    they are not compressed, at any line; Parquet and Arrow files at their row groups and record batches.
    """

    def __init__(
        self,
        split_to_files: Mapping[str, Files],
        *,
        text_key: str = "text",
        id_key: str | None = None,
        format: str | None = None,
        documents: str = "line",
    ):
        """See `open_source` for the arguments; `split_to_files` has the files of each split."""
        expected = {"format": (format, (None, *dict.fromkeys(files.FORMATS.values()))), "documents": (documents, files.DOCUMENTS)}
        for name, (value, choices) in expected.items():
            if value not in choices:
                raise ValueError(f"{name} is {value!r}, expected one of {[choice for choice in choices if choice]}")
        super().__init__(split_to_files, text_key, id_key)
        self._files = {split: _plain(patterns) for split, patterns in split_to_files.items()}
        self._layout = Layout(format, documents, text_key, id_key)
        self._listed: dict[str, tuple[Layout, list[Piece]]] = {}

    def __repr__(self) -> str:
        defaults = Layout(None)
        changed = {key: value for key, value in dataclasses.asdict(self._layout).items() if value != getattr(defaults, key)}
        return f"FileSource({', '.join([repr(self._files), *(f'{key}={value!r}' for key, value in changed.items())])})"

    def files(self, split: str) -> list[str]:
        """The paths of a split's files."""
        return list(dict.fromkeys(piece.path for piece in self._pieces(split)))

    def list_shards(self, split: str) -> Sequence[str]:
        return [str(piece) for piece in self._pieces(split)]

    def records(self, split: str, piece: int) -> Iterator[Record]:
        return records.read(self._pieces(split)[piece], self.layout(split))

    def layout(self, split: str) -> Layout:
        """How the documents of a split lie in its files."""
        return self._list(split)[0]

    def get_dataset(self, split: str = "train", *args, **kwargs) -> tf.data.Dataset:
        """See `RecordSource.get_dataset`. Raises a ValueError, too, where the first file has no such column."""
        if split in self.splits:
            self._check_columns(split)
        return super().get_dataset(split, *args, **kwargs)

    def _pieces(self, split: str) -> list[Piece]:
        return self._list(split)[1]

    def _list(self, split: str) -> tuple[Layout, list[Piece]]:
        if split not in self._listed:
            paths = files.list_files(self._files[split])
            layout = dataclasses.replace(self._layout, format=self._layout.format or files.format_of(paths))
            self._listed[split] = layout, files.cut(paths, layout)
        return self._listed[split]

    def _check_columns(self, split: str) -> None:
        layout, pieces = self._list(split)
        if layout.format == "tfrecord":
            names = _tfrecord_features(pieces)
        else:
            names = records.column_names(pieces[0].path, layout.format) if layout.format in ("parquet", "arrow") else None
        for key in filter(None, (layout.text_key, layout.id_key)):
            if names is not None and key not in names:
                raise ValueError(f"{pieces[0].path} has no column {key!r}, it has {names}; give text_key or id_key one of these")

    def _stream(self, split: str, piece: tf.Tensor) -> tf.data.Dataset:
        layout, pieces = self._list(split)
        if layout.format != "tfrecord":
            return super()._stream(split, piece)
        compression = _tfrecord_compression(pieces)
        path = tf.gather([piece.path for piece in pieces], piece)
        examples = tf.data.TFRecordDataset(path, compression_type=compression).batch(_RECORDS_PER_BATCH)
        return examples.map(functools.partial(_parse_examples, layout=layout)).unbatch()


class HuggingFaceSource(RecordSource):
    """A dataset of Hugging Face's `datasets`, streamed: of the hub, of local files, or saved with `save_to_disk`."""

    def __init__(self, path: str, config: str | None = None, *, text_key: str = "text", id_key: str | None = None):
        """
        Args:
            path: what `datasets.load_dataset` takes, or `datasets.load_from_disk`: "HuggingFaceFW/fineweb-edu", or a folder.
            config: the name of the dataset's configuration, such as "sample-10BT".
            text_key, id_key: the columns of the text and of the document's id.
        """
        super().__init__((), text_key, id_key)
        self._path, self._config = path, config

    def __repr__(self) -> str:
        return f"HuggingFaceSource({self._path!r}, {self._config!r}, text_key={self.text_key!r})"

    @functools.cached_property
    def splits(self) -> Sequence[str]:
        saved = self._saved
        if saved is not None:
            return tuple(saved)
        return tuple(_import_datasets().get_dataset_split_names(self._path, self._config))

    def list_shards(self, split: str) -> Sequence[str]:
        return [f"{self._path}/{split}[{shard}]" for shard in range(self._dataset(split).num_shards)]

    def records(self, split: str, piece: int) -> Iterator[Record]:
        dataset = self._dataset(split)
        layout = Layout("datasets", text_key=self.text_key, id_key=self.id_key)
        for number, row in enumerate(dataset.shard(num_shards=dataset.num_shards, index=piece), 1):
            yield records.document_of(row, f"{self._path}, split {split}, shard {piece}, row {number}", layout)

    @functools.cached_property
    def _saved(self):
        if not any(os.path.exists(f"{self._path}/{name}") for name in ("state.json", "dataset_dict.json")):
            return None
        loaded = _import_datasets().load_from_disk(self._path)
        return loaded if isinstance(loaded, dict) else {"train": loaded}

    @functools.lru_cache(maxsize=16)  # noqa: B019 - a source lives as long as its tasks do
    def _dataset(self, split: str):
        if self._saved is not None:
            saved = self._saved[split]
            return saved.to_iterable_dataset(num_shards=max(1, min(files.MAX_PIECES, len(saved))))
        return _import_datasets().load_dataset(self._path, self._config, split=split, streaming=True)


class TfdsSource(seqio.TfdsDataSource):
    """`seqio.TfdsDataSource` that says what it is without opening the dataset."""

    def __init__(self, name: str, text_key: str = "text"):
        super().__init__(tfds_name=name)
        self._name, self.text_key = name, text_key

    def __repr__(self) -> str:
        return f"TfdsSource({self._name!r}, text_key={self.text_key!r})"


def _open(spec, text_key: str, id_key: str | None, format: str | None, documents: str) -> seqio.DataSource:
    if isinstance(spec, seqio.DataSource):
        return spec
    if isinstance(spec, Mapping):
        return FileSource(spec, text_key=text_key, id_key=id_key, format=format, documents=documents)
    if isinstance(spec, str):
        kind, _, name = spec.partition(":")
        if spec == "embedded":
            return embedded_corpus()
        if kind == "tfds":
            return TfdsSource(name, text_key)
        if kind == "hf":
            path, _, config = name.partition(":")
            return HuggingFaceSource(path, config or None, text_key=text_key, id_key=id_key)
    if isinstance(spec, str | os.PathLike) or (isinstance(spec, Sequence) and spec):
        return FileSource({"train": spec}, text_key=text_key, id_key=id_key, format=format, documents=documents)
    raise ValueError(
        f"the source is {spec!r}, expected files ('corpus/*.jsonl.gz', a folder, a list of such, or a dictionary of them by split),"
        " 'hf:NAME', 'tfds:NAME', 'embedded', or a seqio.DataSource"
    )


def _plain(patterns: Files) -> str | list[str]:
    return os.fspath(patterns) if isinstance(patterns, str | os.PathLike) else [os.fspath(pattern) for pattern in patterns]


def _import_datasets():
    try:
        import datasets
    except ImportError as error:
        raise ImportError(f"'hf:' sources need the package datasets ({error}); pip install 'ul2_tasks[huggingface]'") from error
    return datasets


def _tfrecord_compression(pieces: Sequence[Piece]) -> str:
    suffixes = {os.path.splitext(piece.path)[1] for piece in pieces} & set(files.COMPRESSIONS)
    if suffixes - {".gz"}:
        raise ValueError(f"TensorFlow reads TFRecords as they are or compressed as .gz, got {sorted(suffixes)}; recompress them")
    return "GZIP" if suffixes else ""


def _tfrecord_features(pieces: Sequence[Piece]) -> list[str] | None:
    """The features of the first record; None, if there is none."""
    dataset = tf.data.TFRecordDataset(pieces[0].path, compression_type=_tfrecord_compression(pieces[:1]))
    for record in dataset.take(1).as_numpy_iterator():
        return sorted(tf.train.Example.FromString(record).features.feature)
    return None


def _parse_examples(serialized: tf.Tensor, layout: Layout) -> dict[str, tf.Tensor]:
    keys = list(filter(None, (layout.text_key, layout.id_key)))
    parsed = tf.io.parse_example(serialized, {key: tf.io.RaggedFeature(tf.string) for key in keys})
    whole = [parsed[key].row_lengths() == 1 for key in keys]
    problem = tf.where(tf.reduce_all(whole, axis=0), "", f"a record has not exactly one text in each of its features {keys}")
    return {PROBLEM: problem, **{key: tf.where(problem == "", tf.strings.reduce_join(parsed[key], axis=1), "") for key in keys}}
