"""The losses of groups of labels, from the forward pass that trains; and the loss that weighs them, see `TokenGroups`."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ul2_tasks.example_features import IGNORED
from ul2_tasks.extras import needs
from ul2_tasks.random_access.token_groups import TokenGroups

with needs("GroupLosses", "torch"):
    import torch

_NO_LABELS = 1e-12  # of a group in a report, which Megatron divides by


class GroupLosses:
    """The mean loss of each denoiser and corpus, or of reasoning and answers, over steps and processes, for a loop of your own.

        losses = GroupLosses(TokenGroups.of_tasks(dataset.tasks))  # of batches with task_id; or TokenGroups.of_chat(), of span_id
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
        groups: the groups, with the integers of labels that a batch has.

    >>> from ul2_tasks.random_access.tasks import TaskInfo
    >>> groups = TokenGroups.of_tasks([TaskInfo("web_s", "s", "web"), TaskInfo("web_x1", "x1", "web")], {"x1": 0.5})
    >>> losses = GroupLosses(groups)
    >>> losses.counts(torch.tensor([[0, 1, -1], [1, 1, 1]]))
    tensor([1., 4., 0.])
    >>> losses.part(torch.tensor([1.0, 2.0, 4.0, float("nan")]), torch.tensor([0, 1, 1, -1]))  # (1 + 0.5 * 2 + 0.5 * 4) / 2
    tensor(2.)
    """

    def __init__(self, groups: TokenGroups, *, decoder_only: bool = False) -> None:
        """
        Args:
            groups: such as `TokenGroups.of_tasks(dataset.tasks, {"s": 0.5})`; without weights the loss is the mean over all labels.
            decoder_only: whether the model has no encoder, so that a token's logits predict the label of the next one.
        """
        self.groups, self._decoder_only = groups, decoder_only
        self._sums: torch.Tensor | None = None
        is_label = np.array([*map(bool, groups.names), False])
        self._is_label = torch.from_numpy(is_label)
        self._members = {"": is_label, **groups.members()}

    def counts(self, ids: torch.Tensor, weights: torch.Tensor | None = None) -> torch.Tensor:
        """How many labels of each integer a batch has, or the sum of their weights, [integers + 1] float32. For a step sum them
        over all of its parts."""
        return self._count(self.shifted(ids), None if weights is None else self.shifted(weights))

    def add(self, logits: torch.Tensor, labels: torch.Tensor, ids: torch.Tensor) -> None:
        """Adds the losses of a batch, without a gradient.

        Args:
            logits: [B, tokens, embeddings], of the model.
            labels: [B, tokens] integers, which are not shifted; -100 where there is no loss.
            ids: [B, tokens] integers, the feature of the batch that the groups name.
        """
        with torch.no_grad():
            self.loss(logits, labels, ids)

    def loss(
        self,
        logits: torch.Tensor,
        labels: torch.Tensor,
        ids: torch.Tensor,
        counts: torch.Tensor | None = None,
        weights: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """The part of a batch in the weighted loss of its step, with a gradient. Adds its losses, too.

        Args:
            logits, labels, ids: see `add`.
            counts: the sum of `counts` over all batches of the step, of all microbatches and processes; None where the step has
                this batch alone.
            weights: `loss_weight` of the batch, where it has that.
        """
        if labels.shape != ids.shape:
            shapes = f"{list(labels.shape)}, got {list(ids.shape)}"
            raise ValueError(f"{self.groups.feature} must have the shape of labels, {shapes}. Pass both as they are in the batch.")
        losses, ids = self.token_losses(logits, labels), self.shifted(ids)
        sums = self.sums(losses.detach(), ids).sum(0)
        self._sums = sums if self._sums is None else self._sums + sums
        return self.part(losses, ids, counts, None if weights is None else self.shifted(weights))

    def metrics(self, prefix: str = "") -> dict[str, float]:
        """What was added since the last call: "loss", the mean over all labels, "tokens", how many these are, and of
        groups "loss/NAME" and "tokens/NAME".

        With several processes call it in each of them; all get the same. It is empty where nothing was added.
        """
        sums = torch.zeros(len(self._is_label), 2, dtype=torch.float64) if self._sums is None else self._sums
        self._sums = None
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            # All processes need one kind of device, also those in which nothing was added, and NCCL has no CPU.
            if "cpu:" in torch.distributed.get_backend_config():
                sums = sums.cpu()
            elif sums.device.type == "cpu":
                sums = sums.cuda()
            torch.distributed.all_reduce(sums)
        return self.metrics_of(sums, prefix)

    def part(
        self,
        losses: torch.Tensor,
        ids: torch.Tensor,
        counts: torch.Tensor | None = None,
        weights: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """The same as `loss` of the loss of each label, [.., tokens], its integer and its weight, shifted as labels are.

        `counts` may also be fixed, such as their mean over the corpus.
        """
        ids = ids.to(losses.device)
        weights = None if weights is None else weights.to(losses.device)
        parts = self._parts(self._count(ids, weights) if counts is None else counts.to(losses.device))
        losses = losses if weights is None else losses * weights
        return torch.where(self._is_label.to(ids.device)[ids], losses * parts[ids], 0).sum()

    def report(
        self, losses: torch.Tensor, ids: torch.Tensor, counts: torch.Tensor | None = None, *, parts: int
    ) -> dict[str, torch.Tensor]:
        """The loss, the labels and the weight of each group, as a loss function of Megatron reports them.

        Megatron adds pairs up over microbatches and data-parallel processes, and divides the first number by the second. Of a step
        loss/NAME is a mean, tokens/NAME a count, and weight/NAME the group's weight in the loss, which is the sum of weight times
        loss over groups that have each label once, such as denoisers.

        Args:
            losses, ids, counts: those of `part`; without `counts` means of groups are those of a part.
            parts: into how many parts the step is divided: microbatches times data-parallel processes.

        Returns:
            loss, and loss/NAME, tokens/NAME and weight/NAME of each group, [2] float32 each.
        """
        sums, found = self.sums(losses.detach().flatten()[None], ids.flatten()[None])[0].float().T
        one_part = torch.full_like(found[:1].sum(), 1 / parts)
        if self.groups.mean == "all":  # of the step, which is the same with the counts of any part
            weighted = found * self._array(found)(self.groups.label_weights())
            total = weighted[self._is_label.to(found.device)].sum().clamp(min=_NO_LABELS)
        else:
            weighted = found * self._parts(found * parts if counts is None else counts.to(found))
            total = one_part
        pairs = {}
        for name, is_member in self._members.items():
            members = torch.from_numpy(is_member).to(found.device)
            labels = found[members].sum()
            pairs[f"loss/{name}".rstrip("/")] = sums[members].sum(), labels.clamp(min=_NO_LABELS)
            if name:
                pairs[f"tokens/{name}"] = labels, one_part
                pairs[f"weight/{name}"] = weighted[members].sum(), total
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
        """The sum of the losses of each integer, and how many, [B, integers + 1, 2], of [B, tokens], shifted as labels are."""
        # Sums and counts are of many steps, beyond the 24 bits of float32.
        dtype = torch.float32 if losses.device.type == "mps" else torch.float64  # which mps does not have
        values, ids = torch.stack([losses, torch.ones_like(losses)], -1).to(dtype), ids.to(losses.device)
        # What is in no group is added up beside the others: to leave it out, a device would have to say how many there are.
        width = len(self._is_label)
        first = torch.arange(len(losses), device=losses.device)[:, None] * width
        made = values.new_zeros(len(losses) * width, 2)
        made.index_add_(0, (first + ids % width).flatten(), values.flatten(0, 1))
        return torch.where(self._is_label.to(losses.device)[:, None], made.view(len(losses), width, 2), 0)

    def metrics_of(self, sums: torch.Tensor, prefix: str = "") -> dict[str, float]:
        """What `metrics` says of sums, [integers + 1, 2]. A group without labels is left out."""
        of_groups = {name: sums[torch.from_numpy(members)].sum(0).tolist() for name, members in self._members.items()}
        losses = {f"{prefix}loss/{name}".rstrip("/"): loss / count for name, (loss, count) in of_groups.items() if count}
        return losses | {f"{prefix}tokens/{name}".rstrip("/"): int(count) for name, (_, count) in of_groups.items() if count}

    def weighted(self, sums: torch.Tensor) -> float:
        """The weighted loss of all labels of sums, [integers + 1, 2]."""
        losses, counts = sums.T
        return (losses * self._parts(counts)).sum().item()

    def _array(self, like: torch.Tensor) -> Any:
        """Makes tensors that can be multiplied with one."""
        return lambda values: torch.from_numpy(values).to(like.dtype).to(like.device)

    def _parts(self, counts: torch.Tensor) -> torch.Tensor:
        """What the loss of each label is multiplied by, [integers + 1], where a step has these counts."""
        found: torch.Tensor = self.groups.parts(counts, self._array(counts))
        return found

    def _count(self, ids: torch.Tensor, weights: torch.Tensor | None = None) -> torch.Tensor:
        is_label = self._is_label.to(ids.device)
        counts, found = torch.zeros(len(is_label), device=ids.device), is_label[ids].float()
        return counts.index_add_(0, ids.flatten() % len(is_label), (found if weights is None else found * weights).flatten())

    def shifted(self, values: torch.Tensor) -> torch.Tensor:
        """What is said of labels, [B, tokens], as the logits from the first on predict them."""
        return values[:, 1:] if self._decoder_only else values
