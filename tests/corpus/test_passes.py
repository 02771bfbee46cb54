"""A pass over a corpus that gives no example ends with an error, and not with the next pass."""

import pytest
import seqio
import tensorflow as tf
from support import byte_vocabulary

from ul2_tasks import T5GEMMA2, open_source, register
from ul2_tasks.sources.memory import MemoryDataSource
from ul2_tasks.tasks import preprocessors

BYTES, MODES = byte_vocabulary()
LENGTHS = {"inputs": 64, "targets": 64}
BLANK = ["", "", ""]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks and shuffle buffers of the usual size take thousands of passes over a few short documents."""
    monkeypatch.setattr(preprocessors, "TOKENS_AT_A_TIME", 1 << 8)
    monkeypatch.setattr("ul2_tasks.tasks.providers.SHUFFLED_TOKENS", 1 << 10)


def task(name, documents, denoiser=T5GEMMA2[0], **settings) -> seqio.Task:
    source = documents if isinstance(documents, seqio.DataSource) else MemoryDataSource(lambda: documents, validation=0)
    return seqio.get_mixture_or_task(register(f"passes_{name}", source, BYTES, [denoiser], modes=MODES, **settings)).tasks[0]


def count(task, num_epochs, shard_info=None) -> int:
    """The examples, 50 at most."""
    dataset = task.get_dataset(LENGTHS, "train", shuffle=False, seed=1, num_epochs=num_epochs, shard_info=shard_info)
    return sum(1 for _ in dataset.take(50).as_numpy_iterator())


WITHOUT_EXAMPLE = {
    "blank_joined": ({"documents": BLANK}, "3 documents, 0 tokens, 0 records skipped"),
    "blank_apart": ({"documents": BLANK, "merge_examples": False}, "3 documents, 0 tokens, 0 records skipped"),
}


@pytest.mark.parametrize("num_epochs", [None, 2])
@pytest.mark.parametrize("name", WITHOUT_EXAMPLE)
def test_a_pass_without_an_example_is_an_error_that_says_what_it_held(name, num_epochs):
    settings, held = WITHOUT_EXAMPLE[name]
    message = f"no example can be made of passes_{name}_corpus, split train, of which a pass held {held}"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        count(task(name, **settings), num_epochs)


def test_a_corpus_of_nothing_but_skipped_records_is_an_error(tmp_path):
    (tmp_path / "bad.jsonl").write_text("no JSON\n" * 5)
    skipping = task("skipped", open_source(str(tmp_path / "*.jsonl")), on_error="skip")
    with pytest.raises(tf.errors.InvalidArgumentError, match="a pass held 0 documents, 0 tokens, 5 records skipped"):
        count(skipping, None)


def test_a_host_may_have_nothing_in_a_finite_epoch_and_not_for_ever():
    """Of 16 documents, the last alone has tokens; the first of two hosts has those of even number."""
    halves = task("halves", [*[""] * 15, "a text"])
    shares = [count(halves, 1, seqio.ShardInfo(index, 2)) for index in range(2)]
    assert shares == [0, 1]
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="split train, shard 0 of 2, of which a pass held 8 documents, 0 tokens"
    ):
        count(halves, None, seqio.ShardInfo(0, 2))
    assert count(halves, None, seqio.ShardInfo(1, 2)) == 50
