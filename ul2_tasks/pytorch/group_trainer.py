"""A Trainer of Transformers that logs the loss of each group of labels, and can weigh these losses; and its mix-in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ul2_tasks.example_features import IGNORED, LOSS_WEIGHT, TASK_ID
from ul2_tasks.extras import needs
from ul2_tasks.models.transformers import BESIDE_LABELS
from ul2_tasks.pytorch.group_losses import GroupLosses
from ul2_tasks.random_access.tasks import TaskInfo
from ul2_tasks.random_access.token_groups import TokenGroups

with needs("GroupLossTrainer", "torch"):
    import torch
    import transformers
    from transformers.trainer_utils import EvalLoopOutput


class GroupLossMixin(transformers.Trainer):
    """Makes a subclass of `transformers.Trainer` log the loss of each group of labels, and weigh these losses.

        class MyTrainer(GroupLossMixin, transformers.Seq2SeqTrainer): ...

    See `GroupLossTrainer`, which is this one over Trainer itself.
    """

    def __init__(self, *arguments: Any, groups: TokenGroups | None = None, **settings: Any):
        """
        Args:
            arguments, settings: of the trainer.
            groups: which labels are of which group, and their weights in the loss; without weights it is Trainer's own. By default
                the denoisers and corpora of the tasks of the training data, or of the collator, or of the evaluation data.

        Raises:
            ValueError: there are no groups; with weights there is another loss, that of `compute_loss_func` or of a model's router;
                or Liger kernels are on, which make no logits to measure.
        """
        super().__init__(*arguments, **settings)
        if groups is None:
            tasks = next(filter(None, map(_tasks_of, (self.train_dataset, self.data_collator, self.eval_dataset))), None)
            if not tasks:
                raise ValueError(
                    "groups must be given where neither the data nor the collator has tasks, got None. Pass groups=, such as"
                    " TokenGroups.of_tasks(examples(..).tasks) or TokenGroups.of_chat()."
                )
            groups = TokenGroups.of_tasks(tasks)
        if self.args.use_liger_kernel:
            raise ValueError("use_liger_kernel must be False, got True: without logits the losses of groups cannot be measured.")
        config = getattr(self.model, "config", None)
        self._decoder_only = not getattr(config, "is_encoder_decoder", False)
        self._is_weighted = groups.loss_weights is not None
        self._trained = self._losses = GroupLosses(groups, decoder_only=self._decoder_only)
        if self._is_weighted:
            if self.compute_loss_func is not None:
                raise ValueError("compute_loss_func must be None with weights of groups, got a function. Leave one of them out.")
            if getattr(config, "output_router_logits", False):
                raise ValueError("model.config.output_router_logits must be False with weights of groups, got True.")
            self.model_accepts_loss_kwargs = True  # what Trainer cannot know: the loss is that of the whole step
        self.label_names = ["labels", groups.feature]  # columns to keep
        self._sums: torch.Tensor | None = None  # since the last log
        self._evaluated: torch.Tensor | None = None

    def _set_signature_columns_if_needed(self) -> None:
        super()._set_signature_columns_if_needed()
        columns: Any = self._signature_columns
        if LOSS_WEIGHT not in columns:
            columns.append(LOSS_WEIGHT)  # which may be beside labels

    def get_batch_samples(self, epoch_iterator: Iterator, num_batches: int, device: torch.device) -> tuple[list, Any]:
        """The batches of an optimizer step, and Trainer's count of its labels, or the counts of each integer in all processes."""
        batches, count = super().get_batch_samples(epoch_iterator, num_batches, device)
        if not self._is_weighted:
            return batches, count
        none = self._losses.counts(torch.zeros([1, 0], dtype=torch.int64))
        counts = sum((self._losses.counts(self._ids(batch), batch.get(LOSS_WEIGHT)).cpu() for batch in batches), none)
        return batches, self.accelerator.reduce(counts.to(self.args.device), "sum")

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> Any:
        """The loss of a batch, or its part in the weighted loss of its step."""
        ids, labels = self._losses.shifted(self._ids(inputs)), inputs["labels"]
        given = {name: values for name, values in inputs.items() if name not in BESIDE_LABELS}
        if (weights := inputs.get(LOSS_WEIGHT)) is not None and not self._is_weighted:
            raise ValueError(
                "groups must have weights for batches with loss_weight, got none. Pass TokenGroups.of_tasks(dataset.tasks, {})."
            )
        if self._is_weighted:
            del given["labels"]
            outputs = model(**given)
            losses = self._token_losses(outputs, labels)
            counts = num_items_in_batch if model.training and isinstance(num_items_in_batch, torch.Tensor) else None
            loss = self._losses.part(losses, ids, counts, None if weights is None else self._losses.shifted(weights))
            # The gradients of processes are averaged, and these are parts of a sum.
            loss = loss if counts is None else loss * self.accelerator.num_processes
        else:
            loss, outputs = super().compute_loss(model, given, True, num_items_in_batch)
            with torch.no_grad():
                losses = self._token_losses(outputs, labels)
        self._add(self._losses.sums(losses.detach(), ids), model.training)
        return (loss, outputs) if return_outputs else loss

    def log(self, logs: dict[str, float], *arguments: Any, **settings: Any) -> None:
        """Logs what Trainer does, and the losses of groups since the last log."""
        if "loss" in logs and self._sums is not None:
            logs.update(self._of_groups(self.accelerator.reduce(self._sums, "sum"), ""))
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
        """Evaluates as Trainer does, with the losses of groups over all labels of the data, by the tasks of this data."""
        self._evaluated, tasks = None, _tasks_of(dataloader.dataset)
        if tasks and self._trained.groups.feature == TASK_ID:
            self._losses = GroupLosses(self._trained.groups.with_tasks(tasks), decoder_only=self._decoder_only)
        try:
            output = super().evaluation_loop(dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix)
            if self._evaluated is None:  # there are no labels
                return output
            metrics = {**(output.metrics or {}), **self._of_groups(self._evaluated, f"{metric_key_prefix}_")}
            if self._is_weighted:
                metrics[f"{metric_key_prefix}_loss"] = self._losses.weighted(self._evaluated)
            return output._replace(metrics=metrics)
        finally:
            self._losses = self._trained

    def prediction_step(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
        """See Trainer. Labels without what they are of, of which it would measure nothing, are an error."""
        if "labels" in inputs:
            self._ids(inputs)
        return super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)

    def _token_losses(self, outputs: Any, labels: torch.Tensor) -> torch.Tensor:
        logits = outputs["logits"] if isinstance(outputs, dict) else outputs[1]
        return self._losses.token_losses(logits, labels, self.args.label_smoothing_factor)

    def _add(self, sums: torch.Tensor, training: bool) -> None:
        """Adds the sums of rows, [B, integers + 1, 2]; of an evaluation of all processes, without rows that fill the last batch."""
        if training:
            self._sums = sums.sum(0) if self._sums is None else self._sums + sums.sum(0)
        else:
            found = self.accelerator.gather_for_metrics(sums).sum(0)
            self._evaluated = found if self._evaluated is None else self._evaluated + found

    def _of_groups(self, sums: torch.Tensor, prefix: str) -> dict[str, float]:
        """The metrics of groups, without those of all, of which Trainer has the loss."""
        found = self._losses.metrics_of(sums, prefix)
        return {key: value for key, value in found.items() if key not in (f"{prefix}loss", f"{prefix}tokens")}

    def _ids(self, batch: Mapping[str, Any]) -> torch.Tensor:
        """What each label is of, -1 or 0 where it is ignored."""
        column = self._trained.groups.feature
        if missing := [name for name in self.label_names if name not in batch]:
            raise ValueError(
                f"a batch must have {missing}, got {sorted(batch)}. Pass {column}=True to the converter or the collator, or convert"
                " conversations with HuggingFaceChatConverter."
            )
        ids: torch.Tensor = batch[column]
        return torch.where(batch["labels"] == IGNORED, BESIDE_LABELS[column], ids)


def _tasks_of(data: Any) -> Sequence[TaskInfo] | None:
    """The tasks of a dataset or a collator; of a part of a dataset, such as `torch.utils.data.Subset`, those of the whole."""
    return getattr(data, "tasks", None) or getattr(getattr(data, "dataset", None), "tasks", None)


class GroupLossTrainer(GroupLossMixin):
    """A `transformers.Trainer` whose logs have the loss of each denoiser, or of reasoning and answers, and which can weigh them.

        converter = HuggingFaceFeatureConverter(task_id=True)
        dataset = UL2IterableDataset(mixture, lengths, feature_converter=converter, batch_size=8)
        GroupLossTrainer(model, arguments, train_dataset=dataset).train()

        rows = UL2IterableDataset(chat, {"tokens": 4096}, feature_converter=HuggingFaceChatConverter())
        model = accept_packed_sequences(model)  # and remove_unused_columns=False in the arguments
        groups = TokenGroups.of_chat({"reasoning": 1.0, "answer": 2.0, "other": 1.0})
        GroupLossTrainer(model, arguments, train_dataset=rows, groups=groups).train()

    **Logs** have beside `loss`, of each group since the last log, `loss/r1`, the mean loss of its labels, and `tokens/r1`, how many
    these are. Means are over all labels of these steps, of all microbatches and processes; a group without labels is left out.
    Evaluation logs the same over all of the data, as `eval_loss/r1`.

    **The loss that trains** is Trainer's own, with the same gradients. With weights of groups it is that of `TokenGroups` over the
    labels of an optimizer step, of all microbatches and processes, and `eval_loss` is the same over all of the data. Equal weights,
    `TokenGroups.of_tasks(dataset.tasks, {})`, are the mean over the global batch.

    Batches need `task_id` beside `labels`, or for `TokenGroups.of_chat` `span_id`: those of conversations have it, and with
    `HuggingFaceFeatureConverter(.., span_id=True)` those of prompts and completions. The `label_ids` that `compute_metrics` gets
    are two arrays, the labels and these. Not supported: context parallelism, which divides a row.
    """
