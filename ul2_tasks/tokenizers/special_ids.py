"""Which ids of a vocabulary are special (sentinels, modes, padding), and which of these text could be encoded to."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ul2_tasks.scalars import is_integer, short
from ul2_tasks.tokenizers.base import Vocabulary
from ul2_tasks.tokenizers.borders import border_table

Token = int | str  # an id; or a special token's name
Mode = Token | Sequence[Token]
Sentinels = Sequence[Token] | str

_PROBES = {
    "line feeds": "a\nb",
    "tabs": "a\tb",
    "runs of spaces": "a  b",
    "spaces at the start": " a",
    "spaces at the end": "a ",
    "upper case": "aBC",
    "compatibility characters": "ﬁ½Ａ①",
    "combining characters": "e\u0301",
}
_CHARACTERS = "aéλяאبक中日한☃🙂"  # of several scripts


@dataclasses.dataclass(frozen=True)
class SpecialTokens:
    """The ids that a denoiser adds to those of the text.

    Sentinels are in the order of use, and `eos` is None where the vocabulary has no EOS. The `reserved` ids must not occur in text:
    all sentinels, all modes that are given by id, and 0 where that is padding. `borders` says where spans may begin and end, see
    `borders.border_table`; it is empty where they may anywhere. `text_ids` are those of text, int32, for a
    denoiser that replaces tokens; as bytes, which are hashed once, and a recipe is looked up by them.
    """

    sentinels: tuple[int, ...]
    mode: tuple[int, ...]
    eos: int | None
    reserved: frozenset[int]
    borders: bytes = b""
    text_ids: bytes = b""

    @property
    def ending(self) -> list[int]:
        """What ends an example or a document: the EOS, or nothing."""
        return [] if self.eos is None else [self.eos]


class Asking(Protocol):
    """What a denoiser says of the ids that it needs."""

    @property
    def mode(self) -> str | None: ...
    @property
    def own_tokens(self) -> tuple[Token, ...]: ...
    @property
    def borders(self) -> str | None: ...
    @property
    def replaces(self) -> bool: ...


@dataclasses.dataclass(frozen=True)
class SpecialTokensRequest:
    """What a user asks for as sentinels and modes. The ids are looked up later, so that making it opens no vocabulary.

    For `sentinels` and `modes` see `special_tokens`. `mode_names` are the modes of all denoisers that share the corpus,
    and `own` the tokens that some have in place of sentinels.
    """

    sentinels: Sentinels | None = None
    modes: Mapping[str, Mode] | None = None
    mode_names: tuple[str | None, ...] = ()
    own: tuple[tuple[Token, ...], ...] = ()

    def tokens(self, vocabulary: Vocabulary, denoiser: Asking) -> SpecialTokens:
        """The special ids of a denoiser; see `special_tokens`."""
        found = special_tokens(vocabulary, denoiser.mode, self.sentinels, self.modes, denoiser.own_tokens)
        if not denoiser.borders and not denoiser.replaces:
            return found
        borders = border_table(vocabulary, denoiser.borders) if denoiser.borders else b""
        text_ids = _text_ids(vocabulary, self.ids(vocabulary)) if denoiser.replaces else b""
        return dataclasses.replace(found, borders=borders, text_ids=text_ids)

    def ids(self, vocabulary: Vocabulary) -> frozenset[int]:
        """The ids of all sentinels and modes, which no text may become. A mode that is given as a text adds none."""
        asked = [*((name, ()) for name in {*self.mode_names} or {None}), *((None, own) for own in self.own)]
        reserved = (special_tokens(vocabulary, mode, self.sentinels, self.modes, own).reserved for mode, own in asked)
        return frozenset().union(*reserved) - (set() if vocabulary.uses_0 else {0})

    def by_id(self, vocabulary: Vocabulary) -> tuple[tuple[int, ...] | str | None, dict[str, int | tuple[int, ...] | str] | None]:
        """The ids of the sentinels and the modes, whether they are given by id or by token: equal for equal ids."""
        sentinels, modes = plain_sentinels(self.sentinels), plain_modes(self.modes)
        return (
            _ids_of(vocabulary, "sentinels", sentinels) if isinstance(sentinels, tuple) else sentinels,
            None if modes is None else {name: _mode_by_id(vocabulary, name, mode) for name, mode in modes.items()},
        )


@functools.singledispatch
def as_vocabulary(value: Any) -> Vocabulary:
    """The vocabulary that a user gave: one of this package, or one of SeqIO's, which `tasks/vocabulary.py` registers here.

    Raises a ValueError for anything else.
    """
    raise ValueError(
        f"vocabulary must be open, got {short(value)}, which may lack sentinels and modes. Pass"
        " ul2_tasks.open_vocabulary(..) of it, mixture.vocabulary, or a seqio.Vocabulary."
    )


as_vocabulary.register(Vocabulary, lambda vocabulary: vocabulary)


def embedding_rows(vocabulary: Any) -> int:
    """Returns the number of embedding rows for all ids of a vocabulary, rounded up to a multiple of 128 for accelerators.

    One of `seqio_vocabulary` has SeqIO's ids.

    >>> from ul2_tasks import open_vocabulary
    >>> embedding_rows(open_vocabulary("bytes", sentinels=97))  # 359 ids
    384
    """
    as_vocabulary(vocabulary)  # which raises an error
    return -(-vocabulary.vocab_size // 128) * 128


def special_tokens(
    vocabulary: Vocabulary,
    mode: str | None,
    sentinels: Sentinels | None = None,
    modes: Mapping[str, Mode] | None = None,
    own: tuple[Token, ...] = (),
) -> SpecialTokens:
    """Finds and checks the special ids of a denoiser.

    Args:
        vocabulary: the vocabulary of both features.
        mode: the name of the denoiser's mode, or None.
        sentinels: one of three: a list in the order in which they are used, of ids or of special tokens by
            their names; or the common name of their pieces, with `{}` for the number, such as "<unused{}>"; or None for the
            default. By default they are the pieces `<extra_id_0>`, `<extra_id_1>`, .., and in a vocabulary without these its
            `extra_ids`, the last id first, which is T5's order. Ids that are modes are left out of the default.
        modes: what stands for each mode: an id; the name of a special token; a list of these; or any other
            text, which is tokenized and whose length counts in the budget. A mode that is not given must be a single piece of the
            vocabulary.
        own: tokens that the denoiser has in place of sentinels, by their names or ids, which may have a role in the tokenizer.

    Raises:
        ValueError: no examples can be made with the vocabulary, see `base.Vocabulary.check`; a sentinel or mode is no token of it,
            given twice, an ordinary token, padding, EOS, unknown, or there for something else; it does not have the mode.

    >>> from ul2_tasks import open_vocabulary
    >>> special = special_tokens(open_vocabulary("bytes", sentinels=3, modes=["[R]"]), "[R]")
    >>> special.sentinels, special.mode, special.eos, sorted(special.reserved)
    ((262, 261, 260), (259,), 1, [0, 259, 260, 261, 262])
    """
    vocabulary.check()
    by_id, modes_by_id = SpecialTokensRequest(sentinels, modes).by_id(vocabulary)
    of_denoiser = _ids_of(vocabulary, "tokens", own)
    return _special_tokens(vocabulary, mode, by_id, tuple((modes_by_id or {}).items()), of_denoiser)


@functools.lru_cache(maxsize=16)
def _text_ids(vocabulary: Vocabulary, reserved: frozenset[int]) -> bytes:
    """The ids that are there for text alone, see `SpecialTokens`."""
    found = [id for id in range(vocabulary.vocab_size) if vocabulary.is_ordinary(id) and id not in reserved]
    if not found:
        raise ValueError(f"{vocabulary} must say which ids are text's to replace tokens by some, got none. Use another vocabulary.")
    return np.array(found, np.int32).tobytes()


@functools.lru_cache(maxsize=64)
def _special_tokens(
    vocabulary: Vocabulary,
    mode: str | None,
    by_id: tuple[int, ...] | str | None,
    modes: tuple[tuple[str, Any], ...],
    own: tuple[int, ...],
) -> SpecialTokens:
    """The mixtures of a vocabulary, of which there may be hundreds, mostly ask for the same."""
    of_modes = dict(modes)
    given = None if mode is None else of_modes.get(mode)
    mode_ids = () if mode is None else _mode_ids(vocabulary, mode, given)
    is_text, padding = isinstance(given, str), set() if vocabulary.uses_0 else {0}
    # A mode that is given by id is never a sentinel, whichever denoiser has it: all denoisers of a mixture share the sentinels.
    reserved = {id for value in of_modes.values() if not isinstance(value, str) for id in np.atleast_1d(value).tolist()}
    if not is_text:
        reserved |= set(mode_ids)
    sentinel_ids = own or _sentinel_ids(vocabulary, by_id, reserved)
    _check_ids(vocabulary, "tokens" if own else "sentinels", sentinel_ids, may_have_roles=bool(own))
    if not is_text:
        _check_ids(vocabulary, f"mode {mode!r}", mode_ids)
    elif {*padding, vocabulary.eos_id} & set(mode_ids):
        raise ValueError(f"mode {mode!r} must be a text without padding and EOS, got {given!r}. Choose another.")
    both = sorted(set(sentinel_ids) & set(mode_ids))
    if both:
        raise ValueError(
            f"sentinels and modes must have different ids, got {both} for sentinels and also for the mode {mode!r}. Leave them out"
            " of one of the two. See docs/help/troubleshooting.md#a-sentinel-is-rejected."
        )
    return SpecialTokens(sentinel_ids, mode_ids, vocabulary.eos_id, frozenset({*padding, *reserved, *sentinel_ids}))


class TextIds:
    """The ids of text alone: those of a vocabulary of a size, without the `reserved` ones, see `SpecialTokens`.

    `table`, [ids + 1] bool, has True for each. Its last element stands for what is beyond the vocabulary, or a model's `rows`.
    """

    def __init__(self, size: int, reserved: Iterable[int], rows: int | None = None):
        self._limits = f"{size} ids of the vocabulary" + ("" if rows is None else f" or embedding_rows, {rows}")
        self.table = np.arange(size + 1) < (size if rows is None else min(rows, size))
        self.table[[*reserved]] = False

    def are_in(self, ids: np.ndarray) -> np.ndarray:
        """[..] bool of [..] integers."""
        beyond = len(self.table) - 1
        return self.table[np.where((ids >= 0) & (ids < beyond), ids, beyond)]

    def check(self, ids: np.ndarray, what: str, remedy: str) -> None:
        """Raises a ValueError where other ids are among the ids of `what`."""
        if (wrong := np.unique(ids[~self.are_in(ids)])).size:
            some = f"{wrong[:8].tolist()}" + (f" and {len(wrong) - 8:,} more" if len(wrong) > 8 else "")
            raise ValueError(
                f"{what} must have ids of text alone, got {some}: padding, a sentinel, a mode, or beyond the"
                f" {self._limits}. {remedy}"
            )


def vocabulary_identity(vocabulary: Vocabulary) -> str:
    """What a vocabulary's ids mean, in words that are equal for equal contents: class, sizes, EOS, and the SHA-256 of its file.

    Caches and exports store these words, so they hold no path and no module's name, and must not change.
    """
    identity = vocabulary.identity
    return f"{vocabulary.name}, {vocabulary.vocab_size} ids, {vocabulary.extra_ids} of them extra, eos {vocabulary.eos_id}" + (
        f", {identity}" if identity else ""
    )


def plain_modes(modes: Mapping[str, Mode] | None) -> dict[str, Token | tuple[Token, ...]] | None:
    """Modes with Python's own integers, as JSON needs them. What is no id, no text and no list of such raises a ValueError."""
    return None if modes is None else {name: _plain_mode(name, mode) for name, mode in modes.items()}


def check_round_trip(vocabulary: Any) -> list[str]:
    """Returns a phrase for each loss when probing texts are encoded and decoded, with what comes back instead; [] for no loss."""
    vocabulary = as_vocabulary(vocabulary)

    def back(text: str) -> str:
        return vocabulary.decode(vocabulary.encode(text))

    lost = [f"{what}: {text!r} comes back as {back(text)!r}" for what, text in _PROBES.items() if back(text) != text]
    unknown = "".join(character for character in _CHARACTERS if character not in back(character))
    return [*lost, f"characters: {unknown!r} do not come back"] if unknown else lost


def plain_sentinels(sentinels: Sentinels | int | None) -> tuple[Token, ...] | str | None:
    """Sentinels with Python's own integers, as JSON needs them. What is no name, and no list of tokens, raises a ValueError."""
    if sentinels is None or isinstance(sentinels, str):
        return sentinels
    try:
        if not isinstance(sentinels, Iterable) or isinstance(sentinels, Mapping):
            raise TypeError
        return _plain_tokens(list(sentinels))
    except TypeError as error:
        expected = "a list of ids or tokens, how many there are to be, or the pieces' name such as '<unused{}>'"
        raise ValueError(f"sentinels must be {expected}, got {sentinels!r}.") from error


def pads_with_0(vocabulary: Vocabulary) -> bool:
    """Whether a tokenizer's id 0 is its padding, with which a decoder may begin, as T5's does."""
    return vocabulary.pad_id == 0 and not vocabulary.uses_0


def _plain_tokens(value: Token | Sequence[Token]) -> tuple[Token, ...]:
    tokens = np.atleast_1d(np.asarray(value, object)).tolist()
    if not all(isinstance(token, str) or is_integer(token, at_least=-math.inf) for token in tokens):
        raise TypeError
    return tuple(str(token) if isinstance(token, str) else int(token) for token in tokens)


def _plain_mode(name: str, mode: Mode) -> Token | tuple[Token, ...]:
    try:
        tokens = _plain_tokens(mode)
    except TypeError as error:
        expected = "an id, a special token, a list of these, or a text to tokenize"
        raise ValueError(f"mode {name!r} must be {expected}, got {mode!r}.") from error
    return tokens[0] if np.ndim(mode) == 0 else tokens


def _ids_of(vocabulary: Vocabulary, what: str, tokens: Iterable[Token]) -> tuple[int, ...]:
    return tuple(_id_of_token(vocabulary, what, token) if isinstance(token, str) else token for token in tokens)


def _id_of_token(vocabulary: Vocabulary, what: str, token: str) -> int:
    id = vocabulary.piece_id(token) if token else None
    if id is None:
        raise ValueError(
            f"{what} must be tokens of {vocabulary}, got {token!r}. Choose one that it has, or add it to the tokenizer first; or"
            " pass ids."
        )
    return id


def _mode_by_id(vocabulary: Vocabulary, name: str, mode: Token | tuple[Token, ...]) -> int | tuple[int, ...] | str:
    """A mode as an id or ids, or as a text, which is what is no special token's name."""
    if isinstance(mode, str):
        id = vocabulary.piece_id(mode) if mode else None
        return mode if id is None or vocabulary.is_ordinary(id) else id
    ids = _ids_of(vocabulary, f"mode {name!r}", [mode] if isinstance(mode, int) else mode)
    return ids[0] if isinstance(mode, int) else ids


def _mode_ids(vocabulary: Vocabulary, mode: str, given: int | tuple[int, ...] | str | None) -> tuple[int, ...]:
    if isinstance(given, str):
        ids = tuple(vocabulary.encode(given))
    elif given is not None:
        ids = given if isinstance(given, tuple) else (given,)
    else:
        id = vocabulary.piece_id(mode)
        if id is None:
            pieces = tuple(vocabulary.encode(mode))
            raise ValueError(
                f"mode {mode!r} must be a piece of {vocabulary}, got a text of {len(pieces)} tokens: {pieces}. Pass"
                f" modes={{{mode!r}: id}}, or modes={{{mode!r}: {mode!r}}} to use the text's tokens, or a denoiser with"
                " mode=None. See docs/help/troubleshooting.md#a-mode-token-is-missing."
            )
        ids = (id,)
    if not ids:
        raise ValueError(f"mode {mode!r} must be an id, a token or a text, got {given!r}, which makes no token.")
    return ids


def _sentinel_ids(vocabulary: Vocabulary, sentinels: tuple[int, ...] | str | None, reserved: set[int]) -> tuple[int, ...]:
    if sentinels is not None and not isinstance(sentinels, str):
        return sentinels
    template = sentinels or "<extra_id_{}>"
    if template.format(0) == template:
        raise ValueError(
            "sentinels must be a list of ids or tokens, or the pieces' name with {} for the number, such as '<unused{}>',"
            f" got {sentinels!r}."
        )
    ids: list[int] = []
    while (id := vocabulary.piece_id(template.format(len(ids)))) is not None:
        ids.append(id)
    if sentinels is not None and not ids:
        raise ValueError(
            f"sentinels must be pieces of {vocabulary}, which has no {template.format(0)!r}, got {sentinels!r}. Pass ids, or"
            " another name."
        )
    if not ids:
        last = vocabulary.vocab_size - 1
        nameless = range(last, last - vocabulary.extra_ids, -1)
        ids = [id for id in nameless if vocabulary.id_to_piece(id) == f"<{id}>"]
    return tuple(ids) if sentinels else tuple(id for id in ids if id not in reserved)


def _check_ids(vocabulary: Vocabulary, what: str, ids: Sequence[int], may_have_roles: bool = False) -> None:
    """Refuses ids that text needs, or that the files beside a tokenizer give a meaning."""
    meanings = {vocabulary.eos_id: "EOS", vocabulary.unk_id: "unknown"} | ({} if vocabulary.uses_0 else {0: "padding"})
    if twice := sorted({id for id in ids if list(ids).count(id) > 1}) if len(set(ids)) < len(ids) else []:
        raise ValueError(f"{what} must have each id once, got {twice} more than once.")
    for id in ids:
        if not 0 <= id < vocabulary.vocab_size:
            raise ValueError(f"{what} must be ids of the vocabulary, 0 <= id < {vocabulary.vocab_size}, got {id}.")
        if id in meanings:
            raise ValueError(
                f"{what} must be ids that nothing else needs, got {id}, which is {meanings[id]} in {vocabulary}. Choose another id."
            )
        name = vocabulary.id_to_piece(id)
        if vocabulary.is_ordinary(id):
            raise ValueError(
                f"{what} must be ids of tokens that text does not contain, got {id}, the ordinary token {name!r}. Choose"
                " control, user-defined or unused pieces. See docs/help/troubleshooting.md#a-sentinel-is-rejected."
            )
        if (purpose := vocabulary.tokens.roles.get(name)) and not may_have_roles:
            raise ValueError(
                f"{what} must be ids of tokens that nothing else needs, got {id}, the token {name!r}, which is {purpose}."
                " Choose unused or reserved tokens, or add tokens for this. See"
                " docs/help/troubleshooting.md#a-sentinel-is-rejected."
            )
