"""`UL2IterableDataset` of a description: what it gives of the name, in the same order."""

import itertools
import random

import pytest
import seqio

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

import ul2_tasks  # noqa: E402
from ul2_tasks import EncDecFeatureConverter, HuggingFaceFeatureConverter, Mixture, UL2IterableDataset  # noqa: E402
from ul2_tasks.random_access import windows  # noqa: E402

pytestmark = pytest.mark.torch

LENGTHS = {"inputs": 64, "targets": 48}
SETTINGS = {"separate_documents": True}
CONVERTERS = {
    "single": None,
    "longest": HuggingFaceFeatureConverter("longest", 4, pad_token_id=7, decoder_start_token_id=2),
    "max_length": HuggingFaceFeatureConverter(),
    "one row": HuggingFaceFeatureConverter("longest", 3, decoder_only=True),
}


def letters() -> list[str]:
    return ["".join(random.Random(number).choices("abcdefghijklmnopqrstuvwxyz ", k=300)) for number in range(120)]


@pytest.fixture(scope="module")
def mixture():
    return Mixture("torch_told", ul2_tasks.MemoryDataSource(letters, validation=0), **SETTINGS)


@pytest.fixture(scope="module")
def cache(mixture, tmp_path_factory):
    folder, before = tmp_path_factory.mktemp("cache"), seqio.get_global_cache_dirs()
    mixture.cache(folder)
    ul2_tasks.register("torch_told", ul2_tasks.MemoryDataSource(letters, validation=0), **SETTINGS)
    seqio.set_global_cache_dirs([str(folder)])
    yield str(folder)
    seqio.set_global_cache_dirs(before)


def named(**settings) -> UL2IterableDataset:
    return UL2IterableDataset("torch_told_mix", LENGTHS, **{"seed": 5, "use_cached": True, **settings})


def told(elements) -> list:
    return [{key: (values.dtype, values.tolist()) for key, values in element.items()} for element in elements]


@pytest.mark.parametrize("kind", CONVERTERS)
def test_it_gives_what_the_name_gives(mixture, cache, kind):
    for process in ({}, {"rank": 1, "world_size": 3}):
        settings = {"feature_converter": CONVERTERS[kind], "num_epochs": 2, **process}
        described, same = UL2IterableDataset(mixture, LENGTHS, seed=5, cache_dirs=[cache], **settings), named(**settings)
        found, wanted = told(described), told(same)
        assert found == wanted
        assert len(found) > 20
        assert described.state_dict() == same.state_dict()


def test_what_examples_returned_is_read_with_its_own_settings(mixture, cache):
    rows = ul2_tasks.examples(mixture, LENGTHS, seed=5, pack=True, shuffle=False, cache_dirs=[cache])
    dataset = UL2IterableDataset(rows, num_epochs=1)
    found = list(dataset)
    assert len(found) == len(rows)
    for row, same in zip(found, rows):
        assert {key: values.tolist() for key, values in row.items()} == {key: values.tolist() for key, values in same.items()}
        assert {values.dtype for values in row.values()} == {torch.int64}
    second = UL2IterableDataset(rows.epoch(1))
    assert second.state_dict()["number"] == len(rows)
    assert next(iter(second))["inputs"].tolist() == rows.epoch(1)[0]["inputs"].tolist()
    of_name = UL2IterableDataset(ul2_tasks.examples("torch_told_mix", LENGTHS, seed=5))
    assert told(itertools.islice(iter(of_name), 5)) == told(itertools.islice(iter(named()), 5))


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_a_stage_in_windows_begins_at_its_step_on_any_number_of_processes(monkeypatch, processes):
    monkeypatch.setattr(windows, "WINDOW_TOKENS", 5000)
    first, second = (Mixture(f"staged_{name}", ul2_tasks.MemoryDataSource(letters, validation=0)) for name in "ab")
    stages = [ul2_tasks.Stage(0, {first: 1}), ul2_tasks.Stage(5, {first: 1, second: 1})]
    staged = ul2_tasks.Mix("staged", schedule=stages, batch_size=16, steps=20)
    converter = HuggingFaceFeatureConverter("longest", 16 // processes, task_id=True)
    for rank in range(processes):
        dataset = UL2IterableDataset(staged, LENGTHS, feature_converter=converter, rank=rank, world_size=processes)
        tasks = [
            {dataset.tasks[id].corpus for id in batch["task_id"].unique() if id >= 0} for batch in itertools.islice(dataset, 7)
        ]
        assert tasks == [{"staged_a_corpus"}] * 5 + [{"staged_a_corpus", "staged_b_corpus"}] * 2
        assert "windows" in dataset.state_dict()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"use_cached": True}, "use_cached"),
        ({"sequence_length": None}, "sequence_length"),
        ({"seed": None}, "seed"),
        ({"shuffle": 0}, "shuffle"),
        ({"num_epochs": 0}, "num_epochs"),
        ({"feature_converter": EncDecFeatureConverter()}, "feature_converter"),
        ({"feature_converter": HuggingFaceFeatureConverter(span_id=True)}, "feature_converter"),
        ({"mixture": "ul2_mix", "cache_dirs": ["CACHE"]}, "cache_dirs"),
    ],
)
def test_arguments_that_do_not_go_with_the_mixture_are_refused(mixture, arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        UL2IterableDataset(**{"mixture": mixture, "sequence_length": LENGTHS, **arguments})
