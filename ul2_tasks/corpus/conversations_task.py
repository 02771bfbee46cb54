"""`ChatCorpusTask`: the task `NAME_corpus` of conversations."""

from __future__ import annotations

import seqio
import tensorflow as tf

from ul2_tasks.chat.by_name import Renderer
from ul2_tasks.chat.supervision import Supervision
from ul2_tasks.corpus.configuration import CorpusConfiguration
from ul2_tasks.corpus.conversations import ChatCorpus
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

    def get_dataset(self, sequence_length=None, split: str = "train", *arguments, **keywords) -> tf.data.Dataset:
        """Raises a ValueError: conversations become examples in other tasks."""
        name = self.name.removesuffix("_corpus")
        raise ValueError(f"{self.name!r} has conversations; read the task of their examples, {name}_chat or {name}_reply")

    def preprocess_precache(self, dataset: tf.data.Dataset, seed: int | None = None) -> tf.data.Dataset:
        """Raises a ValueError: the stock cache job would not keep the messages."""
        raise ValueError(
            f"{self.name!r} has conversations, which `ul2 cache --corpus {self.name}` caches, and seqio_cache_tasks not"
        )
