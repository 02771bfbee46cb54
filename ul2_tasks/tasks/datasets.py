"""What a `tf.data.Dataset` of this package says of itself, by an attribute of the Python object.

examples = mixture.get_dataset(..)     examples.ul2 says how high its ids are, and what makes rows of a model of its examples
examples.map(..)                       another dataset, of which nothing is known
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from ul2_tasks.tasks.vocabulary import id_shift


class Facts(NamedTuple):
    """How much higher the ids of a dataset are than the tokenizer's own; and what makes its rows, see `of_dataset`."""

    id_shift: int = 0
    source: Any = None


def known(dataset: tf.data.Dataset, facts: Facts | None) -> tf.data.Dataset:
    """The dataset, which says this of itself from now on."""
    dataset.ul2 = facts
    return dataset


def facts_of(dataset: tf.data.Dataset) -> Facts | None:
    """What is known of a dataset; None where it was changed since, or is another's."""
    return getattr(dataset, "ul2", None)


def with_id_shift(dataset: tf.data.Dataset, vocabulary: Any) -> tf.data.Dataset:
    """The dataset, which says from now on how high the ids of its vocabulary are."""
    return known(dataset, Facts(id_shift(vocabulary)))
