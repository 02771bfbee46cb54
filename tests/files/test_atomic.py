"""What is written is whole, or not there: where the disk is full, too. A limit on the size of files stands for the disk."""

import contextlib
import os
import resource
import sys

import pytest

from ul2_tasks import Mixture
from ul2_tasks.export.megatron import write_megatron
from ul2_tasks.files.atomic import write_atomically
from ul2_tasks.jobs.shards import JobShard, temporary_files, write_shard


@contextlib.contextmanager
def full_disk():
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # what is imported now would be compiled into half a file
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, limits[1]))  # Python ignores the signal
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        sys.dont_write_bytecode = before


def test_what_does_not_fit_on_the_disk_is_an_error_and_leaves_no_half_file(tmp_path):
    """Of a text, and of tokens for Megatron."""
    corpus, path = Mixture("full_disk", "embedded", "bytes").corpus(), str(tmp_path / "out")
    for write in (lambda: write_atomically(path, "text" * 1000), lambda: write_megatron(corpus, path)):
        with pytest.raises(OSError, match=r"File too large.*out"), full_disk():
            write()
        assert not [file for file in tmp_path.rglob("*") if file.is_file()]


def test_a_file_is_on_the_disk_before_its_name_and_the_name_before_what_follows(tmp_path, monkeypatch):
    done, real = [], {"fsync": os.fsync, "replace": os.replace}

    def fsync(opened):
        done.append(os.path.realpath(f"/proc/self/fd/{opened}"))
        real["fsync"](opened)

    def replace(source, target):
        done.append(("renamed", os.path.realpath(source)))
        real["replace"](source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    shard = JobShard("a", ("a.txt",), str(tmp_path), str(tmp_path / "_parts"), "")
    os.mkdir(shard.records)

    def write():
        with temporary_files(shard) as (path,), open(path, "w") as file:
            file.write("text")
        return {"file": "a.txt", "bytes": 4}

    write_shard(shard, write, str)
    assert len(done) == 6, done
    for number, folder in ((0, str(tmp_path)), (3, shard.records)):
        written, (_, renamed), named = done[number : number + 3]
        assert (written, named) == (renamed, folder)


def test_a_device_is_written_as_it_is_and_stays_one():
    write_atomically("/dev/null", "text")
    with pytest.raises(OSError, match="No space left on device"):
        write_atomically("/dev/full", "text")
