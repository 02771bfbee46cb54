"""Passes over a corpus, one after the other, until one of them gives nothing.

Where no document has a token, tf.data would begin one pass after the other, for ever, to find an element. So
a mark is put at the end of each pass. When it comes, an error is raised unless the pass held what can be an example.
"""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from ul2_tasks.graphs import no_autograph, traced_once

Documents = Mapping[str, tf.Tensor | tf.RaggedTensor]  # a batch of them
NO_EXAMPLE = "no example can be made of"  # how the error begins


@no_autograph
def repeat(documents: tf.data.Dataset, num_epochs: int | None, *, name: str, is_whole: bool) -> tf.data.Dataset:
    """Repeats the documents.

    The documents are batches {"targets": RaggedTensor [documents, tokens]}; "skipped" may stand beside it, see
    `tokenization.tokenize_batches`. A `num_epochs` of None is for ever. Iterating raises a tf.errors.InvalidArgumentError at the
    end of a pass in which no document has a token, so that none makes an example. In a finite number of epochs a pass without any
    document is no error; and without `is_whole`, where these are the documents of one host among several, no pass is checked.
    """
    if num_epochs is not None and not is_whole:
        return documents.repeat(num_epochs)

    count = traced_once(_count, name=name, is_finite=num_epochs is not None)

    def count_or_refuse(held: tf.Tensor, document: Documents) -> tuple[tf.Tensor, Documents]:
        held, problem = count(held, document)
        with tf.control_dependencies([tf.debugging.Assert(tf.equal(problem, ""), [problem])]):
            return tf.identity(held), document

    passes = documents.concatenate(_end(documents)).repeat(num_epochs)
    return passes.scan(tf.zeros([3], tf.int64), count_or_refuse).filter(lambda document: ~_is_end(document))


@no_autograph
def _count(held: tf.Tensor, document: Documents, *, name: str, is_finite: bool) -> tuple[tf.Tensor, tf.Tensor]:
    """Adds a document to what the pass held, [3] int64: documents, tokens, records skipped.

    Gives what the pass holds now, nothing after its end; and why no pass may follow, "" where one may.
    """
    counted = held + _counts(document)
    is_end = _is_end(document)
    may_go_on = (counted[1] > 0) | ((counted[0] == 0) & is_finite)

    def problem() -> tf.Tensor:
        counts = tf.strings.format("{} documents, {} tokens, {} records skipped", tuple(tf.unstack(counted)))
        message = (
            f"{NO_EXAMPLE} {name}, of which a pass held ",
            counts,
            ". A document must have a token: look at the source and its text_key with `ul2 doctor`.",
        )
        return tf.strings.join(message)

    return tf.where(is_end, tf.zeros_like(held), counted), tf.cond(~is_end | may_go_on, lambda: tf.constant(""), problem)


def _end(documents: tf.data.Dataset) -> tf.data.Dataset:
    """A dataset of one batch that has no document."""
    spec = documents.element_spec["targets"]
    none = tf.RaggedTensor.from_row_splits(tf.zeros([0], spec.dtype), tf.zeros([1], spec.row_splits_dtype))
    rest = {key: tf.zeros([], other.dtype) for key, other in documents.element_spec.items() if key != "targets"}
    return tf.data.Dataset.from_tensors({"targets": none, **rest})


def _is_end(documents: Documents) -> tf.Tensor:
    return documents["targets"].nrows() == 0


def _counts(documents: Documents) -> tf.Tensor:
    lengths, skipped = documents["targets"].row_lengths(), documents.get("skipped", tf.constant(0, tf.int64))
    return tf.stack([tf.size(lengths, tf.int64) - skipped, tf.reduce_sum(lengths), skipped])
