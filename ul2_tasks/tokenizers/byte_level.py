"""ByT5's vocabulary, in which each byte is an id, with names for the sentinels and modes after the bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ul2_tasks.tokenizers.base import Vocabulary

_BYTES = range(3, 259)  # the ids of the bytes 0 to 255


class NamedByteVocabulary(Vocabulary):
    """ByT5's vocabulary with named extra ids: modes from the first on, sentinels from the last downwards.

        0 <pad>   1 </s>   2 <unk>   3 .. 258 bytes   259 [R]   260 [S]   261 [X]   262 <extra_id_N-1> .. <extra_id_0>

    N is `sentinels`, and `modes` are the names from 259 on.
    """

    pad_id, eos_id, unk_id = 0, 1, 2
    extra_ids, vocab_size, identity = 0, _BYTES.stop, ""  # of one without sentinels and modes

    def __init__(self, sentinels: int, modes: Sequence[str]):
        self.extra_ids = sentinels + len(modes)
        self.vocab_size = _BYTES.stop + self.extra_ids
        self.identity = f"modes {' '.join(modes)}"
        self._special = {f"<extra_id_{number}>": self.vocab_size - 1 - number for number in range(sentinels)} | {
            mode: _BYTES.stop + number for number, mode in enumerate(modes)
        }
        self._names = {0: "<pad>", 1: "</s>", 2: "<unk>", **{id: name for name, id in self._special.items()}}

    def piece_id(self, name: str) -> int | None:
        return self._special.get(name)

    def id_to_piece(self, id: int) -> str:
        return f"<0x{id - _BYTES.start:02X}>" if id in _BYTES else self._names[id]

    def is_ordinary(self, id: int) -> bool:
        return id in _BYTES

    def encode_batch(self, texts: Iterable[str | bytes]) -> list[np.ndarray]:
        """See `base.Vocabulary`; but bytes that are not UTF-8 keep their ids."""
        contents = (text.encode() if isinstance(text, str) else text for text in texts)
        return [np.frombuffer(content, np.uint8).astype(np.int32) + np.int32(_BYTES.start) for content in contents]

    def decode_all(self, ids: Sequence[int]) -> str:
        return b"".join(map(self.bytes_of, ids)).decode(errors="ignore")

    def bytes_of(self, id: int) -> bytes:
        return bytes([id - _BYTES.start]) if id in _BYTES else b""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamedByteVocabulary) and self._special == other._special

    def __hash__(self) -> int:
        return hash(self.identity)
