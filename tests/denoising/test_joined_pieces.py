"""Records to chunks: nothing is lost or twice, no run is cut, and where one record ends makes no difference."""

import functools
import itertools

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from ul2_tasks.denoising.denoisers import T5GEMMA2
from ul2_tasks.denoising.joined_pieces import chunk_records, cut, joined
from ul2_tasks.denoising.piece_lengths import longest

BUDGETS = {"r1": (40, 30), "x2": (30, 20), "s": (40, 24)}
MOST = 70
RUNS = st.integers(1, 25)  # any of which fits with a token of text
RECORDS = st.lists(
    st.lists(st.tuples(RUNS, st.integers(0, 60)), max_size=4).flatmap(
        lambda pairs: st.integers(0, 60).map(lambda first: [first, *itertools.chain.from_iterable(pairs)])
    ),
    min_size=1,
    max_size=6,
)


def fits_of(name: str):
    denoiser = next(each for each in T5GEMMA2 if each.name == name)

    def fits(pieces) -> bool:
        found = longest(pieces, denoiser, "pieces", 1, (True, True))
        return found.inputs <= BUDGETS[name][0] and found.targets <= BUDGETS[name][1]

    return fits


def all_chunks(records, fits) -> list[list[int]]:
    """The chunks of records that come one after the other."""
    chunks, rest = [], []
    for record in records:
        found, rest = cut(joined(rest, record), fits, MOST, is_end=False)
        chunks += found
    found, rest = cut(rest, fits, MOST, is_end=True)
    assert rest == []
    return chunks + found


@pytest.mark.parametrize("name", BUDGETS)
@given(records=RECORDS)
def test_every_token_is_in_one_chunk_and_no_run_is_cut(name, records):
    fits = fits_of(name)
    chunks = all_chunks(records, fits)
    stream = functools.reduce(joined, records)
    assert functools.reduce(joined, chunks, []) == (stream if sum(stream) else [])
    assert all(sum(chunk) for chunk in chunks)
    assert all(fits(chunk) for chunk in chunks if any(chunk[::2]))


@pytest.mark.parametrize("name", BUDGETS)
@given(records=RECORDS)
def test_chunks_do_not_depend_on_where_records_end(name, records):
    fits = fits_of(name)
    assert all_chunks(records, fits) == all_chunks([functools.reduce(joined, records)], fits)


@pytest.mark.parametrize("name", BUDGETS)
@given(records=RECORDS)
def test_a_chunk_is_as_long_as_can_be(name, records):
    """Unless it has given the next a token of text."""
    fits = fits_of(name)
    for chunk, after in itertools.pairwise(all_chunks(records, fits)):
        if after[0] > 1 or any(after[2::2]):
            more = joined(chunk, [1] if after[0] else [*after[:2], 0])
            assert not any(more[::2]) or not fits(more)


@given(length=st.integers(1, 300))
def test_text_alone_makes_chunks_of_one_length(length):
    *full, last = all_chunks([[length]], lambda pieces: sum(pieces) <= 40)
    assert full == [[40]] * len(full)
    assert 0 < last[0] <= 40


def fits_seven(pieces) -> bool:
    return sum(pieces) <= 7


def test_a_run_at_the_end_takes_a_token_of_text_along():
    assert cut([3, 4, 2, 5, 0], lambda pieces: sum(pieces) <= 9, 9, is_end=False) == ([], [3, 4, 2, 5, 0])
    assert cut([3, 4, 2, 5, 0], lambda pieces: sum(pieces) <= 9, 9, is_end=True) == ([[3, 4, 1], [1, 5, 0]], [])


def test_no_chunk_gives_its_only_token():
    assert cut([0, 5, 1, 6, 0], fits_seven, 7, is_end=True) == ([[0, 5, 1], [0, 6, 0]], [])


def test_a_run_that_does_not_fit_is_an_error():
    with pytest.raises(ValueError, match=r"a chunk must have room for 7 tokens that are.*as those of an image, but has less"):
        cut([3, 7, 0], fits_seven, 7, is_end=True)


def test_a_dataset_of_records_is_cut_the_same_whatever_their_number():
    """The records that the module draws."""
    records = [([1, 2, 70, 70, 70, 70, 3, 4], [2, 4, 2]), ([5, 6, 7, 80, 80, 80, 80, 8], [3, 4, 1])]
    flat = [([*records[0][0], *records[1][0]], [2, 4, 5, 4, 1])]
    for held in (records, flat):
        dataset = tf.data.Dataset.from_generator(
            lambda held=held: ({"targets": tokens, "pieces": pieces} for tokens, pieces in held),
            output_signature={key: tf.TensorSpec([None], tf.int32) for key in ("targets", "pieces")},
        )
        chunks = [
            (chunk["targets"].tolist(), chunk["pieces"].tolist())
            for chunk in chunk_records(dataset, fits_seven, 7).as_numpy_iterator()
        ]
        assert chunks == [
            ([1, 2, 70, 70, 70, 70, 3], [2, 4, 1]),
            ([4, 5, 6, 7], [4]),
            ([80, 80, 80, 80, 8], [0, 4, 1]),
        ]
