"""The one vocabulary of all sides of this benchmark: this package's, with enough of SeqIO's extra ids after it for 16,384 tokens.

All sides use these as sentinels as t5 does, from the last id downwards.
"""

from __future__ import annotations

import seqio

from ul2_tasks.denoisers.denoisers import Denoiser
from ul2_tasks.denoisers.lengths import Chunk, chunk_length
from ul2_tasks.tokenizers.sentencepiece import DEFAULT_MODEL
from ul2_tasks.tokenizers.special_ids import SpecialTokens, as_vocabulary, special_tokens

SENTINELS = 1280
VOCABULARY = seqio.SentencePieceVocabulary(str(DEFAULT_MODEL), extra_ids=SENTINELS)
SENTINEL_IDS = tuple(VOCABULARY.vocab_size - 1 - sentinel for sentinel in range(SENTINELS))


def special(denoiser: Denoiser) -> SpecialTokens:
    return special_tokens(as_vocabulary(VOCABULARY), denoiser.mode, SENTINEL_IDS)


def solved(denoiser: Denoiser, length: int) -> Chunk:
    return chunk_length(denoiser, {"inputs": length, "targets": length}, num_sentinels=SENTINELS)
