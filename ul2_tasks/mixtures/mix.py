"""`Mix`: mixtures of several corpora, and conversations, by their weights, as they are described."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence

from ul2_tasks.chat.objective import CHAT
from ul2_tasks.corpus.configuration import digest
from ul2_tasks.mixtures.chat import Chat, format_of
from ul2_tasks.mixtures.description import Description, check_name
from ul2_tasks.mixtures.image_text import ImageText
from ul2_tasks.mixtures.mixture import check_corpora
from ul2_tasks.mixtures.schedule import Schedule, Stage, check_schedule, check_weigh, weights_of
from ul2_tasks.random_access.kinds import Task
from ul2_tasks.random_access.numbering import MemberSchedule, members_by_stage
from ul2_tasks.scalars import as_python, fractions
from ul2_tasks.tokenizers.special_ids import id_shift, vocabulary_identity


@dataclasses.dataclass(frozen=True)
class Mix:
    """Describes a mixture of several corpora with a weight for each, without registering it. Opens no file.

        web, code = ul2_tasks.Mixture("web", "web/*.jsonl.gz"), ul2_tasks.Mixture("code", "code/*.jsonl.gz")
        both = ul2_tasks.Mix("both", {web: 3, code: 1})
        both.cache("CACHE")
        examples = ul2_tasks.examples(both, {"inputs": 512, "targets": 512}, cache_dirs=["CACHE"])

    A `Chat` beside others gives its prompt-completion pairs, and the examples of all then have `loss_mask` and `span_id`. Beside an
    `ImageText` the examples of all have `images`.

    `mix` registers the same of registered mixtures, with the same examples. Neither SeqIO nor TensorFlow is imported, unless a
    source or the vocabulary is one of theirs.

    Attributes:
        name: the mixture's name.
        mixtures: the weights, positive numbers, of `Mixture` and `Chat` objects with different names and one vocabulary. A weight
            divided by the sum of all is a fraction of the examples, or of the tokens. It becomes pairs of a mixture and its weight,
            in the order of the names.
        temperature: raises each weight to 1 / temperature, as SeqIO and mT5 do with the sizes of corpora. Higher ones make
            fractions more equal, and 1 keeps the weights.
        weigh: what weights count, "examples" or "tokens", see `mix`.
        schedule: instead of `mixtures`, a list of `Stage`, whose weights change during a run; see `mix`.
        batch_size, steps: with a schedule, the global batch size and the number of steps of the run.

    Raises:
        ValueError: a weight or the temperature is not a positive number; `weigh` is another word; something is not a `Mixture` or a
            `Chat`; two have the same name; a schedule has `Chat` objects alone; or see `mix`.

    >>> import ul2_tasks
    >>> ul2_tasks.Mix("both", {ul2_tasks.Mixture("a"): 3, ul2_tasks.Mixture("b", denoisers="UL2"): 1}).mixtures[0][1]
    3
    """

    name: str
    mixtures: Mapping[Description, float] | Sequence[tuple[Description, float]] | None = None
    _: dataclasses.KW_ONLY
    temperature: float = 1.0
    weigh: str = "examples"
    schedule: Sequence[Stage[Description]] | None = None
    batch_size: int | None = None
    steps: int | None = None

    def __post_init__(self):
        check_name(self.name)
        check_weigh(self.weigh)
        planned = _planned(self)
        weights = planned.average if planned else weights_of(self.mixtures)
        if wrong := [mixture for mixture in weights if not isinstance(mixture, Description)]:
            raise ValueError(
                f"mixtures must be Mixture, Chat or ImageText objects of ul2_tasks, got {wrong[0]!r}. Use ul2_tasks.mix for"
                " registered names."
            )
        if planned and all(isinstance(mixture, Chat) for mixture in weights):
            raise ValueError(
                f"schedule must have a ul2_tasks.Mixture, got {sorted(mixture.name for mixture in weights)}. Mix conversations"
                " without a schedule."
            )
        names = sorted(mixture.name for mixture in weights)
        if len(set(names)) < len(names):
            raise ValueError(f"mixtures must have different names, got {names}. Rename one of them.")
        check_corpora(weights)
        if planned:
            object.__setattr__(self, "schedule", planned.stages)
        else:
            weights_of(weights, self.temperature)  # which checks the temperature
            object.__setattr__(self, "mixtures", _by_name(weights))
            object.__setattr__(self, "temperature", as_python(self.temperature))

    def fingerprint(self) -> str:
        """Returns 16 hexadecimal digits of the mixtures, names and weights. Opens the vocabularies; see `Mixture.fingerprint`."""
        planned, weighed = _planned(self), {} if self.weigh == "examples" else {"weigh": self.weigh}
        if planned is None:
            shares = fractions(dict(_pairs(self)))
            return digest({each.name: f"{each.fingerprint()}, weight {shares[each]}" for each in shares} | weighed)
        told = {mixture.name: mixture.fingerprint() for mixture, _ in _pairs(self)} | weighed
        for first_step, weights in planned.flat():
            parts = fractions(weights)
            told[f"example {first_step * planned.batch_size}"] = repr(sorted((each.name, parts[each]) for each in parts))
        return digest(told)

    def cache(
        self,
        output_dir: str | os.PathLike,
        *,
        max_documents: int | None = None,
        max_tokens: int | None = None,
        git_revision: str | None = None,
    ) -> dict[str, dict]:
        """Tokenizes each corpus into a folder in `output_dir`, as `ul2 cache` does. Returns the manifests by mixture."""
        most = {"max_documents": max_documents, "max_tokens": max_tokens}
        manifests: dict[str, dict] = {}  # by corpus, as several mixtures may share one
        for mixture, _ in _pairs(self):
            corpus = mixture.corpus().name
            if corpus not in manifests:
                manifests[corpus] = mixture.cache(output_dir, **most, git_revision=git_revision)
        return {mixture.name: manifests[mixture.corpus().name] for mixture, _ in _pairs(self)}

    def members(self, sequence_length: Mapping[str, int], cache_dirs: Sequence[str | os.PathLike] = ()) -> list[Task]:
        """The tasks of all, see `Description.members`.

        Raises a ValueError for two vocabularies, or lengths of conversations beside those that are no conversations.
        """
        mixtures = [mixture for mixture, _ in _pairs(self)]
        chats = [mixture for mixture in mixtures if isinstance(mixture, Chat)]
        if format_of(sequence_length) == CHAT and chats and len(chats) < len(mixtures):
            raise ValueError(
                f"sequence_length must have inputs and targets for {self.name!r}, which mixes conversations with denoisers, got"
                f" {dict(sequence_length)}. Mix conversations alone to make chats."
            )
        first = chats[0] if chats else mixtures[0]
        for mixture in mixtures:
            if mixture.vocabulary != first.vocabulary:
                raise ValueError(
                    f"the mixtures of {self.name!r} must be of one vocabulary, got {vocabulary_identity(first.vocabulary)} and"
                    f" {vocabulary_identity(mixture.vocabulary)}. Give them the same"
                    + (f", that of the conversations: vocabulary={first.name}.renderer.vocabulary." if chats else ".")
                )
        members: list[Task] = []
        for mixture, weight in _pairs(self):
            total, own = sum(mixture.rates.values()), mixture.members(sequence_length, cache_dirs)
            members += [dataclasses.replace(member, rate=weight * member.rate / total) for member in own]
        marks = {id for mixture in mixtures if isinstance(mixture, ImageText) for id in mixture.image_tokens.ids}
        shift = id_shift(first.vocabulary)
        for member in members if marks else []:
            taken = member.solution.special.reserved if member.solution else ()
            if both := sorted(marks & {id - shift for id in taken}):
                raise ValueError(
                    f"sentinels and modes of {member.task!r} must not be ids of image_tokens, got {both}. Pass others."
                )
        return sorted(members, key=lambda member: member.task)

    @property
    def parts(self) -> tuple[Description, ...]:
        """What is mixed, each once."""
        return tuple(mixture for mixture, _ in _pairs(self))

    def schedule_of(self, sequence_length: Mapping[str, int], cache_dirs: Sequence[str | os.PathLike] = ()) -> MemberSchedule:
        """The tasks of each stage, at their rates."""
        members = self.members(sequence_length, cache_dirs)
        if (planned := _planned(self)) is None:
            return MemberSchedule.of(members, self.weigh)
        rates = []
        for first_step, weights in planned.flat():
            of_stage: dict[str, float] = {}
            for mixture, weight in weights.items():
                total = sum(mixture.rates.values())
                of_stage |= {task: weight * rate / total for task, rate in mixture.rates.items()}
            rates.append((first_step, of_stage))
        return members_by_stage(members, rates, planned.batch_size, planned.steps, self.weigh)

    def registered_name(self, sequence_length: Mapping[str, int]) -> str:
        """The name that it is registered under."""
        return f"{self.name}_mix"


def _planned(mix: Mix) -> Schedule[Description] | None:
    """The schedule with its batch size and steps; None without one."""
    return check_schedule(mix.mixtures, mix.schedule, mix.batch_size, mix.steps, mix.temperature)


def _pairs(mix: Mix) -> Sequence[tuple[Description, float]]:
    """The mixtures with their weights, of which temperature is part; with a schedule, with their fractions of the whole run."""
    planned = _planned(mix)
    return _by_name(planned.average if planned else weights_of(mix.mixtures, mix.temperature))


def _by_name(weights: Mapping[Description, float]) -> tuple[tuple[Description, float], ...]:
    return tuple((mixture, as_python(weights[mixture])) for mixture in sorted(weights, key=lambda mixture: mixture.name))
