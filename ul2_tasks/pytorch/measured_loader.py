"""`MeasuredLoader`: how long a training loop waits for its data, and how much it reads.

    the loop     ask       batch                 ask   batch
    time          |---------|=====================|-----|=====..
                   loading   step, log, evaluate   loading

`seconds` is from the first ask to the last batch. OLMo-core and torchtitan call the first part "data loading", too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

_READY = 1e-3  # seconds in which a batch comes that a worker has prefetched
# The first of these that a batch has says how many tokens are no padding: where it is not 0, but for those of `_TOKENS`.
_OF_INPUTS = ("segment_ids", "encoder_segment_ids", "attention_mask", "encoder_input_tokens", "sample_lens", "input_ids")
_OF_TARGETS = ("decoder_segment_ids", "decoder_attention_mask", "decoder_target_tokens", "labels", "packed_label_ids")
_TOKENS: dict[str, Callable[[Any], Any]] = {
    "labels": lambda labels: (labels != -100).sum(),
    "sample_lens": lambda lengths: lengths.sum(),  # of image-text rows: how many tokens each sample has
    "input_ids": lambda ids: ids.size if isinstance(ids, np.ndarray) else ids.numel(),
    "packed_label_ids": lambda ids: ids.size if isinstance(ids, np.ndarray) else ids.numel(),
}


class MeasuredLoader:
    """Iterates a DataLoader, or any other iterable of batches, and measures how long the loop waits for them.

        loader = MeasuredLoader(torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=2))
        for step, batch in enumerate(loader):
            loss = train(batch)
            if step % 100 == 99:
                print(loader.metrics())

    It gives the same batches, and starts no thread and no process. All other attributes are those of the loader, such as
    `state_dict`. Wrap what `accelerator.prepare` returns, not what it is given. An iterator can be wrapped, too: then `next` takes
    its next batch.

    Attributes:
        loader: what is iterated.
        seconds: from when the first batch was asked for until the last one was there.
        seconds_loading: how much of it the loop waited for batches. The first batch of each pass also starts the workers.
        batches, rows: how many were read. A row is an example, or a packed sequence.
        batches_ready: how many batches were there within a millisecond, as those are that a worker has prefetched.
        input_tokens, target_tokens: how many tokens were read, without padding where batches have masks or segment ids. Target
            tokens are those of the decoder; of a decoder alone, those with a label, which are among the input tokens, too.
    """

    def __init__(self, loader: Iterable[Any]):
        """
        Raises:
            ValueError: nothing can be iterated there.
        """
        if not (hasattr(loader, "__iter__") or hasattr(loader, "__next__")):
            raise ValueError(f"loader must be an iterable of batches, got {loader!r:.100}. Pass a DataLoader, or an iterator.")
        self.loader = loader
        self.seconds = self.seconds_loading = 0.0
        self.batches = self.batches_ready = self.rows = 0
        self._inputs: Any = 0  # numbers, or tensors of an accelerator, which are not waited for
        self._targets: Any = 0
        self._arrived: float | None = None  # when the last batch was there
        self._before: Sequence[float] = (0,) * 7

    @property
    def input_tokens(self) -> int:
        return int(self._inputs)

    @property
    def target_tokens(self) -> int:
        return int(self._targets)

    def metrics(self) -> dict[str, float]:
        """Returns what was measured since the last call, for logs; nothing if there was no batch.

        Returns:
            `data/loading_fraction`, the fraction of the time that the loop waited; `data/loading_seconds`, the mean per batch;
            `data/ready_fraction`, of the batches; `data/batches_per_second`, `data/rows_per_second`; and
            `data/input_tokens_per_second` and `data/target_tokens_per_second`, where batches have such tokens.
        """
        times = (self.seconds, self.seconds_loading, self.batches, self.batches_ready)
        totals = (*times, self.rows, self.input_tokens, self.target_tokens)
        seconds, loading, batches, ready, *read = (now - before for now, before in zip(totals, self._before))
        self._before = totals
        if not batches:
            return {}
        seconds = max(seconds, 1e-9)  # a clock may not move
        rates = dict(zip(("rows", "input_tokens", "target_tokens"), read))
        return {
            "data/loading_fraction": loading / seconds,
            "data/loading_seconds": loading / batches,
            "data/ready_fraction": ready / batches,
            "data/batches_per_second": batches / seconds,
            **{f"data/{name}_per_second": count / seconds for name, count in rates.items() if count},
        }

    def __iter__(self) -> Iterator[Any]:
        asked = time.perf_counter()
        iterator = iter(self.loader)
        return self._measured(iterator, time.perf_counter() - asked)

    def __next__(self) -> Any:
        asked = time.perf_counter()
        batch = next(self.loader)  # type: ignore[call-overload]  # where it is an iterator
        self._add(batch, time.perf_counter(), asked)
        return batch

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]  # where it has a length

    def __getattr__(self, name: str) -> Any:
        if name == "loader" or name.startswith("__"):  # of a copy that has no attributes yet
            raise AttributeError(name)
        return getattr(self.loader, name)

    def _measured(self, iterator: Iterator[Any], seconds_to_start: float) -> Iterator[Any]:
        asked = time.perf_counter() - seconds_to_start
        for batch in iterator:
            self._add(batch, time.perf_counter(), asked)
            yield batch
            asked = time.perf_counter()

    def _add(self, batch: Any, arrived: float, asked: float) -> None:
        waited = arrived - asked
        self.seconds_loading += waited
        self.seconds += arrived - (asked if self._arrived is None else self._arrived)
        self._arrived = arrived
        self.batches += 1
        self.batches_ready += waited < _READY
        if hasattr(batch, "keys"):
            self.rows += _rows(batch)
            self._inputs = self._inputs + _tokens(batch, _OF_INPUTS)
            self._targets = self._targets + _tokens(batch, _OF_TARGETS)


def _rows(batch: Mapping[str, Any]) -> int:
    """How many rows a batch has. A single example, and an image-text row, has arrays of one dimension."""
    first = next((batch[key] for key in (*_OF_INPUTS, *_OF_TARGETS) if key in batch), None)
    return 0 if first is None else len(first) if len(np.shape(first)) > 1 else 1


def _tokens(batch: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    """How many tokens a batch has, by the first of these names that it has; of a tensor a tensor, which is not waited for."""
    key = next((name for name in names if name in batch), None)
    if key is None:
        return 0
    values = batch[key] if hasattr(batch[key], "is_cpu") else np.asarray(batch[key])
    return _TOKENS.get(key, lambda mask: (mask != 0).sum())(values)
