"""What this benchmark measures, as SeqIO has it. Reads `corpus/*.txt` and `cache/` of the current folder.

* `ours_mix`: `ul2_tasks.register`.
* `t5_mix`: five stock tasks of t5's recipe, on the token records of the same cache.
* `t5_text_mix`: the same on the same text files, tokenized by SeqIO's step.
* `floor_LENGTH_mix`, by `add_floor`: five stock tasks that do nothing.

All have the vocabulary of `vocabulary.py`.
"""

from __future__ import annotations

import numpy as np
import seqio
import tensorflow as tf

from speed.peers import add_mixture, add_t5_mixture, floor_task, name_text, numpy_corrupt
from speed.vocabulary import SENTINEL_IDS, VOCABULARY, solved, special
from ul2_tasks import T5GEMMA2, open_source, register

FEATURES = {key: seqio.Feature(VOCABULARY) for key in ("inputs", "targets")}
TEXT_FILES = "corpus/*.txt"
CACHE_FILES = "records/train.tfrecord-*"  # what `records.py` writes of the cache


def as_int32(dataset: tf.data.Dataset) -> tf.data.Dataset:
    return dataset.map(lambda record: {"targets": tf.cast(record["targets"], tf.int32)}, num_parallel_calls=tf.data.AUTOTUNE)


def add_floor(length: int) -> str:
    random = np.random.default_rng(0)
    for denoiser in T5GEMMA2:
        text = np.full(solved(denoiser, length).length, 1000, np.int32)
        floor_task(f"floor_{length}_{denoiser.name}", numpy_corrupt(text, denoiser, special(denoiser), random), FEATURES)
    add_mixture(f"floor_{length}")
    return f"floor_{length}"


register("ours", open_source(TEXT_FILES, documents="line"), VOCABULARY, sentinels=SENTINEL_IDS)

_RECORDS = {"targets": tf.io.RaggedFeature(tf.int64)}
for _name, _source, _reading in (
    # A source without a number of examples is never held in memory by SeqIO: all sides read their files again and again.
    ("t5", seqio.TFExampleDataSource({"train": CACHE_FILES}, _RECORDS), [as_int32]),
    ("t5_text", seqio.TextLineDataSource({"train": TEXT_FILES}), [name_text, seqio.preprocessors.tokenize]),
):
    add_t5_mixture(_name, _source, _reading, FEATURES, SENTINEL_IDS)
