"""Which job writes into a folder: one alone takes it, before it changes anything there, and keeps it until it ends.

A job's claim is a file in the folder of records, `running`, that says where the job runs, and is rewritten while it does. The
claim that is made over that of a dead job is `running.1`, the next one `running.2`: of jobs that find the same dead claim, one
alone writes the file of the next number.

Whether a job is dead, the system tells where its process would be seen: in the same container of the same machine. Of any other
job the claim is watched until it is rewritten. Clocks of two machines are never compared.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pathlib
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping

from absl import logging

from ul2_tasks.files.atomic import removed_on_failure, write_atomically
from ul2_tasks.files.systems import exists, is_local, make_folders, names_in, place, remove, remove_tree
from ul2_tasks.jobs.manifest import load, load_object

STALE = 90.0  # seconds without a change after which a claim is that of a job that was killed; NFS shows files up to 60 s late
_AGAIN = 10.0  # seconds after which a job rewrites its own
_LOOK = 1.0  # seconds between looks at a claim that is watched
_SETTLED = 1.0  # seconds in which jobs that began at once have written theirs, where no file system says which came first
_TRIES = 100  # to write a claim: each time another job has just ended, or is writing that claim
_PAUSE = 0.02  # seconds between tries: in most file systems a file is there before it is listed, or all of it is
_NAME = re.compile(r"running(?:\.(\d+))?")
_WRITTEN = re.compile(r"running(\.\d+)?(\.[0-9a-f]{32}\.tmp)?")
_FORM = {"host": str, "system": str, "process": int, "begun": str, "written": int, "token": str}


@contextlib.contextmanager
def taken(records: str) -> Iterator[Callable[[], None]]:
    """Takes the folder of a job for the block, and makes it where there is none.

    Gives a function that raises a ValueError if the folder is no longer this job's: it did not run for a while, and another job has
    begun in the meantime. Itself it raises a ValueError where another job has the folder. It waits up to `STALE` seconds to see
    whether one runs whose process cannot be seen from here.
    """
    token = uuid.uuid4().hex
    own, dead = _claim(records, token)
    stop, lost = threading.Event(), threading.Event()

    def keep() -> None:
        for written in itertools.count(1):
            if stop.wait(_AGAIN):
                return
            with contextlib.suppress(Exception):  # of any file system; what a job writes says what is wrong with the folder
                if _is_lost(records, own, dead, token):
                    lost.set()
                    return
                write_atomically(place(records, own), _content(token, written), is_lasting=False)

    def check() -> None:
        if lost.is_set():
            _refuse_others(records, own, dead)
            raise ValueError(f"another job wrote into {records} while this one did not run for {STALE:.0f} s. Re-run the command.")

    keeper = threading.Thread(target=keep, name="keeper", daemon=True)
    keeper.start()
    try:
        yield check
    finally:
        stop.set()
        keeper.join()
        _release(records, own, is_lost=lost.is_set())


def is_claim(name: str) -> bool:
    """Whether a file of this name is a claim, or one that is being written."""
    return bool(_WRITTEN.fullmatch(name))


def _claim(records: str, token: str) -> tuple[str, list[str]]:
    """Writes a claim, and returns its name, and those of dead jobs."""
    for _ in range(_TRIES):
        try:
            numbers = _refuse_others(records)
            name, dead = _name(max(numbers, default=-1) + 1), [*map(_name, numbers)]
            make_folders(records)
            is_first = _create(place(records, name), token)
        except FileNotFoundError:  # a job that ends has removed the folder, or its claim; or one that begins is writing it again
            is_first = False
        if is_first:
            try:
                _refuse_others(records, name, dead)  # one that found no claim, because the last job was removing its own
            except ValueError:
                remove(place(records, name))
                raise
            return name, dead
        time.sleep(_PAUSE)
    raise ValueError(
        f"{records} must be a folder that keeps what is written, got one whose files were removed {_TRIES} times. Look for what"
        " removes files there, and re-run the command."
    )


def _create(path: str, token: str) -> bool:
    """Writes a claim where there is none of this name. Of jobs that do so at once, one is told that it did."""
    if is_local(path):
        temporary = f"{path}.{token}.tmp"
        with removed_on_failure(temporary, where=path), open(temporary, "w") as file:
            file.write(_content(token))
        try:
            os.link(temporary, path)  # never over another file, and never half a file
            return True
        except FileExistsError:
            return False
        except OSError:
            pass  # a file system without links
        finally:
            with contextlib.suppress(FileNotFoundError):  # a job that ends has removed it
                os.remove(temporary)
    if exists(path):
        return False
    write_atomically(path, _content(token))
    time.sleep(_SETTLED)
    return load(path).get("token") == token


def _content(token: str, written: int = 0) -> str:
    """What a claim says, which is another text each time that it is written."""
    process = os.getpid()
    owner = {"host": socket.gethostname(), "system": _system(), "process": process, "begun": _begun(process) or ""}
    return json.dumps({**owner, "written": written, "token": token})


def _numbers(records: str) -> list[int]:
    return [int(found[1] or 0) for name in names_in(records) if (found := _NAME.fullmatch(name))]


def _name(number: int) -> str:
    return f"running.{number}" if number else "running"


def _refuse_others(records: str, own: str | None = None, dead: Collection[str] = ()) -> list[int]:
    """Raises a ValueError where a job that runs has a claim other than this job's. Returns the numbers of all claims.

    `dead` are the names of those that are known to be dead jobs'. Without a claim of its own, it watches those of which it is not
    known, and raises a FileNotFoundError where one is gone; with one, it takes them for those of jobs that run.
    """
    numbers, unknown = _numbers(records), {}
    for name in map(_name, numbers):
        if name == own or name in dead:
            continue
        try:
            running = load_object(place(records, name), _FORM, "Delete the folder, and start again.")
        except FileNotFoundError:
            if own is None:
                raise
            continue  # it has just ended
        is_alive = _is_alive(running)
        if is_alive or (is_alive is None and own is not None):
            raise _is_taken(records, running)
        if is_alive is None:
            unknown[name] = running
    if unknown:
        hosts = sorted({running["host"] for running in unknown.values()})
        logging.warning("watching for %.0f s whether a job of %s still writes to %s", STALE, hosts, records)
    is_over, end = not unknown, time.monotonic() + STALE
    while not is_over:
        time.sleep(min(_LOOK, STALE))
        is_over = time.monotonic() > end  # before the last look: this process may have been stopped meanwhile
        for name, running in unknown.items():
            if load(place(records, name)) != running:
                raise _is_taken(records, running)
    return numbers


def _is_taken(records: str, running: Mapping) -> ValueError:
    return ValueError(
        f"another job (host {running['host']}, process {running['process']}) is writing to {records}. Wait for it, or stop it, and"
        " re-run this command, which resumes. See docs/help/troubleshooting.md#a-job-of-another-process."
    )


def _is_lost(records: str, own: str, dead: Collection[str], token: str) -> bool:
    try:
        _refuse_others(records, own, dead)
        return load(place(records, own)).get("token") != token
    except (ValueError, FileNotFoundError):
        return True


def _release(records: str, own: str, is_lost: bool) -> None:
    """Removes the claim, those of dead jobs below it, and then the folder, if nothing else is in it.

    A job that was killed while it wrote its claim has left a temporary file; one that is writing its own writes it again.
    """
    with contextlib.suppress(Exception):
        left = [] if is_lost else [name for name in names_in(records) if is_claim(name) and name.endswith(".tmp")]
        numbers = [] if is_lost else sorted(_numbers(records))
        for name in (*left, *map(_name, numbers)):
            remove(place(records, name))
            if name == own:
                break
        if is_local(records):
            os.rmdir(records)  # which fails where another job has written into it meanwhile
        elif not names_in(records):
            remove_tree(records)


def _is_alive(running: Mapping) -> bool | None:
    """Whether the process of a claim is there; None where it would not be seen from here."""
    if running["system"] != _system():
        return None
    try:
        os.kill(running["process"], 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    if not running["begun"]:
        return True
    begun = _begun(running["process"])
    return None if begun is None else begun == running["begun"]


def _system() -> str:
    """What has the numbers of processes that are seen here: the same text where the same number is the same process."""
    host = socket.gethostname()
    try:
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{host}, {boot}, {os.readlink('/proc/self/ns/pid')}"
    except OSError:  # not Linux
        return f"{host}, {uuid.getnode():x}"


def _begun(process: int) -> str | None:
    """When a process began, in ticks since the machine did; empty of one that has ended, None where it is not told."""
    try:
        if os.readlink("/proc/self") != str(os.getpid()):  # the numbers there are those of another container
            return None
        state, *others = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return "" if state in "ZX" else others[18]
