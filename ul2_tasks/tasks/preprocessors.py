"""Each denoiser as SeqIO preprocessors, made of TensorFlow ops alone: tokens -> chunks -> inputs and targets.

    seqio.Task(..., preprocessors=[
        seqio.preprocessors.tokenize,
        functools.partial(split_into_chunks, denoiser=T5GEMMA2[0]),
        functools.partial(denoise, denoiser=T5GEMMA2[0]),
    ])

They run wherever a graph does. With the same key of its noise an example has the same bytes as one of `denoisers.write`, where the
arithmetic is described; here each step is taken for many chunks. `prepend_mode` is for other tasks, those that a model with modes
is fine-tuned on.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import seqio
import tensorflow as tf

from ul2_tasks.denoisers.denoisers import PLACEMENTS, T5, TOUCHING, Denoiser
from ul2_tasks.denoisers.solution import DenoisingConfiguration, Solution, solve
from ul2_tasks.denoisers.write import Recipe, made, recipe
from ul2_tasks.example_features import TOKEN_FEATURES
from ul2_tasks.order.permutation import GOLDEN, MULTIPLIERS
from ul2_tasks.tasks.graphs import no_autograph, python_op, ragged, traced_once
from ul2_tasks.tasks.vocabulary import id_shift, special_in_seqio
from ul2_tasks.tokenizers.special_ids import (
    Mode,
    Sentinels,
    SpecialTokens,
    SpecialTokensRequest,
    TextIds,
    as_vocabulary,
    special_tokens,
)

TOKENS_AT_A_TIME = 1 << 17  # enough chunks to hide tf.data's cost per element, and few enough for the processor's cache


def split_into_chunks(
    dataset: tf.data.Dataset,
    sequence_length: Mapping[str, int] | None,
    output_features: Mapping[str, seqio.Feature],
    *,
    denoiser: Denoiser,
    sentinels: Sentinels | None = None,
    modes: Mapping[str, Mode] | None = None,
    chunk_tokens: int | None = None,
    merge_examples: bool = True,
    separate_documents: bool = False,
) -> tf.data.Dataset:
    """Splits tokenized documents into chunks as long as `denoise` makes examples of within the lengths.

    Every token of every document is in exactly one chunk. Documents that are joined make full chunks across their borders, and one
    shorter chunk where the dataset ends. A document without tokens adds nothing.

    Args:
        dataset: a dataset of {"targets": [tokens] int}, or of batches {"targets": RaggedTensor [documents, tokens] int}; other
            features are left behind.
        sequence_length, output_features: as SeqIO passes them. Inputs and targets have one vocabulary.
        denoiser: the denoiser.
        sentinels, modes: see `special_ids.special_tokens`; as for `register`.
        chunk_tokens: the longest chunk that is wanted; None where the lengths alone decide.
        merge_examples: whether documents are joined. Each of those that are not makes full chunks and one shorter one.
        separate_documents: whether an EOS ends each document that is joined.

    Returns:
        A dataset of {"targets": [tokens] int32}. Iterating raises a tf.errors.InvalidArgumentError on an id that no text may have:
        padding, a sentinel, a mode.

    Raises:
        ValueError: the lengths do not fit, see `lengths.chunk_length`; the vocabulary lacks a special token; `separate_documents`
            where nothing is joined, or there is no EOS.
    """
    request = SpecialTokensRequest(sentinels, modes)
    configuration = DenoisingConfiguration(denoiser, request, chunk_tokens, merge_examples, separate_documents)
    return chunk(dataset, solve_features(sequence_length, output_features, configuration))


def denoise(
    dataset: tf.data.Dataset,
    sequence_length: Mapping[str, int] | None,
    output_features: Mapping[str, seqio.Feature],
    *,
    denoiser: Denoiser,
    sentinels: Sentinels | None = None,
    modes: Mapping[str, Mode] | None = None,
    chunk_tokens: int | None = None,
    append_eos: bool = True,
) -> tf.data.Dataset:
    """Corrupts chunks, each to an example whose inputs and targets fit the lengths.

    The noise of a chunk depends on SeqIO's seed, on the denoiser's name and on the chunk's tokens. So two denoisers draw different
    noise from the same tokens, and so do two hosts with the same seed; the same seed over the same chunks draws the same noise.

    The arguments are those of `split_into_chunks`, which made the chunks. With `append_eos` inputs and targets end with the EOS
    that their features ask for; without, there is room for it, and a later step such as `seqio.preprocessors.append_eos` adds it.
    Gives a dataset of {"inputs": [tokens] int32, "targets": [tokens] int32}. Raises as `split_into_chunks` does.
    """
    configuration = DenoisingConfiguration(denoiser, SpecialTokensRequest(sentinels, modes), chunk_tokens)
    return corrupt(dataset, solve_features(sequence_length, output_features, configuration), append_eos)


def solve_features(
    sequence_length: Mapping[str, int] | None,
    output_features: Mapping[str, seqio.Feature],
    configuration: DenoisingConfiguration,
) -> Solution:
    """`solution.solve` for a task's features: inputs and targets share a vocabulary, and each says whether it ends in an EOS."""
    missing = {*TOKEN_FEATURES} - set(output_features)
    if missing:
        raise ValueError(f"output_features must be inputs and targets, got {sorted(output_features)} without {sorted(missing)}.")
    inputs, targets = (output_features[key] for key in TOKEN_FEATURES)
    if inputs.vocabulary is not targets.vocabulary and inputs.vocabulary != targets.vocabulary:
        raise ValueError(f"inputs and targets must have one vocabulary, got {inputs.vocabulary} and {targets.vocabulary}.")
    return solve(sequence_length, as_vocabulary(inputs.vocabulary), configuration, (inputs.add_eos, targets.add_eos))


@no_autograph
def chunk(dataset: tf.data.Dataset, solution: Solution) -> tf.data.Dataset:
    """See `split_into_chunks`."""
    configuration, special = solution.configuration, special_in_seqio(solution.special, solution.vocabulary)
    shift, length = id_shift(solution.vocabulary), solution.full.length
    is_text = np.concatenate([np.zeros(shift, bool), TextIds(solution.vocabulary.vocab_size, solution.special.reserved).table[:-1]])
    message = (
        f"denoiser {configuration.denoiser.name}: documents must have ids of text alone, got {'' if shift else 'padding (0), '}a"
        f" sentinel, a mode, or an id beyond the {len(is_text) - shift} of the vocabulary. Use the vocabulary that tokenized them,"
        " and no text that contains such a piece. The ids:"
    )

    def checked(tokens: tf.Tensor) -> tf.Tensor:
        known = tf.clip_by_value(tokens, 0, len(is_text) - 1)
        right = (tokens == known) & tf.gather(is_text, known)
        wrong = tf.boolean_mask(tokens, ~right) - shift
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(right), [message, wrong])]):
            return tf.identity(tokens)

    def flat(tokens: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        tokens = tf.cast(tokens.flat_values if isinstance(tokens, tf.RaggedTensor) else tokens, tf.int32)
        ends = special.ending if configuration.separate_documents else []
        return tf.concat([tokens, tf.constant(ends, tf.int32)[: tf.size(tokens)]], axis=0) if ends else tokens

    documents = dataset.map(lambda element: element["targets"])
    are_batches = isinstance(documents.element_spec, tf.RaggedTensorSpec)
    if are_batches and (configuration.separate_documents or not configuration.merge_examples):
        documents = documents.unbatch()
    documents = documents.map(flat)
    if configuration.merge_examples:  # many documents are checked at once
        chunks = documents.rebatch(TOKENS_AT_A_TIME).map(checked, num_parallel_calls=tf.data.AUTOTUNE).rebatch(length)
    else:
        chunks = documents.map(checked).flat_map(lambda tokens: tf.data.Dataset.from_tensors(tokens).rebatch(length))
    return chunks.filter(lambda tokens: tf.size(tokens) > 0).map(lambda tokens: {"targets": tokens})


@no_autograph
def corrupt(chunks: tf.data.Dataset, solution: Solution, append_eos: bool = True) -> tf.data.Dataset:
    """See `denoise`."""
    length, special = solution.full.length, special_in_seqio(solution.special, solution.vocabulary)
    corrupted = traced_once(
        _corrupt_with_seed,
        denoiser=solution.configuration.denoiser,
        special=special if append_eos else dataclasses.replace(special, eos=None),
        length=length,
        add_eos=solution.add_eos,
    )

    @seqio.map_over_dataset(num_seeds=1)
    def corrupt_rows(rows: tf.RaggedTensor | tf.Tensor, seed: tuple[tf.Tensor, tf.Tensor]) -> dict[str, tf.RaggedTensor]:
        ragged = rows if isinstance(rows, tf.RaggedTensor) else tf.RaggedTensor.from_tensor(rows)  # of one static length
        return corrupted(ragged, tf.stack(seed))

    tokens = chunks.map(lambda element: tf.cast(element["targets"], tf.int32))
    examples = corrupt_rows(tokens.ragged_batch(max(1, TOKENS_AT_A_TIME // length))).unbatch()
    return examples.map(lambda example: {key: tf.ensure_shape(example[key], [None]) for key in TOKEN_FEATURES})


@no_autograph
def _corrupt_with_seed(
    tokens: tf.RaggedTensor, seed: tf.Tensor, *, denoiser: Denoiser, special: SpecialTokens, length: int, add_eos: tuple[bool, bool]
) -> dict[str, tf.RaggedTensor]:
    """`corrupt_chunks` with keys made of [2] integers, the denoiser's name and the tokens.

    SeqIO gives one seed to all tasks of a mixture and to all hosts.
    """
    first, second = tf.unstack(tf.bitcast(tf.cast(seed, tf.int64), tf.uint64))
    name = tf.constant(zlib.crc32(denoiser.name.encode()), tf.uint64)
    content = tf.bitcast(tf.fingerprint(tokens.to_tensor(shape=[None, length])), tf.uint64)
    row = tf.cast(tf.range(tf.size(content)), tf.uint64) * tf.constant(GOLDEN, tf.uint64)
    keys = _mix(content ^ (_mix(first + _mix(second + name)) + row))
    return corrupt_chunks(tokens, keys, denoiser=denoiser, special=special, length=length, add_eos=add_eos)


@no_autograph
def corrupt_chunks(
    tokens: tf.RaggedTensor,
    keys: tf.Tensor,
    *,
    denoiser: Denoiser,
    special: SpecialTokens,
    length: int,
    add_eos: tuple[bool, bool] = (True, True),
) -> dict[str, tf.RaggedTensor]:
    """Draws the noise of chunks, and makes their inputs and targets: as `write.write_examples`, of chunks of one text.

    `tokens` are [R, tokens] int32, from 1 to `length` of each chunk, and `keys` [R] uint64.

    All chunks' tokens, and after them the special ids, are numbered as runs. Inputs and targets are lists of these numbers. For one
    chunk, A .. H, with the spans [B C] and [F G]:

        tokens   A | B C | D E | F G | H |   then  [R] | </s> | </s> | (no token) | <0> | <1>
        run      0   1     2     3     4   5       6     7      8      9            10    11

        inputs   6 | 0 10 2 11 | 4 | 7     the mode, each kept run but the last and its sentinel, the last kept run, EOS
        targets  10 1 11 3 | 8             each sentinel and its noise, EOS

    Where a chunk has fewer spans than others, the run without a token stands for the sentinels of those that it lacks.
    """
    made_of = recipe(denoiser, special, length, add_eos)
    if not isinstance(made_of, Recipe) or len(made_of.borders):
        return _made_of_ids(made_of, tokens, keys)
    rows = tokens.nrows(tf.int32)
    kept, noise = _spans(made_of.counts, made_of.placement, tf.cast(tokens.row_lengths(), tf.int32), keys)
    most = noise.shape[1]
    sentinels: list[list[int]] = [[id] for id in made_of.sentinels[:most]] or [[]] * most
    special_runs: list[Sequence[int] | np.ndarray] = [made_of.mode, made_of.inputs_end, made_of.targets_end, [], *sentinels]
    own_runs = tf.reshape(tf.stack([kept, tf.pad(noise, [[0, 0], [0, 1]])], axis=2), [-1])
    runs = tf.RaggedTensor.from_row_lengths(
        tf.concat([tokens.flat_values, np.concatenate(special_runs).astype(np.int32)], axis=0),
        tf.concat([own_runs, list(map(len, special_runs))], axis=0),
        validate=False,  # the runs of a chunk sum to its tokens by construction
    )
    kept_run, noise_run = tf.unstack(tf.reshape(tf.range(tf.size(own_runs)), [rows, most + 1, 2]), axis=2)
    mode, inputs_end, targets_end, empty, *of_spans = tf.unstack(tf.size(own_runs) + tf.range(len(special_runs)))
    sentinel = tf.where(noise > 0, tf.stack(of_spans), empty)

    def written(*wanted: tf.Tensor) -> tf.RaggedTensor:
        columns = [each if each.shape.rank else tf.fill([rows, 1], each) for each in wanted]
        numbers = tf.concat(columns, axis=1)
        chosen = tf.gather(runs, tf.reshape(numbers, [-1]))
        lengths = tf.reduce_sum(tf.reshape(chosen.row_lengths(), tf.shape(numbers)), axis=1)
        return tf.RaggedTensor.from_row_lengths(chosen.flat_values, lengths, validate=False)

    def in_turn(one: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
        return tf.reshape(tf.stack([one, other], axis=2), [rows, 2 * most])

    of_targets = [in_turn(sentinel, noise_run[:, :-1])]
    if made_of.is_whole:
        of_targets = [in_turn(kept_run[:, :-1], noise_run[:, :-1]), kept_run[:, -1:]]
    return {
        "inputs": written(mode, in_turn(kept_run[:, :-1], sentinel), kept_run[:, -1:], inputs_end),
        "targets": written(*of_targets, targets_end),
    }


def _made_of_ids(recipe: Any, tokens: tf.RaggedTensor, keys: tf.Tensor) -> dict[str, tf.RaggedTensor]:
    """By machine code: no graph has the arithmetic of a denoiser that sees ids."""

    def make(ids: np.ndarray, lengths: np.ndarray, keys: np.ndarray) -> list[np.ndarray]:
        features, sizes = made(recipe, ids, lengths, np.arange(len(lengths) + 1), keys)
        return [*features, *sizes.T]

    arrays = python_op(make, [tokens.flat_values, tokens.row_lengths(), keys], [tf.int32] * 2 + [tf.int64] * 2)
    return {key: ragged(*of) for key, of in zip(TOKEN_FEATURES, zip(arrays[:2], arrays[2:]))}


def _spans(counts: np.ndarray, placement: int, lengths: tf.Tensor, keys: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Draws the tokens before each noise span and after the last, [R, K + 1] int32, and those of each noise span, [R, K] int32.

    A row with fewer spans than K ends in zeros. See `write._draw_spans`.
    """
    golden, most = tf.constant(GOLDEN, tf.uint64), int(counts[:, 0].max())
    spans, fewest, longest = tf.unstack(tf.gather(counts, lengths), axis=1)
    noise_key, kept_key = _mix(tf.bitwise.invert(keys)), _mix(tf.bitwise.invert(keys + golden))
    noise = fewest
    if (counts[:, 1] < counts[:, 2]).any():
        noise = fewest + _below((longest - fewest + 1)[:, tf.newaxis], noise_key)[:, 0]
        noise_key = _mix(noise_key ^ golden)
    of_noise = _composition(noise, spans, most, noise_key)
    if PLACEMENTS[placement] == T5:
        return tf.pad(_composition(lengths - noise, spans, most, kept_key), [[0, 0], [0, 1]]), of_noise
    if PLACEMENTS[placement] == TOUCHING:
        kept = _composition(lengths - noise + spans + 1, spans + 1, most + 1, kept_key)
        return kept - tf.sequence_mask(spans + 1, most + 1, tf.int32), of_noise
    kept = _composition(lengths - noise + 2, spans + 1, most + 1, kept_key)
    ends = [tf.one_hot(place, most + 1, dtype=tf.int32) for place in (tf.zeros_like(spans), spans)]
    return kept - ends[0] - ends[1], of_noise


def _composition(total: tf.Tensor, parts: tf.Tensor, most: int, keys: tf.Tensor) -> tf.Tensor:
    """Draws for each row a way to write `total` as an ordered sum of `parts` positive integers, [R, most] int32, zeros at its end.

    See `write._draw_composition`. All of a row's steps are taken at once. Step i takes the last place of its range, `first + i`, if
    an earlier step took the place that it drew. One did if it drew the same. One also did if the place is the last of its own
    range, and it took that: then both steps have one answer, and the earlier one may again have that of a still earlier one. These
    chains of steps are followed by doubling.
    """
    width = most - 1
    if not width:
        return total[:, tf.newaxis]
    rows, total, parts = tf.size(total), total[:, tf.newaxis], parts[:, tf.newaxis]
    row, step, first = tf.range(rows)[:, tf.newaxis], tf.range(width), total - parts
    drawn = _below(tf.maximum(first + step + 1, 1), keys)
    places = tf.reduce_max(drawn) + 1
    place, own = drawn + row * places, step + row * width  # numbers for the places of all rows, and for their steps
    drawn_before = tf.gather(tf.math.unsorted_segment_min(own, place, rows * places), place) < own
    follows = ~drawn_before & (drawn >= first) & (drawn < first + step)
    leader = tf.reshape(tf.where(follows, drawn - first + row * width, own), [-1])
    for _ in range((width - 1).bit_length()):
        leader = tf.gather(leader, leader)
    is_taken = tf.reshape(tf.gather(tf.reshape(drawn_before, [-1]), leader), [rows, width])
    ends = tf.sort(tf.where(step < parts - 1, tf.where(is_taken, first + step, drawn) + 1, total), axis=1)
    edges = tf.concat([tf.zeros_like(total), ends, total], axis=1)
    return edges[:, 1:] - edges[:, :-1]


def _below(bounds: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
    """Draws 1, 2 .. of each key, integers in [0, bound), of [R, W] int32; see `write._draw_below`."""
    draws = np.arange(1, bounds.shape[1] + 1, dtype=np.uint64) * np.uint64(GOLDEN)
    bits = tf.cast(tf.bitwise.right_shift(_mix(keys[:, tf.newaxis] + draws), np.uint64(32)), tf.int64)
    return tf.cast(tf.bitwise.right_shift(bits * tf.cast(bounds, tf.int64), 32), tf.int32)


def _mix(values: tf.Tensor) -> tf.Tensor:
    """SplitMix64's finaliser, of [..] uint64; see `order.permutation.mix`."""
    for shift, factor in zip((30, 27, 31), (*MULTIPLIERS, np.uint64(1))):
        values = (values ^ tf.bitwise.right_shift(values, np.uint64(shift))) * factor
    return values


@no_autograph
def prepend_mode(
    dataset: tf.data.Dataset,
    output_features: Mapping[str, seqio.Feature],
    *,
    mode: str,
    modes: Mapping[str, Mode] | None = None,
) -> tf.data.Dataset:
    """Returns a task's examples with a mode before the inputs, to fine-tune or use a model in that mode.

    Put it after `seqio.preprocessors.tokenize` and before `append_eos_after_trim`, which then counts the mode in the length.

    Args:
        dataset: a dataset of {"inputs": [tokens] of an integer dtype, ..}; other features stay as they are.
        output_features: `inputs` and others, as SeqIO passes them.
        mode: the mode's name, as the denoisers have it.
        modes: see `special_ids.special_tokens`; as for `register`.

    Raises:
        ValueError: the inputs are missing or not tokenized, or the vocabulary lacks the mode.
    """
    for present, where in ((output_features, "the task's output_features"), (dataset.element_spec, "its examples")):
        if "inputs" not in present:
            raise ValueError(
                f"{where} must have a feature inputs, before which the mode goes, got {sorted(present)}. Name the feature inputs."
            )
    spec = dataset.element_spec["inputs"]
    if not spec.dtype.is_integer or spec.shape.rank != 1:
        raise ValueError(
            f"inputs must be [tokens] of integers for a mode to go before them, got {spec}. Put prepend_mode after tokenize."
        )
    vocabulary = as_vocabulary(output_features["inputs"].vocabulary)
    ids = special_in_seqio(special_tokens(vocabulary, mode, sentinels=(), modes=modes), vocabulary).mode

    def prepend(example: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return {**example, "inputs": tf.concat([tf.constant(ids, spec.dtype), example["inputs"]], axis=0)}

    return dataset.map(prepend, num_parallel_calls=tf.data.AUTOTUNE)
