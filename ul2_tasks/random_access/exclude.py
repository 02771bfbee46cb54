"""What a run leaves out, as its user names it: a list of documents and ranges of steps, to documents and elements."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Mapping, Sequence

import numpy as np

from ul2_tasks.corpus.document_list import DocumentList, named_documents, read_document_list
from ul2_tasks.files.atomic import write_atomically
from ul2_tasks.files.systems import exists, place
from ul2_tasks.order.steps import Steps
from ul2_tasks.random_access.fingerprint import of_leaving_out
from ul2_tasks.random_access.leaving_out import NOTHING, LeavingOut, Skip
from ul2_tasks.random_access.numbering import NO_END, Numbering
from ul2_tasks.random_access.sequence import Examples
from ul2_tasks.scalars import is_integer

_logger = logging.getLogger(__name__)
Documents = str | os.PathLike | Sequence[Mapping[str, object]]


def leaving_out_of(
    numbering: Numbering | None,
    exclude: Documents | None = None,
    skip: Sequence[tuple[int, int]] = (),
    batch_size: int | Steps | None = None,
    first_step: int = 0,
) -> LeavingOut:
    """What is left out of a numbering by `exclude` and `skip`, see `examples`; `first_step` is that of the first element,
    which is step 0 of `Steps` in place of a batch size.

    Logs how many documents these are, and how many examples of an epoch get other tokens; warns of what is in no corpus. Raises a
    ValueError for steps without a batch size, steps of before the first, and what is no list.
    """
    if not isinstance(skip, Sequence | np.ndarray):
        raise ValueError(f"skip must be a list of pairs (first, stop) of steps, got {skip!r}. Give such as [(12340, 12360)].")
    if exclude is None and not len(skip):
        return NOTHING
    if numbering is None:
        raise ValueError(
            "exclude and skip must be left out for a stream, which has no random access. See docs/guides/leave_out.md."
        )
    skips = [_checked_skip(each, first_step) for each in skip]
    if [first for first, _ in skips] != sorted(first for first, _ in skips):
        raise ValueError(f"skip must be pairs of steps in ascending order, got {skips}. Sort them.")
    if batch_size is None and skips:
        raise ValueError("batch_size must be an integer with skip, got None. Pass that of the run, of all hosts.")
    if not isinstance(batch_size, Steps | None) and not is_integer(batch_size, at_least=1):
        raise ValueError(f"batch_size must be an integer of at least 1, got {batch_size!r}.")
    steps, last = Steps.of(batch_size or 1), max((stop for _, stop in skips), default=first_step)
    if steps.element(last - first_step) > NO_END:
        raise ValueError(f"steps of skip must have less than 2^60 elements, got {last} with {batch_size} in a step.")
    named = DocumentList(()) if exclude is None else read_document_list(exclude)
    documents = _documents(numbering, named) if named.entries else {}
    ends = [[steps.element(step - first_step) for step in each] for each in skips]
    found = LeavingOut(documents, tuple(Skip(first, stop - first) for first, stop in ends), named)
    _tell(numbering, found)
    return found


def leave_out(
    found: Examples,
    exclude: Documents | None = None,
    skip: Sequence[tuple[int, int]] = (),
    batch_size: int | Steps | None = None,
    first_step: int = 0,
) -> Examples:
    """The same examples, but for what is left out; see `leaving_out_of`."""
    leaving_out = leaving_out_of(found.numbering, exclude, skip, batch_size, first_step)
    if leaving_out is NOTHING:
        return found

    @functools.cache
    def describe() -> dict[str, object]:
        return {**found.describe(), **of_leaving_out(leaving_out)}

    return Examples(found.numbering.without(leaving_out), found.budgets, describe, found.number, found.task_id)


def save_list(folder: str, leaving_out: LeavingOut) -> None:
    """Writes the list of documents beside the record of a run, whose record names it by its hash."""
    path = place(folder, list_name(leaving_out.identity))
    if leaving_out.named.entries and not exists(path):
        write_atomically(path, leaving_out.named.text)


def list_name(identity: str) -> str:
    """The file of a list in the folder of a run."""
    return f"ul2_exclude_{identity}.jsonl"


def _checked_skip(pair: Sequence[int], first_step: int) -> tuple[int, int]:
    try:
        first, stop = pair
    except (TypeError, ValueError):
        first = stop = None  # type: ignore[assignment]
    if not is_integer(first, at_least=first_step) or not is_integer(stop, at_least=first + 1):
        raise ValueError(
            f"skip must be pairs (first, stop) of steps, of which the first is at least {first_step} and the stop greater, got"
            f" {pair!r}. Give such as [(12340, 12360)], which leaves out steps 12340 to 12359."
        )
    return int(first), int(stop)


def _documents(numbering: Numbering, named: DocumentList) -> dict[str, np.ndarray]:
    """The documents of each corpus that a list names. Warns of entries that name none."""
    found, unknown = named_documents(named, {corpus.name: corpus.store for corpus in numbering.corpora})
    if unknown:
        _logger.warning(
            "exclude has %s entries that name no document of %s, such as %s. See docs/guides/leave_out.md.",
            f"{len(unknown):,}",
            sorted(found),
            unknown[0],
        )
    return found


def _tell(numbering: Numbering, leaving_out: LeavingOut) -> None:
    """Logs how much is left out of each corpus."""
    for corpus in numbering.corpora:
        documents = leaving_out.left_out(corpus.name)
        if not len(documents):
            continue
        starts, stops = corpus.store.ranges_of(documents)
        units = np.stack(corpus.data.units_of(documents))
        replaced = corpus.order.slots_with(0, *units[:, units[0] < units[1]])
        counts = {
            "documents": (len(documents), corpus.store.documents),
            "tokens": (int((stops - starts).sum()), corpus.store.tokens),
            "examples of an epoch": (len(replaced), corpus.order.examples),
        }
        told = ", ".join(f"{part:,} of {whole:,} {what}" for what, (part, whole) in counts.items())
        _logger.info("exclude leaves out of %s: %s. Such an example gets other tokens.", corpus.name, told)
