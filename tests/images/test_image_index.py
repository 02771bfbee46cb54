"""Texts with images by index: the examples that the streams of all denoisers make, whichever denoiser reads a record."""

import dataclasses
import pickle

import numpy as np
import pytest
import seqio
from rich.console import Console

import ul2_tasks
from tests.images.image_support import A_RUN, MODES, NOISE, SENTINELS, SPECIAL, VOCABULARY, S, image, record_of, text_keys
from tests.support import restore
from ul2_tasks import T5GEMMA2, ImageText
from ul2_tasks.corpus.build_cache import build
from ul2_tasks.corpus.documents import Bound, documents_of
from ul2_tasks.mixtures.image_text import limits_of
from ul2_tasks.random_access.image_text import index_records

LENGTHS = {"inputs": 192, "targets": 96}
DENOISERS = (T5GEMMA2[0], T5GEMMA2[3], S)
RECORDS = [
    *([f"Record {n}: " + "some words, " * (n % 9), image(n), f"and another {n} ", NOISE, "."] for n in range(40)),
    ["A text alone, without any image."],
    [image(9), "An image first."],
    [image(9), image(8)],
    ["x" * 300, image(3)],
    ["y" * 140, image(4)],
    [*[image(n) for n in range(20)], "Many images."],
]


def described(records=RECORDS, name="indexed", **settings) -> ImageText:
    return ImageText(
        name,
        [record if isinstance(record, dict) else record_of(record) for record in records],
        VOCABULARY,
        **{"denoisers": DENOISERS, "on_unusable": "skip", **SPECIAL, **settings},
    )


def index_of(images: ImageText, lengths=LENGTHS, cache_dirs=()):
    corpus = images.corpus(cache_dirs)
    records = documents_of(corpus, "train", bool(cache_dirs))
    return index_records(records, limits_of(images, lengths), images.vocabulary, images.on_unusable)


def read_all(index, kind: int) -> list[tuple[list[int], list[int], list[bytes]]]:
    """The inputs, targets and images of all examples under one denoiser."""
    found = index.read(np.arange(index.count), np.full(index.count, kind), text_keys(kind, index.count))
    parts = [np.split(found.values[key], np.cumsum(found.lengths[key])[:-1]) for key in ("inputs", "targets")]
    images = found.images or [[]] * index.count
    return [(inputs.tolist(), targets.tolist(), held) for inputs, targets, held in zip(*parts, images)]


def streams_of(images: ImageText) -> list[list[dict]]:
    """What the stream of each denoiser has, in the order of the source."""
    ul2_tasks.register_image_text(**{field.name: getattr(images, field.name) for field in dataclasses.fields(images)})
    tasks = [seqio.get_mixture_or_task(f"{images.name}_{denoiser.name}") for denoiser in images.denoisers]
    return [list(task.get_dataset(LENGTHS, "train", shuffle=False, seed=0, num_epochs=1).as_numpy_iterator()) for task in tasks]


def whole_of(inputs, targets, limits) -> list[int]:
    """The tokens of an example's record, if its texts and images were put together again."""
    return restore({"inputs": inputs, "targets": targets}, limits.denoiser, limits.special)


@pytest.mark.parametrize("split", ["pieces", "last_image"])
def test_examples_are_those_of_the_streams_that_every_denoiser_makes(split):
    images = described(split=split, name=f"streams_{split}")
    index, streams = index_of(images), streams_of(images)
    made = [
        {tuple(whole_of(one["inputs"], one["targets"], each)): one for one in stream} for stream, each in zip(streams, index.limits)
    ]
    of_all = [record for record in made[0] if all(record in others for others in made)]
    assert index.count == len(of_all) == len(set(of_all))
    for kind, limits in enumerate(index.limits):
        for (inputs, targets, held), record in zip(read_all(index, kind), of_all):
            assert whole_of(inputs, targets, limits) == list(record)
            of_stream = made[kind][record]
            assert [len(inputs), len(targets)] == [len(of_stream[key]) for key in ("inputs", "targets")]
            assert held == of_stream["images"].tolist()
    assert index.count + sum(index.left_out.values()) == len(RECORDS)


def test_a_cache_gives_what_memory_gives_and_so_does_another_process(tmp_path):
    records = RECORDS * 3  # two shards
    images = described(records, name="cached_index")
    build(images.corpus(), str(tmp_path), console=Console(quiet=True))
    in_memory, cached = index_of(images), index_of(images, cache_dirs=[str(tmp_path)])
    assert len(cached.columns.stores["pieces"].prefixes) > 1
    for kind in range(3):
        assert read_all(in_memory, kind) == read_all(cached, kind) == read_all(pickle.loads(pickle.dumps(cached)), kind)
    assert in_memory.left_out == cached.left_out
    assert in_memory.unusable.tolist() == cached.unusable.tolist()
    record = len(records) - 1
    assert in_memory.examples_of(record) == cached.examples_of(record)
    assert cached.columns.locate(record).startswith(f"record {record} of the cache, number ")


def test_a_corpus_that_is_too_large_for_memory_needs_a_cache(monkeypatch):
    monkeypatch.setattr("ul2_tasks.corpus.documents.IN_MEMORY", Bound(1 << 20, 2000))
    with pytest.raises(ValueError, match="indexed_corpus"):
        index_of(described(RECORDS * 30))


def test_an_example_that_a_reader_sees():
    index = index_of(described([["abcdefgh", image(0), "ij"]], denoisers=S))
    ((inputs, targets, held),) = read_all(index, 0)
    a, b, c, d, e, f, g, h, i, j = VOCABULARY.encode("abcdefghij")
    assert inputs == [MODES["[S]"], a, b, SENTINELS[0], *A_RUN, i, SENTINELS[1], 1]
    assert targets == [SENTINELS[0], c, d, e, f, g, h, SENTINELS[1], j, 1]
    assert held == [image(0)]
