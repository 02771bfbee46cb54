"""`register` adds a corpus, the tasks of its denoisers and their mixture to SeqIO's registries; `mix` a mixture of mixtures."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import seqio

from ul2_tasks.chat.objective import CHAT
from ul2_tasks.example_features import IMAGES, TOKEN_FEATURES
from ul2_tasks.mixtures.chat import Chat
from ul2_tasks.mixtures.description import Description
from ul2_tasks.mixtures.image_text import ImageText
from ul2_tasks.mixtures.mixture import Mixture, denoising_of, owner_of
from ul2_tasks.mixtures.schedule import Schedule, Stage, check_schedule, check_weigh, weights_of
from ul2_tasks.tasks.chat import ChatMixture, ChatTask, add_chat
from ul2_tasks.tasks.corpus_task import CorpusTask, CorpusView
from ul2_tasks.tasks.image_text import ImageTextTask, add_image_text, beside_images
from ul2_tasks.tasks.names import hand_over, is_registered, takes_arguments_of
from ul2_tasks.tasks.providers import DenoisingMixture, DenoisingTask, is_ours
from ul2_tasks.tokenizers.special_ids import (
    vocabulary_identity,
)


@dataclasses.dataclass(frozen=True)
class MixConfiguration:
    """The arguments of `mix` beside the name: weights, the schedule whose average they are, if any, and what they count."""

    mixtures: Mapping[str, float]
    schedule: Schedule[str] | None = None
    weigh: str = "examples"


@takes_arguments_of(Mixture)
def register(*arguments: Any, **keywords: Any) -> str:
    """Registers a description with SeqIO: a `Chat`, an `ImageText`, or a `Mixture`, of which the arguments will do.

    A mixture has `NAME_corpus`, a task `NAME_<denoiser>` for each denoiser, and `NAME_mix`. One that shares the corpus of another
    has no `NAME_corpus`, and the other one is registered too. Called again with an equal description it changes nothing. No file
    is opened before a dataset is made. Two sources are the same if they read the same, see `identity.source_identity`. A source of
    a lambda or a local function equals only itself, and cannot be cached. Documents in memory are compared by their content.

    Args:

    Returns:
        "NAME_mix"; of a `Chat` "NAME_chat".

    Raises:
        ValueError: see `Mixture`; or the name is taken, by another provider or by other arguments, which are listed.

    >>> import ul2_tasks
    >>> ul2_tasks.register(ul2_tasks.Mixture("docs"))
    'docs_mix'
    """
    first = arguments[0] if arguments else keywords.get("name")
    if not isinstance(first, Description):
        return _add(Mixture(*arguments, **keywords))
    if len(arguments) + len(keywords) > 1:
        raise ValueError(f"arguments must be left out beside a description, got {[*arguments[1:], *keywords]}. Give it them.")
    return _add(first)


@takes_arguments_of(Chat)
def register_chat(*arguments: Any, format: str = CHAT, **keywords: Any) -> str:
    """`register` of a `Chat`, for gin: the corpus NAME_corpus, and the tasks NAME_chat and NAME_prompt_completion.

    `NAME_chat` is for decoder-only models, and `NAME_prompt_completion` for encoder-decoder models, and for `mix` with denoisers of
    the same vocabulary.

    Args:
        format: which name is returned, "chat" or "prompt_completion".

    >>> import ul2_tasks
    >>> ul2_tasks.register_chat("docs")
    'docs_chat'
    """
    return _add(Chat(*arguments, **keywords), format)


@takes_arguments_of(ImageText)
def register_image_text(*arguments: Any, **keywords: Any) -> str:
    """`register` of an `ImageText`: the corpus NAME_corpus, a task NAME_<denoiser> for each denoiser, and NAME_mix.

    Args:
    """
    return _add(ImageText(*arguments, **keywords))


def _add(description: Description, format: str = CHAT) -> str:
    """Hands a description to SeqIO's registries, and gives the name of its mixture; of conversations that of a format."""
    if isinstance(description, Chat):
        return add_chat(description, format)
    if isinstance(description, ImageText):
        return add_image_text(description)
    assert isinstance(description, Mixture)
    return add(description)


def add(mixture: Mixture) -> str:
    """Hands a mixture to SeqIO's registries; see `register`."""
    owner = owner_of(mixture)
    own = ("corpus",) if owner is mixture else ()
    if not own:
        add(owner)
    suffixes = (*own, "mix", *(denoiser.name for denoiser in mixture.denoisers))
    return hand_over(mixture, suffixes, lambda: _tasks(mixture, is_shared=not own), "mix")


def _tasks(mixture: Mixture, is_shared: bool) -> list[seqio.Task]:
    feature, corpus = seqio.Feature(mixture.vocabulary, add_eos=True), mixture.corpus()
    if is_shared:
        corpus = seqio.TaskRegistry.get(corpus.name).corpus
    tasks = [
        DenoisingTask(
            task := f"{mixture.name}_{denoiser.name}",
            CorpusView(corpus, salt=task if is_shared else denoiser.name),
            {"inputs": feature, "targets": feature},
            configuration=denoising_of(mixture, denoiser),
        )
        for denoiser in mixture.denoisers
    ]
    return tasks if is_shared else [CorpusTask(corpus), *tasks]


def mix(
    name: str,
    mixtures: Mapping[str, float] | Sequence[tuple[str, float]] | None = None,
    *,
    temperature: float = 1.0,
    weigh: str = "examples",
    schedule: Sequence[Stage[str]] | None = None,
    batch_size: int | None = None,
    steps: int | None = None,
) -> str:
    """Registers `NAME_mix`, a mixture of mixtures and tasks: of several corpora, or of supervised tasks beside a corpus.

    Each corpus is repeated as often as its weight needs. With a finite number of epochs the mixture ends when the first of its
    tasks ends. SeqIO makes the examples of tasks that are not from `register`, and trims those that are too long.

    Args:
        name: the beginning of the name.
        mixtures: the weights, numbers, of registered mixtures and tasks by their names, such as `register` and `mix` return. A
            weight divided by the sum of all is a fraction of the examples, see `weigh`. All tasks have the features inputs and
            targets, of one vocabulary (which is checked when a dataset is made), and at least one of them is a denoising task. Or
            all are conversations, either NAME_chat or NAME_prompt_completion, of one vocabulary, and keep `loss_mask` and
            `span_id`.
        temperature: raises each weight to 1 / temperature, as SeqIO and mT5 do with the sizes of corpora. Higher ones make
            fractions more equal, and 1 keeps the weights.
        weigh: what weights count: "examples", or "tokens", those that the examples are made of. A corpus then has as many examples
            as its tokens need, where an example has as many as those of an epoch on average; the objectives of one corpus count
            examples. Of a corpus that is read in windows the average is that of its beginning.
        schedule: instead of `mixtures`, a list of `Stage`: the weights from a step on, of mixtures that `register` returned. Each
            corpus continues where it is, whatever its weight is, so no token comes twice in an epoch. New denoisers of a corpus,
            or new weights of them, take effect when the blocks that are being read are finished; without `block_shuffle`, at the
            end of the corpus's epoch. `ul2 show --schedule` prints the step. Of a corpus that is read in
            windows only its own weight may change. The last stage continues after the last step.
        batch_size, steps: with a schedule, the global batch size, in examples or packed sequences, and the number of steps.

    Returns:
        "NAME_mix".

    Raises:
        ValueError: a weight or the temperature is not a positive number; `weigh` is another word; a name is not registered; a task
            has other features, or another vocabulary than conversations; none is a denoising task; the name is taken by another
            mixture; a mixture by tokens or with a schedule has a task that is not of ul2_tasks; the schedule has conversations
            alone, does not begin at step 0, or does not ascend.
    """
    check_weigh(weigh)
    planned = check_schedule(mixtures, schedule, batch_size, steps, temperature)
    weights = planned.average if planned else weights_of(mixtures, temperature)
    if unnamed := [mixed for mixed in weights if not isinstance(mixed, str)]:
        raise ValueError(
            f"mixtures must be names of registered mixtures and tasks, got {unnamed[0]!r:.100}. Mix descriptions with"
            " ul2_tasks.Mix, and image rows as several sources of one ImageTextDataset."
        )
    registered = {*seqio.MixtureRegistry.names(), *seqio.TaskRegistry.names()}
    missing = sorted(set(weights) - registered)
    if missing:
        raise ValueError(f"the mixture or task {missing} must be registered, but only {sorted(registered)} are. Register it first.")
    tasks = {task.name: task for mixed in weights for task in seqio.get_subtasks(seqio.get_mixture_or_task(mixed))}
    foreign = sorted(name for name, task in tasks.items() if not is_ours(task))
    if foreign and (planned or weigh == "tokens"):
        raise ValueError(
            f"{'schedule' if planned else 'weigh=tokens'} must have tasks of ul2_tasks.register and register_chat alone, got"
            f" {foreign}. Leave it out."
        )
    chats = [task for task in tasks.values() if isinstance(task, ChatTask)]
    if chats:
        _check_vocabularies(chats[0], tasks.values())
    if len(chats) == len(tasks):
        if len({task.format for task in chats}) > 1:
            raise ValueError(
                f"mixtures must be conversations of one format, got {sorted(tasks)}. Mix"
                f" {[task.name for task in chats if task.format == CHAT]} and"
                f" {[task.name for task in chats if task.format != CHAT]} apart: a model reads one of them."
            )
        if planned:
            raise ValueError(f"schedule must have a denoising task, got {sorted(tasks)}. Mix conversations without a schedule.")
        return _mixed(name, MixConfiguration(weights, None, weigh), tasks.values(), ChatMixture)
    features = {name: sorted(task.output_features) for name, task in tasks.items() if not isinstance(task, ImageTextTask)}
    if others := {name: keys for name, keys in features.items() if keys != sorted(TOKEN_FEATURES)}:
        raise ValueError(f"only tasks of inputs and targets can be mixed, got {others}.")
    if not any(isinstance(task, DenoisingTask | ImageTextTask) for task in tasks.values()):
        raise ValueError(f"one of {sorted(tasks)} must be a denoising task, but none is. Mix them with seqio.MixtureRegistry.add.")
    if parts := [task.name for task in chats if not task.trains_on_all_targets]:
        raise ValueError(
            f"mixtures with denoisers must train on all targets, which {parts[0]!r} does not. Pass loss_groups without a 0, and"
            " train_on='all' or 'generated', or mix conversations alone."
        )
    return _mixed(name, MixConfiguration(weights, planned, weigh), tasks.values(), DenoisingMixture)


def _check_vocabularies(chat: ChatTask, tasks: Iterable[seqio.Task]) -> None:
    """Raises a ValueError where a task has another vocabulary than that of conversations, which has the renderer's tokens."""
    vocabulary = chat.corpus.vocabulary
    for task in tasks:
        other = task.corpus.vocabulary if isinstance(task, ChatTask) else task.output_features["targets"].vocabulary
        if other != vocabulary:
            raise ValueError(
                f"{chat.name!r} and {task.name!r} must be of one vocabulary, got {vocabulary_identity(vocabulary)} and"
                f" {vocabulary_identity(other)}. Give register the vocabulary of the conversations:"
                f" seqio.get_mixture_or_task({chat.name!r}).output_features[..].vocabulary."
            )


def _mixed(name: str, configuration: MixConfiguration, tasks: Iterable[seqio.Task], mixture_cls: type[seqio.Mixture]) -> str:
    mixture, weights = f"{name}_mix", configuration.mixtures
    if not is_registered(seqio.MixtureRegistry, mixture, configuration):
        has_images = any(IMAGES in task.output_features for task in tasks)
        rates = beside_images(weights) if has_images else list(weights.items())
        seqio.MixtureRegistry.add(mixture, rates, mixture_cls=mixture_cls, configuration=configuration)
    return mixture
