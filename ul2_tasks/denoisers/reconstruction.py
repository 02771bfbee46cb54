"""The way back: from an example to its chunk, its noise and its spans, with a check that each special id is in its place."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from ul2_tasks.denoisers.denoisers import Denoiser
from ul2_tasks.tokenizers.special_ids import SpecialTokens


@dataclasses.dataclass(frozen=True)
class Reconstruction:
    """What an example was made of: its chunk, [L] int64, in the order of the corpus; and the lengths of the noise spans, [k] int64.

    `is_noise`, [L] bool, says which tokens of the chunk are predicted, and `places`, [L] int64, where each is: in the targets if it
    is noise, else in the inputs.
    """

    chunk: np.ndarray
    is_noise: np.ndarray
    spans: np.ndarray
    places: np.ndarray


def invert(example: Mapping[str, ArrayLike], denoiser: Denoiser, special: SpecialTokens) -> Reconstruction:
    """Puts the chunk of an example together again.

    The example is {"inputs": [tokens] int, "targets": [tokens] int}, EOS included. Where the mode, an EOS or a sentinel is not
    where it belongs, or a span is empty, a ValueError says which.

    The chunk 11 .. 17 with the spans [12 13] and [16], the mode 50, the sentinels 100, 101 and EOS 1:

    >>> from ul2_tasks.denoisers.denoisers import SpanDenoiser
    >>> special = SpecialTokens(sentinels=(100, 101), mode=(50,), eos=1, reserved=frozenset())
    >>> example = {"inputs": [50, 11, 100, 14, 15, 101, 17, 1], "targets": [100, 12, 13, 101, 16, 1]}
    >>> found = invert(example, SpanDenoiser(name="r", mean_span_length=2, noise_density=0.4, mode="[R]"), special)
    >>> found.chunk.tolist(), found.spans.tolist()
    ([11, 12, 13, 14, 15, 16, 17], [2, 1])
    """
    if own := denoiser.own_inverse(example, special):
        return own
    inputs = _without_eos(np.asarray(example["inputs"], np.int64), "inputs", special)
    targets = np.asarray(example["targets"], np.int64)
    if denoiser.targets_end_in_eos:
        targets = _without_eos(targets, "targets", special)
    mode = inputs[: len(special.mode)]
    if tuple(mode) != special.mode:
        raise ValueError(f"inputs must start with the mode {list(special.mode)}, got {mode.tolist()}.")
    inputs = inputs[len(special.mode) :]
    in_inputs, in_targets = (np.flatnonzero(np.isin(ids, special.sentinels)) for ids in (inputs, targets))
    if not denoiser.sentinel:
        if in_inputs.size or in_targets.size:
            raise ValueError("inputs and targets must have no sentinels, got some.")
        if not targets.size:
            raise ValueError("targets must have at least one token, got an empty noise span.")
        return _join([inputs], [targets], len(special.mode), 0)
    if not in_inputs.size:
        raise ValueError("inputs must have a sentinel for each noise span, got none.")
    kept = [np.delete(run, 0) if number else run for number, run in enumerate(np.split(inputs, in_inputs))]
    if denoiser.targets == "whole":
        whole = _join(kept, _between(kept, targets), len(special.mode), 1)
        return dataclasses.replace(whole, places=np.where(whole.is_noise, np.arange(len(targets)), whole.places))
    wanted = special.sentinels * len(in_inputs) if denoiser.own_tokens else special.sentinels[: len(in_inputs)]
    for key, found in (("inputs", inputs[in_inputs]), ("targets", targets[in_targets])):
        if tuple(found) != wanted:
            raise ValueError(
                f"the sentinels of {key} must be {list(wanted)}, each once and in this order in both features, got"
                f" {found.tolist()}."
            )
    if in_targets[0] != 0:
        raise ValueError(f"targets must start with the sentinel {wanted[0]}, got {targets[0]}.")
    noise = [run[1:] for run in np.split(targets, in_targets)[1:]]
    if not all(run.size for run in noise):
        raise ValueError("targets must have at least one token after each sentinel, got an empty noise span.")
    return _join(kept, noise, len(special.mode), 1)


def _between(kept: Sequence[np.ndarray], chunk: np.ndarray) -> list[np.ndarray]:
    """The runs of a chunk between those that are kept; where one may be at several places it is at the first."""
    noise, end = list[np.ndarray](), 0
    for number, run in enumerate(kept):
        first, last = (end + 1, len(chunk) - len(run)) if number else (0, 0)
        starts = range(max(first, last) if number == len(kept) - 1 else first, last + 1)
        start = next((start for start in starts if np.array_equal(chunk[start : start + len(run)], run)), None)
        if start is None:
            raise ValueError(f"targets must have the tokens of inputs, in their order, got {run.tolist()!r:.100} in inputs alone.")
        noise += [chunk[end:start]] if number else []
        end = start + len(run)
    return noise


def _without_eos(ids: np.ndarray, key: str, special: SpecialTokens) -> np.ndarray:
    if special.eos is None:
        return ids
    if not ids.size or ids[-1] != special.eos:
        raise ValueError(f"{key} must end with EOS {special.eos}, got {ids[-1:].tolist()}.")
    return ids[:-1]


def _join(kept: Sequence[np.ndarray], noise: Sequence[np.ndarray], mode: int, sentinels: int) -> Reconstruction:
    """The reconstruction of a chunk that is kept[0] noise[0] kept[1] noise[1] .. kept[k]; kept runs may be empty.

    `mode` is how many tokens come before the inputs, and `sentinels` how many each span has.
    """
    runs = [run for pair in zip(kept, [*noise, np.array([], np.int64)]) for run in pair]
    is_noise = np.repeat(np.arange(len(runs)) % 2 == 1, [run.size for run in runs])
    # The number of sentinels before each token is that of the spans that have begun, its own included: the same in both.
    before = sentinels * np.repeat((np.arange(len(runs)) + 1) // 2, [run.size for run in runs])
    places = before + np.where(is_noise, np.cumsum(is_noise), mode + np.cumsum(~is_noise)) - 1
    return Reconstruction(np.concatenate(runs), is_noise, np.array([run.size for run in noise], np.int64), places)
