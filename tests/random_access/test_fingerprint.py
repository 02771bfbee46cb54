"""Which schedules a run accepts when it goes on: those whose elements until then are the same, and no others."""

import json

import numpy as np
import pytest
import seqio
from hypothesis import given
from hypothesis import strategies as st

from tests.support import byte_vocabulary, long_documents
from ul2_tasks import BlockShuffle, MemoryDataSource, Stage, examples, mix, register
from ul2_tasks.mixtures.schedule import Schedule
from ul2_tasks.random_access.fingerprint import until
from ul2_tasks.random_access.sequence import read_rows

LENGTHS = {"inputs": 80, "targets": 80}
STEPS, BATCH = 40, 8
BLOCKS = BlockShuffle(block_tokens=2000, partitions=4, window_blocks=2)
CORPORA = {"web": BLOCKS, "code": None, "books": BLOCKS}
MIXED = [f"{corpus}_mix" for corpus in CORPORA] + ["web_r1", "web_s"]  # so that stages have other denoisers on one corpus, too


@pytest.fixture(scope="module", autouse=True)
def corpora():
    vocabulary, modes = byte_vocabulary()
    for number, (name, blocks) in enumerate(CORPORA.items()):
        source = MemoryDataSource(lambda number=number: long_documents()[number::8], validation=0)
        register(name, source, vocabulary, modes=modes, block_shuffle=blocks)
    yield
    for registry in (seqio.TaskRegistry, seqio.MixtureRegistry):
        for name in [name for name in registry.names() if name.split("_")[0] in ("changing", *CORPORA)]:
            registry.remove(name)


weights = st.dictionaries(st.sampled_from(MIXED), st.sampled_from([1, 0.3, 3, 0.001]), min_size=1, max_size=3)


@st.composite
def stages(draw, first=0):
    """Up to four stages from a step on."""
    found = [Stage(first, draw(weights), 0 if first == 0 else draw(st.integers(0, 9)), draw(st.integers(1, 5)))]
    while len(found) < 4 and draw(st.booleans()):
        first = draw(st.integers(end_of(found[-1]), end_of(found[-1]) + 15))
        found.append(Stage(first, draw(weights), draw(st.integers(0, 9)), draw(st.integers(1, 5))))
    return found


def end_of(stage) -> int:
    return stage.first_step + max(1, stage.ramp_steps)


def planned(schedule, pack):
    """The examples of a schedule; of weights, those of a mixture without one; of a name, those of what has it."""
    if isinstance(schedule, str):
        return examples(schedule, LENGTHS, pack=pack)
    if "changing_mix" in seqio.MixtureRegistry.names():
        seqio.MixtureRegistry.remove("changing_mix")
    if isinstance(schedule, dict):
        return examples(mix("changing", schedule), LENGTHS, pack=pack)
    return examples(mix("changing", schedule=schedule, batch_size=BATCH, steps=STEPS), LENGTHS, pack=pack)


def begun(schedule, step) -> list:
    """What was read before a step, as the schedule says it. The weight of a single mixture makes no difference."""
    schedule = {schedule: 1} if isinstance(schedule, str) else schedule
    flat = [(0, schedule)] if isinstance(schedule, dict) else Schedule(tuple(schedule), BATCH, STEPS).flat()
    return [(first, dict(of) if len(of) > 1 else list(of)) for first, of in flat if first < max(1, step)]


def rows_of(found) -> list:
    """The elements of the run, without their padding."""
    rows, _, _ = read_rows(found, np.arange(STEPS * BATCH))
    return list(zip(*([row.rstrip(b"\0") for row in map(np.ndarray.tobytes, value)] for value in rows.values())))


@given(st.data(), stages(), st.integers(0, STEPS), st.booleans())
def test_schedules_that_agree_until_a_step_are_accepted_there_with_the_same_rows_before_it(data, schedule, now, pack):
    """Also where a corpus joins later, with blocks or without, and where one of them is no schedule but a mixture."""
    kept = [stage for stage in schedule if stage.first_step < max(1, now)]
    other = kept + data.draw(stages(max(now, end_of(kept[-1]))))
    if len(kept) == 1 and data.draw(st.booleans()):
        other = dict(kept[0].mixtures)
        (name, *others) = other
        other = other if others or not name.endswith("mix") or data.draw(st.booleans()) else name
    one, changed = planned(schedule, pack), planned(other, pack)
    told = [json.loads(json.dumps(each.describe())) for each in (one, changed)]
    rows = [rows_of(each) for each in (one, changed)]
    for step in sorted({0, 1, now, now + 1, STEPS}):
        is_accepted = until(told[0], step * BATCH) == until(told[1], step * BATCH)
        assert is_accepted or begun(schedule, step) != begun(other, step)
        assert is_accepted or step > now
        if is_accepted:
            assert rows[0][: step * BATCH] == rows[1][: step * BATCH]
