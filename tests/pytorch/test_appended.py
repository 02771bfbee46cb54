"""Stages that a loop appends: what is read then is what a schedule with them reads, on any hosts, from any state, with workers."""

import json

import numpy as np
import pytest

import ul2_tasks
from tests.laws.pipelines import digests
from ul2_tasks import Mix, Mixture, Stage

pytestmark = pytest.mark.torch
pytest.importorskip("torch")
LENGTHS, STEPS, BATCH = {"inputs": 64, "targets": 64}, 24, 8
DOCUMENTS = ul2_tasks.embedded_documents()
A, B, OTHER = (
    Mixture(f"appended_{name}", ul2_tasks.MemoryDataSource(lambda at=at: DOCUMENTS[at : at + 25], validation=0))
    for at, name in ((0, "a"), (25, "b"), (50, "other"))
)
FIRST, LAST = Stage(0, {A: 3, B: 1}), Stage(16, {A: 1, B: 2})
APPENDED = (4, {A: 1, B: 9}), (9, {"appended_b_corpus": 2.5})
WHOLE = [FIRST, Stage(4, {A: 1, B: 9}), Stage(9, {B: 1}), LAST]


def examples(stages, pack=False):
    mix = Mix("appended", schedule=stages, batch_size=BATCH, steps=STEPS, weigh="tokens", max_epochs={A: 2})
    return ul2_tasks.examples(mix, LENGTHS, pack=pack)


def dataset(rank=0, world_size=1, pack=False, **more):
    return ul2_tasks.UL2IterableDataset(examples([FIRST, LAST], pack), rank=rank, world_size=world_size, num_epochs=1, **more)


def steps_of(iterators, steps):
    return [sorted(digests([next(each) for each in iterators for _ in range(BATCH // len(iterators))])) for _ in range(steps)]


@pytest.mark.parametrize(("hosts", "later", "pack"), [(1, 2, True), (2, 4, False), (4, 1, True)])
def test_what_is_read_is_that_of_the_whole_schedule_also_from_a_state_on_other_hosts(hosts, later, pack):
    whole = ul2_tasks.UL2IterableDataset(examples(WHOLE, pack), rank=0, world_size=1)
    expected = steps_of([iter(whole)], STEPS)
    of_hosts = [dataset(rank, hosts, pack) for rank in range(hosts)]
    iterators, read = [iter(each) for each in of_hosts], []
    for count, stage in zip((4, 3), APPENDED):
        read += steps_of(iterators, count)
        for each in of_hosts:
            each.append_stage(*stage)
    read += steps_of(iterators, 5)
    with pytest.raises(ValueError, match="step must be at least 12"):
        of_hosts[0].append_stage(11, {A: 1})
    state = json.loads(json.dumps(of_hosts[-1].state_dict()))
    resumed = [dataset(rank, later, pack) for rank in range(later)]
    for each in resumed:
        each.load_state_dict(state)
    assert read + steps_of([iter(each) for each in resumed], STEPS - 12) == expected
    assert resumed[0].stages == of_hosts[0].stages == [(4, {A.corpus().name: 1, B.corpus().name: 9}), (9, {B.corpus().name: 2.5})]
    assert repr(resumed[0].state_dict()["pipeline"]["schedule"]) == repr(whole.state_dict()["pipeline"]["schedule"])


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_read_them_or_an_error_says_that_they_come_too_late(context):
    from torch.utils.data import DataLoader

    converter = ul2_tasks.HuggingFaceFeatureConverter("longest", batch_size=BATCH)
    whole = ul2_tasks.UL2IterableDataset(examples(WHOLE), rank=0, world_size=1, num_epochs=1, feature_converter=converter)
    appended, read = dataset(feature_converter=converter), []
    for batch in DataLoader(
        appended, batch_size=None, num_workers=2, prefetch_factor=1, multiprocessing_context=context, persistent_workers=True
    ):
        read.append(batch)
        if len(read) == 1:
            with pytest.raises(ValueError, match="read ahead by workers"):
                appended.append_stage(1, {A: 1})
            for stage in APPENDED:
                appended.append_stage(*stage)
    for one, other in zip(read, whole, strict=True):
        assert all(np.array_equal(one[key], other[key]) for key in other)


def test_what_is_no_stage_is_rejected():
    for weights in ({OTHER: 1}, {A: 1, "appended_a_corpus": 1}):
        with pytest.raises(ValueError, match="corpora of the schedule"):
            dataset().append_stage(5, weights)
    fixed = ul2_tasks.UL2IterableDataset(A, LENGTHS, rank=0, world_size=1)
    with pytest.raises(ValueError, match="append_stage must have a mixture with a schedule"):
        fixed.append_stage(5, {A: 1})
    with pytest.raises(ValueError, match="stages that were appended"):
        fixed.load_state_dict({**fixed.state_dict(), "stages": [[5, {"appended_a_corpus": 1.0}]]})
    with pytest.raises(ValueError, match="the state's stages"):
        dataset().load_state_dict({**dataset().state_dict(), "stages": [[0.5, {}]]})
