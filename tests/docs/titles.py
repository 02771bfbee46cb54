"""A small task of SeqIO's own, from a text's beginning to its first words: for gin files of tests, `titles` gives its name."""

import seqio
import tensorflow as tf

from ul2_tasks import embedded_documents, seqio_vocabulary

NAME = "titles"
VALIDATION = 50  # documents


def exact_match(targets, predictions) -> dict[str, float]:
    return {"exact_match": 100 * sum(map(str.__eq__, targets, predictions)) / len(targets)}


def read(split, shuffle_files, seed=None) -> tf.data.Dataset:
    documents = embedded_documents()
    documents = documents[:VALIDATION] if split == "validation" else documents[VALIDATION:]
    texts = list(dict.fromkeys(" ".join(document.split())[:300] for document in documents))
    return tf.data.Dataset.from_tensor_slices({"inputs": texts, "targets": [" ".join(text.split()[:4]) for text in texts]})


def titles() -> str:
    """The name of the task, which is registered once."""
    if NAME not in seqio.TaskRegistry.names():
        feature = seqio.Feature(seqio_vocabulary(), add_eos=True)
        seqio.TaskRegistry.add(
            NAME,
            seqio.FunctionDataSource(read, splits=["train", "validation"]),
            preprocessors=[seqio.preprocessors.tokenize, seqio.preprocessors.append_eos_after_trim],
            output_features={"inputs": feature, "targets": feature},
            metric_fns=[exact_match],
        )
    return NAME
