"""Fill in the middle, for decoder-only models (Bavarian and others, 2022, arXiv 2207.14255): documents in another order.

A document is cut at two places, drawn uniformly and independently, and its middle comes last. With borders="characters" a place is
any character, and where that is within a token two others spell its halves. Models know two orders:

    document   A B C D E F G H   cut before D and before F
    PSM        <PRE> A B C <SUF> F G H <MID> D E </s>
    SPM        <PRE> <SUF> F G H <MID> A B C D E </s>      the paper's second variant, which released models have
    as it is   A B C D E F G H </s>

The sequence has a loss on all, or on the middle alone: what is before that is the inputs, and the rest the targets, which a
converter with `decoder_only=True` joins. The first id of a sequence has nothing before it, and so is always of the inputs.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ul2_tasks.compiled import compiled, part_of_compiled
from ul2_tasks.denoisers.denoisers import Denoiser
from ul2_tasks.denoisers.reconstruction import Reconstruction
from ul2_tasks.denoisers.write import _nearest_border, copied, draw_below, mixed
from ul2_tasks.scalars import is_finite, is_integer
from ul2_tasks.tokenizers.borders import BORDERS, CHARACTERS, halves_in
from ul2_tasks.tokenizers.special_ids import SpecialTokens, Token

# What stands before the prefix, the suffix and the middle, and for some models after the middle, in place of EOS.
FIM_TOKENS: Mapping[str, tuple[str, ...]] = {
    "qwen": ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    "starcoder": ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    "deepseek": ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
    "codellama": ("▁<PRE>", "▁<SUF>", "▁<MID>", "▁<EOT>"),
}
_LOSSES = ("all", "middle")
_ALWAYS = 1 << 32  # of a rate of 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class FIMDenoiser(Denoiser):
    """Fill in the middle, for decoder-only models, in a model's own special tokens; see `denoisers.infilling` for the orders.

    Read documents apart (`merge_examples=False`), so that no middle goes across documents, and pack the examples into rows.

    Attributes:
        name, mode, weight: as for `Denoiser`.
        tokens: the model's tokens, by their names or ids, before prefix, suffix and middle, and where a fourth is given after the
            middle, in place of EOS; or a model of `FIM_TOKENS`: "qwen", "starcoder", "deepseek", "codellama".
        rate: the fraction of examples whose middle is filled in; the others are as they are, with a loss on all.
        spm_rate: the fraction of these whose suffix comes first (SPM).
        loss: "all", as models are pre-trained; or the "middle" alone, with what ends it.
        keep_first: how many tokens at the beginning stay there, before <PRE>, such as a file's name; shorter examples are as
            they are.
        borders: None, to cut between any two tokens; "words", "lines" or "sentences", where these begin; or "characters", also
            within a token, at the nearest character where both halves are tokens. The cut that SPM does not mark is between tokens,
            and a document where two tokens at a cut could be taken for halves stays as it is. With a loss on the "middle",
            packed rows then leave room for all tokens in both inputs and targets.
    """

    name: str = "fim"
    mode: str | None = None
    weight: float = 1
    tokens: tuple[Token, ...] | str = "qwen"
    rate: float = 0.5
    spm_rate: float = 0.5
    loss: str = "all"
    keep_first: int = 0
    borders: str | None = None
    single_span = True
    sentinel = False
    lengths_follow_noise = False

    def __post_init__(self):
        super().__post_init__()
        for field in ("rate", "spm_rate"):
            value = getattr(self, field)
            self._check(field, "a number from 0 to 1", is_finite(value) and 0 <= value <= 1)
        self._check("loss", f"one of {_LOSSES}", self.loss in _LOSSES)
        self._check("keep_first", "an integer of at least 0", is_integer(self.keep_first, at_least=0))
        self._check("borders", f"None or one of {(*BORDERS, CHARACTERS)}", self.borders in (None, *BORDERS, CHARACTERS))
        known = self.tokens in FIM_TOKENS if isinstance(self.tokens, str) else len(self.tokens) in (3, 4)
        self._check("tokens", f"one of {[*FIM_TOKENS]}, or 3 or 4 tokens", known)

    @property
    def own_tokens(self) -> tuple[Token, ...]:
        return FIM_TOKENS[self.tokens] if isinstance(self.tokens, str) else tuple(self.tokens)

    def noise_counts(self, length: int) -> tuple[int, int]:
        """Returns (n, 1), what has a loss: all tokens, or as many as the middle has on average."""
        middle = length / 3 if self.loss == "middle" else length
        return max(1, round(self.rate * middle + (1 - self.rate) * length)), 1

    def noise_range(self, length: int) -> tuple[int, int]:
        return (0 if self.loss == "middle" else length), length

    def example_lengths(self, length: int, mode_tokens: int, add_eos: tuple[bool, bool] = (True, True)) -> tuple[int, int]:
        halves = 2 * (self.borders == CHARACTERS)
        if self.loss == "middle":
            return mode_tokens + length + 3 + halves, length + halves + add_eos[1]
        return mode_tokens + 1, length + 2 + halves + add_eos[1]

    def own_recipe(self, special: SpecialTokens, add_eos: tuple[bool, bool]) -> Filling:
        mode, marks, end = special.mode, special.sentinels[:3], special.ending if add_eos[1] else []
        ids = [np.array(each, np.int32) for each in (mode, marks, special.sentinels[3:] if end else (), end)]
        rate, spm_rate = (round(rate * _ALWAYS) for rate in (self.rate, self.spm_rate))
        borders, tables = special.borders, (np.zeros(0, np.int32), np.zeros([0, 2], np.int32), np.zeros(0, np.int64))
        if self.borders == CHARACTERS:
            borders, tables = b"", (*halves_in(borders), _pairs(borders)[0])
        of_cuts: list[Any] = [*ids, np.array(bytearray(borders), np.uint8), *tables]
        return Filling(rate, spm_rate, self.keep_first, self.loss == "all", *of_cuts)

    def own_inverse(self, example: Mapping[str, ArrayLike], special: SpecialTokens) -> Reconstruction:
        """Raises a ValueError where the model's tokens, the mode or what ends a sequence are not where they belong."""
        inputs, targets = (np.asarray(example[key], np.int64) for key in ("inputs", "targets"))
        first, split = len(special.mode), len(inputs) - len(special.mode)
        ids = np.concatenate([inputs[first:], targets])
        marks = np.flatnonzero(np.isin(ids, special.sentinels[:3]))
        end = [*special.sentinels[3:], *special.ending][0 if marks.size else -1 :][: len(special.ending)]
        if tuple(inputs[:first]) != special.mode or ids[len(ids) - len(end) :].tolist() != end:
            raise ValueError(f"inputs must start with {list(special.mode)}, and targets must end with {end}, got another example.")
        ids = ids[: len(ids) - len(end)]
        places = np.arange(len(ids))
        if marks.size:
            if tuple(ids[marks]) != special.sentinels[:3]:
                raise ValueError(f"an example must have {special.sentinels[:3]}, each once and in this order, got {ids[marks]}.")
            prefix, suffix, middle = marks.tolist()
            parts = (0, prefix), (prefix + 1, suffix), (middle + 1, len(ids)), (suffix + 1, middle)
            found = [places[start:stop] for start, stop in parts]
            places = np.concatenate(found)
            if self.borders == CHARACTERS:
                ids, places = _made_whole(ids, found, _pairs(special.borders)[1])
        is_noise = places >= (split if marks.size and self.loss == "middle" else 0)
        at = np.where(places < split, first + places, places - split)
        return Reconstruction(ids[places], is_noise, np.array([is_noise.sum()]), at)


class Filling(NamedTuple):
    """What `write_filled` has to know of a denoiser: its rates in 2^-32, and ids, int32: the mode, three marks, and two endings.

    `middle_end` is what ends the middle in place of `end`, or nothing. `borders` are those of `write.Recipe`; `firsts` and `halves`
    of tokens see `borders.halves_in`; and `pairs` are all halves, [n] int64, ascending, those before above 32 bits. They are empty
    where they are not asked for.
    """

    rate: int
    spm_rate: int
    keep_first: int
    is_all: bool
    mode: np.ndarray
    marks: np.ndarray
    middle_end: np.ndarray
    end: np.ndarray
    borders: np.ndarray
    firsts: np.ndarray
    halves: np.ndarray
    pairs: np.ndarray

    @property
    def loops(self):
        """See `write.Recipe.loops`."""
        return write_filled, filled_sizes

    @property
    def sizes_of_tokens(self):
        """See `write.exact_sizes`."""
        return sizes_of_tokens


@functools.lru_cache(maxsize=16)
def _pairs(table: bytes) -> tuple[np.ndarray, dict[int, int]]:
    """All halves of `borders.halves_in`, see `Filling.pairs`, and the token of each."""
    firsts, halves = halves_in(table)
    ids = np.repeat(np.arange(len(firsts) - 1), np.diff(firsts))
    are_both = (halves >= 0).all(axis=1)
    pairs = (halves[:, 0].astype(np.int64) << 32 | halves[:, 1])[are_both]
    return np.unique(pairs), dict(zip(pairs.tolist(), ids[are_both].tolist()))


def _made_whole(ids: np.ndarray, parts: Sequence[np.ndarray], wholes: Mapping[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Ids in which the halves of tokens are the tokens, at the places of the first, and the places of all; parts are places."""
    kept, *found = parts
    whole, last = ids.copy(), -1
    for number, part in enumerate(found):
        if len(part):
            if last >= 0 and (id := wholes.get(int(ids[last]) << 32 | int(ids[part[0]]))) is not None:
                whole[last], found[number] = id, part[1:]
            last = part[-1]
    return whole, np.concatenate([kept, *found])


@part_of_compiled
def _draw_cuts(filling, length, key):
    """Whether the middle of a text is filled in, and whether after the suffix; and where it begins and ends."""
    own, drawn_from = mixed(~key), length - filling.keep_first + 1
    if drawn_from <= 1 or draw_below(_ALWAYS, own, 1) >= filling.rate:
        return False, False, length, length
    one, other = draw_below(drawn_from, own, 3), draw_below(drawn_from, own, 4)
    is_spm = draw_below(_ALWAYS, own, 2) < filling.spm_rate
    return True, is_spm, filling.keep_first + min(one, other), filling.keep_first + max(one, other)


@part_of_compiled
def _is_pair(filling, before, after):
    pair = np.int64(np.uint32(before)) << 32 | np.int64(np.uint32(after))
    place = np.searchsorted(filling.pairs, pair)
    return place < len(filling.pairs) and filling.pairs[place] == pair


@part_of_compiled
def _at_character(filling, text, character):
    """Before which token of a text a cut at a character is, and the halves of that token, -1 where it stays whole."""
    for token in range(filling.keep_first, len(text)):
        first, stop = filling.firsts[np.uint32(text[token])], filling.firsts[np.uint32(text[token]) + 1]
        if character < stop - first:
            before, after = np.int64(filling.halves[first + character, 0]), np.int64(filling.halves[first + character, 1])
            return (token + (after < 0), -1, -1) if before < 0 or after < 0 else (token, before, after)
        character -= stop - first
    return len(text), -1, -1


@part_of_compiled
def _cuts(filling, text, key):
    """Whether the middle of a text is filled in, and whether after the suffix; where it begins and ends; and halves at these."""
    is_filled, is_spm, start, stop = _draw_cuts(filling, len(text), key)
    nothing = (-1, -1)
    if len(filling.borders) > 0 and is_filled:
        start = _nearest_border(filling.borders, text, start, filling.keep_first, len(text), 0)
        stop = _nearest_border(filling.borders, text, stop, filling.keep_first, len(text), 0)
    if len(filling.firsts) == 0 or not is_filled:
        return is_filled, is_spm, start, stop, nothing, nothing
    characters, own = np.int64(0), mixed(~key)
    for token in text[filling.keep_first :]:
        characters += filling.firsts[np.uint32(token) + 1] - filling.firsts[np.uint32(token)]
    one, other = draw_below(characters + 1, own, 3), draw_below(characters + 1, own, 4)
    start, before, after = _at_character(filling, text, min(one, other))
    stop, last, next_ = _at_character(filling, text, max(one, other))
    if is_spm:
        before, after = nothing
    elif start == stop and before >= 0 and before != last:
        stop, last, next_ = stop + 1, -1, -1
    # What is written before and after each cut. Two tokens that are no halves, and could be taken for some, are not cut apart.
    of_prefix = not is_spm and (start > filling.keep_first or before >= 0)
    is_empty = start == stop and before == last
    prefix_end = before if before >= 0 else np.int64(np.uint32(text[start - 1])) if start else -1
    middle_start = after if after >= 0 else last if start == stop else np.int64(np.uint32(text[start])) if start < len(text) else -1
    end = last if last >= 0 else after if stop == start + 1 and after >= 0 else np.int64(np.uint32(text[stop - 1])) if stop else -1
    follows = next_ if next_ >= 0 else np.int64(np.uint32(text[stop])) if stop < len(text) else -1
    ambiguous = of_prefix and not is_empty and before < 0 and _is_pair(filling, prefix_end, middle_start)
    has_before = last >= 0 or stop > filling.keep_first
    ambiguous |= last < 0 and has_before and follows >= 0 and _is_pair(filling, end, follows)
    return not ambiguous, is_spm, start, stop, (before, after), (last, next_)


@part_of_compiled
def _moves_middle(filling):
    """Whether only the tokens tell where the middle begins, which alone has a loss."""
    return not filling.is_all and (len(filling.borders) > 0 or len(filling.firsts) > 0)


@part_of_compiled
def _sizes(filling, length, key):
    """How many ids of a sequence, without the mode, are inputs, and how many are targets, at most."""
    is_filled, _, start, stop = _draw_cuts(filling, length, key)
    halves = 2 * (len(filling.firsts) > 0)
    whole = length + (len(filling.marks) + halves) * is_filled
    if is_filled and _moves_middle(filling):
        return whole, length + halves + len(filling.end)
    inputs = 1 if filling.is_all or not is_filled else whole - (stop - start)
    return inputs, whole - inputs + len(filling.end)


@compiled
def filled_sizes(filling, pieces, firsts, keys):
    """See `write.example_sizes`; an example is of one piece."""
    sizes = np.zeros((len(keys), 2), np.int64)
    for example in range(len(keys)):
        sizes[example] = _sizes(filling, np.int64(pieces[firsts[example]]), keys[example])
        sizes[example, 0] += len(filling.mode)
    return sizes


@compiled
def sizes_of_tokens(filling, tokens, starts, pieces, firsts, keys):
    """See `write.exact_sizes`; an example is of one piece."""
    sizes = np.zeros((len(keys), 2), np.int64)
    for example in range(len(keys)):
        length, token = np.int64(pieces[firsts[example]]), starts[example]
        sizes[example] = _sizes(filling, length, keys[example])
        if len(filling.firsts) > 0 or _moves_middle(filling):
            is_filled, _, start, stop, first, second = _cuts(filling, tokens[token : token + length], keys[example])
            halves = (first[0] >= 0 and start < stop) + (second[0] >= 0)
            whole = length + (len(filling.marks) + halves) * is_filled
            middle = stop - start + (second[0] >= 0) if start < stop or first[0] != second[0] else 0
            sizes[example, 0] = 1 if filling.is_all or not is_filled else whole - middle
            sizes[example, 1] = whole - sizes[example, 0] + len(filling.end)
        sizes[example, 0] += len(filling.mode)
    return sizes


@compiled
def write_filled(filling, tokens, starts, pieces, firsts, keys, rows, places, inputs, targets):
    """See `write.write_examples`; an example is of one piece."""
    mode, marks, end = filling.mode, filling.marks, filling.end
    sizes, whole = np.zeros((len(keys), 2), np.int64), np.zeros(pieces.max() + 5 if len(keys) else 0, tokens.dtype)
    for example in range(len(keys)):
        length, key, token = np.int64(pieces[firsts[example]]), keys[example], starts[example]
        is_filled, is_spm, start, stop, first, second = _cuts(filling, tokens[token : token + length], key)
        at, prefix = copied(tokens, token, filling.keep_first if is_filled else length, whole, 0), start - filling.keep_first
        middle = 1
        if is_filled:
            at = copied(marks, 0, 1, whole, at)
            if not is_spm:
                at = _before(first, tokens, token, start, copied(tokens, token + filling.keep_first, prefix, whole, at), whole)
            at = copied(marks, 1, 1, whole, at)
            skipped, at = _after(second, tokens, token, stop, at, whole)
            at = copied(tokens, token + stop + skipped, length - stop - skipped, whole, at)
            at = copied(marks, 2, 1, whole, at)
            at = middle = copied(tokens, token + filling.keep_first, prefix, whole, at) if is_spm else at
            if start < stop or first[0] != second[0]:
                skipped, at = _after(first, tokens, token, start, at, whole)
                at = copied(tokens, token + start + skipped, stop - start - skipped, whole, at)
                at = _before(second, tokens, token, stop, at, whole)
        of_inputs = 1 if filling.is_all else middle
        row, (place_of_inputs, target) = rows[example], places[example]
        place = copied(mode, 0, len(mode), inputs[row], place_of_inputs)
        place = copied(whole, 0, of_inputs, inputs[row], place)
        ended = copied(whole, of_inputs, at - of_inputs, targets[row], target)
        own_end = filling.middle_end if is_filled and len(filling.middle_end) else end
        ended = copied(own_end, 0, len(end), targets[row], ended)
        sizes[example, 0], sizes[example, 1] = place - place_of_inputs, ended - target
    return sizes


@part_of_compiled
def _before(halves, tokens, start, token, at, whole):
    """Writes the half of a token before a cut, if any, with what the token has above its 32 bits. Returns the place after."""
    if halves[0] < 0:
        return at
    whole[at] = tokens[start + token] - np.uint32(tokens[start + token]) + halves[0]
    return at + 1


@part_of_compiled
def _after(halves, tokens, start, token, at, whole):
    """The same of the half after it, and how many tokens it stands for."""
    if halves[1] < 0:
        return 0, at
    whole[at] = tokens[start + token] - np.uint32(tokens[start + token]) + halves[1]
    return 1, at + 1
