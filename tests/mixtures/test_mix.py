"""`Mix`: its examples by number are those of what `mix` registers."""

import dataclasses
import json
import math

import numpy as np
import pytest
import seqio

import ul2_tasks

LENGTHS = {"inputs": 96, "targets": 80}
DOCUMENTS = ul2_tasks.embedded_documents()
ODD = [
    ul2_tasks.SpanDenoiser(mean_span_length=3, noise_density=0.2, name=name, weight=weight)
    for name, weight in (("z", 0.3), ("b", 0.1), ("k", 0.2))
]


@pytest.fixture(scope="module")
def mixtures(tmp_path_factory):
    """Three of different corpora and denoisers, whose names are in another order than their weights."""
    folder = tmp_path_factory.mktemp("mixes")
    found = []
    for number, (name, denoisers) in enumerate((("mm_z", "T5GEMMA2"), ("mm_a", ODD), ("mm_k", "T5GEMMA2"))):
        path = folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in DOCUMENTS[number * 30 : number * 30 + 30]))
        found.append(ul2_tasks.Mixture(name, str(path), denoisers=denoisers))
        ul2_tasks.register(name, str(path), denoisers=denoisers)
    return found


def plain(examples) -> list[dict]:
    return [{key: value if isinstance(value, str) else value.tolist() for key, value in one.items()} for one in examples]


@pytest.mark.parametrize(("pack", "shuffle"), [(False, True), (True, False)])
def test_the_numbers_are_those_of_the_registered_mix(mixtures, tmp_path, monkeypatch, shuffle, pack):
    weights = [3, 0.7, 1.9]
    name = ul2_tasks.mix("mm_all", {f"{mixture.name}_mix": weight for mixture, weight in zip(mixtures, weights)})
    mix = ul2_tasks.Mix("mm_all", dict(zip(mixtures, weights)))
    settings = {"seed": 11, "shuffle": shuffle, "pack": pack}
    registered, described = ul2_tasks.examples(name, LENGTHS, **settings), ul2_tasks.examples(mix, LENGTHS, **settings)
    assert len(described) == len(registered)
    assert plain(described[:60]) == plain(registered[:60])
    assert plain(described.epoch(2)[:9]) == plain(registered.epoch(2)[:9])
    assert described.locate(17) == registered.locate(17)
    manifests = mix.cache(tmp_path)
    assert {name: manifest["totals"]["documents"] for name, manifest in manifests.items()} == {"mm_a": 30, "mm_k": 30, "mm_z": 30}
    cached = ul2_tasks.examples(mix, LENGTHS, cache_dirs=[tmp_path], **settings)
    assert plain(cached[:30]) == plain(registered[:30])
    if not pack:
        monkeypatch.setattr(seqio.utils, "_GLOBAL_CACHE_DIRECTORIES", [str(tmp_path)])
        stream = seqio.get_mixture_or_task(name).get_dataset(LENGTHS, use_cached=True, seed=11, shuffle=shuffle, num_epochs=None)
        assert plain(stream.take(30).as_numpy_iterator()) == [{key: one[key] for key in LENGTHS} for one in plain(described[:30])]


@pytest.mark.parametrize("temperature", [0.5, 1, np.float32(4)])
def test_a_temperature_makes_the_rates_of_seqio(mixtures, temperature):
    sizes = {"mm_z": 9000, "mm_a": 40, "mm_k": 700}
    named = {f"{name}_mix": size for name, size in sizes.items()}
    registered = seqio.get_mixture_or_task(ul2_tasks.mix(f"mm_{temperature:.2f}", named, temperature=temperature))
    mix = ul2_tasks.Mix("mm", {mixture: sizes[mixture.name] for mixture in mixtures}, temperature=temperature)
    for name, size in sizes.items():
        of_seqio = seqio.mixing_rate_num_examples(OfSize(size), temperature=temperature)
        part = sum(registered.get_rate(task) for task in registered.tasks if task.name.startswith(name))
        assert part == pytest.approx(of_seqio)
    plainly = ul2_tasks.Mix("mm", {mixture: sizes[mixture.name] ** (1 / float(temperature)) for mixture in mixtures})
    assert mix.fingerprint() == plainly.fingerprint()
    assert plain(ul2_tasks.examples(mix, LENGTHS)[:40]) == plain(ul2_tasks.examples(plainly, LENGTHS)[:40])
    assert dataclasses.replace(mix) == mix == plainly


class OfSize:
    """What SeqIO asks a task for its rate."""

    cache_dir = "there"

    def __init__(self, size):
        self.size = size

    def get_cached_stats(self, split):
        return {"examples": self.size}


@pytest.mark.parametrize(
    "mixtures",
    [
        {},
        {ul2_tasks.Mixture("a"): 0},
        [(ul2_tasks.Mixture("a"), 1), (ul2_tasks.Mixture("a"), 2)],
        {"nobody_mix": 1},
        {3: 1},
        {ul2_tasks.Mixture("a"): 1, ul2_tasks.Mixture("a", denoisers="UL2"): 1},
    ],
)
def test_a_mix_says_what_is_wrong(mixtures):
    with pytest.raises(ValueError, match=r"mixture|names"):
        ul2_tasks.Mix("wrong", mixtures)
    with pytest.raises(ValueError, match="temperature"):
        ul2_tasks.Mix("hot", {ul2_tasks.Mixture("a"): 1}, temperature=math.nan)


@pytest.mark.parametrize("pack", [False, True])
def test_weights_by_tokens_are_exact_to_one_example_after_any_number(mixtures, pack):
    web, odd, _ = mixtures  # whose examples have other lengths
    mix = ul2_tasks.Mix("mm_tokens", {web: 3, odd: 2}, weigh="tokens")
    numbering = ul2_tasks.examples(mix, LENGTHS, pack=pack).numbering
    slots = numbering.slots(np.arange(2000))
    read = np.zeros([2, len(slots.places)])
    for number, corpus in enumerate(numbering.corpora):
        own = slots.corpora == number
        read[number, own] = corpus.order.ranges(slots.epochs[own], slots.slots[own]).sizes
        each = corpus.store.tokens / corpus.order.examples
        assert read[number, own].mean() == pytest.approx(each, rel=0.05)
        read[number, own] = each  # what examples have on average
    asked = {"mm_z_corpus": 3 / 5, "mm_a_corpus": 2 / 5}
    come = read.cumsum(axis=1)
    most = 10 if pack else 1.5  # examples: of a row those of one corpus come together
    for number, corpus in enumerate(numbering.corpora):
        assert np.abs(come[number] - asked[corpus.name] * come.sum(axis=0)).max() < most * read.max()


def test_weights_by_tokens_are_those_of_the_registered_mix_and_other_data(mixtures):
    web, odd, _ = mixtures
    name = ul2_tasks.mix("mm_by_tokens", {"mm_z_mix": 3, "mm_a_mix": 2}, weigh="tokens")
    by_tokens, by_examples = (ul2_tasks.Mix("mm_by_tokens", {web: 3, odd: 2}, weigh=weigh) for weigh in ("tokens", "examples"))
    assert by_tokens.fingerprint() != by_examples.fingerprint()
    registered, described, other = (ul2_tasks.examples(each, LENGTHS, seed=2) for each in (name, by_tokens, by_examples))
    assert plain(registered[:40]) == plain(described[:40]) != plain(other[:40])
    assert registered.describe()["weigh"] == described.describe()["weigh"] == "tokens"
    assert "weigh" not in other.describe()
    first = next(seqio.get_mixture_or_task(name).get_dataset(LENGTHS, seed=2, num_epochs=1).as_numpy_iterator())
    assert first["inputs"].tolist() == described[0]["inputs"].tolist()


@pytest.mark.parametrize("pack", [False, True])
def test_an_epoch_reads_no_token_twice_however_small_a_corpus_and_says_which_it_does_not_read(mixtures, pack, caplog):
    web, odd, _ = mixtures
    examples = ul2_tasks.examples(ul2_tasks.Mix("mm_uneven", {web: 9_999, odd: 1}), LENGTHS, pack=pack)
    assert "an epoch has no example of ['mm_a_corpus']" in caplog.text
    slots = examples.numbering.slots(np.arange(len(examples)))
    assert len(slots.slots) == len(set(zip(slots.corpora.tolist(), slots.epochs.tolist(), slots.slots.tolist())))
    assert set(slots.epochs.tolist()) == {0}
    caplog.clear()
    ul2_tasks.examples(ul2_tasks.Mix("mm_even", {web: 2, odd: 1}), LENGTHS, pack=pack)
    assert not caplog.text
