"""Who sees whom in a row: from its samples, splits and modes, as arrays of its length, and as a dense mask.

A place sees what stands before it in its sample, and all of its own split where that is a picture. A noised picture is seen by
itself alone. As each place needs three numbers to know this, no mask of places x places has to be made:

    def mask_mod(batch, head, query, key):               # of PyTorch's FlexAttention
        return sees(places, query, key)                  # `places` of tensors
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ul2_tasks.images.layout import MODES

_CAUSAL, _NOISE = MODES.index("causal"), MODES.index("noise")


class Places(NamedTuple):
    """What each place of a row has to know, [places] int64 each.

    Attributes:
        sample: the number of its sample.
        picture: the number of its split, whose places see each other; -1 in a causal split.
        noise: the number of its split, which no other sees; -1 in any but a noised one.
    """

    sample: Any
    picture: Any
    noise: Any


def places(sample_lens: np.ndarray, split_lens: np.ndarray, attn_modes: np.ndarray) -> Places:
    """The arrays from which `sees` tells who sees whom.

    Args:
        sample_lens: [samples], places of each sample.
        split_lens: [splits], places of each split.
        attn_modes: [splits], numbers of `layout.MODES`.

    Raises:
        ValueError: samples and splits have not the same number of places.

    >>> places(np.array([3, 2]), np.array([1, 2, 2]), np.array([0, 2, 1]))
    Places(sample=array([0, 0, 0, 1, 1]), picture=array([-1,  1,  1,  2,  2]), noise=array([-1,  1,  1, -1, -1]))
    """
    sample_lens, split_lens, attn_modes = (np.asarray(array, np.int64) for array in (sample_lens, split_lens, attn_modes))
    if sample_lens.sum() != split_lens.sum():
        raise ValueError(f"the samples have {sample_lens.sum()} places, and the splits {split_lens.sum()}")
    numbers = np.arange(len(split_lens))
    return Places(
        np.repeat(np.arange(len(sample_lens)), sample_lens),
        np.repeat(np.where(attn_modes == _CAUSAL, -1, numbers), split_lens),
        np.repeat(np.where(attn_modes == _NOISE, numbers, -1), split_lens),
    )


def sees(places: Places, query: Any, key: Any) -> Any:
    """Whether the place `query` sees the place `key`: of integers, of arrays of them, or of tensors, which may differ in shape.

    >>> found = places(np.array([5]), np.array([1, 2, 2]), np.array([0, 2, 1]))
    >>> sees(found, np.array([2, 1, 4]), np.array([0, 2, 1])).tolist()
    [True, True, False]
    """
    sample, picture, noise = places
    in_picture = (picture[query] >= 0) & (picture[query] == picture[key])
    hidden = (noise[key] >= 0) & (noise[query] != noise[key])
    return (sample[query] == sample[key]) & ((query >= key) | in_picture) & ~hidden


def dense_mask(places: Places) -> np.ndarray:
    """[places, places] bool, whether each sees each: to look at, and to compare with. It grows with the square of the row.

    >>> dense_mask(places(np.array([4]), np.array([1, 2, 1]), np.array([0, 2, 0]))).astype(int).tolist()
    [[1, 0, 0, 0], [1, 1, 1, 0], [1, 1, 1, 0], [1, 0, 0, 1]]
    """
    numbers = np.arange(len(places.sample))
    return sees(places, numbers[:, np.newaxis], numbers)
