"""`exclude` and `skip` as their user names them: steps, lists, what is recorded of them, and how a run resumes with others."""

import json
import logging

import numpy as np
import pytest

import ul2_tasks
from ul2_tasks import Mix, Mixture
from ul2_tasks.inspect.audit import audit
from ul2_tasks.inspect.find import place_of, seen
from ul2_tasks.inspect.run import run_of
from ul2_tasks.random_access.exclude import leaving_out_of, save_list
from ul2_tasks.random_access.fingerprint import of_leaving_out
from ul2_tasks.t5x.dataset import Start, begin_or_compare

LENGTHS = {"inputs": 96, "targets": 96}
LISTED = [{"document": 70}, {"document": 221}]
PLANNED = Mix("excluded_planned", schedule=[ul2_tasks.Stage(0, {Mixture(): 1})], batch_size=8, steps=30)


def read(mixture=None, **arguments):
    return ul2_tasks.examples(mixture or Mixture(), LENGTHS, **arguments)


def locations(found, count=300):
    return [found.locate(index) for index in range(count)]


def test_a_list_is_a_file_or_its_entries_and_steps_may_be_numpy_integers(tmp_path):
    (tmp_path / "list.jsonl").write_text('{"document": 70}\n{"document": 221, "reason": "asked for"}\n')
    one, other = read(exclude=tmp_path / "list.jsonl"), read(exclude=LISTED)
    assert not one.find(70)
    assert one.describe() == other.describe()
    assert locations(one) == locations(other)
    of_numpy, same = (read(skip=skip, batch_size=np.int64(8)) for skip in (np.array([[20, 22]]), [(20, 22)]))
    assert json.dumps(of_numpy.describe()) == json.dumps(same.describe())


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"exclude": {10: LISTED}}, "exclude"),
        ({"skip": [(3, 4)]}, "batch_size"),
        ({"skip": [(3, 4)], "batch_size": 0}, "batch_size"),
        ({"skip": [(9, 12), (3, 4)], "batch_size": 8}, "skip"),
        ({"skip": 3, "batch_size": 8}, "skip"),
        ({"skip": [(3, 10**30)], "batch_size": 8}, "skip"),
        ({"exclude": [{"id": "77f2"}]}, "ul2_corpus"),
        ({"exclude": 3}, "exclude"),
        ({"exclude": [{"document": -3}]}, "entry 0"),
        ({"mixture": PLANNED, "skip": [(3, 4)], "batch_size": 4}, "batch_size"),
        ({"split": "test"}, "split"),
        ({"seed": None}, "seed"),
        ({"seed": True}, "seed"),
    ],
)
def test_what_cannot_be_left_out_or_asked_for_is_rejected(arguments, named):
    with pytest.raises(ValueError, match=named):
        read(**arguments)


def test_the_batch_of_a_schedule_is_that_of_what_is_skipped_and_a_stream_skips_nothing():
    assert read(PLANNED, skip=[(3, 4)]).describe()["skip"] == [{"first": 24, "elements": 8}]
    with pytest.raises(ValueError, match="exclude"):
        leaving_out_of(None, LISTED)


LONGER = [*LISTED, {"document": 3}]


@pytest.mark.torch
def test_a_state_resumes_with_a_longer_list_and_no_other_past():
    before = {"exclude": LISTED, "skip": [(20, 22)], "batch_size": 8}
    longer = {"exclude": LONGER, "skip": [(20, 22), (45, 47)], "batch_size": 8}
    dataset = ul2_tasks.UL2IterableDataset(read(**before))
    iterator = iter(dataset)
    for _ in range(40 * 8):
        next(iterator)
    state = dataset.state_dict()
    resumed = ul2_tasks.UL2IterableDataset(read(**longer))
    resumed.load_state_dict(state)
    assert next(iter(resumed))["input_ids"].tolist() == read(**longer)[320]["inputs"].tolist()
    for other in ({**longer, "exclude": LISTED[:1]}, {**longer, "skip": [(20, 23)]}, {"batch_size": 8}):
        changed = ul2_tasks.UL2IterableDataset(read(**other))
        changed.load_state_dict(state)
        with pytest.raises(ValueError, match=r"exclude|skip"):
            next(iter(changed))


def recorded(folder, step, is_resumed, **arguments):
    found = read()
    leaving_out = leaving_out_of(found.numbering, arguments.get("exclude"), arguments.get("skip", ()), 8)
    settings = {"pack": False, "batch_size": 8}
    run = json.loads(json.dumps({**found.describe(), **of_leaving_out(leaving_out), **settings}))
    begin_or_compare(str(folder), run, Start(step, is_resumed), is_writer=True)
    save_list(str(folder), leaving_out)
    return json.loads((folder / "ul2_run.json").read_text())


def test_a_run_keeps_its_lists_and_may_get_a_longer_one_from_the_step_it_has_reached(tmp_path):
    recorded(tmp_path, 0, False)
    first = recorded(tmp_path, 10, True, exclude=LISTED)
    assert [each["first"] for each in first["exclude"]] == [80]
    last = recorded(tmp_path, 30, True, exclude=LONGER, skip=[(40, 42)])
    assert [each["first"] for each in last["exclude"]] == [80, 240]
    assert recorded(tmp_path, 35, True, exclude=LONGER, skip=[(40, 42)]) == last
    run = run_of(last, str(tmp_path))
    for number, exclude in ((79, None), (80, LISTED), (239, LISTED), (240, LONGER)):
        assert run.examples_at(number).locate(number) == read(exclude=exclude, skip=[(40, 42)], batch_size=8).locate(number)
    run.check(last, str(tmp_path))
    audited = audit(run, until=58).corpora[0]
    assert audited.tokens_read == sum(
        stop - start for number in range(464) for start, stop in run.examples_at(number).locate(number).tokens
    )
    numbers = [each.number for each in seen(run, place_of(run.examples(), "70"), epochs=1)]
    assert numbers == [number for number in read().find(70) if number < 80]
    for other in ({}, {"exclude": LISTED}, {"exclude": LONGER, "skip": [(29, 42)]}):
        with pytest.raises(ValueError, match=r"exclude|skip"):
            recorded(tmp_path, 50, True, **other)
    lists = sorted(tmp_path.glob("ul2_exclude_*.jsonl"))
    assert len(lists) == 2
    lists[0].rename(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match=lists[0].name):
        run_of(last, str(tmp_path))


def test_how_much_is_left_out_is_logged_and_what_is_not_found_is_a_warning(caplog):
    with caplog.at_level(logging.INFO, logger="ul2_tasks"):
        found = read(exclude=[*LISTED, {"document": 10**6}, {"document": 10**7}])
    replaced = sum(bool(where.replaces) for where in locations(found, len(found)))
    assert f"{replaced:,} of {len(found):,} examples" in caplog.text
    assert "2 entries" in caplog.text
