"""A corpus that gives no example is an error that names it, and never a loop."""

import pytest
import seqio
from support import byte_vocabulary

from ul2_tasks import T5GEMMA2, open_source, register
from ul2_tasks.sources.memory import MemoryDataSource

BYTES, MODES = byte_vocabulary()


def count(name, documents, num_epochs, shard_info=None, **settings) -> int:
    """The examples, 50 at most."""
    source = documents if isinstance(documents, seqio.DataSource) else MemoryDataSource(lambda: documents, validation=0)
    mixture = register(f"passes_{name}", source, BYTES, T5GEMMA2[:1], modes=MODES, **settings)
    settings = {"shuffle": False, "seed": 1, "num_epochs": num_epochs, "shard_info": shard_info}
    dataset = seqio.get_mixture_or_task(mixture).tasks[0].get_dataset({"inputs": 64, "targets": 64}, "train", **settings)
    return sum(1 for _ in dataset.take(50).as_numpy_iterator())


@pytest.mark.parametrize("num_epochs", [None, 2])
@pytest.mark.parametrize("merge_examples", [True, False])
def test_documents_without_a_token_are_an_error(merge_examples, num_epochs):
    name = f"blank_{merge_examples}_{num_epochs}".lower()
    with pytest.raises(ValueError, match=f"passes_{name}_corpus"):
        count(name, ["", "", ""], num_epochs, merge_examples=merge_examples)


def test_a_corpus_of_nothing_but_skipped_records_is_an_error(tmp_path):
    (tmp_path / "bad.jsonl").write_text("no JSON\n" * 5)
    with pytest.raises(ValueError, match="passes_skipped_corpus"):
        count("skipped", open_source(str(tmp_path / "*.jsonl")), None, on_error="skip")


def test_more_hosts_than_examples_are_an_error():
    with pytest.raises(ValueError, match="hosts"):
        count("halves", [*[""] * 15, "a text"], 1, seqio.ShardInfo(0, 2))
