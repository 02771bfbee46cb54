"""Small conversations as a task of SeqIO's own, for gin files of tests: `conversations` registers it and returns its name."""

import numpy as np
import seqio
import tensorflow as tf

from ul2_tasks import seqio_vocabulary
from ul2_tasks.example_features import CHAT

COUNT = 400  # in each split


def example(number: int) -> dict[str, list[int]]:
    """A prompt of some tokens, reasoning about it, and in each second conversation an answer, with what is neither before it."""
    random = np.random.RandomState(number)
    prompt = random.randint(100, 140, random.randint(2, 8)).tolist()
    reasoning = [200, *prompt[::-1], 201]
    answer = [202, 203, *prompt[:3], 204] if number % 2 else []
    spans = [0] * len(prompt) + [1] * len(reasoning) + ([3] * 2 + [2] * (len(answer) - 2) if answer else []) + [0]
    return {"tokens": [*prompt, *reasoning, *answer, 1], "loss_mask": [int(span > 0) for span in spans], "span_id": spans}


def conversations() -> str:
    def read(split, shuffle_files, seed=None):
        first = COUNT if split == "validation" else 0
        examples = [example(number) for number in range(first, first + COUNT)]
        return tf.data.Dataset.from_tensor_slices(
            {key: tf.ragged.constant([one[key] for one in examples], feature.dtype) for key, feature in CHAT.items()}
        )

    if "test_chat" not in seqio.TaskRegistry.names():
        vocabularies = {"int32": seqio_vocabulary()}
        features = {
            key: seqio.Feature(
                vocabularies.get(feature.dtype, seqio.PassThroughVocabulary(4)), add_eos=False, dtype=tf.as_dtype(feature.dtype)
            )
            for key, feature in CHAT.items()
        }
        source = seqio.FunctionDataSource(read, splits=["train", "validation"])
        seqio.TaskRegistry.add("test_chat", source, output_features=features)
    return "test_chat"
