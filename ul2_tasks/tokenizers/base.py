"""What a vocabulary is: texts to ids and back. Its ids are the tokenizer's own. For SeqIO see `tasks/vocabulary.py`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np


class Vocabulary:
    """A tokenizer with sentinels and modes.

    Text is *encoded* to ids. An ordinary id is there for text. Of the special ids, which are not, text is encoded to some when
    it spells their pieces, as "<extra_id_0>"; to others it never is. The methods here are those of a vocabulary of ordinary ids
    without names.

    Attributes:
        bos_id, eos_id, unk_id: None where there is none.
        pad_id: the id that the tokenizer names for padding; None where it names none.
        uses_0: whether id 0 means something else than padding: text, EOS, a sentinel or a mode. Nothing may be padded with it then.
        vocab_size: the last id, plus one.
        extra_ids: how many ids at the end are sentinels and modes that the tokenizer's file does not have.
        identity: what the ids mean, apart from the class, the sizes and EOS: equal for equal contents, wherever the files are; None
            where that cannot be told.
        roles: what tokens are for, by name, where a sentinel or a mode is not to be one of them.
    """

    @property
    def bos_id(self) -> int | None:
        return None

    @property
    def eos_id(self) -> int | None:
        return None

    @property
    def unk_id(self) -> int | None:
        return None

    @property
    def pad_id(self) -> int | None:
        return None

    @property
    def uses_0(self) -> bool:
        return False

    @property
    def vocab_size(self) -> int:
        raise NotImplementedError

    @property
    def extra_ids(self) -> int:
        return 0

    @property
    def identity(self) -> str | None:
        return None

    @property
    def roles(self) -> Mapping[str, str]:
        return {}

    @property
    def name(self) -> str:
        """The kind of the vocabulary, in caches and exports."""
        return type(self).__name__

    @property
    def own_size(self) -> int:
        """Where the ids begin that were added after the tokenizer's last."""
        return self.vocab_size - self.extra_ids

    def check(self) -> None:
        """Raises a ValueError where no examples can be made with it."""

    def piece_id(self, name: str) -> int | None:
        """The id of the piece of this name; None where there is none."""
        return None

    def id_to_piece(self, id: int) -> str:
        """The name of an id of the vocabulary; `<id>` where it has none."""
        return f"<{id}>"

    def is_ordinary(self, id: int) -> bool:
        """Whether the id is there for text, and for nothing else, as far as is known."""
        return False

    def encodable_ids(self, ids: Iterable[int]) -> list[int]:
        """The ids among `ids` that a text is encoded to if it spells their pieces. None of `ids` is ordinary."""
        return []

    def never_encoding(self, ids: Iterable[int]) -> Vocabulary:
        """The same vocabulary, except that text is never encoded to `ids`, which are some of `encodable_ids`."""
        return self

    def encode_batch(self, texts: Iterable[str | bytes]) -> list[np.ndarray]:
        """The ids of each text, [tokens] int32. Bytes that are not UTF-8 become U+FFFD, as in SentencePiece."""
        raise NotImplementedError

    def encode(self, text: str) -> Sequence[int]:
        """The ids of a text, without EOS."""
        return self.encode_batch([text])[0].tolist()

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, up to the first EOS. Ids beyond the vocabulary are unknown."""
        values = [int(id) for id in ids]
        if self.unk_id is not None:
            values = [self.unk_id if id >= self.vocab_size else id for id in values]
        if self.eos_id is not None and self.eos_id in values:
            values = values[: values.index(self.eos_id) + 1]
        return self.decode_all(values)

    def decode_all(self, ids: Sequence[int]) -> str:
        """The text of ids, also of those after an EOS."""
        raise NotImplementedError

    def bytes_of(self, id: int) -> bytes | None:
        """The bytes that an id adds to a text, which may be a part of a character; None where only decoding can tell."""
        return None
