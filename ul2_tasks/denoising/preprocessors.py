"""The tf.data steps: documents -> blocks of chunks -> corrupted examples.

tf.data costs tens of microseconds per element and per map, whatever the map does. So documents are cut into *blocks*,
batches of chunks, and one graph corrupts a whole block. `solve_features` finds the special ids and the length of a chunk, `chunk`
makes the blocks and `corrupt` the examples. `denoise` is all three, as a preprocessor for a SeqIO task. `prepend_mode` is
for other tasks, those that a model with modes is fine-tuned on.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping

import numpy as np
import seqio
import tensorflow as tf

from ul2_tasks.datasets import with_id_shift
from ul2_tasks.denoising.chunking import chunk_documents, chunk_stream, concatenate, marked, without_marks
from ul2_tasks.denoising.corruption import corrupt_rows
from ul2_tasks.denoising.denoisers import Denoiser
from ul2_tasks.denoising.solution import DenoisingConfiguration, Solution, document_borders, solve
from ul2_tasks.denoising.spans import random_spans
from ul2_tasks.example_features import TOKEN_FEATURES
from ul2_tasks.graphs import folded, no_autograph, traced_once
from ul2_tasks.vocabulary.special_ids import Mode, SpecialTokens, id_shift, special_tokens

TOKENS_PER_BLOCK = 1 << 17  # enough rows to hide tf.data's cost per element, and few enough for the processor's cache


def denoise(
    dataset: tf.data.Dataset,
    sequence_length: Mapping[str, int] | None,
    output_features: Mapping[str, seqio.Feature],
    *,
    configuration: DenoisingConfiguration,
) -> tf.data.Dataset:
    """Makes examples of tokenized documents: `solve_features`, then `chunk`, then `corrupt`."""
    solution = solve_features(sequence_length, output_features, configuration)
    return corrupt(chunk(dataset, solution), solution)


@no_autograph
def chunk(dataset: tf.data.Dataset, solution: Solution) -> tf.data.Dataset:
    """Splits tokenized documents into blocks of chunks as long as the budgets allow.

    Every token of every document is in exactly one chunk.
    Documents that are joined make full chunks across their borders, and one shorter chunk where the dataset ends. Each of the
    documents that are kept apart makes full chunks and one shorter one. A document without tokens adds nothing.

    The dataset is of {"targets": [tokens] int32}, any length, or of batches of such documents, {"targets": RaggedTensor [documents,
    tokens] int32}; other features are left behind. Gives blocks {"tokens": [R, L] int32, "length": [R] int32}, R and L varying,
    rows padded with 0 at their end; with `mark_documents` also "starts_document": [R, L] bool. Raises a ValueError for
    `separate_documents` where nothing is joined or there is no EOS, and for a causal denoiser that lacks BOS or EOS. Iterating
    raises a tf.errors.InvalidArgumentError on an id that no text may have: padding, a sentinel, a mode.
    """
    configuration, special, full = solution.configuration, solution.special, solution.full
    denoiser, merge_examples, mark_documents = configuration.denoiser, configuration.merge_examples, configuration.mark_documents
    starts, ends = document_borders(denoiser, special, solution.vocabulary)
    if configuration.separate_documents and (not merge_examples or special.eos is None):
        raise ValueError(
            f"separate_documents needs merge_examples=True and a vocabulary with an EOS, got merge_examples={merge_examples}, EOS"
            f" {special.eos}. Give it both, or set separate_documents=False."
        )
    vocab_size, shift = solution.vocabulary.vocab_size, id_shift(solution.vocabulary)
    padding = "" if shift else "padding (0), "
    wrong_ids = traced_once(not_text, reserved=special.reserved, vocab_size=vocab_size)
    message = (
        f"denoiser {denoiser.name}: documents must have ids of text alone, got {padding}a sentinel, a mode, or an id beyond the"
        f" {vocab_size - shift} of the vocabulary. Use the vocabulary that tokenized them, and no text that contains such a piece."
        " The ids:"
    )

    def checked(tokens: tf.Tensor) -> tf.Tensor:
        tokens = tf.cast(tokens, tf.int32)
        wrong = wrong_ids(without_marks(tokens) if mark_documents else tokens)
        with tf.control_dependencies(
            [tf.debugging.Assert(tf.equal(tf.size(wrong), 0), [message, wrong - shift if shift else wrong])]
        ):
            return tf.identity(tokens)

    def with_marks_apart(block: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        ids = without_marks(block["tokens"])
        return {**block, "tokens": ids, "starts_document": block["tokens"] != ids}

    rows = max(1, TOKENS_PER_BLOCK // full.length)
    ends = ends or (special.ending if configuration.separate_documents else [])
    if mark_documents:
        dataset, starts, ends = marked(dataset, starts, ends), [], []
    if not merge_examples:
        blocks = chunk_documents(dataset, full.length, rows, checked=checked, starts=starts, ends=ends)
    else:
        blocks = chunk_stream(concatenate(dataset, starts, ends), full.length, rows, checked)
    return blocks.map(with_marks_apart) if mark_documents else blocks


@no_autograph
def corrupt(blocks: tf.data.Dataset, solution: Solution) -> tf.data.Dataset:
    """Corrupts blocks of chunks, and gives their examples one by one.

    The noise of a block depends on SeqIO's seed for it (each block of each epoch has another), on the denoiser's name and on
    the block's tokens. So two denoisers draw different noise from the same tokens, and so do two hosts with the same seed;
    the same seed over the same documents draws the same noise.

    The blocks are what `chunk` made of the same solution; features beside `tokens` and `length` are handed on row by row. Gives
    {"inputs": [tokens] int32, "targets": [tokens] int32}, none longer than its budget.
    """
    denoiser, full = solution.configuration.denoiser, solution.full
    fewest, most = denoiser.noise_range(full.length)
    # Then all examples of a block have the same lengths, without padding.
    equal_lengths = solution.configuration.merge_examples and fewest == most
    corrupted = traced_once(
        _corrupt_block,
        denoiser=denoiser,
        special=solution.special,
        max_length=full.length,
        add_eos=solution.add_eos,
        equal_lengths=equal_lengths,
    )

    @seqio.map_over_dataset(num_seeds=1)
    def corrupt_block(block: Mapping[str, tf.Tensor], seed: tf.Tensor) -> dict[str, tf.Tensor]:
        block = dict(block)
        return corrupted(block.pop("tokens"), block.pop("length"), seed) | block

    def without_padding(example: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        example = dict(example)
        for key in TOKEN_FEATURES:
            example[key] = example[key][: example.pop(f"{key}_length")]
        return example

    examples = corrupt_block(with_id_shift(blocks, solution.vocabulary)).unbatch()
    return examples if equal_lengths else examples.map(without_padding, num_parallel_calls=tf.data.AUTOTUNE)


@no_autograph
def corrupt_chunks(
    tokens: tf.Tensor,
    lengths: tf.Tensor,
    seed: tf.Tensor,
    *,
    denoiser: Denoiser,
    special: SpecialTokens,
    max_length: int,
    add_eos: tuple[bool, bool] = (True, True),
) -> dict[str, tf.RaggedTensor]:
    """Draws the noise of a block of chunks, and makes their inputs and targets.

    `tokens` are [R, L] int32, padded at their end, and `lengths` [R] int32, at most `max_length`. `seed` is [2] int32 or int64; or
    [R] uint64, a key for each row, see `spans`. `add_eos` says whether the inputs end with an EOS, and whether the targets do,
    unless the denoiser's never do. Gives {"inputs": RaggedTensor [R, tokens] int32, "targets": RaggedTensor [R, tokens] int32}.
    """
    kept, noise = random_spans(denoiser, lengths, max_length, seed)
    return corrupt_rows(
        tokens,
        kept,
        noise,
        sentinels=special.sentinels if denoiser.sentinel else (),
        mode=special.mode,
        eos=(special.ending if add_eos[0] else [], special.ending if add_eos[1] and denoiser.targets_end_in_eos else []),
    )


@no_autograph
def _corrupt_block(
    tokens: tf.Tensor, lengths: tf.Tensor, seed: tf.Tensor, *, denoiser: Denoiser, equal_lengths: bool, **settings
) -> dict[str, tf.Tensor]:
    """`corrupt_chunks` with the block's noise, as rows; where their lengths may differ, padded, and with the lengths."""
    features = corrupt_chunks(tokens, lengths, noise_seed(seed, denoiser, tokens), denoiser=denoiser, **settings)
    if equal_lengths:
        return {key: tf.reshape(ragged.flat_values, [tf.size(lengths), -1]) for key, ragged in features.items()}
    padded = {key: ragged.to_tensor() for key, ragged in features.items()}
    return padded | {f"{key}_length": ragged.row_lengths() for key, ragged in features.items()}


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
    ids = special_tokens(output_features["inputs"].vocabulary, mode, sentinels=(), modes=modes).mode

    def prepend(example: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return {**example, "inputs": tf.concat([tf.constant(ids, spec.dtype), example["inputs"]], axis=0)}

    prepended = dataset.map(prepend, num_parallel_calls=tf.data.AUTOTUNE)
    return with_id_shift(prepended, output_features["inputs"].vocabulary)


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
    return solve(sequence_length, inputs.vocabulary, configuration, (inputs.add_eos, targets.add_eos))


@no_autograph
def not_text(tokens: tf.Tensor, *, reserved: Collection[int], vocab_size: int) -> tf.Tensor:
    """Those of `tokens`, [N] int32, that are reserved or beyond the vocabulary."""
    is_text = np.array([id not in reserved for id in range(vocab_size)])
    first, last = np.flatnonzero(is_text)[[0, -1]]

    def find() -> tf.Tensor:  # it costs more than to see that there are none
        in_range = (tokens >= first) & (tokens <= last)
        valid = in_range & tf.gather(tf.constant(is_text), tf.where(in_range, tokens, first))
        return tf.boolean_mask(tokens, ~valid)

    valid = (tf.reduce_min(tokens) >= first) & (tf.reduce_max(tokens) <= last)
    if not is_text[first : last + 1].all():  # special ids stand among those of text
        valid = tf.cond(valid, lambda: tf.reduce_all(tf.gather(tf.constant(is_text), tokens)), lambda: False)
    return tf.cond(valid, lambda: tf.zeros([0], tf.int32), find)


def noise_seed(seed: tf.Tensor, denoiser: Denoiser, tokens: tf.Tensor) -> tf.Tensor:
    """[2] int64. SeqIO gives one seed to all tasks of a mixture and to all hosts, so the denoiser and the tokens salt it."""
    content = tf.bitcast(tf.fingerprint(tf.reshape(tokens, [1, -1]))[0], tf.int64)
    return folded(folded(seed, tf.constant(zlib.crc32(denoiser.name.encode()), tf.int64)), content)
