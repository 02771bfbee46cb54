"""Seeds of tf.data's shuffles, without TensorFlow."""

from __future__ import annotations

import zlib


def salted(seed: int | None, salt: str) -> int | None:
    """Another seed for each salt, the same in every process. None, for no seed, stays None."""
    return None if seed is None else zlib.crc32(f"{salt}/{int(seed)}".encode())
