"""From a `tf.data.Dataset` to rows of a model: those that a dataset of this package makes whole, or rows of its examples.

A dataset of this package makes batches of rows, padded or packed, without giving its examples one by one before. The examples of
any other, such as a mixture with tasks of others, or what was changed after `get_dataset`, come one by one. They are checked,
padded or packed as SeqIO packs, and converted, many at a time. Nothing of them is trimmed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import seqio
import tensorflow as tf

from ul2_tasks.example_features import IMAGES, LOSS_MASK, LOSS_WEIGHT, SPAN_ID, Feature, features_named, token_features
from ul2_tasks.scalars import as_python
from ul2_tasks.tasks.datasets import facts_of
from ul2_tasks.tasks.graphs import no_autograph, python_op
from ul2_tasks.tasks.tf_data import Reading

_AT_A_TIME = 128  # examples, and rows
# Rows as `random_access.batches.make_batch` gives them, how many tokens each has where it is known, and the number of the first.
Convert = Callable[[Mapping[str, np.ndarray], Mapping[str, np.ndarray] | None, int], dict[str, np.ndarray]]


def row_source(ds: tf.data.Dataset) -> Reading | None:
    """What makes the rows of a dataset, if it has that. Refuses images, whose placeholders would be left."""
    if isinstance(ds.element_spec, Mapping) and IMAGES in ds.element_spec:
        raise ValueError("the examples must have no images with this converter. Use T5Gemma2Collator.")
    facts = facts_of(ds)
    return facts.source if facts else None


def rows_of(
    ds: tf.data.Dataset,
    lengths: Mapping[str, int],
    features: Mapping[str, Feature],
    convert: Convert,
    widths: Mapping[str, int] | None,
    *,
    pack: bool = False,
    batch_size: int | None = None,
    with_task_id: bool = False,
) -> tf.data.Dataset:
    """The arrays that `convert` makes, row by row, or in batches of a size as long as the longest of each.

    `lengths` are those of rows, of features of tokens, and `widths` those of the arrays; None where they vary. `features` are those
    that an example must have. A `loss_mask`, a `span_id` and a `loss_weight` are taken wherever there are some.

    Raises:
        ValueError: lengths are missing, or others are given; the examples lack a feature, or have images.
    """
    if lengths.keys() != {*token_features(features)}:
        raise ValueError(
            f"task_feature_lengths must have the keys {list(token_features(features))}, got {dict(lengths)}. Leave out masks, which"
            " have the length of their tokens."
        )
    lengths = {key: as_python(length) for key, length in lengths.items()}
    source = row_source(ds)
    if source and not batch_size:
        found = source.rows(lengths, pack, lambda rows: convert(rows, None, 0), with_task_id)
        if found is not None:
            return found
    return _of_examples(ds, lengths, _features_in(ds, features), convert, widths, pack=pack, batch_size=batch_size)


def _features_in(ds: tf.data.Dataset, features: Mapping[str, Feature]) -> dict[str, Feature]:
    if missing := sorted(features.keys() - ds.element_spec.keys()):
        raise ValueError(f"the examples must have {sorted(features)}, got {sorted(ds.element_spec)}, without {missing}.")
    found = features_named({*features, *({LOSS_MASK, SPAN_ID, LOSS_WEIGHT} & ds.element_spec.keys())})
    for key, feature in found.items():
        spec = ds.element_spec[key]
        if spec.dtype != tf.as_dtype(feature.dtype) or spec.shape.rank not in (1, None):
            raise ValueError(
                f"{key} must be {feature.dtype} [tokens], got {spec.dtype.name} {spec.shape}. Convert it, or leave it out of the"
                " examples."
            )
    return found


def _of_examples(
    ds: tf.data.Dataset,
    lengths: Mapping[str, int],
    features: Mapping[str, Feature],
    convert: Convert,
    widths: Mapping[str, int] | None,
    *,
    pack: bool,
    batch_size: int | None,
) -> tf.data.Dataset:
    # Weights go through it by their bits, of which none are those of -1.
    of_bits = {LOSS_WEIGHT: Feature("int32", per_token_of="targets", padding=0)} if LOSS_WEIGHT in features else {}
    features = {**features, **of_bits}
    absent = {key: tf.constant(feature.absent, feature.dtype) for key, feature in features.items()}
    room = {key: lengths[feature.per_token_of] for key, feature in features.items()}

    def with_weights(rows: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {key: values.view(np.float32) if key in of_bits else values for key, values in rows.items()}

    def padded(arrays: Mapping[str, np.ndarray], first: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        sizes = {key: np.count_nonzero(values != features[key].absent, axis=1) for key, values in arrays.items()}
        _check(sizes, features, lengths, first)
        rows = {key: np.where(values == features[key].absent, 0, values).astype(np.int32) for key, values in arrays.items()}
        for key, values in rows.items():
            if not batch_size and values.shape[1] < room[key]:
                rows[key] = np.pad(values, [(0, 0), (0, room[key] - values.shape[1])])
        return rows, {key: sizes[key] for key in lengths}

    def of_batch(first: np.ndarray, *arrays: np.ndarray) -> list[np.ndarray]:
        number = int(first) * (batch_size or _AT_A_TIME)
        rows, sizes = padded(dict(zip(features, arrays)), number)
        return list(convert(with_weights(rows), sizes, number).values())

    def above_0(first: np.ndarray, *arrays: np.ndarray) -> list[np.ndarray]:
        """SeqIO's packing takes any 0 for padding, so all values are one higher meanwhile."""
        given = dict(zip(features, arrays))
        padded(given, int(first) * _AT_A_TIME)
        return [np.where(values == features[key].absent, 0, values.astype(np.int32) + 1) for key, values in given.items()]

    of_tokens = [f"{key}{of}" for key in lengths for of in ("_segment_ids", "_positions")]

    def of_packed(*arrays: np.ndarray) -> list[np.ndarray]:
        rows = dict(zip((*features, *of_tokens), arrays))
        return list(convert(rows | with_weights({key: np.maximum(rows[key] - 1, 0) for key in features}), None, 0).values())

    empty = {key: np.zeros([0, length], np.int32) for key, length in room.items()}
    if pack:
        segments = {key: empty[key.rsplit("_", 2 if "segment" in key else 1)[0]] for key in of_tokens}
        made = convert(with_weights(empty) | segments, None, 0)
    else:
        nothing = {key: np.zeros([0], np.int64) for key in lengths}
        wide = {key: np.zeros([1, 1], np.int32) for key in features} if batch_size else empty
        made = convert(with_weights(wide), {key: np.ones([1], np.int64) for key in lengths} if batch_size else nothing, 0)
    names = {name: tf.as_dtype(values.dtype) for name, values in made.items()}  # of the arrays, which no rows say

    @no_autograph
    def converted(function: Callable[..., list[np.ndarray]], *inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        made = python_op(function, list(inputs), list(names.values()))
        return {name: tf.ensure_shape(each, [None, widths and widths[name]]) for name, each in zip(names, made)}

    parallel = {"num_parallel_calls": tf.data.AUTOTUNE}
    alone = ds.map(
        lambda example: {key: tf.bitcast(example[key], tf.int32) if key in of_bits else example[key] for key in features},
        **parallel,
    )
    batches = alone.padded_batch(batch_size or _AT_A_TIME, padding_values=absent).enumerate()
    if not pack:
        rows = batches.map(lambda first, of: converted(of_batch, first, *(of[key] for key in features)), **parallel)
        if batch_size:
            return rows
        rows, count = rows.unbatch(), ds.cardinality()
        # t5x asks for this number before it predicts.
        return rows if count == tf.data.UNKNOWN_CARDINALITY else rows.apply(tf.data.experimental.assert_cardinality(count))

    @no_autograph
    def checked(first: tf.Tensor, of: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        made = python_op(above_0, [first, *(of[key] for key in features)], [tf.int32] * len(features))
        return {key: tf.ensure_shape(values, [None, None]) for key, values in zip(features, made)}

    packed = seqio.utils.trim_and_pack_dataset(batches.map(checked, **parallel).unbatch(), room)
    rows = packed.batch(_AT_A_TIME).map(
        lambda row: converted(of_packed, *(row[key] for key in (*features, *of_tokens))), **parallel
    )
    return rows.unbatch()


def _check(sizes: Mapping[str, np.ndarray], features: Mapping[str, Feature], lengths: Mapping[str, int], first: int) -> None:
    """Raises a ValueError with the number of an example that is empty or too long, or whose masks have other lengths."""

    def refuse(wrong: np.ndarray, key: str, message: str, *numbers: np.ndarray) -> None:
        if wrong.any():
            row = int(wrong.argmax())
            found = message.format(*(number[row] for number in numbers))
            raise ValueError(f"example {first + row} of the dataset, counted from 0: its {key} must have {found}")

    for key, feature in features.items():
        of = feature.per_token_of
        remedy = f"If SeqIO has trimmed the {of}, pass trim_output_features=False."
        refuse(sizes[key] != sizes[of], key, f"a value for each of its {of}, got {{}} for {{}}. {remedy}", sizes[key], sizes[of])
    for key, length in lengths.items():
        remedy = "Leave it out (dataset.filter), or end the feature with an EOS (seqio.Feature(add_eos=True))."
        refuse(sizes[key] == 0, key, f"a token, got none. {remedy}")
        remedy = "Raise it, or make such examples shorter, as register_chat(truncation='drop') does."
        refuse(sizes[key] > length, key, f"at most {length} tokens, as task_feature_lengths says, got {{}}. {remedy}", sizes[key])


def specs_of(features: Mapping[str, Feature]) -> dict[str, seqio.FeatureConverter.FeatureSpec]:
    """The features of an example as SeqIO describes them."""
    return {key: seqio.FeatureConverter.FeatureSpec(tf.as_dtype(feature.dtype)) for key, feature in features.items()}
