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
from ul2_tasks.mixtures.description import Description, check_blocks, folders
from ul2_tasks.order.order import BlockShuffle
from ul2_tasks.random_access.kinds import Task, described_blocks
from ul2_tasks.random_access.records import records_of
from ul2_tasks.scalars import check_on_error
from ul2_tasks.sources.base import DataSource, as_source
from ul2_tasks.sources.by_name import open_source
from ul2_tasks.sources.file_source import Files
from ul2_tasks.sources.files import MESSAGES_JSON, SYNTH_ID
from ul2_tasks.sources.memory import embedded_chat
from ul2_tasks.tokenizers.base import Vocabulary
from ul2_tasks.tokenizers.special_ids import Mode, special_tokens

if TYPE_CHECKING:
    from ul2_tasks.sources.dataset_objects import Datasets


@dataclasses.dataclass(frozen=True, eq=False)
class Chat(Description):
    """Conversations, and which of their tokens are trained on. Opens no file of records.

        chat = ul2_tasks.Chat(source="talks/*.jsonl")
        chat.cache("CACHE")
        examples = ul2_tasks.examples(chat, {"tokens": 4096}, cache_dirs=["CACHE"])

    Lengths of tokens make chats, for decoder-only models, and lengths of inputs and targets prompt-completion pairs, for
    encoder-decoder models. Each token has a `loss_mask`, whether it counts in the loss, and a `span_id`, its loss group. The cache
    has the rendered conversations, and all arguments from `loss_groups` on can change without a new cache.

    Args:
        name: the beginning of the names NAME_corpus, NAME_chat and NAME_prompt_completion.
        source: where conversations come from, see `open_source`; "embedded" is a small built-in corpus. A `seqio.DataSource` must
            give each conversation as a string of JSON.
        renderer: turns messages into tokens, see `open_renderer`.
        messages_key: the field or column with the messages: a list of them, or JSON of a list or of an object with `messages`.
        id_key: the field or column with a conversation's id: of that name, or in the JSON of the field `metadata_json`; where both
            have it, they must be equal. By default "synth_id" beside "messages_json", and else the JSON of the messages is the id.
            The source that is opened has it, and it is None then.
        validation: see `open_source`. The source that is opened has it, and it is None then.
        on_error: what to do with a conversation that cannot be rendered: "raise" an error, or "skip" and count it.
        loss_groups: the loss group of each kind of the assistant's messages, such as {"assistant/final": 2}: 1 to 255 where it is
            trained on, 0 where it is context. A message of a kind that is missing is an error. Or the name of a preset: "harmony",
            "harmony_tools", "plain".
        train_on: which tokens of a message count in the loss: "all", with its header; "generated", those that the model generates
            at inference; or "content", its content and the token that ends it.
        turns: "all", a conversation is one example; "last", only its last turn is trained on; or "each", every turn is an example.
            In "last" and "each" the history before the turn is as at inference. By default "all" in chats, and "each" in
            prompt-completion pairs, or "last" with a chat template.
        truncation: what to do with an example that is longer than the lengths: "raise" an error; "drop" it, and count it; or
            "drop_oldest_turns", as whole turns.
        mode: the mode token before the inputs of prompt-completion pairs: a token, such as "[S]", an id, or ids.
        block_shuffle: shuffles the examples in two levels, so that a host reads whole blocks of the cache; it
            is described at `Mixture`.

    Raises:
        ValueError: an argument has a value that is not supported.

    >>> import ul2_tasks
    >>> ul2_tasks.Chat() == ul2_tasks.Chat(loss_groups="harmony_tools")
    True
    """

    # What is given may be of other types, which the arguments' descriptions say; it is of these once it is made.
    name: str = "chat"
    source: DataSource | Any = "embedded"
    renderer: Renderer | Any = "harmony:default"
    _: dataclasses.KW_ONLY
    messages_key: str = "messages"
    id_key: str | None = None
    validation: float | None = None
    on_error: str = "raise"
    loss_groups: Mapping[str, int] | Any = "harmony_tools"
    train_on: str = "all"
    turns: str | None = None
    truncation: str = "raise"
    mode: tuple[int, ...] | Any = None
    block_shuffle: BlockShuffle | None = None

    def __post_init__(self):
        source = open_conversations(self.source, self.messages_key, self.id_key, self.validation)
        renderer, mode = open_renderer(self.renderer), self.mode
        check_on_error(self.on_error)
        supervision = Supervision(self.loss_groups, self.train_on, self.turns or "all", self.truncation)
        is_none = mode is None or (isinstance(mode, tuple) and not mode)
        self._set(
            source=source,
            renderer=renderer,
            messages_key=getattr(source, "text_key", "text"),
            id_key=None,
            validation=None,
            loss_groups=supervision.loss_groups,
            mode=() if is_none else _mode_ids(renderer.vocabulary, mode),
        )
        check_blocks(self.block_shuffle)
        if not renderer.keeps_history and self.turns == "each":
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
    def vocabulary(self) -> Vocabulary:
        """That of the renderer."""
        return self.renderer.vocabulary

    @property
    def trains_on_all_targets(self) -> bool:
        """Whether all targets of pairs are trained on, but for messages of weight 0."""
        return self.train_on != "content" and all(self.loss_groups.values())

    @property
    def tasks(self) -> Mapping[str, Description]:
        return {f"{self.name}_{format}": self for format in FORMATS}

    @property
    def rates(self) -> dict[str, float]:
        return {f"{self.name}_{PROMPT_COMPLETION}": 1.0}

    def members(self, sequence_length: Mapping[str, int], cache_dirs: Sequence[str | os.PathLike] = ()) -> list[Task]:
        objective, name = objective_of(self, format_of(sequence_length)), self.registered_name(sequence_length)
        lengths = objective.lengths(sequence_length, name)
        index_of = functools.partial(index_conversations, objective=objective, lengths=lengths)
        told = {
            "format": objective.format,
            "supervision": dataclasses.asdict(objective.supervision),
            "mode": list(objective.mode),
            "renderer": self.renderer.identity,
            **described_blocks(self.block_shuffle),
        }
        kind = functools.partial(records_of, index_of, self.block_shuffle)
        read_as = objective.features, self.vocabulary, kind, told
        return [Task(name, self.corpus(cache_dirs), 1.0, *read_as, block_shuffle=self.block_shuffle)]

    def registered_name(self, sequence_length: Mapping[str, int | None]) -> str:
        return f"{self.name}_{format_of(sequence_length)}"


def format_of(sequence_length: Mapping[str, int | None]) -> str:
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
    spec: DataSource | Files | Mapping[str, Files] | Datasets,
    messages_key: str = "messages",
    id_key: str | None = None,
    validation: float | None = None,
    **options: Any,
) -> DataSource:
    """The source of conversations; see `Chat`, and for `options` `open_source`."""
    if isinstance(spec, str) and spec == "embedded":
        spec = embedded_chat()
    text_key = messages_key
    if (own := as_source(spec)) is not None:
        spec, text_key = own, getattr(own, "text_key", "text")
        if messages_key not in ("messages", text_key):
            raise ValueError(f"messages_key must be {text_key!r} for {spec!r}, got {messages_key!r}. Leave it out.")
    elif messages_key == MESSAGES_JSON and validation is not None:
        id_key = id_key or SYNTH_ID
    return open_source(spec, text_key=text_key, id_key=id_key, validation=validation, as_json=True, **options)


def _mode_ids(vocabulary: Vocabulary, mode: Mode) -> tuple[int, ...]:
    """The tokenizer's own ids."""
    if isinstance(mode, str) and vocabulary.piece_id(mode) is None:
        raise ValueError(
            f"mode must be a token of {vocabulary}, an id or ids, got {mode!r}. Pass a token that it has, such as '[S]'."
        )
    found = special_tokens(vocabulary, "the mode", modes={"the mode": [mode] if isinstance(mode, str) else mode})
    return found.mode
