"""What decides which example of a mixture has which number, and what it is."""

from __future__ import annotations

import dataclasses
import hashlib
import types
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ul2_tasks.corpus.cache import identity_of
from ul2_tasks.corpus.identity import reads
from ul2_tasks.denoising.solution import DenoisingConfiguration
from ul2_tasks.random_access.corpora import Member
from ul2_tasks.random_access.numbering import Numbering
from ul2_tasks.scalars import as_python
from ul2_tasks.store.read import TokenStore
from ul2_tasks.vocabulary.special_ids import vocabulary_identity

if TYPE_CHECKING:
    import seqio

NUMBERED_VERSION = 1  # raised whenever a number is that of another example
# What a fingerprint says that those of 1.0.3 do not: what a stream reads; by name, what is read of which the rest of a
# fingerprint of numbers does not tell the content; and the rates of a mixture of texts with images.
ADDED = ("source", "sources", "mixing_rates")
_AT_A_TIME = 1 << 22


def fingerprint(
    name: str,
    members: Sequence[Member],
    numbering: Numbering,
    sequence_length: Mapping[str, int],
    *,
    rates: Mapping[str, float],
    cache_dirs: Mapping[str, str | None],
    split: str,
    shuffle: bool,
    seed: int | str,
    others: Mapping[str, str] = types.MappingProxyType({}),
) -> dict[str, object]:
    """What must be the same for a number to be the same example.

    `members`, in the order of the mixture `name`, are numbered. `rates` are those of all of its tasks. `cache_dirs` has the folder
    of each corpus's cache, if it is read. `others` are what tasks of another kind read, by their names.
    """
    corpora = {member.corpus.name: member.corpus for member in members}
    stores = {each.name: each.store for each in numbering.corpora}
    told = {
        "numbered_version": NUMBERED_VERSION,
        "mixture": name,
        "tasks": {member.task: described(member.solution.configuration, member.solution.vocabulary) for member in members},
        "rates": rates,
        "vocabulary": vocabulary_identity(members[0].solution.vocabulary),
        "sequence_length": {key: as_python(length) for key, length in sequence_length.items()},
        "split": split,
        "corpora": {
            key: identity_of(corpus, cache_dirs[key] or "", split)
            if corpus.is_tokens or cache_dirs[key]
            else _in_memory(stores[key])
            for key, corpus in corpora.items()
        },
        "shuffle": shuffle,
        "seed": seed,
    }
    if sources := {key: reads(corpus.source, split) for key, corpus in corpora.items() if corpus.is_tokens} | dict(others):
        told["sources"] = sources
    return told


def described(configuration: DenoisingConfiguration, vocabulary: seqio.Vocabulary) -> dict[str, object]:
    """Describes a configuration in few words: a list of a thousand sentinels by its length and checksum.

    Iterators are saved with these names in this order, and with SeqIO's ids.
    """
    sentinels, modes = configuration.special_tokens.of_seqio(vocabulary)
    if sentinels is not None and not isinstance(sentinels, str):
        sentinels = f"{len(sentinels)} ids, crc32 {zlib.crc32(repr(list(sentinels)).encode())}"
    return {
        "denoiser": dataclasses.asdict(configuration.denoiser),
        "sentinels": sentinels,
        "modes": modes,
        "merge_examples": configuration.merge_examples,
        "chunk_tokens": configuration.chunk_tokens,
        "separate_documents": configuration.separate_documents,
    }


def _in_memory(store: TokenStore) -> str:
    """The tokens that were made into memory, whatever they are of, by their content."""
    found = hashlib.sha256()
    for start in range(0, store.tokens, _AT_A_TIME):
        found.update(store.read_tokens(start, min(start + _AT_A_TIME, store.tokens)).astype("<i4").tobytes())
    return f"{store.tokens} tokens in memory, sha256 {found.hexdigest()[:16]}"
