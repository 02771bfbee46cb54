"""Texts with images in PyTorch, and in windows. `tests/laws` has their examples."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ul2_tasks
from tests.images.image_support import SPECIAL, VOCABULARY, image, record_of
from tests.images.test_image_index import DENOISERS, described
from ul2_tasks.corpus import token_batches
from ul2_tasks.random_access import windows
from ul2_tasks.random_access.numbering import MemberSchedule

LENGTHS = {"inputs": 192, "targets": 96}


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
