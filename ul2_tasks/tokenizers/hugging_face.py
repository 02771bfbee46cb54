"""A Hugging Face `tokenizer.json`, or a tokenizer in memory, as a vocabulary. Needs `tokenizers`, not `transformers`."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ul2_tasks.tokenizers.base import Vocabulary
from ul2_tasks.tokenizers.pieces import DEFAULT_SENTINELS, PRESET_MODES, special_names
from ul2_tasks.tokenizers.tokenizer_json import InMemory, Loaded, in_memory, load, opened

if TYPE_CHECKING:
    from ul2_tasks.tokenizers.tokenizer_json import Tokenizer


class HuggingFaceVocabulary(Vocabulary):
    """A vocabulary of a Hugging Face tokenizer, with sentinels and modes. Opens no file before its first use.

    Text is encoded as `transformers` encodes it without special tokens (`add_special_tokens=False`), and ids are decoded as it
    decodes them (`skip_special_tokens=False, clean_up_tokenization_spaces=False`), with these differences:

    * No text is encoded to a special token, a sentinel or a mode, even if it spells one. Added tokens that are not special, such
      as `<think>`, are found in text as ever.
    * Id 0 decodes to nothing, unless it is more than padding (`uses_0`): an ordinary token, so that text becomes it; the unknown
      token, without byte fallback; EOS, a sentinel or a mode.
    * Sentinels and modes that the tokenizer does not have as added tokens come after its last id, sentinels first. Gaps in its
      ids stay gaps.

        0 <unk>  1 </s>  2 a  3 b  ..  99 z     100 <extra_id_0> ..  355 <extra_id_255>  356 [R] ..

    Two vocabularies are equal if their files have the same bytes and all else is the same, wherever the files are. A tokenizer in
    memory has the bytes that it would save; it is read once, and what is added to it later is not seen.

    Args:
        path: the `tokenizer.json`, or the folder that has it; local, or of any file system that fsspec knows. Or a tokenizer in
            memory: a fast one of `transformers`, or a `tokenizers.Tokenizer`.
        sentinels: the least number of sentinels `<extra_id_0>`, `<extra_id_1>` ..
        modes: the names of the modes.
        eos: the token that ends an example; by default `eos_token` of the tokenizer in memory, or in the files beside it,
            `tokenizer_config.json` or `special_tokens_map.json`.

    Raises:
        ValueError: a name is used twice or is not valid; the tokenizer is a slow one; or, on first use, the file does not exist or
            names no EOS.
        ImportError: on first use, the package `tokenizers` is not installed.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | Tokenizer | InMemory,
        sentinels: int = DEFAULT_SENTINELS,
        modes: Sequence[str] = PRESET_MODES,
        eos: str | None = None,
    ):
        self._path = in_memory(path) or str(path)
        self._sentinels = sentinels
        self._modes = modes if isinstance(modes, str) else tuple(modes)
        self._names = special_names(sentinels, self._modes)
        self._eos = eos
        self._never_encoded: frozenset[int] = frozenset()
        self._source: InMemory | None = None  # what was read of the path

    @property
    def bos_id(self) -> int | None:
        return self._loaded.bos

    @property
    def eos_id(self) -> int:
        return self._loaded.eos

    @property
    def pad_id(self) -> int | None:
        return self._loaded.pad

    @property
    def unk_id(self) -> int | None:
        return self._loaded.unk

    @property
    def extra_ids(self) -> int:
        """How many sentinels and modes come after the tokenizer's own ids."""
        return len(self._loaded.appended)

    @property
    def vocab_size(self) -> int:
        return self._loaded.size

    @property
    def uses_0(self) -> bool:
        return self._loaded.uses_0

    @property
    def identity(self) -> str:
        """See `base.Vocabulary`."""
        loaded = self._loaded
        special = hashlib.sha256(json.dumps([loaded.special, sorted(self._never_encoded)]).encode()).hexdigest()
        return f"sha256 {loaded.sha256}, special {special[:16]}"

    @property
    def roles(self) -> Mapping[str, str]:
        """What tokens are for, by name, of those that the files beside the tokenizer name."""
        return self._loaded.roles

    @property
    def clashes(self) -> tuple[str, ...]:
        """What the tokenizer and the files beside it say differently, in words."""
        return self._loaded.clashes

    def piece_id(self, name: str) -> int | None:
        """The id of a sentinel, a mode, or any other token."""
        return self._loaded.special.get(name, self._loaded.ids.get(name))

    def id_to_piece(self, id: int) -> str:
        """The token as the tokenizer spells it, which may have letters for bytes; `<id>` for gaps."""
        return self._loaded.names.get(id, f"<{id}>")

    def is_ordinary(self, id: int) -> bool:
        """Whether the id is a token of the model that text can become, and no added token."""
        loaded = self._loaded
        return id in loaded.names and id not in loaded.added and id not in loaded.never_encoded

    def encodable_ids(self, ids: Iterable[int]) -> list[int]:
        """See `base.Vocabulary`. They are added tokens that are not special, and not a sentinel or a mode by name."""
        loaded = self._loaded
        return [id for id in ids if id in loaded.added and id not in loaded.never_encoded]

    def never_encoding(self, ids: Iterable[int]) -> HuggingFaceVocabulary:
        """See `base.Vocabulary`."""
        changed = copy.copy(self)
        changed._never_encoded, changed._source = self._never_encoded | frozenset(ids), self._source
        return changed

    def encode_batch(self, texts: Iterable[str | bytes]) -> list[np.ndarray]:
        """See `base.Vocabulary`."""
        texts = [text.decode(errors="replace") if isinstance(text, bytes) else text for text in texts]
        encoded = self._loaded.encoder.encode_batch_fast(texts, add_special_tokens=False)
        return [np.array(each.ids, np.int32) for each in encoded]

    def decode_all(self, ids: Sequence[int]) -> str:
        loaded = self._loaded
        shown = [id for id in ids if (0 if loaded.uses_0 else 1) <= id < loaded.size]
        return loaded.decoder.decode(shown, skip_special_tokens=False)

    @property
    def source(self) -> InMemory:
        """The tokenizer as it was when it was first used."""
        if self._source is None:
            self._source = opened(self._path)
        return self._source

    @property
    def _loaded(self) -> Loaded:
        with _load_lock:
            return load(self.source, *self._settings()[1:])

    def __getstate__(self) -> dict[str, object]:
        """Without what was read, which can be large."""
        return {**self.__dict__, "_source": None}

    def _settings(self) -> tuple:
        return self._path, self._names, self._eos, self._never_encoded

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HuggingFaceVocabulary):
            return False
        if self._source is other._source and self._settings() == other._settings():  # both may be unread
            return True
        return (self.eos_id, self.identity) == (other.eos_id, other.identity)

    def __hash__(self) -> int:
        return hash(self.identity)

    def __repr__(self) -> str:
        never = f", never_encoded={sorted(self._never_encoded)}" if self._never_encoded else ""
        settings = f"sentinels={self._sentinels}, modes={self._modes}, eos={self._eos!r}{never}"
        return f"HuggingFaceVocabulary({self._path!r}, {settings})"


_load_lock = threading.Lock()  # so that two threads do not read one file
