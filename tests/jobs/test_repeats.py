"""Counting repeated ids: exact, whatever fits into memory."""

import numpy as np

from ul2_tasks.jobs import repeats
from ul2_tasks.jobs.repeats import count_repeated, write_hashes


def test_repeated_ids_are_counted_over_all_files_in_any_number_of_passes(tmp_path, monkeypatch):
    drawn = np.random.default_rng(0).integers(0, 500, 2000).astype(np.uint64) * np.uint64(2**55 - 1)
    paths = [str(tmp_path / f"{number}.ids") for number in range(3)]
    for path, some in zip(paths, np.split(drawn, [700, 700])):
        write_hashes(path, np.array_split(some, 3))
    expected = len(drawn) - len(np.unique(drawn))
    assert count_repeated(paths) == expected > 1000
    monkeypatch.setattr(repeats, "_AT_A_TIME", 300)
    assert count_repeated(paths) == expected
    assert count_repeated([]) == 0
