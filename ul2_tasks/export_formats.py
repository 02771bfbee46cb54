"""Files of examples: TFRecord, Parquet, JSON Lines, ArrayRecord. Each is written and read some examples at a time.

In all of them an example is its ids, `inputs` and `targets`, and the name of its `denoiser`: in TFRecord and ArrayRecord as a
serialized tf.train.Example, in Parquet as a row, in JSON Lines as an object. The same examples give the same bytes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tensorflow as tf

from ul2_tasks.files import open_file
from ul2_tasks.providers import DENOISER

IDS = ("inputs", "targets")
NO_TOKEN = -1  # what examples of a batch are padded with; no id is negative
TOKENS_PER_ROW_GROUP = 1 << 22  # of a Parquet file: 16 MB before compression, the most that is held of it
_EXAMPLES_AT_A_TIME = 128  # that are read


@dataclasses.dataclass(frozen=True)
class Examples:
    """Some examples, one after the other.

    Attributes:
        ids: of `inputs` and of `targets` all tokens, [tokens] int32.
        lengths: of both, those of each example, [N] int.
        denoisers: [N] str.
    """

    ids: Mapping[str, np.ndarray]
    lengths: Mapping[str, np.ndarray]
    denoisers: np.ndarray

    @classmethod
    def from_padded(cls, batch: Mapping[str, np.ndarray]) -> Examples:
        """Of a batch: of both features [N, T] int32, padded with `NO_TOKEN`, and the denoisers, [N] bytes."""
        is_token = {key: batch[key] != NO_TOKEN for key in IDS}
        return cls(
            ids={key: batch[key][is_token[key]] for key in IDS},
            lengths={key: is_token[key].sum(axis=1) for key in IDS},
            denoisers=np.char.decode(batch[DENOISER].astype(bytes), "utf-8"),
        )

    def __iter__(self) -> Iterator[dict[str, np.ndarray | str]]:
        """Each example: {"inputs": [T] int32, "targets": [T] int32, "denoiser": str}."""
        rows = (np.split(self.ids[key], np.cumsum(self.lengths[key])[:-1]) for key in IDS)
        for inputs, targets, denoiser in zip(*rows, self.denoisers.tolist()):
            yield {"inputs": inputs, "targets": targets, DENOISER: denoiser}

    def __len__(self) -> int:
        return len(self.denoisers)


@dataclasses.dataclass(frozen=True)
class Format:
    """How examples become a local file, and are read from a file of any file system."""

    write: Callable[[str, Iterable[Examples]], None]
    read: Callable[[str], Iterator[Examples]]


def open_format(name: str) -> Format:
    """The format of this name, which is also how its files' names end.

    Raises:
        ValueError: there is none.
        ImportError: it needs a package that is not installed.
    """
    if name not in FORMATS:
        raise ValueError(f"the format is {name!r}, expected one of {sorted(FORMATS)}")
    if name == "arrayrecord":
        _array_record()
    return FORMATS[name]


def _write_tfrecord(path: str, batches: Iterable[Examples]) -> None:
    with tf.io.TFRecordWriter(path) as writer:
        for batch in batches:
            for example in batch:
                writer.write(_serialize(example))


def _read_tfrecord(path: str) -> Iterator[Examples]:
    for records in tf.data.TFRecordDataset(path).batch(_EXAMPLES_AT_A_TIME):
        yield _parse(records)


def _write_array_record(path: str, batches: Iterable[Examples]) -> None:
    # Each record for itself, as random access wants it, and as TFDS writes them.
    with contextlib.closing(_array_record().ArrayRecordWriter(path, "group_size:1")) as writer:
        for batch in batches:
            for example in batch:
                writer.write(_serialize(example))


def _read_array_record(path: str) -> Iterator[Examples]:
    with _local_copy(path) as local, contextlib.closing(_array_record().ArrayRecordReader(local)) as reader:
        count = reader.num_records()
        for start in range(0, count, _EXAMPLES_AT_A_TIME):
            yield _parse(tf.constant(reader.read(start, min(start + _EXAMPLES_AT_A_TIME, count)), tf.string))


def _write_parquet(path: str, batches: Iterable[Examples]) -> None:
    schema = pa.schema([*((key, pa.list_(pa.int32())) for key in IDS), (DENOISER, pa.string())])
    with pq.ParquetWriter(path, schema) as writer:
        held: list[pa.RecordBatch] = []
        tokens = 0

        def write_row_group() -> None:
            table = pa.Table.from_batches(held, schema)
            writer.write_table(table, row_group_size=max(1, len(table)))

        for batch in batches:
            held.append(pa.record_batch([*(_list_array(batch, key) for key in IDS), pa.array(batch.denoisers)], schema=schema))
            tokens += sum(len(batch.ids[key]) for key in IDS)
            if tokens >= TOKENS_PER_ROW_GROUP:
                write_row_group()
                held, tokens = [], 0
        if held:
            write_row_group()


def _read_parquet(path: str) -> Iterator[Examples]:
    with open_file(path) as file:
        for batch in pq.ParquetFile(file).iter_batches(batch_size=_EXAMPLES_AT_A_TIME):
            columns = {key: batch.column(key) for key in IDS}
            yield Examples(
                # A copy can be written to, as those that read arrays expect.
                ids={key: np.array(column.flatten(), np.int32) for key, column in columns.items()},
                lengths={key: np.array(column.value_lengths(), np.int64) for key, column in columns.items()},
                denoisers=np.array(batch.column(DENOISER).to_pylist(), np.str_),
            )


def _write_jsonl(path: str, batches: Iterable[Examples]) -> None:
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        for batch in batches:
            for example in batch:
                row = {key: example[key].tolist() for key in IDS} | {DENOISER: example[DENOISER]}
                file.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")


def _read_jsonl(path: str) -> Iterator[Examples]:
    with open_file(path) as file:
        for line in file:
            row = json.loads(line)
            ids = {key: np.array(row[key], np.int32) for key in IDS}
            yield Examples(ids, {key: np.array([len(ids[key])]) for key in IDS}, np.array([row[DENOISER]]))


def _list_array(batch: Examples, key: str) -> pa.ListArray:
    starts = np.concatenate([[0], np.cumsum(batch.lengths[key])]).astype(np.int32)
    return pa.ListArray.from_arrays(starts, batch.ids[key])


def _serialize(example: Mapping[str, np.ndarray | str]) -> bytes:
    features = {key: tf.train.Feature(int64_list=tf.train.Int64List(value=example[key].tolist())) for key in IDS}
    features[DENOISER] = tf.train.Feature(bytes_list=tf.train.BytesList(value=[example[DENOISER].encode()]))
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString(deterministic=True)


def _parse(records: tf.Tensor) -> Examples:
    """Of serialized tf.Examples, [N] string."""
    ragged = {key: tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64) for key in IDS}
    parsed = tf.io.parse_example(records, ragged | {DENOISER: tf.io.FixedLenFeature([], tf.string)})
    return Examples(
        ids={key: parsed[key].flat_values.numpy().astype(np.int32) for key in IDS},
        lengths={key: parsed[key].row_lengths().numpy() for key in IDS},
        denoisers=np.array([name.decode() for name in parsed[DENOISER].numpy()], np.str_),
    )


@contextlib.contextmanager
def _local_copy(path: str) -> Iterator[str]:
    if "://" not in path:
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        local = os.path.join(folder, os.path.basename(path))
        tf.io.gfile.copy(path, local)
        yield local


def _array_record():
    try:
        from array_record.python import array_record_module
    except ImportError as error:
        raise ImportError(f"the format 'arrayrecord' needs the package array_record ({error}); pip install array_record") from error
    return array_record_module


FORMATS = {
    "tfrecord": Format(_write_tfrecord, _read_tfrecord),
    "parquet": Format(_write_parquet, _read_parquet),
    "jsonl": Format(_write_jsonl, _read_jsonl),
    "arrayrecord": Format(_write_array_record, _read_array_record),
}
