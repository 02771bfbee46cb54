"""What a command registers: in its own process, and again in each worker of a Beam job."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

from ul2_tasks.chat.objective import CHAT, FORMATS
from ul2_tasks.mixtures.chat import Chat, open_conversations
from ul2_tasks.mixtures.mixture import Mixture
from ul2_tasks.sources.by_name import open_source
from ul2_tasks.sources.memory import texts_in_memory

_EMBEDDED = {**dict.fromkeys(("ul2", "ul2_mix"), Mixture), **dict.fromkeys(("chat", "chat_chat", "chat_prompt_completion"), Chat)}


@dataclasses.dataclass(frozen=True)
class Registration:
    """The name of a mixture with what registers it, modules or arguments, for processes that are spawned.

    Attributes:
        name: NAME of the mixture NAME_mix. If the modules register it, the whole name of any mixture is valid, too.
        modules: modules that are imported first.
        source: arguments of `open_source`; by default those of the built-in corpus.
        arguments: of `register`; `preset` instead of `denoisers` is the name of a preset. Without a source and without
            arguments, one of the modules or this package has registered the mixture. With `renderer` among them, they are of
            `register_chat`.
    """

    name: str
    modules: Sequence[str] = ()
    source: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def apply(self) -> str:
        """Registers the mixture, or the task of conversations, unless it is registered, and returns its name.

        Raises:
            ValueError: see `open_source` and `register`; the mixture does not exist; the name is that of a task.
        """
        for module in self.modules:
            importlib.import_module(module)
        if not self.source and not self.arguments:
            return _registered(self.name)
        return hand_over(self._described(), self)

    @property
    def described(self) -> Mixture | Chat | None:
        """Returns the description that a command names, which needs no SeqIO; None where a module registers it.

        Raises:
            ValueError: see `open_source`, `Mixture` and `Chat`.
        """
        if self.modules:
            return None
        if not self.source and not self.arguments:
            return _EMBEDDED[self.name]() if self.name in _EMBEDDED else None
        is_ours = self.name in ("ul2", "ul2_mix") and "renderer" not in self.arguments
        return None if is_ours else self._described()  # what comes with this package, of other arguments

    def _described(self) -> Mixture | Chat:
        arguments, source = dict(self.arguments), dict(self.source)
        if str(source.get("spec", "")).startswith("tfds:") and importlib.util.find_spec("seqio"):
            importlib.import_module("seqio")  # which reads it
        if "renderer" in arguments:
            arguments.pop("format", None)
            if source:
                key = arguments.pop("messages_key", "messages")
                spec, key = source.pop("spec", "embedded"), source.pop("text_key", key)
                arguments["source"] = open_conversations(spec, key, **source)
            return Chat(_name_and_format(self.name)[0], **arguments)
        if "preset" in arguments:
            arguments["denoisers"] = arguments.pop("preset")
        return Mixture(self.name.removesuffix("_mix"), open_source(**{"spec": "embedded", **source}), **arguments)


def hand_over(description: Mixture | Chat, registration: Registration) -> str:
    """Registers with SeqIO what is described, and returns its name."""
    from ul2_tasks.tasks.registry import register

    is_chat = isinstance(description, Chat)
    format = _name_and_format(registration.name)[1] or registration.arguments.get("format", CHAT) if is_chat else None
    return register(description, format=format)


def with_texts(mixture: str, texts: Sequence[str]) -> str:
    """Registers the denoisers of a mixture on other documents, which are kept apart.

    `mixture` is what `register` returned, "NAME_mix", and the result is "NAME_text_mix". Raises a ValueError where the mixture is
    one of several corpora, or was not registered by `register`.
    """
    from ul2_tasks.tasks.names import description_of
    from ul2_tasks.tasks.registry import register

    description = description_of(mixture)
    if not isinstance(description, Mixture):
        raise ValueError(
            f"mixture must be of one corpus, got {mixture!r}, which mixes several. Name one of those that it mixes to use its"
            " denoisers."
        )
    of_texts = dataclasses.replace(
        description,
        name=f"{mixture.removesuffix('_mix')}_text",
        source=texts_in_memory(texts),
        text_key="text",
        merge_examples=False,
        separate_documents=False,
    )
    return register(of_texts)


def _name_and_format(name: str) -> tuple[str, str | None]:
    """NAME and the format, of NAME_chat or NAME_prompt_completion; of any other name the name and None."""
    format = None
    for each in FORMATS:
        if name.endswith(f"_{each}"):
            name, format = name.removesuffix(f"_{each}"), each
    return name, format


def _registered(name: str) -> str:
    import seqio

    from ul2_tasks.tasks.providers import is_of
    from ul2_tasks.tasks.registry import register

    names = sorted(seqio.MixtureRegistry.names())
    for mixture in (f"{name}_mix", name):
        if mixture in names:
            return mixture
    chats = {task for task in seqio.TaskRegistry.names() if is_of(seqio.TaskRegistry.get(task), Chat)}
    for task in (f"{name}_{CHAT}", name):
        if task in chats:
            return task
    if name in ("chat", "chat_chat", "chat_prompt_completion"):  # the built-in conversations
        return register(Chat(), format=_name_and_format(name)[1] or CHAT)
    if name in seqio.TaskRegistry.names():
        task = seqio.TaskRegistry.get(name)
        holding = [mixture for mixture in names if task in seqio.MixtureRegistry.get(mixture).tasks]
        alone = f", and --denoiser {task.denoiser.name} for it alone, in ul2 show" if is_of(task, Mixture) else ""
        raise ValueError(f"{name!r} is a task, and a mixture is needed. Name one of those that hold it, {holding}{alone}.")
    known = sorted({*names, *chats})
    raise ValueError(
        f"nothing named {name!r} is registered (known: {known}). Pass --corpus to create it, or --module for the module that"
        " registers it."
    )
