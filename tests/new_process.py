"""Python programs in new processes that need not import TensorFlow, SeqIO and this package again.

A server imports them when the first program is started, and forks a process for each, before TensorFlow has run anything.
The process then is what `python ARGUMENTS` would make of it: its own arguments, folder, environment, search path, output,
registries, exit status and end: Python waits for threads, and calls what `atexit` has. What comes after that, tearing down a
million objects, takes most of a second, and is done for the programs of which it is asked.

What a program of the server cannot show, and needs `subprocess` for: what an import opens, prints, needs or takes; what
another variable does that Python or TensorFlow reads when it starts. All have the hash seed of the server, which is not that of
the tests.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import pathlib
import runpy
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections.abc import Sequence

PRELOADED = (
    "tensorflow",
    "seqio",
    "torch",
    "apache_beam",
    "ul2_tasks.corpus.build_cache",
    "ul2_tasks.tasks.registry",
    "ul2_tasks.mixtures.examples",
    "ul2_tasks.t5x.dataset",
    "ul2_tasks.cli.commands",
)
ATTRIBUTES: dict[str, object] = {}  # of preloaded modules, by full name: other values in the programs that are started from now on
TESTS = pathlib.Path(__file__).parent
FOLDERS = [str(path) for path in (TESTS, *sorted(TESTS.glob("[a-z]*/")))]  # what a program needs on its path to import a test
HASH_SEED = "1"
SHARED = "UL2_TESTS_NEW_PROCESS"  # a variable that names the socket of a server that is there already
# A command whose worker processes are started by its first argument, see `executable`.
AS_A_SCRIPT = "import sys; sys.path.remove(''); sys.executable = sys.argv.pop(1); from ul2_tasks.cli import main; main()"
OUTPUT = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


class Program:
    """A program that was started; a few methods of `subprocess.Popen`, and `stdout` and `stderr` as text when it has ended."""

    def __init__(self, arguments: Sequence[object], cwd: object = None, env: dict[str, str] | None = None, torn_down: bool = False):
        self.args = [sys.executable, *map(str, arguments)]
        self.returncode: int | None = None
        self._folder = tempfile.TemporaryDirectory()
        self._outputs = [os.path.join(self._folder.name, name) for name in ("stdout", "stderr")]
        for path in self._outputs:
            pathlib.Path(path).touch()  # it may be killed before it has opened them
        started = {"arguments": self.args[1:], "cwd": str(cwd or os.getcwd()), "env": dict(os.environ if env is None else env)}
        self.pid = _ask({**started, "outputs": self._outputs, "attributes": ATTRIBUTES, "torn_down": torn_down})

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = _ask({"pid": self.pid})
        return self.returncode

    def wait(self, timeout: float = 600) -> int:
        """Its exit status; one that takes longer is killed."""
        began = time.monotonic()
        while self.poll() is None:
            waited = time.monotonic() - began
            if waited > timeout:
                self.kill()
                raise subprocess.TimeoutExpired(self.args, timeout, *self._read())
            time.sleep(min(0.01 + waited / 20, 0.2))
        self.stdout, self.stderr = self._read()
        self._folder.cleanup()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(9)

    def _read(self) -> tuple[str, str]:
        return tuple(pathlib.Path(path).read_text() for path in self._outputs)


def run(
    *arguments: object,
    cwd: object = None,
    env: dict[str, str] | None = None,
    check: bool = False,
    timeout: float = 600,
    torn_down: bool = False,
) -> subprocess.CompletedProcess:
    """As `subprocess.run([sys.executable, *arguments], ..)` with text that is captured, and no input."""
    program = Program(arguments, cwd, env, torn_down)
    status = program.wait(timeout)
    done = subprocess.CompletedProcess(program.args, status, program.stdout, program.stderr)
    if check and status:
        raise AssertionError(f"{program.args} ended with status {status}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done


def executable(folder: pathlib.Path) -> str:
    """For `sys.executable` in a program that starts others: a file in a folder that runs its arguments as `run` does."""
    path = folder / "python"
    path.write_text(f"""#!{sys.executable}
import sys
sys.path.append({str(TESTS)!r})
import new_process
new_process.address, new_process.ATTRIBUTES = (lambda: {address()!r}), {ATTRIBUTES!r}
done = new_process.run(*sys.argv[1:])
print(done.stdout, end="")
print(done.stderr, end="", file=sys.stderr)
sys.exit(done.returncode)
""")
    path.chmod(0o755)
    return str(path)


@functools.cache
def address() -> str:
    """The server's socket. Without a server that is shared, this process starts one, which ends with it."""
    if SHARED in os.environ:
        return os.environ[SHARED]
    folder = tempfile.mkdtemp()
    path = os.path.join(folder, "socket")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {"PYTHONHASHSEED": HASH_SEED}
        command = [sys.executable, __file__, str(listener.fileno())]
        server = subprocess.Popen(command, env=environment, stdin=-1, stdout=2, pass_fds=[listener.fileno()])
    atexit.register(shutil.rmtree, folder)
    atexit.register(server.communicate)  # it ends with its input
    return path


def _ask(request: dict) -> int | None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address())
        connection.sendall(json.dumps(request).encode())
        connection.shutdown(socket.SHUT_WR)
        return json.load(connection.makefile())


def _serve(listener: socket.socket) -> dict:
    """Starts programs, and says which have ended; returns in the process of a program, with what it was asked to run."""
    wait = functools.partial(select.select, [sys.stdin, listener], [], [])
    if wait()[0] != [listener]:  # the tests are over, and none has started a program
        sys.exit()
    gc.set_threshold(1_000_000)  # as in the process of the tests: see conftest.py
    for name in PRELOADED:
        with contextlib.suppress(ImportError):  # an extra that is not installed
            importlib.import_module(name)
    gc.freeze()
    while wait()[0] == [listener]:
        connection, _ = listener.accept()
        with connection, connection.makefile("rw") as stream:
            request = json.load(stream)
            if "pid" in request:
                pid, status = os.waitpid(request["pid"], os.WNOHANG)
                reply = os.waitstatus_to_exitcode(status) if pid else None
            else:
                reply = os.fork()
                if reply == 0:
                    listener.close()
                    return request
            json.dump(reply, stream)
    sys.exit()


def _become(started: dict, search_path: Sequence[str]) -> None:
    """Runs a program in this process, as Python would from its command line."""
    stdout, stderr = started["outputs"]
    for path, flags, descriptor in ((os.devnull, os.O_RDONLY, 0), (stdout, OUTPUT, 1), (stderr, OUTPUT, 2)):
        os.dup2(os.open(path, flags), descriptor)
    os.chdir(started["cwd"])
    for name, value in started["attributes"].items():
        module, attribute = name.rsplit(".", 1)
        setattr(sys.modules[module], attribute, value)
    os.environ.clear()
    os.environ.update(started["env"])
    what, *rest = started["arguments"]
    first = {"-c": "", "-m": started["cwd"]}.get(what, os.path.dirname(what))
    sys.path[:] = [first, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), *search_path]
    if what == "-m":
        sys.argv[:] = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        return
    code = rest.pop(0) if what == "-c" else pathlib.Path(what).read_text()
    sys.argv[:] = [what, *rest]
    sys.modules["__main__"] = main = types.ModuleType("__main__")
    if what != "-c":
        main.__file__ = what
    exec(compile(code, what, "exec"), main.__dict__)


def _end(status: int) -> None:
    """Ends this process as Python does, but that nothing is torn down."""
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status)


if __name__ == "__main__":
    installed = sys.path[1:]
    sys.path[0] = str(pathlib.Path(__file__).parent.parent)
    program = _serve(socket.socket(fileno=int(sys.argv[1])))
    code: object = None
    try:
        _become(program, installed)
    except SystemExit as end:
        code = end.code
        if not isinstance(code, int | None):
            raise
    if program["torn_down"]:
        sys.exit(code)
    _end(code or 0)
