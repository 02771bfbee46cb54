"""What all descriptions keep: equal ones have one fingerprint, they go to other processes, and arguments are checked."""

import pickle

import numpy as np
import pytest

import ul2_tasks
from ul2_tasks import Chat, Mix, Mixture, examples
from ul2_tasks.sources.memory import texts_in_memory

LENGTHS = {"inputs": 64, "targets": 64}
RECORDS = [{"texts": ["A cat:", None], "images": [None, b".."]}]


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


def test_a_mode_may_be_numpys():
    (mode,) = Chat(mode="[S]").mode
    for same in (mode, [mode], np.int64(mode), np.array([mode])):
        assert Chat(mode=same) == Chat(mode="[S]")


@pytest.mark.parametrize("wrong", [0, -3, 1.5, "2", True])
def test_how_many_documents_are_cached_is_checked(wrong, tmp_path):
    with pytest.raises(ValueError, match=r"max_documents must be an integer of at least 1, .*got .*\. Leave it out for all\."):
        Mixture().cache(tmp_path, max_documents=wrong)
    assert not list(tmp_path.iterdir())


def test_numpys_integer_of_documents(tmp_path):
    assert Mixture().cache(tmp_path, max_documents=np.int64(2))["splits"]["train"]["documents"] == 2


@pytest.mark.parametrize("wrong", [None, 3, [Mixture()]])
def test_what_has_no_examples_by_index_is_told(wrong):
    with pytest.raises(
        ValueError, match="mixture must be a Mixture, a Mix, a Chat, an ImageText, or the name of a registered mixture, got "
    ) as told:
        examples(wrong, LENGTHS)
    assert str(told.value).endswith(". Others are streams: register them, and read them with get_dataset.")
    assert "  " not in str(told.value)


def test_an_error_of_weights_is_short():
    with pytest.raises(ValueError, match=r"mixtures must map distinct names to positive.*SpanDenoiser\(name='r2', m") as told:
        Mix("both", {mixture(): lambda step: 1})
    assert len(str(told.value)) < 500


@pytest.mark.parametrize("made", [mixture, Chat])
def test_lengths_must_be_given(made):
    with pytest.raises(ValueError, match="sequence_length must be lengths in tokens by feature, got None"):
        examples(made(), None)


def test_epochs_of_epochs():
    found = examples(mixture(), LENGTHS)
    for epoch in range(2000):
        found = found.epoch(epoch)
    assert found.describe()["mixture"] == "few_mix"
    assert pickle.loads(pickle.dumps(found))[0]["inputs"].tolist() == found[0]["inputs"].tolist()


def test_as_many_samples_as_are_asked_for():
    from ul2_tasks.looking.texts.draw import draw

    assert len(list(draw(mixture(), LENGTHS, 1500, denoisers=["r1"]))) == 1500


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
    with pytest.raises(ValueError, match=r"the state was saved by another pipeline: it is.*epochs here begin at 0 and end at 2"):
        next(iter(earlier))
