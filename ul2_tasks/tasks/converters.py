"""SeqIO's feature converters: for the models of t5x, and `seqio_converter` for those of `transformers`.

Their rows are those of `arrays.TABLE`, by `of_dataset.rows_of`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import seqio
import tensorflow as tf

from ul2_tasks.example_features import CHAT, EXAMPLE, NO_TASK, TASK_ID, Feature, token_features
from ul2_tasks.models.arrays import model_arrays
from ul2_tasks.models.transformers import HuggingFaceChatConverter, HuggingFaceFeatureConverter
from ul2_tasks.scalars import short
from ul2_tasks.tasks.datasets import facts_of
from ul2_tasks.tasks.of_dataset import row_source, rows_of, specs_of
from ul2_tasks.tasks.vocabulary import id_shift
from ul2_tasks.tokenizers.special_ids import as_vocabulary, pads_with_0

_logger = logging.getLogger(__name__)


class _Converter(seqio.FeatureConverter):
    """What all of them do.

    `FEATURES` are those that an example must have; `NAMES` those of a row, `PACKED` those of a packed row, too. `JOINED` says that
    a decoder reads inputs and targets. `TASKS` are those that `decoder_task_ids` counts, where a row has these.
    """

    FEATURES: Mapping[str, Feature] = EXAMPLE
    NAMES: tuple[str, ...] = ("decoder_target_tokens", "decoder_input_tokens", "decoder_loss_weights")
    PACKED: tuple[str, ...] = ("decoder_segment_ids", "decoder_positions")
    JOINED = False
    tasks: tuple[str, ...] | None = None

    def __init__(self, pack: bool = True, use_custom_packing_ops: bool = False):
        """
        Args:
            pack: whether several examples share a row. None is truncated, and none attends to another.
            use_custom_packing_ops: must be False. It is here because t5x passes it.

        Raises:
            ValueError: `use_custom_packing_ops` is True.
        """
        if use_custom_packing_ops:
            raise ValueError(
                "use_custom_packing_ops must be False, got True, which needs ops that SeqIO builds separately. Leave it out."
            )
        super().__init__(pack=pack, apply_length_check=False)

    @property
    def TASK_FEATURES(self) -> Mapping[str, seqio.FeatureConverter.FeatureSpec]:  # noqa: N802
        """What SeqIO asks a converter for, as for the next two."""
        return specs_of(self.FEATURES)

    @property
    def MODEL_FEATURES(self) -> Mapping[str, seqio.FeatureConverter.FeatureSpec]:  # noqa: N802
        return dict.fromkeys(self._names(False), seqio.FeatureConverter.FeatureSpec(tf.int32))

    @property
    def PACKING_FEATURE_DTYPES(self) -> Mapping[str, tf.DType]:  # noqa: N802
        return dict.fromkeys(self.PACKED, tf.int32)

    def get_model_feature_lengths(self, task_feature_lengths: Mapping[str, int]) -> Mapping[str, int]:
        """The length of each of the model's features."""
        *_, said = of_tokens = token_features(self.FEATURES)
        of_decoder = sum(task_feature_lengths[key] for key in of_tokens) if self.JOINED else task_feature_lengths[said]
        of_encoder = task_feature_lengths[of_tokens[0]]
        return {name: of_encoder if name.startswith("encoder") else of_decoder for name in self._names(self.pack)}

    def __call__(self, ds: tf.data.Dataset, task_feature_lengths: Mapping[str, int]) -> tf.data.Dataset:
        """The model's features.

        Args:
            ds: examples.
            task_feature_lengths: those of rows, in tokens, for features of tokens only: masks have the length of their tokens.

        Returns:
            A dataset of rows, [length] int32 for each feature.

        Raises:
            ValueError: there are lengths of other features, or some are missing; or the examples lack a feature.
        """
        return self._convert_features(ds, task_feature_lengths)

    def _convert_features(self, ds: tf.data.Dataset, task_feature_lengths: Mapping[str, int]) -> tf.data.Dataset:
        of_tokens, index = token_features(self.FEATURES), None
        widths = self.get_model_feature_lengths(task_feature_lengths) if task_feature_lengths.keys() == {*of_tokens} else None
        names = self._names(self.pack)
        if self.tasks is not None and (source := row_source(ds)):
            given = [info.task for info in source.tasks]
            if others := sorted({*given} - {*self.tasks}):
                raise ValueError(f"the examples must be of the tasks {list(self.tasks)}, got some of {others}. Add these.")
            index = np.array([*(self.tasks.index(name) for name in given), NO_TASK], np.int32)
        elif self.tasks is not None and facts_of(ds):
            raise ValueError(
                "the examples must be of tasks of ul2_tasks alone for decoder_task_ids, got some of others. Leave these out."
            )
        elif self.tasks is not None:
            _logger.warning("decoder_task_ids are -1, as the examples are of other tasks, or were changed after get_dataset.")

        def convert(rows: Mapping[str, np.ndarray], sizes: Mapping[str, np.ndarray] | None, first: int) -> dict[str, np.ndarray]:
            if index is not None and TASK_ID in rows:
                rows = {**rows, TASK_ID: index[rows[TASK_ID]]}
            return model_arrays(names, rows, sizes=sizes, joined=self.JOINED)

        return rows_of(ds, task_feature_lengths, self.FEATURES, convert, widths, pack=self.pack, with_task_id=index is not None)

    def _names(self, pack: bool) -> tuple[str, ...]:
        return *self.NAMES, *(("decoder_task_ids",) if self.tasks is not None else ()), *(self.PACKED if pack else ())


class EncDecFeatureConverter(_Converter):
    """Converts examples for encoder-decoder models of t5x, as `seqio.EncDecFeatureConverter` does.

    The rows are SeqIO's; with `pack=True` those of this package's own datasets are others, which are fuller and have an index. No
    example is split or lost, and the inputs and targets of an example have the same segment id. An example that is longer than
    `task_feature_lengths` raises an error; nothing is trimmed.

    Where examples have a `loss_mask` of their targets, as prompt-completion pairs do, `decoder_loss_weights` is 0 where it is 0.
    """

    NAMES = ("encoder_input_tokens", *_Converter.NAMES)
    PACKED = (*_Converter.PACKED, "encoder_segment_ids", "encoder_positions")


class PrefixLMFeatureConverter(_Converter):
    """Converts examples for decoder-only models of t5x, as `seqio.PrefixLMFeatureConverter` does.

    A row is the inputs and the targets of each of its examples, [inputs + targets] int32. With `pack=False` it is SeqIO's. With
    `pack=True` a row has the examples that a row of `EncDecFeatureConverter` has. Nothing is trimmed.

    Where examples have a `loss_mask` of their targets, `decoder_loss_weights` is 0 where it is 0.
    """

    NAMES = (*_Converter.NAMES, "decoder_causal_attention")
    JOINED = True


class ChatFeatureConverter(_Converter):
    """Converts conversations for a decoder-only model of t5x.

        seqio.get_dataset("chat", {"tokens": 4096}, ChatFeatureConverter(), num_epochs=None, seed=0)

    A conversation has `tokens` int32, and for each token `loss_mask` and `span_id` uint8. Rows have `decoder_target_tokens`, the
    tokens; `decoder_input_tokens`, shifted right by one position within each conversation; `decoder_loss_weights`, 0 or 1;
    `decoder_span_ids`; and with `pack=True` `decoder_segment_ids` and `decoder_positions`. All are int32.

    A conversation that is longer than the row raises an error. So does a mask that has another length than its tokens.
    """

    FEATURES = CHAT
    NAMES = (*_Converter.NAMES, "decoder_span_ids")


class PromptCompletionFeatureConverter(EncDecFeatureConverter):
    """Converts prompts and completions for an encoder-decoder model of t5x.

        lengths = {"inputs": 2048, "targets": 2048}
        seqio.get_dataset("chat_prompt_completion", lengths, PromptCompletionFeatureConverter(), num_epochs=None, seed=0)

    Rows have the features of `EncDecFeatureConverter`, and `decoder_span_ids`: the `span_id` of the targets that are trained on.
    Examples without that, such as those of denoisers, train on all targets, in the loss group `example_features.TEXT`.
    """

    NAMES = (*EncDecFeatureConverter.NAMES, "decoder_span_ids")


class _WithTaskIds(_Converter):
    """A converter with `decoder_task_ids`, too: of each target the index of its task, int32, -1 where no loss is.

    Those of tasks that are not of this package, on which a run may be evaluated, are -1 everywhere.
    """

    def __init__(self, tasks: Sequence[str], **settings: Any):
        """
        Args:
            tasks: the names of the tasks that have an index.
            settings: the arguments of the converter without this feature.
        """
        self.tasks = tuple(tasks)
        super().__init__(**settings)


class TaskIdFeatureConverter(_WithTaskIds, EncDecFeatureConverter):
    """`EncDecFeatureConverter` with `decoder_task_ids`, [targets] int32; see `_WithTaskIds`."""


class PrefixLMTaskIdFeatureConverter(_WithTaskIds, PrefixLMFeatureConverter):
    """`PrefixLMFeatureConverter` with `decoder_task_ids`, [inputs + targets] int32; see `_WithTaskIds`."""


class _OfTransformers(seqio.FeatureConverter):
    """See `seqio_converter`."""

    def __init__(self, converter: HuggingFaceFeatureConverter | HuggingFaceChatConverter, vocabulary: seqio.Vocabulary | None):
        self.converter, self.vocabulary = converter, vocabulary  # before SeqIO asks for the features
        super().__init__(pack=converter.pack, apply_length_check=False)

    @property
    def TASK_FEATURES(self) -> Mapping[str, seqio.FeatureConverter.FeatureSpec]:  # noqa: N802
        """What SeqIO asks a converter for, as for the next two."""
        return specs_of(self.converter.row_format.features)

    @property
    def MODEL_FEATURES(self) -> Mapping[str, seqio.FeatureConverter.FeatureSpec]:  # noqa: N802
        return dict.fromkeys(self.converter.row_format.names, seqio.FeatureConverter.FeatureSpec(tf.int32))

    @property
    def PACKING_FEATURE_DTYPES(self) -> Mapping[str, tf.DType]:  # noqa: N802
        return {}

    def get_model_feature_lengths(self, task_feature_lengths: Mapping[str, int]) -> Mapping[str, int]:
        """The length of each model input with padding "max_length". With "longest" only rounding can exceed it."""
        return self.converter.row_format.row_lengths(task_feature_lengths)

    def __call__(self, ds: tf.data.Dataset, task_feature_lengths: Mapping[str, int]) -> tf.data.Dataset:
        """Rows, [length] int32 for each model input, or batches of them with padding "longest".

        Raises a ValueError where the lengths are not those of features of tokens; the dataset lacks a feature; or the vocabulary
        is missing, or not the tasks'.
        """
        return self._convert_features(ds, task_feature_lengths)

    def _convert_features(self, ds: tf.data.Dataset, task_feature_lengths: Mapping[str, int]) -> tf.data.Dataset:
        row_format, lengths, facts = self.converter.row_format, task_feature_lengths, facts_of(ds)
        if facts is None and self.vocabulary is None:
            raise ValueError(
                "vocabulary must be that of the examples where these are of other tasks, or were changed after get_dataset, got"
                " None. Pass it to seqio_converter, which subtracts what SeqIO's ids are higher than the tokenizer's."
            )
        shift = facts.id_shift if facts else 0
        if row_format.task_id:
            raise ValueError(
                "task_id must be False for a dataset of SeqIO's, got True. Read the mixture with ul2_tasks.UL2IterableDataset."
            )
        if self.vocabulary is not None:
            if shift and not id_shift(self.vocabulary):
                raise ValueError(
                    f"vocabulary must have the tasks' ids, which are {shift} higher than their tokenizer's, got {self.vocabulary},"
                    " whose ids are not. Leave vocabulary out."
                )
            shift = id_shift(self.vocabulary)
        row_format.check_start(not shift and (self.vocabulary is None or pads_with_0(as_vocabulary(self.vocabulary))))
        self.converter.check_batch_size()

        def convert(rows: Mapping[str, np.ndarray], sizes: Mapping[str, np.ndarray] | None, first: int) -> dict[str, np.ndarray]:
            return row_format.arrays(rows, sizes, lengths, first=first, shift=shift)

        is_fixed = row_format.padding == "max_length" and lengths.keys() == {*token_features(row_format.features)}
        widths = row_format.row_lengths(lengths) if is_fixed else None
        size = self.converter.batch_size
        return rows_of(ds, lengths, row_format.features, convert, widths, pack=self.pack, batch_size=size)


def seqio_converter(
    converter: HuggingFaceFeatureConverter | HuggingFaceChatConverter, vocabulary: seqio.Vocabulary | None = None
) -> seqio.FeatureConverter:
    """Makes a feature converter for `seqio.get_dataset` of one for models of `transformers`.

        converter = seqio_converter(HuggingFaceFeatureConverter("longest", 32, model=model))
        dataset = seqio.get_dataset("ul2_mix", {"inputs": 512, "targets": 512}, converter, num_epochs=None)
        for batch in dataset.as_numpy_iterator():
            loss = model(**{key: torch.tensor(value).long() for key, value in batch.items()}).loss

    It converts any task or mixture with the features that the converter takes. SeqIO batches rows of equal lengths only, so with
    padding "longest" pass `batch_size` to the converter and not to `seqio.get_dataset`. SeqIO silently trims the examples of
    tasks of others before it converts them, unless `seqio.get_dataset` gets `trim_output_features=False`.

    Args:
        converter: makes the rows.
        vocabulary: of the tasks, which says how much higher SeqIO's ids are than the tokenizer's. Leave it out for tasks of this
            package and mixtures of them, which tell.

    Raises:
        ValueError: `converter` is another; or, when it converts, `vocabulary` is missing, or its ids are not the tasks'.
    """
    if not isinstance(converter, HuggingFaceFeatureConverter | HuggingFaceChatConverter):
        raise ValueError(
            f"converter must be a HuggingFaceFeatureConverter or HuggingFaceChatConverter, got {short(converter)}. Pass a"
            " converter of SeqIO to seqio.get_dataset itself."
        )
    return _OfTransformers(converter, vocabulary)
