"""Records in pieces, see `pieces`, are joined to a stream, which is cut into chunks anywhere but within a run.

    records  A B | P P P P | C D      E F G | Q Q Q Q | H
    chunks   A B | P P P P | C        of 7 tokens at most: the run Q does not fit behind D E F G, so the next begins with it
             D E F G
             Q Q Q Q | H

Each chunk is the longest beginning of what is left that makes an example. Where one record ends and the next begins makes no
difference. Every token is in one chunk. A chunk of runs alone makes no example. So it gets the last text token of the chunk before
it, if that has one to spare.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from ul2_tasks.graphs import no_autograph, python_op, ragged

Pieces = Sequence[int]  # the tokens of each text and of each run, in turn; a text comes first and last
Fits = Callable[[Pieces], bool]  # whether an example can be made of pieces; true of all beginnings of those of which it is true


@no_autograph
def chunk_records(records: tf.data.Dataset, fits: Fits, most: int) -> tf.data.Dataset:
    """Joins records, and cuts them into chunks. What is left at the end is one, too.

    Records are {"targets": [tokens] int32, "pieces": [2 P + 1] int32}, and so are the chunks; other features are left out. Each run
    of a record fits with a token of text. `fits` depends on its argument alone, and no chunk of more than `most` tokens fits.

    >>> records = tf.data.Dataset.from_tensors({"targets": [1, 2, 70, 71, 3], "pieces": [2, 2, 1]}).repeat(2)
    >>> for chunk in chunk_records(records, lambda pieces: sum(pieces) <= 6, most=6):
    ...     print(chunk["targets"].numpy(), chunk["pieces"].numpy())
    [ 1  2 70 71  3  1] [2 2 2]
    [ 2 70 71  3] [1 2 1]
    """

    def found(pieces: np.ndarray, added: np.ndarray, is_end: bool) -> tuple[np.ndarray, ...]:
        chunks, rest = cut(joined(pieces.tolist(), added.tolist()), fits, most, is_end)
        flat = [length for chunk in chunks for length in chunk]
        return np.array(flat, np.int32), np.array([len(chunk) for chunk in chunks], np.int32), np.array(rest, np.int32)

    def step(state: tuple[tf.Tensor, tf.Tensor], record: tuple[tf.Tensor, tf.Tensor, tf.Tensor]) -> tuple:
        tokens, pieces, is_end = record
        tokens = tf.concat([state[0], tokens], axis=0)
        flat, numbers, rest = python_op(found, [state[1], pieces, is_end], [tf.int32] * 3)
        chunks = ragged(flat, numbers)
        lengths = tf.reduce_sum(chunks, axis=1)
        whole = tf.reduce_sum(lengths)
        return (tokens[whole:], tf.ensure_shape(rest, [None])), {"targets": ragged(tokens[:whole], lengths), "pieces": chunks}

    none = tf.zeros([0], tf.int32)
    end = tf.data.Dataset.from_tensors((none, none, True))
    added = records.map(lambda record: (record["targets"], record["pieces"], False))
    return added.concatenate(end).scan((none, none), step).unbatch()


def cut(pieces: Pieces, fits: Fits, most: int, is_end: bool) -> tuple[list[list[int]], list[int]]:
    """Cuts the beginning of a stream into chunks.

    For `fits` and `most` see `chunk_records`; `is_end` says that nothing comes after. Gives the chunks that are what they are
    whatever comes after, and the pieces that are left: nothing at the end.

    >>> cut([2, 4, 5, 4, 1], lambda pieces: sum(pieces) <= 7, most=7, is_end=True)
    ([[2, 4, 1], [4], [0, 4, 1]], [])
    >>> cut([9, 6], lambda pieces: sum(pieces) <= 7, most=7, is_end=False)
    ([[7]], [2, 6])
    """
    chunks: list[list[int]] = []
    rest = list(pieces)
    while sum(rest):
        sizes = range(1, min(most, sum(rest)) + 1)
        size = bisect.bisect_left(sizes, True, key=lambda size: not fits(_with_text(_parted(rest, size)[0])))
        chunk, after = _parted(rest, size)
        if not sum(after) and not is_end:
            break
        if not sum(chunk):
            raise ValueError(
                f"a chunk must have room for {rest[1]} tokens that are never split, such as those of an image, but has less."
                " Raise the lengths."
            )
        if not any(chunk[::2]) and chunks and chunks[-1][-1] and sum(chunks[-1][::2]) > 1:
            chunks[-1][-1] -= 1
            chunk[0] = 1
        chunks.append(chunk)
        rest = after
    if not sum(rest):
        return chunks, []
    if chunks and not any(rest[::2]):  # the last chunk may yet have to give it a token
        rest = joined(chunks.pop(), rest)
    return chunks, rest


def joined(before: Pieces, after: Pieces) -> list[int]:
    """The pieces of two stretches, one after the other. Texts that meet are one.

    >>> joined([3, 260, 1], [2, 260, 0])
    [3, 260, 3, 260, 0]
    """
    return [*before[:-1], before[-1] + after[0], *after[1:]] if before and after else [*before, *after]


def _parted(pieces: Pieces, size: int) -> tuple[list[int], list[int]]:
    """The first `size` tokens, or fewer where these end within a run; and the others."""
    first: list[int] = []
    for number, length in enumerate(pieces):
        if number % 2 and length > size:
            break
        first.append(min(length, size))
        size -= first[-1]
    last = len(first) - 1
    return first, [pieces[last] - first[last], *pieces[last + 1 :]]


def _with_text(pieces: Pieces) -> Pieces:
    """Pieces as they are measured: those of runs alone with the text token that they may be given."""
    return pieces if any(pieces[::2]) else [1, *pieces[1:]]
