"""UL2 pre-training data for SeqIO and t5x: importing this registers `ul2_corpus`, `ul2_r1` .. `ul2_s` and `ul2_mix`."""

from ul2_tasks.converters.encoder_decoder import EncDecFeatureConverter
from ul2_tasks.converters.hugging_face import HuggingFaceFeatureConverter
from ul2_tasks.denoising.denoisers import T5GEMMA2, UL2, UL2R, CausalDenoiser, SequentialDenoiser, SpanDenoiser
from ul2_tasks.denoising.lengths import chunk_length
from ul2_tasks.pytorch.collator import UL2DataCollator
from ul2_tasks.sources.by_name import open_source
from ul2_tasks.tasks.advice import best_chunk_tokens
from ul2_tasks.tasks.downstream import with_mode
from ul2_tasks.tasks.registry import mix, register
from ul2_tasks.version import __version__ as __version__
from ul2_tasks.vocabulary.by_name import open_vocabulary
from ul2_tasks.vocabulary.sentencepiece import default_vocabulary
from ul2_tasks.vocabulary.special_ids import embedding_rows

__all__ = [
    "T5GEMMA2",
    "UL2",
    "UL2R",
    "CausalDenoiser",
    "EncDecFeatureConverter",
    "HuggingFaceFeatureConverter",
    "SequentialDenoiser",
    "SpanDenoiser",
    "UL2DataCollator",
    "best_chunk_tokens",
    "chunk_length",
    "default_vocabulary",
    "embedding_rows",
    "mix",
    "open_source",
    "open_vocabulary",
    "register",
    "with_mode",
]

register()
