"""Machine code that cannot be kept: it is made anew."""

import importlib
import os
import pathlib
import runpy
import signal
import sys
import threading

import numpy as np
import pytest
from numba.core.compiler_lock import global_compiler_lock

from ul2_tasks.compiled import compiled

DOUBLE = """
def double(values, doubled):
    for place in range(len(values)):
        doubled[place] = 2 * values[place]
    return len(values)
"""


def doubles(double):
    values, doubled = np.arange(5), np.zeros(5, np.int64)
    return double(values, doubled) == 5 and doubled.tolist() == [0, 2, 4, 6, 8]


def function_in(folder: pathlib.Path):
    path = folder / "double.py"
    path.write_text(DOUBLE)
    return runpy.run_path(str(path))["double"]


def test_where_the_folder_cannot_be_written_any_more_it_runs(tmp_path):
    double = compiled(function_in(tmp_path))
    assert doubles(double)
    for path in (tmp_path / "__pycache__").iterdir():
        path.unlink()
    (tmp_path / "__pycache__").rmdir()
    (tmp_path / "__pycache__").write_text("a file in the folder's place")
    assert double(np.arange(5.0), np.zeros(5)) == 5
    assert doubles(double)


@pytest.mark.parametrize("suffix", ["nbc", "nbi"])
@pytest.mark.parametrize("kept", [b"", b"torn"], ids=["empty", "torn"])
def test_what_was_kept_is_compiled_anew_where_it_is_torn(tmp_path, suffix, kept):
    function = function_in(tmp_path)
    assert doubles(compiled(function))
    for path in (tmp_path / "__pycache__").glob(f"*.{suffix}"):
        path.write_bytes(kept)
    assert doubles(compiled(function))


RULE = """
from ul2_tasks.compiled import part_of_compiled

FACTORS, STEP = (1, 3), 0

def plain(value):
    return value + 7

@part_of_compiled
def rule(value):
    return value * 1

@part_of_compiled
def outer(value):
    return rule(value) + STEP
"""
USER = """
import rule_of_others
from ul2_tasks.compiled import compiled, part_of_compiled
from rule_of_others import FACTORS, outer, plain

added = part_of_compiled(plain)

@compiled
def of_all(values):
    total = 0
    for value in values:
        total += outer(value) * FACTORS[1] + added(value) + rule_of_others.FACTORS[0]
    return total
"""


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("value * 1", "value * 5", 2 * 5 * 3 + 9 + 1),
        ("STEP = (1, 3), 0", "STEP = (1, 3), 4", (2 + 4) * 3 + 9 + 1),
        ("(1, 3)", "(1, 5)", 2 * 5 + 9 + 1),
        ("(1, 3)", "(6, 3)", 2 * 3 + 9 + 6),
        ("value + 7", "value + 8", 2 * 3 + 10 + 1),
    ],
    ids=["a function", "a constant of a function", "a constant", "a constant of a module", "a function that is compiled there"],
)
def test_what_was_kept_is_old_once_a_file_changes_that_it_uses(tmp_path, monkeypatch, before, after, expected):
    """Though its own file has not changed, and the other has the same size and time."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "user_of_rules.py").write_text(USER)

    def found(rule: str) -> int:
        (tmp_path / "rule_of_others.py").write_text(rule)
        os.utime(tmp_path / "rule_of_others.py", (0, 0))
        for name in ("rule_of_others", "user_of_rules"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        importlib.invalidate_caches()
        return importlib.import_module("user_of_rules").of_all(np.array([2]))

    def kept() -> list:
        return [*(tmp_path / "__pycache__").glob("*.nbc")]

    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # which would be of that size and time, too
    assert found(RULE) == 2 * 3 + 9 + 1
    times = [path.stat().st_mtime_ns for path in kept()]
    assert found(RULE) == 2 * 3 + 9 + 1
    assert [path.stat().st_mtime_ns for path in kept()] == times != [], "it was read, and not compiled again"
    assert found(RULE.replace(before, after)) == expected


def test_a_process_that_is_forked_while_another_thread_compiles_does_not_wait_for_it(tmp_path):
    compiling, may_end = threading.Event(), threading.Event()

    def compile_for_long():
        with global_compiler_lock:
            compiling.set()
            may_end.wait(30)

    thread = threading.Thread(target=compile_for_long)
    thread.start()
    compiling.wait(30)
    threading.Timer(0.2, may_end.set).start()  # the fork waits for it
    child = os.fork()
    if not child:
        signal.alarm(60)
        status = 1
        try:
            status = 0 if doubles(compiled(function_in(tmp_path))) else 1
        finally:
            os._exit(status)
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
