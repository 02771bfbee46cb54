"""The SeqIO providers: a task and a mixture of denoisers.

Their datasets read examples by number, of a corpus in a cache or in memory, and else in one window after the other, see
`random_access.windows`. Either way an iterator resumes only in the pipeline that saved it (see `tf_data`).
"""

from __future__ import annotations

import functools
import secrets
import zlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import seqio
import tensorflow as tf

from ul2_tasks.corpus import cache
from ul2_tasks.corpus.corpus import Corpus, no_cache
from ul2_tasks.corpus.identity import code_in_words, reads
from ul2_tasks.datasets import with_id_shift
from ul2_tasks.denoisers.denoisers import Denoiser
from ul2_tasks.denoisers.lengths import Chunk
from ul2_tasks.denoisers.solution import DenoisingConfiguration, Solution
from ul2_tasks.example_features import DENOISER, LOSS_MASK, SPAN_ID, TASK, TEXT, token_features
from ul2_tasks.graphs import no_autograph
from ul2_tasks.mixtures.mixture import solved_members, with_denoisers
from ul2_tasks.mixtures.schedule import Schedule
from ul2_tasks.order.permutation import keyed
from ul2_tasks.random_access.batches import features_of
from ul2_tasks.random_access.fingerprint import fingerprint
from ul2_tasks.random_access.kinds import Task
from ul2_tasks.random_access.numbering import MemberSchedule, Share, check_hosts, members_by_stage
from ul2_tasks.random_access.text import Member
from ul2_tasks.random_access.windows import Corpora
from ul2_tasks.scalars import as_python
from ul2_tasks.sources.image_text import ImageTextSource
from ul2_tasks.tasks.arguments import Reader, check_splits, inner_task, reader_of
from ul2_tasks.tasks.corpus_task import CorpusView
from ul2_tasks.tasks.mixing import sample_examples
from ul2_tasks.tasks.preprocessors import denoise, solve_features, split_into_chunks
from ul2_tasks.tasks.tf_data import Reading, seed_of
from ul2_tasks.tokenizers.special_ids import SpecialTokens

STREAM_VERSION = 3  # raised whenever the same arguments give other examples, or another order
MARKS = frozenset({LOSS_MASK, SPAN_ID})


class DenoisingTask(seqio.Task):
    """A `seqio.Task` for one denoiser, whose preprocessors are `split_into_chunks` and `denoise`.

    Its `get_dataset` reads examples by number, of a cache, of memory, or of one window of the corpus after the other. A resumed
    iterator is checked. Nothing is trimmed, because no example is longer than its budget. That of the base class gives what the
    preprocessors make.
    """

    def __init__(
        self,
        name: str,
        source: seqio.DataSource,
        output_features: Mapping[str, seqio.Feature],
        *,
        configuration: DenoisingConfiguration,
        shuffle_buffer_size: int | None = seqio.SHUFFLE_BUFFER_SIZE,
    ):
        common: dict[str, Any] = {key: getattr(configuration, key) for key in ("denoiser", "chunk_tokens")}
        common |= {key: getattr(configuration.special_tokens, key) for key in ("sentinels", "modes")}
        documents = {name: getattr(configuration, name) for name in ("merge_examples", "separate_documents")}
        steps = [functools.partial(split_into_chunks, **common, **documents), functools.partial(denoise, **common)]
        super().__init__(name, source, output_features, steps, shuffle_buffer_size=shuffle_buffer_size)
        self.configuration = configuration

    def replaced(
        self, source: seqio.DataSource | None = None, configuration: DenoisingConfiguration | None = None
    ) -> DenoisingTask:
        """The same task of another source or configuration; `seqio.Task.replace` makes a plain `seqio.Task`."""
        return DenoisingTask(
            self.name,
            source or self.source,
            self.output_features,
            configuration=configuration or self.configuration,
            shuffle_buffer_size=self.shuffle_buffer_size,
        )

    @property
    def denoiser(self) -> Denoiser:
        return self.configuration.denoiser

    @property
    def corpus(self) -> Corpus:
        return self.source.corpus

    @property
    def vocabulary(self) -> seqio.Vocabulary:
        return self.output_features["targets"].vocabulary

    def special_tokens(self) -> SpecialTokens:
        """The ids that the denoiser adds to those of the text. Opens the vocabulary."""
        return self.configuration.special_tokens.tokens(self.vocabulary, self.denoiser.mode)

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

        `features` are those that are kept, by default the output features. The examples are those of the index, see
        `random_access`, or where the corpus is neither cached nor fits in memory those of windows of it, see
        `random_access.windows`. What the base class makes of the preprocessors are examples in another order.
        """
        del shuffle_buffer_size, trim_output_features, try_in_mem_cache
        kept = self.output_features if features is None else features
        who = reader_of(seed, num_epochs, shard_info)
        common = {"sequence_length": sequence_length, "split": split, "use_cached": use_cached, "shuffle": shuffle}
        return read_alone(self, who, features=kept, **common).dataset()

    @staticmethod
    def members(
        tasks: Sequence[DenoisingTask],
        rates: Sequence[float],
        sequence_length: Mapping[str, int] | None,
    ) -> list[Member]:
        """Tasks of one corpus as `random_access` takes them."""
        return solved_members(tasks, dict(zip([task.name for task in tasks], rates)), sequence_length)

    def solve(self, sequence_length: Mapping[str, int] | None) -> Solution:
        """Finds the special ids and the full chunk within these budgets; see `solution.solve`."""
        self.corpus.check_keeps_out(self.name, self.configuration.special_tokens)
        return solve_features(sequence_length, self.output_features, self.configuration)

    def full_chunk(self, sequence_length: Mapping[str, int] | None) -> Chunk:
        """The chunk that every chunk is within these budgets, except at the end of the corpus or of a document."""
        return self.solve(sequence_length).full


class DenoisingMixture(seqio.Mixture):
    """A `seqio.Mixture` of denoising tasks, and of others beside them, mixed by `mixing.sample_examples`.

    A resumed iterator is also checked for the rates of the mixture. SeqIO makes the examples of other tasks: it trims them to
    their budgets and repeats them as it does everywhere. `configuration` has the arguments of `register` or `mix` that made it;
    None where it is not registered.
    """

    def __init__(self, *arguments, configuration: object = None, **keywords):
        """Takes the arguments of `seqio.Mixture`, except `sample_fn`, and the configuration."""
        super().__init__(*arguments, sample_fn=sample_examples, **keywords)
        self.configuration = configuration

    @property
    def planned(self) -> Schedule[str] | None:
        """The schedule that `mix` was given; None without one."""
        return getattr(self.configuration, "schedule", None)

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

        Raises a ValueError where a task has no such split. SeqIO would leave that task out, and so mix the others at other rates.
        """
        del compute_stats_empirically, log_mixing_proportions
        check_splits(self, split)
        who = reader_of(seed, num_epochs, shard_info)
        copies = [f"{key}_pretokenized" for key in self.output_features] if copy_pretokenized else []
        kept = {*self.output_features, *copies, *(passthrough_features or ())}
        ours = [task for task in self.tasks if is_ours(task)]
        has_masks = any(LOSS_MASK in getattr(inner_task(task), "own_features", ()) for task in ours)
        marks = MARKS if has_masks else kept & MARKS
        rates = {task.name: self.get_rate(task) for task in self.tasks}
        reading = read_indexed(
            self,
            ours,
            rates,
            _read_by_others(self, split, use_cached),
            who,
            sequence_length=sequence_length,
            split=split,
            use_cached=use_cached,
            shuffle=shuffle,
            features=kept | marks,
        )
        self._check_compatible_features()
        others = [task for task in self.tasks if task not in ours]
        if not others:
            return _marked(reading.dataset(), marks)
        common = sequence_length, split, use_cached, shuffle, who.seed, shard_info, who.num_epochs
        streams = [self.get_task_dataset(task, kept | marks, *common, trim_output_features, try_in_mem_cache) for task in others]
        shares = [sum(rates[task.name] for task in ours), *(self.get_rate(task) for task in others)]
        seed = 42 if who.seed is None and not shuffle else who.seed
        mixed = sample_examples([_marked(reading.dataset(), marks), *streams], shares, seed)
        buffers_too = tf.data.Options()
        buffers_too.experimental_symbolic_checkpoint = False
        return with_id_shift(mixed.with_options(buffers_too), self.output_features["targets"].vocabulary)

    def get_task_dataset(
        self,
        task: seqio.Task,
        output_feature_keys: Collection[str],
        sequence_length: Mapping[str, int] | None = None,
        split: str = "train",
        use_cached: bool = False,
        shuffle: bool = True,
        seed: int | None = None,
        shard_info: seqio.ShardInfo | None = None,
        num_epochs: int | None = None,
        trim_output_features: bool = True,
        try_in_mem_cache: bool = True,
    ) -> tf.data.Dataset:
        """See `seqio.Mixture.get_task_dataset`.

        Raises a ValueError where a task that is no `DenoisingTask` has no cache to use, or a task hands on a feature that denoising
        tasks do not have.
        """
        common: dict[str, Any] = {
            "sequence_length": sequence_length,
            "split": split,
            "use_cached": use_cached,
            "shuffle": shuffle,
            "seed": seed,
            "shard_info": shard_info,
            "num_epochs": num_epochs,
        }
        marks = MARKS.intersection(output_feature_keys)
        if isinstance(task, DenoisingTask):
            return _marked(task.get_dataset(**common, features={*output_feature_keys} - marks), marks)
        _check_cached(task, use_cached)
        dataset = task.get_dataset(**common, trim_output_features=trim_output_features, try_in_mem_cache=try_in_mem_cache)
        return _marked(_as_ours(dataset, task, output_feature_keys), marks)


def order_seed(provider: seqio.Task | seqio.Mixture, seed: int) -> int:
    """The seed of a provider's order: another one for each task alone, so that a stock mixture of them reads different orders."""
    if not isinstance(provider, DenoisingTask):
        return seed
    salt = getattr(provider.source, "salt", provider.denoiser.name)
    return keyed(seed, zlib.crc32(salt.encode()))


def denoising_tasks(mixture: str, denoisers: Collection[str] | None = None) -> list[DenoisingTask]:
    """The denoising tasks of a registered mixture, in its order; `other_tasks` gives the others.

    `mixture` may name a single task. `denoisers` are the names of the denoisers whose tasks are wanted; None for all. Raises a
    ValueError where there is no denoising task, or a name is of none.
    """
    tasks = [task for task in subtasks(mixture) if isinstance(task, DenoisingTask)]
    if not tasks:
        raise ValueError(f"mixture must have a denoising task, got {mixture!r}. Pass one that ul2_tasks.register or mix returned.")
    return with_denoisers(mixture, tasks, denoisers)


def other_tasks(mixture: str) -> list[seqio.Task]:
    """The tasks of a registered mixture that are not denoising tasks, in its order."""
    return [task for task in subtasks(mixture) if not isinstance(task, DenoisingTask)]


def subtasks(mixture: str) -> list[seqio.Task]:
    """The tasks of a registered mixture, or the task itself, in its order: those beside images as they are without them."""
    return list(map(inner_task, seqio.get_subtasks(seqio.get_mixture_or_task(mixture))))


class IndexedTask(Protocol):
    """A task whose examples may have random access."""

    @property
    def name(self) -> str: ...
    @property
    def configuration(self) -> Any: ...
    @property
    def corpus(self) -> Corpus: ...
    @staticmethod
    def members(
        tasks: Sequence[Any],
        rates: Sequence[float],
        sequence_length: Mapping[str, int] | None,
        /,
    ) -> Sequence[Task]: ...


def indexed_members(
    tasks: Sequence[IndexedTask],
    rates: Sequence[float],
    sequence_length: Mapping[str, int] | None,
) -> list[Task]:
    """Tasks as `random_access` takes them, in their order. Those of one corpus are asked for together."""
    found: dict[str, Task] = {}
    by_corpus: dict[tuple[type, str], list[int]] = {}
    for number, task in enumerate(tasks):
        by_corpus.setdefault((type(task), task.corpus.name), []).append(number)
    for (kind, _), numbers in by_corpus.items():
        own = [tasks[number] for number in numbers]
        own_rates = [rates[number] for number in numbers]
        found |= {member.task: member for member in kind.members(own, own_rates, sequence_length)}  # type: ignore[attr-defined]
    return [found[task.name] for task in tasks]


def is_ours(task: seqio.Task) -> bool:
    """Whether a task is of this package: SeqIO makes the examples of others."""
    return hasattr(task, "members")


def read_alone(task: IndexedTask, who: Reader, **settings: Any) -> Reading:
    """`read_indexed` of a task that is in no mixture."""
    return read_indexed(task, [task], {task.name: 1.0}, {}, who, **settings)


def read_indexed(
    provider: seqio.Task | seqio.Mixture,
    tasks: Sequence[IndexedTask],
    rates: Mapping[str, float],
    others: Mapping[str, str],
    who: Reader,
    *,
    sequence_length: Mapping[str, int] | None,
    split: str,
    use_cached: bool,
    shuffle: bool,
    features: Collection[str],
) -> Reading:
    """What reads the tasks. Raises a ValueError where hosts outnumber examples."""
    seed, num_epochs, host, hosts = who
    own_rates = [rates[task.name] for task in tasks]
    numbered = indexed_members(tasks, own_rates, sequence_length)
    schedule = planned_members_of(provider, numbered)
    at = order_seed(provider, secrets.randbits(62) if seed is None else seed)
    corpora = Corpora(schedule, split, use_cached, at, bool(shuffle))
    numbering = corpora.numbering
    if num_epochs is not None and not corpora.in_windows:
        check_hosts(provider.name, split, numbering.first_of(num_epochs), hosts)
        numbering.warn_of_unread()
    lengths = {key: as_python((sequence_length or {}).get(key)) for key in token_features(features_of(numbered))}
    told = fingerprint(
        provider.name,
        numbered,
        numbering,
        sequence_length or {},
        rates=rates,
        cache_dirs={task.corpus.name: task.corpus.cache_dir if use_cached else None for task in tasks},
        split=split,
        shuffle=bool(shuffle),
        seed=seed_of(seed),
        others=others,
        schedule=schedule,
    )
    if corpora.in_windows:  # the numbering is of the beginnings alone
        told["windows"] = {task.corpus.name: reads(task.corpus.source, split) for task in tasks} | {
            "epochs": num_epochs,
            "window": list(corpora.window),
        }
    share = Share(host, hosts, turns=numbering.turns)
    windows = functools.partial(corpora.stream, host=host, hosts=hosts, epochs=num_epochs) if corpora.in_windows else None
    return Reading(numbering, lengths, num_epochs, share, features, told, seed is not None, windows)


def weigh_of(provider: seqio.Task | seqio.Mixture) -> str:
    """What the weights of a mixture count, see `mix`."""
    return getattr(getattr(provider, "configuration", None), "weigh", "examples")


def planned_members_of(provider: seqio.Task | seqio.Mixture, members: Sequence[Task]) -> MemberSchedule:
    """The tasks of each stage of a registered mixture, at their rates; of one without a schedule the same all the time."""
    planned, weigh = provider.planned if isinstance(provider, DenoisingMixture) else None, weigh_of(provider)
    if planned is None:
        return MemberSchedule.of(members, weigh)
    rates = [(first_step, _rates_of(weights)) for first_step, weights in planned.flat()]
    return members_by_stage(members, rates, planned.batch_size, planned.steps, weigh)


def rates_among(mixture: seqio.Mixture, examples: int) -> dict[str, float]:
    """The part that each task of a mixture has of its first examples; with a schedule of those stages that they are of."""
    planned: Schedule[str] | None = getattr(mixture, "planned", None)
    parts = {task.name: 0.0 if planned else float(mixture.get_rate(task)) for task in mixture.tasks}
    flat = planned.flat() if planned else []
    firsts = [min(first_step * planned.batch_size, examples) for first_step, _ in flat] if planned else []
    for first, stop, (_, weights) in zip(firsts, [*firsts[1:], examples], flat):
        for name, rate in _rates_of(weights).items():
            parts[name] += (stop - first) * rate / sum(weights.values())
    return {name: part / sum(parts.values()) for name, part in parts.items()}


def _rates_of(weights: Mapping[str, float]) -> dict[str, float]:
    """The rate of each task, as SeqIO has it, where registered mixtures and tasks have these weights."""
    rates: dict[str, float] = {}
    for name, weight in weights.items():
        provider = seqio.get_mixture_or_task(name)
        for task in seqio.get_subtasks(provider):
            part = weight * provider.get_rate(task) / provider.total_rate if isinstance(provider, seqio.Mixture) else weight
            rates[task.name] = rates.get(task.name, 0.0) + part
    return rates


def _read_by_others(mixture: DenoisingMixture, split: str, use_cached: bool) -> dict[str, str]:
    """What the tasks read that guard no iterator: those that are not of this package. SeqIO leaves no place for a guard in them."""
    return {
        task.name: f"cache: {cache.identity(task.cache_dir, split)}"
        if use_cached and task.cache_dir and task.supports_caching
        else f"{reads(task.source, split)}; {code_in_words(task.preprocessors)}"
        for task in mixture.tasks
        if not isinstance(task.source, CorpusView | ImageTextSource)
    }


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
    foreign = sorted(dataset.element_spec.keys() - task.output_features.keys() - names.keys() - MARKS)
    if foreign:
        raise ValueError(
            f"passthrough_features and copy_pretokenized must not add features that denoising tasks lack, got {foreign} of"
            f" {task.name!r}. Leave them out of passthrough_features, and set copy_pretokenized=False."
        )
    return dataset.map(lambda example: example | names, num_parallel_calls=tf.data.AUTOTUNE) if names else dataset


@no_autograph
def _marked(examples: tf.data.Dataset, marks: Collection[str]) -> tf.data.Dataset:
    """The examples with these features: where a task has none itself, all of its targets are trained on."""
    values = {LOSS_MASK: 1, SPAN_ID: TEXT}
    missing = {key: tf.constant(values[key], tf.uint8) for key in marks if key not in examples.element_spec}
    if not missing:
        return examples
    return examples.map(
        lambda example: example | {key: tf.fill(tf.shape(example["targets"]), value) for key, value in missing.items()},
        num_parallel_calls=tf.data.AUTOTUNE,
    )
