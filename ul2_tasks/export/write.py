"""Writes examples to files for other trainers. `folder` describes the folder, and reads it.

Shard i of n has the examples that host i of n would train on, in the same order:

    mixture.get_dataset(sequence_length, split, shuffle=True, seed=seed, num_epochs=epochs, shard_info=seqio.ShardInfo(i, n))

So it also ends where that ends: when the first denoiser has read its documents `epochs` times. (Rates count examples, so by then
the other denoisers have read less of the corpus.) The same arguments always give the same bytes, on any number of workers.

Examples have the features that they have there: inputs and targets; of conversations tokens and masks; images. With conversations
all examples have masks, also those of denoisers beside them.

An export that was killed goes on where it stopped, see `jobs.job`. The manifest is written last.
"""

from __future__ import annotations

import functools
import importlib
import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import seqio
import tensorflow as tf
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ul2_tasks.example_features import DENOISER, IMAGES, TASK, TOKEN_FEATURES, features_named
from ul2_tasks.export.folder import (
    MANIFEST,
    SCHEMA_VERSION,
    count,
    counted,
    features_of,
    is_export,
    no_counts,
    read_manifest,
)
from ul2_tasks.export.formats import Examples, open_format
from ul2_tasks.export.plan import (
    Export,
    ExportArguments,
    ExportShard,
    describe,
    describe_ids,
    files_read,
    left_out,
    plan_export,
)
from ul2_tasks.files.systems import copy, place, sha256, size
from ul2_tasks.jobs.beam import import_beam
from ul2_tasks.jobs.job import Job, run_job
from ul2_tasks.jobs.manifest import differences, total, write_manifest
from ul2_tasks.jobs.shards import BEGUN, all_shards, begin, check_folder, finished_shards, temporary_files, write_shard
from ul2_tasks.jobs.trial import checked, in_words
from ul2_tasks.scalars import as_python
from ul2_tasks.version import __version__

_EXAMPLES_AT_A_TIME, _TOKENS_AT_A_TIME = 256, 1 << 20
_WITH_IMAGES_AT_A_TIME = 16  # each image has up to megabytes
_ANY_LENGTH = 1 << 15  # for how many tokens a conversation of any length is taken
_IMPORT = functools.partial(importlib.import_module, "ul2_tasks")


def write_examples(
    mixture: str,
    output: str,
    sequence_length: Mapping[str, int | None],
    *,
    format: str,
    split: str = "train",
    seed: int = 0,
    epochs: int = 1,
    shards: int = 1,
    use_cached: bool = False,
    max_examples: int | None = None,
    max_tokens: int | None = None,
    git_revision: str | None = None,
    prepare: Callable[[], object] = _IMPORT,
    pipeline_options: Sequence[str] | None = None,
    console: Console | None = None,
) -> dict:
    """Writes the examples of a mixture, or of a task of conversations, to files, or goes on where an interrupted export stopped.

    The examples are those that training would read with the same arguments, in the same order. The top of this file says where an
    epoch of a mixture ends. Memory does not grow with the size of a shard. For a remote folder, a shard is first written to a
    local temporary file.

    `output` is a folder that is new or empty, or that has an unfinished export with the same arguments. It can be on any file
    system that fsspec has, and all workers must see it. `sequence_length` has the budgets in tokens; of conversations
    {"tokens": int}, or inputs and targets, where None is any length. Each of the `shards` reads its own share of the corpus.
    Without `use_cached`, each denoiser tokenizes its documents again, which takes most of the time. `max_examples` and `max_tokens`
    are for a trial run, as the manifest says; the tokens are those of all features together. `git_revision` is recorded.
    Each worker calls `prepare` first, to register the mixture: it is `Registration.apply`, or the import of a module. Without
    `pipeline_options`, which are Beam's, this process writes one shard after the other. `console` is by default stderr.

    Returns the manifest, see `read_manifest`. Raises a ValueError where an argument is wrong, there are too many shards for the
    corpus, the folder has other files or an export with other arguments, or another job writes into it. A RuntimeError says that
    the corpus cannot be read, or which file cannot be written, and why.
    """
    console = console or Console(stderr=True)
    if pipeline_options is not None:
        import_beam()  # before anything is written
    most = checked(max_examples=max_examples, max_tokens=max_tokens)
    arguments: ExportArguments = {
        "mixture": mixture,
        "sequence_length": {key: as_python(length) for key, length in sequence_length.items()},
        "format": format,
        "split": split,
        "seed": as_python(seed),
        "epochs": as_python(epochs),
        "shards": as_python(shards),
        "use_cached": use_cached,
        "max_examples": most["max_examples"],
        "max_tokens": most["max_tokens"],
    }
    export = plan_export(output, arguments)

    job = Job(
        name=mixture,
        folder=export.folder,
        shards=export.shards,
        existing=lambda: _existing(export),
        check=lambda: export.dataset(arguments["shards"] - 1),
        begin=lambda: begin(export.shards, _finished(export), _begun(export)),
        write=functools.partial(_write_shard, export=export, prepare=prepare),
        finish=lambda: _finish(export, git_revision),
        summarize=lambda manifest: _summarize(manifest, export.folder, console),
    )
    return run_job(job, pipeline_options, console)


def _existing(export: Export) -> dict | None:
    """The manifest, if all that it lists is written. Raises a ValueError where the folder has anything else than this export."""
    known = [*([place(export.folder, MANIFEST)] if is_export(export.folder) else []), place(export.records, BEGUN)]
    check_folder(export.folder, known, _begun(export))
    is_whole = is_export(export.folder) and len(_finished(export)) == len(export.shards)
    return read_manifest(export.folder) if is_whole else None


def _begun(export: Export) -> dict[str, object]:
    """What must be the same to go on with an export."""
    reads = {"reads": export.reads} if any(export.reads.values()) else {}
    features = {} if tuple(export.features) == TOKEN_FEATURES else {"features": list(export.features)}
    return {
        "schema_version": SCHEMA_VERSION,
        "arguments": export.arguments,
        "pipeline": export.pipeline,
        **features,
        **reads,
    }


def _finished(export: Export) -> dict[str, dict]:
    return finished_shards(export.shards, _listed(export))


def _listed(export: Export) -> dict[str, dict]:
    """The shards that a manifest lists already: of a finished export, from which some may have been deleted since."""
    shards = read_manifest(export.folder)["shards"] if is_export(export.folder) else []
    return {shard["file"]: shard for shard in shards}


def _write_shard(
    shard: ExportShard,
    export: Export,
    prepare: Callable[[], object],
    advance: Callable[[int], None] = lambda examples: None,
) -> None:
    """Writes a shard, see `shards.write_shard`. Runs on a worker."""

    def write() -> dict:
        seqio.add_global_cache_dirs(export.cache_dirs)
        changes = "; ".join(differences(export.pipeline, describe(export.arguments)))
        if changes:
            raise RuntimeError(f"a worker would write other examples: {changes}. Give all workers the same corpus and package.")
        return _write_file(shard, export, advance)

    write_shard(shard, prepare, write, where=lambda: f"{export.arguments['mixture']}, {shard.name}")


def _write_file(shard: ExportShard, export: Export, advance: Callable[[int], None]) -> dict:
    """Writes the file of a shard; returns the manifest's entry for it."""
    counts = no_counts(export.pipeline["tasks"], export.features)
    with tempfile.TemporaryDirectory() as spool, temporary_files(shard) as (temporary,):
        # Some formats can only be written to a local file.
        local = place(spool, shard.name) if "://" in temporary else temporary
        batches = _counted(_batches(shard, export), counts, advance)
        open_format(export.arguments["format"]).write(local, batches, export.features)
        sums = total(counts.values(), counted(export.features))
        if not sums["examples"]:
            words = f"it is {trial}" if (trial := in_words(export.arguments)) else "the corpus is too small for that many shards"
            raise ValueError(f"{shard.name} would have no example, because {words}. Write fewer shards, or more of the corpus.")
        entry = {"file": shard.name, "bytes": size(local), "sha256": sha256(local), **sums, "tasks": counts}
        if local != temporary:
            copy(local, temporary)
    return entry


def _batches(shard: ExportShard, export: Export) -> Iterator[Examples]:
    """The examples of a shard, up to the one with which there would be more than it has at most."""
    lengths = [length or _ANY_LENGTH for length in export.arguments["sequence_length"].values()]
    most = _WITH_IMAGES_AT_A_TIME if IMAGES in export.features else _EXAMPLES_AT_A_TIME
    dataset, denoisers = export.dataset(shard.number), export.denoisers
    if shard.max_examples is not None:
        dataset = dataset.take(shard.max_examples)
    left = math.inf if shard.max_tokens is None else shard.max_tokens
    padding = {key: np.array(feature.absent, feature.dtype) for key, feature in features_named(export.features).items()}
    padding |= {key: "" for key in dataset.element_spec if key not in padding}
    # Batches, because each element costs tf.data more than the work on an example; and padded, because ragged batches cost as much.
    batches = dataset.padded_batch(max(1, min(most, _TOKENS_AT_A_TIME // sum(lengths or [_ANY_LENGTH]))), padding_values=padding)
    for batch in batches.prefetch(tf.data.AUTOTUNE).as_numpy_iterator():
        of_each = np.array([denoisers[task.decode()].encode() for task in batch[TASK]])
        examples = Examples.from_padded({**batch, DENOISER: of_each}, export.id_shift)
        ends = np.cumsum(sum(examples.lengths.values()))
        if ends[-1] <= left:
            yield examples
            left -= int(ends[-1])
            continue
        if count := int(np.searchsorted(ends, left, "right")):
            first = {key: values[:count] for key, values in {**batch, DENOISER: of_each}.items()}
            yield Examples.from_padded(first, export.id_shift)
        return


def _counted(batches: Iterable[Examples], counts: dict[str, dict[str, int]], advance: Callable[[int], None]) -> Iterator[Examples]:
    """The same batches; adds them to the counts."""
    for batch in batches:
        count(batch, counts)
        advance(len(batch))
        yield batch


def _finish(export: Export, revision: str | None) -> dict:
    """Writes the manifest, last of all."""
    if changed := "; ".join(differences(export.reads, files_read(export.arguments))):
        raise RuntimeError(f"the source changed during the job: {changed}. Delete {export.folder}, and start again.")
    shards, keys = all_shards(export.shards, _listed(export)), counted(export.features)
    manifest = {
        **_begun(export),
        "versions": {"ul2_tasks": __version__, "seqio": seqio.__version__, "tensorflow": tf.__version__},
        "git_revision": revision,
        "ids": describe_ids(export.arguments),
        "totals": {
            **total(shards, ("bytes", *keys)),
            "tasks": {name: total((shard["tasks"][name] for shard in shards), keys) for name in shards[0]["tasks"]},
        },
        "shards": shards,
        **({"left_out": of_tasks} if (of_tasks := left_out(export.arguments)) else {}),
    }
    write_manifest(place(export.folder, MANIFEST), manifest)
    return manifest


def _summarize(manifest: Mapping, folder: str, console: Console) -> None:
    totals, keys = manifest["totals"], counted(features_of(manifest))
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
    read = f"from ul2_tasks import read_examples; examples = read_examples({folder!r})"
    console.print(f"To read it, in Python:\n    {read}", soft_wrap=True, markup=False, highlight=False)
