"""Writes conversations for Megatron-LM: tokens, their loss mask and their loss group, in files that belong together.

Each split has a shard for each file of the source. `conversations_folder` describes the folder, and checks it. An export that was
killed resumes, see `jobs.job`. The same arguments give the same bytes. The manifest is written last.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import hashlib
import importlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import seqio
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ul2_tasks.corpus.conversations import Part, files_of, parts_of, repeated_ids
from ul2_tasks.corpus.made_of import Reads, changes
from ul2_tasks.export.conversations_folder import (
    COLUMNS,
    KIND,
    MANIFEST,
    SCHEMA_VERSION,
    folder_of,
    is_export,
    read_manifest,
)
from ul2_tasks.export.conversations_plan import (
    RECORDS,
    ConversationShard,
    arguments_of,
    chat_task,
    reads_now,
    shards_of,
)
from ul2_tasks.files.systems import absolute, exists, place
from ul2_tasks.jobs.beam import import_beam
from ul2_tasks.jobs.job import Job, run_job
from ul2_tasks.jobs.manifest import load_object, total, write_manifest
from ul2_tasks.jobs.repeats import count_repeated, hashes_path, in_words, write_hashes
from ul2_tasks.jobs.shards import (
    BEGUN,
    all_shards,
    begin,
    check_folder,
    finished_shards,
    remove_records,
    temporary_files,
    write_shard,
)
from ul2_tasks.jobs.trial import checked
from ul2_tasks.jobs.trial import in_words as trial_in_words
from ul2_tasks.store.provenance import TableWriter, add_origins
from ul2_tasks.store.write import LinesWriter, PairWriter
from ul2_tasks.tasks.chat import ChatTask
from ul2_tasks.tokenizers.o200k import PADDED_SIZE, SHA256, O200kVocabulary
from ul2_tasks.tokenizers.special_ids import id_shift, vocabulary_identity
from ul2_tasks.version import __version__

_AT_A_TIME = 256  # conversations
_COUNTED = ("sequences", "tokens", "learned", "bytes")
_FEATURES = dict(zip(COLUMNS, ("tokens", "loss_mask", "span_id")))
_IMPORT = functools.partial(importlib.import_module, "ul2_tasks")


def write_conversations(
    name: str,
    output: str,
    *,
    use_cached: bool = False,
    max_tokens: int | None = None,
    git_revision: str | None = None,
    prepare: Callable[[], object] = _IMPORT,
    pipeline_options: Sequence[str] | None = None,
    console: Console | None = None,
) -> dict:
    """Writes the examples of a chat task, or resumes an interrupted export.

    `output` is a folder that is new or empty, or has an unfinished export with the same arguments. `max_tokens` is
    the most of each split, for a trial run, which needs its own folder; a conversation with which there would be more is left out,
    and all after it in its shard. `git_revision` is recorded; None is that of this package. Each worker calls `prepare` first, to
    register the task. Without `pipeline_options`, which are Beam's, this process writes one shard after
    another.

    Returns the manifest: the arguments, and their SHA-256; the versions and the git revision of this package (null outside a
    checkout); the tokenizer; the rule of the splits; and the shards of each split, with their files, bytes,
    SHA-256, sequences, tokens, tokens that are trained on, tokens of each loss group, and what was left out.

    Raises a ValueError where the folder has other files or an export with other arguments, another job writes into it, or no split
    has an example. Raises a RuntimeError that names the conversation that cannot be rendered, or the file that cannot be read or
    written, and the reason.
    """
    console = console or Console(stderr=True)
    most = checked(max_tokens=max_tokens)
    if pipeline_options is not None:
        import_beam()
    task = chat_task(name)
    folder = absolute(output)
    records = place(folder, RECORDS)
    shards = list(shards_of(task, folder, records, most, use_cached))
    begun = {
        "schema_version": SCHEMA_VERSION,
        "arguments": arguments_of(task, most, use_cached) | {"shards": len(shards)},
    }

    reads = reads_now(task, use_cached)

    def finish() -> dict:
        if changed := changes(reads, reads_now(task, use_cached))[0]:
            raise RuntimeError(f"the source of {name!r} must not change during the job, got {changed}. Run the same command again.")
        manifest = _manifest(task, begun, shards) | {"git_revision": git_revision}
        if not manifest["totals"]["sequences"]:
            remove_records(records)
            found = ", ".join(f"{number} {cause}" for cause, number in _left_out(manifest).items()) or "no conversation"
            remedy = f"This is {trial_in_words(most)}: raise them." if trial_in_words(most) else "See `ul2 stats`."
            raise ValueError(f"{name!r} must have an example to export, got none: {found}. {remedy}")
        write_manifest(place(folder, MANIFEST), manifest)
        return manifest

    job = Job(
        name=name,
        folder=folder,
        shards=shards,
        existing=lambda: _existing(folder, begun, reads),
        begin=lambda: _begin(shards, begun, reads, console),
        write=functools.partial(_write_shard, prepare=prepare),
        finish=finish,
        summarize=lambda manifest: _summarize(manifest, folder, console),
        of="conversations",
    )
    return run_job(job, pipeline_options, console)


def _existing(folder: str, begun: Mapping, reads: Reads) -> dict | None:
    """The manifest, if all is written. Raises a ValueError where the folder has anything else than this export."""
    is_written = is_export(folder)
    check_folder(folder, [*([place(folder, MANIFEST)] if is_written else []), place(place(folder, RECORDS), BEGUN)], begun)
    if not is_written:
        return None
    manifest = read_manifest(folder)
    before = {split: [shard.get("reads", ["", ""]) for shard in of["shards"]] for split, of in manifest["splits"].items()}
    if changed := changes(before, reads)[0]:
        raise ValueError(
            f"the source of {folder}, which is complete, must not have changed, got {changed}. Keep the export, or delete the"
            " folder to write it again."
        )
    return manifest


def _begin(shards: Sequence[ConversationShard], begun: Mapping, reads: Reads, console: Console) -> Sequence[ConversationShard]:
    """See `shards.begin`. Prints what has changed since an unfinished export began, and keeps its other shards."""
    path = place(shards[0].records, BEGUN)
    before = load_object(path, "Delete the folder, and start again.") if exists(path) else {}
    if changed := changes(before.get("reads", {}), reads)[0]:
        line = f"{shards[0].task}: the source has changed since the job began: {changed}. Its shards are written again."
        console.print(line, markup=False, soft_wrap=True)
    return begin(shards, [*finished_shards(shards)], {**begun, "reads": reads})


def _write_shard(
    shard: ConversationShard, prepare: Callable[[], object], advance: Callable[[int], None] = lambda conversations: None
) -> None:
    """Writes a shard, see `shards.write_shard`. Runs on a worker."""

    def write() -> dict:
        seqio.add_global_cache_dirs(list(shard.cache_dirs or ()))
        try:
            return _write_files(shard, advance)
        except ValueError as error:
            raise RuntimeError(f"{shard.task}, split {shard.split}, {shard.source}: {error}") from error

    write_shard(shard, prepare, write, where=lambda: f"{shard.task}, split {shard.split}, {shard.source}")


def _write_files(shard: ConversationShard, advance: Callable[[int], None]) -> dict:
    task = seqio.TaskRegistry.get(shard.task)
    spans: collections.Counter[str] = collections.Counter()
    left_out: collections.Counter[str] = collections.Counter()
    hashes: list[np.ndarray] = []
    told = files_of(task.corpus, shard.split, shard.segments, shard.cache_dirs is not None)
    with temporary_files(shard) as paths:
        *of_pairs, table_path, list_path = paths
        with contextlib.ExitStack() as pairs:
            writers = {
                column: pairs.enter_context(PairWriter(bin_path, idx_path, dtype))
                for (column, dtype), bin_path, idx_path in zip(COLUMNS.items(), of_pairs[::2], of_pairs[1::2])
            }
            table, listed = pairs.enter_context(TableWriter(table_path, told)), pairs.enter_context(LinesWriter(list_path))

            def refuse(record: Mapping) -> None:
                left_out["rejected"] += 1
                listed.add(record)

            conversations = 0
            for part in _parts(task, shard, refuse):
                found = task.objective.examples(part.reader, part.numbers, {})
                left = None if shard.max_tokens is None else shard.max_tokens - writers["tokens"].tokens
                if is_full := left is not None and int(found.lengths["tokens"].sum()) > left:
                    part = _first(part, found, left)
                    found = task.objective.examples(part.reader, part.numbers, {})
                conversations += len(part.numbers)
                advance(len(part.numbers))
                if part.id_hashes is not None:
                    hashes.append(part.id_hashes)
                for column, writer in writers.items():
                    writer.add(found.values[_FEATURES[column]], found.lengths["tokens"])
                values, counts = np.unique(found.values["span_id"], return_counts=True)
                spans.update({str(span): int(number) for span, number in zip(values, counts) if span})
                left_out.update(found.counts)
                if part.origins is not None:
                    add_origins(table, told, part.origins(found.conversations))
                    for record in _left_out_of(task, part) if found.counts else ():
                        listed.add(record)
                if is_full:
                    break
        write_hashes(hashes_path(shard, shard.split), hashes)
        files = [
            {"file": file, **entry}
            for writer, *names in zip(writers.values(), shard.files[:-2:2], shard.files[1:-2:2])
            for file, entry in zip(names, writer.entries.values())
        ]
        beside = zip(shard.files[-2:], (table.entry, listed.entry))
        told_in = [{"file": file, **entry} for file, entry in beside if entry is not None]
    tokens = writers["tokens"]
    return {
        "source": shard.source,
        "conversations": conversations,
        "sequences": tokens.documents,
        "tokens": tokens.tokens,
        "learned": spans.total(),
        "spans": dict(sorted(spans.items())),
        "left_out": dict(sorted(left_out.items())),
        "bytes": sum(file["bytes"] for file in files),
        "files": files + told_in,
        "origins": shard.files[-2] if table.entry else None,
    }


def _left_out_of(task: ChatTask, part: Part) -> Iterator[dict[str, object]]:
    """The file, row and id of the conversation of each example that is left out of a part, and the cause."""
    assert part.origins is not None, "nothing is said of conversations that are from nowhere"
    found = list(task.objective.left_out(part.reader, part.numbers, {}))
    for origin, (_, cause) in zip(part.origins(np.array([number for number, _ in found])), found):
        yield {"file": origin.file, "row": origin.row, "id": origin.id, "cause": cause}


def _parts(task: ChatTask, shard: ConversationShard, refuse: Callable[[Mapping], object] = lambda record: None) -> Iterator[Part]:
    """The conversations of a shard, in batches; see `conversations.parts_of`."""
    for part in parts_of(task.corpus, shard.split, shard.segments, shard.cache_dirs is not None, refuse):
        for first in range(0, len(part.numbers), _AT_A_TIME):
            some = slice(first, first + _AT_A_TIME)
            id_hashes = None if part.id_hashes is None else part.id_hashes[some]
            yield part._replace(numbers=part.numbers[some], id_hashes=id_hashes)


def _first(part: Part, found: Any, tokens: int) -> Part:
    """The conversations of a part before the one whose examples would make more tokens."""
    first = found.conversations[int(np.searchsorted(np.cumsum(found.lengths["tokens"]), tokens, "right"))]
    count = int(np.flatnonzero(part.numbers == first)[0])
    return part._replace(numbers=part.numbers[:count], id_hashes=None if part.id_hashes is None else part.id_hashes[:count])


def _manifest(task: ChatTask, begun: Mapping, shards: Sequence[ConversationShard]) -> dict:
    corpus = task.corpus
    vocabulary = corpus.vocabulary
    splits: dict[str, list[dict]] = {split: [] for split in task.splits}
    for shard, record in zip(shards, all_shards(shards)):
        splits[shard.split].append({"shard": shard.name.partition("-")[2], **record})
    repeated = _repeated_ids(task, shards)
    is_o200k = isinstance(vocabulary, O200kVocabulary)
    return {
        **begun,
        "kind": KIND,
        "configuration_sha256": hashlib.sha256(json.dumps(begun["arguments"], sort_keys=True).encode()).hexdigest(),
        "versions": {"ul2_tasks": __version__, "seqio": seqio.__version__},
        "tokenizer": {"path": vocabulary.path, "sha256": SHA256} if is_o200k else {"identity": vocabulary_identity(vocabulary)},
        "padded_vocabulary": PADDED_SIZE if is_o200k else vocabulary.vocab_size - id_shift(vocabulary),
        "eod": corpus.encoder.renderer.eod,
        "alignment": "token: lossmask and span are those of the token at the same place; where labels are tokens[1:], take [1:]",
        "splits": {
            split: {
                **total(found, _COUNTED),
                "spans": _spans(found),
                "repeated_ids": repeated[split],
                "folder": folder_of(split),
                "shards": found,
            }
            for split, found in splits.items()
        },
        "totals": {
            **total(itertools.chain(*splits.values()), _COUNTED),
            "spans": _spans(list(itertools.chain(*splits.values()))),
            "repeated_ids": repeated["totals"],
        },
    }


def _repeated_ids(task: ChatTask, shards: Sequence[ConversationShard]) -> Mapping[str, int | None]:
    """How many conversations of each split, and under "totals" of all together, have the id of an earlier one.

    None where the cache is read, which has no ids, and does not say it of these conversations.
    """
    if shards[0].cache_dirs is not None:
        is_all = all(shard.max_tokens is None for shard in shards)
        return repeated_ids(task.corpus) if is_all else collections.defaultdict(lambda: None)
    paths = {split: [hashes_path(shard, split) for shard in shards if shard.split == split] for split in task.splits}
    return {split: count_repeated(found) for split, found in (paths | {"totals": [*itertools.chain(*paths.values())]}).items()}


def _spans(shards: Sequence[Mapping]) -> dict[str, int]:
    spans: collections.Counter[str] = collections.Counter()
    for shard in shards:
        spans.update(shard["spans"])
    return dict(sorted(spans.items()))


def _left_out(manifest: Mapping) -> dict[str, int]:
    left_out: collections.Counter[str] = collections.Counter()
    for split in manifest["splits"].values():
        for shard in split["shards"]:
            left_out.update(shard["left_out"])
    return dict(left_out)


def _summarize(manifest: Mapping, folder: str, console: Console) -> None:
    table = Table(title=Text(f"{folder}: tokens of conversations, for Megatron-LM"))
    splits = manifest["splits"]
    for column in ("split", *splits):
        table.add_column(column, justify="left" if column == "split" else "right")
    rows = {"shards": [len(split["shards"]) for split in splits.values()]}
    rows |= {{"learned": "trained on"}.get(key, key): [split[key] for split in splits.values()] for key in _COUNTED}
    rows |= {
        f"loss group {span}": [split["spans"].get(span, 0) for split in splits.values()] for span in manifest["totals"]["spans"]
    }
    for name, numbers in rows.items():
        table.add_row(name, *(f"{number:,}" for number in numbers))
    console.print(table)
    if words := trial_in_words(manifest["arguments"]):
        console.print(words, markup=False, highlight=False)
    all_shards_of = ((split["folder"], shard) for split in manifest["splits"].values() for shard in split["shards"])
    if empty := [f"{where}/{shard['shard']}" for where, shard in all_shards_of if not shard["sequences"]]:
        console.print(f"no files for {', '.join(empty)}, which have no examples", markup=False, highlight=False)
    if repeated := manifest["totals"]["repeated_ids"]:
        console.print(in_words(repeated), markup=False, highlight=False)
    for cause, number in sorted(_left_out(manifest).items()):
        console.print(f"{number:,} {cause}", markup=False, highlight=False)
