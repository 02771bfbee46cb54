"""`UL2IterableDataset` of a description: what it gives of the name, in the same order; its labels, tasks, and arguments."""

import itertools
import random

import numpy as np
import pytest
import seqio

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

import ul2_tasks  # noqa: E402
from ul2_tasks import (  # noqa: E402
    Chat,
    EncDecFeatureConverter,
    HuggingFaceFeatureConverter,
    Mix,
    Mixture,
    UL2IterableDataset,
    seqio_converter,
)
from ul2_tasks.example_features import IGNORED  # noqa: E402
from ul2_tasks.random_access import windows  # noqa: E402
from ul2_tasks.sources.memory import embedded_conversations  # noqa: E402

pytestmark = pytest.mark.torch

LENGTHS, LONG = {"inputs": 64, "targets": 48}, {"inputs": 512, "targets": 512}
CONVERTERS = {
    "single": None,
    "longest": {"padding": "longest", "batch_size": 4, "pad_token_id": 7, "decoder_start_token_id": 2},
    "max_length": {},
    "one row": {"padding": "longest", "batch_size": 3, "decoder_only": True},
    "packed": {"pack": True},
    "packed in one row": {"pack": True, "decoder_only": True},
}


def letters() -> list[str]:
    return ["".join(random.Random(number).choices("abcdefghijklmnopqrstuvwxyz ", k=300)) for number in range(120)]


TEXTS = ul2_tasks.MemoryDataSource(letters, validation=0)


@pytest.fixture(scope="module")
def mixture():
    return Mixture("torch_told", TEXTS, separate_documents=True, chunk_tokens=24)


@pytest.fixture(scope="module")
def cache(mixture, tmp_path_factory):
    folder, before = tmp_path_factory.mktemp("cache"), seqio.get_global_cache_dirs()
    mixture.cache(folder)
    ul2_tasks.register(mixture)
    seqio.set_global_cache_dirs([str(folder)])
    yield str(folder)
    seqio.set_global_cache_dirs(before)


def told(elements, count=40) -> list:
    return [
        {key: (values.dtype, values.tolist()) for key, values in element.items()} for element in itertools.islice(elements, count)
    ]


@pytest.mark.parametrize("kind", CONVERTERS)
def test_it_gives_what_the_name_gives_and_what_seqio_does(mixture, cache, kind):
    settings = CONVERTERS[kind]
    converter = None if settings is None else HuggingFaceFeatureConverter(**settings)
    for process in ({}, {"rank": 1, "world_size": 3}):
        reading = {"feature_converter": converter, "seed": 5, "num_epochs": 2, **process}
        described = UL2IterableDataset(mixture, LENGTHS, cache_dirs=[cache], **reading)
        same = UL2IterableDataset("torch_told_mix", LENGTHS, use_cached=True, **reading)
        found, read = told(described), told(same)
        assert found == read
        assert len(found) > 20
        assert described.state_dict() == same.state_dict()
    if converter:
        settings = {"shuffle": True, "seed": 5, "num_epochs": 2, "use_cached": True}
        of_seqio = seqio.get_dataset("torch_told_mix", LENGTHS, seqio_converter(converter), **settings)
        whole = told(UL2IterableDataset(mixture, LENGTHS, cache_dirs=[cache], feature_converter=converter, seed=5, num_epochs=2))
        for one, other in zip(whole, of_seqio.as_numpy_iterator()):
            assert {key: values for key, (_, values) in one.items()} == {key: values.tolist() for key, values in other.items()}


def test_what_examples_returned_is_read_with_its_own_settings(mixture, cache):
    rows = ul2_tasks.examples(mixture, LENGTHS, seed=5, pack=True, shuffle=False, cache_dirs=[cache])
    found = list(UL2IterableDataset(rows, num_epochs=1))
    for row, same in zip(found, rows, strict=True):
        assert {key: values.tolist() for key, values in row.items()} == {key: values.tolist() for key, values in same.items()}
        assert {values.dtype for values in row.values()} == {torch.int64}
    second = UL2IterableDataset(rows.epoch(1))
    assert second.state_dict()["number"] == len(rows)
    assert next(iter(second))["inputs"].tolist() == rows.epoch(1)[0]["inputs"].tolist()


@pytest.mark.parametrize("processes", [1, 4])
def test_a_stage_in_windows_begins_at_its_step_on_any_number_of_processes(monkeypatch, processes):
    monkeypatch.setattr(windows, "WINDOW_TOKENS", 5000)
    first, second = (Mixture(f"staged_{name}", TEXTS) for name in "ab")
    stages = [ul2_tasks.Stage(0, {first: 1}), ul2_tasks.Stage(5, {first: 1, second: 1})]
    staged = Mix("staged", schedule=stages, batch_size=16, steps=20)
    converter = HuggingFaceFeatureConverter("longest", 16 // processes, task_id=True)
    for rank in range(processes):
        dataset = UL2IterableDataset(staged, LENGTHS, feature_converter=converter, rank=rank, world_size=processes)
        tasks = [
            {dataset.tasks[id].corpus for id in batch["task_id"].unique() if id >= 0} for batch in itertools.islice(dataset, 7)
        ]
        assert tasks == [{"staged_a_corpus"}] * 5 + [{"staged_a_corpus", "staged_b_corpus"}] * 2
        assert "windows" in dataset.state_dict()


@pytest.mark.parametrize("lengths", [LONG, {"tokens": 512}], ids=["reply", "chat"])
def test_single_examples_have_labels_where_they_are_trained_on(lengths):
    """A model of a chat predicts no first token; the targets of a pair are there in full, because its decoder reads them."""
    chat = Chat("torch_chat", truncation="drop", train_on="content")
    key, read = ("tokens", "tokens") if "tokens" in lengths else ("inputs", "targets")
    examples = ul2_tasks.examples(chat, lengths, seed=5)
    for one, example in zip(UL2IterableDataset(chat, lengths, seed=5, num_epochs=1), examples, strict=True):
        assert one.keys() == {"input_ids", "labels", "span_id", *({"targets"} & {read})}
        assert {values.dtype for values in one.values()} == {torch.int64}
        is_trained = (example["loss_mask"] == 1) & (np.arange(len(example[read])) >= (read == "tokens"))
        wanted = {
            "input_ids": example[key],
            "targets": example[read],
            "labels": np.where(is_trained, example[read], IGNORED),
            "span_id": np.where(is_trained, example["span_id"], 0),
        }
        assert {name: values.tolist() for name, values in one.items()} == {name: wanted[name].tolist() for name in one}


def texts_and_replies():
    talks = ul2_tasks.MemoryDataSource(lambda: embedded_conversations() * 9, validation=0)
    replies = Chat("tid_talks", talks, truncation="drop")
    return Mix(
        "tid_both", {Mixture("tid_texts", denoisers=ul2_tasks.T5GEMMA2[3:], vocabulary=replies.renderer.vocabulary): 2, replies: 1}
    )


@pytest.mark.parametrize("make", [lambda: Mixture("tid_plain"), texts_and_replies], ids=["texts", "texts and replies"])
@pytest.mark.parametrize("kind", list(CONVERTERS)[1:])
def test_with_task_id_each_label_has_its_task_and_nothing_else_changes(make, kind):
    described, settings = make(), CONVERTERS[kind]
    examples = ul2_tasks.examples(described, LONG, pack=settings.get("pack", False), task_id=True)
    before = UL2IterableDataset(described, LONG, feature_converter=HuggingFaceFeatureConverter(**settings))
    dataset = UL2IterableDataset(described, LONG, feature_converter=HuggingFaceFeatureConverter(**settings, task_id=True))
    assert dataset.tasks == examples.tasks
    expected, found = itertools.chain.from_iterable(examples.epoch(number) for number in range(9)), set()
    for element, same in zip(itertools.islice(dataset, 40), itertools.islice(before, 40), strict=True):
        assert element.keys() - same.keys() == {"task_id"}
        assert all(torch.equal(element[key], same[key]) for key in same)
        ids, labels = (torch.atleast_2d(element[key]).numpy() for key in ("task_id", "labels"))
        assert (ids.dtype, ids.shape) == (np.int64, labels.shape)
        assert ((ids == -1) == (labels == -100)).all()
        for row in ids:
            example = next(expected)
            is_trained = example.get("loss_mask", np.ones(len(example["targets"]))) == 1
            of_example = example["task_id"][is_trained & (example["task_id"] >= 0)].tolist()
            assert row[row >= 0].tolist() == of_example
            found |= {*of_example}
    assert found == {*range(len(examples.tasks))}
    before.load_state_dict(dataset.state_dict())  # a run may turn it on
    assert next(iter(before))["labels"].shape[-1]


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        *(({"rank": rank, "world_size": size}, "rank") for rank, size in ((1, None), (None, 2), (2, 2), (-1, 2))),
        ({"use_cached": True}, "use_cached"),
        ({"sequence_length": None}, "sequence_length"),
        ({"seed": None}, "seed"),
        ({"shuffle": 0}, "shuffle"),
        ({"num_epochs": 0}, "num_epochs"),
        ({"feature_converter": EncDecFeatureConverter()}, "feature_converter"),
        ({"feature_converter": HuggingFaceFeatureConverter(span_id=True)}, "feature_converter"),
        ({"mixture": "ul2_mix", "cache_dirs": ["CACHE"]}, "cache_dirs"),
    ],
)
def test_arguments_that_do_not_go_with_the_mixture_are_refused(mixture, arguments, argument):
    with pytest.raises(ValueError, match=argument):
        UL2IterableDataset(**{"mixture": mixture, "sequence_length": LENGTHS, **arguments})


@pytest.mark.parametrize(
    ("changed", "argument"),
    [
        ({"number": -1}, "number"),
        ({"windows": [3, "x"]}, "windows"),
        ({"pipeline": "mine"}, "pipeline"),
        ({"version": 99}, "state"),
    ],
)
def test_a_state_of_another_form_is_refused_and_forgotten(mixture, changed, argument):
    dataset = UL2IterableDataset(mixture, LENGTHS)
    beginning = dataset.state_dict()
    with pytest.raises(ValueError, match=f"state.*{argument}|{argument}"):
        dataset.load_state_dict({**beginning, **changed})
    assert dataset.state_dict() == beginning


def test_a_state_of_padded_examples_is_not_taken_for_one_of_packed_rows(mixture):
    padded, packed = (
        UL2IterableDataset(mixture, LENGTHS, feature_converter=HuggingFaceFeatureConverter(pack=pack)) for pack in (False, True)
    )
    padded.load_state_dict(packed.state_dict())
    with pytest.raises(ValueError, match="feature_converter"):
        iter(padded)
