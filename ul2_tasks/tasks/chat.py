"""Conversations for SeqIO: as a corpus, as examples for a decoder, and as prompt-completion pairs."""

from __future__ import annotations

import collections
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import seqio
import tensorflow as tf

from ul2_tasks.chat.objective import CHAT, FORMATS, salt_of
from ul2_tasks.chat.supervision import Supervision
from ul2_tasks.corpus.corpus import Corpus
from ul2_tasks.example_features import TASK
from ul2_tasks.graphs import no_autograph
from ul2_tasks.mixtures.chat import Chat, chat_member, objective_of
from ul2_tasks.random_access.records import RecordMember
from ul2_tasks.tasks.arguments import check_splits, reader_of
from ul2_tasks.tasks.corpus_task import CorpusTask, CorpusView
from ul2_tasks.tasks.mixing import sample_examples
from ul2_tasks.tasks.names import hand_over
from ul2_tasks.tasks.providers import read_alone, read_indexed, subtasks

if TYPE_CHECKING:
    pass

CHAT_VERSION = 1  # raised whenever the same arguments give other examples, or another order
_left_out: collections.Counter[str] = collections.Counter()  # examples of this process, by task and cause


class ChatTask(seqio.Task):
    """The examples of conversations: NAME_chat or NAME_prompt_completion of a `Chat`.

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


def add_chat(chat: Chat, format: str = CHAT) -> str:
    """Adds conversations to SeqIO's registries; see `registry.register`."""
    if format not in FORMATS:
        raise ValueError(f"format must be one of {list(FORMATS)}, got {format!r}.")
    return hand_over(chat, ("corpus", *FORMATS), lambda: _tasks(chat), format)


def _tasks(chat: Chat) -> list[seqio.Task]:
    corpus = chat.corpus()
    return [CorpusTask(corpus), *(ChatTask(f"{chat.name}_{format}", corpus, format, chat) for format in FORMATS)]


def chat_tasks(name: str) -> list[ChatTask]:
    """The chat tasks of a task or mixture, in its order."""
    return [task for task in subtasks(name) if isinstance(task, ChatTask)]
