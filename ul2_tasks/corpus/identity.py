"""States what a source reads, in words that are equal only where the same documents are read.

A cache must never be taken for one of other documents. So a source that cannot state what it reads equals only itself.

Caches, exports and the fingerprints of iterators store these words.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import os
import re
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ul2_tasks.imported import is_instance
from ul2_tasks.scalars import digest_of
from ul2_tasks.sources.base import DataSource, RecordSource, is_source
from ul2_tasks.sources.of_seqio import opened
from ul2_tasks.tokenizers.sentencepiece import is_sentencepiece

if TYPE_CHECKING:
    import seqio

_logger = logging.getLogger(__name__)
_OF_SEQIO = "seqio.dataset_providers"
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
# Their versions say what their functions do.
_LIBRARIES = {"seqio", "t5", "tensorflow", "tensorflow_datasets", "ul2_tasks", "builtins", *sys.stdlib_module_names} - {"__main__"}
# The ids of these mean what their class and size say, and `special_ids.vocabulary_identity` states both.
_PLAIN_VOCABULARIES = ("ByteVocabulary", "PassThroughVocabulary", "FullCodepointVocabulary")  # of SeqIO


def source_identity(source: seqio.DataSource, shown: Callable[[Any], str] = repr) -> str | None:
    """What a source reads, in words that are the same in each process; None where that cannot be stated.

    The words are the source's attribute `identity`. A source without one is described by its `repr`, its class and functions, and
    the sources that it reads. A function or class of a user is described by its name and its attribute `version`, or without one
    by a hash of its source text; what it calls is not looked at. Without a version it must be found by its name: a lambda cannot be
    described, nor a function within another one or in the program itself, whose module is `__main__` in every program. Nor can a
    source whose `repr` has an address in it. `shown` gives other words than the `repr`.

    >>> from ul2_tasks import open_source
    >>> source_identity(open_source("corpus/*.jsonl", validation=0.1))
    "HashSplit(FileSource({'train': 'corpus/*.jsonl'}), 0.1)"
    """
    try:
        return _identity(source, shown)
    except _CannotTellError:
        return None


def _identity(source: seqio.DataSource, shown: Callable[[Any], str]) -> str:
    if (identity := getattr(source, "identity", None)) is not None:
        return identity
    if isinstance(source, RecordSource) and source.inner is not None:
        return source.around(_identity(source.inner, shown))
    inner = [value for value in vars(source).values() if is_source(value) or callable(value)]
    if (
        type(source).__module__ == _OF_SEQIO and type(source).__name__ == "TfdsDataSource"
    ):  # its repr does not say what its splits are
        inner.append(repr(source.tfds_dataset))
    words = _plain(shown(source)) + _code(type(source))
    return "; ".join([words, *(more for more in map(_described, inner) if more not in words)])


def contents(source: seqio.DataSource, split: str) -> str:
    """What `source_identity` leaves out: the files of a split by where their paths lead, their sizes and times; tokens by samples.

    Empty where there are none, or none are known. Where files cannot be reached, it raises a ValueError or an OSError.
    """
    found = (_contents(inner, split) for inner in _with_inner(source))
    return "; ".join(dict.fromkeys(filter(None, found)))


def reads(source: seqio.DataSource, split: str) -> str:
    """What a split is read from, in one text for the fingerprint of a stream: identity and contents, however paths are spelled.

    Of a source that cannot tell what it reads it is the class alone, and the log says so, once.
    """

    def shown(inner: seqio.DataSource) -> str:
        found = _contents(inner, split)
        return f"{type(inner).__name__}({found})" if found else repr(inner)

    words = source_identity(source, shown)
    if words is None:
        _warn(cannot_tell(source))
        words = f"{type(source).__name__}, which cannot tell what it reads"
    found = (_contents(inner, split) for inner in _with_inner(source))
    return "; ".join([words, *(more for more in dict.fromkeys(found) if more not in words)])


def code_in_words(functions: Iterable[object]) -> str:
    """A hash of what can be told of functions, such as the preprocessors of a task.

    Another process need not find them, so of one that has no name there, such as a lambda, the source text counts. Of one without
    source text nothing does.
    """
    told = []
    for function in functions:
        with contextlib.suppress(OSError, TypeError):
            told.append(_told(function))
    return f"code, sha256 {digest_of(repr(told))}"


def _told(function: Any) -> str:
    try:
        return _described(function)
    except _CannotTellError:
        return _told(function.func) if isinstance(function, functools.partial) else inspect.getsource(function)


def describe_source(source: seqio.DataSource) -> str:
    """A source in words for people: its `repr`, or only its class where the `repr` has an address in it."""
    return type(source).__name__ if _ADDRESS.search(repr(source)) else repr(source)


def cannot_tell(source: seqio.DataSource) -> str:
    """The sentences for users on why a source without identity equals no other one, and on what to do."""
    return (
        f"its source, {describe_source(source)}, is a lambda, a local function, a function of a notebook or program, or has an"
        " address as its repr, so two different sources could not be told apart. Give the function an attribute `version`, define"
        " it at the top level of a module and import it, or use MemoryDataSource(lambda: texts, validation=0.01), which goes by the"
        " content."
    )


def vocabulary_tells(vocabulary: seqio.Vocabulary) -> bool:
    """Whether `special_ids.vocabulary_identity` states all that a vocabulary's ids mean."""
    tells = hasattr(vocabulary, "identity") or is_sentencepiece(vocabulary)
    kind = type(vocabulary)
    return tells or (kind.__module__ == "seqio.vocabularies" and kind.__name__ in _PLAIN_VOCABULARIES)


@functools.lru_cache
def _warn(sentences: str) -> None:
    """Warns once of each."""
    _logger.warning("a checkpoint of an iterator cannot check that it reads the same corpus: %s", sentences)


def _with_inner(source: seqio.DataSource) -> Iterator[seqio.DataSource]:
    """A source and those that it reads, without those of which the identity of an outer one says all."""
    if getattr(source, "identity", None) is None:
        yield source
        for value in vars(source).values():
            if is_source(value):
                yield from _with_inner(value)


def _contents(source: seqio.DataSource, split: str) -> str:
    """What the files of a split hold; empty where there are none, or none are known. `HashSplit` splits `train`."""
    reader = source if isinstance(source, DataSource) else opened(source)
    return reader.contents(split if split in source.splits else "train")


class _CannotTellError(Exception):
    """A value, or another one within it, cannot be described."""


def _described(value: object) -> str:
    """A value in words that are the same in each process. Raises a _CannotTellError where there are none."""
    if is_source(value):
        identity = source_identity(value)
        if identity is None:
            raise _CannotTellError
        return identity
    if (
        value is None
        or isinstance(value, bool | int | float | str | bytes | os.PathLike)
        or is_instance(value, "tensorflow", "DType")
    ):
        return _plain(repr(value))
    if isinstance(value, tuple | list):
        return f"{type(value).__name__}({', '.join(map(_described, value))})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_described(key)}: {_described(item)}' for key, item in value.items())}}}"
    if isinstance(value, functools.partial):
        return f"partial({_described(value.func)}, {_described(value.args)}, {_described(value.keywords)})"
    if isinstance(value, types.FunctionType | types.MethodType) and value.__module__ == _OF_SEQIO:
        # SeqIO's sources of files read with a function within another one. What it closes over says how it reads.
        return f"{value.__qualname__}({', '.join(_described(cell.cell_contents) for cell in value.__closure__ or ())})"
    if callable(value):
        return _name(value)
    raise _CannotTellError


def _plain(words: str) -> str:
    if _ADDRESS.search(words):
        raise _CannotTellError
    return words


def _name(function: Callable) -> str:
    """The module and name of a function or class, with `_code`."""
    return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '')}{_code(function)}"


def _code(function: Any) -> str:
    """The `version` that a function or class states, or a hash of its source text; nothing of a library, whose version says it.

    Raises a _CannotTellError where pickle would not find it by its name, or it has no source text.
    """
    if isinstance(version := getattr(function, "version", None), str | int):
        return f" version {version}"
    module: str = getattr(function, "__module__", None) or ""
    found: Any = sys.modules.get(module)
    for part in getattr(function, "__qualname__", "").split("."):
        found = getattr(found, part, None)
    if found is not function or module == "__main__":
        raise _CannotTellError
    if module.split(".")[0] in _LIBRARIES:
        return ""
    try:
        return f" sha256 {digest_of(inspect.getsource(getattr(function, 'python_function', function)))}"  # of a tf.function, too
    except (OSError, TypeError):
        raise _CannotTellError from None
