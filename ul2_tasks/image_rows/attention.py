"""Which place of a row sees which: as three numbers for each place, and as a dense mask.

A place sees what stands before it in its sample. The places of an image also see each other. A noised image is seen by no place
outside it. Three numbers for each place decide this, so a mask of places x places is not needed:

    def mask_mod(batch, head, query, key):               # of PyTorch's FlexAttention
        return sees(places, query, key)                  # `places` of tensors
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ul2_tasks.image_rows.row_arrays import MODES

_CAUSAL, _NOISE = MODES.index("causal"), MODES.index("noise")


class Places(NamedTuple):
    """What decides which places a place sees, [places] int64 each.

    `sample` is the number of its sample. `image` is the number of its split where all places of the split see each other, and -1
    in a causal split; `noise` likewise where no place outside the split sees it, and -1 where it is not noised.
    """

    sample: Any
    image: Any
    noise: Any


def places(sample_lens: np.ndarray, split_lens: np.ndarray, attn_modes: np.ndarray) -> Places:
    """Makes the arrays that `sees` takes.

    `sample_lens`, [samples], and `split_lens`, [splits], are in places, and have the same sum. `attn_modes`, [splits], are numbers
    of `row_arrays.MODES`.

    >>> places(np.array([3, 2]), np.array([1, 2, 2]), np.array([0, 2, 1]))
    Places(sample=array([0, 0, 0, 1, 1]), image=array([-1,  1,  1,  2,  2]), noise=array([-1,  1,  1, -1, -1]))
    """
    sample_lens, split_lens, attn_modes = (np.asarray(array, np.int64) for array in (sample_lens, split_lens, attn_modes))
    if sample_lens.sum() != split_lens.sum():
        raise ValueError(f"split_lens must have the sum of sample_lens, {sample_lens.sum()}, got {split_lens.sum()}.")
    numbers = np.arange(len(split_lens))
    return Places(
        np.repeat(np.arange(len(sample_lens)), sample_lens),
        np.repeat(np.where(attn_modes == _CAUSAL, -1, numbers), split_lens),
        np.repeat(np.where(attn_modes == _NOISE, numbers, -1), split_lens),
    )


def sees(places: Places, query: Any, key: Any) -> Any:
    """Whether the place `query` sees the place `key`. Both are integers, arrays or tensors, which are broadcast.

    >>> found = places(np.array([5]), np.array([1, 2, 2]), np.array([0, 2, 1]))
    >>> sees(found, np.array([2, 1, 4]), np.array([0, 2, 1])).tolist()
    [True, True, False]
    """
    sample, image, noise = places
    in_image = (image[query] >= 0) & (image[query] == image[key])
    hidden = (noise[key] >= 0) & (noise[query] != noise[key])
    return (sample[query] == sample[key]) & ((query >= key) | in_image) & ~hidden


def dense_mask(places: Places) -> np.ndarray:
    """Whether each place (line) sees each place (column), [places, places] bool; for plots and for tests.

    >>> dense_mask(places(np.array([4]), np.array([1, 2, 1]), np.array([0, 2, 0]))).astype(int).tolist()
    [[1, 0, 0, 0], [1, 1, 1, 0], [1, 1, 1, 0], [1, 0, 0, 1]]
    """
    numbers = np.arange(len(places.sample))
    return sees(places, numbers[:, np.newaxis], numbers)
