"""What is said of sources and vocabularies that cannot tell what they are."""

from __future__ import annotations

import functools
import logging

from ul2_tasks.sources.base import DataSource

_logger = logging.getLogger(__name__)
# The ids of these mean what their class and size say, and `special_ids.vocabulary_identity` states both.


def reads(source: DataSource, split: str) -> str:
    """What a split is read from, for the fingerprint of a stream, see `DataSource.reads`.

    Of a source that cannot tell what it reads it is the class alone, and the log says so, once.
    """
    words = source.reads(split)
    if words is None:
        _warn(cannot_tell(source))
        words = f"{source.kind}, which cannot tell what it reads"
    return words


def cannot_tell(source: DataSource) -> str:
    """The sentences for users on why a source without identity equals no other one, and on what to do."""
    return (
        f"its source, {source}, is a lambda, a local function, a function of a notebook or program, or has an"
        " address as its repr, so two different sources could not be told apart. Give the function an attribute `version`, define"
        " it at the top level of a module and import it, or use MemoryDataSource(lambda: texts, validation=0.01), which goes by the"
        " content."
    )


@functools.lru_cache
def _warn(sentences: str) -> None:
    """Warns once of each."""
    _logger.warning("a checkpoint of an iterator cannot check that it reads the same corpus: %s", sentences)
