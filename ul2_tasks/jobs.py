"""What the jobs share that write a folder shard by shard, the cache's and the export's.

A shard that is written leaves a note in a folder of notes, beside `begun.json`, which tells what was asked for. Both go when
the job is done. So a job that was killed goes on where it stopped, and a folder that has such notes is not finished.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import tensorflow as tf
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ul2_tasks.files import parallel_map

BEGUN = "begun.json"
FAILURES = (OSError, tf.errors.OpError)  # what reading and writing files raises
_NOTES = ("_parts", "parts")  # the folders of notes: of exports; of caches, and of exports before schema 2
_LAST = {"cache": {"COMPLETED"}, "export": {"_manifest.json", "manifest.json"}}  # what is written last


def place(folder: str, name: str) -> str:
    """The path of a file in a folder."""
    return f"{folder.rstrip('/')}/{name}"


def names_in(folder: str) -> set[str]:
    """What is in a folder; nothing, if it is not there."""
    return {name.rstrip("/") for name in tf.io.gfile.listdir(folder)} if tf.io.gfile.isdir(folder) else set()


def load(path: str) -> dict:
    """A JSON file's value."""
    with tf.io.gfile.GFile(path) as file:
        return json.load(file)


def size(path: str) -> int:
    """The bytes of a file."""
    return tf.io.gfile.stat(path).length


def sha256(path: str) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    found = hashlib.sha256()
    with tf.io.gfile.GFile(path, "rb") as file:
        while block := file.read(1 << 22):
            found.update(block)
    return found.hexdigest()


def write_atomically(path: str, text: str) -> None:
    """Writes a file beside its place, then moves it there: it is there, whole, or not at all."""
    temporary = f"{path}.{uuid.uuid4().hex}.tmp"
    with removed_on_failure(temporary):
        with tf.io.gfile.GFile(temporary, "w") as file:
            file.write(text)
        tf.io.gfile.rename(temporary, path, overwrite=True)


@contextlib.contextmanager
def removed_on_failure(*paths: str) -> Iterator[None]:
    """Removes these files if anything is raised, an interrupt too."""
    try:
        yield
    except BaseException:
        for path in filter(tf.io.gfile.exists, paths):
            tf.io.gfile.remove(path)
        raise


def in_words(error: Exception) -> str:
    """One of the `FAILURES` as part of a sentence."""
    return f"{type(error).__name__}: {error.message if isinstance(error, tf.errors.OpError) else error}"


def differences(before: object, now: object, path: str = "") -> Iterator[str]:
    """A sentence for each value that is another one, or is there in one alone, in nested dictionaries."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in {**before, **now}:
            yield from differences(before.get(key), now.get(key), f"{path}.{key}" if path else key)
    elif before != now:
        yield f"{path} is {before!r} there, and {now!r} here"


def unfinished(folder: str) -> str | None:
    """A sentence, if the folder is that of a cache or an export which is begun and not finished; otherwise None."""
    present = names_in(folder)
    for notes in (place(folder, name) for name in _NOTES if name in present):
        if tf.io.gfile.exists(place(notes, BEGUN)):
            begun = load(place(notes, BEGUN))
            kind, shards = ("cache", begun["parts"]) if "parts" in begun else ("export", begun["arguments"]["shards"])
            if present & _LAST[kind]:
                return None  # it was killed before it removed the notes
            finished = sum(name.endswith(".json") for name in names_in(notes) - {BEGUN})
            return (
                f"{folder} is an unfinished {kind}, {finished} of {shards} shards are there: run the line that began it again,"
                " which goes on where it stopped, or delete the folder"
            )
    return None


def spoilt(folder: str, shards: Sequence[Mapping], present: Collection[str]) -> Iterator[str]:
    """Reads a job's files again, and gives a sentence for each that is missing, truncated, altered or too many.

    Args:
        folder: theirs.
        shards: of each file, as the manifest has it, "file", "bytes" and "sha256".
        present: the names of the files that are there.
    """
    wrong = list(missing_or_resized(folder, shards, present))
    yield from wrong
    rest = [shard for shard in shards if not any(shard["file"] in sentence for sentence in wrong)]
    yield from filter(None, parallel_map(functools.partial(altered, folder), rest))


def missing_or_resized(folder: str, shards: Sequence[Mapping], present: Collection[str]) -> Iterator[str]:
    """As `spoilt`, but opens no file."""
    listed, present = {shard["file"]: shard["bytes"] for shard in shards}, set(present)
    yield from (f"{name} is missing" for name in sorted(listed.keys() - present))
    yield from (f"{name} is not in the manifest" for name in sorted(present - listed.keys()))
    both = sorted(listed.keys() & present)
    for name, found in zip(both, parallel_map(lambda name: size(place(folder, name)), both)):
        if found != listed[name]:
            kind = "truncated" if found < listed[name] else "too long"
            yield f"{name} is {kind}: {found} bytes, the manifest says {listed[name]}"


def altered(folder: str, shard: Mapping) -> str | None:
    """As `spoilt`, of one file that has its size."""
    found = sha256(place(folder, shard["file"]))
    if found == shard["sha256"]:
        return None
    return f"{shard['file']} is altered: SHA-256 {found}, the manifest says {shard['sha256']}"


def import_beam():
    """Apache Beam.

    Raises:
        ImportError: it is not installed; says what to install.
    """
    try:
        import apache_beam
    except ImportError as error:
        raise ImportError(f"a Beam job needs Apache Beam ({error}); pip install 'ul2_tasks[cache]'") from error
    return apache_beam


def run_on_beam(options: Sequence[str], function: Callable[[object], object], values: Iterable[object], folder: str) -> None:
    """Calls a function with each value, on Beam's workers, which have their temporary files in a folder."""
    beam = import_beam()
    try:
        with beam.Pipeline(options=beam.options.pipeline_options.PipelineOptions(list(options))) as pipeline:
            _ = pipeline | beam.Create(list(values)) | beam.Reshuffle() | beam.Map(function)
    except RuntimeError as error:
        if str(error).startswith(KeyboardInterrupt.__name__):  # as Beam raises an interrupt of the function
            raise KeyboardInterrupt from error
        raise
    except KeyboardInterrupt:
        if "--direct_running_mode=multi_processing" in options:  # its processes die of the same interrupt, and remove nothing
            for name in names_in(folder):
                if name.endswith(".tmp"):
                    tf.io.gfile.remove(place(folder, name))
        raise


@contextlib.contextmanager
def progress(name: str, shards: int, folder: str, waiting: Collection[str], console: Console) -> Iterator[Callable[[int], None]]:
    """Shows how many shards are finished, wherever the workers are.

    Args:
        name: what is written.
        shards: how many there are.
        folder: the folder of notes.
        waiting: the names of the notes that are to come; those of the other shards are there already, which is told.
        console: where it is shown.

    Returns:
        A function that is given the number of examples that were written, here, since it was last called.
    """
    present = shards - len(waiting)
    if present:
        console.print(f"{name}: {present} of {shards} shards are there already", markup=False, soft_wrap=True)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[examples]}")
    examples, stop = 0, threading.Event()
    with Progress(*columns, TimeElapsedColumn(), console=console) as shown:
        bar = shown.add_task(f"{name}: shards", total=shards, completed=present, examples="")

        def advance(more: int) -> None:
            nonlocal examples
            examples += more
            shown.update(bar, examples=f"{examples:,} examples")

        def watch() -> None:
            while not stop.wait(0.5):
                shown.update(bar, completed=present + len(names_in(folder) & set(waiting)))

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield advance
            shown.update(bar, completed=shards)
        finally:
            stop.set()
            watcher.join()
