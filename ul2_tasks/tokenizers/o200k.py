"""The tokens of `o200k_harmony`, from a local file `o200k_base.tiktoken`, by the package `tiktoken`. Nothing is downloaded."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ul2_tasks.extras import needs
from ul2_tasks.files.systems import sha256
from ul2_tasks.tokenizers.base import FileVocabulary, Tokens
from ul2_tasks.tokenizers.fast import FastEncoder
from ul2_tasks.tokenizers.pieces import DEFAULT_SENTINELS, PRESET_MODES

SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
FILE = "o200k_base.tiktoken"
VARIABLES = ("O200K_HARMONY_VOCAB_PATH", "TIKTOKEN_ENCODINGS_BASE")  # environment: the file or its folder; its folder
PADDED_SIZE = 201_088
EOD = 199_999  # <|endoftext|>
_ORDINARY = 199_998  # as many ids are for text
_FIRST_RESERVED = 200_019  # from here on all ids are <|reserved_..|>
_NAME_IN_CACHE = "fb374d419588a4632f3f557e76b4b70aebbca790"  # of the file, in a folder that tiktoken takes for its cache


class O200kVocabulary(FileVocabulary):
    """`o200k_harmony`, with sentinels and modes at reserved ids. Opens no file yet.

    No text is encoded to a special token, even if it spells one.

        0 !  ..  199998 <|startoftext|>  199999 <|endoftext|>  ..  200019 <|reserved_200019|> is <extra_id_0>  ..  201085 [R]  ..

    `path` is the file or its folder; by default what the environment variables `O200K_HARMONY_VOCAB_PATH` (the file or its folder)
    or `TIKTOKEN_ENCODINGS_BASE` (its folder) name. Its first use raises a ValueError where the file is another than `SHA256` says.
    """

    eos_id, uses_0, vocab_size, extra_ids = EOD, True, PADDED_SIZE, 0  # whatever the file is
    identity = f"o200k_harmony, sha256 {SHA256}"

    def __init__(self, path: str | os.PathLike | None = None):
        super().__init__()
        self._path = None if path is None else os.fspath(path)

    @property
    def path(self) -> str:
        """The file."""
        return find_file(self._path)

    def id_to_piece(self, id: int) -> str:
        return self.tokens.names.get(id) or self.tokens.encoding.decode([id])

    def encode_batch(self, texts: Iterable[str | bytes]) -> list[np.ndarray]:
        return self.tokens.fast.encode_batch(texts)

    @property
    def made_by(self) -> str:
        """See `base.Vocabulary`."""
        return self.tokens.fast.made_by

    @property
    def fallbacks(self) -> int:
        """See `base.Vocabulary`."""
        return self.tokens.fast.fallbacks

    def encoder(self) -> Callable[[str], np.ndarray]:
        """A function that gives the ids of a text, [tokens] int32, at the cost of tiktoken's own. No lists are made."""
        return _encoder(self.tokens.encoding)

    def bytes_of(self, id: int) -> bytes:
        """See `base.Vocabulary`; of a special id its name."""
        if not 0 <= id < PADDED_SIZE:
            return b""
        name = self.tokens.names.get(id)
        return name.encode() if name else self.tokens.encoding.decode_single_token_bytes(id)

    def decode_all(self, ids: Sequence[int]) -> str:
        return b"".join(map(self.bytes_of, ids)).decode(errors="replace")

    def _read(self) -> str:
        return self.path

    def _load(self, source: str) -> _Encoding:
        return _load(source)

    def __repr__(self) -> str:
        return f"O200kVocabulary({'' if self._path is None else repr(self._path)})"


def find_file(path: str | None = None) -> str:
    """The path of the file, of the right content.

    Where there is none, a ValueError says what to do. For `path` see `O200kVocabulary`.
    """
    where, place = next(
        ((f"the environment variable {name}", os.environ[name]) for name in VARIABLES if os.environ.get(name)), ("", "")
    )
    if path is not None:
        where, place = "the path that was given", path
    if not place:
        raise ValueError(
            f"the tokenizer file {FILE} (SHA-256 {SHA256}) must be on this machine, because nothing is downloaded. Pass its path,"
            f" or set {VARIABLES[0]} to it or {VARIABLES[1]} to its folder."
        )
    file = os.path.join(place, FILE) if os.path.isdir(place) else place
    try:
        found = _sha256(os.path.abspath(file), os.path.getmtime(file))
    except OSError as error:
        raise ValueError(f"{where} must name a place where {FILE} can be read, got {place!r}: {error}") from error
    if found != SHA256:
        raise ValueError(f"{file} must be {FILE} with the SHA-256 {SHA256}, got {found}. Copy the file again.")
    return os.path.abspath(file)


@functools.lru_cache(maxsize=8)
def _sha256(file: str, changed: float) -> str:
    """Of a file; it is read again when it was changed."""
    return sha256(file)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class _Encoding(Tokens):
    """What tiktoken makes of the file."""

    encoding: Any
    fast: FastEncoder


def _encoder(encoding: Any) -> Callable[[str], np.ndarray]:
    encode = encoding.encode_to_numpy
    return lambda text: encode(text, disallowed_special=()).view(np.int32)


@functools.lru_cache(maxsize=1)
def _load(path: str) -> _Encoding:
    """tiktoken reads a file of its cache folder, so a folder is made that has it alone. Sentinels and modes are reserved ids."""
    with needs("the vocabulary o200k", "chat"):
        import tiktoken
        from tiktoken_ext import openai_public
    with found_as(path, _NAME_IN_CACHE, "TIKTOKEN_CACHE_DIR"):
        encoding = tiktoken.Encoding(**openai_public.o200k_harmony())
    ids = {name: encoding.encode_single_token(name) for name in encoding.special_tokens_set}
    ids |= {f"<extra_id_{number}>": _FIRST_RESERVED + number for number in range(DEFAULT_SENTINELS)}
    ids |= {mode: PADDED_SIZE - len(PRESET_MODES) + number for number, mode in enumerate(PRESET_MODES)}
    encode = _encoder(encoding)

    def open() -> Any:
        import gigatoken

        return gigatoken.Tokenizer.from_tiktoken(path, "o200k", {})

    fast = FastEncoder("tiktoken", lambda texts: [encode(text) for text in texts], open)
    names = {id: name for name, id in ids.items()}
    return _Encoding(ids=ids, names=names, ordinary=range(_ORDINARY), encoding=encoding, fast=fast)


@contextlib.contextmanager
def found_as(path: str, name: str, variable: str) -> Iterator[None]:
    """Within the block an environment variable names a folder that has the file alone, under a name of its own."""
    before = os.environ.get(variable)
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(path, os.path.join(folder, name))
        os.environ[variable] = folder
        try:
            yield
        finally:
            del os.environ[variable]
            if before is not None:
                os.environ[variable] = before
