"""What becomes of records that are no documents: they are raised, or left out and counted."""

from __future__ import annotations

import collections
import logging
from collections.abc import Iterable, Sequence

import numpy as np

from ul2_tasks.counting import count

_logger = logging.getLogger(__name__)
_BEGINNING = 60  # characters of a text that is not UTF-8, for the message
_skipped: collections.Counter[str] = collections.Counter()  # records that this process skipped, by source


def check_texts(source: str, on_error: str, texts: Sequence[bytes], problems: Sequence[bytes]) -> np.ndarray:
    """`find_problems`, of which those that are skipped are counted. Gives [records] bool, which are documents."""
    found = find_problems(on_error, texts, problems)
    count_skipped(source, found)
    return np.array([not problem for problem in found], bool)


def find_problems(on_error: str, texts: Sequence[bytes], problems: Sequence[bytes]) -> list[bytes]:
    """What is wrong with records that are no documents: those with a problem, and those whose text is not UTF-8; else empty.

    A tokenizer would change a text that is not UTF-8 without a word. With "raise" such a record raises a ValueError; the other
    `on_error` is "skip".
    """
    found = [problem or (b"" if text.isascii() else not_utf8(text)) for text, problem in zip(texts, problems, strict=True)]
    if on_error == "raise" and (problem := next(filter(None, found), None)):
        raise ValueError(
            f"{problem.decode(errors='replace')}. Fix the corpus, or pass on_error='skip', which leaves out such records and counts"
            " them. See docs/help/troubleshooting.md#a-bad-record-ends-the-run."
        )
    return found


def count_skipped(source: str, problems: Iterable[bytes]) -> None:
    """Counts the records that have a problem, and logs the 1st, 10th, 100th .. of a source."""
    for problem in filter(None, problems):
        number, is_logged = count(_skipped, source)
        if is_logged:
            message = "%s: skipped %d records until now, the last because %s"
            _logger.warning(message, source, number, problem.decode(errors="replace"))


def not_utf8(text: bytes) -> bytes:
    """What is wrong with a text that is not UTF-8; empty where it is."""
    try:
        text.decode()
        return b""
    except UnicodeDecodeError:
        return b"a document is not UTF-8; it begins with: " + text.decode(errors="replace")[:_BEGINNING].encode()
