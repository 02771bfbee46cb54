"""`mix`: denoising beside supervised tasks, which SeqIO makes as ever."""

import collections

import pytest
import scipy.stats
import seqio
import tensorflow as tf

from tests.support import byte_vocabulary, long_documents
from ul2_tasks import T5GEMMA2, mix, register
from ul2_tasks.sources.memory import MemoryDataSource
from ul2_tasks.tasks.providers import is_ours

BYTES, MODES = byte_vocabulary()
LENGTHS = {"inputs": 64, "targets": 64}
SIGNIFICANCE = 1e-3
QUESTION, ANSWER = "how much is it, and why? " * 5, "no"


def pairs(split, shuffle_files, seed=None) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices({"inputs": [QUESTION] * 8, "targets": [ANSWER] * 8})


def supervised(
    name, vocabulary=BYTES, caching=False, keys=("inputs", "targets"), end=seqio.preprocessors.append_eos_after_trim
) -> str:
    """A stock task, registered once."""
    if name not in seqio.TaskRegistry.names():
        cache = [seqio.CacheDatasetPlaceholder()] if caching else []
        seqio.TaskRegistry.add(
            name,
            source=seqio.FunctionDataSource(pairs, splits=["train"]),
            preprocessors=[seqio.preprocessors.tokenize, *cache, end],
            output_features={key: seqio.Feature(vocabulary, add_eos=True) for key in keys},
        )
    return name


def ours() -> str:
    source = MemoryDataSource(long_documents, validation=0.1)
    return register("supervised_ul2", source, BYTES, [T5GEMMA2[0], T5GEMMA2[4]], modes=MODES)


def both() -> seqio.Mixture:
    """3 of ours, in 1 : 4, and 1 of the task."""
    return seqio.get_mixture_or_task(mix("supervised", {ours(): 3, supervised("supervised_task"): 1}))


def test_the_rates_are_the_weights_and_each_example_says_whose_it_is():
    mixture, count = both(), 2000
    assert {task.name: mixture.get_rate(task) for task in mixture.tasks} == {
        "supervised_task": 1,
        "supervised_ul2_r1": pytest.approx(3 / 5),
        "supervised_ul2_s": pytest.approx(12 / 5),
    }
    dataset = mixture.get_dataset(LENGTHS, split="train", seed=0, passthrough_features=["task", "denoiser"])
    examples = list(dataset.take(count).as_numpy_iterator())
    drawn = collections.Counter((example["task"].decode(), example["denoiser"].decode()) for example in examples)
    expected = {("supervised_task", ""): 0.25, ("supervised_ul2_r1", "r1"): 0.15, ("supervised_ul2_s", "s"): 0.6}
    assert (
        scipy.stats.chisquare([drawn[who] for who in expected], [count * rate for rate in expected.values()]).pvalue > SIGNIFICANCE
    )
    (theirs,) = {(*example["inputs"].tolist(), 0, *example["targets"].tolist()) for example in examples if not example["denoiser"]}
    assert theirs == (*BYTES.encode(QUESTION)[:63], 1, 0, *BYTES.encode(ANSWER), 1), "trimmed by SeqIO, as in any mixture"
    assert [task.name for task in mixture.tasks if not is_ours(task)] == ["supervised_task"]
    assert [task.name for task in mixture.tasks if is_ours(task)] == ["supervised_ul2_r1", "supervised_ul2_s"]


def test_mixtures_nest_and_their_rates_are_their_shares():
    seqio.MixtureRegistry.add("supervised_stock", [(supervised("supervised_a"), lambda task: 1), (supervised("supervised_b"), 3)])
    inner = mix("supervised_inner", {ours(): 1, "supervised_stock": 1})
    outer = seqio.get_mixture_or_task(mix("supervised_outer", [(inner, 1), (supervised("supervised_c"), 1)]))
    assert {task.name: outer.get_rate(task) / outer.total_rate for task in outer.tasks} == pytest.approx(
        {
            "supervised_a": 1 / 16,
            "supervised_b": 3 / 16,
            "supervised_c": 1 / 2,
            "supervised_ul2_r1": 1 / 20,
            "supervised_ul2_s": 1 / 5,
        }
    )
    assert set(next(outer.get_dataset(LENGTHS, split="train", seed=0).as_numpy_iterator())) == {"inputs", "targets"}


@pytest.mark.parametrize(
    "parts",
    [
        dict,
        lambda: {ours(): 0},
        lambda: {ours(): 1, supervised("supervised_task"): lambda task: 1},
        lambda: [(ours(), 1), (ours(), 2)],
        lambda: {"supervised_nobody": 1},
        lambda: {supervised("supervised_task"): 1},
        lambda: {ours(): 1, supervised("supervised_lm", keys=("targets",)): 1},
    ],
)
def test_what_cannot_be_mixed_is_refused_and_nothing_is_registered(parts):
    with pytest.raises(ValueError, match=r"mixture|task"):
        mix("supervised_bad", parts())
    assert "supervised_bad_mix" not in seqio.MixtureRegistry.names()
