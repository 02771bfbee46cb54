"""`ul2 schedule`: what each stage of a run reads."""

import pytest

import ul2_tasks
from ul2_tasks.inspect.run import Run
from ul2_tasks.inspect.schedule import schedule_of
from ul2_tasks.inspect.view import locations_of

PAIRS = {"inputs": 512, "targets": 512}


@pytest.mark.parametrize("pack", [False, True])
def test_a_schedule_counts_the_tokens_of_documents_kept_apart_and_not_their_pieces(pack):
    texts = ul2_tasks.MemoryDataSource(lambda: ["many words " * (number % 40 + 1) for number in range(300)], validation=0)
    apart = ul2_tasks.register(f"looked_apart_{pack}", texts, merge_examples=False)
    other = ul2_tasks.register(f"looked_other_{pack}")
    stages = [ul2_tasks.Stage(0, {apart: 1}), ul2_tasks.Stage(30, {apart: 1, other: 1})]
    run = Run(ul2_tasks.mix(f"looked_planned_{pack}", schedule=stages, batch_size=4, steps=90), PAIRS, pack=pack)
    found, rows = run.examples(), schedule_of(run)
    assert [row.stage for row in rows] == [0, 1, 1]
    for row in rows:
        located = [each for number in range(4 * row.first_step, 4 * row.stop_step) for each in locations_of(found, number)]
        own = [each for each in located if each.corpus == row.corpus]
        assert row.tokens == pytest.approx(sum(stop - start for each in own for start, stop in each.tokens), rel=0.1)
        corpus = next(each for each in found.numbering.corpora if each.name == row.corpus)
        assert row.epochs[1] - row.epochs[0] == pytest.approx(row.tokens / corpus.store.tokens, rel=0.01)
