"""`Chat`: a description of conversations, and of which tokens are trained on."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ul2_tasks.chat.by_name import Renderer, open_renderer
from ul2_tasks.chat.examples import Stops
from ul2_tasks.chat.index import index_conversations
from ul2_tasks.chat.objective import CHAT, FORMATS, PROMPT_COMPLETION, Objective
from ul2_tasks.chat.supervision import Supervision
from ul2_tasks.corpus.configuration import CorpusConfiguration
from ul2_tasks.corpus.conversations import Chats
from ul2_tasks.corpus.corpus import Corpus
from ul2_tasks.mixtures.description import Description, check_blocks, corpus_in, folders
from ul2_tasks.order.order import BlockShuffle
from ul2_tasks.random_access.kinds import described_blocks
from ul2_tasks.random_access.records import RecordMember
from ul2_tasks.scalars import check_on_error
from ul2_tasks.sources.base import is_source
from ul2_tasks.sources.by_name import open_source
from ul2_tasks.sources.file_source import Files
from ul2_tasks.sources.files import MESSAGES_JSON, SYNTH_ID
from ul2_tasks.sources.memory import embedded_chat
from ul2_tasks.tokenizers.special_ids import Mode, id_shift, piece_id, special_tokens

if TYPE_CHECKING:
    import seqio

    from ul2_tasks.sources.dataset_objects import Datasets


@dataclasses.dataclass(frozen=True, init=False, eq=False)
class Chat(Description):
    """A description of conversations, and of which tokens are trained on, without SeqIO's registries. Opens no file of records.

        chat = ul2_tasks.Chat(source="talks/*.jsonl")
        chat.cache("CACHE")
        examples = ul2_tasks.examples(chat, {"tokens": 4096}, cache_dirs=["CACHE"])

    The arguments are those of `register_chat`. The same name and arguments give the same examples in both. Neither SeqIO nor
    TensorFlow is imported, unless the source or the vocabulary is one of theirs.

    Args:
        name: the beginning of the names NAME_corpus, NAME_chat and NAME_prompt_completion.
        source, renderer, messages_key, id_key, validation, on_error, loss_groups, train_on, turns, truncation, mode,
            block_shuffle: see `register_chat`.

    Raises:
        ValueError: an argument has a value that is not supported.

    >>> import ul2_tasks
    >>> ul2_tasks.Chat() == ul2_tasks.Chat(loss_groups="harmony_tools")
    True
    """

    name: str
    source: seqio.DataSource
    renderer: Renderer
    messages_key: str
    on_error: str
    loss_groups: Mapping[str, int]
    train_on: str
    turns: str | None
    truncation: str
    mode: tuple[int, ...]
    block_shuffle: BlockShuffle | None

    def __init__(
        self,
        name: str = "chat",
        source: seqio.DataSource | Files | Mapping[str, Files] | Datasets = "embedded",
        renderer: Renderer | str = "harmony:default",
        *,
        messages_key: str = "messages",
        id_key: str | None = None,
        validation: float | None = None,
        on_error: str = "raise",
        loss_groups: Mapping[str, int] | str = "harmony_tools",
        train_on: str = "all",
        turns: str | None = None,
        truncation: str = "raise",
        mode: Mode | None = None,
        block_shuffle: BlockShuffle | None = None,
    ):
        opened, found = open_conversations(source, messages_key, id_key, validation), open_renderer(renderer)
        check_on_error(on_error)
        self._set(
            name=name,
            source=opened,
            renderer=found,
            messages_key=getattr(opened, "text_key", "text"),
            on_error=on_error,
            loss_groups=Supervision(loss_groups, train_on, turns or "all", truncation).loss_groups,
            train_on=train_on,
            turns=turns,
            truncation=truncation,
            block_shuffle=block_shuffle,
            mode=() if mode is None or (isinstance(mode, tuple) and not mode) else _mode_ids(found.vocabulary, mode),
        )
        check_blocks(block_shuffle)
        if not found.keeps_history and turns == "each":
            raise ValueError(
                "turns must be 'all' or 'last' for a chat template, got 'each': only the template knows the history of a turn."
                " Pass turns='last', and a conversation for each turn."
            )

    def corpus(self, cache_dirs: Sequence[str | os.PathLike] = ()) -> Corpus:
        """The conversations, whose cache may be in one of these folders."""
        configuration = CorpusConfiguration(self.messages_key, self.on_error)
        encoder = Chats(self.renderer, objective_of(self, CHAT).supervision)
        vocabulary = self.renderer.vocabulary
        return Corpus(f"{self.name}_corpus", self.source, vocabulary, configuration, encoder, folders(cache_dirs))

    @property
    def vocabulary(self) -> seqio.Vocabulary:
        """That of the renderer."""
        return self.renderer.vocabulary

    @property
    def rates(self) -> dict[str, float]:
        return {f"{self.name}_{PROMPT_COMPLETION}": 1.0}

    def members(self, sequence_length: Mapping[str, int], cache_dirs: Sequence[str | os.PathLike] = ()) -> list[RecordMember]:
        objective, name = objective_of(self, format_of(sequence_length)), self.registered_name(sequence_length)
        return [chat_member(name, corpus_in(self, cache_dirs), objective, sequence_length, blocks=self.block_shuffle)]

    def registered_name(self, sequence_length: Mapping[str, int]) -> str:
        return f"{self.name}_{format_of(sequence_length)}"


def format_of(sequence_length: Mapping[str, int]) -> str:
    """Which examples conversations make in these lengths."""
    return CHAT if "tokens" in sequence_length else PROMPT_COMPLETION


def objective_of(chat: Chat, format: str) -> Objective:
    """Which examples conversations make in a format."""
    if format not in FORMATS:
        raise ValueError(f"format must be one of {list(FORMATS)}, got {format!r}.")
    turns = "all" if format == CHAT else "each" if chat.renderer.keeps_history else "last"
    return Objective(
        format,
        Supervision(chat.loss_groups, chat.train_on, chat.turns or turns, chat.truncation),
        Stops(chat.renderer.final_stop, chat.renderer.keeps_history),
        () if format == CHAT else chat.mode,
    )


def open_conversations(
    spec: seqio.DataSource | Files | Mapping[str, Files] | Datasets,
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
            raise ValueError(f"messages_key must be {text_key!r} for {spec!r}, got {messages_key!r}. Leave it out.")
    elif messages_key == MESSAGES_JSON and validation is not None:
        id_key = id_key or SYNTH_ID
    return open_source(spec, text_key=text_key, id_key=id_key, validation=validation, as_json=True, **options)


def _mode_ids(vocabulary: seqio.Vocabulary, mode: Mode) -> tuple[int, ...]:
    """The tokenizer's own ids."""
    if isinstance(mode, str) and piece_id(vocabulary, mode) is None:
        raise ValueError(
            f"mode must be a token of {vocabulary}, an id or ids, got {mode!r}. Pass a token that it has, such as '[S]'."
        )
    found = special_tokens(vocabulary, "the mode", modes={"the mode": [mode] if isinstance(mode, str) else mode})
    return tuple(id - id_shift(vocabulary) for id in found.mode)


def chat_member(
    name: str,
    corpus: Corpus,
    objective: Objective,
    sequence_length: Mapping[str, int | None] | None,
    *,
    blocks: BlockShuffle | None,
    rate: float = 1.0,
) -> RecordMember:
    """The task of conversations as `random_access` takes it."""
    index_of = functools.partial(index_conversations, objective=objective, lengths=objective.lengths(sequence_length, name))
    told = {
        "format": objective.format,
        "supervision": dataclasses.asdict(objective.supervision),
        "mode": list(objective.mode),
        "renderer": corpus.encoder.renderer.identity,
        **described_blocks(blocks),
    }
    return RecordMember(name, corpus, rate, objective.features, corpus.vocabulary, index_of, told, block_shuffle=blocks)
