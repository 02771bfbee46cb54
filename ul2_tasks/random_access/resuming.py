"""Iterators that resume only in the pipeline that saved them.

tf.data restores an iterator into any pipeline that has the same steps. With other rates, lengths, seeds or shards it goes on
without a word, with other data than before. So the checkpoint of an iterator here holds a description of its pipeline, the
*fingerprint*, which is compared with that of the pipeline in which the iterator is restored.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from ul2_tasks.graphs import no_autograph


def as_text(fingerprint: Mapping[str, object]) -> str:
    """A fingerprint as it is saved: without the quotes, before each of which tf.debugging.Assert would print a backslash."""
    return json.dumps(fingerprint).replace('"', "")


def seed_of(seed: int | None) -> int | str:
    """What a fingerprint says of a seed: of none, something that no other pipeline says."""
    return f"none, so it cannot be resumed ({secrets.token_hex(4)})" if seed is None else int(seed)


@no_autograph
def resume_only_in(fingerprint: Mapping[str, object], dataset: tf.data.Dataset, has_seed: bool) -> tf.data.Dataset:
    """The same dataset, but an iterator that was saved under another fingerprint cannot be restored into it.

    `flat_map` saves the element that it is at. When it is restored, it calls its function with that element again, which here is
    the fingerprint. Once all of a finite dataset is read there is nothing left to guard: what is still in the buffers was saved
    with them.
    """
    text = as_text(fingerprint)

    def check(saved: tf.Tensor) -> tf.data.Dataset:
        with tf.control_dependencies([_same(saved, text, has_seed)]):
            return tf.data.Dataset.from_tensors(tf.zeros([])).repeat()

    guard = tf.data.Dataset.from_tensors(text).flat_map(check)
    return tf.data.Dataset.zip(dataset, guard).map(lambda element, _: element)


@no_autograph
def scanned(
    text: str,
    numbers: tf.data.Dataset,
    start: np.ndarray,
    advance: Callable[[tf.Tensor], tuple[tf.Tensor, Any]],
    has_seed: bool,
) -> tf.data.Dataset:
    """What `advance` makes of a state, which it gives with the state after it: of `start`, and as often as there are numbers.

    An iterator saves the state and the text alone (tf.data calls it a symbolic checkpoint), and one that was saved with another
    text cannot be restored. All that is made of the state is made again.
    """

    def step(carried: tuple[tf.Tensor, tf.Tensor], _: tf.Tensor) -> tuple[tuple[tf.Tensor, tf.Tensor], Any]:
        state, saved = carried
        with tf.control_dependencies([_same(saved, text, has_seed)]):
            after, made = advance(tf.identity(state))
        return (after, saved), made

    options = tf.data.Options()
    options.experimental_symbolic_checkpoint = True
    return numbers.scan((tf.constant(start), tf.constant(text)), step).with_options(options)


def only_in(text: str, numbers: tf.data.Dataset, has_seed: bool) -> tf.data.Dataset:
    """The same numbers, whose iterators resume only in the pipeline of this text; see `scanned`."""

    def check(number: tf.Tensor, saved: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([_same(saved, text, has_seed)]):
            return tf.identity(number)

    options = tf.data.Options()
    options.experimental_symbolic_checkpoint = True
    return numbers.scan(tf.constant(text), lambda saved, number: (saved, (number, saved))).map(check).with_options(options)


def _same(saved: tf.Tensor, text: str, has_seed: bool) -> tf.Operation:
    message = f"{refusal(has_seed)} Saved:"
    return tf.debugging.Assert(tf.equal(saved, text), [message, saved, "this one:", text])


def refusal(has_seed: bool) -> str:
    """Why an iterator of another pipeline is not restored, and what to do."""
    if not has_seed:
        return (
            "a pipeline that was built without a seed cannot be resumed. Pass seed=, and start from the beginning. See"
            " docs/help/troubleshooting.md#a-pipeline-without-a-seed."
        )
    return (
        "this iterator was saved by another pipeline. Resume with the settings of the saved one, or start from the beginning. See"
        " docs/help/troubleshooting.md#the-iterator-is-rejected."
    )
