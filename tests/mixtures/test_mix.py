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


@pytest.mark.parametrize(("pack", "weigh"), [(False, "tokens"), (True, "examples")])
def test_the_numbers_are_those_of_the_registered_mix_also_of_caches(mixtures, tmp_path, pack, weigh):
    weights, settings = [3, 0.7, 1.9], {"seed": 11, "pack": pack}
    of_names = {f"{mixture.name}_mix": weight for mixture, weight in zip(mixtures, weights)}
    name = ul2_tasks.mix(f"mm_{weigh}", of_names, weigh=weigh)
    mix = ul2_tasks.Mix(f"mm_{weigh}", dict(zip(mixtures, weights)), weigh=weigh)
    registered, described = ul2_tasks.examples(name, LENGTHS, **settings), ul2_tasks.examples(mix, LENGTHS, **settings)
    assert len(described) == len(registered)
    assert plain(described[:60]) == plain(registered[:60])
    assert plain(described.epoch(2)[:9]) == plain(registered.epoch(2)[:9])
    assert described.locate(17) == registered.locate(17)
    assert registered.describe().get("weigh") == described.describe().get("weigh") == (weigh if weigh == "tokens" else None)
    other = {"tokens": "examples", "examples": "tokens"}[weigh]
    assert mix.fingerprint() != ul2_tasks.Mix(f"mm_{weigh}", dict(zip(mixtures, weights)), weigh=other).fingerprint()
    manifests = mix.cache(tmp_path)
    assert {name: manifest["totals"]["documents"] for name, manifest in manifests.items()} == {"mm_a": 30, "mm_k": 30, "mm_z": 30}
    assert plain(ul2_tasks.examples(mix, LENGTHS, cache_dirs=[tmp_path], **settings)[:30]) == plain(registered[:30])


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
def test_tokens_are_those_of_objectives_and_of_turns(pack):
    text = ul2_tasks.Mixture("mm_text", denoisers="UL2")
    both = ul2_tasks.Mix("mm_objectives", {text: 1, ul2_tasks.Mixture("mm_other", text): 2}, weigh="tokens")
    found = ul2_tasks.examples(both, {"inputs": 512, "targets": 512}, pack=pack)
    located = [each for index in range(len(found)) for each in np.atleast_1d(found.locate(index))]
    read = [sum(stop - start for each in located if name in each.task for start, stop in each.tokens) for name in ("text", "other")]
    assert read[1] / read[0] == pytest.approx(2, rel=0.05)
    talks = ul2_tasks.Chat("mm_talks", truncation="drop")  # whose last turns have those before them as inputs
    words = ul2_tasks.Mixture("mm_words", vocabulary=talks.vocabulary)
    found = ul2_tasks.examples(ul2_tasks.Mix("mm_both", {words: 3, talks: 1}, weigh="tokens"), LENGTHS, pack=pack)
    numbers, corpora = np.arange(4 * len(found)), found.numbering.corpora
    slots = found.numbering.slots(numbers)
    read = [
        corpus.lengths_of(slots.epochs[of], slots.slots[of]).sum() if corpus.name == "mm_talks_corpus" else _text(corpus, slots, of)
        for number, corpus in enumerate(corpora)
        for of in [slots.corpora == number]
    ]
    assert dict(zip([corpus.name for corpus in corpora], np.array(read) / sum(read))) == pytest.approx(
        {"mm_words_corpus": 0.75, "mm_talks_corpus": 0.25}, rel=0.05
    )


def _text(corpus, slots, of):
    return corpus.order.ranges(slots.epochs[of], slots.slots[of]).sizes.sum()
