"""`HuggingFaceFeatureConverter` of a `tf.data.Dataset`: its examples are checked in the graph, and written as in `row_format`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import seqio
import tensorflow as tf
from absl import logging

from ul2_tasks.converters.encoder_decoder import EXAMPLES_PER_BATCH, as_long_as, pack_rows, pool_size, with_features_alone
from ul2_tasks.converters.marks import absent, example_spec, misaligned
from ul2_tasks.converters.row_format import NO_ROW, OF_DATASET, TASK_ID_OF_STREAM, RowFormat, packed_inputs, padded_inputs
from ul2_tasks.converters.rows import row_source
from ul2_tasks.datasets import facts_of
from ul2_tasks.example_features import EXAMPLE, PROMPT_COMPLETION, SPAN_ID, Feature
from ul2_tasks.graphs import no_autograph, python_op
from ul2_tasks.scalars import as_python
from ul2_tasks.vocabulary.special_ids import id_shift, pads_with_0

_INT32 = [tf.int32]


class GraphConverter(seqio.FeatureConverter):
    """See `hugging_face.HuggingFaceFeatureConverter`."""

    TASK_FEATURES: Mapping[str, seqio.FeatureConverter.FeatureSpec] = seqio.EncDecFeatureConverter.TASK_FEATURES
    PACKING_FEATURE_DTYPES: Mapping[str, tf.DType] = {}

    def __init__(self, row_format: RowFormat, batch_size: int | None, vocabulary: seqio.Vocabulary | None):
        """Takes the settings, which are checked."""
        if row_format.task_id:
            raise ValueError(TASK_ID_OF_STREAM)
        self._row_format, self._batch_size, self._vocabulary = row_format, batch_size, vocabulary
        spec = seqio.FeatureConverter.FeatureSpec(dtype=tf.int32, rank=2 if batch_size else 1)
        self.MODEL_FEATURES = dict.fromkeys(row_format.names, spec)
        if row_format.span_id:
            self.TASK_FEATURES = {
                key: seqio.FeatureConverter.FeatureSpec(tf.as_dtype(PROMPT_COMPLETION[key].dtype)) for key in PROMPT_COMPLETION
            }
        # `_checked_sizes` checks a batch at once; SeqIO would check each example.
        super().__init__(pack=row_format.pack, apply_length_check=False, bos_id=row_format.decoder_start_token_id)

    def __call__(self, ds: tf.data.Dataset, task_feature_lengths: Mapping[str, int]) -> tf.data.Dataset:
        """See `seqio.FeatureConverter`; `task_feature_lengths` has inputs and targets alone, as marks have the targets' lengths."""
        marks = self.TASK_FEATURES.keys() - EXAMPLE.keys()
        if task_feature_lengths.keys() == EXAMPLE.keys():  # SeqIO says what is wrong with others, and wants one for each feature
            task_feature_lengths = {**task_feature_lengths, **dict.fromkeys(marks, task_feature_lengths["targets"])}
        return super().__call__(ds, task_feature_lengths)

    def get_model_feature_lengths(self, task_feature_lengths: Mapping[str, int]) -> Mapping[str, int]:
        """The length of each model input with padding "max_length"."""
        return self._row_format.row_lengths(task_feature_lengths)

    @no_autograph
    def _convert_features(self, ds: tf.data.Dataset, task_feature_lengths: Mapping[str, int]) -> tf.data.Dataset:
        shift = shift_of_ids(ds, self._vocabulary)
        self._row_format.check_start(not shift and (self._vocabulary is None or pads_with_0(self._vocabulary)))
        spec = example_spec(ds) | ({SPAN_ID: PROMPT_COMPLETION[SPAN_ID]} if self._row_format.span_id else {})
        if self.pack:
            return self._packed(ds, {key: as_python(task_feature_lengths[key]) for key in EXAMPLE}, spec, shift)
        ds = with_features_alone(ds, spec)
        batch_size = self._batch_size or EXAMPLES_PER_BATCH

        def convert(number: tf.Tensor, examples: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            return batch_inputs(examples, task_feature_lengths, self._row_format, spec, shift=shift, first=number * batch_size)

        # Batches of ragged tensors would need a step of tf.data for each example.
        batches = ds.padded_batch(batch_size, padding_values={key: absent(feature) for key, feature in spec.items()})
        rows = batches.enumerate().map(convert, num_parallel_calls=tf.data.AUTOTUNE)
        if self._row_format.padding == "longest":
            return rows
        return as_long_as(ds, rows.unbatch())

    def _packed(self, ds: tf.data.Dataset, lengths: Mapping[str, int], spec: Mapping[str, Feature], shift: int) -> tf.data.Dataset:
        names, widths = self._row_format.names, self._row_format.row_lengths(lengths)

        def written(rows: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
            own = {key: rows[key] - np.int32(shift) for key in EXAMPLE}
            return packed_inputs({**rows, **own}, self._row_format, dtype=np.int32)

        if (source := row_source(ds)) and (found := source.rows(lengths, True, written)) is not None:
            return found
        ds, at_a_time = with_features_alone(ds, spec), pool_size(lengths)
        of_each = {key: lengths[feature.per_token_of] for key, feature in spec.items()}

        def convert(number: tf.Tensor, examples: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            checks = [_checked_sizes(examples[key], key, lengths[key], number * at_a_time) for key in EXAMPLE]
            with tf.control_dependencies([*checks, *misaligned(examples, spec)]):
                rows = pack_rows({key: tf.identity(values) for key, values in examples.items()}, of_each, spec)
            made = python_op(
                lambda *arrays: list(written(dict(zip(rows, arrays))).values()), list(rows.values()), _INT32 * len(names)
            )
            return {name: tf.ensure_shape(values, [None, widths[name]]) for name, values in zip(names, made)}

        batches = ds.padded_batch(at_a_time, padding_values={key: absent(feature) for key, feature in spec.items()})
        return batches.enumerate().map(convert, num_parallel_calls=tf.data.AUTOTUNE).unbatch()


def batch_inputs(
    examples: Mapping[str, tf.Tensor],
    lengths: Mapping[str, int],
    row_format: RowFormat,
    spec: Mapping[str, Feature],
    *,
    shift: int,
    first: tf.Tensor,
) -> dict[str, tf.Tensor]:
    """The model inputs of a batch, see `row_format.padded_inputs`, int32, or an error that says which example is wrong.

    `examples` are [B, tokens] of each feature of `spec`, padded with `Feature.absent`, and `lengths` the most tokens of an example.
    `shift` is how much higher the ids are than the tokenizer's own. `first` is the number of its first example in the dataset.
    """
    sizes = [_checked_sizes(examples[key], key, lengths[key], first) for key in EXAMPLE]
    checks = misaligned(examples, spec)
    if row_format.embedding_rows is not None:
        checks += [_embedded(examples[key] - shift, key, row_format.embedding_rows, first) for key in EXAMPLE]

    def write(*arrays: np.ndarray) -> list[np.ndarray]:
        given, of_each = dict(zip(spec, arrays)), dict(zip(EXAMPLE, arrays[len(spec) :]))
        rows, marks = {key: given.pop(key) - np.int32(shift) for key in EXAMPLE}, given
        return list(padded_inputs(rows, of_each, lengths, row_format, marks, dtype=np.int32).values())

    with tf.control_dependencies(checks):
        arrays = [tf.identity(examples[key]) for key in spec]
    rows = python_op(write, [*arrays, *sizes], [tf.int32] * len(row_format.names))
    widths = row_format.row_lengths(lengths) if row_format.padding == "max_length" else dict.fromkeys(row_format.names)
    return {name: tf.ensure_shape(values, [None, widths[name]]) for name, values in zip(row_format.names, rows)}


def shift_of_ids(ds: tf.data.Dataset, vocabulary: seqio.Vocabulary | None) -> int:
    """How much higher the ids of a dataset are than their tokenizer's.

    `vocabulary` is what the user gave for tasks that do not say it. Raises a ValueError where the tasks' ids are shifted and its
    ids are not.
    """
    facts = facts_of(ds)
    if vocabulary is None:
        if facts is None:
            logging.log_first_n(
                logging.WARNING,
                "ids are taken as they are, because examples are of other tasks, or were changed after get_dataset. Pass the"
                " converter the vocabulary of the targets if it has an id_shift.",
                1,
            )
        return facts.id_shift if facts else 0
    if facts and facts.id_shift and not id_shift(vocabulary):
        raise ValueError(
            f"vocabulary must have the tasks' ids, which are {facts.id_shift} higher than their tokenizer's, got"
            f" {vocabulary}, whose ids are not. Leave vocabulary out."
        )
    return id_shift(vocabulary)


def _checked_sizes(feature: tf.Tensor, key: str, length: int, first: tf.Tensor) -> tf.Tensor:
    """How many tokens the examples of a batch have, [B] int64, or an error that says which example is empty or too long.

    `feature` is [B, tokens], padded with `NO_TOKEN`. `length` is the most tokens that an example may have. `first` is the number of
    the batch's first example in the dataset.
    """
    sizes = tf.math.count_nonzero(feature >= 0, axis=1)
    wrong = (sizes == 0) | (sizes > length)

    def refuse() -> tf.Operation:
        row = tf.argmax(wrong)
        example = f"example {{}} of the dataset, counted from 0: its {key} must have "
        empty = tf.strings.format(
            example
            + "a token, got none. Leave it out (dataset.filter), or end the feature with an EOS (seqio.Feature(add_eos=True)).",
            [first + row],
        )
        too_long = tf.strings.format(
            example + f"at most {length} tokens, as task_feature_lengths says, got {{}}. Raise it, or make such examples shorter.",
            [first + row, sizes[row]],
        )
        return tf.debugging.Assert(False, [tf.where(sizes[row] == 0, empty, too_long)])

    with tf.control_dependencies([tf.cond(tf.reduce_any(wrong), refuse, tf.no_op)]):
        return tf.identity(sizes)


def _embedded(ids: tf.Tensor, key: str, embedding_rows: int, first: tf.Tensor) -> tf.Operation:
    """An error that says which example has an id that a model's embedding has no row for."""
    largest = tf.reduce_max(ids, axis=1)
    row = tf.argmax(largest)
    message = tf.strings.format(
        NO_ROW.format(OF_DATASET.format(number="{}", key=key), "{}", embedding_rows), [first + row, largest[row]]
    )
    return tf.debugging.Assert(largest[row] < embedding_rows, [message])
