"""The records of sources that only tf.data reads."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping

import tensorflow as tf

from ul2_tasks.example_features import DOCUMENTS_PER_BATCH
from ul2_tasks.graphs import no_autograph
from ul2_tasks.sources.records import PROBLEM, Record
from ul2_tasks.sources.rows import At

_process: int | None = None  # in which TensorFlow reads


def check_process() -> None:
    """Raises a RuntimeError in a process that was forked from one in which TensorFlow has read, because it would hang."""
    global _process
    if _process not in (None, os.getpid()):
        raise RuntimeError(
            f"process {os.getpid()} was forked from one in which TensorFlow read this source, and would hang. Pass"
            ' multiprocessing_context="spawn" (or "forkserver") to the DataLoader, or write a cache with `ul2 cache`. See'
            " docs/help/troubleshooting.md#hangs-in-a-forked-worker."
        )
    _process = os.getpid()


@no_autograph
def record_batches(dataset: tf.data.Dataset, text_key: str, id_key: str | None = None) -> tf.data.Dataset:
    """The records of a source, 128 at a time. Features that are not asked for are left behind.

    The dataset is of string scalars, as `seqio.TextLineDataSource` gives them; or of dictionaries with the text, and perhaps
    `problem`, see `records`, and the id, a string or an integer. Batches are {"text": [records] strings, "problem": [records]
    strings}, and "id" where it is wanted.
    """
    spec = dataset.element_spec
    if not isinstance(spec, Mapping):
        return dataset.batch(DOCUMENTS_PER_BATCH).map(lambda texts: {"text": texts, PROBLEM: tf.zeros_like(texts)})
    for name, key in {"text_key": text_key, "id_key": id_key}.items():
        if key is not None and key not in spec:
            raise ValueError(
                f"{name} must be a feature of the source, one of {sorted(spec)}, got {key!r}. See"
                " docs/help/troubleshooting.md#a-field-is-missing."
            )
    kept = {text_key, id_key, PROBLEM} & spec.keys()
    if spec.keys() - kept:  # a map over single records costs more than all else, so none is made unless it has to be
        dataset = dataset.map(lambda record: {key: record[key] for key in kept})

    def named(batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        texts = batch[text_key]
        return {"text": texts, PROBLEM: batch.get(PROBLEM, tf.zeros_like(texts))} | ({"id": batch[id_key]} if id_key else {})

    return dataset.batch(DOCUMENTS_PER_BATCH).map(named)


def dataset_records(dataset: tf.data.Dataset, text_key: str, id_key: str | None = None) -> Iterator[Record]:
    """Yields the records of a source, which are numbered from 1; see `record_batches`."""
    rows = itertools.count(1)
    for batch in record_batches(dataset, text_key, id_key).as_numpy_iterator():
        texts, problems = batch["text"].tolist(), batch[PROBLEM].tolist()
        ids = batch["id"].tolist() if id_key else [b""] * len(texts)
        for text, id, problem in zip(texts, ids, problems):
            id = id if isinstance(id, bytes) else str(id).encode()
            yield Record(text, id, problem.decode(errors="replace"), At("", next(rows)), own_id=id)
