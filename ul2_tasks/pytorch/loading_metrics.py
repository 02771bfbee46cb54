"""`LoadingMetricsMixin`: what Transformers' Trainer waits for data, in its logs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ul2_tasks.measured_loader import MeasuredLoader


class LoadingMetricsMixin:
    """Adds the metrics of `MeasuredLoader` to the training logs of a `transformers.Trainer`, or of a class made of it.

        class Trainer(ul2_tasks.LoadingMetricsMixin, transformers.Trainer):
            pass

    They are of this process, since the last log. The time of a step includes evaluation and checkpoints.

    Attributes:
        measured_loader: the `MeasuredLoader`, with the totals since training began.
    """

    def __init_subclass__(cls, **settings: Any):
        """
        Raises:
            ValueError: the Trainer is before this class, so that it would measure nothing.
        """
        super().__init_subclass__(**settings)
        before = cls.__mro__[: cls.__mro__.index(LoadingMetricsMixin)]
        for base in before:
            if not issubclass(base, LoadingMetricsMixin) and hasattr(base, "get_batch_samples"):
                raise ValueError(
                    f"LoadingMetricsMixin must be before {base.__name__} among the bases of {cls.__name__}, got it after. Write"
                    f" class {cls.__name__}(ul2_tasks.LoadingMetricsMixin, {base.__name__})."
                )

    def __init__(self, *arguments: Any, **settings: Any):
        """Takes the arguments of the Trainer."""
        self.measured_loader = MeasuredLoader(())
        super().__init__(*arguments, **settings)

    def get_batch_samples(self, epoch_iterator: Iterator[Any], *arguments: Any, **settings: Any) -> Any:
        """The batches of an optimizer step, for which Trainer waits here."""
        self.measured_loader.loader = epoch_iterator  # another one in each epoch
        return super().get_batch_samples(self.measured_loader, *arguments, **settings)  # type: ignore[misc]

    def log(self, logs: dict[str, float], *arguments: Any, **settings: Any) -> None:
        """Logs what Trainer does, and the metrics of loading since the last log."""
        if "loss" in logs:
            logs.update(self.measured_loader.metrics())
        super().log(logs, *arguments, **settings)  # type: ignore[misc]
