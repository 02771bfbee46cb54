"""`ul2 doctor` of tasks of `register_image_text`: looks for problems before a run, and says how to fix each."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ul2_tasks.corpus.corpus import Corpus
from ul2_tasks.inspect.findings import (
    About,
    Finding,
    each_once,
    examine_image_packages,
    examine_installation,
    examine_vocabulary,
    left_out,
)
from ul2_tasks.inspect.images.measure import (
    ImageCorpusStatistics,
    ImageTasksStatistics,
    ImageTaskStatistics,
    measure_image_tasks,
)
from ul2_tasks.inspect.images.table import shown_records, shown_unusable
from ul2_tasks.inspect.printing import shown_problems
from ul2_tasks.inspect.tasks import ImageTextTask, image_tasks

if TYPE_CHECKING:
    from ul2_tasks.mixtures.description import Description
    from ul2_tasks.mixtures.mix import Mix


def examine_image_tasks(images: Description | Mix, sequence_length: Mapping[str, int], split: str = "train") -> list[Finding]:
    """Looks at the installation, the vocabulary, the first records with all of their images, and the lengths."""
    tasks = image_tasks(images)
    findings = [*examine_installation(), *examine_image_packages()]
    for corpus in {task.corpus.name: task.corpus for task in tasks}.values():
        findings += examine_vocabulary([task for task in tasks if task.corpus.name == corpus.name], corpus)
    if any(finding.kind == "problem" and finding.about == "vocabulary" for finding in findings):
        return each_once(findings)
    try:
        statistics = measure_image_tasks(images, sequence_length, split)
    except (ValueError, OSError) as error:
        return each_once([*findings, Finding("problem", "records", str(error), "fix it, or pass other files or other lengths")])
    return each_once([*findings, *_examine(statistics, tasks)])


def _examine(statistics: ImageTasksStatistics, tasks: Sequence[ImageTextTask]) -> Iterator[Finding]:
    corpora: dict[str, Corpus] = {task.corpus.name: task.corpus for task in tasks}
    for found in statistics.corpora:
        yield from _examine_records(found, corpora[found.corpus], functools.partial(Finding, concerns=(found.corpus,)))
    for measured, task in zip(statistics.tasks, tasks):
        yield from _examine_lengths(measured, task, functools.partial(Finding, about="lengths", concerns=(measured.task,)))


def _examine_records(found: ImageCorpusStatistics, corpus: Corpus, about: About) -> Iterator[Finding]:
    skip = corpus.configuration.on_error == "skip"
    kind, remedy = left_out(skip, "fix them, or pass on_error='skip', which leaves them out and counts them")
    for line in shown_problems(found.problems, found.first):
        yield about(kind, "records", f"wrong, of {shown_records(found)}: {line}", remedy)
    if found.right:
        yield about("ok", "records", f"{shown_records(found)}, of which {found.right:,} are right, with all of their images")
    else:
        what = f"none of {shown_records(found)} is right"
        yield about("problem", "records", what, "see whether the kind is theirs, or name other files")


def _examine_lengths(measured: ImageTaskStatistics, task: ImageTextTask, about: About) -> Iterator[Finding]:
    skip = task.configuration.on_unusable == "skip"
    kind, remedy = left_out(skip, "larger lengths, or on_unusable='skip', which leaves them out and counts them")
    for line in shown_unusable(measured):
        yield about(kind, what=line, remedy=remedy)
    inputs = measured.lengths["inputs"]
    if inputs is None:
        return
    said = ", ".join(f"{key} of up to {length.max:,} tokens" for key in ("inputs", "targets") if (length := measured.lengths[key]))
    yield about("ok", what=f"examples: {measured.examples:,}, with images: {measured.images:,}; {said}")
