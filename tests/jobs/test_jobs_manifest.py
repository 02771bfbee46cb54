"""The examples of its docstrings, and files that are no JSON; all else is tested by the jobs that write caches and exports."""

import doctest

import pytest

from ul2_tasks.jobs import manifest as jobs_manifest


def test_examples_of_the_docstrings():
    results = doctest.testmod(jobs_manifest)
    assert (results.failed, results.attempted) == (0, 2)


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"[" * 100_000, b"9" * 5000], ids=["cut", "no text", "deep", "long"])
def test_what_is_no_json_is_told_with_its_file(content, tmp_path):
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(ValueError, match="must be JSON, but is not:"):
        jobs_manifest.load(str(tmp_path / "manifest.json"))
