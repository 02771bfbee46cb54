"""Rows for the models of `transformers`: how these are made, and the converters that make them.

inputs            5 6 1             targets  7 8 9 1               here each row is padded to a multiple of 4

an encoder-decoder model's          a decoder-only model's
input_ids              5 6 1 0      input_ids              5    6    1 7 8 9 1 0
attention_mask         1 1 1 0      attention_mask         1    1    1 1 1 1 1 0
decoder_input_ids      0 7 8 9      labels              -100 -100 -100 7 8 9 1 -100
decoder_attention_mask 1 1 1 1
labels                 7 8 9 1

Packed rows have `packed_input_ids` instead of `input_ids`, so that a model whose examples would attend to each other fails; and
`segment_ids` and `position_ids` instead of masks, and the same of the decoder. Those of a decoder-only model have `prefix_length`:
how many tokens the inputs of each token's example have. See `arrays.TABLE`.

A conversation, of which 7 and 8 are trained on, packed before another one, and padded:

packed_input_ids   5    6 7 8    9    4    2    3    0 0     input_ids      5    6 7 8    9 0 ..
labels          -100 -100 7 8 -100 -100    2 -100 -100 ..    labels      -100 -100 7 8 -100 ..
span_id            0    0 1 2    0    0    2    0    0 0     span_id        0    0 1 2    0 0 ..
position_ids       0    1 2 3    4    0    1    2    0 1     position_ids   0    1 2 3    4 5 ..
                                                             attention_mask 1    1 1 1    1 0 ..

Labels are at the positions of their ids, as a decoder-only model shifts them itself; -100 where nothing is trained on. The ids are
the tokenizer's own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ul2_tasks.example_features import (
    CHAT,
    EXAMPLE,
    LOSS_WEIGHT,
    NO_TASK,
    PACKED_IDS,
    PROMPT_COMPLETION,
    SPAN_ID,
    TASK_ID,
    Feature,
)
from ul2_tasks.models.arrays import model_arrays
from ul2_tasks.models.of_model import decoder_settings, settings_of
from ul2_tasks.scalars import as_python, is_integer

if TYPE_CHECKING:
    from ul2_tasks.models.of_model import Model

BESIDE_LABELS = {SPAN_ID: 0, TASK_ID: NO_TASK, LOSS_WEIGHT: 0}  # what may be said of each label, and where that is -100
PADDINGS = ("longest", "max_length")
# What is said of an example with an id that the model's embedding has no row for, and which example that is.
NO_ROW = (
    "{} hold the id {}, but embedding_rows is {}. Call"
    " model.resize_token_embeddings(ul2_tasks.embedding_rows(vocabulary)) before training, with the task's vocabulary. See"
    " docs/help/troubleshooting.md#index-out-of-range-in-the-embedding."
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowFormat:
    """How examples become rows of model inputs.

    Attributes:
        padding: "longest", to the longest of the batch, rounded up to a multiple; "max_length", to the lengths that are given.
        pad_to_multiple_of: that multiple, in tokens, at least 1; None is 1.
        pad_token_id: the id that pads rows of ids; the masks are 0 there.
        decoder_start_token_id: the id that the decoder reads before the first target.
        decoder_only: whether an example is one row, `[inputs; targets]`, instead of one for the encoder and one for the decoder.
        embedding_rows: how many ids the model has an embedding of; None where that is not known. It changes no row.
        span_id: whether labels have spans beside them.
        pack: whether a row has several examples.
        task_id: whether labels have the task of their example beside them. It changes no other row.
        chat: whether an example is the tokens of a conversation.
        loss_weight: whether labels have their weights beside them. It changes no other row.
        names_start: whether the user or a model names the decoder's start.
    """

    padding: str
    pad_to_multiple_of: int | None
    pad_token_id: int
    decoder_start_token_id: int
    decoder_only: bool
    span_id: bool = False
    pack: bool = False
    # States of datasets hold the repr; these change no row that another one has.
    embedding_rows: int | None = dataclasses.field(default=None, repr=False)
    task_id: bool = dataclasses.field(default=False, repr=False)
    chat: bool = False
    loss_weight: bool = dataclasses.field(default=False, repr=False)
    names_start: bool = dataclasses.field(default=True, repr=False, compare=False)

    def __post_init__(self):
        if self.pad_to_multiple_of is None:
            object.__setattr__(self, "pad_to_multiple_of", 1)  # so that states call both the same
        for key in ("pad_to_multiple_of", "pad_token_id", "decoder_start_token_id", "embedding_rows"):
            object.__setattr__(self, key, as_python(getattr(self, key)))  # for the same reason, of NumPy's integers
        for key, expected, valid in (
            ("padding", f"one of {PADDINGS}", self.padding in PADDINGS),
            ("pad_to_multiple_of", "an integer of at least 1", is_integer(self.pad_to_multiple_of, at_least=1)),
            ("pad_token_id", "an id, 0 or more", is_integer(self.pad_token_id, at_least=0)),
            ("decoder_start_token_id", "an id, 0 or more", is_integer(self.decoder_start_token_id, at_least=0)),
            ("decoder_only", "True or False", isinstance(self.decoder_only, bool)),
            (
                "embedding_rows",
                "how many rows the model's embedding has, model.get_input_embeddings().num_embeddings, or None",
                self.embedding_rows is None or is_integer(self.embedding_rows, at_least=1),
            ),
            ("span_id", "True or False", isinstance(self.span_id, bool)),
            ("task_id", "True or False", isinstance(self.task_id, bool)),
            ("loss_weight", "True or False", isinstance(self.loss_weight, bool)),
            ("pack", "True or False", isinstance(self.pack, bool)),
            ("padding", "'max_length' with pack=True, where each row has the lengths", not self.pack or self.padding != "longest"),
        ):
            if not valid:
                raise ValueError(f"{key} must be {expected}, got {getattr(self, key)!r:.100}.")
        for key in ("pad_token_id", *(() if self.decoder_only else ("decoder_start_token_id",))):
            if self.embedding_rows is not None and getattr(self, key) >= self.embedding_rows:
                raise ValueError(f"{key} must be an id below embedding_rows, {self.embedding_rows}, got {getattr(self, key)}.")

    def check_start(self, pads_with_0: bool) -> None:
        """Raises a ValueError where nobody names the decoder's start, for a tokenizer whose id 0 is not its padding."""
        if not (self.names_start or self.decoder_only or pads_with_0):
            raise ValueError(
                "decoder_start_token_id must be given for a tokenizer whose id 0 is not its padding, got None. Pass model=, which"
                " names it, or decoder_start_token_id=, such as tokenizer.bos_token_id or tokenizer.pad_token_id."
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the model inputs."""
        ids, of_encoder = (PACKED_IDS, ("position_ids", "segment_ids")) if self.pack else ("input_ids", ("attention_mask",))
        tasks = (*((TASK_ID,) if self.task_id else ()), *((LOSS_WEIGHT,) if self.loss_weight else ()))
        if self.chat:
            return ids, "labels", SPAN_ID, "position_ids", *(() if self.pack else ("attention_mask",)), *tasks
        of_decoder = tuple(f"decoder_{name}" for name in ("input_ids", *of_encoder))
        if self.decoder_only:
            of_decoder = ("prefix_length",) if self.pack else ()
        return ids, *of_encoder, *of_decoder, "labels", *((SPAN_ID,) if self.span_id else ()), *tasks

    @property
    def features(self) -> Mapping[str, Feature]:
        """What an example must have."""
        return CHAT if self.chat else PROMPT_COMPLETION if self.span_id else EXAMPLE

    def row_lengths(self, lengths: Mapping[str, int]) -> dict[str, int]:
        """The length of each model input with padding "max_length", in tokens, for these lengths of inputs and targets."""
        if self.decoder_only:
            return dict.fromkeys(self.names, sum(lengths[key] for key in (("tokens",) if self.chat else EXAMPLE)))
        of_inputs = ("input_ids", PACKED_IDS, "attention_mask", "position_ids", "segment_ids")
        return {name: lengths["inputs" if name in of_inputs else "targets"] for name in self.names}

    def arrays(
        self,
        rows: Mapping[str, np.ndarray],
        sizes: Mapping[str, np.ndarray] | None = None,
        lengths: Mapping[str, int] | None = None,
        *,
        first: int = 0,
        shift: int = 0,
    ) -> dict[str, np.ndarray]:
        """The model inputs of rows, [R, length] int32 each, see `arrays.model_arrays`. `first` is the number of the first row.

        Raises a ValueError where an id has no row in the model's embedding, or weights would be lost.

        >>> rows = {"inputs": np.array([[5, 6, 1]], np.int32), "targets": np.array([[7, 1]], np.int32)}
        >>> sizes = {"inputs": np.array([3]), "targets": np.array([2])}
        >>> ids = {"pad_token_id": 0, "decoder_start_token_id": 0}
        >>> of_t5 = RowFormat(padding="longest", pad_to_multiple_of=4, **ids, decoder_only=False)
        >>> for name, values in of_t5.arrays(rows, sizes).items():
        ...     print(name, values.tolist())
        input_ids [[5, 6, 1, 0]]
        attention_mask [[1, 1, 1, 0]]
        decoder_input_ids [[0, 7, 1, 0]]
        decoder_attention_mask [[1, 1, 0, 0]]
        labels [[7, 1, -100, -100]]
        """
        self._check_embedded(rows, first, shift)
        if LOSS_WEIGHT in rows and not self.loss_weight and ((rows[LOSS_WEIGHT] != 0) & (rows[LOSS_WEIGHT] != 1)).any():
            raise ValueError(
                "loss_weight must be True for targets with other weights than 0 and 1, got False. Pass loss_weight=True to the"
                " converter, and multiply the loss of each label by its weight."
            )
        return model_arrays(
            self.names,
            rows,
            sizes=sizes,
            widths=self.pad_to_multiple_of if self.padding == "longest" else lengths,
            joined=self.decoder_only and not self.chat,
            pad=self.pad_token_id,
            start=self.decoder_start_token_id,
            shift=shift,
        )

    def _check_embedded(self, rows: Mapping[str, np.ndarray], first: int, shift: int) -> None:
        if self.embedding_rows is None:
            return
        for key in rows.keys() & {"inputs", "targets", "tokens"}:
            largest = rows[key].max(axis=1, initial=0) - shift
            if (largest >= self.embedding_rows).any():
                row = int(largest.argmax())
                raise ValueError(NO_ROW.format(f"row {first + row}, counted from 0: its {key}", largest[row], self.embedding_rows))


class _Converter:
    """What both converters say of their rows. `batch_size` is None where they make no batches."""

    row_format: RowFormat
    batch_size: int | None = None

    def check_batch_size(self) -> None:
        """Raises a ValueError if rows are as long as the longest of a batch, and it is not known which are in one."""
        if self.row_format.padding == "longest" and self.batch_size is None:
            raise ValueError(
                "batch_size must be a positive integer with padding='longest', got None. Pass it to the converter and not to"
                " seqio.get_dataset, because padding is to the longest of a batch; or set padding='max_length'."
            )

    @property
    def pack(self) -> bool:
        """Whether several examples share a row."""
        return self.row_format.pack

    @property
    def task_id(self) -> bool:
        """Whether labels have the task of their example beside them."""
        return self.row_format.task_id

    def __repr__(self) -> str:
        """What decides the rows of model inputs that an example gives: how many are in a batch does not."""
        return f"{type(self).__name__}({self.row_format})"


class HuggingFaceFeatureConverter(_Converter):
    """Converts examples for encoder-decoder or decoder-only models of `transformers`.

        converter = HuggingFaceFeatureConverter("longest", 32, model=model)
        dataset = UL2IterableDataset(mixture, {"inputs": 512, "targets": 512}, feature_converter=converter)
        for batch in torch.utils.data.DataLoader(dataset, batch_size=None):
            loss = model(**batch).loss

    With padding "longest" an element of the dataset is a batch, [B, length] int32 for each model input. If the dataset ends, its
    last batch can be smaller. With "max_length" an element is an example, [length] int32.

    It takes examples with `inputs` and `targets`. Where these have a `loss_mask`, as prompt-completion pairs do, labels are -100
    where it is 0. Other features are dropped. An example that is longer than its row raises an error: nothing is truncated.
    `seqio_converter(converter)` does the same in `seqio.get_dataset`.

    **Packed rows**, with pack=True, are [length] int32 for each model input. They have `packed_input_ids` but no `input_ids`, so
    that they fail in a model, unless `accept_packed_sequences` made it attend within examples. `packed_attention_masks` makes the
    masks for others.

    **Ids** are the tokenizer's own.
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
        embedding_rows: int | None = None,
        span_id: bool = False,
        pack: bool = False,
        task_id: bool = False,
        loss_weight: bool = False,
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
            embedding_rows: the number of rows of the model's embedding, below which all ids must be; by default the model's.
                Without a model there is no check.
            span_id: whether there is `span_id`, too, the loss group of each label, which `GroupLossTrainer` takes. The examples
                must have it, as `NAME_prompt_completion` and its mixtures with text do in `UL2IterableDataset`.
            pack: whether several examples share a row; for padding "max_length" alone. Rows have `segment_ids` and `position_ids`,
                and the same of the decoder, instead of attention masks; those of a decoder-only model have `prefix_length`, too.
            task_id: whether there is `task_id`, too, the task of each label, -1 where that is -100, an index into the `tasks` of
                `UL2IterableDataset`, which alone gives it.
            loss_weight: whether there is `loss_weight`, too, float32, what the loss of each label is multiplied by. Labels of
                weight 0 are -100 in any case.
            model: a model of `transformers`, or its configuration, for what is left out of the arguments above. It is not kept.

        Raises:
            ValueError: an argument has another value, or neither it nor the model has one; or, when it converts, nobody names the
                decoder's start, and id 0 is not the tokenizer's padding.
        """
        of_model = settings_of(
            model,
            pad_token_id=pad_token_id,
            decoder_start_token_id=decoder_start_token_id,
            decoder_only=decoder_only,
            embedding_rows=embedding_rows,
        )
        more = {"span_id": span_id, "pack": pack, "task_id": task_id, "loss_weight": loss_weight}
        self.row_format = RowFormat(padding=padding, pad_to_multiple_of=pad_to_multiple_of, **of_model, **more)
        if batch_size is not None and not is_integer(batch_size, at_least=1):
            raise ValueError(f"batch_size must be a positive integer or None, got {batch_size!r}.")
        if padding == "max_length" and batch_size is not None:
            raise ValueError(
                f"batch_size must be None with padding='max_length', got {batch_size!r}. Pass it to what batches the rows."
            )
        self.batch_size = batch_size


class HuggingFaceChatConverter(_Converter):
    """Converts conversations for decoder-only models of `transformers`.

        converter = HuggingFaceChatConverter(model=model)
        dataset = UL2IterableDataset("mine_chat", {"tokens": 4096}, feature_converter=converter)
        arguments = TrainingArguments("run", remove_unused_columns=False)
        model, groups = accept_packed_sequences(model), TokenGroups.of_chat({"reasoning": 1, "answer": 2, "other": 1})
        GroupLossTrainer(model, arguments, train_dataset=dataset, groups=groups).train()

    An element is a row of `task_feature_lengths["tokens"]` tokens, [length] int32 for each of:

    * `packed_input_ids`, without `pack` `input_ids`: the tokenizer's own ids.
    * `labels`: the same ids where they are trained on, -100 elsewhere.
    * `span_id`: the loss group of each label, 1 for reasoning, 2 for the answer, 3 and more for others; 0 elsewhere. For
      `GroupLossTrainer`.
    * `position_ids`: they begin at 0 with each conversation of a packed row.
    * `attention_mask`, not with `pack`: 1 for tokens, 0 for padding.
    * `task_id`, where it is asked for: the task of each label, -1 elsewhere.

    **Packed rows** are for a model that `accept_packed_sequences` returns, which lets each conversation attend to itself alone. Any
    other fails, as it gets no `input_ids`. The padding of a row is a last conversation without labels.

    A conversation that is longer than a row raises an error.

    **Ids** are the tokenizer's own.
    """

    def __init__(
        self,
        pack: bool = True,
        pad_token_id: int | None = None,
        *,
        embedding_rows: int | None = None,
        task_id: bool = False,
        model: Model | None = None,
    ):
        """
        Args:
            pack: whether several conversations share a row.
            pad_token_id: the id that pads `input_ids`; by default the model's, without one 0.
            embedding_rows: the number of rows of the model's embedding, below which all ids must be; by default the model's,
                without one there is no check.
            task_id: whether there is `task_id`, too, an index into the `tasks` of `UL2IterableDataset`, which alone gives it.
            model: a decoder-only model of `transformers`, or its configuration, for what is left out of the arguments above. It is
                not kept.

        Raises:
            ValueError: an argument has a value that is not supported, or neither it nor the model has one; or, when it converts,
                an id has no row in the model's embedding.
        """
        pad, rows = decoder_settings(model, pad_token_id=pad_token_id, embedding_rows=embedding_rows)
        of_rows: dict[str, Any] = {"padding": "max_length", "pad_to_multiple_of": None, "decoder_start_token_id": 0}
        of_rows |= {"pad_token_id": pad, "embedding_rows": rows, "decoder_only": True, "chat": True, "span_id": True}
        self.row_format = RowFormat(**of_rows, pack=pack, task_id=task_id)
