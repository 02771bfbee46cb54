"""`ul2 audit`: what a run has read of each document, of each corpus and by each denoiser, until a step."""

from __future__ import annotations

import dataclasses
import functools
import uuid
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.text import Text

from ul2_tasks.files.atomic import check_folder_of, removed_on_failure
from ul2_tasks.files.systems import move, open_to_write
from ul2_tasks.inspect.printing import APART, bars, list_table, percent, print_checks, print_head
from ul2_tasks.inspect.report import check_path, printed, verdict, write_page
from ul2_tasks.inspect.run import Run
from ul2_tasks.inspect.statistics import Check, Checked
from ul2_tasks.random_access.audit import CorpusRead, read_of
from ul2_tasks.random_access.numbering import Numbering

_ENDS = (".parquet", ".html")
_SCHEMA = pa.schema(
    {
        "corpus": pa.dictionary(pa.int32(), pa.string()),
        "document": pa.int64(),
        "tokens": pa.int64(),
        "tokens_read": pa.int64(),
        "times": pa.int64(),
    }
)
_MOST_TIMES = 7  # columns of the table of documents


@dataclasses.dataclass(frozen=True)
class Seen:
    """A document, how many tokens it has, how many of them were read, and how many times all of it was."""

    document: int
    tokens: int
    tokens_read: int
    times: int


@dataclasses.dataclass(frozen=True)
class TaskAudit:
    """What a task has read. `share` is its part of the run's examples, and `asked` the part that the weights ask for."""

    task: str
    denoiser: str
    examples: int
    tokens_read: int
    share: float
    asked: float


@dataclasses.dataclass(frozen=True)
class CorpusAudit:
    """What was read of a corpus.

    Attributes:
        corpus: the name of its task.
        documents, tokens: how many it has.
        documents_left_out: how many of them the run leaves out.
        tokens_read: how many tokens were read, each time counted.
        epochs: how many times the corpus was read, on average over its tokens.
        unread: how many documents have tokens of which none was read.
        times: how many documents were read whole so many times, by the times.
        most: the documents that were read most often.
        tasks: what each task has read of it.
    """

    corpus: str
    documents: int
    tokens: int
    documents_left_out: int
    tokens_read: int
    epochs: float
    unread: int
    times: dict[int, int]
    most: Sequence[Seen]
    tasks: Sequence[TaskAudit]


@dataclasses.dataclass(frozen=True)
class RunAudit(Checked):
    """What a run has read until a step: of each corpus, and whether the sums agree."""

    mixture: str
    split: str
    seed: int
    until: int
    unit: str
    elements: int
    corpora: Sequence[CorpusAudit]
    checks: Sequence[Check]


def check_outputs(paths: Sequence[str]) -> None:
    """Raises a ValueError where a file cannot be written, before anything is counted."""
    for path in paths:
        if not path.endswith(_ENDS):
            raise ValueError(f"--output must be a file that ends in .parquet or .html, got {path!r}. Rename it.")
        if path.endswith(".html"):
            check_path(path)
        else:
            check_folder_of(path)


def audit(run: Run, until: int, outputs: Sequence[str] = (), count: int = 5) -> RunAudit:
    """Counts what a run has read until the batch of a step, without that, and writes the outputs.

    A Parquet file has a line for each document, and an HTML page what is printed. `count` is how many of the documents that were
    read most often are named.
    """
    check_outputs(outputs)
    elements, numbering = run.numbers(until).start, run.examples().numbering
    parts = [(first, stop, found.numbering) for first, stop, found in run.parts]
    with bars() as progress:
        bar = progress.add_task(f"{elements:,} {run.unit}s", total=elements)
        reads = read_of(parts, elements, functools.partial(progress.advance, bar))
    asked, examples = _asked(numbering, elements), sum(task.examples for read in reads.values() for task in read.tasks.values())
    corpora = [_of_corpus(numbering, name, read, asked, examples, count) for name, read in reads.items()]
    checks = [_check(of_corpus) for of_corpus in corpora]
    audited = RunAudit(run.name, run.split, run.seed, until, run.unit, elements, corpora, checks)
    for path in outputs:
        if path.endswith(".html"):
            heading = f"<h1>{escape(run.name)}: audit until step {until:,}</h1>"
            write_page(path, f"{run.name}: audit", [heading, verdict(checks), printed(print_audit, run, audited)])
        else:
            _write_parquet(path, reads)
    return audited


def _of_corpus(
    numbering: Numbering, name: str, read: CorpusRead, asked: Mapping[tuple[str, str], float], examples: int, count: int
) -> CorpusAudit:
    """`examples` are those of all corpora, and `count` is how many documents are named."""
    often = np.argsort(-read.tokens / np.maximum(1, read.lengths), kind="stable")[:count]
    most = [Seen(document, *(int(each[document]) for each in read[:3])) for document in often.tolist()]
    tokens, tokens_read = int(read.lengths.sum()), int(read.tokens.sum())
    return CorpusAudit(
        corpus=name,
        documents=len(read.lengths),
        tokens=tokens,
        documents_left_out=len(numbering.leaving_out.left_out(name)),
        tokens_read=tokens_read,
        epochs=tokens_read / max(1, tokens),
        unread=int(((read.tokens == 0) & (read.lengths > 0)).sum()),
        times=dict(zip(*(each.tolist() for each in np.unique(read.times, return_counts=True)))),
        most=[seen for seen in most if seen.tokens_read],
        tasks=[
            TaskAudit(task, of.denoiser, of.examples, of.tokens, of.examples / max(1, examples), asked.get((name, task), 0.0))
            for task, of in read.tasks.items()
        ],
    )


def _asked(numbering: Numbering, elements: int) -> dict[tuple[str, str], float]:
    """The part of the examples that the weights ask for, by corpus and task, on average over the stages so far."""
    found: dict[tuple[str, str], float] = {}
    firsts = numbering.leaving_out.first_from(np.array([stage.first for stage in numbering.mixed])).tolist()
    for stage, first, stop in zip(numbering.mixed, firsts, [*firsts[1:], elements]):
        part = max(0, min(stop, elements) - first) / max(1, elements)
        for number, weight in zip(stage.corpora, stage.weights):
            corpus = numbering.corpora[number]
            rates = sum(member.rate for member in corpus.members)
            for member in corpus.members:
                asked = part * weight / sum(stage.weights) * member.rate / rates
                found[corpus.name, member.task] = found.get((corpus.name, member.task), 0.0) + asked
    return found


def _check(audited: CorpusAudit) -> Check:
    by_task = sum(task.tokens_read for task in audited.tasks)
    what = f"{by_task:,} by tasks, {audited.tokens_read:,} by documents"
    return Check(f"the tokens read of {audited.corpus} add up", by_task == audited.tokens_read, what)


def _write_parquet(path: str, reads: Mapping[str, CorpusRead]) -> None:
    """Writes a line for each document, to a file that is there when all of it is written."""
    temporary = f"{path}.{uuid.uuid4().hex}.tmp"
    with removed_on_failure(temporary, where=path):
        with open_to_write(temporary) as file, pq.ParquetWriter(file, _SCHEMA) as writer:
            for name, read in reads.items():
                documents = np.arange(len(read.lengths))
                names = pa.DictionaryArray.from_arrays(np.zeros(len(documents), np.int32), [name])
                writer.write_table(pa.table([names, documents, *read[:3]], schema=_SCHEMA))
        move(temporary, path)


def print_audit(run: Run, audited: RunAudit, console: Console) -> None:
    """Prints the corpora, the tasks, how often documents were read, and which most often."""
    print_head(console, run.name, run.sequence_length, run.split, run.seed)
    console.print(Text(f"until step {audited.until:,}: {audited.elements:,} {run.unit}s", "dim"))
    corpora = list_table("corpus", "documents", "left out", "tokens", "tokens read", "epochs", left=["corpus"])
    for each in audited.corpora:
        numbers = each.documents, each.documents_left_out, each.tokens, each.tokens_read
        corpora.add_row(each.corpus, *(f"{number:,}" for number in numbers), f"{each.epochs:,.3f}")
    tasks = list_table("task", "examples", "tokens read", "share", "asked for", left=["task"])
    for task in (task for each in audited.corpora for task in each.tasks):
        shares = percent(task.share, 2, APART), percent(task.asked, 2, APART)
        tasks.add_row(task.task, f"{task.examples:,}", f"{task.tokens_read:,}", *shares)
    console.print(corpora, "", tasks, "")
    for each in audited.corpora:
        console.print(Text(f"documents of {each.corpus}, by how often the whole document was read", "bold"))
        times = list(each.times.items())
        told = [f"{time:,} times: {documents:,}" for time, documents in times[:_MOST_TIMES]]
        if more := sum(documents for _, documents in times[_MOST_TIMES:]):
            told.append(f"more: {more:,}")
        console.print(Text("; ".join(told) + f"; not read: {each.unread:,}"))
        if each.most:
            most = list_table("read most", "tokens", "tokens read", "times whole")
            for seen in each.most:
                most.add_row(str(seen.document), f"{seen.tokens:,}", f"{seen.tokens_read:,}", f"{seen.times:,}")
            console.print(most, "")
    print_checks(audited.checks, console)
