"""Which chunk sizes waste least: how full rows can be for a mixture, and the `chunk_tokens` that fill them best.

Two things leave padding in packed rows:

* The mixture asks for inputs and targets in one ratio, and the budgets offer another. Then only one side can fill, whatever the
  packer does. Unequal chunks cure that. With one chunk size for all, T5GEMMA2 asks for 46 inputs to 54 targets; a sequential
  denoiser with about 0.7 of the tokens of the others evens that out.
* Examples cannot be divided. If each takes 51 % of a row, a row holds one. Smaller chunks cure that.

UL2 is meant to teach long contexts. So the advice is not the smallest chunks but the longest that fill about as well.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from ul2_tasks.denoisers.denoisers import Denoiser, check_denoisers
from ul2_tasks.denoisers.lengths import Chunk, chunk_length
from ul2_tasks.example_features import TOKEN_FEATURES
from ul2_tasks.order.pack import count_rows

POOL = 1024  # so many examples are packed together to measure a fill
POOLS = 2  # so many times
FRACTIONS = (0.71, 0.6, 0.49, 0.41, 0.33, 0.28, 0.24, 0.16)  # of full chunks that are tried
SPREAD = 2.2  # the largest ratio of two denoisers' fractions, so that no denoiser loses its share of the tokens
FINALISTS = 6  # so many of the fullest combinations of fractions, and of the longest, are refined
TOLERANCE = 0.03  # the share of the rows' tokens that the advice gives up for longer chunks

ChunkTokens = int | Mapping[str, int] | None
Sizes: TypeAlias = tuple[int, ...]  # of the chunks of each denoiser


def expected_fill(
    denoisers: Sequence[Denoiser], sequence_length: Mapping[str, int], chunk_tokens: ChunkTokens = None
) -> dict[str, float]:
    """The share of each feature's budget that packed rows would fill if examples could be divided at will: 1 on the fuller side.

    `sequence_length` has the budgets in tokens. `chunk_tokens` is the longest chunk: one number for all denoisers, or numbers by
    their names, where a denoiser that is not named has no bound.

    >>> from ul2_tasks.denoisers.denoisers import SpanDenoiser
    >>> expected_fill([SpanDenoiser(name="toy", mean_span_length=2, noise_density=0.3)], {"inputs": 16, "targets": 16}, 10)
    {'inputs': 1.0, 'targets': 0.6}
    """
    denoisers = check_denoisers(denoisers)
    ranges = [(chunk, *each.noise_range(chunk.length)) for each, chunk in _chunks(denoisers, sequence_length, chunk_tokens)]
    means = [(chunk.inputs - (chunk.noise - fewest), chunk.targets - (most - chunk.noise)) for chunk, fewest, most in ranges]
    demand = _weights(denoisers) @ np.array(means) / _budgets(sequence_length)
    return dict(zip(TOKEN_FEATURES, (demand / demand.max()).tolist()))


def best_chunk_tokens(denoisers: Sequence[Denoiser], sequence_length: Mapping[str, int]) -> dict[str, int]:
    """Returns the `chunk_tokens` with the highest packing efficiency, by the denoiser's name. Takes about a second.

    1. Full-length chunks are tried, and `FRACTIONS` of them in all combinations within `SPREAD`, with one fraction for all
       denoisers whose full-length chunks have the same lengths. Sampled examples are packed with each combination.
    2. The combinations with the highest packing efficiency are refined, and so are the longest of those that do about as well:
       the size of each denoiser is moved by a few percent for as long as that helps, so that three examples that nearly fit a
       packed sequence then do.
    3. Of those whose less full side is within `TOLERANCE` of the best, the one with the longest average chunk is returned.

    A span denoiser keeps at least two spans in a chunk if its full-length chunk has two, because with placement "t5" a lone span
    is always the end of the chunk, see `lone_span`. More spans are not required: if half of the full-length chunk's spans had to
    stay, R2 and X2 could not share a packed sequence at 1024/1024, and the efficiency would be 88 % instead of 97 %.

    A mode counts as one token, and both features as ending with an EOS. Whether the vocabulary has enough sentinels is checked
    when a dataset is made.

    Args:
        denoisers: the denoisers of the mixture, or the name of a preset.
        sequence_length: {"inputs": int, "targets": int}, the lengths in tokens.

    Raises:
        ValueError: see `lengths.chunk_length`.
    """
    denoisers = check_denoisers(denoisers)
    names, weights, drawn = [denoiser.name for denoiser in denoisers], _weights(denoisers), _draw(denoisers)
    full = [chunk for _, chunk in _chunks(denoisers, sequence_length, None)]
    ends = [(_shortest(denoiser, chunk), chunk.length) for denoiser, chunk in zip(denoisers, full)]

    @functools.cache  # neighbours are asked for again and again
    def fill(sizes: Sizes) -> float:
        return _measure(denoisers, sequence_length, dict(zip(names, sizes)), drawn)

    def average_chunk(found: tuple[float, Sizes]) -> float:
        return float(weights @ found[1])

    def bound(sizes: Sizes) -> float:
        return min(expected_fill(denoisers, sequence_length, dict(zip(names, sizes))).values())

    found, best = list[tuple[float, Sizes]](), 0.0
    candidates = [(bound(sizes), sizes) for sizes in _candidates(full, ends, sequence_length)]
    for most, sizes in sorted(candidates, key=lambda pair: -pair[0]):
        if most >= best - TOLERANCE:  # else it cannot be among the good ones
            found.append((fill(sizes), sizes))
            best = max(best, found[-1][0])
    fullest = sorted(found, key=lambda pair: -pair[0])[:FINALISTS]
    good = [pair for pair in found if pair[0] >= best - TOLERANCE]
    longest = sorted(good, key=lambda pair: -average_chunk(pair))[:FINALISTS]
    refined = [_refine(*pair, ends, fill) for pair in (*fullest, *longest)]
    best = max(fill for fill, _ in refined)
    _, sizes = max((pair for pair in refined if pair[0] >= best - TOLERANCE), key=average_chunk)
    return dict(zip(names, sizes))


def lone_span(denoiser: Denoiser, chunk: Chunk, sequence_length: Mapping[str, int]) -> tuple[str, str] | None:
    r"""Explains what it means that a full chunk of a span denoiser has one span, and what to do. None if it has more.

    Under placement "t5" the last token is always noise. So a lone span is the end of the chunk, in all examples. Under
    "uniform" it can be anywhere, and there is nothing to explain. `sequence_length` has the budgets in tokens.

    >>> from ul2_tasks.denoisers.denoisers import SpanDenoiser
    >>> rare = SpanDenoiser(name="rare", mean_span_length=32, noise_density=0.15)
    >>> lengths = {"inputs": 128, "targets": 128}
    >>> found, remedy = lone_span(rare, chunk_length(rare, lengths), lengths)
    >>> print(found.replace(": ", "\n"))
    a full chunk of 148 tokens has one noise span, which placement 't5' puts at its end
    always the last 22 tokens, prefix LM by another name
    >>> remedy
    "use longer lengths (two spans need 272,51), or placement='uniform'"
    """
    if denoiser.single_span or chunk.spans > 1 or denoiser.placement != "t5":
        return None
    length = _fewest_tokens(denoiser, spans=2)
    noise, spans = denoiser.noise_counts(length)
    inputs = chunk.inputs + (length - noise + spans) - (chunk.length - chunk.noise + chunk.spans)
    targets = chunk.targets + (noise + spans) - (chunk.noise + chunk.spans)
    fits = inputs <= sequence_length["inputs"] and targets <= sequence_length["targets"]
    remedy = f"chunk_tokens of at least {length}" if fits else f"use longer lengths (two spans need {inputs},{targets})"
    return (
        f"a full chunk of {chunk.length} tokens has one noise span, which placement 't5' puts at its end: always the last"
        f" {chunk.noise} tokens, prefix LM by another name",
        f"{remedy}, or placement='uniform'",
    )


def best_lengths(denoisers: Sequence[Denoiser], sequence_length: Mapping[str, int]) -> dict[str, int]:
    """The lengths, of the same sum, whose packed rows can be the fullest with full chunks.

    These are the lengths whose less full side has the highest bound (`expected_fill`), or `sequence_length`, in tokens, if none has
    a higher one. The inputs are a multiple of a sixty-fourth of the sum, and of 8, which accelerators like, if the sum is one. A
    span denoiser that has several spans keeps at least two.
    """
    denoisers, best = check_denoisers(denoisers), dict(sequence_length)
    fullest = min(expected_fill(denoisers, best).values())
    total = sum(_budgets(best).tolist())
    fewest = [_shortest(denoiser, chunk) for denoiser, chunk in _chunks(denoisers, best, None)]
    multiple = 8 if total % 8 == 0 and total >= 512 else 1
    sizes = sorted({round(total * sixty_fourths / 64 / multiple) * multiple for sixty_fourths in range(4, 61)})
    for inputs in sizes:
        lengths = {"inputs": inputs, "targets": total - inputs}
        try:
            fill = min(expected_fill(denoisers, lengths).values())
        except ValueError:  # too short for one of them
            continue
        if any(chunk.length < least for (_, chunk), least in zip(_chunks(denoisers, lengths, None), fewest)):
            continue
        if fill > fullest + 1e-9:
            best, fullest = lengths, fill
    return best


def _candidates(full: Sequence[Chunk], ends: Sequence[tuple[int, int]], sequence_length: Mapping[str, int]) -> list[Sizes]:
    """Full chunks, and fractions of them: one for all denoisers that fill the same budgets, each to nine tenths at least."""
    shapes = [tuple(getattr(chunk, feature) > 0.9 * sequence_length[feature] for feature in TOKEN_FEATURES) for chunk in full]
    different = sorted(set(shapes))
    found = [tuple(chunk.length for chunk in full)]
    for fractions in itertools.product(FRACTIONS, repeat=len(different)):
        if max(fractions) <= SPREAD * min(fractions):
            of_each = [fractions[different.index(shape)] for shape in shapes]
            found.append(tuple(_within(*each, chunk.length * of) for each, chunk, of in zip(ends, full, of_each)))
    return found


def _refine(best: float, sizes: Sizes, ends: Sequence[tuple[int, int]], fill: Callable[[Sizes], float]) -> tuple[float, Sizes]:
    for step in (0.06, 0.03, 0.01, 0.01):
        for number, own in enumerate(ends):
            for factor in (1 + step, 1 - step):
                moved = (*sizes[:number], _within(*own, sizes[number] * factor), *sizes[number + 1 :])
                if fill(moved) > best:
                    best, sizes = fill(moved), moved
    return best, sizes


def _within(fewest: int, most: int, size: float) -> int:
    return min(most, max(fewest, round(size)))


def _shortest(denoiser: Denoiser, full: Chunk) -> int:
    """The shortest chunk that is advised."""
    return _fewest_tokens(denoiser, min(2, full.spans))


def _fewest_tokens(denoiser: Denoiser, spans: int) -> int:
    """The length of the shortest chunk with so many noise spans."""
    return next(length for length in itertools.count(2) if denoiser.noise_counts(length)[1] >= spans)


def _draw(denoisers: Sequence[Denoiser]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Draws pools of examples before their lengths are known.

    Returns for each pool the denoisers, [POOL] int, and the places in their noise ranges, [POOL] float64 in [0, 1).
    """
    random = np.random.RandomState(0)
    return [(random.choice(len(denoisers), POOL, p=_weights(denoisers)), random.uniform(size=POOL)) for _ in range(POOLS)]


def _measure(
    denoisers: Sequence[Denoiser],
    sequence_length: Mapping[str, int],
    chunk_tokens: ChunkTokens,
    drawn: Sequence[tuple[np.ndarray, np.ndarray]],
) -> float:
    """Packs the drawn examples. Returns the share of all rows that holds tokens, of the less full feature."""
    ranges = [(chunk, *denoiser.noise_range(chunk.length)) for denoiser, chunk in _chunks(denoisers, sequence_length, chunk_tokens)]
    budgets = _budgets(sequence_length)
    longest = np.array([(chunk.inputs, chunk.targets) for chunk, _, _ in ranges])
    fewest, most = np.array([(fewest, most) for _, fewest, most in ranges]).T
    tokens, rows = np.zeros(len(TOKEN_FEATURES)), 0
    for which, uniform in drawn:
        noise = (fewest[which] + uniform * (most - fewest + 1)[which]).astype(int)
        lengths = longest[which] - np.stack([noise - fewest[which], most[which] - noise], axis=1)
        rows += count_rows(lengths, tuple(budgets.tolist()))
        tokens += lengths.sum(axis=0)
    return float((tokens / (rows * budgets)).min())


def _chunks(
    denoisers: Sequence[Denoiser], sequence_length: Mapping[str, int], chunk_tokens: ChunkTokens
) -> list[tuple[Denoiser, Chunk]]:
    caps = chunk_tokens if isinstance(chunk_tokens, Mapping) else {denoiser.name: chunk_tokens for denoiser in denoisers}
    return [(d, chunk_length(d, sequence_length, chunk_tokens=caps.get(d.name))) for d in denoisers]


def _weights(denoisers: Sequence[Denoiser]) -> np.ndarray:
    weights = np.array([denoiser.weight for denoiser in denoisers], np.float64)
    return weights / weights.sum()


def _budgets(sequence_length: Mapping[str, int]) -> np.ndarray:
    return np.array([sequence_length[feature] for feature in TOKEN_FEATURES])
