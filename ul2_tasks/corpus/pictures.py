"""`PictureCorpusTask`: the task `NAME_corpus` of texts with pictures in places, whose cache has both."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import seqio
import tensorflow as tf

from ul2_tasks.corpus import cache
from ul2_tasks.corpus.check_texts import check_texts
from ul2_tasks.corpus.configuration import CorpusConfiguration, digest, settings
from ul2_tasks.corpus.corpus import Encoded, corpus_settings
from ul2_tasks.corpus.identity import describe_source, reads, source_identity
from ul2_tasks.corpus.view import CorpusTask
from ul2_tasks.example_features import IMAGES
from ul2_tasks.graphs import no_autograph, python_op
from ul2_tasks.images.elements import Element, Picture, Text
from ul2_tasks.images.interleaved import CodeRun, Interleaved, PictureRun, interleaved, shifted
from ul2_tasks.images.pictures import pixels
from ul2_tasks.images.problems import NOT_OF_RECORDS, sentence_of
from ul2_tasks.scalars import check_split
from ul2_tasks.sources.picture_examples import TEXTS, WHERE, parsed, serialized
from ul2_tasks.sources.pictures import PictureSource
from ul2_tasks.sources.records import PROBLEM, Record
from ul2_tasks.store.documents import read_in_order
from ul2_tasks.store.read import Store
from ul2_tasks.vocabulary.special_ids import id_shift, text_vocabulary

PICTURE_VERSION = 1  # raised whenever the same records give other tokens
PIECES, MADE_OF = "pieces", "made_of"
_SIZES = "sizes"  # the column of how many bytes each picture has
_SHUFFLED_RECORDS = 256  # a record has hundreds of kilobytes, which are in every checkpoint of an iterator
_NOTHING = Interleaved(np.zeros(0, np.int32), np.zeros(0, np.int32), [])


class PictureCorpusTask(CorpusTask):
    """Records of texts and pictures, as ids and as the pictures' bytes.

    Its examples are {"targets": [tokens] int32, "pieces": [2 P + 1] int32, see `interleaved`, "images": [P] strings, "made_of":
    string scalar, which says what made them}. Pictures that are codes are among the tokens, and not in "images".

    Its source gives records {"texts": [places] strings, "images": [places] strings}: places in their order, at each of which a
    text, or a picture, or a picture after a text; what is not there is empty. `picture` is what stands for a picture, with the
    tokenizer's own ids.
    """

    columns = types.MappingProxyType({PIECES: np.dtype(np.int32), _SIZES: np.dtype(np.int32), IMAGES: np.dtype(np.uint8)})

    def __init__(
        self,
        name: str,
        source: seqio.DataSource,
        vocabulary: seqio.Vocabulary,
        *,
        configuration: CorpusConfiguration,
        run: PictureRun | CodeRun,
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
            step=functools.partial(tokenize_pictures, run=run),
            shuffle_buffer_size=_SHUFFLED_RECORDS,
        )
        self.picture = run

    @functools.cached_property
    def run(self) -> PictureRun | CodeRun:
        """What stands for a picture, with SeqIO's ids. Opens the vocabulary."""
        return shifted(self.picture, id_shift(self.vocabulary))

    @functools.cached_property
    def tokenizer(self) -> seqio.Vocabulary:
        """The vocabulary, by which no text becomes a sentinel, a mode, or an id of a picture."""
        return _tokenizer(self.vocabulary, self.configuration, self.run)

    def encode(self, records: Sequence[Record]) -> Encoded:
        """See `CorpusTask.encode`. A record with a picture that cannot be decoded has a problem."""
        found, problems = [], []
        for record in records:
            texts, images, where = parsed(record.text)
            each, problem = _read(texts, images, where, record.problem, self.tokenizer, self.run)
            found.append(each)
            problems.append(problem)
        none = [b""] * len(records)
        are_whole = check_texts(describe_source(self.source), self.configuration.on_error, none, problems)
        encoded: list[Any] = [each.images for each in found]
        columns = {
            PIECES: _flat([each.pieces for each in found]),
            _SIZES: _flat([np.array([len(image) for image in each], np.int32) for each in encoded]),
            IMAGES: _flat([np.frombuffer(b"".join(each), np.uint8) for each in encoded]),
        }
        return Encoded(none, *_flat([each.tokens for each in found]), are_whole, columns)

    def read(self, split: str) -> Iterator[tuple[str, Interleaved, str]]:
        """The records of the source in their order: the place of each, what it is, and what is wrong with it, if anything is."""
        shards = len(self.source.list_shards(split))
        for shard in range(shards):
            for _, record in self.shard_records([split], shard, shards):
                texts, images, where = parsed(record.text)
                found, problem = _read(texts, images, where, record.problem, self.tokenizer, self.run)
                yield where.decode(errors="replace"), found, problem.decode(errors="replace")

    def shard_records(self, splits: Sequence[str], shard: int, num_shards: int) -> Iterator[tuple[str, Record]]:
        if isinstance(self.source, PictureSource):
            yield from super().shard_records(splits, shard, num_shards)
            return
        dataset = self.source.get_dataset(split=splits[0], shuffle=False, shard_info=seqio.ShardInfo(shard, num_shards))
        _check_features(dataset)
        for record in dataset.as_numpy_iterator():
            text = serialized(record[TEXTS].tolist(), record[IMAGES].tolist(), record.get(WHERE, b""))
            yield splits[0], Record(text, problem=record.get(PROBLEM, b"").decode(errors="replace"))

    def settings(self, source: str) -> dict[str, str]:
        return _settings(self.vocabulary, source, self.configuration, self.run)

    @property
    def made_of(self) -> str:
        """What decides the examples, in 16 hexadecimal digits."""
        return _made_of(self.vocabulary, self.configuration, self.run, self.source)

    def reads(self, split: str, use_cached: bool) -> str:
        """What a split is read from, in few words: others for another cache, or for a source that reads something else."""
        return f"cache: {cache.identity(self.cache_folder, split)}" if use_cached else reads(self.source, split)

    @property
    def read_as(self) -> tuple[str, dict[str, int]]:
        return super().read_as[0], {"inputs": 2048, "targets": 512}

    @property
    def is_for_t5x(self) -> bool:
        return isinstance(self.picture, CodeRun)

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
        manifest = cache.check(self.cache_dir, self, corpus_settings(self))
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
            raise ValueError(f"the cache {self.cache_dir} was not made by this package; write it anew")
        for example in examples.take(1):
            if (found := example[MADE_OF].numpy().decode()) != self.made_of:
                raise ValueError(
                    f"the cache {self.cache_dir} is of {found}, and {self.name!r} of {self.made_of}: its source, its vocabulary,"
                    " its special ids or its run of a picture are others; write it anew, or name another folder"
                )


def _stored(stores: Sequence[Store], numbers: np.ndarray) -> tuple[np.ndarray, ...]:
    """The tokens, the pieces and the pictures of one document."""
    (tokens, _), (pieces, _), (sizes, _) = (store.read_documents(numbers) for store in stores[:3])
    (held,) = stores[3].read_each(numbers)
    if pieces.sum() != len(tokens) or sizes.sum() != len(held):
        raise ValueError(
            f"document {numbers[0]} of {stores[0].prefixes[0]} .. has {len(tokens)} tokens in pieces of {pieces.sum()}, and"
            f" {len(held)} bytes of pictures of {sizes.sum()}: these files do not belong together; write the cache anew"
        )
    images = np.split(held, np.cumsum(sizes))[:-1]
    return tokens, pieces, np.array([image.tobytes() for image in images], object)


def images_feature() -> seqio.Feature:
    """Encoded pictures, any number of them in an example."""
    return seqio.Feature(seqio.PassThroughVocabulary(0), add_eos=False, dtype=tf.string, rank=1)


@no_autograph
def tokenize_pictures(
    dataset: tf.data.Dataset,
    output_features: Mapping[str, seqio.Feature],
    *,
    configuration: CorpusConfiguration,
    run: PictureRun | CodeRun,
    source: seqio.DataSource,
) -> tf.data.Dataset:
    """Reads each record, as a preprocessor of a SeqIO task. Its pictures are decoded once, so that none fails in training.

    The dataset is of {"texts", "images": [places] strings}, and where the source has them "where" and "problem", string scalars:
    the place of the record, and what is wrong with it. Gives what `PictureCorpusTask` says, without the records that are skipped.
    Iterating raises a tf.errors.OpError on a record with a problem, if they are to be raised.
    """
    vocabulary = output_features["targets"].vocabulary
    _check_features(dataset)
    run = shifted(run, id_shift(vocabulary))
    tokenizer, described = _tokenizer(vocabulary, configuration, run), describe_source(source)

    def read(texts: np.ndarray, images: np.ndarray, where: bytes, problem: bytes) -> tuple:
        found, wrong = _read(texts.tolist(), images.tolist(), where, problem.decode(errors="replace"), tokenizer, run)
        (is_whole,) = check_texts(described, configuration.on_error, [b""], [wrong])
        return found.tokens, found.pieces, np.array(found.images, object), is_whole

    def example(record: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        parts = [record[TEXTS], record[IMAGES], record.get(WHERE, tf.constant("")), record.get(PROBLEM, tf.constant(""))]
        *found, is_whole = python_op(read, parts, [tf.int32, tf.int32, tf.string, tf.bool])
        tokens, pieces, images = (tf.ensure_shape(each, [None]) for each in found)
        return {"targets": tokens, PIECES: pieces, IMAGES: images, MADE_OF: made_of, "is_whole": tf.ensure_shape(is_whole, [])}

    made_of = tf.constant(_made_of(vocabulary, configuration, run, source))
    examples = dataset.map(example, num_parallel_calls=tf.data.AUTOTUNE).filter(lambda example: example["is_whole"])
    return examples.map(lambda example: {key: value for key, value in example.items() if key != "is_whole"})


def _check_features(dataset: tf.data.Dataset) -> None:
    if missing := sorted({TEXTS, IMAGES} - dataset.element_spec.keys()):
        raise ValueError(
            f"the source has the features {sorted(dataset.element_spec)}, expected texts and images; {missing} missing"
        )


def _tokenizer(vocabulary: seqio.Vocabulary, configuration: CorpusConfiguration, run: PictureRun | CodeRun) -> seqio.Vocabulary:
    return text_vocabulary(vocabulary, configuration.special_tokens.ids(vocabulary) | set(run.ids))


def _read(
    texts: Sequence[bytes],
    images: Sequence[bytes],
    where: bytes,
    problem: str,
    tokenizer: seqio.Vocabulary,
    run: PictureRun | CodeRun,
) -> tuple[Interleaved, bytes]:
    """A record as ids and as the pictures that go along; and what is wrong with it, empty where nothing is."""
    try:
        if problem:
            raise ValueError(problem)
        found = interleaved(_plan(texts, images), tokenizer.encode, run)
        if isinstance(run, CodeRun):
            return found._replace(images=[]), b""
        for image in found.images:
            pixels(image)
        return found, b""
    except NOT_OF_RECORDS:
        raise
    except Exception as error:
        place = where.decode(errors="replace") or "a record"
        return _NOTHING, f"{place}: {sentence_of(error)}".encode(errors="replace")


def _flat(arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Arrays one after the other, and how many values each has."""
    return np.concatenate(arrays), np.array([len(array) for array in arrays], np.int64)


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


def _settings(
    vocabulary: seqio.Vocabulary, source: str, configuration: CorpusConfiguration, run: PictureRun | CodeRun
) -> dict[str, str]:
    return {**settings(vocabulary, source, configuration), "run": repr(run), "version": str(PICTURE_VERSION)}


def _made_of(
    vocabulary: seqio.Vocabulary, configuration: CorpusConfiguration, run: PictureRun | CodeRun, source: seqio.DataSource
) -> str:
    identity = source_identity(source) or f"{describe_source(source)}, which cannot tell what it reads"
    return digest(_settings(vocabulary, identity, configuration, run))
