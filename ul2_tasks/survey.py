"""What documents text files give: whether lines, paragraphs or files are documents, and whether a choice looks right."""

from __future__ import annotations

import dataclasses
import itertools
import statistics
from collections.abc import Callable, Iterable, Sequence

from ul2_tasks.files import DOCUMENTS, Layout, Piece
from ul2_tasks.records import read
from ul2_tasks.vocabularies import default_vocabulary

_BYTES, _FILES = 1 << 20, 64  # so much is looked at
_CLOSING = "\"'”’»)]}*_"  # may follow what ends a sentence
_ENDS = ".!?…:。！？｡।؟۔"


@dataclasses.dataclass(frozen=True)
class Survey:
    """What documents are like.

    Attributes:
        documents: how many, blank ones too.
        blank: how many are empty, or white space alone.
        median_characters: of those that are not blank; 0, if there is none.
        mid_sentence: how many do not end as a sentence ends, where the next one begins with a small letter: prose cut into lines.
        median_tokens: of those that are not blank; None, where nothing was tokenized.
    """

    documents: int
    blank: int
    median_characters: int
    mid_sentence: int
    median_tokens: int | None = None


def survey(texts: Iterable[str], encode: Callable[[str], Sequence[int]] | None = None) -> Survey:
    """What documents are like.

    Args:
        texts: the documents, in the order of the corpus.
        encode: tokenizes one, for `median_tokens`.
    """
    texts = list(texts)
    stripped = [text.strip() for text in texts]
    full = [text for text in stripped if text]
    return Survey(
        documents=len(texts),
        blank=len(texts) - len(full),
        median_characters=_median(map(len, full)),
        mid_sentence=sum(_goes_on(text, following) for text, following in itertools.pairwise(stripped)),
        median_tokens=None if encode is None else _median(len(encode(text)) for text in full),
    )


def ways(paths: Sequence[str]) -> dict[str, Survey]:
    """What each way to read text files gives, of the first megabyte in the first files: "line", "file" and "paragraph".

    Tokens are those of the default vocabulary. What is not UTF-8 is left out.

    Raises:
        OSError: a file cannot be reached.
    """
    texts: dict[str, list[str]] = {documents: [] for documents in DOCUMENTS}
    left = _BYTES
    for path in paths[:_FILES]:
        lines, paragraphs = (_texts(Piece(path, 0, left), documents) for documents in ("line", "paragraph"))
        for documents, read_here in {"line": lines, "paragraph": paragraphs, "file": ["\n".join(lines)]}.items():
            texts[documents] += read_here
        left -= sum(len(line.encode()) + 1 for line in lines)
        if left <= 0:
            break
    encode = default_vocabulary().encode
    return {documents: survey(found, encode) for documents, found in texts.items()}


def in_words(paths: Sequence[str]) -> str:
    """What each way to read these text files gives, in a sentence."""
    found = ways(paths)
    told = (
        f"{documents!r} gives {each.documents:,} documents of {each.median_tokens:,} tokens in the median, {each.blank:,} blank"
        for documents, each in found.items()
    )
    return (
        f"in the first {found['file'].documents} of {len(paths)} files, and no more than a megabyte, {'; '.join(told)} (tokens of"
        " the default vocabulary)"
    )


def _texts(piece: Piece, documents: str) -> list[str]:
    return [record.text.decode() for record in read(piece, Layout("text", documents)) if not record.problem]


def _goes_on(text: str, following: str) -> bool:
    return text.rstrip(_CLOSING)[-1:] not in _ENDS and following[:1].islower()


def _median(numbers: Iterable[int]) -> int:
    numbers = sorted(numbers)
    return round(statistics.median(numbers)) if numbers else 0
