"""Draws that belong to a record: each is a function of seed, epoch, record and a name, and of nothing else.

So a record has the same caption, the same dropped elements and the same timesteps in any shard, pool, worker and order, and a new
draw changes no other. Draw NAME of a record is `keyed(keyed(seed, FOR_IMAGES, epoch, hash(record)), hash(NAME))`, 64 bits, see
`order.permutation`; the hash of a text is the first 64 bits of its BLAKE2b.
"""

from __future__ import annotations

import dataclasses
import hashlib
import statistics

from ul2_tasks.order.permutation import keyed

FOR_IMAGES = 6  # what the key is for; `order.order` has the numbers before
_NORMAL = statistics.NormalDist()


@dataclasses.dataclass(frozen=True)
class Draws:
    """The draws of one record in one epoch. Each record and epoch has another `key`, see `draws_of`.

    >>> draws = draws_of(seed=0, epoch=0, record="a.parquet, row group 0, row 1")
    >>> draws.number("caption", 3), round(draws.uniform("drop/4"), 3), round(draws.normal("timestep/2"), 3)
    (1, 0.103, -0.455)
    """

    key: int

    def number(self, name: str, count: int) -> int:
        """One of 0 .. count - 1, all equally likely."""
        return self._bits(name) * count >> 64

    def uniform(self, name: str) -> float:
        """A number between 0 and 1, never one of them: an odd multiple of 2**-54."""
        return ((self._bits(name) >> 11) + 0.5) * 2.0**-53

    def normal(self, name: str) -> float:
        """A number of the standard normal distribution."""
        return _NORMAL.inv_cdf(min(self.uniform(name), 1 - 2.0**-53))

    def within(self, name: str) -> Draws:
        """Draws of their own for a part of the record, whose names may be those of other parts."""
        return Draws(self._bits(name))

    def _bits(self, name: str) -> int:
        return keyed(self.key, _hash(name))


def draws_of(seed: int, epoch: int, record: str) -> Draws:
    """The draws of a record. Epochs are from 0. `record` is a text that no other record has, such as its file and place."""
    return Draws(keyed(seed, FOR_IMAGES, epoch, _hash(record)))


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
