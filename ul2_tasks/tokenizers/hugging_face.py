"""A Hugging Face `tokenizer.json`, or a tokenizer in memory, as a vocabulary. Needs `tokenizers`, not `transformers`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ul2_tasks.tokenizers.base import FileVocabulary
from ul2_tasks.tokenizers.pieces import DEFAULT_SENTINELS, PRESET_MODES, special_names
from ul2_tasks.tokenizers.tokenizer_json import InMemory, Loaded, in_memory, load, opened

if TYPE_CHECKING:
    from ul2_tasks.tokenizers.tokenizer_json import Tokenizer


class HuggingFaceVocabulary(FileVocabulary):
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
        super().__init__()
        self._path = in_memory(path) or str(path)
        self._sentinels = sentinels
        self._modes = modes if isinstance(modes, str) else tuple(modes)
        self._names = special_names(sentinels, self._modes)
        self._eos = eos

    def encode_batch(self, texts: Iterable[str | bytes]) -> list[np.ndarray]:
        """See `base.Vocabulary`."""
        return self.tokens.encoder.encode_batch(texts)

    @property
    def made_by(self) -> str:
        """See `base.Vocabulary`."""
        return self.tokens.encoder.made_by

    @property
    def fallbacks(self) -> int:
        """See `base.Vocabulary`."""
        return self.tokens.encoder.fallbacks

    def decode_all(self, ids: Sequence[int]) -> str:
        tokens = self.tokens
        shown = [id for id in ids if (0 if tokens.uses_0 else 1) <= id < tokens.vocab_size]
        return tokens.decoder.decode(shown, skip_special_tokens=False)

    def _read(self) -> InMemory:
        return opened(self._path)

    def _load(self, source: InMemory) -> Loaded:
        return load(source, self._names, self._eos, self._never_encoded)

    def __repr__(self) -> str:
        never = f", never_encoded={sorted(self._never_encoded)}" if self._never_encoded else ""
        settings = f"sentinels={self._sentinels}, modes={self._modes}, eos={self._eos!r}{never}"
        return f"HuggingFaceVocabulary({self._path!r}, {settings})"
