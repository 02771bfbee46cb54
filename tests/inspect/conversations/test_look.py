"""What people look at: examples of conversations, their measurements and checks, and what a doctor finds."""

import io
import itertools
import json

import pytest
import seqio
from rich.console import Console

import ul2_tasks
from ul2_tasks.chat.harmony import MARKERS, HarmonyRenderer
from ul2_tasks.inspect.chat_samples import as_plain
from ul2_tasks.inspect.conversations.show import draw_chat, show_chat
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
