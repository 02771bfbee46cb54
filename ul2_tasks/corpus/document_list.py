"""Lists of documents: files of JSON Lines that name them by id, file, row, or number.

    {"id": "77f2"}
    {"file": "web-0003.jsonl.zst", "row": 1234, "reason": "asked to be taken down"}
    {"corpus": "web_corpus", "document": 12}

A corpus limits an entry to it. Other fields are for people. A file whose name ends in .txt, or such a compressed one, has an id in
each line. An id that is an integer is its digits, as a cache keeps it.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ul2_tasks.cached import cached_property
from ul2_tasks.files.opening import COMPRESSIONS, CORRUPT, open_file
from ul2_tasks.scalars import as_python, is_integer
from ul2_tasks.store.provenance import Provenance
from ul2_tasks.store.read import TokenStore

_logger = logging.getLogger(__name__)
_MOST = 1 << 40  # documents of a corpus, rows of a file
_WAYS = (("document",), ("id",), ("file",), ("file", "row"))
_FORMS: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("document", "row"), (lambda value: is_integer(value, 0) and value < _MOST, "an integer of 0 to 2^40 - 1")),
    **dict.fromkeys(("id", "file", "corpus"), (lambda value: isinstance(value, str) and bool(value), "a text")),
}
_encode = json.JSONEncoder(sort_keys=True, ensure_ascii=False).encode
_SHORT = ".txt"  # the name of a file of ids


@dataclasses.dataclass(frozen=True)
class DocumentList:
    """The entries of a list, each once, as JSON with the fields that name documents alone."""

    entries: tuple[str, ...]

    @property
    def text(self) -> str:
        """What `read_document_list` reads again, as a file."""
        return "".join(f"{entry}\n" for entry in self.entries)

    @cached_property
    def sha256(self) -> str:
        """Another one for other entries."""
        return hashlib.sha256("\n".join(sorted(self.entries)).encode()).hexdigest()

    @cached_property
    def by_way(self) -> dict[tuple[str, ...], dict[tuple, list[tuple[str | None, int]]]]:
        """By the fields that name documents their values, and of each the corpora of its entries, if any, and their numbers."""
        found: dict[tuple[str, ...], dict[tuple, list[tuple[str | None, int]]]] = {}
        for number, value in enumerate(json.loads(f"[{','.join(self.entries)}]")):
            way = _way_of(value)
            found.setdefault(way, {}).setdefault(tuple(value[key] for key in way), []).append((value.get("corpus"), number))
        return found

    def documents(self, corpus: str, provenance: Provenance | None, count: int) -> tuple[np.ndarray, list[str]]:
        """The documents of a corpus of `count` that are named, [n] int64, ascending; and the entries that name none of it."""
        found, named = [np.zeros([0], np.int64)], np.zeros(len(self.entries), bool)
        for way, values in self.by_way.items():
            about = {value: own for value, each in values.items() if (own := [at for name, at in each if name in (None, corpus)])}
            documents, which = _look_up(way, [*about], provenance, count)
            found.append(documents)
            of_each = [*about.values()]
            named[[number for each in np.unique(which).tolist() for number in of_each[each]]] = True
        unnamed = np.flatnonzero(~named).tolist()
        return np.unique(np.concatenate(found)), [self.entries[number] for number in unnamed]


def named_documents(named: DocumentList, stores: Mapping[str, TokenStore]) -> tuple[dict[str, np.ndarray], list[str]]:
    """The documents of each corpus, by its name, that a list names, and its entries that name none.

    Warns of entries about a corpus that is not one of these, as a list may be of several runs. Raises a ValueError where all are
    about such, where an entry does not say of which of several corpora its index is, and where no corpus that an entry is about can
    tell what it names.
    """
    each = ((way, corpus) for way, values in named.by_way.items() for entries in values.values() for corpus, _ in entries)
    kinds = collections.Counter(each)
    if len(stores) > 1 and (("document",), None) in kinds:
        raise ValueError(f'a list must have "corpus" beside "document", one of {[*stores]}, got entries without. Add it.')
    others = [(corpus, count) for (_, corpus), count in kinds.items() if corpus is not None and corpus not in stores]
    if others and sum(count for _, count in others) == len(named.entries):
        raise ValueError(f'a list must have some of {[*stores]} as "corpus", got {sorted(dict(others))} alone. Correct it.')
    if others:
        _logger.warning("entries of a list are about %s, and name no document of %s", sorted(dict(others)), [*stores])
    for way, corpus in kinds:
        about = [name for name in stores if corpus in (None, name)]
        without = [name for name in about if not _can_tell(stores[name].provenance, way)]
        if about and without == about:
            raise ValueError(
                f"ids and files must be recorded by the cache of {', '.join(about)}, got none. Write the cache with `ul2 cache`,"
                ' and name it; or name documents by their index, as {"document": 7}.'
            )
        if without:
            _logger.warning("%s records no ids, so entries by these name no document of it; `ul2 cache` writes them", without)
    found, unknown = {}, set(named.entries)
    for name, store in stores.items():
        found[name], missing = named.documents(name, store.provenance, store.documents)
        unknown &= set(missing)
    return found, [entry for entry in named.entries if entry in unknown]


def _can_tell(provenance: Provenance | None, way: tuple[str, ...]) -> bool:
    """Whether what is recorded of a corpus says which documents are named in this way."""
    return way == ("document",) or (provenance is not None and ("file" in way or provenance.has_ids))


def read_document_list(given: str | os.PathLike | Sequence[Mapping[str, object]], option: str = "exclude") -> DocumentList:
    """Reads a list from a file, by its path, or takes its entries. Raises a ValueError for an entry that names no document.

    `option` is what errors call the path.
    """
    if isinstance(given, str | os.PathLike):
        entries = _entries_of(os.fspath(given), option)
    elif isinstance(given, Sequence) and all(isinstance(entry, Mapping) for entry in given):
        entries = ((f"entry {number}", entry) for number, entry in enumerate(given))
    else:
        raise ValueError(f"{option} must be the path of a list of documents, or its entries, got {given!r:.100}.")
    return DocumentList(tuple(dict.fromkeys(_checked(where, entry) for where, entry in entries)))


def _entries_of(path: str, option: str) -> Iterator[tuple[str, object]]:
    try:
        with open_file(path) as file:
            lines = file.read().decode("utf-8-sig").split("\n")  # no other line ends: a text in JSON may have U+2028
    except FileNotFoundError as error:
        raise ValueError(f"{option} must be the path of a list of documents, got {path!r}, which does not exist.") from error
    except (IsADirectoryError, *CORRUPT) as error:
        raise ValueError(f"{option} must be the path of a list of documents in UTF-8, got {path!r}: {error}.") from error
    stem, ending = os.path.splitext(path)
    is_short = (stem if ending in COMPRESSIONS else path).endswith(_SHORT)
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield f"{path}, line {number}", {"id": line.strip()} if is_short else _parsed(path, number, line)


def _parsed(path: str, number: int, line: str) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}, line {number} must be JSON, got {line!r:.100}: {error}. Give each document a line.") from error


def _checked(where: str, entry: object) -> str:
    if not isinstance(entry, Mapping):
        raise ValueError(f"{where} must be an object of JSON, got {entry!r:.100}.")
    named = {key: as_python(entry[key]) for key in _FORMS if key in entry}
    if _way_of(named) not in _WAYS:
        raise ValueError(
            f'{where} must name documents by "id", "file", "file" and "row", or "document", got {dict(entry)!r:.200}. Give'
            " it one of them."
        )
    if is_integer(named.get("id"), at_least=float("-inf")):
        named["id"] = str(named["id"])
    for key, value in named.items():
        is_right, expected = _FORMS[key]
        if not is_right(value):
            raise ValueError(f'{where} must have {expected} as "{key}", got {value!r:.100}.')
    found = _encode(named)  # a lone surrogate, which UTF-8 does not have, is escaped as JSON has it
    return found if found.isascii() else found.encode(errors="backslashreplace").decode()


def _way_of(entry: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(key for key in ("document", "id", "file", "row") if key in entry)


def _look_up(
    way: tuple[str, ...], values: Sequence[tuple], provenance: Provenance | None, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """The documents that the values of these fields name, and which value names each, [n] int64 both."""
    firsts = [value[0] for value in values]
    if way == ("document",):
        present = [(number, which) for which, number in enumerate(firsts) if number < count]
        numbers, which = np.array(present, np.int64).reshape(-1, 2).T
        return numbers, which
    if provenance is None:
        return np.zeros([0], np.int64), np.zeros([0], np.int64)
    if way == ("id",):
        return provenance.with_ids(firsts)
    if way == ("file",):
        return provenance.in_files(firsts)
    return provenance.in_rows(values)
