"""`ImageTextCorpusTask`: the task `NAME_corpus` of interleaved image-text data."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np
import seqio
import tensorflow as tf

from ul2_tasks.corpus import cache
from ul2_tasks.corpus.check_texts import check_texts
from ul2_tasks.corpus.configuration import CorpusConfiguration
from ul2_tasks.corpus.corpus import corpus_settings
from ul2_tasks.corpus.identity import describe_source
from ul2_tasks.corpus.image_text import MADE_OF, PIECES, ImageTextCorpus, made_of, read_record, tokenizer_of
from ul2_tasks.corpus.view import CorpusTask
from ul2_tasks.example_features import IMAGES
from ul2_tasks.graphs import no_autograph, python_op
from ul2_tasks.images.interleaved import ImageTokens, shifted
from ul2_tasks.scalars import check_split
from ul2_tasks.sources.image_examples import TEXTS, WHERE
from ul2_tasks.sources.image_streams import check_features
from ul2_tasks.sources.records import PROBLEM
from ul2_tasks.store.documents import read_in_order
from ul2_tasks.store.read import Store
from ul2_tasks.vocabulary.special_ids import id_shift

_SHUFFLED_RECORDS = 256  # a record has hundreds of kilobytes, which are in every checkpoint of an iterator


class ImageTextCorpusTask(ImageTextCorpus, CorpusTask):
    """The task `NAME_corpus` of `register_image_text`; see `ImageTextCorpus`.

    Its examples are {"targets": [tokens] int32, "pieces": [2 P + 1] int32, see `interleaved`, "images": [P] strings, "made_of":
    string scalar, which says what made them}.

    Its source gives records {"texts": [places] strings, "images": [places] strings}: places in their order, at each of which a
    text, or an image, or an image after a text; what is not there is empty. `image` is what stands for an image, with the
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
        features = {
            "targets": seqio.Feature(vocabulary, add_eos=False),
            PIECES: seqio.Feature(seqio.PassThroughVocabulary(0), add_eos=False),
            IMAGES: images_feature(),
        }
        super().__init__(
            name,
            source,
            features,
            configuration=configuration,
            step=functools.partial(tokenize_image_text, image_tokens=image_tokens),
            shuffle_buffer_size=_SHUFFLED_RECORDS,
        )
        self.image_tokens = image_tokens

    def records(
        self,
        split: str,
        use_cached: bool,
        shuffle: bool,
        seed: int | None,
        shard_info: seqio.ShardInfo | None,
        num_epochs: int | None,
    ) -> tf.data.Dataset:
        """The examples, not trimmed, and not held in memory. A cache that is missing, or another corpus's, raises a ValueError."""
        check_split(split, self.splits, self.name)
        # The order of a store is a permutation, which needs no buffer, and so no records in a checkpoint.
        buffer = 1 if use_cached and self._is_stored else None
        return self.get_dataset(
            None,
            split,
            use_cached,
            shuffle,
            buffer,
            seed,
            shard_info,
            num_epochs,
            trim_output_features=False,
            try_in_mem_cache=False,
        )

    @property
    def _is_stored(self) -> bool:
        """Whether `ul2 cache` wrote the cache. That of SeqIO's own job has no manifest."""
        return cache.read_manifest(self.cache_folder) is not None

    def cached_documents(self, split: str, shuffle: bool, seed: int | None, shard_info: seqio.ShardInfo | None) -> tf.data.Dataset:
        manifest = cache.check_stored(self.cache_dir, self, corpus_settings(self))
        cache.check_documents(self.cache_dir, split, manifest, shard_info.num_shards if shard_info else 1)
        stores = [cache.open_store(self.cache_dir, manifest, split, column) for column in (None, *self.columns)]
        made_of, shift = tf.constant(self.made_of), manifest["id_shift"]

        def example(tokens: tf.Tensor, pieces: tf.Tensor, images: tf.Tensor) -> dict[str, tf.Tensor]:
            parts = {"targets": tokens + shift, PIECES: pieces, IMAGES: images}
            return {key: tf.ensure_shape(part, [None]) for key, part in parts.items()} | {MADE_OF: made_of}

        reading = (functools.partial(_stored, stores), [tf.int32, tf.int32, tf.string], no_autograph(example))
        return read_in_order(stores[0].documents, 1, *reading, shuffle=shuffle, seed=seed, shard_info=shard_info)

    def _get_cached_source(self, split: str, file_shuffle_buffer_size: int | None = None) -> seqio.DataSource:
        self.assert_cached()
        if self._is_stored:
            return super()._get_cached_source(split)
        source = seqio.Task._get_cached_source(self, split, file_shuffle_buffer_size)
        self._check_cache(source.get_dataset(split, shuffle=False))
        return source

    def _check_cache(self, examples: tf.data.Dataset) -> None:
        if MADE_OF not in examples.element_spec:
            raise ValueError(f"the cache {self.cache_dir} must be written by this package, got another one. Write it again.")
        for example in examples.take(1):
            if (found := example[MADE_OF].numpy().decode()) != self.made_of:
                raise ValueError(
                    f"the cache {self.cache_dir} must be of {self.made_of}, as {self.name!r} is, got {found}: its source,"
                    " vocabulary, special tokens or image tokens differ. Write it again, or name another folder."
                )


def _stored(stores: Sequence[Store], numbers: np.ndarray) -> tuple[np.ndarray, ...]:
    """The tokens, the pieces and the images of one document."""
    (tokens, _), (pieces, _), (sizes, _) = (store.read_documents(numbers) for store in stores[:3])
    (held,) = stores[3].read_each(numbers)
    if pieces.sum() != len(tokens) or sizes.sum() != len(held):
        raise ValueError(
            f"document {numbers[0]} of {stores[0].prefixes[0]} .. must have {pieces.sum()} tokens and {sizes.sum()} bytes of"
            f" images, got {len(tokens)} and {len(held)}: these files do not belong together. Write the cache again."
        )
    images = np.split(held, np.cumsum(sizes))[:-1]
    return tokens, pieces, np.array([image.tobytes() for image in images], object)


def images_feature() -> seqio.Feature:
    """Encoded images, any number of them in an example."""
    return seqio.Feature(seqio.PassThroughVocabulary(0), add_eos=False, dtype=tf.string, rank=1)


@no_autograph
def tokenize_image_text(
    dataset: tf.data.Dataset,
    output_features: Mapping[str, seqio.Feature],
    *,
    configuration: CorpusConfiguration,
    image_tokens: ImageTokens,
    source: seqio.DataSource,
) -> tf.data.Dataset:
    """Reads each record, as a preprocessor of a SeqIO task. Its images are decoded once, so that none fails in training.

    The dataset is of {"texts", "images": [places] strings}, and where the source has them "where" and "problem", string scalars:
    the place of the record, and what is wrong with it. Gives what `ImageTextCorpusTask` says, without the records that are skipped.
    Iterating raises a tf.errors.OpError on a record with a problem, if they are to be raised.
    """
    vocabulary = output_features["targets"].vocabulary
    check_features(dataset)
    image_tokens = shifted(image_tokens, id_shift(vocabulary))
    tokenizer, described = tokenizer_of(vocabulary, configuration, image_tokens), describe_source(source)

    def read(texts: np.ndarray, images: np.ndarray, where: bytes, problem: bytes) -> tuple:
        found, wrong = read_record(
            texts.tolist(), images.tolist(), where, problem.decode(errors="replace"), tokenizer, image_tokens
        )
        (is_whole,) = check_texts(described, configuration.on_error, [b""], [wrong])
        return found.tokens, found.pieces, np.array(found.images, object), is_whole

    def example(record: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        parts = [record[TEXTS], record[IMAGES], record.get(WHERE, tf.constant("")), record.get(PROBLEM, tf.constant(""))]
        *found, is_whole = python_op(read, parts, [tf.int32, tf.int32, tf.string, tf.bool])
        tokens, pieces, images = (tf.ensure_shape(each, [None]) for each in found)
        return {"targets": tokens, PIECES: pieces, IMAGES: images, MADE_OF: made_by, "is_whole": tf.ensure_shape(is_whole, [])}

    made_by = tf.constant(made_of(vocabulary, configuration, image_tokens, source))
    examples = dataset.map(example, num_parallel_calls=tf.data.AUTOTUNE).filter(lambda example: example["is_whole"])
    return examples.map(lambda example: {key: value for key, value in example.items() if key != "is_whole"})
