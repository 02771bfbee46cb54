"""Tasks of SeqIO's own with a mode before their inputs."""

import functools

import pytest
import seqio

from tests.docs.titles import read, titles
from tests.support import byte_vocabulary
from ul2_tasks import default_vocabulary, with_mode
from ul2_tasks.tasks.preprocessors import prepend_mode
from ul2_tasks.tokenizers.special_ids import special_tokens

BYTES, BYTE_MODES = byte_vocabulary()


def examples(name, split="train", sequence_length=None):
    return list(seqio.get_mixture_or_task(name).get_dataset(sequence_length, split, shuffle=False).as_numpy_iterator())


def own_task(name, *last_steps, vocabulary=BYTES) -> seqio.Task:
    feature = seqio.Feature(vocabulary, add_eos=bool(last_steps))
    return seqio.TaskRegistry.add(
        name,
        seqio.FunctionDataSource(read, splits=["train"]),
        preprocessors=[seqio.preprocessors.tokenize, *last_steps],
        output_features={"inputs": feature, "targets": feature},
    )


def test_the_task_with_a_mode_is_the_task_with_the_mode_before_its_inputs():
    name = with_mode(titles(), "[X]")
    assert name == "titles_x"
    (id,) = special_tokens(default_vocabulary(), "[X]").mode
    for split in ("train", "validation"):
        for with_it, without in zip(examples(name, split), examples(titles(), split), strict=True):
            assert with_it["inputs"].tolist() == [id, *without["inputs"]]
            assert with_it["targets"].tolist() == without["targets"].tolist()
    assert seqio.get_mixture_or_task(name).metric_fns == seqio.get_mixture_or_task(titles()).metric_fns


def test_the_mode_counts_in_the_budget_and_the_end_stays():
    name = with_mode(titles(), "[R]")
    (id,) = special_tokens(default_vocabulary(), "[R]").mode
    for full, short in zip(examples(name), examples(name, sequence_length={"inputs": 16, "targets": 16}), strict=True):
        tokens = full["inputs"].tolist()
        assert short["inputs"].tolist() == (tokens if len(tokens) <= 16 else [*tokens[:15], 1])
        assert short["inputs"][0] == id


def test_the_mode_goes_before_an_eos_and_else_last():
    """`prepend_mode` in the preprocessors of a task does the same."""
    own_task("no_eos"), own_task("an_eos", seqio.preprocessors.append_eos)
    own_task("own_mode", functools.partial(prepend_mode, mode="[X]", modes=BYTE_MODES))
    without = examples("no_eos")[:5]
    for name, end in (
        (with_mode("no_eos", "[X]", BYTE_MODES), []),
        (with_mode("an_eos", "[X]", BYTE_MODES), [1]),
        ("own_mode", []),
    ):
        assert [one["inputs"].tolist() for one in examples(name)[:5]] == [[261, *one["inputs"], *end] for one in without]


def test_a_second_mode_another_mode_of_the_same_name_and_no_task_are_refused():
    name = with_mode(titles(), "[R]")
    assert with_mode(titles(), "[R]") == name
    for task, modes in (("ul2_x1", None), (name, None), (titles(), {"[R]": "[NLU] "}), ("nowhere", None)):
        with pytest.raises(ValueError, match=task):
            with_mode(task, "[R]", modes)
