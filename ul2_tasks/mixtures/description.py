"""`Description`: data and what is made of them, as arguments that are registered nowhere."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ul2_tasks.corpus.build_cache import build
from ul2_tasks.corpus.configuration import digest
from ul2_tasks.corpus.corpus import Corpus, corpus_settings
from ul2_tasks.denoisers.denoisers import Denoiser
from ul2_tasks.order.order import BlockShuffle
from ul2_tasks.random_access.numbering import MemberSchedule
from ul2_tasks.sources.base import DataSource
from ul2_tasks.tokenizers.special_ids import SpecialTokensRequest

_OF_THE_CORPUS = ("source", "vocabulary", "renderer", "id_key", "validation")  # what the settings of the corpus tell


class Description:
    """The arguments of one kind of data, in the one form that equal arguments have.

    Two are equal if their arguments are, with sources that read the same (`sources.base.DataSource.identity`).
    """

    name: str
    vocabulary: Any
    denoisers: tuple[Denoiser, ...] = ()

    def _set(self, **fields: object) -> None:
        """Gives fields the form that equal arguments have, of one that is being made, and is frozen from then on."""
        for key, value in fields.items():
            object.__setattr__(self, key, value)
        check_name(self.name)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and all(is_same(value, vars(other)[key]) for key, value in vars(self).items())

    def __hash__(self) -> int:
        return hash((type(self), self.name))

    def corpus(self, cache_dirs: Sequence[str | os.PathLike] = ()) -> Corpus:
        """The corpus, whose cache may be in one of these folders."""
        raise NotImplementedError

    @property
    def tasks(self) -> Mapping[str, Description]:
        """The tasks that it is registered with, each by its name as a description of it alone, which shares the corpus."""
        return {f"{self.name}_{each.name}": self.with_denoisers((each,)) for each in self.denoisers}

    def with_denoisers(self, denoisers: tuple[Denoiser, ...]) -> Description:
        """The same with other denoisers, which read the same corpus."""
        return dataclasses.replace(self, source=owner_of(self), denoisers=denoisers)  # type: ignore[type-var]

    @property
    def rates(self) -> dict[str, float]:
        """How its tasks share its examples, by their names; of conversations beside mixtures."""
        return {f"{self.name}_{each.name}": float(each.weight) for each in self.denoisers}

    @property
    def leaves(self) -> Mapping[Description, float]:
        """The descriptions that it mixes, of one kind of data each, with their parts of the examples: here itself."""
        return {self: 1.0}

    def salt(self, task: str) -> str | None:
        """What the order of a task alone is salted with, None where it is not.

        SeqIO hands one seed to all tasks of a mixture, and they would read the same in the same order.
        """
        return None

    def members(self, sequence_length: Mapping[str, int], cache_dirs: Sequence[str | os.PathLike] = ()) -> list[Any]:
        """The tasks of examples of these lengths, by name, as SeqIO has them, at their `rates`; see `kinds.Task`."""
        raise NotImplementedError

    def schedule_of(
        self, sequence_length: Mapping[str, int], cache_dirs: Sequence[str | os.PathLike] = (), is_run: bool = True
    ) -> MemberSchedule:
        """The same in the course of a run; of what is no run all have the lengths that are asked for."""
        return MemberSchedule.of(self.members(sequence_length, cache_dirs))

    def registered_name(self, sequence_length: Mapping[str, int | None]) -> str:
        """The name that examples of these lengths are registered under."""
        return f"{self.name}_mix"

    def fingerprint(self) -> str:
        """16 hexadecimal digits of the arguments, others for other arguments, but not for another name. Opens the vocabulary.

        Raises a ValueError where the source or the vocabulary cannot tell what it is.
        """
        said = {key: _words(value) for key, value in self._arguments().items() if key not in ("name", *_OF_THE_CORPUS)}
        return digest(corpus_settings(self.corpus()) | said)

    def _arguments(self) -> Mapping[str, object]:
        """What a fingerprint keeps."""
        return vars(self)

    def cache(
        self,
        output_dir: str | os.PathLike,
        *,
        max_documents: int | None = None,
        max_tokens: int | None = None,
        git_revision: str | None = None,
    ) -> dict:
        """Tokenizes the corpus into a folder in `output_dir`, as `ul2 cache` does. Gives the manifest, see `build_cache.build`."""
        return build(
            self.corpus(), os.fspath(output_dir), max_documents=max_documents, max_tokens=max_tokens, git_revision=git_revision
        )


def owner_of(description: Any) -> Any:
    """The description whose corpus a description reads: itself, unless it was given another one as its source."""
    return description.source if isinstance(description.source, Description) else description


def check_name(name: object) -> None:
    """Raises a ValueError where SeqIO could not have such a name."""
    if not isinstance(name, str) or not re.fullmatch(r"[\w.:#]+", name):
        raise ValueError(f"name must be letters, digits and _ . : #, as SeqIO has them, such as 'mine', got {name!r}.")


def _words(value: object) -> str:
    """A value in words, which are equal for equal mappings."""
    return repr(dict(sorted(value.items())) if isinstance(value, Mapping) else value)


def folders(cache_dirs: Sequence[str | os.PathLike]) -> tuple[str, ...]:
    """The folders that a cache may be in, as texts."""
    if isinstance(cache_dirs, str | os.PathLike):
        raise ValueError(f"cache_dirs must be a list of folders, such as [{os.fspath(cache_dirs)!r}], got {cache_dirs!r}.")
    return tuple(os.fspath(folder) for folder in cache_dirs)


def corpus_in(description: Description, cache_dirs: Sequence[str | os.PathLike]) -> Corpus:
    """The corpus of a description. Raises a ValueError where folders are given, and its cache is in none of them."""
    corpus = description.corpus(cache_dirs)
    if cache_dirs and not corpus.cache_dir and not corpus.is_tokens:
        raise ValueError(
            f"cache_dirs must have a folder with the cache of {corpus.name!r}, got {list(map(str, cache_dirs))}. Write it with"
            f" {type(description).__name__}.cache or `ul2 cache`, or leave cache_dirs out to tokenize a small corpus into memory."
            " See docs/help/troubleshooting.md#the-cache-is-not-found."
        )
    return corpus


def check_blocks(block_shuffle: object) -> None:
    """Raises a ValueError where it is neither a `BlockShuffle` nor None."""
    if not isinstance(block_shuffle, BlockShuffle | None):
        raise ValueError(f"block_shuffle must be a ul2_tasks.BlockShuffle or None, got {block_shuffle!r}.")


def special_tokens_of(description: Any) -> SpecialTokensRequest:
    """The sentinels and modes of all denoisers of a description that has some."""
    modes = tuple(dict.fromkeys(denoiser.mode for denoiser in description.denoisers))
    own = tuple(dict.fromkeys(denoiser.own_tokens for denoiser in description.denoisers if denoiser.own_tokens))
    return SpecialTokensRequest(description.sentinels, description.modes, modes, own)


def is_same(a: Any, b: Any) -> bool:
    """Whether two arguments are the same: sources and renderers, if they tell what they are, and it is the same."""
    if a is b:
        return True
    if isinstance(a, DataSource) and isinstance(b, DataSource):
        return a == b or (a.identity is not None and a.identity == b.identity)
    return a == b or (hasattr(a, "render") and hasattr(b, "render") and a.identity == b.identity)
