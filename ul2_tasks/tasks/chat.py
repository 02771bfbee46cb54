"""`register_chat`: conversations as a corpus, as examples for a decoder, and as prompt-completion pairs."""

from __future__ import annotations

import collections
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import seqio
import tensorflow as tf

from ul2_tasks.chat.by_name import Renderer
from ul2_tasks.chat.objective import CHAT, FORMATS, salt_of
from ul2_tasks.chat.supervision import Supervision
from ul2_tasks.corpus.corpus import Corpus
from ul2_tasks.corpus.view import CorpusTask, CorpusView
from ul2_tasks.example_features import TASK
from ul2_tasks.graphs import no_autograph
from ul2_tasks.mixtures.chat import Chat, chat_member, objective_of
from ul2_tasks.order.order import BlockShuffle
from ul2_tasks.random_access.records import RecordMember
from ul2_tasks.sources.file_source import Files
from ul2_tasks.tasks.arguments import check_splits, reader_of
from ul2_tasks.tasks.mixing import sample_examples
from ul2_tasks.tasks.names import hand_over
from ul2_tasks.tasks.providers import read_alone, read_indexed, subtasks
from ul2_tasks.tokenizers.special_ids import Mode

if TYPE_CHECKING:
    from ul2_tasks.sources.dataset_objects import Datasets

CHAT_VERSION = 1  # raised whenever the same arguments give other examples, or another order
_left_out: collections.Counter[str] = collections.Counter()  # examples of this process, by task and cause


class ChatTask(seqio.Task):
    """The examples of conversations: NAME_chat or NAME_prompt_completion of `register_chat`.

    Its iterators are saved in a few kilobytes, and resume only in the task that saved them. Each epoch shuffles all conversations.
    SeqIO trims nothing: an example that is too long raises an error, or is left out and counted. `format` is "chat" or
    "prompt_completion".
    """

    def __init__(self, name: str, corpus: Corpus, format: str, configuration: Chat):
        tokens = seqio.Feature(corpus.vocabulary, add_eos=False)
        features = {"inputs": tokens, "targets": tokens}
        if format == CHAT:
            features = {"tokens": tokens} | {
                key: seqio.Feature(seqio.PassThroughVocabulary(size), add_eos=False, dtype=tf.uint8)
                for key, size in (("loss_mask", 2), ("span_id", 256))
            }
        self._salt = salt_of(configuration.name, format)
        super().__init__(name, CorpusView(corpus, self._salt), features, preprocessors=[], shuffle_buffer_size=None)
        self.configuration, self.format = configuration, format
        self.objective = objective_of(configuration, format)

    @property
    def corpus(self) -> Corpus:
        return self.source.corpus

    @property
    def supervision(self) -> Supervision:
        return self.objective.supervision

    @property
    def own_features(self) -> Collection[str]:
        """The features of its examples, with masks, which a mixture keeps where it has random access."""
        return self.objective.features

    @property
    def trains_on_all_targets(self) -> bool:
        """Whether all targets of pairs are trained on, but for messages of weight 0."""
        return self.supervision.train_on != "content" and all(self.supervision.loss_groups.values())  # type: ignore[union-attr]

    @staticmethod
    def members(
        tasks: Sequence[ChatTask],
        rates: Sequence[float],
        sequence_length: Mapping[str, int | None] | None,
    ) -> list[RecordMember]:
        """Tasks of one corpus as `random_access` takes them."""
        return [
            chat_member(task.name, task.corpus, task.objective, sequence_length, blocks=task.configuration.block_shuffle, rate=rate)
            for task, rate in zip(tasks, rates)
        ]

    def get_dataset(
        self,
        sequence_length: Mapping[str, int] | None = None,
        split: str = "train",
        use_cached: bool = False,
        shuffle: bool = True,
        shuffle_buffer_size: int | None = None,
        seed: int | None = None,
        shard_info: seqio.ShardInfo | None = None,
        num_epochs: int | None = 1,
        trim_output_features: bool = True,
        try_in_mem_cache: bool = True,
        *,
        features: Collection[str] | None = None,
    ) -> tf.data.Dataset:
        """See `seqio.Task.get_dataset`; `shuffle_buffer_size`, `trim_output_features` and `try_in_mem_cache` make no difference.

        `features` are those to return.

        NAME_chat gives a dataset of {"tokens": [tokens] int32, "loss_mask" and "span_id": [tokens] uint8}. NAME_prompt_completion
        gives one of {"inputs", "targets": [tokens] int32, and of the targets "loss_mask" and "span_id": [tokens] uint8}.

        Raises a ValueError where no conversation makes an example, or where one is too long and `truncation` is "raise".
        """
        del shuffle_buffer_size, trim_output_features, try_in_mem_cache
        kept = self.objective.features if features is None else features
        common = {"sequence_length": sequence_length, "split": split, "use_cached": use_cached, "shuffle": shuffle}
        return read_alone(self, reader_of(seed, num_epochs, shard_info), features=kept, **common).dataset()


class ChatMixture(seqio.Mixture):
    """A mixture of chat tasks of one format, whose examples keep `loss_mask` and `span_id`.

    `configuration` has `mix`'s arguments.
    """

    def __init__(self, *arguments, configuration: object = None, **keywords):
        super().__init__(*arguments, sample_fn=sample_examples, **keywords)
        self.configuration = configuration

    def get_dataset(self, sequence_length=None, split: str = "train", *arguments, **keywords) -> tf.data.Dataset:
        """See `seqio.Mixture.get_dataset`. Raises a ValueError where a task has no such split: SeqIO would leave it out."""
        check_splits(self, split)
        given = dict(zip(("use_cached", "shuffle", "seed", "shard_info", "num_epochs"), arguments)) | keywords
        settings = {"use_cached": False, "shuffle": True} | {key: given[key] for key in ("use_cached", "shuffle") if key in given}
        who = reader_of(given.get("seed"), given.get("num_epochs"), given.get("shard_info"))
        rates = {task.name: self.get_rate(task) for task in self.tasks}
        kept = {*self.tasks[0].objective.features, *(given.get("passthrough_features") or ())}
        reading = read_indexed(
            self, self.tasks, rates, {}, who, sequence_length=sequence_length, split=split, features=kept, **settings
        )
        return reading.dataset()

    def get_task_dataset(self, task: ChatTask, output_feature_keys: Collection[str], *arguments, **keywords) -> tf.data.Dataset:
        """See `seqio.Mixture.get_task_dataset`. The dataset always has `loss_mask` and `span_id`.

        `trim_output_features` has no effect: an example that is too long raises an error, or is left out and counted.
        `passthrough_features` may have features of the task, and "task", its name. `copy_pretokenized` is not supported, because
        conversations have no such features.
        """
        names = ("sequence_length", "split", "use_cached", "shuffle", "seed", "shard_info", "num_epochs")
        settings = dict(zip(names, arguments)) | {key: value for key, value in keywords.items() if key in names}
        dataset = task.get_dataset(**settings)
        if unknown := sorted({*output_feature_keys} - dataset.element_spec.keys() - {TASK}):
            raise ValueError(
                f"passthrough_features must be among {[*dataset.element_spec, TASK]} for {task.name!r}, got {unknown}. Leave them"
                " out, and pass copy_pretokenized=False."
            )
        return dataset.map(no_autograph(lambda one: one | {TASK: task.name})) if TASK in output_feature_keys else dataset


def register_chat(
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
    format: str = CHAT,
) -> str:
    """Registers conversations: the corpus NAME_corpus, and the tasks NAME_chat and NAME_prompt_completion.

    `NAME_chat` is for decoder-only models, and `NAME_prompt_completion` for encoder-decoder models. Each token has a `loss_mask`,
    whether it counts in the loss, and a `span_id`, its loss group. Registering again with the same arguments changes nothing.
    `ul2 cache` caches the rendered conversations, and all arguments from `loss_groups` on can change without a new cache. `mix`
    mixes `NAME_prompt_completion` with denoisers of the same vocabulary.

    Args:
        name: the beginning of all names.
        source: where conversations come from, see `open_source`; "embedded" is a small built-in corpus. A `seqio.DataSource` must
            give each conversation as a string of JSON.
        renderer: turns messages into tokens, see `open_renderer`.
        messages_key: the field or column with the messages: a list of them, or JSON of a list or of an object with `messages`.
        id_key: the field or column with a conversation's id: of that name, or in the JSON of the field `metadata_json`; where both
            have it, they must be equal. By default "synth_id" beside "messages_json", and else the JSON of the messages is the id.
        validation: see `open_source`.
        on_error: what to do with a conversation that cannot be rendered: "raise" an error, or "skip" and count it.
        loss_groups: the loss group of each kind of the assistant's messages, such as {"assistant/final": 2}: 1 to 255 where it is
            trained on, 0 where it is context. A message of a kind that is missing is an error. Or the name of a preset: "harmony",
            "harmony_tools", "plain".
        train_on: which tokens of a message count in the loss: "all", with its header; "generated", those that the model generates
            at inference; or "content", its content and the token that ends it.
        turns: "all", a conversation is one example; "last", only its last turn is trained on; or "each", every turn is an example.
            In "last" and "each" the history before the turn is as at inference. By default "all" in `NAME_chat`, and "each" in
            `NAME_prompt_completion`, or "last" with a chat template.
        truncation: what to do with an example that is longer than the lengths: "raise" an error; "drop" it, and count it; or
            "drop_oldest_turns", as whole turns.
        mode: the mode token before the inputs of `NAME_prompt_completion`: a token, such as "[S]", an id, or ids.
        block_shuffle: shuffles the examples in two levels, so that a host reads whole blocks of the cache; it
            is described at `register`.
        format: which name is returned, "chat" or "prompt_completion".

    Returns:
        "NAME_chat" or "NAME_prompt_completion".

    Raises:
        ValueError: an argument has a value that is not supported; or the name is taken, by another task or with other arguments.

    >>> import ul2_tasks
    >>> ul2_tasks.register_chat("docs")
    'docs_chat'
    """
    chat = Chat(
        name,
        source,
        renderer,
        messages_key=messages_key,
        id_key=id_key,
        validation=validation,
        on_error=on_error,
        loss_groups=loss_groups,
        train_on=train_on,
        turns=turns,
        truncation=truncation,
        mode=mode,
        block_shuffle=block_shuffle,
    )
    return add_chat(chat, format)


def add_chat(chat: Chat, format: str = CHAT) -> str:
    """Adds conversations to SeqIO's registries; see `register_chat`."""
    if format not in FORMATS:
        raise ValueError(f"format must be one of {list(FORMATS)}, got {format!r}.")
    return hand_over(chat, ("corpus", *FORMATS), lambda: _tasks(chat), format)


def _tasks(chat: Chat) -> list[seqio.Task]:
    corpus = chat.corpus()
    return [CorpusTask(corpus), *(ChatTask(f"{chat.name}_{format}", corpus, format, chat) for format in FORMATS)]


def chat_tasks(name: str) -> list[ChatTask]:
    """The chat tasks of a task or mixture, in its order."""
    return [task for task in subtasks(name) if isinstance(task, ChatTask)]
