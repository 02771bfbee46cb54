"""Which documents of a store have n-grams of many texts, all of which are looked for at once.

    document    a b c d e f g | h i j k l m n | o p q ..      blocks of q tokens, one every s tokens, where q + s - 1 = n
    a run       . . . d e f g   h i j k l m n   o p . ..      has a whole block, if it has n tokens
    texts       .. c d e f g h i j k l m n o ..               all of their parts of q tokens are in tables, by their hashes

So one look in the tables for every s tokens finds all n-grams. Nearly all blocks are in no text, and end at a table of bits, which
stays in the processor's cache. What a block is part of is compared token by token, as far as it is the same to both sides: no hash
is trusted, and each run is found by its first block alone.

Runs do not cross documents. Each thread scans documents of some million tokens, without Python. Texts of fewer than n tokens are
looked for whole, by shorter blocks.
"""

from __future__ import annotations

import collections
import dataclasses
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from typing import NamedTuple

import numpy as np

from ul2_tasks.compiled import compiled
from ul2_tasks.order.permutation import GOLDEN
from ul2_tasks.store.block_cache import is_remote
from ul2_tasks.store.read import TokenStore

_REMOTE_THREADS = 16  # they wait for requests
_TOKENS_AT_A_TIME = 1 << 21
_DOCUMENTS_AT_A_TIME = 1 << 20
_MOST_TOKENS = 12  # of a block
_STEP = 0.4  # of an n-gram: with a longer one there are fewer blocks, and with a shorter one fewer that are in a text by chance
_BITS_EACH = 16  # of the table of bits, for each part of a text; the next power of 2
_MOST_BITS = 26
_BASE, _SPREAD = np.uint64(GOLDEN), np.uint64(0xD1342543DE82EF95)  # odd numbers


class Overlaps(NamedTuple):
    """Documents that share n-grams with texts, [m] int64 each: the document, the text, how many of its n-grams, the longest run.

    N-grams of a text are counted by their places in it, and the run is in tokens. Documents ascend.
    """

    documents: np.ndarray
    texts: np.ndarray
    ngrams: np.ndarray
    longest: np.ndarray


class _Table(NamedTuple):
    """Parts of texts as they are looked for, see `_scan`."""

    size: int  # q
    step: int  # s
    bits: np.ndarray  # [2**b / 64] uint64
    shift: np.uint64  # 64 - b
    keys: np.ndarray  # [2**k] uint64, the hash in each slot
    slots: np.ndarray  # [2**k] int64, the number of this hash, or -1
    slot_shift: np.uint64  # 64 - k
    firsts: np.ndarray  # [hashes + 1] int64, where the places of each hash begin
    places: np.ndarray  # [places] int64, where parts are among `tokens`
    tokens: np.ndarray  # [T] int32, of all texts
    text_of: np.ndarray  # [T] int64
    starts: np.ndarray  # [texts + 1] int64, where texts begin among `tokens`
    needed: np.ndarray  # [texts] int64, how many tokens in a row have to be the same


@dataclasses.dataclass(frozen=True)
class Texts:
    """Texts to look for by their n-grams, n from 2; those of fewer than n tokens whole. Each is [tokens] integers, at least one."""

    tokens: Sequence[np.ndarray]
    n: int

    @property
    def counts(self) -> np.ndarray:
        """[texts] int64, how many n-grams each text has; a text that is looked for whole has one."""
        return np.array([max(1, len(each) - self.n + 1) for each in self.tokens], np.int64)

    def overlaps(self, store: TokenStore, advance: Callable[[int], None] = lambda more: None) -> Iterator[Overlaps]:
        """Yields the documents of a store that share n-grams with these texts, in order. `advance` is told of tokens read."""
        lengths = np.array([len(each) for each in self.tokens], np.int64)
        needed = np.minimum(lengths, self.n)
        chosen = [np.flatnonzero(needed == self.n), np.flatnonzero(needed < self.n)]
        tables = [_table(self.tokens, numbers, needed) for numbers in chosen if len(numbers)]
        of_thread = threading.local()

        def look(part: _Part) -> tuple[Overlaps, int]:
            if not hasattr(of_thread, "states"):
                of_thread.states = [_state(table) for table in tables]
            values = store.read_values(part.start, part.start + int(part.ends[-1])).view()
            values.flags.writeable = False  # as those of a memory map are, so that the loop is compiled once
            found = [_scan(values, part.ends, part.first, *table, *state) for table, state in zip(tables, of_thread.states)]
            joined = np.concatenate(found)
            return Overlaps(*joined[np.argsort(joined[:, 0], kind="stable")].T), len(values)

        threads = max(os.cpu_count() or 1, _REMOTE_THREADS if is_remote(store) else 1)
        with futures.ThreadPoolExecutor(threads) as pool:
            waiting: collections.deque[futures.Future[tuple[Overlaps, int]]] = collections.deque()
            for part in _parts(store) if tables else ():
                waiting.append(pool.submit(look, part))
                if len(waiting) > 2 * threads:
                    yield _next(waiting, advance)
            while waiting:
                yield _next(waiting, advance)


class _Part(NamedTuple):
    """Whole documents of a pair: the number of the first, the token where they start, and where each ends after it."""

    first: int
    start: int
    ends: np.ndarray


def _next(waiting: collections.deque[futures.Future[tuple[Overlaps, int]]], advance: Callable[[int], None]) -> Overlaps:
    found, looked = waiting.popleft().result()
    advance(looked)
    return found


def _parts(store: TokenStore) -> Iterator[_Part]:
    """The documents of a store, some million tokens at a time, or one long document."""
    start = 0
    for first in range(0, store.documents, _DOCUMENTS_AT_A_TIME):
        lengths = store.document_lengths(first, min(first + _DOCUMENTS_AT_A_TIME, store.documents))
        ends = np.cumsum(lengths, dtype=np.int64)
        begun = before = 0
        while begun < len(ends):
            stop = max(begun + 1, int(np.searchsorted(ends, before + _TOKENS_AT_A_TIME, side="right")))
            if ends[stop - 1] > before:
                yield _Part(first + begun, start + before, ends[begun:stop] - before)
            begun, before = stop, int(ends[stop - 1])
        start += before


def _state(table: _Table) -> tuple[np.ndarray, ...]:
    """What a thread keeps while it scans, see `_scan`. No document has number -1."""
    texts = len(table.needed)
    return np.full(len(table.tokens), -1, np.int64), *(np.zeros(texts, np.int64) for _ in range(3))


def _table(texts: Sequence[np.ndarray], numbers: np.ndarray, needed: np.ndarray) -> _Table:
    """The parts of the texts of these numbers, of which `needed`, [texts] int64, is how many tokens in a row have to be there."""
    tokens = np.concatenate([np.asarray(texts[number], np.int32) for number in numbers.tolist()])
    lengths = np.zeros(len(texts), np.int64)
    lengths[numbers] = [len(texts[number]) for number in numbers.tolist()]
    starts = np.cumsum([0, *lengths])
    text_of = np.repeat(np.arange(len(texts)), lengths)
    least = int(needed[numbers].min())
    size = min(least + 1 - max(1, int(_STEP * (least + 1))), _MOST_TOKENS)
    places = np.flatnonzero(np.arange(len(tokens)) + size <= starts[text_of + 1])
    hashes = _hashes(tokens, places, size)
    order = np.argsort(hashes, kind="stable")
    places, hashes = places[order], hashes[order]
    firsts = np.flatnonzero(np.concatenate([[True], hashes[1:] != hashes[:-1], [True]]))
    hashes = hashes[firsts[:-1]]
    bits, slots = min(max(16, (_BITS_EACH * len(hashes)).bit_length()), _MOST_BITS), max(4, (2 * len(hashes)).bit_length())
    of_bits, keys = np.zeros(1 << (bits - 6), np.uint64), np.zeros(1 << slots, np.uint64)
    of_slots, shift, slot_shift = np.full(1 << slots, -1, np.int64), np.uint64(64 - bits), np.uint64(64 - slots)
    _fill(hashes, of_bits, shift, keys, of_slots, slot_shift)
    by_hash = firsts, places, tokens, text_of, starts, needed
    return _Table(size, least - size + 1, of_bits, shift, keys, of_slots, slot_shift, *by_hash)


@compiled
def _hashes(tokens, places, size):
    """[m] uint64, the hash of so many tokens at each place."""
    found = np.zeros(len(places), np.uint64)
    for number in range(len(places)):
        hash = np.uint64(0)
        for token in tokens[places[number] : places[number] + size]:
            hash = hash * _BASE + np.uint64(token)
        found[number] = hash * _SPREAD
    return found


@compiled
def _fill(hashes, bits, shift, keys, slots, slot_shift):
    """Enters hashes, all different, into both tables, see `_Table`."""
    for number in range(len(hashes)):
        bit = np.int64(hashes[number] >> shift)
        bits[bit >> 6] |= np.uint64(1) << np.uint64(bit & 63)
        slot = np.int64(hashes[number] >> slot_shift)
        while slots[slot] >= 0:
            slot = (slot + 1) & (len(slots) - 1)
        keys[slot], slots[slot] = hashes[number], number


@compiled
def _scan(
    values, ends, first, size, step, bits, shift, keys, slots, slot_shift, firsts, places, tokens, text_of, starts, needed,
    seen, counts, longest, touched,
):  # fmt: skip
    """Finds the parts of a `_Table` in documents: [m, 4] int64, the columns of `Overlaps`.

    `values`, [tokens] integers, are those of documents that end at `ends`, [documents] int64; `first` is the number of the first.
    The state is, of each place of a text, the last document that has the n-gram there, `seen`; and of the texts of a document
    `counts`, which are 0 between documents, `longest` and which these are, `touched`.
    """
    found, rows, start = np.empty((64, 4), np.int64), 0, np.int64(0)
    for number in range(len(ends)):
        end, document, texts = ends[number], first + number, 0
        for begin in range(start, end - size + 1, step):
            hash = np.uint64(0)
            for token in range(begin, begin + size):
                hash = hash * _BASE + np.uint64(values[token])
            hash *= _SPREAD
            bit = hash >> shift
            if not (bits[np.int64(bit >> np.uint64(6))] >> (bit & np.uint64(63))) & np.uint64(1):
                continue
            slot = np.int64(hash >> slot_shift)
            while slots[slot] >= 0 and keys[slot] != hash:
                slot = (slot + 1) & (len(slots) - 1)
            if slots[slot] < 0:
                continue
            for place in places[firsts[slots[slot]] : firsts[slots[slot] + 1]]:
                text = text_of[place]
                # How many tokens are the same: those of the block, before it, and after it.
                same = 0
                while same < size and np.int64(tokens[place + same]) == np.int64(values[begin + same]):
                    same += 1
                before, most = 0, min(place - starts[text], begin - start, step)
                while before < most and np.int64(tokens[place - before - 1]) == np.int64(values[begin - before - 1]):
                    before += 1
                if same < size or before == step:  # then the block before is in the same run
                    continue
                most = min(starts[text + 1] - place, end - begin)
                while same < most and np.int64(tokens[place + same]) == np.int64(values[begin + same]):
                    same += 1
                run = before + same
                if run < needed[text]:
                    continue
                if counts[text] == 0:
                    longest[text], touched[texts] = 0, text
                    texts += 1
                longest[text] = max(longest[text], run)
                for ngram in range(place - before, place + same - needed[text] + 1):
                    counts[text] += seen[ngram] != document
                    seen[ngram] = document
        if rows + texts > len(found):
            more = np.empty((max(2 * len(found), rows + texts), 4), np.int64)
            more[:rows] = found[:rows]
            found = more
        for text in touched[:texts]:
            found[rows, 0], found[rows, 1], found[rows, 2], found[rows, 3] = document, text, counts[text], longest[text]
            counts[text] = 0
            rows += 1
        start = end
    return found[:rows]
