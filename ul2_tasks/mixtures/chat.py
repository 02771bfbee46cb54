"""`Chat`: conversations and what is learned of them, as they are described."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ul2_tasks.chat.by_name import Renderer, open_renderer
from ul2_tasks.chat.examples import Stops
from ul2_tasks.chat.objective import CHAT, FORMS, Objective
from ul2_tasks.chat.supervision import Supervision
from ul2_tasks.corpus.configuration import CorpusConfiguration
from ul2_tasks.corpus.conversations import ChatCorpus, DescribedConversations
from ul2_tasks.mixtures.description import Description, folders
from ul2_tasks.scalars import check_on_error
from ul2_tasks.sources.base import is_source
from ul2_tasks.sources.by_name import open_source
from ul2_tasks.sources.file_source import Files
from ul2_tasks.sources.files import MESSAGES_JSON, SYNTH_ID
from ul2_tasks.sources.memory import embedded_chat
from ul2_tasks.vocabulary.special_ids import Mode, id_shift, piece_id, special_tokens

if TYPE_CHECKING:
    import seqio


@dataclasses.dataclass(frozen=True, init=False, eq=False)
class Chat(Description):
    """Conversations and what is learned of them, which need not be registered anywhere. Opens no file of records.

        chat = ul2_tasks.Chat(source="talks/*.jsonl")
        chat.cache("CACHE")
        examples = ul2_tasks.examples(chat, {"tokens": 4096}, cache_dirs=["CACHE"])

    The arguments are those of `register_chat`, which takes them to SeqIO's registries; a description of the same arguments and the
    same name has the same examples there. Neither SeqIO nor TensorFlow is imported, unless the source or the vocabulary is one of
    theirs.

    Args:
        name: what the corpus and the tasks are called, NAME_corpus, NAME_chat and NAME_reply.
        source, renderer, messages_key, id_key, validation, on_error, spans, supervise, turns, too_long, mode: see `register_chat`.

    Raises:
        ValueError: an argument is none of its kind.

    >>> import ul2_tasks
    >>> ul2_tasks.Chat() == ul2_tasks.Chat(spans="harmony_tools")
    True
    """

    name: str
    source: seqio.DataSource
    renderer: Renderer
    messages_key: str
    on_error: str
    spans: Mapping[str, int]
    supervise: str
    turns: str | None
    too_long: str
    mode: tuple[int, ...]

    def __init__(
        self,
        name: str = "chat",
        source: seqio.DataSource | Files | Mapping[str, Files] = "embedded",
        renderer: Renderer | str = "harmony:default",
        *,
        messages_key: str = "messages",
        id_key: str | None = None,
        validation: float | None = None,
        on_error: str = "raise",
        spans: Mapping[str, int] | str = "harmony_tools",
        supervise: str = "whole",
        turns: str | None = None,
        too_long: str = "raise",
        mode: Mode | None = None,
    ):
        opened, found = open_conversations(source, messages_key, id_key, validation), open_renderer(renderer)
        check_on_error(on_error)
        self._set(
            name=name,
            source=opened,
            renderer=found,
            messages_key=getattr(opened, "text_key", "text"),
            on_error=on_error,
            spans=Supervision(spans, supervise, turns or "all", too_long).spans,
            supervise=supervise,
            turns=turns,
            too_long=too_long,
            mode=() if mode is None or (isinstance(mode, tuple) and not mode) else _mode_ids(found.vocabulary, mode),
        )
        if not found.keeps_history and turns == "each":
            raise ValueError(
                "turns is 'each', but this renderer leaves out of a history what its template leaves out, so that the history of an"
                " earlier turn cannot be told; give turns='last', or a conversation for each turn"
            )

    def corpus(self, cache_dirs: Sequence[str | os.PathLike] = ()) -> ChatCorpus:
        """The conversations, whose cache may be in one of these folders."""
        configuration = CorpusConfiguration(self.messages_key, self.on_error)
        supervision = objective_of(self, CHAT).supervision
        return DescribedConversations(
            f"{self.name}_corpus", self.source, configuration, self.renderer, supervision, folders(cache_dirs)
        )


def objective_of(chat: Chat, form: str) -> Objective:
    """Which examples are made of conversations, of one of the forms."""
    if form not in FORMS:
        raise ValueError(f"form is {form!r}, expected one of {list(FORMS)}")
    turns = "all" if form == CHAT else "each" if chat.renderer.keeps_history else "last"
    return Objective(
        form,
        Supervision(chat.spans, chat.supervise, chat.turns or turns, chat.too_long),
        Stops(chat.renderer.final_stop, chat.renderer.keeps_history),
        () if form == CHAT else chat.mode,
    )


def open_conversations(
    spec: seqio.DataSource | Files | Mapping[str, Files],
    messages_key: str = "messages",
    id_key: str | None = None,
    validation: float | None = None,
    **options: Any,
) -> seqio.DataSource:
    """The source of conversations; see `register_chat`, and for `options` `open_source`."""
    if isinstance(spec, str) and spec == "embedded":
        spec = embedded_chat()
    text_key = messages_key
    if is_source(spec):
        text_key = getattr(spec, "text_key", "text")
        if messages_key not in ("messages", text_key):
            raise ValueError(f"messages_key is {messages_key!r}, but {spec!r} gives conversations as {text_key!r}; leave it out")
    elif messages_key == MESSAGES_JSON and validation is not None:
        id_key = id_key or SYNTH_ID
    return open_source(spec, text_key=text_key, id_key=id_key, validation=validation, as_json=True, **options)


def _mode_ids(vocabulary: seqio.Vocabulary, mode: Mode) -> tuple[int, ...]:
    """The tokenizer's own ids."""
    if isinstance(mode, str) and piece_id(vocabulary, mode) is None:
        raise ValueError(
            f"mode is {mode!r}, which is no piece of {vocabulary}; give register_chat a piece that the renderer's vocabulary has,"
            " an id, or ids"
        )
    found = special_tokens(vocabulary, "the mode", modes={"the mode": [mode] if isinstance(mode, str) else mode})
    return tuple(id - id_shift(vocabulary) for id in found.mode)
