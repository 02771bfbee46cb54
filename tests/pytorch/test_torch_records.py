"""`UL2IterableDataset` of whole records with random access: conversations, and replies beside texts, as described and by name."""

import itertools
import random

import numpy as np
import pytest
import seqio

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

import ul2_tasks  # noqa: E402
from ul2_tasks import (  # noqa: E402
    Chat,
    HuggingFaceChatConverter,
    Mix,
    Mixture,
    UL2IterableDataset,
)
from ul2_tasks.example_features import IGNORED  # noqa: E402

pytestmark = pytest.mark.torch

PAIRS, CHATS = {"inputs": 512, "targets": 512}, {"tokens": 512}
OF_CHATS = {
    "single": None,
    "packed": HuggingFaceChatConverter(pad_token_id=3),
    "padded": HuggingFaceChatConverter(pack=False, pad_token_id=3),
}
SETTINGS = {"truncation": "drop", "train_on": "content"}


def letters() -> list[str]:
    return ["".join(random.Random(number).choices("abcdefghijklmnopqrstuvwxyz ", k=700)) for number in range(60)]


def chat(name="torch_chat", **changes) -> Chat:
    return Chat(name, **{**SETTINGS, **changes})


def both(name="torch_both") -> Mix:
    """Texts and replies of one vocabulary, which `mixed` registers."""
    talks = chat(f"{name}_talks", train_on="all")
    texts = Mixture(f"{name}_texts", ul2_tasks.MemoryDataSource(letters, validation=0), talks.renderer.vocabulary)
    return Mix(name, {texts: 3, talks: 1})


def mixed(name="torch_both") -> str:
    talks = ul2_tasks.register_chat(f"{name}_talks", **{**SETTINGS, "train_on": "all"}, format="prompt_completion")
    vocabulary = seqio.TaskRegistry.get(talks).output_features["targets"].vocabulary
    source = ul2_tasks.MemoryDataSource(letters, validation=0)
    texts = ul2_tasks.register(f"{name}_texts", source, vocabulary)
    return ul2_tasks.mix(name, {texts: 3, talks: 1})


def test_single_examples_have_labels_where_they_are_trained_on():
    """A model of a chat predicts no first token; the targets of a pair are there in full, because its decoder reads them."""
    examples = ul2_tasks.examples(chat(), PAIRS, seed=5)
    found = list(UL2IterableDataset(chat(), PAIRS, seed=5, num_epochs=1))
    assert len(found) == len(examples)
    for one, example in zip(found, examples):
        assert one.keys() == {"input_ids", "labels", "span_id", "targets"}
        assert {values.dtype for values in one.values()} == {torch.int64}
        assert one["input_ids"].tolist() == example["inputs"].tolist()
        assert one["targets"].tolist() == example["targets"].tolist()
        assert one["labels"].tolist() == np.where(example["loss_mask"] == 1, example["targets"], IGNORED).tolist()
        assert one["span_id"].tolist() == example["span_id"].tolist()
    examples = ul2_tasks.examples(chat(), CHATS, seed=5)
    for one, example in zip(UL2IterableDataset(chat(), CHATS, seed=5, num_epochs=1), examples, strict=True):
        assert one.keys() == {"input_ids", "labels", "span_id"}
        is_trained = (example["loss_mask"] == 1) & (np.arange(len(example["tokens"])) > 0)
        assert one["input_ids"].tolist() == example["tokens"].tolist()
        assert one["labels"].tolist() == np.where(is_trained, example["tokens"], IGNORED).tolist()
        assert one["span_id"].tolist() == np.where(is_trained, example["span_id"], 0).tolist()


READ = {
    "pairs": lambda **process: UL2IterableDataset(both(), PAIRS, seed=3, **process),
    "chats": lambda **process: UL2IterableDataset(chat(), CHATS, seed=3, **process),
    "rows": lambda **process: UL2IterableDataset(chat(), CHATS, seed=3, feature_converter=OF_CHATS["packed"], **process),
}


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_share_it_out(method):
    """Those that are spawned have registered nothing, and get what is in memory."""
    for read in READ.values():
        loader = torch.utils.data.DataLoader(
            read(batch_size=2, num_epochs=1), batch_size=2, collate_fn=list, num_workers=2, multiprocessing_context=method
        )
        found = [str(example) for batch in itertools.islice(loader, 5) for example in batch]
        assert sorted(found) == sorted(map(str, itertools.islice(iter(read(num_epochs=1)), len(found))))
