"""`register`: names, idempotence, errors; importing registers and opens no file."""

import pytest
import seqio
import tensorflow as tf
from support import byte_vocabulary

from ul2_tasks import T5GEMMA2, UL2, SpanDenoiser, default_vocabulary, register
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
        assert task.output_features["targets"].vocabulary == default_vocabulary()
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
        ("text_key", "body"),
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
