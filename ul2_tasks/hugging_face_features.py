"""Examples to what Hugging Face's models take, a batch at a time: `HuggingFaceFeatureConverter`, and the function that pads.

inputs            5 6 1             targets  7 8 9 1               rounded up to a multiple of 4

an encoder-decoder model's          a decoder-only model's
input_ids              5 6 1 0      input_ids              5    6    1 7 8 9 1 0
attention_mask         1 1 1 0      attention_mask         1    1    1 1 1 1 1 0
decoder_input_ids      0 7 8 9      labels              -100 -100 -100 7 8 9 1 -100
decoder_attention_mask 1 1 1 1
labels                 7 8 9 1

Ids are the tokenizer's own here: where a vocabulary has shifted them for SeqIO (`vocabularies.id_shift`), that is undone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import seqio
import tensorflow as tf

from ul2_tasks.converters import EXAMPLES_PER_BATCH, as_long_as, with_features_alone
from ul2_tasks.graphs import no_autograph
from ul2_tasks.scalars import is_integer
from ul2_tasks.vocabularies import id_shift, stated_id_shift

IGNORED = -100  # the label of a place without loss, of PyTorch's cross entropy and of Transformers
PADDINGS = ("longest", "max_length")

_NO_TOKEN = -1  # fills up the examples of a batch: 0 could be a token of a task that is not ours


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowFormat:
    """How examples become rows of model inputs.

    Attributes:
        padding: "longest", to the batch's longest, rounded up to a multiple; "max_length", to the lengths that are given.
        pad_to_multiple_of: that multiple, in tokens, at least 1.
        pad_token_id: what fills up the rows of ids, where the masks are 0.
        decoder_start_token_id: what the decoder reads before the first target.
        decoder_only: one row `[inputs; targets]` for an example, instead of one for the encoder and one for the decoder.

    Raises:
        ValueError: one of them is something else; it says which.
    """

    padding: str
    pad_to_multiple_of: int
    pad_token_id: int
    decoder_start_token_id: int
    decoder_only: bool

    def __post_init__(self):
        for key, expected, valid in (
            ("padding", f"one of {PADDINGS}", self.padding in PADDINGS),
            ("pad_to_multiple_of", "an integer of at least 1", is_integer(self.pad_to_multiple_of, at_least=1)),
            ("pad_token_id", "an id, 0 or more", is_integer(self.pad_token_id, at_least=0)),
            ("decoder_start_token_id", "an id, 0 or more", is_integer(self.decoder_start_token_id, at_least=0)),
            ("decoder_only", "True or False", isinstance(self.decoder_only, bool)),
        ):
            if not valid:
                raise ValueError(f"{key} is {getattr(self, key)!r}, expected {expected}")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the model inputs."""
        if self.decoder_only:
            return "input_ids", "attention_mask", "labels"
        return "input_ids", "attention_mask", "decoder_input_ids", "decoder_attention_mask", "labels"

    def row_lengths(self, lengths: Mapping[str, int]) -> dict[str, int]:
        """The fixed length of each model input, in tokens, where inputs and targets have these."""
        if self.decoder_only:
            return dict.fromkeys(self.names, lengths["inputs"] + lengths["targets"])
        return {name: lengths["inputs" if name in ("input_ids", "attention_mask") else "targets"] for name in self.names}


@no_autograph
def model_inputs(
    inputs: tf.RaggedTensor, targets: tf.RaggedTensor, lengths: Mapping[str, int], row_format: RowFormat
) -> dict[str, tf.Tensor]:
    """The model inputs of a batch. Nothing is cut: no example may be longer than `lengths` where these are the rows'.

    Args:
        inputs, targets: [B, tokens] int32, the examples, in the tokenizer's own ids.
        lengths: {"inputs": int, "targets": int}, in tokens; only for padding "max_length".
        row_format: the rows' format.

    Returns:
        [B, length] int32 each. Of an encoder-decoder model, where T5's layout is followed (arXiv 1910.10683, as
        `transformers` has it):
            input_ids: the inputs, padded with the pad id.
            attention_mask: 1 where the inputs are, otherwise 0.
            labels: the targets, padded with -100.
            decoder_input_ids: the targets, padded with the pad id, one place later, after the start id: what
                `T5ForConditionalGeneration.prepare_decoder_input_ids_from_labels` makes of the labels.
            decoder_attention_mask: 1 where the labels are targets, otherwise 0.
        Of a decoder-only model, which shifts the labels itself:
            input_ids: the inputs and then the targets, padded with the pad id.
            attention_mask: 1 where these are, otherwise 0.
            labels: the targets in their places, -100 elsewhere.
    """
    fixed = row_format.row_lengths(lengths)

    def rows(ragged: tf.RaggedTensor, name: str, padding: int) -> tf.Tensor:
        longest = tf.reduce_max(ragged.row_lengths())
        multiple = row_format.pad_to_multiple_of
        width = fixed[name] if row_format.padding == "max_length" else -(-longest // multiple) * multiple
        dense = ragged.to_tensor(padding, shape=tf.stack([ragged.nrows(), tf.cast(width, tf.int64)]))
        return tf.ensure_shape(dense, [None, fixed[name] if row_format.padding == "max_length" else None])

    def mask(ragged: tf.RaggedTensor, like: tf.Tensor) -> tf.Tensor:
        return tf.sequence_mask(ragged.row_lengths(), tf.shape(like, tf.int64)[1], tf.int32)

    if row_format.decoder_only:
        both = tf.concat([inputs, targets], axis=1)
        input_ids = rows(both, "input_ids", row_format.pad_token_id)
        labels = rows(tf.concat([tf.ones_like(inputs) * IGNORED, targets], axis=1), "labels", IGNORED)
        return {"input_ids": input_ids, "attention_mask": mask(both, input_ids), "labels": labels}
    pad = row_format.pad_token_id
    input_ids, padded = rows(inputs, "input_ids", pad), rows(targets, "labels", pad)
    decoder_mask = mask(targets, padded)
    return {
        "input_ids": input_ids,
        "attention_mask": mask(inputs, input_ids),
        "decoder_input_ids": tf.pad(padded[:, :-1], [[0, 0], [1, 0]], constant_values=row_format.decoder_start_token_id),
        "decoder_attention_mask": decoder_mask,
        "labels": tf.where(decoder_mask > 0, padded, IGNORED),
    }


class HuggingFaceFeatureConverter(seqio.FeatureConverter):
    """A SeqIO converter to what `transformers` takes, an encoder-decoder model or a decoder-only one. See `model_inputs`.

        dataset = seqio.get_dataset(
            "ul2_mix", {"inputs": 512, "targets": 512}, HuggingFaceFeatureConverter("longest", 32), num_epochs=None, seed=0
        )
        for batch in dataset.as_numpy_iterator():
            loss = model(**{key: torch.tensor(value).long() for key, value in batch.items()}).loss

    With padding "longest" an element is a batch, [B, length] int32 of each model input: SeqIO batches only after the converter,
    and rows of equal lengths alone. So batch_size is given here, and not to `seqio.get_dataset`. The last batch of an epoch that
    ends is smaller. With "max_length" an element is an example, [length] int32, and SeqIO batches them.

    Works on any task and mixture with int32 `inputs` and `targets`, which `task_feature_lengths` bounds; other features are left
    behind. An example that is longer than these, or has no inputs or no targets, ends the iteration with an error that tells its
    number in the dataset, which counts on over epochs. Nothing is cut here. But SeqIO itself trims the examples of tasks that
    are not ours before it converts them, without a word: give `seqio.get_dataset` `trim_output_features=False`.

    **Ids** are the tokenizer's own. The tasks of `register` and `with_mode`, and mixtures with these, tell this converter
    themselves where SeqIO has other ones. For other tasks, with a vocabulary whose `vocabularies.id_shift` is 1, give `vocabulary`.
    """

    TASK_FEATURES = seqio.EncDecFeatureConverter.TASK_FEATURES

    def __init__(
        self,
        padding: str = "max_length",
        batch_size: int | None = None,
        pad_to_multiple_of: int = 8,
        decoder_start_token_id: int = 0,
        decoder_only: bool = False,
        pad_token_id: int = 0,
        vocabulary: seqio.Vocabulary | None = None,
    ):
        """
        Args:
            padding: "max_length", to `task_feature_lengths`, for a decoder-only model to their sum; "longest", to the batch's
                longest, rounded up to a multiple, which may be beyond the lengths that bound the examples.
            batch_size: examples a batch; with padding "longest", and only there.
            pad_to_multiple_of: that multiple, in tokens; no part of "max_length".
            decoder_start_token_id: what the decoder reads before the first target; 0 is T5's. No part of decoder-only models.
            decoder_only: whether inputs and targets make one row, with loss on the targets.
            pad_token_id: what fills up the rows of ids: the tokenizer's, as the model has it. No place with it is looked at.
            vocabulary: that of the tasks, where these do not tell it.

        Raises:
            ValueError: an argument is none of these; when it converts, the tasks tell another shift than the vocabulary has.
        """
        self._row_format = RowFormat(
            padding=padding,
            pad_to_multiple_of=pad_to_multiple_of,
            pad_token_id=pad_token_id,
            decoder_start_token_id=decoder_start_token_id,
            decoder_only=decoder_only,
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
        super().__init__(
            pack=False, apply_length_check=False, bos_id=decoder_start_token_id
        )  # a batch is checked, not each example

    def get_model_feature_lengths(self, task_feature_lengths: Mapping[str, int]) -> Mapping[str, int]:
        """The length of each model input with padding "max_length"; with "longest" only rounding goes beyond it."""
        return self._row_format.row_lengths(task_feature_lengths)

    @no_autograph
    def _convert_features(self, ds: tf.data.Dataset, task_feature_lengths: Mapping[str, int]) -> tf.data.Dataset:
        shift = self._id_shift(ds)
        ds = with_features_alone(ds, self.TASK_FEATURES)
        batch_size = self._batch_size or EXAMPLES_PER_BATCH

        def convert(number: tf.Tensor, examples: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            first = number * batch_size
            ragged = {key: _checked(examples[key], key, task_feature_lengths[key], first) - shift for key in self.TASK_FEATURES}
            return model_inputs(ragged["inputs"], ragged["targets"], task_feature_lengths, self._row_format)

        # Batches of ragged tensors would need a step of tf.data for each example.
        batches = ds.padded_batch(batch_size, padding_values=_NO_TOKEN)
        rows = batches.enumerate().map(convert, num_parallel_calls=tf.data.AUTOTUNE)
        if self._row_format.padding == "longest":
            return rows
        return as_long_as(ds, rows.unbatch())

    def _id_shift(self, ds: tf.data.Dataset) -> int:
        told = stated_id_shift(ds)
        if self._vocabulary is None:
            return told
        if told and not id_shift(self._vocabulary):
            raise ValueError(
                f"the tasks' ids are {told} higher than their tokenizer's, but those of vocabulary, {self._vocabulary}, are not"
                " shifted; leave vocabulary out"
            )
        return id_shift(self._vocabulary)


def _checked(feature: tf.Tensor, key: str, length: int, first: tf.Tensor) -> tf.RaggedTensor:
    """Examples without their padding of -1, or an error that tells which is empty or too long. The first has the number `first`."""
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
