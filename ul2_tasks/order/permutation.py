"""A keyed pseudo-random permutation of 0 .. size - 1, computed for any places alone: no table, no memory, no state.

A Feistel network permutes the numbers of two digits: in each round it adds a keyed hash of one digit to the other. (Luby and
Rackoff, 1988: four rounds of a random function cannot be told from a random permutation; here it is six of a mixing one.) The base
is the smallest whose square is at least the size. A number that falls beyond the size is permuted again, until it falls within:
*cycle walking* (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002). Of n numbers some 2 sqrt(n) lie beyond, so one
pass is nearly always enough.

>>> permute(np.arange(10), 10, key=1)
array([2, 0, 5, 1, 8, 3, 4, 9, 6, 7])
>>> invert(permute(np.arange(10), 10, key=1), 10, key=1)
array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
"""

from __future__ import annotations

import numpy as np

_ROUNDS = 6
GOLDEN = 0x9E3779B97F4A7C15  # 2**64 over the golden ratio: SplitMix64's step
MULTIPLIERS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_64 = (1 << 64) - 1


def permute(places: np.ndarray, size: int | np.ndarray, key: int | np.ndarray) -> np.ndarray:
    """Which number stands at each place of the permutation.

    The places are [..] integers from 0 to size - 1. `size` is from 1 to 2**62; or [..] integers, where each place is one of another
    permutation. `key` is any integer, whose last 64 bits count, and another one gives another permutation; or it is [..] uint64.
    Gives [..] int64, a different number for each place.
    """
    return _walk(places, size, _round_keys(key), sign=1)


def invert(numbers: np.ndarray, size: int | np.ndarray, key: int | np.ndarray) -> np.ndarray:
    """At which place of the permutation each number stands: `permute(invert(numbers, size, key), size, key)` is `numbers`."""
    return _walk(numbers, size, _round_keys(key)[::-1], sign=-1)


def mix(values: np.ndarray) -> np.ndarray:
    """Mixes the bits of [..] uint64, so that each bit depends on all: the finaliser of SplitMix64 (Steele and others, 2014)."""
    values = (values ^ (values >> np.uint64(30))) * MULTIPLIERS[0]
    values = (values ^ (values >> np.uint64(27))) * MULTIPLIERS[1]
    return values ^ (values >> np.uint64(31))


def keys(key: int, *numbers: np.ndarray) -> np.ndarray:
    """[..] uint64, a key made of a key and numbers, [..] integers: another one where any of them differs, or their order."""
    mixed = np.array([int(key) & _64], np.uint64)
    for number in numbers:
        mixed = mix(mixed + np.uint64(GOLDEN) * (np.atleast_1d(number).astype(np.uint64) + np.uint64(1)))
    return mixed


def keyed(key: int, *numbers: int) -> int:
    """`keys` of single numbers, of any size: the last 64 bits of each count."""
    return int(keys(key, *(np.array([int(number) & _64], np.uint64) for number in numbers))[0])


def _round_keys(key: int | np.ndarray) -> np.ndarray:
    """[rounds, 1 or the number of keys] uint64."""
    first = np.array(key if np.ndim(key) else int(key) & _64, np.uint64).reshape(1, -1)
    return mix(first + np.arange(1, _ROUNDS + 1, dtype=np.uint64)[:, np.newaxis] * np.uint64(GOLDEN))


def _walk(values: np.ndarray, size: int | np.ndarray, keys: np.ndarray, sign: int) -> np.ndarray:
    if np.min(size, initial=1) < 1 or np.max(size, initial=1) > 1 << 62:
        raise ValueError(f"size must be 1 to 2**62, got {size}.")
    found = np.array(values, np.uint64)
    shape, found = found.shape, found.reshape(-1)
    sizes = np.broadcast_to(np.asarray(size, np.uint64), shape).reshape(-1)
    bases = np.ceil(np.sqrt(sizes.astype(np.float64))).astype(np.uint64)
    bases += bases * bases < sizes  # floats round the largest sizes
    keys = np.broadcast_to(keys, (_ROUNDS, len(found)))
    found = _feistel(found, bases, keys, sign)
    while len(beyond := np.flatnonzero(found >= sizes)):
        found[beyond] = _feistel(found[beyond], bases[beyond], keys[:, beyond], sign)
    return found.astype(np.int64).reshape(shape)


def _feistel(values: np.ndarray, bases: np.ndarray, keys: np.ndarray, sign: int) -> np.ndarray:
    """One pass over numbers of two digits. With `sign` -1 and the keys reversed it is undone."""
    left, right = np.divmod(values, bases)
    for key in keys:
        # The sum of two digits that is not below the base loses it; below it the difference would wrap round to a larger number.
        if sign > 0:
            total = left + _digit(right + key, bases)
            left, right = right, np.minimum(total, total - bases)
        else:
            rest = right - _digit(left + key, bases)
            left, right = np.minimum(rest, rest + bases), left
    return left * bases + right


def _digit(values: np.ndarray, bases: np.ndarray) -> np.ndarray:
    """A hash from 0 to base - 1, for a base of at most 2**31."""
    return (mix(values) >> np.uint64(32)) * bases >> np.uint64(32)
