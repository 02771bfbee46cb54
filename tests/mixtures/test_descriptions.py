"""What all descriptions keep: equal ones have one fingerprint, they go to other processes, and arguments are checked."""

import pickle

import pytest

import ul2_tasks
from ul2_tasks import Chat, Mix, Mixture, examples
from ul2_tasks.sources.memory import texts_in_memory

LENGTHS = {"inputs": 64, "targets": 64}


def mixture() -> Mixture:
    return Mixture("few", texts_in_memory(["a few words, and some more of them"] * 4), "bytes")


@pytest.mark.parametrize(
    "made",
    [Mixture, Chat, lambda: Mix("both", {Mixture("a"): 1, Mixture("b"): 2})],
    ids=["Mixture", "Chat", "Mix"],
)
def test_a_description_goes_to_another_process(made):
    sent = pickle.loads(pickle.dumps(made()))
    assert sent == made()
    assert sent.fingerprint() == made().fingerprint()


def test_equal_descriptions_have_one_fingerprint():
    a, b = Mixture("a"), Mixture("b")
    assert Mix("both", {a: 1.0, b: 2}) == Mix("both", {a: 1, b: 2})
    assert Mix("both", {a: 1.0, b: 2}).fingerprint() == Mix("both", zip([a, b], [1, 2])).fingerprint()
    groups = {"assistant/analysis": 1, "assistant/final": 2}
    one, other = Chat(loss_groups=groups), Chat(loss_groups=dict(reversed(groups.items())))
    assert one == other
    assert one.fingerprint() == other.fingerprint()


def test_epochs_of_epochs():
    found = examples(mixture(), LENGTHS)
    for epoch in range(2000):
        found = found.epoch(epoch)
    assert found.describe()["mixture"] == "few_mix"
    assert pickle.loads(pickle.dumps(found))[0]["inputs"].tolist() == found[0]["inputs"].tolist()


@pytest.mark.torch
def test_a_state_of_a_later_epoch_is_refused_by_an_earlier_one():
    torch = pytest.importorskip("torch", reason="the extra torch is not installed")
    del torch
    found = examples(mixture(), LENGTHS)
    later = ul2_tasks.UL2IterableDataset(found.epoch(3), num_epochs=1)
    reading = iter(later)
    next(reading)
    state = later.state_dict()
    earlier = ul2_tasks.UL2IterableDataset(found, num_epochs=1)
    earlier.load_state_dict(state)
    with pytest.raises(ValueError, match="epochs"):
        next(iter(earlier))
