"""An iterator over texts and a task of SeqIO's own resumes over what it was reading, and over nothing else of the same name."""

import itertools
import json
import os

import numpy as np
import pytest
import seqio
import tensorflow as tf

from tests.laws.pipelines import program
from tests.support import byte_vocabulary
from ul2_tasks import T5GEMMA2, mix, open_source, register
from ul2_tasks.store.write import PairWriter
from ul2_tasks.tasks.sources import seqio_source

BYTES, MODES = byte_vocabulary()


def as_targets(dataset):
    return seqio.preprocessors.rekey(dataset, {"inputs": "text", "targets": "text"})


def made(folder, ours, theirs, num_epochs=None):
    """An iterator over tokens and, beside them, lines, of one letter each."""
    prefix = f"{folder}/{ours}"  # where they lie makes no difference, and nobody writes into a file that is read
    if not os.path.exists(f"{prefix}.idx"):
        with PairWriter(f"{prefix}.bin", f"{prefix}.idx", np.dtype("uint16")) as written:
            written.add(np.full(200, ord(ours)), np.array([100, 100]))
    (folder / "a.jsonl").write_text(json.dumps({"text": theirs * 20}) + "\n")
    os.utime(folder / "a.jsonl", ns=(ord(theirs), ord(theirs)))  # of one size
    with program():
        name = register("read_again", f"megatron:{prefix}", BYTES, T5GEMMA2[:1], modes=MODES)
        steps = [as_targets, seqio.preprocessors.tokenize, seqio.preprocessors.append_eos]
        features, source = seqio.MixtureRegistry.get(name).output_features, seqio_source(open_source(f"{folder}/*.jsonl"))
        seqio.TaskRegistry.add("read_again_other", source=source, preprocessors=steps, output_features=features)
        both = seqio.get_mixture_or_task(mix("read_again_mixed", {name: 1, "read_again_other": 1}))
        return iter(both.get_dataset({"inputs": 256, "targets": 256}, "train", seed=3, num_epochs=num_epochs))


@pytest.mark.parametrize(("ours", "theirs", "num_epochs"), [("a", "b", None), ("b", "a", None), ("b", "a", 200_000)])
def test_what_an_iterator_read_ahead_is_never_taken_for_another_corpus(tmp_path, ours, theirs, num_epochs):
    """tf.data then saves numbers that are checked and tokens that are read, and restores them into the other pipeline."""
    iterator = made(tmp_path, "a", "a", num_epochs)
    next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).write(str(tmp_path / "place"))
    again = made(tmp_path, "a", "a", num_epochs)
    tf.train.Checkpoint(iterator=again).read(path).assert_consumed()
    tf.nest.map_structure(np.testing.assert_array_equal, next(again), next(iterator))
    other, given = made(tmp_path, ours, theirs, num_epochs), []
    tf.train.Checkpoint(iterator=other).read(path)
    with pytest.raises(tf.errors.InvalidArgumentError, match="another pipeline"):
        given.extend(itertools.islice(other, 200_000))  # more than were read ahead
    if ours == "b":
        assert not any(ord("b") in example[key].numpy() for example in given for key in ("inputs", "targets"))
