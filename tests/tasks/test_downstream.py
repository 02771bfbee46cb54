"""Tasks with a mode before their inputs, on real text that every Python has."""

import functools
import unicodedata

import pytest
import seqio
from support import byte_vocabulary

from ul2_tasks import default_vocabulary, with_mode
from ul2_tasks.denoising.preprocessors import prepend_mode
from ul2_tasks.tasks import downstream
from ul2_tasks.tasks.downstream import exact_match, topic_sections, topics_task
from ul2_tasks.vocabulary.special_ids import special_tokens

KINDS = ["title", "opening", "continuation"]
MODES = ["[R]", "[S]", "[X]"]
BYTES, BYTE_MODES = byte_vocabulary()


def examples(name, split="train", sequence_length=None):
    return list(seqio.get_mixture_or_task(name).get_dataset(sequence_length, split, shuffle=False).as_numpy_iterator())


def test_the_sections_are_titles_and_the_prose_under_them():
    sections = topic_sections()
    assert len(sections) == len(set(sections)) > 100
    for section in sections:
        title, opening = section.split("\n")
        assert 0 < len(title) < 80
        assert len(opening.split()) >= 8


@pytest.mark.parametrize("kind", KINDS)
def test_a_section_becomes_inputs_and_targets(kind):
    for split in ("train", "validation"):
        for example in examples(topics_task(kind), split):
            inputs, targets = (example[f"{key}_pretokenized"].decode() for key in ("inputs", "targets"))
            title, opening = {
                "title": (targets, inputs),
                "opening": (inputs, targets),
                "continuation": (None, f"{inputs} {targets}"),
            }[kind]
            assert any(section.endswith(f"\n{opening}") and section.startswith(title or "") for section in topic_sections())
            assert inputs
            assert targets
            for key, text in (("inputs", inputs), ("targets", targets)):
                *tokens, eos = example[key].tolist()
                assert eos == 1
                assert default_vocabulary().decode(tokens) == unicodedata.normalize("NFKC", text)


def test_no_section_is_in_both_splits():
    train, validation = (
        {e["inputs"].tobytes() for e in examples(topics_task("title"), split)} for split in ("train", "validation")
    )
    assert len(train) > 10 * len(train & validation)
    assert len(validation) > 5
    assert not train & validation


@pytest.mark.parametrize(("kind", "mode"), zip(KINDS, MODES))
def test_the_task_with_a_mode_is_the_task_with_the_mode_before_its_inputs(kind, mode):
    task = topics_task(kind)
    name = with_mode(task, mode)
    assert name == f"{task}_{mode[1].lower()}"
    (id,) = special_tokens(default_vocabulary(), mode).mode
    for with_it, without in zip(examples(name), examples(task), strict=True):
        assert with_it.pop("inputs").tolist() == [id, *without.pop("inputs")]
        assert {key: value.tolist() for key, value in with_it.items() if hasattr(value, "tolist")} == {
            key: value.tolist() for key, value in without.items() if hasattr(value, "tolist")
        }
    assert seqio.get_mixture_or_task(name).metric_fns == seqio.get_mixture_or_task(task).metric_fns


def test_the_mode_counts_in_the_budget_the_end_stays_and_what_is_trimmed_is_told(caplog):
    """The mode comes first and the EOS last all the same."""
    name = with_mode(topics_task("title"), "[R]")
    before = downstream._trimmed[name]
    whole, found = examples(name), examples(name, sequence_length={"inputs": 16, "targets": 16})
    (id,) = special_tokens(default_vocabulary(), "[R]").mode
    for full, short in zip(whole, found, strict=True):
        tokens = full["inputs"].tolist()
        assert short["inputs"].tolist() == (tokens if len(tokens) <= 16 else [*tokens[:15], 1])
        assert short["inputs"][0] == id
    too_long = sum(len(example[key]) > 16 for example in whole for key in ("inputs", "targets"))
    assert downstream._trimmed[name] - before == too_long > 100
    assert f"{name}: 100 features were trimmed until now, the last one from " in caplog.text


@pytest.mark.parametrize(
    "end",
    [
        [seqio.preprocessors.append_eos],
        [seqio.preprocessors.append_eos, seqio.CacheDatasetPlaceholder()],
        [seqio.preprocessors.append_eos_after_trim],
    ],
)
def test_whatever_appends_the_eos_it_is_not_trimmed_off(end):
    """SeqIO itself trims off what `append_eos` has appended."""
    feature = seqio.Feature(default_vocabulary(), add_eos=True)
    task = f"with_eos_{len(end)}_{end[0].__name__}"
    seqio.TaskRegistry.add(
        task,
        source=seqio.get_mixture_or_task(topics_task("opening")).source,
        preprocessors=[
            lambda dataset: dataset.map(lambda section: {"inputs": section["text"], "targets": section["text"]}),
            seqio.preprocessors.tokenize,
            *end,
        ],
        output_features={"inputs": feature, "targets": feature},
    )
    (id,) = special_tokens(default_vocabulary(), "[S]").mode
    for example in examples(with_mode(task, "[S]"), sequence_length={"inputs": 12, "targets": 20})[:20]:
        assert (example["inputs"][0], example["inputs"][-1], example["targets"][-1]) == (id, 1, 1)
        assert len(example["inputs"]) == 12
        assert len(example["targets"]) <= 20


def test_a_second_mode_is_refused():
    with pytest.raises(ValueError, match=r"task must not be a denoising task, got.*has the mode of its denoiser, '\[X\]'"):
        with_mode("ul2_x1", "[R]")
    name = with_mode(topics_task("opening"), "[S]")
    with pytest.raises(ValueError, match=r"task must have no mode before its inputs, got 'topics_opening_s'"):
        with_mode(name, "[S]")


def test_a_mode_in_a_task_of_ones_own():
    """`prepend_mode` in the preprocessors of a task that has no EOS, and over bytes."""
    feature = seqio.Feature(BYTES, add_eos=False)
    task = seqio.Task(
        "own",
        source=seqio.get_mixture_or_task(topics_task("opening")).source,
        preprocessors=[
            lambda dataset: dataset.map(lambda section: {"inputs": section["text"], "targets": section["text"]}),
            seqio.preprocessors.tokenize,
            functools.partial(prepend_mode, mode="[S]", modes=BYTE_MODES),
        ],
        output_features={"inputs": feature, "targets": feature},
    )
    for example in task.get_dataset(None, "train").take(5).as_numpy_iterator():
        assert example["inputs"].tolist() == [260, *example["targets"]]


def test_without_an_eos_to_go_before_the_mode_goes_last():
    feature = seqio.Feature(BYTES, add_eos=False)
    seqio.TaskRegistry.add(
        "no_eos",
        source=seqio.get_mixture_or_task(topics_task("opening")).source,
        preprocessors=[
            lambda dataset: dataset.map(lambda section: {"inputs": section["text"], "targets": section["text"]}),
            seqio.preprocessors.tokenize,
        ],
        output_features={"inputs": feature, "targets": feature},
    )
    for example in examples(with_mode("no_eos", "[X]", BYTE_MODES))[:5]:
        assert example["inputs"].tolist() == [261, *example["targets"]]


def test_twice_the_same_is_once_and_another_under_the_same_name_is_refused():
    task = topics_task("title")
    assert topics_task("title") == task
    assert with_mode(task, "[R]") == with_mode(task, "[R]")
    with pytest.raises(ValueError, match=r"'topics_title' is already registered, made of something else"):
        topics_task("title", BYTES)
    with pytest.raises(ValueError, match=r"'topics_title_r' is already registered, made of something else"):
        with_mode(task, "[R]", {"[R]": "[NLU] "})


def test_what_is_not_there_is_refused_by_name():
    with pytest.raises(ValueError, match=r"kind must be one of \['title', 'opening', 'continuation'\], got 'summary'"):
        topics_task("summary")
    with pytest.raises(ValueError, match="task must be registered, got 'nowhere'"):
        with_mode("nowhere", "[R]")


def test_exact_match_is_a_percentage():
    assert exact_match(["a", "b", "c", "d"], ["a", "B", "c", ""]) == {"exact_match": 50}
