"""The ids of `tokenizers`, made by gigatoken, which takes a thirtieth of the CPU time for BPE models (extra `fast`).

The two libraries have their tables of Unicode from different years. Of some characters one says that they are letters and the other
does not, and then they cut a text at other places. So gigatoken's ids are taken only where they are known to be the same:

* Every code point that a text may have is first encoded by both: alone, in a row, beside letters, digits, spaces and marks. A text
  that has one whose ids differ is encoded by `tokenizers`, and so is one that Unicode's normal form would change.
* Of each list of texts one is encoded by both. If its ids differ, `tokenizers` encodes this text and all later ones, and a warning
  says so.

To encode the code points takes some seconds, so `tokenizers` encodes the first `_FIRST` characters of a process alone.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import threading
import unicodedata
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from ul2_tasks.version import version_of

_FIRST = 1 << 24  # characters
_RENEWED = 1 << 30  # characters, after which a new object takes over, because gigatoken remembers each word that it has seen
_COMPARED = 1 << 14  # characters of a text that both encode
_FORMS: tuple[Literal["NFC", "NFKC"], ...] = ("NFC", "NFKC")
_WITHOUT_UNICODE = ("Replace", "Prepend")  # other steps of a normalizer that gigatoken may take
# The planes of scripts, symbols and ideographs, without surrogates, and that of tags.
_POINTS = np.r_[0x20:0xD800, 0xE000:0x40000, 0xE0000:0xE1000]
_AT_A_TIME = 64  # code points in one text


class FastEncoder:
    """Encodes texts as a `tokenizers.Tokenizer` does without special tokens; `first` characters by that alone."""

    def __init__(self, reference: Any, first: int = _FIRST):
        self._reference = reference
        self._first = first
        self._description = reference.to_str()
        description = json.loads(self._description)
        steps = list(_steps(description["normalizer"]))
        self._forms = [form for form in _FORMS if form in steps]
        is_of_a_kind = description["model"]["type"] == "BPE" and {*steps} <= {*_FORMS, *_WITHOUT_UNICODE}
        self._may_be_fast = is_of_a_kind and importlib.util.find_spec("gigatoken") is not None
        self._gigatoken: Any = None
        self._is_sure = np.zeros(0x110000, bool)  # by code point: whether both give the same ids
        self._seen = 0  # characters, since the start of the process or since gigatoken's object was made
        self._lock = threading.Lock()

    @property
    def made_by(self) -> str:
        """The packages that make the ids."""
        names = ("gigatoken", "tokenizers") if self._may_be_fast else ("tokenizers",)
        return ", ".join(f"{name} {version_of(name)}" for name in names)

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The ids of each text, [tokens] int32."""
        if not self._is_ready(sum(map(len, texts))):
            return self._by_reference(texts)
        are_sure = [self._is_known(text) for text in texts]
        sure = list(itertools.compress(texts, are_sure))
        ids = self._by_gigatoken(sure)
        compared = next((number for number, text in enumerate(sure) if len(text) <= _COMPARED), None)
        if compared is not None and not np.array_equal(ids[compared], self._by_reference([sure[compared]])[0]):
            warnings.warn(
                f"gigatoken gives other ids than tokenizers for {sure[compared][:200]!r}. From here on texts are encoded by"
                " tokenizers. Uninstall gigatoken, and write again what was written with it.",
                RuntimeWarning,
                stacklevel=2,
            )
            self._may_be_fast = False
            return self._by_reference(texts)
        found = iter(ids)
        return [next(found) if is_sure else self._by_reference([text])[0] for text, is_sure in zip(texts, are_sure)]

    def _is_ready(self, characters: int) -> bool:
        """Whether gigatoken may be asked; makes its object when it is time."""
        if not self._may_be_fast:
            return False
        with self._lock:
            self._seen += characters
            if self._seen > (self._first if self._gigatoken is None else _RENEWED):
                import gigatoken

                self._seen = 0
                try:
                    self._gigatoken = gigatoken.Tokenizer.from_json(self._description)
                except (RuntimeError, ValueError):  # a kind of tokenizer that it does not have
                    self._may_be_fast = False
                    return False
                if not self._is_sure.any():
                    self._is_sure[_POINTS] = True
                    self._is_sure[[ord(point) for point in self._unlike(list(map(chr, _POINTS.tolist())), _AT_A_TIME)]] = False
            return self._gigatoken is not None

    def _unlike(self, points: Sequence[str], at_a_time: int) -> Iterator[str]:
        """The code points whose ids differ."""
        groups = [points[first : first + at_a_time] for first in range(0, len(points), at_a_time)]
        texts = ["\n".join(f"a{each}b {each} 1{each}2\n{each}{each}.{each}'s" for each in group) for group in groups]
        for group, ids, own in zip(groups, self._by_reference(texts), self._by_gigatoken(texts)):
            if not np.array_equal(ids, own):
                yield from group if at_a_time == 1 else self._unlike(group, 1)

    def _is_known(self, text: str) -> bool:
        """Whether both libraries are known to give the same ids."""
        if text.isascii():
            return True
        points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        known = self._is_sure[points] | (points < 0x20)
        return bool(known.all()) and all(unicodedata.is_normalized(form, text) for form in self._forms)

    def _by_reference(self, texts: Sequence[str]) -> list[np.ndarray]:
        return [np.array(each.ids, np.int32) for each in self._reference.encode_batch_fast(texts, add_special_tokens=False)]

    def _by_gigatoken(self, texts: Sequence[str]) -> list[np.ndarray]:
        if not texts:
            return []
        import awkward

        found = self._gigatoken.encode_batch(texts, parallel=False)
        ends = np.cumsum(awkward.num(found))
        return np.split(np.asarray(awkward.flatten(found)).astype(np.int32), ends[:-1])


def _steps(normalizer: Mapping[str, Any] | None) -> Iterator[str]:
    """The kinds of the steps of a normalizer, as `tokenizer.json` has it."""
    if normalizer is None:
        return
    if normalizer["type"] == "Sequence":
        for each in normalizer["normalizers"]:
            yield from _steps(each)
    else:
        yield normalizer["type"]
