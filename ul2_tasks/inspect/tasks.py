"""The tasks of a description, by their kinds, with what is asked of them here."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ul2_tasks.chat.objective import Objective
from ul2_tasks.chat.supervision import Supervision
from ul2_tasks.corpus.corpus import Corpus
from ul2_tasks.denoisers.denoisers import Denoiser
from ul2_tasks.denoisers.pieces import PieceLimits
from ul2_tasks.mixtures.chat import Chat, format_of, objective_of
from ul2_tasks.mixtures.image_text import ImageText, check_no_image_lengths, piece_limits, special_tokens_beside
from ul2_tasks.mixtures.mixture import DescribedTask, Mixture, described_tasks, with_denoisers
from ul2_tasks.tokenizers.special_ids import SpecialTokens

if TYPE_CHECKING:
    from ul2_tasks.mixtures.description import Description
    from ul2_tasks.mixtures.mix import Mix

Folders = Sequence[str]  # where caches may be


@dataclasses.dataclass(frozen=True)
class ChatTask:
    """Conversations in a format."""

    name: str
    corpus: Corpus
    format: str
    configuration: Chat

    @property
    def objective(self) -> Objective:
        return objective_of(self.configuration, self.format)

    @property
    def supervision(self) -> Supervision:
        return self.objective.supervision


@dataclasses.dataclass(frozen=True)
class ImageTextTask:
    """A denoiser of texts with images."""

    name: str
    corpus: Corpus
    denoiser: Denoiser
    configuration: ImageText

    @property
    def vocabulary(self) -> Any:
        return self.configuration.vocabulary

    def special_tokens(self) -> SpecialTokens:
        """The ids that the denoiser adds to those of the text. Opens the vocabulary."""
        return special_tokens_beside(self.configuration, self.denoiser)

    def limits(self, sequence_length: Mapping[str, int]) -> PieceLimits:
        """What its examples have to be within these budgets."""
        check_no_image_lengths(sequence_length)
        return piece_limits(self.name, self.configuration, self.denoiser, self.special_tokens(), sequence_length)


def text_tasks(
    description: Description | Mix, denoisers: Collection[str] | None = None, cache_dirs: Folders = ()
) -> list[DescribedTask]:
    """The denoising tasks of text, by name; with `denoisers` those that have these.

    Raises a ValueError where there is none, or there is no such denoiser.
    """
    found = [task for part in description.leaves if isinstance(part, Mixture) for task in described_tasks(part, cache_dirs)]
    if not found:
        raise ValueError(
            f"mixture must have a denoising task of text, got {description.name!r}. Pass a Mixture, or a Mix with one."
        )
    return with_denoisers(f"{description.name}_mix", sorted(found, key=lambda task: task.name), denoisers)


def other_tasks(description: Description | Mix) -> list[str]:
    """The names of the tasks that are no denoising tasks of text."""
    return sorted(name for part in description.leaves if not isinstance(part, Mixture) for name in part.rates)


def chat_tasks(
    description: Description | Mix, sequence_length: Mapping[str, int | None], cache_dirs: Folders = ()
) -> list[ChatTask]:
    """The conversations, in the format that the lengths are of. Raises a ValueError where there are none."""
    format = format_of(sequence_length)
    found = [
        ChatTask(f"{part.name}_{format}", part.corpus(cache_dirs), format, part)
        for part in description.leaves
        if isinstance(part, Chat)
    ]
    if not found:
        raise ValueError(f"the description must have conversations, got {description.name!r}. Pass a Chat, or a Mix with one.")
    return found


def image_tasks(description: Description | Mix, denoisers: Collection[str] | None = None) -> list[ImageTextTask]:
    """The denoisers of texts with images, by name; see `text_tasks`."""
    found = []
    for part in description.leaves:
        if isinstance(part, ImageText):
            corpus = part.corpus()
            found += [ImageTextTask(f"{part.name}_{each.name}", corpus, each, part) for each in part.denoisers]
    if not found:
        raise ValueError(f"the description must have images, got {description.name!r}. Pass an ImageText, or a Mix with one.")
    return with_denoisers(f"{description.name}_mix", found, denoisers)


def rates_of(description: Description | Mix, sequence_length: Mapping[str, int]) -> dict[str, float]:
    """What part of the examples each task makes, where weights count examples; of a schedule in its first stage."""
    members = description.schedule_of(sequence_length).stages[0].members
    total = sum(member.rate for member in members)
    return {member.task: member.rate / total for member in members}
