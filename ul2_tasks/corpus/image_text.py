"""`ImageTextCorpus`: interleaved image-text data, whose cache has both."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ul2_tasks.cached import cached_property
from ul2_tasks.corpus import cache
from ul2_tasks.corpus.check_texts import find_problems
from ul2_tasks.corpus.configuration import CorpusConfiguration, digest, settings
from ul2_tasks.corpus.corpus import Corpus, Described, Encoded
from ul2_tasks.corpus.identity import describe_source, reads, source_identity
from ul2_tasks.example_features import IMAGES
from ul2_tasks.images.elements import Element, Image, Text
from ul2_tasks.images.interleaved import ImageTokens, Interleaved, interleaved, shifted
from ul2_tasks.images.pixels import pixels
from ul2_tasks.images.problems import check_of_record, sentence_of
from ul2_tasks.sources.base import RecordSource
from ul2_tasks.sources.image_examples import parsed, serialized
from ul2_tasks.sources.of_seqio import SeqioImageText
from ul2_tasks.sources.records import Record
from ul2_tasks.store.columns import TOKENS
from ul2_tasks.vocabulary.special_ids import id_shift, text_vocabulary

if TYPE_CHECKING:
    import seqio

IMAGE_TEXT_VERSION = 1  # raised whenever the same records give other tokens
PIECES, SIZES = "pieces", "sizes"  # columns: see `Interleaved.pieces`, and how many bytes each image has
_NOTHING = Interleaved(np.zeros(0, np.int32), np.zeros(0, np.int32), [])


class ImageTextCorpus(Corpus):
    """Records of texts and images, as ids and as the images' bytes: as they are described, or as the SeqIO task `NAME_corpus`.

    `image_tokens` is what stands for an image, with the tokenizer's own ids.
    """

    columns = types.MappingProxyType({PIECES: np.dtype(np.int32), SIZES: np.dtype(np.int32), IMAGES: np.dtype(np.uint8)})

    image_tokens: ImageTokens

    @cached_property
    def seqio_image_tokens(self) -> ImageTokens:
        """What stands for an image, with SeqIO's ids. Opens the vocabulary, and raises a ValueError where ids are beyond it."""
        vocabulary, shift = self.vocabulary, id_shift(self.vocabulary)
        if max(self.image_tokens.ids) >= vocabulary.vocab_size - shift:
            raise ValueError(
                f"image_tokens must have ids below {vocabulary.vocab_size - shift}, the size of the vocabulary, got"
                f" {max(self.image_tokens.ids)}. Pass ids that no text needs, or a larger vocabulary."
            )
        return shifted(self.image_tokens, shift)

    @cached_property
    def tokenizer(self) -> seqio.Vocabulary:
        """The vocabulary, by which no text becomes a sentinel, a mode, or an id of an image."""
        return tokenizer_of(self.vocabulary, self.configuration, self.seqio_image_tokens)

    def encode(self, records: Sequence[Record]) -> Encoded:
        """See `Corpus.encode`. A record with an image that cannot be decoded has a problem."""
        found, problems = [], []
        for record in records:
            texts, images, where = parsed(record.text)
            each, problem = read_record(texts, images, where, record.problem, self.tokenizer, self.seqio_image_tokens)
            found.append(each)
            problems.append(problem)
        problems = find_problems(self.configuration.on_error, [b""] * len(records), problems)
        encoded: list[Any] = [each.images for each in found]
        columns = {
            TOKENS: _flat([each.tokens for each in found]),
            PIECES: _flat([each.pieces for each in found]),
            SIZES: _flat([np.array([len(image) for image in each], np.int32) for each in encoded]),
            IMAGES: _flat([np.frombuffer(b"".join(each), np.uint8) for each in encoded]),
        }
        return Encoded(columns, problems)

    def hashed(self, record: Record) -> bytes:
        """The texts and the images in their places, without the place of the record."""
        texts, images, _ = parsed(record.text)
        return serialized(texts, images, b"")

    def read(self, split: str) -> Iterator[tuple[str, Interleaved, str]]:
        """The records of the source in their order: the place of each, what it is, and what is wrong with it, if anything is."""
        for shard in self.reader.shards(split):
            for record in self.reader.read(shard):
                texts, images, where = parsed(record.text)
                found, problem = read_record(texts, images, where, record.problem, self.tokenizer, self.seqio_image_tokens)
                yield where.decode(errors="replace"), found, problem.decode(errors="replace")

    @property
    def reader(self) -> RecordSource:
        return self.source if isinstance(self.source, RecordSource) else SeqioImageText(self.source)

    def settings(self, source: str) -> dict[str, str]:
        return _settings(self.vocabulary, source, self.configuration, self.seqio_image_tokens)

    @property
    def made_of(self) -> str:
        """What decides the examples, in 16 hexadecimal digits."""
        return made_of(self.vocabulary, self.configuration, self.seqio_image_tokens, self.source)

    def reads(self, split: str, use_cached: bool) -> str:
        """What a split is read from, in few words: others for another cache, or for a source that reads something else."""
        return f"cache: {cache.identity(self.cache_folder, split)}" if use_cached else reads(self.source, split)

    @property
    def read_as(self) -> tuple[str, dict[str, int]]:
        return super().read_as[0], {"inputs": 2048, "targets": 512}


@dataclasses.dataclass(frozen=True, eq=False)
class DescribedImageText(ImageTextCorpus, Described):
    """Interleaved image-text data as they are described."""

    name: str
    source: seqio.DataSource
    vocabulary: seqio.Vocabulary
    configuration: CorpusConfiguration
    image_tokens: ImageTokens
    cache_dirs: tuple[str, ...] = ()


def tokenizer_of(vocabulary: seqio.Vocabulary, configuration: CorpusConfiguration, image_tokens: ImageTokens) -> seqio.Vocabulary:
    """The vocabulary, by which no text becomes a sentinel, a mode, or an id of an image."""
    return text_vocabulary(vocabulary, configuration.special_tokens.ids(vocabulary) | set(image_tokens.ids))


def read_record(
    texts: Sequence[bytes],
    images: Sequence[bytes],
    where: bytes,
    problem: str,
    tokenizer: seqio.Vocabulary,
    image_tokens: ImageTokens,
) -> tuple[Interleaved, bytes]:
    """A record as ids and as the images that go along; and what is wrong with it, empty where nothing is."""
    try:
        if problem:
            raise ValueError(problem)
        found = interleaved(_plan(texts, images), tokenizer.encode, image_tokens)
        for image in found.images:
            pixels(image)
        return found, b""
    except Exception as error:
        place = where.decode(errors="replace") or "a record"
        check_of_record(error, place)
        return _NOTHING, f"{place}: {sentence_of(error)}".encode(errors="replace")


def _flat(arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Arrays one after the other, and how many values each has."""
    return np.concatenate(arrays), np.array([len(array) for array in arrays], np.int64)


def _plan(texts: Sequence[bytes], images: Sequence[bytes]) -> list[Element]:
    if len(texts) != len(images):
        raise ValueError(f"texts and images must be of one length, got {len(texts)} and {len(images)}.")
    layout: list[Element] = []
    for number, (text, image) in enumerate(zip(texts, images)):
        layout += [Text(_decoded(text, number))] if text else []
        layout += [Image(image, "vit")] if image else []
    return layout


def _decoded(text: bytes, number: int) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"texts[{number}] must be UTF-8, got {text[:40]!r}.") from error


def _settings(
    vocabulary: seqio.Vocabulary, source: str, configuration: CorpusConfiguration, image_tokens: ImageTokens
) -> dict[str, str]:
    return {**settings(vocabulary, source, configuration), "run": repr(image_tokens), "version": str(IMAGE_TEXT_VERSION)}


def made_of(
    vocabulary: seqio.Vocabulary,
    configuration: CorpusConfiguration,
    image_tokens: ImageTokens,
    source: seqio.DataSource,
) -> str:
    """What decides the examples, in 16 hexadecimal digits."""
    identity = source_identity(source) or f"{describe_source(source)}, which cannot tell what it reads"
    return digest(_settings(vocabulary, identity, configuration, image_tokens))
