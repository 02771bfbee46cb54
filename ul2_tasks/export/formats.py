"""Files of examples: TFRecord and Parquet, written and read some examples at a time.

An example has features, such as `inputs` and `targets`, and two names: that of its `denoiser` and that of its `task`. TFRecord
holds it as a serialized tf.train.Example, Parquet as a row. No format pads. The same examples always give the same bytes.

Images are the bytes of their files: a list of bytes in TFRecord, and in Parquet of what Hugging Face's `datasets` reads as images,
which the schema says.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tensorflow as tf

from ul2_tasks.example_features import DENOISER, IMAGES, NO_TOKEN, TASK, Feature, features_named, token_features
from ul2_tasks.files.opening import open_file

NAMES = (DENOISER, TASK)
TOKENS_PER_ROW_GROUP = 1 << 22  # of a Parquet file: 16 MB before compression, which is the most that is held in memory
_BYTES_PER_TOKEN = 4  # as which an image's bytes count in a row group
_EXAMPLES_AT_A_TIME = 128  # when a file is read
_IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])  # what `datasets` writes, too


@dataclasses.dataclass(frozen=True)
class Examples:
    """N examples, one after the other.

    Attributes:
        ids: [tokens] for each feature, the values of all examples, of the feature's type.
        lengths: [N] int for each feature of tokens, the tokens of each example.
        names: [N] str for `denoiser` and for `task`. The denoiser is "" where the task has none.
        images: of each example, the bytes of its images; None where examples have no such feature.
    """

    ids: Mapping[str, np.ndarray]
    lengths: Mapping[str, np.ndarray]
    names: Mapping[str, np.ndarray]
    images: Sequence[Sequence[bytes]] | None = None

    @property
    def features(self) -> Mapping[str, Feature]:
        """The features of tokens, in order."""
        return features_named(self.ids)

    @classmethod
    def from_padded(cls, batch: Mapping[str, np.ndarray], id_shift: int = 0) -> Examples:
        """The examples of a batch that SeqIO's pipelines made, with the tokenizer's own ids.

        `batch` is [N, T] for each feature, padded with its `absent`, with ids `id_shift` higher than the tokenizer's; for images
        [N, T] bytes, padded with empty ones; and [N] bytes for each name. Raises a ValueError where an example has padding among
        its tokens, for which the tokenizer has no id.
        """
        features = features_named(batch)
        is_token = {key: batch[key] != NO_TOKEN for key in token_features(features)}
        ids = {key: batch[key][is_token[feature.per_token_of]] for key, feature in features.items()}
        for key in is_token:
            ids[key] = ids[key] - np.int32(id_shift)
            if (ids[key] < 0).any():
                tasks = sorted({name.decode() for name in batch[TASK][((batch[key] < id_shift) & is_token[key]).any(axis=1)]})
                raise ValueError(
                    f"{key} of {tasks} must have no id 0, SeqIO's padding, among their tokens. Leave it out of the examples."
                )
        return cls(
            ids=ids,
            lengths={key: of_each.sum(axis=1) for key, of_each in is_token.items()},
            names={key: np.char.decode(batch[key].astype(bytes), "utf-8") for key in NAMES},
            images=[list(filter(None, images)) for images in batch[IMAGES].tolist()] if IMAGES in batch else None,
        )

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Each example: {"inputs": [T] int32, "targets": [T] int32, "denoiser": str, "task": str}, or of its other features."""
        columns: dict[str, Sequence] = {
            key: np.split(self.ids[key], np.cumsum(self.lengths[feature.per_token_of])[:-1])
            for key, feature in self.features.items()
        }
        columns |= {} if self.images is None else {IMAGES: self.images}
        columns |= {key: self.names[key].tolist() for key in NAMES}
        for example in zip(*columns.values()):
            yield dict(zip(columns, example))

    def __len__(self) -> int:
        return len(self.names[TASK])


@dataclasses.dataclass(frozen=True)
class Format:
    """How examples that have features of some names are written to a local file, and read from a file on any file system."""

    write: Callable[[str, Iterable[Examples], Collection[str]], None]
    read: Callable[[str, Collection[str]], Iterator[Examples]]


def open_format(name: str) -> Format:
    """The format of this name. The names of its files end with the same name."""
    if name not in FORMATS:
        raise ValueError(f"format must be one of {sorted(FORMATS)}, got {name!r}.")
    return FORMATS[name]


def _write_tfrecord(path: str, batches: Iterable[Examples], names: Collection[str]) -> None:
    del names  # which each example has
    with tf.io.TFRecordWriter(path) as writer:
        for batch in batches:
            for example in batch:
                writer.write(_serialize(example))


def _read_tfrecord(path: str, names: Collection[str]) -> Iterator[Examples]:
    for records in tf.data.TFRecordDataset(path).batch(_EXAMPLES_AT_A_TIME):
        yield _parse(records, names)


def _schema(names: Collection[str]) -> pa.Schema:
    """Of a Parquet file. Where examples have images, its metadata says so to `datasets`, which decodes them."""
    features = features_named(names)
    lists = [(key, pa.list_(pa.from_numpy_dtype(feature.dtype))) for key, feature in features.items()]
    images = [(IMAGES, pa.list_(_IMAGE))] if IMAGES in names else []
    schema = pa.schema([*lists, *images, *((key, pa.string()) for key in NAMES)])
    if not images:
        return schema
    told: dict[str, object] = {key: _sequence({"dtype": feature.dtype, "_type": "Value"}) for key, feature in features.items()}
    told |= {IMAGES: _sequence({"_type": "Image"})} | {key: {"dtype": "string", "_type": "Value"} for key in NAMES}
    return schema.with_metadata({"huggingface": json.dumps({"info": {"features": told}})})


def _sequence(feature: Mapping[str, str]) -> dict[str, object]:
    return {"feature": feature, "_type": "Sequence"}  # which all versions of `datasets` read


def _write_parquet(path: str, batches: Iterable[Examples], names: Collection[str]) -> None:
    schema = _schema(names)
    with pq.ParquetWriter(path, schema) as writer:
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
            held.append(pa.record_batch([*columns, *(pa.array(batch.names[key]) for key in NAMES)], schema=schema))
            tokens += sum(len(batch.ids[key]) for key in token_features(batch.features))
            if tokens >= TOKENS_PER_ROW_GROUP:
                write_row_group()
                held, tokens = [], 0
        if held:
            write_row_group()


def _read_parquet(path: str, names: Collection[str]) -> Iterator[Examples]:
    features = features_named(names)
    with open_file(path) as file:
        for batch in pq.ParquetFile(file).iter_batches(batch_size=_EXAMPLES_AT_A_TIME):
            columns = {key: batch.column(key) for key in features}
            images = batch.column(IMAGES).to_pylist() if IMAGES in names else None
            yield Examples(
                # Copies, because readers expect arrays that can be written to.
                ids={key: np.array(column.flatten(), features[key].dtype) for key, column in columns.items()},
                lengths={key: np.array(columns[key].value_lengths(), np.int64) for key in token_features(features)},
                names={key: np.array(batch.column(key).to_pylist(), np.str_) for key in NAMES},
                images=images and [[image["bytes"] for image in of_each] for of_each in images],
            )


def _list_array(batch: Examples, key: str) -> pa.ListArray:
    starts = np.concatenate([[0], np.cumsum(batch.lengths[batch.features[key].per_token_of])]).astype(np.int32)
    return pa.ListArray.from_arrays(starts, batch.ids[key])


def _serialize(example: Mapping[str, Any]) -> bytes:
    features = {key: _feature(value) for key, value in example.items()}
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString(deterministic=True)


def _feature(value: np.ndarray | str | Sequence[bytes]) -> tf.train.Feature:
    if isinstance(value, np.ndarray):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=value.tolist()))
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value.encode()] if isinstance(value, str) else value))


def _parse(records: tf.Tensor, names: Collection[str]) -> Examples:
    """The examples of serialized tf.train.Examples, [N] string."""
    features = features_named(names)
    ragged = {key: tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64) for key in features}
    if IMAGES in names:
        ragged[IMAGES] = tf.io.RaggedFeature(tf.string, row_splits_dtype=tf.int64)
    parsed = tf.io.parse_example(records, ragged | {key: tf.io.FixedLenFeature([], tf.string) for key in NAMES})
    return Examples(
        ids={key: parsed[key].flat_values.numpy().astype(feature.dtype) for key, feature in features.items()},
        lengths={key: parsed[key].row_lengths().numpy() for key in token_features(features)},
        names={key: np.array([name.decode() for name in parsed[key].numpy()], np.str_) for key in NAMES},
        images=[images.tolist() for images in parsed[IMAGES].numpy()] if IMAGES in names else None,
    )


FORMATS = {
    "tfrecord": Format(_write_tfrecord, _read_tfrecord),
    "parquet": Format(_write_parquet, _read_parquet),
}
