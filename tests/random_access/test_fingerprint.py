"""Which schedules a run accepts when it goes on: those whose elements until then are the same, and no others."""

import dataclasses
import json

import numpy as np
import pytest
import seqio
from hypothesis import given
from hypothesis import strategies as st

from tests.support import byte_vocabulary, long_documents
from ul2_tasks import BlockShuffle, MemoryDataSource, Stage, examples, mix, register
from ul2_tasks.mixtures.schedule import Schedule
from ul2_tasks.order.steps import Steps
from ul2_tasks.random_access.fingerprint import until
from ul2_tasks.random_access.sequence import read_rows

LENGTHS = {"inputs": 80, "targets": 80}
LONGER = {"inputs": 200, "targets": 160}
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
def stages(draw, first=0, has_lengths=None):
    """Up to four stages from a step on, which may have lengths, and other batch sizes than those before."""
    has_lengths, found = draw(st.booleans()) if has_lengths is None else has_lengths, []
    while not found or (len(found) < 4 and draw(st.booleans())):
        first = draw(st.integers(end_of(found[-1]), end_of(found[-1]) + 15)) if found else first
        lengths = draw(st.sampled_from([LENGTHS, LONGER, {}])) if first else LENGTHS
        more = {"lengths": lengths} if has_lengths else {}
        more["batch_size"] = draw(st.sampled_from([None, BATCH, 2 * BATCH]))
        found.append(Stage(first, draw(weights), draw(st.integers(0, 9)) if first else 0, draw(st.integers(1, 5)), **more))
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
    schedule = [Stage(0, schedule)] if isinstance(schedule, dict) else schedule
    planned = Schedule(tuple(schedule), BATCH, STEPS)
    lengths = [(0, LENGTHS), *planned.lengths]
    return [
        (
            first,
            dict(of) if len(of) > 1 else list(of),
            planned.in_steps.size(first),
            [own for at, own in lengths if at <= first][-1],
        )
        for first, of in planned.flat()
        if first < max(1, step)
    ]


def rows_of(found, elements) -> list:
    """The first elements of the run, without their padding."""
    rows = [
        read_rows(found, of)[0] for of in np.split(np.arange(elements), [e for e, _ in found.numbering.lengths if 0 < e < elements])
    ]
    return [each for of in rows for each in zip(*([row.rstrip(b"\0") for row in map(np.ndarray.tobytes, of[key])] for key in of))]


@given(st.data(), stages(), st.integers(0, STEPS), st.booleans())
def test_schedules_that_agree_until_a_step_are_accepted_there_with_the_same_rows_before_it(data, schedule, now, pack):
    """Also where a corpus joins later, with blocks or without, and where one of them is no schedule but a mixture."""
    kept = [stage for stage in schedule if stage.first_step < max(1, now)]
    more = data.draw(stages(max(now, end_of(kept[-1]))))
    if any(stage.lengths for stage in more) and not kept[0].lengths:  # those that it has had
        kept[0] = dataclasses.replace(kept[0], lengths=LENGTHS)
    other = kept + more
    if len(kept) == 1 and kept[0].batch_size in (None, BATCH) and data.draw(st.booleans()):
        other = dict(kept[0].mixtures)
        (name, *others) = other
        other = other if others or not name.endswith("mix") or data.draw(st.booleans()) else name
    one, changed = planned(schedule, pack), planned(other, pack)
    told = [json.loads(json.dumps(each.describe())) for each in (one, changed)]
    steps = Steps.of_record(told[0]["schedule"])
    rows = [rows_of(each, steps.element(STEPS)) for each in (one, changed)]
    for step in sorted({0, 1, now, now + 1, STEPS}):
        is_accepted = until(told[0], steps.element(step)) == until(told[1], steps.element(step))
        assert is_accepted or begun(schedule, step) != begun(other, step)
        assert is_accepted or step > now
        if is_accepted:
            assert rows[0][: steps.element(step)] == rows[1][: steps.element(step)]
