"""`register`: names, idempotence, errors; importing registers and opens no file."""

import pickle

import pytest
import seqio
import tensorflow as tf

import ul2_tasks
from tests.support import byte_vocabulary
from ul2_tasks import (
    T5GEMMA2,
    UL2,
    Chat,
    Mix,
    Mixture,
    SpanDenoiser,
    default_vocabulary,
    description_of,
    mix,
    register,
    seqio_vocabulary,
)
from ul2_tasks.sources.memory import MemoryDataSource

BYTES, MODES = byte_vocabulary()


def documents() -> list[str]:
    return [f"document {n}: {'words and more words ' * (n % 7)}" for n in range(60)]


def source():
    return MemoryDataSource(documents, validation=0.1)


def other_documents() -> list[str]:
    return ["other"]


def test_the_default_registration():
    assert register() == "ul2_mix"
    names = {"ul2_corpus", "ul2_r1", "ul2_r2", "ul2_x1", "ul2_x2", "ul2_s"}
    assert {name for name in seqio.TaskRegistry.names() if name.startswith("ul2_")} >= names
    mixture = seqio.get_mixture_or_task("ul2_mix")
    assert {task.name: mixture.get_rate(task) for task in mixture.tasks} == {
        "ul2_r1": 1,
        "ul2_r2": 1,
        "ul2_x1": 1,
        "ul2_x2": 1,
        "ul2_s": 4,
    }
    for task in (mixture, *mixture.tasks, seqio.get_mixture_or_task("ul2_corpus")):
        assert set(task.splits) == {"train", "validation"}
        assert task.output_features["targets"].vocabulary == seqio_vocabulary()
    assert set(mixture.output_features) == {"inputs", "targets"}
    assert [name for name in ("ul2_corpus", "ul2_r1") if seqio.TaskRegistry.get(name).supports_caching] == ["ul2_corpus"]


def test_the_same_arguments_again_change_nothing():
    arguments = {"vocabulary": BYTES, "denoisers": T5GEMMA2[:2], "modes": MODES, "sentinels": [300, 301], "chunk_tokens": 50}
    assert register("again", source(), **arguments) == "again_mix"
    before = {name: seqio.get_mixture_or_task(name) for name in ("again_corpus", "again_r1", "again_r2", "again_mix")}
    copies = {**arguments, "denoisers": list(T5GEMMA2[:2]), "sentinels": iter([300, 301]), "modes": dict(MODES)}
    assert register("again", source(), **copies) == "again_mix"
    assert all(seqio.get_mixture_or_task(name) is provider for name, provider in before.items())


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("vocabulary", default_vocabulary()),
        ("denoisers", UL2),
        ("chunk_tokens", 100),
        ("source", MemoryDataSource(other_documents, validation=0.1)),
        ("source", MemoryDataSource(documents, validation=0.2)),
    ],
)
def test_other_arguments_under_the_same_name_are_refused_and_named(argument, value):
    arguments = {"source": source(), "vocabulary": BYTES, "modes": MODES}
    register("fixed", **arguments)
    with pytest.raises(ValueError, match=f"fixed_mix.* {argument} is"):
        register("fixed", **{**arguments, argument: value})


def of_texts(texts) -> seqio.FunctionDataSource:
    """The usual notebook: a function that closes over what it gives."""

    def read(split, shuffle_files, seed=None):
        return tf.data.Dataset.from_tensor_slices({"text": texts})

    return seqio.FunctionDataSource(read, splits=["train"])


def test_a_source_that_cannot_tell_what_it_reads_equals_itself_alone():
    source = of_texts(["the first"])
    for _ in range(2):
        assert register("told_function", source, BYTES, modes=MODES) == "told_function_mix"
    for texts in (["the first"], ["the second"]):
        with pytest.raises(ValueError, match="told_function_mix"):
            register("told_function", of_texts(texts), BYTES, modes=MODES)


def test_names_that_others_hold_are_refused_and_nothing_is_registered():
    for name in ("taken_r2", "mine_mix"):
        seqio.MixtureRegistry.add(name, ["ul2_r1"], default_rate=1)
    with pytest.raises(ValueError, match="taken"):
        register("taken")
    assert not {"taken_corpus", "taken_r1", "taken_mix"} & {*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()}
    with pytest.raises(ValueError, match="mine_mix"):
        register("mine")
    with pytest.raises(ValueError, match="names"):
        register("clash", denoisers=[SpanDenoiser(name="corpus", mean_span_length=3, noise_density=0.15)])


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("source", 3),
        ("denoisers", []),
        ("denoisers", [T5GEMMA2[0], T5GEMMA2[0]]),
        ("chunk_tokens", {"r1": 50, "r9": 50}),
    ],
)
def test_bad_arguments_are_named(argument, value):
    with pytest.raises(ValueError, match=argument):
        register("bad", **{argument: value})
    assert "bad_mix" not in seqio.MixtureRegistry.names()


def test_a_name_has_a_description_and_that_of_a_task_has_it_alone():
    described = Mixture("told", source(), BYTES, modes=MODES, chunk_tokens={"r1": 50, "s": 90})
    assert description_of(register(described)) == described
    alone = description_of("told_r1")
    assert [denoiser.name for denoiser in alone.denoisers] == ["r1"]
    assert alone.chunk_tokens == {"r1": 50}
    assert (alone.corpus().name, alone.corpus().configuration) == ("told_corpus", described.corpus().configuration)
    assert pickle.loads(pickle.dumps(alone)) == alone
    assert description_of(mix("told_both", {"told_mix": 3, "told_r1": 1})).rates["told_r1"] == 3 / 8 + 1
    for name in ("told_corpus", "nobody_mix"):
        with pytest.raises(ValueError, match=name):
            description_of(name)


def test_a_mix_is_registered_once_and_has_tasks_of_seqio_by_examples_alone():
    features = dict.fromkeys(("inputs", "targets"), seqio.Feature(BYTES))
    seqio.TaskRegistry.add("foreign", of_texts(["a"]), output_features=features, preprocessors=[])
    register("beside_foreign", source(), BYTES, modes=MODES)
    given = {"beside_foreign_mix": 3, "foreign": 1}
    inner = mix("beside_foreign_once", given)
    assert mix("beside_foreign_once", [*given.items()]) == inner
    for again in (lambda: mix("beside_foreign_once", {"foreign": 1}), lambda: register("beside_foreign_once")):
        with pytest.raises(ValueError, match="beside_foreign_once"):
            again()
    assert description_of(mix("beside_foreign_twice", {inner: 1, "foreign": 1})).rates["foreign"] == 1.25
    with pytest.raises(ValueError, match="foreign"):
        Mix("by_tokens", {inner: 1}, weigh="tokens")


def test_conversations_that_are_mixed_have_both_formats():
    both = Mix("two_talks", {Chat("talk_a", truncation="drop"): 1, Chat("talk_b", truncation="drop"): 2})
    assert register(both) == "two_talks_chat"
    assert register(both, format="prompt_completion") == "two_talks_prompt_completion"
    assert set(seqio.get_mixture_or_task("two_talks_chat").output_features) == {"tokens", "loss_mask", "span_id"}
    with pytest.raises(ValueError, match="format"):
        register("plain", format="chat")


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: register(Mixture("told_twice"), denoisers="UL2"), "arguments"),
        (lambda: register(name=Mixture("told_twice"), denoisers="UL2"), "arguments"),
        (lambda: ul2_tasks.seqio_source("texts/*.jsonl"), "source"),
        (lambda: ul2_tasks.seqio_converter(seqio.EncDecFeatureConverter()), "converter"),
    ],
)
def test_what_is_not_taken_is_named(call, argument):
    with pytest.raises(ValueError, match=f"^{argument} must be"):
        call()
