"""Records of texts and images with random access: in a cache, or in memory."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Sequence

import numpy as np

from ul2_tasks.store.block_cache import BlockCache, Blocks, is_remote
from ul2_tasks.store.read import MemoryStore, Store


@dataclasses.dataclass(frozen=True)
class StoredImages:
    """Images in a cache: how many bytes each image of a record has, and these bytes, one image's after the other's.

    `caches` are those of both, if they are read in blocks.
    """

    sizes: Store
    images: Store
    caches: tuple[BlockCache, ...] = ()

    def read(self, numbers: np.ndarray) -> list[list[bytes]]:
        """The images of records, encoded."""
        of_sizes, of_images = self.caches or (self.sizes, self.images)
        sizes, counts = of_sizes.read_documents(numbers)
        of_each = np.split(sizes, np.cumsum(counts)[:-1]) if len(counts) else []
        read = []
        for number, own, held in zip(numbers.tolist(), of_each, of_images.read_each(numbers)):
            if own.sum() != len(held):
                raise not_together(self.images, number, f"{own.sum()} bytes of images", len(held))
            stops = np.cumsum(own).tolist()
            read.append([held[start:stop].tobytes() for start, stop in zip([0, *stops], stops)])
        return read


@dataclasses.dataclass(frozen=True)
class ImagesInMemory:
    """Images in memory, those of each record."""

    images: Sequence[list[bytes]]

    def read(self, numbers: np.ndarray) -> list[list[bytes]]:
        """See `StoredImages`."""
        return [self.images[number] for number in numbers.tolist()]


@dataclasses.dataclass(frozen=True)
class ImageTextRecords:
    """Records in pieces, see `interleaved`. Ids are the tokenizer's own.

    `tokens` and `pieces` have a document for each record. `places` are the locations of the records, as far as they are known:
    those of a cache are its shards, and how many records are in each. `cache` is that of the tokens, if they are read in blocks.
    """

    tokens: Store | MemoryStore
    pieces: Store | MemoryStore
    images: StoredImages | ImagesInMemory
    places: Sequence[str]
    cache: BlockCache | None = None

    @property
    def count(self) -> int:
        """How many records there are."""
        return self.pieces.documents

    @property
    def identity(self) -> str:
        """What the records in memory are, in few words: others for other records."""
        if isinstance(self.images, StoredImages):
            return f"{self.count} records of a cache"
        found = hashlib.sha256(repr([self.tokens.documents, self.tokens.tokens, self.pieces.tokens]).encode())
        for store in (self.tokens, self.pieces):
            found.update(store.document_lengths(0, store.documents).astype("<i8").tobytes())
            found.update(store.read_tokens(0, store.tokens).astype("<i4").tobytes())
        for image in itertools.chain.from_iterable(self.images.images):
            found.update(hashlib.sha256(image).digest())
        return f"{self.count} records in memory, sha256 {found.hexdigest()[:16]}"

    @property
    def caches(self) -> tuple[BlockCache, ...]:
        """All that is read in blocks."""
        own = () if self.cache is None else (self.cache,)
        return (*own, *self.images.caches) if isinstance(self.images, StoredImages) else own

    def in_blocks(self, firsts: np.ndarray, lasts: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> ImageTextRecords:
        """The same records, whose tokens are read in blocks [starts, stops), and whose images in blocks of records.

        All four are [blocks] int64: the records firsts to lasts have what is read of a block. Records of a local cache stay as they
        are.
        """
        if not isinstance(self.tokens, Store) or not isinstance(self.images, StoredImages) or not is_remote(self.tokens):
            return self
        of_images = []
        for store in (self.images.sizes, self.images.images):
            (begins, _), (_, ends) = store.ranges_of(firsts), store.ranges_of(lasts)
            of_images.append(BlockCache(store, Blocks(begins, ends)))
        return dataclasses.replace(
            self,
            images=dataclasses.replace(self.images, caches=tuple(of_images)),
            cache=BlockCache(self.tokens, Blocks(starts, stops)),
        )

    def locate(self, number: int) -> str:
        """The location of a record, as text."""
        if isinstance(self.pieces, MemoryStore):
            return self.places[number] or f"record {number}"
        borders = self.pieces.borders
        shard = int(np.searchsorted(borders, number, side="right")) - 1
        place = f"record {number} of the cache, number {number - int(borders[shard]) + 1} of {self.places[shard]}"
        return f"{place}, which is of {self.tokens.provenance.of([number])[0]}" if self.tokens.provenance else place

    def read_pieces(self, number: int) -> list[int]:
        """The pieces of a record."""
        start, stop = self.pieces.tokens_of(number)
        return self.pieces.read_tokens(start, stop).tolist()

    def read_tokens(self, number: int) -> np.ndarray:
        """The tokens of a record."""
        return self.tokens.read_tokens(*self.tokens.tokens_of(number))


def not_together(store: Store, number: int, expected: str, got: int) -> ValueError:
    """What is said of a column that is another cache's."""
    return ValueError(
        f"record {number} of {store.prefixes[0]} .. must have {expected}, got {got}: these files do not belong together. Write the"
        " cache again."
    )
