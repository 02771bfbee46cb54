"""Turns examples into the inputs of Hugging Face's models, a batch at a time: `HuggingFaceFeatureConverter`.

inputs            5 6 1             targets  7 8 9 1               here each row is padded to a multiple of 4

an encoder-decoder model's          a decoder-only model's
input_ids              5 6 1 0      input_ids              5    6    1 7 8 9 1 0
attention_mask         1 1 1 0      attention_mask         1    1    1 1 1 1 1 0
decoder_input_ids      0 7 8 9      labels              -100 -100 -100 7 8 9 1 -100
decoder_attention_mask 1 1 1 1
labels                 7 8 9 1

Where examples say which targets are learned (`loss_mask`), the labels of the others are -100; a decoder reads them all the same.

The ids are the tokenizer's own. If the vocabulary shifted them for SeqIO (`special_ids.id_shift`), the shift is undone.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import seqio
import tensorflow as tf

from ul2_tasks.converters.encoder_decoder import EXAMPLES_PER_BATCH, as_long_as, with_features_alone
from ul2_tasks.converters.marks import absent, example_spec, misaligned
from ul2_tasks.converters.row_format import RowFormat
from ul2_tasks.datasets import stated_id_shift
from ul2_tasks.example_features import EXAMPLE, IGNORED, LOSS_MASK, REPLY, SPAN_ID, Feature
from ul2_tasks.graphs import no_autograph
from ul2_tasks.scalars import is_integer
from ul2_tasks.vocabulary.special_ids import id_shift


@no_autograph
def model_inputs(
    inputs: tf.RaggedTensor,
    targets: tf.RaggedTensor,
    lengths: Mapping[str, int],
    row_format: RowFormat,
    marks: Mapping[str, tf.RaggedTensor] = MappingProxyType({}),
) -> dict[str, tf.Tensor]:
    """The model inputs of a batch. Nothing is cut: with padding "max_length" no example may be longer than `lengths`.

    Examples are [B, tokens] int32, in the tokenizer's own ids. `lengths` are in tokens, and only for padding "max_length". `marks`
    are of the targets, [B, tokens] uint8: "loss_mask", 1 for those that are learned, without which all are; and "span_id", where
    the rows are to have it.

    The result is [B, length] int32 each. For an encoder-decoder model, as T5's in `transformers` (arXiv 1910.10683):
        input_ids: the inputs, padded with the pad id.
        attention_mask: 1 for inputs, 0 for padding.
        labels: the targets, -100 where they are not learned, and in the padding.
        decoder_input_ids: the targets, padded with the pad id and shifted right by one place, after the start id. This is
            what `T5ForConditionalGeneration.prepare_decoder_input_ids_from_labels` makes of the labels, if all are learned.
        decoder_attention_mask: 1 for targets, 0 for padding.
    For a decoder-only model, which shifts the labels itself:
        input_ids: the inputs and then the targets, padded with the pad id.
        attention_mask: 1 for inputs and targets, 0 for padding.
        labels: the targets that are learned in their places, -100 elsewhere.
    For both, where it is asked for:
        span_id: of each label, 0 where that is -100.
    """
    fixed = row_format.row_lengths(lengths)

    def rows(ragged: tf.RaggedTensor, name: str, padding: int) -> tf.Tensor:
        longest = tf.reduce_max(ragged.row_lengths())
        multiple = row_format.pad_to_multiple_of or 1
        width = fixed[name] if row_format.padding == "max_length" else -(-longest // multiple) * multiple
        dense = ragged.to_tensor(padding, shape=tf.stack([ragged.nrows(), tf.cast(width, tf.int64)]))
        return tf.ensure_shape(dense, [None, fixed[name] if row_format.padding == "max_length" else None])

    def mask(ragged: tf.RaggedTensor, like: tf.Tensor) -> tf.Tensor:
        return tf.sequence_mask(ragged.row_lengths(), tf.shape(like, tf.int64)[1], tf.int32)

    def of_labels(values: tf.RaggedTensor, nothing: int) -> tf.Tensor:
        """The targets' values in the labels' places: `nothing` where there is no label."""
        if LOSS_MASK in marks:
            values = values.with_flat_values(tf.where(marks[LOSS_MASK].flat_values == 1, values.flat_values, nothing))
        if row_format.decoder_only:
            values = tf.concat([tf.ones_like(inputs) * nothing, values], axis=1)
        return rows(values, "labels", nothing)

    labels = {"labels": of_labels(targets, IGNORED)}
    if row_format.span_id:
        labels[SPAN_ID] = of_labels(tf.cast(marks[SPAN_ID], tf.int32), 0)
    pad = row_format.pad_token_id
    if row_format.decoder_only:
        both = tf.concat([inputs, targets], axis=1)
        input_ids = rows(both, "input_ids", pad)
        return {"input_ids": input_ids, "attention_mask": mask(both, input_ids), **labels}
    input_ids, padded = rows(inputs, "input_ids", pad), rows(targets, "labels", pad)
    return {
        "input_ids": input_ids,
        "attention_mask": mask(inputs, input_ids),
        "decoder_input_ids": tf.pad(padded[:, :-1], [[0, 0], [1, 0]], constant_values=row_format.decoder_start_token_id),
        "decoder_attention_mask": mask(targets, padded),
        **labels,
    }


def batch_inputs(
    examples: Mapping[str, tf.Tensor],
    lengths: Mapping[str, int],
    row_format: RowFormat,
    spec: Mapping[str, Feature],
    shift: int,
    first: tf.Tensor,
) -> dict[str, tf.Tensor]:
    """The model inputs of a batch, see `model_inputs`, or an error that says which example is wrong.

    `examples` are [B, tokens] of each feature of `spec`, padded with `Feature.absent`, and `lengths` the most tokens of an example.
    `shift` is how much higher the ids are than the tokenizer's own. `first` is the number of its first example in the dataset.
    """
    ragged = [checked(examples[key], key, lengths[key], first) - shift for key in EXAMPLE]
    if row_format.embedding_rows is not None:
        ragged = [_embedded(rows, key, row_format.embedding_rows, first) for key, rows in zip(EXAMPLE, ragged)]
    inputs, targets = ragged
    with tf.control_dependencies(misaligned(examples, spec)):
        of_targets = spec.keys() - EXAMPLE.keys()
        marks = {key: tf.RaggedTensor.from_tensor(examples[key], lengths=targets.row_lengths()) for key in of_targets}
    return model_inputs(inputs, targets, lengths, row_format, marks)


class HuggingFaceFeatureConverter(seqio.FeatureConverter):
    """A SeqIO converter for models of `transformers`, encoder-decoder or decoder-only. See `model_inputs` for what it gives.

        dataset = seqio.get_dataset(
            "ul2_mix", {"inputs": 512, "targets": 512}, HuggingFaceFeatureConverter("longest", 32), num_epochs=None, seed=0
        )
        for batch in dataset.as_numpy_iterator():
            loss = model(**{key: torch.tensor(value).long() for key, value in batch.items()}).loss

    With padding "longest" an element of the dataset is a batch, [B, length] int32 for each model input. SeqIO batches only after
    the converter, and only rows of equal lengths, so give batch_size here and not to `seqio.get_dataset`. If the dataset ends,
    its last batch can be smaller. With "max_length" an element is an example, [length] int32, and SeqIO batches.

    It converts any task or mixture with int32 `inputs` and `targets`. Where there is a `loss_mask` of the targets, too, as replies
    have it (`NAME_reply` of `register_chat`), labels are -100 where it is 0. Other features are dropped. An example that is longer
    than `task_feature_lengths`, or that has no inputs or no targets, is an error that says the number of the example in the dataset
    (counted on over epochs). Nothing is cut here. But SeqIO itself silently trims the examples of tasks of other kinds before it
    converts them, unless `seqio.get_dataset` gets `trim_output_features=False`.

    **Ids** are the tokenizer's own. Tasks of `register` and `with_mode`, and mixtures of them, let this converter know whether
    their ids are shifted for SeqIO. For other tasks whose vocabulary has a `special_ids.id_shift` of 1, give `vocabulary`.
    """

    TASK_FEATURES: Mapping[str, seqio.FeatureConverter.FeatureSpec] = seqio.EncDecFeatureConverter.TASK_FEATURES

    def __init__(
        self,
        padding: str = "max_length",
        batch_size: int | None = None,
        pad_to_multiple_of: int | None = 8,
        decoder_start_token_id: int = 0,
        decoder_only: bool = False,
        pad_token_id: int = 0,
        vocabulary: seqio.Vocabulary | None = None,
        embedding_rows: int | None = None,
        span_id: bool = False,
    ):
        """
        Args:
            padding: "max_length", to `task_feature_lengths`, or for a decoder-only model to their sum; "longest", to the longest
                of the batch, rounded up to a multiple, which can be more than `task_feature_lengths`.
            batch_size: examples in a batch; only for padding "longest", which needs it.
            pad_to_multiple_of: that multiple, in tokens; only for padding "longest". None is 1.
            decoder_start_token_id: the id that the decoder reads before the first target, 0 for T5; not for decoder-only models.
            decoder_only: whether inputs and targets make one row, with a loss on the targets only.
            pad_token_id: the id that pads rows of ids, the same that the model has. The masks are 0 there.
            vocabulary: of the tasks, for tasks of other kinds whose ids are shifted.
            embedding_rows: how many rows the model's embedding has, `model.get_input_embeddings().num_embeddings`. Then an id that
                it has no row for is an error with the example's number, and not an index error of the model.
            span_id: whether there is `span_id`, too, which `SpanTrainer` needs: the span of each label. The examples must have it:
                those of replies do, and `UL2IterableDataset` has it of mixtures of replies and texts.

        Raises:
            ValueError: an argument has another value than these; or, when it converts, the tasks' ids are shifted and those of
                `vocabulary` are not.
        """
        self._row_format = RowFormat(
            padding=padding,
            pad_to_multiple_of=pad_to_multiple_of,
            pad_token_id=pad_token_id,
            decoder_start_token_id=decoder_start_token_id,
            decoder_only=decoder_only,
            embedding_rows=embedding_rows,
            span_id=span_id,
        )
        if padding == "longest" and not is_integer(batch_size, at_least=1):
            raise ValueError(
                f"batch_size is {batch_size!r}, expected how many examples a batch has: padding 'longest' is to the longest of a"
                " batch, and SeqIO batches only after this converter. Give batch_size here, and not to seqio.get_dataset; or"
                " padding='max_length'"
            )
        if padding == "max_length" and batch_size is not None:
            raise ValueError(
                f"batch_size is {batch_size!r}, expected None: with padding 'max_length' SeqIO batches; give it to"
                " seqio.get_dataset(batch_size=..)"
            )
        self._batch_size = batch_size
        self._vocabulary = vocabulary
        spec = seqio.FeatureConverter.FeatureSpec(dtype=tf.int32, rank=2 if padding == "longest" else 1)
        self.MODEL_FEATURES = dict.fromkeys(self._row_format.names, spec)
        if span_id:
            self.TASK_FEATURES = {key: seqio.FeatureConverter.FeatureSpec(tf.as_dtype(REPLY[key].dtype)) for key in REPLY}
        # `checked` checks a batch at once; SeqIO would check each example.
        super().__init__(pack=False, apply_length_check=False, bos_id=decoder_start_token_id)

    def __call__(self, ds: tf.data.Dataset, task_feature_lengths: Mapping[str, int]) -> tf.data.Dataset:
        """See `seqio.FeatureConverter`; `task_feature_lengths` has inputs and targets alone, as marks have the targets' lengths."""
        marks = self.TASK_FEATURES.keys() - EXAMPLE.keys()
        if task_feature_lengths.keys() == EXAMPLE.keys():  # SeqIO says what is wrong with others, and wants one for each feature
            task_feature_lengths = {**task_feature_lengths, **dict.fromkeys(marks, task_feature_lengths["targets"])}
        return super().__call__(ds, task_feature_lengths)

    @property
    def batch_size(self) -> int | None:
        """How many examples an element has with padding "longest"; None where it is one."""
        return self._batch_size

    def get_model_feature_lengths(self, task_feature_lengths: Mapping[str, int]) -> Mapping[str, int]:
        """The length of each model input with padding "max_length". With "longest" only rounding can exceed it."""
        return self._row_format.row_lengths(task_feature_lengths)

    @no_autograph
    def _convert_features(self, ds: tf.data.Dataset, task_feature_lengths: Mapping[str, int]) -> tf.data.Dataset:
        shift = shift_of_ids(ds, self._vocabulary)
        spec = example_spec(ds) | ({SPAN_ID: REPLY[SPAN_ID]} if self._row_format.span_id else {})
        ds = with_features_alone(ds, spec)
        batch_size = self._batch_size or EXAMPLES_PER_BATCH

        def convert(number: tf.Tensor, examples: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            return batch_inputs(examples, task_feature_lengths, self._row_format, spec, shift, first=number * batch_size)

        # Batches of ragged tensors would need a step of tf.data for each example.
        batches = ds.padded_batch(batch_size, padding_values={key: absent(feature) for key, feature in spec.items()})
        rows = batches.enumerate().map(convert, num_parallel_calls=tf.data.AUTOTUNE)
        if self._row_format.padding == "longest":
            return rows
        return as_long_as(ds, rows.unbatch())


def shift_of_ids(ds: tf.data.Dataset, vocabulary: seqio.Vocabulary | None) -> int:
    """How much higher the ids of a dataset are than their tokenizer's.

    `vocabulary` is what the user gave for tasks that do not say it. Raises a ValueError where the tasks' ids are shifted and its
    ids are not.
    """
    stated = stated_id_shift(ds)
    if vocabulary is None:
        return stated
    if stated and not id_shift(vocabulary):
        raise ValueError(
            f"the tasks' ids are {stated} higher than their tokenizer's, but those of vocabulary, {vocabulary}, are not"
            " shifted; leave vocabulary out"
        )
    return id_shift(vocabulary)


def checked(feature: tf.Tensor, key: str, length: int, first: tf.Tensor) -> tf.RaggedTensor:
    """The examples of a batch without their padding, or an error that says which example is empty or too long.

    `feature` is [B, tokens], padded with `NO_TOKEN`. `length` is the most tokens that an example may have. `first` is the number of
    the batch's first example in the dataset.
    """
    sizes = tf.math.count_nonzero(feature >= 0, axis=1)
    wrong = (sizes == 0) | (sizes > length)

    def refuse() -> tf.Operation:
        row = tf.argmax(wrong)
        example = f"example {{}} of the dataset, counted from 0: its {key} are "
        empty = tf.strings.format(
            example + "empty; leave it out (dataset.filter), or let the feature end with an EOS (seqio.Feature(add_eos=True))",
            [first + row],
        )
        too_long = tf.strings.format(
            example + f"{{}} tokens, longer than the {length} that task_feature_lengths has for them, and nothing is cut here;"
            " raise it, or make such examples shorter",
            [first + row, sizes[row]],
        )
        return tf.debugging.Assert(False, [tf.where(sizes[row] == 0, empty, too_long)])

    with tf.control_dependencies([tf.cond(tf.reduce_any(wrong), refuse, tf.no_op)]):
        return tf.RaggedTensor.from_tensor(feature, lengths=sizes)


def _embedded(feature: tf.RaggedTensor, key: str, embedding_rows: int, first: tf.Tensor) -> tf.RaggedTensor:
    """The same, or an error that says which example has an id that a model's embedding has no row for."""
    largest = tf.reduce_max(feature, axis=1)
    row = tf.argmax(largest)
    message = tf.strings.format(
        f"example {{}} of the dataset, counted from 0: its {key} hold the id {{}}, but embedding_rows is {embedding_rows}; before"
        " training give the model a row for each id, model.resize_token_embeddings(ul2_tasks.embedding_rows(vocabulary)), with the"
        " task's vocabulary",
        [first + row, largest[row]],
    )
    with tf.control_dependencies([tf.debugging.Assert(largest[row] < embedding_rows, [message])]):
        return feature.with_flat_values(tf.identity(feature.flat_values))
