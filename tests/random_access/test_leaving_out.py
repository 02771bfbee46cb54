"""What a run leaves out: no example has tokens of documents that are left out, all others are what they were; steps are skipped."""

import functools

import numpy as np
import pytest

import ul2_tasks
from ul2_tasks import T5GEMMA2, UL2, BlockShuffle, Chat, Mix, Mixture, Stage
from ul2_tasks.random_access.leaving_out import LeavingOut, Skip
from ul2_tasks.random_access.sequence import Examples
from ul2_tasks.sources.memory import embedded_conversations

LENGTHS = {"inputs": 96, "targets": 80}
NAMED = ("corpus", "task", "denoiser", "epoch", "chunk_index")
SIZES = [3, 700, 1, 90, 41, 260, 17, 5, 333, 2, 64, 64, 128] * 9


def texts():
    for number, size in enumerate(SIZES):
        yield f"{number} ".ljust(size, "abcdefg hij"[number % 11])[:size]


def described(name, **arguments):
    return Mixture(name, ul2_tasks.MemoryDataSource(texts, validation=0), **arguments)


def talks(name, **arguments):
    source = ul2_tasks.MemoryDataSource(lambda: embedded_conversations() * 30, validation=0)
    return Chat(name, source, truncation="drop", **arguments)


def replies_and_texts():
    chat = talks("left_talks")
    text = described("left_text", vocabulary=chat.renderer.vocabulary, merge_examples=False)
    return Mix("left_both", {text: 2, chat: 1})


PIPELINES = {
    "joined": lambda: (described("left_joined"), LENGTHS),
    "separated": lambda: (described("left_separated", separate_documents=True), LENGTHS),
    "drawn lengths": lambda: (described("left_drawn", denoisers=UL2), LENGTHS),
    "blocks": lambda: (described("left_blocks", block_shuffle=BlockShuffle(512, 4, 2)), LENGTHS),
    "apart": lambda: (described("left_apart", merge_examples=False), LENGTHS),
    "apart in blocks": lambda: (
        described("left_blocks_apart", merge_examples=False, block_shuffle=BlockShuffle(256, 4, 2)),
        LENGTHS,
    ),
    "conversations": lambda: (talks("left_chat"), {"tokens": 512}),
    "conversations in blocks": lambda: (talks("left_blocks_chat", block_shuffle=BlockShuffle(2000, 4, 2)), {"tokens": 512}),
    "replies and texts": lambda: (replies_and_texts(), {"inputs": 512, "targets": 512}),
}
of_pipelines = pytest.mark.parametrize("pipeline", PIPELINES)


@functools.cache
def read(pipeline, pack):
    mixture, lengths = PIPELINES[pipeline]()
    return ul2_tasks.examples(mixture, lengths, pack=pack)


def without(found, documents=(), skips=()):
    """The same examples without these documents of each corpus, and without skips."""
    counts = {corpus.name: corpus.store.documents for corpus in found.numbering.corpora}
    left_out = {name: np.array([each for each in documents if each < counts[name]], np.int64) for name in counts}
    leaving_out = LeavingOut(left_out if len(documents) else {}, tuple(Skip(*skip) for skip in skips))
    return Examples(found.numbering.without(leaving_out), found.budgets, found.describe, found.number)


def located(found, index):
    return np.atleast_1d(np.array(found.locate(index), object)).tolist()


def documents_of(where):
    return {document for first, stop in where.documents for document in range(first, stop)}


def parts_of(found, index):
    """The examples of an element: where each is from, and its features."""
    element, where = found[index], located(found, index)
    if not found.numbering.packed:
        return [(where[0], {key: value.tolist() for key, value in element.items() if isinstance(value, np.ndarray)})]
    features = [key for key in element if f"{key}_segment_ids" in element]
    parts = []
    for segment, each in enumerate(where, start=1):
        parts.append((each, {key: element[key][element[f"{key}_segment_ids"] == segment].tolist() for key in features}))
    return parts


@of_pipelines
@pytest.mark.parametrize("pack", [False, True])
def test_no_example_has_a_document_that_is_left_out_and_all_others_are_the_same(pipeline, pack):
    before = read(pipeline, pack)
    gone = set(range(4, max(each.store.documents for each in before.numbering.corpora), 9))
    found = without(before, sorted(gone))
    assert len(found) == len(before)
    replaced = 0
    for index in range(min(len(found), 160)):
        old, new = parts_of(before, index), parts_of(found, index)
        assert len(old) == len(new)
        for (was, values), (where, others) in zip(old, new):
            assert not documents_of(where) & gone
            if not documents_of(was) & gone:
                assert (where, others) == (was, values)
                continue
            replaced += 1
            assert where.replaces == was.documents
            assert [getattr(where, key) for key in NAMED] == [getattr(was, key) for key in NAMED]
            if "denoiser" in pipeline or was.denoiser:
                assert {key: len(each) for key, each in others.items()} == {key: len(each) for key, each in values.items()}
            elif pack:
                assert all(len(others[key]) <= len(values[key]) for key in values)
    assert replaced


def test_stages_begin_at_their_steps_with_skipped_steps_before():
    pre = described("left_pre")
    post = Mixture("left_post", source=pre, denoisers=T5GEMMA2[:1])
    other = described("left_other")
    planned = Mix("left_stages", schedule=[Stage(0, {pre: 1}), Stage(10, {post: 1, other: 1})], batch_size=4, steps=30)
    before = ul2_tasks.examples(planned, LENGTHS)
    found = without(before, skips=[(20, 8)])
    assert [found.locate(index) for index in range(20)] == [before.locate(index) for index in range(20)]
    of_other = [found.locate(index).corpus == other.corpus().name for index in range(len(found))]
    assert not any(of_other[:40])
    assert 3 <= sum(of_other[40:48]) <= 5
    assert len(found) == len(before)
    at_its_beginning = without(before, skips=[(40, 12)])
    for index in range(40, 60):
        assert at_its_beginning.locate(index) == before.locate(index + 12), (
            "of what the stage would have read, the first is skipped"
        )
    seen = [(where.epoch, where.tokens) for where in map(found.locate, range(len(found))) if where.corpus == pre.corpus().name]
    assert len(set(seen)) == len(seen), "nothing is read twice"


@pytest.mark.parametrize("pipeline", ["joined", "apart in blocks", "conversations"])
def test_find_is_the_inverse_of_locate_where_steps_are_skipped_too(pipeline):
    found = without(read(pipeline, True), [1, 2, 4, 5, 40], skips=[(25, 7), (60, 3)])
    for each in (found, found.epoch(1)):
        held = {}
        for index in range(len(each)):
            for document in set().union(*map(documents_of, located(each, index))):
                held.setdefault(document, []).append(index)
        assert [each.find(document) for document in range(60)] == [held.get(document, []) for document in range(60)]


@pytest.mark.parametrize("pipeline", ["joined", "apart", "conversations"])
def test_a_list_of_all_documents_is_refused(pipeline):
    before = read(pipeline, False)
    with pytest.raises(ValueError, match="exclude"):
        without(before, range(before.numbering.corpora[0].store.documents))


def test_what_is_read_instead_ends_in_eos_where_the_document_did():
    mixture, lengths = PIPELINES["separated"]()
    found = without(ul2_tasks.examples(mixture, lengths), [3, 7, 8, 50])
    (corpus,) = found.numbering.corpora
    _, stops = corpus.store.ranges_of(np.arange(corpus.store.documents))
    last = corpus.store.read_chunks(*corpus.kind.overlay.places(stops - 1, stops)[1:3])
    assert (last == mixture.vocabulary.eos_id).all()


def test_what_is_longer_than_its_place_in_a_row_is_not_trained_on():
    before = read("conversations", True)
    (corpus,) = before.numbering.corpora
    starts, stops = corpus.store.ranges_of(np.arange(corpus.store.documents))
    kept = max((each for each in range(len(starts)) if len(corpus.slots_with(0, each))), key=(stops - starts).__getitem__)
    found = without(before, np.delete(np.arange(len(starts)), kept))
    whole = {tuple(example["tokens"].tolist()) for example in read("conversations", False)[:]}
    cut = 0
    for index in range(len(found)):
        for (_, was), (_, values) in zip(parts_of(before, index), parts_of(found, index), strict=True):
            assert len(values["tokens"]) <= len(was["tokens"])
            if tuple(values["tokens"]) not in whole:
                segment = values["tokens"]
                assert any(segment == list(each[: len(segment)]) for each in whole)
                cut += 1
        row = found[index]
        trained = [row["loss_mask"][row["tokens_segment_ids"] == each + 1].any() for each in range(len(located(found, index)))]
        ends = [tuple(values["tokens"]) in whole for _, values in parts_of(found, index)]
        assert trained == ends
    assert cut
