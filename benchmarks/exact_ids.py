"""Whether gigatoken's ids are the reference's: `python benchmarks/exact_ids.py TOKENIZER FOLDER [--megabytes 1000]`.

TOKENIZER is a `tokenizer.json`, or the file of o200k. Every text file below FOLDER is encoded by both packages, each content once,
and then every code point in ten contexts. Printed are how many documents differ, and how many the reference encoded, see
`tokenizers/fast.py`; and the CPU seconds of both. It needs the extra `fast`, and one core.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import pathlib
import random
import time
from collections.abc import Iterable, Iterator

import numpy as np

from ul2_tasks.sources.records import in_lists
from ul2_tasks.tokenizers import fast
from ul2_tasks.tokenizers.hugging_face import HuggingFaceVocabulary
from ul2_tasks.tokenizers.o200k import O200kVocabulary

LARGEST = 1 << 22  # bytes of a file
CONTEXTS = ("{0}", "a{0}b", "A{0}b", "a{0}B", " {0} ", "1{0}23456", "{0}{0}", ".{0}", "{0}'s {0}'LL", "\n{0}\n{0}/")


def texts(folder: str, most: float, endings: str | tuple[str, ...] = "") -> Iterator[str]:
    """The texts of files below a folder, each content once, in an order by chance."""
    paths = sorted(os.path.join(where, name) for where, _, names in os.walk(folder) for name in names if name.endswith(endings))
    random.Random(0).shuffle(paths)
    seen, size = set[bytes](), 0
    for path in paths:
        if size > most:
            return
        content = pathlib.Path(path).read_bytes() if os.path.isfile(path) and os.path.getsize(path) <= LARGEST else b""
        digest = hashlib.sha256(content).digest()
        if not content or digest in seen:
            continue
        seen.add(digest)
        try:
            text = content.decode()
        except UnicodeDecodeError:
            continue
        size += len(content)
        yield text


def code_points() -> Iterator[str]:
    for point in (*range(0xD800), *range(0xE000, 0x110000)):
        yield " ".join(context.format(chr(point)) for context in CONTEXTS)


def compared(name: str, encoder: fast.FastEncoder, some: Iterable[str]) -> None:
    documents = size = differing = 0
    seconds, before = np.zeros(2), encoder.fallbacks
    for batch in in_lists(some, 1024, 1 << 20, len):
        started = time.process_time()
        found = encoder.encode_batch(batch)
        between = time.process_time()
        expected = encoder._reference(batch)
        seconds += between - started, time.process_time() - between
        documents, size = documents + len(batch), size + sum(len(text.encode()) for text in batch)
        differing += sum(not np.array_equal(*each) for each in zip(found, expected))
    left = encoder.fallbacks - before
    rates = " and ".join(f"{size / 1e6 / each:.1f}" for each in seconds)
    print(
        f"{name}: {documents:,} documents, {size:,} bytes, {differing} differ, {left:,} by the reference, {rates} MB/s with and"
        f" without {encoder.made_by}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer")
    parser.add_argument("folder")
    parser.add_argument("--megabytes", type=float, default=1000)
    arguments = parser.parse_args()
    fast._FIRST = 0
    path = arguments.tokenizer
    is_json = path.endswith(".json")
    encoder = HuggingFaceVocabulary(path).tokens.encoder if is_json else O200kVocabulary(path).tokens.fast
    encoder.encode_batch(["a text"])  # which makes the table of code points
    compared("files", encoder, texts(arguments.folder, arguments.megabytes * 1e6))
    compared("code points", encoder, code_points())


if __name__ == "__main__":
    main()
