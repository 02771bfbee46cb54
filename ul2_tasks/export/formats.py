"""Files of examples: TFRecord, ArrayRecord, JSON Lines, Parquet, and Megatron-LM's pairs; some examples at a time.

An example has features, such as `inputs` and `targets`, and two names: that of its `denoiser` and that of its `task`. Where the
corpora record it, `origins` say which documents it is from. No format pads. The same examples always give the same bytes.

    TFRecord    a serialized tf.train.Example; images as a list of bytes, origins as a list of JSON
    ArrayRecord the same, to be read by index
    JSON Lines  an object; images as base64
    Parquet     a row; images as Hugging Face's `datasets` has them, origins as structs
    Megatron    conversations alone: STEM_tokens, STEM_lossmask and STEM_span, .bin and .idx each, of the same sequences, and
                STEM_tokens.origins.arrow with the origin of each
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import itertools
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ul2_tasks.example_features import DENOISER, IMAGES, TASK, Feature, features_named, token_features
from ul2_tasks.extras import needs
from ul2_tasks.files.opening import CorruptFileError, open_file
from ul2_tasks.files.tf_examples import framed, parsed, records_of, serialized
from ul2_tasks.store.provenance import TABLE, Origin, TableWriter, add_origins
from ul2_tasks.store.write import HashedFile, PairWriter

NAMES, ORIGINS = (DENOISER, TASK), "origins"
TOKENS_PER_ROW_GROUP = 1 << 22  # of a Parquet file: 16 MB before compression, which is the most that is held in memory
PAIRS: dict[str, tuple[str, np.dtype]] = {
    "tokens": ("tokens", np.dtype(np.int32)),
    "lossmask": ("loss_mask", np.dtype(np.uint8)),
    "span": ("span_id", np.dtype(np.uint8)),
}
_BYTES_PER_TOKEN = 4  # as which an image's bytes count in a row group
_EXAMPLES_AT_A_TIME = 128  # when a file is read
_BLOCK = 1 << 20  # bytes of a file that is copied
_IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])  # what `datasets` writes, too
_ORIGIN = pa.struct([("file", pa.string()), ("row", pa.int64()), ("id", pa.string()), ("hash", pa.uint64())])

Entry = dict[str, int | str]  # a file's "bytes" and "sha256"


@dataclasses.dataclass(frozen=True)
class Examples:
    """N examples, one after the other.

    Attributes:
        ids: [tokens] for each feature, the values of all examples, of the feature's type.
        lengths: [N] int for each feature of tokens, the tokens of each example.
        names: [N] str for `denoiser` and for `task`. The denoiser is "" where the task has none.
        images: of each example, the bytes of its images; None where examples have no such feature.
        origins: of each example, where its documents are from; None where that is not known.
    """

    ids: Mapping[str, np.ndarray]
    lengths: Mapping[str, np.ndarray]
    names: Mapping[str, np.ndarray]
    images: Sequence[Sequence[bytes]] | None = None
    origins: Sequence[Sequence[Origin]] | None = None

    @property
    def features(self) -> Mapping[str, Feature]:
        """The features of tokens, in order."""
        return features_named(self.ids)

    def first(self, count: int) -> Examples:
        """The first of the examples."""
        lengths = {key: values[:count] for key, values in self.lengths.items()}
        ids = {key: self.ids[key][: int(lengths[feature.per_token_of].sum())] for key, feature in self.features.items()}
        names = {key: values[:count] for key, values in self.names.items()}
        return Examples(ids, lengths, names, self.images and self.images[:count], self.origins and self.origins[:count])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Each example: {"inputs": [T] int32, "targets": [T] int32, "denoiser": str, "task": str}, or of its other features."""
        columns: dict[str, Sequence] = {
            key: np.split(self.ids[key], np.cumsum(self.lengths[feature.per_token_of])[:-1])
            for key, feature in self.features.items()
        }
        columns |= {} if self.images is None else {IMAGES: self.images}
        columns |= {key: self.names[key].tolist() for key in NAMES}
        columns |= {} if self.origins is None else {ORIGINS: self.origins}
        for example in zip(*columns.values()):
            yield dict(zip(columns, example))

    def __len__(self) -> int:
        return len(self.names[TASK])


@dataclasses.dataclass(frozen=True)
class Format:
    """How examples that have features of some names are written to files, on any file system, and read from them.

    `endings` of the name of a shard make those of its files. `write` takes their paths, and the files that origins may name; it
    returns an entry for each, None for one that is not written.
    """

    endings: tuple[str, ...]
    write: Callable[[Sequence[str], Iterable[Examples], Collection[str], Sequence[str]], Sequence[Entry | None]]
    read: Callable[[Sequence[str], Collection[str]], Iterator[Examples]]


def open_format(name: str) -> Format:
    """The format of this name."""
    if name not in FORMATS:
        raise ValueError(f"format must be one of {sorted(FORMATS)}, got {name!r}.")
    return FORMATS[name]


def check_features(format: str, names: Collection[str]) -> None:
    """Raises a ValueError where a format cannot hold examples that have features of these names."""
    if format == "megatron" and "tokens" not in names:
        raise ValueError(
            f"format must be parquet or another for examples of {', '.join(names)}, got 'megatron', whose sequences are of"
            " conversations as one sequence of tokens. Use another format, or lengths of tokens."
        )


def _write_tfrecord(paths: Sequence[str], batches: Iterable[Examples], names: Collection[str], files: Sequence[str]) -> list[Entry]:
    with HashedFile(paths[0]) as file:
        for example in itertools.chain.from_iterable(batches):
            file.write(framed(_serialized(example)))
    return [file.entry]


def _read_tfrecord(paths: Sequence[str], names: Collection[str]) -> Iterator[Examples]:
    with open_file(paths[0]) as file:
        yield from _gathered(map(_parsed, records_of(file)), names)


def _write_arrayrecord(
    paths: Sequence[str], batches: Iterable[Examples], names: Collection[str], files: Sequence[str]
) -> list[Entry]:
    """By way of a file on this machine, because the library knows no other file systems."""
    with needs("the format arrayrecord", "grain"):
        from array_record.python.array_record_module import ArrayRecordWriter
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "examples")
        writer = ArrayRecordWriter(path, "group_size:1")
        try:
            for example in itertools.chain.from_iterable(batches):
                writer.write(_serialized(example))
            writer.close()
        except RuntimeError as error:  # the library's for a full disk, too
            raise OSError(str(error)) from error
        with HashedFile(paths[0]) as file, open(path, "rb") as written:
            while block := written.read(_BLOCK):
                file.write(block)
    return [file.entry]


def _read_arrayrecord(paths: Sequence[str], names: Collection[str]) -> Iterator[Examples]:
    with needs("the format arrayrecord", "grain"):
        from array_record.python.array_record_module import ArrayRecordReader
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "examples")
        with open_file(paths[0]) as file, open(path, "wb") as written:
            shutil.copyfileobj(file, written, _BLOCK)
        with contextlib.closing(ArrayRecordReader(path)) as reader:
            count = reader.num_records()
            some = ([*range(first, min(first + _EXAMPLES_AT_A_TIME, count))] for first in range(0, count, _EXAMPLES_AT_A_TIME))
            yield from _gathered((_parsed(record) for numbers in some for record in reader.read(numbers)), names)


def _write_jsonl(paths: Sequence[str], batches: Iterable[Examples], names: Collection[str], files: Sequence[str]) -> list[Entry]:
    with HashedFile(paths[0]) as file:
        for example in itertools.chain.from_iterable(batches):
            told = {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in example.items()}
            if IMAGES in told:
                told[IMAGES] = [base64.b64encode(image).decode() for image in told[IMAGES]]
            if ORIGINS in told:
                told[ORIGINS] = [origin._asdict() for origin in told[ORIGINS]]
            file.write(json.dumps(told, ensure_ascii=False).encode() + b"\n")
    return [file.entry]


def _read_jsonl(paths: Sequence[str], names: Collection[str]) -> Iterator[Examples]:
    def example(line: bytes) -> dict[str, Any]:
        try:
            told = dict(json.loads(line))
        except (ValueError, TypeError) as error:
            raise CorruptFileError(f"a line is no object of JSON: {error}") from error
        if IMAGES in told:
            told[IMAGES] = list(map(base64.b64decode, told[IMAGES]))
        if ORIGINS in told:
            told[ORIGINS] = [Origin(**origin) for origin in told[ORIGINS]]
        return told

    with open_file(paths[0]) as file:
        yield from _gathered(map(example, file), names)


def _serialized(example: Mapping[str, Any]) -> bytes:
    """An example as a tf.train.Example."""
    return serialized({key: _as_list(key, value) for key, value in example.items()})


def _as_list(key: str, value: Any) -> np.ndarray | list[bytes]:
    if key == ORIGINS:
        return [json.dumps(origin._asdict()).encode() for origin in value]
    return [value.encode()] if isinstance(value, str) else value


def _parsed(record: bytes) -> dict[str, Any]:
    """An example of a tf.train.Example."""
    found: dict[str, Any] = dict(parsed(record))
    told = {key: found[key][0].decode() for key in NAMES}
    return {**found, **told, ORIGINS: [Origin(**json.loads(each)) for each in found.get(ORIGINS, ())]}


def _gathered(examples: Iterator[Mapping[str, Any]], names: Collection[str]) -> Iterator[Examples]:
    """Examples that have features of these names, some at a time."""
    features = features_named(names)
    while batch := list(itertools.islice(examples, _EXAMPLES_AT_A_TIME)):
        of_each: dict[str, Any] = {key: [example[key] for example in batch] for key in (*features, *NAMES)}
        yield Examples(
            ids={key: np.concatenate(of_each[key]).astype(feature.dtype) for key, feature in features.items()},
            lengths={key: np.array(list(map(len, of_each[key])), np.int64) for key in token_features(features)},
            names={key: np.array(of_each[key], np.str_) for key in NAMES},
            images=[[*example[IMAGES]] for example in batch] if IMAGES in names else None,
            origins=[example[ORIGINS] for example in batch] if ORIGINS in names else None,
        )


def _schema(names: Collection[str]) -> pa.Schema:
    """Of a Parquet file. Where examples have images, its metadata says so to `datasets`, which decodes them."""
    features = features_named(names)
    lists = [(key, pa.list_(pa.from_numpy_dtype(feature.dtype))) for key, feature in features.items()]
    images, origins = ([(key, pa.list_(kind))] if key in names else [] for key, kind in ((IMAGES, _IMAGE), (ORIGINS, _ORIGIN)))
    schema = pa.schema([*lists, *images, *((key, pa.string()) for key in NAMES), *origins])
    if not images:
        return schema
    told: dict[str, object] = {key: _sequence(_value(feature.dtype)) for key, feature in features.items()}
    told |= {IMAGES: _sequence({"_type": "Image"})} | {key: _value("string") for key in NAMES}
    told |= {ORIGINS: [{field.name: _value(str(field.type)) for field in _ORIGIN}]} if origins else {}
    return schema.with_metadata({"huggingface": json.dumps({"info": {"features": told}})})


def _value(dtype: str) -> dict[str, object]:
    return {"dtype": dtype, "_type": "Value"}


def _sequence(feature: Mapping[str, object]) -> dict[str, object]:
    return {"feature": feature, "_type": "Sequence"}  # which all versions of `datasets` read


def _write_parquet(paths: Sequence[str], batches: Iterable[Examples], names: Collection[str], files: Sequence[str]) -> list[Entry]:
    schema = _schema(names)
    with HashedFile(paths[0]) as file, pq.ParquetWriter(pa.PythonFile(file, mode="w"), schema) as writer:
        held: list[pa.RecordBatch] = []
        tokens = 0

        def write_row_group() -> None:
            table = pa.Table.from_batches(held, schema)
            writer.write_table(table, row_group_size=max(1, len(table)))

        for batch in batches:
            columns = [_list_array(batch, key) for key in batch.features]
            if batch.images is not None:
                of_each = [[{"bytes": image, "path": None} for image in images] for images in batch.images]
                columns.append(pa.array(of_each, schema.field(IMAGES).type))
                tokens += sum(len(image) for images in batch.images for image in images) // _BYTES_PER_TOKEN
            columns += [pa.array(batch.names[key]) for key in NAMES]
            if batch.origins is not None:
                told = [[origin._asdict() for origin in origins] for origins in batch.origins]
                columns.append(pa.array(told, schema.field(ORIGINS).type))
            held.append(pa.record_batch(columns, schema=schema))
            tokens += sum(len(batch.ids[key]) for key in token_features(batch.features))
            if tokens >= TOKENS_PER_ROW_GROUP:
                write_row_group()
                held, tokens = [], 0
        if held:
            write_row_group()
    return [file.entry]


def _read_parquet(paths: Sequence[str], names: Collection[str]) -> Iterator[Examples]:
    features = features_named(names)
    with open_file(paths[0]) as file:
        for batch in pq.ParquetFile(file).iter_batches(batch_size=_EXAMPLES_AT_A_TIME):
            columns = {key: batch.column(key) for key in features}
            images = batch.column(IMAGES).to_pylist() if IMAGES in names else None
            origins = batch.column(ORIGINS).to_pylist() if ORIGINS in names else None
            yield Examples(
                # Copies, because readers expect arrays that can be written to.
                ids={key: np.array(column.flatten(), features[key].dtype) for key, column in columns.items()},
                lengths={key: np.array(columns[key].value_lengths(), np.int64) for key in token_features(features)},
                names={key: np.array(batch.column(key).to_pylist(), np.str_) for key in NAMES},
                images=images and [[image["bytes"] for image in of_each] for of_each in images],
                origins=origins and [[Origin(**origin) for origin in of_each] for of_each in origins],
            )


def _list_array(batch: Examples, key: str) -> pa.ListArray:
    starts = np.concatenate([[0], np.cumsum(batch.lengths[batch.features[key].per_token_of])]).astype(np.int32)
    return pa.ListArray.from_arrays(starts, batch.ids[key])


def _write_pairs(
    paths: Sequence[str], batches: Iterable[Examples], names: Collection[str], files: Sequence[str]
) -> list[Entry | None]:
    *of_pairs, table_path = paths
    with contextlib.ExitStack() as opened:
        writers = [
            (feature, opened.enter_context(PairWriter(bin_path, idx_path, dtype)))
            for (feature, dtype), bin_path, idx_path in zip(PAIRS.values(), of_pairs[::2], of_pairs[1::2])
        ]
        table = opened.enter_context(TableWriter(table_path, files))
        for batch in batches:
            for feature, writer in writers:
                writer.add(batch.ids[feature], batch.lengths["tokens"])
            if batch.origins is not None:
                add_origins(table, files, [origin for (origin,) in batch.origins])
    return [*(entry for _, writer in writers for entry in writer.entries.values()), table.entry]


def _read_pairs(paths: Sequence[str], names: Collection[str]) -> Iterator[Examples]:
    raise ValueError("files of Megatron-LM must be read by Megatron-LM, as they have no names of tasks. Export another format.")


FORMATS = {
    "tfrecord": Format((".tfrecord",), _write_tfrecord, _read_tfrecord),
    "arrayrecord": Format((".arrayrecord",), _write_arrayrecord, _read_arrayrecord),
    "jsonl": Format((".jsonl",), _write_jsonl, _read_jsonl),
    "parquet": Format((".parquet",), _write_parquet, _read_parquet),
    "megatron": Format(
        (*(f"_{column}.{suffix}" for column in PAIRS for suffix in ("bin", "idx")), f"_tokens.{TABLE}"), _write_pairs, _read_pairs
    ),
}
