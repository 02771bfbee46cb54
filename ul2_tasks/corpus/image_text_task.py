"""`ImageTextCorpusTask`: the task `NAME_corpus` of interleaved image-text data."""

from __future__ import annotations

import seqio
import tensorflow as tf

from ul2_tasks.corpus.configuration import CorpusConfiguration
from ul2_tasks.corpus.image_text import DescribedImageText, ImageTextCorpus
from ul2_tasks.corpus.view import CorpusTask
from ul2_tasks.example_features import IMAGES
from ul2_tasks.images.interleaved import ImageTokens


class ImageTextCorpusTask(ImageTextCorpus, CorpusTask):
    """The task `NAME_corpus` of `register_image_text`; see `ImageTextCorpus`.

    Its source gives records {"texts": [places] strings, "images": [places] strings}: places in their order, at each of which a
    text, or an image, or an image after a text; what is not there is empty. `image_tokens` is what stands for an image, with the
    tokenizer's own ids.
    """

    def __init__(
        self,
        name: str,
        source: seqio.DataSource,
        vocabulary: seqio.Vocabulary,
        *,
        configuration: CorpusConfiguration,
        image_tokens: ImageTokens,
    ):
        features = {"targets": seqio.Feature(vocabulary, add_eos=False), IMAGES: images_feature()}
        super().__init__(name, source, features, configuration=configuration)
        self.image_tokens = image_tokens

    def __reduce__(self) -> tuple:
        """See `CorpusTask`."""
        as_described = self.name, self.source, self.vocabulary, self.configuration, self.image_tokens, (*self._cache_dirs,)
        return DescribedImageText, as_described

    def get_dataset(self, sequence_length=None, split: str = "train", *arguments, **keywords) -> tf.data.Dataset:
        """Raises a ValueError: records become examples in other tasks."""
        raise ValueError(
            f"mixture or task must be one of examples, got {self.name!r}, which has records. Read one of its denoisers."
        )

    def preprocess_precache(self, dataset: tf.data.Dataset, seed: int | None = None) -> tf.data.Dataset:
        """Raises a ValueError: the stock cache job would not keep the images."""
        raise ValueError(
            f"seqio_cache_tasks does not support texts with images, got {self.name!r}. Cache it with `ul2 cache"
            f" {self.name.removesuffix('_corpus')}_mix`."
        )


def images_feature() -> seqio.Feature:
    """Encoded images, any number of them in an example."""
    return seqio.Feature(seqio.PassThroughVocabulary(0), add_eos=False, dtype=tf.string, rank=1)
