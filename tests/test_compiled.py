"""Machine code that cannot be kept: it is made anew."""

import os
import pathlib
import runpy
import signal
import threading

import numpy as np
import pytest
from numba.core.compiler_lock import global_compiler_lock

from ul2_tasks.compiled import compiled, part_of_compiled

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


def test_it_is_kept_beside_its_file(tmp_path):
    double = compiled(function_in(tmp_path))
    assert doubles(double)
    assert list((tmp_path / "__pycache__").glob("double.double-*.nbc"))


def test_a_function_without_a_file_is_compiled_in_each_process():
    found = {}
    exec(DOUBLE, found)
    assert doubles(compiled(found["double"]))


def test_where_the_folder_cannot_be_written_any_more_it_runs(tmp_path):
    double = compiled(function_in(tmp_path))
    for path in (tmp_path / "__pycache__").iterdir():
        path.unlink()
    (tmp_path / "__pycache__").rmdir()
    (tmp_path / "__pycache__").write_text("a file in the folder's place")
    assert doubles(double)
    assert doubles(double)


@pytest.mark.parametrize("suffix", ["nbc", "nbi"])
@pytest.mark.parametrize("kept", [b"", b"torn"], ids=["empty", "torn"])
def test_what_was_kept_is_compiled_anew_where_it_is_torn(tmp_path, suffix, kept):
    function = function_in(tmp_path)
    assert doubles(compiled(function))
    for path in (tmp_path / "__pycache__").glob(f"*.{suffix}"):
        path.write_bytes(kept)
    assert doubles(compiled(function))


def test_its_parts_are_compiled_with_it(tmp_path):
    @part_of_compiled
    def twice(value):
        return 2 * value

    def double(values):
        return twice(values[0])

    assert compiled(double)(np.array([4])) == 8


def test_it_is_still_the_function_that_was_written(tmp_path):
    written = function_in(tmp_path)
    assert compiled(written).__name__ == "double"
    assert doubles(compiled(written).__wrapped__)


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
