"""A keyed pseudo-random permutation of 0 .. size - 1, computed for any places alone: no table, no memory, no state.

A Feistel network permutes the numbers of an even count of bits: it splits a number in two halves, and in each round adds a keyed
hash of one half to the other. (Luby and Rackoff, 1988: four rounds of a random function cannot be told from a random permutation;
here it is six of a mixing one.) The size of a corpus is no power of four. So a number that falls beyond the size is permuted again,
until it falls within: *cycle walking* (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002). The power of four that
is at least the size is less than four times the size, so less than four passes are needed on average.

>>> permute(np.arange(10), 10, key=1)
array([0, 1, 6, 3, 7, 2, 9, 8, 4, 5])
>>> invert(permute(np.arange(10), 10, key=1), 10, key=1)
array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
"""

from __future__ import annotations

import numpy as np

_ROUNDS = 6
_GOLDEN = 0x9E3779B97F4A7C15  # 2**64 over the golden ratio: SplitMix64's step
_64 = (1 << 64) - 1


def permute(places: np.ndarray, size: int, key: int) -> np.ndarray:
    """Which number stands at each place of the permutation.

    Args:
        places: [..] integers from 0 to size - 1.
        size: how many numbers are permuted, from 1 to 2**62.
        key: another permutation for each, any integer; its last 64 bits count.

    Returns:
        [..] int64, from 0 to size - 1, a different one for each place.
    """
    return _walk(places, size, _round_keys(key), sign=1)


def invert(numbers: np.ndarray, size: int, key: int) -> np.ndarray:
    """At which place of the permutation each number stands: `permute(invert(numbers, size, key), size, key)` is `numbers`."""
    return _walk(numbers, size, _round_keys(key)[::-1], sign=-1)


def mix(values: np.ndarray) -> np.ndarray:
    """Mixes the bits of [..] uint64, so that each bit depends on all: the finaliser of SplitMix64 (Steele and others, 2014)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def keyed(key: int, *numbers: int) -> int:
    """A 64-bit key made of a key and numbers: another one where any of them differs, or their order."""
    for number in numbers:
        key = int(mix(np.array([((key & _64) + _GOLDEN * (1 + (number & _64))) & _64], np.uint64))[0])
    return key & _64


def _round_keys(key: int) -> np.ndarray:
    steps = np.arange(1, _ROUNDS + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
    return mix(np.uint64(key & _64) + steps)


def _walk(values: np.ndarray, size: int, keys: np.ndarray, sign: int) -> np.ndarray:
    if not 1 <= size <= 1 << 62:
        raise ValueError(f"the size is {size}, expected 1 to 2**62")
    half = max(1, -(-(size - 1).bit_length() // 2))  # bits of each half
    found = np.array(values, np.uint64)
    beyond = np.ones(found.shape, bool)
    while beyond.any():
        found[beyond] = _feistel(found[beyond], half, keys, sign)
        beyond = found >= np.uint64(size)
    return found.astype(np.int64)


def _feistel(values: np.ndarray, half: int, keys: np.ndarray, sign: int) -> np.ndarray:
    """One pass over numbers of 2 * half bits. With `sign` -1 and the keys reversed it is undone."""
    bits, mask = np.uint64(half), np.uint64((1 << half) - 1)
    left, right = values >> bits, values & mask
    for key in keys:
        if sign > 0:
            left, right = right, (left + mix(right + key)) & mask
        else:
            left, right = (right - mix(left + key)) & mask, left
    return (left << bits) | right
