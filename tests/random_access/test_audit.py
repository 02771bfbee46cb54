"""What a run has read of each document: what a count of all examples until then says."""

import collections
import functools

import numpy as np
import pytest

import ul2_tasks
from ul2_tasks import T5GEMMA2, UL2, BlockShuffle, Chat, MemoryDataSource, Mix, Mixture, Stage, mix, register
from ul2_tasks.inspect.view import locations_of
from ul2_tasks.order import rows
from ul2_tasks.random_access import audit
from ul2_tasks.random_access.audit import read_of

LENGTHS = {"inputs": 96, "targets": 80}
BLOCKS = BlockShuffle(block_tokens=256, partitions=4, window_blocks=2)
R1, S = T5GEMMA2[::4]


def mixture(name, count=90, **arguments):
    texts = [f"{name} {number} " * (1 + number * number % 17) for number in range(count)]
    return Mixture(f"audited_{name}", MemoryDataSource(lambda: texts, validation=0), "bytes", **arguments)


def staged(name, blocks):
    """Denoisers change within an epoch of a corpus, and back."""
    for corpus, count in (("a", 90), ("b", 60)):
        texts = [f"{corpus} {number} " * (1 + number * number % 17) for number in range(count)]
        source = MemoryDataSource(lambda texts=texts: texts, validation=0)
        register(f"{name}_{corpus}", source, "bytes", denoisers=(R1, S), block_shuffle=blocks)
    a_r1, a_s, b = f"{name}_a_r1", f"{name}_a_s", f"{name}_b_mix"
    stages = (
        Stage(0, {a_r1: 1, a_s: 1, b: 1}),
        Stage(17, {b: 3, f"{name}_a_mix": 1}),
        Stage(40, {a_s: 1, b: 1}),
        Stage(71, {f"{name}_a_mix": 1}),
    )
    return mix(name, schedule=stages, batch_size=8, steps=120)


PIPELINES = {
    "joined": lambda: mixture("joined"),
    "an EOS between": lambda: mixture("eos", separate_documents=True),
    "blocks": lambda: mixture("blocks", block_shuffle=BLOCKS),
    "apart": lambda: mixture("apart", merge_examples=False, denoisers=UL2),
    "apart in blocks": lambda: mixture("parts", merge_examples=False, block_shuffle=BLOCKS),
    "mixed": lambda: Mix("audited_mix", {mixture("ma"): 2, mixture("mb", 30, denoisers=(R1, S)): 1.37}),
    "mixed blocks": lambda: Mix("audited_mixed_blocks", {mixture("ba", block_shuffle=BLOCKS): 2, mixture("bb"): 0.1}),
    "stages": lambda: staged("audited_stages", None),
    "stages in blocks": lambda: staged("audited_staged_blocks", BLOCKS),
}
CHATS = {
    "conversations": lambda: Chat("audited_chat", truncation="drop"),
    "each turn": lambda: Chat("audited_turns", truncation="drop", turns="each"),
}
LEFT_OUT = {
    "": {},
    "both": {"exclude": [2, 17, 40], "skip": [(2, 7), (9, 30)], "batch_size": 8},
}


@functools.cache
def examples(name, pack, left_out=""):
    made = (PIPELINES | CHATS)[name]()
    arguments = dict(LEFT_OUT[left_out])
    if "exclude" in arguments:
        corpora = ul2_tasks.examples(made, LENGTHS if name not in CHATS else {"tokens": 600}).numbering.names
        arguments["exclude"] = [{"corpus": corpora[0], "document": number} for number in arguments["exclude"]]
    return ul2_tasks.examples(made, LENGTHS if name not in CHATS else {"tokens": 600}, seed=3, pack=pack, **arguments)


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
    for name in found.numbering.names:
        read = read_of(found.numbering, name, elements)
        for values, counts in ((tokens, read.tokens), (times, read.times)):
            values.update({(name, document): count for document, count in enumerate(counts.tolist()) if count})
        by_task |= {(name, task): [of.examples, of.tokens] for task, of in read.tasks.items() if of.examples}
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
@pytest.mark.parametrize("left_out", LEFT_OUT)
@pytest.mark.parametrize("name", [*PIPELINES, *CHATS])
def test_what_was_read_is_what_all_examples_have(name, pack, left_out):
    found = examples(name, pack, left_out)
    if "stages" in name:
        for elements in (0, 100, 17 * 8 + 3, 60 * 8, 119 * 8):
            check(found, elements)
        return
    epoch = found.end_of(1)
    for elements in (0, 1, epoch // 3, epoch, 3 * epoch + epoch // 2 + 1):
        check(found, elements)
