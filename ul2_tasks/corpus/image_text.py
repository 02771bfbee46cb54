"""`ImageTexts`: interleaved image-text data, whose cache has both."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from ul2_tasks.corpus.check_texts import find_problems
from ul2_tasks.corpus.corpus import Corpus, Encoded
from ul2_tasks.example_features import IMAGES
from ul2_tasks.images.elements import Element, Image, Text
from ul2_tasks.images.interleaved import ImageTokens, Interleaved, interleaved
from ul2_tasks.images.pixels import pixels
from ul2_tasks.images.problems import check_of_record, sentence_of
from ul2_tasks.sources.image_examples import parsed, serialized
from ul2_tasks.sources.records import Record
from ul2_tasks.store.columns import TOKENS
from ul2_tasks.tokenizers.base import Vocabulary

IMAGE_TEXT_VERSION = 1  # raised whenever the same records give other tokens
PIECES, SIZES = "pieces", "sizes"  # columns: see `Interleaved.pieces`, and how many bytes each image has
_NOTHING = Interleaved(np.zeros(0, np.int32), np.zeros(0, np.int32), [])


@dataclasses.dataclass(frozen=True)
class ImageTexts:
    """The `Encoder` of records of texts and images: ids, and the images' bytes.

    `image_tokens` is what stands for an image, with the tokenizer's own ids.
    """

    image_tokens: ImageTokens

    columns: ClassVar[Mapping[str, np.dtype]] = {
        PIECES: np.dtype(np.int32),
        SIZES: np.dtype(np.int32),
        IMAGES: np.dtype(np.uint8),
    }
    counts_ids = False
    read_as: ClassVar[tuple[str, dict[str, int]]] = ("mix", {"inputs": 2048, "targets": 512})

    def encode(self, corpus: Corpus, records: Sequence[Record]) -> Encoded:
        """See `Encoder.encode`. A record with an image that cannot be decoded is no document."""
        found, problems = [], []
        for _, each, problem in self.read(corpus, records):
            found.append(each)
            problems.append(problem)
        problems = find_problems(corpus.configuration.on_error, [b""] * len(records), problems)
        encoded: list[Any] = [each.images for each in found]
        columns = {
            TOKENS: _flat([each.tokens for each in found]),
            PIECES: _flat([each.pieces for each in found]),
            SIZES: _flat([np.array([len(image) for image in each], np.int32) for each in encoded]),
            IMAGES: _flat([np.frombuffer(b"".join(each), np.uint8) for each in encoded]),
        }
        return Encoded(columns, problems)

    def read(self, corpus: Corpus, records: Iterable[Record]) -> Iterator[tuple[str, Interleaved, bytes]]:
        """The place of each record, what it is, with the vocabulary's ids, and what is wrong with it, if anything is."""
        tokenizer, image_tokens = corpus.tokenizer, checked(self.image_tokens, corpus.vocabulary)
        for record in records:
            texts, images, where = parsed(record.text)
            found, problem = read_record(texts, images, where, record.problem, tokenizer, image_tokens)
            yield where.decode(errors="replace"), found, problem

    def hashed(self, record: Record) -> bytes:
        """The texts and the images in their places, without the place of the record."""
        texts, images, _ = parsed(record.text)
        return serialized(texts, images, b"")

    def own_ids(self, vocabulary: Vocabulary) -> frozenset[int]:
        return frozenset(checked(self.image_tokens, vocabulary).ids)

    def settings(self, vocabulary: Vocabulary) -> dict[str, str]:
        return {"run": repr(checked(self.image_tokens, vocabulary)), "version": str(IMAGE_TEXT_VERSION)}


def checked(image_tokens: ImageTokens, vocabulary: Vocabulary) -> ImageTokens:
    """What stands for an image. Opens the vocabulary, and raises a ValueError where ids are beyond it."""
    if max(image_tokens.ids) >= vocabulary.vocab_size:
        raise ValueError(
            f"image_tokens must have ids below {vocabulary.vocab_size}, the size of the vocabulary, got"
            f" {max(image_tokens.ids)}. Pass ids that no text needs, or a larger vocabulary."
        )
    return image_tokens


def read_record(
    texts: Sequence[bytes],
    images: Sequence[bytes],
    where: bytes,
    problem: str,
    tokenizer: Vocabulary,
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
