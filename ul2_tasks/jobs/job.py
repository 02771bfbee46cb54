"""How a job goes that writes a folder shard by shard: once, by one process or on Beam's workers, and on from where it stopped."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ul2_tasks.files.systems import is_folder, is_local, names_in
from ul2_tasks.jobs.beam import map_on_beam
from ul2_tasks.jobs.claim import WHOLE, part_name, taken
from ul2_tasks.jobs.shards import JobShard, remove_records


@dataclasses.dataclass(frozen=True)
class Job:
    """What is written, by its `name`, and what this job does for itself.

    `existing` gives the manifest where all is written, and raises a ValueError where the folder has anything else. `begin` removes
    what an interrupted job left of some shards, all or those of a part, and gives those to write. `write` is called with each, on
    a worker; in this process also with `advance`, to be called with how many more examples, or what else `of` says, are written.
    `finish` writes the manifest, last of all. `check` raises what is wrong with the arguments, or `made_with`, before anything is
    written.
    """

    name: str
    folder: str
    shards: Sequence[JobShard]
    existing: Callable[[], dict | None]
    begin: Callable[[Sequence[JobShard]], Sequence[JobShard]]
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


def run_job(
    job: Job,
    pipeline_options: Sequence[str] | None,
    console: Console,
    part: tuple[int, int] | None = None,
    merge: bool = False,
) -> dict:
    """Writes what is not written, and returns the manifest.

    `pipeline_options` are Beam's; None writes one shard after the other in this process, without Beam. `part` is which part, from
    0, of how many: only the shards of that part are written, and nothing is returned. `merge` writes the manifest when all parts
    are written; where shards are missing, it raises a ValueError.
    """
    if part is not None and merge:
        raise ValueError(f"part must be left out with merge, got {part}. Write all parts, and then merge them.")
    if part is not None and not 0 <= part[0] < part[1]:
        raise ValueError(
            f"part must be an index, from 0, and how many parts there are, got {part}. Pass (0, {part[1]}) for the first."
        )
    if (manifest := job.existing()) and not is_folder(job.records):
        return _complete(job, manifest, console)
    job.check()
    own = job.shards if part is None else job.shards[part[0] :: part[1]]
    if part is not None and not own:
        console.print(f"{job.name}: part {part[0]} of {part[1]} has none of the {len(job.shards)} shards", markup=False)
        return {}
    with taken(job.records, WHOLE if part is None else part_name(*part)) as check:
        if manifest := job.existing():  # another job has just finished it, or was killed before it removed the records
            remove_records(job.records)
            return _complete(job, manifest, console)
        waiting = job.begin(own)
        if merge and waiting:
            few = ", ".join(shard.name for shard in waiting[:_SHOWN])
            raise ValueError(
                f"all parts must be written before merge, got {job.folder} without {len(waiting)} of {len(job.shards)} shards, such"
                f" as {few}. Run all parts again: one that is written ends at once."
            )
        with _progress(job, own, waiting, console, check) as advance:
            if pipeline_options is not None:
                map_on_beam(pipeline_options, job.write, waiting)
            else:
                for shard in waiting:
                    job.write(shard, advance=advance)
        check()
        if part is not None:
            told = f"{job.name}: part {part[0]} of {part[1]} is written, {len(own)} of {len(job.shards)} shards"
            console.print(f"{told}. When all parts are, run the command with --merge.", markup=False, soft_wrap=True)
            return {}
        manifest = job.finish()
        remove_records(job.records)
    job.summarize(manifest)
    return manifest


def _complete(job: Job, manifest: dict, console: Console) -> dict:
    console.print(f"{job.folder} is complete already, and was made with these {job.made_with}", markup=False, soft_wrap=True)
    return manifest


POLL, REMOTE_POLL = 0.5, 10.0  # seconds between looks at what workers have written
_SHOWN = 3  # shards in an error
LINES = 60.0  # seconds between lines in a log, which has no progress bar


@contextlib.contextmanager
def _progress(
    job: Job, own: Sequence[JobShard], waiting: Sequence[JobShard], console: Console, check: Callable[[], None]
) -> Iterator[Callable[[int], None]]:
    """Shows how many of the shards have a record, wherever the workers are. Gives the function `advance`, see `Job.write`.

    `check` is called now and then, and raises an error if the folder is no longer this job's; see `claim.taken`.
    """
    shards = len(own)
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
