"""`ul2 stats`: what the examples of a description are like, of whatever kind, measured on a sample, and whether the checks hold.

The sample is the first examples by index, of a cache or of the first documents of each corpus.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ul2_tasks.chat.reading import MESSAGES, messages_of
from ul2_tasks.chat.segments import KIND, LENGTH, kind_name
from ul2_tasks.example_features import token_features
from ul2_tasks.inspect.beginnings import RECORDS, TOKENS, Beginnings, examples_of, in_order
from ul2_tasks.inspect.checks import Counts, binomial_interval, checks_of, counts_of
from ul2_tasks.inspect.printing import bars, kinds_lost, number, percent, plain_table, print_checks
from ul2_tasks.inspect.statistics import Check, Checked, Measured, Summary, measure
from ul2_tasks.random_access.batches import members_of
from ul2_tasks.random_access.corpora import OrderedCorpus
from ul2_tasks.random_access.kinds import Task
from ul2_tasks.random_access.sequence import Examples
from ul2_tasks.scalars import fractions, is_integer
from ul2_tasks.store.columns import Columns
from ul2_tasks.tokenizers.special_ids import check_round_trip, vocabulary_identity
from ul2_tasks.version import __version__

if TYPE_CHECKING:
    from ul2_tasks.mixtures.description import Description
    from ul2_tasks.mixtures.mix import Mix

DECODED = 100  # documents, to count their characters
WRONG = "wrong"  # the cause of what is left out of records with an error
MANY_TIMES = 10  # if the examples hold a corpus more often than this, a note says so


@dataclasses.dataclass(frozen=True)
class CorpusStatistics:
    """The first documents of a corpus, which are texts, conversations or records of images.

    Attributes:
        documents: how many were looked at; `is_all` says whether there are no others.
        tokens: the lengths of these documents.
        characters_a_token: characters divided by tokens, of texts.
        unknown: the part of the tokens that are the vocabulary's unknown token.
        lost: what of a text this vocabulary does not give back, in words.
        left_out: how many examples are left out, by cause, and records with an error as "wrong".
        messages: of conversations, how many "messages" and "tokens" there are of each kind.
        times_read: the tokens of all chunks divided by those of the corpus; None where it has more documents, or other kinds.
    """

    corpus: str
    source: str
    vocabulary: str
    documents: int
    is_all: bool
    tokens: Summary | None
    characters_a_token: float | None
    unknown: float | None
    lost: Sequence[str]
    left_out: Mapping[str, int]
    messages: Mapping[str, Mapping[str, int]]
    times_read: float | None


@dataclasses.dataclass(frozen=True)
class TaskStatistics:
    """The examples of a task. A value is None where there was nothing to measure.

    Attributes:
        share: the task's share of the "examples" and of the tokens of each feature; the share of the examples that is "expected";
            and the bounds, "low" and "high", outside which it falls in one of a million samples.
        numbers: of an example: its features and what its kind counts, such as "noise", "spans" or "trained".
        expected: of these what a full-length chunk has.
        ratios: by name what is "measured" of all examples, and "expected" of a full-length chunk.
        fill: the mean part of each length that an example takes; None where the length is open.
    """

    task: str
    corpus: str
    examples: int
    share: Mapping[str, float]
    numbers: Mapping[str, Summary | None]
    expected: Mapping[str, int]
    ratios: Mapping[str, Mapping[str, float | None]]
    fill: Mapping[str, float | None]


@dataclasses.dataclass(frozen=True)
class Statistics(Checked):
    """The measurements of a description; `dataclasses.asdict` makes JSON of it, without NaN.

    Attributes:
        notes: what to know of this sample, in words.
    """

    mixture: str
    version: str
    split: str
    seed: int
    sequence_length: Mapping[str, int | None]
    examples: int
    corpora: Sequence[CorpusStatistics]
    tasks: Sequence[TaskStatistics]
    notes: Sequence[str]
    checks: Sequence[Check]


def statistics_of(
    description: Description | Mix,
    sequence_length: Mapping[str, int | None],
    examples: int = 4000,
    *,
    seed: int = 0,
    split: str = "train",
    cache_dirs: Sequence[str] = (),
) -> Statistics:
    """Measures the first examples of a description, of the caches, or of as many first documents as they need.

    Conversations and images alone are read once each under each denoiser at most.

    Raises:
        ValueError: examples is less than 1; the lengths do not fit; or a record has an error, or is too long, and is not to be
            skipped.
    """
    if not is_integer(examples, at_least=1):
        raise ValueError(f"examples must be at least 1, got {examples}.")
    counts = {task: each for leaf in description.leaves for task, each in counts_of(leaf, sequence_length).items()}
    longest = max((each.expected.get("chunk", 0) for each in counts.values()), default=0)
    beginnings = Beginnings(split, max(TOKENS, examples * longest))
    schedule = description.schedule_of(sequence_length, cache_dirs, is_run=False)  # type: ignore[arg-type]
    found = examples_of(schedule, sequence_length, beginnings, seed)
    if not longest:
        examples = min(examples, len(found) * max(len(leaf.denoisers) or 1 for leaf in description.leaves))
    rates = _rates(found, examples)
    counts = {task: counts[task] for task in rates}
    with bars() as progress:
        taken = progress.track(in_order(found, examples), examples, description="drawing examples")
        measured, checks = measure(taken, counts, checks_of(counts, rates))
    members = members_of(found.numbering)
    features = list(dict.fromkeys(key for member in members for key in token_features(member.features)))
    budgets = {key: None if (most := sequence_length.get(key)) is None else int(most) for key in features}
    corpora = [
        _corpus(each, beginnings, sum(int(measured.of(member.task, "chunk").sum()) for member in each.members))
        for each in {each.name: each for each in found.numbering.corpora}.values()
    ]
    many = [each for each in corpora if each.times_read and each.times_read > MANY_TIMES]
    return Statistics(
        mixture=description.registered_name(sequence_length),
        version=__version__,
        split=split,
        seed=int(seed),
        sequence_length=budgets,
        examples=measured.examples,
        corpora=corpora,
        tasks=[_task(member, measured, counts[member.task], rates[member.task], budgets) for member in _by_name(members)],
        notes=[f"these examples hold {each.corpus} {each.times_read:,.0f} times" for each in many],
        checks=checks,
    )


def _by_name(members: Iterable[Task]) -> list[Task]:
    """The tasks, each once, although several stages may have it."""
    return [each for _, each in sorted({member.task: member for member in members}.items())]


def _rates(found: Examples, examples: int) -> dict[str, float]:
    """The part that each task has of the first examples."""
    numbering, parts = found.numbering, dict[str, float]()
    firsts = [min(stage.first, examples) for stage in numbering.stages]
    for stage, mixed, first, stop in zip(numbering.stages, numbering.mix.stages, firsts, [*firsts[1:], examples]):
        for corpus, share in fractions(dict(zip(stage.corpora, mixed.shares.weights))).items():
            of_corpus = fractions({member.task: member.rate for member in numbering.corpora[corpus].members})
            for task, rate in of_corpus.items():
                parts[task] = parts.get(task, 0.0) + (stop - first) * share * rate / examples
    return dict(sorted(parts.items()))


def _task(member: Task, measured: Measured, counts: Counts, rate: float, budgets: Mapping[str, int | None]) -> TaskStatistics:
    numbers, all_, expected = measured.numbers[member.task], measured.examples, counts.expected
    examples = len(next(iter(numbers.values()), ()))
    totals = {key: sum(int(measured.of(task, key).sum()) for task in measured.numbers) for key in budgets}
    low, high = binomial_interval(all_, rate)
    share = {"expected": rate, "low": low / all_, "high": high / all_, "examples": examples / all_}
    sums = {name: int(values.sum()) for name, values in numbers.items()}
    return TaskStatistics(
        task=member.task,
        corpus=member.corpus.name,
        examples=examples,
        share=share | {key: sums.get(key, 0) / total for key, total in totals.items() if total},
        numbers={name: Summary.of(values) for name, values in numbers.items()},
        expected=expected,
        ratios={
            name: {
                "measured": sums[above] / sums[below] if sums.get(below) else None,
                "expected": expected[above] / expected[below] if expected else None,
            }
            for name, (above, below) in counts.ratios.items()
        },
        fill={key: sums[key] / (examples * most) if most and examples else None for key, most in budgets.items() if key in sums},
    )


def _corpus(ordered: OrderedCorpus, beginnings: Beginnings, chunks: int) -> CorpusStatistics:
    corpus, data = ordered.members[0].corpus, ordered.data
    read = beginnings.of(corpus, ordered.members[0].separate_documents)
    count = min(RECORDS, read.columns.count)
    tokens, lengths = read.columns.tokens.read_documents(np.arange(count))
    first = np.split(tokens, np.cumsum(lengths))[: 0 if corpus.columns else DECODED]
    characters = sum(len(corpus.vocabulary.decode(ids.tolist())) for ids in first)
    wrong = {WRONG: len(read.problems)} if read.problems else {}
    return CorpusStatistics(
        corpus=corpus.name,
        source=str(corpus.source),
        vocabulary=vocabulary_identity(corpus.vocabulary),
        documents=count,
        is_all=read.is_all and count == read.columns.count,
        tokens=Summary.of(lengths),
        characters_a_token=characters / max(1, sum(map(len, first))) if first else None,
        unknown=float((tokens == corpus.vocabulary.unk_id).mean()) if len(tokens) else None,
        lost=check_round_trip(corpus.tokenizer),
        left_out={**wrong, **data.left_out},
        messages=_messages(read.columns, count),
        times_read=chunks / read.columns.tokens.tokens if chunks and read.is_all else None,
    )


def _messages(columns: Columns, count: int) -> dict[str, dict[str, int]]:
    """How many messages, and tokens of these, conversations have of each kind."""
    if MESSAGES not in columns.stores:
        return {}
    messages, _ = messages_of(columns, np.arange(count))
    lengths = {int(kind): messages[messages[:, KIND] == kind, LENGTH] for kind in np.unique(messages[:, KIND])}
    return {kind_name(kind): {"messages": len(of), "tokens": int(of.sum())} for kind, of in lengths.items()}


def print_statistics(statistics: Statistics, console: Console) -> None:
    """Prints the statistics as tables, which fit a terminal of 80 columns."""
    budgets = statistics.sequence_length.items()
    lengths = ", ".join(f"{key} {'of any length' if most is None else f'{most:,}'}" for key, most in budgets)
    console.print(Text.assemble((statistics.mixture, "bold"), f": {statistics.examples:,} examples, tokens at most: {lengths}"))
    console.print(Text(f"split {statistics.split}, seed {statistics.seed}, ul2_tasks {statistics.version}"))
    for corpus in statistics.corpora:
        for line in _corpus_lines(corpus):
            console.print(line)
    for note in statistics.notes:
        console.print(Text(f"note        {note}", "bold yellow"))
    tables = (*map(_messages_table, statistics.corpora), _shares(statistics), _numbers(statistics))
    for table in filter(lambda each: each.row_count, tables):
        console.print()
        console.print(table)
    console.print()
    print_checks(statistics.checks, console)


def _corpus_lines(corpus: CorpusStatistics) -> Iterator[Text]:
    yield Text(f"corpus      {corpus.corpus}: {corpus.source}")
    yield Text(f"vocabulary  {corpus.vocabulary}", no_wrap=True, overflow="ellipsis")
    found = corpus.tokens
    tokens = f", of {found.min:,}..{found.max:,} tokens, {found.mean:,.1f} on average" if found else ""
    yield Text(f"documents   {'all' if corpus.is_all else 'the first'} {corpus.documents:,}{tokens}")
    text = [f"{number(corpus.characters_a_token)} characters per token"] if corpus.characters_a_token else []
    yield Text(f"text        {', '.join([*text, f'{percent(corpus.unknown)} unknown tokens'])}")
    if corpus.lost:
        yield Text(f"round trip  decoding does not restore {kinds_lost(corpus.lost)}")
    for cause, count in corpus.left_out.items():
        yield Text(f"left out    {count:,}: {cause}", "bold yellow")


def _messages_table(corpus: CorpusStatistics) -> Table:
    table = plain_table(f"messages of {corpus.corpus}", ("messages", "tokens", "of all tokens"))
    total = sum(each["tokens"] for each in corpus.messages.values())
    for kind, counts in corpus.messages.items():
        messages, tokens = counts["messages"], counts["tokens"]
        table.add_row(kind, f"{messages:,}", f"{tokens:,}", percent(tokens / total if total else None))
    return table


def _shares(statistics: Statistics) -> Table:
    features = list(statistics.sequence_length)
    table = plain_table("task", ("expected (bounds)", "examples", *(f"of {key}" for key in features)))
    for task in statistics.tasks:
        share = task.share
        expected = f"{share['expected']:.1%} ({100 * share['low']:.1f}..{100 * share['high']:.1f})"
        table.add_row(task.task, expected, percent(share["examples"]), *(percent(share.get(key)) for key in features))
    return table


def _numbers(statistics: Statistics) -> Table:
    table = plain_table("in an example", ("mean", "min", "5 %", "50 %", "95 %", "max", "full length"))
    for task in statistics.tasks:
        table.add_section()
        table.add_row(Text(task.task, "bold"))
        for name, found in task.numbers.items():
            if found is not None:
                quantiles = (found.quantiles[each] for each in ("5", "50", "95"))
                row = (number(found.mean), f"{found.min:,}", *map(number, quantiles), f"{found.max:,}")
                table.add_row(f" {name}", *row, f"{task.expected[name]:,}" if name in task.expected else "")
        for name, ratio in task.ratios.items():
            form = percent if (ratio["measured"] or 0) <= 1 else number
            expected = "" if ratio["expected"] is None else form(ratio["expected"])
            table.add_row(f" {name}", form(ratio["measured"]), *[""] * 5, expected)
        for key, part in task.fill.items():
            if part is not None:
                table.add_row(f" of the length of {key}", percent(part))
    return table
