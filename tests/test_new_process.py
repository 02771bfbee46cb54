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


def test_it_is_killed_and_what_hangs_is_killed():
    program = new_process.Program(["-c", "import time; time.sleep(1000)"])
    assert program.poll() is None
    program.send_signal(signal.SIGTERM)
    assert program.wait() == -signal.SIGTERM
    with pytest.raises(subprocess.TimeoutExpired):
        new_process.run("-c", "import time; time.sleep(1000)", timeout=0.5)
