"""From numbers to a tf.data.Dataset: of examples, or of rows for a model. The state of its iterators is a number.

    0, 4096, 8192 ..   numbers, a batch of elements at each
        -> read        locations, and the tokens of their chunks
        -> make        noise, inputs and targets, rows
        -> unbatch     element by element, or in batches as they were asked for

Host h of H has the elements h, h + H, h + 2 H .. So the elements n B .. (n + 1) B - 1 are step n of batch size B on any number of
hosts.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import tensorflow as tf

from ul2_tasks.datasets import Facts, facts_of, known
from ul2_tasks.example_features import DENOISER, IMAGES, TASK, token_features
from ul2_tasks.graphs import no_autograph, python_op
from ul2_tasks.random_access.batches import features_of, make_batch, members_of, widest
from ul2_tasks.random_access.fingerprint import of_leaving_out, of_rows
from ul2_tasks.random_access.leaving_out import NOTHING, LeavingOut
from ul2_tasks.random_access.numbering import Numbering, Share
from ul2_tasks.random_access.resuming import as_text, only_in, scanned
from ul2_tasks.random_access.tasks import TaskInfo, tasks_of
from ul2_tasks.random_access.windows import Stream, Stretch
from ul2_tasks.scalars import is_integer
from ul2_tasks.vocabulary.special_ids import id_shift

_WITHOUT_END = 1 << 60
# Each batch that is made costs some milliseconds, whatever its size. The state of an iterator counts in batches of this size.
_TOKENS_AT_A_TIME = 1 << 20

# What `make_batch` returned, and the task of each example, to [n, ..] of each feature.
Layout = Callable[[dict[str, np.ndarray], dict[str, np.ndarray], np.ndarray], dict[str, np.ndarray]]


@dataclasses.dataclass(frozen=True)
class Numbered:
    """What a dataset made from numbers has beside its elements. `dataset` makes it from an element on, without what is left out."""

    dataset: Callable[[int, LeavingOut], tf.data.Dataset]
    fingerprint: Mapping[str, object]
    numbering: Numbering


@dataclasses.dataclass(frozen=True)
class Reading:
    """Which examples are read.

    The lengths of examples were solved for `sequence_length`, and `epochs` is None for no end. Only `features` are kept of an
    example. `fingerprint` is all that decides which example has which number, and what it is. Without a seed, see `has_seed`,
    iterators cannot be resumed. `windows` opens the stream of what is read in windows, of packed rows of these lengths; the
    numbering is then of the beginning alone.
    """

    numbering: Numbering
    sequence_length: Mapping[str, int | None]
    epochs: int | None
    share: Share
    features: Collection[str]
    fingerprint: Mapping[str, object]
    has_seed: bool
    windows: Callable[[Mapping[str, int] | None], Stream] | None = None

    def examples(self) -> tf.data.Dataset:
        """One by one: {"inputs": [tokens] int32, "targets": [tokens] int32}, and the names of denoiser and task where wanted."""
        members = members_of(self.numbering)
        all_names = {DENOISER: [member.denoiser for member in members], TASK: [member.task for member in members]}
        names = {
            key: np.array([name.encode() for name in of_each], object) for key, of_each in all_names.items() if key in self.features
        }

        def lay_out(rows: dict[str, np.ndarray], sizes: dict[str, np.ndarray], members: np.ndarray) -> dict[str, np.ndarray]:
            lengths = {f"{key}_length": of_each for key, of_each in sizes.items()}
            return rows | lengths | {key: of_each[members] for key, of_each in names.items()}

        spec = features_of(members)

        def without_padding(example: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            lengths = {key: example[f"{key}_length"] for key in token_features(spec)}
            of_tokens = {key: example[key][: lengths[feature.per_token_of]] for key, feature in spec.items()}
            if IMAGES in example:
                of_tokens[IMAGES] = example[IMAGES][: example[f"{IMAGES}_length"]]
            return {key: of_tokens.get(key, value) for key, value in example.items() if key in self.features}

        @no_autograph
        def make(first: int, leaving_out: LeavingOut) -> tf.data.Dataset:
            more = {"features": "examples", **of_leaving_out(leaving_out)}
            examples = self._elements(self.numbering.without(leaving_out), widest(members), lay_out, more, first)
            return known(examples.map(without_padding, num_parallel_calls=tf.data.AUTOTUNE), Facts(self._id_shift))

        return self._with_numbers(make, self.numbering, {}, rows=self)

    def rows(
        self,
        lengths: Mapping[str, int],
        pack: bool,
        convert: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]],
        with_task_id: bool = False,
    ) -> tf.data.Dataset | None:
        """See `converters.of_dataset.RowSource`."""
        if lengths != self.sequence_length:
            return None
        numbering = self.numbering.in_rows(lengths) if pack else self.numbering

        def lay_out(rows: dict[str, np.ndarray], sizes: dict[str, np.ndarray], members: np.ndarray) -> dict[str, np.ndarray]:
            return convert(rows)

        more = {"features": "rows", "pack": pack, **of_rows(numbering), **({"task_id": True} if with_task_id else {})}

        def make(first: int, leaving_out: LeavingOut) -> tf.data.Dataset:
            told = {**more, **of_leaving_out(leaving_out)}
            elements = functools.partial(
                self._elements, numbering.without(leaving_out), lengths, lay_out, told, first, with_task_id=with_task_id
            )
            return known(elements(), Facts(self._id_shift, batches=None if self.windows else elements))

        return self._with_numbers(make, numbering, {"pack": pack, **of_rows(numbering)})

    @property
    def tasks(self) -> tuple[TaskInfo, ...]:
        """See `converters.of_dataset.RowSource`."""
        return tasks_of(members_of(self.numbering))

    @property
    def _id_shift(self) -> int:
        return id_shift(members_of(self.numbering)[0].vocabulary)

    def _with_numbers(
        self,
        make: Callable[[int, LeavingOut], tf.data.Dataset],
        numbering: Numbering,
        more: Mapping[str, object],
        rows: Reading | None = None,
    ) -> tf.data.Dataset:
        dataset = make(0, NOTHING)
        numbered = None if self.windows else Numbered(make, {**self.fingerprint, **more}, numbering)
        return known(dataset, dataclasses.replace(facts_of(dataset), numbered=numbered, rows=rows))

    @no_autograph
    def _elements(
        self,
        numbering: Numbering,
        lengths: Mapping[str, int | None],
        lay_out: Layout,
        more: Mapping[str, object],
        first: int,
        batch_size: int | None = None,
        *,
        with_task_id: bool = False,
    ) -> tf.data.Dataset:
        """This host's elements from its element `first` on, one by one or in whole batches, of which a smaller last is left out."""
        stream = self.windows(lengths if numbering.packed else None) if self.windows else None  # type: ignore[arg-type]
        at_a_time = max(1, int(_TOKENS_AT_A_TIME // (stream or numbering).tokens_per_element))
        if batch_size:
            at_a_time = batch_size * max(1, at_a_time // batch_size)
        share = {"shard": [self.share.host, self.share.hosts], "runs": [self.share.run, self.share.start]}
        # An iterator saves which batch it is at, and how many of its elements were given: both count in these sizes.
        told = as_text({**self.fingerprint, **more, **share, "at_a_time": at_a_time, "batch_size": batch_size})

        def made(source: Numbering | Stretch, numbers: np.ndarray) -> list[np.ndarray]:
            batch = make_batch(source, numbers, lengths, with_task_id, self._id_shift)
            rows = lay_out(*batch)
            return list(
                {key: value.reshape(-1, batch_size, *value.shape[1:]) for key, value in rows.items()}.values()
                if batch_size
                else rows.values()
            )

        none = lay_out(*make_batch(numbering, np.zeros([0], np.int64), lengths, with_task_id, self._id_shift))
        varying = {IMAGES} if None not in lengths.values() else none.keys()
        specs = {
            key: tf.TensorSpec(
                [None, *([batch_size] if batch_size else []), *([None] * (value.ndim - 1) if key in varying else value.shape[1:])],
                _dtype_of(value),
            )
            for key, value in none.items()
        }
        dtypes = [spec.dtype for spec in specs.values()]

        def named(features: Sequence[tf.Tensor]) -> dict[str, tf.Tensor]:
            return {key: tf.ensure_shape(feature, spec.shape) for (key, spec), feature in zip(specs.items(), features)}

        if stream is not None:

            def following(state: np.ndarray) -> list[np.ndarray]:
                after, stretch = stream.read(state, at_a_time)
                return [after, *made(stretch, stretch.numbers)]

            def advance(state: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
                after, *features = python_op(following, [state], [tf.int64, *dtypes])
                return tf.ensure_shape(after, stream.start.shape), named(features)

            batches = scanned(told, tf.data.Dataset.range(_WITHOUT_END), stream.start, advance, self.has_seed)
            return batches.take_while(lambda batch: tf.shape(next(iter(batch.values())))[0] > 0).prefetch(1).unbatch()

        own = _WITHOUT_END if self.epochs is None else self.share.count(numbering.first_of(self.epochs))
        if batch_size:
            own = first + max(0, own - first) // batch_size * batch_size

        def make(start: np.ndarray) -> list[np.ndarray]:
            return made(numbering, self.share.numbers(np.arange(int(start), min(int(start) + at_a_time, own))))

        numbers = only_in(told, tf.data.Dataset.range(first, own, at_a_time), self.has_seed)
        # Slices would cost less, but one that is kept keeps all that was made with it.
        batches = numbers.map(lambda start: named(python_op(make, [start], dtypes)), num_parallel_calls=tf.data.AUTOTUNE)
        elements = batches.unbatch()
        if self.epochs is not None:
            elements = elements.apply(tf.data.experimental.assert_cardinality(max(0, own - first) // (batch_size or 1)))
        return elements


def continued(dataset: tf.data.Dataset, first: int, leaving_out: LeavingOut = NOTHING) -> tf.data.Dataset:
    """The same dataset from element `first` of this host on, which costs no more than its beginning; without what is left out.

    The dataset is what `get_dataset` of a mixture or task returned, or a feature converter made of it, not yet batched. One whose
    elements have no numbers raises a ValueError.
    """
    numbered = facts_of(dataset).numbered
    if numbered is None:
        raise ValueError(
            "dataset must have random access, but is a stream, or was changed after get_dataset. Continue what get_dataset"
            " returned, and change the result."
        )
    if not is_integer(first, at_least=0):
        raise ValueError(f"first must be an integer of at least 0, got {first!r}.")
    return numbered.dataset(int(first), leaving_out)


def shared_out(dataset: tf.data.Dataset, share: Share) -> tf.data.Dataset:
    """The same examples, shared out in another way.

    The dataset is what `get_dataset` of a mixture or task returned, of which `fingerprint_of` says something.
    """
    return dataclasses.replace(facts_of(dataset).rows, share=share).examples()


def numbering_of(dataset: tf.data.Dataset) -> Numbering | None:
    """Which example is which element; None of a stream."""
    numbered = facts_of(dataset).numbered
    return numbered and numbered.numbering


def fingerprint_of(dataset: tf.data.Dataset) -> Mapping[str, object] | None:
    """What decides which element has which number, and what it is; None of a stream."""
    numbered = facts_of(dataset).numbered
    return numbered and numbered.fingerprint


def _dtype_of(values: np.ndarray) -> tf.DType:
    return tf.string if values.dtype == object else tf.as_dtype(values.dtype)
