"""`TemplateRenderer`: conversations in the format of a Hugging Face tokenizer's chat template.

Each token is attributed to its message exactly, or the conversation raises an error:

    messages                     user "Hi", assistant "Hello"
    skeleton, see skeletons.py   <|im_start|> user\\n A <|im_end|> \\n <|im_start|> assistant\\n B <|im_end|> \\n
    contents put in              "<|im_start|>user\\nHi<|im_end|>\\n<|im_start|>assistant\\nHello<|im_end|>\\n"
    the template itself          the same, character for character; otherwise an error
    tokens                       the tokenizer's own, each with the characters that it stands for

The text that is tokenized has private names in place of the special tokens that the template writes. So a content that spells a
special token becomes ordinary tokens. Where no content does, the ids are those of `transformers`' `apply_chat_template`.
"""

from __future__ import annotations

import datetime
import functools
import hashlib
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ul2_tasks.chat.attribution import Attribution
from ul2_tasks.chat.messages import (
    TEMPLATE_ROLES,
    Conversation,
    Message,
    check_fields,
    parts_of,
    role_of,
    text_of,
    weight_of,
    without_nulls,
)
from ul2_tasks.chat.segments import Segment
from ul2_tasks.chat.skeletons import (
    BODY,
    CALLS,
    MARKS,
    PROMPT,
    REASONING,
    MessageShape,
    Skeleton,
    common,
    filled,
    make_skeleton,
    stand_in,
)
from ul2_tasks.extras import needs
from ul2_tasks.scalars import is_empty
from ul2_tasks.tokenizers.batches import LONG
from ul2_tasks.tokenizers.hugging_face import HuggingFaceVocabulary
from ul2_tasks.tokenizers.tokenizer_json import InMemory, load_marked, settings_of, special_tokens_of

_WRITTEN = (CALLS, "name")  # fields that a template that has them must write
_NAMES = ("name", "tool_call_id")  # of a tool's message; few templates write them
_FIELDS = {"role", "content", "weight", CALLS, *_NAMES, *REASONING}
_FILE = "chat_template.jinja"
_SHAPES = 1024  # whose skeletons are kept
Value = TypeVar("Value")


class TemplateRenderer:
    """Renders messages with a chat template; see the top of this file.

    A message is `{"role": .., "content": ..}`, with `reasoning_content` or `thinking` if it has reasoning, `tool_calls` if it calls
    tools, and `weight` 0 to leave it out of the loss. Its content is a string, or a list of `{"type": "text", "text": ..}`,
    whichever the template accepts. `tools`, `documents` and `chat_template_kwargs` beside the messages are variables for it.

    The folder has a tokenizer.json and a chat template: `chat_template.jinja`, or `chat_template` in `tokenizer_config.json`.
    `date` is today's date for the template, "2026-01-31"; a template that writes the date raises an error without it. `eod` is the
    token that ends a conversation, by default the tokenizer's EOS. `settings` are further variables of the template, such as
    `{"enable_thinking": False}` or `{"tools": [..]}`.

    The template itself decides which reasoning of earlier turns it writes, so `keeps_history` is False. The last message ends like
    all others.
    """

    keeps_history = False
    final_stop = None

    def __init__(self, folder: str, *, date: str | None = None, eod: str | None = None, settings: Mapping[str, Any] | None = None):
        self._arguments = folder, date, eod, dict(settings or {})
        self.vocabulary = HuggingFaceVocabulary(folder)
        self.eod = self._own_id(eod)
        source = self.vocabulary.source
        template = _template(source, given := settings_of(source))
        variables = {**special_tokens_of(given), **(settings or {})}
        self._render, self._render_marked = (_compile(template, variables, date, marks) for marks in (("", ""), MARKS))
        self._marked = load_marked(source)
        self._attribution = Attribution(self._marked, self.vocabulary.vocab_size)
        self._skeleton = functools.lru_cache(_SHAPES)(self._make_skeleton)
        described = json.dumps([template, variables, date, self.eod], sort_keys=True, default=repr)
        self.identity = f"template sha256 {hashlib.sha256(described.encode()).hexdigest()}, {self.vocabulary.identity}"

    def __reduce__(self):
        folder, date, eod, settings = self._arguments
        return functools.partial(TemplateRenderer, folder, date=date, eod=eod, settings=settings), ()

    def __repr__(self) -> str:
        folder, date, eod, settings = self._arguments
        return f"TemplateRenderer({folder!r}, date={date!r}, eod={eod!r}, settings={settings!r})"

    def render(self, messages: Sequence[Message]) -> list[Segment]:
        """The segments of a conversation, in the order in which the template writes them.

        A message of the assistant is a segment of the channel "final". One with reasoning is two, "analysis" before it, unless
        the template leaves the reasoning out. Text that the template writes after the last message is a segment of
        the role "system". Raises a ValueError that names the message where a role, field or content is not supported, or the
        template leaves it out, changes it or fails.
        """
        [segments] = self.render_all([Conversation(messages)])
        if isinstance(segments, ValueError):
            raise segments
        return segments

    def render_all(self, conversations: Sequence[Conversation]) -> list[list[Segment] | ValueError]:
        """The segments of each conversation, see `render`, or the error that it raises.

        Encodes all of them in one batch, which is faster.
        """
        written = [_tried(self._write, conversation) for conversation in conversations]
        whole = [one for one in written if not isinstance(one, ValueError)]
        encoded = iter(self._attribution.encode([one.texts for one in whole]))
        return [one if isinstance(one, ValueError) else _tried(self._segments, one, next(encoded)) for one in written]

    def _write(self, conversation: Conversation) -> _Written:
        messages, settings = conversation.messages, dict(conversation.settings)
        try:
            return self._written(messages, settings, results_have_holes=True)
        except ValueError:
            if all(role_of(message) != "tool" for message in messages):
                raise
        return self._written(messages, settings, results_have_holes=False)

    def _written(self, messages: Sequence[Message], settings: Mapping[str, Any], results_have_holes: bool) -> _Written:
        shapes, texts = _read(messages, results_have_holes)
        self._check_names([settings, *(json.loads(shape.fields) for shape in shapes if shape.fields)])
        described = json.dumps(settings) if settings else ""
        skeleton = self._skeleton(shapes, described)
        render = functools.partial(self._render, settings=settings)
        if "".join(_put(skeleton, texts)) != render(filled(shapes, texts), False):
            raise ValueError(self._altered(skeleton, shapes, texts, render))
        if (length := sum(map(len, texts))) > LONG:
            raise ValueError(f"the conversation must have at most {LONG:,} characters for a chat template, got {length:,}")
        return _Written(skeleton, messages, _put(skeleton, texts, self._marked.private))

    def _make_skeleton(self, shapes: tuple[MessageShape, ...], settings: str) -> Skeleton:
        given = json.loads(settings or "{}")
        render = functools.partial(self._render_marked, settings=given)
        made = make_skeleton(shapes, render, tuple(self._marked.ids))
        messages = filled(shapes, map(stand_in, range(len(made.holes))))
        whole = render(messages, False)
        for key in given.keys() & {"tools", "documents"}:
            if whole == self._render_marked(messages, False, {**given, key: None}):
                raise ValueError(f"the chat template must write {key}, which the conversation has, got the same text without")
        for number, message in enumerate(messages):
            for key in message.keys() & ({CALLS} if role_of(message) == "tool" else {*_WRITTEN}):
                others = {name: value for name, value in message.items() if name != key}
                if _tried(render, [*messages[:number], others, *messages[number + 1 :]], False) == whole:
                    raise ValueError(
                        f"message {number + 1} of {len(messages)}: the chat template must write {key}, got the same text without"
                    )
        return made

    def _check_names(self, fields: object) -> None:
        """Raises a ValueError where what is written as the template likes spells a special token, which it would become."""
        described = json.dumps(fields, ensure_ascii=False)
        if spelled := [name for name in self._marked.private if name in described]:
            raise ValueError(f"tool_calls, results and tools must not spell special tokens for this template, got {spelled}")

    def _segments(self, written: _Written, encoded: Any) -> list[Segment]:
        skeleton, messages, texts = written
        ids, of_tokens, regions = self._attribution.attribute(skeleton.pieces, texts, encoded)
        borders = np.searchsorted(of_tokens, range(len(skeleton.owners) + 1))
        segments = []
        for owner, (begin, end) in zip(skeleton.owners, itertools.pairwise(borders.tolist())):
            own = regions[begin:end]
            role = role_of(messages[owner.message]) if owner else "system"
            prompt = int(np.sum(own == PROMPT)) if role == "assistant" else len(own)
            weight = weight_of(messages[owner.message]) if owner else 1
            channel = owner.channel if owner else None
            is_call = channel == "commentary"
            segments.append(Segment(role, channel, is_call, weight, ids[begin:end], prompt, int(np.sum(own < BODY))))
        return segments

    def _own_id(self, eod: str | None) -> int:
        id = self.vocabulary.eos_id if eod is None else self.vocabulary.piece_id(eod)
        if id is None:
            raise ValueError(f"eod must be a token of {self.vocabulary!r}, got {eod!r}. Pass a token that it has.")
        return id

    def _altered(self, skeleton: Skeleton, shapes: Sequence[MessageShape], texts: Sequence[str], render: Callable[..., str]) -> str:
        """The error of a template that changes a message: the first whose texts it changes, with stand-ins in all others."""
        for number in range(len(shapes)):
            mixed = [text if hole.message == number else stand_in(h) for h, (hole, text) in enumerate(zip(skeleton.holes, texts))]
            expected, written = "".join(_put(skeleton, mixed)), render(filled(shapes, mixed), False)
            if expected != written:
                own = [text for hole, text in zip(skeleton.holes, texts) if hole.message == number]
                how = _how(expected, written, own)
                return f"message {number + 1} of {len(shapes)}: {how}"
        return "the chat template must write all messages unchanged, got a change in their combination"


class _Written(NamedTuple):
    """A conversation as its template writes it: the texts of the skeleton's pieces, with private names for special tokens."""

    skeleton: Skeleton
    messages: Sequence[Message]
    texts: list[str]


def _tried(function: Callable[..., Value], *arguments: Any) -> Value | ValueError:
    """What a function returns, or the ValueError that it raises."""
    try:
        return function(*arguments)
    except ValueError as error:
        return error


def _read(messages: Sequence[Message], results_have_holes: bool = True) -> tuple[tuple[MessageShape, ...], list[str]]:
    """The shape of each message, and all texts in the order of the holes; results of tools have some, or are part of the shape."""
    shapes, texts = [], []
    for number, message in enumerate(messages):
        try:
            shape, own = _read_message(message, results_have_holes)
        except ValueError as error:
            raise ValueError(f"message {number + 1} of {len(messages)}: {error}") from error
        shapes.append(shape)
        texts += own
    return tuple(shapes), texts


def _read_message(message: Message, results_have_holes: bool) -> tuple[MessageShape, list[str]]:
    check_fields(message, _FIELDS, TEMPLATE_ROLES)
    role = role_of(message)
    weight_of(message)
    given = [message[key] for key in REASONING if message.get(key) is not None]
    reasoning = [text_of(text, "reasoning") for text in given]
    if reasoning and message["role"] != "assistant":
        raise ValueError(f"role must be 'assistant' for a message with reasoning, got {message['role']!r}")
    if len({*reasoning}) > 1:
        raise ValueError(f"{' and '.join(REASONING)} must be equal, got different strings. Leave one out")
    fields = {key: without_nulls(message[key]) for key in (CALLS, *_NAMES) if not is_empty(message.get(key))}
    if CALLS in fields and message["role"] != "assistant":
        raise ValueError(f"role must be 'assistant' for a message with {CALLS}, got {message['role']!r}")
    if is_empty(message.get("content")) and CALLS in fields:
        fields["content"] = message.get("content")
    parts = [] if "content" in fields else parts_of(message)
    contents = [part for part in parts if isinstance(part, str)]
    if len(contents) < len(parts):
        raise ValueError("parts of the content must be text for a chat template, got others")
    is_list = isinstance(message.get("content"), list)
    if role == "tool" and not results_have_holes:
        fields["content"], contents = message["content"], []
    described = json.dumps(fields) if fields else ""
    length = 0 if "content" in fields else len(parts) if is_list else None
    shape = MessageShape(message["role"], length, bool(reasoning[0]) if reasoning else None, described)
    return shape, [*filter(None, reasoning[:1]), *contents]


def _put(skeleton: Skeleton, texts: Sequence[str], names: Mapping[str, str] | None = None) -> list[str]:
    """The pieces of a skeleton with the texts in them, and with other names for the special tokens."""
    return [
        texts[piece.hole] if piece.hole is not None else names[piece.text] if names and piece.is_marker else piece.text
        for piece in skeleton.pieces
    ]


def _how(expected: str, written: str, texts: Sequence[str]) -> str:
    """The error of a template that changes texts."""
    if any(text != text.strip() for text in texts):
        return "content and reasoning must not begin or end with white space for this chat template, got some. Strip them"
    place = common(expected, written)
    show = slice(max(place - 20, 0), place + 20)
    return f"the chat template must write {expected[show]!r} unchanged, got {written[show]!r}"


def _compile(template: str, variables: Mapping[str, Any], date: str | None, marks: tuple[str, str]) -> Callable[..., str]:
    with needs("a chat template", "huggingface"):
        from ul2_tasks.chat.template_engine import compile_template
    try:
        day = None if date is None else datetime.date.fromisoformat(date)
    except ValueError as error:
        raise ValueError(f"date must be a day, got {date!r}. Write it as 2026-01-31.") from error
    return compile_template(template, variables, day, marks)


def _template(source: InMemory, settings: Mapping[str, Any]) -> str:
    """The chat template: that of its own file, if there is one; of several the default one."""
    content = dict(source.beside).get(_FILE)
    template = settings.get("chat_template") if content is None else content.decode()
    if isinstance(template, list):
        named = [each for each in template if isinstance(each, Mapping) and each.get("name") == "default"]
        template = named[-1].get("template") if named else None
    if not isinstance(template, str):
        raise ValueError(f"{source} must have a chat template, got none. Add {_FILE}, or chat_template in tokenizer_config.json.")
    return template
