"""A mixture as the source: several mixtures read one corpus and its cache, and a mixture of them reads each token once."""

import collections
import dataclasses
import json
import math
from fractions import Fraction

import numpy as np
import pytest
import seqio
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencepiece import sentencepiece_model_pb2

import ul2_tasks
from ul2_tasks import BlockShuffle, Mix, Mixture, SequentialDenoiser, Stage, description_of, examples, register
from ul2_tasks.sources.memory import texts_in_memory
from ul2_tasks.tokenizers.sentencepiece import DEFAULT_MODEL

LENGTHS = {"inputs": 96, "targets": 80}
TEXTS = ul2_tasks.embedded_documents()[:30]
UL2_NAMES, T5GEMMA2_NAMES = ([denoiser.name for denoiser in preset] for preset in (ul2_tasks.UL2, ul2_tasks.T5GEMMA2))


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> str:
    file = tmp_path_factory.mktemp("shared") / "texts.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    return str(file)


def pair(path: str) -> tuple[Mixture, Mixture]:
    """UL2 on a corpus, and T5Gemma 2's mixture on the same."""
    first = Mixture("sc_pre", path, DEFAULT_MODEL, "UL2")
    return first, Mixture("sc_s", first)


def registered_pair(path: str) -> tuple[str, str]:
    first = register("sc_pre", path, DEFAULT_MODEL, "UL2")
    return first, register("sc_s", description_of(first))


def plain(found) -> list[dict]:
    return [{key: value if isinstance(value, str) else value.tolist() for key, value in one.items()} for one in found]


def test_the_corpus_is_that_of_the_other_mixture(path, tmp_path):
    first, second = pair(path)
    other = Mixture("sc_third", denoisers="UL2R", source=second)
    for mixture in (second, other):
        corpus = mixture.corpus([tmp_path])
        assert corpus.name == "sc_pre_corpus"
        assert vars(corpus) == vars(first.corpus([tmp_path]))
        assert (mixture.vocabulary, mixture.text_key, mixture.on_error) == (first.vocabulary, "text", "raise")
    assert other == Mixture("sc_third", denoisers="UL2R", source=first), "a chain leads to the first"
    first.cache(tmp_path)
    found = examples(second, LENGTHS, cache_dirs=[tmp_path])
    assert found.describe()["use_cached"]
    assert {found.locate(i).corpus for i in range(5)} == {"sc_pre_corpus"}
    assert plain(found[:9]) == plain(examples(Mixture("sc_s", path, DEFAULT_MODEL), LENGTHS)[:9]), "as of a corpus of its own"


@settings(max_examples=25, deadline=None)
@given(
    weights=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    seed=st.integers(0, 2**40),
    lengths=st.tuples(st.integers(40, 120), st.integers(40, 120)),
    separate=st.booleans(),
)
def test_a_mix_reads_each_token_of_an_epoch_once(weights, seed, lengths, separate):
    """In an exact ratio of denoisers, but for the end of the epoch."""
    first = Mixture("pre", texts_in_memory(TEXTS[:12]), denoisers="UL2", separate_documents=separate)
    second = Mixture("s", first, separate_documents=separate)
    both = Mix("both", dict(zip((first, second), weights)))
    found = examples(both, dict(zip(LENGTHS, lengths)), seed=seed)
    for epoch in (0, 3):
        read, tasks = collections.Counter(), collections.Counter()
        for number in range(len(found)):
            location = found.epoch(epoch).locate(number)
            assert (location.corpus, location.epoch) == ("pre_corpus", epoch)
            tasks[location.task] += 1
            for start, stop in location.tokens:
                read.update(range(start, stop))
        assert set(read.values()) == {1}
        assert set(read) == set(range(len(read)))


@pytest.mark.parametrize("weights", [(1, 1), (3, 1), (2, 5)])
def test_the_ratio_of_denoisers_is_exact(weights):
    """In each cycle, the fewest examples that can have it."""
    first = Mixture("pre", denoisers="UL2")
    second = Mixture("s", first)
    shares = {}
    for mixture, weight in zip((first, second), weights):
        total = sum(weights) * sum(denoiser.weight for denoiser in mixture.denoisers)
        shares |= {f"{mixture.name}_{each.name}": Fraction(weight * each.weight, total) for each in mixture.denoisers}
    cycle = math.lcm(*(share.denominator for share in shares.values()))
    found = examples(Mix("both", dict(zip((first, second), weights))), {"inputs": 32, "targets": 32}, seed=8, shuffle=False)
    assert len(found) > 3 * cycle
    for start in range(0, 3 * cycle, cycle):
        tasks = collections.Counter(found.locate(number).task for number in range(start, start + cycle))
        assert tasks == {task: share * cycle for task, share in shares.items()}


def test_register_adds_no_corpus_and_is_idempotent(path):
    one, other = registered_pair(path)
    assert (one, other) == ("sc_pre_mix", "sc_s_mix")
    assert "sc_s_corpus" not in seqio.TaskRegistry.names()
    before = seqio.get_mixture_or_task(other)
    corpus = seqio.TaskRegistry.get("sc_pre_corpus").corpus
    assert all(task.corpus is corpus for task in before.tasks)
    shared = description_of(one)
    for same in (shared, description_of("sc_s_mix"), pair(path)[0]):
        assert register("sc_s", same) == other
    assert register("sc_s", shared, str(DEFAULT_MODEL), text_key="text") == other, "what gin binds for all calls"
    assert seqio.get_mixture_or_task(other) is before
    assert register("sc_third", description_of(other), denoisers="UL2R") == "sc_third_mix"
    assert {task.corpus for task in seqio.get_mixture_or_task("sc_third_mix").tasks} == {corpus}
    with pytest.raises(ValueError, match=r"sc_s_mix.* source"):
        register("sc_s")
    with pytest.raises(ValueError, match=r"sc_pre_mix.* source"):
        register("sc_pre", shared, denoisers="UL2")


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("on_error", "skip"),
        ("vocabulary", "bytes"),
        ("sentinels", np.int64(9)),
    ],
)
def test_arguments_of_another_corpus_are_refused(path, argument, value):
    with pytest.raises(ValueError, match=argument):
        Mixture("sc_s", pair(path)[0], **{argument: value})
    with pytest.raises(ValueError, match=argument):
        register("sc_wrong", pair(path)[0], **{argument: value})


def test_a_corpus_is_divided_in_one_way(path):
    """Alone each mixture has its own way. In one run a token could be read twice in an epoch."""
    first = pair(path)[0]
    for argument, value in (("separate_documents", True), ("block_shuffle", BlockShuffle(block_tokens=256))):
        other = Mixture("sc_apart", first, **{argument: value})
        assert len(examples(other, LENGTHS)) > 10
        staged = [Stage(0, {first: 1}), Stage(3, {other: 1})]
        for mixed in (Mix("both", {first: 1, other: 1}), Mix("both", schedule=staged, batch_size=2, steps=9)):
            with pytest.raises(ValueError, match=argument):
                examples(mixed, LENGTHS)


def test_a_text_does_not_become_a_special_token_of_a_mixture_that_shares_it(path, tmp_path):
    """Where modes are user-defined pieces, and the first mixture has none of them."""
    model = sentencepiece_model_pb2.ModelProto.FromString(DEFAULT_MODEL.read_bytes())
    for piece in model.pieces:
        if piece.piece in ("[R]", "[S]", "[X]"):
            piece.type = piece.USER_DEFINED
    file = tmp_path / "user.model"
    file.write_bytes(model.SerializeToString())
    alone = SequentialDenoiser(name="lm", noise_density=0.5, mode=None)
    first = Mixture("sc_lm", path, file, denoisers=alone)
    second = Mixture("sc_user", denoisers="UL2", source=first)
    sentence = r"sc_user_r1.*\[R\]"
    assert register("sc_user", first, denoisers="UL2") == "sc_user_mix"
    for dataset in (
        lambda: examples(second, LENGTHS),
        lambda: examples("sc_user_mix", LENGTHS),
        lambda: seqio.get_mixture_or_task("sc_user_mix").get_dataset(LENGTHS),
    ):
        with pytest.raises(ValueError, match=sentence):
            dataset()
    named = dataclasses.replace(first, modes={name: name for name in ("[R]", "[S]", "[X]")})
    assert examples(Mixture("sc_user", denoisers="UL2", source=named), LENGTHS)[0]["inputs"].size
