"""Conversations in Megatron's own training: `AlignedGPTDataset`, tokens with their loss masks, and the loss of each group."""

from __future__ import annotations

import copy

import numpy as np

from ul2_tasks.pytorch.group_losses import GroupLosses
from ul2_tasks.random_access.token_groups import TokenGroups

try:
    import torch
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
    from megatron.core.datasets.indexed_dataset import IndexedDataset
    from megatron.core.datasets.utils import Split
except ImportError as error:
    raise ImportError(f"ul2_tasks.pytorch.megatron needs the packages torch and megatron-core ({error})") from error

__all__ = ["AlignedGPTDataset", "GroupLosses", "TokenGroups"]

TOKENS, LOSS_MASK, SPAN = "_tokens", "_lossmask", "_span"
_REMEDY = "Copy or write the three pairs of the export again."


class AlignedGPTDataset(GPTDataset):
    """Megatron's `GPTDataset` with the loss masks and loss groups of three datasets, PREFIX_tokens, _lossmask and _span.

        BlendedMegatronDatasetBuilder(AlignedGPTDataset, sizes, is_built_on_rank, config).build()

    The paths of the configuration, as `--data-path` passes them, are PREFIX. A sample has the features of Megatron's, and:

    * `loss_mask`: 1 where the label is trained on, float32. It is the mask of the export, shifted as the labels are, and 0 where
      Megatron masks a label itself: in padding, and after an EOD with `eod_mask_loss`.
    * `span_id`: the loss group of the label, 0 where the mask is 0, int64.

    Samples are those of `GPTDataset` over PREFIX_tokens with the same configuration, in the same order. Megatron caches its indices
    in the usual folder, under the name of this class.

    A sample has `sequence_length` tokens of the stream, and begins and ends anywhere in a conversation. With `reset_position_ids`
    and `reset_attention_mask` no conversation attends to the one before it.

    Before an index is built, the types, lengths and documents of the three pairs are compared. `ul2 verify` reads everything.
    """

    def __init__(
        self,
        indexed_dataset: IndexedDataset,
        dataset_path: str | None,
        indexed_indices: np.ndarray,
        num_samples: int | None,
        index_split: Split,
        config: GPTDatasetConfig,
    ):
        """
        Args:
            indexed_dataset, dataset_path, indexed_indices, num_samples, index_split, config: those of `GPTDataset`, which
                Megatron's builder passes; the path is PREFIX.

        Raises:
            ValueError: the three datasets have other lengths or documents. The error names the file.
        """
        mask, span = (_opened(dataset_path, suffix, config) for suffix in (LOSS_MASK, SPAN))
        for suffix, dataset in ((LOSS_MASK, mask), (SPAN, span)):
            _check_aligned(f"{dataset_path}{TOKENS}", indexed_dataset, f"{dataset_path}{suffix}", dataset)
        super().__init__(indexed_dataset, dataset_path, indexed_indices, num_samples, index_split, config)
        self._mask, self._span = self._over(mask), self._over(span)

    @staticmethod
    def build_low_level_dataset(dataset_path: str, config: GPTDatasetConfig) -> IndexedDataset:
        """Opens the tokens of an export.

        Args:
            dataset_path: PREFIX.
            config: of the dataset.

        Returns:
            PREFIX_tokens.
        """
        return GPTDataset.build_low_level_dataset(f"{dataset_path}{TOKENS}", config)

    def __getitem__(self, idx: int | None) -> dict[str, torch.Tensor]:
        """
        Args:
            idx: the index of the sample; None for one that fills a batch.

        Returns:
            `tokens`, `labels`, `loss_mask`, `position_ids` and `span_id`, [sequence_length] each; and `attention_mask`, if the
            configuration has `create_attention_mask`.
        """
        sample = super().__getitem__(idx)
        is_trained = (sample["loss_mask"] > 0) & (self._of_labels(self._mask, idx) > 0)
        span_id = self._of_labels(self._span, idx)
        return {**sample, "loss_mask": is_trained.float(), "span_id": torch.where(is_trained, span_id, 0)}

    def _over(self, dataset: IndexedDataset) -> GPTDataset:
        """The same samples of another of the three datasets, padded with 0. The indices are shared."""
        other = copy.copy(self)
        other.dataset, other._pad_token_id = dataset, 0
        return other

    def _of_labels(self, values: GPTDataset, idx: int | None) -> torch.Tensor:
        """[sequence_length] int64, the values of a sample's labels; the label after the last token of the sample has none."""
        sample, _ = values._query_document_sample_shuffle_indices(idx or 0)
        following = np.zeros(self.config.sequence_length, np.int64)
        following[: len(sample) - 1] = sample[1:]
        return torch.from_numpy(following)


def _opened(prefix: str | None, suffix: str, config: GPTDatasetConfig) -> IndexedDataset:
    # The sizes and types in Megatron's configuration are those of tokens.
    config = copy.copy(config)
    config.sequences_per_dataset = config.token_dtype_code = None
    return GPTDataset.build_low_level_dataset(f"{prefix}{suffix}", config)


def _check_aligned(path: str, tokens: IndexedDataset, other_path: str, other: IndexedDataset) -> None:
    for what in ("sequence_lengths", "document_indices"):
        expected, found = getattr(tokens, what), getattr(other, what)
        if len(expected) != len(found):
            raise ValueError(f"{other_path} must have {len(expected)} {what}, as {path} has, got {len(found)}. {_REMEDY}")
        different = np.flatnonzero(expected != found)
        if len(different):
            first = different[0]
            raise ValueError(
                f"{what}[{first}] of {other_path} must be {expected[first]}, as in {path}, got {found[first]}. {_REMEDY}"
            )
