"""Writes the cache of a corpus, a token store. What a cache is, `cache` says.

Each shard of the source becomes a pair of files, `.bin` and `.idx`, for each split; of many small files those that follow each
other become one. A worker reads the records, tokenizes them in lists by the tokenizer's own library, and writes and hashes the
tokens at once. No document passes through tf.data where Python reads the source anyway. Memory does not grow with the corpus, and
a killed job leaves behind what it has finished.
`COMPLETED` is written last, because SeqIO takes a folder without it for no cache. The same job writes the same bytes.

Documents keep the order of the corpus. Each reader of the cache has an order of its own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ul2_tasks.corpus import cache
from ul2_tasks.corpus.cached_files import COUNTED, folder_of, info_path, stats_path
from ul2_tasks.corpus.corpus import Corpus, corpus_settings
from ul2_tasks.corpus.made_of import Reads, changes, has_settings, reads_of
from ul2_tasks.corpus.token_batches import stored_dtype, tokenize_records
from ul2_tasks.files.atomic import write_atomically
from ul2_tasks.files.systems import absolute, exists, names_in, place, remove, remove_tree
from ul2_tasks.jobs.beam import import_beam
from ul2_tasks.jobs.job import Job, run_job
from ul2_tasks.jobs.manifest import differences, load_object, total
from ul2_tasks.jobs.repeats import count_repeated, hashes_path, write_hashes
from ul2_tasks.jobs.repeats import in_words as repeated_in_words
from ul2_tasks.jobs.shards import (
    BEGUN,
    JobShard,
    all_shards,
    begin,
    finished_shards,
    remove_records,
    temporary_files,
    write_shard,
)
from ul2_tasks.jobs.trial import checked, in_words, share
from ul2_tasks.sources.files import MAX_SHARDS, Shard
from ul2_tasks.sources.records import Record
from ul2_tasks.store.columns import TOKENS
from ul2_tasks.store.provenance import TABLE, TableWriter
from ul2_tasks.store.write import REPEATED, LinesWriter, PairWriter
from ul2_tasks.version import __version__, check_version, version_of

_REMOVE = "Delete the folder, and start again."
_RECORDS = "parts"
_ABOUT, _JOINED = 32, 1 << 26  # how many shards are joined ones, and bytes of one at most


@dataclasses.dataclass(frozen=True)
class SourceShard(JobShard):
    """Shards of the source, by their numbers, of so many; and the files that they become.

    The splits are read together, and `max_documents` records of each are taken, and `max_tokens` tokens; all where these are None.
    Each of the columns is a pair of files beside that of the tokens.
    """

    splits: tuple[str, ...]
    sources: range
    num_sources: int
    number: int
    num_shards: int
    max_documents: int | None
    max_tokens: int | None
    columns: tuple[str, ...]

    def beside(self, ending: str) -> dict[str, str]:
        """The names of files beside the pairs of each split, with this ending."""
        return {split: f"{self.pair(split)}.{ending}" for split in self.splits}

    def pair(self, split: str, column: str | None = None) -> str:
        """The name of the pair of files of a split, without their endings."""
        return cache.pair_name(f"{split}-{self.number:05d}-of-{self.num_shards:05d}", column)

    def pairs(self) -> list[tuple[str, str | None]]:
        """The split and the column of each pair; None is the tokens."""
        return [(split, column) for split in self.splits for column in (None, *self.columns)]


def build(
    corpus: Corpus,
    output_dir: str,
    *,
    max_documents: int | None = None,
    max_tokens: int | None = None,
    git_revision: str | None = None,
    pipeline_options: Sequence[str] | None = None,
    part: tuple[int, int] | None = None,
    merge: bool = False,
    console: Console | None = None,
) -> dict:
    """Caches a corpus, or goes on where an interrupted job stopped.

    `output_dir` may be one of SeqIO's global cache directories, on any file system that fsspec has. All workers must see it, and
    the cache becomes a folder in it. Each gets the corpus, pickled. `max_documents` and `max_tokens` are of each split, for a trial
    run, as the manifest says: a document with which there would be more is left out, and all after it in its shard. `git_revision`
    is for the manifest, such as that of your code. `pipeline_options` are Beam's; None writes one shard after the other in this
    process, without Beam. For `part` and `merge` see `job.run_job`. Returns the manifest. A finished cache, or one that was begun
    with other settings, raises a ValueError; a source that cannot be read, or changes during the job, a RuntimeError.
    """
    console = console or Console(stderr=True)
    most = checked(max_documents=max_documents, max_tokens=max_tokens)
    if pipeline_options is not None:
        import_beam()
    if corpus.is_tokens:
        raise ValueError(
            f"corpus must be text, got {corpus.name!r}, which is tokenized already and is read in place. Use it without a cache."
        )
    cache_dir = folder_of(absolute(output_dir), corpus.name)
    settings = corpus_settings(corpus)
    of_now = reads_of(corpus.source)
    shards = list(_source_shards(corpus, cache_dir, most, of_now))
    begun: dict[str, Any] = {
        "schema_version": cache.SCHEMA_VERSION,
        "settings": settings,
        **most,
        "parts": len(shards),
        "read_as": corpus.source.read_as,
        "reads": of_now,
    }
    started = time.monotonic()
    job = Job(
        name=corpus.name,
        folder=cache_dir,
        shards=shards,
        existing=lambda: _existing(cache_dir, corpus, begun) if cache.is_cache(cache_dir) else None,
        begin=lambda own: _begin(cache_dir, corpus, begun, own, console),  # type: ignore[arg-type]
        write=functools.partial(_write_shard, corpus=corpus),
        finish=lambda: _finish(cache_dir, corpus, begun, shards, git_revision),
        summarize=lambda manifest: _summarize(manifest, corpus, output_dir, time.monotonic() - started, console),
        of="documents",
        made_with="settings",
    )
    return run_job(job, pipeline_options, console, part, merge)


def _write_shard(shard: SourceShard, *, corpus: Corpus, advance: Callable[[int], None] = lambda documents: None) -> None:
    """Writes a shard, see `shards.write_shard`. Runs on a worker."""

    def where() -> str:
        name = _named(corpus.source.list_shards(shard.splits[0]), shard)
        return f"{corpus.name}, split {' and '.join(shard.splits)}, shard {shard.number + 1} of {shard.num_shards} ({name})"

    def write() -> dict:
        try:
            return _write_files(corpus, shard, advance)
        except ValueError as error:
            raise RuntimeError(f"{where()}: {error}") from error

    write_shard(shard, write, where)


def _write_files(corpus: Corpus, shard: SourceShard, advance: Callable[[int], None]) -> dict:
    """Writes the pairs of a shard; returns what the manifest says of them."""
    counts = {split: dict.fromkeys(COUNTED, 0) for split in shard.splits}
    hashes: dict[str, list[np.ndarray]] = {split: [] for split in shard.splits if corpus.encoder.counts_ids}
    sources = _of_source(corpus, shard)
    of_source, is_joined = sources[0], len(sources) > 1
    file, is_part = "" if is_joined else of_source.path, of_source.before is None
    # A table that is read without the manifest counts from the beginning of its part.
    told = [each.path for each in sources] if is_joined else str(of_source) if is_part else file
    records, last, is_cut, fallbacks = 0, object(), False, corpus.tokenizer.fallbacks
    with temporary_files(shard) as paths:
        path_of = dict(zip(shard.files, paths))
        with contextlib.ExitStack() as pairs:
            writers = {}
            for of in shard.pairs():
                bin_path, idx_path = (path_of[f"{shard.pair(*of)}.{suffix}"] for suffix in ("bin", "idx"))
                dtype = corpus.columns[of[1]] if of[1] else stored_dtype(corpus)
                end = corpus.configuration.end(corpus.vocabulary)
                end = REPEATED if end is not None and of[1] else end
                writers[of] = pairs.enter_context(PairWriter(bin_path, idx_path, dtype, end))
            tables = {split: pairs.enter_context(TableWriter(path_of[name], told)) for split, name in shard.beside(TABLE).items()}
            refused = {
                split: pairs.enter_context(LinesWriter(path_of[name])) for split, name in shard.beside(cache.REFUSED).items()
            }
            left = dict.fromkeys(shard.splits, shard.max_tokens or 0)
            most: dict[str, int | None] = dict.fromkeys(shard.splits, shard.max_documents)
            batches = (
                (number, batch)
                for number, each in enumerate(sources)
                for batch in tokenize_records(corpus, _taken(corpus.source.read_group(each), most))
            )
            for number, batch in batches:
                if shard.max_tokens is not None:
                    batch = batch.first(left)
                records, last = records + len(batch.records), batch.last_place or last
                is_cut |= batch.is_cut
                for split in shard.splits:
                    columns = batch.documents(split).columns
                    for column in (None, *shard.columns):
                        writers[split, column].add(*columns[column or TOKENS])
                    rows, ids, texts = batch.origins(split, corpus.encoder.hashed)
                    tables[split].add(rows, ids, texts, *([np.full(len(rows), number, np.int32)] if is_joined else []))
                    for record in batch.refused(split):
                        refused[split].add({"file": sources[number].path, **record})
                    own = batch.splits == split
                    counts[split]["empty"] += int((own & batch.are_whole & (batch.lengths == 0)).sum())
                    counts[split]["skipped"] += int((own & ~batch.are_whole).sum())
                for split, found in hashes.items():
                    found.append(batch.id_hashes(split))
                advance(len(batch.lengths))
                if shard.max_tokens is not None and not any(left.values()):
                    break
        for split, found in hashes.items():
            write_hashes(hashes_path(shard, split), found)
        for (split, column), writer in writers.items():
            counts[split] |= {column: writer.tokens} if column else {"documents": writer.documents, "tokens": writer.tokens}
        files = [
            {"file": f"{shard.pair(*of)}.{suffix}", **entry}
            for of, writer in writers.items()
            for suffix, entry in writer.entries.items()
        ]
        for ending, written in ((TABLE, tables), (cache.REFUSED, refused)):
            named = [(name, written[split].entry) for split, name in shard.beside(ending).items()]
            files += [{"file": name, **entry} for name, entry in named if entry is not None]
        is_all_read = is_part and shard.max_documents is shard.max_tokens is None and not is_cut
        count = corpus.source.rows_of(of_source, records, last) if is_all_read else None
        origins = {"file": file, "is_part": is_part, "rows": count}
        return {"splits": counts, "files": files, "origins": origins, "fallbacks": corpus.tokenizer.fallbacks - fallbacks}


def _named(names: Sequence[str], shard: SourceShard) -> str:
    own = [names[number] for number in shard.sources]
    return own[0] if len(own) == 1 else f"{own[0]} to {own[-1]}"


def _of_source(corpus: Corpus, shard: SourceShard) -> list[Shard]:
    present = corpus.source.shards(shard.splits[0])
    if len(present) != shard.num_sources:
        raise OSError(
            f"the corpus must not change during the job, got {len(present)} shards in place of {shard.num_sources}. Leave its files"
            " as they are, and re-run the command."
        )
    own = [present[number] for number in shard.sources]
    return own if own[0].stop is None else [dataclasses.replace(own[0], stop=own[-1].stop)]


def _taken(records: Iterator[tuple[str, Record]], left: dict[str, int | None]) -> Iterator[tuple[str, Record]]:
    """At most so many records of each split, which are taken off; None is all."""
    if None in left.values():
        yield from records
        return
    while any(left.values()) and (found := next(records, None)):
        if most := left[found[0]]:
            left[found[0]] = most - 1
            yield found


def _joined(shards: Sequence[Shard], sizes: Sequence[int | None]) -> list[range]:
    """Which shards of the source, of so many bytes each, become one: parts of a file in a row, or many files in a row.

    >>> [len(each) for each in _joined([Shard(str(number)) for number in range(64)], [10] * 63 + [330])]
    [3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 1]
    """
    if None in sizes:
        return [range(number, number + 1) for number in range(len(sizes))]
    known = np.array(sizes, float)
    bins = (np.cumsum(known) - known / 2) // max(1, min(known.sum() / _ABOUT, _JOINED))
    files = [0 if len(shards) >= MAX_SHARDS and shard.stop is None else shard.path for shard in shards]
    found = (list(own) for _, own in itertools.groupby(range(len(sizes)), lambda number: (bins[number], files[number])))
    return [range(own[0], own[-1] + 1) for own in found]


def _source_shards(corpus: Corpus, cache_dir: str, most: Mapping[str, int | None], of_now: Reads) -> Iterator[SourceShard]:
    """The shards of all splits, see `RecordSource.groups`."""
    for splits in corpus.source.groups:
        parts = of_now[splits[0]]
        if not parts:
            raise ValueError(f"{corpus.name!r} must have files in split {splits[0]!r}, got none.")
        of_source = corpus.source.shards(splits[0])
        joined = _joined(of_source, list(map(corpus.source.bytes_of, of_source)))
        num_shards = len(joined)
        for number, sources in enumerate(joined):
            of = f"{number:05d}-of-{num_shards:05d}"
            yield SourceShard(
                name=f"{'+'.join(splits)}-{of}",
                files=tuple(
                    f"{cache.pair_name(f'{split}-{of}', column)}.{suffix}"
                    for split in splits
                    for column in (None, *corpus.columns)
                    for suffix in ("bin", "idx", *(() if column else (TABLE, cache.REFUSED)))
                ),
                folder=cache_dir,
                records=place(cache_dir, _RECORDS),
                reads=parts[sources.start : sources.stop],
                splits=splits,
                sources=sources,
                num_sources=len(parts),
                number=number,
                num_shards=num_shards,
                **{name: share(name, all_of_it, number, num_shards) for name, all_of_it in most.items()},
                columns=tuple(corpus.columns),
            )


def _existing(cache_dir: str, corpus: Corpus, begun: Mapping[str, Any]) -> dict:
    """The manifest of a complete cache. Raises a ValueError unless it is what the job would write."""
    manifest = cache.check_stored(cache_dir, corpus, begun["settings"])
    for name in cache.MOST:
        if manifest[name] != begun[name]:
            raise ValueError(
                f"{name} must be {manifest[name]}, as in the complete cache {cache_dir}, got {begun[name]}. Delete the folder,"
                " or name another one."
            )
    if changed := changes(cache.reads(manifest), begun["reads"])[0]:
        raise ValueError(
            f"{cache_dir} is complete, and its source has changed since: {changed}. Use the cache as it is, or delete the folder to"
            " write it again."
        )
    return manifest


def _begin(
    cache_dir: str, corpus: Corpus, begun: dict[str, Any], shards: Sequence[SourceShard], console: Console
) -> list[SourceShard]:
    """Makes the folder. Returns the shards that are not written yet, or are made of something else than is read now."""
    path = place(place(cache_dir, _RECORDS), BEGUN)
    if exists(path):
        before = load_object(path, _REMOVE)
        check_version(path, before.get("schema_version"), cache.SCHEMA_VERSION, _REMOVE)
        _check_begun(cache_dir, corpus, before, begun)
        if changed := changes(before["reads"], begun["reads"])[0]:
            told = f"{corpus.name}: the source has changed since the job began: {changed}; its shards are written again"
            console.print(told, markup=False, soft_wrap=True)
    finished = finished_shards(shards)
    waiting = begin(shards, finished, begun)
    if len(shards) == begun["parts"]:  # not those of a part
        _remove_files(cache_dir, but={name for shard in shards if shard.name in finished for name in shard.files})
    return waiting


def _check_begun(cache_dir: str, corpus: Corpus, before: Mapping, begun: Mapping[str, Any]) -> None:
    """Raises a ValueError where an unfinished cache was begun with other settings, or of other files, or parts of files."""
    changed, are_same_parts = changes(before["reads"], begun["reads"])
    if not are_same_parts:
        raise ValueError(f"{cache_dir} was begun with other files: {changed}. Delete it, or name another folder.")
    there, here = ({key: value for key, value in of.items() if key not in ("reads", "read_as")} for of in (before, begun))
    if has_settings(before, before["reads"], corpus, begun["settings"]):
        there["settings"] = here["settings"]
    if differing := "; ".join(differences(there, here)):
        raise ValueError(f"{cache_dir} was begun with other settings: {differing}. Delete it, or name another folder.")


def _remove_files(cache_dir: str, but: set[str]) -> None:
    """Removes the files that an interrupted job left, this one or SeqIO's own, except finished files."""
    for name in names_in(cache_dir):
        if name.startswith("beam-temp-"):
            remove_tree(place(cache_dir, name))
        elif cache.is_data(name) and name not in but:
            remove(place(cache_dir, name))


def _finish(
    cache_dir: str, corpus: Corpus, begun: dict[str, Any], source_shards: Sequence[SourceShard], git_revision: str | None
) -> dict:
    """Writes what SeqIO reads beside the files, then the manifest, and `COMPLETED` last."""
    if changed := changes(begun["reads"], reads_of(corpus.source))[0]:
        raise RuntimeError(f"the source of {corpus.name!r} changed during the job: {changed}. Re-run the command.")
    splits: dict[str, list[dict]] = {split: [] for shard in source_shards for split in shard.splits}
    names = {split: corpus.source.list_shards(split) for split in splits}
    written = all_shards(source_shards)
    for shard, record in zip(source_shards, written):
        for split in shard.splits:
            own = {f"{shard.pair(*of)}.{suffix}" for of in shard.pairs() if of[0] == split for suffix in ("bin", "idx")}
            own |= {shard.beside(ending)[split] for ending in (TABLE, cache.REFUSED)}
            files = [file for file in record["files"] if file["file"] in own]
            splits[split].append(
                {
                    "shard": shard.pair(split),
                    "source": _named(names[split], shard),
                    **record["splits"][split],
                    "bytes": sum(file["bytes"] for file in cache.pairs_of({"files": files})),
                    "files": files,
                    "origins": record["origins"],
                    "reads": shard.reads,
                }
            )
    counts = total(itertools.chain(*splits.values()), COUNTED)
    if not counts["tokens"]:
        _remove_files(cache_dir, but=set())
        remove_records(place(cache_dir, _RECORDS))
        remedy = f"This is {in_words(begun)}: raise them." if in_words(begun) else "Run `ul2 doctor` on it."
        raise ValueError(
            f"{corpus.name!r} must have a token to be cached, got {counts['empty'] + counts['skipped']} records, of which"
            f" {counts['skipped']} were skipped, and {counts['empty']} are empty. {remedy}"
        )
    for split, shards in splits.items():
        # SeqIO's own reader knows TFRecords alone, and there are none.
        info = {"num_shards": 0, "features": {"targets": {"shape": [None], "dtype": "int32"}}, "seqio_version": version_of("seqio")}
        stats = {
            "examples": sum(shard["documents"] for shard in shards),
            "targets_tokens": sum(shard["tokens"] for shard in shards),
        }
        write_atomically(info_path(cache_dir, split), json.dumps(info, indent=2))
        write_atomically(stats_path(cache_dir, split), json.dumps(stats, indent=2))
    manifest = manifest_of(corpus, begun, splits, git_revision)
    manifest["totals"] |= total(written, ["fallbacks"])
    if corpus.encoder.counts_ids:
        paths = {split: [hashes_path(shard, split) for shard in source_shards if split in shard.splits] for split in splits}
        for split, of_split in paths.items():
            manifest["splits"][split]["repeated_ids"] = count_repeated(of_split)
        manifest["totals"]["repeated_ids"] = count_repeated([*itertools.chain(*paths.values())])
    cache.write_manifest(cache_dir, manifest)
    write_atomically(place(cache_dir, cache.COMPLETED), "")
    return manifest


def manifest_of(
    corpus: Corpus, begun: Mapping[str, Any], splits: Mapping[str, Sequence[Mapping]], git_revision: str | None
) -> dict[str, Any]:
    """What a cache says of itself: the "settings" that made it, what `cache.MOST` has, and the shards of each split."""
    counted, end = (*COUNTED, "bytes"), corpus.configuration.end(corpus.vocabulary)
    return {
        "schema_version": cache.SCHEMA_VERSION,
        "corpus": corpus.name,
        "versions": {"ul2_tasks": __version__, "seqio": version_of("seqio"), "tokenizer": corpus.vocabulary.made_by},
        "git_revision": git_revision,
        "dtype": stored_dtype(corpus).name,
        **({} if end is None else {"end": end}),  # the EOS after each document
        "settings": begun["settings"],
        "read_as": begun["read_as"],
        **{name: begun[name] for name in cache.MOST},
        "splits": {split: {**total(shards, counted), "shards": shards} for split, shards in splits.items()},
        "totals": total(itertools.chain(*splits.values()), counted),
    }


def _summarize(manifest: Mapping, corpus: Corpus, output_dir: str, seconds: float, console: Console) -> None:
    table = Table(title=Text(f"{folder_of(absolute(output_dir), corpus.name)}, {seconds:.1f} s"), box=box.SIMPLE_HEAD, padding=0)
    numbers = (*COUNTED, "bytes")
    for column in ("split", *numbers):
        table.add_column(column, justify="left" if column == "split" else "right", overflow="fold")
    for name, split in manifest["splits"].items():
        table.add_row(name, *(f"{split[number]:,}" for number in numbers))
    console.print(table)
    repeated = manifest["totals"].get("repeated_ids")
    fallbacks = manifest["totals"]["fallbacks"]
    left = fallbacks and f"{fallbacks:,} documents were left to the slower package of {manifest['versions']['tokenizer']}"
    for line in filter(None, (repeated and repeated_in_words(repeated), left, in_words(manifest))):
        console.print(line, markup=False, highlight=False)
    used = (
        f"To use it: ul2_tasks.examples(.., cache_dirs=[{output_dir!r}]), or seqio.add_global_cache_dirs([{output_dir!r}]) and"
        " get_dataset(.., use_cached=True)."
    )
    console.print(used, soft_wrap=True, markup=False, highlight=False)
