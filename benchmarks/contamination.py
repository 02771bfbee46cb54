"""How fast `ul2 find --texts` looks through tokens, in GB of a .bin file per second and core: `python benchmarks/contamination.py`.

Corpus and texts are made of runs of 2 to 8 tokens of the built-in corpus, in random order. So many blocks of the corpus are in some
text, as in natural language, and few n-grams. One text is a part of the corpus. Time is that of the process, with all its threads.
The baseline is NumPy, which compares the same tokens with one.
"""

import argparse
import pathlib
import tempfile
import time

import numpy as np
from rich.console import Console
from rich.table import Table

from ul2_tasks import default_vocabulary
from ul2_tasks.sources.memory import embedded_documents
from ul2_tasks.store.index import serialize
from ul2_tasks.store.ngrams import Texts
from ul2_tasks.store.read import MemoryStore, Store

LENGTH, N = 120, 13  # of a text, and of an n-gram
VOCABULARY = default_vocabulary()


def tokens_like_prose(count: int, seed: int) -> np.ndarray:
    """Runs of the built-in corpus, [count] int32."""
    prose, rng = np.concatenate([VOCABULARY.encode(text) for text in embedded_documents()]), np.random.default_rng(seed)
    lengths = rng.integers(2, 9, count // 4)
    starts = np.repeat(rng.integers(0, len(prose) - 8, len(lengths)), lengths)
    return prose[starts + np.arange(len(starts)) - np.repeat(np.cumsum(lengths) - lengths, lengths)][:count].astype(np.int32)


def write(prefix: pathlib.Path, dtype: np.dtype, gigabytes: float) -> np.ndarray:
    """Writes a pair, and returns its tokens."""
    rng = np.random.default_rng(0)
    tokens = tokens_like_prose(int(gigabytes * 1e9 / dtype.itemsize), seed=0).astype(dtype)
    lengths = rng.integers(50, 1500, len(tokens) // 775)
    lengths[-1] += len(tokens) - lengths.sum()
    tokens.tofile(prefix.with_suffix(".bin"))
    prefix.with_suffix(".idx").write_bytes(serialize(lengths, dtype))
    return tokens


def texts_of(tokens: np.ndarray, count: int) -> list[np.ndarray]:
    """Texts of the same kind, and one of the tokens."""
    return [*np.split(tokens_like_prose(count * LENGTH, seed=1), count)[1:], tokens[1000 : 1000 + LENGTH].astype(np.int32)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=0.5)
    arguments = parser.parse_args()
    table = Table(title=f"GB per second and core of {arguments.gigabytes} GB, texts of {LENGTH} tokens, n = {N}")
    for column in ("tokens", "texts", "GB/s a core", "times NumPy's ==", "seconds for tables", "documents found"):
        table.add_column(column, justify="right")
    with tempfile.TemporaryDirectory() as folder:
        for dtype in map(np.dtype, (np.uint16, np.int32)):
            prefix = pathlib.Path(folder) / dtype.name
            tokens = write(prefix, dtype, arguments.gigabytes)
            store = Store.open([str(prefix)])
            begun = time.process_time()
            np.count_nonzero(tokens == tokens[0])
            plain = time.process_time() - begun
            for count in (1, 1000, 10_000):
                texts = Texts(texts_of(tokens, count), N)
                small = MemoryStore(np.zeros(100, np.int32), np.array([100]))
                list(texts.overlaps(small))
                list(texts.overlaps(store))  # compiles, and reads the file
                begun = time.process_time()
                list(texts.overlaps(small))
                tables = time.process_time() - begun
                begun = time.process_time()
                found = sum(len(each.documents) for each in texts.overlaps(store))
                took = time.process_time() - begun
                rate = tokens.nbytes / (took - tables) / 1e9
                table.add_row(
                    dtype.name, f"{count:,}", f"{rate:.2f}", f"{plain / (took - tables):.2f}", f"{tables:.2f}", f"{found:,}"
                )
    Console().print(table)


if __name__ == "__main__":
    main()
