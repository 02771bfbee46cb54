"""The integer arithmetic: from token budgets to the chunk length L, the noise tokens n and the noise spans k.

The denoiser says n and k, see `Denoiser.noise_counts`. With m tokens of the mode and one sentinel for each span

    inputs  = mode + kept tokens, each span replaced by its sentinel + EOS    -> m + (L - n) + k + 1
    targets = for each span its sentinel, then its tokens, + EOS              -> n + k + 1

Everything here is plain integers, known before any graph is built.

Without a mode and with large targets `t5.data.preprocessors.random_spans_helper` gives the same chunk, but for three
differences. It looks at the inputs alone, and `span_corruption` then fails if the targets are too long. At r = 0.5 it gives
up one token so that targets are no longer than inputs, whatever the targets' budget. And it does not clamp n and k: in short
chunks it counts 0 spans where its mask then has 1, or more spans than the kept tokens can separate.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Mapping

from ul2_tasks.denoisers.denoisers import Denoiser
from ul2_tasks.example_features import TOKEN_FEATURES
from ul2_tasks.scalars import is_integer

_UNBOUNDED = 1 << 20


@dataclasses.dataclass(frozen=True)
class Chunk:
    """A full chunk of one denoiser, all in tokens but `spans`.

    Where the number of noise tokens is drawn, `noise` is its mean, and `inputs` and `targets` are the longest that there can be.
    """

    length: int
    noise: int
    spans: int
    inputs: int
    targets: int


def chunk_length(
    denoiser: Denoiser,
    sequence_length: Mapping[str, int] | None,
    *,
    mode_tokens: int | None = None,
    num_sentinels: int | None = None,
    chunk_tokens: int | None = None,
    add_eos: tuple[bool, bool] = (True, True),
) -> Chunk:
    """Returns the longest chunk whose inputs and targets both fit their lengths.

    Args:
        denoiser: the denoiser.
        sequence_length: {"inputs": int, "targets": int}, the lengths in tokens.
        mode_tokens: m, tokens of the mode; by default 1 if the denoiser has a mode.
        num_sentinels: the number of sentinels of the vocabulary; None for no check.
        chunk_tokens: an upper bound for the chunk, for shorter examples that pack better.
        add_eos: whether the inputs end with an EOS, and whether the targets do.

    Raises:
        ValueError: a length is missing, not a positive integer, or too small for a chunk of 2 tokens; or the chunk needs more
            sentinels than there are. The message has the numbers and what to change.

    >>> from ul2_tasks.denoisers.denoisers import SpanDenoiser
    >>> chunk_length(SpanDenoiser(name="toy", mean_span_length=2, noise_density=0.3), {"inputs": 12, "targets": 7})
    Chunk(length=13, noise=4, spans=2, inputs=12, targets=7)
    """
    inputs_budget, targets_budget = budgets(denoiser, sequence_length)
    if chunk_tokens is not None and not is_integer(chunk_tokens, at_least=2):
        raise ValueError(f"chunk_tokens must be an integer of at least 2, or None for no upper bound, got {chunk_tokens!r}.")
    if mode_tokens is None:
        mode_tokens = 0 if denoiser.mode is None else 1

    def longest(length: int) -> tuple[int, int]:
        return denoiser.example_lengths(length, mode_tokens, add_eos)

    def too_long(length: int) -> bool:
        inputs, targets = longest(length)
        return inputs > inputs_budget or targets > targets_budget

    # Neither inputs nor targets shrink as the chunk grows, so bisection finds the first chunk that is too long. A chunk of more
    # tokens than both budgets together is: each of its tokens stands in the inputs or in the targets.
    candidates = range(2, inputs_budget + targets_budget + 2)
    length = 1 + bisect.bisect_left(candidates, True, key=too_long)
    if length < 2:
        inputs, targets = longest(2)
        raise ValueError(
            f"sequence_length must hold what denoiser {denoiser.name!r} makes of a chunk of 2 tokens, inputs of {inputs}"
            f" ({mode_tokens} of them the mode) and targets of {targets}, got inputs {inputs_budget}, targets {targets_budget}."
            " Raise the lengths. See docs/help/troubleshooting.md#lengths-are-too-short."
        )
    length = min(length, int(chunk_tokens or length))
    noise, spans = denoiser.noise_counts(length)
    if num_sentinels is not None:
        _check_sentinels(denoiser, length, num_sentinels)
    return Chunk(length, noise, spans, *longest(length))


def sentinels_needed(denoiser: Denoiser, length: int) -> int:
    """The number of sentinels that a chunk of `length` tokens uses: one for each span, or none at all."""
    return denoiser.noise_counts(length)[1] if denoiser.sentinel and not denoiser.own_tokens else 0


def _check_sentinels(denoiser: Denoiser, length: int, num_sentinels: int) -> None:
    needed = sentinels_needed(denoiser, length)
    if needed <= num_sentinels:
        return
    remedies = f"Open the vocabulary with sentinels={needed} (ul2_tasks.open_vocabulary), or raise mean_span_length"
    enough = bisect.bisect_right(range(1, length + 1), num_sentinels, key=lambda length: sentinels_needed(denoiser, length))
    if enough >= 2:
        remedies += f", or set chunk_tokens={enough} at most (which costs padding)"
    raise ValueError(
        f"denoiser {denoiser.name!r} needs {needed} sentinels for a chunk of {length} tokens, but the vocabulary has"
        f" {num_sentinels}. {remedies}. See docs/help/troubleshooting.md#needs-157-sentinels."
    )


def budgets(denoiser: Denoiser, sequence_length: Mapping[str, int] | None) -> tuple[int, int]:
    expected = '{"inputs": tokens, "targets": tokens}, as in get_dataset(sequence_length={"inputs": 512, "targets": 512})'
    if sequence_length is None:
        raise ValueError(f"denoiser {denoiser.name!r}: sequence_length must be {expected}, got None.")
    if not denoiser.needs_inputs_length:  # a decoder's converter may ask for targets alone
        sequence_length = {"inputs": _UNBOUNDED, **sequence_length}
    for feature in TOKEN_FEATURES:
        if feature not in sequence_length:
            raise ValueError(
                f"denoiser {denoiser.name!r}: sequence_length must be {expected}, got {dict(sequence_length)} without {feature!r}."
            )
        if not is_integer(sequence_length[feature], at_least=1):
            raise ValueError(
                f"denoiser {denoiser.name!r}: sequence_length[{feature!r}] must be a positive integer, got"
                f" {sequence_length[feature]!r}."
            )
    return int(sequence_length["inputs"]), int(sequence_length["targets"])
