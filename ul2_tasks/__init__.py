"""UL2 pre-training data for SeqIO and t5x. After `import ul2_tasks` SeqIO has `ul2_corpus`, `ul2_r1` .. `ul2_s` and `ul2_mix`.

Each name is imported when it is asked for. TensorFlow takes seconds and most of a gigabyte, and processes that read rows of
images do not need it. Not everyone has torch.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING

import wrapt

from ul2_tasks.version import __version__ as __version__

if TYPE_CHECKING:
    from ul2_tasks.chat.by_name import open_renderer as open_renderer
    from ul2_tasks.cli.registration import Registration as Registration
    from ul2_tasks.denoisers.denoisers import T5GEMMA2 as T5GEMMA2
    from ul2_tasks.denoisers.denoisers import UL2 as UL2
    from ul2_tasks.denoisers.denoisers import UL2R as UL2R
    from ul2_tasks.denoisers.denoisers import CausalDenoiser as CausalDenoiser
    from ul2_tasks.denoisers.denoisers import Denoiser as Denoiser
    from ul2_tasks.denoisers.denoisers import SequentialDenoiser as SequentialDenoiser
    from ul2_tasks.denoisers.denoisers import SpanDenoiser as SpanDenoiser
    from ul2_tasks.denoisers.lengths import chunk_length as chunk_length
    from ul2_tasks.denoisers.objective import corrupt_spans as corrupt_spans
    from ul2_tasks.denoisers.objective import denoise as denoise
    from ul2_tasks.export.folder import read_examples as read_examples
    from ul2_tasks.image_rows.dataset import ImageTextDataset as ImageTextDataset
    from ul2_tasks.images.interleaved import ImageTokens as ImageTokens
    from ul2_tasks.mixtures.advice import best_chunk_tokens as best_chunk_tokens
    from ul2_tasks.mixtures.chat import Chat as Chat
    from ul2_tasks.mixtures.examples import examples as examples
    from ul2_tasks.mixtures.image_text import ImageText as ImageText
    from ul2_tasks.mixtures.mix import Mix as Mix
    from ul2_tasks.mixtures.mixture import Mixture as Mixture
    from ul2_tasks.mixtures.schedule import Stage as Stage
    from ul2_tasks.models.transformers import HuggingFaceChatConverter as HuggingFaceChatConverter
    from ul2_tasks.models.transformers import HuggingFaceFeatureConverter as HuggingFaceFeatureConverter
    from ul2_tasks.order.order import BlockShuffle as BlockShuffle
    from ul2_tasks.pytorch.collate import ExamplesCollator as ExamplesCollator
    from ul2_tasks.pytorch.collator import UL2DataCollator as UL2DataCollator
    from ul2_tasks.pytorch.dataset import UL2IterableDataset as UL2IterableDataset
    from ul2_tasks.pytorch.group_losses import GroupLosses as GroupLosses
    from ul2_tasks.pytorch.group_losses import LossGroupWeights as LossGroupWeights
    from ul2_tasks.pytorch.group_trainer import GroupLossTrainer as GroupLossTrainer
    from ul2_tasks.pytorch.measured_loader import MeasuredLoader as MeasuredLoader
    from ul2_tasks.pytorch.packed_attention import accept_packed_sequences as accept_packed_sequences
    from ul2_tasks.pytorch.packed_attention import packed_attention_masks as packed_attention_masks
    from ul2_tasks.pytorch.t5gemma2_collator import T5Gemma2Collator as T5Gemma2Collator
    from ul2_tasks.sources.by_name import open_source as open_source
    from ul2_tasks.sources.image_text import open_image_text as open_image_text
    from ul2_tasks.sources.memory import MemoryDataSource as MemoryDataSource
    from ul2_tasks.sources.memory import embedded_documents as embedded_documents
    from ul2_tasks.store.block_cache import set_block_cache as set_block_cache
    from ul2_tasks.t5x.dataset import get_dataset_at_step as get_dataset_at_step
    from ul2_tasks.t5x.dataset import get_dataset_of_stream as get_dataset_of_stream
    from ul2_tasks.tasks.converters import ChatFeatureConverter as ChatFeatureConverter
    from ul2_tasks.tasks.converters import EncDecFeatureConverter as EncDecFeatureConverter
    from ul2_tasks.tasks.converters import PrefixLMFeatureConverter as PrefixLMFeatureConverter
    from ul2_tasks.tasks.converters import PromptCompletionFeatureConverter as PromptCompletionFeatureConverter
    from ul2_tasks.tasks.converters import seqio_converter as seqio_converter
    from ul2_tasks.tasks.downstream import with_mode as with_mode
    from ul2_tasks.tasks.names import description_of as description_of
    from ul2_tasks.tasks.preprocessors import prepend_mode as prepend_mode
    from ul2_tasks.tasks.registry import mix as mix
    from ul2_tasks.tasks.registry import register as register
    from ul2_tasks.tasks.registry import register_chat as register_chat
    from ul2_tasks.tasks.registry import register_image_text as register_image_text
    from ul2_tasks.tokenizers.by_name import open_vocabulary as open_vocabulary
    from ul2_tasks.tokenizers.hugging_face import HuggingFaceVocabulary as HuggingFaceVocabulary
    from ul2_tasks.tokenizers.sentencepiece import default_vocabulary as default_vocabulary
    from ul2_tasks.tokenizers.special_ids import check_round_trip as check_round_trip
    from ul2_tasks.tokenizers.special_ids import embedding_rows as embedding_rows
    from ul2_tasks.tokenizers.special_ids import id_shift as id_shift

_NAMES = {
    "chat.by_name": "open_renderer",
    "tasks.converters": "ChatFeatureConverter EncDecFeatureConverter PrefixLMFeatureConverter PromptCompletionFeatureConverter"
    " seqio_converter",
    "models.transformers": "HuggingFaceChatConverter HuggingFaceFeatureConverter",
    "denoisers.denoisers": "T5GEMMA2 UL2 UL2R CausalDenoiser Denoiser SequentialDenoiser SpanDenoiser",
    "denoisers.objective": "corrupt_spans denoise",
    "denoisers.lengths": "chunk_length",
    "export.folder": "read_examples",
    "image_rows.dataset": "ImageTextDataset",
    "images.interleaved": "ImageTokens",
    "pytorch.measured_loader": "MeasuredLoader",
    "mixtures.advice": "best_chunk_tokens",
    "mixtures.chat": "Chat",
    "mixtures.image_text": "ImageText",
    "mixtures.mix": "Mix",
    "mixtures.mixture": "Mixture",
    "mixtures.schedule": "Stage",
    "order.order": "BlockShuffle",
    "pytorch.collate": "ExamplesCollator",
    "pytorch.collator": "UL2DataCollator",
    "pytorch.dataset": "UL2IterableDataset",
    "pytorch.group_losses": "GroupLosses LossGroupWeights",
    "pytorch.group_trainer": "GroupLossTrainer",
    "pytorch.packed_attention": "accept_packed_sequences packed_attention_masks",
    "pytorch.t5gemma2_collator": "T5Gemma2Collator",
    "sources.by_name": "open_source",
    "sources.image_text": "open_image_text",
    "sources.memory": "MemoryDataSource embedded_documents",
    "store.block_cache": "set_block_cache",
    "t5x.dataset": "get_dataset_at_step get_dataset_of_stream",
    "tasks.downstream": "with_mode",
    "mixtures.examples": "examples",
    "tasks.names": "description_of",
    "tasks.preprocessors": "prepend_mode",
    "cli.registration": "Registration",
    "tasks.registry": "mix register register_chat register_image_text",
    "tokenizers.by_name": "open_vocabulary",
    "tokenizers.hugging_face": "HuggingFaceVocabulary",
    "tokenizers.sentencepiece": "default_vocabulary",
    "tokenizers.special_ids": "check_round_trip embedding_rows id_shift",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

# `from ul2_tasks import *` imports all of these names, so it has those that need PyTorch or Transformers where that is installed.
_NEEDS = {
    "pytorch.group_trainer": ("torch", "transformers"),
    "pytorch.collator": (),
    "image_rows.dataset": ("torch",),
}
__all__ = [
    name
    for name, module in _MODULES.items()
    if all(map(importlib.util.find_spec, _NEEDS.get(module, ("torch",) if module.startswith("pytorch.") else ())))
]


def __getattr__(name: str) -> object:
    """A name of `_MODULES`, of the module that has it."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    folder, _, file = _MODULES[name].rpartition(".")
    importlib.import_module(f"{__name__}.{folder}")  # first, as ul2_tasks/tasks/__init__.py says why
    return getattr(importlib.import_module(f"{__name__}.{folder}.{file}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})


@wrapt.when_imported("seqio")
def _register(_: object) -> None:
    importlib.import_module("ul2_tasks.tasks.built_in")
