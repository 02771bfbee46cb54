"""States of datasets: what is in one, and whether it is of the dataset that loads it. They come from files, and from others."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from ul2_tasks.random_access.fingerprint import LEFT_OUT, STAGE, compared
from ul2_tasks.scalars import is_integer
from ul2_tasks.version import check_version

STATE_VERSION = 3
ANOTHER = "the state was saved by another pipeline"
REMEDY = (
    "Load it into one with the settings of the saved one, or start from the beginning. See"
    " docs/help/troubleshooting.md#the-iterator-is-rejected."
)


def state_of(place: Mapping[str, Any]) -> dict[str, Any]:
    """A state of a dataset."""
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
    """Raises a ValueError if a state of this version has not the parts that `Resumable.state_dict` names."""
    check_part("pipeline", state.get("pipeline"), isinstance(state.get("pipeline"), Mapping), "its settings by name")
    windows, number = state.get("windows"), state.get("number")
    for name, least in (("epoch", 0), ("start", 0), ("readers", 1)):
        is_right = name not in state or is_integer(state[name], at_least=least)
        check_part(name, state.get(name), is_right, f"an integer, {least} or more")
    for step, weights in state.get("stages", ()):
        is_right = is_integer(step, at_least=0) and isinstance(weights, Mapping)
        check_part("stages", [step, weights], is_right, "a first step and weights by corpus, each")
    if windows is None:
        check_part("number", number, is_integer(number, at_least=0) and number < 2**63, "the index of an example, 0 or more")
    else:
        are_counts = isinstance(windows, list | tuple) and all(is_integer(each, at_least=0) for each in windows)
        check_part("windows", windows, are_counts and len(windows) > 0, "integers of 0 or more")
        check_part("number", number, number is None, "left out of what is read in windows: pass ul2_tasks.examples(..) to have it")


def check_same(saved: Mapping[str, Any], present: Mapping[str, Any], may_lack: Collection[str] = ()) -> None:
    """Raises a ValueError that says what differs between a pipeline that was saved and the one here."""
    compared = [key for key in present if key in saved or key not in may_lack]
    different = [f"{key} was {saved.get(key)!r}, is {present[key]!r}" for key in compared if saved.get(key) != present[key]]
    if different:
        raise ValueError(f"{ANOTHER}: {'; '.join(different)}. {REMEDY}")


def check_resumed(state: Mapping[str, Any], present: Mapping[str, Any]) -> None:
    """Raises a ValueError where a state is not of the pipeline of another one, or no place in it."""
    # Corpora say what is read; from where it is asked for makes no difference. One worker alone is not named.
    pipeline = {key: value for key, value in present["pipeline"].items() if key != "use_cached"}
    element = state["windows"][0] if "windows" in state else state["number"]
    before, now = compared(state["pipeline"], json.loads(json.dumps(pipeline)), element)
    gone = dict.fromkeys(key for key in before if key.startswith(STAGE) or key in LEFT_OUT)
    check_same(before, gone | now, may_lack={"workers"})
    if len(state.get("windows", ())) != len(present.get("windows", ())):
        raise ValueError(f"{ANOTHER}: other corpora are read in windows. {REMEDY}")
