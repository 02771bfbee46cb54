"""An iterator resumes over what it was reading, and over nothing else that has the same name."""

import importlib
import itertools
import json
import os
import sys

import numpy as np
import pytest
import seqio
import tensorflow as tf

from tests.support import byte_vocabulary
from ul2_tasks import T5GEMMA2, mix, open_source, register
from ul2_tasks.corpus.identity import reads
from ul2_tasks.sources.memory import MemoryDataSource
from ul2_tasks.store.write import PairWriter
from ul2_tasks.tasks.sources import seqio_source

BYTES, MODES = byte_vocabulary()
R1 = [denoiser for denoiser in T5GEMMA2 if denoiser.name == "r1"]
LENGTHS = {"inputs": 256, "targets": 256}


def restored(iterator, path):
    """The next element of an iterator once it is restored."""
    tf.train.Checkpoint(iterator=iterator).read(path).assert_consumed()
    return next(iterator)


MODULE = """
import tensorflow as tf
def read(split, shuffle_files, seed=None):
    return tf.data.Dataset.from_tensor_slices({"text": ["%s of a text that is long enough"] * 50})
"""


def lines(folder, text):
    (folder / "a.jsonl").write_text(json.dumps({"text": text * 20}) + "\n")
    os.utime(folder / "a.jsonl", ns=(ord(text), ord(text)))  # of one size
    return f"{folder}/*.jsonl"


def memory(folder, text):
    return MemoryDataSource(lambda: [text * 20], validation=0)


def function(folder, text):
    (folder / "mine.py").write_text(MODULE % text)
    sys.modules.pop("mine", None)
    importlib.invalidate_caches()
    return seqio.FunctionDataSource(importlib.import_module("mine").read, splits=["train"])


def tokens(folder, text):
    prefix = f"{folder}/{text}"  # where they lie makes no difference, and nobody writes into a file that is read
    if not os.path.exists(f"{prefix}.idx"):
        with PairWriter(f"{prefix}.bin", f"{prefix}.idx", np.dtype("uint16")) as written:
            written.add(np.full(200, ord(text)), np.array([100, 100]))
    return f"megatron:{prefix}"


def registered(source, beside=None):
    """The same name once more, as in another process."""
    for registry in (seqio.MixtureRegistry, seqio.TaskRegistry):
        for name in [name for name in registry.names() if name.startswith("read_again")]:
            registry.remove(name)
    name = register("read_again", source, BYTES, R1, modes=MODES)
    if beside is None:
        return name
    steps = [as_targets, seqio.preprocessors.tokenize, seqio.preprocessors.append_eos]
    features = seqio.MixtureRegistry.get(name).output_features
    seqio.TaskRegistry.add("read_again_other", source=seqio_source(beside), preprocessors=steps, output_features=features)
    return mix("read_again_mixed", {name: 1, "read_again_other": 1})


def as_targets(dataset):
    return seqio.preprocessors.rekey(dataset, {"inputs": "text", "targets": "text"})


def dataset(name, num_epochs=None):
    return seqio.get_mixture_or_task(name).get_dataset(LENGTHS, "train", seed=3, num_epochs=num_epochs)


@pytest.mark.parametrize("source", [lines, memory, function, tokens])
def test_a_stream_tells_what_it_reads_by_content(tmp_path, monkeypatch, source):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    told = []
    for text in "aab":
        registered(source(tmp_path, text))
        told.append(reads(seqio.TaskRegistry.get("read_again_r1").corpus.source, "train"))
    assert told[0] == told[1] != told[2]


def test_an_iterator_does_not_resume_beside_another_source_of_the_same_name(tmp_path):
    """Of a task that is not ours; tests/laws has those that are."""

    def make(text):
        return iter(dataset(registered(tokens(tmp_path, "a"), open_source(lines(tmp_path, text)))))

    iterator = make("a")
    next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).write(str(tmp_path / "place"))
    tf.nest.map_structure(np.testing.assert_array_equal, restored(make("a"), path), next(iterator))
    other = make("b")
    with pytest.raises(tf.errors.InvalidArgumentError, match="this iterator was saved by another pipeline"):
        [restored(other, path), *itertools.islice(other, 200_000)]  # more than were read ahead


@pytest.mark.parametrize("num_epochs", [None, 200_000])
def test_what_a_users_iterator_read_ahead_is_never_taken_for_another_corpus(tmp_path, num_epochs):
    """tf.data then saves numbers that are checked and tokens that are read, and restores them into the other pipeline."""

    def make(text):
        name = registered(tokens(tmp_path, text), open_source(lines(tmp_path, "a")))
        return iter(dataset(name, num_epochs))

    iterator = make("a")
    next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).write(str(tmp_path / "place"))
    other, given = make("b"), []
    tf.train.Checkpoint(iterator=other).read(path)
    with pytest.raises(tf.errors.InvalidArgumentError, match="this iterator was saved by another pipeline"):
        given.extend(other)
    assert not any(ord("b") in example[key].numpy() for example in given for key in ("inputs", "targets"))
