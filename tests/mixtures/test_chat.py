"""`Chat`: its examples are those of the stream, and two are equal if their arguments are."""

import dataclasses
import json
import re

import pytest
import seqio
from chat_support import o200k_file

import ul2_tasks

TALKS = [
    [
        message
        for turn in range(1 + number % 3)
        for message in (
            {"role": "user", "content": f"{number} plus {turn}?"},
            {"role": "assistant", "channel": "analysis", "content": f"I add {number} and {turn}."},
            {"role": "assistant", "channel": "final", "content": f"{number + turn}. " * (1 + number)},
        )
    ]
    for number in range(150)
]
CHATS, REPLIES = {"tokens": 400}, {"inputs": 900, "targets": 400}


@pytest.fixture(scope="module")
def talks(tmp_path_factory):
    path = tmp_path_factory.mktemp("talks") / "talks.jsonl"
    path.write_text("".join(json.dumps({"messages": messages}) + "\n" for messages in TALKS))
    return str(path)


def plain(examples) -> list[dict]:
    return [{key: value.tolist() for key, value in example.items()} for example in examples]


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("lengths", [CHATS, REPLIES])
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("mc_drop", {"too_long": "drop"}),
        ("mc_mode", {"too_long": "drop", "mode": "[S]"}),
        ("mc_each", {"too_long": "oldest", "turns": "each"}),
        ("mc_shifted", {"too_long": "drop", "mode": "[S]"}),
    ],
)
def test_the_examples_are_those_of_two_epochs_of_the_stream(talks, tmp_path, name, arguments, lengths, shuffle):
    if name == "mc_shifted":  # SeqIO's ids are one higher than the tokenizer's
        o200k_file(tmp_path)
        arguments = {**arguments, "renderer": f"harmony:{tmp_path}"}
        name = f"{name}_{len(lengths)}_{shuffle}"
    chat = ul2_tasks.Chat(name, talks, **arguments)
    found = ul2_tasks.examples(chat, lengths, seed=7, shuffle=shuffle)
    task = ul2_tasks.register_chat(name, talks, form="chat" if lengths is CHATS else "reply", **arguments)
    stream = seqio.get_mixture_or_task(task).get_dataset(lengths, shuffle=shuffle, seed=7, num_epochs=2)
    shift = ul2_tasks.id_shift(chat.renderer.vocabulary)
    assert shift == name.startswith("mc_shifted")
    own = ({key: value - shift if key in lengths else value for key, value in one.items()} for one in stream.as_numpy_iterator())
    wanted = plain(own)
    assert plain(found) + plain(found.epoch(1)) == wanted
    assert plain(found[-3:]) == wanted[len(found) - 3 : len(found)]
    assert plain([found[5]]) == [wanted[5]]


def test_what_is_left_out_is_counted_and_a_place_is_known(talks):
    found = ul2_tasks.examples(ul2_tasks.Chat("mc_few", talks, too_long="drop"), {"tokens": 400}, shuffle=False)
    assert len(found) + found.left_out["too long"] == len(TALKS)
    assert found.locate(0) == f"{talks}, line 1"
    with pytest.raises(IndexError, match=f"there is no example {len(found)}, only 0 to {len(found) - 1}"):
        found[len(found)]
    with pytest.raises(ValueError, match="epoch is -1, expected an integer, 0 or more"):
        found.epoch(-1)


@pytest.mark.parametrize(
    ("arguments", "settings", "sentence"),
    [
        ({}, {}, "line 36: the conversation has 427 tokens, more than 400"),
        ({"too_long": "drop"}, {"sequence_length": {"tokens": 4}}, "'mc_wrong_chat' makes no example of its conversations"),
        ({"too_long": "drop"}, {"sequence_length": {"inputs": 0}}, "sequence_length has 0 for 'inputs', expected an integer"),
        ({"too_long": "drop"}, {"pack": True}, "pack is True, and rows of conversations are not fixed"),
        ({"too_long": "drop"}, {"split": "test"}, "there is no split 'test' in 'mc_wrong_corpus'"),
        ({"too_long": "drop"}, {"cache_dirs": ["/nowhere"]}, "is in none of ['/nowhere']; write it with Chat.cache or `ul2 cache`"),
    ],
)
def test_what_is_wrong_is_said_when_the_examples_are_counted(talks, arguments, settings, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        ul2_tasks.examples(ul2_tasks.Chat("mc_wrong", talks, **arguments), **{"sequence_length": CHATS, **settings})


def test_two_are_equal_if_their_arguments_are(talks):
    one = ul2_tasks.Chat("one", talks, mode="[S]")
    same = ul2_tasks.Chat("one", talks, ul2_tasks.open_renderer("harmony:default"), mode=["[S]"], spans=dict(one.spans))
    assert one == same == dataclasses.replace(one)
    assert hash(one) == hash(same)
    assert one.fingerprint() == same.fingerprint() == dataclasses.replace(one, name="two").fingerprint()
    for changed in (
        {"mode": None},
        {"turns": "all"},
        {"supervise": "content"},
        {"spans": "plain"},
        {"renderer": "harmony:bytes", "mode": None},
        {"source": "embedded", "messages_key": "text"},
    ):
        other = dataclasses.replace(one, **changed)
        assert other != one
        assert other.fingerprint() != one.fingerprint()
    assert dataclasses.replace(one, name="two") != one
