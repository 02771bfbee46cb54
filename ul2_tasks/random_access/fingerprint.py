"""What decides which example of a mixture has which number, and what it is."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ul2_tasks.corpus.cache import identity_of
from ul2_tasks.corpus.identity import reads
from ul2_tasks.order.rows import ROWS_VERSION
from ul2_tasks.order.steps import Steps
from ul2_tasks.random_access.kinds import Task
from ul2_tasks.random_access.leaving_out import LeavingOut
from ul2_tasks.random_access.numbering import MemberSchedule, Numbering, StageMembers
from ul2_tasks.scalars import as_python, fractions
from ul2_tasks.tokenizers.special_ids import vocabulary_identity

if TYPE_CHECKING:
    from ul2_tasks.corpus.corpus import Corpus

NUMBERED_VERSION = 3  # raised whenever a number is that of another example, or a fingerprint says it in other words
STAGE = "stage from step "  # how the keys of `until` begin that say what a stage is
LEFT_OUT = ("exclude", "skip")  # what is there of a run that leaves something out


def fingerprint(
    name: str,
    members: Sequence[Task],
    numbering: Numbering,
    sequence_length: Mapping[str, int],
    *,
    rates: Mapping[str, float],
    cache_dirs: Mapping[str, str | None],
    split: str,
    shuffle: bool,
    seed: int | str,
    others: Mapping[str, str] = types.MappingProxyType({}),
    schedule: MemberSchedule | None = None,
) -> dict[str, object]:
    """What must be the same for a number to be the same example.

    `members`, in the order of the mixture `name`, are numbered. `rates` are those of all of its tasks. `cache_dirs` has the folder
    of each corpus's cache, if it is read. `others` are what tasks of another kind read, by their names. `schedule` has the rates
    of the stages of a run.
    """
    corpora = {name: corpus for name, corpus in _corpora(schedule.stages if schedule else [StageMembers(0, members)])}
    ordered = {each.name: each for each in numbering.corpora}
    told = {
        "numbered_version": NUMBERED_VERSION,
        "mixture": name,
        "tasks": {member.task: member.described for member in members},
        "rates": fractions(rates),
        "vocabulary": vocabulary_identity(members[0].vocabulary),
        "sequence_length": {key: as_python(length) for key, length in sequence_length.items()},
        "split": split,
        "corpora": {
            key: identity_of(corpus, cache_dirs[key] or "", split)
            if corpus.is_tokens or cache_dirs[key]
            else ordered[key].kind.identity
            for key, corpus in corpora.items()
        },
        "shuffle": shuffle,
        "seed": seed,
    }
    if sources := {key: reads(corpus.source, split) for key, corpus in corpora.items() if corpus.is_tokens} | dict(others):
        told["sources"] = sources
    if kinds := {key: own for key, each in ordered.items() if (own := dict(each.kind.described))}:
        told["kinds"] = kinds
    told |= of_rows(numbering)
    if schedule and schedule.weigh != "examples":
        told["weigh"] = schedule.weigh
    if schedule and schedule.max_epochs:
        told["max_epochs"] = dict(schedule.max_epochs)
    if schedule and schedule.steps:
        told["rates"] = _rates(schedule.stages[0])
        told["schedule"] = {"batch_size": schedule.steps.size(0), "stages": [_stage(each, schedule) for each in schedule.stages]}
        if lengths := schedule.stages[0].lengths:
            told["sequence_length"] = dict(lengths)  # whichever are asked for
    return told


def of_leaving_out(leaving_out: LeavingOut) -> dict[str, list]:
    """What a fingerprint says of what a run leaves out; `first` counts elements."""
    named = leaving_out.named
    lists: list = [{"first": 0, "list": leaving_out.identity, "entries": len(named.entries)}] if named.entries else []
    skips: list = [{"first": skip.first, "elements": skip.count} for skip in leaving_out.skips]
    return {key: value for key, value in zip(LEFT_OUT, (lists, skips)) if value}


def with_earlier_lists(record: Mapping[str, Any], told: Mapping[str, Any], element: int) -> dict[str, Any]:
    """What a run's record says once it is resumed at an element: each list of documents with the first element that it is for."""
    before = [each for each in record.get("exclude", []) if each["first"] < element]
    held = before[-1]["list"] if before else None
    now = [{**each, "first": element} for each in told.get("exclude", []) if each["list"] != held]
    return {**told, **({"exclude": lists} if (lists := before + now) else {})}


def compared(saved: Mapping[str, Any], now: Mapping[str, Any], element: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """What must be the same of what was saved and of what goes on at an element.

    Stages and skips that begin later may change, and the list of documents may have become longer.
    """
    before, after = (until(each, element) if {"schedule", "skip"} & {*saved, *now} else dict(each) for each in (saved, now))
    lists = [each.pop("exclude", [{"list": None, "entries": 0}])[-1] for each in (before, after)]
    if lists[1]["entries"] <= lists[0]["entries"] and lists[0]["list"] != lists[1]["list"]:
        before["exclude"], after["exclude"] = lists
    return before, after


def steps_of(record: Mapping[str, Any]) -> Steps:
    """The elements of each step of the run that a record is of, counted from its first."""
    return Steps.of_record({"batch_size": record["batch_size"] or 1, "stages": [{"first": 0}], **record.get("schedule", {})})


def until(told: Mapping[str, Any], element: int) -> dict[str, Any]:
    """What a fingerprint says of the elements before one, as JSON has it: nothing of the stages that begin later, or of what is
    skipped later.

    What has no schedule is a single stage. The name of a mixture decides nothing, so that a run of one corpus may get a schedule of
    several; that of a task decides its order.
    """
    whole = {"first": 0, "rates": told["rates"], "corpora": list(told["corpora"])}
    schedule = told.get("schedule", {"batch_size": 1, "stages": [whole]})
    begun = [stage for stage in schedule["stages"] if stage["first"] < max(1, element)]
    tasks, corpora = ({name for stage in begun for name in stage[key]} for key in ("rates", "corpora"))
    later = told["corpora"].keys() - corpora
    kept = {key: value for key, value in told.items() if key not in ("rates", "schedule")}
    kept["mixture"] = told["mixture"] if told["mixture"] in told["tasks"] else "any"
    kept["tasks"] = {name: value for name, value in told["tasks"].items() if name in tasks}
    for key in kept.keys() & {"corpora", "sources", "kinds", "max_epochs"}:
        kept[key] = {name: value for name, value in told[key].items() if name not in later}
        if not kept[key]:
            del kept[key]
    kept.pop("skip", None)
    if skips := [each for each in told.get("skip", []) if each["first"] < element]:
        kept["skip"] = skips
    steps = Steps.of_record(schedule)
    return kept | {f"{STAGE}{steps.step(stage['first'])}": stage for stage in begun}


def _corpora(stages: Sequence[StageMembers]) -> Iterator[tuple[str, Corpus]]:
    return ((member.corpus.name, member.corpus) for stage in stages for member in stage.members)


def _stage(stage: StageMembers, schedule: MemberSchedule) -> dict[str, object]:
    """With what is not as in the first stage: its lengths, its batch size."""
    told: dict[str, object] = {"first": stage.first, "rates": _rates(stage), "corpora": list(dict(_corpora([stage])))}
    if stage.lengths != schedule.stages[0].lengths:
        told["sequence_length"] = dict(stage.lengths or {})
    if schedule.steps and (size := schedule.steps.size(schedule.steps.step(stage.first))) != schedule.steps.size(0):
        told["batch_size"] = size
    return told


def _rates(stage: StageMembers) -> dict[str, float]:
    return fractions({member.task: member.rate for member in stage.members})


def of_rows(numbering: Numbering) -> dict[str, object]:
    """What a fingerprint says of how rows are packed, where elements are rows."""
    return {"rows_version": ROWS_VERSION} if numbering.packed else {}
