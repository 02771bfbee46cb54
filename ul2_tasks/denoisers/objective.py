"""The objective alone, for anybody's pipeline: ids in, inputs and targets out, with spans that are drawn by a key or given."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ul2_tasks.denoisers.denoisers import Denoiser
from ul2_tasks.denoisers.lengths import sentinels_needed
from ul2_tasks.denoisers.write import made, recipe_of_texts
from ul2_tasks.example_features import DIFFUSION, EXAMPLE, LOSS_WEIGHT, RATES
from ul2_tasks.scalars import is_integer
from ul2_tasks.tokenizers.by_name import open_for_modes
from ul2_tasks.tokenizers.special_ids import Mode, Sentinels, SpecialTokensRequest, TextIds


def denoise(
    ids: ArrayLike,
    denoiser: Denoiser,
    key: int = 0,
    *,
    vocabulary: Any = "default",
    sentinels: int | Sentinels | None = None,
    modes: Mapping[str, Mode] | None = None,
) -> dict[str, np.ndarray]:
    """Masks a text as a denoiser does: inputs and targets of its ids, with the noise of a key.

    All of the ids are one chunk; `chunk_length` says how many fit the lengths of a model.

    Args:
        ids: [tokens] integers, the tokenizer's own, at least one, without EOS.
        denoiser: the denoiser.
        key: any integer, whose last 64 bits count. The same key masks the same places of a text of so many tokens.
        vocabulary, sentinels, modes: as for `register`. One that is open already costs less at each call.

    Returns:
        {"inputs": [tokens] int32, "targets": [tokens] int32}, with the mode and EOS; of a diffusion denoiser also what
        `Examples` have of its targets.

    Raises:
        ValueError: there are no ids, or a special one is among them; or the vocabulary lacks the mode, or has too few sentinels.

    >>> from ul2_tasks.denoisers.denoisers import SpanDenoiser
    >>> half = SpanDenoiser(name="half", mean_span_length=2, noise_density=0.5, mode="[R]")
    >>> example = denoise(range(600, 608), half, key=5)  # [R] is 259, the sentinels begin at 3, and EOS is 1
    >>> example["inputs"].tolist(), example["targets"].tolist()
    ([259, 600, 601, 3, 604, 605, 4, 1], [3, 602, 603, 4, 606, 607, 1])
    """
    tokens = np.asarray(ids)
    if tokens.ndim != 1 or not tokens.size or tokens.dtype.kind not in "iu":
        raise ValueError(f"ids must be integers [tokens], at least one, got {tokens.tolist()!r:.100}.")
    if not is_integer(key, at_least=-math.inf):
        raise ValueError(f"key must be an integer, got {key!r}.")
    opened, own_sentinels = open_for_modes(vocabulary, [denoiser.mode], sentinels, modes)
    special = SpecialTokensRequest(own_sentinels, modes).tokens(opened, denoiser)
    text = tokens.astype(np.int64)
    remedy = "Leave special ids out, and pass the vocabulary that tokenized the text."
    TextIds(opened.vocab_size, special.reserved).check(text, "ids", remedy)
    if (needed := sentinels_needed(denoiser, len(text))) > len(special.sentinels):
        raise ValueError(
            f"sentinels must be at least {needed} for {len(text)} ids and denoiser {denoiser.name!r}, got {len(special.sentinels)}."
            " Open the vocabulary with more, or pass fewer ids."
        )
    longest = 1 << (len(text) - 1).bit_length()  # so that texts of many lengths share few recipes
    whole = np.array([len(text)], np.int32), np.arange(2), np.array([int(key) % (1 << 64)], np.uint64)
    found = recipe_of_texts(denoiser, special, longest, (True, True))
    features, sizes = made(found, text.astype(np.int32), *whole)
    if not denoiser.has_rates:
        return dict(zip(EXAMPLE, features))
    marks = (np.full([1, len(features[1])], key == LOSS_WEIGHT, feature.dtype) for key, feature in RATES.items())
    rows = dict(zip(DIFFUSION, (*(ids[np.newaxis] for ids in features), *marks)))
    found.mark(whole[2], sizes, np.zeros(1, np.int64), np.zeros_like(sizes), rows)
    return {key: row[0] for key, row in rows.items()}


def denoise_one_of(
    ids: ArrayLike, denoisers: Denoiser | Sequence[Denoiser], rng: np.random.Generator, **settings: Any
) -> dict[str, np.ndarray]:
    """`denoise` with one of several denoisers, drawn by their weights, and with a key that is drawn, too."""
    each = [denoisers] if isinstance(denoisers, Denoiser) else [*denoisers]
    weights = np.array([denoiser.weight for denoiser in each])
    chosen = each[rng.choice(len(each), p=weights / weights.sum())]
    return denoise(ids, chosen, int(rng.integers(1 << 63)), **settings)


def denoise_batch(
    batch: Mapping[str, Sequence], indices: Sequence[int], denoisers: Denoiser | Sequence[Denoiser], seed: int = 0, **settings: Any
) -> dict[str, list[np.ndarray]]:
    """A function for `map` of Hugging Face's datasets, with `batched=True` and `with_indices=True`: masks the "input_ids" of rows.

    Each row gets one of the denoisers, drawn by their weights from the seed and the row's index. `settings` are those of `denoise`.
    Returns {"inputs": [tokens] int32, "targets": [tokens] int32} of each row.
    """
    rngs = [np.random.default_rng([seed, index]) for index in indices]
    rows = [denoise_one_of(ids, denoisers, rng, **settings) for ids, rng in zip(batch["input_ids"], rngs)]
    return {key: [row[key] for row in rows] for key in rows[0]}


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
