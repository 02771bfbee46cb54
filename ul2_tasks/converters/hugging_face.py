"""Turns examples into the inputs of Hugging Face's models, a batch at a time: `HuggingFaceFeatureConverter`.

inputs            5 6 1             targets  7 8 9 1               here each row is padded to a multiple of 4

an encoder-decoder model's          a decoder-only model's
input_ids              5 6 1 0      input_ids              5    6    1 7 8 9 1 0
attention_mask         1 1 1 0      attention_mask         1    1    1 1 1 1 1 0
decoder_input_ids      0 7 8 9      labels              -100 -100 -100 7 8 9 1 -100
decoder_attention_mask 1 1 1 1
labels                 7 8 9 1

With pack=True several examples share a row, and segment ids say which place has which, see `row_format.packed_inputs`.

Where examples have a `loss_mask`, the labels of targets without a loss are -100; a decoder reads them all the same.

The ids are the tokenizer's own. If the vocabulary shifted them for SeqIO (`special_ids.id_shift`), the shift is undone.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ul2_tasks.cached import cached_property
from ul2_tasks.converters.of_model import settings_of
from ul2_tasks.converters.row_format import RowFormat
from ul2_tasks.imported import subclass_of_seqio
from ul2_tasks.scalars import is_integer

if TYPE_CHECKING:
    import seqio
    import tensorflow as tf
    import torch

    from ul2_tasks.converters.of_model import Model


@subclass_of_seqio("FeatureConverter", "seqio.feature_converters")
class HuggingFaceFeatureConverter:
    """Converts examples for encoder-decoder or decoder-only models of `transformers`.

    `row_format.padded_inputs` describes the output, and `row_format.packed_inputs` that with `pack`.

        dataset = seqio.get_dataset(
            "ul2_mix", {"inputs": 512, "targets": 512}, HuggingFaceFeatureConverter("longest", 32, model=model), num_epochs=None
        )
        for batch in dataset.as_numpy_iterator():
            loss = model(**{key: torch.tensor(value).long() for key, value in batch.items()}).loss

    With padding "longest" an element of the dataset is a batch, [B, length] int32 for each model input. SeqIO batches after the
    converter, and only rows of equal lengths, so pass batch_size here and not to `seqio.get_dataset`. If the dataset ends, its last
    batch can be smaller. With "max_length" an element is an example, [length] int32, and SeqIO batches.

    It converts any task or mixture with int32 `inputs` and `targets`. Where there is a `loss_mask` of the targets, too, as in
    `NAME_prompt_completion` of `register_chat`, labels are -100 where it is 0. Other features are dropped. An example that is
    longer than `task_feature_lengths`, or that has no inputs or no targets, raises an error with its index in the dataset
    (counted over all epochs). Nothing is truncated here. But SeqIO silently trims the examples of other tasks before it
    converts them, unless `seqio.get_dataset` gets `trim_output_features=False`.

    **Packed rows**, with pack=True, are [length] int32 for each model input. They have `packed_input_ids` but no `input_ids`, so
    that they fail in a model, unless `accept_packed_sequences` made it attend within examples. `packed_attention_masks` makes the
    masks for others.

    **Ids** are the tokenizer's own. Tasks of `register` and `with_mode`, and mixtures of them, let this converter know whether
    their ids are offset for SeqIO. For other tasks whose vocabulary has an `id_shift` of 1, pass `vocabulary`.
    """

    def __init__(
        self,
        padding: str = "max_length",
        batch_size: int | None = None,
        *,
        pad_to_multiple_of: int | None = 8,
        decoder_start_token_id: int | None = None,
        decoder_only: bool | None = None,
        pad_token_id: int | None = None,
        vocabulary: seqio.Vocabulary | None = None,
        embedding_rows: int | None = None,
        span_id: bool = False,
        pack: bool = False,
        task_id: bool = False,
        model: Model | None = None,
    ):
        """
        Args:
            padding: "max_length", to `task_feature_lengths`, or for a decoder-only model to their sum; "longest", to the longest
                of the batch, rounded up to a multiple, which can be more than `task_feature_lengths`.
            batch_size: examples in a batch; for padding "longest" alone, which needs it everywhere but in `collator`.
            pad_to_multiple_of: that multiple, in tokens; for padding "longest" alone. None is 1.
            decoder_start_token_id: the id that the decoder reads before the first target; by default the model's, or without a
                model 0, as T5's, if that is the tokenizer's padding; not for decoder-only models.
            decoder_only: whether inputs and targets make one row, with a loss on the targets only; by default as the model is, or
                without a model False.
            pad_token_id: the id that pads rows of ids; by default the model's, or without a model 0. The masks are 0 there.
            vocabulary: the tasks' vocabulary, for tasks of other kinds whose ids are offset.
            embedding_rows: the number of rows of the model's embedding, below which all ids must be; by default the model's.
                Without a model there is no check.
            span_id: whether there is `span_id`, too, the loss group of each label, which `LossGroupTrainer` needs. The examples
                must have it, as `NAME_prompt_completion` and its mixtures with text do in `UL2IterableDataset`.
            pack: whether several examples share a row; for padding "max_length" alone. Rows have `segment_ids` and `position_ids`,
                and the same of the decoder, instead of attention masks; those of a decoder-only model have `prefix_length`, too.
            task_id: whether there is `task_id`, too, the task of each label, -1 where that is -100, an index into the `tasks` of
                `UL2IterableDataset`. The examples must have random access.
            model: a model of `transformers`, or its configuration, for what is left out of the arguments above. It is not kept.

        Raises:
            ValueError: an argument has another value, or neither it nor the model has one; or, when it converts, the tasks' ids are
                offset and those of `vocabulary` are not, or nobody names the decoder's start, and id 0 is not the tokenizer's
                padding.
        """
        of_model = settings_of(
            model,
            pad_token_id=pad_token_id,
            decoder_start_token_id=decoder_start_token_id,
            decoder_only=decoder_only,
            embedding_rows=embedding_rows,
        )
        more = {"span_id": span_id, "pack": pack, "task_id": task_id}
        self.row_format = RowFormat(padding=padding, pad_to_multiple_of=pad_to_multiple_of, **of_model, **more)
        if batch_size is not None and not is_integer(batch_size, at_least=1):
            raise ValueError(f"batch_size must be a positive integer or None, got {batch_size!r}.")
        if padding == "max_length" and batch_size is not None:
            raise ValueError(
                f"batch_size must be None with padding='max_length', got {batch_size!r}. Pass it to"
                " seqio.get_dataset(batch_size=..)."
            )
        self.batch_size, self.vocabulary, self.pack, self.task_id = batch_size, vocabulary, pack, task_id

    def __call__(self, ds: tf.data.Dataset, task_feature_lengths: Mapping[str, int]) -> tf.data.Dataset:
        """See `seqio.FeatureConverter`; `task_feature_lengths` has inputs and targets alone, as marks have the targets' lengths."""
        return self._of_seqio(ds, task_feature_lengths)

    def get_model_feature_lengths(self, task_feature_lengths: Mapping[str, int]) -> Mapping[str, int]:
        """Returns the length of each model input with padding "max_length". With "longest" only rounding can exceed it."""
        return self.row_format.row_lengths(task_feature_lengths)

    def collator(self, examples: Sequence[Mapping[str, Any]]) -> Callable[[Sequence[Mapping[str, Any]]], dict[str, torch.Tensor]]:
        """Returns a collate function for a DataLoader over `ul2_tasks.examples(..)`, with a sampler of your own.

            examples = ul2_tasks.examples(mixture, {"inputs": 512, "targets": 512})
            collator = HuggingFaceFeatureConverter("longest", model=model).collator(examples)
            loader = torch.utils.data.DataLoader(examples, batch_size=8, sampler=sampler, collate_fn=collator)

        A batch has the tensors that `UL2IterableDataset` gives of the same examples. The function can be pickled, and holds no
        examples.

        Args:
            examples: what `examples` returned, also with pack=True or as another epoch.

        Raises:
            ValueError: the converter has a batch size, which the DataLoader decides; or it does not fit the examples: `pack`
                differs, they are chats or have images, or a sentinel or a mode has no row in the model's embedding.
        """
        return importlib.import_module("ul2_tasks.pytorch.collate").ExamplesCollator.of(self, examples)  # which needs torch

    @cached_property
    def _of_seqio(self) -> seqio.FeatureConverter:
        from ul2_tasks.converters.hugging_face_graph import GraphConverter

        check_batch_size(self)
        return GraphConverter(self.row_format, self.batch_size, self.vocabulary)

    def __getattr__(self, name: str) -> Any:
        """What SeqIO asks a converter for of its own."""
        if name in ("TASK_FEATURES", "MODEL_FEATURES", "PACKING_FEATURE_DTYPES"):
            return getattr(self._of_seqio, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"{self.described}, batch_size {self.batch_size}"

    @property
    def described(self) -> str:
        """What decides the rows of model inputs that an example gives, in words: how many are in a batch does not."""
        return f"HuggingFaceFeatureConverter({self.row_format}, vocabulary {self.vocabulary!r})"


def check_batch_size(converter: HuggingFaceFeatureConverter) -> None:
    """Raises a ValueError if rows are as long as the longest of a batch, and it is not known which are in one."""
    if converter.row_format.padding == "longest" and converter.batch_size is None:
        raise ValueError(
            "batch_size must be a positive integer with padding='longest', got None. Pass it to the converter and not to"
            " seqio.get_dataset, because padding is to the longest of a batch; or set padding='max_length'."
        )
