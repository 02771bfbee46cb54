"""`Mixture`: a corpus of texts and the denoisers that read it, as they are described."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ul2_tasks.corpus.configuration import CorpusConfiguration
from ul2_tasks.corpus.corpus import Corpus, Texts
from ul2_tasks.corpus.documents import documents_of
from ul2_tasks.denoisers.denoisers import T5GEMMA2, Denoiser, check_denoisers
from ul2_tasks.denoisers.loss_weights import RepeatedNgrams
from ul2_tasks.denoisers.solution import DenoisingConfiguration, Solution, solve
from ul2_tasks.mixtures.description import Description, check_blocks, folders, is_same, owner_of, special_tokens_of
from ul2_tasks.order.order import BlockShuffle
from ul2_tasks.random_access.kinds import Task
from ul2_tasks.random_access.text import text_task
from ul2_tasks.scalars import as_python, check_flag, check_on_error, is_integer
from ul2_tasks.sources.base import DataSource
from ul2_tasks.sources.by_name import open_source
from ul2_tasks.store.columns import Columns
from ul2_tasks.tokenizers.base import Vocabulary
from ul2_tasks.tokenizers.by_name import open_for_modes
from ul2_tasks.tokenizers.special_ids import Mode, SpecialTokens, Token, plain_modes

_OF_THE_OWNER = ("text_key", "loss_weight_key", "group_by", "separator", "on_error")  # of a shared corpus


@dataclasses.dataclass(frozen=True, eq=False)
class Mixture(Description):
    """A corpus of texts and the denoisers that read it. Opens no file.

        mixture = ul2_tasks.Mixture(source="corpus/*.jsonl.gz", vocabulary="my.model")
        mixture.cache("CACHE")
        examples = ul2_tasks.examples(mixture, {"inputs": 512, "targets": 512}, cache_dirs=["CACHE"])

    What is given is then there in the one form that equal arguments have: a source and a vocabulary that are open, a tuple of
    denoisers, a tuple of sentinels.

    Args:
        name: the beginning of the names of the corpus and the tasks, NAME_corpus and NAME_<denoiser>, in caches and examples.
        source: the documents: files, by path, glob, folder or list, or in a dictionary the files of each split;
            "hf:NAME"; a `Dataset` of `datasets`; "tfds:NAME"; or a `seqio.DataSource`. `open_source` has all kinds, and more
            arguments. Or another `Mixture`, whose corpus, with its name and its cache, this one reads: vocabulary, text_key and
            on_error, and block_shuffle if it is left out, are then those of the other mixture.
        vocabulary: tokenizes the text: the path of a SentencePiece model, of a `tokenizer.json` or of a folder with one;
            "bytes"; "default"; a fast tokenizer of `transformers`; or a `seqio.Vocabulary`. See `open_vocabulary`.
        denoisers: a preset, also by its name ("UL2"), or denoisers of your own. Their weights are the rates of the mixture, in
            examples.
        text_key: the field, column or feature that holds the text; by default "text", or what the source was opened with.
        loss_weight_key: the field or column with the weights of tokens in the loss, numbers of at least 0: a list with one for each
            id of a record that has ids, or of any record one for all of its tokens. Examples then have `loss_weight`, see the guide
            "Denoisers". By default what the source was opened with, else all are 1.
        group_by: the field by which records are grouped, such as the repository of a file: those with one value, which must follow
            each other in a file or `Dataset`, are one document, in their order, whose id is the value.
        separator: the special token between two records of a group, by its name or id.
        repeated_ngrams: which repetitions of a text have the weight 0; None for none.
        on_error: "raise" an error for a record that cannot be read or is not UTF-8, or "skip" it; skipped records are counted in
            the cache and in the log.
        sentinels: one of three: a list of the sentinels in the order in which they are used, special tokens such as
            ["<unused0>", "<unused1>"], or their ids, the tokenizer's own; the common name of their pieces, such as "<unused{}>"; or
            for a vocabulary that is given by its path, the least number of sentinels `<extra_id_0>` .. that it is to have. By
            default `<extra_id_0>`, `<extra_id_1>`, .. or the extra ids of the vocabulary. See `special_ids.special_tokens`.
        modes: the token of each mode: a special token such as "<unused97>", its id, the tokenizer's own, a list of these, or
            any other text, which is tokenized; by default the piece of the mode's name.
        chunk_tokens: the longest chunk in tokens: one number for all denoisers, or numbers by their names, where a denoiser that is
            not named has no bound. By default chunks are as long as `sequence_length` allows.
        merge_examples: whether documents are joined to fill chunks, or kept apart.
        separate_documents: whether an EOS ends each document when they are joined. The cache is written so, and token files are.
        block_shuffle: shuffles a corpus in two levels, blocks and chunks, so that a host reads whole blocks, each once an epoch:
            for object stores, and for schedules. By default chunks are shuffled over the whole corpus, and of one that
            is read in windows within each window.

    Raises:
        ValueError: an argument has another type or value; `chunk_tokens` names a denoiser that is not there; or the source is a
            mixture, and another argument says another corpus. Wrong sentinels and modes raise a ValueError when a dataset is made,
            and so do those that the text of a shared corpus could become.
    """

    # What is given may be of other types, which the arguments' descriptions say; it is of these once it is made.
    name: str = "ul2"
    source: DataSource | Mixture | Any = "embedded"
    vocabulary: Any = "default"
    denoisers: tuple[Denoiser, ...] | Any = T5GEMMA2
    _: dataclasses.KW_ONLY
    text_key: str | Any = None
    loss_weight_key: str | None = None
    group_by: str | None = None
    separator: Token | None = None
    repeated_ngrams: RepeatedNgrams | None = None
    on_error: str = "raise"
    sentinels: tuple[Token, ...] | str | Any = None
    modes: Mapping[str, Mode] | None = None
    chunk_tokens: int | Mapping[str, int] | None = None
    merge_examples: bool = True
    separate_documents: bool = False
    block_shuffle: BlockShuffle | None = None

    def __post_init__(self):
        denoisers, bounds = check_denoisers(self.denoisers), self.chunk_tokens
        names = [denoiser.mode for denoiser in denoisers]
        if isinstance(self.source, Mixture):
            owner = owner_of(self.source)
            vocabulary, sentinels = _open_shared(owner, self, names)
            more = {"source": owner, **{key: getattr(owner, key) for key in _OF_THE_OWNER}}
            more["block_shuffle"] = self.block_shuffle or owner.block_shuffle
        else:
            keys = {key: getattr(self, key) for key in ("text_key", "loss_weight_key", "group_by")}
            source = open_source(self.source, **keys)
            vocabulary, sentinels = open_for_modes(self.vocabulary, names, self.sentinels, self.modes)
            more = {"source": source, "text_key": self.text_key or getattr(source, "text_key", "text")}
            more |= {key: getattr(source, key) for key in ("loss_weight_key", "group_by")}
            if (self.separator is None) != (more["group_by"] is None):
                raise ValueError(f"separator must be a token with group_by, and else None, got {self.separator!r}. Pass both.")
        if isinstance(bounds, Mapping):
            bounds = {key: as_python(bound) for key, bound in bounds.items()}
        self._set(
            vocabulary=vocabulary,
            denoisers=denoisers,
            sentinels=sentinels,
            modes=plain_modes(self.modes),
            chunk_tokens=as_python(bounds),
            **more,
        )
        self._check()

    def _check(self) -> None:
        for name in ("merge_examples", "separate_documents"):
            check_flag(getattr(self, name), name)
        check_blocks(self.block_shuffle)
        if not isinstance(self.repeated_ngrams, RepeatedNgrams | None):
            raise ValueError(f"repeated_ngrams must be a ul2_tasks.RepeatedNgrams or None, got {self.repeated_ngrams!r}.")
        check_on_error(self.on_error)
        names = [denoiser.name for denoiser in self.denoisers]
        if unknown := sorted(set(self.chunk_tokens) - set(names)) if isinstance(self.chunk_tokens, Mapping) else []:
            raise ValueError(f"chunk_tokens must name denoisers of {names}, got {unknown}.")

    def corpus(self, cache_dirs: Sequence[str | os.PathLike] = ()) -> Corpus:
        """Returns the corpus, whose cache may be in one of these folders."""
        owner = owner_of(self)
        configuration = CorpusConfiguration(owner.text_key, owner.on_error, special_tokens_of(owner), owner.separate_documents)
        name = f"{owner.name}_corpus"
        texts = Texts(owner.loss_weight_key, owner.separator)
        return Corpus(name, owner.source, owner.vocabulary, configuration, texts, folders(cache_dirs))

    def members(self, sequence_length: Mapping[str, int], cache_dirs: Sequence[str | os.PathLike] = ()) -> list[Task]:
        tasks = described_tasks(self, self.corpus(cache_dirs))
        return [text_task(task.name, task.corpus, self.rates[task.name], task.solve(sequence_length)) for task in tasks]

    def salt(self, task: str) -> str | None:
        denoiser = task.removeprefix(f"{self.name}_") if task in self.rates else None
        return task if denoiser and owner_of(self).name != self.name else denoiser

    def with_denoisers(self, denoisers: tuple[Denoiser, ...]) -> Mixture:
        bounds, names = self.chunk_tokens, [each.name for each in denoisers]
        own = {name: bounds[name] for name in names if name in bounds} if isinstance(bounds, Mapping) else bounds
        return dataclasses.replace(self, source=owner_of(self), denoisers=denoisers, chunk_tokens=own)

    def _arguments(self) -> Mapping[str, object]:
        """See `Description._arguments`; of a shared corpus also its name, by which it is read once with the other mixture."""
        arguments, owner = dict(super()._arguments()), owner_of(self)
        for key in ("loss_weight_key", "group_by", "separator", "repeated_ngrams"):  # of a run that was begun before there were any
            if arguments[key] is None:
                del arguments[key]
        return arguments if owner is self else {**arguments, "corpus": f"{owner.name}_corpus"}


def check_corpora(mixtures: Iterable[Description]) -> None:
    """Raises a ValueError where mixtures read different corpora of one name."""
    found: dict[str, Corpus] = {}
    for mixture in mixtures:
        corpus = mixture.corpus()
        first = found.setdefault(corpus.name, corpus)
        if not all(is_same(value, vars(corpus)[key]) for key, value in vars(first).items()):
            raise ValueError(
                f"mixtures must have different names for different corpora, got two of {corpus.name!r}. Rename one, or pass"
                " as source the very mixture that is mixed."
            )


def _open_shared(
    owner: Mixture, mixture: Mixture, mode_names: Sequence[str | None]
) -> tuple[Vocabulary, tuple[Token, ...] | str | None]:
    """See `open_for_modes`. Raises a ValueError where an argument is neither left out nor that of the owner's corpus.

    Equal ones are taken, because a gin file may bind them for all calls of `register`.
    """
    for argument, left_out in zip(_OF_THE_OWNER, (None, None, None, None, "raise")):
        if getattr(mixture, argument) not in (left_out, getattr(owner, argument)):
            raise _not_shared(argument, owner, getattr(mixture, argument))
    given, sentinels = mixture.vocabulary, mixture.sentinels
    is_left_out = isinstance(given, str) and given == "default"
    if is_left_out and is_integer(sentinels, at_least=0):
        raise ValueError(
            f"sentinels must be None or tokens for a shared corpus, got {sentinels}. Pass sentinels={sentinels} to {owner.name!r},"
            " which has the vocabulary."
        )
    opened, tokens = open_for_modes(owner.vocabulary if is_left_out else given, mode_names, sentinels, mixture.modes)
    if opened != owner.vocabulary:
        raise _not_shared("vocabulary", owner, given)
    return owner.vocabulary, tokens


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
        repeated_ngrams=mixture.repeated_ngrams,
    )


@dataclasses.dataclass(frozen=True)
class DescribedTask:
    """A denoiser of a mixture and the corpus that it reads, of which SeqIO has a `UL2Task`."""

    name: str
    corpus: Corpus
    configuration: DenoisingConfiguration

    @property
    def denoiser(self) -> Denoiser:
        return self.configuration.denoiser

    @property
    def vocabulary(self) -> Vocabulary:
        return self.corpus.vocabulary

    def special_tokens(self) -> SpecialTokens:
        """The ids that the denoiser adds to those of the text. Opens the vocabulary."""
        return self.configuration.special_tokens.tokens(self.vocabulary, self.denoiser)

    def solve(self, sequence_length: Mapping[str, int] | None) -> Solution:
        """See `solution.solve`."""
        self.corpus.check_keeps_out(self.name, self.configuration.special_tokens)
        return solve(sequence_length, self.vocabulary, self.configuration)


def described_tasks(mixture: Mixture, corpus: Corpus | None = None) -> list[DescribedTask]:
    """The tasks of a mixture, by name, as SeqIO has them; of its corpus, which may be given with the folders of its cache."""
    corpus = corpus or mixture.corpus()
    tasks = [DescribedTask(f"{mixture.name}_{each.name}", corpus, denoising_of(mixture, each)) for each in mixture.denoisers]
    return sorted(tasks, key=lambda task: task.name)


def documents_in(split: str) -> Callable[[Corpus, bool], Columns]:
    """A function that gives the documents of a split of a corpus: those of its cache, or read into memory."""
    return lambda corpus, separate: documents_of(corpus, split, bool(corpus.cache_dir), separate)
