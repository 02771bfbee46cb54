"""The examples of conversations in plain Python, message by message: what the compiled loops must equal."""

from __future__ import annotations

import collections
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ul2_tasks.chat.choices import UNTRAINED
from ul2_tasks.chat.examples import Examples, Stops
from ul2_tasks.chat.objective import CHAT, Objective
from ul2_tasks.chat.segments import CHANNELS, HEADER, KIND, LENGTH, PROMPT, ROLES, WEIGHT, Conversations
from ul2_tasks.chat.supervision import ConversationError, Supervision, check_kinds
from ul2_tasks.order.epochs import integers_of

_ASSISTANT, _USER = ROLES.index("assistant"), ROLES.index("user")
_ANALYSIS, _FINAL = CHANNELS.index("analysis"), CHANNELS.index("final")


class _Choice(NamedTuple):
    """The messages of an example, by their numbers. The last `turn` of them may be trained on."""

    messages: list[int]
    turn: int


def plain_examples(objective: Objective, conversations: Conversations, lengths: Mapping[str, int | None]) -> Examples:
    """What `Objective.made_of` gives."""
    if objective.format == CHAT:
        return chats(conversations, objective.supervision, objective.stops, lengths.get("tokens"))
    most, mode = lengths.get("inputs"), np.array(objective.mode, np.int32)
    budgets = None if most is None else most - len(mode), lengths.get("targets")
    found = prompt_completions(conversations, objective.supervision, objective.stops, budgets)
    of_inputs = found.lengths["inputs"]
    places = np.repeat(np.cumsum(of_inputs) - of_inputs, len(mode))
    inputs = np.insert(found.values["inputs"], places, np.tile(mode, len(of_inputs)))
    return found._replace(values=found.values | {"inputs": inputs}, lengths=found.lengths | {"inputs": of_inputs + len(mode)})


def chats(conversations: Conversations, supervision: Supervision, stops: Stops, budget: int | None) -> Examples:
    """Examples for a decoder: "tokens", and of each "loss_mask" and "span_id". Each ends with the EOD, which is not trained on.

    The conversations have the tokenizer's own ids. `budget` is the most tokens of an example; None for any number. Raises a
    ConversationError where an example has more and `truncation` is "raise", or a message is of a kind without a loss group.
    """
    reader = _Reader(conversations, supervision, stops)
    counts: collections.Counter[str] = collections.Counter()
    if supervision.turns == "all" and (budget is None or conversations.lengths.max(initial=0) <= budget):
        numbers = np.flatnonzero(reader.has_trained())
        if len(numbers) < len(conversations.counts):
            counts[UNTRAINED] = len(conversations.counts) - len(numbers)
        return reader.gather_wholes(numbers, counts)
    chosen = []
    for number in range(len(conversations.counts)):
        for choice in reader.choices(number):
            if not any(reader.is_trained(message) for message in choice.messages[len(choice.messages) - choice.turn :]):
                counts[UNTRAINED] += 1
            elif (kept := reader.within(number, choice, budget, counts, extra=1)) is not None:
                chosen.append((number, kept))
    return reader.gather_chats(chosen, counts)


def prompt_completions(
    conversations: Conversations, supervision: Supervision, stops: Stops, budgets: tuple[int | None, int | None]
) -> Examples:
    """Examples for an encoder and a decoder: "inputs" and "targets", and of the targets "loss_mask" and "span_id".

    `budgets` are the most tokens of inputs and of targets. Targets are what the model generates, so that `train_on="all"` is like
    "generated". The rest is as in `chats`.
    """
    reader = _Reader(conversations, supervision, stops)
    counts: collections.Counter[str] = collections.Counter()
    chosen = []
    for number in range(len(conversations.counts)):
        for choice in reader.choices(number):
            for history, own in reader.pairs(choice):
                if not any(map(reader.is_trained, own)):
                    counts[UNTRAINED] += 1
                    continue
                targets = sum(map(reader.length, own)) - reader.prompt(own[0])
                if budgets[1] is not None and targets > budgets[1]:
                    reader.too_long(number, targets, budgets[1], "targets", counts)
                    continue
                kept = reader.within(number, _Choice(history, 0), budgets[0], counts, extra=reader.prompt(own[0]), what="inputs")
                if kept is not None:
                    chosen.append((number, kept.messages, own))
    return reader.gather_pairs(chosen, counts)


class _Reader:
    """Conversations, message by message. Messages are numbered over all conversations."""

    def __init__(self, conversations: Conversations, supervision: Supervision, stops: Stops):
        self._supervision, self._stops = supervision, stops
        self._tokens = conversations.tokens
        check_kinds(conversations, supervision)
        rows = conversations.messages
        groups = supervision.group_of_kinds()[rows[:, KIND]]
        self._groups = np.where(rows[:, WEIGHT] > 0, groups, 0).astype(np.uint8)
        # Where messages begin: after those before them, and after one EOD for each conversation before.
        self._first = np.cumsum(conversations.counts) - conversations.counts
        number = np.repeat(np.arange(len(conversations.counts)), conversations.counts)
        self._starts = np.cumsum(rows[:, LENGTH], dtype=np.int64) - rows[:, LENGTH] + number
        self._eods = np.cumsum(conversations.lengths) - 1
        self._rows = rows
        column = {"all": None, "generated": PROMPT, "content": HEADER}[supervision.train_on]
        self._trained_from = np.zeros(len(rows), np.int64) if column is None else rows[:, column].astype(np.int64)
        self._counts = conversations.counts

    # Lists, because single items of arrays cost more than what is done with them.
    @functools.cached_property
    def _lengths(self) -> list[int]:
        return self._rows[:, LENGTH].tolist()

    @functools.cached_property
    def _prompts(self) -> list[int]:
        return self._rows[:, PROMPT].tolist()

    @functools.cached_property
    def _roles(self) -> list[int]:
        return (self._rows[:, KIND] // 8).tolist()

    @functools.cached_property
    def _channels(self) -> list[int]:
        return (self._rows[:, KIND] % 8 // 2).tolist()

    @functools.cached_property
    def _is_trained(self) -> list[bool]:
        return (self._groups > 0).tolist()

    def has_trained(self) -> np.ndarray:
        """[conversations] bool, whether any token of it is trained on."""
        trained = np.concatenate([[0], np.cumsum(self._groups > 0)])
        return trained[self._first + self._counts] > trained[self._first]

    def length(self, message: int) -> int:
        return self._lengths[message]

    def prompt(self, message: int) -> int:
        return self._prompts[message]

    def is_trained(self, message: int) -> bool:
        return self._is_trained[message]

    def choices(self, number: int) -> Iterator[_Choice]:
        """The examples of a conversation, before any is left out."""
        first = int(self._first[number])
        messages = list(range(first, first + int(self._counts[number])))
        if self._supervision.turns == "all":
            yield _Choice(messages, len(messages))
            return
        starts = [message for message in messages if self._roles[message] == _USER] or messages[:1]
        ends = [*starts[1:], messages[-1] + 1]
        turns = list(zip(starts, ends))
        for start, end in turns if self._supervision.turns == "each" else turns[-1:]:
            yield _Choice([*self._history(range(first, start)), *range(start, end)], end - start)

    def _history(self, messages: Sequence[int]) -> list[int]:
        """The messages before a turn as they are at inference: without the reasoning that led to an earlier answer."""
        finals = [m for m in messages if self._roles[m] == _ASSISTANT and self._channels[m] == _FINAL]
        if not finals or not self._stops.keeps_history:
            return list(messages)
        return [m for m in messages if m > finals[-1] or self._channels[m] != _ANALYSIS]

    def pairs(self, choice: _Choice) -> Iterator[tuple[list[int], list[int]]]:
        """The messages before each run of the assistant's messages that begins in the turn, and the run."""
        messages = choice.messages
        place = len(messages) - choice.turn
        while place < len(messages):
            end = place
            while end < len(messages) and self._roles[messages[end]] == _ASSISTANT:
                end += 1
            if end > place:
                yield messages[:place], messages[place:end]
            place = max(end, place + 1)

    def within(
        self, number: int, choice: _Choice, budget: int | None, counts: collections.Counter[str], extra: int, what: str = "tokens"
    ) -> _Choice | None:
        """The choice, with `extra` more tokens, within a budget; None where it is left out, and counted."""
        tokens = sum(map(self.length, choice.messages)) + extra
        if budget is None or tokens <= budget:
            return choice
        if self._supervision.truncation == "drop_oldest_turns":
            kept = list(choice.messages)
            users = [message for message in kept if self._roles[message] == _USER]
            for oldest, following in itertools.pairwise(users):
                gone = [message for message in kept if oldest <= message < following]
                kept = [message for message in kept if not oldest <= message < following]
                tokens -= sum(map(self.length, gone))
                if tokens <= budget:
                    counts["shortened"] += 1
                    return _Choice(kept, min(choice.turn, len(kept)))
        self.too_long(number, tokens, budget, what, counts)
        return None

    def too_long(self, number: int, tokens: int, budget: int, what: str, counts: collections.Counter[str]) -> None:
        if self._supervision.truncation == "raise":
            raise ConversationError(
                number,
                f"the conversation must have at most {budget} {what}, got {tokens}. Raise the length, or pass truncation='drop',"
                " which drops and counts it, or truncation='drop_oldest_turns'. See"
                " docs/help/troubleshooting.md#a-conversation-is-longer-than-the-lengths.",
            )
        counts["too long"] += 1

    def gather_chats(self, chosen: Sequence[tuple[int, _Choice]], counts: collections.Counter[str]) -> Examples:
        sizes = np.array([len(choice.messages) for _, choice in chosen], np.int64)
        turns = np.array([choice.turn for _, choice in chosen], np.int64)
        numbers = np.array([number for number, _ in chosen], np.int64)
        messages = np.array([message for _, choice in chosen for message in choice.messages], np.int64)
        return self._gather_chats(numbers, messages, sizes, turns, counts)

    def gather_wholes(self, numbers: np.ndarray, counts: collections.Counter[str]) -> Examples:
        """The examples that are these conversations as a whole."""
        sizes = self._counts[numbers]
        return self._gather_chats(numbers, integers_of(self._first[numbers], self._first[numbers] + sizes), sizes, sizes, counts)

    def _gather_chats(
        self, numbers: np.ndarray, messages: np.ndarray, sizes: np.ndarray, turns: np.ndarray, counts: collections.Counter[str]
    ) -> Examples:
        """The examples of these conversations, [n]: `sizes` messages each, the last `turns` of which may be trained on, [n]."""
        places = np.arange(len(messages)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        groups = np.where(places >= np.repeat(sizes - turns, sizes), self._groups[messages], 0)
        ends = np.cumsum(sizes)  # an EOD follows each example's messages
        starts = np.insert(self._starts[messages], ends, self._eods[numbers])
        lengths = np.insert(self._rows[messages, LENGTH].astype(np.int64), ends, 1)
        tokens = _parts(self._tokens, starts, lengths)
        span_id = self._span_ids(np.insert(groups, ends, 0), np.insert(self._trained_from[messages], ends, 0), lengths)
        example = np.repeat(np.arange(len(sizes)), sizes + 1)
        totals = np.bincount(example, lengths, len(sizes)).astype(np.int64)
        self._end_final(tokens, np.cumsum(totals) - 2, messages[ends - 1])
        values = {"tokens": tokens, "loss_mask": (span_id > 0).view(np.uint8), "span_id": span_id}
        return Examples(values, dict.fromkeys(values, totals), numbers, counts)

    def gather_pairs(self, chosen: Sequence[tuple[int, list[int], list[int]]], counts: collections.Counter[str]) -> Examples:
        inputs, targets, span_ids, lengths_in, lengths_out = [], [], [], [], []
        for _, history, own in chosen:
            before, run = np.array(history, np.int64), np.array(own, np.int64)
            prompt = self._prompts[own[0]]
            starts, lengths = np.append(self._starts[before], self._starts[run[0]]), np.append(self._rows[before, LENGTH], prompt)
            inputs.append(_parts(self._tokens, starts, lengths))
            lengths = self._rows[run, LENGTH].astype(np.int64)
            tokens = _parts(self._tokens, self._starts[run], lengths)
            span_id = self._span_ids(self._groups[run], self._trained_from[run], lengths)
            self._end_final(tokens, np.array([len(tokens) - 1]), run[-1:])
            targets.append(tokens[prompt:])
            span_ids.append(span_id[prompt:])
            lengths_in.append(len(inputs[-1]))
            lengths_out.append(len(targets[-1]))
        all_span_ids = np.concatenate([np.zeros([0], np.uint8), *span_ids])
        none = np.zeros([0], np.int32)
        of = {"inputs": np.array(lengths_in, np.int64), "targets": np.array(lengths_out, np.int64)}
        values = {
            "inputs": np.concatenate([none, *inputs]),
            "targets": np.concatenate([none, *targets]),
            "loss_mask": (all_span_ids > 0).view(np.uint8),
            "span_id": all_span_ids,
        }
        of_each = of | {"loss_mask": of["targets"], "span_id": of["targets"]}
        return Examples(values, of_each, np.array([number for number, _, _ in chosen], np.int64), counts)

    def _span_ids(self, groups: np.ndarray, trained_from: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """[tokens] uint8, of messages [messages] with these loss groups, each trained on from this token of it on."""
        before = np.minimum(trained_from, lengths)
        runs = np.stack([np.zeros_like(groups), groups], axis=1), np.stack([before, lengths - before], axis=1)
        return np.repeat(*(each.reshape(-1) for each in runs))

    def _end_final(self, tokens: np.ndarray, places: np.ndarray, messages: np.ndarray) -> None:
        """Ends examples whose last message is the final answer as a conversation ends; `places` are the last tokens of messages."""
        if self._stops.final is None:
            return
        kinds = self._rows[messages, KIND]
        is_final = (kinds // 8 == _ASSISTANT) & (kinds % 8 // 2 == _FINAL)
        tokens[places[is_final]] = self._stops.final


def _parts(values: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """A copy of the values of some ranges, one range after the other. Ranges that touch, as most do, are copied at once."""
    ends = starts + lengths
    if len(starts) and (starts[1:] == ends[:-1]).all():
        return values[starts[0] : ends[-1]].copy()
    return values[integers_of(starts, starts + lengths)]
