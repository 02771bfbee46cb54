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
import tensorflow_datasets as tfds

from ul2_tasks import files, records
from ul2_tasks.files import Layout, Piece
from ul2_tasks.memory import embedded_corpus
from ul2_tasks.records import PROBLEM, Record
from ul2_tasks.splits import HashSplit
from ul2_tasks.streams import RecordSource

_RECORDS_PER_BATCH = 128
_FILES_LOOKED_AT = 16  # to know the fields: the first ones may be empty

Files = str | os.PathLike | Sequence[str | os.PathLike]


def open_source(
    spec: seqio.DataSource | Files | Mapping[str, Files],
    *,
    text_key: str = "text",
    id_key: str | None = None,
    validation: float | None = None,
    format: str | None = None,
    documents: str | None = None,
) -> seqio.DataSource:
    """A source from what one has: the argument `source` of `register`, with what it has to know. Opens no file.

    (It looks into text files, if it is not told what a document is in them, to show in the error what each choice would give.)

    Args:
        spec: one of
            files: a path, a glob, a folder, or a list of such; local, or of any file system of fsspec or TensorFlow (gs://..).
                Compressed (.gz .bz2 .xz .zst) or not. They are the split `train`; or a dictionary with those of each split.
            "hf:NAME", "hf:NAME:CONFIG" or "hf:FOLDER": a dataset of Hugging Face's `datasets`, streamed.
            "tfds:NAME": a dataset of TensorFlow Datasets, such as "tfds:c4/en:3.1.0".
            "embedded": the corpus that is in every Python.
            any `seqio.DataSource`.
        text_key: the field, column or feature of the text.
        id_key: that of the document's id, for `validation`: a text, bytes or an integer; by default a document's text is its id.
        validation: the fraction of documents that are split off as `validation`, chosen by a hash of the id. Every
            document stays where it is, on every machine and in every order.
        format: of files, "text", "jsonl", "parquet", "arrow" or "tfrecord"; by default as their names end.
        documents: of text files, which must have it: what a document is in them, a "line", a "file", or a "paragraph", which
            blank lines separate.

    Raises:
        ValueError: an argument is not as above, is missing, or means nothing for this source; the source has a split `validation`
            of its own already.
    """
    if id_key is not None and validation is None:
        raise ValueError(f"id_key is {id_key!r}, and goes with validation alone, which is not given; give it, or leave out id_key")
    source = _open(spec, text_key, id_key, format, documents)
    if validation is None:
        return source
    split = HashSplit(source, validation, text_key=text_key, id_key=id_key)
    if not isinstance(source, HuggingFaceSource | seqio.TfdsDataSource):  # which are opened to know their splits
        split.check_splits()
    return split


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
        documents: str | None = None,
    ):
        """See `open_source` for the arguments; `split_to_files` has the files of each split."""
        expected = {"format": (format, dict.fromkeys(files.FORMATS.values())), "documents": (documents, files.DOCUMENTS)}
        for name, (value, choices) in expected.items():
            if value is not None and value not in choices:
                raise ValueError(f"{name} is {value!r}, expected one of {list(choices)}")
        super().__init__(split_to_files, text_key, id_key)
        self._files = {split: _checked(patterns) for split, patterns in split_to_files.items()}
        self._layout = Layout(format, documents, text_key, id_key)
        self._listed: dict[str, tuple[list[str], Layout]] = {}
        self._cut: dict[str, list[Piece]] = {}
        self._formats = {split: format or _told_format(patterns) for split, patterns in self._files.items()}
        for split in filter(self._formats.get, split_to_files):
            self._check_format(split)

    def __repr__(self) -> str:
        told = dataclasses.asdict(self._layout)
        if told["documents"] == "line":  # the default once: caches that were made then know their source by these words
            told["documents"] = None
        defaults = dataclasses.asdict(Layout(None))
        changed = {key: value for key, value in told.items() if value != defaults[key]}
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
        return self._list(split)[1]

    def _pieces(self, split: str) -> list[Piece]:
        """Raises a ValueError where the first file that has fields lacks one that is wanted."""
        if split not in self._cut:
            paths, layout = self._list(split)
            pieces = files.cut(paths, layout)
            for piece in pieces[:_FILES_LOOKED_AT] if layout.format != "text" else ():
                if fields := _tfrecord_fields(piece) if layout.format == "tfrecord" else records.fields(piece, layout):
                    _check_fields(piece.path, fields, layout.text_key, layout.id_key)
                    break
            self._cut[split] = pieces
        return self._cut[split]

    def _list(self, split: str) -> tuple[list[str], Layout]:
        if split not in self._listed:
            paths = files.list_files(self._files[split])
            self._formats[split] = self._layout.format or files.format_of(paths)
            self._check_format(split)
            self._listed[split] = paths, dataclasses.replace(self._layout, format=self._formats[split])
        return self._listed[split]

    def _check_format(self, split: str) -> None:
        """Raises a ValueError unless the arguments mean something for files of the split's format, which is known by now."""
        layout, patterns = self._layout, self._files[split]
        if self._formats[split] != "text":
            if layout.documents is not None and not {None, "text"} & set(self._formats.values()):
                kind = self._formats[split]
                raise ValueError(
                    f"documents is {layout.documents!r}, and goes with text files; {patterns!r} are {kind}; leave it out"
                )
            return
        for name, value, default in (("text_key", layout.text_key, "text"), ("id_key", layout.id_key, None)):
            if value != default:
                raise ValueError(f"{name} is {value!r}, but text files have no fields, and {patterns!r} are such; leave it out")
        if layout.documents is None:
            raise ValueError(
                f"{patterns!r} are text files: what is a document in them, a line, a paragraph or a file? {_survey(patterns)}; give"
                " open_source(.., documents=..), or --documents to a command"
            )

    def _stream(self, split: str, piece: tf.Tensor) -> tf.data.Dataset:
        layout, pieces = self.layout(split), self._pieces(split)
        if layout.format != "tfrecord":
            return super()._stream(split, piece)
        path = tf.gather([piece.path for piece in pieces], piece)
        examples = tf.data.TFRecordDataset(path, compression_type=_tfrecord_compression(pieces))
        batches = examples.enumerate(1).batch(_RECORDS_PER_BATCH)
        kinds = _tfrecord_kinds(pieces[0])
        types = {layout.text_key: tf.string}
        if layout.id_key:
            types[layout.id_key] = tf.int64 if kinds.get(layout.id_key) == "int64_list" else tf.string
        return batches.map(functools.partial(_parse_examples, path, types)).unbatch()


class HuggingFaceSource(RecordSource):
    """A dataset of Hugging Face's `datasets`, streamed: of the hub, of local files, or saved with `save_to_disk`."""

    def __init__(self, path: str | os.PathLike, config: str | None = None, *, text_key: str = "text", id_key: str | None = None):
        """
        Args:
            path: what `datasets.load_dataset` takes, or `datasets.load_from_disk`: "HuggingFaceFW/fineweb-edu", or a folder.
            config: the name of the dataset's configuration, such as "sample-10BT".
            text_key, id_key: the columns of the text and of the document's id.
        """
        super().__init__((), text_key, id_key)
        self._path, self._config = os.path.expanduser(os.fspath(path)), config

    def __repr__(self) -> str:
        id = "" if self.id_key is None else f", id_key={self.id_key!r}"
        return f"HuggingFaceSource({self._path!r}, {self._config!r}, text_key={self.text_key!r}{id})"

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
        """Raises a ValueError where it has no such column."""
        if self._saved is not None:
            saved = self._saved[split]
            dataset = saved.to_iterable_dataset(num_shards=max(1, min(files.MAX_PIECES, len(saved))))
        else:
            dataset = _import_datasets().load_dataset(self._path, self._config, split=split, streaming=True)
        columns = dataset.column_names or next(iter(dataset), None)  # nothing tells those of some datasets but a row
        _check_fields(f"{self._path}, split {split},", columns and sorted(columns), self.text_key, self.id_key)
        return dataset


class TfdsSource(seqio.TfdsDataSource):
    """`seqio.TfdsDataSource` that says what it is without opening the dataset, and what to do where it is not prepared."""

    def __init__(self, name: str, text_key: str = "text"):
        if ":" not in name:
            raise ValueError(f"the source is 'tfds:{name}', expected one with its version, such as 'tfds:c4/en:3.1.0'")
        super().__init__(tfds_name=name)
        self._name, self.text_key = name, text_key

    def __repr__(self) -> str:
        return f"TfdsSource({self._name!r}, text_key={self.text_key!r})"

    @property
    def splits(self) -> Sequence[str]:
        """The splits' names. Raises a ValueError where the dataset is not prepared."""
        try:
            if splits := super().splits:
                return splits
        except (tfds.core.DatasetNotFoundError, AssertionError, ImportError, OSError) as error:
            raise self._not_prepared(f" ({type(error).__name__})") from error
        raise self._not_prepared("")

    def num_input_examples(self, split: str) -> int | None:
        """See `seqio.DataSource.num_input_examples`. Raises a ValueError where the dataset is not prepared."""
        return super().num_input_examples(split) if split in self.splits else None

    def _not_prepared(self, why: str) -> ValueError:
        folder = os.path.expanduser(self.tfds_dataset.data_dir or os.environ.get("TFDS_DATA_DIR", "~/tensorflow_datasets"))
        return ValueError(
            f"'tfds:{self._name}' is not prepared in {folder}{why}; prepare it (`tfds build {self._name} --data_dir={folder}`), or"
            " name the folder where it is prepared, in the environment as TFDS_DATA_DIR"
        )

    def get_dataset(self, split: str = "train", *args, **kwargs) -> tf.data.Dataset:
        """See `seqio.DataSource.get_dataset`. Raises a ValueError where there is no such split or feature."""
        if split not in self.splits:
            raise ValueError(f"there is no split {split!r} in {self!r}, only {sorted(self.splits)}")
        dataset = super().get_dataset(split, *args, **kwargs)
        _check_fields(f"tfds:{self._name}", sorted(dataset.element_spec), self.text_key, None)
        return dataset


def _open(spec, text_key: str, id_key: str | None, format: str | None, documents: str | None) -> seqio.DataSource:
    kind, _, name = spec.partition(":") if isinstance(spec, str) else ("", "", "")
    if isinstance(spec, seqio.DataSource) or spec == "embedded" or kind in ("tfds", "hf"):
        for option, value in {"format": format, "documents": documents}.items():
            if value is not None:
                raise ValueError(f"{option} is {value!r}, and goes with files; the source is {spec!r}; leave it out")
    if isinstance(spec, seqio.DataSource):
        return spec
    if spec == "embedded":
        if text_key != "text":
            raise ValueError(f"text_key is {text_key!r}, but the source is 'embedded', whose text is 'text'; leave it out")
        return embedded_corpus()
    if kind == "tfds":
        return TfdsSource(name, text_key)
    if kind == "hf":
        path, _, config = name.partition(":")
        return HuggingFaceSource(path, config or None, text_key=text_key, id_key=id_key)
    if spec and isinstance(spec, str | os.PathLike | Sequence | Mapping) and not isinstance(spec, bytes):
        split_to_files = spec if isinstance(spec, Mapping) else {"train": spec}
        return FileSource(split_to_files, text_key=text_key, id_key=id_key, format=format, documents=documents)
    raise ValueError(
        f"the source is {spec!r}, expected files ('corpus/*.jsonl.gz', a folder, a list of such, or a dictionary of them by split),"
        " 'hf:NAME', 'tfds:NAME', 'embedded', or a seqio.DataSource"
    )


def _checked(patterns: Files) -> str | list[str]:
    """Paths as text. Raises a ValueError where they are none."""
    if isinstance(patterns, str | os.PathLike):
        plain = os.fspath(patterns)
        names = [plain]
    else:
        is_paths = isinstance(patterns, Sequence) and all(isinstance(pattern, str | os.PathLike) for pattern in patterns)
        plain = names = [os.fspath(pattern) for pattern in patterns] if is_paths else []
    if not names or "" in names:
        raise ValueError(f"the files are {patterns!r}, expected a path, a glob, a folder, or a list of such with at least one")
    for name in names:
        if name.startswith(("hf:", "tfds:")):
            raise ValueError(f"{name!r} is among files, but is a source of its own; register each such on its own, and mix them")
    return plain


def _told_format(patterns: str | list[str]) -> str | None:
    """The format that the names of paths and globs tell, if they all tell the same one."""
    told = {files.told_format(pattern) for pattern in ([patterns] if isinstance(patterns, str) else patterns)}
    return told.pop() if len(told) == 1 else None


def _check_fields(where: str, present: Sequence[str] | None, text_key: str, id_key: str | None) -> None:
    """Raises a ValueError where these fields, if any are known, lack one that is wanted."""
    for option, key in {"text_key": text_key, "id_key": id_key}.items():
        if key is not None and present is not None and key not in present:
            raise ValueError(f"{where} has no field {key!r}, it has {list(present)}; give {option}, one of these")


def _survey(patterns: str | list[str]) -> str:
    """What each choice would give. Raises a ValueError where there are no such files."""
    from ul2_tasks.survey import in_words  # for this error alone: it opens a vocabulary

    try:
        return in_words(files.list_files(patterns))
    except (OSError, tf.errors.OpError) as error:
        return f"they cannot be read here, to show what each would give: {error}"


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


def _tfrecord_fields(piece: Piece) -> list[str]:
    return sorted(_tfrecord_kinds(piece))


def _tfrecord_kinds(piece: Piece) -> dict[str, str]:
    """The features of the first record, if there is one, with their kinds, "bytes_list" and others."""
    with tf.init_scope():  # also where a graph is made
        dataset = tf.data.TFRecordDataset(piece.path, compression_type=_tfrecord_compression([piece]))
        for record in dataset.take(1).as_numpy_iterator():
            return {name: value.WhichOneof("kind") for name, value in tf.train.Example.FromString(record).features.feature.items()}
    return {}


def _parse_examples(
    path: tf.Tensor, types: Mapping[str, tf.DType], numbers: tf.Tensor, serialized: tf.Tensor
) -> dict[str, tf.Tensor]:
    parsed = tf.io.parse_example(serialized, {key: tf.io.RaggedFeature(type) for key, type in types.items()})
    whole = [parsed[key].row_lengths() == 1 for key in types]
    reason = f": has not exactly one value in each of its features {list(types)}"
    told = tf.strings.join([path, ", record ", tf.strings.as_string(numbers), reason])
    problem = tf.where(tf.reduce_all(whole, axis=0), "", told)
    texts = {key: parsed[key] if type == tf.string else tf.strings.as_string(parsed[key]) for key, type in types.items()}
    return {PROBLEM: problem, **{key: tf.where(problem == "", tf.strings.reduce_join(texts[key], axis=1), "") for key in types}}
