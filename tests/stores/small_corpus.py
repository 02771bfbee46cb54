"""A corpus of a few files, its cache and its examples, wherever they lie; without TensorFlow, so that processes begin quickly."""

from __future__ import annotations

import json

import numpy as np
from rich.console import Console

import ul2_tasks
from ul2_tasks import T5GEMMA2, BlockShuffle, Mixture, open_source
from ul2_tasks.corpus.build_cache import build
from ul2_tasks.files import systems

LENGTHS = {"inputs": 64, "targets": 64}
BLOCKS = BlockShuffle(block_tokens=512, partitions=4, window_blocks=2)
FILES = 3


def texts(number: int) -> str:
    """A file of 40 documents, another one for each number."""
    rng = np.random.default_rng(number)
    words = ["".join(map(chr, rng.integers(97, 123, rng.integers(1, 9)))) for _ in range(4000)]
    return "".join(json.dumps({"text": " ".join(words[row : row + 100])}) + "\n" for row in range(0, 4000, 100))


def described(files) -> Mixture:
    return Mixture("stores", open_source(files), "bytes", T5GEMMA2, block_shuffle=BLOCKS)


def cached(files, output) -> dict:
    return build(described(files).corpus(), str(output), console=Console(quiet=True))


def tokens_of(output) -> dict[str, bytes]:
    """The files of tokens of a cache, which are the same wherever it and its corpus lie."""
    folder = f"{output}/stores_corpus"
    names = [name for name in systems.names_in(folder) if name.endswith((".bin", ".idx"))]
    return {name: systems.read(systems.place(folder, name)) for name in names}


def examples(files, output, **settings):
    return ul2_tasks.examples(described(files), LENGTHS, cache_dirs=[str(output)], **settings)


def plain(example) -> dict[str, object]:
    return {key: np.asarray(value).tolist() for key, value in example.items()}


def failure_of(files, output) -> str:
    """What a job ends with; "" where it ends well."""
    try:
        cached(files, output)
        return ""
    except (OSError, RuntimeError) as failure:
        return str(failure)
