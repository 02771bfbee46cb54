"""`register_image_text`: what records become under each denoiser, and what is an error, or left out and counted."""

import itertools
import logging

import pytest
import seqio
import tensorflow as tf

import ul2_tasks
from tests.images.image_support import A_RUN, MODES, NOISE, SENTINELS, SPECIAL, VOCABULARY, S, image, read, registered
from ul2_tasks.denoisers.denoisers import T5GEMMA2
from ul2_tasks.images.interleaved import ImageTokens

IMAGES = [image(colour) for colour in range(0, 250, 50)]
RECORD = ["An image of a cat that sits: ", IMAGES[0], "It sleeps by day, and it hunts by night.", IMAGES[1], "End."]


def ids(text: str) -> list[int]:
    return list(VOCABULARY.encode(text))


def whole(record) -> list[int]:
    return list(itertools.chain.from_iterable(ids(place) if isinstance(place, str) else A_RUN for place in record))


def test_s_splits_at_the_last_image_and_other_denoisers_have_each_piece():
    registered("last", RECORD, denoisers=[T5GEMMA2[0], S], split="last_image")
    (r1,), (s,) = read("last_r1"), read("last_s")
    assert sum(id in SENTINELS for id in r1["targets"]) > 1
    assert s["inputs"] == [260, *whole(RECORD[:-1]), SENTINELS[0], 1]
    assert s["targets"] == [SENTINELS[0], *ids(RECORD[-1]), 1]
    assert s["images"] == IMAGES[:2]


UNFIT = {
    "there is no text": [IMAGES[0]],
    "its targets are too long": ["x" * 300, IMAGES[2]],
    "its inputs are too long": [*IMAGES * 3, "Many."],
}
UNFIT_AT_LAST_IMAGE = {
    "no text comes after the last image": ["A cat.", IMAGES[0]],
    "there is no image at which it could be split": ["A cat."],
}


@pytest.mark.parametrize(("split", "unfit"), [("pieces", UNFIT), ("last_image", UNFIT_AT_LAST_IMAGE)], ids=["pieces", "last image"])
def test_records_that_make_no_example_are_counted_by_cause(split, unfit, caplog):
    name = f"unfit_{split}"
    registered(name, *unfit.values(), RECORD[2:], *unfit.values(), denoisers=S, split=split, on_unusable="skip")
    with caplog.at_level(logging.WARNING):
        (example,) = read(f"{name}_mix", (120, 120))
    assert example["images"] == IMAGES[1:2]
    for cause, record in unfit.items():
        assert f"2 examples of split train are left out: {name}_s: {cause}" in caplog.text
        registered(f"{name}_{len(cause)}", record, denoisers=S, split=split)
        with pytest.raises(ValueError, match=f"{cause}.*on_unusable"):
            read(f"{name}_{len(cause)}_mix", (120, 120))


def test_an_example_of_exactly_the_budget_is_made():
    registered("exact_images", ["abcdefgh", IMAGES[0]], denoisers=S)  # 6 of 8 are noise
    lengths = 1 + 2 + 1 + len(A_RUN) + 1, 1 + 6 + 1
    (example,) = read("exact_images_s", lengths)
    assert (len(example["inputs"]), len(example["targets"])) == lengths
    with pytest.raises(ValueError, match="its inputs are too long: up to 15 tokens with all images, 1, of 14 in"):
        read("exact_images_s", (lengths[0] - 1, lengths[1]))


PROBLEMS = {
    "train, record 1: the image is damaged": ["Cut off:", NOISE[: len(NOISE) // 2]],
    "train, record 2: the image begins with": ["No image:", b"text"],
}


def test_records_with_a_problem_are_named_or_counted():
    registered("problem_raise", RECORD, *PROBLEMS.values(), denoisers=S)
    with pytest.raises(ValueError, match="|".join(PROBLEMS)):
        read("problem_raise_mix")
    registered("problem_skip", RECORD, *PROBLEMS.values(), RECORD, denoisers=S, on_error="skip")
    assert len(read("problem_skip_mix")) == 2


class OneRecord(seqio.DataSource):
    """A source of one's own."""

    supports_arbitrary_sharding = True

    def __init__(self, record):
        super().__init__(splits=["train"])
        self.record = record

    def list_shards(self, split):
        return ["0"]

    def get_dataset(self, split="train", shuffle=True, seed=None, shard_info=None, **unused):
        return tf.data.Dataset.from_tensors(self.record)


@pytest.mark.parametrize(
    ("record", "named"),
    [({"text": "a"}, "texts"), ({"texts": ["a", "b"], "images": [""]}, "texts"), ({"texts": [b"\xff"], "images": [""]}, "texts")],
    ids=["features", "fewer", "latin"],
)
def test_records_of_ones_own_source_are_checked(record, named, request):
    name = f"own_{request.node.callspec.id}"
    ul2_tasks.register_image_text(name, OneRecord(record), VOCABULARY, denoisers=S, **SPECIAL)
    with pytest.raises((ValueError, tf.errors.OpError), match=named):
        read(f"{name}_mix")


def test_images_are_never_trimmed():
    registered("trim", RECORD, denoisers=S)
    task = seqio.TaskRegistry.get("trim_s")
    for provider in (task, seqio.MixtureRegistry.get("trim_mix")):
        with pytest.raises(ValueError, match="sequence_length"):
            provider.get_dataset({"inputs": 256, "targets": 256, "images": 1}, seed=0)
    with pytest.raises(ValueError, match="sequence_length"):
        task.get_dataset(None)


@pytest.mark.parametrize(
    "settings",
    [
        {"image_tokens": ImageTokens()},
        {"sentinels": [*SENTINELS, 263]},
        {"modes": MODES | {"[S]": [260, 262]}},
        {"image_tokens": ImageTokens(1, 263, 264)},
    ],
    ids=["beyond", "sentinel", "mode", "eos"],
)
def test_the_ids_of_images_are_theirs_alone(settings, request):
    registered(f"ids_{request.node.callspec.id}", RECORD, denoisers=S, **settings)
    with pytest.raises(ValueError, match="image_tokens"):
        read(f"ids_{request.node.callspec.id}_mix")
