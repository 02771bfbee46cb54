"""What `ul2_tasks` is measured against: the same work as others write it, or none of it.

* t5: `peer`, the recipe from `t5.data.preprocessors`; `recipe`, the same as a step of stock SeqIO tasks.
* numpy: `numpy_examples` and `numpy_mixture`, one example at a time in Python, as in a notebook.
* floor: `floor_task`, SeqIO's own price; its examples are constants.
"""

from __future__ import annotations

import functools
import os
import random as python_random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import seqio
import t5.data.preprocessors as t5
import tensorflow as tf

from ul2_tasks.denoisers.denoisers import T5GEMMA2, Denoiser, SequentialDenoiser, SpanDenoiser
from ul2_tasks.denoisers.lengths import Chunk, chunk_length
from ul2_tasks.tokenizers.special_ids import SpecialTokens, as_vocabulary, special_tokens

BUFFERS = 1 << 28  # bytes that the buffers which tf.data sizes itself may grow to
EXAMPLES_PER_BATCH = 128
MAX_DOCUMENT = 65536
T5_DOCUMENTS_PER_BATCH = 128

Example = dict[str, np.ndarray]


def batched(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Padded batches, so that Python's price for an element is not what is measured."""
    return on_all_cores(dataset.padded_batch(EXAMPLES_PER_BATCH))


def on_all_cores(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """With as many threads as there are cores, and buffers that stop growing before rounds are counted."""
    options = tf.data.Options()
    options.threading.private_threadpool_size = os.cpu_count()
    options.autotune.ram_budget = BUFFERS
    return dataset.with_options(options)


def peer(
    dataset: tf.data.Dataset,
    features: Mapping[str, seqio.Feature],
    denoiser: Denoiser,
    full: Chunk,
    mode: Sequence[int],
) -> tf.data.Dataset:
    """Tokenized documents to examples by t5's recipe: its `span_corruption`, the mode before the inputs, SeqIO's EOS.

    It splits at the length of our chunk, so that examples are equally long; S is its mask with one span. It joins 128
    documents at a time, and ends each such batch with a shorter example. Documents above 65,536 tokens would be cut, and
    the rest dropped.
    """
    assert isinstance(denoiser, SpanDenoiser | SequentialDenoiser)
    # A mean span of the whole chunk is the one span that S has.
    mean_span_length = getattr(denoiser, "mean_span_length", full.length)
    dataset = t5.select_random_chunk(dataset, features, max_length=MAX_DOCUMENT)
    dataset = t5.reduce_concat_tokens(dataset, batch_size=T5_DOCUMENTS_PER_BATCH)
    dataset = t5.split_tokens(dataset, min_tokens_per_segment=None, max_tokens_per_segment=full.length)
    dataset = t5.denoise(
        dataset,
        features,
        noise_density=denoiser.noise_density,
        noise_mask_fn=functools.partial(t5.random_spans_noise_mask, mean_noise_span_length=mean_span_length),
        inputs_fn=t5.noise_span_to_unique_sentinel,
        targets_fn=t5.nonnoise_span_to_unique_sentinel,
    )
    dataset = dataset.map(
        lambda example: {**example, "inputs": tf.concat([mode, example["inputs"]], axis=0)},
        num_parallel_calls=tf.data.AUTOTUNE,
    )
    return seqio.preprocessors.append_eos(dataset, features)


def recipe(
    dataset: tf.data.Dataset,
    sequence_length: Mapping[str, int],
    output_features: Mapping[str, seqio.Feature],
    *,
    denoiser: Denoiser,
    sentinels: Sequence[int] | None = None,
) -> tf.data.Dataset:
    """`peer` as a SeqIO preprocessor."""
    mode = special_tokens(as_vocabulary(output_features["targets"].vocabulary), denoiser.mode, sentinels).mode
    return peer(dataset, output_features, denoiser, chunk_length(denoiser, sequence_length), mode)


def add_t5_mixture(
    name: str,
    source: seqio.DataSource,
    reading: Sequence[Callable],
    features: Mapping[str, seqio.Feature],
    sentinels: Sequence[int] | None = None,
) -> seqio.Mixture:
    """Registers `NAME_mix`, `recipe` as five stock tasks after the steps that make tokens of what the source gives."""
    for denoiser in T5GEMMA2:
        seqio.TaskRegistry.add(
            f"{name}_{denoiser.name}",
            source=source,
            preprocessors=[*reading, functools.partial(recipe, denoiser=denoiser, sentinels=sentinels)],
            output_features=features,
        )
    return add_mixture(name)


def add_mixture(name: str) -> seqio.Mixture:
    """Registers `NAME_mix` of the tasks `NAME_<denoiser>`, by the denoisers' weights."""
    return seqio.MixtureRegistry.add(f"{name}_mix", [(f"{name}_{denoiser.name}", denoiser.weight) for denoiser in T5GEMMA2])


def name_text(dataset: tf.data.Dataset, key: str | None = None) -> tf.data.Dataset:
    """Names a text `targets`: that of a feature, or a bare one."""
    return dataset.map(lambda text: {"targets": text if key is None else text[key]}, num_parallel_calls=tf.data.AUTOTUNE)


def numpy_records(files: Sequence[str], seed: int | None) -> Iterator[np.ndarray]:
    """The documents of a cache, record after record; without end, in another order of the files each time, given a seed."""
    order = python_random.Random(seed)
    while True:
        # All files in one dataset: to make one takes some 20 ms.
        for record in tf.data.TFRecordDataset(files if seed is None else order.sample(files, len(files))).as_numpy_iterator():
            tokens = tf.train.Example.FromString(record).features.feature["targets"].int64_list.value
            yield np.array(tokens, np.int32)
        if seed is None:
            return


def numpy_texts(files: Sequence[str], vocabulary: seqio.Vocabulary, seed: int) -> Iterator[np.ndarray]:
    """The documents of text files, a line each, tokenized; without end."""
    order = python_random.Random(seed)
    while True:
        for file in order.sample(files, len(files)):
            with open(file, encoding="utf-8") as lines:
                for line in lines:
                    yield np.array(vocabulary.encode(line.rstrip("\n")), np.int32)


def numpy_mixture(streams: Sequence[Iterator[Example]], weights: Sequence[float], seed: int) -> Iterator[Example]:
    random = np.random.default_rng(seed)
    rates = np.array(weights) / sum(weights)
    while True:
        yield next(streams[random.choice(len(streams), p=rates)])


def numpy_examples(
    documents: Iterable[np.ndarray], denoiser: Denoiser, full: Chunk, special: SpecialTokens, seed: int
) -> Iterator[Example]:
    """Joins documents, cuts them at the solved length, corrupts each chunk."""
    random = np.random.default_rng(seed)
    for tokens in _numpy_chunks(documents, full.length):
        yield numpy_corrupt(tokens, denoiser, special, random)


def _numpy_chunks(documents: Iterable[np.ndarray], length: int) -> Iterator[np.ndarray]:
    rest = np.zeros(0, np.int32)
    for document in documents:
        rest = np.concatenate([rest, document])
        while len(rest) >= length:
            yield rest[:length]
            rest = rest[length:]
    if len(rest):
        yield rest


def numpy_corrupt(tokens: np.ndarray, denoiser: Denoiser, special: SpecialTokens, random: np.random.Generator) -> Example:
    noise_tokens, spans = denoiser.noise_counts(len(tokens))
    noise = geometric_lengths(noise_tokens, spans, random)
    kept = geometric_lengths(len(tokens) - noise_tokens, spans, random)
    inputs: list[Sequence[int] | np.ndarray] = [special.mode]
    targets: list[Sequence[int] | np.ndarray] = []
    position = 0
    for sentinel, kept_length, noise_length in zip(special.sentinels, kept, noise):
        inputs += [tokens[position : position + kept_length], [sentinel]]
        position += kept_length
        targets += [[sentinel], tokens[position : position + noise_length]]
        position += noise_length
    return {
        key: np.concatenate([*parts, [special.eos]]).astype(np.int32) for key, parts in (("inputs", inputs), ("targets", targets))
    }


def geometric_lengths(total: int, parts: int, random: np.random.Generator) -> list[int]:
    """Geometric lengths, of which random ones are then made longer or shorter until they have the total."""
    if parts >= total:  # a chunk of one token has nothing to keep
        return [1] * total + [0] * (parts - total)
    lengths = [int(random.geometric(parts / total)) for _ in range(parts)]
    excess = sum(lengths) - total
    while excess:
        part = random.integers(parts)
        length = max(1, lengths[part] - excess)
        excess -= lengths[part] - length
        lengths[part] = length
    return lengths


def numpy_batches(examples: Iterator[Example], convert: Callable[[Example], Example] = lambda batch: batch) -> Iterator[Example]:
    """Batches of 128 examples, padded to the longest; `convert` makes model features of a batch."""
    while batch := [example for _, example in zip(range(EXAMPLES_PER_BATCH), examples)]:
        yield convert({key: _padded([example[key] for example in batch]) for key in batch[0]})


def numpy_model_features(batch: Example, lengths: Mapping[str, int]) -> Example:
    """What `seqio.EncDecFeatureConverter(pack=False)` makes of examples, for a batch."""
    inputs, targets = (np.pad(batch[key], [(0, 0), (0, lengths[key] - batch[key].shape[1])]) for key in ("inputs", "targets"))
    return {
        "encoder_input_tokens": inputs,
        "decoder_target_tokens": targets,
        "decoder_input_tokens": np.pad(targets[:, :-1], [(0, 0), (1, 0)]),
        "decoder_loss_weights": (targets > 0).astype(np.int32),
    }


def _padded(rows: Sequence[np.ndarray]) -> np.ndarray:
    batch = np.zeros((len(rows), max(map(len, rows))), np.int32)
    for index, row in enumerate(rows):
        batch[index, : len(row)] = row
    return batch


def floor_task(name: str, example: Example, features: Mapping[str, seqio.Feature]) -> seqio.Task:
    """A stock task that gives one example again and again: no reading, no corruption, SeqIO's trim and shuffle."""

    def constant(split: str, shuffle_files: bool, seed: int | None = None) -> tf.data.Dataset:
        rows = {key: np.tile(values, (EXAMPLES_PER_BATCH, 1)) for key, values in example.items()}
        return tf.data.Dataset.from_tensor_slices(rows).repeat()

    return seqio.TaskRegistry.add(
        name, source=seqio.FunctionDataSource(constant, splits=["train"]), preprocessors=[], output_features=features
    )
