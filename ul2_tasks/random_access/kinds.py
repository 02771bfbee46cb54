"""What a kind of data answers, whatever it is: how many units, how long their examples are, what these are, where they are from.

An `Order` says which units make an example. Of text whose documents are joined these are tokens, [start, stop) of them or several
such ranges; of all else one unit makes an example: a piece of a document, a part of a conversation, a record of texts and images.
Nothing but its own file knows which kind of data there is: `text.Text` says what each of them has.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ul2_tasks.compiled import compiled
from ul2_tasks.example_features import SPAN_ID, TEXT, Feature
from ul2_tasks.order.order import BlockShuffle
from ul2_tasks.store.columns import Columns
from ul2_tasks.tokenizers.base import Vocabulary

if TYPE_CHECKING:
    from ul2_tasks.corpus.corpus import Corpus


class Origin(NamedTuple):
    """The tokens that examples have: parts [start, stop) of the store's, of which example each is, ascending, [parts] int64 each;
    and whether they are read in place of documents that are left out, [parts] bool."""

    of: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    are_others: np.ndarray


@dataclasses.dataclass(frozen=True)
class Task:
    """A task of a mixture, which reads a corpus at its rate. In another process `corpus` is a `CorpusName`.

    `kind` makes data of the documents of its corpus, of which there are some, read by several tasks, itself among them. `described`
    is what a fingerprint says of it, and `denoiser` is empty where it has none. `longest` are its longest features of tokens, empty
    where these are not known. A task of text has a `solution`, and `separate_documents` says whether it reads documents with an EOS
    after each; one of records has the `number` of its denoiser among those of the index.
    """

    task: str
    corpus: Corpus
    rate: float
    features: Mapping[str, Feature]
    vocabulary: Vocabulary
    kind: Callable[[Sequence[Task], Columns], Any]
    described: Mapping[str, object]
    denoiser: str = ""
    block_shuffle: BlockShuffle | None = None
    longest: Mapping[str, int] = dataclasses.field(default_factory=dict)
    solution: Any = None
    separate_documents: bool = False
    number: int = 0
    has_images: bool = False

    @property
    def tokens(self) -> int:
        """How many units of the corpus a full example has."""
        return self.solution.full.length if self.solution and self.solution.configuration.merge_examples else 1

    def __reduce__(self) -> tuple:
        """For another process, in which nothing need be registered. The name of the corpus is all that is asked of it there."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        values |= {"features": dict(self.features), "described": dict(self.described), "corpus": CorpusName(self.corpus.name)}
        return Task, tuple(values.values())


class CorpusName(NamedTuple):
    """What is left of a corpus in another process."""

    name: str


def described_blocks(blocks: BlockShuffle | None) -> dict[str, object]:
    """The same of a corpus that is shuffled in blocks."""
    return {"block_shuffle": dataclasses.asdict(blocks)} if blocks else {}


def blocks_of(blocks: BlockShuffle | None, count: int, tokens: int) -> BlockShuffle | None:
    """The same blocks, counted in units of which so many have so many tokens: as many as a block has on average."""
    return blocks and dataclasses.replace(blocks, block_tokens=max(1, round(blocks.block_tokens * count / tokens)))


def mark_text(rows: np.ndarray, places: np.ndarray, sizes: np.ndarray, written: Mapping[str, np.ndarray]) -> None:
    """Writes the loss group of text into the places of targets, where there are groups."""
    if SPAN_ID in written:
        fill_ranges(TEXT, rows, places[:, -1], sizes[:, -1], written[SPAN_ID])


@compiled
def fill_ranges(value, rows, places, sizes, written):
    """Writes a value into so many places of rows, from a place of each on; all three are [n] int64."""
    for number in range(len(rows)):
        written[rows[number]][places[number] : places[number] + sizes[number]] = value


@compiled
def copy_ranges(values, starts, sizes, rows, places, written):
    """Writes n ranges of values, of so many from a start on, into rows, from a place of each on; all four are [n] int64."""
    for number in range(len(starts)):
        row = written[rows[number]]
        for offset in range(sizes[number]):
            row[places[number] + offset] = values[starts[number] + offset]
