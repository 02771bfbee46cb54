"""What all descriptions keep: equal ones have one fingerprint, they go to other processes, and arguments are checked."""

import json
import pickle

import pytest
import tensorflow as tf

import ul2_tasks
from tests.images.image_support import SPECIAL, VOCABULARY, S, image, record_of
from ul2_tasks import Chat, Mix, Mixture, examples
from ul2_tasks.sources.image_examples import parsed, serialized
from ul2_tasks.sources.memory import texts_in_memory

LENGTHS = {"inputs": 64, "targets": 64}
LONG = [{"role": "user", "content": "35 plus 1?"}, {"role": "assistant", "channel": "final", "content": "36. " * 200}]


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
    pytest.importorskip("torch", reason="the extra torch is not installed")
    found = examples(mixture(), LENGTHS)
    earlier = ul2_tasks.UL2IterableDataset(found, num_epochs=1)
    earlier.load_state_dict(ul2_tasks.UL2IterableDataset(found.epoch(3), num_epochs=1).state_dict())
    with pytest.raises(ValueError, match="epochs"):
        next(iter(earlier))


SEEN = {"name": "mp", "source": [record_of([image(2), "Grey."])], "vocabulary": VOCABULARY, "denoisers": S, **SPECIAL}


@pytest.mark.parametrize(
    ("changed", "argument"),
    [
        ({"on_unusable": "drop"}, "on_unusable"),
        ({"split": "words"}, "split"),
        ({"image_tokens": 5}, "image_tokens"),
        ({"denoisers": ul2_tasks.CausalDenoiser()}, "denoisers"),
        ({"name": "a b"}, "name"),
    ],
)
def test_what_is_wrong_of_images_is_said_at_once(changed, argument):
    with pytest.raises(ValueError, match=argument):
        ul2_tasks.ImageText(**SEEN | changed)


@pytest.mark.parametrize(
    ("arguments", "settings", "named"),
    [
        ({}, {}, "line 2: .* 400 tokens"),
        ({"truncation": "drop"}, {"sequence_length": {"tokens": 4}}, "mc_wrong_corpus"),
        ({"truncation": "drop"}, {"sequence_length": {"inputs": 0}}, "sequence_length"),
        ({"truncation": "drop"}, {"split": "test"}, "split"),
        ({"truncation": "drop"}, {"cache_dirs": ["/nowhere"]}, "/nowhere"),
    ],
)
def test_what_is_wrong_of_a_chat_is_said_when_its_examples_are_counted(tmp_path, arguments, settings, named):
    talks = [[LONG[0], LONG[1] | {"content": "36."}], LONG]
    (tmp_path / "talks.jsonl").write_text("\n".join(json.dumps({"messages": messages}) for messages in talks))
    chat = Chat("mc_wrong", str(tmp_path / "talks.jsonl"), **arguments)
    with pytest.raises(ValueError, match=named):
        examples(chat, **{"sequence_length": {"tokens": 400}, **settings})


def test_records_with_images_are_examples_of_tensorflow():
    record = [b"", b"A cat" * 60, "狐".encode()], [image(1), b"", b"x" * (1 << 15)], b"line 7"
    example = tf.train.Example.FromString(serialized(*record))
    lists = {key: list(feature.bytes_list.value) for key, feature in example.features.feature.items()}
    assert lists == {"texts": record[0], "images": record[1], "where": [record[2]]}
    assert len(example.SerializeToString()) == len(serialized(*record))
    assert parsed(example.SerializeToString()) == parsed(serialized(*record)) == record
