"""Which chunk sizes waste least: how full rows can be for a mixture, and the `chunk_tokens` that fill them best.

Two things leave padding in packed rows. The mixture asks for inputs and targets in one ratio and the budgets offer
another: then only one side can fill, whatever the packer does. And examples do not divide: of those that take 51 % of a
row each there is one in a row. Smaller chunks cure the second, unequal chunks the first. With one chunk size for all
T5GEMMA2 asks for 46 inputs to 54 targets; a sequential denoiser with about 0.7 of the others' tokens evens that out.

UL2 is meant to teach long contexts, so the advice is not the smallest chunks but the longest that fill about as well.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ul2_tasks.denoisers import Denoiser, SequentialDenoiser, check_denoisers
from ul2_tasks.lengths import Chunk, chunk_length, noise_range
from ul2_tasks.packing import count_rows

FEATURES = ("inputs", "targets")
POOL = 1024  # examples that are packed together to measure a fill
POOLS = 2
TOLERANCE = 0.03  # of the rows' tokens that the advice gives up for longer chunks

ChunkTokens = int | Mapping[str, int] | None


@dataclasses.dataclass(frozen=True)
class ExpectedFill:
    """The part of each feature's budget that holds tokens, {"inputs": .., "targets": ..}.

    `packed` is the bound for packed rows of the mixture, reached if examples could be divided at will: the fuller side is
    1. `unpacked` is an average example of each denoiser, by name, in a row of its own.
    """

    packed: Mapping[str, float]
    unpacked: Mapping[str, Mapping[str, float]]


def expected_fill(
    denoisers: Sequence[Denoiser], sequence_length: Mapping[str, int], chunk_tokens: ChunkTokens = None
) -> ExpectedFill:
    """How full rows can be at best, from lengths and weights alone.

    Args:
        denoisers: the mixture.
        sequence_length: {"inputs": int, "targets": int}.
        chunk_tokens: upper bounds for the chunks, one for all or by the denoiser's name; none where it has none.

    Raises:
        ValueError: see `lengths.chunk_length`.

    >>> from ul2_tasks.denoisers import SpanDenoiser
    >>> expected_fill([SpanDenoiser(name="toy", mean_span_length=2, noise_density=0.3)], {"inputs": 16, "targets": 16}, 10)
    ExpectedFill(packed={'inputs': 1.0, 'targets': 0.6}, unpacked={'toy': {'inputs': 0.625, 'targets': 0.375}})
    """
    denoisers = check_denoisers(denoisers)
    means = np.array([_mean_lengths(denoiser, chunk) for denoiser, chunk in _chunks(denoisers, sequence_length, chunk_tokens)])
    budgets = _budgets(sequence_length)
    demand = _weights(denoisers) @ means / budgets
    return ExpectedFill(
        packed=_by_feature(demand / demand.max()),
        unpacked={denoiser.name: _by_feature(mean / budgets) for denoiser, mean in zip(denoisers, means)},
    )


def packed_fill(
    denoisers: Sequence[Denoiser], sequence_length: Mapping[str, int], chunk_tokens: ChunkTokens = None, seed: int = 0
) -> dict[str, float]:
    """How full rows get: `packing.assign_rows` on examples drawn from the mixture. Arguments and errors as above."""
    denoisers = check_denoisers(denoisers)
    return _by_feature(_measure(denoisers, sequence_length, chunk_tokens, _draw(denoisers, seed)))


def best_chunk_tokens(denoisers: Sequence[Denoiser], sequence_length: Mapping[str, int]) -> dict[str, int]:
    """The chunk_tokens to use with packing, by the denoiser's name.

    Tried are full chunks, and sizes from 0.62 of the longest of these down to 0.09, with sequential denoisers at 0.5 to 1.25
    times the others, each by packing drawn examples. Of those whose less full side comes within `TOLERANCE` of the
    best, the one with the longest average chunk is taken. Then each denoiser's size is moved by a few percent for as long
    as that fills the rows better: where three examples nearly fit a row, they shall. Takes a few seconds to half a minute.

    Modes are counted as one token, and both features as ending with an EOS; whether the vocabulary has sentinels enough is
    seen when a dataset is made.

    Raises:
        ValueError: see `lengths.chunk_length`.
    """
    denoisers = check_denoisers(denoisers)
    full = {denoiser.name: chunk.length for denoiser, chunk in _chunks(denoisers, sequence_length, None)}
    drawn = _draw(denoisers, seed=0)

    def lesser_fill(chunk_tokens: Mapping[str, int]) -> float:
        return _measure(denoisers, sequence_length, chunk_tokens, drawn).min()

    def average_chunk(chunk_tokens: Mapping[str, int]) -> float:
        return _weights(denoisers) @ [chunk.length for _, chunk in _chunks(denoisers, sequence_length, chunk_tokens)]

    fills: list[tuple[float, dict[str, int]]] = []
    best = 0.0
    candidates = [(min(expected_fill(denoisers, sequence_length, c).packed.values()), c) for c in _candidates(denoisers, full)]
    for bound, candidate in sorted(candidates, key=lambda pair: -pair[0]):
        if bound >= best - TOLERANCE:  # else it cannot be among the good ones
            fills.append((lesser_fill(candidate), candidate))
            best = max(best, fills[-1][0])
    good = [candidate for fill, candidate in fills if fill >= best - TOLERANCE]
    return _refine(denoisers, max(good, key=average_chunk), full, lesser_fill)


def best_lengths(denoisers: Sequence[Denoiser], sequence_length: Mapping[str, int]) -> dict[str, int]:
    """The lengths of as many tokens in all whose packed rows can be the fullest with full chunks.

    Args:
        denoisers: the mixture.
        sequence_length: {"inputs": int, "targets": int}; only their sum counts, and they themselves where none are fuller.

    Returns:
        Lengths whose less full side has the highest bound (`expected_fill`), to a sixty-fourth of the sum, and to a multiple
        of 8, which accelerators like, where the sum is one.

    Raises:
        ValueError: see `lengths.chunk_length`.
    """
    denoisers, best = check_denoisers(denoisers), dict(sequence_length)
    fullest = min(expected_fill(denoisers, best).packed.values())
    total = sum(_budgets(best).tolist())
    multiple = 8 if total % 8 == 0 and total >= 512 else 1
    sizes = sorted({round(total * part / 64 / multiple) * multiple for part in range(4, 61)})
    for inputs in sizes:
        lengths = {"inputs": inputs, "targets": total - inputs}
        try:
            fill = min(expected_fill(denoisers, lengths).packed.values())
        except ValueError:  # too short for one of them
            continue
        if fill > fullest + 1e-9:
            best, fullest = lengths, fill
    return best


def _candidates(denoisers: Sequence[Denoiser], full: Mapping[str, int]) -> list[dict[str, int]]:
    """Full chunks; and sizes 4 % apart, sequential denoisers relative to the others, if there are both."""
    sequential = [isinstance(denoiser, SequentialDenoiser) for denoiser in denoisers]
    ratios = np.arange(0.5, 1.26, 0.05) if any(sequential) and not all(sequential) else [1.0]
    sizes = max(full.values()) * np.geomspace(0.62, 0.093, 50)
    return [
        dict(full),
        *(
            {
                denoiser.name: _within(denoiser, size * ratio if is_sequential else size, full)
                for denoiser, is_sequential in zip(denoisers, sequential)
            }
            for size in sizes
            for ratio in ratios
        ),
    ]


def _refine(
    denoisers: Sequence[Denoiser],
    chunk_tokens: dict[str, int],
    full: Mapping[str, int],
    fill: Callable[[Mapping[str, int]], float],
) -> dict[str, int]:
    best = fill(chunk_tokens)
    for step in (0.06, 0.03, 0.01, 0.01):
        for denoiser in denoisers:
            for factor in (1 + step, 1 - step):
                moved = {**chunk_tokens, denoiser.name: _within(denoiser, chunk_tokens[denoiser.name] * factor, full)}
                moved_fill = fill(moved)
                if moved_fill > best:
                    best, chunk_tokens = moved_fill, moved
    return chunk_tokens


def _within(denoiser: Denoiser, size: float, full: Mapping[str, int]) -> int:
    """The chunk of about this size that a denoiser can have: at least its stride, if it has one, and at most a full chunk."""
    return min(full[denoiser.name], max(getattr(denoiser, "stride", None) or 2, round(size)))


def _draw(denoisers: Sequence[Denoiser], seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Pools of examples, before their lengths are known: which denoiser [POOL], and where in its noise range [POOL], in [0, 1)."""
    random = np.random.RandomState(seed)
    return [(random.choice(len(denoisers), POOL, p=_weights(denoisers)), random.uniform(size=POOL)) for _ in range(POOLS)]


def _measure(
    denoisers: Sequence[Denoiser],
    sequence_length: Mapping[str, int],
    chunk_tokens: ChunkTokens,
    drawn: Sequence[tuple[np.ndarray, np.ndarray]],
) -> np.ndarray:
    """[F] float64: the part of all rows that holds tokens."""
    ranges = [
        (chunk, *noise_range(denoiser, chunk.length)) for denoiser, chunk in _chunks(denoisers, sequence_length, chunk_tokens)
    ]
    budgets = _budgets(sequence_length)
    longest = np.array([(chunk.inputs, chunk.targets) for chunk, _, _ in ranges])
    fewest, most = np.array([(fewest, most) for _, fewest, most in ranges]).T
    tokens, rows = np.zeros(len(FEATURES)), 0
    for which, uniform in drawn:
        noise = (fewest[which] + uniform * (most - fewest + 1)[which]).astype(int)
        lengths = longest[which] - np.stack([noise - fewest[which], most[which] - noise], axis=1)
        rows += count_rows(lengths, tuple(budgets.tolist()))
        tokens += lengths.sum(axis=0)
    return tokens / (rows * budgets)


def _chunks(
    denoisers: Sequence[Denoiser], sequence_length: Mapping[str, int], chunk_tokens: ChunkTokens
) -> list[tuple[Denoiser, Chunk]]:
    caps = chunk_tokens if isinstance(chunk_tokens, Mapping) else {denoiser.name: chunk_tokens for denoiser in denoisers}
    return [(d, chunk_length(d, sequence_length, chunk_tokens=caps.get(d.name))) for d in denoisers]


def _mean_lengths(denoiser: Denoiser, chunk: Chunk) -> tuple[int, int]:
    fewest, most = noise_range(denoiser, chunk.length)
    return chunk.inputs - (chunk.noise - fewest), chunk.targets - (most - chunk.noise)


def _weights(denoisers: Sequence[Denoiser]) -> np.ndarray:
    weights = np.array([denoiser.weight for denoiser in denoisers], np.float64)
    return weights / weights.sum()


def _budgets(sequence_length: Mapping[str, int]) -> np.ndarray:
    return np.array([sequence_length[feature] for feature in FEATURES])


def _by_feature(values: np.ndarray) -> dict[str, float]:
    return dict(zip(FEATURES, values.tolist()))
