"""`LossGroupTrainer`: Transformers' Trainer with the loss of conversations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ul2_tasks.converters.transformers import BESIDE_LABELS
from ul2_tasks.example_features import IGNORED
from ul2_tasks.pytorch.group_loss import EQUAL, LossGroupWeights, group_counts, group_sums

try:
    import torch
    import transformers
    from transformers.trainer_utils import EvalLoopOutput
except ImportError as error:
    raise ImportError(
        f"ul2_tasks.pytorch.chat_trainer needs the packages torch, transformers and accelerate ({error});"
        " pip install 'ul2_tasks[torch]'"
    ) from error


class LossGroupTrainer(transformers.Trainer):
    """A `transformers.Trainer` whose loss is a weighted sum of a mean for reasoning, one for answers, and one for all other tokens.

        dataset = UL2IterableDataset("mine_chat", {"tokens": 4096}, feature_converter=HuggingFaceChatConverter())
        model = accept_packed_sequences(model)  # and remove_unused_columns=False in the arguments
        LossGroupTrainer(model, arguments, train_dataset=dataset, loss_group_weights=LossGroupWeights(answer=2.0)).train()

    Batches need `span_id` beside `labels`. `HuggingFaceChatConverter` makes them of conversations, for a decoder, and
    `HuggingFaceFeatureConverter(.., span_id=True)` of prompts and completions, for a decoder, or for an encoder and a decoder. A
    token is trained on where its label is not -100 and its loss group is above 0.

    The means are over all tokens of an optimizer step: of all accumulation steps and processes. So the gradient is that of the
    global batch. A loss group without a token has the mean 0.

    **Logs** have beside `loss`, for `reasoning`, `answer`, and `other` where there are any:

    * `reasoning_tokens`, how many tokens were trained on since the last log.
    * `reasoning_loss`, their mean loss over the steps that had any.
    * `reasoning_weight`, how much of it is in `loss`: the weight, times the fraction of the steps that had any. `loss` is the sum
      of weight times loss.

    Evaluation logs the same as `eval_reasoning_tokens` and so on, with means over all tokens of the data. The `label_ids` that
    `compute_metrics` gets are two arrays, the labels and the loss groups.

    With several processes, Trainer itself splits the rows of an iterable dataset among them. A dataset of your own must give all
    rows in each process, as `UL2IterableDataset` does here.

    Not supported: context parallelism, which divides a row.
    """

    def __init__(self, *arguments: Any, loss_group_weights: LossGroupWeights = EQUAL, **settings: Any):
        """
        Args:
            arguments, settings: of `transformers.Trainer`.
            loss_group_weights: the weight of each loss group.

        Raises:
            ValueError: there is a `compute_loss_func`, which would compute another loss; or the model adds a loss of its router,
                which this loss does not support.
        """
        super().__init__(*arguments, **settings)
        if self.compute_loss_func is not None:
            raise ValueError(
                "compute_loss_func must be None for a LossGroupTrainer, got a function. Use transformers.Trainer for it."
            )
        if getattr(getattr(self.model, "config", None), "output_router_logits", False):
            raise ValueError("model.config.output_router_logits must be False, got True: a router's loss is not added here.")
        # What Trainer cannot know: the loss is that of the whole step, and `span_id` is a column to keep.
        self.model_accepts_loss_kwargs = True
        self.label_names = ["labels", "span_id"]
        self._has_encoder = bool(getattr(getattr(self.model, "config", None), "is_encoder_decoder", False))
        self._weights = torch.tensor(loss_group_weights, dtype=torch.float32, device=self.args.device)
        self._steps = 0  # since the last log, as are the next three
        self._steps_with, self._tokens, self._means = self._zeros(), self._zeros(), self._zeros()
        self._sums, self._counts = self._zeros(), self._zeros()  # of an evaluation

    def get_batch_samples(self, epoch_iterator: Iterator, num_batches: int, device: torch.device) -> tuple[list, Any]:
        """The batches of an optimizer step, and the number of tokens of each loss group in them, in all processes."""
        batches, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        counts = self._zeros()
        for batch in batches:
            counts += group_counts(self._labels_and_groups(batch)[1]).to(counts.device)
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
        """The part of a batch in the loss of its step; in evaluation, and without the counts of a step, its own loss."""
        labels, span_id = self._labels_and_groups(inputs)
        outputs = model(**{name: value for name, value in inputs.items() if name not in ("labels", *BESIDE_LABELS)})
        losses = self._losses(outputs.logits[:, : labels.shape[1]], labels, span_id)
        sums = group_sums(losses, span_id)
        if model.training and isinstance(num_items_in_batch, torch.Tensor):
            means = sums.sum(0) / num_items_in_batch.clamp(min=1)
            self._means += means.detach()
            # The gradients of processes are averaged, and these are parts of a sum.
            means = means * self.accelerator.num_processes
        else:
            counts = group_sums(torch.ones_like(losses), span_id)
            if not model.training:
                self._add_evaluated(sums.detach(), counts)
            means = sums.sum(0) / counts.sum(0).clamp(min=1)
        loss = (self._weights * means).sum()
        return (loss, outputs) if return_outputs else loss

    def log(self, logs: dict[str, float], *arguments: Any, **settings: Any) -> None:
        """Logs what Trainer does, and the metrics of each loss group since the last log."""
        if "loss" in logs and self._steps:
            means = self.accelerator.reduce(self._means, "sum") / self._steps_with.clamp(min=1)
            logs.update(_metrics("", means, self._tokens, self._weights * self._steps_with / self._steps))
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
        """Evaluates as Trainer does, with means over all tokens of the data, and the metrics of each loss group."""
        self._sums, self._counts = self._zeros(), self._zeros()
        output = super().evaluation_loop(dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix)
        means = self._sums / self._counts.clamp(min=1)
        metrics = _metrics(f"{metric_key_prefix}_", means, self._counts, self._weights * (self._counts > 0))
        loss = (self._weights * means).sum().item()
        return output._replace(metrics={**(output.metrics or {}), f"{metric_key_prefix}_loss": loss, **metrics})

    def _losses(self, logits: torch.Tensor, labels: torch.Tensor, span_id: torch.Tensor) -> torch.Tensor:
        """[B, tokens] float32, of the tokens that are trained on; 0 elsewhere, where nothing is computed."""
        is_trained = span_id > 0
        losses = torch.nn.functional.cross_entropy(
            logits[is_trained].float(),
            labels[is_trained],
            reduction="none",
            label_smoothing=self.args.label_smoothing_factor,
        )
        return losses.new_zeros(labels.shape).masked_scatter(is_trained, losses)

    def _add_evaluated(self, sums: torch.Tensor, counts: torch.Tensor) -> None:
        """Adds the sums and counts of the rows of all processes, [B, 3] each, without the rows that fill the last batch."""
        sums, counts = self.accelerator.gather_for_metrics((sums, counts))
        self._sums += sums.sum(0)
        self._counts += counts.sum(0)

    def _labels_and_groups(self, batch: Mapping[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        """The labels, shifted as the model's outputs are compared to them, and the loss group of each, 0 where it is ignored."""
        if missing := [name for name in self.label_names if name not in batch]:
            raise ValueError(
                f"a batch must have {missing}, got {sorted(batch)}. Convert NAME_chat with HuggingFaceChatConverter(), and"
                " NAME_prompt_completion with HuggingFaceFeatureConverter(.., span_id=True)."
            )
        labels, span_id = (batch[name] if self._has_encoder else batch[name][:, 1:] for name in self.label_names)
        return labels, torch.where(labels == IGNORED, 0, span_id)

    def _zeros(self) -> torch.Tensor:
        return torch.zeros(len(LossGroupWeights._fields), device=self.args.device)


def _metrics(prefix: str, losses: torch.Tensor, tokens: torch.Tensor, weights: torch.Tensor) -> dict[str, float]:
    """The metrics of each loss group, of [3] each; there is no loss where there are no tokens."""
    columns: Sequence[list[float]] = [tensor.tolist() for tensor in (losses, tokens, weights)]
    metrics: dict[str, float] = {}
    for name, loss, count, weight in zip(LossGroupWeights._fields, *columns):
        if count:
            metrics[f"{prefix}{name}_loss"] = loss
        if count or name != "other":
            metrics |= {f"{prefix}{name}_tokens": int(count), f"{prefix}{name}_weight": weight}
    return metrics
