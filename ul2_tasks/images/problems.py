"""What is wrong with records, in one sentence each."""

from __future__ import annotations

from ul2_tasks.files.opening import is_of_content
from ul2_tasks.files.retries import named


def check_of_record(error: Exception, name: str) -> None:
    """Raises what comes of no record, and may come of the next one, too: memory, a package that is not there, a read that failed.

    Of the last it raises an OSError that names the file or the record.
    """
    if isinstance(error, MemoryError | ImportError):
        raise error
    if not is_of_content(error):
        raise named(error, name)


def sentence_of(error: Exception) -> str:
    """The error in words, with its type where that is not clear.

    >>> sentence_of(ValueError("there is no caption")), sentence_of(KeyError("caption"))
    ('there is no caption', "KeyError: 'caption'")
    """
    return str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
