"""What comes after pre-training: any SeqIO task with a mode before its inputs, and three small tasks to try it on.

The small tasks are made of the documentation that every Python has (`pydoc_data.topics`). They ask for the title of a section
when its opening paragraph is given, for the paragraph when the title is given, or for the second half of the paragraph.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import seqio
import tensorflow as tf
from absl import logging

from ul2_tasks.counting import count
from ul2_tasks.denoising.preprocessors import prepend_mode
from ul2_tasks.graphs import python_op
from ul2_tasks.sources.memory import MemoryDataSource, is_prose
from ul2_tasks.tasks.providers import DenoisingTask
from ul2_tasks.vocabulary.sentencepiece import default_vocabulary
from ul2_tasks.vocabulary.special_ids import Mode

TOPICS_VALIDATION = 0.1
_TITLE_END = "\n"

_trimmed: collections.Counter[str] = collections.Counter()  # features that this process trimmed, by task


@dataclasses.dataclass(frozen=True)
class ModeConfiguration:
    """What `with_mode` makes a task of: the task, the mode's name, and what stands for the mode."""

    task: seqio.Task
    mode: str
    modes: Mapping[str, Mode] | None


@dataclasses.dataclass(frozen=True)
class TopicsConfiguration:
    """What `topics_task` makes a task of."""

    vocabulary: seqio.Vocabulary


class ConfiguredTask(seqio.Task):
    """A task with what it was made of, so that it is registered once. It takes over all that `task` has."""

    def __init__(self, task: seqio.Task, configuration: ModeConfiguration | TopicsConfiguration):
        self.__dict__.update(vars(task))  # because `seqio.Task.replace` makes a plain task whatever the class
        self.configuration = configuration


def with_mode(task: str, mode: str, modes: Mapping[str, Mode] | None = None) -> str:
    """Registers a copy of a task with a mode before its inputs, and returns its name.

    The step that adds the mode comes before the step that adds the EOS, `seqio.preprocessors.append_eos` or
    `append_eos_after_trim`; without such a step it comes last. Examples that are longer than `sequence_length` are trimmed, as by
    SeqIO, but they keep their EOS. The log has the count at the 1st, 10th, 100th .. of these, and the length of the last one. All
    else is as in the task, except the cache, which is found by the name. Called again with the same arguments it changes nothing.

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
    if isinstance(original, DenoisingTask):
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
    if ends:
        steps[ends[0]] = seqio.preprocessors.append_eos  # the last step trims, and logs it
    steps.insert(ends[0] if ends else len(steps), functools.partial(prepend_mode, mode=mode, modes=modes))
    name = f"{task}_{''.join(filter(str.isalnum, mode)).lower()}"
    steps.append(functools.partial(_trim, task=name))
    return _add_once(ConfiguredTask(original.replace(name=name, preprocessors=steps), ModeConfiguration(original, mode, modes)))


def topics_task(kind: str = "title", vocabulary: seqio.Vocabulary | None = None) -> str:
    """Registers a task on the sections of Python's documentation, with the splits `train` and `validation`.

    Args:
        kind: the targets: "title", of a section whose opening paragraph is the input, with exact match as the metric; "opening",
            the paragraph of a title; or "continuation", the second half of a paragraph.
        vocabulary: the model's vocabulary; by default the bundled one.

    Returns:
        "topics_KIND".

    Raises:
        ValueError: `kind` has another value, or the task is already registered with another vocabulary.
    """
    kinds = {"title": (_opening, _title), "opening": (_title, _opening), "continuation": (_first_half, _second_half)}
    if kind not in kinds:
        raise ValueError(f"kind must be one of {list(kinds)}, got {kind!r}.")
    vocabulary = default_vocabulary() if vocabulary is None else vocabulary
    inputs, targets = kinds[kind]
    feature = seqio.Feature(vocabulary, add_eos=True)
    task = seqio.Task(
        f"topics_{kind}",
        source=MemoryDataSource(topic_sections, validation=TOPICS_VALIDATION),
        preprocessors=[
            functools.partial(_pairs, inputs=inputs, targets=targets),
            seqio.preprocessors.tokenize,
            seqio.CacheDatasetPlaceholder(),
            seqio.preprocessors.append_eos_after_trim,
        ],
        output_features={"inputs": feature, "targets": feature},
        metric_fns=[exact_match] if kind == "title" else [],
    )
    return _add_once(ConfiguredTask(task, TopicsConfiguration(vocabulary)))


def exact_match(targets: Sequence[str], predictions: Sequence[str]) -> dict[str, float]:
    """The percentage of predictions that equal their target.

    >>> exact_match(["a", "b"], ["a", "B"])
    {'exact_match': 50.0}
    """
    return {"exact_match": 100 * sum(map(str.__eq__, targets, predictions)) / len(targets)}


def topic_sections() -> list[str]:
    """The sections of all `pydoc` topics, each once, as "TITLE\\nOPENING PARAGRAPH"."""
    from pydoc_data.topics import topics  # here, so that importing this module opens no file

    return list(dict.fromkeys(section for name in sorted(topics) for section in _sections(topics[name])))


def _sections(text: str) -> Iterator[str]:
    title = None
    for paragraph in text.split("\n\n"):
        lines = paragraph.strip().splitlines()
        if len(lines) == 2 and len(set(lines[1])) == 1 and len(lines[0]) <= len(lines[1]):  # underlined
            title = lines[0]
        elif title and is_prose(paragraph):
            yield title + _TITLE_END + " ".join(paragraph.split())
            title = None


def _pairs(dataset: tf.data.Dataset, inputs, targets) -> tf.data.Dataset:
    return dataset.map(lambda section: {"inputs": inputs(section["text"]), "targets": targets(section["text"])})


def _title(section: tf.Tensor) -> tf.Tensor:
    return tf.strings.split(section, _TITLE_END)[0]


def _opening(section: tf.Tensor) -> tf.Tensor:
    return tf.strings.split(section, _TITLE_END)[1]


def _first_half(section: tf.Tensor) -> tf.Tensor:
    words = tf.strings.split(_opening(section))
    return tf.strings.reduce_join(words[: tf.size(words) // 2], separator=" ")


def _second_half(section: tf.Tensor) -> tf.Tensor:
    words = tf.strings.split(_opening(section))
    return tf.strings.reduce_join(words[tf.size(words) // 2 :], separator=" ")


_APPEND_EOS = (seqio.preprocessors.append_eos, seqio.preprocessors.append_eos_after_trim)


def _function(step: Callable) -> Callable:
    return step.func if isinstance(step, functools.partial) else step


def _trim(
    dataset: tf.data.Dataset,
    output_features: Mapping[str, seqio.Feature],
    sequence_length: Mapping[str, int] | None = None,
    *,
    task: str,
) -> tf.data.Dataset:
    """Trims features of [tokens] to their lengths, keeps an EOS at their end, and reports each feature that it trims."""
    spec = dataset.element_spec
    limits = {
        key: sequence_length[key]
        for key in output_features
        if sequence_length and sequence_length.get(key) and key in spec and spec[key].shape.rank == 1
    }

    def trimmed(key: str, tokens: tf.Tensor) -> tf.Tensor:
        feature = output_features[key]
        report = functools.partial(_report_trimmed, task, key, limits[key])
        limit = tf.ensure_shape(python_op(report, [tf.size(tokens)], tf.int64), [])
        last = tokens[limit - 1 : limit]
        if feature.add_eos:
            last = tf.where(tokens[-1:] == tf.cast(feature.vocabulary.eos_id, tokens.dtype), tokens[-1:], last)
        return tf.concat([tokens[: limit - 1], last], axis=0)

    def trim(example: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        short = {
            key: tf.cond(
                tf.size(example[key]) > limit,
                functools.partial(trimmed, key, example[key]),
                functools.partial(tf.identity, example[key]),
            )
            for key, limit in limits.items()
        }
        return {**example, **short}

    return dataset.map(trim, num_parallel_calls=tf.data.AUTOTUNE) if limits else dataset


def _report_trimmed(task: str, key: str, limit: int, size: int) -> np.int64:
    """Counts a feature that is trimmed, and logs the 1st, 10th, 100th .. of a task. Returns the limit."""
    number, is_logged = count(_trimmed, task)
    if is_logged:
        trimmed = f"{task}: {number} features were trimmed until now, the last one from {size} tokens of {key} to {limit}"
        logging.warning("%s. Raise sequence_length, or leave such examples out before this task.", trimmed)
    return np.int64(limit)


def _add_once(task: ConfiguredTask) -> str:
    """Registers the task, unless it is registered with the same configuration."""
    if task.name not in seqio.TaskRegistry.names():
        seqio.TaskRegistry.add_provider(task.name, task)
    elif getattr(seqio.TaskRegistry.get(task.name), "configuration", None) != task.configuration:
        raise ValueError(
            f"{task.name!r} is already registered, made of something else than {task.configuration}. Use one per program."
        )
    return task.name
