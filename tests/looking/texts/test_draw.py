"""Examples to look at are those that a model gets: of each task, as many as asked for, told in numbers that are theirs."""

import dataclasses
import itertools
import json

import pytest
import seqio
from support import KINDS, restore

import ul2_tasks
from ul2_tasks import T5GEMMA2, CausalDenoiser, SequentialDenoiser, chunk_length, mix, register
from ul2_tasks.denoising.reconstruction import invert
from ul2_tasks.looking.texts.draw import draw
from ul2_tasks.sources.memory import MemoryDataSource
from ul2_tasks.tasks.providers import denoising_tasks

LENGTHS = {"inputs": 64, "targets": 64}


def in_memory(*texts) -> MemoryDataSource:
    return MemoryDataSource(lambda: texts, validation=0)


def test_each_task_gives_its_examples_and_their_own_numbers():
    mixture = register("samples_kinds", denoisers=KINDS, vocabulary="bytes")
    tasks = {task.name: task for task in seqio.get_mixture_or_task(mixture).tasks}
    samples = list(draw(mixture, LENGTHS, 3))
    assert [(sample.task, sample.number) for sample in samples] == [(name, number) for name in tasks for number in range(3)]
    assert len(tasks) == len(KINDS)
    for sample in samples:
        denoiser, special = tasks[sample.task].denoiser, tasks[sample.task].special_tokens()
        assert (sample.denoiser, sample.mode) == (denoiser.name, denoiser.mode)
        counts, full = sample.counts, tasks[sample.task].full_chunk(LENGTHS)
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


@pytest.fixture(scope="module")
def few():
    """Two of each of two denoisers, named in another order than the mixture's."""
    return list(draw("ul2_mix", LENGTHS, 2, denoisers=["x1", "r1"]))


def test_a_sample_is_json(few):
    sample = few[0]
    read = json.loads(json.dumps(dataclasses.asdict(sample)))
    assert list(read) == ["task", "denoiser", "mode", "number", "counts", "ids", "inputs", "targets"]
    assert list(read["counts"]) == ["chunk", "noise", "spans", "inputs", "targets", "corruption_rate"]
    assert list(read["inputs"][0].items()) == [("kind", "mode"), ("text", "[R]"), ("tokens", 1), ("span", None)]
    assert read["ids"] == sample.ids


def test_they_are_what_get_dataset_gives_with_the_same_seed_and_no_other(few):
    task = seqio.get_mixture_or_task("ul2_r1")
    examples = task.get_dataset(LENGTHS, seed=5, num_epochs=None).take(2).as_numpy_iterator()
    expected = [{key: example[key].tolist() for key in ("inputs", "targets")} for example in examples]
    samples = list(draw("ul2_r1", LENGTHS, 2, seed=5))
    assert [sample.ids for sample in samples] == expected
    assert all(a.ids != b.ids for a, b in zip(samples, few[:2], strict=True)), "of seed 0"


def test_of_some_denoisers_only(few):
    assert [sample.denoiser for sample in few] == ["r1", "r1", "x1", "x1"]
    message = r"the denoiser must be one of \['r1', 'r2', 's', 'x1', 'x2'\] in 'ul2_mix', got \['q', 'x9'\]"
    with pytest.raises(ValueError, match=message):
        draw("ul2_mix", LENGTHS, 1, denoisers=["x9", "r1", "q"])


def test_a_mixture_of_mixtures_has_all_their_tasks():
    sources = {name: in_memory(*[f"corpus {name} {n}" for n in range(200)]) for name in ("one", "two")}
    one, two = (register(f"samples_{name}", source, denoisers=T5GEMMA2[::4]) for name, source in sources.items())
    both = mix("samples_both", {one: 1, two: 2})
    samples = list(draw(both, LENGTHS, 1, denoisers=["s"]))
    assert sorted(sample.task for sample in samples) == ["samples_one_s", "samples_two_s"]
    for sample in samples:
        text = "".join(part.text for part in (*sample.inputs, *sample.targets))
        assert ("one" in text, "two" in text) == ("one" in sample.task, "two" in sample.task)


BORDERED = (
    T5GEMMA2[1],
    T5GEMMA2[4],
    SequentialDenoiser(name="prefix", noise_density=0.5, split="uniform", sentinel=False),
    CausalDenoiser(stride=20),
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
    tasks = {task.name: task for task in denoising_tasks(mixture)}
    borders = 0
    for sample in draw(mixture, LENGTHS, 4):
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


def test_a_text_of_a_few_words_gives_as_many_examples():
    text = in_memory("a text of ten tokens or so is enough")
    mixture = register("samples_short", text, denoisers=T5GEMMA2[4:], merge_examples=False)
    assert len(list(draw(mixture, LENGTHS, 5))) == 5
    assert len(list(draw(mixture, LENGTHS, 5, num_epochs=1))) == 1, "the text is one example"


@pytest.mark.parametrize("merge_examples", [True, False])
def test_a_text_that_is_read_again_gets_other_noise(merge_examples):
    words = " ".join(f"word {n} of many" for n in range(12))
    name = f"samples_again_{merge_examples}".lower()
    mixture = register(name, in_memory(words), denoisers=T5GEMMA2[:1], merge_examples=merge_examples)
    samples = list(draw(mixture, LENGTHS, 5))
    assert len(samples) == 5
    assert len({tuple(sample.ids["targets"]) for sample in samples}) >= 4, "r1 has 246 ways to place its two spans"


def test_a_split_that_differs_from_example_to_example_is_told_as_it_is():
    denoiser = SequentialDenoiser(name="u", noise_density=0.5, split="uniform", sentinel=False)
    mixture = register("samples_uniform", vocabulary="bytes", denoisers=[denoiser])
    samples = list(draw(mixture, LENGTHS, 20))
    assert {sample.counts.chunk for sample in samples} == {chunk_length(denoiser, LENGTHS).length}
    assert len({sample.counts.noise for sample in samples}) > 10
    assert all(sample.mode is None and sample.inputs[0].kind != "mode" for sample in samples)


@pytest.mark.parametrize("texts", [[], [""], ["", " ", ""]], ids=["no document", "an empty one", "blanks"])
def test_a_corpus_without_text_is_refused(texts):
    mixture = register(f"samples_empty_{len(texts)}", in_memory(*texts))
    message = r"'samples_empty_\d_corpus' has (no document in split 'train'|\d documents in split 'train', and no token)"
    with pytest.raises(ValueError, match=message):
        draw(mixture, LENGTHS, 1)


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match="mixture must have a denoising task, got 'ul2_corpus'"):
        denoising_tasks("ul2_corpus")
    with pytest.raises(ValueError, match=r"split must be one of \['train', 'validation'\] in.*validation=0\.05\), got 'test'"):
        draw("ul2_mix", LENGTHS, 1, split="test")
    with pytest.raises(ValueError, match=r"denoiser 'r1' makes .*, got inputs 2, targets 2"):
        next(draw("ul2_mix", {"inputs": 2, "targets": 2}, 1))


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


def test_a_description_of_little_text_gives_as_many_as_its_epochs_have():
    described = ul2_tasks.Mixture("short", in_memory("a few words"), vocabulary="bytes")
    assert len(list(draw(described, LENGTHS, 4))) == 20
    one = list(draw(described, LENGTHS, 4, num_epochs=1))
    assert len(one) == len(ul2_tasks.examples(described, LENGTHS))


def test_samples_of_a_cache_are_drawn_without_reading_the_source(tmp_path, monkeypatch):
    (tmp_path / "texts.jsonl").write_text(json.dumps({"text": "Some words, and other words. " * 200}) + "\n")
    ul2_tasks.Mixture("gone", str(tmp_path / "texts.jsonl"), "bytes").cache(tmp_path / "CACHE")
    name = register("gone", str(tmp_path / "texts.jsonl"), "bytes")
    monkeypatch.setattr("seqio.utils._GLOBAL_CACHE_DIRECTORIES", [str(tmp_path / "CACHE")])
    monkeypatch.setattr("ul2_tasks.looking.texts.quick_tasks.first_documents", lambda *_: pytest.fail("the source was read"))
    assert len(list(draw(name, LENGTHS, 1, use_cached=True))) == 5
