"""`open_renderer`: a renderer of conversations, by a short specification."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Protocol

from ul2_tasks.chat.harmony import MARKERS, HarmonyRenderer
from ul2_tasks.chat.messages import Conversation, Message
from ul2_tasks.chat.segments import Segment
from ul2_tasks.chat.templates import TemplateRenderer
from ul2_tasks.tokenizers.base import Vocabulary
from ul2_tasks.tokenizers.by_name import open_vocabulary
from ul2_tasks.tokenizers.o200k import FILE, O200kVocabulary
from ul2_tasks.tokenizers.pieces import PRESET_MODES


class Renderer(Protocol):
    """The interface of a renderer; see `HarmonyRenderer` for the attributes."""

    @property
    def vocabulary(self) -> Vocabulary: ...

    @property
    def eod(self) -> int: ...

    @property
    def keeps_history(self) -> bool: ...

    @property
    def final_stop(self) -> int | None: ...

    @property
    def identity(self) -> str: ...

    def render(self, messages: Sequence[Message]) -> list[Segment]: ...


def open_renderer(spec: Renderer | str | os.PathLike[str]) -> Renderer:
    """Opens a renderer, which turns conversations into tokens.

    Args:
        spec: one of
            "harmony": OpenAI's Harmony format with the tokens of o200k_harmony, from the file that the environment names;
            "harmony:PATH": the same, where PATH is `o200k_base.tiktoken` or a folder that has it; otherwise the Harmony format
                with any vocabulary that `open_vocabulary` accepts, such as "harmony:default". Its special tokens come after the
                vocabulary's last id, after its sentinels and modes;
            "template:FOLDER": the chat template of a Hugging Face tokenizer, see `TemplateRenderer`; with the date of a template
                that writes today's date, as "template:FOLDER,date=2026-01-31";
            an object with the attributes and the method of `Renderer`.

    Returns:
        The renderer, with its `vocabulary`.

    Raises:
        ValueError: `spec` is none of these, or there is no such vocabulary.

    >>> open_renderer("harmony:default").vocabulary.vocab_size
    4103
    """
    if not isinstance(spec, str | os.PathLike):
        if missing := [
            name for name in ("vocabulary", "eod", "identity", "keeps_history", "final_stop", "render") if not hasattr(spec, name)
        ]:
            raise ValueError(
                "renderer must be 'harmony', 'harmony:PATH', 'template:FOLDER' or a renderer, got"
                f" {spec!r:.100} without {missing}. Pass one of these."
            )
        return spec
    kind, _, path = os.fspath(spec).partition(":")
    if kind == "template" and path:
        folder, _, date = path.partition(",date=")
        return TemplateRenderer(folder, date=date or None)
    if kind != "harmony":
        raise ValueError(
            f"renderer must be 'harmony', 'harmony:PATH', 'template:FOLDER' or a renderer, got {spec!r}. Pass one of these."
        )
    if not path or path.endswith(".tiktoken") or os.path.exists(os.path.join(path, FILE)):
        return HarmonyRenderer(O200kVocabulary(path or None))
    return HarmonyRenderer(open_vocabulary(path, modes=(*PRESET_MODES, *MARKERS)))


def render_all(renderer: Renderer, conversations: Sequence[Conversation]) -> list[list[Segment] | ValueError]:
    """The segments of each conversation, or the error that it raises; batched, where a renderer can."""
    if isinstance(renderer, TemplateRenderer):
        return renderer.render_all(conversations)
    rendered: list[list[Segment] | ValueError] = []
    for messages, settings, _ in conversations:
        try:
            if settings:
                raise ValueError(
                    f"the conversation must not have {sorted(settings)} beside its messages for this renderer, which would lose"
                    " them. Write them into a system or developer message, or render with a chat template"
                )
            rendered.append(renderer.render(messages))
        except ValueError as error:
            rendered.append(error)
    return rendered
