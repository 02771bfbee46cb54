"""Small conversations as tasks of SeqIO's own, for gin files of tests: `conversations` registers one and returns its name."""

import numpy as np
import seqio
import tensorflow as tf

from ul2_tasks import seqio_vocabulary
from ul2_tasks.example_features import CHAT, PROMPT_COMPLETION

COUNT = 400  # in each split


def conversation(number: int) -> dict[str, list[int]]:
    """A prompt of some tokens, reasoning about it, and in each second conversation an answer, with what is neither before it.

    So the first of two processes, which reads each second one, has few answers, and the other one all others.
    """
    random = np.random.RandomState(number)
    prompt = random.randint(100, 140, random.randint(2, 8)).tolist()
    reasoning = [200, *prompt[::-1], 201]
    answer = [202, 203, *prompt[:3], 204] if number % 2 else []
    replied = [1] * len(reasoning) + ([3] * 2 + [2] * (len(answer) - 2) if answer else [])
    return {"prompt": prompt, "reply": reasoning + answer, "span_id": replied}


def example(number: int, form: str) -> dict[str, list[int]]:
    parts = conversation(number)
    if form == "prompt_completion":
        spans = parts["span_id"]
        return {"inputs": parts["prompt"], "targets": parts["reply"], "loss_mask": [1] * len(spans), "span_id": spans}
    spans = [0] * len(parts["prompt"]) + parts["span_id"] + [0]
    tokens = [*parts["prompt"], *parts["reply"], 1]
    return {"tokens": tokens, "loss_mask": [int(span > 0) for span in spans], "span_id": spans}


def conversations(form: str = "chat") -> str:
    """The name of the task, "test_chat" or "test_prompt_completion"."""
    name, spec = f"test_{form}", PROMPT_COMPLETION if form == "prompt_completion" else CHAT
    if name in seqio.TaskRegistry.names():
        return name

    def read(split, shuffle_files, seed=None):
        first = COUNT if split == "validation" else 0
        examples = [example(number, form) for number in range(first, first + COUNT)]
        return tf.data.Dataset.from_tensor_slices(
            {key: tf.ragged.constant([one[key] for one in examples], feature.dtype) for key, feature in spec.items()}
        )

    marks = seqio.PassThroughVocabulary(4)
    features = {
        key: seqio.Feature(
            seqio_vocabulary() if feature.dtype == "int32" else marks, add_eos=False, dtype=tf.as_dtype(feature.dtype)
        )
        for key, feature in spec.items()
    }
    source = seqio.FunctionDataSource(read, splits=["train", "validation"])
    return seqio.TaskRegistry.add(name, source, output_features=features).name
