"""Conversations in Megatron's own training: `AlignedGPTDataset`, tokens with their loss masks, and the loss of each group."""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Iterator, Mapping

import numpy as np
from absl import logging

from ul2_tasks.jobs.trial import in_words
from ul2_tasks.pytorch.group_loss import LossGroupWeights, group_counts, group_loss, group_sums
from ul2_tasks.pytorch.step_report import group_report, task_report

try:
    import torch
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
    from megatron.core.datasets.indexed_dataset import IndexedDataset
    from megatron.core.datasets.utils import Split
except ImportError as error:
    raise ImportError(f"ul2_tasks.megatron needs the packages torch and megatron-core ({error})") from error

__all__ = ["AlignedGPTDataset", "LossGroupWeights", "group_counts", "group_loss", "group_report", "group_sums", "task_report"]

TOKENS, LOSS_MASK, SPAN = SUFFIXES = "_tokens", "_lossmask", "_span"
_BLOCKS, _BLOCK = 16, 1 << 20  # of the values of a pair that are looked at, in bytes
_MOST_HASHED = 1 << 26  # bytes: hashing larger files would take seconds for each of many pairs
_checked: set[object] = set()  # a triple is opened for each of Megatron's splits


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

    **Checks** before an index is built: the type of the values of each pair, and the size of its `.bin`; that the three have the
    same lengths and documents; in 16 blocks of a megabyte, which is all of a mask of up to 16 MB, that masks are 0 or 1, that a
    token has a loss group where it is trained on and nowhere else, and that some token is trained on. Where the export's
    `manifest.json` is in the parent folder, the sizes of all six files, and the SHA-256 of those of up to 64 MB. `ul2 verify` reads
    everything.
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
            ValueError: the three datasets do not belong together, see above. The error names the file.
        """
        mask, span = (_opened(dataset_path, suffix, config) for suffix in (LOSS_MASK, SPAN))
        _check(str(dataset_path), {TOKENS: indexed_dataset, LOSS_MASK: mask, SPAN: span})
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


def _check(prefix: str, triple: Mapping[str, IndexedDataset]) -> None:
    """Raises a ValueError where the three pairs do not belong together, see `AlignedGPTDataset`."""
    files = [f"{prefix}{suffix}{ending}" for suffix in SUFFIXES for ending in (".bin", ".idx")]
    are_local = all(map(os.path.exists, files))  # those in object storage are Megatron's to reach
    state = prefix, [(os.path.getsize(file), os.stat(file).st_mtime_ns) for file in files] if are_local else None
    if are_local and str(state) in _checked:
        return
    for suffix, dataset in triple.items():
        _check_form(f"{prefix}{suffix}", suffix, dataset, are_local)
    for suffix in (LOSS_MASK, SPAN):
        _check_aligned(f"{prefix}{TOKENS}", triple[TOKENS], f"{prefix}{suffix}", triple[suffix])
    _check_values(prefix, triple[LOSS_MASK], triple[SPAN])
    if are_local:
        _check_listed(prefix, files)
        _checked.add(str(state))


def _check_form(path: str, suffix: str, dataset: IndexedDataset, is_local: bool) -> None:
    dtype = np.dtype(dataset.index.dtype)
    if (dtype == np.uint8) != (suffix != TOKENS) or dtype.kind not in "iu":
        expected = "token ids, such as int32" if suffix == TOKENS else "uint8"
        raise ValueError(f"{path} must have values of {expected}, got {dtype}. {_REMEDY}")
    values = int(dataset.sequence_lengths.sum(dtype=np.int64)) * dtype.itemsize
    if is_local and (size := os.path.getsize(f"{path}.bin")) != values:
        raise ValueError(f"{path}.bin must have {values} bytes, as {path}.idx lists, got {size}. {_REMEDY}")


def _check_values(prefix: str, mask: IndexedDataset, span: IndexedDataset) -> None:
    trained = checked = 0
    for start, stop in _blocks(int(mask.sequence_lengths.sum(dtype=np.int64))):
        masks, spans = (pair.bin_reader.read(np.uint8, stop - start, start) for pair in (mask, span))
        if (masks > 1).any():
            place = int(np.argmax(masks > 1))
            raise ValueError(f"{prefix}{LOSS_MASK} must be 0 or 1, got {masks[place]} for token {start + place}. {_REMEDY}")
        if (differ := masks != (spans > 0)).any():
            place = int(np.argmax(differ))
            raise ValueError(
                f"{prefix}{SPAN} must be above 0 exactly where {prefix}{LOSS_MASK} is 1, got {spans[place]} and {masks[place]} for"
                f" token {start + place}. {_REMEDY}"
            )
        trained, checked = trained + int(masks.sum(dtype=np.int64)), checked + len(masks)
    if not trained:
        raise ValueError(f"{prefix}{LOSS_MASK} must be 1 for some token, got 0 for all of {checked} checked. {_REMEDY}")


def _blocks(values: int) -> Iterator[tuple[int, int]]:
    """Ranges of values at equal distances; all values where there are few."""
    count = min(_BLOCKS, -(-values // _BLOCK))
    for start in np.linspace(0, max(values - _BLOCK, 0), count).astype(np.int64).tolist():
        yield start, min(start + _BLOCK, values)


def _check_listed(prefix: str, files: list[str]) -> None:
    """Compares the files with the manifest of their export, if that is in the parent folder."""
    folder, shard = os.path.split(os.path.abspath(prefix))
    path = os.path.join(os.path.dirname(folder), "manifest.json")
    if not os.path.exists(path):
        return
    with open(path, encoding="utf-8") as file:
        manifest = json.load(file)
    if not isinstance(manifest, dict) or manifest.get("kind") != "conversations":
        return  # of something else
    if words := in_words(manifest.get("arguments", {})):
        logging.warning("%s is %s", os.path.dirname(folder), words)
    splits = [split for name, split in manifest["splits"].items() if split.get("folder", name) == os.path.basename(folder)]
    listed = {
        entry["file"]: entry for split in splits for one in split["shards"] if one["shard"] == shard for entry in one["files"]
    }
    for name in files:
        entry, size = listed.get(os.path.basename(name)), os.path.getsize(name)
        if entry is None:
            raise ValueError(f"{name} must be listed in {path}, got no entry. {_REMEDY}")
        if entry["bytes"] != size:
            raise ValueError(f"{name} must have {entry['bytes']} bytes, as {path} lists, got {size}. {_REMEDY}")
        if size <= _MOST_HASHED and (found := _sha256(name)) != entry["sha256"]:
            raise ValueError(
                f"{name} must have the SHA-256 {entry['sha256'][:16]}.., as {path} lists, got {found[:16]}... {_REMEDY}"
            )


def _sha256(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


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


_REMEDY = "Copy or write the three pairs of the export again."
