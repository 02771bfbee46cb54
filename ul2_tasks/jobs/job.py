"""How a job goes that writes a folder shard by shard: once, by one process or on Beam's workers, and on from where it stopped."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import re
import signal
import threading
import time
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ul2_tasks.files.systems import is_folder, is_local, names_in, place, remove
from ul2_tasks.jobs.claim import taken
from ul2_tasks.jobs.shards import JobShard, remove_records


@dataclasses.dataclass(frozen=True)
class Job:
    """What is written, by its `name`, and what this job does for itself.

    `existing` gives the manifest where all is written, and raises a ValueError where the folder has anything else. `begin` removes
    what an interrupted job left, and gives the shards to write. `write` is called with each, on a worker; in this process also with
    `advance`, to be called with how many more examples, or what else `of` says, are written. `finish` writes the manifest, last of
    all. `check` raises what is wrong with the arguments, or `made_with`, before anything is written.
    """

    name: str
    folder: str
    shards: Sequence[JobShard]
    existing: Callable[[], dict | None]
    begin: Callable[[], Sequence[JobShard]]
    write: Callable[..., object]
    finish: Callable[[], dict]
    summarize: Callable[[dict], None]
    check: Callable[[], object] = lambda: None
    of: str = "examples"
    made_with: str = "arguments"

    @property
    def records(self) -> str:
        """The folder of the records of shards."""
        return self.shards[0].records


def run_job(job: Job, pipeline_options: Sequence[str] | None, console: Console) -> dict:
    """Writes what is not written, and returns the manifest.

    `pipeline_options` are Beam's; None writes one shard after the other in this process, without Beam.
    """
    if (manifest := job.existing()) and not is_folder(job.records):
        return _complete(job, manifest, console)
    job.check()
    with taken(job.records) as check:
        if manifest := job.existing():  # another job has just finished it, or was killed before it removed the records
            remove_records(job.records)
            return _complete(job, manifest, console)
        waiting = job.begin()
        with _progress(job, waiting, console, check) as advance:
            if pipeline_options is not None:
                _run_on_beam(pipeline_options, job.write, waiting, job.records)
            else:
                for shard in waiting:
                    job.write(shard, advance=advance)
        check()
        manifest = job.finish()
        remove_records(job.records)
    job.summarize(manifest)
    return manifest


def _complete(job: Job, manifest: dict, console: Console) -> dict:
    console.print(f"{job.folder} is complete already, and was made with these {job.made_with}", markup=False, soft_wrap=True)
    return manifest


def import_beam():
    """Apache Beam. Where it is not installed, an ImportError says what to install."""
    try:
        import apache_beam
    except ImportError as error:
        raise ImportError(f"a Beam job needs Apache Beam ({error}). Run `pip install 'ul2_tasks[cache]'`.") from error
    return apache_beam


POLL, REMOTE_POLL = 0.5, 10.0  # seconds between looks at what workers have written
LINES = 60.0  # seconds between lines in a log, which has no progress bar
_INTERRUPTED = {code for number in (signal.SIGINT, signal.SIGTERM) for code in (-number, 128 + number)}  # exit statuses

_current = threading.Lock()
_inside: list[str] = []  # the folder from which a worker's process came, once for each call that is in the job's


def called_in(folder: str, function: Callable[[Any], object], value: object) -> object:
    """Calls a function in the folder of the job, where its relative paths lie, if the worker sees it: its own may be another."""
    if not os.path.isdir(folder):
        return function(value)
    with _current:
        _inside.append(_inside[0] if _inside else os.getcwd())
        os.chdir(folder)
    try:
        return function(value)
    finally:
        with _current:
            before = _inside.pop()
            if not _inside:  # a process can have several threads, and has one current folder
                os.chdir(before)


def _run_on_beam(options: Sequence[str], function: Callable[[object], object], values: Iterable[object], temporary: str) -> None:
    """Calls a function with each value, on Beam's workers, which have their temporary files in a folder."""
    beam = import_beam()
    dead: list[str] = []
    try:
        with (
            _interrupt_when_a_worker_dies(dead),
            beam.Pipeline(options=beam.options.pipeline_options.PipelineOptions(list(options))) as pipeline,
        ):
            in_folder = functools.partial(called_in, os.getcwd(), function)
            _ = pipeline | beam.Create(list(values)) | beam.Reshuffle() | beam.Map(in_folder)
    except RuntimeError as error:
        if str(error).startswith(KeyboardInterrupt.__name__):  # Beam's form of an interrupt of the function
            raise KeyboardInterrupt from error
        raise
    except KeyboardInterrupt:
        if "--direct_running_mode=multi_processing" in options:  # the interrupt ends its processes, which then remove nothing
            for name in names_in(temporary):
                if name.endswith(".tmp"):
                    remove(place(temporary, name))
        if dead:
            raise ChildProcessError(
                f"a worker process died ({dead[0]}), perhaps because memory ran out. Re-run the command with fewer --workers: it"
                " resumes with the shards that are missing."
            ) from None
        raise


@contextlib.contextmanager
def _interrupt_when_a_worker_dies(dead: list[str]) -> Iterator[None]:
    """Interrupts the main thread when one of Beam's local processes dies: Beam would wait for its results for ever.

    Beam raises an error in the thread that started the process, where only `threading.excepthook` sees it. Processes that end
    because of a user's interrupt are left to Beam. A process that ignores interrupts, as one in the background, is interrupted too.
    """
    hook_before, handler_before = threading.excepthook, signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or handler_before is None:  # neither can be replaced here
        yield
        return
    is_interrupted = False

    def handler(number: int, frame: types.FrameType | None) -> None:
        nonlocal is_interrupted
        if dead:
            raise KeyboardInterrupt
        if callable(handler_before):
            is_interrupted = True
            handler_before(number, frame)

    def hook(arguments: threading.ExceptHookArgs) -> None:
        code = re.fullmatch(r"Worker subprocess exited with return code (-?\d+)", str(arguments.exc_value))
        if not code:
            hook_before(arguments)
        elif not dead and not is_interrupted and int(code[1]) not in _INTERRUPTED:
            dead.append(f"exit status {code[1]}")
            os.kill(os.getpid(), signal.SIGINT)

    threading.excepthook = hook
    signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler_before)
        threading.excepthook = hook_before


@contextlib.contextmanager
def _progress(
    job: Job, waiting: Sequence[JobShard], console: Console, check: Callable[[], None]
) -> Iterator[Callable[[int], None]]:
    """Shows how many of the shards have a record, wherever the workers are. Gives the function `advance`, see `Job.write`.

    `check` is called now and then, and raises an error if the folder is no longer this job's; see `claim.taken`.
    """
    shards = len(job.shards)
    if present := shards - len(waiting):
        console.print(f"{job.name}: {present} of {shards} shards are there already", markup=False, soft_wrap=True)
    to_come = {f"{shard.name}.json" for shard in waiting}
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[examples]}")
    examples, stop = 0, threading.Event()
    with Progress(*columns, TimeElapsedColumn(), console=console) as shown:
        bar = shown.add_task(f"{job.name}: shards", total=shards, completed=present, examples="")

        def advance(more: int) -> None:
            nonlocal examples
            check()
            examples += more
            shown.update(bar, examples=f"{examples:,} {job.of}")

        def watch() -> None:
            begun = said = time.monotonic()
            while not stop.wait(POLL if is_local(job.records) else REMOTE_POLL):
                is_line = not console.is_terminal
                if is_line and time.monotonic() - said < LINES:
                    continue
                try:
                    written = present + len(names_in(job.records) & to_come if waiting else ())
                except Exception:  # of any file system; the next look tells it
                    continue
                shown.update(bar, completed=written)
                if is_line:
                    said = time.monotonic()
                    console.print(
                        f"{job.name}: {written} of {shards} shards after {said - begun:.0f} s", markup=False, soft_wrap=True
                    )

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield advance
            shown.update(bar, completed=shards)
        finally:
            stop.set()
            watcher.join()
