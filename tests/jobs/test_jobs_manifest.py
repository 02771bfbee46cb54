"""The examples of its docstrings; all else is tested by the jobs that write caches and exports."""

import doctest

from ul2_tasks.jobs import manifest as jobs_manifest


def test_examples_of_the_docstrings():
    results = doctest.testmod(jobs_manifest)
    assert (results.failed, results.attempted) == (0, 2)
