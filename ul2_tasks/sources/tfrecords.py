"""Files of TFRecords, whose records are `tf.train.Example`s."""

from __future__ import annotations

from typing import Any, BinaryIO

from ul2_tasks.files.tf_examples import features_of, records_of, value_of
from ul2_tasks.sources.files import At, Layout, Rows, Shard
from ul2_tasks.sources.json_values import as_text


def tfrecord_rows(file: BinaryIO, shard: Shard, layout: Layout) -> Rows:
    """The examples of TFRecords. Of a feature that the layout does not read there is no value."""
    for number, record in enumerate(records_of(file), 1):
        row: dict[str, Any] | ValueError
        try:
            features = features_of(record).items()
            row = {name: _plain(value_of(feature)) if layout.wants(name) else None for name, feature in features}
        except ValueError as error:
            row = ValueError(f"is not a tf.Example: {error}")
        yield At(f"{shard.path}, record {number}", number), row


def _plain(values: Any) -> object:
    """The value of a feature that has one; else all of them."""
    values = values if isinstance(values, list) else values.tolist()
    return values[0] if len(values) == 1 else [*map(as_text, values)]
