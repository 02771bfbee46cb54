"""`TaskLossTrainer`: Transformers' Trainer that logs the loss of each task, and can weigh these losses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ul2_tasks.converters.transformers import BESIDE_LABELS
from ul2_tasks.example_features import TASK_ID
from ul2_tasks.pytorch.task_loss import divisor, shifted, task_means, task_sums, token_losses, weights_of
from ul2_tasks.random_access.tasks import TaskInfo, products, task_weights

try:
    import torch
    import transformers
    from transformers.trainer_utils import EvalLoopOutput
except ImportError as error:
    raise ImportError(
        f"ul2_tasks.pytorch.task_trainer needs the packages torch, transformers and accelerate ({error});"
        " pip install 'ul2_tasks[torch]'"
    ) from error


class TaskLossTrainer(transformers.Trainer):
    """A `transformers.Trainer` whose logs have the loss of each denoiser, and which can train with a weight for each.

        converter = HuggingFaceFeatureConverter(task_id=True)
        dataset = UL2IterableDataset(mixture, lengths, feature_converter=converter, batch_size=8)
        TaskLossTrainer(model, arguments, train_dataset=dataset).train()

    **Logs** have beside `loss` the mean loss of each denoiser since the last log, such as `loss_r1` and `loss_s`; of several
    corpora also of each corpus and each task, `loss_web_corpus` and `loss_web_s`. Means are over all targets of these steps, of
    all microbatches and processes. Evaluation logs the same over all of the data, as `eval_loss_r1`.

    **The loss that trains** is Trainer's own, with the same gradients. With `loss_weights` it is

        L = sum(weight * loss) / sum(weight)        over the targets of an optimizer step

    of all microbatches and processes, and `eval_loss` is the same over all of the data. A target has the weight of its task, which
    is the product of those of its name, its denoiser and its corpus. So equal weights are the mean over the global batch.

    The `label_ids` that `compute_metrics` gets are two arrays, the labels and the tasks.
    """

    def __init__(
        self,
        *arguments: Any,
        tasks: Sequence[TaskInfo] | None = None,
        loss_weights: Mapping[str, float] | None = None,
        **settings: Any,
    ):
        """
        Args:
            arguments, settings: of `transformers.Trainer`.
            tasks: what `task_id` counts; by default those of the training data, or of the collator, or of the evaluation data.
            loss_weights: the weights of losses by the names of tasks, denoisers or corpora, such as {"s": 0.5}. A name without one
                has 1. None for Trainer's own loss.

        Raises:
            ValueError: there are no tasks; a name is unknown; a weight is not a number of at least 0; with weights there is another
                loss, that of `compute_loss_func` or of a model's router; or Liger kernels are on, which make no logits to measure.
        """
        super().__init__(*arguments, **settings)
        sources = self.train_dataset, self.data_collator, self.eval_dataset
        found = tasks or next(filter(None, map(_tasks_of, sources)), None)
        if not found:
            raise ValueError(
                "tasks must be given where neither the data nor the collator has some. Pass tasks=, such as"
                " UL2IterableDataset(..).tasks or examples(..).tasks."
            )
        if self.args.use_liger_kernel:
            raise ValueError("use_liger_kernel must be False, got True: without logits the losses of tasks cannot be measured.")
        config = getattr(self.model, "config", None)
        self._decoder_only = not getattr(config, "is_encoder_decoder", False)
        self._trained = self._tasks = tuple(found)  # the tasks of training, and those of the data that is read
        self._loss_weights = loss_weights
        if loss_weights is not None:
            task_weights(self._tasks, loss_weights)  # which checks them
            if self.compute_loss_func is not None:
                raise ValueError("compute_loss_func must be None with loss_weights, got a function. Leave one of them out.")
            if getattr(config, "output_router_logits", False):
                raise ValueError("model.config.output_router_logits must be False with loss_weights, got True.")
            self.model_accepts_loss_kwargs = True  # what Trainer cannot know: the loss is that of the whole step
        self.label_names = ["labels", TASK_ID]  # columns to keep
        self._sums: torch.Tensor | None = None  # since the last log
        self._evaluated: torch.Tensor | None = None

    def get_batch_samples(self, epoch_iterator: Iterator, num_batches: int, device: torch.device) -> tuple[list, Any]:
        """The batches of an optimizer step, and Trainer's count of its targets, or the sum of their weights in all processes."""
        batches, count = super().get_batch_samples(epoch_iterator, num_batches, device)
        if self._loss_weights is None:
            return batches, count
        weights = [self._weights_of(self._task_id(batch)).sum().to(self.args.device) for batch in batches]
        return batches, self.accelerator.reduce(sum(weights, torch.zeros([], device=self.args.device)), "sum")

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> Any:
        """The loss of a batch, or its part in the weighted loss of its step."""
        task_id, labels = self._task_id(inputs), inputs["labels"]
        given = {name: values for name, values in inputs.items() if name not in BESIDE_LABELS}
        if self._loss_weights is None:
            loss, outputs = super().compute_loss(model, given, True, num_items_in_batch)
            with torch.no_grad():
                losses = self._losses(outputs, labels)
        else:
            del given["labels"]
            outputs = model(**given)
            losses, weights = self._losses(outputs, labels), self._weights_of(task_id)
            if model.training and num_items_in_batch is not None:
                # The gradients of processes are averaged, and these are parts of a sum.
                loss = (losses * weights).sum() * self.accelerator.num_processes / divisor(torch.as_tensor(num_items_in_batch))
            else:
                loss = (losses * weights).sum() / divisor(weights.sum())
        self._add(task_sums(losses.detach(), task_id.to(losses.device), len(self._tasks)), model.training)
        return (loss, outputs) if return_outputs else loss

    def log(self, logs: dict[str, float], *arguments: Any, **settings: Any) -> None:
        """Logs what Trainer does, and the mean loss of each task since the last log."""
        if "loss" in logs and self._sums is not None:
            logs.update(self._means(self.accelerator.reduce(self._sums, "sum"), "loss"))
            self._sums = None
        super().log(logs, *arguments, **settings)

    def evaluation_loop(
        self,
        dataloader: torch.utils.data.DataLoader,
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> EvalLoopOutput:
        """Evaluates as Trainer does, with the mean loss of each task over all targets of the data, by the tasks of this data."""
        self._evaluated, self._tasks = None, tuple(_tasks_of(dataloader.dataset) or self._trained)
        try:
            output = super().evaluation_loop(dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix)
            if self._evaluated is None:  # there are no labels
                return output
            metrics = {**(output.metrics or {}), **self._means(self._evaluated, f"{metric_key_prefix}_loss")}
            if self._loss_weights is not None:
                losses, counts = self._evaluated.T
                weights = torch.tensor(products(self._tasks, self._loss_weights)).to(losses)
                metrics[f"{metric_key_prefix}_loss"] = ((losses * weights).sum() / divisor((counts * weights).sum())).item()
            return output._replace(metrics=metrics)
        finally:
            self._tasks = self._trained

    def prediction_step(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
        """See Trainer. Labels without their tasks, of which it would measure nothing, are an error."""
        if "labels" in inputs:
            self._task_id(inputs)
        return super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)

    def _losses(self, outputs: Any, labels: torch.Tensor) -> torch.Tensor:
        logits = outputs["logits"] if isinstance(outputs, dict) else outputs[1]
        smoothing = self.args.label_smoothing_factor
        return token_losses(logits, labels, decoder_only=self._decoder_only, label_smoothing=smoothing)

    def _weights_of(self, task_id: torch.Tensor) -> torch.Tensor:
        return weights_of(task_id, torch.tensor(products(self._tasks, self._loss_weights or {})))

    def _add(self, sums: torch.Tensor, training: bool) -> None:
        """Adds the sums of rows, [B, tasks, 2]; of an evaluation those of all processes, without rows that fill the last batch."""
        if training:
            self._sums = sums.sum(0) if self._sums is None else self._sums + sums.sum(0)
        else:
            found = self.accelerator.gather_for_metrics(sums).sum(0)
            self._evaluated = found if self._evaluated is None else self._evaluated + found

    def _means(self, sums: torch.Tensor, name: str) -> dict[str, float]:
        """The means of tasks, without that of all, which Trainer has."""
        return {key: mean for key, mean in task_means(sums, self._tasks, name).items() if key != name}

    def _task_id(self, batch: Mapping[str, Any]) -> torch.Tensor:
        """The task of each label, shifted as the model's outputs are compared to them."""
        if TASK_ID not in batch:
            raise ValueError(
                f"a batch must have {TASK_ID!r}, got {sorted(batch)}. Pass task_id=True to the converter or the collator."
            )
        return shifted(batch[TASK_ID], self._decoder_only)


def _tasks_of(data: Any) -> Sequence[TaskInfo] | None:
    """The tasks of a dataset or a collator; of a part of a dataset, such as `torch.utils.data.Subset`, those of the whole."""
    return getattr(data, "tasks", None) or getattr(getattr(data, "dataset", None), "tasks", None)
