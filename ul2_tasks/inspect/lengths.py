"""`ul2 lengths`: what lengths, half of them and twice as much make of the first documents of each corpus, and which waste less."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ul2_tasks.chat.choices import UNTRAINED
from ul2_tasks.denoisers.lengths import sentinels_needed
from ul2_tasks.example_features import token_features
from ul2_tasks.inspect.beginnings import Beginnings, examples_of
from ul2_tasks.inspect.measure import WRONG
from ul2_tasks.inspect.printing import number, percent, plain_table
from ul2_tasks.mixtures.advice import best_chunk_tokens, best_lengths, lone_span
from ul2_tasks.mixtures.chat import Chat
from ul2_tasks.mixtures.image_text import ImageText
from ul2_tasks.mixtures.mixture import Mixture, described_tasks
from ul2_tasks.random_access.corpora import OrderedCorpus

if TYPE_CHECKING:
    from ul2_tasks.mixtures.description import Description
    from ul2_tasks.mixtures.mix import Mix

_FACTORS = {"now": 1.0, "half": 0.5, "double": 2.0}
RECOMMENDED = "recommended"
_NO_ERROR = (WRONG, UNTRAINED)
_MEASURED = 1 << 14  # examples, of an epoch


@dataclasses.dataclass(frozen=True)
class Way:
    """What lengths make of the first documents of a corpus, which are read once.

    Attributes:
        name: "now", "half" or "double"; or "recommended", with the lengths of now and the recommended `chunk_tokens`; or "other
            lengths", of the same sum, whose rows are fuller with full-length chunks.
        chunk_tokens: the longest chunk of each denoiser of text, in tokens; empty of other kinds.
        examples: how many they make.
        left_out: how many examples, or records, are left out, by cause.
        cut: how many of the examples are without the oldest turns of a conversation.
        tokens: of an example, the mean of each feature.
        padded, packed: the part of each length that holds tokens, with one example in a row, and with several. Both are empty where
            a length is open, and the second is empty where examples have images.
        problems: why there is no example; in sentences.
    """

    name: str
    sequence_length: Mapping[str, int | None]
    chunk_tokens: Mapping[str, int] = dataclasses.field(default_factory=dict)
    examples: int = 0
    left_out: Mapping[str, int] = dataclasses.field(default_factory=dict)
    cut: int = 0
    tokens: Mapping[str, float] = dataclasses.field(default_factory=dict)
    padded: Mapping[str, float] = dataclasses.field(default_factory=dict)
    packed: Mapping[str, float] = dataclasses.field(default_factory=dict)
    problems: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Chunk:
    """A full-length chunk of a denoiser of text, at the lengths of now, in tokens; and how many sentinels there are."""

    task: str
    tokens: int
    noise: int
    spans: int
    inputs: int
    targets: int
    sentinels_needed: int
    sentinels: int


@dataclasses.dataclass(frozen=True)
class CorpusLengths:
    """What lengths make of a description of one kind, of whose corpus so many documents were read.

    Attributes:
        ninety_nine: by feature, the tokens that 99 % of the examples have at most: of conversations at any length.
        notes: what to know of the lengths, in sentences.
    """

    name: str
    source: str
    documents: int
    is_all: bool
    chunks: Sequence[Chunk]
    ways: Sequence[Way]
    ninety_nine: Mapping[str, int]
    notes: Sequence[str]


@dataclasses.dataclass(frozen=True)
class Lengths:
    """What lengths make of a description. `problems` are sentences: what would raise an error."""

    mixture: str
    sequence_length: Mapping[str, int | None]
    corpora: Sequence[CorpusLengths]
    problems: Sequence[str]


def lengths_of(description: Description | Mix, sequence_length: Mapping[str, int | None], split: str = "train") -> Lengths:
    """Looks at what lengths make of the first documents of each corpus. Takes seconds, most for the recommendation.

    What is wrong or too long is left out and counted, also where it is to raise an error, which `problems` then say.
    """
    beginnings = Beginnings(split)
    found = [lengths_of_leaf(leaf, sequence_length, beginnings) for leaf in description.leaves]
    problems = [problem for leaf, each in zip(description.leaves, found) for problem in problems_of(leaf, each)]
    return Lengths(description.registered_name(sequence_length), dict(sequence_length), found, problems)


def lenient(description: Description) -> Description:
    """The same description, which leaves out and counts what it is to raise."""
    if isinstance(description, Chat):
        truncation = "drop" if description.truncation == "raise" else description.truncation
        return dataclasses.replace(description, truncation=truncation, on_error="skip")
    if isinstance(description, ImageText):
        return dataclasses.replace(description, source=_skipping(description.source), on_error="skip", on_unusable="skip")
    if isinstance(description, Mixture) and isinstance(description.source, Mixture):
        return dataclasses.replace(description, source=_skipping(description.source), on_error="skip")
    return dataclasses.replace(description, on_error="skip")  # type: ignore[type-var]


def _skipping(source: Any) -> Any:
    return dataclasses.replace(source, on_error="skip") if isinstance(source, Mixture | ImageText) else source


def lengths_of_leaf(
    leaf: Description, given: Mapping[str, int | None], beginnings: Beginnings, factors: Mapping[str, float] = _FACTORS
) -> CorpusLengths:
    """What lengths make of a description of one kind: these `factors` of them, and of text with the recommended chunks."""
    leaf = lenient(leaf)
    factors = factors if all(given.values()) else {"now": 1.0}
    tried = {
        name: (leaf, {key: int(length * factor) or 1 if length else None for key, length in given.items()})
        for name, factor in factors.items()
    }
    ways = [_way(name, *each, beginnings) for name, each in tried.items()]
    chunks, notes = _chunks(leaf, given) if isinstance(leaf, Mixture) else ([], [])
    if isinstance(leaf, Mixture) and not ways[0].problems and len(factors) > 1:
        best = dataclasses.replace(leaf, chunk_tokens=best_chunk_tokens(leaf.denoisers, given))  # type: ignore[arg-type]
        ways.append(_way(RECOMMENDED, best, tried["now"][1], beginnings))
        if (other := best_lengths(leaf.denoisers, given)) != dict(given):  # type: ignore[arg-type]
            ways.append(_way("other lengths", dataclasses.replace(leaf, chunk_tokens=None), other, beginnings))
    corpus = leaf.corpus()
    read = beginnings.of(corpus, getattr(leaf, "separate_documents", False))
    most = {} if ways[0].problems else _ninety_nine(leaf, given, beginnings)
    told = leaf.registered_name(given), str(corpus.source), read.columns.count, read.is_all
    return CorpusLengths(*told, chunks, ways, most, notes)


def _ninety_nine(leaf: Description, given: Mapping[str, int | None], beginnings: Beginnings) -> dict[str, int]:
    corpus, sizes = _examples(leaf, dict.fromkeys(given) if isinstance(leaf, Chat) else given, beginnings)
    most = np.percentile(sizes, 99, axis=0, method="higher")
    return dict(zip(token_features(corpus.members[0].features), most.tolist()))


def _examples(leaf: Description, lengths: Mapping[str, int | None], beginnings: Beginnings) -> tuple[OrderedCorpus, np.ndarray]:
    """The corpus in the order of its examples, and how many tokens the first of these have, [examples, features] int64."""
    (corpus,) = examples_of(leaf.schedule_of(lengths), lengths, beginnings, seed=0).numbering.corpora  # type: ignore[arg-type]
    slots = np.arange(min(corpus.order.examples, _MEASURED))
    return corpus, corpus.lengths_of(np.zeros_like(slots), slots)


def _way(name: str, leaf: Description, lengths: Mapping[str, int | None], beginnings: Beginnings) -> Way:
    told: dict[str, int] = {}
    problems = []
    for task in described_tasks(leaf) if isinstance(leaf, Mixture) else []:
        try:
            told[task.denoiser.name] = task.solve(lengths).full.length  # type: ignore[arg-type]
        except ValueError as error:
            problems.append(str(error))
    try:
        corpus, sizes = _examples(leaf, lengths, beginnings)
    except ValueError as error:
        return Way(name, lengths, told, problems=problems or [str(error)])
    keys = token_features(corpus.members[0].features)
    tokens = dict(zip(keys, sizes.mean(axis=0).tolist()))
    budgets = {key: lengths.get(key) for key in keys}
    padded: dict[str, float] = {}
    packed: dict[str, float] = {}
    if all(budgets.values()):
        padded = {key: tokens[key] / (most or 1) for key, most in budgets.items()}
        packed = _packed(corpus, budgets, tokens)
    left_out = dict(corpus.data.left_out) | _wrong(beginnings, corpus)
    cut = getattr(corpus.data.index, "shortened", 0) if hasattr(corpus.data, "index") else 0
    return Way(name, lengths, told, corpus.order.examples, left_out, cut, tokens, padded, packed)


def _packed(corpus: OrderedCorpus, budgets: Mapping[str, int | None], tokens: Mapping[str, float]) -> dict[str, float]:
    if corpus.members[0].has_images:
        return {}
    rows = corpus.packed(budgets).rows_about
    return {key: tokens[key] * corpus.order.examples / (rows * (most or 1)) for key, most in budgets.items()}


def _wrong(beginnings: Beginnings, corpus: OrderedCorpus) -> dict[str, int]:
    member = corpus.members[0]
    problems = beginnings.of(member.corpus, member.separate_documents).problems
    return {WRONG: len(problems)} if problems else {}


def _chunks(mixture: Mixture, given: Mapping[str, Any]) -> tuple[list[Chunk], list[str]]:
    chunks, notes = [], []
    for task in described_tasks(mixture):
        try:
            solution = task.solve(given)
        except ValueError:
            continue  # the way says so
        full, needed = solution.full, sentinels_needed(task.denoiser, solution.full.length)
        sizes = full.length, full.noise, full.spans, full.inputs, full.targets
        chunks.append(Chunk(task.name, *sizes, needed, len(solution.special.sentinels)))
        if lone := lone_span(task.denoiser, full, given):
            notes.append(f"{task.name}: {'; '.join(lone)}")
    return chunks, notes


def problems_of(leaf: Description, found: CorpusLengths) -> Iterator[str]:
    """What of the lengths of now would raise an error."""
    now = found.ways[0]
    yield from now.problems
    raises = {Chat: "truncation", ImageText: "on_unusable"}.get(type(leaf))
    causes = {cause: count for cause, count in now.left_out.items() if cause not in _NO_ERROR}
    if causes and raises and getattr(leaf, raises) == "raise":
        counts = ", ".join(f"{count:,} {cause}" for cause, count in causes.items())
        remedy = "'drop' or 'drop_oldest_turns'" if raises == "truncation" else "'skip'"
        also = f" ({','.join(map(str, found.ninety_nine.values()))} holds 99 % of them)" if raises == "truncation" else ""
        remedy = f"Raise --lengths{also}, or pass {raises}={remedy}."
        yield f"{found.name}: examples must fit the lengths, got {counts}, which raises an error. {remedy}"


def print_lengths(lengths: Lengths, console: Console) -> None:
    """Prints tables for each corpus, and advice to paste."""
    for corpus in lengths.corpora:
        read = f"{'all' if corpus.is_all else 'the first'} {corpus.documents:,} documents of {corpus.source}"
        console.print(Text.assemble((corpus.name, "bold"), f": {read}"))
        if corpus.chunks:
            console.print(_chunk_table(corpus.chunks))
        console.print(_table(corpus.ways))
        for note in corpus.notes:
            console.print(Text(note, "yellow"), soft_wrap=True)
        for way in corpus.ways:
            if way.name == RECOMMENDED:
                chunks = f"recommended: Mixture(.., chunk_tokens={dict(way.chunk_tokens)})"
                console.print(chunks, highlight=False, soft_wrap=True, markup=False)
        if None in corpus.ways[0].sequence_length.values():
            console.print("Pass --lengths to see how full packed sequences are.", highlight=False)
    for problem in lengths.problems:
        console.print(Text(problem, "bold red"), soft_wrap=True)


def _chunk_table(chunks: Sequence[Chunk]) -> Table:
    table = plain_table("full-length chunk", ("tokens", "masked", "spans", "inputs", "targets", "sentinels"))
    for each in chunks:
        counts = (each.tokens, each.noise, each.spans, each.inputs, each.targets)
        table.add_row(each.task, *(f"{count:,}" for count in counts), f"{each.sentinels_needed:,} of {each.sentinels:,}")
    return table


def _table(ways: Sequence[Way]) -> Table:
    """A column for each way."""
    table = plain_table("", [way.name for way in ways])
    given = (["any" if length is None else str(length) for length in way.sequence_length.values()] for way in ways)
    table.add_row("--lengths", *map(",".join, given))
    for name in ways[0].chunk_tokens:
        table.add_row(f"chunk_tokens {name}", *(f"{way.chunk_tokens[name]:,}" if name in way.chunk_tokens else "" for way in ways))
    table.add_row("examples", *(f"{way.examples:,}" if not way.problems else "none" for way in ways))
    for cause in dict.fromkeys(cause for way in ways for cause in way.left_out):
        table.add_row(f"left out: {cause}", *(f"{way.left_out.get(cause, 0):,}" for way in ways))
    if any(way.cut for way in ways):
        table.add_row("without their oldest turns", *(f"{way.cut:,}" for way in ways))
    for label, part, form in (
        ("{} per example", "tokens", number),
        ("{} filled, padded", "padded", percent),
        ("{} filled, packed", "packed", percent),
    ):
        for key in dict.fromkeys(key for way in ways for key in getattr(way, part)):
            table.add_row(label.format(key), *(form(getattr(way, part).get(key)) for way in ways))
    return table
