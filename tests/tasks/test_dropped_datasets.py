"""A dataset that is dropped leaves nothing of this package behind: a program may make as many as it likes."""

import gc
import json

import pytest
import seqio

import ul2_tasks
from ul2_tasks import T5GEMMA2, EncDecFeatureConverter, MemoryDataSource
from ul2_tasks.random_access import windows

LENGTHS = {"inputs": 64, "targets": 64}
TEXTS = [f"document {number} of some, and it has a few words more" for number in range(200)]


@pytest.fixture(scope="module", autouse=True)
def registered(tmp_path_factory):
    path = tmp_path_factory.mktemp("files") / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    for name, source in (("in_memory", MemoryDataSource(lambda: TEXTS, validation=0)), ("in_windows", str(path))):
        ul2_tasks.register(name, source, denoisers=T5GEMMA2[:1])


def examples(name, seed):
    return seqio.get_mixture_or_task(f"{name}_mix").get_dataset(LENGTHS, "train", seed=seed, num_epochs=None)


def rows(name, seed):
    converter = EncDecFeatureConverter()
    return seqio.get_dataset(f"{name}_mix", LENGTHS, converter, "train", shuffle=True, seed=seed, num_epochs=None)


@pytest.mark.parametrize(("make", "name"), [(rows, "in_memory"), (examples, "in_windows")])
def test_twenty_leave_as_much_as_two(make, name, monkeypatch):
    monkeypatch.setattr(windows, "WINDOW_TOKENS", 500 if name == "in_windows" else windows.WINDOW_TOKENS)
    left = []
    for seed in range(20):
        next(iter(make(name, seed)))
        if seed in (1, 19):
            gc.collect()
            left.append(sum(str(type(each).__module__).startswith("ul2_tasks") for each in gc.get_objects()))
    assert left[0] == left[1]
