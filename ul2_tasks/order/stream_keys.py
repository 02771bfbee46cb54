"""The seeds and keys with which streams of tf.data are shuffled, without TensorFlow."""

from __future__ import annotations

import zlib

_32 = (1 << 32) - 1
_GRAPH_SEED = 87654321  # TensorFlow's, unless `tf.random.set_seed` was called
_MOST = (1 << 31) - 1  # seeds of operations are below it


def salted(seed: int | None, salt: str) -> int | None:
    """Another seed for each salt, the same in every process. None, for no seed, stays None."""
    return None if seed is None else zlib.crc32(f"{salt}/{int(seed)}".encode())


def key_of_pass(seed: int, number: int) -> int:
    """The first number of `tf.data.Dataset.random(seed, rerandomize_each_iteration=True)`, when it is read once more."""
    first, second = (_sample(_GRAPH_SEED, seed % _MOST, place) for place in (2 * number, 2 * number + 1))
    return _sample(first, second, 0)


def _sample(seed: int, seed2: int, place: int) -> int:
    """A 32-bit sample of Philox 4x32 with ten rounds (Salmon and others, 2011), as TensorFlow seeds it."""
    counter = [place // 4 & _32, place // 4 >> 32, seed2 & _32, seed2 >> 32]
    key = [seed & _32, seed >> 32]
    for _ in range(10):
        first, second = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [(second >> 32) ^ counter[1] ^ key[0], second & _32, (first >> 32) ^ counter[3] ^ key[1], first & _32]
        key = [(key[0] + 0x9E3779B9) & _32, (key[1] + 0xBB67AE85) & _32]
    return counter[place % 4]
