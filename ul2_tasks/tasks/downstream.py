"""What comes after pre-training: any SeqIO task with a mode before its inputs."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping

import seqio

from ul2_tasks.tasks.preprocessors import prepend_mode
from ul2_tasks.tasks.providers import UL2Task
from ul2_tasks.tokenizers.special_ids import Mode

_APPEND_EOS = (seqio.preprocessors.append_eos, seqio.preprocessors.append_eos_after_trim)


@dataclasses.dataclass(frozen=True)
class ModeConfiguration:
    """What `with_mode` makes a task of: the task, the mode's name, and what stands for the mode."""

    task: seqio.Task
    mode: str
    modes: Mapping[str, Mode] | None


class ConfiguredTask(seqio.Task):
    """A task with what it was made of, so that it is registered once. It takes over all that `task` has."""

    def __init__(self, task: seqio.Task, configuration: ModeConfiguration):
        self.__dict__.update(vars(task))  # because `seqio.Task.replace` makes a plain task whatever the class
        self.configuration = configuration


def with_mode(task: str, mode: str, modes: Mapping[str, Mode] | None = None) -> str:
    """Registers a copy of a task with a mode before its inputs, and returns its name.

    The step that adds the mode comes before the step that adds the EOS, `seqio.preprocessors.append_eos` or
    `append_eos_after_trim`; without such a step it comes last. SeqIO trims examples that are longer than `sequence_length`: those
    of `append_eos_after_trim` keep their EOS. All else is as in the task, except the cache, which is found by the name. Called
    again with the same arguments it changes nothing.

    Args:
        task: the name of a registered task with the feature `inputs`.
        mode: the name of a mode of the denoisers, such as "[R]".
        modes: the token of each mode, as for `register`; see `special_ids.special_tokens`.

    Returns:
        The copy's name, such as "TASK_r".

    Raises:
        ValueError: the task does not exist, is a denoising task, or has a mode already; or the copy's name is taken.
    """
    if task not in seqio.TaskRegistry.names():
        raise ValueError(
            f"task must be registered, got {task!r}. Import the module that registers it first, from gin with `import MODULE`."
        )
    original = seqio.TaskRegistry.get(task)
    if isinstance(original, UL2Task) and original.denoiser:
        raise ValueError(
            f"task must not be a denoising task, got {task!r}, which has the mode of its denoiser, {original.denoiser.mode!r}."
            " Give the denoiser another mode, SpanDenoiser(mode=..), or name a task of another kind."
        )
    steps = list(original.preprocessors)
    if any(_function(step) is prepend_mode for step in steps):
        raise ValueError(
            f"task must have no mode before its inputs, got {task!r}, which has one already. Name the task without one."
        )
    ends = [at for at, step in enumerate(steps) if _function(step) in _APPEND_EOS]
    steps.insert(ends[0] if ends else len(steps), functools.partial(prepend_mode, mode=mode, modes=modes))
    name = f"{task}_{''.join(filter(str.isalnum, mode)).lower()}"
    configured = ConfiguredTask(original.replace(name=name, preprocessors=steps), ModeConfiguration(original, mode, modes))
    if name not in seqio.TaskRegistry.names():
        seqio.TaskRegistry.add_provider(name, configured)
    elif getattr(seqio.TaskRegistry.get(name), "configuration", None) != configured.configuration:
        raise ValueError(
            f"{name!r} is already registered, made of something else than {configured.configuration}. Use one per program."
        )
    return name


def _function(step: Callable) -> Callable:
    return step.func if isinstance(step, functools.partial) else step
