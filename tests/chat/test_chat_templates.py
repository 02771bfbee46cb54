"""Chat templates: each token belongs to the message that its characters are of, or the conversation is refused."""

import datetime
import importlib.util
import itertools
import json
import pathlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken
from transformers import PreTrainedTokenizerFast

from tests.tokenizers.test_hugging_face_vocabulary import byte_fallback, exclamation_first, unigram
from ul2_tasks import open_renderer
from ul2_tasks.chat import templates
from ul2_tasks.chat.messages import parse
from ul2_tasks.chat.segments import Segment
from ul2_tasks.chat.templates import TemplateRenderer

EOD = "<|endoftext|>"
# As Qwen3's, in short: reasoning is there in the last turn alone.
CHATML = """{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}
{%- if m.role == 'assistant' and m.reasoning_content and loop.last %}
{{- '<think>\\n' + m.reasoning_content + '\\n</think>\\n\\n' }}
{%- endif %}
{{- m.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
TAGGED = """{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}
{%- if m.role == 'assistant' %}{% generation %}{{ m.content + '<|im_end|>\\n' }}{% endgeneration %}
{%- else %}{{ m.content + '<|im_end|>\\n' }}{% endif %}
{%- endfor %}"""
CONTENTS = "{% for m in messages %}{{ m.content }}{% endfor %}"
TURNS = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "2+2?"},
    {"role": "assistant", "reasoning_content": "Easy.", "content": "4."},
    {"role": "user", "content": "3+3?"},
    {"role": "assistant", "thinking": "Easier.", "content": "6."},
]
PAIR = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]


def write(folder: pathlib.Path, template=CHATML, tokenizer=None, **configuration) -> str:
    """A folder as models come with, by default with a tokenizer of bytes and of the markers of `CHATML`."""
    if tokenizer is None:
        tokenizer = exclamation_first()
        tokenizer.add_special_tokens(["<|im_start|>"])
        tokenizer.add_tokens(["</think>"])
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"eos_token": EOD, "bos_token": None, "chat_template": template, **configuration}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return str(folder)


def oracle(folder, eos=EOD) -> PreTrainedTokenizerFast:
    """What `transformers` makes of the same folder."""
    configuration = json.loads(pathlib.Path(folder, "tokenizer_config.json").read_text())
    names = {key: configuration[key] for key in ("eos_token", "bos_token") if configuration[key]}
    template = configuration["chat_template"]
    return PreTrainedTokenizerFast(tokenizer_file=f"{folder}/tokenizer.json", chat_template=template, **names)


def templated(folder, messages, **settings) -> list[int]:
    return oracle(folder).apply_chat_template(messages, tokenize=True, return_dict=True, **settings)["input_ids"]


def joined(segments: list[Segment]) -> list[int]:
    return [id for segment in segments for id in segment.ids]


def shown(folder, messages):
    """Of each segment the role, the channel, and the texts of its prompt, of the rest of its header, and of its body."""
    decode = oracle(folder).decode
    cuts = [(s, [0, min(s.prompt, s.header), s.header, len(s.ids)]) for s in TemplateRenderer(folder).render(messages)]
    return [(s.role, s.channel, *(decode(s.ids[a:b]) for a, b in itertools.pairwise(cut))) for s, cut in cuts]


@pytest.fixture(scope="module")
def chatml(tmp_path_factory):
    return write(tmp_path_factory.mktemp("chatml"))


@pytest.fixture(scope="module")
def renderer(chatml):
    return TemplateRenderer(chatml)


def test_a_conversation_is_cut_at_the_markers(chatml):
    assert shown(chatml, [*TURNS[1:2], TURNS[4]]) == [
        ("user", None, "<|im_start|>user\n", "", "2+2?<|im_end|>\n"),
        ("assistant", "analysis", "<|im_start|>assistant\n", "<think>\n", "Easier.\n</think>"),
        ("assistant", "final", "", "\n\n", "6.<|im_end|>"),
        ("system", None, "\n", "", ""),
    ]


def test_reasoning_that_the_template_leaves_out_of_the_history_is_no_segment(renderer, chatml):
    segments = renderer.render(TURNS)
    channels = [(segment.role, segment.channel) for segment in segments]
    assistant = [("assistant", "final"), ("user", None), ("assistant", "analysis"), ("assistant", "final")]
    assert channels == [("system", None), ("user", None), *assistant, ("system", None)]
    # Under both names, because the last transformers for Python 3.10 hands "thinking" on under no other.
    both_names = [*TURNS[:4], {**TURNS[4], "reasoning_content": TURNS[4]["thinking"]}]
    assert joined(segments) == templated(chatml, both_names)


def test_a_prompt_is_what_generation_begins_with(tmp_path):
    """As far as the conversation goes on like that."""
    thinking = CHATML.replace("assistant\\n' }}{% endif", "assistant\\n<think>\\n' }}{% endif")
    folder = write(tmp_path, thinking)
    with_prompt = TemplateRenderer(folder)
    reasoned = [PAIR[0], TURNS[4]]
    _, analysis, *_ = with_prompt.render(reasoned)
    assert analysis.prompt == analysis.header
    prompt = templated(folder, reasoned[:1], add_generation_prompt=True)
    assert joined(with_prompt.render(reasoned))[: len(prompt)] == prompt
    _, final, _ = with_prompt.render(PAIR)
    assert oracle(folder).decode(final.ids[: final.prompt]) == "<|im_start|>assistant\n"


TEXTS = st.text().filter(lambda text: not re.search("[<>]", text))
CONVERSATIONS = st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=3).map(
    lambda turns: [{"role": role, "content": text} for texts in turns for role, text in zip(("user", "assistant"), texts)]
)
SWALLOWING = "{% for m in messages %}{{ '<swallows> ' + m.role + ' <swallows> ' + m.content + '<|im_end|>' }}{% endfor %}"


@pytest.mark.parametrize("template", [CHATML, SWALLOWING], ids=["chatml", "swallowing"])
@pytest.mark.parametrize("make", [exclamation_first, byte_fallback, unigram])
def test_ids_are_those_of_transformers(make, template, tmp_path_factory):
    """For all kinds of tokenizers, with added tokens that are text, and such that take the white space beside them."""
    tokenizer = make()
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens(["<think>", "</think>", "\n\n", "and so", AddedToken("<swallows>", rstrip=True, lstrip=True)])
    eos = EOD if make is exclamation_first else "</s>"
    folder = write(tmp_path_factory.mktemp("model"), template, tokenizer, eos_token=eos)
    renderer, hugging_face = TemplateRenderer(folder), oracle(folder)

    @given(CONVERSATIONS)
    def check(messages):
        expected = hugging_face.apply_chat_template(messages, tokenize=True, return_dict=True)["input_ids"]
        assert joined(renderer.render(messages)) == expected

    check()


FRAGMENTS = ["<|im_end|>", "<|im_start|>", "<|", "|>", "im_end", "<think>", "</think>", EOD, "assistant"]
FRAGMENTS += ["\n", " ", "é", "\U000f0000"]


@given(st.lists(st.lists(st.sampled_from(FRAGMENTS)).map("".join), min_size=3, max_size=3))
def test_no_text_becomes_a_marker(renderer, texts):
    """The markers are those that the template writes, and each segment's body is its content."""
    contents = dict(zip(("user", "analysis", "final"), texts))
    messages = [{"role": "user", "content": texts[0]}, {"role": "assistant", "reasoning_content": texts[1], "content": texts[2]}]
    if not texts[1]:
        messages[1].pop("reasoning_content")
    own = {name: renderer.vocabulary.piece_id(name) for name in (*FRAGMENTS[:2], *FRAGMENTS[5:8])}
    written = ["<|im_start|>", "<|im_end|>", "<|im_start|>", *(["<think>", "</think>"] if texts[1] else []), "<|im_end|>"]
    segments = renderer.render(messages)
    assert [id for id in joined(segments) if id in own.values()] == [own[name] for name in written]
    for segment in segments[:-1]:
        ids = [id for id in segment.ids[segment.header :] if id not in own.values()]
        body = renderer.vocabulary.decode(ids)
        end = "\n" if segment.channel != "final" else ""
        assert body == contents[segment.channel or segment.role] + end


def trl() -> list[pathlib.Path]:
    """The templates that come with TRL, which is not imported."""
    found = importlib.util.find_spec("trl")
    return sorted(pathlib.Path(found.origin).parent.glob("chat_templates/*.jinja")) if found else []


# Of TRL's templates, those that write reasoning, and those whose contents are lists.
REASONS = re.compile(r"diffusion_gemma|gemma4_v5|glm4moe|gptoss|lfm2_2_5|muse_glimmer|nemotron|qwen3(_\d|_training|$)")
LISTS = re.compile("idefics3|llava_next|smolvlm")
MARKER = re.compile(r"<[|｜]?[\w▁/|｜]{2,40}>|\[/?[A-Z_]{2,30}\]|\[gMASK\]")


# Those that write other text around calls than around contents, or no tools at all.
NOT_CUT = re.compile(r"deepseek|diffusion_gemma|gemma4($|_v[345])|glm4moe_training|gptoss")


def folder_of(template: str, folder: pathlib.Path):
    """A tokenizer with a template, and with a token for each marker that it writes."""
    tokenizer = exclamation_first()
    tokenizer.add_special_tokens(["<bos>"])
    tokenizer.add_tokens(sorted({*MARKER.findall(template)}))
    return write(folder, template, tokenizer, bos_token="<bos>")


class ThatDay(datetime.datetime):
    @classmethod
    def now(cls):
        return cls(2026, 1, 31)


def assert_attributed(segments, hugging_face, template, messages, **beside):
    """The ids are those of `transformers`, and what the tags of the template enclose, if it has any, is the assistant's."""
    has_tags = "generation %}" in template
    settings = {"tokenize": True, "return_dict": True, "return_assistant_tokens_mask": has_tags}
    expected = hugging_face.apply_chat_template(messages, **beside, **settings)
    assert joined(segments) == expected["input_ids"]
    mask = iter(expected["assistant_masks"] if has_tags else ())
    for segment in segments if has_tags else ():
        tagged = [*itertools.islice(mask, len(segment.ids))]
        assert all(tagged[segment.header :]) if segment.role == "assistant" else not any(tagged), segment


@pytest.mark.torch
@pytest.mark.skipif(not trl(), reason="TRL's wheel is not installed")
@pytest.mark.parametrize("path", trl(), ids=lambda path: path.stem)
def test_templates_of_trl_are_attributed_exactly(path, tmp_path, monkeypatch):
    """And all of the contents of its messages are the assistant's."""
    monkeypatch.setattr("transformers.utils.chat_template_utils.datetime", ThatDay)
    template = path.read_text()
    folder = folder_of(template, tmp_path)
    renderer, hugging_face = TemplateRenderer(folder, date="2026-01-31"), oracle(folder)
    messages = TURNS[1:]
    if LISTS.match(path.stem):
        messages = [{**message, "content": [{"type": "text", "text": message["content"]}]} for message in messages]
    if not REASONS.match(path.stem):
        with pytest.raises(ValueError, match="reasoning"):
            renderer.render(messages)
        messages = [{key: message[key] for key in ("role", "content")} for message in messages]
    segments = renderer.render(messages)

    assert_attributed(segments, hugging_face, template, messages)
    bodies = {"analysis": [], "final": []}
    for segment in segments:
        if segment.role == "assistant":
            bodies[segment.channel].append(hugging_face.decode(segment.ids[segment.header :]))
    assert [body[:2] for body in bodies["final"]] == ["4.", "6."]
    assert all(body.startswith(text) for body, text in zip(reversed(bodies["analysis"]), ("Easier.", "Easy.")))
    assert bool(bodies["analysis"]) == bool(REASONS.match(path.stem))


# As Qwen3's, in short: results of tools are a user's, and reasoning is there after the last message of a user alone.
TOOLS = """{%- if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}
{%- set last = namespace(user=0) %}
{%- for m in messages %}{% if m.role == 'user' %}{% set last.user = loop.index0 %}{% endif %}{% endfor %}
{%- for m in messages %}
{%- if m.role == 'assistant' %}<|im_start|>assistant
{% generation %}{% if loop.index0 > last.user and m.reasoning_content %}<think>
{{ m.reasoning_content }}
</think>

{% endif %}{{ m.content if m.content }}
{%- for call in m.tool_calls or [] %}{{ '\\n' if m.content or not loop.first }}<tool_call>
{"name": {{ call.function.name | tojson }}, "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>{% endgeneration %}

{% elif m.role == 'tool' %}
{%- if messages[loop.index0 - 1].role != 'tool' %}<|im_start|>user{% endif %}
<tool_response>
{{ m.content }}
</tool_response>{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}<|im_end|>
{% endif %}
{%- else %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
WEATHER = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}


def call(name, arguments) -> dict:
    return {"id": "0", "type": "function", "function": {"name": name, "arguments": arguments}}


CALLS = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Is it warm?"},
    {"role": "assistant", "reasoning_content": "Where?", "content": "", "tool_calls": [call("weather", {"city": "Brno"})]},
    {"role": "tool", "name": "weather", "tool_call_id": "0", "content": "21 °C"},
    {"role": "assistant", "content": "Yes."},
    {"role": "user", "content": "And there, and in Ulm?"},
    {
        "role": "assistant",
        "thinking": "Two.",
        "content": "I look.",
        "tool_calls": [call("weather", {"city": 'a "b"'}), call("weather", {"city": "Ulm", "units": ["C"]})],
    },
    {"role": "tool", "content": "3 °C"},
    {"role": "tool", "content": '{"celsius": 4}'},
    {"role": "assistant", "reasoning_content": "Cold.", "content": "No."},
]


def test_calls_of_tools_are_written_as_transformers_writes_them_and_are_the_assistants(tmp_path):
    tokenizer = exclamation_first()
    tokenizer.add_special_tokens(["<|im_start|>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"])
    tokenizer.add_tokens(["</think>"])
    folder = write(tmp_path, TOOLS, tokenizer)
    beside = {"tools": [{"type": "function", "function": WEATHER}]}
    conversation = parse(json.dumps({"messages": CALLS, **beside}))
    [segments] = TemplateRenderer(folder).render_all([conversation])
    assert not isinstance(segments, ValueError), segments
    assert_attributed(segments, oracle(folder), TOOLS, CALLS, **beside)
    kinds = [(segment.role, segment.channel, segment.to_tool) for segment in segments if segment.role in ("assistant", "tool")]
    calls, result = ("assistant", "commentary", True), ("tool", None, False)
    analysis, final = ("assistant", "analysis", False), ("assistant", "final", False)
    assert kinds == [calls, result, final, analysis, calls, result, result, analysis, final]
    [first] = [segment for segment in segments if segment.to_tool][:1]
    written = oracle(folder).decode(first.ids[first.header :])
    assert written == '<tool_call>\n{"name": "weather", "arguments": {"city": "Brno"}}\n</tool_call><|im_end|>'


@pytest.mark.parametrize(
    "beside",
    [
        {"tools": [WEATHER]},
        {"documents": [{"text": "a"}]},
        {"prompt": "What?"},
        {"images": ["a.png"]},
        {"system": 5},
        {"system": "a", "system_prompt": "b"},
        {"tools": {}, "chat_template_kwargs": ["thinking"]},
    ],
)
def test_what_a_record_has_beside_its_messages_is_written_or_an_error(beside, renderer):
    with pytest.raises(ValueError, match="|".join(beside)):
        parsed_and_rendered(renderer, {"messages": PAIR, **beside})


def parsed_and_rendered(renderer, record) -> None:
    for segments in renderer.render_all([parse(json.dumps(record))]):
        if isinstance(segments, ValueError):
            raise segments


def test_what_messages_say_already_and_what_is_empty_is_nothing_beside_them(renderer):
    beside = {"prompt": "Hi", "completion": [PAIR[1]], "tools": [], "images": None, "system": "", "source": "web", "n": 1, "id": ""}
    messages, settings, unread = parse(json.dumps({"messages": PAIR, **beside}))
    assert (messages, dict(settings), unread) == (PAIR, {}, ("source", "n"))
    system = {"role": "system", "content": "Be kind."}
    for key in ("system", "system_prompt"):
        for before in ([], [system]):
            assert parse(json.dumps({"messages": [*before, *PAIR], key: "Be kind."})).messages == [system, *PAIR]
        with pytest.raises(ValueError, match="one system message"):
            parse(json.dumps({"messages": [system, *PAIR], key: "Be rude."}))


def test_variables_of_a_template_beside_the_messages_reach_it(tmp_path):
    folder = write(tmp_path, CHATML + "{{ 'brief' if enable_thinking is defined and not enable_thinking }}")
    conversation = parse(json.dumps({"messages": PAIR, "chat_template_kwargs": {"enable_thinking": False, "messages": []}}))
    [segments] = TemplateRenderer(folder).render_all([conversation])
    assert joined(segments) == templated(folder, PAIR, enable_thinking=False)


@pytest.mark.skipif(not trl(), reason="TRL's wheel is not installed")
@pytest.mark.parametrize("path", [path for path in trl() if "tool_calls" in path.read_text()], ids=lambda path: path.stem)
def test_calls_of_tools_in_templates_of_trl(path, tmp_path, monkeypatch):
    """The ids are those of `transformers`, and what its tags enclose is the assistant's; or it is an error."""
    monkeypatch.setattr("transformers.utils.chat_template_utils.datetime", ThatDay)
    template = path.read_text()
    folder = folder_of(template, tmp_path)
    messages = [CALLS[1], {**CALLS[2]}, *CALLS[3:5]]
    del messages[1]["reasoning_content"]
    beside = {"tools": [{"type": "function", "function": {"description": "The weather.", **WEATHER}}]}
    [segments] = TemplateRenderer(folder, date="2026-01-31").render_all([parse(json.dumps({"messages": messages, **beside}))])
    assert isinstance(segments, ValueError) == bool(NOT_CUT.match(path.stem)), segments
    if isinstance(segments, ValueError):
        return
    assert_attributed(segments, oracle(folder), template, messages, **beside)
    roles = [segment.role for segment in segments if segment.role != "system"]
    assert roles == [message["role"] for message in messages]


WRONG = {
    "refusal": (CHATML, [{**PAIR[1], "refusal": "x"}]),
    "message 1 of 1.* tool_calls": (CHATML, [{**PAIR[1], "tool_calls": [{"id": "1"}]}]),
    "message 2 of 2: role": (CHATML, [PAIR[0], {"role": "bot", "content": "a"}]),
    "content": (CHATML, [{"role": "user", "content": [{"type": "image", "url": "x"}]}]),
    "reasoning_content and thinking": (CHATML, [{**PAIR[1], "thinking": "a", "reasoning_content": "b"}]),
    "Unicode": (CHATML, [{"role": "user", "content": "\ud800"}]),
    "message 2 of 2: .* white space": (
        CHATML.replace("m.content", "m.content | trim"),
        [PAIR[0], {"role": "assistant", "content": "Hello\n"}],
    ),
    "message 1 of 2: .*'Hi": (CONTENTS.replace("m.content", "m.content | upper"), PAIR),
    "all messages": (
        "{% if messages[0].content == messages[1].content %}same{% endif %}" + CONTENTS,
        [PAIR[0], {**PAIR[0], "role": "assistant"}],
    ),
    "message 1 of 2: .* 2 times": (CONTENTS + CONTENTS, PAIR),
    "message 1 of 2: .* a list": ("{% for m in messages %}{{ m.content[0].text }}{% endfor %}", PAIR),
    "message 2 of 2: .* reasoning": (CONTENTS, [PAIR[0], TURNS[4]]),
    "no system": ("{{ raise_exception('no system') }}", PAIR),
    "date": ("{{ strftime_now('%d') }}" + CONTENTS, PAIR),
    "between two contents": (CONTENTS, [{"role": "user", "content": "a"}, {"role": "assistant", "content": "nd"}]),
    "characters": (CONTENTS, [*PAIR, {"role": "user", "content": "word " * 200}]),
    "Jinja": ("{% for %}", PAIR),
    # It runs in a sandbox.
    "chat template.*append": ("{{ messages.append(1) }}" + CONTENTS, PAIR),
    "chat template.*update": ("{{ messages[0].update(role='x') }}" + CONTENTS, PAIR),
    "chat template.*__class__": ("{{ ''.__class__.__mro__ }}" + CONTENTS, PAIR),
}


@pytest.mark.parametrize("message", WRONG)
def test_what_cannot_be_attributed_is_an_error(message, tmp_path, monkeypatch):
    monkeypatch.setattr(templates, "LONG", 1000)
    template, messages = WRONG[message]
    with pytest.raises(ValueError, match=message):
        TemplateRenderer(write(tmp_path, template)).render(messages)


@pytest.mark.parametrize(("arguments", "named"), [("eod=</s>", "eod"), ("date=today", "date")])
def test_wrong_arguments_are_refused(chatml, arguments, named):
    with pytest.raises(ValueError, match=named):
        open_renderer(f"template:{chatml},{arguments}")


def test_equal_results_have_equal_identities(chatml, tmp_path):
    renderer = TemplateRenderer(chatml)
    assert renderer.identity == TemplateRenderer(write(tmp_path / "same")).identity
    others = [
        TemplateRenderer(chatml, date="2026-01-31"),
        TemplateRenderer(chatml, eod="<|im_end|>"),
        TemplateRenderer(chatml, settings={"enable_thinking": False}),
        TemplateRenderer(write(tmp_path / "template", TAGGED)),
        TemplateRenderer(write(tmp_path / "tokenizer", tokenizer=unigram(), eos_token="</s>")),
        TemplateRenderer(write(tmp_path / "tokens", bos_token="<|im_end|>")),
    ]
    assert len({renderer.identity, *(other.identity for other in others)}) == 1 + len(others)
