"""`ul2 doctor`: what it finds in data of any kind, and what it calls a problem."""

import re
import sys

import pytest

import ul2_tasks
from tests.chat.chat_support import GOLDEN, harmony, o200k_file
from tests.chat.test_register_chat import write_jsonl
from tests.images.image_support import NOISE, S, image, registered
from ul2_tasks import Chat
from ul2_tasks.chat import harmony as harmony_form
from ul2_tasks.chat.harmony import MARKERS, HarmonyRenderer
from ul2_tasks.inspect.doctor import examine


@pytest.fixture(scope="module")
def renderer():
    return HarmonyRenderer(ul2_tasks.open_vocabulary("bytes", modes=MARKERS))


def chat_of(conversations, folder, renderer, **settings):
    return Chat("doctored", write_jsonl(folder / "talks.jsonl", conversations), renderer, **settings)


def findings(description, lengths, kind, split="train"):
    return [f"{each.about}: {each.what}; {each.remedy}" for each in examine(description, lengths, split) if each.kind == kind]


U = GOLDEN[0]
TWO = [GOLDEN, [*GOLDEN, *GOLDEN]]
FOUND = {  # conversations, settings, of which kind the finding is, and what it is about
    "role": ([GOLDEN, [{"role": "critic", "content": "x"}]], {}, "problem", "corpus: .*line 2.*'critic'"),
    "role, skipped": ([GOLDEN, [{"role": "critic", "content": "x"}]], {"on_error": "skip"}, "note", "corpus: .*'critic'"),
    "kind": ([GOLDEN, [U, {"role": "assistant", "content": "x"}]], {}, "problem", "corpus: .*line 2.*'assistant'"),
    "none": ([[{"role": "critic"}]], {}, "problem", "corpus: 1 records"),
    "silent": ([[U]], {}, "problem", "lengths: .* 1 without"),
    "nothing": ([GOLDEN, [U]], {}, "note", "lengths: 1 .* without"),
    "raises": (TWO, {"truncation": "raise"}, "problem", "lengths: .* 1 too long"),
    "dropped": (TWO, {"truncation": "drop"}, "note", "lengths: 1 .* too long"),
    "oldest": (TWO, {"truncation": "drop_oldest_turns"}, "note", "lengths: 1 examples"),
    "fine": ([GOLDEN], {}, "ok", "lengths: 1 examples of 1 documents"),
}


@pytest.mark.parametrize("case", FOUND)
def test_conversations(case, renderer, tmp_path):
    conversations, settings, kind, expected = FOUND[case]
    found = findings(chat_of(conversations, tmp_path, renderer, **settings), {"tokens": 100}, kind)
    assert any(re.match(expected, each) for each in found), found


def test_each_error_is_shown_until_there_are_many(renderer, tmp_path):
    wrong = [[{"role": f"critic {n}", "content": "x"}] for n in range(20)]
    found = findings(chat_of([GOLDEN, *wrong], tmp_path, renderer), {"tokens": None}, "problem")
    assert [re.findall(r"'critic (\d+)'", each) for each in found] == [*([str(n)] for n in range(8)), []]
    assert found[-1].startswith("corpus: 12 ")


@pytest.mark.parametrize(
    ("records", "lengths", "expected"),
    [
        ([["Cut off:", NOISE[: len(NOISE) // 2]]], (128, 128), "corpus: .*record 1: .*damaged"),
        ([["Longer: ", image(2), NOISE, "One is noise."]], (20, 128), "lengths: .* 1 .*inputs"),
    ],
    ids=["damaged", "too long"],
)
def test_images(records, lengths, expected):
    first = [["A cat.", image(1)]]
    name = registered(f"doctored_{lengths[0]}", *first, *records, denoisers=S)
    found = findings(ul2_tasks.description_of(name), dict(zip(("inputs", "targets"), lengths)), "problem")
    assert any(re.match(expected, each) for each in found), found


def test_a_package_that_is_missing(tmp_path, monkeypatch):
    file = o200k_file(tmp_path)
    system = {"role": "system", "content": [{"type": "system_content"}]}
    chat = chat_of([GOLDEN, [system, *GOLDEN]], tmp_path, harmony(file))
    assert findings(chat, {"tokens": None}, "problem") == []
    harmony_form._harmony.cache_clear()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "openai_harmony", None)
        [problem] = findings(chat, {"tokens": None}, "problem")
    assert re.match("corpus: .*extra chat", problem)
