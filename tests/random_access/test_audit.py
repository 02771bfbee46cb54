"""What a run has read of each document: what a count of all examples until then says."""

import collections

import numpy as np
import pytest

import ul2_tasks
from tests.random_access.test_leaving_out import LENGTHS, PIPELINES, described, read, without
from ul2_tasks import T5GEMMA2, BlockShuffle, Mix, Mixture, Stage
from ul2_tasks.inspect.view import locations_of
from ul2_tasks.order import rows
from ul2_tasks.random_access import audit
from ul2_tasks.random_access.audit import read_of
from ul2_tasks.random_access.numbering import NO_END


def staged(pack):
    """Denoisers change within an epoch of a corpus, and back."""
    a = described("audited_a", block_shuffle=BlockShuffle(512, 4, 2))
    r1, s, b = (
        Mixture("audited_r1", a, denoisers=T5GEMMA2[:1]),
        Mixture("audited_s", a, denoisers=T5GEMMA2[4:]),
        described("audited_b"),
    )
    stages = Stage(0, {r1: 1, s: 1, b: 1}), Stage(17, {b: 3, a: 1}), Stage(40, {s: 1, b: 1}), Stage(71, {a: 1})
    return ul2_tasks.examples(Mix("audited_stages", schedule=stages, batch_size=8, steps=120), LENGTHS, pack=pack)


def shared_with(store, ranges):
    """The documents of ranges, and how many of each range's tokens are theirs."""
    for start, stop in ranges:
        for document in range(*store.documents_at(start, stop)):
            first, last = store.tokens_of(document)
            yield document, min(last, stop) - max(first, start)


def own_of_place(corpus, where):
    """What an example has of its own place in the order, also where it is read as others."""
    ranges = corpus.order.ranges(np.array([where.epoch]), np.array([where.chunk_index]))
    origin = corpus.data.origin(ranges)
    return shared_with(corpus.store, zip(origin.starts.tolist(), origin.stops.tolist()))


def counted(found, elements):
    """The same, example by example: by corpus and document the tokens and the times; by corpus and task the examples and tokens."""
    corpora = {corpus.name: corpus for corpus in found.numbering.corpora}
    own, tokens = collections.defaultdict(lambda: collections.defaultdict(int)), collections.defaultdict(int)
    by_task = collections.defaultdict(lambda: np.zeros(2, int))
    for number in range(elements):
        slots = found.numbering.slots(np.array([number]))
        for where, corpus in zip(locations_of(found, number), [found.numbering.corpora[at] for at in slots.corpora], strict=True):
            by_task[where.corpus, where.task] += [1, sum(stop - start for start, stop in where.tokens)]
            for document, shared in shared_with(corpus.store, where.tokens):
                tokens[where.corpus, document] += shared
            for document, shared in own_of_place(corpus, where):
                if document not in found.numbering.leaving_out.left_out(where.corpus):
                    own[where.corpus, document][where.epoch] += shared
    times = {}
    for (name, document), of_epochs in own.items():
        times[name, document] = sum(count == corpora[name].data.tokens_an_epoch()[document] for count in of_epochs.values())
    return dict(tokens), times, {key: each.tolist() for key, each in by_task.items()}


def audited(found, elements):
    tokens, times, by_task = {}, {}, {}
    for name, own in read_of([(0, NO_END, found.numbering)], elements).items():
        for values, counts in ((tokens, own.tokens), (times, own.times)):
            values.update({(name, document): count for document, count in enumerate(counts.tolist()) if count})
        by_task |= {(name, task): [of.examples, of.tokens] for task, of in own.tasks.items() if of.examples}
    return tokens, times, by_task


def check(found, elements):
    tokens, times, by_task = counted(found, elements)
    got = audited(found, elements)
    assert got[0] == tokens
    assert got[1] == {key: count for key, count in times.items() if count}
    assert got[2] == by_task


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(audit, "_AT_ONCE", 50)
    monkeypatch.setattr(rows, "_POOL", 32)


@pytest.mark.parametrize("pack", [False, True], ids=["examples", "packed"])
@pytest.mark.parametrize("left_out", [False, True])
@pytest.mark.parametrize("name", [*PIPELINES, "stages"])
def test_what_was_read_is_what_all_examples_have(name, pack, left_out):
    found = staged(pack) if name == "stages" else read(name, pack)
    if left_out:
        found = without(found, [2, 17, 40], skips=[(16, 40), (72, 168)])
    epoch = found.end_of(1)
    for elements in (0, 100, 139, 480, 700) if name == "stages" else (0, 1, epoch // 3, epoch, 2 * epoch + epoch // 2 + 1):
        check(found, elements)
