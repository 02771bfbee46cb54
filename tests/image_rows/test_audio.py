"""The seam for kinds of elements: audio with a budget of its own, in one file, without a change of the package."""

import io
import wave

import numpy as np
import pytest
from image_sources import FORM, ids, image, source

pytest.importorskip("torch", reason="the extra torch is not installed")

from ul2_tasks import ImageTextDataset
from ul2_tasks.image_rows.attention import dense_mask, places
from ul2_tasks.image_rows.custom import Custom, ElementKind
from ul2_tasks.images.elements import Image, Text

pytestmark = pytest.mark.torch

HOP = 160  # samples of a feature


def size_of(wav: bytes) -> int:
    with wave.open(io.BytesIO(wav)) as file:
        return -(-file.getnframes() // HOP)


def read(wav: bytes) -> np.ndarray:
    with wave.open(io.BytesIO(wav)) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), np.int16)
    return np.pad(samples, (0, -len(samples) % HOP)).reshape(-1, HOP) / 2**15


AUDIO = ElementKind("audio", start_id=300, end_id=301, size_of=size_of, read=read, width=HOP)


def spoken(record, draws):
    return [Custom(AUDIO, record["wav"]), Image(record["image"], "vit"), Text(record["said"], learned=True)]


def wav(samples: int) -> bytes:
    with wave.open(file := io.BytesIO(), "wb") as written:
        written.setparams((1, 2, 16_000, 0, "NONE", ""))
        written.writeframes(np.arange(samples, dtype=np.int16).tobytes())
    return file.getvalue()


def test_audio_has_a_budget_marks_features_and_a_place_in_the_mask():
    records = [{"wav": wav(HOP * n - 7), "image": image(n), "said": f"{n}"} for n in range(1, 30)]
    budgets = {"tokens": 300, "vit": 100, "vae": 0, "audio": 25}
    data = ImageTextDataset(source(records, spoken), FORM, ids, budgets, kinds=[AUDIO], num_epochs=1, on_error="skip", pool=29)
    rows = list(data)
    assert sorted(length for row in rows for length in row["audio_token_seqlens"].tolist()) == list(range(1, 26))
    assert data.skipped == {"too long": 4}
    for row in rows:
        indexes, features = row["packed_audio_token_indexes"].numpy(), row["packed_audio_features"].numpy()
        assert (len(indexes), features.shape, features.dtype) == (row["audio_token_seqlens"].sum(), (len(indexes), HOP), np.float32)
        assert len(indexes) <= 25
        assert np.bincount(row["packed_text_ids"])[[300, 301]].tolist() == [len(row["samples"])] * 2
        start = row["sample_lens"].cumsum(0) - row["sample_lens"]
        assert {*(start + 1).tolist()} <= {*indexes.tolist()}
        mask = dense_mask(places(*(row[name].numpy() for name in ("sample_lens", "split_lens", "attn_modes"))))
        assert mask[indexes[0], indexes[row["audio_token_seqlens"][0] - 1]], "features attend to each other"
