"""Which messages the examples of conversations have, and how many tokens: by their messages' numbers alone, in compiled loops.

An example is a history and the messages after it, its *own*, some of which are trained on. Both are ranges of a table of messages:

    messages     s    u1 a1 f1    u2 a2 f2    u3 a3 f3    u4 a4 f4
                 |    |           |           |           |
                 |    dropped     |           own         stop
                 first            dropped_stop
    example      s                u2    f2    u3 a3 f3

    first            the first message of the conversation
    dropped          from here to `dropped_stop` messages are left out, so that the example is short enough: whole turns
    reasoning_stop   before it messages of the channel "analysis" are left out: here it is the same as `own`
    own              from here to `stop` are the own messages: a turn, all messages, or the targets of a pair
"""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ul2_tasks.chat.segments import CHANNELS, KIND, LENGTH, PROMPT, ROLES, WEIGHT
from ul2_tasks.chat.supervision import TRUNCATION, TURNS, Supervision
from ul2_tasks.compiled import compiled, part_of_compiled

CAUSES = UNTRAINED, TOO_LONG, SHORTENED = "without a token to train on", "too long", "shortened"
FEATURES = {False: ("tokens",), True: ("inputs", "targets")}  # by whether examples are pairs
WRONG_KIND, CORRUPT = -1, -2  # in place of the feature that is too long
_ALL, _LAST, _EACH = range(len(TURNS))
_RAISE, _DROP, _DROP_OLDEST = range(len(TRUNCATION))
_ASSISTANT, _USER = ROLES.index("assistant"), ROLES.index("user")
_ANALYSIS, _FINAL = CHANNELS.index("analysis"), CHANNELS.index("final")
_ANY = (1 << 62) - 1  # tokens

# The columns of choices; the last two are how many tokens each feature has.
_COLUMNS = ("number", "first", "dropped", "dropped_stop", "reasoning_stop", "own", "stop", "tokens", "targets")
NUMBER, _FIRST, _DROPPED, _DROPPED_STOP, _REASONING_STOP, _OWN, _STOP, _TOKENS, _TARGETS = range(len(_COLUMNS))


class Rules(NamedTuple):
    """What decides which examples a conversation makes, all integers for the compiled loops.

    Attributes:
        is_pairs: whether they are pairs of a prompt and a completion.
        keeps_history: see `examples.Stops`.
        turns, truncation: their places in `supervision.TURNS` and `supervision.TRUNCATION`.
        most, most_targets: the budget of tokens, or of inputs without the mode; and of targets.
        mode: how many ids come before the inputs.
    """

    is_pairs: int
    keeps_history: int
    turns: int
    truncation: int
    most: int
    most_targets: int
    mode: int


class Problem(NamedTuple):
    """The first conversation that raises an error, by its place among those that are read, and how many tokens it has.

    `feature` is the place of what is too long in `FEATURES`; or `WRONG_KIND`, where a message is of a kind without a loss group; or
    `CORRUPT`, where it has numbers that no message has.
    """

    number: int
    tokens: int
    feature: int


class Choices(NamedTuple):
    """The examples of some conversations.

    Attributes:
        table: [examples, columns] int64, the messages of each, for `examples.write_examples`; empty where they are only counted.
        of_each: [conversations] int64, how many examples each makes.
        left_out: how many examples are left out, by `CAUSES`, [causes] int64.
        problem: the first that raises an error, if one does; no conversation from it on is counted.
    """

    table: np.ndarray
    of_each: np.ndarray
    left_out: np.ndarray
    problem: Problem | None


def counter_of(left_out: np.ndarray) -> collections.Counter[str]:
    """How many examples are left out by cause, of those causes that there are; of [causes] int64, see `Choices`."""
    return collections.Counter({cause: number for cause, number in zip(CAUSES, left_out.tolist()) if number})


def rules_of(is_pairs: bool, supervision: Supervision, keeps_history: bool, lengths: Mapping[str, int | None], mode: int) -> Rules:
    """`lengths` are the budgets of the features, None for any number; `mode` is how many ids come before the inputs."""
    most = [_ANY if (length := lengths.get(key)) is None else length for key in FEATURES[is_pairs]]
    turns, truncation = TURNS.index(supervision.turns), TRUNCATION.index(supervision.truncation)
    return Rules(int(is_pairs), int(keeps_history), turns, truncation, most[0] - mode, most[-1], mode)


def choose(messages: np.ndarray, counts: np.ndarray, groups: np.ndarray, rules: Rules, examples: int | None = None) -> Choices:
    """The examples of conversations: of their messages, see `segments`, and by `Supervision.group_of_kinds`.

    `examples` are how many the table may have: all of them, where it is known; 0 to count them alone.
    """
    if examples is not None:
        return _chosen(messages, counts, groups, rules, examples)
    found = _chosen(messages, counts, groups, rules, 0)
    number = int(found.of_each.sum())
    return _chosen(messages, counts, groups, rules, number) if number and not found.problem else found


def sizes_of(table: np.ndarray, is_pairs: bool) -> np.ndarray:
    """[examples, features] int64: how many tokens each feature of `FEATURES` has, of the examples of a table of `Choices`."""
    return table[:, _TOKENS : _TOKENS + len(FEATURES[is_pairs])]


def _chosen(messages: np.ndarray, counts: np.ndarray, groups: np.ndarray, rules: Rules, examples: int) -> Choices:
    table = np.empty([examples, len(_COLUMNS)], np.int64)
    of_each, left_out = np.zeros(len(counts), np.int64), np.zeros(len(CAUSES), np.int64)
    problem = Problem(*_choose(messages, counts, groups, rules, of_each, left_out, table))
    return Choices(table, of_each, left_out, problem if problem.number >= 0 else None)


@part_of_compiled
def _role(kind):
    return kind >> 3


@part_of_compiled
def _channel(kind):
    return (kind >> 1) & 3


@part_of_compiled
def _tokens_before(place, tokens, spoken, reasoning_stop):
    """How many tokens a history has before a message, if messages before `reasoning_stop` are without reasoning."""
    if place <= reasoning_stop:
        return spoken[place]
    return spoken[reasoning_stop] + tokens[place] - tokens[reasoning_stop]


@part_of_compiled
def _drop_oldest(rows, users, place, tokens, spoken, reasoning_stop, more):
    """The range of messages to leave out of those before a place so that they have `more` tokens less, at least; else empty.

    It begins with the first message of a user and ends before the first other one that will do. `users` are the places of those.
    """
    oldest = -1
    for user in users:
        if user >= place:
            break
        if user < reasoning_stop and _channel(rows[user, KIND]) == _ANALYSIS:
            continue
        if oldest < 0:
            oldest = user
            continue
        gone = _tokens_before(user, tokens, spoken, reasoning_stop) - _tokens_before(oldest, tokens, spoken, reasoning_stop)
        if gone >= more:
            return oldest, user, gone
    return 0, 0, 0


@compiled
def _choose(messages, counts, groups, rules, of_each, left_out, table):
    """Fills `of_each`, `left_out` and the rows of `table`; see `Choices`. Gives a `Problem`, of number -1 where there is none.

    A turn begins with a user's message, and the first one of them with the first message if no user's is there. A pair's targets
    are a run of the assistant's messages.
    """
    most = counts.max() if len(counts) else 0
    tokens, spoken = np.zeros(most + 1, np.int64), np.zeros(most + 1, np.int64)  # before each message; without reasoning
    users = np.empty(most, np.int64)
    made, first = 0, 0
    for number in range(len(counts)):
        rows = messages[first : first + counts[number]]
        count, found_users, made_before = len(rows), 0, made
        for place in range(count):
            length, kind = np.int64(rows[place, LENGTH]), rows[place, KIND]
            if not (0 <= kind < len(groups) and 0 <= rows[place, PROMPT] <= length):
                return number, 0, CORRUPT  # which would be places in memory of something else
            if groups[kind] < 0:
                return number, 0, WRONG_KIND
            tokens[place + 1] = tokens[place] + length
            spoken[place + 1] = spoken[place] + (0 if _channel(kind) == _ANALYSIS else length)
            if _role(kind) == _USER:
                users[found_users] = place
                found_users += 1
        turns = 1 if rules.turns == _ALL else max(1, found_users)
        reasoning_stop, looked_at = 0, 0
        for turn in range(turns - 1 if rules.turns == _LAST else 0, turns):
            start = 0 if rules.turns == _ALL or not found_users else users[turn]
            end = users[turn + 1] if turn + 1 < turns else count
            if rules.keeps_history:
                for place in range(looked_at, start):
                    if _role(rows[place, KIND]) == _ASSISTANT and _channel(rows[place, KIND]) == _FINAL:
                        reasoning_stop = place + 1
                looked_at = start
            own = start
            while own < end:
                stop = end
                if rules.is_pairs:
                    stop = own
                    while stop < end and _role(rows[stop, KIND]) == _ASSISTANT:
                        stop += 1
                    if stop == own:
                        own += 1
                        continue
                is_trained = False
                for place in range(own, stop):
                    is_trained |= groups[rows[place, KIND]] > 0 and rows[place, WEIGHT] > 0
                # What is cut to a budget ends here: chats as a whole, and histories of pairs.
                until, budget = stop, rules.most
                size, targets = _tokens_before(stop, tokens, spoken, reasoning_stop) + 1, np.int64(0)
                if rules.is_pairs:
                    prompt = np.int64(rows[own, PROMPT])
                    until, targets = own, tokens[stop] - tokens[own] - prompt
                    size = _tokens_before(own, tokens, spoken, reasoning_stop) + prompt
                dropped, dropped_stop = 0, 0
                is_kept = False
                if not is_trained:
                    left_out[0] += 1
                elif targets > rules.most_targets:
                    if rules.truncation == _RAISE:
                        return number, targets, 1
                    left_out[1] += 1
                elif size <= budget:
                    is_kept = True
                else:
                    if rules.truncation == _RAISE:
                        return number, size, 0
                    if rules.truncation == _DROP_OLDEST:
                        dropped, dropped_stop, gone = _drop_oldest(
                            rows, users[:found_users], until, tokens, spoken, reasoning_stop, size - budget
                        )
                        size -= gone
                        is_kept = dropped_stop > 0
                    left_out[2 if is_kept else 1] += 1
                if is_kept:
                    if made < len(table):
                        table[made, NUMBER], table[made, _FIRST] = number, first
                        table[made, _DROPPED], table[made, _DROPPED_STOP] = first + dropped, first + dropped_stop
                        table[made, _REASONING_STOP] = first + reasoning_stop
                        table[made, _OWN], table[made, _STOP] = first + own, first + stop
                        table[made, _TOKENS], table[made, _TARGETS] = size + rules.mode, targets
                    made += 1
                own = stop
        of_each[number] = made - made_before
        first += count
    return -1, 0, 0


@part_of_compiled
def _copy(values, place):
    """Copies values to where `place`, a view, begins. A loop over both from 0 is as fast as memory; one from elsewhere is not."""
    for each in range(len(values)):
        place[each] = values[each]


@compiled
def write(tokens, ends, lengths, messages, table, groups, trained_from, final, mode, is_pairs, inputs, targets, span_id):
    """Fills `inputs`, `targets` and `span_id`, zeros so far; of chats, whose `inputs` and `targets` are the same array.

    `ends` and `lengths`, [conversations] int64, are of the tokens of conversations. `groups` are the loss groups of kinds,
    `trained_from` is a column of `messages`, or -1, and `final` an id, or -1.
    """
    in_inputs, in_targets = 0, 0
    for example in range(len(table)):
        number, own = table[example, NUMBER], table[example, _OWN]
        source = ends[number] - lengths[number]  # the first token of a message
        ids, place, skipped = inputs, in_inputs, 0
        _copy(mode, ids[place:])
        place += len(mode)
        for row in range(table[example, _FIRST], table[example, _STOP]):
            length, kind = np.int64(messages[row, LENGTH]), messages[row, KIND]
            if is_pairs and row == own:
                skipped = np.int64(messages[row, PROMPT])
                _copy(tokens[source : source + skipped], ids[place:])
                in_inputs = place + skipped
                ids, place = targets, in_targets
            is_dropped = table[example, _DROPPED] <= row < table[example, _DROPPED_STOP]
            if not is_dropped and (row >= table[example, _REASONING_STOP] or _channel(kind) != _ANALYSIS):
                begin = min(skipped, length)
                _copy(tokens[source + begin : source + length], ids[place:])
                if row >= own and messages[row, WEIGHT] > 0:
                    first = max(begin, np.int64(messages[row, trained_from]) if trained_from >= 0 else 0)
                    span_id[place + first - begin : place + length - begin] = groups[kind]
                place += length - begin
                skipped -= begin
            source += length
        last = messages[table[example, _STOP] - 1, KIND]
        is_final = _role(last) == _ASSISTANT and _channel(last) == _FINAL
        if is_final and final >= 0 and (not is_pairs or place > in_targets):
            ids[place - 1] = final
        if is_pairs:
            in_targets = place
        else:
            ids[place] = tokens[ends[number] - 1]
            in_inputs = place + 1
