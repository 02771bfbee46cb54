"""Writes examples of a description to files for other trainers. `folder` describes the folder, and reads it.

Shard i of n has the examples that host i of n would train on, in the same order: of corpora that are read by number examples i,
i + n, i + 2n .. of `ul2_tasks.examples` (where several are mixed, one of each n in a row); of those that are read in windows a
stream of its own shards. So it ends where that ends: when a corpus has been read `epochs` times. The same arguments always give the
same bytes, on any number of workers.

An export that was killed goes on where it stopped, see `jobs.job`. The manifest is written last.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ul2_tasks.cached import cached_property
from ul2_tasks.corpus.corpus import Corpus
from ul2_tasks.corpus.made_of import files_of
from ul2_tasks.example_features import DENOISER, IMAGES, LOSS_MASK, TASK, TEXT
from ul2_tasks.export.folder import (
    MANIFEST,
    SCHEMA_VERSION,
    count,
    counted,
    is_export,
    no_counts,
    read_manifest,
)
from ul2_tasks.export.formats import ORIGINS, Examples, check_features, open_format
from ul2_tasks.files.systems import absolute, place
from ul2_tasks.jobs.beam import import_beam
from ul2_tasks.jobs.job import Job, run_job
from ul2_tasks.jobs.manifest import differences, total, write_manifest
from ul2_tasks.jobs.shards import BEGUN, JobShard, all_shards, begin, check_folder, finished_shards, temporary_files, write_shard
from ul2_tasks.jobs.trial import checked, in_words, share
from ul2_tasks.mixtures.examples import open_examples
from ul2_tasks.random_access import sequence
from ul2_tasks.random_access.batches import Mixed, features_of, has_images, make_batch, members_of, widest
from ul2_tasks.random_access.kinds import Task
from ul2_tasks.random_access.numbering import Share, Slots, check_hosts
from ul2_tasks.random_access.windows import Corpora, Stream
from ul2_tasks.scalars import as_python, is_integer
from ul2_tasks.store.provenance import Origin
from ul2_tasks.version import __version__

if TYPE_CHECKING:
    from ul2_tasks.mixtures.chat import Chat
    from ul2_tasks.mixtures.image_text import ImageText
    from ul2_tasks.mixtures.mix import Mix
    from ul2_tasks.mixtures.mixture import Mixture

RECORDS = "_parts"
_EXAMPLES_AT_A_TIME, _TOKENS_AT_A_TIME = 256, 1 << 20
_WITH_IMAGES_AT_A_TIME = 16  # each image has up to megabytes
_ANY_LENGTH = 1 << 15  # for how many tokens a conversation of any length is taken
_MEANING = (
    "All ids in the files and here are the tokenizer's own, from 0 to vocabulary_size - 1.",
    "Inputs are the ids of the task's mode, then the text, in which a sentinel stands for each noise span. Targets are each span's"
    " sentinel and then its tokens. Sentinels are used in the order of sentinel_ids. What else a denoiser does, its fields say.",
    "Both end with eos_id, where there is one. No example is padded: pad with any id, and mask by the example's length.",
)
_OF_MASKS = (
    "loss_mask is 1 where a token of tokens, or of targets, is trained on, else 0. span_id is the loss group of such a token, else"
    " 0. Loss groups are those of loss_groups; targets that are not of conversations are all trained on, in one group."
)
_OF_IMAGES = (
    "images are the bytes of an example's image files, in the order of their placeholders in the inputs. There each"
    " is boi_id, image_seq_length times image_id, and eoi_id."
)


class ExportArguments(TypedDict):
    """The arguments of `write_examples` that decide what is written."""

    sequence_length: Mapping[str, int | None]
    format: str
    split: str
    seed: int
    epochs: int
    shards: int
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
    """An export to be written, also on other machines, which open the corpora again."""

    folder: str
    description: Mixture | Mix | Chat | ImageText
    arguments: ExportArguments
    cache_dirs: tuple[str, ...]

    @cached_property
    def opened(self) -> tuple[sequence.Examples, Corpora | None]:
        """Its examples; with the corpora where one is read in windows."""
        return open_examples(
            self.description,
            self.arguments["sequence_length"],  # type: ignore[arg-type]
            split=self.arguments["split"],
            seed=self.arguments["seed"],
            shuffle=True,
            pack=False,
            use_cached=False,
            cache_dirs=self.cache_dirs,
        )

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key != "opened"}

    @property
    def members(self) -> list[Task]:
        """The tasks."""
        return members_of(self.opened[0].numbering)

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features of its examples: with images and origins where there are some."""
        recorded = all(corpus.store.provenance is not None for corpus in self.opened[0].numbering.corpora)
        images = [IMAGES] if has_images(self.members) else []
        return (*features_of(self.members), *images, *([ORIGINS] if recorded else []))

    @property
    def corpora(self) -> list[Corpus]:
        return list({member.corpus.name: member.corpus for member in self.members}.values())

    @property
    def files(self) -> list[str]:
        """The files that origins may name."""
        of_each = ([shard.path for shard in corpus.source.shards(self.arguments["split"])] for corpus in self.corpora)
        recorded = ([] if found is None else found.files for found in self._provenance)
        return list(dict.fromkeys(itertools.chain(*recorded, *(of_each if self.opened[1] else ()))))

    @property
    def _provenance(self) -> list[Any]:
        return [corpus.store.provenance for corpus in self.opened[0].numbering.corpora]

    @property
    def described(self) -> dict[str, Any]:
        """What makes the examples, as JSON has it. If it is the same, the examples are the same."""
        return json.loads(json.dumps(self.opened[0].describe()))

    @cached_property
    def pipeline(self) -> dict[str, Any]:
        """The same, as it was where the job began, which workers are told."""
        return self.described

    @property
    def reads(self) -> dict[str, dict[str, str]]:
        """What the corpora are made of now, see `made_of.files_of`: nothing of caches, whose identity `described` has."""
        return {
            corpus.name: files_of(corpus.source, self.arguments["split"])
            for corpus in self.corpora
            if not (self.cache_dirs and corpus.cache_dir)
        }

    @property
    def shards(self) -> list[ExportShard]:
        """All shards, in order."""
        shards, endings = self.arguments["shards"], open_format(self.arguments["format"]).endings
        most = {name: self.arguments[name] for name in ("max_examples", "max_tokens")}
        found = []
        for number in range(shards):
            name = f"{self.arguments['split']}-{number:05d}-of-{shards:05d}"
            files = tuple(f"{name}{ending}" for ending in endings)
            of_shard = {key: share(key, all_of_it, number, shards) for key, all_of_it in most.items()}
            found.append(ExportShard(name, files, self.folder, place(self.folder, RECORDS), (), number, **of_shard))
        return found

    @property
    def begun(self) -> dict[str, object]:
        """What must be the same to go on with an export."""
        reads = {"reads": self.reads} if any(self.reads.values()) else {}
        kept = {"pipeline": self.pipeline, "features": list(self.features)}
        return {"schema_version": SCHEMA_VERSION, "arguments": self.arguments, **reads, **kept}


def write_examples(
    mixture: Mixture | Mix | Chat | ImageText,
    output: str | os.PathLike,
    sequence_length: Mapping[str, int | None],
    *,
    format: str,
    split: str = "train",
    seed: int = 0,
    epochs: int = 1,
    shards: int = 1,
    cache_dirs: Sequence[str | os.PathLike] = (),
    max_examples: int | None = None,
    max_tokens: int | None = None,
    git_revision: str | None = None,
    pipeline_options: Sequence[str] | None = None,
    part: tuple[int, int] | None = None,
    merge: bool = False,
    console: Console | None = None,
) -> dict:
    """Writes the examples of a description to files, or goes on where an interrupted export stopped.

    The examples are those that training would read with the same arguments, in the same order; see the top of this file. Memory
    does not grow with the size of a shard.

    `output` is a folder that is new or empty, or that has an unfinished export with the same arguments. It can be on any file
    system that fsspec has, and all workers must see it. `sequence_length` has the budgets in tokens; of conversations
    {"tokens": int}, or inputs and targets, where None is any length. `cache_dirs` are the folders with caches, see `examples`.
    `max_examples` and `max_tokens` are for a trial run, as the manifest says; the tokens are those of all features together.
    `git_revision` is recorded. Without `pipeline_options`, which are Beam's, this process writes one shard after the other; workers
    get the pickled description. For `part` and `merge` see `job.run_job`. `console` is by default stderr.

    Returns the manifest, see `read_manifest`. Raises a ValueError where an argument is wrong, there are too many shards for the
    corpus, the folder has other files or an export with other arguments, or another job writes into it. A RuntimeError says that
    the corpus cannot be read, or which file cannot be written, and why.
    """
    console = console or Console(stderr=True)
    if pipeline_options is not None:
        import_beam()  # before anything is written
    most = checked(max_examples=max_examples, max_tokens=max_tokens)
    open_format(format)
    for name, value, least in (("seed", seed, -math.inf), ("epochs", epochs, 1), ("shards", shards, 1)):
        if not is_integer(value, at_least=least):
            raise ValueError(f"{name} must be an integer{'' if least < 1 else f' of at least {least}'}, got {value!r}.")
    if isinstance(mixture, str):
        raise ValueError(f"mixture must be a description, got {mixture!r}. Pass ul2_tasks.description_of({mixture!r}).")
    arguments: ExportArguments = {
        "sequence_length": {key: as_python(length) for key, length in sequence_length.items()},
        "format": format,
        "split": split,
        "seed": as_python(seed),
        "epochs": as_python(epochs),
        "shards": as_python(shards),
        "max_examples": most["max_examples"],
        "max_tokens": most["max_tokens"],
    }
    folder = absolute(os.fspath(output)).rstrip("/")
    export = Export(folder, mixture, arguments, tuple(absolute(os.fspath(each)) for each in cache_dirs))
    found, corpora = export.opened
    if corpora is None:
        check_hosts(mixture.name, split, found.end_of(arguments["epochs"]) - found.first, arguments["shards"])
    else:
        _stream(export, arguments["shards"] - 1)
    check_features(format, export.features)
    begun = export.begun

    def finish() -> dict:
        if changed := "; ".join(differences(begun.get("reads", export.reads), export.reads)):
            raise RuntimeError(f"the source changed during the job: {changed}. Delete {folder}, and start again.")
        manifest = {
            **begun,
            "versions": {"ul2_tasks": __version__},
            "git_revision": git_revision,
            "ids": _ids_of(export.members, export.features),
            **_counts(all_shards(export.shards, _listed(folder)), export),
        }
        write_manifest(place(folder, MANIFEST), manifest)
        return manifest

    job = Job(
        name=mixture.name,
        folder=folder,
        shards=export.shards,
        existing=lambda: _existing(export, begun),
        begin=lambda own: begin(own, finished_shards(own, _listed(folder)), begun),
        write=functools.partial(_write_shard, export=export),
        finish=finish,
        summarize=lambda manifest: _summarize(manifest, folder, console),
    )
    return run_job(job, pipeline_options, console, part, merge)


def _existing(export: Export, begun: Mapping[str, object]) -> dict | None:
    """The manifest, if all that it lists is written. Raises a ValueError where the folder has anything else than this export."""
    is_written, records = is_export(export.folder), place(export.folder, RECORDS)
    check_folder(export.folder, [*([place(export.folder, MANIFEST)] if is_written else []), place(records, BEGUN)], begun)
    is_whole = is_written and len(finished_shards(export.shards, _listed(export.folder))) == len(export.shards)
    return read_manifest(export.folder) if is_whole else None


def _listed(folder: str) -> dict[str, dict]:
    """The shards that a manifest lists already: of a finished export, from which some may have been deleted since."""
    return {shard["shard"]: shard for shard in read_manifest(folder)["shards"]} if is_export(folder) else {}


def _write_shard(shard: ExportShard, export: Export, advance: Callable[[int], None] = lambda examples: None) -> None:
    """Writes a shard, see `shards.write_shard`. Runs on a worker."""

    def write() -> dict:
        if changes := "; ".join(differences(export.pipeline, export.described)):
            raise RuntimeError(f"a worker would write other examples: {changes}. Give all workers the same corpus and package.")
        return _write_files(shard, export, advance)

    write_shard(shard, write, where=lambda: f"{export.description.name}, {shard.name}")


def _write_files(shard: ExportShard, export: Export, advance: Callable[[int], None]) -> dict:
    """Writes the files of a shard; returns the manifest's entry for it."""
    counts = no_counts(sorted({member.task for member in export.members}), export.features)
    with temporary_files(shard) as paths:
        batches = _counted(_limited(_batches(export, shard.number), shard), counts, advance)
        entries = open_format(export.arguments["format"]).write(paths, batches, export.features, export.files)
        sums = total(counts.values(), counted(export.features))
        if not sums["examples"]:
            words = f"it is {trial}" if (trial := in_words(export.arguments)) else "the corpus is too small for that many shards"
            raise ValueError(f"{shard.name} would have no example, because {words}. Write fewer shards, or more of the corpus.")
    files = [{"file": name, **entry} for name, entry in zip(shard.files, entries) if entry]
    return {"shard": shard.name, "files": files, "bytes": sum(file["bytes"] for file in files), **sums, "tasks": counts}


def _batches(export: Export, number: int) -> Iterator[Examples]:
    """The examples of a shard."""
    lengths = widest(export.members)
    most = _WITH_IMAGES_AT_A_TIME if IMAGES in export.features else _EXAMPLES_AT_A_TIME
    most = max(1, min(most, _TOKENS_AT_A_TIME // sum(length or _ANY_LENGTH for length in lengths.values())))
    for mixed, slots in _slots(export, number, most):
        rows, sizes, of_members = make_batch(mixed, slots, lengths)
        members = members_of(mixed)
        names = ((DENOISER, [member.denoiser for member in members]), (TASK, [member.task for member in members]))
        is_token = {key: np.arange(rows[key].shape[1]) < each[:, np.newaxis] for key, each in sizes.items() if key != IMAGES}
        yield Examples(
            ids={key: rows[key][is_token[of.per_token_of]] for key, of in features_of(members).items()},
            lengths={key: sizes[key] for key in is_token},
            names={key: np.array(of_each, np.str_)[of_members] for key, of_each in names},
            images=[row[:size].tolist() for row, size in zip(rows[IMAGES], sizes[IMAGES])] if IMAGES in rows else None,
            origins=_origins(mixed, slots) if ORIGINS in export.features else None,
        )


def _slots(export: Export, number: int, most: int) -> Iterator[tuple[Mixed, Slots]]:
    """The examples of a shard, at most so many at a time, and what they are of."""
    (found, corpora), shards, epochs = export.opened, export.arguments["shards"], export.arguments["epochs"]
    if corpora is None:
        own = Share(number, shards, start=found.first, turns=found.numbering.turns)
        stop = own.count(found.end_of(epochs))
        for first in range(0, stop, most):
            yield found.numbering, found.numbering.slots(own.numbers(np.arange(first, min(first + most, stop))))
        return
    stream = _stream(export, number)
    state, stretch = stream.read(stream.start, most)
    while len(stretch.numbers):
        yield stretch, stretch.slots
        state, stretch = stream.read(state, most)


def _stream(export: Export, number: int) -> Stream:
    corpora = export.opened[1]
    assert corpora is not None, "a stream is of what is read in windows"
    return corpora.stream(None, number, export.arguments["shards"], export.arguments["epochs"])


def _origins(mixed: Mixed, slots: Slots) -> list[list[Origin]]:
    """Where the documents of examples are from."""
    found: list[list[Origin]] = [[] for _ in slots.slots]
    for number in np.unique(slots.corpora).tolist():
        corpus, at = mixed.corpora[number], np.flatnonzero(slots.corpora == number)
        parts = corpus.kind.origin(corpus.order.ranges(slots.epochs[at], slots.slots[at]))
        ranges = [corpus.store.documents_at(*each) for each in zip(parts.starts.tolist(), parts.stops.tolist())]
        documents = list(itertools.chain.from_iterable(itertools.starmap(range, ranges)))
        origins = iter(corpus.store.provenance.of(documents))
        for of, (first, stop) in zip(at[parts.of].tolist(), ranges):
            found[of] += itertools.islice(origins, stop - first)
    return [list(dict.fromkeys(each)) for each in found]


def _limited(batches: Iterable[Examples], shard: ExportShard) -> Iterator[Examples]:
    """The same examples, up to the one with which there would be more than a shard has at most."""
    examples, tokens = (math.inf if most is None else most for most in (shard.max_examples, shard.max_tokens))
    for batch in batches:
        ends = np.cumsum(sum(batch.lengths.values()))
        count = int(min(examples, np.searchsorted(ends, tokens, "right")))
        if count < len(batch):
            yield from [batch.first(count)] if count else []
            return
        yield batch
        examples, tokens = examples - len(batch), tokens - int(ends[-1])


def _counted(batches: Iterable[Examples], counts: dict[str, dict[str, int]], advance: Callable[[int], None]) -> Iterator[Examples]:
    """The same batches; adds them to the counts."""
    for batch in batches:
        count(batch, counts)
        advance(len(batch))
        yield batch


def _ids_of(members: Sequence[Task], features: Collection[str]) -> dict[str, object]:
    """What the ids of an export mean, as JSON has it: all that a trainer needs beside the examples."""
    vocabulary = members[0].vocabulary
    has_masks = LOSS_MASK in features
    by_name = {member.task: member for member in members}
    return {
        "meaning": [*_MEANING, *([_OF_MASKS] if has_masks else []), *([_OF_IMAGES] if IMAGES in features else [])],
        "vocabulary_size": vocabulary.vocab_size,
        "eos_id": vocabulary.eos_id,
        "unk_id": vocabulary.unk_id,
        "tasks": {name: _special_ids(member) for name, member in by_name.items()},
        **({"loss_groups": {name: _loss_groups(member) for name, member in by_name.items()}} if has_masks else {}),
    }


def _special_ids(member: Task) -> dict[str, object]:
    if member.solution is not None:
        special = member.solution.special
        return {"mode_ids": [*map(int, special.mode)], "sentinel_ids": [*map(int, special.sentinels)]}
    told: Mapping[str, Any] = member.described
    if member.has_images:
        sentinels, mode = told["special"]
        image_tokens = dataclasses.asdict(member.corpus.encoder.image_tokens)
        return {"mode_ids": list(mode), "sentinel_ids": list(sentinels), "image_tokens": image_tokens}
    return {"mode_ids": told["mode"], "sentinel_ids": [], "eod_id": member.corpus.encoder.renderer.eod}


def _loss_groups(member: Task) -> dict[str, int]:
    """The loss group of each kind of message that is trained on; of a task that has none, of its targets."""
    told: Mapping[str, Any] = member.described
    return dict(told["supervision"]["loss_groups"]) if "supervision" in told else {"targets": TEXT}


def _counts(shards: Sequence[dict], export: Export) -> dict[str, object]:
    """What the manifest says of the shards, and of what is left out of an epoch; where that is read in windows, the log says it."""
    keys = counted(export.features)
    of_tasks = {name: total((shard["tasks"][name] for shard in shards), keys) for name in shards[0]["tasks"]}
    left_out = {each.name: dict(each.data.left_out) for each in export.opened[0].numbering.corpora if each.data.left_out}
    return {
        "totals": {**total(shards, ("bytes", *keys)), "tasks": of_tasks},
        "shards": shards,
        **({"left_out": left_out} if left_out and not export.opened[1] else {}),
    }


def _summarize(manifest: Mapping, folder: str, console: Console) -> None:
    totals, keys = manifest["totals"], counted(manifest["features"])
    table = Table(title=Text(f"{folder}: {len(manifest['shards'])} shards, {totals['bytes']:,} bytes"))
    for column in ("task", *keys):
        table.add_column(column.replace("_", " "), justify="left" if column == "task" else "right")
    for name, counts in {**totals["tasks"], "all": totals}.items():
        table.add_row(name, *(f"{counts[key]:,}" for key in keys))
    console.print(table)
    if words := in_words(manifest["arguments"]):
        console.print(words, markup=False, highlight=False)
    for name, causes in manifest.get("left_out", {}).items():
        told = ", ".join(f"{number:,} {cause}" for cause, number in causes.items())
        console.print(f"{name}: {told}", markup=False, highlight=False)
    if manifest["arguments"]["format"] != "megatron":
        read = f"from ul2_tasks import read_examples; examples = read_examples({folder!r})"
        console.print(f"To read it, in Python:\n    {read}", soft_wrap=True, markup=False, highlight=False)
