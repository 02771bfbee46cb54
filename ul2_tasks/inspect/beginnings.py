"""The first documents of corpora, to look at what examples they make."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ul2_tasks.corpus.corpus import Corpus
from ul2_tasks.corpus.documents import IN_MEMORY, of_parts, stored
from ul2_tasks.corpus.token_batches import Documents, corpus_documents
from ul2_tasks.mixtures.description import Description
from ul2_tasks.mixtures.names import as_description
from ul2_tasks.random_access.numbering import MemberSchedule, kinds_in, number_examples
from ul2_tasks.random_access.sequence import Examples
from ul2_tasks.store.columns import Columns

TOKENS = 1 << 17  # of texts that are read at least
RECORDS = 1000  # of other kinds
_SHOWN = 16  # examples of each task, as long as its longest, that are there to look at
_AT_A_TIME = 512  # examples


class Beginning(NamedTuple):
    """The first documents of a corpus; what is wrong with the records among them that are none; whether there are no others."""

    columns: Columns
    problems: Sequence[str]
    is_all: bool


class Beginnings:
    """The first documents of corpora, each read once: so many tokens of texts, or `RECORDS` of another kind."""

    def __init__(self, split: str, tokens: int = TOKENS):
        self.split, self.tokens = split, tokens
        self.read: dict[tuple[str, bool], Beginning] = {}

    def __call__(self, corpus: Corpus, separate_documents: bool) -> Columns:
        """See `kinds_in`."""
        return self.of(corpus, separate_documents).columns

    def of(self, corpus: Corpus, separate_documents: bool = False) -> Beginning:
        key = corpus.name, separate_documents
        if key not in self.read:
            columns = stored(corpus, self.split, bool(corpus.cache_dir), separate_documents)
            self.read[key] = Beginning(columns, (), True) if columns else self._first(corpus, separate_documents)
        return self.read[key]

    def _first(self, corpus: Corpus, separate_documents: bool) -> Beginning:
        parts, problems, tokens, documents, size = list[Documents](), list[str](), 0, 0, 0
        for part in corpus_documents(corpus, self.split, bool(corpus.cache_dir), counts=False):
            enough = documents + len(problems) >= RECORDS if corpus.columns else tokens >= self.tokens
            if enough or IN_MEMORY.is_reached(tokens, size):
                return Beginning(of_parts(corpus, parts, separate_documents), problems, False)
            parts.append(part)
            problems += (problem.decode(errors="replace") for problem in part.problems)
            tokens, documents, size = tokens + len(part.tokens), documents + len(part.lengths), size + part.size
        return Beginning(of_parts(corpus, parts, separate_documents), problems, True)


def examples_of(schedule: MemberSchedule, sequence_length: Mapping[str, int | None], beginnings: Beginnings, seed: int) -> Examples:
    """The examples that documents make. Nothing resumes them."""
    names = {member.corpus.name for stage in schedule.stages for member in stage.members}
    kind_of = kinds_in(beginnings.split, beginnings, names)  # what is left out is shown, not logged
    schedule = dataclasses.replace(schedule, max_epochs={})  # which beginnings would end at once
    return Examples(number_examples(schedule, kind_of, seed, shuffle=True), sequence_length, dict)


def first_examples(
    mixture: Description | str, sequence_length: Mapping[str, int | None], split: str, seed: int, cache_dirs: Sequence[str] = ()
) -> Examples:
    """The examples of a cache, or of first documents that have some of each task."""
    schedule = as_description(mixture).schedule_of(sequence_length, cache_dirs, is_run=False)  # type: ignore[arg-type]
    longest = {member.task: max(member.longest.values(), default=0) for stage in schedule.stages for member in stage.members}
    beginnings = Beginnings(split, max(TOKENS, _SHOWN * sum(longest.values())))
    return examples_of(schedule, sequence_length, beginnings, seed)


def in_order(found: Examples, count: int) -> Iterator[dict]:
    """The first examples, of as many epochs as it takes."""
    number = 0
    while number < count:
        of_epoch, index = found.at(number)
        some = of_epoch[index : min(index + _AT_A_TIME, index + count - number)]
        yield from some
        number += len(some)
