"""From rows to the arrays that a model reads: one table for t5x and for Transformers, padded and packed, with masks and without.

A row has an example, or several that are packed one after the other; segment ids say which, from 1, and 0 is padding. An encoder
reads the inputs and a decoder the targets; a decoder alone reads both, `joined`, or a conversation's tokens.

    inputs  5 6 1    targets  7 8 1          of the targets    joined
    ids         what is read, or to be said  7  8  1           5 6 1 7  8  1
    read        what a decoder reads to say  0  7  8           0 5 6 1  7  8    the ids before, from a start id on
    weights     what has a loss              1  1  1           0 0 0 1  1  1    less by a loss mask; float32 with weights of tokens
    labels      the ids of these             7  8  1        -100 . . 7  8  1
    prefix      of the inputs of its example                   3 3 3 3  3  3
    causal      what sees the whole prefix                     1 1 1 1  0  0    SeqIO counts the token that says the first target
    positions   in its example               0  1  2           0 1 2 3  4  5    0 in the padding
    places      the same                     0  1  2           0 1 2 3  4  5    packed padding is as one more example
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ul2_tasks.aligned import zeros_for_tensors
from ul2_tasks.cached import cached_property
from ul2_tasks.compiled import compiled
from ul2_tasks.example_features import IGNORED, LOSS_MASK, LOSS_WEIGHT, NO_TASK, PACKED_IDS, SPAN_ID, TASK_ID, TEXT

_FIRST, _LAST = 0, -1  # the encoder's and the decoder's sequence: of a decoder alone the same
TABLE: Mapping[str, tuple[int, str]] = {
    # t5x
    "encoder_input_tokens": (_FIRST, "ids"),
    "encoder_segment_ids": (_FIRST, "segment_ids"),
    "encoder_positions": (_FIRST, "positions"),
    "decoder_target_tokens": (_LAST, "ids"),
    "decoder_input_tokens": (_LAST, "read"),
    "decoder_loss_weights": (_LAST, "weights"),
    "decoder_causal_attention": (_LAST, "causal"),
    "decoder_span_ids": (_LAST, SPAN_ID),
    "decoder_task_ids": (_LAST, TASK_ID),
    "decoder_segment_ids": (_LAST, "segment_ids"),
    "decoder_positions": (_LAST, "positions"),
    # Transformers
    "input_ids": (_FIRST, "ids"),
    PACKED_IDS: (_FIRST, "ids"),
    "attention_mask": (_FIRST, "mask"),
    "position_ids": (_FIRST, "places"),
    "segment_ids": (_FIRST, "segment_ids"),
    "prefix_length": (_LAST, "prefix"),
    "decoder_input_ids": (_LAST, "read"),
    "decoder_attention_mask": (_LAST, "mask"),
    "decoder_position_ids": (_LAST, "places"),
    "labels": (_LAST, "labels"),
    SPAN_ID: (_LAST, SPAN_ID),
    TASK_ID: (_LAST, TASK_ID),
    LOSS_WEIGHT: (_LAST, LOSS_WEIGHT),
}
_TOKENS = ("inputs", "targets", "tokens")


def model_arrays(
    names: Sequence[str],
    rows: Mapping[str, np.ndarray],
    *,
    sizes: Mapping[str, np.ndarray] | None = None,
    widths: Mapping[str, int] | int | None = None,
    joined: bool = False,
    pad: int = 0,
    start: int = 0,
    shift: int = 0,
) -> dict[str, np.ndarray]:
    """The arrays of these names, [R, length] integers each, or float32 of weights.

    `rows` are what `random_access.batches.make_batch` gives: [R, length] of `inputs` and `targets` or of `tokens`, padded with 0,
    with `<feature>_segment_ids` and `<feature>_positions` where they are packed; and of the last of them `loss_mask`, `span_id`,
    `task_id` and `loss_weight`, where they have these. Of rows that are not packed `sizes` says how many tokens each has, [R];
    without it, all that are not 0. `widths` are the lengths of the features, by default those of the rows; or an integer, of which
    that of the longest is made a multiple. Ids are `shift` higher than in the result, which has `pad` in the padding, and
    `start` before what is said.

    >>> rows = {"inputs": np.array([[5, 6, 1, 0]], np.int32), "targets": np.array([[7, 1, 0]], np.int32)}
    >>> for name, array in model_arrays(["decoder_target_tokens", "decoder_input_tokens"], rows, joined=True).items():
    ...     print(name, array.tolist())
    decoder_target_tokens [[5, 6, 1, 7, 1, 0, 0]]
    decoder_input_tokens [[0, 5, 6, 1, 7, 1, 0]]
    """
    keys = [key for key in _TOKENS if key in rows]
    is_packed = f"{keys[0]}_segment_ids" in rows
    multiple = widths if isinstance(widths, int) else None

    def of(key: str) -> _Row:
        if is_packed:
            return _Row(rows[key], rows[f"{key}_segment_ids"], rows[f"{key}_positions"], None)
        width = rows[key].shape[1]
        if multiple and sizes is not None and not joined:
            width = _rounded(sizes[key], multiple)
        elif isinstance(widths, Mapping) and not joined:
            width = widths[key]
        ids = _fitted(rows[key], width)
        if sizes is None:
            return _Row(ids, None, None, None)
        return _Row(ids, (np.arange(width) < np.asarray(sizes[key])[:, None]).astype(np.int32), None, None)

    parts = [of(key) for key in keys]
    said, width = parts[-1], parts[-1].own.shape[1]
    given = {key: _fitted(rows[key], width).astype(np.int32, copy=False) for key in (LOSS_MASK, SPAN_ID, TASK_ID) if key in rows}
    trained = (said.segment_ids > 0) & (given[LOSS_MASK] == 1) if LOSS_MASK in given else said.segment_ids > 0
    said.marks = {"weights": trained.astype(np.int32), **given}
    if LOSS_WEIGHT in rows:
        said.marks["weights"] = _fitted(rows[LOSS_WEIGHT], width) * trained
    if joined:
        length = sum(part.own.shape[1] for part in parts)
        if multiple and sizes is not None:
            length = _rounded(np.sum([sizes[key] for key in keys], axis=0), multiple)
        elif isinstance(widths, Mapping):
            length = sum(widths[key] for key in keys)
        parts = [_joined(parts[0], said, length)]
    for part in parts:
        part.is_packed, part.pad, part.start, part.shift = is_packed, pad, start, shift
    if "labels" in names and keys == ["tokens"]:  # no model of Transformers says the first token that it reads
        said.marks["weights"] = np.where(said.places > 0, said.marks["weights"], 0)
    return {name: getattr(parts[TABLE[name][0]], TABLE[name][1]) for name in names}


def side_by_side(values: Sequence[Any], dtype: Any = np.int32, absent: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of values, [B, longest], with another one behind each, and how many of each are used, [B] int64."""
    sizes = np.array([len(each) for each in values], np.int64)
    rows = np.full((len(values), sizes.max()), absent, dtype)
    rows[np.arange(rows.shape[1]) < sizes[:, np.newaxis]] = np.concatenate([np.asarray(each) for each in values])
    return rows, sizes


class _Row:
    """The arrays of a sequence, by their names in the table; its ids as they are, `own`; and `marks` of what has a loss."""

    is_packed, pad, start, shift = False, 0, 0, 0

    def __init__(
        self, ids: np.ndarray, segment_ids: np.ndarray | None, positions: np.ndarray | None, prefix: np.ndarray | None
    ) -> None:
        self.own, self._segment_ids, self._positions, self.prefix = ids, segment_ids, positions, prefix
        self.marks: dict[str, np.ndarray] = {}

    @cached_property
    def segment_ids(self) -> np.ndarray:
        return (self.own != 0).astype(np.int32) if self._segment_ids is None else self._segment_ids

    @cached_property
    def ids(self) -> np.ndarray:
        if not self.shift and not self.pad:
            return self.own
        return np.where(self.segment_ids > 0, self.own - np.int32(self.shift), np.int32(self.pad))

    @property
    def read(self) -> np.ndarray:
        (written,) = zeros_for_tensors(1, self.ids.shape)
        _shift_right(self.ids, self.segment_ids if self.is_packed else self.ids[:0], self.start, self.pad, written)
        return written

    @property
    def mask(self) -> np.ndarray:
        return (self.segment_ids > 0).astype(np.int32)

    @property
    def positions(self) -> np.ndarray:
        return self.mask * np.arange(self.own.shape[1], dtype=np.int32) if self._positions is None else self._positions

    @cached_property
    def places(self) -> np.ndarray:
        across = np.arange(self.own.shape[1], dtype=np.int32)
        if not self.is_packed:
            return np.ascontiguousarray(np.broadcast_to(across, self.own.shape))
        is_token = self.segment_ids > 0
        return np.where(is_token, self.positions, across - np.count_nonzero(is_token, axis=1).astype(np.int32)[:, None])

    @property
    def causal(self) -> np.ndarray:
        assert self.prefix is not None, "it is joined"
        return ((self.positions <= self.prefix) & (self.segment_ids > 0)).astype(np.int32)

    @property
    def weights(self) -> np.ndarray:
        return self.marks["weights"]

    @property
    def labels(self) -> np.ndarray:
        return np.where(self.weights > 0, self.ids, np.int32(IGNORED))

    @property
    def span_id(self) -> np.ndarray:
        return np.where(self.weights > 0, self.marks.get(SPAN_ID, np.int32(TEXT)), np.int32(0))

    @property
    def task_id(self) -> np.ndarray:
        return np.where(self.weights > 0, self.marks.get(TASK_ID, np.int32(NO_TASK)), np.int32(NO_TASK))

    @property
    def loss_weight(self) -> np.ndarray:
        return self.weights.astype(np.float32)


def _joined(inputs: _Row, targets: _Row, length: int) -> _Row:
    """The inputs and the targets of each example one after the other, in rows of this length."""
    made = source, segment_ids, positions, prefix = zeros_for_tensors(4, (len(inputs.own), length))
    _join(inputs.segment_ids, targets.segment_ids, *made)
    nothing, width = np.zeros([len(source), 0], np.int32), inputs.own.shape[1]

    def taken(of_inputs: np.ndarray, of_targets: np.ndarray) -> np.ndarray:
        (written,) = zeros_for_tensors(1, source.shape)
        values = of_targets.view(np.int32) if of_targets.dtype == np.float32 else of_targets.astype(np.int32, copy=False)
        _take(source, width, of_inputs.astype(np.int32, copy=False), values, written)
        return written.view(of_targets.dtype) if of_targets.dtype == np.float32 else written

    row = _Row(taken(inputs.own, targets.own), segment_ids, positions, prefix)
    row.marks = {key: taken(nothing, values) for key, values in targets.marks.items()}
    return row


def _rounded(sizes: np.ndarray, multiple: int) -> int:
    return -(-int(np.max(sizes)) // multiple) * multiple


def _fitted(rows: np.ndarray, width: int) -> np.ndarray:
    if rows.shape[1] >= width:
        return rows[:, :width]
    return np.pad(rows, [(0, 0), (0, width - rows.shape[1])])


@compiled
def _join(inputs, targets, source, segment_ids, positions, prefix):
    """Writes which token each place of a joined row has: of the inputs, then of the targets, from 0 on; -1 for none.

    `inputs` and `targets` are segment ids, from 1 without a gap. The other three, of 0 before, are as in the table.
    """
    for row in range(len(inputs)):
        end, read, said, segment = 0, 0, 0, 1
        while True:
            start = end
            while read < inputs.shape[1] and inputs[row, read] == segment:
                source[row, end] = read
                read += 1
                end += 1
            of_inputs = end - start
            while said < targets.shape[1] and targets[row, said] == segment:
                source[row, end] = inputs.shape[1] + said
                said += 1
                end += 1
            if end == start:
                break
            for place in range(start, end):
                segment_ids[row, place] = segment
                positions[row, place] = place - start
                prefix[row, place] = of_inputs
            segment += 1
        source[row, end:] = -1


@compiled
def _take(source, width, inputs, targets, written):
    """Writes the values of each place of joined rows, which are 0 before; `inputs` may have none, of `width`."""
    for row in range(len(source)):
        for place in range(source.shape[1]):
            token = source[row, place]
            if token < 0:
                break
            if token >= width:
                written[row, place] = targets[row, np.uint32(token - width)]
            elif inputs.shape[1] > 0:
                written[row, place] = inputs[row, np.uint32(token)]


@compiled
def _shift_right(ids, segment_ids, start, pad, written):
    """Writes the ids before: `start` before the first of each example; `segment_ids` are empty where nothing is packed."""
    for row in range(len(ids)):
        for place in range(ids.shape[1]):
            if len(segment_ids) > 0 and segment_ids[row, place] == 0:
                written[row, place] = pad
            elif place == 0 or (len(segment_ids) > 0 and segment_ids[row, place] != segment_ids[row, place - 1]):
                written[row, place] = start
            else:
                written[row, place] = ids[row, place - 1]
