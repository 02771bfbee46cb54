"""The weights of tokens in the loss: those of repeated n-grams are 0, and each goes where a denoiser writes its token."""

from __future__ import annotations

import dataclasses

import numpy as np

from ul2_tasks.compiled import compiled
from ul2_tasks.scalars import as_python, is_integer


@dataclasses.dataclass(frozen=True)
class RepeatedNgrams:
    """Tokens of a chunk that repeat themselves get the weight 0 in the loss: n-grams that follow each other at once, many times.

    With the defaults they are those for which OLMo 2 (arXiv 2501.00656, section 3.2) leaves a whole sequence out of the loss.

    Attributes:
        n: the longest n-gram, in tokens, at least 1. Each from 1 token on is looked for.
        times: how often one must be there in a row, at least 2.
    """

    n: int = 13
    times: int = 32

    def __post_init__(self):
        for field, at_least in (("n", 1), ("times", 2)):
            if not is_integer(value := getattr(self, field), at_least=at_least):
                raise ValueError(f"{field} must be an integer of at least {at_least}, got {value!r}.")
            object.__setattr__(self, field, as_python(value))


@compiled
def mask_repeats(tokens, starts, lengths, n, times, weights):
    """Sets the weights of repeated n-grams to 0 in chunks of so many tokens from a start on, [chunks] int64 both."""
    for chunk in range(len(starts)):
        first, stop = starts[chunk], starts[chunk] + lengths[chunk]
        for period in range(1, min(n, lengths[chunk] // times) + 1):
            least = period * (times - 1)  # tokens in a row that are as those a period before, so that one of so many is looked at
            place = first + period + least - 1
            while place < stop:
                start = end = place
                while start >= first + period and tokens[start] == tokens[start - period]:
                    start -= 1
                while start < place and end < stop and tokens[end] == tokens[end - period]:
                    end += 1
                if end - start > least:
                    weights[start + 1 - period : end] = 0
                place = end + least


@compiled
def split_numbered(rows, places, sizes, numbered, weights, ids, weighted):
    """Writes ids and weights of examples of numbered ids: the number of a token, from 1, is above its 32 bits; others have 0.

    Example i is in row rows[i], sizes[i] places from places[i] on. Where `weighted` has rows, ids of no token, such as sentinels,
    get the weight of the token after them, those after the last token the weight of that, and those of no tokens 1.
    """
    for example in range(len(rows)):
        row, first, stop = rows[example], places[example], places[example] + sizes[example]
        number = np.int64(0)
        for place in range(stop - 1, first - 1, -1):
            ids[row, place] = np.uint32(numbered[row, place])
            number = number or numbered[row, place] >> 32
        if len(weighted):
            weight = weights[number - 1] if number else np.float32(1)
            for place in range(stop - 1, first - 1, -1):
                number = numbered[row, place] >> 32
                weight = weights[number - 1] if number else weight
                weighted[row, place] = weight
