"""The names of pieces, and of sentinels and modes among them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

DEFAULT_SENTINELS = 256
PRESET_MODES = ("[R]", "[S]", "[X]")


def special_names(sentinels: int, modes: Sequence[str]) -> tuple[str, ...]:
    """The names of the sentinels and modes that a vocabulary is to have.

    Raises a ValueError if `modes` is a bare string, or a mode is empty, given twice or named as a sentinel.

    >>> special_names(2, ["[R]", "[S]"])
    ('<extra_id_0>', '<extra_id_1>', '[R]', '[S]')
    """
    if isinstance(modes, str) or not all(isinstance(mode, str) and mode for mode in modes):
        raise ValueError(f"modes must be names such as ('[R]', '[S]', '[X]'), got {modes!r}.")
    if sentinels < 0:
        raise ValueError(f"sentinels must be how many the vocabulary is to have, 0 or more, got {sentinels}.")
    names = (*(f"<extra_id_{number}>" for number in range(sentinels)), *modes)
    if len(set(names)) < len(names):
        raise ValueError(f"modes must be names that differ from each other and from <extra_id_0> .., got {modes!r}.")
    return names


def free_name(name: str, taken: Iterable[str]) -> str:
    """The name, in as many <> as it takes to differ from those that are taken.

    >>> free_name("[R]", ["a", "[R]"])
    '<[R]>'
    """
    while name in taken:
        name = f"<{name}>"
    return name


def is_unused(name: str) -> bool:
    """Whether a name says that the token is there for what users need: BERT's have no other sign of it.

    >>> is_unused("[unused17]"), is_unused("<unused0>"), is_unused("unused")
    (True, True, False)
    """
    return bool(re.fullmatch(r"\[unused_?\d+\]|<unused_?\d+>", name))


def is_word(name: str) -> bool:
    """Whether an added token is there for text: a word or, in some tokenizers, a run of spaces.

    >>> is_word("New York"), is_word("\\n\\n"), is_word("▁▁"), is_word("<think>")
    (True, True, True, False)
    """
    return all(letter.isalnum() or letter.isspace() or letter == "▁" for letter in name)
