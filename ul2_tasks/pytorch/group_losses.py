"""The losses of groups of labels, from the forward pass that trains; and weights for them.

Each label has an integer: the task of its example, in `task_id`, or its loss group, in `span_id`. An optimizer step has C[k] labels
of kind k, in all microbatches and processes, and each has the weight w[k]. The loss of the step is

    of tasks          sum(w * loss) / sum(w)       a mean over all labels, each with the weight of its task
    of loss groups    sum(w[k] * mean[k])          a mean for reasoning, one for answers, and one for all other labels

Both are sum(v * loss) over the labels, where v[k] is w[k] / sum(w * C), or w[k] / C[k]. So the counts of the step come first, and
each part of it adds its own sum. With a mean within a microbatch or a process, a label would have another weight in each of them.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ul2_tasks.example_features import IGNORED, SPAN_ID, TASK_ID
from ul2_tasks.extras import needs
from ul2_tasks.random_access.tasks import TaskInfo, products, task_weights

with needs("GroupLosses", "torch"):
    import torch

_NO_LABELS = 1e-12  # of a group in a report, which Megatron divides by


class LossGroupWeights(NamedTuple):
    """The weight of each loss group in the loss.

    Attributes:
        reasoning: of `span_id` 1.
        answer: of `span_id` 2.
        other: of all groups above 2, which have one mean together.
    """

    reasoning: float = 1.0
    answer: float = 1.0
    other: float = 1.0


class GroupLosses:
    """The mean loss of each denoiser and corpus, or of reasoning and answers, over steps and processes, for a loop of your own.

        losses = GroupLosses(dataset.tasks)  # of batches with task_id; or GroupLosses(LossGroupWeights()), of span_id
        for step, batch in enumerate(loader, 1):
            task_id = batch.pop("task_id")
            outputs = model(**batch)
            losses.add(outputs.logits, batch["labels"], task_id)
            outputs.loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if step % 100 == 0:
                wandb.log(losses.metrics())

    Sums are on the device of the logits, and no step waits for them. `metrics` adds up those of all processes of
    `torch.distributed`, and resets them. To train on the weighted loss, call `loss` instead of `add`.

    Attributes:
        column: the feature of a batch that has the integers, "task_id" or "span_id".
        groups: which kinds of labels each mean is of, by its name: "", all; those of each denoiser, or without one of the task; of
            several corpora also of each corpus and task. Or of each loss group.

    >>> losses = GroupLosses(LossGroupWeights(answer=0.5))
    >>> losses.counts(torch.tensor([[0, 1, 2], [2, 2, 7]]))
    tensor([1., 3., 1.])
    >>> losses.part(torch.tensor([1.0, 2.0, 4.0, float("nan")]), torch.tensor([1, 2, 2, 0]))  # 1 * 1 + 0.5 * (2 + 4) / 2
    tensor(2.5000)
    >>> GroupLosses([TaskInfo("web_s", "s", "web_corpus"), TaskInfo("web_x1", "x1", "web_corpus")]).groups
    {'': [0, 1], 's': [0], 'x1': [1]}
    """

    def __init__(
        self,
        of: Sequence[TaskInfo] | LossGroupWeights,
        loss_weights: Mapping[str, float] | None = None,
        *,
        decoder_only: bool = False,
    ) -> None:
        """
        Args:
            of: the tasks of the dataset or the collator that makes the batches; or the weights of loss groups.
            loss_weights: the weights of tasks by the names of tasks, denoisers or corpora, see `task_weights`.
            decoder_only: whether the model has no encoder, so that a token's logits predict the label of the next one.

        Raises:
            ValueError: there are no tasks; a name is unknown; or a weight is not a number of at least 0.
        """
        self._decoder_only, self._loss_weights = decoder_only, loss_weights or {}
        self._sums: torch.Tensor | None = None
        if isinstance(of, LossGroupWeights):
            self.column, self._weights = SPAN_ID, torch.tensor(of, dtype=torch.float32)
            self.groups = {"": [0, 1, 2], **{name: [number] for number, name in enumerate(of._fields)}}
            return
        if not of:
            raise ValueError("tasks must be those of a dataset or a collator, got none. Pass dataset.tasks or collator.tasks.")
        self.column, self._weights = TASK_ID, torch.tensor(task_weights(of, self._loss_weights))
        self.groups = _groups_of(of)

    def of_tasks(self, tasks: Sequence[TaskInfo]) -> GroupLosses:
        """The same of other tasks, with the weights of their names, and nothing added."""
        found = copy.copy(self)
        found._weights, found.groups, found._sums = torch.tensor(products(tasks, self._loss_weights)), _groups_of(tasks), None
        return found

    def counts(self, ids: torch.Tensor) -> torch.Tensor:
        """How many labels of each kind a batch has, [kinds] float32. Sum them over microbatches and processes for a step."""
        return self._count(self._kinds(self.shifted(ids)))

    def add(self, logits: torch.Tensor, labels: torch.Tensor, ids: torch.Tensor) -> None:
        """Adds the losses of a batch, without a gradient.

        Args:
            logits: [B, tokens, embeddings], of the model.
            labels: [B, tokens] integers, which are not shifted; -100 where there is no loss.
            ids: [B, tokens] integers, the `column` of the batch.
        """
        with torch.no_grad():
            self.loss(logits, labels, ids)

    def loss(
        self, logits: torch.Tensor, labels: torch.Tensor, ids: torch.Tensor, counts: torch.Tensor | None = None
    ) -> torch.Tensor:
        """The part of a batch in the weighted loss of its step, with a gradient. Adds its losses, too.

        Args:
            logits, labels, ids: see `add`.
            counts: the sum of `counts` over all batches of the step, of all microbatches and processes; None where the step has
                this batch alone.
        """
        if labels.shape != ids.shape:
            shapes = f"{list(labels.shape)}, got {list(ids.shape)}"
            raise ValueError(f"{self.column} must have the shape of labels, {shapes}. Pass both as they are in the batch.")
        losses, ids = self.token_losses(logits, labels), self.shifted(ids)
        sums = self.sums(losses.detach(), ids).sum(0)
        self._sums = sums if self._sums is None else self._sums + sums
        return self.part(losses, ids, counts)

    def metrics(self, prefix: str = "") -> dict[str, float]:
        """What was added since the last call: "loss", the mean over all labels, "tokens", how many these are, and both of groups.

        With several processes call it in each of them; all get the same. It is empty where nothing was added.
        """
        sums = torch.zeros(len(self._weights), 2, dtype=torch.float64) if self._sums is None else self._sums
        self._sums = None
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            # All processes need one kind of device, also those in which nothing was added, and NCCL has no CPU.
            if "cpu:" in torch.distributed.get_backend_config():
                sums = sums.cpu()
            elif sums.device.type == "cpu":
                sums = sums.cuda()
            torch.distributed.all_reduce(sums)
        return self.metrics_of(sums, prefix)

    def part(self, losses: torch.Tensor, ids: torch.Tensor, counts: torch.Tensor | None = None) -> torch.Tensor:
        """The same as `loss` of the loss of each label, [.., tokens], and the `column` of each, shifted as labels are.

        `counts` may also be fixed, such as their mean over the corpus.
        """
        kinds = self._kinds(ids).to(losses.device)
        weights = self._weights_in_loss(self._count(kinds) if counts is None else counts.to(losses.device))
        return torch.where(kinds < 0, 0, losses * weights[kinds]).sum()

    def report(
        self, losses: torch.Tensor, ids: torch.Tensor, counts: torch.Tensor | None = None, *, parts: int
    ) -> dict[str, torch.Tensor]:
        """The loss, the labels and the weight of each group, as a loss function of Megatron reports them.

        Megatron adds pairs up over microbatches and data-parallel processes, and divides the first number by the second. Of a step
        loss_NAME is a mean, tokens_NAME a count, and weight_NAME the group's weight in the loss, which is the sum of weight times
        loss over the denoisers and tasks without one, or over the loss groups.

        Args:
            losses, ids, counts: those of `part`; without `counts` loss groups have the weights of a part.
            parts: into how many parts the step is divided: microbatches times data-parallel processes.

        Returns:
            loss, and loss_NAME, tokens_NAME and weight_NAME of each group, [2] float32 each.
        """
        sums, found = self.sums(losses.detach().flatten()[None], ids.flatten()[None])[0].float().T
        weighted, one_part = found * self._weights.to(found), torch.full_like(found[:1].sum(), 1 / parts)
        of_step = found * parts if counts is None else counts.to(found)
        pairs = {}
        for name, kinds in self.groups.items():
            labels = found[kinds].sum()
            pairs[f"loss_{name}".rstrip("_")] = sums[kinds].sum(), labels.clamp(min=_NO_LABELS)
            if name:
                total = weighted.sum() if self.column == TASK_ID else of_step[kinds].sum() / parts
                pairs[f"tokens_{name}"] = labels, one_part
                pairs[f"weight_{name}"] = weighted[kinds].sum(), total.clamp(min=_NO_LABELS)
        return {name: torch.stack(pair) for name, pair in pairs.items()}

    def token_losses(self, logits: torch.Tensor, labels: torch.Tensor, label_smoothing: float = 0.0) -> torch.Tensor:
        """The loss of each label, [B, tokens] float32, 0 where it is -100; of a decoder-only model [B, tokens - 1], from the second
        on."""
        labels = self.shifted(labels).to(logits.device)
        loss_of = functools.partial(
            torch.nn.functional.cross_entropy, reduction="none", ignore_index=IGNORED, label_smoothing=label_smoothing
        )
        # Row by row, as all logits at once in float32 would need their memory once more.
        return torch.stack([loss_of(row[: labels.shape[1]].float(), own) for row, own in zip(logits, labels)])

    def sums(self, losses: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """The sum of the losses of each kind, and how many there are, [B, kinds, 2], of [B, tokens], shifted as labels are."""
        # Sums and counts are of many steps, beyond the 24 bits of float32.
        dtype = torch.float32 if losses.device.type == "mps" else torch.float64  # which mps does not have
        values, kinds = torch.stack([losses, torch.ones_like(losses)], -1).to(dtype), self._kinds(ids).to(losses.device)
        # What is of no kind is put beside them: to leave it out, a device would have to say how many others there are.
        width = len(self._weights) + 1
        first = torch.arange(len(losses), device=losses.device)[:, None] * width
        made = values.new_zeros(len(losses) * width, 2)
        made.index_add_(0, (first + 1 + kinds).flatten(), values.flatten(0, 1))
        return made.view(len(losses), width, 2)[:, 1:]

    def metrics_of(self, sums: torch.Tensor, prefix: str = "") -> dict[str, float]:
        """What `metrics` says of sums, [kinds, 2]. A group without labels is left out."""
        of_groups = {name: sums[kinds].sum(0).tolist() for name, kinds in self.groups.items()}
        losses = {f"{prefix}loss_{name}".rstrip("_"): loss / count for name, (loss, count) in of_groups.items() if count}
        return losses | {f"{prefix}tokens_{name}".rstrip("_"): int(count) for name, (_, count) in of_groups.items() if count}

    def weighted(self, sums: torch.Tensor) -> float:
        """The weighted loss of all labels of sums, [kinds, 2]."""
        losses, counts = sums.T
        return (losses * self._weights_in_loss(counts).to(losses)).sum().item()

    def _weights_in_loss(self, counts: torch.Tensor) -> torch.Tensor:
        """What the loss of each label is multiplied by, [kinds], where a step has these counts."""
        weights = self._weights.to(counts)
        totals = (weights * counts).sum().expand(len(weights)) if self.column == TASK_ID else counts
        return weights / torch.where(totals > 0, totals, 1)

    def _count(self, kinds: torch.Tensor) -> torch.Tensor:
        counts = torch.zeros(1 + len(self._weights), device=kinds.device)
        return counts.index_add_(0, (1 + kinds).flatten(), torch.ones_like(kinds, dtype=torch.float32).flatten())[1:]

    def _kinds(self, ids: torch.Tensor) -> torch.Tensor:
        """The kind of each label, -1 where it has none."""
        return ids if self.column == TASK_ID else ids.clamp(max=3).long() - 1

    def shifted(self, values: torch.Tensor) -> torch.Tensor:
        """What is said of labels, [B, tokens], as the logits from the first on predict them."""
        return values[:, 1:] if self._decoder_only else values


def _groups_of(tasks: Sequence[TaskInfo]) -> dict[str, list[int]]:
    several = len({info.corpus for info in tasks}) > 1
    found: dict[str, list[int]] = {}
    for number, info in enumerate(tasks):
        for key in {"", info.denoiser or info.task} | ({info.corpus, info.task} if several else set()):
            found.setdefault(key, []).append(number)
    return dict(sorted(found.items()))
