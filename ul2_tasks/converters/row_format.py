"""How examples become rows of model inputs of Hugging Face's models."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from ul2_tasks.compiled import compiled
from ul2_tasks.example_features import EXAMPLE, IGNORED, LOSS_MASK, NO_TASK, PACKED_IDS, SPAN_ID, TASK_ID
from ul2_tasks.scalars import as_python, is_integer

BESIDE_LABELS = {SPAN_ID: 0, TASK_ID: NO_TASK}  # what may be said of each label, and where that is -100
PADDINGS = ("longest", "max_length")
# What is said of an example with an id that the model's embedding has no row for, and which example that is.
NO_ROW = (
    "{} hold the id {}, but embedding_rows is {}. Call"
    " model.resize_token_embeddings(ul2_tasks.embedding_rows(vocabulary)) before training, with the task's vocabulary. See"
    " docs/help/troubleshooting.md#index-out-of-range-in-the-embedding."
)
TASK_ID_OF_STREAM = (
    "task_id must be False for a dataset of SeqIO's, got True. Read the mixture by index: pass ul2_tasks.examples(mixture, ..) to"
    " UL2IterableDataset."
)
OF_DATASET = "example {number} of the dataset, counted from 0: its {key}"
OF_PACKED = "the {key} of a packed sequence"


def check_embedded(rows: Mapping[str, np.ndarray], embedding_rows: int | None, where: str, first: int = 0) -> None:
    """Raises a ValueError where one of the ids, [n, tokens] of each feature, is beyond the rows of a model's embedding.

    `where` names what holds it, by its number, from `first` on, and its feature.
    """
    for key, ids in rows.items() if embedding_rows is not None else ():
        largest = ids.max(axis=1, initial=0)
        if (largest >= embedding_rows).any():
            row = int(largest.argmax())
            raise ValueError(NO_ROW.format(where.format(number=first + row, key=key), largest[row], embedding_rows))


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
        pack: whether a row has several examples, see `packed_inputs`.
        task_id: whether labels have the task of their example beside them. It changes no other row.
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
        of_decoder = tuple(f"decoder_{name}" for name in ("input_ids", *of_encoder))
        if self.decoder_only:
            of_decoder = ("prefix_length",) if self.pack else ()
        beside = *((SPAN_ID,) if self.span_id else ()), *((TASK_ID,) if self.task_id else ())
        return ids, *of_encoder, *of_decoder, "labels", *beside

    def row_lengths(self, lengths: Mapping[str, int]) -> dict[str, int]:
        """The length of each model input with padding "max_length", in tokens, for these lengths of inputs and targets."""
        if self.decoder_only:
            return dict.fromkeys(self.names, lengths["inputs"] + lengths["targets"])
        of_inputs = ("input_ids", PACKED_IDS, "attention_mask", "position_ids", "segment_ids")
        return {name: lengths["inputs" if name in of_inputs else "targets"] for name in self.names}


def padded_inputs(
    rows: Mapping[str, np.ndarray],
    sizes: Mapping[str, np.ndarray],
    lengths: Mapping[str, int],
    row_format: RowFormat,
    marks: Mapping[str, np.ndarray] = MappingProxyType({}),
    *,
    dtype: type = np.int64,
) -> dict[str, np.ndarray]:
    """The model inputs of a batch. Nothing is cut: with padding "max_length" no example may be longer than `lengths`.

    `rows` are [B, width] integers of inputs and of targets, in the tokenizer's own ids, of which `sizes`, [B] integers, are used.
    `lengths` are in tokens, and only for padding "max_length". `marks` are of the targets, [B, width] uint8: "loss_mask", 1 for
    those that are trained on, without which all are; and "span_id" and "task_id", [B, width] integers, where the model inputs are
    to have them.

    The result is [B, length] of `dtype` each. For an encoder-decoder model, as T5's in `transformers` (arXiv 1910.10683):
        input_ids: the inputs, padded with the pad id.
        attention_mask: 1 for inputs, 0 for padding.
        labels: the targets, -100 where they are not trained on, and in the padding.
        decoder_input_ids: the targets, padded with the pad id and shifted right by one place, after the start id. This is
            what `T5ForConditionalGeneration.prepare_decoder_input_ids_from_labels` makes of the labels, if all are trained on.
        decoder_attention_mask: 1 for targets, 0 for padding.
    For a decoder-only model, which shifts the labels itself:
        input_ids: the inputs and then the targets, padded with the pad id.
        attention_mask: 1 for inputs and targets, 0 for padding.
        labels: the targets that are trained on, at their positions, -100 elsewhere.
    For both, where it is asked for:
        span_id: of each label, 0 where that is -100.
        task_id: of each label, -1 where that is -100.

    >>> rows, sizes = {"inputs": np.array([[5, 6, 1]]), "targets": np.array([[7, 1]])}, {"inputs": [3], "targets": [2]}
    >>> of_t5 = RowFormat(
    ...     padding="longest", pad_to_multiple_of=4, pad_token_id=0, decoder_start_token_id=0, decoder_only=False
    ... )
    >>> for name, values in padded_inputs(rows, sizes, {}, of_t5).items():
    ...     print(name, values.tolist())
    input_ids [[5, 6, 1, 0]]
    attention_mask [[1, 1, 1, 0]]
    decoder_input_ids [[0, 7, 1, 0]]
    decoder_attention_mask [[1, 1, 0, 0]]
    labels [[7, 1, -100, -100]]
    """
    (inputs, of_inputs), (targets, of_targets) = ((rows[key], np.asarray(sizes[key])) for key in EXAMPLE)
    pad, is_one_row, nowhere = row_format.pad_token_id, row_format.decoder_only, np.zeros_like(of_inputs)
    first = of_inputs if is_one_row else nowhere  # where the targets begin in the labels
    of_labels = first + of_targets
    of_ids = of_labels if is_one_row else of_inputs

    def filled(name: str, of_each: np.ndarray, padding: int, *parts: tuple[np.ndarray, np.ndarray, np.ndarray]) -> np.ndarray:
        multiple, is_fixed = row_format.pad_to_multiple_of or 1, row_format.padding == "max_length"
        width = row_format.row_lengths(lengths)[name] if is_fixed else -(-int(of_each.max()) // multiple) * multiple
        assert of_each.max() <= width, "examples are within their lengths, and `_put` checks no bounds"
        written: np.ndarray = np.full([len(of_each), width], padding, dtype)
        for values, starts, counts in parts:
            _put(written, values, starts, counts)
        return written

    def mask(of_each: np.ndarray, like: np.ndarray) -> np.ndarray:
        return (np.arange(like.shape[1]) < of_each[:, None]).astype(dtype)

    def of_trained(values: np.ndarray, nothing: int) -> np.ndarray:
        if LOSS_MASK in marks:
            values = np.where(marks[LOSS_MASK] == 1, values, np.asarray(nothing, dtype))
        return filled("labels", of_labels, nothing, (values, first, of_targets))

    of_both = [(inputs, nowhere, of_inputs), (targets, first, of_targets)]
    input_ids = filled("input_ids", of_ids, pad, *of_both[: 1 + is_one_row])
    batch = {"input_ids": input_ids, "attention_mask": mask(of_ids, input_ids)}
    if not is_one_row:
        read = filled("labels", of_labels, pad, of_both[1])
        batch["decoder_input_ids"] = np.insert(read[:, :-1], 0, row_format.decoder_start_token_id, axis=1)
        batch["decoder_attention_mask"] = mask(of_targets, read)
    batch["labels"] = of_trained(targets, IGNORED)
    beside = {name: nothing for name, nothing in BESIDE_LABELS.items() if name in row_format.names}
    return batch | {name: of_trained(marks[name], nothing) for name, nothing in beside.items()}


@compiled
def _put(rows, values, starts, counts):
    """Writes the first `counts`, [B], of `values`, [B, width], into `rows`, [B, length], from the place `starts`, [B], on."""
    for row in range(len(rows)):
        for place in range(counts[row]):
            rows[row, starts[row] + place] = values[row, place]


def packed_inputs(rows: Mapping[str, np.ndarray], row_format: RowFormat, *, dtype: type = np.int64) -> dict[str, np.ndarray]:
    """The model inputs of packed rows.

    `rows` are what `random_access.batches.make_batch` gives with `pack`, in the tokenizer's own ids.

    The result is [B, length] of `dtype` each. For an encoder-decoder model, [B, inputs] without and [B, targets] with "decoder_":
        packed_input_ids, decoder_input_ids: as of each example alone, see `padded_inputs`, so the start id is before each one's
            targets. There are no input_ids, so that a model whose examples would attend to each other fails.
        position_ids, decoder_position_ids: which token of the example, from 0; 0 for padding.
        segment_ids, decoder_segment_ids: which example of the row, from 1; 0 for padding.
        labels: the targets, -100 where they are not trained on, and in the padding.
    For a decoder-only model, [B, inputs + targets], the inputs and the targets of each example are one after the other:
        packed_input_ids, segment_ids, labels: as above.
        position_ids: which token of the example, from 0; for padding as if it were one more example.
        prefix_length: of each token, how many tokens the inputs of its example have; 0 for padding.

    >>> inputs = {"inputs": np.array([[5, 6, 1, 7, 1, 0]]), "inputs_segment_ids": np.array([[1, 1, 1, 2, 2, 0]])}
    >>> targets = {"targets": np.array([[8, 1, 9, 1]]), "targets_segment_ids": np.array([[1, 1, 2, 2]])}
    >>> places = {"inputs_positions": np.array([[0, 1, 2, 0, 1, 0]]), "targets_positions": np.array([[0, 1, 0, 1]])}
    >>> format = {"padding": "max_length", "pad_to_multiple_of": 8, "pad_token_id": 0, "decoder_start_token_id": 3, "pack": True}
    >>> for name, values in packed_inputs(inputs | targets | places, RowFormat(**format, decoder_only=False)).items():
    ...     print(name, values.tolist())
    packed_input_ids [[5, 6, 1, 7, 1, 0]]
    position_ids [[0, 1, 2, 0, 1, 0]]
    segment_ids [[1, 1, 1, 2, 2, 0]]
    decoder_input_ids [[3, 8, 3, 9]]
    decoder_position_ids [[0, 1, 0, 1]]
    decoder_segment_ids [[1, 1, 2, 2]]
    labels [[8, 1, 9, 1]]
    >>> for name, values in packed_inputs(inputs | targets | places, RowFormat(**format, decoder_only=True)).items():
    ...     print(name, values.tolist())
    packed_input_ids [[5, 6, 1, 8, 1, 7, 1, 9, 1, 0]]
    position_ids [[0, 1, 2, 3, 4, 0, 1, 2, 3, 0]]
    segment_ids [[1, 1, 1, 1, 1, 2, 2, 2, 2, 0]]
    prefix_length [[3, 3, 3, 3, 3, 2, 2, 2, 2, 0]]
    labels [[-100, -100, -100, 8, 1, -100, -100, 9, 1, -100]]
    """
    segment_ids, is_token = {}, {}
    for key in EXAMPLE:
        segment_ids[key] = rows[f"{key}_segment_ids"]
        is_token[key] = segment_ids[key] > 0
    pad, start = row_format.pad_token_id, row_format.decoder_start_token_id
    is_trained = is_token["targets"] & (rows[LOSS_MASK] == 1 if LOSS_MASK in rows else True)
    ids = {key: np.where(is_token[key], rows[key], pad) for key in EXAMPLE}
    check_embedded(ids, row_format.embedding_rows, OF_PACKED)
    labels = np.where(is_trained, rows["targets"], IGNORED)
    beside = {
        name: np.where(is_trained, rows[name], nothing) for name, nothing in BESIDE_LABELS.items() if name in row_format.names
    }
    if row_format.decoder_only:
        made = _joined(ids, segment_ids, pad, labels, beside)
    else:
        before = np.where(rows["targets_positions"] == 0, start, np.roll(ids["targets"], 1, axis=1))
        made = {
            PACKED_IDS: ids["inputs"],
            "position_ids": rows["inputs_positions"],
            "segment_ids": segment_ids["inputs"],
            "decoder_input_ids": np.where(is_token["targets"], before, pad),
            "decoder_position_ids": rows["targets_positions"],
            "decoder_segment_ids": segment_ids["targets"],
            "labels": labels,
        } | beside
    return {name: made[name].astype(dtype) for name in row_format.names}


def _joined(
    ids: Mapping[str, np.ndarray],
    segment_ids: Mapping[str, np.ndarray],
    pad: int,
    labels: np.ndarray,
    beside: Mapping[str, np.ndarray],
) -> dict[str, np.ndarray]:
    """The model inputs of a decoder-only model, see `packed_inputs`; `labels`, and what is `beside` them, are of the targets."""
    shape = len(labels), sum(each.shape[1] for each in ids.values())
    places = {key: np.full(each.shape, -1, np.int64) for key, each in ids.items()}
    made = {name: np.zeros(shape, np.int64) for name in ("segment_ids", "position_ids", "prefix_length")}
    _place(*segment_ids.values(), *places.values(), *made.values())

    def put(padding: int, of: Mapping[str, np.ndarray]) -> np.ndarray:
        written = np.full(shape, padding, np.int64)
        for key, values in of.items():
            row, place = np.nonzero(places[key] >= 0)
            written[row, places[key][row, place]] = values[row, place]
        return written

    made |= {PACKED_IDS: put(pad, ids), "labels": put(IGNORED, {"targets": labels})}
    return made | {name: put(BESIDE_LABELS[name], {"targets": values}) for name, values in beside.items()}


@compiled
def _place(inputs, targets, of_inputs, of_targets, segment_ids, positions, prefix_length):
    """Writes where each token goes in its row, `of_inputs` and `of_targets`, and what is said of each place.

    `inputs` and `targets` are segment ids, from 1 without a gap; each segment has inputs and targets.
    """
    for row in range(len(inputs)):
        end, read, said, segment = 0, 0, 0, 1
        while read < inputs.shape[1] and inputs[row, read] == segment:
            start = end
            while read < inputs.shape[1] and inputs[row, read] == segment:
                of_inputs[row, read] = end
                read += 1
                end += 1
            prefix = end - start
            while said < targets.shape[1] and targets[row, said] == segment:
                of_targets[row, said] = end
                said += 1
                end += 1
            for place in range(start, end):
                segment_ids[row, place] = segment
                positions[row, place] = place - start
                prefix_length[row, place] = prefix
            segment += 1
        for place in range(end, positions.shape[1]):
            positions[row, place] = place - end
