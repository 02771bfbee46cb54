"""`task_id` says of each target which task of the mixture its example is of, and changes nothing else."""

import numpy as np
import pytest

import ul2_tasks
from tests.random_access.test_leaving_out import PIPELINES, described
from ul2_tasks import Mix, Stage
from ul2_tasks.random_access.tasks import TaskInfo

LENGTHS = {"inputs": 96, "targets": 80}


def staged():
    """Two corpora, of which one comes first with few of its denoisers' weight."""
    web, code = described("id_web"), described("id_code", denoisers=ul2_tasks.T5GEMMA2[:2])
    return Mix("id_staged", schedule=[Stage(0, {web: 1}), Stage(2, {web: 1, code: 3})], batch_size=16, steps=8)


def pipeline(name, **settings):
    mixture, lengths = (staged(), LENGTHS) if name == "stages" else PIPELINES[name]()
    return ul2_tasks.examples(mixture, lengths, seed=3, **settings)


def first(found, count=60):
    return found[: min(count, len(found))]


def equal(one, other, keys) -> bool:
    return all(np.array_equal(one[key], other[key]) for key in keys)


OF_EXAMPLES = [*PIPELINES, "stages"]


@pytest.mark.parametrize("name", OF_EXAMPLES)
def test_each_target_has_the_task_of_its_example(name):
    found = pipeline(name, task_id=True)
    names = [info.task for info in found.tasks]
    assert names == sorted(set(names))
    for index, (example, before) in enumerate(zip(first(found), first(pipeline(name)), strict=True)):
        targets = example["tokens" if "tokens" in example else "targets"]
        location = found.locate(index)
        assert found.tasks[example["task_id"][0]] == TaskInfo(example["task"], example["denoiser"], location.corpus)
        assert example["task_id"].tolist() == [names.index(example["task"])] * len(targets)
        assert example["task_id"].dtype == np.int32
        assert example.keys() - before.keys() == {"task_id"}
        assert equal(example, before, before)


@pytest.mark.parametrize("name", OF_EXAMPLES)
def test_in_a_packed_sequence_each_segment_has_its_own(name):
    found = pipeline(name, task_id=True, pack=True)
    key = "tokens" if "tokens" in found[0] else "targets"
    seen = set()
    for index, (row, before) in enumerate(zip(first(found), first(pipeline(name, pack=True)), strict=True)):
        tasks = [-1, *(next(n for n, info in enumerate(found.tasks) if info.task == at.task) for at in found.locate(index))]
        assert row["task_id"].tolist() == [tasks[segment] for segment in row[f"{key}_segment_ids"].tolist()]
        assert row.keys() - before.keys() == {"task_id"}
        assert equal(row, before, before)
        seen.update(tasks)
    assert len(seen) == 1 + len(found.tasks)


def test_what_has_none_says_so():
    with pytest.raises(ValueError, match="task_id"):
        pipeline("joined", task_id=1)
