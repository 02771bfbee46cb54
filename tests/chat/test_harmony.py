"""Conversations in the Harmony format, against openai-harmony itself."""

import json
import random

import pytest
import tensorflow as tf

from tests.chat.chat_support import GOLDEN, harmony, o200k_file
from ul2_tasks import open_vocabulary
from ul2_tasks.chat.harmony import MARKERS, HarmonyRenderer
from ul2_tasks.tasks.vocabulary import seqio_vocabulary
from ul2_tasks.tokenizers.o200k import O200kVocabulary, find_file

# What a content may have in it: markers and their parts, other scripts, white space, long runs, nothing at all.
PIECES = [*MARKERS, "assistant", "final", " to=functions.f", "<|endoftext|>", "<|reserved_200019|>", "<|im_end|>", "<", "|>", ""]
PIECES += ["Hello", " \n\n", "  ", "\t", "\x00", "é", "漢字", "🙂", "\u202e", "123456", "def f(x):\n\treturn x", "a" * 50, "ß"]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return o200k_file(tmp_path_factory.mktemp("o200k"))


@pytest.fixture(scope="module")
def renderer(file):
    return harmony(file)


@pytest.fixture(scope="module")
def oracle(file):
    """openai-harmony's encoding of the same file."""
    openai_harmony = pytest.importorskip("openai_harmony")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_ENCODINGS_BASE", str(file.parent))
        return openai_harmony.load_harmony_encoding(openai_harmony.HarmonyEncodingName.HARMONY_GPT_OSS)


def text(random: random.Random) -> str:
    return "".join(random.choice(PIECES) for _ in range(random.randint(0, 6)))


def message(random: random.Random) -> dict:
    """An adversarial message of any kind that openai-harmony renders."""
    role = random.choice(["system", "developer", "user", "assistant", "assistant", "assistant", "tool"])
    if role == "system" and random.random() < 0.3:
        return {"role": role, "content": [{"type": "system_content", "reasoning_effort": random.choice(["Low", "High"])}]}
    if role == "developer" and random.random() < 0.5:
        function = {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {"x": {"type": "string"}}}}
        tools = {"tools": {"functions": {"name": "functions", "description": None, "tools": [function]}}}
        part = {"type": "developer_content", "instructions": text(random), **random.choice([tools, {}])}
        return {"role": role, "content": [part]}
    parts = [{"type": "text", "text": text(random)} for _ in range(random.randint(0, 3))]
    found = {"role": role, "content": random.choice([text(random), text(random), parts])}
    if role == "tool":
        found["name"] = random.choice(["functions.f", "python", "a b"])
    elif random.random() < 0.1:
        found["name"] = random.choice(["bob", "x y"])
    if role in ("assistant", "tool") and random.random() < 0.9:
        found["channel"] = random.choice(["analysis", "commentary", "final"])
    if random.random() < 0.2:
        found["recipient"] = random.choice(["functions.f", "python", "all", "assistant"])
    if random.random() < 0.15:
        found["content_type"] = random.choice(["json", "<|constrain|>json", "<|constrain|>", "code"])
    return found


def test_the_golden_conversation(renderer):
    question, analysis, final = renderer.render(GOLDEN)
    assert question.ids.tolist() == [200006, 1428, 200008, 4827, 382, 220, 17, 10, 17, 30, 200007]
    assert analysis.ids.tolist() == [200006, 173781, 200005, 35644, 200008, 41154, 13, 200007]
    assert final.ids.tolist() == [200006, 173781, 200005, 17196, 200008, 19, 13, 200002]
    assert renderer.eod == 199999
    # The first message's <|start|>assistant is what a prompt ends with. The second one's is generated.
    assert [segment.prompt for segment in (question, analysis, final)] == [11, 2, 0]
    assert [segment.header for segment in (question, analysis, final)] == [3, 5, 5]


@pytest.mark.parametrize("conversations", [1500, pytest.param(10_000, marks=pytest.mark.docs, id="as in docs/guides/chat.md")])
def test_adversarial_conversations_have_the_ids_of_openai_harmony(renderer, oracle, conversations):
    import openai_harmony

    keep = openai_harmony.RenderConversationConfig(auto_drop_analysis=False)
    drawn = random.Random(0)
    for _ in range(conversations):
        messages = [message(drawn) for _ in range(drawn.randint(1, 6))]
        conversation = openai_harmony.Conversation.from_json(json.dumps({"messages": messages}))
        segments = renderer.render(messages)
        ids = [id for segment in segments for id in segment.ids]
        assert ids == oracle.render_conversation_for_training(conversation, config=keep), messages
        has_functions = any("tools" in part for m in messages for part in m["content"] if isinstance(part, dict))
        options = openai_harmony.RenderOptions(conversation_has_function_tools=has_functions)
        each = [oracle.render(parsed, options) for parsed in conversation.messages]
        assert [segment.ids[:-1].tolist() for segment in segments] == [ids[:-1] for ids in each]


def test_the_prompt_is_that_of_inference(renderer, oracle):
    import openai_harmony

    conversation = openai_harmony.Conversation.from_json(json.dumps({"messages": GOLDEN[:1]}))
    prompt = oracle.render_conversation_for_completion(conversation, openai_harmony.Role.ASSISTANT)
    question, analysis, _ = renderer.render(GOLDEN)
    assert [*question.ids, *analysis.ids[: analysis.prompt]] == prompt


@pytest.mark.parametrize("spec", ["default", "bytes"])
def test_no_text_becomes_a_marker_in_another_vocabulary(spec):
    vocabulary = open_vocabulary(spec, modes=("[R]", "[S]", "[X]", *MARKERS))
    renderer = HarmonyRenderer(vocabulary)
    markers = {renderer._own[name] for name in MARKERS}
    for piece in PIECES:
        messages = [{"role": "user", "content": piece + "x"}, {"role": "assistant", "channel": "final", "content": piece}]
        for segment in renderer.render(messages):
            wrapper = [id for id in segment.ids if id in markers]
            assert len(wrapper) == (4 if segment.role == "assistant" else 3)
    names = [vocabulary.id_to_piece(int(id)) for id in renderer.render(GOLDEN)[2].ids]
    assert [name for name in names if name in MARKERS] == ["<|start|>", "<|channel|>", "<|message|>", "<|return|>"]


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"tool_calls": [{"id": 1}]}, "tool_calls"),
        ({"role": "critic"}, "role"),
        ({"channel": "thoughts"}, "channel"),
        ({"content": None}, "content"),
        ({"content": [{"type": "image", "url": "x"}]}, "image"),
        ({"content": [{"type": "text", "text": "a", "citations": 1}]}, "citations"),
        ({"role": "tool"}, "name"),
        ({"recipient": "f<|channel|>final"}, "recipient"),
        ({"content_type": "<|constrain|>json<|message|>"}, "content_type"),
        ({"weight": 0.5}, "weight"),
    ],
)
def test_what_would_be_lost_or_misread_is_an_error(renderer, wrong, named):
    with pytest.raises(ValueError, match=f"message 2 of 2: .*{named}"):
        renderer.render([GOLDEN[0], {"role": "assistant", "content": "4.", **wrong}])


def test_the_file_is_the_right_one_or_refused(tmp_path, file, monkeypatch):
    for name in ("O200K_HARMONY_VOCAB_PATH", "TIKTOKEN_ENCODINGS_BASE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="O200K_HARMONY_VOCAB_PATH"):
        find_file()
    monkeypatch.setenv("TIKTOKEN_ENCODINGS_BASE", str(tmp_path))
    with pytest.raises(ValueError, match="TIKTOKEN_ENCODINGS_BASE"):
        find_file()
    cut = tmp_path / file.name
    cut.write_bytes(file.read_bytes()[:-7])
    with pytest.raises(ValueError, match=f"{cut} .* SHA-256"):
        find_file()
    monkeypatch.setenv("O200K_HARMONY_VOCAB_PATH", str(file.parent))
    assert find_file() == str(file)


def test_the_vocabulary_of_o200k(file):
    pytest.importorskip("tiktoken")
    vocabulary = O200kVocabulary(file)
    text = "Hello <|start|> wörld! 漢字 🙂 <extra_id_0> [R]"
    ids = vocabulary.encode(text)
    assert vocabulary.decode(ids) == text
    assert max(ids) < 199_998
    assert (vocabulary.vocab_size, vocabulary.uses_0, vocabulary.eos_id) == (201_088, True, 199_999)
    assert vocabulary.encode("!") == [0]
    of_seqio = seqio_vocabulary(vocabulary)
    assert of_seqio.encode_tf(tf.constant(text)).numpy().tolist() == of_seqio.encode(text) == [id + 1 for id in ids]
    assert of_seqio.decode_tf(of_seqio.encode_tf(tf.constant(text))).numpy().decode() == text
    assert vocabulary == O200kVocabulary(str(file))
    assert vocabulary.decode([vocabulary.piece_id("<extra_id_0>"), vocabulary.piece_id("[X]")]) == "<extra_id_0>[X]"
