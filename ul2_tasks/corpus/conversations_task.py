"""`ChatCorpusTask`: the task `NAME_corpus` of conversations."""

from __future__ import annotations

import seqio
import tensorflow as tf

from ul2_tasks.chat.by_name import Renderer
from ul2_tasks.chat.supervision import Supervision
from ul2_tasks.corpus.configuration import CorpusConfiguration
from ul2_tasks.corpus.conversations import ChatCorpus, DescribedConversations
from ul2_tasks.corpus.view import CorpusTask


class ChatCorpusTask(ChatCorpus, CorpusTask):
    """The task `NAME_corpus` of `register_chat`; see `ChatCorpus`."""

    def __init__(
        self,
        name: str,
        source: seqio.DataSource,
        *,
        configuration: CorpusConfiguration,
        renderer: Renderer,
        supervision: Supervision,
    ):
        feature = seqio.Feature(renderer.vocabulary, add_eos=False)
        super().__init__(name, source, {"targets": feature}, configuration=configuration)
        self.renderer, self.supervision = renderer, supervision

    def __reduce__(self) -> tuple:
        """See `CorpusTask`."""
        of_conversations = self.configuration, self.renderer, self.supervision
        return DescribedConversations, (self.name, self.source, *of_conversations, (*self._cache_dirs,))

    def get_dataset(self, sequence_length=None, split: str = "train", *arguments, **keywords) -> tf.data.Dataset:
        """Raises a ValueError: conversations become examples in other tasks."""
        name = self.name.removesuffix("_corpus")
        raise ValueError(
            f"mixture or task must be one of examples, got {self.name!r}, which has conversations. Read {name}_chat or"
            f" {name}_prompt_completion."
        )

    def preprocess_precache(self, dataset: tf.data.Dataset, seed: int | None = None) -> tf.data.Dataset:
        """Raises a ValueError: the stock cache job would not keep the messages."""
        raise ValueError(
            f"seqio_cache_tasks does not support conversations, got {self.name!r}. Cache it with `ul2 cache"
            f" {self.name.removesuffix('_corpus')}`."
        )
