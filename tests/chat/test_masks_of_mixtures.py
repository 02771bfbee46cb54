"""Tokens that are not trained on keep their masks: in mixtures, in PyTorch, and in commands."""

import pytest
import seqio

import ul2_tasks
from tests.chat.test_register_chat import S, write_jsonl
from ul2_tasks.example_features import TEXT

LENGTHS = {"inputs": 256, "targets": 256}
# Reasoning that is context, and an answer that is trained on.
HALF = [
    {"role": "user", "content": "2 plus 2?"},
    {"role": "assistant", "channel": "analysis", "content": "Easy.", "weight": 0},
    {"role": "assistant", "channel": "final", "content": "4."},
]


@pytest.fixture(scope="module")
def half(tmp_path_factory) -> str:
    """A mixture of text and of prompt-completion pairs with a message of weight 0."""
    folder = tmp_path_factory.mktemp("half")
    pairs = ul2_tasks.register_chat("mm_half", write_jsonl(folder / "half.jsonl", [HALF] * 8), format="prompt_completion")
    vocabulary = seqio.get_mixture_or_task(pairs).output_features["targets"].vocabulary
    ul2_tasks.register("mm_text", vocabulary=vocabulary, denoisers=S)
    return ul2_tasks.mix("mm_both", {"mm_text_mix": 1, pairs: 1})


def read(name, count, **settings):
    dataset = seqio.get_mixture_or_task(name).get_dataset(LENGTHS, "train", seed=0, num_epochs=None, **settings)
    return list(dataset.take(count).as_numpy_iterator())


def test_a_mixture_of_texts_and_pairs_has_masks(half):
    found = read(half, 30, passthrough_features=["task"])
    kinds = {example["task"]: example for example in found}
    text, pair = kinds[b"mm_text_s"], kinds[b"mm_half_prompt_completion"]
    assert len(text["targets"]) == len(text["loss_mask"])
    assert (set(text["loss_mask"].tolist()), set(text["span_id"].tolist())) == ({1}, {TEXT})
    assert (set(pair["loss_mask"].tolist()), set(pair["span_id"].tolist())) == ({0, 1}, {0, 2})


@pytest.mark.torch
def test_labels_of_single_examples_are_those_that_are_trained_on(half):
    pytest.importorskip("torch")
    example = next(iter(ul2_tasks.UL2IterableDataset("mm_half_prompt_completion", LENGTHS)))
    assert {0, 2} == {*example["span_id"].tolist()}
    assert ((example["labels"] == -100) == (example["span_id"] == 0)).all()
