"""Examples to look at are those that a model gets: of each task, as many as asked for, told in numbers that are theirs."""

import itertools
import json

import pytest
from support import KINDS, restore

import ul2_tasks
from ul2_tasks import T5GEMMA2, CausalDenoiser, SequentialDenoiser, description_of, register
from ul2_tasks.denoisers.reconstruction import invert
from ul2_tasks.inspect.tasks import text_tasks
from ul2_tasks.inspect.texts.draw import draw
from ul2_tasks.sources.memory import MemoryDataSource

LENGTHS = {"inputs": 64, "targets": 64}


def in_memory(*texts) -> MemoryDataSource:
    return MemoryDataSource(lambda: texts, validation=0)


def test_each_task_gives_its_examples_and_their_own_numbers():
    mixture = register("samples_kinds", denoisers=KINDS, vocabulary="bytes")
    tasks = {task.name: task for task in text_tasks(description_of(mixture))}
    samples = list(draw(description_of(mixture), LENGTHS, 3))
    assert [(sample.task, sample.number) for sample in samples] == [(name, number) for name in tasks for number in range(3)]
    assert len(tasks) == len(KINDS)
    for sample in samples:
        denoiser, special = tasks[sample.task].denoiser, tasks[sample.task].special_tokens()
        assert (sample.denoiser, sample.mode) == (denoiser.name, denoiser.mode)
        counts, full = sample.counts, tasks[sample.task].solve(LENGTHS).full
        assert (counts.chunk, counts.spans) == (full.length, full.spans)
        assert counts.chunk == len(restore(sample.ids, denoiser, special))
        assert counts.corruption_rate == counts.noise / counts.chunk
        if getattr(denoiser, "split", None) != "uniform":
            assert (counts.noise, counts.inputs, counts.targets) == (full.noise, full.inputs, full.targets)
        noise = [part for part in sample.targets if part.kind in ("text", "bytes")]
        assert sum(part.tokens for part in noise) == counts.noise
        assert len({part.span for part in noise}) == counts.spans
        for feature in ("inputs", "targets"):
            parts = getattr(sample, feature)
            assert sum(part.tokens for part in parts) == len(sample.ids[feature]) == getattr(counts, feature)
            assert parts[-1].kind == "eos"
            sentinels = sum(part.kind == "sentinel" for part in parts)
            assert sentinels == (counts.spans if getattr(denoiser, "sentinel", True) else 0)
        assert (sample.inputs[0].kind, sample.inputs[0].text) == ("mode", denoiser.mode)


BORDERED = (
    T5GEMMA2[1],
    T5GEMMA2[4],
    SequentialDenoiser(name="prefix", noise_density=0.5, split="uniform", sentinel=False),
    CausalDenoiser(),
)
LETTERS = [letter.upper() + letter * (3 * number + 1) for number, letter in enumerate("abcdefghijklmnopqrstuvwxyz")]
BORDERS = {
    "joined": (LETTERS, BORDERED, {}),
    "separated": (LETTERS, BORDERED[:1], {"separate_documents": True}),
    "apart": (LETTERS, BORDERED[:1], {"merge_examples": False}),
    "in_memory": (["Ab"], BORDERED[3:], {}),
}


@pytest.mark.parametrize("kind", BORDERS)
def test_borders_stand_where_another_document_begins_and_nowhere_else(kind):
    texts, denoisers, settings = BORDERS[kind]
    mixture = register(f"samples_borders_{kind}", in_memory(*texts), "bytes", denoisers, **settings)
    tasks = {task.name: task for task in text_tasks(description_of(mixture))}
    borders = 0
    for sample in draw(description_of(mixture), LENGTHS, 4):
        task = tasks[sample.task]
        chunk = invert(sample.ids, task.denoiser, task.special_tokens()).chunk
        begins = sum(id - 3 in range(ord("A"), ord("Z") + 1) for id in chunk[1:].tolist())  # of a document its only capital
        found = [
            (before.kind, after.text[:1].isupper())
            for parts in (sample.inputs, sample.targets)
            for before, after in itertools.pairwise(parts)
            if after.kind == "text" and (before.kind == "border" or after.text[:1].isupper())
        ]
        assert all(is_upper for _, is_upper in found)
        marked = sum(kind == "border" for kind, _ in found)
        assert marked == begins == sum(part.kind == "border" for part in (*sample.inputs, *sample.targets))
        assert all((part.tokens, part.text, part.span) == (0, "", None) for part in sample.inputs if part.kind == "border")
        borders += marked
    assert (borders == 0) == (kind == "apart")


def test_those_of_a_description_are_its_first_by_index():
    described = ul2_tasks.Mixture("described", in_memory(*ul2_tasks.embedded_documents()[:50]), vocabulary="bytes")
    found = ul2_tasks.examples(described, LENGTHS, seed=4)
    samples = list(draw(described, LENGTHS, 3, seed=4, denoisers=["s", "r1"]))
    assert [(sample.task, sample.number) for sample in samples] == [
        (f"described_{name}", number) for name in ("r1", "s") for number in range(3)
    ]
    for name in ("r1", "s"):
        first = itertools.islice((example for example in found if example["denoiser"] == name), 3)
        expected = [{key: example[key].tolist() for key in LENGTHS} for example in first]
        assert [sample.ids for sample in samples if sample.denoiser == name] == expected
    with pytest.raises(
        ValueError, match=r"the denoiser must be one of \['r1', 'r2', 's',.*'x2'\] in 'described_mix', got \['x9'\]"
    ):
        draw(described, LENGTHS, 1, denoisers=["x9"])


def test_of_a_description_the_first_documents_are_read_alone(tmp_path):
    """The second file is no JSON, and would be an error."""
    record = json.dumps({"text": "A word, and another word. " * 400})
    (tmp_path / "a.jsonl").write_text(f"{record}\n" * 200)
    (tmp_path / "b.jsonl").write_text("no JSON\n")
    described = ul2_tasks.Mixture("first", str(tmp_path / "*.jsonl"), vocabulary="bytes")
    assert len(list(draw(described, LENGTHS, 2))) == 10
    with pytest.raises(ValueError, match=r"b\.jsonl"):
        ul2_tasks.examples(described, LENGTHS)
