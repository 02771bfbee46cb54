"""`HarmonyRenderer`: conversations in OpenAI's Harmony format, with the tokens of o200k_harmony or of any other vocabulary.

    <|start|>ROLE[:NAME][ to=RECIPIENT][<|channel|>CHANNEL][ CONTENT_TYPE]<|message|>CONTENT<|end|>

* The role of a tool's message is the tool's name.
* An assistant's message with a recipient ends with `<|call|>`. A last message of the assistant on the channel `final` ends with
  `<|return|>`.
* Each part of a header, and each part of a content, is tokenized apart, as text: no text becomes a special token.
* Reasoning of earlier turns is kept (`auto_drop_analysis=False`).

The ids are those of `openai_harmony`'s `render_conversation_for_training` with that setting. That library itself renders only
contents of the types `system_content` and `developer_content`: its tokenizer takes seconds for 100,000 letters without a space.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ul2_tasks.chat.messages import Message, check_fields, check_nothing_lost, parts_of, text_of, weight_of
from ul2_tasks.chat.segments import CHANNELS, Segment
from ul2_tasks.extras import needs
from ul2_tasks.tokenizers.base import Vocabulary
from ul2_tasks.tokenizers.batches import encode_batch
from ul2_tasks.tokenizers.o200k import FILE, O200kVocabulary, found_as
from ul2_tasks.tokenizers.special_ids import as_vocabulary, vocabulary_identity

START, CHANNEL, MESSAGE, CONSTRAIN, END, CALL, RETURN = MARKERS = tuple(
    f"<|{name}|>" for name in ("start", "channel", "message", "constrain", "end", "call", "return")
)
_FIELDS = {"role", "name", "recipient", "channel", "content_type", "content", "weight"}
_TYPED = ("system_content", "developer_content")
_ROLES_OF_TYPES = dict(zip(_TYPED, ("system", "developer")))


class HarmonyRenderer:
    """Renders messages in OpenAI's Harmony format; see the top of this file.

    The vocabulary needs a token for each of `MARKERS`, and an EOS, which ends a conversation.

    Attributes:
        eod: the tokenizer's own id that ends a conversation.
        keeps_history: whether reasoning of earlier turns is rendered, so that a turn as at inference leaves it out.
        final_stop: the tokenizer's own id that ends a last final message, which ends with `<|end|>` in a history.

    >>> from ul2_tasks import open_vocabulary
    >>> renderer = HarmonyRenderer(open_vocabulary("bytes", modes=MARKERS))
    >>> [question] = renderer.render([{"role": "user", "content": "Hi"}])
    >>> renderer.vocabulary.decode(question.ids[question.header :]), question.prompt == len(question.ids)
    ('Hi', True)
    """

    keeps_history = True

    def __init__(self, vocabulary: Vocabulary):
        self.vocabulary = vocabulary = as_vocabulary(vocabulary)
        ids = {name: vocabulary.piece_id(name) for name in MARKERS}
        if missing := [name for name, id in ids.items() if id is None]:
            raise ValueError(
                f"vocabulary must have Harmony's special tokens, got {vocabulary!r} without {missing}. Pass"
                " ul2_tasks.open_renderer('harmony:PATH'), which adds them."
            )
        if vocabulary.eos_id is None:
            raise ValueError(
                f"vocabulary must have an EOS, which ends a conversation, got {vocabulary!r}. See"
                " docs/help/troubleshooting.md#a-tokenizer-has-no-eos."
            )
        self._own = {name: id for name, id in ids.items() if id is not None}
        self._text = vocabulary.never_encoding(self._own.values())
        self.eod = vocabulary.eos_id
        self.final_stop = self._own[RETURN]
        self._stops = {name: np.array([self._own[name]], np.int32) for name in (END, CALL, RETURN)}
        self._header = functools.lru_cache(4096)(self._render_header)
        self._encode_content = vocabulary.encoder() if isinstance(vocabulary, O200kVocabulary) else self._encode

    def __reduce__(self) -> tuple:
        """For another process, without caches."""
        return type(self), (self.vocabulary,)

    @property
    def identity(self) -> str:
        """Equal for renderers of equal results."""
        return f"harmony, {vocabulary_identity(self.vocabulary)}"

    def render(self, messages: Sequence[Message]) -> list[Segment]:
        """The segments of a conversation, one for each message.

        Raises a ValueError where a role, channel, field or content is not supported, or a header has a special token.
        """
        segments: list[Segment] = []
        has_functions = any(map(_has_functions, messages))
        for number, message in enumerate(messages):
            try:
                follows = bool(segments) and segments[-1].role == "assistant"
                segments.append(self._segment(message, follows, is_last=number == len(messages) - 1, has_functions=has_functions))
            except ValueError as error:
                raise ValueError(f"message {number + 1} of {len(messages)}: {error}") from error
        return segments

    def _segment(self, message: Message, follows: bool, is_last: bool, has_functions: bool) -> Segment:
        check_fields(message, _FIELDS)
        role, channel, recipient = message["role"], _field(message, "channel"), _field(message, "recipient")
        header, start = self._header(role, channel, recipient, _field(message, "name"), _field(message, "content_type"))
        is_assistant = role == "assistant"
        stop = RETURN if is_assistant and is_last and channel == "final" else CALL if is_assistant and recipient else END
        contents = (
            self._encode_content(part) if isinstance(part, str) else self._typed(part, role, has_functions)
            for part in parts_of(message)
        )
        ids = np.concatenate([header, *contents, self._stops[stop]])
        prompt = len(ids) if not is_assistant else 0 if follows else start
        return Segment(role, channel, recipient not in (None, "all"), weight_of(message), ids, prompt, len(header))

    def _render_header(
        self, role: str, channel: str | None, recipient: str | None, name: str | None, content_type: str | None
    ) -> tuple[np.ndarray, int]:
        """The ids before the content, and how many of them are in the prompt of inference: `<|start|>ROLE`."""
        if channel not in CHANNELS:
            raise ValueError(f"channel must be one of {list(CHANNELS)}, got {channel!r}")
        for field, value in {"name": name, "recipient": recipient, "content_type": content_type}.items():
            _check_header(field, value)
        if role == "tool" and not name:
            raise ValueError("name must be that of the tool for the role 'tool', got none")
        ids = [self._own[START], *self._encode(name if role == "tool" and name else role)]
        start = len(ids)
        if name and role != "tool":
            ids.extend(self._encode(f":{name}"))
        if recipient and recipient != "all":
            ids.extend(self._encode(f" to={recipient}"))
        if channel:
            ids.extend([self._own[CHANNEL], *self._encode(channel)])
        if content_type and content_type.startswith(CONSTRAIN):
            rest = content_type.removeprefix(CONSTRAIN)
            ids.extend([*self._encode(" "), self._own[CONSTRAIN], *(self._encode(rest) if rest else ())])
        elif content_type:
            ids.extend(self._encode(f" {content_type}"))
        return np.array([*ids, self._own[MESSAGE]], np.int32), start

    def _encode(self, text: str) -> np.ndarray:
        return encode_batch(self._text, [text.encode()])[0]

    def _typed(self, part: Message, role: str, has_functions: bool) -> np.ndarray:
        """A content that `openai_harmony` itself renders: the channels, the effort and the tools of a model."""
        kind = part.get("type")
        if _ROLES_OF_TYPES.get(str(kind)) != role or not isinstance(self.vocabulary, O200kVocabulary):
            raise ValueError(
                "parts of the content must be text, or with o200k_harmony 'system_content' in a system message and"
                f" 'developer_content' in a developer message, got the type {kind!r}"
            )
        render = _harmony(self.vocabulary.path)  # a file that is gone is no fault of the record
        try:
            ids = render(json.dumps({"role": role, "content": [part]}), has_functions)
        except (RuntimeError, ValueError) as error:  # openai_harmony's own, and pydantic's
            reason = " ".join(str(error).split())
            raise ValueError(f"{kind!r} must be what openai_harmony renders, got an error: {reason}") from error
        return np.array(ids[ids.index(self._own[MESSAGE]) + 1 : -1], np.int32)


def _has_functions(message: Message) -> bool:
    """Whether a developer message defines functions, which the system message then mentions, too."""
    parts = message.get("content")
    return isinstance(parts, list) and any(
        isinstance(part, Mapping) and part.get("type") == "developer_content" and part.get("tools") for part in parts
    )


def _field(message: Message, field: str) -> str | None:
    """A field of the header; None where it is missing or empty."""
    value = message.get(field)
    return text_of(value, field) if value else None


def _check_header(field: str, text: str | None) -> None:
    """Raises a ValueError where a field of a header spells a special token."""
    text = text or ""
    if "<|" in (text.removeprefix(CONSTRAIN) if field == "content_type" else text):
        raise ValueError(f"{field} must not spell a special token, got {text!r}")


@functools.lru_cache(maxsize=1)
def _harmony(path: str) -> Callable[[str, bool], list[int]]:
    """A function that renders a message, as JSON, with `openai_harmony`, given whether the conversation has functions."""
    with needs("this message", "chat"):
        import openai_harmony
    with found_as(path, FILE, "TIKTOKEN_ENCODINGS_BASE"):
        encoding = openai_harmony.load_harmony_encoding(openai_harmony.HarmonyEncodingName.HARMONY_GPT_OSS)

    def render(message: str, has_functions: bool) -> list[int]:
        [parsed] = openai_harmony.Conversation.from_json(f'{{"messages": [{message}]}}').messages
        for given, known in zip(json.loads(message)["content"], parsed.content):
            check_nothing_lost(given, {"type": given["type"], **known.model_dump()})
        return encoding.render(parsed, openai_harmony.RenderOptions(conversation_has_function_tools=has_functions))

    return render
