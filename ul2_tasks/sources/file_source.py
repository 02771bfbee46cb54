"""`FileSource`: documents in files that patterns name, read in shards and checked for the fields that are wanted."""

from __future__ import annotations

import dataclasses
import errno
import os
from collections.abc import Iterator, Mapping, Sequence

from ul2_tasks.files import listing, systems
from ul2_tasks.sources import files, formats
from ul2_tasks.sources.base import RecordSource, kept
from ul2_tasks.sources.columns import check_fields
from ul2_tasks.sources.files import Layout, Shard
from ul2_tasks.sources.mds import with_shards
from ul2_tasks.sources.records import Record, read

Files = str | os.PathLike | Sequence[str | os.PathLike]

_SHARDS_LOOKED_AT = 16  # to know the fields, as the first files may have no record


class FileSource(RecordSource):
    """Files of any file system, compressed or not; see `formats` for what they may be.

    Fewer than 64 files are split into shards, so that there is enough to share out: uncompressed JSON Lines and text with a
    document a line at any line, Parquet at row groups, and Arrow at record batches.
    """

    def __init__(self, split_to_files: Mapping[str, Files], layout: Layout):
        """`split_to_files` has the files of each split."""
        expected = {"format": (layout.format, formats.FORMATS), "documents": (layout.documents, files.DOCUMENTS)}
        for name, (value, choices) in expected.items():
            if value is not None and value not in choices:
                raise ValueError(f"{name} must be one of {list(choices)}, got {value!r}.")
        super().__init__(split_to_files, layout.text_key, layout.id_key)
        self._files = {split: _plain_patterns(patterns) for split, patterns in split_to_files.items()}
        self._layout = layout
        # Listed once, and for all processes that get this source: the size and the stamp of each file.
        self._listed: dict[str, tuple[dict[str, tuple[int, str]], Layout]] = {}
        self._stamped: set[str] = set()  # splits of which these stamps were asked for
        self._shards: dict[str, list[Shard]] = {}
        self._formats = {split: layout.format or _named_format(patterns) for split, patterns in self._files.items()}
        for split, format in self._formats.items():
            self._check_format(format, split)

    def __repr__(self) -> str:
        return f"FileSource({', '.join([repr(self._files), *self._layout.changed])})"

    @kept
    def contents(self, split: str) -> str:
        """The files of a split, see `listing.contents`, and how they are read."""
        found, _ = self._list(split)
        return ", ".join([listing.contents([*found], {path: stamp for path, (_, stamp) in found.items()}), *self._layout.changed])

    def files(self, split: str) -> list[str]:
        """The paths of a split's files."""
        return list(dict.fromkeys(shard.path for shard in self.shards(split)))

    def stamps(self, split: str) -> dict[str, str]:
        """At first those of the listing, by which files are split into shards; then those of another one."""
        paths, (found, _) = self.files(split), self._list(split)
        if split in self._stamped:
            now = listing.listed(self._files[split])
            if gone := [path for path in paths if path not in now]:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), gone[0])
            return {path: listing.stamp(now[path]) for path in paths}
        self._stamped.add(split)
        return {path: found[path][1] for path in paths}

    @property
    def read_as(self) -> str:
        return f"FileSource({', '.join(['files', *self._layout.changed])})"

    def read(self, shard: Shard) -> Iterator[Record]:
        return read(shard, self._list(shard.split)[1])

    def bytes_of(self, shard: Shard) -> int | None:
        if shard.stop is None:
            return self._list(shard.split)[0][shard.path][0]
        return shard.stop - shard.start if shard.before is None else None

    def rows_of(self, shard: Shard, records: int, last: object) -> int:
        return formats.rows_read(shard, self._list(shard.split)[1], records, last)

    def shards(self, split: str, at_least: int = 0) -> Sequence[Shard]:
        """The shards of a split's files. Lists the files, and reads the fields of the first file that has any."""
        if split not in self._shards:
            listed, layout = self._list(split)
            found = formats.shards_of([*listed], layout, [size for size, _ in listed.values()])
            for shard in found[:_SHARDS_LOOKED_AT] if layout.format != "text" else ():
                if names := formats.fields(shard, layout):
                    check_fields(shard.path, names, layout)
                    break
            self._shards[split] = files.numbered(split, found)
        return self._shards[split]

    def _list(self, split: str) -> tuple[dict[str, tuple[int, str]], Layout]:
        if split not in self._listed:
            found = listing.listed(self._files[split])
            paths = with_shards([*found])
            if self._layout.as_json:
                paths = _without_manifests(paths, self._files[split])
            format = self._formats[split] = self._layout.format or formats.format_of(paths)
            self._check_format(format, split)
            sized = zip(paths, systems.sizes_of(paths, map(found.__getitem__, paths)))
            files = {path: (size, listing.stamp(found[path])) for path, size in sized}
            self._listed[split] = files, dataclasses.replace(self._layout, format=format)
        return self._listed[split]

    def _check_format(self, format: str | None, split: str) -> None:
        """Raises a ValueError where an argument means nothing for the format of the split's files; None is not known yet."""
        layout, patterns = self._layout, self._files[split]
        if format != "text":
            if layout.documents is not None and not {None, "text"} & {*self._formats.values()}:
                raise ValueError(
                    f"documents must be left out for files that are not text files, got {layout.documents!r} for {patterns!r}."
                )
            return
        if layout.as_json:
            raise ValueError(
                f"files must be conversations in JSON Lines, Parquet or Arrow, got the text files {patterns!r}. If each line is"
                " JSON, pass open_source(.., format='jsonl', as_json=True)."
            )
        fields = ("text_key", "text"), ("id_key", None), ("loss_weight_key", None), ("group_by", None)
        for name, value, default in ((name, getattr(layout, name), default) for name, default in fields):
            if value != default:
                raise ValueError(f"{name} must be left out for text files, which have no fields, got {value!r} with {patterns!r}.")
        if layout.documents is None:
            raise ValueError(
                f"documents must be one of {[*files.DOCUMENTS]} for text files, got None for {patterns!r}: what is a document in"
                " them? Pass open_source(.., documents=..), for a command in a FILE.py. See"
                " docs/help/troubleshooting.md#what-is-a-document-in-a-text-file."
            )


def _plain_patterns(patterns: Files) -> str | list[str]:
    """The paths as text. Raises a ValueError where they are no paths, or where there is none."""
    if isinstance(patterns, str | os.PathLike):
        plain = os.fspath(patterns)
        names = [plain]
    else:
        is_paths = isinstance(patterns, Sequence) and all(isinstance(pattern, str | os.PathLike) for pattern in patterns)
        plain = names = [os.fspath(pattern) for pattern in patterns] if is_paths else []
    if not names or "" in names:
        raise ValueError(f"files must be a path, a glob, a folder, or a list of at least one of these, got {patterns!r}.")
    for name in names:
        if name.startswith(("hf:", "tfds:")):
            raise ValueError(
                f"files must be paths, got {name!r} among them, which is a source itself. Register each such source separately,"
                " and mix them."
            )
    return plain


def _without_manifests(paths: list[str], patterns: str | list[str]) -> list[str]:
    """The paths of conversations: without the manifests beside them, unless these are named themselves or are all there is."""
    named = {patterns} if isinstance(patterns, str) else {*patterns}
    kept = [path for path in paths if os.path.basename(path) != files.INPUT_MANIFEST or path in named]
    return kept or paths


def _named_format(patterns: str | list[str]) -> str | None:
    """The format that the names of all paths and globs end with; None where they do not say, or say several."""
    named = {formats.named_format(pattern) for pattern in ([patterns] if isinstance(patterns, str) else patterns)}
    return named.pop() if len(named) == 1 else None
