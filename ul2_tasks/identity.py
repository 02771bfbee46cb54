"""What a source reads, in words that are equal only where the same is read.

Documents that are kept, or cached, under a name must never be taken for others. So a source that cannot tell what it reads
is equal to itself alone.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable, Mapping

import seqio
import tensorflow as tf

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
# What the ids of these mean is in their classes and sizes, and so in `vocabularies.vocabulary_identity`.
_PLAIN_VOCABULARIES = (seqio.ByteVocabulary, seqio.PassThroughVocabulary, seqio.FullCodepointVocabulary)


def source_identity(source: seqio.DataSource) -> str | None:
    """What a source reads, the same in each process; None where it cannot tell.

    A source tells by its attribute `identity`, or else by what its `repr` says, its functions and the sources that it reads.
    A function tells by its name, where that finds it: one at the top of a module that can be imported. A lambda, a function
    within another or of the program itself, which is `__main__` in each, does not, and neither does a `repr` with an address.
    """
    if (identity := getattr(source, "identity", None)) is not None:
        return identity
    inner = [value for value in vars(source).values() if isinstance(value, seqio.DataSource) or callable(value)]
    if type(source) is seqio.TfdsDataSource:  # whose repr leaves out what its splits are
        inner.append(repr(source.tfds_dataset))
    try:
        _name(type(source))
        words = _plain(repr(source))
        return "; ".join([words, *(told for told in map(_told, inner) if told not in words)])
    except _CannotTellError:
        return None


def describe_source(source: seqio.DataSource) -> str:
    """A source in words: its own, or, where it has none but its address, its class; for people, not to compare."""
    return type(source).__name__ if _ADDRESS.search(repr(source)) else repr(source)


def cannot_tell(source: seqio.DataSource) -> str:
    """Why a source without identity equals no other one, and what to do."""
    return (
        f"{describe_source(source)} cannot tell what it reads, and so counts as another source than any other: it is of a"
        " lambda, of a function within another one or in a notebook or program, or its repr is an address. Put its function at"
        " the top of a module and import that, or give the documents as MemoryDataSource(lambda: texts, validation=0.01), which"
        " tells by their content"
    )


def vocabulary_tells(vocabulary: seqio.Vocabulary) -> bool:
    """Whether `vocabularies.vocabulary_identity` has all that the ids mean."""
    tells = hasattr(vocabulary, "identity") or isinstance(vocabulary, seqio.SentencePieceVocabulary)
    return tells or type(vocabulary) in _PLAIN_VOCABULARIES


class _CannotTellError(Exception):
    """Somewhere in it is what has no name."""


def _told(value: object) -> str:
    if isinstance(value, seqio.DataSource):
        told = source_identity(value)
        if told is None:
            raise _CannotTellError
        return told
    if value is None or isinstance(value, bool | int | float | str | bytes | os.PathLike | tf.DType):
        return _plain(repr(value))
    if isinstance(value, tuple | list):
        return f"{type(value).__name__}({', '.join(map(_told, value))})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_told(key)}: {_told(item)}' for key, item in value.items())}}}"
    if isinstance(value, functools.partial):
        return f"partial({_told(value.func)}, {_told(value.args)}, {_told(value.keywords)})"
    if getattr(value, "__module__", None) == seqio.dataset_providers.__name__ and hasattr(value, "__closure__"):
        # The readers of SeqIO's sources of files are functions within others: what they close over tells the rest.
        return f"{value.__qualname__}({', '.join(_told(cell.cell_contents) for cell in value.__closure__ or ())})"
    if callable(value):
        return _name(value)
    raise _CannotTellError


def _plain(words: str) -> str:
    if _ADDRESS.search(words):
        raise _CannotTellError
    return words


def _name(function: Callable) -> str:
    """The name of a function or class, as pickle would find it."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    found: object = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not function or module == "__main__":
        raise _CannotTellError
    return f"{module}.{name}"
