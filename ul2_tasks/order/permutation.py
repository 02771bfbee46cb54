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

from ul2_tasks.compiled import compiled, part_of_compiled

_ROUNDS = 6
GOLDEN = 0x9E3779B97F4A7C15  # 2**64 over the golden ratio: SplitMix64's step
MULTIPLIERS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_64 = (1 << 64) - 1
_GOLDEN, _32 = np.uint64(GOLDEN), np.uint64(32)


def permute(places: np.ndarray, size: int | np.ndarray, key: int | np.ndarray) -> np.ndarray:
    """Which number stands at each place of the permutation.

    The places are [..] integers from 0 to size - 1. `size` is from 1 to 2**62; or [..] integers, where each place is one of another
    permutation. `key` is any integer, whose last 64 bits count, and another one gives another permutation; or it is [..] uint64.
    Gives [..] int64, a different number for each place.
    """
    return _walk(places, size, key, is_inverse=False)


def invert(numbers: np.ndarray, size: int | np.ndarray, key: int | np.ndarray) -> np.ndarray:
    """At which place of the permutation each number stands: `permute(invert(numbers, size, key), size, key)` is `numbers`."""
    return _walk(numbers, size, key, is_inverse=True)


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


def _walk(values: np.ndarray, size: int | np.ndarray, key: int | np.ndarray, is_inverse: bool) -> np.ndarray:
    if np.min(size, initial=1) < 1 or np.max(size, initial=1) > 1 << 62:
        raise ValueError(f"size must be 1 to 2**62, got {size}.")
    given = np.asarray(values)
    found = given.astype(np.uint64).reshape(-1)
    sizes = np.atleast_1d(np.asarray(size, np.uint64)) if np.ndim(size) == 0 else _flat(size, given.shape)
    of_each = np.array([int(key) & _64], np.uint64) if np.ndim(key) == 0 else np.asarray(key, np.uint64).reshape(-1)
    if len(found):
        _permute(found, sizes, of_each, is_inverse)
    return found.astype(np.int64).reshape(given.shape)


def _flat(size: int | np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return np.broadcast_to(np.asarray(size, np.uint64), shape).reshape(-1)


_mix = part_of_compiled(mix)  # of one uint64


@part_of_compiled
def _digit(value, base):
    """A hash from 0 to base - 1, for a base of at most 2**31."""
    return (_mix(value) >> _32) * base >> _32


@part_of_compiled
def _feistel(value, base, key, is_inverse):
    """One pass over a number of two digits, or back."""
    left, right = value // base, value % base
    for number in range(_ROUNDS):
        # A sum of two digits that is not below the base loses it, and a difference below 0 gains it.
        if is_inverse:
            digit = _digit(left + _mix(key + np.uint64(_ROUNDS - number) * _GOLDEN), base)
            left, right = (right - digit if right >= digit else right + base - digit), left
        else:
            total = left + _digit(right + _mix(key + np.uint64(number + 1) * _GOLDEN), base)
            left, right = right, (total - base if total >= base else total)
    return left * base + right


@compiled
def _permute(values, sizes, keys, is_inverse):
    """Permutes values, [n] uint64, each of a permutation of its own, or all of one: `sizes` and `keys` are [n] or [1] uint64."""
    size, base, key = sizes[0], np.uint64(0), keys[0]
    for number in range(len(values)):
        if number < len(sizes):
            size = sizes[number]
            base = np.uint64(np.ceil(np.sqrt(np.float64(size))))
            if base * base < size:  # floats round the largest sizes
                base += np.uint64(1)
        if number < len(keys):
            key = keys[number]
        value = _feistel(values[number], base, key, is_inverse)
        while value >= size:
            value = _feistel(value, base, key, is_inverse)
        values[number] = value
