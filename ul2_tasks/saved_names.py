"""The names that version 1 gave to classes, fields and arguments, where a fingerprint, a state or a manifest holds them.

Data that were saved by an earlier version must load, so what is written has these names for as long as it is read.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

SAVED_NAMES: dict[str, str] = {  # name today, of a field with its class, -> name that is saved
    "ImageTextSource": "PictureSource",
    "ImageTokens": "PictureRun",
    "ImageTokens.boi_id": "start",
    "ImageTokens.image_id": "placeholder",
    "ImageTokens.eoi_id": "end",
    "ImageTokens.image_seq_length": "tokens",
    "ImageText.image_tokens": "picture",
    "ImageText.on_unusable": "unfit",
    "SpecialTokenConfig": "Form",
    "SpecialTokenConfig.bos_id": "bos",
    "SpecialTokenConfig.eos_id": "eos",
    "SpecialTokenConfig.boi_id": "picture_start",
    "SpecialTokenConfig.eoi_id": "picture_end",
    "SpecialTokenConfig.vit_patches_per_side": "vit_side",
    "SpecialTokenConfig.vae_patches_per_side": "vae_side",
    "SpecialTokenConfig.interpolate_pos": "interpolated",
    "Size.longest_edge": "longest",
    "Size.shortest_edge": "shortest",
    "Size.patch_size": "stride",
    "Size.max_pixels": "pixels",
    "FrameSampler.min_frames": "fewest",
    "FrameSampler.max_frames": "most",
    "T5Gemma2FeatureConverter._image_tokens": "_picture",
    "T5Gemma2FeatureConverter._image_size": "_side",
    "unified_edit.max_steps": "most_steps",
    "ul2_tasks.images.schemas": "ul2_tasks.images.plans",
    "PromptCompletionFeatureConverter": "ReplyFeatureConverter",
}
# Of `register_chat`: arguments, and their values.
CHAT_ARGUMENTS = {"loss_groups": "spans", "train_on": "supervise", "truncation": "too_long", "format": "form"}
CHAT_VALUES = {
    "train_on": {"all": "whole", "generated": "sampled"},
    "truncation": {"drop_oldest_turns": "oldest"},
    "format": {"prompt_completion": "reply"},
}


def saved_name(name: str, of: str = "") -> str:
    """The name that is saved for a name of today; of a field, with the name of its class.

    >>> saved_name("ImageTokens"), saved_name("boi_id", "ImageTokens"), saved_name("around", "ImageTokens")
    ('PictureRun', 'start', 'around')
    """
    return SAVED_NAMES.get(f"{of}.{name}" if of else name, name)


def saved_repr(value: object) -> str:
    """`repr(value)` as version 1 wrote it: dataclasses, also within lists and tuples, with the names that are saved."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        name = type(value).__qualname__
        fields = (field.name for field in dataclasses.fields(value) if field.repr)
        inner = ", ".join(f"{saved_name(field, name)}={saved_repr(getattr(value, field))}" for field in fields)
        return f"{saved_name(name)}({inner})"
    if type(value) is tuple:
        return f"({', '.join(map(saved_repr, value))}{',' if len(value) == 1 else ''})"
    if type(value) is list:
        return f"[{', '.join(map(saved_repr, value))}]"
    return repr(value)


def saved_words(words: str) -> str:
    """Words in which objects are written as calls of their classes, with the names of classes that are saved.

    >>> saved_words("ImageTextSource({'train': 'a.jsonl'}, kind='captions', folder=None)")
    "PictureSource({'train': 'a.jsonl'}, kind='captions', folder=None)"
    """
    return re.sub(r"\b\w+(?=\()", lambda found: saved_name(found[0]), words)


def saved_chat_task(name: str) -> str:
    """The name that is saved for a task of conversations, from which the order of its examples is derived, too.

    >>> saved_chat_task("mine_prompt_completion"), saved_chat_task("mine_chat")
    ('mine_reply', 'mine_chat')
    """
    stem = name.removesuffix("_prompt_completion")
    return name if stem == name else f"{stem}_reply"


def saved_chat_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `register_chat`, in their order, as they are saved.

    >>> saved_chat_arguments({"train_on": "all", "turns": "each"})
    {'supervise': 'whole', 'turns': 'each'}
    """
    return {CHAT_ARGUMENTS.get(key, key): _replaced(value, CHAT_VALUES.get(key, {})) for key, value in arguments.items()}


def chat_arguments(saved: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `register_chat`, of those that were saved by version 1 or later.

    >>> chat_arguments({"supervise": "sampled", "train_on": "content"})
    {'train_on': 'content'}
    """
    names = {old: new for new, old in CHAT_ARGUMENTS.items()}
    values = {key: {old: new for new, old in of_key.items()} for key, of_key in CHAT_VALUES.items()}
    return {(name := names.get(key, key)): _replaced(value, values.get(name, {})) for key, value in saved.items()}


def _replaced(value: Any, replacements: Mapping[str, str]) -> Any:
    return replacements.get(value, value) if isinstance(value, str) else value
