"""Ids as text that people can read: each token gives its bytes, and those that make whole characters are text."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence

from ul2_tasks.example_features import TOKEN_FEATURES
from ul2_tasks.tokenizers.base import Vocabulary
from ul2_tasks.tokenizers.special_ids import SpecialTokens
from ul2_tasks.tokenizers.text_bytes import text_bytes

_BORDER = -1  # is put among the ids where a document begins
_WORD_BOUNDARY = "\N{LOWER ONE EIGHTH BLOCK}"


@dataclasses.dataclass(frozen=True)
class Stretch:
    """A part of a feature of an example, such as its inputs.

    Attributes:
        text: for "text" the text itself, with spaces at its ends; for "bytes" such as "<0xE6><0x97>", or the names of the tokens;
            for special tokens their names; for "image" such as "[image 1024x768]"; for "message" its kind, such as
            "assistant/final".
        kind: one of
            "text": whole characters.
            "bytes": a part of a character, or tokens that are no text at all.
            "sentinel", "mode", "eos": special tokens.
            "border": a place where another document begins; it has no text and no token.
            "image": what stands for an image.
            "message": a place where a message of a conversation begins; it has no token.
            "header", "stop": the tokens before the content of a message, and the one that ends it.
        group: the number of the noise span, or of the span whose sentinel this is; of a conversation the loss group. None for kept
            text, for what is not trained on, and for mode, EOS and borders.
        tokens: how many there are. A token that has a whole character and a part of another one counts where it begins.
    """

    text: str
    kind: str
    group: int | None
    tokens: int


def stretches(
    vocabulary: Vocabulary, ids: Iterable[int], special: SpecialTokens, feature: str, borders: Collection[int] = ()
) -> list[Stretch]:
    """The inputs or the targets of an example, as stretches that people can read.

    Without the special tokens, the texts of all stretches together are the text of all ids, byte for byte.

    Args:
        vocabulary: of the ids.
        ids: [tokens] of an integer type.
        special: the special ids of the example's denoiser.
        feature: "inputs", whose text is kept text; or "targets", whose text is the noise span of the sentinel before it, or
            span 0 if the denoiser has no sentinels.
        borders: the positions in `ids` at which another document begins.

    Raises:
        ValueError: `feature` is neither of these.
    """
    if feature not in TOKEN_FEATURES:
        raise ValueError(f"feature must be 'inputs' or 'targets', got {feature!r}.")
    rest = [part for position, id in enumerate(ids) for part in ([_BORDER] * (position in borders) + [int(id)])]
    found = []
    if feature == "inputs" and special.mode and tuple(rest[: len(special.mode)]) == special.mode:
        found.append(Stretch(_mode_name(vocabulary, special), "mode", None, len(special.mode)))
        rest = rest[len(special.mode) :]
    number = {id: span for span, id in enumerate(special.sentinels)}
    of_ids = text_bytes(vocabulary, {*rest} - {*number, special.eos, _BORDER})

    span = None if feature == "inputs" else 0
    for is_text, run in itertools.groupby(rest, key=of_ids.__contains__):
        if is_text:
            found += _text(vocabulary, list(run), of_ids, span)
            continue
        for id in run:
            if id == _BORDER:
                found.append(Stretch("", "border", None, 0))
                continue
            name = _name(vocabulary, id)
            if id in number:
                found.append(Stretch(name, "sentinel", number[id], 1))
                span = None if feature == "inputs" else number[id]
            else:
                found.append(Stretch(name, "eos", None, 1))
    return found


def _text(vocabulary: Vocabulary, ids: Sequence[int], text_bytes: dict[int, bytes], span: int | None) -> Iterator[Stretch]:
    for has_bytes, run in itertools.groupby(ids, key=lambda id: bool(text_bytes[id])):
        if has_bytes:
            yield from _characters([text_bytes[id] for id in run], span)
        else:
            yield from (Stretch(_name(vocabulary, id), "bytes", span, 1) for id in run)


def _characters(tokens: Sequence[bytes], span: int | None) -> Iterator[Stretch]:
    """Stretches of whole characters ("text") and of other bytes ("bytes"), in turn."""
    starts = list(itertools.accumulate(map(len, tokens), initial=0))[:-1]
    # Bytes that make no character are decoded to lone surrogates, which no UTF-8 text has.
    decoded = b"".join(tokens).decode(errors="surrogateescape")
    end = 0
    for is_broken, part in itertools.groupby(decoded, key=lambda character: "\udc80" <= character <= "\udcff"):
        text = "".join(part)
        data = text.encode(errors="surrogateescape")
        begin, end = end, end + len(data)
        count = sum(begin <= start < end for start in starts)
        if is_broken:
            yield Stretch("".join(f"<0x{byte:02X}>" for byte in data), "bytes", span, count)
        else:
            yield Stretch(text, "text", span, count)


def _mode_name(vocabulary: Vocabulary, special: SpecialTokens) -> str:
    if special.reserved.issuperset(special.mode):
        return "".join(_name(vocabulary, id) for id in special.mode)
    return vocabulary.decode(special.mode).strip()  # a mode that is a text


def _name(vocabulary: Vocabulary, id: int) -> str:
    name = vocabulary.id_to_piece(id)
    return name.removeprefix(_WORD_BOUNDARY) or name  # the names of SeqIO's own extra ids begin with one
