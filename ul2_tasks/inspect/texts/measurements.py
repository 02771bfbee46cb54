"""The measurements of a mixture, as data that `dataclasses.asdict` turns into JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from ul2_tasks.inspect.statistics import Check, Checked, Summary


@dataclasses.dataclass(frozen=True)
class Corpus:
    """The first documents of a corpus, and what the vocabulary makes of their text.

    Attributes:
        documents: the number of documents that were looked at.
        tokens: the lengths of these documents.
        characters_a_token: characters divided by tokens.
        unknown: the part of the tokens that are the vocabulary's unknown token.
        come_back: the part of the documents that are the same after encoding and decoding; of the first ones only, if they are
            long.
        lost: what of a text this vocabulary does not give back, in words.
        times_read: the tokens of all chunks divided by the tokens of these documents; None if the corpus has other documents.
    """

    corpus: str
    source: str
    vocabulary: str
    tasks: Sequence[str]
    documents: int
    is_all: bool
    tokens: Summary
    characters_a_token: float | None
    unknown: float | None
    come_back: float | None
    lost: Sequence[str]
    times_read: float | None


@dataclasses.dataclass(frozen=True)
class OtherTask:
    """The measurements of a task of another kind: its name, examples, share and lengths, as in `TaskStatistics`."""

    task: str
    examples: int
    share: Mapping[str, float]
    lengths: Mapping[str, Summary | None]


class Spans(TypedDict):
    """The spans of a task's full chunks, see `TaskStatistics`."""

    expected: int
    measured: float | None
    mean_length: Mapping[str, float | None]


@dataclasses.dataclass(frozen=True)
class TaskStatistics:
    """The measurements of one task. A value is None where there was nothing to measure.

    Attributes:
        denoiser: the fields of its denoiser.
        examples: how many were drawn.
        full_examples: how many of these are full chunks.
        share: the task's share of the drawn "examples", "inputs" tokens and "targets" tokens; the share of the examples that is
            "expected"; and the bounds, "low" and "high", outside which it falls in one of a million samples.
        corruption_rate: noise tokens divided by chunk tokens, "expected" in a full chunk, and "measured" in all chunks.
        spans: of full chunks. How many they have, "expected" and "measured", and their "mean_length", likewise.
        lengths: of "inputs", "targets" and "chunk".
        compression: input tokens divided by chunk tokens.
        fill: the mean part of each feature's budget that an example takes.
        documents_per_chunk: how many documents of mean length a full chunk holds; at most 1 if documents are kept apart.
    """

    task: str
    corpus: str
    denoiser: Mapping[str, Any]
    full_chunk: Mapping[str, int]
    examples: int
    full_examples: int
    share: Mapping[str, float]
    corruption_rate: Mapping[str, float | None]
    spans: Spans
    lengths: Mapping[str, Summary | None]
    compression: float | None
    fill: Mapping[str, float | None]
    documents_per_chunk: float | None


@dataclasses.dataclass(frozen=True)
class Statistics(Checked):
    """The measurements of a mixture; `dataclasses.asdict` makes JSON of it, without NaN.

    Attributes:
        documents: of all corpora: how many were "looked_at", and their "tokens".
        tasks: the denoising tasks, in the mixture's order.
        others: the tasks of other kinds. Examples, shares, lengths and fill are of all tasks, the rest of denoising tasks only.
        notes: what to know of this sample, in words.
        share_sentence: what the weights mean for the loss, in words.
        lengths, compression: as for a task, of all examples.
        fill: the part of rows that holds tokens: "unpacked", with one example in a row; "packed", as `packing` packs these
            examples; and the "bound" for packing, if examples could be divided at will.
        truncated: how many examples are cut off, or are not whole.
    """

    mixture: str
    version: str
    split: str
    seed: int | None
    examples: int
    sequence_length: Mapping[str, int]
    corpus: str
    vocabulary: str
    documents: Mapping[str, object]
    corpora: Sequence[Corpus]
    tasks: Sequence[TaskStatistics]
    others: Sequence[OtherTask]
    notes: Sequence[str]
    share_sentence: str
    lengths: Mapping[str, Summary | None]
    compression: float | None
    fill: Mapping[str, Mapping[str, float | None]]
    truncated: int
    checks: Sequence[Check]
