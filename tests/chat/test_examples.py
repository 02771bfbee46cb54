"""Which tokens of a conversation are trained on, and which turns make an example."""

import hypothesis
import hypothesis.strategies as st
import pytest

from tests.chat.chat_support import GOLDEN, read
from ul2_tasks import open_vocabulary
from ul2_tasks.chat.harmony import MARKERS, HarmonyRenderer
from ul2_tasks.chat.supervision import HARMONY_TOOLS


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


def trained(renderer, train_on) -> list[str]:
    """The tokens of the golden conversation that are trained on, by loss group."""
    [example] = read(renderer, [GOLDEN], train_on=train_on)
    of = [[id for id, span in zip(example["tokens"], example["span_id"]) if span == group] for group in (1, 2)]
    return [shown(renderer, ids) for ids in of]


def test_which_tokens_of_a_message_are_trained_on(renderer):
    assert trained(renderer, "all") == ["(A#a:Easy.)", "(A#f:4.."]
    assert trained(renderer, "generated") == ["#a:Easy.)", "(A#f:4.."]
    assert trained(renderer, "content") == ["Easy.)", "4.."]


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
    if turns != "all":  # only the last turn is trained on
        for example in examples:
            ids = [id for id, mask in zip(example["tokens"], example["loss_mask"]) if mask]
            assert shown(renderer, ids) in ("(A#a:a)(A#f:f.", "(A#a:b)(A#f:g.")


def test_replies_are_cut_where_the_model_begins_to_speak(renderer):
    examples = read(renderer, [TWO_TURNS], format="prompt_completion", turns="each")
    assert [(shown(renderer, one["inputs"]), shown(renderer, one["targets"])) for one in examples] == [
        ("(U:u)(A", "#a:a)(A#f:f."),
        ("(U:u)(A#f:f)(U:v)(A", "#a:b)(A#f:g."),
    ]
    assert examples[0]["span_id"] == [1] * len("#analysis:a)") + [2] * len("(assistant#final:f.")


def test_a_turn_with_a_call_of_a_tool_has_two_replies_and_one_example(renderer):
    messages = [user("u"), analysis("a"), CALL, RESULT, final("f")]
    [example] = read(renderer, [messages], turns="each", loss_groups="harmony_tools")
    assert [span for place, span in enumerate(example["span_id"]) if place == 0 or span != example["span_id"][place - 1]] == [
        0, 1, 3, 0, 2, 0,
    ]  # fmt: skip
    replies = read(renderer, [messages], format="prompt_completion", turns="each", loss_groups="harmony_tools")
    call = "(A to=functions.add#c json:{}"
    assert [(shown(renderer, one["inputs"]), shown(renderer, one["targets"])) for one in replies] == [
        ("(U:u)(A", f"#a:a){call}!"),
        (f"(U:u)(A#a:a){call}!(functions.add to=A#c:4)(A", "#f:f."),
    ]


def test_a_history_keeps_reasoning_that_led_to_no_answer_yet(renderer):
    messages = [user("u"), analysis("a"), CALL, RESULT, user("and?"), analysis("b"), final("f")]
    [_, second] = read(renderer, [messages], turns="each", loss_groups="harmony_tools")
    assert "(A#a:a)" in shown(renderer, second["tokens"])


def test_a_message_of_weight_0_is_context(renderer):
    [example] = read(renderer, [[user("u"), analysis("a", weight=0), final("f", weight=1.0)]])
    assert set(example["span_id"]) == {0, 2}
    assert read(renderer, [[user("u"), final("f", weight=0)]]) == []  # no token to train on


def test_truncation_raises_drops_or_drops_the_oldest_turns(renderer):
    system = {"role": "system", "content": "s"}
    messages = [system, *TWO_TURNS]
    [whole] = read(renderer, [messages])
    length = len(whole["tokens"])
    assert read(renderer, [messages], budget=length) == [whole]
    with pytest.raises(ValueError, match=f"at most {length - 1} tokens, got {length}"):
        read(renderer, [messages], budget=length - 1)
    assert read(renderer, [messages], budget=length - 1, truncation="drop") == []
    [shorter] = read(renderer, [messages], budget=length - 1, truncation="drop_oldest_turns")
    assert shown(renderer, shorter["tokens"]) == "(system:s)(U:v)(A#a:b)(A#f:g.$"
    assert read(renderer, [messages], budget=20, truncation="drop_oldest_turns") == []
    with pytest.raises(ValueError, match=r"at most 5 targets, got"):
        read(renderer, [messages], format="prompt_completion", budget=(1000, 5))
    with pytest.raises(ValueError, match=r"at most 5 inputs, got"):
        read(renderer, [messages], format="prompt_completion", budget=(5, 1000))


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
    st.sampled_from(["all", "generated", "content"]),
    st.sampled_from(["all", "last", "each"]),
)
def test_laws_of_every_example(renderer, conversations, train_on, turns):
    markers = {name: renderer.vocabulary.piece_id(name) for name in MARKERS}
    ends = {markers["<|end|>"], markers["<|call|>"], markers["<|return|>"]}
    settings = {"loss_groups": "harmony_tools", "train_on": train_on, "turns": turns}
    for example in read(renderer, conversations, **settings):
        tokens, mask, spans = example["tokens"], example["loss_mask"], example["span_id"]
        assert len(tokens) == len(mask) == len(spans)
        assert mask == [int(span > 0) for span in spans]
        assert any(mask)
        assert (tokens[-1], mask[-1]) == (renderer.eod, 0)
        # Each run of tokens that are trained on ends with a token that ends a message.
        assert all(tokens[place] in ends for place in range(len(mask)) if mask[place] and not mask[place + 1])
        # Other roles are never trained on: a message begins with <|start|> and another role.
        starts = [place for place, id in enumerate(tokens) if id == markers["<|start|>"]]
        for start, end in zip(starts, [*starts[1:], len(tokens)]):
            role = renderer.vocabulary.decode(tokens[start + 1 : start + 10])
            assert role == "assistant" or not any(mask[start:end])
    for reply in read(renderer, conversations, format="prompt_completion", **settings):
        assert len(reply["targets"]) == len(reply["loss_mask"]) == len(reply["span_id"])
        assert reply["targets"][-1] in ends
        assert renderer.vocabulary.decode(reply["inputs"][-9:]) == "assistant"


@hypothesis.given(st.lists(messages, min_size=1, max_size=4))
def test_all_turns_are_the_rendered_conversation(renderer, conversations):
    groups = {name: max(1, group) for name, group in HARMONY_TOOLS.items()}
    examples = read(renderer, conversations, loss_groups=groups)
    rendered = [[id for segment in renderer.render(one) for id in segment.ids] for one in conversations]
    expected = [ids for ids, one in zip(rendered, conversations) if any(message["role"] == "assistant" for message in one)]
    assert [example["tokens"][:-1] for example in examples] == expected
