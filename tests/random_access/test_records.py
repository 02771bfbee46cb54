"""Whole records have random access: documents that are kept apart, and conversations, alone and beside texts."""

import collections
import dataclasses
import pickle

import numpy as np
import pytest
import seqio
from hypothesis import given
from hypothesis import strategies as st

import ul2_tasks
from ul2_tasks import T5GEMMA2, UL2, BlockShuffle, Mixture
from ul2_tasks.cli.commands import main
from ul2_tasks.example_features import TEXT
from ul2_tasks.random_access.pieces import cut_documents
from ul2_tasks.store.read import MemoryStore, Store
from ul2_tasks.store.write import PairWriter
from ul2_tasks.tasks.tf_data import reading_of

LENGTHS = {"inputs": 96, "targets": 80}
SIZES = [3, 700, 1, 90, 41, 0, 260, 17, 5, 333, 2, 64] * 9


def texts():
    for number, size in enumerate(SIZES):
        yield f"{number} ".ljust(size, "abcdefg hij"[number % 11])[:size] if size else ""


def apart(name="whole", **arguments):
    return Mixture(name, ul2_tasks.MemoryDataSource(texts, validation=0), merge_examples=False, **arguments)


def locations(found):
    return [where for index in range(len(found)) for where in np.atleast_1d(np.array(found.locate(index), object)).tolist()]


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


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("denoisers", [T5GEMMA2, UL2], ids=["T5GEMMA2", "UL2"])
@pytest.mark.parametrize("blocks", [None, BlockShuffle(256, 4, 2)], ids=["whole", "blocks"])
def test_each_token_of_documents_kept_apart_is_in_one_example_of_an_epoch(pack, denoisers, blocks):
    found = ul2_tasks.examples(apart(denoisers=denoisers, block_shuffle=blocks), LENGTHS, pack=pack)
    for epoch in range(2):
        of_epoch = found.epoch(epoch)
        held = np.zeros(sum(SIZES), int)
        for where in locations(of_epoch):
            ((start, stop),) = where.tokens
            held[start:stop] += 1
            assert len(range(*where.documents[0])) == 1, "an example is of one document"
        assert held.max() == 1
        assert held.sum() == found.numbering.corpora[0].store.tokens


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


CHATS = {"tokens": 512}


@pytest.mark.parametrize("lengths", [CHATS, {"inputs": 512, "targets": 512}], ids=["chat", "prompt_completion"])
def test_conversations_and_their_rows_have_the_same_examples_in_each_epoch(lengths):
    chat = ul2_tasks.Chat("random_chat", truncation="drop")
    found = ul2_tasks.examples(chat, lengths)
    keys = [*lengths, "loss_mask", "span_id"]

    def plain(examples):
        return sorted([tuple(example[key].tolist()) for key in keys] for example in examples)

    assert plain(found) == plain(found.epoch(4))
    assert [example[keys[0]].tolist() for example in found] != [example[keys[0]].tolist() for example in found.epoch(1)]
    packed = ul2_tasks.examples(chat, lengths, pack=True)
    assert sum(len(packed.locate(index)) for index in range(len(packed))) == len(found)
    for index, row in enumerate(packed):
        for segment, where in enumerate(packed.locate(index), start=1):
            (number,) = [each for each in found.find(where.documents[0][0]) if found.locate(each) == where]
            mark_key = "tokens" if "tokens" in lengths else "targets"
            is_own = {key: row[f"{key}_segment_ids"] == segment for key in lengths}
            for key in lengths:
                assert row[key][is_own[key]].tolist() == found[number][key].tolist()
            assert row["span_id"][is_own[mark_key]].tolist() == found[number]["span_id"].tolist()
    again = pickle.loads(pickle.dumps(packed))
    assert again[0]["span_id"].tolist() == packed[0]["span_id"].tolist()


@pytest.mark.parametrize("pack", [False, True])
def test_replies_beside_denoisers_have_random_access_and_their_masks(pack):
    chat = ul2_tasks.register_chat("beside_chat", format="prompt_completion")
    vocabulary = seqio.TaskRegistry.get(chat).output_features["targets"].vocabulary
    web = ul2_tasks.register("beside_web", vocabulary=vocabulary)
    both = ul2_tasks.mix("beside", {web: 3, chat: 1})
    lengths = {"inputs": 512, "targets": 512}
    found = ul2_tasks.examples(both, lengths)
    counts = collections.Counter(example["task"] == chat for example in found)
    assert abs(counts[False] - 3 * counts[True]) < 4, "within a group of four that is begun"
    for example in found[:50]:
        assert (example["span_id"].min() == TEXT) == (example["task"] != chat)
    dataset = seqio.get_dataset(both, lengths, ul2_tasks.EncDecFeatureConverter(pack=pack), num_epochs=1, seed=0, shuffle=True)
    assert reading_of(dataset).fingerprint["corpora"].keys() == {"beside_web_corpus", "beside_chat_corpus"}
    rows = list(dataset.as_numpy_iterator())
    expected = ul2_tasks.examples(both, lengths, pack=pack)
    assert len(rows) == len(expected)
    assert sum(int(row["decoder_loss_weights"].sum()) for row in rows) == sum(int(each["loss_mask"].sum()) for each in expected)


def test_pieces_of_a_pair_that_was_rewritten_are_refused(tmp_path):
    def write(lengths):
        with PairWriter(f"{tmp_path}/texts.bin", f"{tmp_path}/texts.idx", np.dtype(np.uint16)) as writer:
            writer.add(np.zeros([sum(lengths)], np.int32), np.array(lengths))

    write([40, 50, 60])
    pieces = pickle.dumps(cut_documents(Store.open([f"{tmp_path}/texts"]), 10))
    assert len(pickle.loads(pieces).tokens_of(np.array([14]))[0]) == 1
    write([40])
    with pytest.raises(ValueError, match="the file was rewritten"):
        pickle.loads(pieces).tokens_of(np.array([14]))


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
