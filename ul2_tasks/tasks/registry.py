"""`register` hands descriptions to SeqIO's registries."""

from __future__ import annotations

from typing import Any

import seqio

from ul2_tasks.chat.objective import FORMATS
from ul2_tasks.example_features import TOKEN_FEATURES
from ul2_tasks.mixtures.chat import Chat
from ul2_tasks.mixtures.description import Description, owner_of
from ul2_tasks.mixtures.image_text import ImageText
from ul2_tasks.mixtures.mix import Mix
from ul2_tasks.mixtures.mixture import Mixture
from ul2_tasks.tasks.corpus_task import CorpusTask, registered
from ul2_tasks.tasks.names import check_names_are_free, is_registered, takes_arguments_of
from ul2_tasks.tasks.providers import UL2Mixture, UL2Task, beside_images


@takes_arguments_of(Mixture)
def register(*arguments: Any, format: str | None = None, **keywords: Any) -> str:
    """Registers a description with SeqIO: a `Chat`, an `ImageText`, a `Mix`, or a `Mixture`, of which the arguments will do.

    There is `NAME_corpus`, a task `NAME_<denoiser>` for each denoiser, and `NAME_mix`; of a `Chat` instead of these tasks
    `NAME_chat` and `NAME_prompt_completion`. A mixture that shares the corpus of another has no `NAME_corpus`, and the other one
    is registered too, as are the descriptions that a `Mix` mixes. Called again with an equal description it changes nothing. No
    file is opened before a dataset is made. Two sources are the same if they read the same, see `DataSource.identity`. A
    source of a lambda or a local function equals only itself, and cannot be cached. Documents in memory are compared by their
    content.

    Args:
        format: of conversations, which name is returned: "chat", for decoder-only models, or "prompt_completion", for
            encoder-decoder models.

    Returns:
        "NAME_mix"; of conversations "NAME_chat".

    Raises:
        ValueError: see `Mixture`; or the name is taken, by another provider or by other arguments, which are listed.

    >>> import ul2_tasks
    >>> ul2_tasks.register(ul2_tasks.Mixture("docs"))
    'docs_mix'
    """
    first = arguments[0] if arguments else keywords.get("name")
    if not isinstance(first, Description):
        return _add(Mixture(*arguments, **keywords), format)
    if more := [*arguments[1:], *(key for key in keywords if arguments or key != "name")]:
        raise ValueError(f"arguments must be left out with a description, got {more}. Pass them to {type(first).__name__}.")
    return _add(first, format)


@takes_arguments_of(Chat)
def register_chat(*arguments: Any, format: str | None = None, **keywords: Any) -> str:
    """`register` of a `Chat`, for gin: the corpus NAME_corpus, and the tasks NAME_chat and NAME_prompt_completion.

    Args:
        format: see `register`.

    >>> import ul2_tasks
    >>> ul2_tasks.register_chat("talk")
    'talk_chat'
    """
    return _add(Chat(*arguments, **keywords), format)


@takes_arguments_of(ImageText)
def register_image_text(*arguments: Any, **keywords: Any) -> str:
    """`register` of an `ImageText`: the corpus NAME_corpus, a task NAME_<denoiser> for each denoiser, and NAME_mix.

    Args:
    """
    return _add(ImageText(*arguments, **keywords))


@takes_arguments_of(Mix)
def mix(*arguments: Any, format: str | None = None, **keywords: Any) -> str:
    """`register` of a `Mix`, for gin: NAME_mix, of several corpora, or of supervised tasks beside a corpus.

    Args:
        format: see `register`.
    """
    return _add(Mix(*arguments, **keywords), format)


def _add(description: Description, format: str | None = None) -> str:
    endings = FORMATS if all(isinstance(leaf, Chat) for leaf in description.leaves) else ("mix",)
    if format not in (None, *endings):
        raise ValueError(f"format must be one of {list(endings)} for {description.name!r}, got {format!r}.")
    names = [f"{description.name}_{ending}" for ending in endings]
    if not is_registered(names[0], description):
        if isinstance(description, Mix):
            _add_mix(description, names)
        else:
            _add_tasks(description)
    return names[endings.index(format or endings[0])]


def _add_tasks(description: Description) -> None:
    """Adds the corpus of a description, its tasks, and where these have denoisers their mixture."""
    owner = owner_of(description) if isinstance(description, Mixture) else description
    corpus, mixture = registered(description.corpus()), f"{description.name}_mix"
    check_names_are_free([*([corpus.name] if owner is description else []), *description.tasks, mixture])
    if owner is description:
        seqio.TaskRegistry.add_provider(corpus.name, CorpusTask(corpus))
    else:
        _ensure(owner)
    corpus = seqio.TaskRegistry.get(corpus.name).corpus
    for name, alone in description.tasks.items():
        seqio.TaskRegistry.add_provider(name, UL2Task(name, alone, corpus))
    if description.denoisers:
        weights = list(description.rates.items())
        seqio.MixtureRegistry.add(mixture, weights, mixture_cls=UL2Mixture, description=description)


def _ensure(leaf: Description) -> None:
    """Registers a description unless all of its tasks are there, as part of one that has more denoisers."""
    there = {task: seqio.TaskRegistry.get(task) for task in leaf.tasks if task in seqio.TaskRegistry.names()}
    if len(there) < len(leaf.tasks) or any(getattr(task, "description", None) != leaf.tasks[name] for name, task in there.items()):
        _add(leaf)


def _add_mix(mix: Mix, names: list[str]) -> None:
    for leaf in mix.leaves:
        _ensure(leaf)
    check_names_are_free(names)
    ours = mix.tasks
    if others := {
        name: keys
        for name in mix.rates
        if name not in ours and (keys := sorted(seqio.TaskRegistry.get(name).output_features)) != sorted(TOKEN_FEATURES)
    }:
        raise ValueError(f"only tasks of inputs and targets can be mixed, got {others}.")
    if not ours:
        raise ValueError(
            f"one of {sorted(mix.rates)} must be a task of ul2_tasks, but none is. Mix them with seqio.MixtureRegistry.add."
        )
    is_mixed = len(names) == 1
    if is_mixed and (parts := [leaf.name for leaf in mix.leaves if isinstance(leaf, Chat) and not leaf.trains_on_all_targets]):
        raise ValueError(
            f"mixtures with denoisers must train on all targets, which {parts[0]!r} does not. Pass loss_groups without a 0, and"
            " train_on='all' or 'generated', or mix conversations alone."
        )
    marks = frozenset(id for leaf in mix.leaves if isinstance(leaf, ImageText) for id in leaf.image_tokens.ids)
    for name, format in zip(names, FORMATS if not is_mixed else ("prompt_completion",)):
        weights = mix.rates_in(format)
        tasks = [seqio.TaskRegistry.get(task) for task in weights]
        if marks:
            tasks = list(map(beside_images, tasks))
        seqio.MixtureRegistry.add(name, list(zip(tasks, weights.values())), mixture_cls=UL2Mixture, description=mix)
