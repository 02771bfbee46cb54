"""`ul2 cache` of interleaved image-text data: the same examples, which are checked and resumed as those of other caches."""

import dataclasses

import pytest
import seqio
import tensorflow as tf
from rich.console import Console

from tests.images.image_support import NOISE, RUN, S, image, read, registered
from tests.support import corpus_named
from ul2_tasks.corpus import cache
from ul2_tasks.corpus.build_cache import build
from ul2_tasks.corpus.documents import documents_of
from ul2_tasks.corpus.image_text import ImageTexts

QUIET = Console(quiet=True)
RECORDS = [
    *([f"Record {n}: ", image(n), f"and another {n} ", NOISE, "."] for n in range(5)),
    ["Cut off:", NOISE[:400]],
    ["A text alone, without any image."],
    [image(9), "An image first."],
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(seqio.utils, "_GLOBAL_CACHE_DIRECTORIES", [str(tmp_path)])
    return tmp_path


def test_a_store_gives_the_examples_of_its_source_and_no_other_corpus_takes_it(folder):
    registered("stored", *RECORDS, denoisers=[S], on_error="skip")
    manifest = build(corpus_named("stored_corpus"), str(folder), console=QUIET)
    assert [manifest["totals"][count] for count in ("documents", "skipped", "empty")] == [7, 1, 0]
    plain = read("stored_s")
    assert read("stored_s", use_cached=True) == plain
    assert [each["images"] for each in plain[-2:]] == [[], [image(9)]]
    corpus = seqio.TaskRegistry.get("stored_corpus").corpus
    other = dataclasses.replace(RUN, image_seq_length=5)
    other_run = dataclasses.replace(corpus, encoder=ImageTexts(other))
    with pytest.raises(ValueError, match="run is"):
        documents_of(other_run, "train", use_cached=True)


def test_verify_names_what_is_wrong_beside_the_tokens(folder):
    registered("checked_images", *RECORDS[:3], denoisers=[S])
    build(corpus_named("checked_images_corpus"), str(folder), console=QUIET)
    cached = folder / "checked_images_corpus"
    assert list(cache.verify(str(cached))) == []
    manifest = cache.read_manifest(str(cached))
    shard = manifest["splits"]["train"]["shards"][0]
    shard["images"] += 1
    cache.write_manifest(str(cached), manifest)
    name = f"{shard['shard']}.images"
    total = shard["images"]
    assert list(cache.verify(str(cached))) == [
        f"{name} has 3 documents and {total - 1} images, but the manifest says 3 and {total}"
    ]
    content = bytearray((cached / f"{name}.bin").read_bytes())
    content[7] ^= 1
    (cached / f"{name}.bin").write_bytes(content)
    sizes = cached / f"{shard['shard']}.sizes.bin"
    sizes.write_bytes(sizes.read_bytes()[:-4])
    cut, flipped = cache.verify(str(cached))
    assert f"{sizes.name} is truncated" in cut
    assert f"{name}.bin is altered" in flipped
    with pytest.raises(ValueError, match="truncated"):
        read("checked_images_s", use_cached=True)


def test_columns_that_do_not_belong_together_are_told(folder):
    registered("swapped", *RECORDS[:2], denoisers=[S])
    registered("swapped_too", *([f"{n}", *[image(n)] * 2] for n in range(2)), denoisers=[S])
    (one, other) = (build(corpus_named(f"{name}_corpus"), str(folder), console=QUIET) for name in ("swapped", "swapped_too"))
    shard, of_other = (manifest["splits"]["train"]["shards"][0] for manifest in (one, other))
    for suffix, (mine, theirs) in zip(("bin", "idx"), zip(shard["files"][4:6], of_other["files"][4:6])):
        assert mine["file"].endswith(f".sizes.{suffix}")
        (folder / "swapped_corpus" / mine["file"]).write_bytes((folder / "swapped_too_corpus" / theirs["file"]).read_bytes())
    with pytest.raises(tf.errors.OpError, match="these files do not belong together"):
        read("swapped_s", use_cached=True)
