"""Who may write into a folder: of jobs that begin at once, one alone; and what a job writes is there, or it is an error."""

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from typing import ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from tests.support import at_once, refused
from ul2_tasks.files.atomic import write_atomically
from ul2_tasks.files.systems import exists, make_folders, read, remove_tree
from ul2_tasks.jobs import claim
from ul2_tasks.jobs.claim import taken
from ul2_tasks.jobs.shards import JobShard, temporary_files, write_shard

DEAD = {"host": "here", "process": 1, "token": "0", "locked_on": claim._machine()}  # and no process keeps it locked
AWAY = DEAD | {"host": "another", "locked_on": "another"}


def write_claim(records, name, running):
    make_folders(records)
    write_atomically(f"{records}/{name}", json.dumps(running))


BEFORE = {
    "nothing": [],
    "a dead job": [("running", DEAD)],
    "a job elsewhere that is not rewritten": [("running", AWAY)],
    "jobs that died one after the other": [("running", DEAD), ("running.1", AWAY), ("running.2", DEAD)],
}


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("where", ["here", "memory://claims"])
def test_of_jobs_that_begin_at_once_one_alone_takes_the_folder(tmp_path, monkeypatch, before, where):
    records = f"{tmp_path if where == 'here' else f'{where}/{tmp_path.name}'}/parts"
    for name, running in BEFORE[before]:
        write_claim(records, name, running)
    for name, seconds in {"STALE": 1, "_AGAIN": 0.02, "_LOOK": 0.05, "_SETTLED": 0.1}.items():
        monkeypatch.setattr(claim, name, seconds)
    inside, others = [], threading.Semaphore(0)

    def work():
        try:
            with taken(records):
                inside.append(1)
                assert all(others.acquire(timeout=30) for _ in range(7)), "until all others are refused"
        except BaseException:
            others.release()
            raise

    found = at_once(work)
    assert (found.count(None), len(refused(found)), inside) == (1, 7, [1]), found
    assert not exists(records), "nothing is left of any"


def checked(check):
    """Calls it again and again, for some seconds."""
    for _ in range(500):
        time.sleep(0.01)
        check()


def test_a_job_that_did_not_run_for_long_ends_when_another_one_has_begun(tmp_path, monkeypatch):
    monkeypatch.setattr(claim, "_AGAIN", 0.01)
    records = str(tmp_path / "parts")
    with taken(records) as check:
        check()
        write_claim(records, "running.1", AWAY)
        with pytest.raises(ValueError, match=f"another job took {records}"):
            checked(check)
    assert "running.1" in os.listdir(records), "the other's"
    with taken(str(tmp_path / "removed")) as check:
        remove_tree(str(tmp_path / "removed"))  # as another job does that has taken it and ended
        with pytest.raises(ValueError, match="another job took"):
            checked(check)


def test_a_job_elsewhere_that_rewrites_its_claim_has_the_folder_whatever_its_clock_says(tmp_path, monkeypatch):
    monkeypatch.setattr(claim, "_LOOK", 0.01)
    records, stop = str(tmp_path / "parts"), threading.Event()

    def rewrite():
        for beat in itertools.count():
            write_claim(records, "running", AWAY | {"beat": beat})
            if stop.wait(0.1):
                return

    thread = threading.Thread(target=rewrite)
    thread.start()
    while not os.path.exists(f"{records}/running"):
        time.sleep(0.01)
    with pytest.raises(ValueError, match="host another"), taken(records):
        pass
    stop.set()
    thread.join()
    assert os.listdir(records) == ["running"]


def test_without_locks_a_claim_is_watched(tmp_path, monkeypatch):
    monkeypatch.setattr(claim, "_LOOK", 0.01)
    monkeypatch.setattr(claim, "_AGAIN", 0.01)
    monkeypatch.setattr(claim.fcntl, "flock", lambda *_: os.stat("no such file"))  # raises an OSError
    records = str(tmp_path / "parts")
    with taken(records) as check, pytest.raises(ValueError, match="another job"), taken(records):
        pass
    check()
    monkeypatch.setattr(claim, "STALE", 0.1)
    write_claim(records, "running", DEAD)
    began = time.monotonic()
    with taken(records):
        assert time.monotonic() - began > 0.1


IN_A_CONTAINER = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]  # the host's name stays, as with `--network=host`
HOLD = """
import sys
from ul2_tasks.jobs import claim
with claim.taken(sys.argv[1]):
    print("taken", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("ends", ["at its end", "killed"])
@pytest.mark.parametrize("where", ["beside", "in a container"])
def test_another_process_has_the_folder_until_it_ends_or_is_killed(tmp_path, ends, where):
    if where != "beside" and subprocess.run([*IN_A_CONTAINER, "true"], capture_output=True).returncode:
        pytest.skip("no namespace of processes may be made here")
    records = str(tmp_path / "parts")
    command = [*(IN_A_CONTAINER if where != "beside" else ()), sys.executable, "-c", HOLD, records]
    began = time.monotonic()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "taken\n"
        with pytest.raises(ValueError, match="another job"), taken(records):
            pass
        if ends == "killed":
            other.kill()
        other.stdin.close()
        other.wait(30)
    while os.path.exists(f"{records}/running"):  # until the system has ended it, too
        try:
            with taken(records) as check:
                check()
                break
        except ValueError:
            time.sleep(0.1)
    assert time.monotonic() - began < claim.STALE / 2
    assert not os.path.exists(records)


class _Troubled(MemoryFileSystem):
    """A system whose library raises its own errors while there is `trouble`."""

    protocol = "troubled"
    store: ClassVar[dict] = {}
    pseudo_dirs: ClassVar[list] = [""]
    trouble = threading.Event()
    met = threading.Event()

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.removeprefix("troubled://"))

    def _open(self, path, mode="rb", **options):
        if self.trouble.is_set():
            self.met.set()
            raise RuntimeError("the connection was lost")
        return super()._open(path, mode, **options)


fsspec.register_implementation("troubled", _Troubled, clobber=True)


def test_a_claim_is_kept_after_any_error_of_a_file_system(monkeypatch):
    monkeypatch.setattr(claim, "_AGAIN", 0.01)
    monkeypatch.setattr(claim, "_SETTLED", 0)

    running = "troubled://kept/parts/running"
    with taken("troubled://kept/parts") as check:
        _Troubled.trouble.set()
        assert _Troubled.met.wait(10)
        _Troubled.trouble.clear()
        before, end = read(running), time.monotonic() + 10
        while read(running) == before:
            assert time.monotonic() < end, "nobody rewrites the claim"
            time.sleep(0.01)
        check()


@pytest.mark.parametrize(
    ("spoil", "told"), [(os.remove, "gone"), (lambda path: os.truncate(path, 4), "9 bytes")], ids=["gone", "cut"]
)
def test_a_temporary_file_that_is_gone_or_cut_is_an_error_and_no_record(tmp_path, spoil, told):
    records = tmp_path / "parts"
    records.mkdir()
    shard = JobShard(name="shard_0", files=("a.txt",), folder=str(tmp_path), records=str(records), reads="")

    def write_file():
        with temporary_files(shard) as (path,):
            with open(path, "w") as file:
                file.write("some text")
            spoil(path)
        return {"file": shard.files[0], "bytes": 9}

    with pytest.raises(RuntimeError, match=f"shard_0: .*{told}"):
        write_shard(shard, write=write_file, where=lambda: shard.name)
    assert not os.path.exists(shard.record)
