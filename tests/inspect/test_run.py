"""What a run is fed: steps and hosts, and the record in its folder."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ul2_tasks.inspect.run import Run, read_record
from ul2_tasks.random_access.numbering import RUN_RECORD

LENGTHS = {"inputs": 64, "targets": 64}


@given(hosts=st.integers(1, 8), on_each=st.integers(1, 8), step=st.integers(0, 10**9), first_step=st.integers(0, 10**6))
def test_hosts_share_a_step_and_steps_share_all_examples(hosts, on_each, step, first_step):
    run = Run("ul2_mix", LENGTHS, batch_size=hosts * on_each, first_step=first_step)
    step += first_step
    of_hosts = [run.numbers(step, (host, hosts)) for host in range(hosts)]
    assert sorted(number for numbers in of_hosts for number in numbers) == list(run.numbers(step))
    assert all(number % hosts == host for host, numbers in enumerate(of_hosts) for number in numbers)
    assert run.numbers(step).stop == run.numbers(step + 1).start
    assert {run.step_of(number) for number in run.numbers(step)} == {step}
    assert run.numbers(first_step).start == 0


@pytest.mark.parametrize(
    ("settings", "step", "host", "message"),
    [
        ({}, 1, (0, 1), "batch"),
        ({"batch_size": 8, "first_step": 100}, 99, (0, 1), "step"),
        ({"batch_size": 8}, 0, (0, 3), "hosts"),
    ],
)
def test_a_step_that_is_none_is_refused(settings, step, host, message):
    with pytest.raises(ValueError, match=message):
        Run("ul2_mix", LENGTHS, **settings).numbers(step, host)


@pytest.mark.parametrize("content", [None, "{", "[1]", '{"mixture": "ul2_mix", "split": "train"}'])
def test_a_folder_without_a_record_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / RUN_RECORD).write_text(content)
    with pytest.raises(ValueError, match=RUN_RECORD):
        read_record(str(tmp_path))
