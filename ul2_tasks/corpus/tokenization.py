"""The tf.data steps of a corpus: records -> texts -> tokens, which a cache keeps."""

from __future__ import annotations

import collections
import functools
from collections.abc import Mapping

import seqio
import tensorflow as tf
from absl import logging

from ul2_tasks.corpus import cache
from ul2_tasks.corpus.cache import CorpusConfiguration
from ul2_tasks.corpus.identity import describe_source, source_identity
from ul2_tasks.graphs import count, no_autograph, python_op
from ul2_tasks.sources.records import PROBLEM
from ul2_tasks.vocabulary.special_ids import SpecialTokensRequest, text_vocabulary

_skipped: collections.Counter[str] = collections.Counter()  # records that this process skipped, by source


@no_autograph
def read_text(
    dataset: tf.data.Dataset,
    output_features: Mapping[str, seqio.Feature],
    *,
    configuration: CorpusConfiguration,
    source: seqio.DataSource | None = None,
) -> tf.data.Dataset:
    """Makes of each record a document: its text, and the name under which a cache keeps it. Other features are left behind.

    Args:
        dataset: of dictionaries with a string scalar `configuration.text_key`, and perhaps a string scalar `problem`, see
            `records`; or of bare string scalars, as `seqio.TextLineDataSource` gives them.
        output_features: `targets`, as SeqIO passes it.
        configuration: of the corpus.
        source: where the records come from, which a cache and the log name.

    Returns:
        A dataset of {"targets": string scalar, "document": string scalar, see `cache.document_name`}.

    Raises:
        ValueError: there is no such feature; names those present.
        tf.errors.InvalidArgumentError: while iterating, on a record with a problem, if they are to be raised.
    """
    if not isinstance(dataset.element_spec, Mapping):
        dataset = dataset.map(lambda text: {configuration.text_key: text})
    text_key = configuration.text_key
    if text_key not in dataset.element_spec:
        raise ValueError(f"the source has no feature {text_key!r}, it has {sorted(dataset.element_spec)}; give text_key")
    described = describe_source(source) if source else "a source"
    identity = (source and source_identity(source)) or f"{described}, which cannot tell what it reads"
    settings = cache.settings(output_features["targets"].vocabulary, identity, configuration)
    report = functools.partial(_report, described, configuration.on_error)

    def read(number: tf.Tensor, document: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        text, problem = document[text_key], document.get(PROBLEM, tf.constant(""))
        as_utf8 = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace")
        beginning = tf.strings.substr(as_utf8, 0, 60, unit="UTF8_CHAR")
        not_utf8 = tf.strings.join(["a document is not UTF-8; it begins with: ", beginning])
        problem = tf.where(tf.equal(as_utf8, text) | (problem != ""), problem, not_utf8)
        is_whole = tf.cond(problem == "", lambda: True, lambda: python_op(report, [problem], tf.bool))
        is_whole = tf.ensure_shape(is_whole, [])
        return {"targets": tf.where(is_whole, text, ""), "document": cache.document_name(number, text, is_whole, settings)}

    return dataset.enumerate().map(read, num_parallel_calls=tf.data.AUTOTUNE)


def tokenize(
    dataset: tf.data.Dataset,
    output_features: Mapping[str, seqio.Feature],
    *,
    special_tokens: SpecialTokensRequest,
) -> tf.data.Dataset:
    """Tokenizes `targets` as `seqio.preprocessors.tokenize` does, except that no text becomes a sentinel or a mode.

    A text that spells one (`<extra_id_0>`) becomes ordinary tokens, whatever the vocabulary would make of it.

    Args:
        dataset: of {"targets": string scalar, ..}; all else is handed on.
        output_features: `targets`, as SeqIO passes it.
        special_tokens: the sentinels and modes.

    Returns:
        A dataset of {"targets": [tokens] int32, ..}.
    """
    vocabulary = output_features["targets"].vocabulary
    vocabulary = text_vocabulary(vocabulary, special_tokens.ids(vocabulary))
    return dataset.map(
        lambda document: {**document, "targets": vocabulary.encode_tf(document["targets"])}, num_parallel_calls=tf.data.AUTOTUNE
    )


def _report(source: str, on_error: str, problem: bytes) -> bool:
    """Raises what is wrong with a record; or counts it, and logs the 1st, 10th, 100th .. of a source. Returns False."""
    problem = problem.decode(errors="replace")
    if on_error == "raise":
        raise ValueError(
            f"{problem}. Mend the corpus, or register it with on_error='skip', which leaves out such records and counts them"
        )
    number, is_logged = count(_skipped, source)
    if is_logged:
        logging.warning("%s: skipped %d records until now, the last because %s", source, number, problem)
    return False
