"""What the examples of a mixture are like, measured on a sample, beside what the objective says that they must be.

The sample is the first examples by index, and the chunk of each is reconstructed from it. What must hold for any corpus is a check
(`checks`); all else is a number to look at. Of tasks that are not of text only shares and lengths are measured.
"""

from __future__ import annotations

import array
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ul2_tasks.example_features import TASK, TOKEN_FEATURES
from ul2_tasks.inspect.printing import tracked
from ul2_tasks.inspect.statistics import Summary
from ul2_tasks.inspect.tasks import Folders, text_tasks
from ul2_tasks.inspect.texts.checks import binomial_interval, run_checks
from ul2_tasks.inspect.texts.counts import COLUMNS, Counts
from ul2_tasks.inspect.texts.draw import FIRST_TOKENS, first_examples, in_order
from ul2_tasks.inspect.texts.first_documents import FirstDocuments, first_documents
from ul2_tasks.inspect.texts.measurements import Corpus, OtherTask, Spans, Statistics, TaskStatistics
from ul2_tasks.mixtures.mixture import DescribedTask
from ul2_tasks.order.pack import count_rows
from ul2_tasks.random_access.sequence import Examples
from ul2_tasks.scalars import fractions
from ul2_tasks.tokenizers.special_ids import check_round_trip, vocabulary_identity
from ul2_tasks.version import __version__

if TYPE_CHECKING:
    from ul2_tasks.mixtures.description import Description
    from ul2_tasks.mixtures.mix import Mix

QUANTILES = (5, 25, 50, 75, 95)
MANY_TIMES = 10  # if the examples hold a corpus more often than this, a note says so
POOL = 4096  # examples that are packed together
WINDOWS_A_CHUNK = 64  # on average

Progress = Callable[[Iterable[Mapping[str, np.ndarray]], int], Iterable[Mapping[str, np.ndarray]]]


def measure(
    mixture: Description | Mix,
    sequence_length: Mapping[str, int],
    examples: int = 4000,
    seed: int = 0,
    split: str = "train",
    progress: Progress = tracked,
    *,
    cache_dirs: Folders = (),
) -> Statistics:
    """Draws examples of a description that has denoising tasks of text, and measures them.

    They are the first by index, of the caches, or of as many first documents as they need. `progress` takes the examples and their
    number, and gives the examples on one by one.
    """
    if examples < 1:
        raise ValueError(f"examples must be at least 1, got {examples}.")
    tasks = text_tasks(mixture, cache_dirs=cache_dirs)
    documents = {
        corpus.name: first_documents(corpus, split) for corpus in {task.corpus.name: task.corpus for task in tasks}.values()
    }
    longest = max(task.solve(sequence_length).full.length for task in tasks)
    schedule, tokens = mixture.schedule_of(sequence_length, cache_dirs), max(FIRST_TOKENS, examples * longest)
    found = first_examples(schedule, sequence_length, tokens, seed=seed, split=split)
    taken, rates = progress(in_order(found, examples), examples), _expected(found, examples)
    return measure_examples(mixture, sequence_length, taken, documents, seed, split, rates=rates, tasks=tasks)


def _expected(found: Examples, examples: int) -> dict[str, float]:
    """The part that each task has of the first examples."""
    numbering, parts = found.numbering, dict[str, float]()
    firsts = [min(stage.first, examples) for stage in numbering.stages]
    for stage, mixed, first, stop in zip(numbering.stages, numbering.mix.stages, firsts, [*firsts[1:], examples]):
        for number, share in fractions(dict(zip(stage.corpora, mixed.shares.weights))).items():
            of_corpus = fractions({member.task: member.rate for member in numbering.corpora[number].members})
            for task, rate in of_corpus.items():
                parts[task] = parts.get(task, 0.0) + (stop - first) * share * rate / examples
    return parts


def measure_examples(
    mixture: Description | Mix,
    sequence_length: Mapping[str, int],
    examples: Iterable[Mapping[str, Any]],
    documents: Mapping[str, FirstDocuments],
    seed: int = 0,
    split: str = "train",
    *,
    rates: Mapping[str, float],
    tasks: Sequence[DescribedTask],
    has_tails: bool = True,
) -> Statistics:
    """Measures examples that were drawn before, as `measure` does.

    Each is {"inputs": [tokens] int, "targets": [tokens] int, "task": str}, with the tokenizer's own ids; there is at least one.
    Memory grows by some 30 bytes for each. `documents` are the first ones of each corpus, by its name, and `rates` say what part of
    the examples each task has. For `has_tails` see `Counts`.
    """
    others = [name for name in rates if name not in {task.name for task in tasks}]
    every = max(1, min(task.solve(sequence_length).full.length for task in tasks) // WINDOWS_A_CHUNK)
    counts = {task.name: Counts(task, sequence_length, every, has_tails) for task in tasks}
    drawn, own = _count(examples, counts, [*counts, *others])
    measured = [
        _task_statistics(counts[task.name], own[task.name], drawn, rates[task.name], documents[task.corpus.name].lengths.mean())
        for task in tasks
    ]
    of_others = [
        OtherTask(
            task=name, examples=len(own[name]["inputs"]), share=_share(own[name], drawn, rates[name]), lengths=_lengths(own[name])
        )
        for name in others
    ]
    read = {name: sum(int(own[task.name]["chunk"].sum()) for task in tasks if task.corpus.name == name) for name in documents}
    corpora = [_corpus(name, documents[name], tasks, read[name]) for name in documents]
    lengths = np.concatenate([found.lengths for found in documents.values()])
    return Statistics(
        mixture=mixture.registered_name(sequence_length),
        version=__version__,
        split=split,
        seed=seed,
        examples=len(drawn["inputs"]),
        sequence_length={key: int(sequence_length[key]) for key in TOKEN_FEATURES},
        corpus="; ".join(corpus.source for corpus in corpora),
        vocabulary="; ".join(dict.fromkeys(corpus.vocabulary for corpus in corpora)),
        documents={"looked_at": len(lengths), "tokens": Summary.of(lengths, QUANTILES)},
        corpora=corpora,
        tasks=measured,
        others=of_others,
        notes=[*_notes_on_tasks(others), *(note for corpus in corpora for note in _notes(corpus))],
        share_sentence=_share_sentence([*measured, *of_others]),
        lengths=_summaries(drawn),
        compression=_ratio(drawn["inputs"][drawn["chunk"] > 0].sum(), drawn["chunk"].sum()),
        fill=_fill(drawn, sequence_length),
        truncated=sum(task.faults.counts["truncated"] for task in counts.values()),
        checks=run_checks(list(counts.values()), measured, of_others, own),
    )


def _count(
    examples: Iterable[Mapping[str, Any]], counts: Mapping[str, Counts], tasks: Sequence[str]
) -> tuple[dict[str, np.ndarray], dict[str, dict[str, np.ndarray]]]:
    """Adds the examples to the counts of their tasks, of which those alone that denoise have counts.

    Returns `COLUMNS` of all examples, [examples] int32 each, and the same of the examples of each of `tasks`.
    """
    numbers = {name: number for number, name in enumerate(tasks)}
    table = array.array("i")
    for example in examples:
        name = example[TASK]
        row = counts[name].add(example) if name in counts else [len(example[key]) for key in TOKEN_FEATURES]
        table.extend((numbers[name], *row, *[0] * (len(COLUMNS) - len(row))))
    which, *columns = np.frombuffer(table, np.int32).reshape(-1, 1 + len(COLUMNS)).T
    drawn = dict(zip(COLUMNS, columns))
    return drawn, {name: {key: values[which == number] for key, values in drawn.items()} for name, number in numbers.items()}


def _corpus(name: str, documents: FirstDocuments, tasks: Iterable[DescribedTask], tokens_read: int) -> Corpus:
    of_corpus = [task for task in tasks if task.corpus.name == name]
    corpus = of_corpus[0].corpus
    lengths = documents.lengths
    return Corpus(
        corpus=name,
        source=str(corpus.source),
        vocabulary=vocabulary_identity(corpus.vocabulary),
        tasks=[task.name for task in of_corpus],
        documents=len(lengths),
        is_all=documents.is_all,
        tokens=Summary.of(lengths, QUANTILES),  # type: ignore[arg-type]  # there is a document
        characters_a_token=_ratio(documents.characters, lengths.sum()),
        unknown=_ratio(documents.unknown, lengths.sum()),
        come_back=_ratio(documents.come_back, documents.decoded),
        lost=check_round_trip(corpus.tokenizer),
        times_read=_ratio(tokens_read, lengths.sum()) if documents.is_all else None,
    )


def _notes_on_tasks(others: Sequence[str]) -> Iterator[str]:
    if others:
        yield f"tasks of other kinds, of which only fractions, lengths and mixing rates are measured: {', '.join(others)}"


def _notes(corpus: Corpus) -> Iterator[str]:
    tokens = f"{round(corpus.tokens.mean * corpus.documents):,} tokens"
    if corpus.times_read is not None and corpus.times_read > MANY_TIMES:
        yield f"{corpus.corpus} has {tokens}: these examples hold it {corpus.times_read:,.0f} times"


def _task_statistics(
    counts: Counts, own: Mapping[str, np.ndarray], all_: Mapping[str, np.ndarray], rate: float, tokens_a_document: float
) -> TaskStatistics:
    """The statistics of one task; `own` and `all_` are `COLUMNS` of its examples and of all, [examples] int32 each."""
    full, examples = counts.full, len(own["inputs"])
    full_examples = int(own["is_full"].sum())
    is_whole = own["chunk"] > 0
    documents_per_chunk = full.length / tokens_a_document if tokens_a_document else None
    if documents_per_chunk and not counts.concatenates:
        documents_per_chunk = min(1.0, documents_per_chunk)
    return TaskStatistics(
        task=counts.task.name,
        corpus=counts.task.corpus.name,
        denoiser=dataclasses.asdict(counts.task.denoiser),
        full_chunk=dataclasses.asdict(full),
        examples=examples,
        full_examples=full_examples,
        share=_share(own, all_, rate),
        corruption_rate={"expected": full.noise / full.length, "measured": _ratio(own["noise"].sum(), own["chunk"].sum())},
        spans=_spans(counts, own, full_examples),
        lengths=_summaries(own),
        compression=_ratio(own["inputs"][is_whole].sum(), own["chunk"].sum()),
        fill={key: _ratio(own[key].sum(), examples * counts.sequence_length[key]) for key in TOKEN_FEATURES},
        documents_per_chunk=documents_per_chunk,
    )


def _share(own: Mapping[str, np.ndarray], all_: Mapping[str, np.ndarray], rate: float) -> dict[str, float]:
    drawn = len(all_["inputs"])
    low, high = binomial_interval(drawn, rate)
    return {
        **{"expected": rate, "low": low / drawn, "high": high / drawn, "examples": len(own["inputs"]) / drawn},
        **{key: _ratio(own[key].sum(), all_[key].sum()) or 0.0 for key in TOKEN_FEATURES},
    }


def _spans(counts: Counts, own: Mapping[str, np.ndarray], full_examples: int) -> Spans:
    full, is_full = counts.full, own["is_full"] > 0
    return {
        "expected": full.spans,
        "measured": _ratio(own["spans"][is_full].sum(), full_examples),
        "mean_length": {
            "expected": full.noise / full.spans,
            "measured": _ratio(own["noise"][is_full].sum(), own["spans"][is_full].sum()),
        },
    }


def _summaries(columns: Mapping[str, np.ndarray]) -> dict[str, Summary | None]:
    return {**_lengths(columns), "chunk": Summary.of(columns["chunk"][columns["chunk"] > 0], QUANTILES)}


def _lengths(columns: Mapping[str, np.ndarray]) -> dict[str, Summary | None]:
    return {key: Summary.of(columns[key], QUANTILES) for key in TOKEN_FEATURES}


def _ratio(part: float, whole: float) -> float | None:
    return float(part / whole) if whole else None


def _fill(columns: Mapping[str, np.ndarray], sequence_length: Mapping[str, int]) -> dict[str, dict[str, float | None]]:
    budgets = tuple(int(sequence_length[key]) for key in TOKEN_FEATURES)
    lengths = np.stack([columns[key] for key in TOKEN_FEATURES], axis=1)
    lengths = lengths[((lengths > 0) & (lengths <= budgets)).all(axis=1)]  # the others are reported as truncated
    if not lengths.size:
        return {kind: dict.fromkeys(TOKEN_FEATURES) for kind in ("unpacked", "packed", "bound")}
    pools = np.split(lengths, range(POOL, len(lengths), POOL))
    rows = sum(count_rows(pool, budgets) for pool in pools)
    demand = lengths.mean(axis=0) / budgets
    fills = {"unpacked": demand, "packed": lengths.sum(axis=0) / (rows * np.array(budgets)), "bound": demand / demand.max()}
    return {kind: dict(zip(TOKEN_FEATURES, fill.tolist())) for kind, fill in fills.items()}


def _share_sentence(tasks: Sequence[TaskStatistics | OtherTask]) -> str:
    """What the largest weight means for the loss: weights count examples, the loss counts target tokens."""
    drawn = [task for task in tasks if task.examples]
    greatest = max(drawn, key=lambda task: (task.share["expected"], task.share["targets"]))
    shares = {key: f"{greatest.share[key]:.1%}" for key in ("examples", *TOKEN_FEATURES)}
    sentence = (
        f"{greatest.task} is {shares['examples']} of the examples, with {shares['inputs']} of the input tokens and"
        f" {shares['targets']} of the target tokens, over which the loss is summed: weights count examples, not tokens."
    )
    others = sorted(
        (task for task in drawn if task is not greatest), key=lambda task: task.share["targets"] / task.share["expected"]
    )
    compared = []
    for other in dict.fromkeys(others[index].task for index in (-1, 0) if others):
        (share,) = (task.share for task in others if task.task == other)
        weight, tokens = (greatest.share[key] / share[key] for key in ("expected", "targets"))
        by_weight = "the same weight as" if round(weight, 2) == 1 else f"{weight:.3g} times the weight of"
        compared.append(f"for {by_weight} {other} it has {tokens:.3g} times its target tokens")
    also = ", and ".join(compared)
    return f"{sentence} {also[0].upper()}{also[1:]}." if also else sentence
