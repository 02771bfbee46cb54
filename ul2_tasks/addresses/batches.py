"""From elements' numbers to their examples: what is read in Python, and what is drawn and laid out in a graph.

numbers   -> Numbering.slots    corpus, epoch and slot of each example
          -> Order.chunks       denoiser and tokens
          -> read_batch         for each denoiser [rows, tokens], their lengths, and a key of the noise of each
          -> corrupting         inputs and targets, task by task, and which of them is of which element
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ul2_tasks.addresses.corpora import Member
from ul2_tasks.addresses.numbering import Numbering
from ul2_tasks.denoising.preprocessors import corrupt_chunks
from ul2_tasks.example_features import EXAMPLE
from ul2_tasks.graphs import no_autograph, traced_once


class Chunks(NamedTuple):
    """The chunks of one denoiser.

    Attributes:
        tokens: [R, L] int32, padded with 0 at their end.
        lengths: [R] int32, tokens of each.
        keys: [R] uint64, of their noise.
    """

    tokens: np.ndarray | tf.Tensor
    lengths: np.ndarray | tf.Tensor
    keys: np.ndarray | tf.Tensor


class Batch(NamedTuple):
    """What the examples of some elements are made of.

    Attributes:
        places: [m] int64, ascending, which of the elements each example is of.
        members: [m] int64, the number of its task among those of `members_of`.
        chunks: of each task.
    """

    places: np.ndarray
    members: np.ndarray
    chunks: list[Chunks]


def members_of(numbering: Numbering) -> list[Member]:
    """The tasks of all corpora."""
    return [member for corpus in numbering.corpora for member in corpus.members]


def signature_of(members: Sequence[Member]) -> list[tf.TensorSpec]:
    """The types of the arrays of a `Batch` of these tasks, one after the other."""
    lengths = [member.solution.full.length for member in members]
    each = [
        (tf.TensorSpec([None, length], tf.int32), tf.TensorSpec([None], tf.int32), tf.TensorSpec([None], tf.uint64))
        for length in lengths
    ]
    return [tf.TensorSpec([None], tf.int64)] * 2 + [spec for chunks in each for spec in chunks]


def read_batch(numbering: Numbering, numbers: np.ndarray) -> Batch:
    """Reads the tokens of elements, [n] integers.

    Raises:
        ValueError: see `OrderedCorpus.read`.
    """
    found = numbering.slots(numbers)
    members = np.zeros_like(found.slots)
    chunks: list[Chunks] = []
    for number, corpus in enumerate(numbering.corpora):
        of_corpus = np.flatnonzero(found.corpora == number)
        epochs, slots = found.epochs[of_corpus], found.slots[of_corpus]
        kinds, starts, stops = corpus.order.chunks(epochs, slots)
        members[of_corpus] = len(chunks) + kinds
        noise = corpus.order.noise_keys(epochs, slots)
        by_kind = np.argsort(kinds, kind="stable")
        bounds = np.searchsorted(kinds[by_kind], np.arange(len(corpus.members) + 1))
        tokens = corpus.read(starts[by_kind], stops[by_kind]) if len(kinds) else np.zeros([0], np.int32)
        lengths = (stops - starts)[by_kind]
        ends = np.concatenate([[0], np.cumsum(lengths)])
        for member, first, last in zip(corpus.members, bounds, bounds[1:]):
            rows = _in_rows(tokens[ends[first] : ends[last]], lengths[first:last], member.solution.full.length)
            chunks.append(Chunks(rows, lengths[first:last].astype(np.int32), noise[by_kind[first:last]]))
    return Batch(found.places, members, chunks)


def corrupting(members: Sequence[Member]) -> Callable[[tf.Tensor, list[Chunks]], tuple[dict[str, tf.RaggedTensor], tf.Tensor]]:
    """The function that makes the examples of a batch, which is traced once for equal tasks.

    It takes the members of a `Batch`, [m] integers, and its chunks, and returns

        {"inputs": RaggedTensor [m, tokens] int32, "targets": RaggedTensor [m, tokens] int32}, task by task;
        [m] int32, the place that each member's example has among these.
    """
    solutions = (member.solution for member in members)
    settings = tuple(
        (solution.configuration.denoiser, solution.special, solution.full.length, solution.add_eos) for solution in solutions
    )
    return traced_once(_corrupt, settings=settings)


@no_autograph
def _corrupt(
    members: tf.Tensor, chunks: list[Chunks], *, settings: Sequence[tuple]
) -> tuple[dict[str, tf.RaggedTensor], tf.Tensor]:
    made = []
    for (tokens, lengths, keys), (denoiser, special, length, add_eos) in zip(chunks, settings):
        make = traced_once(corrupt_chunks, denoiser=denoiser, special=special, max_length=length, add_eos=add_eos)
        made.append(make(tf.ensure_shape(tokens, [None, length]), *(tf.ensure_shape(each, [None]) for each in (lengths, keys))))
    by_member = tf.argsort(members, stable=True)
    order = tf.scatter_nd(by_member[:, tf.newaxis], tf.range(tf.size(members)), tf.shape(members))
    return {key: tf.concat([features[key] for features in made], axis=0) for key in EXAMPLE}, order


def _in_rows(tokens: np.ndarray, lengths: np.ndarray, length: int) -> np.ndarray:
    """[R, length] int32, chunks that stand one after the other; only those of the end of an epoch are shorter than others."""
    if len(tokens) == len(lengths) * length:
        return tokens.reshape(-1, length)
    rows = np.zeros([len(lengths), length], np.int32)
    rows[np.arange(length) < lengths[:, np.newaxis]] = tokens
    return rows
