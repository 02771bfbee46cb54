"""`UL2IterableDataset` where examples have numbers: the same batches on any processes and workers, and a state that is a number."""

import importlib.util
import itertools
import json
import pathlib
import pickle
import random

import new_process
import pytest
import seqio
from rich.console import Console
from support import byte_vocabulary

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

import ul2_tasks  # noqa: E402
from ul2_tasks import (  # noqa: E402
    T5GEMMA2,
    HuggingFaceFeatureConverter,
    MemoryDataSource,
    UL2IterableDataset,
)
from ul2_tasks.corpus.build_cache import build  # noqa: E402

pytestmark = pytest.mark.torch

BYTES, MODES = byte_vocabulary()
LENGTHS = {"inputs": 64, "targets": 64}
BATCH = 24  # of all processes
SECONDS = 240


def letters() -> list[str]:
    return ["".join(random.Random(number).choices("abcdefghijklmnopqrstuvwxyz ", k=300)) for number in range(200)]


def numbered(cache) -> str:
    seqio.set_global_cache_dirs([str(cache)])
    return ul2_tasks.register("torch_numbers", MemoryDataSource(letters, validation=0), BYTES, T5GEMMA2[:1], modes=MODES)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    folder, before = tmp_path_factory.mktemp("cache"), seqio.get_global_cache_dirs()
    numbered(folder)
    build("torch_numbers_corpus", str(folder), console=Console(quiet=True))
    yield folder
    seqio.set_global_cache_dirs(before)


@pytest.fixture(scope="module")
def sequence(cache):
    return ul2_tasks.examples("torch_numbers_mix", LENGTHS, seed=5)


def dataset(**settings) -> UL2IterableDataset:
    return UL2IterableDataset("torch_numbers_mix", LENGTHS, **{"seed": 5, "use_cached": True, **settings})


def rows_of(batch) -> list:
    """The examples of a padded batch, or of a list of single ones."""
    if isinstance(batch, list):
        return [[row["input_ids"].tolist(), row["labels"].tolist()] for row in batch]
    return [
        [ids[mask.bool()].tolist(), labels[labels != -100].tolist()]
        for ids, mask, labels in zip(batch["input_ids"], batch["attention_mask"], batch["labels"])
    ]


def loader(rank, world_size, workers, is_joined_by_loader, number=0):
    """What one process reads with, from a number on."""
    own = BATCH // world_size
    if is_joined_by_loader:
        some = dataset(rank=rank, world_size=world_size, batch_size=own)
    else:
        some = dataset(rank=rank, world_size=world_size, feature_converter=HuggingFaceFeatureConverter("longest", own))
    some.load_state_dict({**some.state_dict(), "number": number})
    settings = {"batch_size": own, "collate_fn": list} if is_joined_by_loader else {"batch_size": None}
    return torch.utils.data.DataLoader(some, num_workers=workers, **settings)


# Processes, workers, and whether the DataLoader joins single examples. (Processes without workers are in the tests below.)
WAYS = [(1, 3, False), (2, 2, True)]


BEGINNING = 5 * BATCH


def read_by_workers(cache, to) -> None:
    """The batches of three steps from a number on: of each way, each process and each step; and what two loaders give.

    TensorFlow runs in this process only at the end.
    """
    numbered(cache)
    told = {"ways": [shares(*way, BEGINNING) for way in WAYS]}
    if importlib.util.find_spec("torchdata"):
        told["resumed"] = [first_and_resumed(workers) for workers in (2, 0)]
    pathlib.Path(to).write_text(json.dumps(told))


def first_and_resumed(workers) -> tuple[list, list]:
    """A StatefulDataLoader begins, and another one is loaded with its state."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    def new():
        converter = HuggingFaceFeatureConverter("longest", batch_size=2)
        return StatefulDataLoader(dataset(feature_converter=converter), batch_size=None, num_workers=workers)

    original, loaded = new(), new()
    iterator = iter(original)
    first = [rows_of(next(iterator)) for _ in range(7)]
    loaded.load_state_dict(original.state_dict())
    return first, [rows_of(batch) for batch in itertools.islice(loaded, 10)]


def shares(world_size, workers, joined, number) -> list:
    loaders = [loader(rank, world_size, workers, joined, number) for rank in range(world_size)]
    return [[rows_of(batch) for batch in itertools.islice(one, 3)] for one in loaders]


@pytest.fixture(scope="module")
def read(cache, tmp_path_factory) -> dict:
    """What a new process reads, in which TensorFlow did not run yet, so that workers can be forked."""
    to = tmp_path_factory.mktemp("read") / "told"
    code = f"import sys; sys.path[:0] = {new_process.FOLDERS}; import test_torch_numbers as t; t.read_by_workers(*sys.argv[1:])"
    new_process.run("-c", code, cache, to, check=True, timeout=SECONDS)
    return json.loads(to.read_text())


def test_a_step_has_the_same_examples_on_any_processes_and_workers(sequence, read):
    for way, of_processes in zip(WAYS, read["ways"], strict=True):
        for step, batches in enumerate(zip(*of_processes, strict=True)):
            first = BEGINNING + step * BATCH
            wanted = [[example["inputs"].tolist(), example["targets"].tolist()] for example in sequence[first : first + BATCH]]
            assert sorted(itertools.chain(*batches)) == sorted(wanted), (way, step)
            assert {len(batch) for batch in batches} == {BATCH // len(of_processes)}


@pytest.mark.parametrize("converter", [None, HuggingFaceFeatureConverter("longest", batch_size=4)])
def test_a_state_is_a_number_which_any_processes_load(cache, converter):
    original = dataset(feature_converter=converter)
    iterator = iter(original)
    assert original.state_dict()["number"] == 0
    for _ in range(10):
        next(iterator)
    state = pickle.loads(pickle.dumps(original.state_dict()))
    assert state["number"] == (40 if converter else 10)
    assert len(pickle.dumps(state)) < 5_000
    others = [dataset(feature_converter=converter, rank=rank, world_size=2) for rank in range(2)]
    wanted = [next(iterator) for _ in range(8)]
    found = []
    for other in others:
        other.load_state_dict(state)
        assert other.state_dict() == state
        read = iter(other)
        found.append([next(read) for _ in range(4)])
        assert other.state_dict()["number"] == state["number"] + 4 * 2 * (4 if converter else 1)
    assert list(map(str, itertools.chain(*zip(*found)))) == list(map(str, wanted))


def test_a_stateful_data_loader_resumes_all_of_its_workers(sequence, read):
    pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed")
    rows = [[example["inputs"].tolist(), example["targets"].tolist()] for example in sequence[:34]]
    for first, resumed in read["resumed"]:
        assert list(itertools.chain(*first, *resumed)) == rows
