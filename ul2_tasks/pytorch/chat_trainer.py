"""`SpanTrainer`: Transformers' Trainer with the loss of conversations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ul2_tasks.example_features import IGNORED
from ul2_tasks.pytorch.span_loss import EQUAL, SpanWeights, span_counts, span_sums

try:
    import torch
    import transformers
    from transformers.trainer_utils import EvalLoopOutput
except ImportError as error:
    raise ImportError(
        f"ul2_tasks.pytorch.chat_trainer needs the packages torch, transformers and accelerate ({error});"
        " pip install 'ul2_tasks[torch]'"
    ) from error


class SpanTrainer(transformers.Trainer):
    """A `transformers.Trainer` whose loss weighs the mean over reasoning, the mean over answers, and the mean over other spans.

        dataset = UL2IterableDataset("mine_chat", {"tokens": 4096}, feature_converter=HuggingFaceChatConverter())
        SpanTrainer(model, arguments, train_dataset=dataset, span_weights=SpanWeights(answer=2.0)).train()

    Batches have `span_id` beside `labels`. `HuggingFaceChatConverter` makes them of conversations, for a decoder, and
    `HuggingFaceFeatureConverter(.., span_id=True)` of replies, for a decoder, or for an encoder and a decoder. A token is learned
    where its label is not -100 and its span is above 0.

    The means are over all tokens of an optimizer's step: of all its accumulation steps and processes. So the gradient is that of
    the undivided batch. Where a span has no token, its mean is 0.

    **Logs** have beside `loss`, for `reasoning`, `answer`, and `other` where there are any:

    * `reasoning_tokens`, how many were learned since the last log.
    * `reasoning_loss`, its mean over the steps that had any.
    * `reasoning_weight`, how much of it is in `loss`: the weight, times the share of the steps that had any. `loss` is the sum of
      weight times loss.

    Evaluation has the same as `eval_reasoning_tokens` and so on, with means over all tokens of the data. The `label_ids` that
    `compute_metrics` gets are two, the labels and the span ids.

    With several processes the rows of an iterable dataset are shared out here, as in any Trainer: one of your own must give all of
    them in each process, as `UL2IterableDataset` does here.

    Not supported: context parallelism, which divides a row.
    """

    def __init__(self, *arguments: Any, span_weights: SpanWeights = EQUAL, **settings: Any):
        """
        Args:
            arguments, settings: of `transformers.Trainer`.
            span_weights: of the spans in the loss.

        Raises:
            ValueError: `compute_loss_func` is given, which would compute another loss; or the model adds a loss of its router,
                which this loss has no place for.
        """
        super().__init__(*arguments, **settings)
        if self.compute_loss_func is not None:
            raise ValueError("compute_loss_func is given, but the loss of a SpanTrainer is its own; use transformers.Trainer")
        if getattr(getattr(self.model, "config", None), "output_router_logits", False):
            raise ValueError("the model's configuration has output_router_logits, but its loss is not added here; set it to False")
        # Both tell Trainer what it could not know: the loss is that of the whole step, and `span_id` is no unknown column.
        self.model_accepts_loss_kwargs = True
        self.label_names = ["labels", "span_id"]
        self._has_encoder = bool(getattr(getattr(self.model, "config", None), "is_encoder_decoder", False))
        self._weights = torch.tensor(span_weights, dtype=torch.float32, device=self.args.device)
        self._steps = 0  # since the last log, as are the next three
        self._steps_with, self._tokens, self._means = self._zeros(), self._zeros(), self._zeros()
        self._sums, self._counts = self._zeros(), self._zeros()  # of an evaluation

    def get_batch_samples(self, epoch_iterator: Iterator, num_batches: int, device: torch.device) -> tuple[list, Any]:
        """The batches of an optimizer's step, and how many tokens each span has in all of them, on all processes."""
        batches, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        counts = self._zeros()
        for batch in batches:
            counts += span_counts(self._labels_and_spans(batch)[1]).to(counts.device)
        counts = self.accelerator.reduce(counts, "sum")
        self._steps += bool(batches)
        self._steps_with += counts > 0
        self._tokens += counts
        return batches, counts

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> Any:
        """What a batch adds to the loss of its step; in evaluation, and where there are no counts of a step, its own loss."""
        labels, span_id = self._labels_and_spans(inputs)
        outputs = model(**{name: value for name, value in inputs.items() if name not in self.label_names})
        losses = self._losses(outputs.logits[:, : labels.shape[1]], labels, span_id)
        sums = span_sums(losses, span_id)
        if model.training and isinstance(num_items_in_batch, torch.Tensor):
            means = sums.sum(0) / num_items_in_batch.clamp(min=1)
            self._means += means.detach()
            # The gradients of processes are averaged, and these are parts of a sum.
            means = means * self.accelerator.num_processes
        else:
            counts = span_sums(torch.ones_like(losses), span_id)
            if not model.training:
                self._add_evaluated(sums.detach(), counts)
            means = sums.sum(0) / counts.sum(0).clamp(min=1)
        loss = (self._weights * means).sum()
        return (loss, outputs) if return_outputs else loss

    def log(self, logs: dict[str, float], *arguments: Any, **settings: Any) -> None:
        """Logs what Trainer does, with what is told of each span of the steps since the last time."""
        if "loss" in logs and self._steps:
            means = self.accelerator.reduce(self._means, "sum") / self._steps_with.clamp(min=1)
            logs.update(_told("", means, self._tokens, self._weights * self._steps_with / self._steps))
            self._steps = 0
            self._steps_with, self._tokens, self._means = self._zeros(), self._zeros(), self._zeros()
        super().log(logs, *arguments, **settings)

    def evaluation_loop(
        self,
        dataloader: torch.utils.data.DataLoader,
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> EvalLoopOutput:
        """Evaluates as Trainer does, with means over all tokens of the data, and what is told of each span."""
        self._sums, self._counts = self._zeros(), self._zeros()
        output = super().evaluation_loop(dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix)
        means = self._sums / self._counts.clamp(min=1)
        told = _told(f"{metric_key_prefix}_", means, self._counts, self._weights * (self._counts > 0))
        loss = (self._weights * means).sum().item()
        return output._replace(metrics={**(output.metrics or {}), f"{metric_key_prefix}_loss": loss, **told})

    def _losses(self, logits: torch.Tensor, labels: torch.Tensor, span_id: torch.Tensor) -> torch.Tensor:
        """[B, tokens] float32, of what is learned; 0 elsewhere, where nothing is computed."""
        is_learned = span_id > 0
        losses = torch.nn.functional.cross_entropy(
            logits[is_learned].float(),
            labels[is_learned],
            reduction="none",
            label_smoothing=self.args.label_smoothing_factor,
        )
        return losses.new_zeros(labels.shape).masked_scatter(is_learned, losses)

    def _add_evaluated(self, sums: torch.Tensor, counts: torch.Tensor) -> None:
        """Adds what the rows of all processes have, [B, 3] each, without the rows that fill up the last batch."""
        sums, counts = self.accelerator.gather_for_metrics((sums, counts))
        self._sums += sums.sum(0)
        self._counts += counts.sum(0)

    def _labels_and_spans(self, batch: Mapping[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        """The labels, shifted as the model's outputs are compared to them, and the span of each that is learned, 0 elsewhere."""
        if missing := [name for name in self.label_names if name not in batch]:
            raise ValueError(
                f"a batch has {sorted(batch)}, and lacks {missing}; convert conversations with HuggingFaceChatConverter(), and"
                " replies with HuggingFaceFeatureConverter(.., span_id=True)"
            )
        labels, span_id = (batch[name] if self._has_encoder else batch[name][:, 1:] for name in self.label_names)
        return labels, torch.where(labels == IGNORED, 0, span_id)

    def _zeros(self) -> torch.Tensor:
        return torch.zeros(len(SpanWeights._fields), device=self.args.device)


def _told(prefix: str, losses: torch.Tensor, tokens: torch.Tensor, weights: torch.Tensor) -> dict[str, float]:
    """What is told of each span, [3] each; there is no loss where there are no tokens."""
    columns: Sequence[list[float]] = [tensor.tolist() for tensor in (losses, tokens, weights)]
    told: dict[str, float] = {}
    for name, loss, count, weight in zip(SpanWeights._fields, *columns):
        if count:
            told[f"{prefix}{name}_loss"] = loss
        if count or name != "other":
            told |= {f"{prefix}{name}_tokens": int(count), f"{prefix}{name}_weight": weight}
    return told
