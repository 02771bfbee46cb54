"""ByT5's vocabulary, in which each byte is an id, with names for the sentinels and modes after the bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np

from ul2_tasks.tokenizers.base import Tokens, Vocabulary

_BYTES = range(3, 259)  # the ids of the bytes 0 to 255


class NamedByteVocabulary(Vocabulary):
    """ByT5's vocabulary with named extra ids: modes from the first on, sentinels from the last downwards.

        0 <pad>   1 </s>   2 <unk>   3 .. 258 bytes   259 [R]   260 [S]   261 [X]   262 <extra_id_N-1> .. <extra_id_0>

    N is `sentinels`, and `modes` are the names from 259 on.
    """

    def __init__(self, sentinels: int, modes: Sequence[str]):
        self.sentinels, self.modes = sentinels, tuple(modes)

    @cached_property
    def tokens(self) -> Tokens:
        added = (*self.modes, *(f"<extra_id_{number}>" for number in reversed(range(self.sentinels))))
        ids = {name: id for id, name in enumerate(added, _BYTES.stop)}
        names = {0: "<pad>", 1: "</s>", 2: "<unk>", **{id: f"<0x{id - _BYTES.start:02X}>" for id in _BYTES}}
        return Tokens(
            vocab_size=_BYTES.stop + len(added),
            extra_ids=len(added),
            pad_id=0,
            eos_id=1,
            unk_id=2,
            identity=f"modes {' '.join(self.modes)}",
            ids=ids,
            names=names | {id: name for name, id in ids.items()},
            ordinary=_BYTES,
        )

    def encode_batch(self, texts: Iterable[str | bytes]) -> list[np.ndarray]:
        """See `base.Vocabulary`; but bytes that are not UTF-8 keep their ids."""
        contents = (text.encode() if isinstance(text, str) else text for text in texts)
        return [np.frombuffer(content, np.uint8).astype(np.int32) + np.int32(_BYTES.start) for content in contents]

    def decode_all(self, ids: Sequence[int]) -> str:
        return b"".join(map(self.bytes_of, ids)).decode(errors="ignore")

    def bytes_of(self, id: int) -> bytes:
        return bytes([id - _BYTES.start]) if id in _BYTES else b""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamedByteVocabulary) and (self.sentinels, self.modes) == (other.sentinels, other.modes)

    def __hash__(self) -> int:
        return hash(self.modes)
