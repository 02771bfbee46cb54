"""What text files hold if a line, a paragraph or a file is a document, to choose between them."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Iterable, Sequence

from ul2_tasks.sources.files import DOCUMENTS, Layout, Segment
from ul2_tasks.sources.records import read
from ul2_tasks.vocabulary.sentencepiece import default_vocabulary

_BYTES, _FILES = 1 << 20, 64  # at most so much is read


@dataclasses.dataclass(frozen=True)
class Survey:
    """Counts of some documents.

    Blank documents are empty or only white space. The median is of the others; 0 if there is none.
    """

    documents: int
    blank: int
    median_tokens: int


def survey(texts: Iterable[str], encode: Callable[[str], Sequence[object]]) -> Survey:
    """Counts documents. `encode` tokenizes them, for `median_tokens`."""
    texts = list(texts)
    stripped = [text.strip() for text in texts]
    full = [text for text in stripped if text]
    return Survey(
        documents=len(texts),
        blank=len(texts) - len(full),
        median_tokens=_median(len(encode(text)) for text in full),
    )


def ways(paths: Sequence[str]) -> dict[str, Survey]:
    """Surveys of text files by what a document is in them: "line", "file" and "paragraph".

    It reads no more than the first megabyte of the first 64 files. Tokens are those of the default vocabulary. Documents that are
    not UTF-8 are left out.
    """
    texts: dict[str, list[str]] = {documents: [] for documents in DOCUMENTS}
    left = _BYTES
    for path in paths[:_FILES]:
        lines, paragraphs = (_texts(Segment(path, 0, left), documents) for documents in ("line", "paragraph"))
        for documents, read_here in {"line": lines, "paragraph": paragraphs, "file": ["\n".join(lines)]}.items():
            texts[documents] += read_here
        left -= sum(len(line.encode()) + 1 for line in lines)
        if left <= 0:
            break
    encode = default_vocabulary().encode
    return {documents: survey(found, encode) for documents, found in texts.items()}


def in_words(paths: Sequence[str]) -> str:
    """What each choice of `documents` gives for these text files, in a sentence."""
    found = ways(paths)
    counts = (
        f"{documents!r} gives {each.documents:,} documents of {each.median_tokens:,} tokens in the median, {each.blank:,} blank"
        for documents, each in found.items()
    )
    return (
        f"in the first {found['file'].documents} of {len(paths)} files, and no more than a megabyte, {'; '.join(counts)} (tokens of"
        " the default vocabulary)"
    )


def _texts(segment: Segment, documents: str) -> list[str]:
    return [record.text.decode() for record in read(segment, Layout("text", documents)) if not record.problem]


def _median(numbers: Iterable[int]) -> int:
    numbers = sorted(numbers)
    return round(statistics.median(numbers)) if numbers else 0
