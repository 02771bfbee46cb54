"""`ImageTextCorpus`: interleaved image-text data, whose cache has both."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ul2_tasks.cached import cached_property
from ul2_tasks.corpus import cache
from ul2_tasks.corpus.check_texts import check_texts
from ul2_tasks.corpus.configuration import CorpusConfiguration, digest, settings
from ul2_tasks.corpus.corpus import Corpus, Described, Encoded, corpus_settings
from ul2_tasks.corpus.identity import describe_source, reads, source_identity
from ul2_tasks.corpus.image_text_records import ImagesInMemory, ImageTextRecords, StoredImages
from ul2_tasks.corpus.token_batches import TokenBatch, tokenize_records
from ul2_tasks.example_features import IMAGES
from ul2_tasks.images.elements import Element, Image, Text
from ul2_tasks.images.interleaved import ImageTokens, Interleaved, interleaved, shifted
from ul2_tasks.images.pixels import pixels
from ul2_tasks.images.problems import check_of_record, sentence_of
from ul2_tasks.scalars import check_split
from ul2_tasks.sources.base import RecordSource
from ul2_tasks.sources.image_examples import parsed, serialized
from ul2_tasks.sources.of_seqio import SeqioImageText
from ul2_tasks.sources.records import Record
from ul2_tasks.store.read import MemoryStore
from ul2_tasks.vocabulary.special_ids import id_shift, text_vocabulary

if TYPE_CHECKING:
    import seqio

IMAGE_TEXT_VERSION = 1  # raised whenever the same records give other tokens
PIECES = "pieces"
_SIZES = "sizes"  # the column of how many bytes each image has
MOST_BYTES_IN_MEMORY = 1 << 31  # of a corpus without a cache
_NOTHING = Interleaved(np.zeros(0, np.int32), np.zeros(0, np.int32), [])


class ImageTextCorpus(Corpus):
    """Records of texts and images, as ids and as the images' bytes: as they are described, or as the SeqIO task `NAME_corpus`.

    `image_tokens` is what stands for an image, with the tokenizer's own ids.
    """

    columns = types.MappingProxyType({PIECES: np.dtype(np.int32), _SIZES: np.dtype(np.int32), IMAGES: np.dtype(np.uint8)})

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
        none = [b""] * len(records)
        are_whole = check_texts(describe_source(self.source), self.configuration.on_error, none, problems)
        encoded: list[Any] = [each.images for each in found]
        columns = {
            PIECES: _flat([each.pieces for each in found]),
            _SIZES: _flat([np.array([len(image) for image in each], np.int32) for each in encoded]),
            IMAGES: _flat([np.frombuffer(b"".join(each), np.uint8) for each in encoded]),
        }
        return Encoded(none, *_flat([each.tokens for each in found]), are_whole, columns, problems)

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

    def all_records(self, split: str, use_cached: bool) -> ImageTextRecords:
        """The records of a split: of the cache, or tokenized into memory.

        Raises a ValueError where there are too many for memory; and where the cache is missing, incomplete, of another corpus, or
        SeqIO's own.
        """
        check_split(split, self.splits, self.name)
        if not use_cached:
            return self._records_in_memory(split)
        manifest = cache.check_stored(self.cache_folder, self, corpus_settings(self))
        cache.check_documents(self.cache_folder, split, manifest, num_shards=1)
        stores = (cache.open_store(self.cache_folder, manifest, split, column) for column in (None, *self.columns))
        tokens, pieces, sizes, images = stores
        shards = [shard["shard"] for shard in manifest["splits"][split]["shards"] if shard["documents"]]
        return ImageTextRecords(tokens, pieces, StoredImages(sizes, images), shards)

    def _records_in_memory(self, split: str) -> ImageTextRecords:
        found: dict[str | None, list[tuple[np.ndarray, np.ndarray]]] = {column: [] for column in (None, *self.columns)}
        places: list[str] = []
        held = 0
        for batch in self._tokenized(split):
            for column, parts in found.items():
                values, lengths = batch.columns[column] if column else (batch.tokens, batch.lengths)
                parts.append((values, lengths[batch.are_whole]))  # a record that is skipped has no values
            whole = np.flatnonzero(batch.are_whole).tolist()
            places += [parsed(batch.records[number].text)[2].decode(errors="replace") for number in whole]
            held += 4 * len(batch.tokens) + len(batch.columns[IMAGES][0])
            if held > MOST_BYTES_IN_MEMORY:
                raise ValueError(
                    f"{self.name!r} must have at most {MOST_BYTES_IN_MEMORY:,} bytes of tokens and images in split {split!r} to be"
                    " read into memory, but has more. Write its cache first, with `ul2 cache`, and name its folder."
                )
        dtypes = [np.dtype(np.int32), *self.columns.values()]
        tokens, pieces, (sizes, counts), (images, _) = map(_joined, dtypes, found.values())
        each = _parted(images.tobytes(), sizes)
        return ImageTextRecords(MemoryStore(*tokens), MemoryStore(*pieces), ImagesInMemory(_parted(each, counts)), places)

    def _tokenized(self, split: str) -> Iterator[TokenBatch]:
        for shard in self.reader.shards(split):
            yield from tokenize_records(self, self.reader.read_group(shard))

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


def _joined(dtype: np.dtype, parts: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """The values of all parts, and the lengths of all, int64. There may be no part."""
    values, lengths = zip((np.zeros(0, dtype), np.zeros(0, np.int64)), *parts)
    return np.concatenate(values), np.concatenate(lengths)


def _parted(values: Any, lengths: np.ndarray) -> list[Any]:
    """The parts of these lengths of bytes or of a list."""
    stops = np.cumsum(lengths).tolist()
    return [values[start:stop] for start, stop in zip([0, *stops], stops)]


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
