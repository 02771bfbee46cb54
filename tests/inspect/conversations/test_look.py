"""What people look at: examples of conversations, their measurements and checks, and what a doctor finds."""

import io
import itertools
import json
import re
import sys

import pytest
import seqio
from chat_support import GOLDEN, harmony, o200k_file
from rich.console import Console
from support import corpus_named

import ul2_tasks
from ul2_tasks.chat import harmony as harmony_form
from ul2_tasks.chat.harmony import MARKERS, HarmonyRenderer
from ul2_tasks.corpus.build_cache import build
from ul2_tasks.inspect.chat_samples import as_plain
from ul2_tasks.inspect.conversations.doctor import examine_conversations
from ul2_tasks.inspect.conversations.measure import measure_chat
from ul2_tasks.inspect.conversations.show import draw_chat, show_chat
from ul2_tasks.inspect.conversations.table import print_chat
from ul2_tasks.inspect.printing import print_json_lines

CALL = [
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
HOSTILE = "[red]a[/red] [/] :smile: <b>&amp;</b> \x1b[31mred\x07 <|end|>\u202e\n# head"


@pytest.fixture(scope="module")
def renderer():
    return HarmonyRenderer(ul2_tasks.open_vocabulary("bytes", modes=MARKERS))


@pytest.fixture(scope="module")
def corpus(renderer, tmp_path_factory):
    """A function that registers conversations, or any JSON, under a name, and returns NAME_chat or NAME_prompt_completion."""
    folder = tmp_path_factory.mktemp("look")

    def register(name, conversations, **settings):
        path = folder / f"{name}.jsonl"
        rows = ({"id": f"id {n}", "messages": messages} for n, messages in enumerate(conversations))
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return ul2_tasks.register_chat(name, str(path), settings.pop("renderer", renderer), **settings)

    return register


@pytest.fixture(scope="module")
def call(corpus):
    return corpus("look_call", [CALL], mode=300)


def of(name, lengths=None):
    """What is registered under a name, and lengths of its format."""
    format = ("inputs", "targets") if name.endswith("completion") else ("tokens",)
    return ul2_tasks.description_of(name), lengths or dict.fromkeys(format)


def shown(name, **settings) -> str:
    console = Console(file=io.StringIO(), width=300, legacy_windows=False)
    show_chat(*of(name), console, **settings)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"


def as_lines(name, **settings) -> list[dict]:
    print_json_lines(itertools.starmap(as_plain, draw_chat(*of(name), **settings)), file := io.StringIO())
    return [json.loads(line) for line in file.getvalue().splitlines()]


@pytest.mark.parametrize("format", ["chat", "prompt_completion"])
def test_json_has_the_example_and_its_messages(call, format):
    name = call.replace("chat", format)
    examples = seqio.get_mixture_or_task(name).get_dataset(None, "train", shuffle=False).as_numpy_iterator()
    lines = as_lines(name, count=9)
    for line, example in zip(lines, list(examples), strict=True):
        features = {"ids": line["ids"]} if format == "chat" else {key: line[key] for key in ("inputs", "targets")}
        wanted = {key.replace("tokens", "ids"): value.tolist() for key, value in example.items()}
        assert features | {key: line[key] for key in ("loss_mask", "span_id")} == wanted
        one = 1  # EOD, or the mode
        assert sum(message["tokens"] for message in line["messages"]) + one == sum(map(len, features.values()))
        assert sum(message["trained"] for message in line["messages"]) == sum(line["loss_mask"])
    if format == "chat":
        [line] = lines
        assert [(message["role"], message["channel"], message["loss_group"], message["text"]) for message in line["messages"]] == [
            ("developer", None, 0, "You may add."),
            ("user", None, 0, "2 and 2?"),
            ("assistant", "analysis", 1, "I add."),
            ("assistant", "commentary", 3, "[2, 2]"),
            ("tool", "commentary", 0, "4"),
            ("assistant", "final", 0, "4."),
            ("user", None, 0, "Sure?"),
            ("assistant", "analysis", 1, "I am."),
            ("assistant", "final", 2, "Yes."),
        ]
        assert line["messages"][3]["to_tool"]


def test_texts_are_never_taken_for_markup(corpus):
    messages = [{"role": "user", "content": HOSTILE}, {"role": "assistant", "channel": "final", "content": HOSTILE}]
    name = corpus("look_hostile", [messages])
    output = shown(name)
    for part in ("[red]a[/red] [/] :smile: <b>&amp;</b> \\u001b[31mred\\u0007 <|end|>\\u202e⏎", "# head"):
        assert output.count(part) == 2
    assert not {"\x1b", "\x07", "\u202e"} & set(output)
    [line] = as_lines(name)
    assert [message["text"] for message in line["messages"]] == [HOSTILE, HOSTILE]
    assert measure_chat(*of(name)).passed
    bad = corpus("look_hostile_role", [[{"role": "[red]x[/]\x1b", "content": "x"}], GOLDEN], on_error="skip")
    console = Console(file=io.StringIO(), width=300)
    print_chat(measure_chat(*of(bad)), console)
    assert "rejected  1: message N of N: role must be one of" in console.file.getvalue()


def test_what_is_left_out_is_counted_and_a_run_that_it_would_end_breaks_a_check(corpus):
    longer = [{"role": "user", "content": "long " * 20}, *GOLDEN[1:]]
    conversations = [GOLDEN, longer, [{"role": "user", "content": "Anyone?"}], [{"role": "critic", "content": "x"}], []]
    settings = {"on_error": "skip", "truncation": "drop"}
    statistics = measure_chat(*of(corpus("look_left_out", conversations, **settings), {"tokens": 70}))
    assert statistics.tasks[0].left_out == {"too long": 1, "without a token to train on": 1}
    assert statistics.tasks[0].examples == 1
    [found] = statistics.corpora
    assert found.conversations == 3
    assert sorted(found.rejected.values()) == [1, 1]
    assert "messages must not be empty, got an empty list" in found.rejected
    assert statistics.passed
    raising = measure_chat(*of(corpus("look_too_long", [GOLDEN, longer]), {"tokens": 70}))
    assert not raising.passed
    with pytest.raises(ValueError, match=r"look_rejected\.jsonl, line 2: message 1 of 1: role must be one of .*, got 'critic'"):
        measure_chat(*of(corpus("look_rejected", [GOLDEN, conversations[3]])))
    with pytest.raises(ValueError, match="must have keys among"):
        measure_chat(*of("look_too_long_chat", {"token": 70}))


def test_a_cache_is_measured_and_shown_as_its_text_is(monkeypatch, corpus, tmp_path):
    name = corpus("look_cached", [GOLDEN, CALL, [{"role": "critic", "content": "x"}]], on_error="skip")
    monkeypatch.setattr(seqio.utils, "_GLOBAL_CACHE_DIRECTORIES", [str(tmp_path)])
    build(corpus_named("look_cached_corpus"), str(tmp_path), console=Console(quiet=True))
    text, cached = measure_chat(*of(name)), measure_chat(*of(name), cache_dirs=[str(tmp_path)])
    assert cached.passed
    assert [(task.kinds, task.loss_groups, task.lengths) for task in cached.tasks] == [
        (task.kinds, task.loss_groups, task.lengths) for task in text.tasks
    ]
    assert cached.corpora[0].rejected == {"skipped when the cache was written": 1}
    assert sorted(map(str, as_lines(name, cache_dirs=[str(tmp_path)], count=9))) == sorted(map(str, as_lines(name, count=9)))


def findings(name, kind, **settings) -> list[str]:
    return [
        f"{each.about}: {each.what}; {each.remedy}"
        for each in examine_conversations(*of(name, settings.pop("sequence_length", None)), **settings)
        if each.kind == kind
    ]


U, A, F = GOLDEN
FOUND = {  # conversations, settings, and of which kind the finding is
    "role": ([GOLDEN, [{"role": "critic", "content": "x"}]], {}, "problem", "corpus: .*line 2: message 1 .*'critic'"),
    "kind": ([GOLDEN, [U, {"role": "assistant", "content": "x"}]], {}, "problem", "corpus: loss_groups .*'assistant': 3"),
    "none": ([[{"role": "critic"}]], {}, "problem", "corpus: no conversation"),
    "silent": ([[U]], {}, "problem", "lengths: no example"),
    "nothing": ([GOLDEN, [U]], {}, "note", "lengths: 1 examples are left out"),
    "same": ([GOLDEN, GOLDEN], {}, "note", "corpus: 1 of 2 conversations are the same"),
    "raises": ([GOLDEN, [*GOLDEN, *GOLDEN]], {"truncation": "raise"}, "problem", r"lengths: 1 .*; --lengths \d+"),
    "dropped": ([GOLDEN, [*GOLDEN, *GOLDEN]], {"truncation": "drop"}, "note", r"lengths: 1 .*; --lengths \d+"),
    "oldest": ([GOLDEN, [*GOLDEN, *GOLDEN]], {"truncation": "drop_oldest_turns"}, "note", "lengths: 1 examples lose"),
}


@pytest.mark.parametrize("case", FOUND)
def test_a_doctor_finds_problems_and_notes_what_is_odd(corpus, case):
    conversations, settings, kind, expected = FOUND[case]
    name = corpus(f"look_found_{case}", conversations, **settings)
    length = {"sequence_length": {"tokens": 100}} if settings else {}
    assert any(re.match(expected, found) for found in findings(name, kind, **length))


def test_a_doctor_notes_ids_that_are_not_unique_and_a_split_that_is_empty(corpus, renderer, tmp_path):
    path = tmp_path / "ids.jsonl"
    rows = [{"id": "same", "messages": GOLDEN}, {"id": "same", "messages": [U, F]}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    name = ul2_tasks.register_chat("look_ids", str(path), renderer, id_key="id", validation=0.0001)
    notes = findings(name, "note")
    assert any(re.match("corpus: 1 of 2 conversations have the id of an earlier one", note) for note in notes)
    assert any(re.match("corpus: split 'validation' has no record", note) for note in notes)
    path.write_text("".join(json.dumps({"synth_id": "same", "messages_json": json.dumps(row["messages"])}) + "\n" for row in rows))
    by_default = ul2_tasks.register_chat("look_synth_ids", str(path), renderer, messages_key="messages_json")
    assert any("1 of 2 conversations have the id of an earlier one" in note for note in findings(by_default, "note"))


def test_a_doctor_finds_a_tokenizer_file_that_is_gone_and_a_package_that_is_missing(corpus, tmp_path, monkeypatch):
    file = o200k_file(tmp_path)
    system = {"role": "system", "content": [{"type": "system_content"}]}
    name = corpus("look_file", [GOLDEN, [system, *GOLDEN]], renderer=harmony(file))
    assert any(
        re.match(rf"vocabulary: o200k_base.tiktoken is {re.escape(str(file))}, SHA-256 446a", ok) for ok in findings(name, "ok")
    )
    harmony_form._harmony.cache_clear()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "openai_harmony", None)
        [problem] = findings(name, "problem")
    assert re.match("installation: 1 of 2 conversations cannot be rendered: this message needs the extra chat", problem)
    file.unlink()
    [problem] = findings(name, "problem")
    assert re.match("vocabulary: .* must name a place where o200k_base.tiktoken can be read", problem)
