"""The text that a chat template writes around the contents of messages, and the message that each part of it belongs to.

A template is a program, so it is run, with stand-ins: private-use characters of Unicode, one for each content and each reasoning.
With `<|im_start|>` and `<|im_end|>` as one character each, and with A and B as the stand-ins, it writes:

    <|im_start|> u s e r \\n A <|im_end|> \\n <|im_start|> a s s i s t a n t \\n B <|im_end|> \\n
    [ user                                 ] [ assistant                                   ] [ ]
                                             [ prompt                     ] [ content, stop ]

* A message of the assistant ends with the first special token after its content. Where tags `{% generation %}` end between its
  content and the next one, it ends with the last of them.
* Its prompt is the generation prompt that the template writes after the earlier messages, as far as it is the same here.
* A message of any other role ends where the template writes the same whether another message follows or not.
* Text at the end that belongs to no message is a segment of the role "system".
* Calls of tools, and results that a template does not write as they are, have no stand-in. They are what the template writes in
  place of a stand-in for the whole content, which is written for the same message without them.

The contents are put in later, and the text is compared with the text that the template itself writes. So any template that passes
is attributed correctly.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

# Takes messages, and whether to write a generation prompt after them.
Render = Callable[[Sequence[Mapping[str, Any]], bool], str]

_HOLES = 0xF0000  # stand-ins: planes 15 and 16 are for private use
_MARKERS = 0x100000
MARKS = ("\U000ffff0", "\U000ffff1")  # of the beginning and the end of a tag `{% generation %}`
CALLS, REASONING = "tool_calls", ("reasoning_content", "thinking")  # fields
PROMPT, HEADER, BODY = range(3)  # the regions of a segment


class MessageShape(NamedTuple):
    """All that a skeleton depends on.

    `parts` is how many texts its content is a list of, None if it is a text; `reasoning` whether it has reasoning that is not
    empty, None if it has none at all. `fields` are those that have no stand-in, as JSON of an object; empty if there are none.
    With a content among them `parts` is 0.
    """

    role: str
    parts: int | None
    reasoning: bool | None
    fields: str = ""

    @property
    def channel(self) -> str | None:
        """The channel of its content: a message with calls of tools is the assistant's commentary."""
        if self.role != "assistant":
            return None
        return "commentary" if self.fields and CALLS in json.loads(self.fields) else "final"


class Hole(NamedTuple):
    """The place of a content, or of a part of it: the number of its message, and its channel."""

    message: int
    channel: str | None


class Piece(NamedTuple):
    """A piece of what a template writes.

    Attributes:
        text: what it writes; nothing where a content goes.
        hole: the number of the content that goes here; None elsewhere.
        is_marker: whether `text` is the name of a special token.
        segment: the number of its segment.
        region: `PROMPT`, `HEADER` or `BODY`, of that segment.
    """

    text: str
    hole: int | None
    is_marker: bool
    segment: int
    region: int


class Skeleton(NamedTuple):
    """What a template writes for conversations of one shape.

    `pieces` are in their order, `owners` the message and channel of each segment, None for text that belongs to no message,
    and `holes` are the places of contents.
    """

    pieces: tuple[Piece, ...]
    owners: tuple[Hole | None, ...]
    holes: tuple[Hole, ...]


class _Segment(NamedTuple):
    owner: Hole | None
    start: int
    prompt: int  # where the prompt ends
    header: int
    stop: int


def stand_in(hole: int) -> str:
    """The character that stands for a content."""
    return chr(_HOLES + hole)


def holes_of(shapes: Sequence[MessageShape]) -> list[Hole]:
    """The places of all contents and reasoning of a conversation.

    >>> holes_of([MessageShape("user", None, None), MessageShape("assistant", None, True)])[1:]
    [Hole(message=1, channel='analysis'), Hole(message=1, channel='final')]
    """
    holes = []
    for number, shape in enumerate(shapes):
        holes += [Hole(number, "analysis")] * bool(shape.reasoning)
        holes += [Hole(number, shape.channel)] * (1 if shape.parts is None else shape.parts)
    return holes


def filled(shapes: Sequence[MessageShape], texts: Iterable[str]) -> list[dict[str, Any]]:
    """Messages of these shapes, as templates take them, with these texts in the order of `holes_of`.

    Reasoning is there under both names that templates know.
    """
    texts, messages = iter(texts), []
    for shape in shapes:
        message: dict[str, Any] = {"role": shape.role}
        if shape.reasoning is not None:
            message |= dict.fromkeys(REASONING, next(texts) if shape.reasoning else "")
        if shape.parts is None:
            message["content"] = next(texts)
        else:
            message["content"] = [{"type": "text", "text": next(texts)} for _ in range(shape.parts)]
        messages.append({**message, **json.loads(shape.fields or "{}")})
    return messages


def make_skeleton(shapes: Sequence[MessageShape], render: Render, markers: Sequence[str]) -> Skeleton:
    """Runs a template with stand-ins.

    `render` is the template with `MARKS`, and `markers` are the names of all special tokens. Raises a ValueError where the
    template fails, or does not write each content once.
    """
    holes = holes_of(shapes)
    messages = filled(shapes, map(stand_in, range(len(holes))))
    condense = _condenser(markers)
    whole, tag_ends = _without_tags(condense(render(messages, False)))
    for number in _left_out(whole, holes, messages, render):  # so that it is not there either in a last turn
        messages[number] = {key: value for key, value in messages[number].items() if key not in REASONING}

    @functools.cache
    def earlier(number: int, prompt: bool) -> str:
        """What the template writes for the messages before one; nothing if it fails on them."""
        try:
            return _without_tags(condense(render(messages[:number], prompt)))[0]
        except ValueError:
            return ""

    groups = _groups(whole, holes)
    for number, shape in enumerate(shapes):
        if not shape.fields or not {CALLS, "content"} & json.loads(shape.fields).keys():
            continue
        text = next((text for text in _replaced(messages, number, len(holes), render, condense) if whole.endswith(text[1])), None)
        if text is None:
            raise ValueError(
                f"message {number + 1} of {len(shapes)}: the chat template must write the other messages the same with and without"
                f" its {' and '.join(sorted(json.loads(shape.fields).keys() & {CALLS, 'content'}))}, got a change"
            )
        groups = _with_group(groups, Hole(number, shape.channel), common(whole, text[0]), len(whole) - len(text[1]))
    segments = list(_segments(whole, groups, shapes, tag_ends, earlier))
    pieces = tuple(piece for number, segment in enumerate(segments) for piece in _pieces(whole, number, segment, markers))
    return Skeleton(pieces, tuple(segment.owner for segment in segments), tuple(holes))


def _replaced(
    messages: Sequence[Mapping[str, Any]], number: int, hole: int, render: Render, condense: Callable[[str], str]
) -> Iterable[tuple[str, str]]:
    """What a template writes before and after the content of a message without calls: a stand-in of this number."""
    others = {key: value for key, value in messages[number].items() if key != CALLS}
    for content in (stand_in(hole), [{"type": "text", "text": stand_in(hole)}]):
        try:
            changed = [*messages[:number], {**others, "content": content}, *messages[number + 1 :]]
            before, *after = _without_tags(condense(render(changed, False)))[0].split(stand_in(hole))
        except ValueError:
            continue
        if len(after) == 1:
            yield before, after[0]


def _with_group(groups: Sequence[tuple[Hole, int, int]], owner: Hole, begin: int, end: int) -> list[tuple[Hole, int, int]]:
    """The groups of `_groups` with that of a message whose text has no stand-in, or not all of it."""
    before = [group for group in groups if group[0].message < owner.message or group[0] == Hole(owner.message, "analysis")]
    own = [group for group in groups if group[0] == owner]
    after = [group for group in groups if group[0].message > owner.message]
    begin = max([own[0][1] if own else begin, *(stop for _, _, stop in before)])
    if len(before) + len(own) + len(after) < len(groups) or not begin <= end <= min([end, *(start for _, start, _ in after)]):
        raise ValueError(
            f"message {owner.message + 1}: the chat template must write messages one after the other, got others between"
        )
    return [*before, (owner, begin, end), *after]


def _condenser(markers: Sequence[str]) -> Callable[[str], str]:
    """Makes one character of each special token. Where two could begin, it takes the longer one, as tokenizers do."""
    numbers = {name: number for number, name in enumerate(markers)}
    names = re.compile("|".join(map(re.escape, sorted(markers, key=len, reverse=True))) or "(?!)")
    return lambda text: names.sub(lambda found: chr(_MARKERS + numbers[found[0]]), text)


def _without_tags(text: str) -> tuple[str, list[int]]:
    """The text without `MARKS`, and where in it tags end."""
    begun, ended = MARKS
    parts = text.replace(begun, "").split(ended)
    return "".join(parts), [*itertools.accumulate(map(len, parts[:-1]))]


def _left_out(whole: str, holes: Sequence[Hole], messages: Sequence[Mapping[str, Any]], render: Render) -> list[int]:
    """The messages whose reasoning is not written, but would be if they were the last ones."""
    left_out = []
    for hole, (number, channel) in enumerate(holes):
        times = whole.count(stand_in(hole))
        is_reasoning = channel == "analysis"
        if times == 0 and is_reasoning and stand_in(hole) in render(messages[: number + 1], False):
            left_out.append(number)
        elif times != 1:
            what = "reasoning" if is_reasoning else "content"
            how = "times, even for a last message" if is_reasoning and not times else "times"
            other = "a list of texts" if isinstance(messages[number]["content"], str) else "a string"
            advice = f". Write the content as {other}, if the template accepts that" if not times and not is_reasoning else ""
            raise ValueError(
                f"message {number + 1} of {len(messages)}: the chat template must write its {what} once, got it {times}"
                f" {how}{advice}"
            )
    return left_out


def _groups(whole: str, holes: Sequence[Hole]) -> list[tuple[Hole, int, int]]:
    """The contents in the order in which they are written: whose, where the first part begins, where the last one ends."""
    places = sorted((whole.index(stand_in(hole)), owner) for hole, owner in enumerate(holes) if stand_in(hole) in whole)
    groups = []
    for owner, parts in itertools.groupby(places, key=lambda place: place[1]):
        positions = [position for position, _ in parts]
        groups.append((owner, positions[0], positions[-1] + 1))
    return groups


def _segments(
    whole: str,
    groups: Sequence[tuple[Hole, int, int]],
    shapes: Sequence[MessageShape],
    tag_ends: Sequence[int],
    earlier: Callable[[int, bool], str],
) -> Iterable[_Segment]:
    """Where each segment and its regions begin and end."""
    start, previous = 0, None
    for (owner, begin, end), following in itertools.zip_longest(groups, groups[1:]):
        next_owner, next_begin = following[:2] if following else (None, len(whole))
        is_assistant = shapes[owner.message].role == "assistant"
        prompt = start
        if is_assistant and owner.message != previous:
            prompt = _clip(common(whole, earlier(owner.message, True)), start, begin)
        stops = [place for place in tag_ends if end <= place <= next_begin][-1:]
        stops += [place + 1 for place in range(end, next_begin) if ord(whole[place]) >= _MARKERS][:1]
        if is_assistant and stops:
            stop = stops[0]
        elif next_owner is None or next_owner.message == owner.message:
            stop = next_begin
        else:
            stop = _clip(common(whole, earlier(next_owner.message, False)), end, next_begin)
        yield _Segment(owner, start, prompt, begin, stop)
        start, previous = stop, owner.message
    if start < len(whole):
        yield _Segment(None, start, start, len(whole), len(whole))


def common(one: str, other: str) -> int:
    """How many characters two texts begin with in common.

    >>> common("abc", "abd")
    2
    """
    return next((place for place, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))


def _clip(place: int, low: int, high: int) -> int:
    return max(low, min(place, high))


def _pieces(whole: str, number: int, segment: _Segment, markers: Sequence[str]) -> Iterable[Piece]:
    borders = (segment.start, segment.prompt, segment.header, segment.stop)
    for region, (begin, end) in enumerate(itertools.pairwise(borders)):
        for text in re.findall(f"[{chr(_HOLES)}-\U0010ffff]|[^{chr(_HOLES)}-\U0010ffff]+", whole[begin:end]):
            code = ord(text[0])
            is_marker, is_hole = code >= _MARKERS, _HOLES <= code < _MARKERS
            written = markers[code - _MARKERS] if is_marker else "" if is_hole else text
            yield Piece(written, code - _HOLES if is_hole else None, is_marker, number, region)
