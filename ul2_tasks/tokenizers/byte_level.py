"""ByT5's vocabulary, in which each byte is an id, with names for the sentinels and modes after the bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ul2_tasks.imported import is_seqio
from ul2_tasks.tokenizers.base import Vocabulary

if TYPE_CHECKING:
    import tensorflow as tf

_BYTES = range(3, 259)  # the ids of the bytes 0 to 255


class NamedByteVocabulary(Vocabulary):
    """ByT5's vocabulary with named extra ids: modes from the first on, sentinels from the last downwards.

        0 <pad>   1 </s>   2 <unk>   3 .. 258 bytes   259 [R]   260 [S]   261 [X]   262 <extra_id_N-1> .. <extra_id_0>

    N is `sentinels`, and `modes` are the names from 259 on.
    """

    def __init__(self, sentinels: int, modes: Sequence[str]):
        super().__init__(extra_ids=sentinels + len(modes))
        self.modes = tuple(modes)
        self._special = {f"<extra_id_{number}>": self.vocab_size - 1 - number for number in range(sentinels)} | {
            mode: _BYTES.stop + number for number, mode in enumerate(self.modes)
        }
        self._names = {0: "<pad>", 1: "</s>", 2: "<unk>", **{id: name for name, id in self._special.items()}}

    @property
    def bos_id(self) -> int | None:
        return None

    @property
    def eos_id(self) -> int:
        return 1

    @property
    def unk_id(self) -> int:
        return 2

    @property
    def _base_vocab_size(self) -> int:
        return _BYTES.stop

    @property
    def vocab_size(self) -> int:
        return _BYTES.stop + self.extra_ids

    @property
    def identity(self) -> str:
        """See `pieces.Pieces`, also for the other methods."""
        return f"modes {' '.join(self.modes)}"

    def piece_id(self, name: str) -> int | None:
        return self._special.get(name)

    def id_to_piece(self, id: int) -> str:
        if id in _BYTES:
            return f"<0x{id - _BYTES.start:02X}>"
        return self._names[id]

    def is_ordinary(self, id: int) -> bool:
        return id in _BYTES

    def encodable_ids(self, ids: Iterable[int]) -> list[int]:
        return []  # text is encoded to bytes, whatever it spells

    def never_encoding(self, ids: Iterable[int]) -> NamedByteVocabulary:
        return self

    def encode_batch(self, texts: Iterable[str | bytes]) -> list[np.ndarray]:
        """See `base.Vocabulary`; but bytes that are not UTF-8 keep their ids."""
        contents = (text.encode() if isinstance(text, str) else text for text in texts)
        return [np.frombuffer(content, np.uint8).astype(np.int32) + np.int32(_BYTES.start) for content in contents]

    def _decode(self, ids: Iterable[int]) -> str:
        return bytes(int(id) - _BYTES.start for id in ids if int(id) in _BYTES).decode(errors="ignore")

    def _encode_tf(self, s: tf.Tensor) -> tf.Tensor:
        from ul2_tasks.tokenizers.in_graphs import encode_bytes

        return encode_bytes(self.extra_ids, s)

    def decode_tf(self, ids: tf.Tensor) -> tf.Tensor:
        from ul2_tasks.tokenizers.in_graphs import decode_bytes

        return decode_bytes(self.extra_ids, ids)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamedByteVocabulary) and (self.extra_ids, self.modes) == (other.extra_ids, other.modes)

    def __hash__(self) -> int:
        return hash((self.extra_ids, self.modes))


def is_bytes(value: object) -> bool:
    """Whether a value is ByT5's vocabulary, of this package or SeqIO's own."""
    return isinstance(value, NamedByteVocabulary) or is_seqio(value, "ByteVocabulary")
