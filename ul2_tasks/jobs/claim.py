"""Which job writes into a folder: one alone takes it, before it changes anything there, and keeps it until it ends.

A job's claim is a file in the folder of records, `running`, that says where the job runs, and is rewritten while it does. The
claim that is made over that of a dead job is `running.1`, the next one `running.2`: of jobs that find the same dead claim, one
alone writes the file of the next number.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator

from ul2_tasks.files.atomic import removed_on_failure, write_atomically
from ul2_tasks.files.systems import exists, is_local, make_folders, names_in, place, remove, remove_tree
from ul2_tasks.jobs.manifest import load, load_object

STALE = 60.0  # seconds after which a claim is that of a job that was killed
_AGAIN = STALE / 6  # seconds after which a job rewrites its own
_SETTLED = 1.0  # seconds in which jobs that began at once have written theirs, where no file system says which came first
_TRIES = 100  # to write a claim: each time another job has just ended, or is writing that claim
_PAUSE = 0.02  # seconds between tries: in most file systems a file is there before it is listed, or all of it is
_NAME = re.compile(r"running(?:\.(\d+))?")
_WRITTEN = re.compile(r"running(\.\d+)?(\.[0-9a-f]{32}\.tmp)?")
_FORM = {"host": str, "process": int, "time": int | float}


@contextlib.contextmanager
def taken(records: str) -> Iterator[Callable[[], None]]:
    """Takes the folder of a job for the block, and makes it where there is none.

    Gives a function that raises a ValueError if the folder is no longer this job's: it did not run for a minute, and another job
    has begun in the meantime. Itself it raises a ValueError where another job has the folder; one on this machine that was killed
    is known at once.
    """
    token = uuid.uuid4().hex
    own = _claim(records, token)
    stop, lost = threading.Event(), threading.Event()

    def keep() -> None:
        while not stop.wait(_AGAIN):
            with contextlib.suppress(Exception):  # of any file system; what a job writes says what is wrong with the folder
                if _is_lost(records, own, token):
                    lost.set()
                    return
                write_atomically(place(records, own), _content(token))

    def check() -> None:
        if lost.is_set():
            _refuse_others(records, own)
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


def _claim(records: str, token: str) -> str:
    """Writes a claim, and returns its name."""
    for _ in range(_TRIES):
        try:
            name = _name(max(_refuse_others(records), default=-1) + 1)
            make_folders(records)
            is_first = _create(place(records, name), token)
        except FileNotFoundError:  # a job that ends has removed the folder, or its claim; or one that begins is writing it again
            is_first = False
        if is_first:
            try:
                _refuse_others(records, name)  # one that found no claim, because the last job was removing its own
            except ValueError:
                remove(place(records, name))
                raise
            return name
        time.sleep(_PAUSE)
    raise ValueError(
        f"{records} must be a folder that keeps what is written, got one whose files were removed {_TRIES} times. Look for what"
        " removes files there, and re-run the command."
    )


def _create(path: str, token: str) -> bool:
    """Writes a claim where there is none of this name. Of jobs that do so at once, one is told that it did."""
    if is_local(path):
        temporary = f"{path}.{token}.tmp"
        with removed_on_failure(temporary), open(temporary, "w") as file:
            file.write(_content(token))
        try:
            os.link(temporary, path)  # never over another file, and never half a file
            return True
        except FileExistsError:
            return False
        except OSError:
            pass  # a file system without links
        finally:
            os.remove(temporary)
    if exists(path):
        return False
    write_atomically(path, _content(token))
    time.sleep(_SETTLED)
    return load(path).get("token") == token


def _content(token: str) -> str:
    return json.dumps({"host": socket.gethostname(), "process": os.getpid(), "time": time.time(), "token": token})


def _numbers(records: str) -> list[int]:
    return [int(found[1] or 0) for name in names_in(records) if (found := _NAME.fullmatch(name))]


def _name(number: int) -> str:
    return f"running.{number}" if number else "running"


def _refuse_others(records: str, own: str | None = None) -> list[int]:
    """Raises a ValueError where a job that runs has a claim other than this job's. Returns the numbers of all claims.

    Without a claim of its own, raises a FileNotFoundError where another one is gone before it is read.
    """
    numbers = _numbers(records)
    for name in map(_name, numbers):
        if name == own:
            continue
        try:
            running = load_object(place(records, name), _FORM, "Delete the folder, and start again.")
        except FileNotFoundError:
            if own is None:
                raise
            continue  # it has just ended
        age = time.time() - running["time"]
        is_here = running["host"] == socket.gethostname()
        if age < STALE and not (is_here and not _is_alive(running["process"])):
            raise ValueError(
                f"another job (host {running['host']}, process {running['process']}, active {age:.0f} s ago) is writing to"
                f" {records}. Wait for it, or stop it; if it was killed, re-run this command in {STALE:.0f} s and it resumes. See"
                " docs/help/troubleshooting.md#a-job-of-another-process."
            )
    return numbers


def _is_lost(records: str, own: str, token: str) -> bool:
    try:
        _refuse_others(records, own)
        return load(place(records, own)).get("token") != token
    except (ValueError, FileNotFoundError):
        return True


def _release(records: str, own: str, is_lost: bool) -> None:
    """Removes the claim, those of dead jobs below it, and then the folder, if nothing else is in it."""
    with contextlib.suppress(Exception):
        numbers = [] if is_lost else sorted(_numbers(records))
        for name in map(_name, numbers):
            remove(place(records, name))
            if name == own:
                break
        if is_local(records):
            os.rmdir(records)  # which fails where another job has written into it meanwhile
        elif not names_in(records):
            remove_tree(records)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
