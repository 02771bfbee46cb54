"""`KeptCounts`: what is saved is loaded under its key alone; what else is in the file, or cannot be written, is no error."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ul2_tasks.files import kept_counts
from ul2_tasks.files.kept_counts import FILE, KeptCounts

COUNTS = st.lists(st.integers(0, 2**32 - 1), max_size=40)


@given(st.lists(st.tuples(st.sampled_from("abc"), COUNTS), max_size=12))
def test_each_key_has_the_longest_counts_that_were_saved(tmp_path_factory, saved):
    folder, longest = str(tmp_path_factory.mktemp("kept")), {}
    for key, counts in saved:
        KeptCounts(folder, key).save(np.array(counts, np.int64))
        longest[key] = max(longest.get(key, []), counts, key=len)
    for key in "abc":
        assert KeptCounts(folder, key).load().tolist() == longest.get(key, [])


@given(st.data())
def test_a_damaged_file_gives_no_wrong_count_and_is_written_again(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("kept")
    one, other = (KeptCounts(str(folder), key) for key in "ab")
    one.save(np.arange(5))
    other.save(np.arange(7))
    content = bytearray((folder / FILE).read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    (folder / FILE).write_bytes(content[: data.draw(st.integers(place, len(content)))])
    assert one.load().tolist() in ([], list(range(5)))
    assert other.load().tolist() in ([], list(range(7)))
    one.save(np.arange(9))
    assert one.load().tolist() == list(range(9))


def test_the_file_is_bounded_and_the_oldest_go(tmp_path, monkeypatch):
    monkeypatch.setattr(kept_counts, "_MOST_COUNTS", 100)
    for number in range(30):
        KeptCounts(str(tmp_path), str(number)).save(np.full([20], number))
    assert sum(bool(len(KeptCounts(str(tmp_path), str(number)).load())) for number in range(30)) == 5
    found = [len(KeptCounts(str(tmp_path), str(number)).load()) for number in range(30)]
    assert found == sorted(found)
    assert found[-1] == 20
