"""A program that `new_process` runs is what Python would make of it in a process of its own."""

import json
import os
import signal
import subprocess
import sys

import new_process
import pytest

TELLS = """
import json, os, sys
is_main = __name__ == "__main__" and vars(sys.modules["__main__"]) is globals()
print(json.dumps([sys.argv, sys.path, os.getcwd(), os.environ.get("OF_ITS_OWN"), is_main]))
"""


@pytest.mark.parametrize("kind", ["-c", "-m", "script"])
def test_it_has_the_arguments_path_folder_and_environment_of_a_process_of_python(tmp_path, kind):
    (tmp_path / "told.py").write_text(TELLS)
    program = {"-c": ["-c", TELLS], "-m": ["-m", "told"], "script": [str(tmp_path / "told.py")]}[kind]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(["/one", "/two"]), "OF_ITS_OWN": "it"}
    settings = {"cwd": tmp_path, "env": environment}
    wanted = subprocess.run([sys.executable, *program, "a", "b"], capture_output=True, text=True, check=True, **settings)
    assert json.loads(new_process.run(*program, "a", "b", **settings).stdout) == json.loads(wanted.stdout)


def test_what_one_registers_the_next_has_not():
    program = "import seqio, ul2_tasks; print(len(seqio.TaskRegistry.names())); ul2_tasks.register('of_a_new_process')"
    assert new_process.run("-c", program).stdout == new_process.run("-c", program).stdout == "6\n"


@pytest.mark.parametrize("torn_down", [False, True])
def test_its_end_is_pythons(torn_down):
    program = "import atexit, sys; atexit.register(print, 'the end'); print('told', file=sys.stderr); sys.exit(3)"
    done = new_process.run("-c", program, torn_down=torn_down)
    assert (done.returncode, done.stdout, done.stderr) == (3, "the end\n", "told\n")
    said = new_process.run("-c", "import sys; sys.exit('why')", torn_down=torn_down)
    assert (said.returncode, said.stderr) == (1, "why\n")
    failed = new_process.run("-c", "1 / 0", torn_down=torn_down)
    assert failed.returncode == 1
    assert failed.stderr.endswith("ZeroDivisionError: division by zero\n")
    with pytest.raises(AssertionError, match="division by zero"):
        new_process.run("-c", "1 / 0", check=True)


@pytest.mark.parametrize("torn_down", [False, True])
def test_its_objects_are_torn_down_where_that_is_asked_for(torn_down):
    program = """
import os, threading, time
class Kept:
    def __del__(self, write=os.write):  # sys.stdout may be gone by then
        write(1, b"torn down\\n")
kept = Kept()
threading.Thread(target=lambda: (time.sleep(0.2), print("a thread has ended"))).start()
"""
    done = new_process.run("-c", program, torn_down=torn_down)
    assert done.stdout == "a thread has ended\n" + "torn down\n" * torn_down


def test_it_is_killed_and_what_hangs_is_killed():
    program = new_process.Program(["-c", "import time; time.sleep(1000)"])
    assert program.poll() is None
    program.send_signal(signal.SIGTERM)
    assert program.wait() == -signal.SIGTERM
    with pytest.raises(subprocess.TimeoutExpired):
        new_process.run("-c", "import time; time.sleep(1000)", timeout=0.5)


def test_a_program_may_start_others(tmp_path):
    """In a folder of its own, and without what was registered in the one that starts it."""
    program = """
import subprocess, sys, ul2_tasks
sys.executable = sys.argv[1]
ul2_tasks.register("of_the_first")
told = "import os, seqio, sys; print(os.getcwd(), sys.argv, len(seqio.TaskRegistry.names())); sys.exit(3)"
done = subprocess.run([sys.executable, "-c", told, "a b"], cwd=sys.argv[2], capture_output=True, text=True)
print(done.returncode, done.stdout, end=done.stderr)
"""
    done = new_process.run("-c", program, new_process.executable(tmp_path), tmp_path, check=True)
    assert done.stdout == f"3 {tmp_path} ['-c', 'a b'] 6\n"


def test_its_hashes_are_others_than_those_of_the_tests():
    assert new_process.run("-c", "print(hash('a'))").stdout != f"{hash('a')}\n"
