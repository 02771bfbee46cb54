"""`register`: names, idempotence, errors; importing registers and opens no file."""

import json
import subprocess
import sys

import numpy as np
import pytest
import seqio
import tensorflow as tf
from support import byte_vocabulary, flat, iterate, restore_all, special_for

from ul2_tasks import T5GEMMA2, UL2, SpanDenoiser, UL2DataCollator, chunk_length, default_vocabulary, mix, register
from ul2_tasks.sources.memory import MemoryDataSource
from ul2_tasks.vocabulary.sentencepiece import DEFAULT_MODEL

BYTES, MODES = byte_vocabulary()
LENGTHS = {"inputs": 128, "targets": 128}


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


def test_importing_registers_opens_no_file_of_the_package_or_the_corpus_and_needs_no_torch(tmp_path):
    """What needs torch says what to install."""
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\")")
    script = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})"""
    script += """
import json, sys
import seqio, sentencepiece.sentencepiece_model_pb2  # what others open is not ours
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
import ul2_tasks
print(json.dumps([path for path in opened if not path.endswith((".py", ".pyc"))]))
print("pydoc_data.topics" in sys.modules, "ul2_mix" in seqio.MixtureRegistry.names())
try:
    import ul2_tasks.pytorch.dataset
except ImportError as error:
    print(error)
"""
    lines = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.splitlines()
    assert [path for path in json.loads(lines[0]) if "/ul2_tasks/" in path or "pydoc" in path] == []
    assert lines[1] == "False True"
    assert lines[2].startswith("ul2_tasks.pytorch.dataset needs the package torch (No module named 'torch')")
    assert "pip install 'ul2_tasks[torch]'" in lines[2]


def test_the_same_arguments_again_change_nothing():
    arguments = {"vocabulary": BYTES, "denoisers": T5GEMMA2[:2], "modes": MODES, "sentinels": [300, 301], "chunk_tokens": 50}
    assert register("again", source(), **arguments) == "again_mix"
    before = {name: seqio.get_mixture_or_task(name) for name in ("again_corpus", "again_r1", "again_r2", "again_mix")}
    copies = {**arguments, "denoisers": list(T5GEMMA2[:2]), "sentinels": iter([300, 301]), "modes": dict(MODES)}
    assert register("again", source(), **copies) == "again_mix"
    assert all(seqio.get_mixture_or_task(name) is provider for name, provider in before.items())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocabulary": default_vocabulary()}, "vocabulary is .*Byte.*, got .*SentencePiece"),
        ({"denoisers": UL2}, r"denoisers is \(SpanDenoiser"),
        ({"text_key": "body"}, "text_key is 'text', got 'body'"),
        ({"sentinels": "<unused{}>"}, "sentinels is None, got '<unused{}>'"),
        ({"modes": {**MODES, "[R]": 258}}, "modes is .*259.*, got .*258"),
        ({"chunk_tokens": 100}, "chunk_tokens is None, got 100"),
        ({"merge_examples": False}, "merge_examples is True, got False"),
        ({"separate_documents": True}, "separate_documents is False, got True"),
        ({"source": MemoryDataSource(other_documents, validation=0.1)}, "source is .*documents.*, got .*other_documents"),
        ({"source": MemoryDataSource(documents, validation=0.2)}, "source is .*0.1.*, got .*0.2"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_other_arguments_under_the_same_name_are_refused_and_named(change, message):
    arguments = {"source": source(), "vocabulary": BYTES, "modes": MODES}
    register("fixed", **arguments)
    with pytest.raises(ValueError, match=rf"'fixed_mix' is already registered with .*: {message}.*\. Choose another name"):
        register("fixed", **{**arguments, **change})


def test_what_can_only_mean_one_thing_is_taken(tmp_path):
    """Numbers of NumPy, a generator of denoisers, a vocabulary's path: the same registration as the plain ones."""
    plain = {"vocabulary": str(DEFAULT_MODEL), "modes": {"[R]": 259, "[X]": (260, 261)}, "chunk_tokens": {"r1": 30, "s": 20}}
    of_numpy = {
        "vocabulary": DEFAULT_MODEL,
        "modes": {"[R]": np.int64(259), "[X]": np.array([260, 261])},
        "chunk_tokens": {"r1": np.int32(30), "s": np.int64(20)},
    }
    kept = source()
    name = register("of_numpy", kept, denoisers=(denoiser for denoiser in T5GEMMA2), **of_numpy)
    assert register("of_numpy", kept, denoisers="t5gemma2", **plain) == name

    (task, *_) = seqio.get_mixture_or_task(name).tasks
    datasets = (
        task.get_dataset(lengths, shuffle=False, seed=0)
        for lengths in (LENGTHS, {key: np.int64(length) for key, length in LENGTHS.items()})
    )
    saved, restored = map(iterate, datasets)
    next(saved)
    path = tf.train.Checkpoint(iterator=saved).write(str(tmp_path / "checkpoint"))
    tf.train.Checkpoint(iterator=restored).read(path).assert_consumed()
    assert next(restored)["inputs"].numpy().tolist() == next(saved)["inputs"].numpy().tolist()


def test_a_vocabulary_that_is_given_by_its_path_is_opened_with_so_many_sentinels():
    name = register("many_sentinels", source(), str(DEFAULT_MODEL), sentinels=np.int64(300))
    task = seqio.get_mixture_or_task(name).tasks[0]
    assert len(task.special_tokens().sentinels) == 300
    assert register("many_sentinels", source(), DEFAULT_MODEL, sentinels=300) == name
    with pytest.raises(ValueError, match=r"sentinels must be None or tokens for an open vocabulary, got .*\. Pass its path"):
        register("many_sentinels", source(), BYTES, sentinels=300)


@pytest.mark.parametrize("sentinels", [-3, True, [True], [True, 200], 3.5, [3.5], [[200]], {"id": 200}])
def test_sentinels_that_are_none_are_refused(sentinels):
    with pytest.raises(
        ValueError,
        match=r"sentinels must be a list of ids or tokens, how many there are to be, or",
    ):
        register("no_sentinels", source(), sentinels=sentinels)


def test_what_is_no_vocabulary_is_refused_by_the_collator_too():
    for take in (lambda: register("no_vocabulary", source(), 5), lambda: UL2DataCollator(5, LENGTHS)):
        with pytest.raises(ValueError, match=r"vocabulary must be a path, a fast.*, got 5"):
            take()


@pytest.mark.parametrize("mixtures", ["ul2_mix", None, ["ul2_mix"]])
def test_mixtures_without_weights_are_refused(mixtures):
    with pytest.raises(ValueError, match=r"mixtures must map distinct names to positive.*rate functions are not supported"):
        mix("no_weights", mixtures)


@pytest.mark.parametrize("mode", [259.0, True, [True], [True, 259], [259, 1.5], {"id": 259}])
def test_a_mode_that_is_no_id_is_refused(mode):
    with pytest.raises(ValueError, match=r"mode '\[R\]' must be an id, a special token, a list of these, or a text"):
        register("no_id", source(), BYTES, modes={**MODES, "[R]": mode})


def of_texts(texts) -> seqio.FunctionDataSource:
    """The usual notebook: a function that closes over what it gives."""

    def read(split, shuffle_files, seed=None):
        return tf.data.Dataset.from_tensor_slices({"text": texts})

    return seqio.FunctionDataSource(read, splits=["train"])


def test_documents_in_memory_are_told_apart_by_their_content():
    def with_texts(texts) -> str:
        return register("told_memory", MemoryDataSource(lambda: texts, validation=0), BYTES, modes=MODES)

    with_texts(["the first"])
    assert with_texts(["the first"]) == "told_memory_mix"
    message = r"told_memory_mix' is already registered with.*documents, sha256 .*, validation=0\)"
    with pytest.raises(ValueError, match=message):
        with_texts(["the second"])


def test_a_source_that_cannot_tell_what_it_reads_equals_itself_alone():
    source = of_texts(["the first"])
    for _ in range(2):
        assert register("told_function", source, BYTES, modes=MODES) == "told_function_mix"
    for texts in (["the first"], ["the second"]):
        with pytest.raises(ValueError, match=r"'told_function_mix' is already registered with.*caching_permitted=True\)") as error:
            register("told_function", of_texts(texts), BYTES, modes=MODES)
        for advice in ("could not be told apart", "at the top level of a module", "MemoryDataSource"):
            assert advice in str(error.value)


def test_vocabularies_without_equality_are_not_taken_for_each_other():
    vocabulary = seqio.UnigramVocabulary(["a", "b"])
    for _ in range(2):
        register("told_unigrams", source(), vocabulary)
    with pytest.raises(ValueError, match=r"told_unigrams_mix' is already registered with.*object at"):
        register("told_unigrams", source(), seqio.UnigramVocabulary(["b", "a"]))


def test_names_that_others_hold_are_refused_and_nothing_is_registered():
    for name in ("taken_r2", "mine_mix"):
        seqio.MixtureRegistry.add(name, ["ul2_r1"], default_rate=1)
    with pytest.raises(ValueError, match=r"'taken' cannot be registered, because the names.*are taken\. Choose another name"):
        register("taken")
    assert not {"taken_corpus", "taken_r1", "taken_mix"} & {*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()}
    with pytest.raises(ValueError, match=r"'mine_mix' is already registered, and not by ul2_tasks\.register"):
        register("mine")
    with pytest.raises(ValueError, match=r"the names .* are taken"):
        register("clash", denoisers=[SpanDenoiser(name="corpus", mean_span_length=3, noise_density=0.15)])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"source": 3}, "source must be files .*, got 3"),
        ({"vocabulary": 3}, "vocabulary must be a path, .*, or a seqio.Vocabulary such as seqio.SentencePiece.*, got 3"),
        ({"merge_examples": "yes"}, "merge_examples must be True or False, got 'yes'"),
        ({"denoisers": []}, r"denoisers must be SpanDenoiser,.*'UL2', 'UL2R'\], got none"),
        (
            {"chunk_tokens": {"r1": 50, "r9": 50}},
            r"chunk_tokens must name denoisers of \['r1', 'r2', 'x1', 'x2', 's'\], got \['r9'\]",
        ),
        (
            {"denoisers": [T5GEMMA2[0], T5GEMMA2[0]]},
            r"denoisers must have different names, got \['r1'\].*in \['r1', 'r1'\]\. Rename one of them",
        ),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        register("bad", **arguments)
    assert "bad_mix" not in seqio.MixtureRegistry.names()


def test_chunks_may_be_capped_by_denoiser():
    name = register("capped", source(), BYTES, modes=MODES, chunk_tokens={"r1": 40, "s": 30})
    chunks = {task.denoiser.name: task.full_chunk(LENGTHS).length for task in seqio.get_mixture_or_task(name).tasks}
    free = {denoiser.name: chunk_length(denoiser, LENGTHS).length for denoiser in T5GEMMA2}
    assert chunks == {**free, "r1": 40, "s": 30}


def test_a_researchers_own_text_files(tmp_path):
    """Own files, vocabulary and denoisers."""
    lines = [f"line number {n} of the corpus" for n in range(400)]
    for part in range(4):
        (tmp_path / f"part{part}.txt").write_text("\n".join(lines[part::4]) + "\n")
    denoiser = SpanDenoiser(name="mine", mode="[R]", mean_span_length=5, noise_density=0.2)
    mixture = register(
        "own",
        seqio.TextLineDataSource({"train": str(tmp_path / "*.txt")}),
        BYTES,
        [denoiser],
        modes=MODES,
        separate_documents=True,
    )
    assert mixture == "own_mix"
    examples = list(seqio.get_mixture_or_task("own_mine").get_dataset(LENGTHS, split="train", seed=3).as_numpy_iterator())
    # Examples are shuffled, so what is compared is how often each token occurs.
    restored = restore_all(examples, denoiser, special_for(denoiser, BYTES, MODES))
    assert sorted(restored) == sorted(flat([*BYTES.encode(line), 1] for line in lines))
