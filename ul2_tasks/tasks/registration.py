"""What a command registers: in its own process, and again in each worker of a Beam job."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from ul2_tasks.mixtures.mixture import Mixture
from ul2_tasks.sources.by_name import open_source
from ul2_tasks.sources.memory import texts_in_memory


@dataclasses.dataclass(frozen=True)
class Registration:
    """The name of a mixture, and what registers it: modules, or arguments.

    Attributes:
        name: NAME of the mixture NAME_mix. If the modules register it, the whole name of any mixture will do, too.
        modules: they are imported first.
        source: arguments of `open_source`; by default those of the embedded corpus.
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
            ValueError: see `open_source` and `register`; there is no such mixture; the name is that of a task.
        """
        for module in self.modules:
            importlib.import_module(module)
        if "renderer" in self.arguments:
            return _register_chat(self.name, dict(self.source), dict(self.arguments))
        if not self.source and not self.arguments:
            return _registered(self.name)
        from ul2_tasks.tasks.registry import add

        return add(self._described())

    @property
    def described(self) -> Mixture | None:
        """The mixture as a description, which needs no SeqIO; None where a module registers it, or where it is conversations.

        Raises:
            ValueError: see `open_source` and `Mixture`.
        """
        if self.modules or "renderer" in self.arguments:
            return None
        if not self.source and not self.arguments:
            return Mixture() if self.name in ("ul2", "ul2_mix") else None
        return None if self.name in ("ul2", "ul2_mix") else self._described()  # which comes with this package, of other arguments

    def _described(self) -> Mixture:
        arguments = dict(self.arguments)
        if "preset" in arguments:
            arguments["denoisers"] = arguments.pop("preset")
        return Mixture(self.name.removesuffix("_mix"), open_source(**{"spec": "embedded", **self.source}), **arguments)


def with_texts(mixture: str, texts: Sequence[str]) -> str:
    """Registers the denoisers of a mixture on other documents, which are kept apart.

    `mixture` is what `register` returned, "NAME_mix", and the result is "NAME_text_mix". Raises a ValueError where the mixture is
    one of several corpora, or was not registered by `register`.
    """
    import seqio

    from ul2_tasks.tasks.registry import add

    configuration = getattr(seqio.MixtureRegistry.get(mixture), "configuration", None)
    if not isinstance(configuration, Mixture):
        raise ValueError(f"{mixture!r} is a mixture of several corpora; name one of those that it mixes to use its denoisers")
    of_texts = dataclasses.replace(
        configuration,
        name=f"{mixture.removesuffix('_mix')}_text",
        source=texts_in_memory(texts),
        text_key="text",
        merge_examples=False,
        separate_documents=False,
    )
    return add(of_texts)


def _register_chat(name: str, source: dict[str, Any], arguments: dict[str, Any]) -> str:
    from ul2_tasks.chat.objective import FORMS
    from ul2_tasks.mixtures.chat import open_conversations
    from ul2_tasks.tasks.chat import register_chat

    for form in FORMS:
        if name.endswith(f"_{form}"):
            name, arguments["form"] = name.removesuffix(f"_{form}"), form
    if source:
        messages_key = arguments.pop("messages_key", "messages")
        arguments["source"] = open_conversations(source.pop("spec", "embedded"), source.pop("text_key", messages_key), **source)
    return register_chat(name, **arguments)


def _registered(name: str) -> str:
    import seqio

    from ul2_tasks.chat.objective import CHAT
    from ul2_tasks.tasks.chat import ChatTask, register_chat
    from ul2_tasks.tasks.providers import DenoisingTask

    names = sorted(seqio.MixtureRegistry.names())
    for mixture in (f"{name}_mix", name):
        if mixture in names:
            return mixture
    chats = {task for task in seqio.TaskRegistry.names() if isinstance(seqio.TaskRegistry.get(task), ChatTask)}
    for task in (f"{name}_{CHAT}", name):
        if task in chats:
            return task
    if name in ("chat", "chat_chat", "chat_reply"):  # the conversations that come with this package
        return register_chat(form=name.rpartition("_")[2])
    if name in seqio.TaskRegistry.names():
        task = seqio.TaskRegistry.get(name)
        holding = [mixture for mixture in names if task in seqio.MixtureRegistry.get(mixture).tasks]
        alone = f", and --denoiser {task.denoiser.name} for it alone, in ul2 show" if isinstance(task, DenoisingTask) else ""
        raise ValueError(f"{name!r} is a task, expected a mixture; those that hold it are {holding}; name one of these{alone}")
    known = sorted({*names, *chats})
    raise ValueError(
        f"there is no '{name}_mix' and no '{name}_{CHAT}', only {known}; give its corpus, or the module that registers it"
    )
