"""The examples that compiled loops choose and write are those of plain Python, and the index numbers all of them."""

import contextlib
import itertools
import pathlib
import tempfile

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from ul2_tasks.chat.choices import SHORTENED
from ul2_tasks.chat.examples import Stops
from ul2_tasks.chat.index import index_conversations
from ul2_tasks.chat.objective import AT_A_TIME, FORMATS, Objective
from ul2_tasks.chat.reading import columns_of
from ul2_tasks.chat.segments import COLUMNS, KIND, KINDS, LENGTH, PROMPT, Conversations, kind_of
from ul2_tasks.chat.supervision import TRAIN_ON, TRUNCATION, TURNS, Supervision
from ul2_tasks.store import columns
from ul2_tasks.store.columns import Columns
from ul2_tasks.store.read import Store
from ul2_tasks.store.write import PairWriter

EOD = 1
OF_ASSISTANT = [name for name in KINDS if name.startswith("assistant")]
GROUPS = {name: number % 3 for number, name in enumerate(OF_ASSISTANT)}
TWO_TURNS = [kind_of("user"), kind_of("assistant", "analysis"), kind_of("assistant", "final")] * 2


def arrays(conversations: list[list[tuple[int, int, int, int, int]]]) -> Conversations:
    """Conversations of these rows of `COLUMNS`, whose tokens are all different."""
    rows = [np.array(one, np.int32).reshape(-1, len(COLUMNS)) for one in conversations]
    lengths = np.array([one[:, 0].sum() + 1 for one in rows], np.int64)
    tokens = np.arange(100, 100 + lengths.sum(), dtype=np.int32)
    tokens[np.cumsum(lengths) - 1] = EOD
    counts = np.array([len(one) for one in rows], np.int64)
    return Conversations(tokens, lengths, np.concatenate([np.zeros([0, len(COLUMNS)], np.int32), *rows]), counts)


@st.composite
def messages(draw, kinds):
    length = draw(st.integers(1, 6))
    prompt = draw(st.integers(0, length))
    return length, prompt, draw(st.integers(prompt, length)), draw(kinds), draw(st.sampled_from([1, 1, 1, 0]))


COMMON = st.sampled_from([*TWO_TURNS, kind_of("system"), kind_of("assistant", "commentary", to_tool=True), kind_of("tool")])
CONVERSATIONS = st.lists(
    st.lists(messages(st.one_of(COMMON, COMMON, st.integers(0, len(KINDS) - 1))), min_size=1, max_size=9), min_size=1, max_size=5
).map(arrays)
BUDGET = st.one_of(st.none(), st.integers(1, 40))
LENGTHS = st.fixed_dictionaries({"tokens": BUDGET, "inputs": BUDGET, "targets": BUDGET})


@st.composite
def objectives(draw, groups):
    choices = [draw(st.sampled_from(values)) for values in (TRAIN_ON, TURNS, TRUNCATION)]
    stops = Stops(draw(st.sampled_from([None, 0, 7])), draw(st.booleans()))
    format = draw(st.sampled_from(FORMATS))
    return Objective(
        format, Supervision(draw(groups), *choices), stops, draw(st.sampled_from([(), (5, 6)])) if format == FORMATS[1] else ()
    )


def outcome(function):
    """What it returns, or the error that it raises as text."""
    try:
        return function()
    except ValueError as error:
        return f"{type(error).__name__} {error} {getattr(error, 'number', '')}"


def assert_equal(found, expected):
    if isinstance(found, str) or isinstance(expected, str):
        assert found == expected
        return
    assert found.counts == expected.counts
    assert found.conversations.tolist() == expected.conversations.tolist()
    assert list(found.values) == list(expected.values)
    for key, values in expected.values.items():
        assert found.values[key].dtype == values.dtype
        assert found.values[key].tolist() == values.tolist()
        assert found.lengths[key].dtype == np.int64
        assert found.lengths[key].tolist() == expected.lengths[key].tolist()


def in_memory(conversations: Conversations) -> Columns:
    places = [f"conversation {number} of a list" for number in range(len(conversations.counts))]
    return columns.in_memory(columns_of(conversations), places)


@contextlib.contextmanager
def stored(conversations: Conversations, pairs: int):
    """The conversations in a store of so many pairs of files."""
    with tempfile.TemporaryDirectory() as folder:
        stores, borders = {}, np.linspace(0, len(conversations.counts), pairs + 1).astype(int)
        columns = (
            ("tokens", conversations.tokens, conversations.lengths),
            ("messages", conversations.messages.reshape(-1), conversations.counts * len(COLUMNS)),
        )
        for name, values, sizes in columns:
            ends, prefixes = np.concatenate([[0], np.cumsum(sizes)]), []
            for pair, (first, stop) in enumerate(itertools.pairwise(borders)):
                prefix = pathlib.Path(folder) / f"{name}-{pair}"
                with PairWriter(f"{prefix}.bin", f"{prefix}.idx", np.dtype(np.int32)) as writer:
                    writer.add(values[ends[first] : ends[stop]], sizes[first:stop])
                prefixes += [str(prefix)] if stop > first else []
            stores[name] = Store.open(prefixes)
        yield Columns(stores, [f"pair {pair}" for pair in range(len(stores["tokens"].prefixes))])


def one_by_one(examples) -> list[dict[str, list[int]]]:
    """The values of each example, and its conversation."""
    stops = {key: np.cumsum(lengths) for key, lengths in examples.lengths.items()}
    return [
        {"conversation": record}
        | {
            key: examples.values[key][stops[key][place] - examples.lengths[key][place] : stops[key][place]].tolist()
            for key in stops
        }
        for place, record in enumerate(examples.conversations.tolist())
    ]


@hypothesis.given(CONVERSATIONS, objectives(st.just(GROUPS)), LENGTHS, st.integers(0, 3), st.data())
def test_the_index_has_each_example_once(conversations, objective, lengths, pairs, data):
    with stored(conversations, pairs) if pairs else contextlib.nullcontext(in_memory(conversations)) as reader:
        numbers = np.arange(reader.count)
        expected = outcome(lambda: objective.examples(reader, numbers, lengths))
        index = outcome(lambda: index_conversations(reader, objective, lengths))
        if isinstance(expected, str):
            assert index == expected
            return
        assert index.count == len(expected.conversations)
        assert {**index.left_out, **({SHORTENED: index.shortened} if index.shortened else {})} == expected.counts
        bounds = [index.examples_of(record) for record in numbers.tolist()]
        of_each = np.bincount(expected.conversations, minlength=reader.count)
        assert [stop - first for first, stop in bounds] == of_each.tolist()
        assert [first for first, _ in bounds] == (np.cumsum(of_each) - of_each).tolist()
        asked = np.array(data.draw(st.lists(st.integers(0, index.count - 1), max_size=8)) if index.count else [], np.int64)
        assert index.records(asked).tolist() == expected.conversations[asked].tolist()
        each = one_by_one(expected)
        keys = [key for key in ("tokens", "inputs", "targets") if key in expected.values]
        assert index.sizes(asked).tolist() == [[len(each[number][key]) for key in keys] for number in asked.tolist()]
        read = index.read(asked)
        assert one_by_one(read) == [each[number] for number in asked.tolist()]
        assert not read.counts
        assert_equal(index.read(np.arange(index.count)), expected._replace(counts=read.counts))


def many(count: int, kinds=TWO_TURNS) -> Conversations:
    """Conversations of messages of different lengths; every fifth has seven times as many."""
    return arrays([[(3 + number % 5, 2, 2, kind, 1) for kind in kinds * (1 + 6 * (number % 5 == 0))] for number in range(count)])


@pytest.mark.parametrize(("column", "value"), [(KIND, len(KINDS)), (KIND, -1), (LENGTH, 1), (PROMPT, -1), (PROMPT, 100)])
def test_messages_that_cannot_be_are_an_error(column, value):
    conversations = many(AT_A_TIME)
    conversations.messages[600, column] = value
    objective = Objective("prompt_completion", Supervision(), Stops(None, True))
    with pytest.raises(ValueError, match="conversation 45 of a list"):
        index_conversations(in_memory(conversations), objective, {})
