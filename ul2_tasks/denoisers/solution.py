"""What a denoiser comes to with a vocabulary and within two budgets: its special ids and the length of a chunk."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from ul2_tasks.denoisers.denoisers import Denoiser
from ul2_tasks.denoisers.lengths import Chunk, chunk_length
from ul2_tasks.denoisers.loss_weights import RepeatedNgrams
from ul2_tasks.order.order import BlockShuffle
from ul2_tasks.tokenizers.base import Vocabulary
from ul2_tasks.tokenizers.special_ids import SpecialTokens, SpecialTokensRequest, embedding_rows


@dataclasses.dataclass(frozen=True)
class DenoisingConfiguration:
    """How a task makes examples of documents.

    `chunk_tokens` is the longest chunk that is wanted; None where the budgets alone decide. With `merge_examples` chunks go on
    across the borders of documents, and with `separate_documents` an EOS then ends each document.
    """

    denoiser: Denoiser
    special_tokens: SpecialTokensRequest = dataclasses.field(default_factory=SpecialTokensRequest)
    chunk_tokens: int | None = None
    merge_examples: bool = True
    separate_documents: bool = False
    block_shuffle: BlockShuffle | None = None
    repeated_ngrams: RepeatedNgrams | None = None


@dataclasses.dataclass(frozen=True)
class Solution:
    """What a configuration comes to with one vocabulary and within two budgets.

    `add_eos` says whether inputs, and whether targets, end with an EOS. Every chunk is `full`, except at the end of the corpus or
    of a document.
    """

    configuration: DenoisingConfiguration
    vocabulary: Vocabulary
    add_eos: tuple[bool, bool]
    special: SpecialTokens
    full: Chunk


def solve(
    sequence_length: Mapping[str, int] | None,
    vocabulary: Vocabulary,
    configuration: DenoisingConfiguration,
    add_eos: tuple[bool, bool] = (True, True),
) -> Solution:
    """Finds the ids that a denoiser adds, and the longest chunk whose inputs and targets fit their budgets.

    Budgets are in tokens. This opens the vocabulary. `add_eos` says whether inputs, and whether targets, end with an EOS. Raises a
    ValueError where they want one and there is none, or could be empty; and see `lengths.chunk_length` and
    `special_ids.special_tokens`.
    """
    denoiser, request = configuration.denoiser, configuration.special_tokens
    special = request.tokens(vocabulary, denoiser)
    if any(add_eos) and special.eos is None:
        raise ValueError(
            f"{vocabulary} must have an EOS for features with add_eos=True, but has none. Set seqio.Feature(add_eos=False)."
        )
    if configuration.separate_documents and (special.eos is None or not configuration.merge_examples):
        raise ValueError(
            f"separate_documents must be False for documents that are kept apart (merge_examples=False), and for {vocabulary} if it"
            f" has no EOS, got True, merge_examples={configuration.merge_examples} and EOS {special.eos}. Set it to False."
        )
    if denoiser.example_lengths(1, len(special.mode), add_eos)[0] == 0:
        raise ValueError(
            f"denoiser {denoiser.name!r} must make inputs of at least one token, but makes none of a one-token document, which"
            " SeqIO's packing pairs with wrong targets. Give it a mode or a sentinel, or set seqio.Feature(add_eos=True) for the"
            " inputs."
        )
    full = chunk_length(
        denoiser,
        sequence_length,
        mode_tokens=len(special.mode),
        num_sentinels=len(special.sentinels),
        chunk_tokens=configuration.chunk_tokens,
        add_eos=add_eos,
    )
    return Solution(configuration, vocabulary, add_eos, special, full)


def check_rows(solutions: Iterable[Solution], rows: int, vocabulary: Vocabulary) -> None:
    """Raises a ValueError if examples can hold a sentinel, a mode or an EOS that a model's embedding has no row for."""
    used: set[int] = set()
    for each in solutions:
        denoiser = each.configuration.denoiser
        spans = len(denoiser.own_tokens) or (each.full.spans if denoiser.sentinel else 0)
        used.update(each.special.sentinels[:spans], each.special.mode, each.special.ending)
    largest = max(used, default=0)
    if largest >= rows:
        raise ValueError(
            f"embedding_rows must be above {largest}, the largest id of the examples,"
            f" {vocabulary.id_to_piece(largest)}, got {rows}. Call"
            f" model.resize_token_embeddings({embedding_rows(vocabulary)}) before training, or name sentinels= and modes="
            " that the model has. See docs/help/troubleshooting.md#index-out-of-range-in-the-embedding."
        )
