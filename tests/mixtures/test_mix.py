"""`Mix`: its examples by number are those of what `mix` registers."""

import dataclasses
import json

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


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
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


def test_two_are_equal_if_mixtures_and_weights_are(mixtures):
    first, second, third = mixtures
    one = ul2_tasks.Mix("mm", {first: 2, second: 1})
    assert one == ul2_tasks.Mix("mm", [(second, 1), (first, 2)]) == dataclasses.replace(one)
    assert hash(one) == hash(dataclasses.replace(one))
    for other in ({first: 2, third: 1}, {first: 1, second: 1}, {first: 2, dataclasses.replace(second, on_error="skip"): 1}):
        assert ul2_tasks.Mix("mm", other) != one
        assert ul2_tasks.Mix("mm", other).fingerprint() != one.fingerprint()
    assert ul2_tasks.Mix("nn", {first: 2, second: 1}).fingerprint() == one.fingerprint()


@pytest.mark.parametrize(
    ("mixtures", "sentence"),
    [
        ({}, r"mixtures must map distinct names to positive.*rate functions are not supported"),
        ({ul2_tasks.Mixture("a"): 0}, "mixtures must map distinct names to positive numbers, got"),
        ([(ul2_tasks.Mixture("a"), 1), (ul2_tasks.Mixture("a"), 2)], "mixtures must map distinct names to positive numbers, got"),
        (
            {"ul2_mix": 1},
            r"mixtures must be ul2_tasks\.Mixture or ul2_tasks\.Chat objects, got.*ul2_tasks\.mix for registered names",
        ),
        (
            {ul2_tasks.Mixture("a"): 1, ul2_tasks.Mixture("a", denoisers="UL2"): 1},
            r"must have different names, got \['a', 'a'\]",
        ),
    ],
)
def test_a_mix_says_what_is_wrong(mixtures, sentence):
    with pytest.raises(ValueError, match=sentence):
        ul2_tasks.Mix("wrong", mixtures)


def test_what_does_not_go_together_is_refused():
    bytes_too = ul2_tasks.Mix("wrong", {ul2_tasks.Mixture("a"): 1, ul2_tasks.Mixture("b", vocabulary="bytes"): 1})
    with pytest.raises(ValueError, match=r"the mixtures of 'wrong' must be of one vocabulary, got .* Give them the same"):
        ul2_tasks.examples(bytes_too, LENGTHS)
    with pytest.raises(ValueError, match=r"name must be letters, digits .*, got 'a b'"):
        ul2_tasks.Mix("a b", {ul2_tasks.Mixture("a"): 1})
