"""The adaptor to tf.data: examples, or rows of a model, as a `tf.data.Dataset` whose iterators save a few integers.

    state        [1] int64 of the index, the number of the next element; of windows also where each of them begins
      -> scan    the state after it, and what was read: of the index a number, of windows a batch, as windows are read in turn
      -> map     of the index the batch at this number, several at a time
      -> unbatch element by element

Host h of H has the elements h, h + H, h + 2 H .. of the index. So the elements n B .. (n + 1) B - 1 are step n of batch size B on
any number of hosts.

tf.data restores an iterator into any pipeline that has the same steps. With other rates, lengths, seeds or hosts it would go on
without a word, with other data than before. So the state has the *fingerprint*, too, which is compared when the next batch is read.
"""

from __future__ import annotations

import dataclasses
import json
import secrets
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ul2_tasks.example_features import DENOISER, IMAGES, TASK, token_features
from ul2_tasks.order.steps import Steps
from ul2_tasks.random_access.batches import Batch, features_of, make_batch, members_of, widest
from ul2_tasks.random_access.fingerprint import of_leaving_out, of_rows
from ul2_tasks.random_access.leaving_out import NOTHING, LeavingOut
from ul2_tasks.random_access.numbering import NO_END, Numbering, Share, Slots
from ul2_tasks.random_access.tasks import TaskInfo, tasks_of
from ul2_tasks.random_access.windows import Stream, Stretch
from ul2_tasks.scalars import is_integer
from ul2_tasks.tasks.datasets import Facts, facts_of, known
from ul2_tasks.tasks.graphs import no_autograph, python_op
from ul2_tasks.tasks.vocabulary import id_shift

# Each batch that is made costs some milliseconds, whatever its size. The state of an iterator counts in batches of this size.
_TOKENS_AT_A_TIME = 1 << 18

Arrays = dict[str, np.ndarray]


class Form(NamedTuple):
    """Rows of a model: how long they are, in tokens; what makes its features of those of `make_batch`, which may have "task_id"."""

    lengths: Mapping[str, int | None]
    convert: Callable[[Arrays], Arrays]
    with_task_id: bool


@dataclasses.dataclass(frozen=True)
class Reading:
    """Which elements are read, and as what.

    The lengths of examples were solved for `sequence_length`, and `epochs` is None for no end. Only `features` are kept of an
    example. `fingerprint` is all that decides which example has which number, and what it is. Without a seed, see `has_seed`,
    iterators cannot be resumed. `windows` opens the stream of what is read in windows, of packed rows of these lengths; the
    numbering is then of the beginning alone. `form` is None for examples. `first` is the first of this host's elements, which
    have no tokens of what is left out. Those of a stage with other lengths, or with batches of another size than the first has
    where there are `steps`, cannot be read.
    """

    numbering: Numbering
    sequence_length: Mapping[str, int | None]
    epochs: int | None
    share: Share
    features: Collection[str]
    fingerprint: Mapping[str, object]
    has_seed: bool
    windows: Callable[[Mapping[str, int | None] | None], Stream] | None = None
    form: Form | None = None
    first: int = 0
    leaving_out: LeavingOut = NOTHING
    steps: Steps | None = None

    @property
    def tasks(self) -> tuple[TaskInfo, ...]:
        """The tasks of the mixture, which `task_id` counts from 0."""
        return tasks_of(members_of(self.numbering))

    def rows(
        self, lengths: Mapping[str, int], pack: bool, convert: Callable[[Arrays], Arrays], with_task_id: bool = False
    ) -> tf.data.Dataset | None:
        """The arrays that `convert` makes of a batch of rows, row by row; None where there are no rows of these lengths.

        `lengths` are those of the rows of each feature, in tokens; `with_task_id` adds "task_id", see `batches.make_batch`.
        """
        if lengths != self.sequence_length:
            return None
        numbering, form = self.numbering.in_rows(lengths) if pack else self.numbering, Form(lengths, convert, with_task_id)
        more = {"pack": pack, **of_rows(numbering)}
        return dataclasses.replace(self, numbering=numbering, form=form, fingerprint={**self.fingerprint, **more}).dataset()

    def continued(self, first: int, leaving_out: LeavingOut = NOTHING, steps: Steps | None = None) -> tf.data.Dataset:
        """The same from this element of this host on, which costs no more than the beginning; without what is left out."""
        if not is_integer(first, at_least=0):
            raise ValueError(f"first must be an integer of at least 0, got {first!r}.")
        return dataclasses.replace(self, first=int(first), leaving_out=leaving_out, steps=steps).dataset()

    def _until(self, first: int) -> int:
        """The first of this host's elements after one whose stage has rows or batches of another form; `NO_END` for none."""
        number = int(self.share.numbers(np.array([first]))[0])
        borders = [begin for begin, _ in self.numbering.lengths if begin > number]
        if self.steps:
            borders += [begin for step, _ in self.steps.sizes if (begin := self.steps.element(step)) > number]
        return self.share.count(min(borders)) if borders else NO_END

    @no_autograph
    def dataset(self) -> tf.data.Dataset:
        """The elements one by one: the form's features, or {"inputs": [tokens] int32, "targets": [tokens] int32} and the like."""
        numbering, members = self.numbering.without(self.leaving_out), members_of(self.numbering)
        lengths, shift = self.form.lengths if self.form else widest(members), id_shift(members[0].vocabulary)
        stream = self.windows(lengths if numbering.packed else None) if self.windows else None
        at_a_time = max(1, int(_TOKENS_AT_A_TIME // (stream or numbering).tokens_per_element))
        told = self._told(at_a_time)

        def make(source: Numbering | Stretch, slots: Slots) -> Arrays:
            batch = make_batch(source, slots, lengths, bool(self.form and self.form.with_task_id))
            if shift:
                _raise_ids(batch, shift)
            return self.form.convert(batch.rows) if self.form else batch.rows | self._beside_rows(batch.sizes, batch.members)

        nothing = make(numbering, numbering.slots(np.zeros([0], np.int64)))
        dtypes = [tf.string if value.dtype == object else tf.as_dtype(value.dtype) for value in nothing.values()]
        varying = {IMAGES} if None not in lengths.values() else nothing.keys()
        shapes = [[None] * value.ndim if key in varying else [None, *value.shape[1:]] for key, value in nothing.items()]

        def batch_of(arrays: Sequence[tf.Tensor]) -> dict[str, tf.Tensor]:
            return dict(zip(nothing, map(tf.ensure_shape, arrays, shapes)))

        if stream:

            def read(state: np.ndarray) -> list[np.ndarray]:
                after, stretch = stream.read(state, at_a_time)
                return [after, *make(stretch, stretch.slots).values()]

            def step(state: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
                # TensorFlow keeps the graph of a scan until the program ends, but not this function, which has what is read.
                after, *arrays = python_op(weakref.proxy(read), [state], [tf.int64, *dtypes])
                return after, batch_of(arrays)

            batches = _scan(NO_END, stream.start, step, told, self.has_seed)
            batches = batches.take_while(lambda batch: tf.shape(next(iter(batch.values())))[0] > 0).prefetch(1)
        else:
            stop = NO_END if self.epochs is None else self.share.count(numbering.first_of(self.epochs))
            stop = max(self.first, stop)
            until = self._until(self.first)

            def made(first: np.ndarray) -> list[np.ndarray]:
                own = np.arange(int(first), min(int(first) + at_a_time, stop, max(until, int(first) + 1)))
                self._check_form(int(first), until)
                return list(make(numbering, numbering.slots(self.share.numbers(own))).values())

            # One batch more where a stage of another form follows, which it tells.
            count, start = -(-(stop - self.first) // at_a_time) + (until < stop), np.array([self.first], np.int64)
            firsts = _scan(count, start, lambda state: (state + at_a_time, state[0]), told, self.has_seed)
            batches = firsts.map(lambda first: batch_of(python_op(made, [first], dtypes)), num_parallel_calls=tf.data.AUTOTUNE)
        # Slices would cost less, but one that is kept keeps all that was made with it.
        elements = batches.unbatch()
        if not stream and self.epochs is not None:
            elements = elements.apply(tf.data.experimental.assert_cardinality(stop - self.first))
        if not self.form:
            elements = elements.map(self._without_padding, num_parallel_calls=tf.data.AUTOTUNE)
        return known(elements, Facts(shift, self))

    def _check_form(self, first: int, until: int) -> None:
        """Raises a ValueError where elements from one of this host's on have rows or batches of another form than are read."""
        number, begun = (int(self.share.numbers(np.array([each]))[0]) for each in (min(first, until), self.first))
        ((lengths, _),) = self.numbering.by_lengths(np.array([number]), self.sequence_length)
        if first < until and lengths == self.sequence_length:
            return
        now, before = dict(lengths), dict(self.sequence_length)
        where, read = f"from element {number:,} of the schedule on,", ""
        if self.steps:
            sizes = [self.steps.size(self.steps.step(each)) for each in (number, begun)]
            where, read = (
                f"in batches of {sizes[0]} from step {self.steps.step(number)}, element {number:,},",
                f" in batches of {sizes[1]}",
            )
        raise ValueError(
            f"sequence_length must be {now} {where} got {before}{read}. Restart at that step with these. See"
            " docs/guides/train_with_t5x.md#change-lengths-and-the-batch-size."
        )

    def _told(self, at_a_time: int) -> str:
        """The fingerprint of an iterator's state, which counts in batches of this size, and in this host's elements."""
        share = {"shard": [self.share.host, self.share.hosts], "runs": [self.share.run, self.share.start]}
        form = {
            "features": "rows" if self.form else "examples",
            **({"task_id": True} if self.form and self.form.with_task_id else {}),
        }
        told = {**self.fingerprint, **form, **of_leaving_out(self.leaving_out), **share, "at_a_time": at_a_time}
        return json.dumps(told).replace('"', "")  # before each of which tf.debugging.Assert would print a backslash

    def _beside_rows(self, sizes: Arrays, members: np.ndarray) -> Arrays:
        """What examples have beside their padded rows: the lengths of these, and the names of denoiser and task where wanted."""
        own = members_of(self.numbering)
        names = {DENOISER: [member.denoiser for member in own], TASK: [member.task for member in own]}
        named = {
            key: np.array([name.encode() for name in of], object)[members] for key, of in names.items() if key in self.features
        }
        return {f"{key}_length": of_each for key, of_each in sizes.items()} | named

    def _without_padding(self, example: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        spec = features_of(members_of(self.numbering))
        lengths = {key: example[f"{key}_length"] for key in token_features(spec)}
        of_tokens = {key: example[key][: lengths[feature.per_token_of]] for key, feature in spec.items()}
        if IMAGES in example:
            of_tokens[IMAGES] = example[IMAGES][: example[f"{IMAGES}_length"]]
        return {key: of_tokens.get(key, value) for key, value in example.items() if key in self.features}


def _raise_ids(batch: Batch, shift: int) -> None:
    """Makes the ids of rows so much higher, in place; not those in the padding, which SeqIO knows by its 0."""
    for key, sizes in batch.sizes.items():
        if key != IMAGES:
            row = batch.rows[key]
            segments = batch.rows.get(f"{key}_segment_ids")
            row += np.int32(shift) * (segments > 0 if segments is not None else np.arange(row.shape[1]) < sizes[:, np.newaxis])


def reading_of(dataset: tf.data.Dataset) -> Reading | None:
    """What reads a dataset by number: one that `get_dataset` of a mixture or task returned, or a feature converter made of it.

    None where it was changed since, even batched, has examples of other tasks, or is read in windows.
    """
    facts = facts_of(dataset)
    return facts.source if facts and facts.source and not facts.source.windows else None


def seed_of(seed: int | None) -> int | str:
    """What a fingerprint says of a seed: of none, something that no other pipeline says."""
    return f"none, so it cannot be resumed ({secrets.token_hex(4)})" if seed is None else int(seed)


def _scan(
    count: int, start: np.ndarray, step: Callable[[tf.Tensor], tuple[tf.Tensor, Any]], told: str, has_seed: bool
) -> tf.data.Dataset:
    """What `step` makes of a state, which it gives with the state after it: of `start`, and then of each state, so many times.

    An iterator saves the state and what is told, and nothing that was made of them; tf.data calls it a symbolic checkpoint.
    """
    what_to_do = (
        "this iterator was saved by another pipeline. Resume with the settings of the saved one, or start from the beginning. See"
        " docs/help/troubleshooting.md#the-iterator-is-rejected."
        if has_seed
        else "a pipeline that was built without a seed cannot be resumed. Pass seed=, and start from the beginning. See"
        " docs/help/troubleshooting.md#a-pipeline-without-a-seed."
    )

    def checked(carried: tuple[tf.Tensor, tf.Tensor], _: tf.Tensor) -> tuple[tuple[tf.Tensor, tf.Tensor], Any]:
        state, saved = carried
        message = [f"{what_to_do} Saved:", saved, "this one:", told]
        with tf.control_dependencies([tf.debugging.Assert(tf.equal(saved, told), message)]):
            after, made = step(tf.identity(state))
        return (tf.ensure_shape(after, start.shape), saved), made

    options = tf.data.Options()
    options.experimental_symbolic_checkpoint = True
    return tf.data.Dataset.range(count).scan((tf.constant(start), tf.constant(told)), checked).with_options(options)
