"""The tokens of a corpus, by default of Python's own standard library, with a vocabulary that is trained on them."""

from __future__ import annotations

import itertools
import pathlib
import sysconfig

import numpy as np
import seqio
from objectives import MODES

from ul2_tasks import open_source, open_vocabulary
from ul2_tasks.sources.by_name import documents
from ul2_tasks.vocabulary.training import train_to_file

VALIDATION = 0.1
# Tests; packages that others have installed; tables of characters, a hundred files of which are nearly the same.
LEFT_OUT = {"test", "tests", "idle_test", "idlelib", "lib2to3", "site-packages", "encodings"}


def open_corpus(spec: str | None, file_documents: str | None) -> seqio.DataSource:
    """The corpus as splits `train` and `validation`, by a hash of each document.

    Args:
        spec: see `open_source`; None for the source files of Python's standard library.
        file_documents: what a document of text files is.
    """
    if spec is not None:
        return open_source(spec, documents=file_documents, validation=VALIDATION)
    library = pathlib.Path(sysconfig.get_paths()["stdlib"])
    files = [str(path) for path in sorted(library.rglob("*.py")) if LEFT_OUT.isdisjoint(path.relative_to(library).parts)]
    return open_source(files, format="text", documents="file", validation=VALIDATION)


def trained_vocabulary(path: pathlib.Path, source: seqio.DataSource, size: int, sentinels: int) -> seqio.Vocabulary:
    """The vocabulary of a file, which is trained first if it is not there."""
    if not path.exists():
        characters = max(3_000_000, 1000 * size)
        texts = documents(source, "train", characters)
        train_to_file(texts, str(path), size=size, sentinels=sentinels, modes=MODES, max_characters=characters)
    return open_vocabulary(str(path), sentinels=sentinels)


def chunks(source: seqio.DataSource, split: str, vocabulary: seqio.Vocabulary, length: int, most: int) -> np.ndarray:
    """The corpus in chunks of one length, an EOS after each document: [n, length] int32, n at most `most`.

    What is left at the end, shorter than a chunk, is not used.
    """
    found, tokens = [], 0
    texts = documents(source, split, 8 * length * most)
    while tokens < length * most and (batch := list(itertools.islice(texts, 64))):
        for text in batch:
            ids = [*vocabulary.encode(text), vocabulary.eos_id]
            found.append(np.array(ids, np.int32))
            tokens += len(ids)
    count = min(most, tokens // length)
    if not count:
        raise SystemExit(f"the split {split!r} has {tokens} tokens, less than a chunk of {length}; give a larger corpus")
    return np.concatenate(found)[: count * length].reshape(count, length)


def of_frequencies(text: np.ndarray, held_out: np.ndarray, ids: int) -> tuple[float, float]:
    """What the frequency of each id alone reaches: its loss in nats a token, and the share of tokens that the most frequent is."""
    counts = np.bincount(text.ravel(), minlength=ids) + 1
    shares = np.log(counts / counts.sum())
    return float(-shares[held_out].mean()), float((held_out == counts.argmax()).mean())
