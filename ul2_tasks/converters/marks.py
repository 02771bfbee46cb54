"""The features of each token of an example, `loss_mask` and `span_id`: found in a dataset, and checked.

A converter of this package uses `loss_mask` wherever a dataset has it: a token that is not trained on has the weight 0 or the label
-100.
"""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from ul2_tasks.example_features import EXAMPLE, LOSS_MASK, PROMPT_COMPLETION, Feature, token_features


def example_spec(ds: tf.data.Dataset) -> dict[str, Feature]:
    """The features that a converter of inputs and targets reads: these and, where the dataset has it, the targets' loss mask.

    Raises a ValueError where `loss_mask` is not a mask, [tokens] uint8.

    >>> list(example_spec(tf.data.Dataset.from_tensors({"inputs": [1], "targets": [2], "loss_mask": tf.constant([1], tf.uint8)})))
    ['inputs', 'targets', 'loss_mask']
    """
    mask = ds.element_spec.get(LOSS_MASK)
    if mask is None:
        return {**EXAMPLE}
    if (mask.dtype, mask.shape.rank) != (tf.uint8, 1):
        raise ValueError(
            f"loss_mask must be uint8 [tokens], 1 for each target to train on and 0 for others, got {mask.dtype.name} {mask.shape}."
            " Convert it, or leave it out of the examples."
        )
    return {**EXAMPLE, LOSS_MASK: PROMPT_COMPLETION[LOSS_MASK]}


def how_many(are: tf.Tensor) -> tf.Tensor:
    """How many values of each row are true: [N, tokens] bool to [N] int32. `tf.math.count_nonzero` counts in 64 bits."""
    return tf.reduce_sum(tf.cast(are, tf.int32), axis=1)


def absent(feature: Feature) -> tf.Tensor:
    """What pads the examples of a batch until they are in rows, see `Feature.absent`."""
    return tf.constant(feature.absent, feature.dtype)


def padded(examples: Mapping[str, tf.Tensor], spec: Mapping[str, Feature]) -> dict[str, tf.Tensor]:
    """The examples of a batch, padded as `spec` says."""
    return {
        key: tf.where(examples[key] == absent(feature), tf.constant(feature.padding, feature.dtype), examples[key])
        for key, feature in spec.items()
    }


def checked(examples: Mapping[str, tf.Tensor], lengths: Mapping[str, int], spec: Mapping[str, Feature]) -> dict[str, tf.Tensor]:
    """The examples of a batch, or an error with the lengths that do not fit a row.

    Examples are [N, tokens] for each feature, padded with `Feature.absent`. `lengths` are those of the rows, in tokens.
    """
    sizes = {key: how_many(examples[key] != absent(feature)) for key, feature in spec.items()}
    checks = misaligned(examples, spec)
    for key in token_features(spec):
        checks.append(_error(sizes[key] == 0, f"{key} of an example must have tokens, got none. Leave the example out.", ()))
        checks.append(
            _error(
                sizes[key] > lengths[key],
                f"{key} of an example must have at most {lengths[key]} tokens, the length of a row, got {{}}. Raise"
                " task_feature_lengths, or pass register_chat(truncation='drop'), or 'drop_oldest_turns'.",
                (sizes[key],),
            )
        )
    with tf.control_dependencies(checks):
        return {key: tf.identity(values) for key, values in examples.items()}


def misaligned(examples: Mapping[str, tf.Tensor], spec: Mapping[str, Feature]) -> list[tf.Operation]:
    """Errors where an example does not have one value for each of its tokens; see `checked`."""
    sizes = {key: how_many(examples[key] != absent(feature)) for key, feature in spec.items()}
    return [
        _error(
            sizes[key] != sizes[feature.per_token_of],
            f"{key} of an example must have a value for each of its {feature.per_token_of}, got {{}} for {{}}. If SeqIO has trimmed"
            f" the {feature.per_token_of}, pass trim_output_features=False.",
            (sizes[key], sizes[feature.per_token_of]),
        )
        for key, feature in spec.items()
        if key != feature.per_token_of
    ]


def _error(wrong: tf.Tensor, message: str, numbers: tuple[tf.Tensor, ...]) -> tf.Operation:
    """An error if one of the examples, [N] bool, is wrong, with the numbers of the first such one, [N] each, for each {}."""

    def fail() -> tf.Operation:
        first = tf.argmax(wrong)
        return tf.debugging.Assert(False, [tf.strings.format(message, [number[first] for number in numbers])])

    return tf.cond(tf.reduce_any(wrong), fail, tf.no_op)
