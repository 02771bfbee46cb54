"""`ul2 bench`: how much this machine reads of a mixture in a second, and how many accelerators that feeds.

Each way of reading is one iterator, in windows of a second or less. What its first batch takes is apart, and so is the first
window, in which files may be cold:

    first batch | first window | repeat | repeat | repeat | repeat | repeat
                                ------------- the median ----------------
"""

from __future__ import annotations

import dataclasses
import math
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

from ul2_tasks.imported import is_instance
from ul2_tasks.looking.printing import NO_BREAK, as_shown, plain_table, print_head, tracked
from ul2_tasks.looking.run import Run
from ul2_tasks.measured_loader import MeasuredLoader
from ul2_tasks.mixtures.mixture import Mixture, stream_reason
from ul2_tasks.random_access.batches import members_of
from ul2_tasks.random_access.exclude import leaving_out_of
from ul2_tasks.random_access.records import features_of, has_images
from ul2_tasks.random_access.sequence import Examples
from ul2_tasks.tasks.registration import Registration, hand_over

SECONDS = 10.0  # of all that is measured, without the first batches
BATCH_SIZE = 32
TOKENS = 4096  # the length of conversations where none is given
_REPEATS = 5
_SLOWER = 0.6  # of the median: from where the first window is told of
_BUSY = 0.8  # of a core: from where it is said that other programs use it
_UNITS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
_FILLED = 256  # packed sequences of chats, of which the padding is counted
# What an accelerator takes where the user does not say it: 6 FLOP per parameter and token (arXiv 2001.08361).
_PEAK, _UTILISATION = 989e12, 0.4  # dense bfloat16 of an H100 SXM, by NVIDIA's data sheet
_PARAMETERS = {"100 M": 1e8, "1 B": 1e9, "10 B": 1e10}
_FLOP_PER_PARAMETER = 6
_ASSUMED = (
    "Tokens/s of one H100 at 40 % of its 989 TFLOP/s, with 6 FLOP per parameter and token. Count the parameters that a token passes"
    " through: of an encoder-decoder about half. Pass --tokens_per_second with what your run takes."
)


class _Way(NamedTuple):
    """A way of reading: batches, what they are, how many worker processes make them, and how a window's tokens are counted."""

    read_by: str
    workers: int
    batches: Iterable[Any]
    tokens: Callable[[int, int], float]


class _Window(NamedTuple):
    batches: int
    rows: int
    tokens: float
    seconds: float
    cpu_seconds: float

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds


@dataclasses.dataclass(frozen=True)
class Throughput:
    """What was read in one way.

    Attributes:
        read_by: "1 process", for example.
        workers: how many processes made the batches; 0 where the measuring process did.
        seconds_to_first_batch: from the start of the iterator, and of its workers, to the first batch.
        first_tokens_per_second: of the first window after it, in which files may be read from the disk.
        tokens_per_second: the median of the windows after that. Padding is not counted.
        lowest, highest: of these windows.
        rows_per_second: examples, packed sequences or image-text rows, on average over these windows.
        tokens_per_cpu_second: tokens for each second of CPU time, of all processes together.
        batches, rows, tokens, seconds, cpu_seconds: what was measured in these windows.
    """

    read_by: str
    workers: int
    seconds_to_first_batch: float
    first_tokens_per_second: float
    tokens_per_second: float
    lowest: float
    highest: float
    rows_per_second: float
    tokens_per_cpu_second: float
    batches: int
    rows: int
    tokens: int
    seconds: float
    cpu_seconds: float


@dataclasses.dataclass(frozen=True)
class Demand:
    """What an accelerator takes, and how many of them the data are enough for.

    `fed` is by the fastest way of reading, `fed_at_first` by its first window, and `fed_per_core` by a second of CPU time. `cores`
    is how many one accelerator needs.
    """

    accelerator: str
    tokens_per_second: float
    fed: float
    fed_at_first: float
    fed_per_core: float
    cores: int


@dataclasses.dataclass(frozen=True)
class Bench:
    """What this machine reads of a mixture.

    Attributes:
        mixture, sequence_length, split, seed: what was read.
        unit: "example", "packed sequence" or "row", of which a batch has `batch_size`.
        reader: what made the batches.
        cores: how many this process may use.
        throughput: of each way of reading.
        demands: what accelerators take: the one that the user named, or those of `assumed`.
        assumed: what the demands were computed from; empty where the user named one.
    """

    mixture: str
    sequence_length: Mapping[str, int | None]
    split: str
    seed: int
    unit: str
    batch_size: int
    reader: str
    cores: int
    throughput: Sequence[Throughput]
    demands: Sequence[Demand]
    assumed: str

    @property
    def best(self) -> Throughput:
        """The fastest way of reading."""
        return max(self.throughput, key=lambda each: each.tokens_per_second)

    @property
    def passed(self) -> bool:
        """Whether the data are enough for the accelerator that the user named, if any."""
        return bool(self.assumed) or self.demands[0].fed >= 1


def bench_run(
    run: Run, registration: Registration, workers: int | None, as_t5x: bool, use_cached: bool, tokens_per_second: float | None
) -> Bench:
    """Measures what a run reads, as UL2IterableDataset and a DataLoader give it, or as t5x reads it.

    `workers` are those of the DataLoader; None measures one process, and a worker for each core. Raises a ValueError where the data
    cannot be read that way.
    """
    lengths = {key: length or TOKENS for key, length in run.sequence_length.items()}
    run = dataclasses.replace(run, batch_size=run.batch_size or BATCH_SIZE, sequence_length=lengths)
    assert run.batch_size is not None
    if as_t5x:
        reader, ways = "SeqIO's get_dataset, as t5x reads", [_as_t5x(run, registration, use_cached)]
    else:
        _needs_torch()
        is_stream = bool(_why_a_stream(run)) and not (run.exclude or run.skip)  # which need random access, and say so
        reader = f"UL2IterableDataset and a DataLoader ({'a stream' if is_stream else 'random access'})"
        if is_stream:
            ways = [_of_stream(run, registration, use_cached, each) for each in _numbers(workers, is_stream=True)]
        else:
            ways = [_of_examples(run.examples(), run.batch_size, each) for each in _numbers(workers)]
    unit = "packed sequence" if run.pack else "example"
    told = {"mixture": run.name, "sequence_length": lengths, "split": run.split, "seed": run.seed}
    return _bench(ways, tokens_per_second, **told, unit=unit, batch_size=run.batch_size, reader=reader)


def bench_rows(name: str, dataset: Any, workers: int | None, tokens_per_second: float | None) -> Bench:
    """Measures the rows of an `ImageTextDataset`."""
    _needs_torch()
    import torch

    ways = [
        _Way(_read_by(each), each, torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=each), lambda of, _: of)
        for each in _numbers(workers)
    ]
    told = {"mixture": name, "sequence_length": dataset.recipe.budgets._asdict(), "split": "train", "seed": dataset.recipe.seed}
    return _bench(ways, tokens_per_second, **told, unit="row", batch_size=1, reader="ImageTextDataset and a DataLoader")


def print_bench(found: Bench, console: Console) -> None:
    """Prints a line for each way of reading, and what it is enough for."""
    print_head(console, found.mixture, found.sequence_length, found.split, found.seed)
    units = found.unit if found.batch_size == 1 else f"{found.unit}s"
    console.print(f"Batches of {found.batch_size:,} {units} by {found.reader}.")
    console.print("Converter, collation and tensors included, without the copy to the accelerator.")
    rows = f"{found.unit.split()[-1]}s/s"
    names = ("tokens/s", "lowest", "highest", "per core", rows, "first reading", "first batch, s")
    table = plain_table("read by", names)
    for each in found.throughput:
        rates = (each.tokens_per_second, each.lowest, each.highest, each.tokens_per_cpu_second, each.rows_per_second)
        shown = map(rounded, (*rates, each.first_tokens_per_second))
        table.add_row(each.read_by, *shown, as_shown(each.seconds_to_first_batch, "decimal"))
    console.print(table)
    if found.assumed:
        sizes = plain_table("parameters", ("tokens/s of one", "fed by this machine", "fed by one core", "cores for one"))
        for demand in found.demands:
            fed = (demand.tokens_per_second, demand.fed, demand.fed_per_core)
            sizes.add_row(demand.accelerator, *map(rounded, fed), f"{demand.cores:,}")
        console.print(sizes)
        console.print(found.assumed)
    else:
        console.print(verdict(found))
    if (share := found.best.first_tokens_per_second / found.best.tokens_per_second) < _SLOWER:
        console.print(f"The first reading had {share:.0%} of the speed, perhaps because files were not in memory yet.")
    if (share := found.throughput[0].cpu_seconds / found.throughput[0].seconds) < _BUSY:
        console.print(f"The first line had {share:.0%} of a core: other programs are busy here. `per core` counts CPU time alone.")


def verdict(found: Bench) -> str:
    """Says how many accelerators the data are enough for."""
    demand, best = found.demands[0], found.best
    each = f"{rounded(demand.tokens_per_second)} tokens/s"
    core = f"one core feeds {rounded(demand.fed_per_core)}"
    if demand.fed >= 1:
        count = math.floor(demand.fed)
        return f"Enough for {count:,} accelerator{'s' * (count > 1)} of {each}; {core}."
    cores = f"It takes {demand.cores:,} cores, and this machine has {found.cores}"
    return f"Not enough for one accelerator of {each}: {best.read_by} read {demand.fed:.0%} of that. {cores}."


def rounded(value: float) -> str:
    """A number with three digits that count.

    >>> rounded(31234567.0), rounded(1999.6), rounded(316.4), rounded(0.01234), rounded(1.0)
    ('31.2\\xa0M', '2\\xa0k', '316', '0.0123', '1')
    """
    value = float(f"{value:.3g}")
    scale, unit = next((found for found in _UNITS if value >= found[0]), (1, ""))
    return f"{value / scale:.10g}{NO_BREAK if unit else ''}{unit}"


def _bench(ways: Sequence[_Way], tokens_per_second: float | None, **told: Any) -> Bench:
    throughput = [_measured(way, SECONDS / len(ways)) for way in ways]
    best = max(throughput, key=lambda each: each.tokens_per_second)
    assumed = "" if tokens_per_second else _ASSUMED
    needed = {"one": float(tokens_per_second)} if tokens_per_second else _assumed()
    demands = [
        Demand(
            name,
            needs,
            best.tokens_per_second / needs,
            best.first_tokens_per_second / needs,
            throughput[0].tokens_per_cpu_second / needs,
            math.ceil(needs / throughput[0].tokens_per_cpu_second),
        )
        for name, needs in needed.items()
    ]
    return Bench(**told, cores=_cores(), throughput=throughput, demands=demands, assumed=assumed)


def _assumed() -> dict[str, float]:
    return {name: _UTILISATION * _PEAK / (_FLOP_PER_PARAMETER * count) for name, count in _PARAMETERS.items()}


def _measured(way: _Way, seconds: float) -> Throughput:
    loader = MeasuredLoader(way.batches)
    begun = time.perf_counter()
    iterator = iter(loader)
    next(iterator)
    to_first = time.perf_counter() - begun
    shown = tracked(range(_REPEATS + 1), _REPEATS + 1, f"reading with {way.read_by}")
    first, *windows = [_window(loader, iterator, seconds / (_REPEATS + 1), way.tokens) for _ in shown]
    iterator.close()  # type: ignore[attr-defined]  # a generator, which ends its workers
    each = [window.tokens_per_second for window in windows]
    batches, rows, tokens, took, cpu = map(sum, zip(*windows))
    return Throughput(
        read_by=way.read_by,
        workers=way.workers,
        seconds_to_first_batch=to_first,
        first_tokens_per_second=first.tokens_per_second,
        tokens_per_second=statistics.median(each),
        lowest=min(each),
        highest=max(each),
        rows_per_second=rows / took,
        tokens_per_cpu_second=tokens / cpu,
        batches=int(batches),
        rows=int(rows),
        tokens=round(tokens),
        seconds=took,
        cpu_seconds=cpu,
    )


def _window(loader: MeasuredLoader, iterator: Iterator[Any], seconds: float, tokens: Callable[[int, int], float]) -> _Window:
    """Reads for that long, and one batch at least."""
    before, cpu, begun = _counts(loader), _cpu_seconds(), time.perf_counter()
    while True:
        next(iterator)
        if time.perf_counter() - begun >= seconds:
            break
    batches, rows, inputs, targets, took = (now - earlier for now, earlier in zip(_counts(loader), before))
    return _Window(int(batches), int(rows), tokens(int(inputs), int(targets)), took, max(_cpu_seconds() - cpu, 1e-3))


def _counts(loader: MeasuredLoader) -> tuple[float, ...]:
    return loader.batches, loader.rows, loader.input_tokens, loader.target_tokens, loader.seconds


def _cpu_seconds() -> float:
    """CPU time of this process and of its workers so far."""
    return time.process_time() + sum(_cpu_of(child.pid) for child in multiprocessing.active_children() if child.pid)


def _cpu_of(process: int) -> float:
    """CPU time of another process, which Linux writes as fields 14 and 15 of its `stat`, the second of which is in parentheses."""
    try:
        with open(f"/proc/{process}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:  # it has ended
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _numbers(workers: int | None, is_stream: bool = False) -> list[int]:
    """How many workers are measured, one after the other. tf.data, which reads streams, uses all cores without any."""
    if workers is None:
        workers = 0 if is_stream or _cores() == 1 else _cores()
    return [0, workers] if workers else [0]


def _read_by(workers: int) -> str:
    return f"{workers or 1} {'worker' if workers else 'process'}{'s' * (workers > 1)}"


def _needs_torch() -> None:
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"ul2 bench needs the package torch ({error}). Run `pip install 'ul2_tasks[torch]'`, or pass --t5x to read as t5x does."
        ) from error


def _why_a_stream(run: Run) -> str | None:
    if isinstance(run.mixture, Mixture):
        return stream_reason(run.mixture)
    if not isinstance(run.mixture, str):
        return None
    import seqio

    tasks = seqio.get_subtasks(seqio.get_mixture_or_task(run.mixture))
    if others := [task.name for task in tasks if not hasattr(task, "why_a_stream")]:
        return f"{others[0]} is not of this package"
    return next((reason for task in tasks if (reason := task.why_a_stream())), None)


def _of_examples(found: Examples, batch_size: int, workers: int) -> _Way:
    """What has random access."""
    members, features = members_of(found.numbering), features_of(members_of(found.numbering))
    pack, is_chat = bool(found.numbering.packed), "tokens" in features
    image_tokens = None
    if has_images(members):
        image_tokens = next(tokens for each in members if (tokens := getattr(each.corpus, "image_tokens", None)))
    loader = _loader(found, {}, batch_size, workers, is_chat=is_chat, pack=pack, image_tokens=image_tokens)
    return _Way(_read_by(workers), workers, loader, _counted(is_chat, _filled(found) if is_chat and pack else 1.0))


def _of_stream(run: Run, registration: Registration, use_cached: bool, workers: int) -> _Way:
    """What a name gives that has no random access. It is registered again in workers, which are spawned."""
    import seqio

    name = run.mixture if isinstance(run.mixture, str) else hand_over(run.mixture, registration)
    provider = seqio.get_mixture_or_task(name)
    is_chat = "tokens" in provider.output_features
    image_tokens = None
    if "images" in provider.output_features:
        corpora = (getattr(task, "corpus", None) for task in seqio.get_subtasks(provider))
        image_tokens = next(tokens for each in corpora if (tokens := getattr(each, "image_tokens", None)))
    settings = {"sequence_length": run.sequence_length, "split": run.split, "seed": run.seed, "use_cached": use_cached}
    batch_size = run.batch_size or BATCH_SIZE
    of_batches: dict[str, Any] = {"is_chat": is_chat, "pack": run.pack, "image_tokens": image_tokens}
    loader = _loader(registration if workers else name, settings, batch_size, workers, **of_batches)
    return _Way(_read_by(workers), workers, loader, _counted(is_chat))


def _loader(mixture: Any, settings: Mapping, batch_size: int, workers: int, *, is_chat: bool, pack: bool, image_tokens: Any) -> Any:
    """A DataLoader of batches of model inputs, as the guides make them."""
    import torch

    from ul2_tasks.converters.chat_hugging_face import HuggingFaceChatConverter
    from ul2_tasks.converters.hugging_face import HuggingFaceFeatureConverter
    from ul2_tasks.pytorch.dataset import UL2IterableDataset
    from ul2_tasks.pytorch.t5gemma2_collator import T5Gemma2Collator

    collate: Any = None
    converter: Any = None
    if image_tokens is not None:
        collate = T5Gemma2Collator(image_tokens=image_tokens)
    elif is_chat:
        converter = HuggingFaceChatConverter(pack=pack)
    else:
        of_rows: Any = {"pack": True} if pack else {"padding": "longest", "batch_size": batch_size}
        converter = HuggingFaceFeatureConverter(**of_rows, decoder_start_token_id=0)  # any, which costs the same
    joined = None if getattr(converter, "batch_size", None) else batch_size
    dataset = UL2IterableDataset(mixture, feature_converter=converter, batch_size=joined, rank=0, world_size=1, **settings)
    context = "spawn" if workers and "tensorflow" in sys.modules else None  # whose threads no fork has
    return torch.utils.data.DataLoader(
        dataset, batch_size=joined, collate_fn=collate, num_workers=workers, multiprocessing_context=context
    )


def _counted(is_chat: bool, filled: float = 1.0) -> Callable[[int, int], float]:
    """How many tokens inputs and targets are. Those of chats are one sequence."""
    return (lambda inputs, targets: max(inputs, targets) * filled) if is_chat else (lambda inputs, targets: inputs + targets)


def _filled(found: Examples) -> float:
    """Which part of packed chats is tokens, of which their batches say nothing."""
    return float(np.mean([(row["tokens_segment_ids"] > 0).mean() for row in found[:_FILLED]]))


def _as_t5x(run: Run, registration: Registration, use_cached: bool) -> _Way:
    """The batches of `get_dataset_at_step`, or of t5x's own `get_dataset`, on one host."""
    import seqio

    from ul2_tasks.converters.chat import ChatFeatureConverter, PromptCompletionFeatureConverter
    from ul2_tasks.converters.encoder_decoder import EncDecFeatureConverter
    from ul2_tasks.random_access.dataset import continued, numbering_of

    if not isinstance(run.mixture, str):
        if run.name not in {*seqio.MixtureRegistry.names(), *seqio.TaskRegistry.names()}:
            hand_over(run.mixture, dataclasses.replace(registration, name=run.name))
        seqio.add_global_cache_dirs([str(folder) for folder in run.cache_dirs])
    provider = seqio.get_mixture_or_task(run.name)
    if "images" in provider.output_features:
        raise ValueError(
            f"--t5x must be left out for images ({run.name}), which no model of t5x reads. Without it a DataLoader is measured."
        )
    is_chat = "tokens" in provider.output_features
    tasks = seqio.get_subtasks(provider)
    of_replies = any(is_instance(task, "ul2_tasks.tasks.chat", "ChatTask") for task in tasks) and not is_chat
    converter = ChatFeatureConverter if is_chat else PromptCompletionFeatureConverter if of_replies else EncDecFeatureConverter
    dataset = seqio.get_dataset(
        run.name,
        dict(run.sequence_length),
        converter(pack=run.pack),
        dataset_split=run.split,
        use_cached=use_cached,
        shuffle=run.shuffle,
        num_epochs=None,
        seed=run.seed,
    )
    leaving_out = leaving_out_of(numbering_of(dataset), run.exclude, run.skip, run.batch_size, run.first_step)
    if numbering_of(dataset) is not None:
        dataset = continued(dataset, 0, leaving_out)
    batches = dataset.batch(run.batch_size, drop_remainder=True).as_numpy_iterator()
    return _Way("tf.data", 0, batches, _counted(is_chat))
