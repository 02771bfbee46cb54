"""The ids of `tokenizers` and `tiktoken`, made by gigatoken, which takes a thirtieth of their CPU time for BPE (extra `fast`).

The libraries have their tables of Unicode from different years. Of some characters one says that they are letters and the other
does not, and then they cut a text at other places. So gigatoken's ids are taken only where they are known to be the same:

* Every code point that has a name is first encoded by both: alone, in a row, beside letters, digits, spaces and marks. A text that
  has another one, or one whose ids differ, is encoded by the reference, and so is one that Unicode's normal form would change.
* Of each list of texts the beginning of one is encoded by both. If its ids differ, the reference encodes this list and all later
  ones, and a warning says so.

To encode the code points takes some seconds, so the reference encodes the first `_FIRST` bytes of a process alone.
"""

from __future__ import annotations

import collections
import importlib.util
import itertools
import json
import threading
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from ul2_tasks.version import version_of

_FIRST = 1 << 24  # bytes
_RENEWED = 1 << 30  # bytes, after which a new object takes over, because gigatoken remembers each word that it has seen
_COMPARED = 1 << 9  # characters of a text that both encode
_Form = Literal["NFC", "NFKC"]
_FORMS: tuple[_Form, ...] = ("NFC", "NFKC")
_WITHOUT_UNICODE = ("Replace", "Prepend")  # other steps of a normalizer that gigatoken may take
_ENDS = 0xF0000  # where only private code points come
_AT_A_TIME = 64  # code points in one text
_UNLIKE, _ALIKE_IN_FORM, _ALIKE = range(3)  # of a code point: whether both give the same ids in a text, or in one in normal form
_ASCII = bytes(range(0x80))
_JAMO = range(0x1100, 0x1200)


class FastEncoder:
    """Encodes texts as the package `name` does, whose ids `reference` gives, [tokens] int32 of each text.

    `open` makes gigatoken's object; None where it has none. `forms` are the normal forms that a text is brought into first.
    """

    def __init__(
        self,
        name: str,
        reference: Callable[[Sequence[str]], list[np.ndarray]],
        open: Callable[[], Any] | None,
        forms: Sequence[_Form] = (),
    ):
        self._name, self._reference, self._open, self._forms = name, reference, open, forms
        self._may_be_fast = open is not None and importlib.util.find_spec("gigatoken") is not None
        self._gigatoken: Any = None
        self._kinds = np.zeros(0x110000, np.uint8)
        self._seen = 0  # bytes, since the start of the process or since gigatoken's object was made
        self._lock = threading.RLock()
        self._fallbacks = collections.Counter[int]()

    @property
    def made_by(self) -> str:
        """The packages that make the ids."""
        return ", ".join(f"{name} {version_of(name)}" for name in (*(["gigatoken"] if self._may_be_fast else []), self._name))

    @property
    def fallbacks(self) -> int:
        """How many texts of this thread the reference has encoded since gigatoken was ready."""
        return self._fallbacks[threading.get_ident()]

    def encode_batch(self, texts: Iterable[str | bytes]) -> list[np.ndarray]:
        """The ids of each text, [tokens] int32; of bytes that are not UTF-8 with U+FFFD in place of these."""
        given = [text.encode() if isinstance(text, str) else text for text in texts]
        if not self._is_ready(sum(map(len, given))):
            return self._by_reference(given)
        are_all = self._is_known(b"\n".join(given))
        are_known = [are_all or self._is_known(text) for text in given]
        known = list(itertools.compress(given, are_known))
        compared = [text.decode()[:_COMPARED] for text in known[:1]]
        found = iter(self._by_gigatoken([*map(str.encode, compared), *known]))
        if not all(map(np.array_equal, self._reference(compared), found)):
            warnings.warn(
                f"gigatoken gives other ids than {self._name} for {compared[0]!r}. From here on texts are encoded by {self._name}."
                " Uninstall gigatoken, and write again what was written with it.",
                RuntimeWarning,
                stacklevel=2,
            )
            self._may_be_fast = False
            return self._by_reference(given)
        return [next(found) if is_known else self._by_reference([text])[0] for text, is_known in zip(given, are_known)]

    def _is_ready(self, size: int) -> bool:
        """Whether gigatoken may be asked; makes its object when it is time."""
        if not self._may_be_fast:
            return False
        with self._lock:
            self._seen += size
            if self._seen > (_FIRST if self._gigatoken is None else _RENEWED):
                self._seen = 0
                try:
                    self._gigatoken = self._open() if self._open else None
                except (RuntimeError, ValueError):  # a kind of tokenizer that it does not have
                    self._may_be_fast = False
                    return False
                if not self._kinds.any():
                    self._compare_code_points()
            return self._may_be_fast and self._gigatoken is not None

    def _compare_code_points(self) -> None:
        points = [chr(point) for point in range(_ENDS) if unicodedata.category(chr(point)) not in ("Cn", "Cs")]
        for point in points:
            is_alone = ord(point) not in _JAMO and unicodedata.category(point)[0] != "M" and self._is_in_form(point)
            self._kinds[ord(point)] = _ALIKE if is_alone else _ALIKE_IN_FORM
        unlike = [ord(point) for point in self._unlike(points, _AT_A_TIME)]
        self._kinds[unlike] = _UNLIKE
        self._may_be_fast = min(unlike, default=_ENDS) >= len(_ASCII)

    def _unlike(self, points: Sequence[str], at_a_time: int) -> Iterator[str]:
        """The code points whose ids differ."""
        groups = [points[first : first + at_a_time] for first in range(0, len(points), at_a_time)]
        texts = ["\n".join(f"a{each}b {each} 1{each}2345\n{each}{each}.{each}'s A{each}B" for each in group) for group in groups]
        for group, ids, own in zip(groups, self._reference(texts), self._by_gigatoken([text.encode() for text in texts])):
            if not np.array_equal(ids, own):
                yield from group if at_a_time == 1 else self._unlike(group, 1)

    def _is_known(self, text: bytes) -> bool:
        """Whether both libraries are known to give the same ids of a text, and of each of its lines."""
        if text.isascii():
            return True
        try:
            whole = text.decode()
        except UnicodeDecodeError:
            return False
        others = text.translate(None, _ASCII).decode().encode("utf-32-le")
        kind = self._kinds[np.frombuffer(others, np.uint32)].min()
        return kind == _ALIKE or (kind == _ALIKE_IN_FORM and self._is_in_form(whole))

    def _is_in_form(self, text: str) -> bool:
        return all(unicodedata.is_normalized(form, text) for form in self._forms)

    def _by_reference(self, texts: Sequence[bytes]) -> list[np.ndarray]:
        if self._gigatoken is not None:
            self._fallbacks[threading.get_ident()] += len(texts)
        return self._reference([text.decode(errors="replace") for text in texts])

    def _by_gigatoken(self, texts: Sequence[bytes]) -> list[np.ndarray]:
        encode = self._gigatoken.encode
        with self._lock:  # it does not take two calls at once
            return [encode(text).view(np.int32) for text in texts]


def of_tokenizer_json(tokenizer: Any) -> FastEncoder:
    """Encodes as a `tokenizers.Tokenizer` does without special tokens."""
    description = tokenizer.to_str()
    of_file = json.loads(description)
    steps = list(_steps(of_file["normalizer"]))
    is_of_a_kind = of_file["model"]["type"] == "BPE" and {*steps} <= {*_FORMS, *_WITHOUT_UNICODE}

    def reference(texts: Sequence[str]) -> list[np.ndarray]:
        return [np.array(each.ids, np.int32) for each in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    def open() -> Any:
        import gigatoken

        return gigatoken.Tokenizer.from_json(description)

    forms = [form for form in _FORMS if form in steps]
    return FastEncoder("tokenizers", reference, open if is_of_a_kind else None, forms)


def _steps(normalizer: Mapping[str, Any] | None) -> Iterator[str]:
    """The kinds of the steps of a normalizer, as `tokenizer.json` has it."""
    if normalizer is None:
        return
    if normalizer["type"] == "Sequence":
        for each in normalizer["normalizers"]:
            yield from _steps(each)
    else:
        yield normalizer["type"]
