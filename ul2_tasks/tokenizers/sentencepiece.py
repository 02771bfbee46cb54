"""SentencePiece vocabularies: the one that this package ships, and any model with sentinels and modes added.

A SentencePiece model gives each piece a type. These matter here:

    NORMAL, BYTE   ordinary pieces, there for text
    USER_DEFINED   special, but a text that spells the piece is encoded to it; SeqIO's own extra ids are such
    CONTROL        special, and no text is ever encoded to it, but decoding leaves it out
    UNKNOWN        stands for what is no piece, unless there are bytes for it

So sentinels and modes are best CONTROL pieces; and for decoding alone they are made USER_DEFINED, so that they can be seen.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.resources
from collections.abc import Iterable, Sequence

import numpy as np
from sentencepiece import SentencePieceProcessor

from ul2_tasks.cached import cached_property
from ul2_tasks.files.listing import read_as_it_is
from ul2_tasks.tokenizers.base import FileVocabulary, Tokens, load_lock
from ul2_tasks.tokenizers.model_file import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED, read_pieces, with_pieces
from ul2_tasks.tokenizers.pieces import free_name

DEFAULT_MODEL = importlib.resources.files("ul2_tasks") / "data" / "default.model"


class SentencePieceVocabulary(FileVocabulary):
    """A SentencePiece model with more control pieces, which text is never encoded to. Opens no file before its first use.

    Text is encoded as the model encodes it. Decoding shows control pieces such as `<extra_id_0>` and `[R]`, but not padding, BOS
    and EOS, and not id 0 where that is padding.

    The names `appended` become control pieces after the model's last id. No piece is added for a name that is a special piece
    already. Where the name is an ordinary piece, text is encoded to that one, and the control piece has another spelling
    (`pieces.free_name`).
    """

    def __init__(self, file: str, appended: Sequence[str] = ()):
        super().__init__()
        self.file = file
        self.appended = tuple(appended)

    @property
    def model(self) -> bytes:
        """The serialized model, with all changes."""
        return self.tokens.model

    def check(self) -> None:
        """Raises a ValueError where the model has no EOS."""
        if self.eos_id is None:
            raise ValueError(
                f"vocabulary must have an EOS, which ends an example, got {self}, which has none. Train it with an EOS, or pass a"
                " tokenizer.json. See docs/help/troubleshooting.md#a-tokenizer-has-no-eos."
            )

    def encode_batch(self, texts: Iterable[str | bytes]) -> list[np.ndarray]:
        """See `base.Vocabulary`."""
        encoded = self.tokens.processor.encode(list(texts), out_type=int, num_threads=1)
        return [np.array(ids, np.int32) for ids in encoded]

    def decode_all(self, ids: Sequence[int]) -> str:
        return self.tokens.shown.decode([int(id) for id in ids])

    def _read(self) -> bytes:
        try:
            return read_as_it_is(self.file)
        except FileNotFoundError as error:
            raise ValueError(f"vocabulary must be a SentencePiece model, got {self.file}, which does not exist.") from error

    def _load(self, source: bytes) -> _Model:
        try:
            return _load(source, self.appended, self._never_encoded)
        except (ValueError, RuntimeError) as error:
            raise ValueError(
                f"{self.file} must be a SentencePiece model, got another file ({error}). If it is"
                " one of tiktoken's (Llama 3), pass the tokenizer.json that the same model has for Hugging Face."
            ) from error

    def __repr__(self) -> str:
        return f"SentencePieceVocabulary({self.file!r}{f', {self.appended}' if self.appended else ''})"


def default_vocabulary() -> SentencePieceVocabulary:
    """Returns the bundled vocabulary: 4,096 pieces, trained on the built-in corpus. Opens no file.

    Padding is 0, EOS 1, unknown 2; `<extra_id_0>` .. `<extra_id_255>`, `[R]`, `[S]` and `[X]` are control pieces: no text is
    encoded to them, and decoding shows them. It lets everything run offline; for real training use your own vocabulary.
    """
    return SentencePieceVocabulary(str(DEFAULT_MODEL))


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class _Model(Tokens):
    """A model that was read.

    Attributes:
        model: the file, with all changes.
        processor: SentencePiece's own, of it.
    """

    model: bytes
    processor: SentencePieceProcessor

    @cached_property
    def shown(self) -> SentencePieceProcessor:
        """The model for decoding: control pieces are user-defined ones in it, because decoding shows these."""
        names, types = read_pieces(self.model)
        hidden = (self.pad_id, self.bos_id, self.eos_id)
        changed = {id: USER_DEFINED for id, type in enumerate(types) if type == CONTROL and id not in hidden}
        added = []
        if not self.uses_0:
            if types[0] == UNKNOWN:  # sentencepiece wants one, and piece 0 is about to be another type
                added = [(free_name("<unk>", names), UNKNOWN)]
            changed[0] = CONTROL
        with load_lock:
            return SentencePieceProcessor(model_proto=with_pieces(self.model, changed, added))


@functools.lru_cache(maxsize=16)
def _load(content: bytes, appended: tuple[str, ...], never_encoded: frozenset[int]) -> _Model:
    """A model's file with control pieces added."""
    names, types = read_pieces(content)
    ids = {name: id for id, name in enumerate(names)}
    special = {name for name, id in ids.items() if types[id] not in (NORMAL, BYTE)}
    spellings = {name: free_name(name, ids) for name in appended if name not in special}
    changed, added = dict.fromkeys(never_encoded, CONTROL), [(spelling, CONTROL) for spelling in spellings.values()]
    model = with_pieces(content, changed, added) if changed or added else content
    processor = SentencePieceProcessor(model_proto=model)
    types = (*(changed.get(id, type) for id, type in enumerate(types)), *(type for _, type in added))
    names = (*names, *spellings.values())
    ids = {name: id for id, name in enumerate(names)}
    bos_id, eos_id, unk_id, pad_id = (
        None if id < 0 else id for id in (processor.bos_id(), processor.eos_id(), processor.unk_id(), processor.pad_id())
    )
    # A text that is no piece becomes the unknown one, unless there are bytes for it.
    text_becomes_0 = types[0] in (NORMAL, USER_DEFINED, BYTE) or (types[0] == UNKNOWN and BYTE not in types)
    return _Model(
        vocab_size=len(names),
        extra_ids=len(added),
        bos_id=bos_id,
        eos_id=eos_id,
        unk_id=unk_id,
        pad_id=pad_id,
        uses_0=text_becomes_0 or eos_id == 0 or names[0] in appended,
        identity=f"sha256 {hashlib.sha256(model).hexdigest()}",
        # SeqIO's own extra ids start with a word boundary.
        ids={name.removeprefix("\u2581"): id for name, id in ids.items()}
        | ids
        | {name: ids[spellings[name]] for name in spellings},
        names=dict(enumerate(names)),
        ordinary=frozenset(id for id, type in enumerate(types) if type in (NORMAL, BYTE)),
        encodable=frozenset(id for id, type in enumerate(types) if type == USER_DEFINED),
        model=model,
        processor=processor,
    )
