"""The laws of the masks of conversations: what is trained on, and in which loss group, of whatever settings."""

import json

import numpy as np
import pytest
import seqio
from chat_support import GOLDEN

import ul2_tasks
from ul2_tasks.chat.harmony import CALL, END, MARKERS, RETURN, HarmonyRenderer
from ul2_tasks.chat.segments import KIND, LENGTH, ROLES, WEIGHT
from ul2_tasks.looking.conversations.show import draw_chat
from ul2_tasks.vocabulary.special_ids import piece_id

TALK = [
    {"role": "developer", "content": "You may add."},
    {"role": "user", "content": "2 and 2?"},
    {"role": "assistant", "channel": "analysis", "content": "I add."},
    {"role": "assistant", "channel": "commentary", "recipient": "functions.add", "content": "[2, 2]"},
    {"role": "tool", "name": "functions.add", "channel": "commentary", "recipient": "assistant", "content": "4"},
    {"role": "assistant", "channel": "final", "content": "4.", "weight": 0},
    {"role": "user", "content": "Sure?"},
    {"role": "assistant", "channel": "analysis", "content": "I am."},
    {"role": "assistant", "channel": "final", "content": "Yes."},
]
SETTINGS = {
    "all": {},
    "each turn": {"turns": "each"},
    "last turn": {"turns": "last"},
    "content": {"train_on": "content"},
    "generated": {"train_on": "generated"},
    "own groups": {"loss_groups": {"assistant/final": 5, "assistant/analysis": 0, "assistant/commentary>tool": 2}},
}


@pytest.mark.parametrize("format", ["chat", "prompt_completion"])
@pytest.mark.parametrize("name", SETTINGS)
def test_of_each_token_that_is_trained_on(name, format, tmp_path):
    (tmp_path / "talks.jsonl").write_text("".join(json.dumps({"messages": talk}) + "\n" for talk in (GOLDEN, TALK)))
    renderer = HarmonyRenderer(ul2_tasks.open_vocabulary("bytes", modes=MARKERS))
    of_name = f"laws_{name.replace(' ', '_')}_{format}"
    task = ul2_tasks.register_chat(of_name, str(tmp_path / "talks.jsonl"), renderer, format=format, mode=300, **SETTINGS[name])
    drawn = list(draw_chat(task, count=99))
    assert drawn
    groups, vocabulary = drawn[0][0].supervision.group_of_kinds(), renderer.vocabulary
    stops = [piece_id(vocabulary, stop) for stop in (END, CALL, RETURN)]
    for _, example in drawn:
        trained, rows = example.loss_mask > 0, example.messages
        assert example.numbers, "an example is whole messages of its conversation"
        assert ((example.ids > 0) & (example.ids < vocabulary.vocab_size)).all()
        assert (trained == (example.span_id > 0)).all()
        assert trained.any()
        message = np.full(len(example.ids), -1)  # which message each token is of
        message[example.first : example.ends[-1]] = np.repeat(np.arange(len(rows)), rows[:, LENGTH])
        assert (message[trained] >= 0).all(), "neither a mode nor EOD is trained on"
        of = rows[message[trained]]
        assert (of[:, KIND] // 8 == ROLES.index("assistant")).all()
        assert (of[:, WEIGHT] > 0).all()
        assert (example.span_id[trained] == groups[of[:, KIND]]).all()
        ends = np.flatnonzero(trained & ~np.append(trained[1:], False))
        assert np.isin(ends, example.ends - 1).all(), "a run ends with the token that ends a message"
        assert np.isin(example.ids[ends], stops).all()
    read = list(seqio.get_mixture_or_task(task).get_dataset(None, "train", shuffle=False).as_numpy_iterator())
    assert len(read) == len(drawn)
