"""The sides of this benchmark: each makes batches of one mixture from tokens at rest, as its users would.

A side is a function of a `Spec` that returns a `Stream`. The streams of the ranks of a run are those of its processes. Where a side
cannot resume, or not mix, it says so by an `ImpossibleError`.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import pathlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from algorithms import corrupt, corrupt_batch, padded
from vocabulary import DENOISERS, SENTINELS, SPAN, fixed_chunk, lengths, solved, special, vocabulary

SHARES = {"even": 0.7, "odd": 0.3}
SEED = 0


class ImpossibleError(Exception):
    """A side has no way to do this."""


@dataclasses.dataclass(frozen=True)
class Spec:
    """What a side is to make.

    Args:
        root: the folder that `corpus.py` wrote.
        case: one of `DENOISERS`.
        length: of inputs, and of targets but for the case `span`.
        batch: the rows of a batch of this process.
        rank, world: which process this is, of how many.
        once: whether the stream ends after an epoch.
        mixed: whether the corpora are those of `SHARES`, and not the whole one.
        state: what the state of an earlier stream was, to go on behind it.
    """

    root: pathlib.Path
    case: str
    length: int
    batch: int = 128
    rank: int = 0
    world: int = 1
    once: bool = False
    mixed: bool = False
    state: Any = None

    @property
    def corpora(self) -> dict[str, float]:
        return SHARES if self.mixed else {"all": 1}

    @property
    def lengths(self) -> dict[str, int]:
        return lengths(self.case, self.length)

    def only_one(self, what: str = "corpus") -> pathlib.Path:
        if self.mixed:
            raise ImpossibleError(f"it has no mixture of {what}")
        return self.root / "all"


class Stream(NamedTuple):
    batches: Iterator[Any]
    state: Callable[[], Any] | None = None


def _mixture(spec: Spec) -> Any:
    import ul2_tasks

    def of(name: str) -> ul2_tasks.Mixture:
        source = ul2_tasks.open_source(f"megatron:{spec.root / name / 'documents'}")
        return ul2_tasks.Mixture(name, source, vocabulary(), denoisers=DENOISERS[spec.case], sentinels=SENTINELS)

    if not spec.mixed:
        return of("all")
    return ul2_tasks.Mix("both", {of(name): share for name, share in SHARES.items()})


def ours(spec: Spec, workers: int = 0) -> Stream:
    """PyTorch: batches of `UL2IterableDataset`."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    from ul2_tasks import HuggingFaceFeatureConverter, UL2IterableDataset

    pack = spec.case == "packed"
    form: Any = {"pack": True} if pack else {"padding": "longest", "batch_size": spec.batch}
    converter = HuggingFaceFeatureConverter(**form, decoder_start_token_id=0)
    dataset = UL2IterableDataset(
        _mixture(spec),
        spec.lengths,
        seed=SEED,
        feature_converter=converter,
        rank=spec.rank,
        world_size=spec.world,
        num_epochs=1 if spec.once else None,
        batch_size=spec.batch if pack else None,
    )
    loader = StatefulDataLoader(dataset, batch_size=spec.batch if pack else None, num_workers=workers)
    if spec.state:
        loader.load_state_dict(spec.state)
    return Stream(iter(loader), loader.state_dict)


def ours_arrays(spec: Spec) -> Stream:
    """`examples`, some at a time, and NumPy's arrays of them: what JAX reads."""
    import ul2_tasks

    examples = ul2_tasks.examples(_mixture(spec), spec.lengths, seed=SEED, pack=spec.case == "packed")
    state = {"number": spec.state["number"] if spec.state else 0}

    def batches() -> Iterator[dict[str, np.ndarray]]:
        elements = examples.epochs()
        stop = examples.end_of(1) if spec.once else 1 << 62
        while state["number"] < stop:
            first = state["number"] + spec.rank * spec.batch
            some = elements.__getitems__(range(first, min(first + spec.batch, stop)))
            state["number"] += spec.world * spec.batch
            yield {key: padded([np.asarray(each[key]) for each in some], spec.lengths[key]) for key in ("inputs", "targets")}

    return Stream(batches(), lambda: dict(state))


def _seqio_batches(name: str, converter: Any, spec: Spec) -> Stream:
    import seqio
    import tensorflow as tf

    dataset = seqio.get_dataset(
        name,
        spec.lengths,
        converter,
        dataset_split="train",
        shuffle=True,
        seed=SEED,
        num_epochs=1 if spec.once else None,
        shard_info=seqio.ShardInfo(spec.rank, spec.world),
        batch_size=None if spec.once else spec.batch,
    )
    if spec.once:
        dataset = dataset.batch(spec.batch)
    options = tf.data.Options()
    options.threading.private_threadpool_size = os.cpu_count()
    options.autotune.ram_budget = 1 << 28  # else buffers grow from round to round
    iterator = iter(dataset.with_options(options))
    path = spec.root / f"tf_{name}_{spec.rank}_{os.getpid()}"
    if spec.state:
        tf.train.Checkpoint(iterator=iterator).read(spec.state).assert_consumed()
    return Stream(iterator, lambda: tf.train.Checkpoint(iterator=iterator).write(str(path)))


def ours_seqio(spec: Spec) -> Stream:
    """SeqIO: `seqio.get_dataset` of what `register` registers, with this package's feature converter."""
    import ul2_tasks

    def of(name: str) -> str:
        source = ul2_tasks.open_source(f"megatron:{spec.root / name / 'documents'}")
        described = {"denoisers": DENOISERS[spec.case], "sentinels": SENTINELS}
        return ul2_tasks.register(f"ours_{spec.case}_{name}", source, vocabulary(), **described)

    names = {of(name): share for name, share in spec.corpora.items()}
    name = ul2_tasks.mix("ours_both", names) if spec.mixed else next(iter(names))
    return _seqio_batches(name, ul2_tasks.EncDecFeatureConverter(pack=spec.case == "packed"), spec)


def t5(spec: Spec) -> Stream:
    """The recipe of `t5.data.preprocessors`, a stock mixture, SeqIO's converter."""
    import seqio
    from recipe import add_t5_mixture, seqio_vocabulary, token_records

    pieces, sentinels = seqio_vocabulary()
    features = {key: seqio.Feature(pieces) for key in ("inputs", "targets")}

    def of(name: str) -> str:
        source, steps = token_records(spec.root / name)
        return add_t5_mixture(f"t5_{spec.case}_{name}", source, steps, features, DENOISERS[spec.case], sentinels)

    names = [(of(name), share) for name, share in spec.corpora.items()]
    if spec.mixed:
        seqio.MixtureRegistry.add("t5_both", names)
    name = "t5_both" if spec.mixed else names[0][0]
    return _seqio_batches(name, seqio.EncDecFeatureConverter(pack=spec.case == "packed"), spec)


@functools.cache
def _chunks(folder: pathlib.Path, length: int) -> np.ndarray:
    tokens = np.load(folder / "tokens.npy", mmap_mode="r")
    return tokens[: len(tokens) // length * length].reshape(-1, length)


class _Collate:
    """The published collators' algorithm, in a DataLoader's worker, too: each has a generator of its own."""

    def __init__(self, denoiser: Any):
        self._denoiser = denoiser
        self._random: np.random.Generator | None = None

    def __call__(self, rows: list[np.ndarray]) -> dict[str, np.ndarray]:
        import torch

        info = torch.utils.data.get_worker_info()
        self._random = self._random or np.random.default_rng([SEED, info.id if info else 0])
        return corrupt_batch(np.stack(rows), self._denoiser, self._random)


def _loader(dataset: Any, spec: Spec, collate: Callable, workers: int, **given: Any) -> Stream:
    """A DataLoader with what torch has for several processes; with torchdata's, which saves where it is."""
    import torch
    from torchdata.stateful_dataloader import StatefulDataLoader

    torch.manual_seed(SEED)
    sampler: Any = torch.utils.data.RandomSampler(dataset, generator=torch.Generator().manual_seed(SEED))
    if spec.world > 1:
        sampler = torch.utils.data.DistributedSampler(dataset, spec.world, spec.rank, shuffle=True, seed=SEED)
    loader = StatefulDataLoader(dataset, spec.batch, sampler=sampler, collate_fn=collate, num_workers=workers, **given)
    if spec.state:
        loader.load_state_dict(spec.state)
    epochs = [loader] if spec.once else itertools.repeat(loader)
    return Stream(itertools.chain.from_iterable(epochs), loader.state_dict)


def collator(spec: Spec, workers: int = 0) -> Stream:
    """A DataLoader over chunks, and the published collators' algorithm in NumPy."""
    return _loader(_chunks(spec.only_one(), fixed_chunk(spec.case, spec.length)), spec, _Collate(SPAN), workers)


def ul2_5(spec: Spec, workers: int = 0) -> Stream:
    """UL2_5's collator, from its checkout on PYTHONPATH, with T5Gemma 2's denoisers."""
    from UL2_5.collator_torch import UL25DataCollator
    from UL2_5.config import DenoiserSpec, Task, UL25Config

    chosen = DENOISERS[spec.case]
    specs = []
    for denoiser in chosen:
        if hasattr(denoiser, "mean_span_length"):
            rate, mean = denoiser.noise_density, denoiser.mean_span_length
            specs.append(DenoiserSpec(task=Task.SPAN, mu=mean, r=rate, prefix=denoiser.mode or ""))
        else:  # its suffix is a quarter or a random one: the nearest to three quarters
            specs.append(DenoiserSpec(task=Task.PREFIX_LONG, r=0.75, prefix=denoiser.mode or ""))
    config = UL25Config(denoisers=specs, weights=[denoiser.weight for denoiser in chosen], enable_length_adaptive=False)
    modes = {denoiser.mode: special(denoiser).mode[0] for denoiser in chosen if denoiser.mode}
    ids = {"<extra_id_0>": special(chosen[0]).sentinels[0], **modes}
    tokenizer = SimpleNamespace(convert_tokens_to_ids=ids.get, unk_token_id=None, eos_token_id=1, pad_token_id=0)
    collate = UL25DataCollator(tokenizer, config, max_length=spec.length, max_labels_length=spec.lengths["targets"])
    chunks = _chunks(spec.only_one(), fixed_chunk(spec.case, spec.length))
    return _loader(chunks, spec, lambda rows: collate([{"input_ids": row.astype(np.int64)} for row in rows]), workers)


def loop(spec: Spec) -> Stream:
    """A notebook's loop: one example at a time, in NumPy."""
    if spec.state or spec.world > 1:
        raise ImpossibleError("it is written by hand")
    folder, random = spec.only_one(), np.random.default_rng(SEED)
    chosen = DENOISERS[spec.case]
    rates = np.array([denoiser.weight for denoiser in chosen]) / sum(denoiser.weight for denoiser in chosen)

    def batches() -> Iterator[dict[str, np.ndarray]]:
        tokens, position, rows = np.load(folder / "tokens.npy", mmap_mode="r"), 0, []
        while not (spec.once and position == len(tokens)):
            denoiser = chosen[random.choice(len(chosen), p=rates)]
            chunk = tokens[position : position + solved(denoiser, spec.length).length]
            position = position + len(chunk) if spec.once or position + len(chunk) < len(tokens) else 0
            rows.append(corrupt(chunk, denoiser, special(denoiser), random))
            if len(rows) == spec.batch or (spec.once and position == len(tokens)):
                yield {key: padded([row[key] for row in rows], spec.lengths[key]) for key in ("inputs", "targets")}
                rows = []

    return Stream(batches())


def grain(spec: Spec, workers: int = 0) -> Stream:
    """grain's MapDataset of chunks, with a random map that corrupts one."""
    import absl.flags
    import grain as library

    class Corrupt(library.transforms.RandomMap):
        def random_map(self, element: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
            return corrupt(element, SPAN, special(SPAN), rng)

    sources = [
        library.MapDataset.source(_chunks(spec.root / name, fixed_chunk(spec.case, spec.length))).shuffle(seed=SEED)
        for name in spec.corpora
    ]
    dataset = sources[0]
    if spec.mixed:
        dataset = library.MapDataset.mix([source.repeat() for source in sources], [*SHARES.values()])
    elif not spec.once:
        dataset = dataset.repeat()
    dataset = dataset.seed(SEED).random_map(Corrupt())[spec.rank :: spec.world].batch(spec.batch)
    reading = dataset.to_iter_dataset(library.ReadOptions(num_threads=1, prefetch_buffer_size=8))
    if workers:
        absl.flags.FLAGS.mark_as_parsed()  # which its processes read
        reading = reading.mp_prefetch(library.multiprocessing.MultiprocessingOptions(num_workers=workers))
    iterator = iter(reading)
    if spec.state:
        iterator.set_state(spec.state)
    return Stream(iterator, iterator.get_state)


def _as_rank(spec: Spec) -> None:
    """One of the processes of this machine."""
    ranks = {"RANK": spec.rank, "LOCAL_RANK": spec.rank, "WORLD_SIZE": spec.world, "LOCAL_WORLD_SIZE": spec.world}
    os.environ.update({name: str(number) for name, number in ranks.items()})
    if spec.world > 1:
        import torch

        torch.distributed.init_process_group("gloo", rank=spec.rank, world_size=spec.world)


def streaming(spec: Spec) -> Stream:
    """MosaicML Streaming's dataset and loader over MDS, and the collator."""
    from streaming import Stream as Part
    from streaming import StreamingDataLoader, StreamingDataset

    _as_rank(spec)
    folder = f"mds_{fixed_chunk(spec.case, spec.length)}"
    parts = [Part(local=str(spec.root / name / folder), proportion=share) for name, share in spec.corpora.items()]
    where: dict[str, Any] = {"streams": parts} if spec.mixed else {"local": str(spec.root / "all" / folder)}
    dataset = StreamingDataset(**where, shuffle=True, shuffle_seed=SEED, batch_size=spec.batch, num_canonical_nodes=2)
    collate = _Collate(SPAN)
    loader = StreamingDataLoader(
        dataset, batch_size=spec.batch, collate_fn=lambda rows: collate([row["tokens"].astype(np.int32) for row in rows])
    )
    if spec.state:
        loader.load_state_dict(spec.state)
    return Stream(itertools.chain.from_iterable([loader] if spec.once else itertools.repeat(loader)), loader.state_dict)


def litdata(spec: Spec) -> Stream:
    """litData's dataset of tokens and its loader, and the collator."""
    import torch
    from litdata import CombinedStreamingDataset, StreamingDataLoader, StreamingDataset, TokensLoader

    _as_rank(spec)
    parts = [
        StreamingDataset(
            str(spec.root / name / "litdata"),
            item_loader=TokensLoader(block_size=fixed_chunk(spec.case, spec.length)),
            shuffle=True,
            seed=SEED,
            drop_last=not spec.once,
        )
        for name in spec.corpora
    ]
    mixed = {"weights": [*SHARES.values()], "iterate_over_all": False, "seed": SEED}
    dataset = CombinedStreamingDataset(parts, **mixed) if spec.mixed else parts[0]
    collate = _Collate(SPAN)
    torch.manual_seed(SEED)
    loader = StreamingDataLoader(
        dataset, batch_size=spec.batch, collate_fn=lambda rows: collate([np.asarray(row, np.int32) for row in rows])
    )
    if spec.state:
        loader.load_state_dict(spec.state)
    return Stream(itertools.chain.from_iterable([loader] if spec.once else itertools.repeat(loader)), loader.state_dict)


def megatron(spec: Spec) -> Stream:
    """megatron-core's T5 dataset, and its blend; samples by number, as its samplers read them."""
    import torch
    from megatron.core.datasets.blended_dataset import BlendedDataset
    from megatron.core.datasets.indexed_dataset import IndexedDataset
    from megatron.core.datasets.t5_dataset import T5MaskedWordPieceDataset, T5MaskedWordPieceDatasetConfig
    from megatron.core.datasets.utils import Split

    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo", init_method=f"file://{spec.root}/gloo_{os.getpid()}", rank=0, world_size=1)
    ids = special(SPAN)
    size = vocabulary().vocab_size

    tokenizer = SimpleNamespace(
        vocab_size=size,
        inv_vocab={number: str(number) for number in range(size)},
        vocab={str(number): number for number in range(size)},
        **{"cls": size, "sep": size + 1, "pad": 0, "eos": ids.eos, "bos": size + 2, "mask": size + 3},
        additional_special_tokens_ids=list(ids.sentinels),
        unique_identifiers={"class": "the default vocabulary"},
    )
    wanted = None if spec.once else 1 << 18
    config = T5MaskedWordPieceDatasetConfig(
        random_seed=SEED + 1,
        sequence_length=spec.length,
        sequence_length_decoder=spec.length,
        path_to_cache=str(spec.root / "megatron"),
        tokenizer=tokenizer,
        blend=([str(spec.root / name / "sentences") for name in spec.corpora], [*spec.corpora.values()]),
        split="1",
        masking_probability=SPAN.noise_density,
        short_sequence_probability=0.0,
        masking_max_ngram=10,
        masking_do_full_word=False,
        masking_do_permutation=False,
        masking_use_longer_ngrams=False,
        masking_use_geometric_distribution=True,
    )
    parts = []
    for name in spec.corpora:
        path = str(spec.root / name / "sentences")
        indexed = IndexedDataset(path)
        documents = np.arange(len(indexed.document_indices) - 1, dtype=np.int32)
        parts.append(T5MaskedWordPieceDataset(indexed, path, documents, wanted, Split.train, config))
    dataset = BlendedDataset(parts, [*SHARES.values()], wanted, config) if spec.mixed else parts[0]
    state = {"consumed_samples": spec.state["consumed_samples"] if spec.state else 0}

    def batches() -> Iterator[dict[str, np.ndarray]]:
        while state["consumed_samples"] < len(dataset):
            first = state["consumed_samples"] + spec.rank * spec.batch
            rows = [dataset[number] for number in range(first, min(first + spec.batch, len(dataset)))]
            state["consumed_samples"] += spec.world * spec.batch
            yield torch.utils.data.default_collate(rows)

    return Stream(batches(), lambda: dict(state))


def copied(spec: Spec) -> Stream:
    """What no loader can go below: a batch of ours is copied again and again."""
    batch = {key: np.array(values) for key, values in next(ours_arrays(spec).batches).items()}
    return Stream({key: values.copy() for key, values in batch.items()} for _ in itertools.count())


SIDES: dict[str, tuple[Callable[[Spec], Stream], tuple[str, ...]]] = {
    "ul2_tasks, PyTorch": (ours, ("span", "ul2", "packed")),
    "ul2_tasks, PyTorch, 2 workers": (functools.partial(ours, workers=2), ("span", "ul2", "packed")),
    "ul2_tasks, SeqIO": (ours_seqio, ("span", "ul2", "packed")),
    "ul2_tasks, arrays": (ours_arrays, ("span", "ul2", "packed")),
    "t5 0.9.4, SeqIO": (t5, ("span", "ul2", "packed")),
    "UL2_5": (ul2_5, ("span", "ul2")),
    "UL2_5, 2 workers": (functools.partial(ul2_5, workers=2), ("span", "ul2")),
    "NumPy loop": (loop, ("span", "ul2")),
    "T5 collator": (collator, ("span",)),
    "T5 collator, 2 workers": (functools.partial(collator, workers=2), ("span",)),
    "grain": (grain, ("span",)),
    "grain, 2 processes": (functools.partial(grain, workers=2), ("span",)),
    "Streaming + collator": (streaming, ("span",)),
    "litData + collator": (litdata, ("span",)),
    "Megatron-LM, T5 dataset": (megatron, ("span",)),
    "copy of memory": (copied, ("span", "ul2")),
}
