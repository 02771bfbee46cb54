"""`examples`: a mixture as a sequence, in which each example has an address, from which it is made.

SeqIO's pipelines decide while they run which example comes next. Here `order` has decided before: example i is a function of the
corpus, the arguments and i. So it is made at once, without the ones before it, alike on any machine.

    i -> corpus -> epoch, slot -> denoiser, tokens [start, stop), key of the noise -> inputs, targets
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import seqio
import tensorflow as tf

from ul2_tasks.corpus import cache
from ul2_tasks.corpus.token_batches import corpus_tokens
from ul2_tasks.corpus.view import CorpusTask, corpus_settings
from ul2_tasks.denoising.preprocessors import Solution, corrupt_padded, not_text
from ul2_tasks.graphs import traced_once
from ul2_tasks.order.cycles import Cycle, nearest_cycle
from ul2_tasks.order.epochs import Order
from ul2_tasks.order.permutation import keyed
from ul2_tasks.scalars import is_integer
from ul2_tasks.store.read import MemoryStore, TokenStore
from ul2_tasks.tasks.providers import DenoisingTask, denoising_tasks, other_tasks
from ul2_tasks.vocabulary.special_ids import id_shift

MOST_TOKENS_IN_MEMORY = 1 << 26  # of a corpus without a cache: some 250 MB of text
_FOR_CORPORA = 1 << 32  # what a key is for


@dataclasses.dataclass(frozen=True)
class Address:
    """Where an example is from.

    Attributes:
        corpus: the name of the corpus's task.
        task, denoiser: the names of its task and its denoiser.
        epoch: of the corpus, from 0.
        slot: which of the chunks of that epoch, from 0, in the order of the corpus.
        tokens: one or two ranges (start, stop) of the corpus's tokens; two where the chunk goes round the end of the corpus.
        documents: for each of the ranges, the first of the documents that it has tokens of, and the one after the last.
    """

    corpus: str
    task: str
    denoiser: str
    epoch: int
    slot: int
    tokens: tuple[tuple[int, int], ...]
    documents: tuple[tuple[int, int], ...]


@dataclasses.dataclass(frozen=True)
class _Corpus:
    """A corpus with the denoisers that read it."""

    task: CorpusTask
    store: TokenStore
    tasks: tuple[DenoisingTask, ...]
    solutions: tuple[Solution, ...]
    order: Order


def examples(
    name: str, sequence_length: Mapping[str, int], *, split: str = "train", seed: int = 0, shuffle: bool = True
) -> Examples:
    """The examples of a mixture as a sequence.

    Args:
        name: of a mixture that `register` or `mix` returned, or of one of its tasks.
        sequence_length: {"inputs": int, "targets": int}, the budgets in tokens.
        split: of the corpora.
        seed: an integer; another one gives another order and other noise.
        shuffle: whether examples come in a pseudo-random permutation of all of an epoch; else in the order of the corpus.

    Raises:
        ValueError: the seed is no integer; there is no such mixture; it has a task that is no denoising task, or one whose
            chunks have no fixed places: documents are kept apart, EOS stands between them, or chunks overlap; a corpus has no
            cache and is too large to be tokenized into memory; and see `preprocessors.solve`.

    >>> import ul2_tasks
    >>> found = ul2_tasks.examples("ul2_mix", {"inputs": 512, "targets": 512})
    >>> found[3]["inputs"].tolist() == ul2_tasks.examples("ul2_mix", {"inputs": 512, "targets": 512})[3]["inputs"].tolist()
    True
    """
    if not is_integer(seed, at_least=-(1 << 63)):
        raise ValueError(f"seed is {seed!r}, expected an integer: the examples are a function of it")
    seed = int(seed)
    if others := [task.name for task in other_tasks(name)]:
        raise ValueError(f"{name!r} has tasks that are no denoising tasks, {others}; read it as a stream, with get_dataset")
    tasks = denoising_tasks(name)
    mixture = seqio.get_mixture_or_task(name)
    rates = {task.name: mixture.get_rate(task) if isinstance(mixture, seqio.Mixture) else 1.0 for task in tasks}
    corpora = list(dict.fromkeys(task.source.corpus for task in tasks))
    by_corpus = {corpus.name: [task for task in tasks if task.source.corpus is corpus] for corpus in corpora}
    weights = [sum(rates[task.name] for task in by_corpus[corpus.name]) for corpus in corpora]
    found = [
        _open(corpus, by_corpus[corpus.name], rates, sequence_length, split, keyed(seed, number), shuffle)
        for number, corpus in enumerate(corpora)
    ]
    return Examples(tuple(found), nearest_cycle(weights), keyed(seed, _FOR_CORPORA) if shuffle else None, epoch=0)


class Examples(Sequence[dict[str, np.ndarray | str]]):
    """An epoch of a mixture's examples: {"inputs": [tokens] int32, "targets": [tokens] int32, "denoiser": str, "task": str}.

    Every token of the corpus is in exactly one example of an epoch, and the ratio of the denoisers is that of their weights. An
    epoch of several corpora has so many cycles of their weights as the first of them to end has whole ones, so that there each
    token is in one example at most.

    It is a map-style dataset of PyTorch and a random-access source of grain. `examples` makes it.
    """

    def __init__(self, corpora: tuple[_Corpus, ...], cycle: Cycle, key: int | None, epoch: int):
        self._corpora, self._cycle, self._key, self._epoch = corpora, cycle, key, epoch

    @functools.cached_property
    def _length(self) -> int:
        """Whole cycles of the corpora, so that no example of the first corpus that ends comes twice; one at least."""
        cycles = (corpus.order.examples // count for corpus, count in zip(self._corpora, self._cycle.counts))
        return len(self._cycle) * max(1, min(cycles))

    def __len__(self) -> int:
        """How many examples an epoch has."""
        return self._length

    def epoch(self, epoch: int) -> Examples:
        """The examples of another epoch, from 0: other borders of chunks, other denoisers, another order, other noise."""
        if not is_integer(epoch, at_least=0):
            raise ValueError(f"epoch is {epoch!r}, expected an integer, 0 or more")
        return Examples(self._corpora, self._cycle, self._key, int(epoch))

    def __getitem__(self, index):
        """The example of a number, negative ones from the end; or a list of those of a slice."""
        if isinstance(index, slice):
            return self.__getitems__(range(*index.indices(len(self))))
        return self.__getitems__([index])[0]

    def __iter__(self) -> Iterator[dict[str, np.ndarray | str]]:
        for first in range(0, len(self), _AT_A_TIME):
            yield from self[first : first + _AT_A_TIME]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, np.ndarray | str]]:
        """The examples of several numbers, made at once, which costs a tenth of one after the other."""
        found: list[dict[str, np.ndarray | str]] = [{}] * len(indices)
        kinds, positions = self._positions(indices)
        for kind in np.unique(kinds):
            places = np.flatnonzero(kinds == kind)
            for place, example in zip(places.tolist(), _make(self._corpora[kind], positions[places])):
                found[place] = example
        return found

    def where(self, index: int) -> Address:
        """Where the example of a number is from."""
        (kind,), (position,) = self._positions([index])
        corpus = self._corpora[kind]
        (epoch,), (slot,) = corpus.order.slots(np.array([position]))
        (number,), (start,), (stop,) = corpus.order.chunks(np.array([epoch]), np.array([slot]))
        ranges = _ranges(int(start), int(stop), corpus.store.tokens)
        task = corpus.tasks[number]
        return Address(
            corpus.task.name,
            task.name,
            task.denoiser.name,
            int(epoch),
            int(slot),
            ranges,
            tuple(corpus.store.documents_at(*each) for each in ranges),
        )

    def when(self, document: int, corpus: str | None = None) -> list[int]:
        """The numbers of this epoch's examples that have tokens of a document, ascending.

        Args:
            document: its number, from 0, in the order of the cache or the corpus.
            corpus: the name of the corpus's task, where there are several.

        Raises:
            ValueError: there is no such corpus.
            IndexError: there is no such document.
        """
        names = [each.task.name for each in self._corpora]
        if corpus not in (None, *names) or (corpus is None and len(names) > 1):
            raise ValueError(f"corpus is {corpus!r}, expected one of {names}")
        kind = names.index(corpus) if corpus else 0
        chosen = self._corpora[kind]
        start, stop = chosen.store.tokens_of(int(document))
        if start == stop:
            return []  # it has no token
        first, last = self._epoch * len(self), (self._epoch + 1) * len(self) - 1
        # The epochs of the corpus that this epoch of the mixture goes through.
        before, after = (place // len(self._cycle) * self._cycle.counts[kind] for place in (first, last + len(self._cycle)))
        of_corpus = range(before // chosen.order.examples, after // chosen.order.examples + 1)
        found: list[int] = []
        for epoch in of_corpus:
            held = chosen.order.slots_with(epoch, start, stop)
            positions = chosen.order.examples_at(np.full_like(held, epoch), held)
            places = self._cycle.places(np.full_like(held, kind), positions, self._key)
            found += (places[(places >= first) & (places <= last)] - first).tolist()
        return sorted(found)

    def _positions(self, indices: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """The corpus of each example, and its number in the corpus's own order."""
        numbers = np.array([int(index) for index in indices], np.int64)
        wrong = numbers[(numbers < -len(self)) | (numbers >= len(self))]
        if len(wrong):
            raise IndexError(f"there is no example {wrong[0]}, only 0 to {len(self) - 1}; .epoch(1) has those of the next epoch")
        return self._cycle.positions(self._epoch * len(self) + numbers % len(self), self._key)


_AT_A_TIME = 512


def _open(
    corpus: CorpusTask,
    tasks: Sequence[DenoisingTask],
    rates: Mapping[str, float],
    sequence_length: Mapping[str, int],
    split: str,
    seed: int,
    shuffle: bool,
) -> _Corpus:
    for task in tasks:
        if reason := _why_a_stream(task):
            raise ValueError(
                f"the chunks of {task.name!r} have no fixed places, as {reason}; read it as a stream, with get_dataset"
            )
    solutions = tuple(task.solve(sequence_length) for task in tasks)
    store = _open_store(corpus, split)
    lengths = tuple(solution.full.length for solution in solutions)
    cycle = nearest_cycle([rates[task.name] for task in tasks])
    return _Corpus(corpus, store, tuple(tasks), solutions, Order(cycle, lengths, store.tokens, seed, shuffle))


def _why_a_stream(task: DenoisingTask) -> str | None:
    configuration, denoiser = task.configuration, task.denoiser
    reasons = {
        "documents are kept apart (merge_examples=False)": not configuration.merge_examples,
        "an EOS stands between documents (separate_documents=True)": configuration.separate_documents,
        "its denoiser puts ids between documents": denoiser.bos or denoiser.documents_end_in_eos,
        "its chunks overlap (stride)": bool(denoiser.stride),
        "short chunks are left out (keep_partial=False)": not denoiser.keep_partial,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def _open_store(corpus: CorpusTask, split: str) -> TokenStore:
    """The tokens of a corpus: in its cache, in the files that it is, or else in memory."""
    if corpus.is_tokens:
        store = corpus.stored(split)
        if not store.has_ends:
            return store
    elif corpus.cache_dir:
        manifest = cache.check(corpus.cache_dir, corpus, corpus_settings(corpus))
        if cache.is_store(manifest):
            return cache.open_store(corpus.cache_dir, manifest, split)
    tokens, lengths, count = [], [], 0
    for of_batch, of_each in corpus_tokens(corpus, split, use_cached=bool(corpus.cache_dir) and not corpus.is_tokens):
        tokens.append(of_batch)
        lengths.append(of_each[of_each > 0])
        count += len(of_batch)
        if count > MOST_TOKENS_IN_MEMORY:
            raise ValueError(
                f"{corpus.name!r} has more than {MOST_TOKENS_IN_MEMORY:,} tokens in split {split!r}, too many to tokenize into"
                " memory; write its cache first, with `ul2 cache`, and name its folder (seqio.add_global_cache_dirs)"
            )
    if not count:
        raise ValueError(f"{corpus.name!r} has no token in split {split!r}; look at it with `ul2 doctor`")
    return MemoryStore(np.concatenate(tokens), np.concatenate(lengths))


def _make(corpus: _Corpus, positions: np.ndarray) -> list[dict[str, np.ndarray | str]]:
    """The examples of these numbers of a corpus's order."""
    epochs, slots = corpus.order.slots(positions)
    kinds, starts, stops = corpus.order.chunks(epochs, slots)
    noise = corpus.order.noise_keys(epochs, slots)
    made: list[dict[str, np.ndarray | str]] = [{}] * len(positions)
    for number, (task, solution) in enumerate(zip(corpus.tasks, corpus.solutions)):
        own = np.flatnonzero(kinds == number)
        if not len(own):
            continue
        lengths = (stops - starts)[own].astype(np.int32)
        tokens = np.zeros([len(own), solution.full.length], np.int32)
        tokens[np.arange(tokens.shape[1]) < lengths[:, np.newaxis]] = _read(corpus, starts[own].tolist(), stops[own].tolist())
        features = _corruption(solution)(tf.constant(tokens), tf.constant(lengths), tf.constant(noise[own]))
        features = {key: value.numpy() for key, value in features.items()}
        for row, place in enumerate(own.tolist()):
            made[place] = {key: features[key][row, : features[f"{key}_length"][row]] for key in ("inputs", "targets")}
            made[place] |= {"denoiser": task.denoiser.name, "task": task.name}
    return made


def _read(corpus: _Corpus, starts: Sequence[int], stops: Sequence[int]) -> np.ndarray:
    """The tokens of chunks, one chunk's after the other's, as ids of the vocabulary. Raises a ValueError where one is no text."""
    special, vocabulary = corpus.solutions[0].special, corpus.solutions[0].vocabulary
    ranges = (each for start, stop in zip(starts, stops) for each in _ranges(start, stop, corpus.store.tokens))
    tokens = np.concatenate([corpus.store.read_tokens(*each) for each in ranges]) + np.int32(id_shift(vocabulary))
    wrong = traced_once(not_text, reserved=special.reserved, vocab_size=vocabulary.vocab_size)(tokens).numpy()
    if len(wrong):
        raise ValueError(
            f"{corpus.task.name!r} has the ids {sorted(set(wrong.tolist()))} in its text, which are padding, sentinels, modes, or"
            " no ids of the vocabulary: another vocabulary tokenized it"
        )
    return tokens


def _ranges(start: int, stop: int, tokens: int) -> tuple[tuple[int, int], ...]:
    """One or two ranges of a corpus of so many tokens."""
    return ((start, stop),) if stop <= tokens else ((start, tokens), (0, stop - tokens))


def _corruption(solution: Solution):
    return traced_once(
        corrupt_padded,
        denoiser=solution.configuration.denoiser,
        special=solution.special,
        max_length=solution.full.length,
        add_eos=solution.add_eos,
    )
