"""What is wrong with records, in one sentence each."""

from __future__ import annotations

from ul2_tasks.files.opening import CORRUPT, is_unreachable
from ul2_tasks.files.retries import named

# What code that others wrote raises for what a record holds. An EOFError is none of these, as a connection that is closed is one.
_OF_CONTENT = (
    *(kind for kind in CORRUPT if kind is not EOFError),
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)


def is_of_content(error: Exception) -> bool:
    """Whether an error says that what was read is wrong, or names a file that is not there; any other may be a read that failed."""
    is_absent = isinstance(error, FileNotFoundError | IsADirectoryError | NotADirectoryError)
    return is_absent or _is_no_image(error) or (isinstance(error, _OF_CONTENT) and not is_unreachable(error))


def _is_no_image(error: Exception) -> bool:
    """Whether Pillow says so, which it does by an OSError."""
    try:
        from PIL import UnidentifiedImageError
    except ImportError:
        return False
    return isinstance(error, UnidentifiedImageError)


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
