"""`Chat`: its examples are those of get_dataset, and two are equal if their arguments are."""

import json

import pytest
import seqio

import ul2_tasks
from tests.chat.chat_support import o200k_file

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
    return [{key: value.tolist() for key, value in example.items() if hasattr(value, "tolist")} for example in examples]


@pytest.mark.parametrize(("lengths", "shuffle"), [(CHATS, True), (REPLIES, False)])
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("mc_mode", {"truncation": "drop", "mode": "[S]"}),
        ("mc_each", {"truncation": "drop_oldest_turns", "turns": "each"}),
        ("mc_shifted", {"truncation": "drop", "mode": "[S]"}),
    ],
)
def test_the_examples_are_those_of_two_epochs_of_get_dataset(talks, tmp_path, name, arguments, lengths, shuffle):
    if name == "mc_shifted":  # SeqIO's ids are one higher than the tokenizer's
        o200k_file(tmp_path)
        arguments = {**arguments, "renderer": f"harmony:{tmp_path}"}
        name = f"{name}_{len(lengths)}_{shuffle}"
    chat = ul2_tasks.Chat(name, talks, **arguments)
    found = ul2_tasks.examples(chat, lengths, seed=7, shuffle=shuffle)
    task = ul2_tasks.register_chat(name, talks, format="chat" if lengths is CHATS else "prompt_completion", **arguments)
    read = seqio.get_mixture_or_task(task).get_dataset(lengths, shuffle=shuffle, seed=7, num_epochs=2)
    shift = int(chat.renderer.vocabulary.uses_0)
    assert shift == name.startswith("mc_shifted")
    own = ({key: value - shift if key in lengths else value for key, value in one.items()} for one in read.as_numpy_iterator())
    wanted = plain(own)
    assert plain(found) + plain(found.epoch(1)) == wanted
    assert plain(found[-3:]) == wanted[len(found) - 3 : len(found)]
    assert plain([found[5]]) == [wanted[5]]


@pytest.mark.parametrize(
    ("arguments", "settings", "named"),
    [
        ({}, {}, "line 36: .* 400 tokens"),
        ({"truncation": "drop"}, {"sequence_length": {"tokens": 4}}, "mc_wrong_corpus"),
        ({"truncation": "drop"}, {"sequence_length": {"inputs": 0}}, "sequence_length"),
        ({"truncation": "drop"}, {"split": "test"}, "split"),
        ({"truncation": "drop"}, {"cache_dirs": ["/nowhere"]}, "/nowhere"),
    ],
)
def test_what_is_wrong_is_said_when_the_examples_are_counted(talks, arguments, settings, named):
    with pytest.raises(ValueError, match=named):
        ul2_tasks.examples(ul2_tasks.Chat("mc_wrong", talks, **arguments), **{"sequence_length": CHATS, **settings})
