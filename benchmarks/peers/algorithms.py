"""The same work as others write it in NumPy.

* `corrupt_batch`: the algorithm of the published collators for T5, over a batch of chunks.
* `corrupt`: a notebook's, one example at a time, for any denoiser of UL2.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from vocabulary import special

from ul2_tasks.denoisers.denoisers import Denoiser
from ul2_tasks.tokenizers.special_ids import SpecialTokens

Example = dict[str, np.ndarray]


def partition(random: np.random.Generator, total: int, parts: int) -> np.ndarray:
    """So many positive integers with this total, each way alike."""
    cuts = np.sort(random.permutation(total - 1)[: parts - 1]) + 1
    return np.diff(cuts, prepend=0, append=total)


def noise_mask(random: np.random.Generator, length: int, noise: int, spans: int) -> np.ndarray:
    """[length] bool; it begins with a token that is kept."""
    lengths = np.stack([partition(random, length - noise, spans), partition(random, noise, spans)], axis=1).ravel()
    return np.repeat(np.arange(2 * spans) % 2 == 1, lengths)


def corrupt_batch(chunks: np.ndarray, denoiser: Denoiser, random: np.random.Generator) -> Example:
    """[rows, chunk] to inputs and targets: a mask a row, then all else over the whole batch, as the collators for T5 do."""
    ids = special(denoiser)
    noise, spans = denoiser.noise_counts(chunks.shape[1])
    masks = np.stack([noise_mask(random, chunks.shape[1], noise, spans) for _ in chunks])
    sentinels = np.array(ids.sentinels[:spans])

    def without(hidden: np.ndarray) -> np.ndarray:
        """Each run of hidden tokens becomes the next sentinel."""
        starts = hidden & ~np.roll(hidden, 1, axis=1)
        starts[:, 0] = hidden[:, 0]
        filled = np.where(starts, sentinels[np.cumsum(starts, axis=1) - 1], chunks)
        kept = filled[~hidden | starts].reshape(len(chunks), -1)
        return np.concatenate([kept, np.full([len(chunks), 1], ids.eos)], axis=1).astype(np.int32)

    return {"inputs": without(masks), "targets": without(~masks)}


def corrupt(chunk: np.ndarray, denoiser: Denoiser, special: SpecialTokens, random: np.random.Generator) -> Example:
    noise, spans = denoiser.noise_counts(len(chunk))
    kept_lengths, noise_lengths = partition(random, len(chunk) - noise, spans), partition(random, noise, spans)
    inputs: list = [special.mode]
    targets: list = []
    position = 0
    for sentinel, kept, hidden in zip(special.sentinels, kept_lengths, noise_lengths):
        inputs += [chunk[position : position + kept], [sentinel]]
        position += kept
        targets += [[sentinel], chunk[position : position + hidden]]
        position += hidden
    return {
        key: np.concatenate([*parts, [special.eos]]).astype(np.int32) for key, parts in (("inputs", inputs), ("targets", targets))
    }


def padded(rows: Sequence[np.ndarray], length: int) -> np.ndarray:
    batch = np.zeros([len(rows), length], np.int32)
    for row, values in zip(batch, rows):
        row[: len(values)] = values
    return batch
