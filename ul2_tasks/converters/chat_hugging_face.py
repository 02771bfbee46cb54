"""Turns conversations into the inputs of decoder-only models of Hugging Face: `HuggingFaceChatConverter`.

tokens             5    6 7 8 9       4    2 3       two conversations, of which 7 8 and 2 are trained on
loss_mask          0    0 1 1 0       0    1 0
span_id            0    0 1 2 0       0    2 0

packed, in a row of 10                                   padded, with input_ids
packed_input_ids   5    6 7 8    9    4    2    3    0 0     5    6 7 8    9 0 ..
labels          -100 -100 7 8 -100 -100    2 -100 -100 ..  -100 -100 7 8 -100 ..
span_id            0    0 1 2    0    0    2    0    0 0     0    0 1 2    0 0 ..
position_ids       0    1 2 3    4    0    1    2    0 1     0    1 2 3    4 5 ..
attention_mask  (none)                                       1    1 1 1    1 0 ..

Each value is at the position of its token; a model shifts the labels itself. It does not predict the first token of a conversation,
which has no label. The ids are the tokenizer's own.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ul2_tasks.cached import cached_property
from ul2_tasks.converters.of_model import decoder_settings
from ul2_tasks.converters.row_format import OF_PACKED, check_embedded
from ul2_tasks.example_features import IGNORED, LOSS_MASK, NO_TASK, PACKED_IDS, SPAN_ID, TASK_ID
from ul2_tasks.imported import subclass_of_seqio
from ul2_tasks.scalars import as_python, check_flag, is_integer

if TYPE_CHECKING:
    import seqio
    import tensorflow as tf
    import torch

    from ul2_tasks.converters.of_model import Model


@subclass_of_seqio("FeatureConverter", "seqio.feature_converters")
class HuggingFaceChatConverter:
    """Converts conversations for decoder-only models of `transformers`.

        converter = HuggingFaceChatConverter(model=model)
        dataset = UL2IterableDataset("mine_chat", {"tokens": 4096}, feature_converter=converter)
        arguments = TrainingArguments("run", remove_unused_columns=False)
        LossGroupTrainer(accept_packed_sequences(model), arguments, train_dataset=dataset).train()

    An element is a row of `task_feature_lengths["tokens"]` tokens, [length] int32 for each of:

    * `packed_input_ids`, without `pack` `input_ids`: the tokenizer's own ids.
    * `labels`: the same ids where they are trained on, -100 elsewhere.
    * `span_id`: the loss group of each label, 1 for reasoning, 2 for the answer, 3 and more for others; 0 elsewhere. For
      `LossGroupTrainer`.
    * `position_ids`: they begin at 0 with each conversation of a packed row.
    * `attention_mask`, not with `pack`: 1 for tokens, 0 for padding.
    * `task_id`, where it is asked for: the task of each label, -1 elsewhere.

    **Packed rows** are for a model that `accept_packed_sequences` returns, which lets each conversation attend to itself alone. Any
    other fails, as it gets no `input_ids`. The padding of a row is a last conversation without labels.

    A conversation that is longer than a row raises an error.

    **Ids.** Tasks of this package tell the converter whether their ids are offset by one for SeqIO. For other tasks whose
    vocabulary has a `special_ids.id_shift` of 1, pass `vocabulary`.
    """

    def __init__(
        self,
        pack: bool = True,
        pad_token_id: int | None = None,
        vocabulary: seqio.Vocabulary | None = None,
        *,
        embedding_rows: int | None = None,
        task_id: bool = False,
        model: Model | None = None,
    ):
        """
        Args:
            pack: whether several conversations share a row.
            pad_token_id: the id that pads `input_ids`; by default the model's, without one 0.
            vocabulary: of the tasks, for tasks of other packages whose ids are offset by one.
            embedding_rows: the number of rows of the model's embedding, below which all ids must be; by default the model's,
                without one there is no check.
            task_id: whether there is `task_id`, too, an index into the `tasks` of `UL2IterableDataset`. The conversations must have
                random access.
            model: a decoder-only model of `transformers`, or its configuration, for what is left out of the arguments above. It is
                not kept.

        Raises:
            ValueError: an argument has a value that is not supported, or neither it nor the model has one; or, when it converts,
                the tasks' ids are offset and those of `vocabulary` are not, or an id has no row in the model's embedding.
        """
        pad, rows = decoder_settings(model, pad_token_id=pad_token_id, embedding_rows=embedding_rows)
        if not is_integer(pad, at_least=0):
            raise ValueError(f"pad_token_id must be an id, 0 or more, got {pad!r}.")
        if rows is not None and not is_integer(rows, at_least=pad + 1):
            raise ValueError(
                f"embedding_rows must be an integer above pad_token_id, {pad}, got {rows!r}. Pass"
                " model.get_input_embeddings().num_embeddings, or leave it out."
            )
        self.pack, self.pad_token_id, self.vocabulary = check_flag(pack, "pack"), int(pad), vocabulary
        self.embedding_rows, self.task_id = as_python(rows), check_flag(task_id, "task_id")

    def __call__(self, ds: tf.data.Dataset, task_feature_lengths: Mapping[str, int]) -> tf.data.Dataset:
        """
        Args:
            ds: conversations, with `tokens` int32, and for each token `loss_mask` and `span_id` uint8.
            task_feature_lengths: {"tokens": int}, the length of a row.

        Returns:
            A dataset of rows.

        Raises:
            ValueError: there are other lengths; the dataset lacks a feature; or the vocabulary is not the tasks', see above.
        """
        return self._of_seqio(ds, task_feature_lengths)

    def get_model_feature_lengths(self, task_feature_lengths: Mapping[str, int]) -> Mapping[str, int]:
        """The length of each model input."""
        return self._of_seqio.get_model_feature_lengths(task_feature_lengths)

    def collator(self, examples: Sequence[Mapping[str, Any]]) -> Callable[[Sequence[Mapping[str, Any]]], dict[str, torch.Tensor]]:
        """Returns a collate function for a DataLoader over `ul2_tasks.examples(chat, ..)`, with a sampler of your own.

        See `HuggingFaceFeatureConverter.collator`. The rows have the length of `examples`.
        """
        return importlib.import_module("ul2_tasks.pytorch.collate").ExamplesCollator.of(self, examples)  # which needs torch

    @property
    def _names(self) -> tuple[str, ...]:
        """The names of the model inputs, without the task."""
        return (
            PACKED_IDS if self.pack else "input_ids",
            "labels",
            SPAN_ID,
            "position_ids",
            *(() if self.pack else ("attention_mask",)),
        )

    def _written(self, rows: Mapping[str, np.ndarray], is_token: np.ndarray) -> dict[str, np.ndarray]:
        ids, places = rows["tokens"], np.arange(is_token.shape[1], dtype=np.int32)
        position_ids = np.broadcast_to(places, is_token.shape)
        if self.pack:
            padding_starts = np.count_nonzero(is_token, axis=1).astype(np.int32)
            position_ids = np.where(is_token, rows["tokens_positions"], places - padding_starts[:, None])
        is_trained = is_token & (rows[LOSS_MASK] == 1) & (position_ids > 0)
        inputs = {
            self._names[0]: np.where(is_token, ids, np.int32(self.pad_token_id)),
            "labels": np.where(is_trained, ids, np.int32(IGNORED)),
            SPAN_ID: np.where(is_trained, rows[SPAN_ID], 0).astype(np.int32),
            "position_ids": np.ascontiguousarray(position_ids),
            "attention_mask": is_token.astype(np.int32),
        }
        check_embedded(
            {"tokens": inputs[self._names[0]]}, self.embedding_rows, OF_PACKED if self.pack else "the {key} of a conversation"
        )
        tasks = {TASK_ID: np.where(is_trained, rows[TASK_ID], np.int32(NO_TASK))} if self.task_id else {}
        return {name: inputs[name] for name in self._names} | tasks

    @cached_property
    def _of_seqio(self) -> seqio.FeatureConverter:
        from ul2_tasks.converters.chat_hugging_face_graph import GraphChatConverter

        return GraphChatConverter(self.pack, self.vocabulary, self._names, self._written, self.task_id)

    def __getattr__(self, name: str) -> Any:
        """What SeqIO asks a converter for of its own."""
        if name in ("TASK_FEATURES", "MODEL_FEATURES", "PACKING_FEATURE_DTYPES"):
            return getattr(self._of_seqio, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"HuggingFaceChatConverter(pack={self.pack}, pad_token_id={self.pad_token_id}, vocabulary={self.vocabulary!r})"


def chat_inputs(
    converter: HuggingFaceChatConverter, rows: Mapping[str, np.ndarray], sizes: Mapping[str, np.ndarray], lengths: Mapping[str, int]
) -> dict[str, np.ndarray]:
    """The model inputs of rows of `random_access.sequence.read_rows`, [rows, length] int32 each, without TensorFlow.

    `sizes["tokens"]`, [rows] int64, are how many tokens each row has, where it has one conversation; packed rows say it themselves.
    """
    if converter.pack:
        return converter._written(rows, rows["tokens_segment_ids"] > 0)
    length = lengths["tokens"]
    wide = {key: np.pad(values, [(0, 0), (0, length - values.shape[1])]) for key, values in rows.items()}
    return converter._written(wide, np.arange(length) < sizes["tokens"][:, None])
