"""What a `tf.data.Dataset` of this package is beside its elements: how much higher its ids are, and how it is made by number.

tf.data has no place for it. So such a dataset is a `KnownDataset`, which adds no step: its graph, its elements and the states of
its iterators are those of the dataset that it is made of.

    examples = known(elements, Facts(id_shift=1, numbered=..))
    examples.map(..)        another dataset: how `examples` is made by number is not how this one is made
                            but its ids are as high, which `nearest_facts` finds out from what it was made of
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging


@dataclasses.dataclass(frozen=True)
class Facts:
    """What is known of a dataset.

    Attributes:
        id_shift: how much higher its ids are than the tokenizer's own.
        numbered: how it is made from the numbers of its elements, an `addresses.dataset.Numbered`; None of a stream.
        rows: what gives rows of a model instead of its examples, a `converters.of_dataset.RowSource`, if it has that.
        batches: makes whole batches of a size, smaller last ones left out, if it has that.
    """

    id_shift: int = 0
    numbered: Any = None
    rows: Any = None
    batches: Callable[[int], tf.data.Dataset] | None = None


class KnownDataset(tf.data.Dataset):
    """A dataset, of which something is known."""

    def __init__(self, dataset: tf.data.Dataset, facts: Facts):
        self._dataset, self.facts = dataset, facts
        super().__init__(tf.data.experimental.to_variant(dataset))

    @property
    def element_spec(self) -> Any:
        return self._dataset.element_spec

    def _inputs(self) -> list[tf.data.Dataset]:
        return [self._dataset]

    def batch(self, batch_size: int, drop_remainder: bool = False, **options: Any) -> tf.data.Dataset:
        """See `tf.data.Dataset.batch`. `seqio.get_dataset` calls it for t5x. Batches that are made whole are not put together."""
        is_number = isinstance(batch_size, int | np.integer) and batch_size > 0
        if self.facts.batches and drop_remainder and not options and is_number:
            return known(self.facts.batches(int(batch_size)), Facts(self.facts.id_shift))
        return super().batch(batch_size, drop_remainder, **options)  # it says what is wrong with a batch size


def known(dataset: tf.data.Dataset, facts: Facts) -> tf.data.Dataset:
    """The same dataset, of which these facts are known, and no others."""
    return KnownDataset(dataset, facts)


def facts_of(dataset: tf.data.Dataset) -> Facts:
    """What is known of a dataset as it is; nothing where it was changed since."""
    return dataset.facts if isinstance(dataset, KnownDataset) else Facts()


def nearest_facts(dataset: tf.data.Dataset) -> list[Facts]:
    """What is known of a dataset, or of the nearest ones that it was made of: one, several of a mixture, none of another's."""
    found, seen, left = [], set(), [dataset]
    while left:
        each = left.pop()
        if isinstance(each, KnownDataset):
            found.append(each.facts)
        elif id(each) not in seen:
            seen.add(id(each))
            left += each._inputs()
    return found


def with_id_shift(dataset: tf.data.Dataset, vocabulary: object) -> tf.data.Dataset:
    """The same examples, of which the shift of their vocabulary is known, also after more steps of tf.data; and nothing else."""
    return known(dataset, Facts(getattr(vocabulary, "id_shift", 0)))


def stated_id_shift(dataset: tf.data.Dataset) -> int:
    """The shift that is known of a dataset, or of those that it was made of; 0 where none is."""
    return max((facts.id_shift for facts in nearest_facts(dataset)), default=0)


def warn_if_changed(dataset: tf.data.Dataset) -> None:
    """Logs that a dataset is a stream because it was changed, where what it was made of has numbers."""
    if not facts_of(dataset).numbered and any(facts.numbered for facts in nearest_facts(dataset)):
        logging.log_first_n(
            logging.WARNING,
            "examples with random access were changed (by map, filter, take .., or by a mixture of SeqIO itself), so they are a"
            " stream now: examples are packed as they come, and to resume reads them again or saves buffers. To keep random access,"
            " change the batches, after the feature converter, or mix with ul2_tasks.mix.",
            1,
        )
