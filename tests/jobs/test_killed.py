"""A job that is killed at any moment, or for which the disk is full, goes on, and what it writes then is what one job writes."""

import hashlib
import json
import os
import signal
import subprocess
import sys

import pytest
from rich.console import Console

from tests.support import byte_vocabulary
from ul2_tasks import T5GEMMA2, Mixture
from ul2_tasks.corpus.build_cache import build
from ul2_tasks.export.write import write_examples

EVENTS = {"open", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir"}  # of Python, before each change of a folder
NTH = 9  # each is too many for a test; all were tried


def files_of(folder) -> dict[str, str]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


@pytest.fixture(scope="module", params=["cache", "export"])
def job(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    for name in ("a", "b"):
        lines = (json.dumps({"text": f"{name} {number} and on"}) + "\n" for number in range(20))
        (folder / f"{name}.jsonl").write_text("".join(lines))
    vocabulary, modes = byte_vocabulary()
    mixture, quiet = Mixture("killed_jobs", str(folder), vocabulary, T5GEMMA2[:1], modes=modes), {"console": Console(quiet=True)}
    if request.param == "cache":
        return lambda output: build(mixture.corpus(), str(output), **quiet)
    lengths = {"inputs": 64, "targets": 64}
    return lambda output: write_examples(mixture, str(output), lengths, format="tfrecord", shards=3, **quiet)


def killed_at(moment: int, work, output) -> bool:
    """Whether the work had so many moments, at the last of which its process was killed."""
    child = os.fork()
    if not child:
        left = moment

        def kill_at_last(event, arguments):
            nonlocal left
            if event in EVENTS and arguments and str(output) in str(arguments[0]):
                left -= 1
                if not left:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(kill_at_last)
        try:
            work(output)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_a_job_that_is_killed_at_any_moment_is_resumed(tmp_path, job):
    job(tmp_path / "whole")
    wanted, moment = files_of(tmp_path / "whole"), 1
    while killed_at(moment, job, tmp_path / f"{moment}"):
        job(tmp_path / f"{moment}")
        assert files_of(tmp_path / f"{moment}") == wanted, moment
        moment += NTH
    assert moment > 3 * NTH


def mounted(folder, size: str) -> bool:
    return subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", folder], capture_output=True).returncode == 0


@pytest.mark.parametrize("kilobytes", [4, 32])
def test_a_full_disk_names_the_file_and_leaves_a_job_that_resumes(tmp_path, job, kilobytes):
    job(tmp_path / "whole")
    disk = tmp_path / "disk"
    disk.mkdir()
    if not mounted(disk, f"size={kilobytes}k"):
        pytest.skip("no disk may be mounted here")
    try:
        with pytest.raises((OSError, RuntimeError), match=r"No space left on device.*disk/out"):
            job(disk / "out")
        assert not list(disk.rglob("*.tmp"))
        mounted(disk, "remount,size=1m")
        job(disk / "out")
        assert files_of(disk / "out") == files_of(tmp_path / "whole")
    finally:
        subprocess.run(["umount", disk], check=True)
