"""Conversations in Megatron's own training: `AlignedGPTDataset`, tokens with what is learned of them, and the loss of its spans."""

from __future__ import annotations

import copy

import numpy as np

from ul2_tasks.pytorch.span_loss import SpanWeights, span_counts, span_loss, span_sums

try:
    import torch
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
    from megatron.core.datasets.indexed_dataset import IndexedDataset
    from megatron.core.datasets.utils import Split
except ImportError as error:
    raise ImportError(f"ul2_tasks.megatron needs the packages torch and megatron-core ({error})") from error

__all__ = ["AlignedGPTDataset", "SpanWeights", "span_counts", "span_loss", "span_sums"]

TOKENS, LOSS_MASK, SPAN = "_tokens", "_lossmask", "_span"


class AlignedGPTDataset(GPTDataset):
    """Megatron's `GPTDataset` with the loss mask and the spans of a triple of datasets, PREFIX_tokens, _lossmask and _span.

        BlendedMegatronDatasetBuilder(AlignedGPTDataset, sizes, is_built_on_rank, config).build()

    The paths of the configuration, as `--data-path` gives them, are PREFIX. A sample has what Megatron's has, and:

    * `loss_mask`: 1 where the label is learned, float32. The mask of the triple, shifted as the labels are, and 0 where Megatron
      masks a label itself: in padding, and after an EOD with `eod_mask_loss`.
    * `span_id`: of the label, 0 where the mask is 0, int64.

    Samples are those of `GPTDataset` over PREFIX_tokens with the same configuration, in the same order. Megatron keeps its indices
    where it keeps those of others, under the name of this class.

    A sample has `sequence_length` tokens of the stream, and begins and ends anywhere in a conversation. With `reset_position_ids`
    and `reset_attention_mask` no conversation reads the one before it.
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
            indexed_dataset, dataset_path, indexed_indices, num_samples, index_split, config: of `GPTDataset`, which Megatron's
                builder gives; the path is PREFIX.

        Raises:
            ValueError: the three datasets have not the same lengths and documents.
        """
        mask, span = (_opened(dataset_path, suffix, config) for suffix in (LOSS_MASK, SPAN))
        for suffix, other in ((LOSS_MASK, mask), (SPAN, span)):
            _check_aligned(f"{dataset_path}{TOKENS}", indexed_dataset, f"{dataset_path}{suffix}", other)
        super().__init__(indexed_dataset, dataset_path, indexed_indices, num_samples, index_split, config)
        self._mask, self._span = self._over(mask), self._over(span)

    @staticmethod
    def build_low_level_dataset(dataset_path: str, config: GPTDatasetConfig) -> IndexedDataset:
        """The tokens of a triple.

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
            idx: the number of the sample; None for one that fills up a batch.

        Returns:
            `tokens`, `labels`, `loss_mask`, `position_ids` and `span_id`, [sequence_length] each; and `attention_mask`, where the
            configuration has `create_attention_mask`.
        """
        sample = super().__getitem__(idx)
        is_learned = (sample["loss_mask"] > 0) & (self._of_labels(self._mask, idx) > 0)
        span_id = self._of_labels(self._span, idx)
        return {**sample, "loss_mask": is_learned.float(), "span_id": torch.where(is_learned, span_id, 0)}

    def _over(self, dataset: IndexedDataset) -> GPTDataset:
        """The same samples of another dataset of the triple, padded with 0. The indices are shared."""
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
    # What Megatron was told of the sizes and types of datasets is of tokens.
    config = copy.copy(config)
    config.sequences_per_dataset = config.token_dtype_code = None
    return GPTDataset.build_low_level_dataset(f"{prefix}{suffix}", config)


def _check_aligned(path: str, tokens: IndexedDataset, other_path: str, other: IndexedDataset) -> None:
    for what in ("sequence_lengths", "document_indices"):
        expected, found = getattr(tokens, what), getattr(other, what)
        if len(expected) != len(found):
            raise ValueError(f"{other_path} has {len(found)} {what}, and {path} {len(expected)}: {_REMEDY}")
        different = np.flatnonzero(expected != found)
        if len(different):
            first = different[0]
            raise ValueError(f"{other_path} has {found[first]} in {what}[{first}], and {path} {expected[first]}: {_REMEDY}")


_REMEDY = "they are not of one export; copy the three pairs again, or write them again"
