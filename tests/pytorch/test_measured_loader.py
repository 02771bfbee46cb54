"""`MeasuredLoader`: it gives what the loader gives, and what it counts adds up."""

import copy
import pickle
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ul2_tasks import MeasuredLoader


@given(passes=st.lists(st.lists(st.integers(0, 40), max_size=6), max_size=4), read=st.sets(st.integers(0, 24)))
def test_batches_are_the_same_and_the_sums_are_those_of_the_metrics(passes, read):
    loader, total, number = MeasuredLoader(()), dict.fromkeys(("seconds", "loading", "batches", "rows", "tokens"), 0.0), 0

    def add(metrics: dict[str, float]) -> None:
        if metrics:
            count = loader.batches - total["batches"]
            seconds = metrics["data/loading_seconds"] / metrics["data/loading_fraction"]  # per batch
            assert metrics["data/batches_per_second"] == pytest.approx(1 / seconds)
            total["seconds"] += seconds * count
            total["loading"] += metrics["data/loading_seconds"] * count
            total["rows"] += metrics["data/rows_per_second"] * seconds * count
            total["tokens"] += metrics.get("data/input_tokens_per_second", 0) * seconds * count
            total["batches"] += count

    for lengths in passes:
        batches = [{"attention_mask": np.arange(3)[:, None] + np.arange(9) < length // 5} for length in lengths]
        loader.loader = batches
        for batch, same in zip(loader, batches, strict=True):
            assert batch is same
            if number in read:
                add(loader.metrics())
            number += 1
    assert 0 <= loader.seconds_loading <= loader.seconds
    assert loader.batches_ready <= loader.batches == sum(map(len, passes))
    assert loader.rows == 3 * loader.batches
    add(loader.metrics())
    assert loader.metrics() == {}, "nothing was read since"
    found = [loader.seconds, loader.seconds_loading, loader.batches, loader.rows, loader.input_tokens]
    assert found == pytest.approx(list(total.values()))


def test_what_a_loop_waits_for_is_apart_from_what_it_does():
    def slow():
        for _ in range(3):
            time.sleep(0.02)
            yield {}

    loader = MeasuredLoader(slow())
    for _ in loader:
        time.sleep(0.03)
    assert loader.batches == 3
    assert loader.seconds_loading >= 3 * 0.02
    assert loader.seconds - loader.seconds_loading >= 2 * 0.03, "the last step has no batch after it"
    assert loader.batches_ready == 0


def test_an_iterator_stays_one_and_a_loader_keeps_its_attributes():
    class Loader(list):
        state = "at 3"

    loader = MeasuredLoader(Loader([1, 2]))
    assert (list(loader), list(loader), len(loader), loader.state) == ([1, 2], [1, 2], 2, "at 3")
    iterator = MeasuredLoader(iter([1, 2]))
    assert (next(iterator), next(iterator), next(iterator, None), iterator.batches) == (1, 2, None, 2)
    with pytest.raises(AttributeError, match="missing"):
        _ = loader.missing
    for copied in (copy.copy(MeasuredLoader([1, 2])), pickle.loads(pickle.dumps(MeasuredLoader([1, 2])))):
        assert list(copied) == [1, 2]


PADDED = {
    "attention_mask": np.array([[1, 1, 1, 0], [1, 0, 0, 0]]),
    "decoder_attention_mask": np.array([[1, 1, 0], [1, 0, 0]]),
    "labels": np.array([[5, -100, -100], [6, -100, -100]]),
}
BATCHES = {  # each: rows, tokens of the inputs, tokens of the targets
    "nothing that is known": ("a batch", 0, 0, 0),
    "a mapping without it": ({"pixels": np.zeros((2, 3))}, 0, 0, 0),
    "padded": (PADDED, 2, 4, 3),
    "labels alone": ({"attention_mask": np.ones((2, 4), int), "labels": np.array([[0, -100], [6, 7]])}, 2, 8, 3),
    "packed": ({"segment_ids": np.array([[1, 1, 2, 0]]), "decoder_segment_ids": np.array([[1, 2, 0, 0]])}, 1, 3, 2),
    "one example": ({"input_ids": np.array([5, 0, 6]), "labels": np.array([7, -100])}, 1, 3, 1),
    "t5x": ({"encoder_input_tokens": np.array([[5, 6, 0]]), "decoder_target_tokens": np.array([[7, 0]])}, 1, 2, 1),
    "an image-text row": ({"sample_lens": np.array([5, 7]), "packed_label_ids": np.array([0, 3])}, 1, 12, 2),
    "lists": ({"attention_mask": [[1, 0], [1, 1]], "labels": [[3], [-100]]}, 2, 3, 1),
}


@pytest.mark.parametrize(("batch", "rows", "inputs", "targets"), BATCHES.values(), ids=BATCHES.keys())
def test_rows_and_tokens_of_a_batch(batch, rows, inputs, targets):
    loader = MeasuredLoader([batch] * 3)
    assert len(list(loader)) == 3
    assert (loader.rows, loader.input_tokens, loader.target_tokens) == (3 * rows, 3 * inputs, 3 * targets)
    metrics = loader.metrics()
    told = [f"data/{name}_per_second" in metrics for name in ("rows", "input_tokens", "target_tokens")]
    assert told == [bool(rows), bool(inputs), bool(targets)]
