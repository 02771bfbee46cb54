"""What is learned of a conversation, and which turns make an example."""

import hypothesis
import hypothesis.strategies as st
import pytest
from chat_support import GOLDEN, read

from ul2_tasks import open_vocabulary
from ul2_tasks.chat.harmony import MARKERS, HarmonyRenderer
from ul2_tasks.chat.supervision import HARMONY_TOOLS, Supervision


@pytest.fixture(scope="module")
def renderer():
    return HarmonyRenderer(open_vocabulary("bytes", modes=MARKERS))


def user(text):
    return {"role": "user", "content": text}


def analysis(text, **more):
    return {"role": "assistant", "channel": "analysis", "content": text, **more}


def final(text, **more):
    return {"role": "assistant", "channel": "final", "content": text, **more}


CALL = {"role": "assistant", "channel": "commentary", "recipient": "functions.add", "content": "{}", "content_type": "json"}
RESULT = {"role": "tool", "name": "functions.add", "channel": "commentary", "recipient": "assistant", "content": "4"}
TWO_TURNS = [user("u"), analysis("a"), final("f"), user("v"), analysis("b"), final("g")]


def shown(renderer, ids) -> str:
    """Tokens as letters, the markers as signs: `(` start, `#` channel, `:` message, `)` end, `!` call, `.` return, `$` EOD."""
    signs = dict(zip([renderer.vocabulary.piece_id(name) for name in MARKERS], "(#:^)!."))
    short = {"assistant": "A", "user": "U", "analysis": "a", "commentary": "c", "final": "f"}
    text = "".join(signs.get(id) or ("$" if id == renderer.eod else renderer.vocabulary.decode([id])) for id in ids)
    for long, letter in short.items():
        text = text.replace(long, letter)
    return text


def test_the_golden_conversation_is_written_out(renderer):
    [example] = read(renderer, [GOLDEN])
    assert shown(renderer, example["tokens"]) == "(U:What is 2+2?)(A#a:Easy.)(A#f:4..$"
    question = len("<user:What is 2+2?>")
    reasoning, answer = len("<assistant#analysis:Easy.>"), len("<assistant#final:4..")
    assert example["span_id"] == [0] * question + [1] * reasoning + [2] * answer + [0]
    assert example["loss_mask"] == [0] * question + [1] * (reasoning + answer) + [0]


def learned(renderer, supervise) -> list[str]:
    """What is learned of the golden conversation, by span."""
    [example] = read(renderer, [GOLDEN], supervise=supervise)
    of = [[id for id, span in zip(example["tokens"], example["span_id"]) if span == wanted] for wanted in (1, 2)]
    return [shown(renderer, ids) for ids in of]


def test_what_of_a_message_is_learned(renderer):
    assert learned(renderer, "whole") == ["(A#a:Easy.)", "(A#f:4.."]
    assert learned(renderer, "sampled") == ["#a:Easy.)", "(A#f:4.."]
    assert learned(renderer, "content") == ["Easy.)", "4.."]


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        ("all", ["(U:u)(A#a:a)(A#f:f)(U:v)(A#a:b)(A#f:g.$"]),
        ("last", ["(U:u)(A#f:f)(U:v)(A#a:b)(A#f:g.$"]),
        ("each", ["(U:u)(A#a:a)(A#f:f.$", "(U:u)(A#f:f)(U:v)(A#a:b)(A#f:g.$"]),
    ],
)
def test_which_turns_make_an_example(renderer, turns, expected):
    examples = read(renderer, [TWO_TURNS], turns=turns)
    assert [shown(renderer, example["tokens"]) for example in examples] == expected
    if turns != "all":  # the last turn alone is learned
        for example in examples:
            ids = [id for id, mask in zip(example["tokens"], example["loss_mask"]) if mask]
            assert shown(renderer, ids) in ("(A#a:a)(A#f:f.", "(A#a:b)(A#f:g.")


def test_replies_are_cut_where_the_model_begins_to_speak(renderer):
    examples = read(renderer, [TWO_TURNS], form="reply", turns="each")
    assert [(shown(renderer, one["inputs"]), shown(renderer, one["targets"])) for one in examples] == [
        ("(U:u)(A", "#a:a)(A#f:f."),
        ("(U:u)(A#f:f)(U:v)(A", "#a:b)(A#f:g."),
    ]
    assert examples[0]["span_id"] == [1] * len("#analysis:a)") + [2] * len("(assistant#final:f.")


def test_a_turn_with_a_call_of_a_tool_has_two_replies_and_one_example(renderer):
    messages = [user("u"), analysis("a"), CALL, RESULT, final("f")]
    [example] = read(renderer, [messages], turns="each", spans="harmony_tools")
    assert [span for place, span in enumerate(example["span_id"]) if place == 0 or span != example["span_id"][place - 1]] == [
        0, 1, 3, 0, 2, 0,
    ]  # fmt: skip
    replies = read(renderer, [messages], form="reply", turns="each", spans="harmony_tools")
    call = "(A to=functions.add#c json:{}"
    assert [(shown(renderer, one["inputs"]), shown(renderer, one["targets"])) for one in replies] == [
        ("(U:u)(A", f"#a:a){call}!"),
        (f"(U:u)(A#a:a){call}!(functions.add to=A#c:4)(A", "#f:f."),
    ]


def test_a_history_keeps_reasoning_that_led_to_no_answer_yet(renderer):
    messages = [user("u"), analysis("a"), CALL, RESULT, user("and?"), analysis("b"), final("f")]
    [_, second] = read(renderer, [messages], turns="each", spans="harmony_tools")
    assert "(A#a:a)" in shown(renderer, second["tokens"])


def test_a_message_of_weight_0_is_context(renderer):
    [example] = read(renderer, [[user("u"), analysis("a", weight=0), final("f", weight=1.0)]])
    assert set(example["span_id"]) == {0, 2}
    assert read(renderer, [[user("u"), final("f", weight=0)]]) == []  # nothing of it is learned


def test_kinds_without_a_row_are_refused(renderer):
    with pytest.raises(ValueError, match=r"of the kind 'assistant/commentary>tool', of which spans, .*, does not say"):
        read(renderer, [[user("u"), CALL]], spans="harmony")
    read(renderer, [[user("u"), CALL, final("f")]], spans={**HARMONY_TOOLS, "assistant/commentary>tool": 0})
    with pytest.raises(ValueError, match=r"message 2 of 2 is of the kind 'assistant'"):
        read(renderer, [[user("u"), {"role": "assistant", "content": "x"}]])
    [example] = read(renderer, [[user("u"), {"role": "assistant", "content": "x"}]], spans="plain")
    assert set(example["span_id"]) == {0, 2}


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"spans": "harmoni"}, r"spans is 'harmoni', expected one of \['harmony', 'harmony_tools', 'plain'\], or a table"),
        ({"spans": {"user": 1}}, "spans has the kind 'user', expected some of .* what others say is never learned"),
        (
            {"spans": {"assistant/final": 256}},
            "spans has 256 for 'assistant/final', expected 0 for context, or a span from 1 to 255",
        ),
        ({"supervise": "body"}, r"supervise is 'body', expected one of \['whole', 'sampled', 'content'\]"),
        ({"turns": "first"}, "turns is 'first'"),
        ({"too_long": "cut"}, "too_long is 'cut'"),
    ],
)
def test_what_supervision_does_not_know_is_refused(wrong, sentence):
    with pytest.raises(ValueError, match=sentence):
        Supervision(**wrong)


def test_too_long_is_refused_dropped_or_loses_its_oldest_turns(renderer):
    system = {"role": "system", "content": "s"}
    messages = [system, *TWO_TURNS]
    [whole] = read(renderer, [messages])
    length = len(whole["tokens"])
    assert read(renderer, [messages], budget=length) == [whole]
    with pytest.raises(
        ValueError, match=rf"conversation 0: the conversation has {length} tokens, more than {length - 1}; give longer .*'oldest'"
    ):
        read(renderer, [messages], budget=length - 1)
    assert read(renderer, [messages], budget=length - 1, too_long="drop") == []
    [shorter] = read(renderer, [messages], budget=length - 1, too_long="oldest")
    assert shown(renderer, shorter["tokens"]) == "(system:s)(U:v)(A#a:b)(A#f:g.$"
    assert read(renderer, [messages], budget=20, too_long="oldest") == []
    with pytest.raises(ValueError, match=r"has .* targets, more than 5"):
        read(renderer, [messages], form="reply", budget=(1000, 5))
    with pytest.raises(ValueError, match=r"has .* inputs, more than 5"):
        read(renderer, [messages], form="reply", budget=(5, 1000))


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
messages = st.lists(
    st.one_of(
        st.builds(lambda text: user(text), texts),
        st.builds(lambda text: {"role": "system", "content": text}, texts),
        st.builds(analysis, texts),
        st.builds(final, texts),
        st.just(CALL),
        st.just(RESULT),
    ),
    min_size=1,
    max_size=8,
)


@hypothesis.given(
    st.lists(messages, min_size=1, max_size=4),
    st.sampled_from(["whole", "sampled", "content"]),
    st.sampled_from(["all", "last", "each"]),
)
def test_laws_of_every_example(renderer, conversations, supervise, turns):
    markers = {name: renderer.vocabulary.piece_id(name) for name in MARKERS}
    ends = {markers["<|end|>"], markers["<|call|>"], markers["<|return|>"]}
    settings = {"spans": "harmony_tools", "supervise": supervise, "turns": turns}
    for example in read(renderer, conversations, **settings):
        tokens, mask, spans = example["tokens"], example["loss_mask"], example["span_id"]
        assert len(tokens) == len(mask) == len(spans)
        assert mask == [int(span > 0) for span in spans]
        assert any(mask)
        assert (tokens[-1], mask[-1]) == (renderer.eod, 0)
        # Each run of learned tokens ends with a token that ends a message.
        assert all(tokens[place] in ends for place in range(len(mask)) if mask[place] and not mask[place + 1])
        # What others say is never learned: it begins with <|start|> and another role.
        starts = [place for place, id in enumerate(tokens) if id == markers["<|start|>"]]
        for start, end in zip(starts, [*starts[1:], len(tokens)]):
            role = renderer.vocabulary.decode(tokens[start + 1 : start + 10])
            assert role == "assistant" or not any(mask[start:end])
    for reply in read(renderer, conversations, form="reply", **settings):
        assert len(reply["targets"]) == len(reply["loss_mask"]) == len(reply["span_id"])
        assert reply["targets"][-1] in ends
        assert renderer.vocabulary.decode(reply["inputs"][-9:]) == "assistant"


@hypothesis.given(st.lists(messages, min_size=1, max_size=4))
def test_all_turns_are_the_rendered_conversation(renderer, conversations):
    spans = {name: max(1, span) for name, span in HARMONY_TOOLS.items()}
    examples = read(renderer, conversations, spans=spans)
    rendered = [[id for segment in renderer.render(one) for id in segment.ids] for one in conversations]
    learned = [ids for ids, one in zip(rendered, conversations) if any(message["role"] == "assistant" for message in one)]
    assert [example["tokens"][:-1] for example in examples] == learned
