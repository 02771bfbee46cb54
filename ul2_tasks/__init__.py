"""UL2 pre-training data for SeqIO and t5x. After `import ul2_tasks` SeqIO has `ul2_corpus`, `ul2_r1` .. `ul2_s` and `ul2_mix`.

Each name is imported when it is asked for. TensorFlow takes seconds and most of a gigabyte, and processes that read rows of
images do not need it. Not everyone has torch.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING

import ul2_tasks.when_imported  # noqa: F401 (which tells SeqIO and gin)
from ul2_tasks.version import __version__ as __version__

if TYPE_CHECKING:
    from ul2_tasks.chat.by_name import open_renderer
    from ul2_tasks.converters.chat import ChatFeatureConverter, PromptCompletionFeatureConverter
    from ul2_tasks.converters.chat_hugging_face import HuggingFaceChatConverter
    from ul2_tasks.converters.encoder_decoder import EncDecFeatureConverter
    from ul2_tasks.converters.hugging_face import HuggingFaceFeatureConverter
    from ul2_tasks.converters.image_text import T5Gemma2FeatureConverter
    from ul2_tasks.converters.prefix_lm import PrefixLMFeatureConverter
    from ul2_tasks.denoising.denoisers import T5GEMMA2, UL2, UL2R, CausalDenoiser, Denoiser, SequentialDenoiser, SpanDenoiser
    from ul2_tasks.denoising.given_spans import corrupt_spans
    from ul2_tasks.denoising.lengths import chunk_length
    from ul2_tasks.denoising.preprocessors import prepend_mode
    from ul2_tasks.export.folder import read_examples
    from ul2_tasks.images.interleaved import ImageTokens
    from ul2_tasks.measured_loader import MeasuredLoader
    from ul2_tasks.mixtures.advice import best_chunk_tokens
    from ul2_tasks.mixtures.chat import Chat
    from ul2_tasks.mixtures.image_text import ImageText
    from ul2_tasks.mixtures.mix import Mix
    from ul2_tasks.mixtures.mixture import Mixture
    from ul2_tasks.mixtures.schedule import Stage
    from ul2_tasks.order.blocks import BlockShuffle
    from ul2_tasks.pytorch.chat_trainer import LossGroupTrainer as LossGroupTrainer
    from ul2_tasks.pytorch.collator import UL2DataCollator
    from ul2_tasks.pytorch.dataset import UL2IterableDataset as UL2IterableDataset
    from ul2_tasks.pytorch.group_loss import LossGroupWeights as LossGroupWeights
    from ul2_tasks.pytorch.image_text import ImageTextDataset as ImageTextDataset
    from ul2_tasks.pytorch.packed_attention import accept_packed_sequences as accept_packed_sequences
    from ul2_tasks.pytorch.packed_attention import packed_attention_masks as packed_attention_masks
    from ul2_tasks.pytorch.t5gemma2_collator import T5Gemma2Collator as T5Gemma2Collator
    from ul2_tasks.pytorch.task_loss import TaskLosses as TaskLosses
    from ul2_tasks.pytorch.task_trainer import TaskLossTrainer as TaskLossTrainer
    from ul2_tasks.sources.by_name import open_source
    from ul2_tasks.sources.image_text import open_image_text
    from ul2_tasks.sources.memory import MemoryDataSource, embedded_documents
    from ul2_tasks.store.block_cache import set_block_cache
    from ul2_tasks.t5x_dataset import get_dataset_at_step, get_dataset_of_stream
    from ul2_tasks.tasks.chat import register_chat
    from ul2_tasks.tasks.downstream import with_mode
    from ul2_tasks.tasks.examples import examples
    from ul2_tasks.tasks.image_text import register_image_text
    from ul2_tasks.tasks.registration import Registration
    from ul2_tasks.tasks.registry import mix, register
    from ul2_tasks.vocabulary.by_name import open_vocabulary
    from ul2_tasks.vocabulary.hugging_face import HuggingFaceVocabulary
    from ul2_tasks.vocabulary.sentencepiece import default_vocabulary
    from ul2_tasks.vocabulary.special_ids import check_round_trip, embedding_rows, id_shift

__all__ = [
    "T5GEMMA2",
    "UL2",
    "UL2R",
    "BlockShuffle",
    "CausalDenoiser",
    "Chat",
    "ChatFeatureConverter",
    "Denoiser",
    "EncDecFeatureConverter",
    "HuggingFaceChatConverter",
    "HuggingFaceFeatureConverter",
    "HuggingFaceVocabulary",
    "ImageText",
    "ImageTokens",
    "MeasuredLoader",
    "MemoryDataSource",
    "Mix",
    "Mixture",
    "PrefixLMFeatureConverter",
    "PromptCompletionFeatureConverter",
    "Registration",
    "SequentialDenoiser",
    "SpanDenoiser",
    "Stage",
    "T5Gemma2FeatureConverter",
    "UL2DataCollator",
    "best_chunk_tokens",
    "check_round_trip",
    "chunk_length",
    "corrupt_spans",
    "default_vocabulary",
    "embedded_documents",
    "embedding_rows",
    "examples",
    "get_dataset_at_step",
    "get_dataset_of_stream",
    "id_shift",
    "mix",
    "open_image_text",
    "open_renderer",
    "open_source",
    "open_vocabulary",
    "prepend_mode",
    "read_examples",
    "register",
    "register_chat",
    "register_image_text",
    "set_block_cache",
    "with_mode",
]

# `from ul2_tasks import *` imports all of these names, so it has those that need PyTorch where that is installed.
if importlib.util.find_spec("torch") is not None:
    __all__ += [
        "ImageTextDataset",
        "LossGroupWeights",
        "T5Gemma2Collator",
        "TaskLosses",
        "UL2IterableDataset",
        "accept_packed_sequences",
        "packed_attention_masks",
    ]
    if importlib.util.find_spec("transformers") is not None:
        __all__ += ["LossGroupTrainer", "TaskLossTrainer"]

_MODULES = {
    "T5GEMMA2": "denoising.denoisers",
    "UL2": "denoising.denoisers",
    "UL2R": "denoising.denoisers",
    "BlockShuffle": "order.blocks",
    "CausalDenoiser": "denoising.denoisers",
    "Chat": "mixtures.chat",
    "ChatFeatureConverter": "converters.chat",
    "Denoiser": "denoising.denoisers",
    "EncDecFeatureConverter": "converters.encoder_decoder",
    "HuggingFaceChatConverter": "converters.chat_hugging_face",
    "HuggingFaceFeatureConverter": "converters.hugging_face",
    "HuggingFaceVocabulary": "vocabulary.hugging_face",
    "MeasuredLoader": "measured_loader",
    "MemoryDataSource": "sources.memory",
    "Mix": "mixtures.mix",
    "Mixture": "mixtures.mixture",
    "ImageTextDataset": "pytorch.image_text",
    "ImageTokens": "images.interleaved",
    "ImageText": "mixtures.image_text",
    "Registration": "tasks.registration",
    "PrefixLMFeatureConverter": "converters.prefix_lm",
    "PromptCompletionFeatureConverter": "converters.chat",
    "SequentialDenoiser": "denoising.denoisers",
    "SpanDenoiser": "denoising.denoisers",
    "Stage": "mixtures.schedule",
    "LossGroupTrainer": "pytorch.chat_trainer",
    "LossGroupWeights": "pytorch.group_loss",
    "T5Gemma2Collator": "pytorch.t5gemma2_collator",
    "TaskLossTrainer": "pytorch.task_trainer",
    "TaskLosses": "pytorch.task_loss",
    "T5Gemma2FeatureConverter": "converters.image_text",
    "UL2DataCollator": "pytorch.collator",
    "UL2IterableDataset": "pytorch.dataset",
    "accept_packed_sequences": "pytorch.packed_attention",
    "best_chunk_tokens": "mixtures.advice",
    "chunk_length": "denoising.lengths",
    "corrupt_spans": "denoising.given_spans",
    "default_vocabulary": "vocabulary.sentencepiece",
    "embedded_documents": "sources.memory",
    "embedding_rows": "vocabulary.special_ids",
    "examples": "tasks.examples",
    "get_dataset_at_step": "t5x_dataset",
    "get_dataset_of_stream": "t5x_dataset",
    "id_shift": "vocabulary.special_ids",
    "mix": "tasks.registry",
    "open_image_text": "sources.image_text",
    "open_renderer": "chat.by_name",
    "open_source": "sources.by_name",
    "open_vocabulary": "vocabulary.by_name",
    "packed_attention_masks": "pytorch.packed_attention",
    "prepend_mode": "denoising.preprocessors",
    "read_examples": "export.folder",
    "register": "tasks.registry",
    "register_chat": "tasks.chat",
    "register_image_text": "tasks.image_text",
    "set_block_cache": "store.block_cache",
    "check_round_trip": "vocabulary.special_ids",
    "with_mode": "tasks.downstream",
}


def __getattr__(name: str) -> object:
    """A name of `_MODULES`, of the module that has it."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
