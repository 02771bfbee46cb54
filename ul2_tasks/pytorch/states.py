"""States of datasets: what is in one, and whether it is of the dataset that loads it. They come from files, and from others."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from ul2_tasks.random_access.fingerprint import LEFT_OUT, STAGE, compared
from ul2_tasks.scalars import is_integer
from ul2_tasks.version import check_version

STATE_VERSION = 2
CHECKPOINT = "iterator"
ANOTHER = "the state was saved by another pipeline"
REMEDY = (
    "Load it into one with the settings of the saved one, or start from the beginning. See"
    " docs/help/troubleshooting.md#the-iterator-is-rejected."
)
OF_STREAMS = ("shard", "batch_size")  # what is compared of streams alone: by a number any of them go on
_CHECKPOINT_FILE = re.compile(rf"{CHECKPOINT}\.(index|data-\d{{5}}-of-\d{{5}})")


def state_of(place: Mapping[str, Any]) -> dict[str, Any]:
    """A state of `UL2IterableDataset`."""
    return {"version": STATE_VERSION, **place}


def check_state(state: object, version: int) -> None:
    """Raises a ValueError if this is no state of a dataset, or one of another version."""
    if not isinstance(state, Mapping):
        raise ValueError(f"state must be what state_dict() returned, got {state!r:.100}.")
    check_version("the state", state.get("version"), version, "Start from the beginning.")


def check_part(name: str, value: object, valid: bool, expected: str) -> None:
    """Raises a ValueError if a part of a state is not what a dataset writes there."""
    if not valid:
        raise ValueError(
            f"the state's {name} must be {expected}, got {value!r:.100}. Pass what state_dict() returned, or start from the"
            " beginning."
        )


def check_form(state: Mapping[str, Any]) -> None:
    """Raises a ValueError if a state of this version has not the parts that `UL2IterableDataset.state_dict` names."""
    pipeline, number, snapshot = state.get("pipeline"), state.get("number"), state.get("snapshot")
    given: Any = state.get("given", 0 if "number" in state else None)
    check_part("pipeline", pipeline, isinstance(pipeline, Mapping), "its settings by name")
    if "number" in state:
        check_part("number", number, is_integer(number, at_least=0) and number < 2**63, "the index of an example, 0 or more")
    check_part("given", given, is_integer(given, at_least=0), "how many examples were given, 0 or more")
    if snapshot is None:
        return
    check_part("snapshot", snapshot, isinstance(snapshot, Mapping), "None, or {'given': int, 'files': {name: bytes}}")
    before, files = snapshot.get("given"), snapshot.get("files")
    check_part("snapshot's given", before, is_integer(before, at_least=1) and before <= given, f"1 to {given}")
    check_part("snapshot's files", files, isinstance(files, Mapping), "bytes by name")
    for name, content in files.items():  # they are written into a folder
        check_part("file", name, isinstance(name, str) and bool(_CHECKPOINT_FILE.fullmatch(name)), "a checkpoint's name")
        check_part(f"file {name}", content, isinstance(content, bytes), "bytes")


def check_same(saved: Mapping[str, Any], present: Mapping[str, Any], may_lack: Collection[str] = ()) -> None:
    """Raises a ValueError that says what differs between a pipeline that was saved and the one here."""
    compared = [key for key in present if key in saved or key not in may_lack]
    different = [f"{key} was {saved.get(key)!r}, is {present[key]!r}" for key in compared if saved.get(key) != present[key]]
    if different:
        raise ValueError(f"{ANOTHER}: {'; '.join(different)}. {REMEDY}")


def number_of(state: Mapping[str, Any], pipeline: Mapping[str, Any], first: int = 0) -> int:
    """The number that a state of indexed examples is at, which is of the same pipeline; `first` where it is of before them."""
    # A state of before the first example names a shard, and has no fingerprint. One worker alone is not named.
    saved = state["pipeline"]
    if "corpora" in saved:  # which say what is read; from where it is asked for makes no difference
        pipeline = {key: value for key, value in pipeline.items() if key != "use_cached"}
    number = state.get("number", first)
    if "corpora" in saved:
        before, now = compared(saved, json.loads(json.dumps(pipeline)), number)
        gone = dict.fromkeys(key for key in before if key.startswith(STAGE) or key in LEFT_OUT)
        check_same(before, gone | now, may_lack={"workers"})
        return number
    check_same(saved, pipeline, may_lack=pipeline if "shard" in saved else {"workers"})
    if state.get("given"):
        raise ValueError(f"{ANOTHER}: the state is of a stream, and here examples have random access. {REMEDY}")
    return number
