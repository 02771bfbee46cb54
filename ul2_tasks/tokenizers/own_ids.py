"""A tokenizer's own ids of texts, without SeqIO and TensorFlow: for processes that have neither."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True, eq=False)
class SentencePieceIds:
    """The ids of SentencePiece, as the model's file has them; those of the `SentencePieceProcessor` are `shift` higher."""

    processor: Any
    shift: int

    def __call__(self, text: str) -> list[int]:
        return [id - self.shift for id in self.processor.encode(text)]


@dataclasses.dataclass(frozen=True, eq=False)
class TokenizerIds:
    """The ids of a `tokenizers.Tokenizer`."""

    tokenizer: Any

    def __call__(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False).ids


OwnIds = SentencePieceIds | TokenizerIds  # which can be sent to another process
