"""What an export is: its arguments, the pipeline that makes its examples, and its files."""

from __future__ import annotations

import dataclasses
import json
import math
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypedDict

import seqio
import tensorflow as tf

from ul2_tasks.chat.choices import counter_of
from ul2_tasks.chat.index import count_examples
from ul2_tasks.corpus.cache import identity_of
from ul2_tasks.corpus.corpus import Corpus, corpus_settings
from ul2_tasks.corpus.documents import documents_of
from ul2_tasks.corpus.identity import source_identity
from ul2_tasks.corpus.made_of import files_of
from ul2_tasks.example_features import CHAT, IMAGES, LOSS_MASK, SPAN_ID, TASK, TEXT, TOKEN_FEATURES
from ul2_tasks.export.formats import open_format
from ul2_tasks.files.systems import absolute, place
from ul2_tasks.graphs import no_autograph
from ul2_tasks.jobs.shards import JobShard
from ul2_tasks.jobs.trial import share
from ul2_tasks.scalars import is_integer
from ul2_tasks.tasks.arguments import inner_task
from ul2_tasks.tasks.chat import CHAT_VERSION, ChatMixture, ChatTask
from ul2_tasks.tasks.image_text import STREAM_VERSION as IMAGE_TEXT_VERSION
from ul2_tasks.tasks.image_text import ImageTextTask
from ul2_tasks.tasks.providers import STREAM_VERSION, DenoisingMixture, DenoisingTask
from ul2_tasks.tokenizers.special_ids import id_shift

RECORDS = "_parts"
_MEANING = (
    "All ids in the files and here are the tokenizer's own, from 0 to vocabulary_size - 1. SeqIO's ids of this vocabulary are"
    " id_shift higher; the descriptions under pipeline count in those.",
    "Inputs are the ids of the task's mode, then the text, in which a sentinel stands for each noise span. Targets are each span's"
    " sentinel and then its tokens. Sentinels are used in the order of sentinel_ids. What else a denoiser does, its fields say.",
    "Both end with eos_id, where there is one. The examples of a task that has no denoiser are as that task makes them.",
    "No example is padded. pad_id is what SeqIO would pad with; null, where each id is a token's: then pad with any id, and mask"
    " by the example's length.",
)
_OF_MASKS = (
    "loss_mask is 1 where a token of tokens, or of targets, is trained on, else 0. span_id is the loss group of such a token, else"
    " 0. Loss groups are those of loss_groups; targets that are not of conversations are all trained on, in one group."
)
_OF_IMAGES = (
    "images are the bytes of an example's image files, in the order of their placeholders in the inputs. There each"
    " is boi_id, image_seq_length times image_id, and eoi_id."
)

_OURS = (DenoisingTask, ImageTextTask, ChatTask)  # tasks of this package, which have a corpus


class ExportArguments(TypedDict):
    """The arguments of `write_examples` that decide what is written."""

    mixture: str
    sequence_length: Mapping[str, int | None]
    format: str
    split: str
    seed: int
    epochs: int
    shards: int
    use_cached: bool
    max_examples: int | None
    max_tokens: int | None


@dataclasses.dataclass(frozen=True)
class ExportShard(JobShard):
    """A shard of an export, `number`, from 0, and how many examples and tokens it has at most; None is all."""

    number: int
    max_examples: int | None
    max_tokens: int | None


@dataclasses.dataclass(frozen=True)
class Export:
    """An export to be written.

    `pipeline` is what makes the examples, see `describe`, `features` are the names of theirs, `reads` is what they are made of, see
    `files_read`, and `cache_dirs` are SeqIO's cache directories, for workers.
    """

    folder: str
    arguments: ExportArguments
    pipeline: Mapping[str, Any]
    features: Collection[str]
    reads: Mapping[str, Mapping[str, str]]
    cache_dirs: Sequence[str]

    @property
    def records(self) -> str:
        """The folder of the records of an unfinished export, see `jobs.shards`."""
        return place(self.folder, RECORDS)

    @property
    def shards(self) -> list[ExportShard]:
        """All shards, in order. The name of a shard is that of its one file."""
        names = [
            "{split}-{number:05d}-of-{shards:05d}.{format}".format(number=number, **self.arguments)
            for number in range(self.arguments["shards"])
        ]
        most = {"max_examples": self.arguments["max_examples"], "max_tokens": self.arguments["max_tokens"]}
        shares: list[dict[str, Any]] = [
            {name: share(name, all_of_it, number, len(names)) for name, all_of_it in most.items()} for number in range(len(names))
        ]
        of_all: dict[str, Any] = {"folder": self.folder, "records": self.records, "reads": ()}
        return [
            ExportShard(name=name, files=(name,), **of_all, number=number, **shares[number]) for number, name in enumerate(names)
        ]

    @property
    def id_shift(self) -> int:
        """How much higher the ids of `dataset` are than those that are written."""
        return id_shift(_vocabulary(self.arguments["mixture"]))

    @property
    def denoisers(self) -> dict[str, str]:
        """The name of each task's denoiser, empty where it has none."""
        tasks = tasks_of(self.arguments)
        return {task.name: task.denoiser.name if hasattr(task, "denoiser") else "" for task in tasks}

    def dataset(self, number: int) -> tf.data.Dataset:
        """The examples of the shard of this number, with the names of their tasks."""
        arguments, provider = self.arguments, _provider(self.arguments["mixture"])
        options = tf.data.Options()
        options.autotune.enabled = False  # its thread can keep an iterator, that ends with an error, from ending for minutes
        settings = {
            "use_cached": arguments["use_cached"],
            "shuffle": True,
            "seed": arguments["seed"],
            "shard_info": seqio.ShardInfo(number, arguments["shards"]),
            "num_epochs": arguments["epochs"],
        }
        if isinstance(provider, seqio.Mixture):
            settings["log_mixing_proportions"] = False
            settings["passthrough_features"] = [TASK, *(key for key in (LOSS_MASK, SPAN_ID) if key in self.features)]
        dataset = provider.get_dataset(arguments["sequence_length"], arguments["split"], **settings)
        if TASK not in dataset.element_spec:
            dataset = dataset.map(no_autograph(lambda example: example | {TASK: provider.name}))
        return dataset.with_options(options)


def plan_export(output: str, arguments: ExportArguments) -> Export:
    """The export that `write_examples` is asked for."""
    open_format(arguments["format"])
    numbers = ("seed", arguments["seed"], -math.inf), ("epochs", arguments["epochs"], 1), ("shards", arguments["shards"], 1)
    for name, value, least in numbers:
        if not is_integer(value, at_least=least):
            raise ValueError(f"{name} must be an integer{'' if least < 1 else f' of at least {least}'}, got {value!r}.")
    provider = _provider(arguments["mixture"])
    cache_dirs = seqio.get_global_cache_dirs() if arguments["use_cached"] else []
    description, reads = describe(arguments), files_read(arguments)
    return Export(
        absolute(output).rstrip("/"), arguments, description, _features(provider), reads, tuple(map(absolute, cache_dirs))
    )


def _provider(name: str) -> seqio.Task | seqio.Mixture:
    """What is exported: a mixture, or a task of conversations."""
    chats = [each for each in seqio.TaskRegistry.names() if isinstance(seqio.TaskRegistry.get(each), ChatTask)]
    known = sorted([*seqio.MixtureRegistry.names(), *chats])
    if name not in known:
        raise ValueError(f"mixture must be one of {known}, got {name!r}. Register it first.")
    provider = seqio.get_mixture_or_task(name)
    if not isinstance(provider, DenoisingMixture | ChatMixture | ChatTask):
        raise ValueError(
            f"mixture must be one of ul2_tasks, got {name!r} of SeqIO, whose examples do not say which task they are of. Mix the"
            " same with ul2_tasks.mix."
        )
    return provider


def _features(provider: seqio.Task | seqio.Mixture) -> list[str]:
    """The names of the features of its examples: with masks where some are of conversations, with images where some have them."""
    tasks = seqio.get_subtasks(provider)
    masks = [LOSS_MASK, SPAN_ID] if any(isinstance(inner_task(task), ChatTask) for task in tasks) else []
    images = [IMAGES] if any(IMAGES in task.output_features for task in tasks) else []
    return [*CHAT] if "tokens" in provider.output_features else [*TOKEN_FEATURES, *masks, *images]


def tasks_of(arguments: ExportArguments) -> list[Any]:
    """The tasks that have the split of an export, those of text first."""
    tasks = seqio.get_subtasks(_provider(arguments["mixture"]))
    found = [inner_task(task) for task in tasks if arguments["split"] in task.splits]
    if not found:
        present = sorted({name for task in tasks for name in task.splits})
        raise ValueError(f"split must be one of {present} of {arguments['mixture']!r}, got {arguments['split']!r}.")
    return sorted(found, key=lambda task: not isinstance(task, DenoisingTask))


def describe(arguments: ExportArguments) -> dict[str, Any]:
    """What makes the examples of an export with these arguments, as JSON has it. If it is the same, the examples are the same."""
    mixture, tasks = _provider(arguments["mixture"]), tasks_of(arguments)

    def describe_corpus(corpus: Corpus) -> dict[str, object]:
        if arguments["use_cached"]:
            read = f"cache: {identity_of(corpus, '' if corpus.is_tokens else corpus.cache_folder, arguments['split'])}"
        else:
            shards = corpus.source.list_shards(arguments["split"])
            read = f"{len(shards)} shards, {_crc32(shards)}"
        return {**corpus_settings(corpus), "read": read}

    def describe_task(task: Any) -> dict[str, object]:
        rate = mixture.get_rate(task) if isinstance(mixture, seqio.Mixture) else 1.0
        if not isinstance(task, _OURS):
            source = source_identity(task.source) or repr(task.source)  # a repr with an address is never equal to another one
            return {"source": source, "rate": rate, "denoiser": None}
        return {"corpus": task.corpus.name, "rate": rate, **_settings_of(task, arguments["sequence_length"])}

    description = {
        "stream_version": STREAM_VERSION,
        "corpora": {corpus.name: describe_corpus(corpus) for corpus in _corpora(tasks)},
        "tasks": {task.name: describe_task(task) for task in tasks},
    }
    return json.loads(json.dumps(description))


def _corpora(tasks: Iterable[Any]) -> list[Corpus]:
    return list({task.corpus.name: task.corpus for task in tasks if isinstance(task, _OURS)}.values())


def _settings_of(task: Any, sequence_length: Mapping[str, int | None]) -> dict[str, object]:
    """What decides the examples of a task of this package, beside its corpus."""
    if isinstance(task, ChatTask):
        settings = {"format": task.format, "supervision": dataclasses.asdict(task.supervision), "mode": list(task.objective.mode)}
        return {"denoiser": None, **settings, "chat_version": CHAT_VERSION}
    special = task.special_tokens()
    of_denoiser = {
        "denoiser": {"class": type(task.denoiser).__name__, **dataclasses.asdict(task.denoiser)},
        "mode": f"{len(special.mode)} ids, {_crc32(map(int, special.mode))}",
        "sentinels": f"{len(special.sentinels)} ids, {_crc32(map(int, special.sentinels))}",
    }
    if isinstance(task, ImageTextTask):
        settings = {key: getattr(task.configuration, key) for key in ("split", "on_unusable")}
        return {**of_denoiser, **settings, "image_text_version": IMAGE_TEXT_VERSION}
    return {
        **of_denoiser,
        "chunk": dataclasses.asdict(task.full_chunk(sequence_length)),
        **{key: getattr(task.configuration, key) for key in ("merge_examples", "chunk_tokens", "separate_documents")},
    }


def files_read(arguments: ExportArguments) -> dict[str, dict[str, str]]:
    """What an export with these arguments is made of, see `made_of.files_of`, of each corpus and each task that is not ours.

    Nothing of what is read from a cache, whose identity `describe` has, nor of documents in memory, whose hash is their identity.
    """
    tasks = tasks_of(arguments)
    corpora = [] if arguments["use_cached"] else _corpora(tasks)
    others = [task for task in tasks if not isinstance(task, _OURS)]
    return {task.name: files_of(task.source, arguments["split"]) for task in (*corpora, *others)}


def describe_ids(arguments: ExportArguments) -> dict[str, object]:
    """What the ids of an export with these arguments mean, as JSON has it: all that a trainer needs beside the examples."""
    vocabulary, features = _vocabulary(arguments["mixture"]), _features(_provider(arguments["mixture"]))
    shift, tasks = id_shift(vocabulary), tasks_of(arguments)
    has_masks, has_images = LOSS_MASK in features, IMAGES in features
    return {
        "meaning": [*_MEANING, *([_OF_MASKS] if has_masks else []), *([_OF_IMAGES] if has_images else [])],
        "vocabulary_size": vocabulary.vocab_size - shift,
        "id_shift": shift,
        "pad_id": None if shift else vocabulary.pad_id,
        "eos_id": None if vocabulary.eos_id is None else vocabulary.eos_id - shift,
        "unk_id": None if vocabulary.unk_id is None else vocabulary.unk_id - shift,
        "tasks": {task.name: _ids_of(task, shift) for task in tasks if isinstance(task, _OURS)},
        **({"loss_groups": {task.name: _loss_groups(task) for task in tasks}} if has_masks else {}),
    }


def _ids_of(task: Any, shift: int) -> dict[str, object]:
    if isinstance(task, ChatTask):
        return {"mode_ids": list(task.objective.mode), "sentinel_ids": [], "eod_id": task.corpus.encoder.renderer.eod}
    special = task.special_tokens()
    of_denoiser = {
        "mode_ids": [int(id) - shift for id in special.mode],
        "sentinel_ids": [int(id) - shift for id in special.sentinels],
    }
    has_images = isinstance(task, ImageTextTask)
    return of_denoiser | ({"image_tokens": dataclasses.asdict(task.configuration.image_tokens)} if has_images else {})


def _loss_groups(task: Any) -> dict[str, int]:
    """The loss group of each kind of message that is trained on; of a task that has none, of its targets."""
    return dict(task.supervision.loss_groups) if isinstance(task, ChatTask) else {"targets": TEXT}  # type: ignore[arg-type]


def left_out(arguments: ExportArguments) -> dict[str, dict[str, int]]:
    """How many examples an epoch leaves out, by task of conversations and by cause. Reads no token."""
    found = {}
    for task in tasks_of(arguments):
        if isinstance(task, ChatTask):
            lengths = task.objective.lengths(arguments["sequence_length"], task.name)
            reader = documents_of(task.corpus, arguments["split"], arguments["use_cached"])
            found[task.name] = dict(sorted(counter_of(count_examples(reader, task.objective, lengths).left_out).items()))
    return {name: counts for name, counts in found.items() if counts}


def _vocabulary(mixture: str) -> seqio.Vocabulary:
    """The vocabulary of tokens. SeqIO requires that all tasks of a mixture have the same one."""
    features = _provider(mixture).output_features
    return features["tokens" if "tokens" in features else "targets"].vocabulary


def _crc32(values: Iterable) -> str:
    return f"crc32 {zlib.crc32(repr(list(values)).encode())}"
