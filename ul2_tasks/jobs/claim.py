"""Which job writes into a folder: one alone takes it, before it changes anything there, and keeps it until it ends.

A job's claim is a file in the folder of records, `running`, which it rewrites while it runs. The claim that is made over that of a
dead job is `running.1`, the next one `running.2`: the last one has the folder. Of jobs that find the same dead claim, one alone
creates the file of the next number.

Several processes may write a folder together, each its own part: part 3 of 8 claims `part-3-of-8` in the same way. No part runs
beside a job that has the whole folder, nor beside one of another number of parts.

A job keeps its claim locked, or for one in an object store a temporary file, so that on the same machine the system tells whether
it is dead. On another one, or where the lock cannot be seen, the claim is watched until it is rewritten. Clocks of two machines are
never compared.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import logging
import os
import pathlib
import re
import socket
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from ul2_tasks.files.atomic import removed_on_failure
from ul2_tasks.files.systems import exists, is_local, make_folders, names_in, open_to_write, place, read, remove, remove_tree

_logger = logging.getLogger(__name__)
STALE = 90.0  # seconds without a change after which a claim is that of a job that was killed; NFS shows files up to 60 s late
_AGAIN = 10.0  # seconds after which a job rewrites its own
_LOOK = 1.0  # seconds between looks at a claim that is watched
_SETTLED = 1.0  # seconds in which jobs that began at once have written theirs, where no file system says which came first
_TRIES = 100  # to create a claim: each time another job has just begun or ended
_PAUSE = 0.02  # seconds between tries
WHOLE = "running"
_NAME = re.compile(r"(running|part-\d+-of-(\d+))(?:\.(\d+))?")


@contextlib.contextmanager
def taken(records: str, name: str = WHOLE) -> Iterator[Callable[[], None]]:
    """Takes the folder of a job, or a part of it, see `part_name`, for the block, and makes it where there is none.

    Gives a function that raises a ValueError if the folder is no longer this job's: it did not run for a while, and another job has
    begun in the meantime. Itself it raises a ValueError where another job has the folder. It waits up to `STALE` seconds to see
    whether one runs that does not say so by a lock.
    """
    claim: dict[str, Any] = {"host": socket.gethostname(), "process": os.getpid(), "token": uuid.uuid4().hex}
    stop, lost = threading.Event(), threading.Event()
    with contextlib.ExitStack() as files:
        try:
            own = _take(records, name, claim, files)
            _clear(records, name, own, claim["lock"])
        except BaseException:
            if not is_local(records):
                with contextlib.suppress(OSError):
                    os.remove(claim.get("lock", ""))
            raise

        def keep() -> None:
            for beat in itertools.count(1):
                if stop.wait(_AGAIN):
                    return
                with contextlib.suppress(Exception):  # of any file system; what a job writes says what is wrong with the folder
                    found = _claims(records, name)
                    if max(found, default=-1) != own or claim["token"].encode() not in found[own]:
                        lost.set()
                        return
                    _write(_path(records, name, own), {**claim, "beat": beat})

        def check() -> None:
            if lost.is_set():
                raise ValueError(f"another job took {records}, as this one did not run for {STALE:.0f} s. Re-run the command.")

        keeper = threading.Thread(target=keep, name="keeper", daemon=True)
        keeper.start()
        try:
            yield check
        finally:
            stop.set()
            keeper.join()
            _release(records, name, -1 if lost.is_set() else own, claim["lock"])


def part_name(number: int, of: int) -> str:
    """The name of the claims of a part, from 0, of so many."""
    return f"part-{number}-of-{of}"


def is_claim(name: str) -> bool:
    """Whether a file of this name is a claim."""
    return bool(_NAME.fullmatch(name))


def _take(records: str, name: str, claim: dict[str, Any], files: contextlib.ExitStack) -> int:
    """Creates the claim that has the folder, or the part, and returns its number. `files` are those that stay open."""
    for _ in range(_TRIES):
        with contextlib.suppress(FileNotFoundError):  # a job that ends has removed the folder, or its claim
            before = _claims(records, name)
            own = max(before, default=-1) + 1
            if before:
                _refuse_living(_path(records, name, own - 1), before[own - 1])
            make_folders(records)
            if _create(_path(records, name, own), claim, files):
                if {number: found for number, found in _claims(records, name).items() if number != own} == before:
                    return own
                remove(_path(records, name, own))  # another one began or ended meanwhile
        time.sleep(_PAUSE)
    raise ValueError(
        f"{records} must be a folder that keeps what is written, got one whose files were removed {_TRIES} times. Look for what"
        " removes files there, and re-run the command."
    )


def _clear(records: str, name: str, own: int, lock: str) -> None:
    """Removes what dead jobs claim beside this one. Where such a job lives, gives its own claim back, and raises a ValueError."""
    of = _NAME.fullmatch(name)
    for other in sorted({found[1] for each in names_in(records) if (found := _NAME.fullmatch(each))} - {name}):
        found = _NAME.fullmatch(other)
        if of and found and of[2] and of[2] == found[2]:
            continue  # another part of as many
        with contextlib.suppress(FileNotFoundError):  # it has ended
            claims = _claims(records, other)
            try:
                for last in sorted(claims)[-1:]:
                    _refuse_living(_path(records, other, last), claims[last])
            except BaseException:  # also Ctrl-C while it is watched
                _release(records, name, own, lock)
                raise
            for number in claims:
                remove(_path(records, other, number))


def _create(path: str, claim: dict[str, Any], files: contextlib.ExitStack) -> bool:
    """Writes a claim where there is none of this name. Of jobs that do so at once, one is told that it did."""
    claim["lock"] = path if is_local(path) else os.path.join(tempfile.gettempdir(), f"ul2_{claim['token']}.lock")
    try:
        file = files.enter_context(open(claim["lock"], "xb" if is_local(path) else "wb"))  # noqa: SIM115 (it stays open)
    except FileExistsError:
        return False
    with contextlib.suppress(OSError):  # a file system without locks
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        claim["locked_on"] = _machine()
    if not is_local(path) and exists(path):
        return False
    with removed_on_failure(path, where=path):
        _write(path, claim)
    time.sleep(0 if is_local(path) else _SETTLED)
    return claim["token"].encode() in read(path)


def _write(path: str, claim: dict[str, Any]) -> None:
    with open(path, "r+b") if is_local(path) else open_to_write(path) as file:  # the first keeps the lock, and needs no room
        file.write(json.dumps(claim).encode())


def _refuse_living(path: str, content: bytes) -> None:
    """Raises a ValueError unless the job of a claim is dead; a FileNotFoundError where it ends meanwhile."""
    claim = _parsed(content)
    is_alive, end, is_over = _is_locked(path, claim), time.monotonic() + STALE, False
    if is_alive is None:
        _logger.warning("watching for %.0f s whether a job of %s still writes to %s", STALE, claim.get("host"), path)
    while is_alive is None and not is_over:
        time.sleep(min(_LOOK, STALE))
        is_over = time.monotonic() > end  # before the last look: this process may have been stopped meanwhile
        if (found := read(path)) != content:
            claim, is_alive = _parsed(found), True
    if is_alive:
        raise ValueError(
            f"another job (host {claim.get('host')}, process {claim.get('process')}) is writing to {os.path.dirname(path)}. Wait"
            " for it, or stop it, and re-run this command, which resumes. See"
            " docs/help/troubleshooting.md#a-job-of-another-process."
        )


def _is_locked(path: str, claim: dict[str, Any]) -> bool | None:
    """Whether a job keeps a claim locked; None where a job that does would not be seen from here."""
    lock = path if is_local(path) else claim.get("lock", "")
    if not os.path.exists(lock):
        return None  # it has ended, or is in another container
    with open(lock, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            return True if isinstance(error, BlockingIOError) else None
    return False if claim.get("locked_on") == _machine() else None


def _machine() -> str:
    """The same text in all containers of a machine, until it starts again."""
    try:
        return pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # not Linux
        return f"{uuid.getnode():x}"


def _release(records: str, name: str, own: int, lock: str) -> None:
    """Removes the claim, those of dead jobs before it, and then the folder, if nothing else is in it."""
    with contextlib.suppress(Exception):
        for number in sorted(_claims(records, name)):
            if number <= own:
                remove(_path(records, name, number))
        if is_local(records):
            os.rmdir(records)  # which fails where another job has written into it meanwhile
        else:
            os.remove(lock)
            if not names_in(records):
                remove_tree(records)


def _claims(records: str, name: str) -> dict[int, bytes]:
    """What the claims of this name say, by their numbers."""
    found = filter(None, map(_NAME.fullmatch, names_in(records)))
    return {int(each[3] or 0): read(place(records, each[0])) for each in found if each[1] == name}


def _path(records: str, name: str, number: int) -> str:
    return place(records, f"{name}.{number}" if number else name)


def _parsed(content: bytes) -> dict[str, Any]:
    """What a claim says; nothing while it is being written."""
    try:
        return dict(json.loads(content))
    except (ValueError, TypeError):
        return {}
