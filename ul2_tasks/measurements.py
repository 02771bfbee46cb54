"""What is measured of a mixture, as data: `dataclasses.asdict` makes JSON of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence


@dataclasses.dataclass(frozen=True)
class Summary:
    """Lengths in tokens; `sd` is that of the sample itself, `quantiles` are by their percentages, as strings."""

    mean: float
    sd: float
    min: int
    max: int
    quantiles: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Law:
    """What must hold, whether it does, and what was found, in words."""

    law: str
    holds: bool
    found: str


@dataclasses.dataclass(frozen=True)
class Corpus:
    """The first documents of a corpus, and what the vocabulary makes of their text.

    Attributes:
        corpus: the name of its task.
        source, vocabulary: in words.
        tasks: the names of those that read it.
        documents: how many were looked at; `is_all`: whether there are no others.
        tokens: of a document.
        histogram: how many "documents" have so many tokens, from each of "values" up to the next.
        characters_a_token, unknown: characters by tokens, and the part of the tokens that are the vocabulary's unknown.
        come_back: the part of the documents whose text is what their tokens decode to; of the first ones alone where they are long.
        lost: what of a text this vocabulary does not give back, in words.
        in_memory: whether these documents were read, in memory, instead of the corpus; see `drawing`.
        times_read: the tokens of all chunks by those of these documents; None where there are other documents.
    """

    corpus: str
    source: str
    vocabulary: str
    tasks: Sequence[str]
    documents: int
    is_all: bool
    tokens: Summary
    histogram: Mapping[str, Sequence[int]]
    characters_a_token: float | None
    unknown: float | None
    come_back: float | None
    lost: Sequence[str]
    in_memory: bool
    times_read: float | None


@dataclasses.dataclass(frozen=True)
class OtherTask:
    """What was measured of a task of another kind: its name, examples, share and lengths, as those of `TaskStatistics`."""

    task: str
    examples: int
    share: Mapping[str, float]
    lengths: Mapping[str, Summary | None]


@dataclasses.dataclass(frozen=True)
class TaskStatistics:
    """What was measured of one task. What there is nothing to measure of is None.

    Attributes:
        task: its name.
        corpus: the name of its corpus's task.
        denoiser: its fields.
        full_chunk: those of `lengths.Chunk`.
        examples, full_examples: how many were drawn, and how many of them are full chunks.
        share: of the drawn "examples", "inputs" tokens and "targets" tokens; what is "wanted" of the examples, and within
            which bounds ("low", "high") a share so measured stays but in one of a million samples.
        corruption_rate: noise tokens by chunk tokens, "wanted" in a full chunk and "measured" in all.
        spans: of full chunks: how many, "wanted" and "measured"; their "mean_length", likewise; the probabilities of their
            "lengths", "measured" and in "theory", from each of "values" up to `width` tokens; and the "p_value" of the
            first spans' lengths, which are independent draws, None where nothing is drawn or too little was.
        lengths: of "inputs", "targets" and "chunk".
        compression: input tokens by chunk tokens.
        fill: the part of each feature's budget that an example takes.
        masked: [50], the part of full chunks in which a position is noise, from their first positions to their last.
        documents_per_chunk: how many documents of mean length a full chunk holds, at most 1 where they are kept apart.
    """

    task: str
    corpus: str
    denoiser: Mapping[str, object]
    full_chunk: Mapping[str, int]
    examples: int
    full_examples: int
    share: Mapping[str, float]
    corruption_rate: Mapping[str, float | None]
    spans: Mapping[str, object]
    lengths: Mapping[str, Summary | None]
    compression: float | None
    fill: Mapping[str, float | None]
    masked: Sequence[float] | None
    documents_per_chunk: float | None


@dataclasses.dataclass(frozen=True)
class Statistics:
    """What was measured of a mixture; `dataclasses.asdict` of it is JSON, without NaN.

    Attributes:
        mixture, version, split, seed, examples, sequence_length: what was drawn, and by which version of this package.
        corpus, vocabulary: in words.
        documents: of all corpora: how many were "looked_at", and their "tokens".
        corpora: each of them.
        tasks: the denoising tasks, in the mixture's order.
        others: the tasks of other kinds. Examples, shares, lengths and fill are of all tasks, the rest of denoising tasks.
        notes: what to know of this sample, in words.
        share_sentence: what the weights mean for the loss, in words.
        lengths, compression: as those of a task, of all examples.
        fill: the part of rows that holds tokens: "unpacked", an example a row; "packed", as `packing` packs these
            examples; and the "bound" for packing, if examples could be divided at will.
        truncated: how many examples are cut off, or not whole.
        shared_text: of every two "tasks": the part of the rarer one's text that the other one has "anywhere", where equal
            text is `shared_text.WINDOW` equal tokens, so that documents joined to others count as different there; of the
            n-th examples of both, "examples" of which were compared, the part that share text ("at_once"), and of examples
            of different numbers ("by_chance").
        laws: all of them.
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
    shared_text: Sequence[Mapping[str, object]]
    laws: Sequence[Law]

    @property
    def holds(self) -> bool:
        """Whether all laws do."""
        return all(law.holds for law in self.laws)
