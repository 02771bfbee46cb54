"""Objects of Hugging Face's `datasets` as sources: which rows they give, and what they are known by."""

import json
import subprocess
import sys

import datasets
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ul2_tasks
from tests.support import records_of

TEXTS = [f"document {number} of a corpus, with some words " * (number % 3 + 1) for number in range(40)]


def rows(texts=TEXTS):
    return {"text": texts, "id": [f"id-{number}" for number in range(len(texts))]}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    for part in range(4):
        lines = [json.dumps({"text": text, "id": f"id-{number}"}) for number, text in enumerate(TEXTS)][part * 10 : part * 10 + 10]
        (folder / f"{part}.jsonl").write_text("\n".join(lines))
    return str(folder / "*.jsonl")


def streamed(files):
    return datasets.load_dataset("json", data_files=files, split="train", streaming=True)


def read(dataset, split="train", **arguments):
    return records_of(ul2_tasks.open_source(dataset, **arguments), split)


def texts(dataset, **arguments):
    return [record.text.decode() for record in read(dataset, **arguments)]


@settings(max_examples=20, deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8")), max_size=200), st.integers(0, 3))
def test_every_row_comes_once_in_order_with_its_number(texts, seed):
    dataset = datasets.Dataset.from_dict({"text": texts}, features=datasets.Features({"text": datasets.Value("string")}))
    dataset = dataset.shuffle(seed=seed) if seed else dataset
    found = read(dataset)
    assert [record.text.decode() for record in found] == dataset["text"][:]
    assert [record.where.row for record in found] == list(range(len(texts)))


STEPS = {
    "take": lambda dataset: dataset.take(13),
    "filter by number": lambda dataset: dataset.filter(lambda row, number: number < 7, with_indices=True),
    "map in batches": lambda dataset: dataset.map(lambda batch: {"text": batch["text"][:1]}, batched=True, remove_columns=["id"]),
    "shuffle and take": lambda dataset: dataset.shuffle(seed=3, buffer_size=10).take(9),
    "interleaved at random": lambda dataset: datasets.interleave_datasets([dataset, dataset], probabilities=[0.3, 0.7], seed=5),
}


@pytest.mark.parametrize("step", STEPS)
def test_the_shards_of_an_iterable_have_its_rows(files, step):
    dataset = STEPS[step](streamed(files))
    if step == "map in batches":  # 10 rows of a file are a batch
        assert sorted(texts(dataset)) == sorted(TEXTS[::10])
    else:
        assert sorted(texts(dataset)) == sorted(row["text"] for row in dataset)


@pytest.mark.torch
def test_each_worker_of_a_loader_reads_all_rows_that_it_is_asked_for(files, tmp_path):
    """An `IterableDataset` that is iterated in a worker leaves out the shards of others, of which there are none here."""
    data = pytest.importorskip("torch.utils.data", reason="the extra torch is not installed")

    class Read(data.IterableDataset):
        def __init__(self, source):
            self.source = source

        def __iter__(self):
            return (record.text.decode() for record in records_of(self.source))

    datasets.Dataset.from_list(list(streamed(files))).save_to_disk(tmp_path / "saved")
    for spec, count in ((streamed(files), 40), (streamed(files).take(13), 13), (f"hf:{tmp_path}/saved", 40)):
        source = ul2_tasks.open_source(spec)
        here, there = sorted(Read(source)), sorted(data.DataLoader(Read(source), batch_size=None, num_workers=2))
        assert (len(here), there) == (count, sorted(2 * here))


FORMS = {
    "iterable": streamed,
    "dictionary": lambda files: {"train": datasets.Dataset.from_dict(rows())},
    "formatted": lambda files: datasets.Dataset.from_dict(rows()).with_format("numpy"),
    "as tables": lambda files: datasets.Dataset.from_dict(rows()).with_format("arrow"),
    "transformed": lambda files: datasets.Dataset.from_dict({"body": TEXTS}).with_transform(lambda batch: {"text": batch["body"]}),
    "with indices": lambda files: datasets.Dataset.from_dict(rows([*TEXTS, "?"])).select([*range(40)]),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_texts_are_those_of_the_rows(files, form):
    assert texts(FORMS[form](files)) == TEXTS


PROGRAM = """
import sys, datasets, ul2_tasks
datasets.disable_progress_bars()
files, cache = sys.argv[1:]
loaded = datasets.load_dataset("json", data_files=files, split="train", cache_dir=cache)
streamed = datasets.load_dataset("json", data_files=files, split="train", streaming=True)
filtered, in_memory = loaded.filter(lambda row: "7" in row["text"]), datasets.Dataset.from_dict({"text": ["a"]})
for each in (loaded, filtered, in_memory, streamed, streamed.take(3)):
    print(ul2_tasks.open_source(each).identity)
"""


def test_a_dataset_is_known_by_the_same_words_in_each_process_and_no_other_by_them(files, tmp_path):
    run = [sys.executable, "-c", PROGRAM, files, str(tmp_path)]
    one, other = (subprocess.run(run, check=True, capture_output=True, text=True).stdout.splitlines() for _ in range(2))
    assert one == other
    assert len(set(one)) == len(one) == 5


def test_bad_rows_are_problems_of_their_rows():
    held = datasets.Dataset.from_dict({"text": ["a", None]})
    for dataset in (held, datasets.IterableDataset.from_generator(lambda: iter([{"text": 3}]))):
        (problem,) = (record.problem for record in read(dataset) if record.problem)
        assert "'text' must be a text" in problem
