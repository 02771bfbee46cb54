"""Whole records have random access: documents that are kept apart, and conversations, alone and beside texts."""

import dataclasses
import pickle

import numpy as np
import pytest
import seqio
from hypothesis import given
from hypothesis import strategies as st

import ul2_tasks
from tests.support import write_pair
from ul2_tasks import T5GEMMA2, UL2, BlockShuffle, Mixture
from ul2_tasks.cli.commands import main
from ul2_tasks.example_features import TEXT
from ul2_tasks.random_access.pieces import cut_documents
from ul2_tasks.store.read import MemoryStore, Store
from ul2_tasks.store.write import PairWriter

LENGTHS = {"inputs": 96, "targets": 80}
SIZES = [3, 700, 1, 90, 41, 0, 260, 17, 5, 333, 2, 64] * 9


def texts():
    for number, size in enumerate(SIZES):
        yield f"{number} ".ljust(size, "abcdefg hij"[number % 11])[:size] if size else ""


def test_pieces_of_a_pair_that_was_rewritten_are_refused(tmp_path):
    write_pair(tmp_path / "texts", [[0] * 40, [0] * 50])
    pieces = pickle.dumps(cut_documents(Store.open([f"{tmp_path}/texts"]), 10))
    assert len(pickle.loads(pieces).tokens_of(np.array([8]))[0]) == 1
    write_pair(tmp_path / "texts", [[0] * 40])
    with pytest.raises(ValueError, match="rewritten"):
        pickle.loads(pieces).tokens_of(np.array([8]))


def apart(name="whole", **arguments):
    return Mixture(name, ul2_tasks.MemoryDataSource(texts, validation=0), merge_examples=False, **arguments)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=300), st.integers(1, 12), st.integers(1, 3))
def test_pieces_are_the_fewest_that_are_short_enough_and_nearly_equal(tmp_path_factory, lengths, most, pairs):
    folder = tmp_path_factory.mktemp("pairs")
    stores = [MemoryStore(np.zeros([sum(lengths)], np.int32), np.array(lengths))]
    parts = np.array_split(np.array(lengths), pairs)
    prefixes = [str(folder / f"{number}") for number in range(pairs) if len(parts[number])]
    for prefix, part in zip(prefixes, filter(len, parts)):
        with PairWriter(f"{prefix}.bin", f"{prefix}.idx", np.dtype(np.uint16)) as writer:
            writer.add(np.zeros([int(part.sum())], np.int32), part)
    if sum(lengths):
        stores.append(Store.open(prefixes))
    expected = [
        (sum(lengths[:document]) + length * piece // count, sum(lengths[:document]) + length * (piece + 1) // count, document)
        for document, length in enumerate(lengths)
        for count in [-(-length // most)]
        for piece in range(count)
    ]
    for store in stores:
        found = cut_documents(store, most)
        assert found.count == len(expected)
        numbers = np.random.default_rng(0).permutation(found.count)
        assert list(zip(*(column.tolist() for column in found.tokens_of(numbers)))) == [expected[number][:2] for number in numbers]
        for document in range(len(lengths)):
            own = [number for number, (_, _, of) in enumerate(expected) if of == document]
            (first,), (stop,) = found.of_documents(np.array([document]))
            assert list(range(first, stop)) == own


class Unread:
    """Lengths that nobody may ask for."""

    def lengths_of(self, epochs, slots):
        raise AssertionError("a pool was packed")


@pytest.mark.parametrize("blocks", [None, BlockShuffle(256, 4, 2)], ids=["whole", "blocks"])
def test_counts_are_kept_beside_the_cache_for_those_alone_who_have_the_same_rows(tmp_path, monkeypatch, blocks):
    monkeypatch.setattr("ul2_tasks.order.rows._POOL", 2)
    mixture = apart(block_shuffle=blocks)
    mixture.cache(str(tmp_path))

    def rows(lengths=LENGTHS, mixture=mixture, **arguments):
        found = ul2_tasks.examples(mixture, lengths, pack=True, cache_dirs=[str(tmp_path)], **arguments)
        return found.numbering.packed[0]

    first = rows()
    counted = [first.first_of(epoch * first.rounds) for epoch in range(3)]
    kept = dataclasses.replace(rows(), lengths=Unread())
    assert [kept.first_of(epoch * first.rounds) for epoch in range(3)] == counted
    for other in ({"seed": 1}, {"lengths": {"inputs": 97, "targets": 80}}, {"mixture": apart(denoisers=UL2)}):
        with pytest.raises(AssertionError, match="a pool was packed"):
            dataclasses.replace(rows(**other), lengths=Unread()).first_of(1)
    folder = tmp_path / "whole_corpus"
    assert main(["verify", str(folder)], standalone_mode=False) is None
    (folder / ".ul2_rows").write_bytes(b"of another program")
    assert [rows().first_of(epoch * first.rounds) for epoch in range(3)] == counted
    assert [dataclasses.replace(rows(), lengths=Unread()).first_of(epoch * first.rounds) for epoch in range(3)] == counted
    mixture.cache(str(tmp_path))  # which says that it is complete


def test_beside_replies_targets_of_texts_with_images_are_trained_on_too():
    pytest.importorskip("PIL", reason="the extra images is not installed")
    replies = ul2_tasks.register_chat("trained_chat", format="prompt_completion")
    vocabulary = seqio.TaskRegistry.get(replies).output_features["targets"].vocabulary
    image_tokens = ul2_tasks.ImageTokens(boi_id=203, image_id=204, eoi_id=205, image_seq_length=4)
    settings = {"image_tokens": image_tokens, "sentinels": range(3, 203)}
    seen = ul2_tasks.register_image_text("trained_images", "embedded", vocabulary, T5GEMMA2[3:], **settings)
    both, lengths = ul2_tasks.mix("trained_images_and_chat", {seen: 1, replies: 1}), {"inputs": 512, "targets": 512}
    for example in ul2_tasks.examples(both, lengths):
        own = {TEXT} if example["task"] != replies else set(range(1, TEXT))
        assert set(example["span_id"].tolist()) <= own
        assert example["loss_mask"].tolist() == [1] * len(example["targets"])
    dataset = seqio.get_mixture_or_task(both).get_dataset(lengths, "train", seed=0, num_epochs=1)
    assert {"loss_mask", "span_id"} < dataset.element_spec.keys()
