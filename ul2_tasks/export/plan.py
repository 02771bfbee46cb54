"""What an export is: its arguments, the pipeline that makes its examples, and its files."""

from __future__ import annotations

import dataclasses
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict

import seqio
import tensorflow as tf

from ul2_tasks.corpus.corpus import corpus_settings
from ul2_tasks.corpus.identity import source_identity
from ul2_tasks.corpus.made_of import files_of
from ul2_tasks.corpus.view import CorpusView
from ul2_tasks.example_features import LOSS_MASK
from ul2_tasks.export.formats import NAMES, open_format
from ul2_tasks.files.systems import absolute, place
from ul2_tasks.graphs import no_autograph
from ul2_tasks.jobs.shards import JobShard
from ul2_tasks.tasks.providers import MARKS, STREAM_VERSION, DenoisingTask, denoising_tasks, other_tasks
from ul2_tasks.vocabulary.special_ids import id_shift

RECORDS = "_parts"  # earlier versions used this name, too
_MEANING = (
    "All ids in the files and here are the tokenizer's own, from 0 to vocabulary_size - 1. SeqIO's ids of this vocabulary are"
    " id_shift higher; the descriptions under pipeline count in those.",
    "Inputs are the ids of the task's mode, then the text, in which a sentinel stands for each noise span. Targets are each span's"
    " sentinel and then its tokens. Sentinels are used in the order of sentinel_ids. What else a denoiser does, its fields say.",
    "Both end with eos_id, where there is one. The examples of a task that has no denoiser are as that task makes them.",
    "No example is padded. pad_id is what SeqIO would pad with; null, where each id is a token's: then pad with any id, and mask"
    " by the example's length.",
)


class ExportArguments(TypedDict):
    """The arguments of `write_examples` that decide what is written."""

    mixture: str
    sequence_length: Mapping[str, int]
    format: str
    split: str
    seed: int
    epochs: int
    shards: int
    use_cached: bool


@dataclasses.dataclass(frozen=True)
class ExportShard(JobShard):
    """A shard of an export, `number`, from 0."""

    number: int


@dataclasses.dataclass(frozen=True)
class Export:
    """An export to be written.

    `pipeline` is what makes the examples, see `describe`, `reads` what they are made of, see `files_read`, and `cache_dirs` are
    SeqIO's cache directories, for workers.
    """

    folder: str
    arguments: ExportArguments
    pipeline: Mapping[str, Any]
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
        return [
            ExportShard(name=name, files=(name,), folder=self.folder, records=self.records, reads="", number=number)
            for number, name in enumerate(names)
        ]

    @property
    def id_shift(self) -> int:
        """How much higher the ids of `dataset` are than those that are written."""
        return id_shift(_vocabulary(self.arguments["mixture"]))

    def dataset(self, number: int) -> tf.data.Dataset:
        """The examples of the shard of this number, with the names of their denoisers and tasks."""
        arguments = self.arguments
        options = tf.data.Options()
        options.autotune.enabled = False  # its thread can keep an iterator, that ends with an error, from ending for minutes
        dataset = seqio.MixtureRegistry.get(arguments["mixture"]).get_dataset(
            arguments["sequence_length"],
            arguments["split"],
            use_cached=arguments["use_cached"],
            shuffle=True,
            seed=arguments["seed"],
            shard_info=seqio.ShardInfo(number, arguments["shards"]),
            num_epochs=arguments["epochs"],
            log_mixing_proportions=False,
            passthrough_features=list(NAMES),
        )
        # Replies with random access have their masks; a stream of them checks itself that all targets are trained on.
        return (dataset.map(_without_masks) if LOSS_MASK in dataset.element_spec else dataset).with_options(options)


@no_autograph
def _without_masks(example: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """An example without its masks. Raises an error where some of its targets are not trained on, which a file could not say."""
    message = (
        "targets must be trained on as a whole to be exported, because these files have no loss_mask, got a message of weight 0."
        " Leave it out, or read ul2_tasks.examples(..), which has loss_mask and span_id."
    )
    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(example[LOSS_MASK] == 1), [message])]):
        return {key: tf.identity(value) for key, value in example.items() if key not in MARKS}


def plan_export(output: str, arguments: ExportArguments) -> Export:
    """The export that `write_examples` is asked for."""
    open_format(arguments["format"])
    numbers = ("seed", arguments["seed"], None), ("epochs", arguments["epochs"], 1), ("shards", arguments["shards"], 1)
    for name, value, least in numbers:
        if not isinstance(value, int) or isinstance(value, bool) or (least is not None and value < least):
            raise ValueError(f"{name} must be an integer{'' if least is None else f' of at least {least}'}, got {value!r}.")
    if arguments["mixture"] not in seqio.MixtureRegistry.names():
        raise ValueError(
            f"mixture must be one of {sorted(seqio.MixtureRegistry.names())}, got {arguments['mixture']!r}. Register it first."
        )
    cache_dirs = seqio.get_global_cache_dirs() if arguments["use_cached"] else []
    description, reads = describe(arguments), files_read(arguments)
    return Export(absolute(output).rstrip("/"), arguments, description, reads, tuple(map(absolute, cache_dirs)))


def describe(arguments: ExportArguments) -> dict[str, Any]:
    """What makes the examples of an export with these arguments, as JSON has it. If it is the same, the examples are the same."""
    mixture, split = seqio.MixtureRegistry.get(arguments["mixture"]), arguments["split"]
    tasks, others = ([task for task in of(mixture.name) if split in task.splits] for of in (denoising_tasks, other_tasks))
    if not tasks and not others:
        present = sorted({name for task in mixture.tasks for name in task.splits})
        raise ValueError(f"split must be one of {present} of {mixture.name!r}, got {split!r}.")

    sources = {task.source.corpus.name: task.source for task in tasks}

    def describe_corpus(source: CorpusView) -> dict[str, object]:
        if arguments["use_cached"]:
            read = f"cache: {source.cached().cache_identity(split)}"
        else:
            shards = source.list_shards(split)
            read = f"{len(shards)} pieces, {_crc32(shards)}"  # earlier versions used this word, too
        return {**corpus_settings(source.corpus), "read": read}

    def describe_task(task: DenoisingTask) -> dict[str, object]:
        special, configuration = task.special_tokens(), task.configuration
        return {
            "corpus": task.source.corpus.name,
            "rate": mixture.get_rate(task),
            "denoiser": {"class": type(task.denoiser).__name__, **dataclasses.asdict(task.denoiser)},
            "mode": f"{len(special.mode)} ids, {_crc32(map(int, special.mode))}",
            "sentinels": f"{len(special.sentinels)} ids, {_crc32(map(int, special.sentinels))}",
            "chunk": dataclasses.asdict(task.full_chunk(arguments["sequence_length"])),
            **{key: getattr(configuration, key) for key in ("merge_examples", "chunk_tokens", "separate_documents")},
            **({"random_access": True} if configuration.random_access else {}),
        }

    def describe_other(task: seqio.Task) -> dict[str, object]:
        source = source_identity(task.source) or repr(task.source)  # a repr with an address is never equal to another one
        return {"source": source, "rate": mixture.get_rate(task), "denoiser": None}

    description = {
        "stream_version": STREAM_VERSION,
        "corpora": {name: describe_corpus(source) for name, source in sources.items()},
        "tasks": {task.name: describe_task(task) for task in tasks} | {task.name: describe_other(task) for task in others},
    }
    return json.loads(json.dumps(description))


def files_read(arguments: ExportArguments) -> dict[str, dict[str, str]]:
    """What an export with these arguments is made of, see `made_of.files_of`, of each corpus and each task that is not ours.

    Nothing of what is read from a cache, whose identity `describe` has, nor of documents in memory, whose hash is their identity.
    """
    split, mixture = arguments["split"], arguments["mixture"]
    corpora = [] if arguments["use_cached"] else [task.source.corpus for task in denoising_tasks(mixture) if split in task.splits]
    return {
        task.name: files_of(task.source, split)
        for task in (*corpora, *(task for task in other_tasks(mixture) if split in task.splits))
    }


def describe_ids(arguments: ExportArguments) -> dict[str, object]:
    """What the ids of an export with these arguments mean, as JSON has it: all that a trainer needs beside the examples."""
    vocabulary, special = _vocabulary(arguments["mixture"]), {}
    shift = id_shift(vocabulary)
    for task in denoising_tasks(arguments["mixture"]):
        if arguments["split"] in task.splits:
            special[task.name] = task.special_tokens()
    return {
        "meaning": list(_MEANING),
        "vocabulary_size": vocabulary.vocab_size - shift,
        "id_shift": shift,
        "pad_id": None if shift else vocabulary.pad_id,
        "eos_id": None if vocabulary.eos_id is None else vocabulary.eos_id - shift,
        "unk_id": None if vocabulary.unk_id is None else vocabulary.unk_id - shift,
        "tasks": {
            name: {"mode_ids": [int(id) - shift for id in ids.mode], "sentinel_ids": [int(id) - shift for id in ids.sentinels]}
            for name, ids in special.items()
        },
    }


def _vocabulary(mixture: str) -> seqio.Vocabulary:
    """The vocabulary of inputs and targets. SeqIO requires that all tasks of a mixture have the same one."""
    return seqio.MixtureRegistry.get(mixture).output_features["targets"].vocabulary


def _crc32(values: Iterable) -> str:
    return f"crc32 {zlib.crc32(repr(list(values)).encode())}"
