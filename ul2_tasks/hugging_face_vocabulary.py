"""A Hugging Face `tokenizer.json` as a SeqIO vocabulary. Needs the package `tokenizers`, not `transformers`.

Two tokenizers are made of the file. The one for text knows no name of a special token, so that a text with "</s>" in it becomes
what any text would: its model lacks it, or, where ids are places in a list (Unigram), has a random name there that no text
spells. The one for ids knows all names.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import hashlib
import json
import secrets
import threading
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np
import seqio
import tensorflow as tf

from ul2_tasks.controlled_vocabulary import free_name
from ul2_tasks.graphs import python_op
from ul2_tasks.vocabularies import special_names

TOKENIZER = "tokenizer.json"
_COMPANIONS = ("tokenizer_config.json", "special_tokens_map.json")  # they name EOS


class HuggingFaceVocabulary(seqio.Vocabulary):
    """The tokens of a `tokenizer.json`, with sentinels and modes. Opens no file yet.

    Text becomes the ids that `transformers` gives it without special tokens (`add_special_tokens=False`), and ids become
    the text that it gives (`skip_special_tokens=False, clean_up_tokenization_spaces=False`). What differs:

    * No text becomes a special token, a sentinel or a mode, even if it spells one. Non-special added tokens, such as
      `<think>`, come out of text as ever.
    * Id 0 is padding, and decodes to nothing. Where the tokenizer's 0 is more than that, because text can become it (it
      is no special token, or the unknown one of a tokenizer without byte fallback) or it is EOS, a sentinel or a mode,
      all ids are one higher than the tokenizer's.
    * Sentinels and modes that are not among the tokenizer's added tokens come after its last id, sentinels first. A gap
      in its ids stays one.

    In a graph it is a Python function without state, so that a dataset's iterator can be saved and restored, in the
    process that built the graph or one that builds it again. Such a graph cannot be sent elsewhere (tf.data service).

    Equal to another if the file has the same bytes and the rest is the same, wherever the files are.

    Args:
        path: the file, or the folder that has it; local, or whatever `tf.io.gfile` reads.
        sentinels: that many there are at least: `<extra_id_0>`, `<extra_id_1>` ..
        modes: the names of the modes.
        eos: the token that ends an example; by default `eos_token` of the file's companions, `tokenizer_config.json` or
            `special_tokens_map.json`.

    Raises:
        ValueError: bad names, see `vocabularies.special_names`. And when it is first used: no such file, no EOS.
        ImportError: when it is first used: there is no package `tokenizers`.
    """

    def __init__(self, path: str, sentinels: int = 256, modes: Sequence[str] = ("[R]", "[S]", "[X]"), eos: str | None = None):
        super().__init__()
        self._path = str(path)
        self._sentinels = sentinels
        self._modes = modes if isinstance(modes, str) else tuple(modes)
        self._names = special_names(sentinels, self._modes)
        self._eos = eos
        self._barred: frozenset[int] = frozenset()

    @property
    def bos_id(self) -> int | None:
        return self._loaded.bos

    @property
    def eos_id(self) -> int:
        return self._loaded.eos

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
    def id_shift(self) -> int:
        """How much higher the ids are than the tokenizer's own, 0 or 1."""
        return self._loaded.shift

    @property
    def _base_vocab_size(self) -> int:
        return self.vocab_size  # SeqIO takes what is beyond for unknown, and extra ids are known here

    @property
    def identity(self) -> str:
        """See `vocabularies.Pieces`."""
        loaded = self._loaded
        special = hashlib.sha256(json.dumps([loaded.special, sorted(self._barred)]).encode()).hexdigest()
        return f"sha256 {loaded.sha256}, special {special[:16]}"

    def piece_id(self, name: str) -> int | None:
        """The id of a sentinel, a mode, or any other token."""
        return self._loaded.special.get(name, self._loaded.ids.get(name))

    def id_to_piece(self, id: int) -> str:
        """The token as the tokenizer spells it: bytes may have other letters. `<id>` for padding and gaps."""
        return self._loaded.names.get(id, f"<{id}>")

    def is_ordinary(self, id: int) -> bool:
        """Whether the id is one of the model's tokens, and not an added one."""
        loaded = self._loaded
        return id in loaded.names and id not in loaded.added and id not in loaded.unproducible

    def literal_ids(self, ids: Iterable[int]) -> list[int]:
        """See `vocabularies.Pieces`: non-special added tokens that are no sentinel or mode by name."""
        loaded = self._loaded
        return [id for id in ids if id in loaded.added and id not in loaded.unproducible]

    def barring(self, ids: Iterable[int]) -> HuggingFaceVocabulary:
        """See `vocabularies.Pieces`."""
        barring = copy.copy(self)
        barring._barred = self._barred | frozenset(ids)
        return barring

    def with_sentinels(self, sentinels: int) -> HuggingFaceVocabulary:
        """The same tokenizer with at least so many sentinels."""
        return HuggingFaceVocabulary(self._path, sentinels, self._modes, self._eos)

    def _encode(self, s: str) -> list[int]:
        return self._encode_all([s])[0].tolist()

    def _decode(self, ids: Iterable[int]) -> str:
        loaded = self._loaded
        return loaded.decoder.decode(
            [int(id) - loaded.shift for id in ids if 0 < id < loaded.size],
            skip_special_tokens=False,
        )

    def _encode_tf(self, s: tf.Tensor) -> tf.Tensor | tf.RaggedTensor:
        """String scalar to [tokens] int32, or [documents] strings to a RaggedTensor [documents, tokens] int32."""
        if s.shape.rank not in (0, 1):
            raise ValueError(f"text has the shape {s.shape}, expected a scalar or [documents]")

        def encode(texts: bytes | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            tokens = self._encode_all(np.atleast_1d(np.asarray(texts, object)))
            lengths = np.array([len(each) for each in tokens], np.int64)
            return np.concatenate([np.zeros([0], np.int32), *tokens]), lengths

        tokens, lengths = python_op(encode, [s], [tf.int32, tf.int64])
        tokens.set_shape([None])
        lengths.set_shape([None])
        return tokens if s.shape.rank == 0 else tf.RaggedTensor.from_row_lengths(tokens, lengths, validate=False)

    def _decode_tf(self, ids: tf.Tensor) -> tf.Tensor:
        """[.., tokens] of integers to [..] strings."""

        def decode(ids: np.ndarray) -> np.ndarray:
            texts = [self._decode(row).encode() for row in ids.reshape([-1, ids.shape[-1]]).tolist()]
            return np.array(texts, object).reshape(ids.shape[:-1])

        text = python_op(decode, [ids], tf.string)
        text.set_shape(ids.shape[:-1])
        return text

    def _encode_all(self, texts: Iterable[str | bytes]) -> list[np.ndarray]:
        # As SentencePiece, it takes what is not UTF-8 for U+FFFD.
        texts = [text.decode(errors="replace") if isinstance(text, bytes) else text for text in texts]
        encoded = self._loaded.encoder.encode_batch_fast(texts, add_special_tokens=False)
        return [np.array(each.ids, np.int32) + np.int32(self._loaded.shift) for each in encoded]

    @property
    def _loaded(self) -> _Loaded:
        with _load_lock:
            return _load(self._path, self._names, self._eos, self._barred)

    def _settings(self) -> tuple:
        return self._path, self._names, self._eos, self._barred

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HuggingFaceVocabulary):
            return False
        return self._settings() == other._settings() or (self.eos_id, self.identity) == (other.eos_id, other.identity)

    def __hash__(self) -> int:
        return hash(self.identity)

    def __repr__(self) -> str:
        barred = f", barred={sorted(self._barred)}" if self._barred else ""
        settings = f"sentinels={self._sentinels}, modes={self._modes}, eos={self._eos!r}{barred}"
        return f"HuggingFaceVocabulary({self._path!r}, {settings})"


@dataclasses.dataclass(frozen=True)
class _Loaded:
    """A tokenizer that was read. All ids are SeqIO's, `shift` higher than the tokenizer's."""

    encoder: Any
    decoder: Any
    sha256: str
    shift: int
    size: int
    bos: int | None
    eos: int
    unk: int | None
    special: dict[str, int]  # sentinels and modes
    appended: frozenset[int]  # those of them that the tokenizer lacks
    ids: dict[str, int]  # all tokens of the tokenizer
    names: dict[int, str]
    added: frozenset[int]  # tokens that are no part of the model
    unproducible: frozenset[int]  # what no text becomes


_load_lock = threading.Lock()


@functools.lru_cache(maxsize=8)
def _load(path: str, names: tuple[str, ...], eos_token: str | None, barred: frozenset[int]) -> _Loaded:
    file = _tokenizer_file(path)
    with tf.io.gfile.GFile(file, "rb") as opened:
        content = opened.read()
    description = json.loads(content)
    if not isinstance(description, Mapping) or "model" not in description:
        raise ValueError(f"{file} is no {TOKENIZER} of Hugging Face: it has no model; expected one that `tokenizers` saved")
    original = _tokenizers().Tokenizer.from_str(content.decode())
    tokens = original.get_vocab(with_added_tokens=True)
    added = {token["content"]: token["special"] for token in description["added_tokens"]}

    eos = tokens[_eos_token(file, eos_token, added)]
    bos = tokens.get(_companion_token(file, "bos_token"))
    after = max(tokens.values()) + 1
    missing = [name for name in names if name not in added]
    special = {name: tokens[name] for name in names if name in added} | {name: after + n for n, name in enumerate(missing)}
    appended = {free_name(name, tokens): special[name] for name in missing}

    # What no text becomes.
    unproducible = {tokens[name] for name, is_special in added.items() if is_special} | {eos, *special.values()}
    unk = _unknown(description["model"], tokens)
    means_more = {eos, *special.values()} | ({unk} if not _has_byte_fallback(description["model"], tokens) else set())
    shift = int(0 in means_more or (0 in tokens.values() and 0 not in unproducible))
    unproducible |= {id - shift for id in barred}
    named = {tokens[name]: name for name in added} | {id: name for name, id in appended.items()}

    def shifted(ids: Iterable[int]) -> frozenset[int]:
        return frozenset(id + shift for id in ids)

    return _Loaded(
        encoder=_tokenizer(description, named, unproducible),
        decoder=_tokenizer(description, named, frozenset()),
        sha256=hashlib.sha256(content).hexdigest(),
        shift=shift,
        size=after + len(missing) + shift,
        bos=None if bos is None else bos + shift,
        eos=eos + shift,
        unk=None if unk is None else unk + shift,
        special={name: id + shift for name, id in special.items()},
        appended=shifted(appended.values()),
        ids={name: id + shift for name, id in tokens.items()},
        names={id + shift: name for name, id in {**tokens, **appended}.items()},
        added=shifted(tokens[name] for name in added),
        unproducible=shifted(unproducible),
    )


def _tokenizers():
    try:
        import tokenizers
    except ImportError as error:
        raise ImportError(
            "a Hugging Face tokenizer needs the package tokenizers, which is not there: pip install 'ul2_tasks[huggingface]'"
        ) from error
    return tokenizers


def _tokenizer_file(path: str) -> str:
    file = f"{path.rstrip('/')}/{TOKENIZER}" if tf.io.gfile.isdir(path) else path
    if not tf.io.gfile.exists(file):
        raise ValueError(f"there is no {file}, expected a Hugging Face {TOKENIZER}, or a folder that has one")
    return file


def _companion_token(file: str, key: str) -> str | None:
    """A special token by what the tokenizer's companions say, which is a string, or a dictionary about it."""
    for companion in _COMPANIONS:
        path = file.rpartition("/")[0] + "/" + companion if "/" in file else companion
        if tf.io.gfile.exists(path):
            with tf.io.gfile.GFile(path) as opened:
                token = json.load(opened).get(key)
            token = token["content"] if isinstance(token, Mapping) else token
            if token:
                return token
    return None


def _eos_token(file: str, given: str | None, added: Mapping[str, bool]) -> str:
    eos = given or _companion_token(file, "eos_token")
    if eos in added:
        return eos
    wrong = f"{eos!r} is to be EOS, but is none of its added tokens" if eos else f"no {' or '.join(_COMPANIONS)} there names an EOS"
    candidates = [name for name, is_special in added.items() if is_special]
    shown = f"{', '.join(map(repr, candidates[:20]))}{' ..' if len(candidates) > 20 else ''}"
    raise ValueError(f"{file}: {wrong}; give eos, the one of its special tokens that ends an example: {shown or 'it has none'}")


def _unknown(model: Mapping[str, Any], tokens: Mapping[str, int]) -> int | None:
    return model["unk_id"] if "unk_id" in model else tokens.get(model.get("unk_token"))


def _has_byte_fallback(model: Mapping[str, Any], tokens: Mapping[str, int]) -> bool:
    return bool(model.get("byte_fallback")) and all(f"<0x{byte:02X}>" in tokens for byte in range(256))


def _tokenizer(description: Mapping[str, Any], names: Mapping[int, str], barred: Set[int]):
    """The tokenizer with these names at these ids, which it may lack; no text becomes a barred one, and it adds nothing to text."""
    kept = {name for id, name in names.items() if id not in barred}
    model = description["model"]
    model = (_of_words if isinstance(model["vocab"], Mapping) else _of_pieces)(model, names, barred)
    added = [token for token in description["added_tokens"] if token["content"] in kept]
    changed = {"model": model, "added_tokens": added, "truncation": None, "padding": None, "post_processor": None}
    return _tokenizers().Tokenizer.from_str(json.dumps({**description, **changed}))


def _of_words(model: Mapping[str, Any], names: Mapping[int, str], barred: Set[int]) -> dict[str, Any]:
    """A model whose vocabulary is ids by names: those that are barred are left out, but for what the unknown is called."""
    ids = {**model["vocab"], **{name: id for id, name in names.items()}}
    kept = {name: id for name, id in ids.items() if id not in barred or name == model.get("unk_token")}
    if "merges" not in model:
        return {**model, "vocab": kept}
    gone = ids.keys() - kept.keys()
    pairs = (merge if isinstance(merge, list) else merge.split(" ") for merge in model["merges"])
    return {**model, "vocab": kept, "merges": [pair for pair in pairs if gone.isdisjoint((*pair, "".join(pair)))]}


def _of_pieces(model: Mapping[str, Any], names: Mapping[int, str], barred: Set[int]) -> dict[str, Any]:
    """A Unigram model, whose ids are places in a list: what is barred, or in a gap, has a random name."""
    pieces = [list(piece) for piece in model["vocab"]]
    pieces += [[secrets.token_hex(16), 0.0] for _ in range(len(pieces), max(names, default=-1) + 1)]
    for id, name in names.items():
        pieces[id][0] = name
    for id in barred:
        pieces[id][0] = secrets.token_hex(16)
    return {**model, "vocab": pieces}
