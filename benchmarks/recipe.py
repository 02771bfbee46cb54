"""UL2's denoisers by `t5.data.preprocessors`, as stock tasks in a stock mixture of SeqIO."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ul2_tasks.denoisers.denoisers import Denoiser
from ul2_tasks.tokenizers.sentencepiece import DEFAULT_MODEL

SEQIO_SENTINELS = 1280  # enough for 16,384 tokens
MAX_DOCUMENT = 65536
DOCUMENTS_AT_A_TIME = 128


def seqio_vocabulary() -> tuple[Any, tuple[int, ...]]:
    """The default model with SeqIO's extra ids after it, and these as sentinels, as t5 counts them: from the last one downwards."""
    import seqio

    vocabulary = seqio.SentencePieceVocabulary(str(DEFAULT_MODEL), extra_ids=SEQIO_SENTINELS)
    return vocabulary, tuple(vocabulary.vocab_size - 1 - number for number in range(SEQIO_SENTINELS))


def token_records(folder: object) -> tuple[Any, list[Callable]]:
    """The source of tokens in TFRecords below a folder, and the steps after it."""
    import seqio
    import tensorflow as tf

    def as_int32(dataset: tf.data.Dataset) -> tf.data.Dataset:
        return dataset.map(lambda record: {"targets": tf.cast(record["targets"], tf.int32)}, num_parallel_calls=-1)

    description = {"targets": tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True)}
    return seqio.TFExampleDataSource({"train": f"{folder}/records/*"}, description), [as_int32]


def add_t5_mixture(
    name: str,
    source: object,
    reading: Sequence[Callable],
    features: Mapping[str, object],
    denoisers: Sequence[Denoiser],
    sentinels: Sequence[int] | None = None,
) -> str:
    """Registers `NAME_mix`, a stock task for each denoiser after the steps that make tokens of what the source gives."""
    import seqio

    for denoiser in denoisers:
        seqio.TaskRegistry.add(
            f"{name}_{denoiser.name}",
            source=source,
            preprocessors=[*reading, functools.partial(_t5_steps, denoiser=denoiser, sentinels=sentinels)],
            output_features=features,
        )
    seqio.MixtureRegistry.add(f"{name}_mix", [(f"{name}_{denoiser.name}", denoiser.weight) for denoiser in denoisers])
    return f"{name}_mix"


def add_t5_of_text(name: str, denoisers: Sequence[Denoiser]) -> str:
    """That of the embedded corpus."""
    import seqio

    from ul2_tasks.sources.memory import embedded_corpus
    from ul2_tasks.tasks.sources import seqio_source

    vocabulary, sentinels = seqio_vocabulary()
    reading = [lambda dataset: dataset.map(lambda record: {"targets": record["text"]}, -1), seqio.preprocessors.tokenize]
    features = {key: seqio.Feature(vocabulary) for key in ("inputs", "targets")}
    return add_t5_mixture(name, seqio_source(embedded_corpus()), reading, features, denoisers, sentinels)


def _t5_steps(dataset, sequence_length, output_features, *, denoiser: Any, sentinels: Sequence[int] | None):
    """Tokenized documents to examples by t5's recipe: its `span_corruption`, the mode before the inputs, SeqIO's EOS.

    It splits at the length of our chunk, so that examples are equally long; S is its mask with one span. It joins 128 documents at
    a time, and ends each such batch with a shorter example.
    """
    import seqio
    import t5.data.preprocessors as t5
    import tensorflow as tf

    from ul2_tasks.denoisers.lengths import chunk_length
    from ul2_tasks.tokenizers.special_ids import as_vocabulary, special_tokens

    mode = special_tokens(as_vocabulary(output_features["targets"].vocabulary), denoiser.mode, sentinels).mode
    length = chunk_length(denoiser, sequence_length).length
    # A mean span of the whole chunk is the one span that S has.
    mean_span_length = getattr(denoiser, "mean_span_length", length)
    dataset = t5.select_random_chunk(dataset, output_features, max_length=MAX_DOCUMENT)
    dataset = t5.reduce_concat_tokens(dataset, batch_size=DOCUMENTS_AT_A_TIME)
    dataset = t5.split_tokens(dataset, min_tokens_per_segment=None, max_tokens_per_segment=length)
    dataset = t5.denoise(
        dataset,
        output_features,
        noise_density=denoiser.noise_density,
        noise_mask_fn=functools.partial(t5.random_spans_noise_mask, mean_noise_span_length=mean_span_length),
        inputs_fn=t5.noise_span_to_unique_sentinel,
        targets_fn=t5.nonnoise_span_to_unique_sentinel,
    )
    dataset = dataset.map(
        lambda example: {**example, "inputs": tf.concat([mode, example["inputs"]], axis=0)},
        num_parallel_calls=tf.data.AUTOTUNE,
    )
    return seqio.preprocessors.append_eos(dataset, output_features)
