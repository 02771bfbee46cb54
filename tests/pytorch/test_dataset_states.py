"""Where iterable datasets begin, and what their states say: after an end, a look, a copy, workers, another batch size.

kinds   single examples, batches, packed rows, conversations, a cache by its name, batches of windows, rows of images
events  the tests
"""

import copy
import itertools
import pickle
import random
import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

import seqio  # noqa: E402
from torchdata.stateful_dataloader import StatefulDataLoader  # noqa: E402

import ul2_tasks  # noqa: E402
from tests.image_sources import FORM, ids, made, source  # noqa: E402
from ul2_tasks import (  # noqa: E402
    Chat,
    HuggingFaceChatConverter,
    HuggingFaceFeatureConverter,
    ImageTextDataset,
    Mixture,
    UL2IterableDataset,
)
from ul2_tasks.image_rows.problems import RecordError  # noqa: E402
from ul2_tasks.random_access import windows  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:This DataLoader will create", "ignore:UL2IterableDataset. another pass"),
]
LENGTHS = {"inputs": 64, "targets": 48}
BATCH = 4
ALL = ["single", "batches", "packed", "chats", "images", "cache", "windows"]


def letters() -> list[str]:
    return ["".join(random.Random(number).choices("abcdefghijklmnopqrstuvwxyz ", k=200)) for number in range(23)]


DENOISERS = ul2_tasks.T5GEMMA2[:1]
TEXTS = ul2_tasks.MemoryDataSource(letters, validation=0)


@pytest.fixture(scope="module")
def pipelines(tmp_path_factory):
    folder, before = str(tmp_path_factory.mktemp("cache")), seqio.get_global_cache_dirs()
    mixture = Mixture("torch_states", TEXTS, denoisers=DENOISERS)
    mixture.cache(folder)
    name = ul2_tasks.register("torch_states", TEXTS, denoisers=DENOISERS)
    seqio.set_global_cache_dirs([folder])
    chats = Chat("torch_states_talks", truncation="drop")
    yield {
        "single": ul2_tasks.examples(mixture, LENGTHS),
        "packed": ul2_tasks.examples(mixture, LENGTHS, pack=True),
        "chats": ul2_tasks.examples(chats, {"tokens": 512}),
        "cache": name,
        "windows": mixture,
    }
    seqio.set_global_cache_dirs(before)


@pytest.fixture
def new(pipelines):
    """Makes a dataset of a kind, of one pass."""

    def make(kind: str, batch: int = BATCH, **settings: Any) -> Any:
        if kind == "images":
            more = {"pool": 6, "rank": 0, "world_size": 1} | {key: settings[key] for key in settings if key != "batch_size"}
            return ImageTextDataset(source(made(25)), FORM, ids, {"tokens": 150, "vit": 100, "vae": 120}, num_epochs=1, **more)
        lengths = {"sequence_length": LENGTHS} if kind in ("cache", "windows") else {}
        of_name = lengths | ({"use_cached": True} if kind == "cache" else {})
        padded = HuggingFaceFeatureConverter("longest", batch) if kind in ("batches", "cache", "windows") else None
        converter = HuggingFaceChatConverter(pack=False) if kind == "chats" else padded
        settings = {"num_epochs": 1} | {key: value for key, value in settings.items() if key != "batch_size" or padded is None}
        mixture = pipelines["single" if kind == "batches" else kind]
        if kind == "windows":
            seqio.set_global_cache_dirs([])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(windows, "WINDOW_TOKENS", 700)
            return UL2IterableDataset(mixture, feature_converter=converter, **of_name, **settings)

    before = seqio.get_global_cache_dirs()
    yield make
    seqio.set_global_cache_dirs(before)


def plain(elements) -> list[str]:
    """Each element in words; of a batch of elements each of them."""
    lists = (each if isinstance(each, list) else [each] for each in elements)
    return [str({key: in_words(value) for key, value in element.items()}) for element in itertools.chain(*lists)]


def in_words(value: Any) -> str:
    return str(value.tolist() if isinstance(value, torch.Tensor) else value)


def read(loader, count: int | None = None) -> list[str]:
    return plain(itertools.islice(iter(loader), count))


def loader(dataset, workers: int = 2, of=torch.utils.data.DataLoader, **settings):
    joins = getattr(dataset, "_in_a_row", 1) > getattr(dataset, "_joined", 1)
    how = {"batch_size": BATCH, "collate_fn": list} if joins else {"batch_size": None}
    return of(dataset, num_workers=workers, **how, **settings)


def used(dataset, count: int):
    """A dataset whose iterator has given so many elements, and that iterator."""
    iterator = iter(dataset)
    assert len(read(iterator, count)) == count
    return iterator


@pytest.mark.parametrize("kind", ALL)
def test_at_an_end_nothing_is_left_and_the_next_pass_is_whole(new, kind):
    first, again = new(kind), new(kind)
    whole = read(first)
    assert len(whole) > 5
    again.load_state_dict(pickle.loads(pickle.dumps(first.state_dict())))
    assert [read(again), read(again), read(again)] == [[], whole, whole]


@pytest.mark.parametrize("kind", ALL)
def test_a_look_changes_no_beginning_and_a_second_pass_is_whole(new, kind):
    first, again = new(kind), new(kind)
    rest = read(used(first, 3))
    first = new(kind)
    used(first, 3)
    again.load_state_dict(first.state_dict())
    for _ in range(2):
        assert read(again, 1) == rest[:1]
    assert read(loader(again, 0)) == rest
    assert read(again)[3:] == rest


def pickled(given):
    return pickle.loads(pickle.dumps(given))


@pytest.mark.parametrize(
    ("kind", "copied"), [*itertools.product(["batches", "images"], [copy.copy, copy.deepcopy, pickled]), ("windows", pickled)]
)
def test_a_copy_has_the_state_and_the_beginning_and_no_say(new, kind, copied):
    original = new(kind)
    iterator = used(original, 3)
    state = original.state_dict()
    other = copied(original)
    assert other.state_dict() == state
    assert read(other, 2) == read(new(kind), 2)
    assert original.state_dict() == state
    rest = read(iterator)
    other.load_state_dict(state)
    another = copied(other)
    assert another.state_dict() == state
    assert [read(another), read(other, 2)] == [rest, rest[:2]]


@pytest.mark.parametrize("kind", ["single", "images"])
def test_passes_of_workers_begin_once_where_it_was_loaded(new, kind):
    dataset = new(kind, batch_size=BATCH)
    whole = read(dataset)
    dataset = new(kind, batch_size=BATCH)
    used(dataset, BATCH)
    state = dataset.state_dict()

    for persistent in (False, True):
        resumed = new(kind, batch_size=BATCH)
        resumed.load_state_dict(state)
        read(resumed, 1)
        workers = loader(resumed, persistent_workers=persistent)
        assert [sorted(read(workers)) for _ in range(3)] == [sorted(whole[BATCH:]), *[sorted(whole)] * 2]
    assert sorted(read(loader(resumed, 3))) == sorted(whole)
    resumed.load_state_dict(state)  # which workers that stay do not see
    with pytest.raises(ValueError, match="load_state_dict must be called before the workers start"):
        read(workers)
    assert sorted(read(loader(resumed, 3))) == sorted(whole[BATCH:])


@pytest.mark.parametrize("kind", ["batches", "images"])
def test_what_workers_read_is_in_no_state_of_the_main_process(new, kind):
    dataset = new(kind)
    used(dataset, 1)  # a look
    for asked in (dataset, copy.deepcopy(dataset)):
        assert read(loader(asked), 4)
        for each in (asked, copy.deepcopy(asked)):
            with pytest.raises(ValueError, match="StatefulDataLoader"):
                each.state_dict()
        used(asked, 2)
        assert asked.state_dict() == copy.deepcopy(asked).state_dict()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["single", "windows", "images"])
def test_a_stateful_loader_goes_on_in_the_middle_and_at_an_end(new, kind, workers):
    def stateful():
        return loader(new(kind, batch_size=BATCH), workers, StatefulDataLoader)

    whole = list(stateful())
    assert kind != "single" or len(plain(new(kind, 1))) % (2 * BATCH)
    for given in (len(whole) // 2, len(whole)):
        begun = stateful()
        iterator = iter(begun)
        assert plain(itertools.islice(iterator, given)) == plain(whole[:given])
        if given == len(whole):
            assert next(iterator, None) is None
        resumed = stateful()
        resumed.load_state_dict(pickle.loads(pickle.dumps(begun.state_dict())))
        rest = [] if given == len(whole) else [plain(whole[given:])]
        assert [plain(resumed) for _ in range(len(rest) + 1)] == [*rest, plain(whole)]


@pytest.mark.parametrize("kind", ["batches", "cache"])
def test_another_batch_size_goes_on_with_the_next_example(new, kind):
    first = new(kind)
    used(first, 3)
    examples = [str(row["labels"].tolist()) for row in new("single")]
    for batch, processes in ((2, 2), (6, 1), (1, 3)):
        shares = [new(kind, batch, rank=rank, world_size=processes) for rank in range(processes)]
        for share in shares:
            share.load_state_dict(first.state_dict())
        steps = itertools.zip_longest(*map(list, shares), fillvalue={"labels": []})
        labels = [row[row != -100] for step in steps for each in step for row in each["labels"]]
        assert [str(each.tolist()) for each in labels] == examples[3 * BATCH :]
        assert {share.state_dict()["number"] for share in shares} == {len(examples)}


@pytest.mark.parametrize("kind", ["single", "packed", "chats"])
def test_a_state_is_of_whole_batches_where_several_read_in_turn(new, kind):
    shares = [new(kind, batch_size=BATCH, rank=rank, world_size=2) for rank in range(2)]
    whole = read(new(kind))
    iterators = [used(share, BATCH) for share in shares]
    assert [share.state_dict()["number"] for share in shares] == [2 * BATCH] * 2
    read(iterators[0], 1)
    with pytest.raises(ValueError, match="batch_size"):
        shares[0].state_dict()
    assert read(iterators[0]) + read(iterators[1])
    for share in shares:
        assert share.state_dict()["number"] == len(whole)


@pytest.mark.parametrize("kind", ["single", "batches"])
@pytest.mark.parametrize(("processes", "workers"), [(1, 3), (2, 2)])
def test_a_step_has_the_same_examples_on_any_processes_and_workers(new, kind, processes, workers):
    """From a number on, of each process its share of every step of 24."""
    own, first, elements = 24 // processes, 48, 24 if kind == "single" else processes
    loaders = []
    for rank in range(processes):
        dataset = new(kind, own, batch_size=own, num_epochs=None, rank=rank, world_size=processes)
        dataset.load_state_dict({**dataset.state_dict(), "number": first})
        how = {"batch_size": own, "collate_fn": list} if kind == "single" else {"batch_size": None}
        loaders.append(torch.utils.data.DataLoader(dataset, num_workers=workers, **how))
    wanted = read(new(kind, own, num_epochs=None), 5 * elements)[2 * elements :]
    steps = [sorted(plain(step)) for step in itertools.islice(zip(*loaders), 3)]
    assert steps == [sorted(wanted[number * elements : (number + 1) * elements]) for number in range(3)]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["single", "packed"])
def test_a_step_of_processes_that_each_read_all_has_the_next_numbers(new, kind, workers):
    """What Trainer does with dispatch_batches=False: workers take the batches of all processes; a resume by the index of a step."""
    shard = pytest.importorskip("accelerate.data_loader").IterableDatasetShard
    of_step, first = 2 * BATCH, 2

    def steps(first: int) -> list[list[str]]:
        loaders = []
        for rank in range(2):
            dataset = new(kind, batch_size=of_step, num_epochs=None, rank=0, world_size=1)
            dataset.load_state_dict({**dataset.state_dict(), "number": first * of_step})
            share = shard(dataset, BATCH, num_processes=2, process_index=rank)
            loaders.append(torch.utils.data.DataLoader(share, BATCH, collate_fn=list, num_workers=workers))
        return [plain(itertools.chain(*step)) for step in itertools.islice(zip(*loaders), 5)]

    whole = read(new(kind, num_epochs=None), 7 * of_step)
    assert [*steps(0)[:first], *steps(first)] == [whole[start : start + of_step] for start in range(0, len(whole), of_step)]


def test_an_error_is_no_end(new):
    """A record that cannot be read: what comes then is the error again, and no end."""
    records = [*made(4), {"image": b"none", "captions": "a"}, *made(4)]
    rows = iter(ImageTextDataset(source(records), FORM, ids, {"tokens": 150, "vit": 100, "vae": 120}, pool=3, num_epochs=1))
    for _ in range(2):
        with pytest.raises(RecordError):
            list(rows)


@pytest.mark.parametrize("kind", ["single", "batches", "packed", "chats", "images"])
def test_an_element_that_is_kept_keeps_no_other(new, kind):
    for element in [*itertools.islice(new(kind), 3)]:
        for key, value in element.items():
            assert not isinstance(value, torch.Tensor) or value.untyped_storage().nbytes() == value.nbytes, key


def test_another_pass_over_the_same_is_told_once(new):
    dataset = new("single")
    assert read(dataset)
    with pytest.warns(UserWarning, match="num_epochs"):
        read(dataset)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(dataset)
