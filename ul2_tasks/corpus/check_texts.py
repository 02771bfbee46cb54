"""What becomes of records that are no documents: they are raised, or left out and counted."""

from __future__ import annotations

import collections
from collections.abc import Sequence

import numpy as np
from absl import logging

from ul2_tasks.counting import count

_BEGINNING = 60  # characters of a text that is not UTF-8, for the message
_skipped: collections.Counter[str] = collections.Counter()  # records that this process skipped, by source


def check_texts(source: str, on_error: str, texts: Sequence[bytes], problems: Sequence[bytes]) -> np.ndarray:
    """Decides what becomes of records that are no documents: those with a problem, and those whose text is not UTF-8.

    A tokenizer would change a text that is not UTF-8 without a word. With "raise" such a record raises a ValueError; the other
    `on_error` is "skip". A problem is empty, or says what is wrong. Gives [records] bool, which are documents.
    """
    are_whole = np.ones(len(texts), bool)
    for number, (text, problem) in enumerate(zip(texts, problems)):
        problem = problem or not_utf8(text)
        if problem:
            are_whole[number] = _report(source, on_error, problem)
    return are_whole


def not_utf8(text: bytes) -> bytes:
    """What is wrong with a text that is not UTF-8; empty where it is."""
    try:
        text.decode()
        return b""
    except UnicodeDecodeError:
        return b"a document is not UTF-8; it begins with: " + text.decode(errors="replace")[:_BEGINNING].encode()


def _report(source: str, on_error: str, problem: bytes) -> bool:
    """Raises what is wrong with a record; or counts it, and logs the 1st, 10th, 100th .. of a source. Returns False."""
    message = problem.decode(errors="replace")
    if on_error == "raise":
        raise ValueError(
            f"{message}. Fix the corpus, or pass on_error='skip', which leaves out such records and counts them. See"
            " docs/help/troubleshooting.md#a-bad-record-ends-the-run."
        )
    number, is_logged = count(_skipped, source)
    if is_logged:
        logging.warning("%s: skipped %d records until now, the last because %s", source, number, message)
    return False
