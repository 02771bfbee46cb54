"""The tf.data steps of a corpus: records -> texts -> tokens, in batches."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np
import seqio
import tensorflow as tf

from ul2_tasks.corpus.check_texts import check_texts
from ul2_tasks.corpus.configuration import CorpusConfiguration, as_json, digest, settings, text_tokenizer
from ul2_tasks.corpus.tfrecords import SKIPPED
from ul2_tasks.example_features import DOCUMENTS_PER_BATCH
from ul2_tasks.sources.base import DataSource
from ul2_tasks.sources.records import PROBLEM
from ul2_tasks.tasks.graphs import no_autograph, python_op, ragged
from ul2_tasks.tasks.sources import record_batches
from ul2_tasks.tasks.vocabulary import id_shift
from ul2_tasks.tokenizers.base import Vocabulary
from ul2_tasks.tokenizers.batches import encode_batch
from ul2_tasks.tokenizers.special_ids import as_vocabulary


@no_autograph
def tokenize(
    dataset: tf.data.Dataset,
    output_features: Mapping[str, seqio.Feature],
    *,
    configuration: CorpusConfiguration,
    source: DataSource | None = None,
) -> tf.data.Dataset:
    """Tokenizes each record, as a preprocessor of a SeqIO task: its tokens, and the name under which SeqIO's caches keep it.

    Text becomes the ids that `seqio.preprocessors.tokenize` gives, except that no text becomes a sentinel or a mode: one that
    spells them (`<extra_id_0>`) becomes ordinary tokens, whatever the vocabulary would make of it.

    The records are those of `sources.record_batches`; a cache and the log name their source. Gives {"targets": [tokens]
    int32, "document": string scalar, see `_document_names`}. A record that is skipped has no tokens.
    """
    vocabulary = as_vocabulary(output_features["targets"].vocabulary)
    described = str(source) if source else "a source"
    identity = (source and source.identity) or f"{described}, which cannot tell what it reads"
    of_corpus = settings(vocabulary, identity, configuration)
    numbers = tf.data.Dataset.range(np.iinfo(np.int64).max).batch(DOCUMENTS_PER_BATCH)
    batches = tf.data.Dataset.zip(numbers, record_batches(dataset, configuration.text_key))
    encode = functools.partial(_encode, vocabulary, configuration, described)

    def named(numbers: tf.Tensor, batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor | tf.RaggedTensor]:
        tokens, are_whole = encode(batch)
        numbers = numbers[: tf.size(are_whole)]
        return {"targets": tokens, "document": _document_names(numbers, batch["text"], are_whole, of_corpus)}

    documents = batches.map(named, num_parallel_calls=tf.data.AUTOTUNE).unbatch()
    return documents.map(lambda document: {**document, "targets": tf.ensure_shape(document["targets"], [None])})


@no_autograph
def _document_names(numbers: tf.Tensor, texts: tf.Tensor, are_whole: tf.Tensor, settings: Mapping[str, str]) -> tf.Tensor:
    """The feature `document` of several records: "ID/DIGEST", or for the first record of a shard "ID/DIGEST/SETTINGS".

    `numbers`, [records] int64, are how many records of the input shard come before each, and the ID is the FarmHash64 of its text.
    `are_whole`, [records] bool, says which are documents; the others are records that are skipped. The names are [records] strings.
    """
    ids = tf.strings.as_string(tf.bitcast(tf.fingerprint(texts), tf.int64))
    endings = tf.where(numbers == 0, f"/{as_json(settings)}", "")
    return tf.strings.join([tf.where(are_whole, ids, SKIPPED), f"/{digest(settings)}", endings])


def _encode(
    vocabulary: Vocabulary, configuration: CorpusConfiguration, source: str, batch: Mapping[str, tf.Tensor]
) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """Tokens of a batch of records, [documents, tokens] int32; and [documents] bool, which of them are documents."""
    encoder, shift = text_tokenizer(vocabulary, configuration), np.int32(id_shift(vocabulary))
    texts = batch["text"]

    def encode(texts: np.ndarray, problems: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        are_whole = check_texts(source, configuration.on_error, texts.tolist(), problems.tolist())
        ids, lengths = encode_batch(encoder, np.where(are_whole, texts, b"").tolist())
        return ids + shift, lengths, are_whole

    inputs = [texts, batch.get(PROBLEM, tf.zeros_like(texts))]
    flat, lengths, are_whole = python_op(encode, inputs, [tf.int32, tf.int64, tf.bool])
    return ragged(flat, lengths), tf.ensure_shape(are_whole, [None])
