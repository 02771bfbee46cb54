"""`task_id` beside the labels of a batch: the task of each label, -1 where that is -100; nothing else changes."""

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

import ul2_tasks  # noqa: E402
from ul2_tasks import (  # noqa: E402
    T5GEMMA2,
    HuggingFaceFeatureConverter,
    Mix,
    Mixture,
    UL2IterableDataset,
)
from ul2_tasks.sources.memory import embedded_conversations  # noqa: E402

pytestmark = pytest.mark.torch

LENGTHS = {"inputs": 512, "targets": 512}
CONVERTERS = {
    "longest": {"padding": "longest", "batch_size": 4},
    "max_length": {},
    "one row": {"padding": "longest", "batch_size": 3, "decoder_only": True},
    "packed": {"pack": True},
    "packed in one row": {"pack": True, "decoder_only": True},
}


def both():
    talks = ul2_tasks.Chat(
        "tid_talks",
        ul2_tasks.MemoryDataSource(lambda: embedded_conversations() * 9, validation=0),
        truncation="drop",
    )
    texts = Mixture("tid_texts", denoisers=T5GEMMA2[3:], vocabulary=talks.renderer.vocabulary)
    return Mix("tid_both", {texts: 2, talks: 1})


def plain():
    return Mixture("tid_plain")


def taken(dataset, count=40):
    return list(itertools.islice(iter(dataset), count))


@pytest.mark.parametrize("mixture", [plain, both])
@pytest.mark.parametrize("kind", CONVERTERS)
def test_each_label_has_its_task_and_nothing_else_changes(mixture, kind):
    described, settings = mixture(), CONVERTERS[kind]
    examples = ul2_tasks.examples(described, LENGTHS, pack=settings.get("pack", False), task_id=True)
    before = UL2IterableDataset(described, LENGTHS, feature_converter=HuggingFaceFeatureConverter(**settings))
    dataset = UL2IterableDataset(described, LENGTHS, feature_converter=HuggingFaceFeatureConverter(**settings, task_id=True))
    assert dataset.tasks == examples.tasks
    expected, found = itertools.chain.from_iterable(examples.epoch(number) for number in range(9)), []
    for element, same in zip(taken(dataset), taken(before), strict=True):
        assert element.keys() - same.keys() == {"task_id"}
        assert all(torch.equal(element[key], same[key]) for key in same)
        ids, labels = (torch.atleast_2d(element[key]).numpy() for key in ("task_id", "labels"))
        assert (ids.dtype, ids.shape) == (np.int64, labels.shape)
        assert ((ids == -1) == (labels == -100)).all()
        for row in ids:
            example = next(expected)
            is_trained = example.get("loss_mask", np.ones(len(example["targets"]))) == 1
            of_example = example["task_id"][is_trained & (example["task_id"] >= 0)]
            assert row[row >= 0].tolist() == of_example.tolist()
            found += of_example.tolist()
    assert {*found} == {*range(len(examples.tasks))}
    before.load_state_dict(dataset.state_dict())  # a run may turn it on
    assert torch.equal(taken(before, 1)[0]["labels"], taken(resumed(dataset), 1)[0]["labels"])


def resumed(dataset):
    dataset.load_state_dict(dataset.state_dict())
    return dataset
