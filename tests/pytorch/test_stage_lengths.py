"""Rows of a run whose stages have lengths and batch sizes of their own: in PyTorch what `examples` has, on any hosts, resumed."""

import itertools
import json

import pytest

import ul2_tasks
from ul2_tasks import HuggingFaceFeatureConverter, Mix, Mixture, Stage

pytestmark = pytest.mark.torch
pytest.importorskip("torch")
SHORT, LONG = {"inputs": 48, "targets": 40}, {"inputs": 160, "targets": 120}
TEXT = Mixture("lengths_text")
STAGES = [Stage(0, {TEXT: 1}, lengths=SHORT), Stage(4, {TEXT: 1}, lengths=LONG, batch_size=4), Stage(8, {TEXT: 1}, lengths=SHORT)]
MIX = Mix("lengths", schedule=STAGES, batch_size=8, steps=10)  # 32 short rows, 16 long ones, and 8 short ones
CONVERTERS = {
    "packed": HuggingFaceFeatureConverter("max_length", pack=True),
    "to the length": HuggingFaceFeatureConverter("max_length"),
    "in batches": HuggingFaceFeatureConverter("longest", batch_size=2),
}


def read(converter, hosts=1, state=None, asked=SHORT, **more):
    datasets = [
        ul2_tasks.UL2IterableDataset(MIX, asked, feature_converter=converter, rank=rank, world_size=hosts, num_epochs=1, **more)
        for rank in range(hosts)
    ]
    for each in datasets if state else ():
        each.load_state_dict(json.loads(json.dumps(state)))
    return datasets, [iter(each) for each in datasets]


def rows_of(batch, converter):
    """The labels of each row, without their padding."""
    rows = batch["labels"] if converter.batch_size else batch["labels"][None]
    return [[id for id in row.tolist() if id != -100] for row in rows]


@pytest.mark.parametrize("name", CONVERTERS)
def test_rows_have_the_lengths_of_their_stage_on_any_hosts_also_resumed(name):
    converter = CONVERTERS[name]
    expected = ul2_tasks.examples(MIX, LONG, pack=converter.pack)
    _, (whole,) = read(converter)
    given = list(whole)
    rows = list(itertools.chain(*(rows_of(batch, converter) for batch in given)))
    of_text = [
        [id for id, is_one in zip(each["targets"], each.get("targets_segment_ids", each["targets"] >= 0)) if is_one]
        for each in expected
    ]
    assert rows == of_text
    if not converter.batch_size:
        assert [len(batch["labels"]) for batch in given] == [40] * 32 + [120] * 16 + [40] * 8
    datasets, iterators = read(converter, hosts=2)
    first = [[rows_of(next(each), converter) for each in iterators] for _ in range(4)]
    _, resumed = read(converter, state=datasets[1].state_dict(), asked=LONG)
    held = sum(len(rows) for of_hosts in first for rows in of_hosts)
    assert list(itertools.chain(*itertools.chain(*first))) == rows[:held]
    assert [row for batch in resumed[0] for row in rows_of(batch, converter)] == rows[held:]


def test_a_batch_of_two_stages_is_refused():
    with pytest.raises(ValueError, match="batch_size must be"):
        list(read(HuggingFaceFeatureConverter("longest", batch_size=5))[1][0])
    with pytest.raises(ValueError, match="sequence_length must be"):
        read(CONVERTERS["packed"], asked={"inputs": 64, "targets": 64})
    examples = ul2_tasks.examples(MIX, SHORT)
    with pytest.raises(ValueError, match="padding must be"):
        ul2_tasks.ExamplesCollator(CONVERTERS["to the length"], examples)
