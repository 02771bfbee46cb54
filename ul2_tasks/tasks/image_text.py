"""UL2 on interleaved image-text data for SeqIO. Images go to the encoder whole, texts are masked."""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import seqio
import tensorflow as tf

from ul2_tasks.corpus.corpus import Corpus
from ul2_tasks.denoisers.denoisers import Denoiser
from ul2_tasks.denoisers.pieces import PieceLimits
from ul2_tasks.example_features import IMAGES, TOKEN_FEATURES
from ul2_tasks.graphs import no_autograph
from ul2_tasks.mixtures.image_text import (
    ImageText,
    check_no_image_lengths,
    image_text_members,
    piece_limits,
    special_tokens_beside,
)
from ul2_tasks.random_access.kinds import Task
from ul2_tasks.random_access.records import RecordMember
from ul2_tasks.tasks.arguments import reader_of
from ul2_tasks.tasks.corpus_task import CorpusTask
from ul2_tasks.tasks.names import hand_over
from ul2_tasks.tasks.providers import DenoisingTask, read_alone, subtasks
from ul2_tasks.tokenizers.special_ids import SpecialTokens, id_shift

if TYPE_CHECKING:
    pass

STREAM_VERSION = 1  # raised whenever the same arguments give other examples, or another order


def images_feature() -> seqio.Feature:
    """Encoded images, any number of them in an example."""
    return seqio.Feature(seqio.PassThroughVocabulary(0), add_eos=False, dtype=tf.string, rank=1)


class ImageTextTask(seqio.Task):
    """The examples of one denoiser: a task NAME_<denoiser> of an `ImageText`.

    A record is an example, of which SeqIO trims nothing. One that makes no example within the lengths is an error, or left out and
    counted.
    """

    def __init__(self, name: str, corpus: Corpus, denoiser: Denoiser, configuration: ImageText):
        tokens = seqio.Feature(configuration.vocabulary, add_eos=True)
        features = {"inputs": tokens, "targets": tokens, IMAGES: images_feature()}
        super().__init__(name, corpus.source, features, preprocessors=[])
        self.corpus, self.denoiser, self.configuration = corpus, denoiser, configuration

    @staticmethod
    def members(
        tasks: Sequence[ImageTextTask],
        rates: Sequence[float],
        sequence_length: Mapping[str, int] | None,
    ) -> list[RecordMember]:
        """Tasks of one corpus as `random_access` takes them."""
        limits, first = [task.limits(sequence_length) for task in tasks], tasks[0]
        return image_text_members(first.configuration, first.corpus, limits, rates)

    def limits(self, sequence_length: Mapping[str, int] | None) -> PieceLimits:
        """What its examples have to be within these budgets."""
        check_no_image_lengths(sequence_length)
        add_eos = tuple(self.output_features[key].add_eos for key in TOKEN_FEATURES)
        return piece_limits(self.name, self.configuration, self.denoiser, self.special_tokens(), sequence_length, add_eos)

    def special_tokens(self) -> SpecialTokens:
        """See `mixtures.image_text.special_tokens_beside`."""
        return special_tokens_beside(self.configuration, self.denoiser)

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
    ) -> tf.data.Dataset:
        """See `seqio.Task.get_dataset`; `shuffle_buffer_size`, `trim_output_features` and `try_in_mem_cache` make no difference.

        Elements are {"inputs": [tokens] int32, "targets": [tokens] int32, "images": [images] strings, in the order of their runs in
        the inputs}. Raises a ValueError where no record makes an example, or for a record with a problem, or that makes no example,
        if it is to be raised.
        """
        del shuffle_buffer_size, trim_output_features, try_in_mem_cache
        common = {"sequence_length": sequence_length, "split": split, "use_cached": use_cached, "shuffle": shuffle}
        return read_alone(self, reader_of(seed, num_epochs, shard_info), features=self.output_features, **common).dataset()


def add_image_text(images: ImageText) -> str:
    """Hands interleaved image-text data to SeqIO's registries; see `registry.register`."""
    suffixes = ("corpus", "mix", *(denoiser.name for denoiser in images.denoisers))
    return hand_over(images, suffixes, lambda: _tasks(images), "mix")


def _tasks(images: ImageText) -> list[seqio.Task]:
    corpus = images.corpus()
    return [CorpusTask(corpus), *(ImageTextTask(f"{images.name}_{each.name}", corpus, each, images) for each in images.denoisers)]


def image_text_tasks(name: str) -> list[ImageTextTask]:
    """The tasks of a task or mixture that have images, in its order."""
    return [task for task in subtasks(name) if isinstance(task, ImageTextTask)]


class _WithoutImages(seqio.Task):
    """A task of texts alone, as one whose examples have no image, beside others in which these ids mark images.

    `marks` are the tokenizer's own ids.
    """

    def __init__(self, task: seqio.Task, marks: frozenset[int]):
        super().__init__(task.name, task.source, {**task.output_features, IMAGES: images_feature()}, preprocessors=[])
        self.without_images, self.marks = task, marks

    @property
    def corpus(self) -> Any:
        return self.without_images.corpus

    @property
    def configuration(self) -> Any:
        return self.without_images.configuration

    @staticmethod
    def members(tasks: Sequence[_WithoutImages], *settings: Any) -> Sequence[Task]:
        """See `ImageTextTask.members`."""
        for task in tasks:
            task.check_marks()
        inner = [task.without_images for task in tasks]
        found: Sequence[Task] = type(inner[0]).members(inner, *settings)
        return found

    def check_marks(self) -> None:
        """Raises a ValueError where a sentinel or a mode of the task marks images."""
        taken = self.without_images.special_tokens().reserved if isinstance(self.without_images, DenoisingTask) else frozenset()
        shift = id_shift(self.output_features["targets"].vocabulary)
        if both := sorted(self.marks & {id - shift for id in taken}):
            raise ValueError(f"sentinels and modes of {self.name!r} must not be ids of image_tokens, got {both}. Pass others.")

    def get_dataset(self, *arguments: Any, **settings: Any) -> tf.data.Dataset:
        """See `seqio.Task.get_dataset`. Raises a ValueError where a sentinel or a mode of the task marks images."""
        self.check_marks()
        examples = self.without_images.get_dataset(*arguments, **settings)
        return examples.map(no_autograph(lambda example: {**example, IMAGES: tf.zeros([0], tf.string)}))


def beside_images(weights: Mapping[str, float]) -> list[tuple[seqio.Task, float]]:
    """The tasks of mixtures, all with images or the lack of them, and the rate of each."""
    mixed_tasks = [task for name in weights for task in seqio.get_subtasks(seqio.get_mixture_or_task(name))]
    marks = frozenset(id for task in mixed_tasks if isinstance(task, ImageTextTask) for id in task.configuration.image_tokens.ids)
    rates: collections.defaultdict[str, float] = collections.defaultdict(float)
    tasks: dict[str, seqio.Task] = {}
    for name, weight in weights.items():
        mixed = seqio.get_mixture_or_task(name)
        for task in seqio.get_subtasks(mixed):
            rates[task.name] += weight * (mixed.get_rate(task) / mixed.total_rate if isinstance(mixed, seqio.Mixture) else 1)
            tasks[task.name] = task if IMAGES in task.output_features else _WithoutImages(task, marks)
    return [(task, rates[name]) for name, task in tasks.items()]
