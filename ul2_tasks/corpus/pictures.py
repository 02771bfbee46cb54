"""`PictureCorpusTask`: the task `NAME_corpus` of texts with pictures in places, which SeqIO's own job caches."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import numpy as np
import seqio
import tensorflow as tf

from ul2_tasks.corpus.configuration import CorpusConfiguration, digest, settings
from ul2_tasks.corpus.identity import describe_source, source_identity
from ul2_tasks.corpus.tokenization import check_texts
from ul2_tasks.example_features import IMAGES
from ul2_tasks.graphs import no_autograph, python_op
from ul2_tasks.images.elements import Element, Picture, Text
from ul2_tasks.images.interleaved import CodeRun, PictureRun, interleaved
from ul2_tasks.images.pictures import pixels
from ul2_tasks.sources.pictures import TEXTS, WHERE
from ul2_tasks.sources.records import PROBLEM
from ul2_tasks.vocabulary.special_ids import text_vocabulary

PICTURE_VERSION = 1  # raised whenever the same records give other tokens
PIECES, MADE_OF = "pieces", "made_of"
_SHUFFLED_RECORDS = 256  # a record has hundreds of kilobytes, which are in every checkpoint of an iterator


@dataclasses.dataclass(frozen=True)
class PictureCorpusConfiguration:
    """How records become tokens and pictures.

    Attributes:
        text: of the texts: what becomes of records with a problem, and the sentinels and modes that no text becomes.
        run: what stands for a picture.
    """

    text: CorpusConfiguration
    run: PictureRun | CodeRun


class PictureCorpusTask(seqio.Task):
    """Records of texts and pictures, as ids and as the pictures' bytes.

    Its examples are {"targets": [tokens] int32, "pieces": [2 P + 1] int32, see `interleaved`, "images": [P] strings, "made_of":
    string scalar, which says what made them}. Pictures that are codes are among the tokens, and not in "images".

    Its source gives records {"texts": [places] strings, "images": [places] strings}: places in their order, at each of which a
    text, or a picture, or a picture after a text; what is not there is empty.

    Attributes:
        configuration: how that is done.
    """

    def __init__(
        self, name: str, source: seqio.DataSource, vocabulary: seqio.Vocabulary, *, configuration: PictureCorpusConfiguration
    ):
        features = {
            "targets": seqio.Feature(vocabulary, add_eos=False),
            PIECES: seqio.Feature(seqio.PassThroughVocabulary(0), add_eos=False),
            IMAGES: images_feature(),
        }
        steps = [
            functools.partial(tokenize_pictures, configuration=configuration, source=source),
            seqio.CacheDatasetPlaceholder(),
        ]
        super().__init__(name, source, features, steps, shuffle_buffer_size=_SHUFFLED_RECORDS)
        self.configuration = configuration

    @property
    def made_of(self) -> str:
        """What decides the examples, in 16 hexadecimal digits."""
        return _made_of(self.output_features["targets"].vocabulary, self.configuration, self.source)

    def records(
        self,
        split: str,
        use_cached: bool,
        shuffle: bool,
        seed: int | None,
        shard_info: seqio.ShardInfo | None,
        num_epochs: int | None,
    ) -> tf.data.Dataset:
        """The examples, not trimmed, and not held in memory.

        Raises:
            ValueError: there is no such split; the cache is asked for and is not there, or is that of another corpus.
        """
        if split not in self.splits:
            raise ValueError(f"there is no split {split!r} in {self.name!r}, only {sorted(self.splits)}")
        if use_cached and not self.cache_dir:
            raise ValueError(
                f"use_cached: {self.name!r} is in none of the cache directories {seqio.get_global_cache_dirs()}; write it with"
                f" `seqio_cache_tasks --tasks={self.name}`, or read the source itself (use_cached=False)"
            )
        examples = self.get_dataset(
            None, split, use_cached, shuffle, None, seed, shard_info, num_epochs, trim_output_features=False, try_in_mem_cache=False
        )
        if use_cached:
            self._check_cache(self.get_dataset(None, split, True, shuffle=False, try_in_mem_cache=False))
        return examples

    def _check_cache(self, examples: tf.data.Dataset) -> None:
        if MADE_OF not in examples.element_spec:
            raise ValueError(f"the cache {self.cache_dir} was not made by this package; write it anew")
        for example in examples.take(1):
            if (found := example[MADE_OF].numpy().decode()) != self.made_of:
                raise ValueError(
                    f"the cache {self.cache_dir} is of {found}, and {self.name!r} of {self.made_of}: its source, its vocabulary,"
                    " its special ids or its run of a picture are others; write it anew, or name another folder"
                )


def images_feature() -> seqio.Feature:
    """Encoded pictures, any number of them in an example."""
    return seqio.Feature(seqio.PassThroughVocabulary(0), add_eos=False, dtype=tf.string, rank=1)


@no_autograph
def tokenize_pictures(
    dataset: tf.data.Dataset,
    output_features: Mapping[str, seqio.Feature],
    *,
    configuration: PictureCorpusConfiguration,
    source: seqio.DataSource,
) -> tf.data.Dataset:
    """Reads each record, as a preprocessor of a SeqIO task. Its pictures are decoded once, so that none fails in training.

    Args:
        dataset: of {"texts", "images": [places] strings}, and where the source has them "where" and "problem", string scalars: the
            place of the record, and what is wrong with it.
        output_features: as SeqIO passes them.
        configuration: of the corpus.
        source: where the records come from.

    Returns:
        See `PictureCorpusTask`. Records that are skipped are left out.

    Raises:
        ValueError: the source has no such features.
        tf.errors.OpError: while iterating, on a record with a problem, if they are to be raised.
    """
    vocabulary = output_features["targets"].vocabulary
    if missing := sorted({TEXTS, IMAGES} - dataset.element_spec.keys()):
        raise ValueError(
            f"the source has the features {sorted(dataset.element_spec)}, expected texts and images; {missing} missing"
        )
    encoder = text_vocabulary(vocabulary, configuration.text.special_tokens.ids(vocabulary) | set(configuration.run.ids))
    described = describe_source(source)

    def read(texts: np.ndarray, images: np.ndarray, where: bytes, problem: bytes) -> tuple:
        place = where.decode(errors="replace") or "a record"
        try:
            if problem:
                raise ValueError(problem.decode(errors="replace"))
            found = interleaved(_plan(texts.tolist(), images.tolist()), encoder.encode, configuration.run)
            carried = [] if isinstance(configuration.run, CodeRun) else found.images
            for image in carried:
                pixels(image)
            return found.tokens, found.pieces, np.array(carried, object), True
        except ValueError as error:
            check_texts(described, configuration.text.on_error, [b""], [f"{place}: {error}".encode(errors="replace")])
        return np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, object), False

    def example(record: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        parts = [record[TEXTS], record[IMAGES], record.get(WHERE, tf.constant("")), record.get(PROBLEM, tf.constant(""))]
        *found, is_whole = python_op(read, parts, [tf.int32, tf.int32, tf.string, tf.bool])
        tokens, pieces, images = (tf.ensure_shape(each, [None]) for each in found)
        return {"targets": tokens, PIECES: pieces, IMAGES: images, MADE_OF: made_of, "is_whole": tf.ensure_shape(is_whole, [])}

    made_of = tf.constant(_made_of(vocabulary, configuration, source))
    examples = dataset.map(example, num_parallel_calls=tf.data.AUTOTUNE).filter(lambda example: example["is_whole"])
    return examples.map(lambda example: {key: value for key, value in example.items() if key != "is_whole"})


def _plan(texts: Sequence[bytes], images: Sequence[bytes]) -> list[Element]:
    if len(texts) != len(images):
        raise ValueError(f"texts has {len(texts)} places and images {len(images)}, expected as many")
    plan: list[Element] = []
    for number, (text, image) in enumerate(zip(texts, images)):
        plan += [Text(_decoded(text, number))] if text else []
        plan += [Picture(image, "vit")] if image else []
    return plan


def _decoded(text: bytes, number: int) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"the text at place {number} is not UTF-8; it begins with {text[:40]!r}") from error


def _made_of(vocabulary: seqio.Vocabulary, configuration: PictureCorpusConfiguration, source: seqio.DataSource) -> str:
    identity = source_identity(source) or f"{describe_source(source)}, which cannot tell what it reads"
    of_text = settings(vocabulary, identity, configuration.text)
    return digest({**of_text, "run": repr(configuration.run), "version": str(PICTURE_VERSION)})
