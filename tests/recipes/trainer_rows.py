"""What the tests of trainers' recipes compare with: packed rows by index, and losses that a recipe prints."""

import numpy as np

import ul2_tasks


def rows(length: int, count: int) -> dict[str, np.ndarray]:
    """The first rows of the built-in corpus: {"inputs": .., "targets": ..}, [count, length]."""
    lengths = {"inputs": length, "targets": length}
    mixture = ul2_tasks.Mixture("mine", chunk_tokens=ul2_tasks.best_chunk_tokens(ul2_tasks.T5GEMMA2, lengths))
    found = ul2_tasks.examples(mixture, lengths, pack=True)[:count]
    return {key: np.stack([row[key] for row in found]) for key in lengths}
