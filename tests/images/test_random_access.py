"""Texts with images have random access: examples, datasets, and mixtures with texts and replies."""

import collections
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import seqio

import ul2_tasks
from tests.images.image_support import RUN, SPECIAL, VOCABULARY, image, record_of
from tests.images.test_image_index import DENOISERS, described
from tests.support import saved_and_resumed
from ul2_tasks.corpus import token_batches
from ul2_tasks.random_access import windows
from ul2_tasks.random_access.numbering import MemberSchedule
from ul2_tasks.tasks.tf_data import reading_of

LENGTHS = {"inputs": 192, "targets": 96}


def registered(description):
    return ul2_tasks.register(description)


def equal(one, other):
    return all(np.asarray(one[key]).tolist() == np.asarray(other[key]).tolist() for key in ("inputs", "targets"))


@pytest.mark.parametrize("cached", [False, True])
def test_a_description_and_its_dataset_have_the_same_examples(cached, tmp_path):
    images = described(name=f"seen_{cached}")
    folders = []
    if cached:
        images.cache(str(tmp_path))
        folders = [str(tmp_path)]
        seqio.add_global_cache_dirs(folders)
    found = ul2_tasks.examples(images, LENGTHS, cache_dirs=folders)
    name = registered(images)
    dataset = seqio.get_mixture_or_task(name).get_dataset(LENGTHS, use_cached=cached, num_epochs=1, seed=0, shuffle=True)
    made = list(dataset.as_numpy_iterator())
    assert len(made) == len(found)
    assert all(equal(*both) and both[0]["images"] == both[1]["images"].tolist() for both in zip(found, made))
    assert all(example["inputs"].tolist().count(RUN.boi_id) == len(example["images"]) for example in found)
    assert ul2_tasks.examples(name, LENGTHS).describe() == {**found.describe(), "mixture": name}
    counts = collections.Counter(example["denoiser"] for example in found)
    assert sum(counts.values()) == len(found)
    again = pickle.loads(pickle.dumps(found))
    assert equal(again[3], found[3])
    where = found.locate(3)
    assert 3 in found.find(where.documents[0][0])


def test_a_dataset_with_images_resumes_and_is_shared_by_hosts(tmp_path):
    name = registered(described(name="seen_hosts"))

    def dataset(host=0, hosts=1):
        share = seqio.ShardInfo(host, hosts)
        return seqio.get_mixture_or_task(name).get_dataset(LENGTHS, num_epochs=2, seed=1, shard_info=share, shuffle=True)

    whole = [example["targets"].tolist() for example in dataset().as_numpy_iterator()]
    parts = [[example["targets"].tolist() for example in dataset(host, 3).as_numpy_iterator()] for host in range(3)]
    assert [parts[number % 3][number // 3] for number in range(len(whole))] == whole
    _, resumed = saved_and_resumed(dataset, 7, tmp_path)
    assert [example["targets"].numpy().tolist() for example in resumed] == whole[7:]


def test_texts_and_images_are_mixed_with_random_access():
    images = registered(described(name="beside_images"))
    texts = ul2_tasks.MemoryDataSource(lambda: [f"document {n}, " * 9 for n in range(90)], validation=0)
    arguments = dict(vars(described()))
    web = ul2_tasks.register("beside_texts", texts, VOCABULARY, sentinels=arguments["sentinels"], modes=arguments["modes"])
    both = ul2_tasks.mix("beside", {images: 1, web: 1})
    found = ul2_tasks.examples(both, LENGTHS)
    counts = collections.Counter(bool(example["task"].startswith("beside_images")) for example in found)
    assert abs(counts[True] - counts[False]) <= 1
    assert all(not example["images"] for example in found if example["task"].startswith("beside_texts"))
    dataset = seqio.get_mixture_or_task(both).get_dataset(LENGTHS, num_epochs=1, seed=0, shuffle=True)
    assert reading_of(dataset).fingerprint["corpora"].keys() == {"beside_images_corpus", "beside_texts_corpus"}
    assert all(equal(*pair) for pair in zip(found, dataset.as_numpy_iterator()))


@pytest.mark.torch
def test_pytorch_has_their_images():
    pytest.importorskip("torch", reason="the extra torch is not installed")
    from ul2_tasks import HuggingFaceFeatureConverter, UL2IterableDataset

    found = ul2_tasks.examples(described(name="torch_seen"), LENGTHS)
    elements = list(UL2IterableDataset(found, num_epochs=1))
    assert [(element["input_ids"].tolist(), element["labels"].tolist(), element["images"]) for element in elements] == [
        (example["inputs"].tolist(), example["targets"].tolist(), example["images"]) for example in found
    ]
    with pytest.raises(ValueError, match="feature_converter must be None for examples with images, got HuggingFace"):
        UL2IterableDataset(found, feature_converter=HuggingFaceFeatureConverter("longest", batch_size=4))


def test_a_window_ends_by_the_bytes_of_its_images(tmp_path, monkeypatch):
    records = [record_of([f"Record {number}: ", image(number % 200), "a grey."]) for number in range(60)]
    for file in range(3):
        pq.write_table(pa.Table.from_pylist(records[file::3]), tmp_path / f"{file}.parquet")
    images = ul2_tasks.ImageText("bytes", f"{tmp_path}/*.parquet", VOCABULARY, DENOISERS, **SPECIAL)
    most = 12 * len(image(0))
    monkeypatch.setattr(token_batches, "_RECORDS_AT_A_TIME", 4)
    monkeypatch.setattr(windows, "WINDOW_BYTES", most)
    (feed,) = windows.Corpora(MemberSchedule.of(images.members(LENGTHS)), "train", False, 3, True).stream(None, epochs=1).feeds
    window, read = feed.window(windows.Place()), []
    while window:
        columns = window.numbering.corpora[0].data.index.columns
        held = columns.read_each("images", np.arange(columns.count))
        assert sum(map(len, held)) < most + 4 * len(image(0))
        read += [values.tobytes() for values in held]
        window = feed.window(window.following)
    assert sorted(read) == sorted(image(number % 200) for number in range(60))
