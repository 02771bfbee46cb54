"""The SeqIO providers: a task and a mixture, of any description.

Their datasets read examples by number, of a corpus in a cache or in memory, and else in one window after the other, see
`random_access.windows`. Either way an iterator resumes only in the pipeline that saved it (see `tf_data`).
"""

from __future__ import annotations

import functools
import os
import secrets
import types
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import seqio
import tensorflow as tf

from ul2_tasks.chat.objective import CHAT, salt_of
from ul2_tasks.corpus import cache
from ul2_tasks.corpus.corpus import Corpus, no_cache
from ul2_tasks.corpus.identity import reads
from ul2_tasks.denoisers.denoisers import Denoiser
from ul2_tasks.example_features import DENOISER, IMAGES, LOSS_MASK, LOSS_WEIGHT, SPAN_ID, TASK, TEXT, token_features
from ul2_tasks.mixtures.chat import Chat
from ul2_tasks.mixtures.description import Description
from ul2_tasks.mixtures.examples import Reading as Chosen
from ul2_tasks.mixtures.image_text import ImageText
from ul2_tasks.mixtures.mix import Mix
from ul2_tasks.mixtures.mixture import Mixture, denoising_of
from ul2_tasks.random_access.batches import features_of, members_of
from ul2_tasks.random_access.numbering import Share, check_hosts
from ul2_tasks.scalars import as_python
from ul2_tasks.sources.words import code_in_words
from ul2_tasks.tasks.arguments import Reader, check_splits, reader_of
from ul2_tasks.tasks.corpus_task import CorpusView
from ul2_tasks.tasks.datasets import with_id_shift
from ul2_tasks.tasks.graphs import no_autograph
from ul2_tasks.tasks.mixing import sample_examples
from ul2_tasks.tasks.preprocessors import denoise, split_into_chunks
from ul2_tasks.tasks.sources import our_source, seqio_source
from ul2_tasks.tasks.tf_data import Reading, seed_of
from ul2_tasks.tasks.vocabulary import seqio_vocabulary

MARKS = frozenset({LOSS_MASK, SPAN_ID})
TOKENS = "tokens"  # what chats have instead of inputs and targets


class UL2Task(seqio.Task):
    """A task of a description, which has this task alone: NAME_<denoiser>, NAME_chat or NAME_prompt_completion.

    Its `get_dataset` reads examples by number, of a cache, of memory, or of one window of the corpus after the other. A resumed
    iterator is checked. Nothing is trimmed, because no example is longer than its budget: one that would be is an error, or is
    left out and counted. That of the base class gives what the preprocessors make, which tasks of texts have. With `has_images`
    an example of texts has no image, beside others that have some.
    """

    def __init__(self, name: str, description: Description, corpus: Corpus, has_images: bool = False):
        source = seqio_source(corpus.source) if isinstance(description, ImageText) else CorpusView(corpus, _salt(description, name))
        buffer = seqio.SHUFFLE_BUFFER_SIZE if isinstance(description, Mixture) else None
        features = _features(name, description, has_images)
        super().__init__(name, source, features, _steps(description), shuffle_buffer_size=buffer)
        self.description: Any = description
        self.corpus, self.has_images = corpus, has_images

    @property
    def marks(self) -> frozenset[str]:
        """What examples say of how much tokens count in the loss."""
        if isinstance(self.description, Chat):
            return MARKS
        has_weights = LOSS_WEIGHT in self.corpus.columns or getattr(self.description, "repeated_ngrams", None)
        return frozenset({LOSS_WEIGHT} if has_weights else ())

    def get_dataset(
        self,
        sequence_length: Mapping[str, int] | None = None,
        split: str = "train",
        use_cached: bool = False,
        shuffle: bool = True,
        shuffle_buffer_size: int | None = None,
        seed: int | None = None,
        shard_info: seqio.ShardInfo | None = None,
        num_epochs: int | None = 1,
        trim_output_features: bool = True,
        try_in_mem_cache: bool = True,
        *,
        features: Collection[str] | None = None,
    ) -> tf.data.Dataset:
        """See `seqio.Task.get_dataset`; `shuffle_buffer_size`, `trim_output_features` and `try_in_mem_cache` make no difference.

        `features` are those that are kept, by default the output features and those of the loss. Elements are
        {"inputs": [tokens] int32, "targets": [tokens] int32} and the like, with "images": [images] strings, in the order of their
        runs in the inputs.
        """
        del shuffle_buffer_size, trim_output_features, try_in_mem_cache
        kept = {*self.output_features, *self.marks} if features is None else {*features}
        common: dict[str, Any] = {"sequence_length": sequence_length, "split": split, "use_cached": use_cached, "shuffle": shuffle}
        examples = read(self, self.description, reader_of(seed, num_epochs, shard_info), features=kept, **common).dataset()
        return _with_images(examples) if self.has_images else examples

    @property
    def denoiser(self) -> Denoiser | None:
        """That of the task; None of conversations."""
        return next(iter(self.description.denoisers), None)


def beside_images(task: seqio.Task) -> seqio.Task:
    """The task as one whose examples have images or the lack of them."""
    if IMAGES in task.output_features:
        return task
    return UL2Task(task.name, task.description, task.corpus, has_images=True) if is_ours(task) else _WithoutImages(task)


class _WithoutImages(seqio.Task):
    """A task of SeqIO as one whose examples have no image, beside others that have some."""

    def __init__(self, task: seqio.Task):
        super().__init__(task.name, task.source, {**task.output_features, IMAGES: _IMAGES}, preprocessors=[])
        self.task = task

    def get_dataset(self, *arguments: Any, **settings: Any) -> tf.data.Dataset:
        """See `seqio.Task.get_dataset`."""
        return _with_images(self.task.get_dataset(*arguments, **settings))


class UL2Mixture(seqio.Mixture):
    """A `seqio.Mixture` of the tasks of a description, and of others beside them, mixed by `mixing.sample_examples`.

    A resumed iterator is also checked for the rates of the mixture. SeqIO makes the examples of other tasks: it trims them to
    their budgets and repeats them as it does everywhere.
    """

    def __init__(self, *arguments, description: Description | None, **keywords):
        """Takes the arguments of `seqio.Mixture`, except `sample_fn`, and the description; None of what `inspect` mixes itself."""
        super().__init__(*arguments, sample_fn=sample_examples, **keywords)
        self.description: Any = description

    def get_dataset(
        self,
        sequence_length: Mapping[str, int] | None = None,
        split: str = "train",
        use_cached: bool = False,
        shuffle: bool = True,
        seed: int | None = None,
        shard_info: seqio.ShardInfo | None = None,
        num_epochs: int | None = None,
        copy_pretokenized: bool = False,
        compute_stats_empirically: bool = False,
        log_mixing_proportions: bool = True,
        passthrough_features: Sequence[str] | None = None,
        trim_output_features: bool = True,
        try_in_mem_cache: bool = True,
    ) -> tf.data.Dataset:
        """See `seqio.Mixture.get_dataset`. The feature "denoiser" is empty in the examples of a task that is not of this package.

        Prompt-completion pairs keep their masks. The targets of all other tasks are then in the loss group
        `example_features.TEXT`.

        Raises a ValueError where a task has no such split. SeqIO would leave that task out, and so mix the others at other rates. A
        task of SeqIO must have a cache to use, and no feature that tasks of texts do not have.
        """
        del compute_stats_empirically, log_mixing_proportions
        check_splits(self, split)
        who = reader_of(seed, num_epochs, shard_info)
        copies = [f"{key}_pretokenized" for key in self.output_features] if copy_pretokenized else []
        kept = {*self.output_features, *copies, *(passthrough_features or ())}
        ours = [task for task in self.tasks if is_ours(task)]
        marks = (kept & MARKS).union(*(task.marks for task in ours))
        rates = {task.name: self.get_rate(task) for task in self.tasks}
        others = [task for task in self.tasks if not is_ours(task)]
        reading = read(
            self,
            _of_ours(self.description),
            who,
            sequence_length=sequence_length,
            split=split,
            use_cached=use_cached,
            shuffle=shuffle,
            features=kept | marks,
            rates=rates,
            others={task.name: _reads(task, split, use_cached) for task in others},
        )
        self._check_compatible_features()
        if not others:
            return _marked(reading.dataset(), marks)
        common = sequence_length, split, use_cached, shuffle
        more: dict[str, Any] = {"trim_output_features": trim_output_features, "try_in_mem_cache": try_in_mem_cache}
        more |= {"seed": who.seed, "shard_info": shard_info, "num_epochs": who.num_epochs}
        streams = []
        for task in others:
            _check_cached(task, use_cached)
            streams.append(_marked(_as_ours(task.get_dataset(*common, **more), task, kept | marks), marks))
        shares = [sum(rates[task.name] for task in ours), *(self.get_rate(task) for task in others)]
        seed = 42 if who.seed is None and not shuffle else who.seed
        mixed = sample_examples([_marked(reading.dataset(), marks), *streams], shares, seed)
        buffers_too = tf.data.Options()
        buffers_too.experimental_symbolic_checkpoint = False
        return with_id_shift(mixed.with_options(buffers_too), self.output_features["targets"].vocabulary)


def is_ours(task: seqio.Task) -> bool:
    """Whether a task is of this package: SeqIO makes the examples of others."""
    return isinstance(task, UL2Task)


def read(
    provider: seqio.Task | seqio.Mixture,
    description: Description,
    who: Reader,
    *,
    sequence_length: Mapping[str, int] | None,
    split: str,
    use_cached: bool,
    shuffle: bool,
    features: Collection[str],
    rates: Mapping[str, float] | None = None,
    others: Mapping[str, str] = types.MappingProxyType({}),
) -> Reading:
    """What reads the examples of a description for a provider, of which `others` and part of the rates may be.

    Raises a ValueError where hosts outnumber examples.
    """
    seed, num_epochs, host, hosts = who
    number = secrets.randbits(62) if seed is None else seed
    lengths = _lengths(provider, sequence_length)
    folders = tuple(map(os.fspath, seqio.get_global_cache_dirs()))
    chosen = Chosen(description, provider.name, lengths, split, number, bool(shuffle), bool(use_cached), folders)
    corpora = chosen.corpora()
    numbering, windows = corpora.numbering, corpora if corpora.in_windows else None
    if num_epochs is not None and not windows:
        check_hosts(provider.name, split, numbering.first_of(num_epochs), hosts)
        numbering.warn_of_unread()
    told = chosen.fingerprint(numbering, windows, seed_of(seed), rates, others) | ({"epochs": num_epochs} if windows else {})
    budgets = {key: as_python(lengths.get(key)) for key in token_features(features_of(members_of(numbering)))}
    share = Share(host, hosts, turns=numbering.turns)
    stream = functools.partial(corpora.stream, host=host, hosts=hosts, epochs=num_epochs) if windows else None
    return Reading(numbering, budgets, num_epochs, share, features, told, seed is not None, stream)


_IMAGES = seqio.Feature(seqio.PassThroughVocabulary(0), add_eos=False, dtype=tf.string, rank=1)  # any number of encoded images


def _features(name: str, description: Description, has_images: bool) -> dict[str, seqio.Feature]:
    tokens = seqio.Feature(seqio_vocabulary(description.vocabulary), add_eos=not isinstance(description, Chat))
    if isinstance(description, Chat) and name == f"{description.name}_{CHAT}":
        marks = {LOSS_MASK: seqio.PassThroughVocabulary(2), SPAN_ID: seqio.PassThroughVocabulary(256)}
        return {TOKENS: tokens} | {key: seqio.Feature(of, add_eos=False, dtype=tf.uint8) for key, of in marks.items()}
    images = {IMAGES: _IMAGES} if has_images or isinstance(description, ImageText) else {}
    return {"inputs": tokens, "targets": tokens, **images}


def _steps(description: Description) -> Sequence[Any]:
    """The preprocessors of a task of texts; no other kind has a way of the stock `seqio.Task`."""
    if not isinstance(description, Mixture) or description.loss_weight_key or description.repeated_ngrams:
        return []
    configuration = denoising_of(description, *description.denoisers)
    common: dict[str, Any] = {key: getattr(configuration, key) for key in ("denoiser", "chunk_tokens")}
    common |= {key: getattr(configuration.special_tokens, key) for key in ("sentinels", "modes")}
    documents = {name: getattr(configuration, name) for name in ("merge_examples", "separate_documents")}
    return [functools.partial(split_into_chunks, **common, **documents), functools.partial(denoise, **common)]


def _salt(description: Description, name: str) -> str:
    """What the order of the documents is salted with in the stock way."""
    if isinstance(description, Chat):
        return salt_of(description.name, name.removeprefix(f"{description.name}_"))
    return description.salt(name) or name


def _lengths(provider: seqio.Task | seqio.Mixture, sequence_length: Mapping[str, int] | None) -> dict[str, Any]:
    """The lengths, in which conversations tell by their features what they make."""
    lengths: dict[str, Any] = dict(sequence_length or {})
    return {TOKENS: None, **lengths} if TOKENS in provider.output_features else lengths


def _of_ours(description: Description) -> Description:
    """A description without the tasks that SeqIO makes."""
    if not isinstance(description, Mix) or description.tasks.keys() >= description.rates.keys():
        return description
    return Mix(description.name, [(leaf, weight) for leaf, weight in description.pairs if leaf.tasks])


@no_autograph
def _with_images(examples: tf.data.Dataset) -> tf.data.Dataset:
    return examples.map(lambda example: {**example, IMAGES: tf.zeros([0], tf.string)})


def _reads(task: seqio.Task, split: str, use_cached: bool) -> str:
    """What a task reads that is not of this package and so guards no iterator: SeqIO leaves no place for a guard in it."""
    if use_cached and task.cache_dir and task.supports_caching:
        return f"cache: {cache.identity(task.cache_dir, split)}"
    return f"{reads(our_source(task.source), split)}; {code_in_words(task.preprocessors)}"


def _check_cached(task: seqio.Task, use_cached: bool) -> None:
    if use_cached and task.supports_caching and not task.cache_dir:
        what_to_do = f"`seqio_cache_tasks --tasks={task.name}`, or read all tasks without caches (use_cached=False)"
        raise no_cache(task.name, seqio.get_global_cache_dirs(), what_to_do)


@no_autograph
def _as_ours(dataset: tf.data.Dataset, task: seqio.Task, features: Collection[str]) -> tf.data.Dataset:
    """The examples of a task of another kind, with the features that the examples of a denoising task have."""
    message = (
        f"passthrough_features must have loss_mask and span_id for {task.name}, which does not train on all targets. Pass"
        ' get_dataset(.., passthrough_features=["loss_mask", "span_id"]), and use a converter of this package, such as'
        " HuggingFaceFeatureConverter(span_id=True); or mix conversations alone."
    )

    def expected(example: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        kept = {key: value for key, value in example.items() if key in features}
        if LOSS_MASK not in example or LOSS_MASK in kept:
            return kept
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(example[LOSS_MASK] == 1), [message])]):
            return {key: tf.identity(value) for key, value in kept.items()}

    dataset = dataset.map(expected, num_parallel_calls=tf.data.AUTOTUNE)
    names = {key: name for key, name in {DENOISER: "", TASK: task.name}.items() if key in features}
    foreign = sorted(dataset.element_spec.keys() - task.output_features.keys() - names.keys() - MARKS - {LOSS_WEIGHT})
    if foreign:
        raise ValueError(
            f"passthrough_features and copy_pretokenized must not add features that denoising tasks lack, got {foreign} of"
            f" {task.name!r}. Leave them out of passthrough_features, and set copy_pretokenized=False."
        )
    return dataset.map(lambda example: example | names, num_parallel_calls=tf.data.AUTOTUNE) if names else dataset


@no_autograph
def _marked(examples: tf.data.Dataset, marks: Collection[str]) -> tf.data.Dataset:
    """The examples with these features: where a task has none itself, all of its targets are trained on."""
    values = {LOSS_MASK: tf.uint8.as_numpy_dtype(1), SPAN_ID: tf.uint8.as_numpy_dtype(TEXT), LOSS_WEIGHT: 1.0}
    missing = {key: tf.constant(values[key]) for key in marks if key not in examples.element_spec}
    if not missing:
        return examples
    return examples.map(
        lambda example: example | {key: tf.fill(tf.shape(example["targets"]), value) for key, value in missing.items()},
        num_parallel_calls=tf.data.AUTOTUNE,
    )
