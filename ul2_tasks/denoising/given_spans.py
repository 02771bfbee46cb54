"""Corruption with spans that are given, not drawn: for masks of your own, such as whole words, or those of another tool."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike


def corrupt_spans(
    ids: ArrayLike, spans: ArrayLike, *, sentinels: Sequence[int] = (), mode: Sequence[int] = (), eos: Sequence[int] = ()
) -> dict[str, np.ndarray]:
    """Masks given spans of a text: the inputs and the targets that a denoiser makes, exactly.

    Args:
        ids: [tokens] integers.
        spans: [spans, 2] integers, the start of each and how many tokens it has, in order. They may touch, and not overlap.
        sentinels: ids, the n-th of which is for the n-th span; none for one span without a sentinel, as in prefix LM.
        mode: ids before the inputs.
        eos: ids after inputs and targets.

    Returns:
        {"inputs": [tokens] int32, "targets": [tokens] int32}.

    Raises:
        ValueError: a span is empty, outside of the ids, or not after the one before it; there are none, or too few sentinels for
            them; or a special id is among the ids.

    >>> example = corrupt_spans(range(11, 19), [(1, 2), (5, 2)], sentinels=[100, 101], mode=[50], eos=[1])
    >>> example["inputs"].tolist(), example["targets"].tolist()
    ([50, 11, 100, 14, 15, 101, 18, 1], [100, 12, 13, 101, 16, 17, 1])
    """
    tokens, pairs = np.asarray(ids), np.asarray(spans)
    for name, values, form in (("ids", tokens, "[tokens]"), ("spans", pairs, "[spans, 2], of starts and lengths,")):
        is_right = values.ndim == (1 if name == "ids" else 2) and values.dtype.kind in "iu"
        if not values.size or not is_right or (name == "spans" and values.shape[1] != 2):
            raise ValueError(f"{name} must be integers {form} at least one, got {values.tolist()!r:.100}.")
    starts, stops = pairs[:, 0].astype(np.int64), pairs.sum(axis=1, dtype=np.int64)
    wrong = (starts >= stops) | (starts < np.append(0, stops[:-1])) | (stops > len(tokens))
    if wrong.any():
        number = int(np.argmax(wrong))
        raise ValueError(
            f"spans[{number}] must have a token, begin after the span before it, and end within {len(tokens)} ids, got the start"
            f" {pairs[number, 0]} and the length {pairs[number, 1]}. Sort spans, and join those that overlap."
        )
    if len(sentinels) < len(pairs) and (len(pairs) > 1 or sentinels):
        raise ValueError(f"sentinels must have an id for each of {len(pairs)} spans, got {len(sentinels)}. Give more sentinels.")
    if (special := np.isin(tokens, [*sentinels, *mode, *eos])).any():
        place = int(np.argmax(special))
        raise ValueError(f"ids must be of text alone, got the special id {tokens[place]} at {place}. Leave special ids out.")
    kept, noise = [np.asarray(mode, np.int32)], []
    for number, (start, stop, before) in enumerate(zip(starts, stops, np.append(0, stops[:-1]))):
        own = np.asarray(sentinels[number : number + 1], np.int32)
        kept += [tokens[before:start], own]
        noise += [own, tokens[start:stop]]
    examples = {"inputs": [*kept, tokens[stops[-1] :], list(eos)], "targets": [*noise, list(eos)]}
    return {key: np.concatenate([np.asarray(part, np.int32) for part in parts]) for key, parts in examples.items()}
