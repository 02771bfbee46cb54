"""`Mix`: mixtures of several descriptions by their weights."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ul2_tasks.chat.objective import CHAT
from ul2_tasks.corpus.configuration import digest
from ul2_tasks.mixtures.chat import Chat, format_of
from ul2_tasks.mixtures.description import Description, is_same, owner_of
from ul2_tasks.mixtures.image_text import ImageText
from ul2_tasks.mixtures.mixture import Mixture, check_corpora, denoising_of
from ul2_tasks.mixtures.names import as_description
from ul2_tasks.mixtures.schedule import Schedule, Stage, check_schedule, check_weigh, weights_of
from ul2_tasks.random_access.kinds import Task
from ul2_tasks.random_access.numbering import MemberSchedule, StageMembers
from ul2_tasks.scalars import as_python, fractions, is_integer
from ul2_tasks.tokenizers.special_ids import vocabulary_identity

_OF_DENOISERS = ("source", "denoisers", "chunk_tokens")  # which descriptions of one corpus and name may have of their own


@dataclasses.dataclass(frozen=True, eq=False)
class Mix(Description):
    """A mixture of several corpora with a weight for each. Opens no file.

        web, code = ul2_tasks.Mixture("web", "web/*.jsonl.gz"), ul2_tasks.Mixture("code", "code/*.jsonl.gz")
        both = ul2_tasks.Mix("both", {web: 3, code: 1})
        both.cache("CACHE")
        examples = ul2_tasks.examples(both, {"inputs": 512, "targets": 512}, cache_dirs=["CACHE"])

    Each corpus is repeated as often as its weight needs. With a finite number of epochs `get_dataset` of the mixture ends when the
    first of its tasks ends. A `Chat` beside others gives its prompt-completion pairs, and the examples of all then have
    `loss_mask` and `span_id`. Conversations alone may be mixed as chats, too. Beside an `ImageText` the examples of all have
    `images`. SeqIO makes the examples of tasks that are not from this package, trims those that are too long, and they have no
    random access.

    Args:
        name: the mixture's name.
        mixtures: the weights, positive numbers, of descriptions of one vocabulary, or of registered mixtures and tasks by their
            names, also of tasks of SeqIO with inputs and targets. A weight divided by the sum of all is a fraction of the examples,
            or of the tokens. It becomes pairs of a description and its weight, in the order of the names; a `Mix` becomes those
            that it mixes.
        temperature: raises each weight to 1 / temperature, as SeqIO and mT5 do with the sizes of corpora. Higher ones make
            fractions more equal, and 1 keeps the weights. It is 1 then.
        weigh: what weights count: "examples", or "tokens", those that the examples are made of. A corpus then has as many examples
            as its tokens need, where an example has as many as those of an epoch on average. Of a corpus that is read in windows
            the average is that of its beginning. Weights of the denoisers of a `Mixture` always count examples.
        max_epochs: how many epochs of a corpus are read at most, by its description or name; its weight then goes to the others,
            which keep their ratio, as does all of a `schedule`. One corpus at least must be without. Corpora in turns of
            `block_shuffle` end at their last whole turn.
        schedule: instead of `mixtures`, a list of `Stage`: the weights from a step on, and the lengths and the batch size. Each
            corpus continues where it is, whatever its weight is, so no token comes twice in an epoch. New denoisers of a corpus,
            or new weights of them, take effect when the blocks that are being read are finished; without `block_shuffle`, at the
            end of the corpus's epoch. `ul2 schedule` prints the step. Of a corpus that is read in
            windows only its own weight may change. The last stage continues after the last step.
        batch_size, steps: with a schedule, the global batch size, in examples or packed sequences, and the number of steps. A stage
            may have another batch size.

    Raises:
        ValueError: a weight or the temperature is not a positive number; `weigh` is another word; a name is not registered; two
            different descriptions have one name; a schedule has conversations alone, does not begin at step 0, or does not ascend;
            a mixture by tokens or with a schedule has a task that is not of ul2_tasks.

    >>> import ul2_tasks
    >>> ul2_tasks.Mix("both", {ul2_tasks.Mixture("a"): 3, ul2_tasks.Mixture("b", denoisers="UL2"): 1}).mixtures[0][1]
    3
    """

    # What is given may be of other types, which the arguments' descriptions say; it is of these once it is made.
    name: str
    mixtures: Sequence[tuple[Description, float]] | Any = None
    _: dataclasses.KW_ONLY
    temperature: float = 1.0
    weigh: str = "examples"
    max_epochs: Mapping[Description, int] | Any = ()
    schedule: Sequence[Stage[Description]] | Any = None
    batch_size: int | None = None
    steps: int | None = None

    def __post_init__(self):
        check_weigh(self.weigh)
        planned = check_schedule(self.mixtures, self.schedule, self.batch_size, self.steps, self.temperature)
        if planned:
            stages = [dataclasses.replace(stage, mixtures=_leaves(dict(stage.mixtures))) for stage in planned.stages]
            self._set(schedule=tuple(stages))
        else:
            weights = weights_of(self.mixtures, self.temperature)
            self._set(mixtures=_by_name(_leaves(weights)), temperature=1.0)
        self._set(max_epochs=_epochs_of(self.max_epochs, self.leaves))
        leaves = [*self.leaves]
        if planned and all(isinstance(leaf, Chat) for leaf in leaves):
            raise ValueError(
                f"schedule must have a ul2_tasks.Mixture, got {sorted(leaf.name for leaf in leaves)}. Mix conversations without a"
                " schedule."
            )
        named = "schedule" if planned else "weigh=tokens" if self.weigh == "tokens" else "max_epochs" if self.max_epochs else ""
        if foreign := sorted({*self.rates} - {*self.tasks} if named else ()):
            raise ValueError(f"{named} must have tasks of ul2_tasks alone, got {foreign}. Leave it out.")
        for leaf in leaves:
            _check_beside(leaf, leaves)
        check_corpora(leaf for leaf in leaves if leaf.tasks)

    @property
    def planned(self) -> Schedule[Description] | None:
        """The schedule with its batch size and steps; None without one."""
        return check_schedule(self.mixtures, self.schedule, self.batch_size, self.steps, self.temperature)

    @property
    def pairs(self) -> Sequence[tuple[Description, float]]:
        """The descriptions with their weights; with a schedule, with their fractions of the run."""
        return _by_name(planned.average) if (planned := self.planned) else self.mixtures

    @property
    def leaves(self) -> Mapping[Description, float]:
        return fractions(dict(self.pairs))

    @property
    def tasks(self) -> Mapping[str, Description]:
        return {task: alone for leaf in self.leaves for task, alone in leaf.tasks.items()}

    @property
    def rates(self) -> dict[str, float]:
        return _rates(dict(self.pairs))

    def rates_in(self, format: str) -> dict[str, float]:
        """The same, of conversations in a format."""
        return _rates(dict(self.pairs), format)

    @property
    def stages(self) -> Sequence[tuple[int, Mapping[str, float]]]:
        """The first element and the rates of each stage; of one without a schedule the same all the time."""
        if (planned := self.planned) is None:
            return [(0, self.rates)]
        return [(planned.in_steps.element(first_step), _rates(weights)) for first_step, weights in planned.flat()]

    def fingerprint(self) -> str:
        """Returns 16 hexadecimal digits of the mixtures, names and weights. Opens the vocabularies; see `Mixture.fingerprint`."""
        told: dict[str, str] = {} if self.weigh == "examples" else {"weigh": self.weigh}
        told |= {"max_epochs": repr(self.max_epochs)} if self.max_epochs else {}
        if (planned := self.planned) is None:
            return digest(told | {each.name: f"{each.fingerprint()}, weight {share}" for each, share in self.leaves.items()})
        told |= {each.name: each.fingerprint() for each in self.leaves}
        for first_step, weights in planned.flat():
            parts = fractions(weights)
            told[f"example {planned.in_steps.element(first_step)}"] = repr(sorted((each.name, parts[each]) for each in parts))
        for first_step, lengths in planned.lengths:
            told[f"lengths from example {planned.in_steps.element(first_step)}"] = repr(lengths)
        return digest(told)

    def cache(self, output_dir: str | os.PathLike, **settings: Any) -> dict[str, dict]:
        """Tokenizes each corpus into a folder in `output_dir`, see `Mixture.cache`. Returns the manifests by mixture."""
        manifests: dict[str, dict] = {}  # by corpus, as several mixtures may share one
        for mixture in self.leaves:
            corpus = mixture.corpus().name
            if corpus not in manifests:
                manifests[corpus] = mixture.cache(output_dir, **settings)
        return {mixture.name: manifests[mixture.corpus().name] for mixture in self.leaves}

    def members(self, sequence_length: Mapping[str, int], cache_dirs: Sequence[str | os.PathLike] = ()) -> list[Task]:
        """The tasks of all, see `Description.members`.

        Raises a ValueError for two vocabularies, or lengths of conversations beside those that are no conversations.
        """
        leaves = [*self.leaves]
        if foreign := sorted({*self.rates} - {*self.tasks}):
            raise ValueError(
                f"mixture must have tasks of ul2_tasks alone, got {self.name!r} with {foreign}, which SeqIO makes. Read it with"
                " get_dataset."
            )
        chats = [leaf for leaf in leaves if isinstance(leaf, Chat)]
        if chats and len(chats) < len(leaves) and format_of(sequence_length) == CHAT:
            raise ValueError(
                f"sequence_length must have inputs and targets for {self.name!r}, which mixes conversations with denoisers, got"
                f" {dict(sequence_length)}. Mix conversations alone to make chats."
            )
        self._check_vocabularies(chats[0] if chats else leaves[0])
        self._check_marks()
        found = {member.task: member for leaf in _whole(leaves) for member in leaf.members(sequence_length, cache_dirs)}
        rates = self.rates_in(format_of(sequence_length))
        return [dataclasses.replace(found[task], rate=rates[task]) for task in sorted(found)]

    def registered_name(self, sequence_length: Mapping[str, int | None]) -> str:
        return f"{self.name}_{format_of(sequence_length) if all(map(_is_chat, self.leaves)) else 'mix'}"

    def _check_vocabularies(self, first: Description) -> None:
        for mixture in self.leaves:
            if mixture.vocabulary != first.vocabulary:
                raise ValueError(
                    f"the mixtures of {self.name!r} must be of one vocabulary, got {vocabulary_identity(first.vocabulary)} and"
                    f" {vocabulary_identity(mixture.vocabulary)}. Give them the same"
                    + (f", that of the conversations: vocabulary={first.name}.renderer.vocabulary." if _is_chat(first) else ".")
                )

    def _check_marks(self) -> None:
        """Raises a ValueError where a sentinel or a mode of a task of texts marks images of others."""
        marks = {id for leaf in self.leaves if isinstance(leaf, ImageText) for id in leaf.image_tokens.ids}
        for leaf in self.leaves:
            if not isinstance(leaf, Mixture):
                continue
            for denoiser in leaf.denoisers if marks else ():
                special = denoising_of(leaf, denoiser).special_tokens.tokens(leaf.vocabulary, denoiser)
                if both := sorted(marks & special.reserved):
                    raise ValueError(
                        f"sentinels and modes of '{leaf.name}_{denoiser.name}' must not be ids of image_tokens, got {both}. Pass"
                        " others."
                    )

    def schedule_of(
        self, sequence_length: Mapping[str, int], cache_dirs: Sequence[str | os.PathLike] = (), is_run: bool = True
    ) -> MemberSchedule:
        """The tasks of each stage, at their rates. Raises a ValueError where stages have lengths, and these are of none."""
        planned = self.planned
        most: Any = self.max_epochs  # by names since it was made
        more: dict[str, Any] = {"weigh": self.weigh, "max_epochs": dict(most)}
        if planned is None:
            members = self.members(sequence_length, cache_dirs)
            rates = self._rates_of(dict(self.pairs), members, sequence_length)
            return dataclasses.replace(MemberSchedule.of(_at_rates(members, rates)), **more)
        own = planned.lengths if is_run else []
        staged = own or [(0, dict(sequence_length))]
        if {**sequence_length} not in (lengths := [each for _, each in staged]):
            raise ValueError(
                f"sequence_length must be that of a stage of {self.name!r}, {' or '.join(dict.fromkeys(map(str, lengths)))}, got"
                f" {dict(sequence_length)}."
            )
        least, stages = {key: min(each[key] for each in lengths) for key in lengths[0]}, []
        found = [(first, each, self._members_at(each, least, cache_dirs)) for first, each in staged]
        for first_step, weights in planned.flat():
            _, now, members = [each for each in found if each[0] <= first_step][-1]
            members = _at_rates(members, self._rates_of(weights, members, now))
            stages.append(StageMembers(planned.in_steps.element(first_step), members, now if own else None))
        return MemberSchedule(tuple(stages), planned.in_steps, planned.elements, **more)

    def _members_at(
        self, lengths: Mapping[str, int], least: Mapping[str, int], cache_dirs: Sequence[str | os.PathLike]
    ) -> list[Task]:
        """The tasks at the lengths of a stage, but those that read records of documents at the least of all stages."""
        found = self.members(lengths, cache_dirs)
        if lengths == least:
            return found
        of_records = {each.task: each for each in self.members(least, cache_dirs)}
        return [each if each.tokens > 1 else of_records[each.task] for each in found]

    def _rates_of(
        self, weights: Mapping[Description, float], members: Sequence[Task], lengths: Mapping[str, int]
    ) -> dict[str, float]:
        """The rates of tasks where descriptions have these weights, of examples or of tokens."""
        if self.weigh == "tokens":
            return _rates_by_tokens({each.task: each for each in members}, weights, format_of(lengths))
        return _rates(weights, format_of(lengths))


def _at_rates(members: Iterable[Task], rates: Mapping[str, float]) -> list[Task]:
    """Those of the tasks that have a rate, at theirs."""
    return [dataclasses.replace(each, rate=rates[each.task]) for each in members if each.task in rates]


def _is_chat(description: Description) -> bool:
    return isinstance(description, Chat)


def _leaves(weights: Mapping[Any, float]) -> dict[Description, float]:
    """The descriptions of one kind of data each, of these or mixed by these, which may be given by their names."""
    found: dict[Description, float] = {}
    for given, weight in weights.items():
        for leaf, part in as_description(given).leaves.items():
            found[leaf] = found[leaf] + weight * part if leaf in found else weight if part == 1 else weight * part
    return found


def _by_name(weights: Mapping[Description, float]) -> tuple[tuple[Description, float], ...]:
    return tuple((leaf, as_python(weights[leaf])) for leaf in sorted(weights, key=lambda leaf: (leaf.name, *leaf.rates)))


def corpora_of(given: Any, names: Collection[str]) -> set[str]:
    """The corpora that are meant: one of these names, or those of a description, or of a registered name."""
    return {given} if given in names else {leaf.corpus().name for leaf in as_description(given).leaves}


def _epochs_of(given: Any, leaves: Iterable[Description]) -> tuple[tuple[str, int], ...]:
    """The most epochs of corpora, by their names, of descriptions or names."""
    names, found = {leaf.corpus().name for leaf in leaves if leaf.tasks}, dict[str, int]()
    for each, epochs in given.items() if isinstance(given, Mapping) else given:
        corpora = corpora_of(each, names)
        if not is_integer(epochs, at_least=1) or not corpora <= names or found.keys() & corpora:
            raise ValueError(
                "max_epochs must have integers of at least 1 for corpora that are mixed, each once, got"
                f" {getattr(each, 'name', each)!r}: {epochs!r}. Give such as max_epochs={{web: 4}}."
            )
        found |= dict.fromkeys(corpora, int(epochs))
    return tuple(sorted(found.items()))


def _rates(weights: Mapping[Description, float], format: str | None = None) -> dict[str, float]:
    """The rate of each task, where descriptions have these weights; of conversations in a format."""
    rates: dict[str, float] = {}
    for leaf, weight in weights.items():
        own = {f"{leaf.name}_{CHAT}": 1.0} if isinstance(leaf, Chat) and format == CHAT else leaf.rates
        for task, rate in own.items():
            rates[task] = rates.get(task, 0.0) + weight * rate / sum(own.values())
    return rates


def _rates_by_tokens(
    members: Mapping[str, Task], weights: Mapping[Description, float], format: str | None = None
) -> dict[str, float]:
    """The same, where weights are of tokens: each of several descriptions of one corpus has its part of the tokens of these."""
    found: dict[str, float] = {}
    by_corpus: dict[str, dict[Description, float]] = {}
    for leaf, weight in weights.items():
        tokens = sum(rate * members[task].tokens for task, rate in _rates({leaf: 1}, format).items())
        by_corpus.setdefault(leaf.corpus().name, {})[leaf] = weight / tokens
    for leaves in by_corpus.values():
        rates = _rates(leaves, format)
        scale = math.fsum(weights[leaf] for leaf in leaves) / math.fsum(rates.values())
        found |= {task: rate * scale for task, rate in rates.items()}
    return found


def _whole(leaves: Iterable[Description]) -> Iterator[Description]:
    """The descriptions, those of one name with all of their denoisers together."""
    by_name: dict[str, list[Description]] = {}
    for leaf in leaves:
        by_name.setdefault(leaf.name, []).append(leaf)
    for first, *more in by_name.values():
        denoisers = tuple({each.name: each for leaf in (first, *more) for each in leaf.denoisers}.values())
        yield owner_of(first).with_denoisers(denoisers) if more else first


def _check_beside(leaf: Description, others: Iterable[Description]) -> None:
    """Raises a ValueError where another description has the same name, unless it has other denoisers alone."""
    for other in others:
        if other.name != leaf.name or other is leaf:
            continue
        same = type(other) is type(leaf) and owner_of(other) == owner_of(leaf)
        same = same and all(is_same(value, vars(other)[key]) for key, value in vars(leaf).items() if key not in _OF_DENOISERS)
        if not same or any(other.tasks[task] != leaf.tasks[task] for task in other.tasks.keys() & leaf.tasks.keys()):
            raise ValueError(f"mixtures must have different names, got two of {leaf.name!r}. Rename one of them.")
