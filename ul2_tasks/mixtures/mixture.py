"""`Mixture`: a corpus of texts and the denoisers that read it, as they are described."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ul2_tasks.corpus.configuration import CorpusConfiguration
from ul2_tasks.corpus.corpus import Corpus
from ul2_tasks.corpus.documents import documents_of
from ul2_tasks.denoisers.denoisers import T5GEMMA2, Denoiser, check_denoisers
from ul2_tasks.denoisers.solution import DenoisingConfiguration, Solution, solve
from ul2_tasks.mixtures.description import Description, check_blocks, corpus_in, folders, is_same, special_tokens_of
from ul2_tasks.order.order import BlockShuffle
from ul2_tasks.random_access.text import Member
from ul2_tasks.scalars import as_python, check_flag, check_on_error, is_integer
from ul2_tasks.sources.by_name import open_source
from ul2_tasks.sources.file_source import Files
from ul2_tasks.store.columns import Columns
from ul2_tasks.tokenizers.by_name import open_for_modes
from ul2_tasks.tokenizers.special_ids import Mode, Sentinels, SpecialTokens, Token, plain_modes

if TYPE_CHECKING:
    import seqio

    from ul2_tasks.sources.dataset_objects import Datasets
    from ul2_tasks.tokenizers.tokenizer_json import Tokenizer


@dataclasses.dataclass(frozen=True, init=False, eq=False)
class Mixture(Description):
    """Describes a corpus of texts and the denoisers that read it, without registering them. Opens no file.

        mixture = ul2_tasks.Mixture(source="corpus/*.jsonl.gz", vocabulary="my.model")
        mixture.cache("CACHE")
        examples = ul2_tasks.examples(mixture, {"inputs": 512, "targets": 512}, cache_dirs=["CACHE"])

    The arguments are those of `register`, which adds them to SeqIO's registries; a mixture of the same arguments and the same name
    has the same examples there. Neither SeqIO nor TensorFlow is imported, unless the source or the vocabulary is one of theirs.

    Args:
        name: the beginning of the names of the corpus and the tasks, NAME_corpus and NAME_<denoiser>, in caches and examples.
        source, vocabulary, denoisers, text_key, on_error, sentinels, modes, chunk_tokens, merge_examples, separate_documents,
            block_shuffle: see `register`.
        corpus: another `Mixture`, whose corpus, with its name and its cache, this one reads. Leave out source, vocabulary, text_key
            and on_error, which are then those of the other mixture; so is block_shuffle, if it is left out.

    Raises:
        ValueError: an argument has another type or value; `chunk_tokens` names a denoiser that is not there; or `corpus` is given,
            and an argument says another corpus.
    """

    name: str
    source: seqio.DataSource | Mixture  # a mixture where its corpus is shared, so that `dataclasses.replace` keeps it
    vocabulary: seqio.Vocabulary
    denoisers: tuple[Denoiser, ...]
    text_key: str
    on_error: str
    sentinels: tuple[Token, ...] | str | None
    modes: Mapping[str, Mode] | None
    chunk_tokens: int | Mapping[str, int] | None
    merge_examples: bool
    separate_documents: bool
    block_shuffle: BlockShuffle | None

    def __init__(
        self,
        name: str = "ul2",
        source: seqio.DataSource | Files | Mapping[str, Files] | Datasets = "embedded",
        vocabulary: seqio.Vocabulary | str | os.PathLike | Tokenizer = "default",
        denoisers: Iterable[Denoiser] | Denoiser | str = T5GEMMA2,
        *,
        text_key: str | None = None,
        on_error: str = "raise",
        sentinels: int | Sentinels | None = None,
        modes: Mapping[str, Mode] | None = None,
        chunk_tokens: int | Mapping[str, int] | None = None,
        merge_examples: bool = True,
        separate_documents: bool = False,
        block_shuffle: BlockShuffle | None = None,
        corpus: Mixture | None = None,
    ):
        checked = check_denoisers(denoisers)
        mode_names = [denoiser.mode for denoiser in checked]
        if corpus is None and not isinstance(source, Mixture):
            opened = open_source(source, text_key=text_key or "text")
            vocabulary, tokens = open_for_modes(vocabulary, mode_names, sentinels, modes)
        else:
            opened = _owner(source if corpus is None else corpus)
            vocabulary, tokens = _open_shared(opened, vocabulary, mode_names, sentinels, modes)
            _check_shared(opened, source, text_key, on_error)
            text_key, on_error, block_shuffle = opened.text_key, opened.on_error, block_shuffle or opened.block_shuffle
        if isinstance(chunk_tokens, Mapping):
            chunk_tokens = {key: as_python(bound) for key, bound in chunk_tokens.items()}
        self._set(
            name=name,
            source=opened,
            vocabulary=vocabulary,
            denoisers=checked,
            text_key=text_key or getattr(opened, "text_key", "text"),
            on_error=on_error,
            sentinels=tokens,
            modes=plain_modes(modes),
            chunk_tokens=as_python(chunk_tokens),
            merge_examples=merge_examples,
            separate_documents=separate_documents,
            block_shuffle=block_shuffle,
        )
        self._check()

    def _check(self) -> None:
        for name in ("merge_examples", "separate_documents"):
            check_flag(getattr(self, name), name)
        check_blocks(self.block_shuffle)
        check_on_error(self.on_error)
        names = [denoiser.name for denoiser in self.denoisers]
        if unknown := sorted(set(self.chunk_tokens) - set(names)) if isinstance(self.chunk_tokens, Mapping) else []:
            raise ValueError(f"chunk_tokens must name denoisers of {names}, got {unknown}.")

    def corpus(self, cache_dirs: Sequence[str | os.PathLike] = ()) -> Corpus:
        """Returns the corpus, whose cache may be in one of these folders."""
        owner = owner_of(self)
        configuration = CorpusConfiguration(owner.text_key, owner.on_error, special_tokens_of(owner), owner.separate_documents)
        name = f"{owner.name}_corpus"
        return Corpus(name, owner.source, owner.vocabulary, configuration, cache_dirs=folders(cache_dirs))

    def members(self, sequence_length: Mapping[str, int], cache_dirs: Sequence[str | os.PathLike] = ()) -> list[Member]:
        return solved_members(described_tasks(self, cache_dirs), self.rates, sequence_length)

    def _arguments(self) -> Mapping[str, object]:
        """See `Description._arguments`; of a shared corpus also its name, by which it is read once with the other mixture."""
        arguments, owner = super()._arguments(), owner_of(self)
        return arguments if owner is self else {**arguments, "corpus": f"{owner.name}_corpus"}


def owner_of(mixture: Mixture) -> Mixture:
    """The mixture whose corpus a mixture reads: itself, unless it was given another one's."""
    return mixture.source if isinstance(mixture.source, Mixture) else mixture


def check_corpora(mixtures: Iterable[Mixture]) -> None:
    """Raises a ValueError where mixtures read different corpora of one name."""
    found: dict[str, Corpus] = {}
    for mixture in mixtures:
        corpus = mixture.corpus()
        first = found.setdefault(corpus.name, corpus)
        if not all(is_same(value, vars(corpus)[key]) for key, value in vars(first).items()):
            raise ValueError(
                f"mixtures must have different names for different corpora, got two of {corpus.name!r}. Rename one, or pass"
                " corpus= with the very mixture that is mixed."
            )


def _owner(corpus: object) -> Mixture:
    if isinstance(corpus, Mixture):
        return owner_of(corpus)
    instead = "Use ul2_tasks.register for registered names" if isinstance(corpus, str) else "Only a corpus of texts is shared"
    raise ValueError(f"corpus must be a ul2_tasks.Mixture, got {corpus!r:.100}. {instead}.")


def _open_shared(
    owner: Mixture,
    vocabulary: seqio.Vocabulary | str | os.PathLike | Tokenizer,
    mode_names: Sequence[str | None],
    sentinels: int | Sentinels | None,
    modes: Mapping[str, Mode] | None,
) -> tuple[seqio.Vocabulary, tuple[Token, ...] | str | None]:
    """See `open_for_modes`. The vocabulary is the owner's, so it has to be left out, or to be equal."""
    is_left_out = isinstance(vocabulary, str) and vocabulary == "default"
    if is_left_out and is_integer(sentinels, at_least=0):
        raise ValueError(
            f"sentinels must be None or tokens for a shared corpus, got {sentinels}. Pass sentinels={sentinels} to {owner.name!r},"
            " which has the vocabulary."
        )
    opened, tokens = open_for_modes(owner.vocabulary if is_left_out else vocabulary, mode_names, sentinels, modes)
    if opened != owner.vocabulary:
        raise _not_shared("vocabulary", owner, vocabulary)
    return owner.vocabulary, tokens


def _check_shared(owner: Mixture, source: object, text_key: str | None, on_error: str) -> None:
    """Raises a ValueError where an argument is neither left out nor that of the corpus.

    Equal ones are taken, because a gin file may bind them for all calls of `register`.
    """
    if isinstance(source, Mixture):
        is_its_own = owner_of(source) == owner
    else:
        is_left_out = isinstance(source, str) and source == "embedded"
        is_its_own = is_left_out or is_same(open_source(source, text_key=owner.text_key), owner.source)
    if not is_its_own:
        raise _not_shared("source", owner, source)
    if text_key not in (None, owner.text_key):
        raise _not_shared("text_key", owner, text_key)
    if on_error not in ("raise", owner.on_error):
        raise _not_shared("on_error", owner, on_error)


def _not_shared(argument: str, owner: Mixture, got: object) -> ValueError:
    value = "" if argument == "vocabulary" else f", {getattr(owner, argument)!r:.200}"
    return ValueError(f"{argument} must be that of the shared corpus{value}, got {got!r:.200}. Leave it out.")


def denoising_of(mixture: Mixture, denoiser: Denoiser) -> DenoisingConfiguration:
    """How a denoiser makes examples of the corpus."""
    bounds = mixture.chunk_tokens
    return DenoisingConfiguration(
        denoiser,
        special_tokens_of(mixture),
        chunk_tokens=bounds.get(denoiser.name) if isinstance(bounds, Mapping) else bounds,
        merge_examples=mixture.merge_examples,
        separate_documents=mixture.separate_documents,
        block_shuffle=mixture.block_shuffle,
    )


@dataclasses.dataclass(frozen=True)
class DescribedTask:
    """A denoiser of a mixture and the corpus that it reads: what is a `DenoisingTask` with SeqIO."""

    name: str
    corpus: Corpus
    configuration: DenoisingConfiguration

    @property
    def denoiser(self) -> Denoiser:
        return self.configuration.denoiser

    @property
    def vocabulary(self) -> seqio.Vocabulary:
        return self.corpus.vocabulary

    def special_tokens(self) -> SpecialTokens:
        """The ids that the denoiser adds to those of the text. Opens the vocabulary."""
        return self.configuration.special_tokens.tokens(self.vocabulary, self.denoiser.mode)

    def solve(self, sequence_length: Mapping[str, int] | None) -> Solution:
        """See `solution.solve`."""
        self.corpus.check_keeps_out(self.name, self.configuration.special_tokens)
        return solve(sequence_length, self.vocabulary, self.configuration)


def described_tasks(mixture: Mixture, cache_dirs: Sequence[str | os.PathLike] = ()) -> list[DescribedTask]:
    """The tasks of a mixture, by name, as SeqIO has them."""
    corpus = corpus_in(mixture, cache_dirs)
    tasks = [DescribedTask(f"{mixture.name}_{each.name}", corpus, denoising_of(mixture, each)) for each in mixture.denoisers]
    return sorted(tasks, key=lambda task: task.name)


OfDenoiser = TypeVar("OfDenoiser", bound="HasDenoiser")


class HasDenoiser(Protocol):
    """A task with a denoiser."""

    @property
    def denoiser(self) -> Denoiser: ...


class NamedDenoising(HasDenoiser, Protocol):
    """A task with a denoiser and a name."""

    @property
    def name(self) -> str: ...


class Solvable(Protocol):
    """A denoising task, described or of SeqIO."""

    @property
    def name(self) -> str: ...
    @property
    def corpus(self) -> Corpus: ...
    @property
    def configuration(self) -> DenoisingConfiguration: ...
    @property
    def vocabulary(self) -> seqio.Vocabulary: ...
    def solve(self, sequence_length: Mapping[str, int] | None, /) -> Solution: ...


def with_denoisers(mixture: str, tasks: Sequence[OfDenoiser], denoisers: Collection[str] | None) -> list[OfDenoiser]:
    """Those of a mixture's tasks that have these denoisers; all where that is None. Raises a ValueError for other names."""
    names = list(dict.fromkeys(task.denoiser.name for task in tasks))
    if unknown := sorted(set(denoisers or ()) - set(names)):
        raise ValueError(f"the denoiser must be one of {names} in {mixture!r}, got {unknown}.")
    return [task for task in tasks if denoisers is None or task.denoiser.name in denoisers]


def registered_as(task: NamedDenoising) -> str:
    """The NAME of the mixture that a task NAME_<denoiser> was made for."""
    return task.name.removesuffix(f"_{task.denoiser.name}")


def name_of(mixture: Any) -> str:
    """The name of a registered mixture; of a description, the name that it is registered under."""
    return mixture if isinstance(mixture, str) else f"{mixture.name}_mix"


def solved_members(
    tasks: Sequence[Solvable], rates: Mapping[str, float], sequence_length: Mapping[str, int] | None
) -> list[Member]:
    """Denoising tasks as `random_access` takes them."""
    return [Member(task.name, task.corpus, rates[task.name], task.solve(sequence_length)) for task in tasks]


def documents_in(split: str, first: int | None = None) -> Callable[[Corpus, bool], Columns]:
    """A function that gives the documents of a split of a corpus: those of its cache, or read into memory.

    With `first` those in memory end after the first documents that have so many tokens.
    """
    return lambda corpus, separate: documents_of(corpus, split, bool(corpus.cache_dir), separate, first=first)
