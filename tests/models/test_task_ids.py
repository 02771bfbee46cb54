"""Rows for t5x that say of which task each target is: those of the converter without, and what random access says of them."""

import numpy as np
import pytest
import seqio
import tensorflow as tf

import ul2_tasks
from ul2_tasks.tasks.converters import (
    EncDecFeatureConverter,
    PrefixLMFeatureConverter,
    PrefixLMTaskIdFeatureConverter,
    TaskIdFeatureConverter,
)

LENGTHS = {"inputs": 96, "targets": 96}


@pytest.fixture(scope="module")
def mixture() -> str:
    """Text of two corpora, and replies, some of whose tokens are not trained on."""
    replies = ul2_tasks.register_chat("ids_told", format="prompt_completion")
    vocabulary = seqio.TaskRegistry.get(replies).output_features["targets"].vocabulary
    texts = [ul2_tasks.register(f"ids_{name}", vocabulary=vocabulary) for name in ("web", "code")]
    return ul2_tasks.mix("ids", {texts[0]: 3, texts[1]: 1, replies: 2})


def rows_of(name, converter, lengths, count, **settings) -> list[dict[str, np.ndarray]]:
    settings = {"dataset_split": "train", "shuffle": True, "seed": 3, "num_epochs": None, **settings}
    return list(seqio.get_dataset(name, lengths, converter, **settings).take(count).as_numpy_iterator())


def tasks_of(name) -> list[str]:
    return sorted(task.name for task in seqio.get_subtasks(seqio.get_mixture_or_task(name)))


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("with_ids", [TaskIdFeatureConverter, PrefixLMTaskIdFeatureConverter])
def test_ids_are_beside_the_same_rows_and_are_those_of_random_access(mixture, pack, with_ids):
    lengths, tasks = {"inputs": 512, "targets": 512}, tasks_of(mixture)
    is_prefix_lm = with_ids is PrefixLMTaskIdFeatureConverter
    found = rows_of(mixture, with_ids(tasks, pack=pack), lengths, 40)
    plain = rows_of(mixture, (PrefixLMFeatureConverter if is_prefix_lm else EncDecFeatureConverter)(pack=pack), lengths, 40)
    examples = ul2_tasks.examples(mixture, lengths, seed=3, pack=pack, task_id=True)
    assert [info.task for info in examples.tasks] == tasks
    seen = set()
    for number, (row, same) in enumerate(zip(found, plain)):
        ids = row.pop("decoder_task_ids")
        assert row.keys() == same.keys()
        for key, values in same.items():
            np.testing.assert_array_equal(row[key], values)
        expected, is_trained = examples[number]["task_id"], row["decoder_loss_weights"] == 1
        assert ids.shape == is_trained.shape
        assert (ids[~is_trained] == -1).all()
        mask = examples[number].get("loss_mask", np.ones_like(expected))
        np.testing.assert_array_equal(ids[is_trained], expected[(mask == 1) & (expected >= 0)])
        assert ids.dtype == np.int32
        seen |= {*ids.tolist()}
    assert seen <= {*range(-1, len(tasks))}
    assert len(seen) > len(tasks) / 2, "examples of many tasks were seen"


def test_a_task_without_a_name_is_rejected(mixture):
    with pytest.raises(ValueError, match="tasks"):
        rows_of("ids_web_r1", TaskIdFeatureConverter(["ids_web_s"]), LENGTHS, 1)


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize(
    ("with_ids", "targets"), [(TaskIdFeatureConverter, [7, 1, 0]), (PrefixLMTaskIdFeatureConverter, [5, 6, 1, 7, 1, 0, 0])]
)
def test_tasks_of_others_have_no_index(pack, with_ids, targets):
    examples = tf.data.Dataset.from_tensors({"inputs": tf.constant([5, 6, 1]), "targets": tf.constant([7, 1])})
    (row,) = with_ids(["a"], pack=pack)(examples, {"inputs": 4, "targets": 3}).as_numpy_iterator()
    assert row["decoder_task_ids"].tolist() == [-1] * len(targets)
    assert row["decoder_target_tokens"].tolist() == targets
