"""A DataLoader of one's own over `examples` gives the batches of `UL2IterableDataset`, tensor for tensor."""

import pickle

import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

import ul2_tasks  # noqa: E402
from ul2_tasks import (  # noqa: E402
    Chat,
    ExamplesCollator,
    HuggingFaceChatConverter,
    HuggingFaceFeatureConverter,
    Mix,
    Mixture,
    UL2IterableDataset,
)

pytestmark = pytest.mark.torch

LENGTHS = {"inputs": 64, "targets": 48}
FORMATS = {
    "longest": {"padding": "longest", "pad_token_id": 7, "decoder_start_token_id": 2},
    "one row": {"padding": "longest", "decoder_only": True, "pad_to_multiple_of": None},
    "with tasks": {"padding": "longest", "task_id": True},
}


@pytest.fixture(scope="module")
def found():
    mixed = {Mixture("collate"): 2, Mixture("also", vocabulary="default", denoisers="UL2R"): 1}
    return ul2_tasks.examples(Mix("collated", mixed), LENGTHS, seed=3)


def loader(examples, converter, **settings):
    return torch.utils.data.DataLoader(examples, collate_fn=ExamplesCollator(converter, examples), **{"batch_size": 8, **settings})


def assert_same(some, others, count):
    for number, (one, other) in enumerate(zip(some, others)):
        assert list(one) == list(other)
        for key in one:
            assert (one[key].dtype, one[key].is_contiguous()) == (torch.int64, True)
            assert one[key].equal(other[key]), key
        if number == count:
            return
    pytest.fail("there are fewer batches")


@pytest.mark.parametrize("name", FORMATS)
def test_batches_are_those_of_the_iterable_dataset(found, name):
    settings, found = FORMATS[name], found.epoch(2)
    if settings.get("padding") == "longest":
        dataset = UL2IterableDataset(found, feature_converter=HuggingFaceFeatureConverter(**settings, batch_size=8))
        expected = torch.utils.data.DataLoader(dataset, batch_size=None)
    else:
        dataset = UL2IterableDataset(found, feature_converter=HuggingFaceFeatureConverter(**settings))
        expected = torch.utils.data.DataLoader(dataset, batch_size=8)
    assert_same(loader(found, HuggingFaceFeatureConverter(**settings)), expected, 20)


@pytest.mark.parametrize("task_id", [False, True])
@pytest.mark.parametrize("decoder_only", [False, True])
def test_packed_batches_are_those_of_the_iterable_dataset(decoder_only, task_id):
    rows = ul2_tasks.examples(Mixture(chunk_tokens=20), LENGTHS, pack=True, task_id=task_id)
    settings = {"decoder_only": decoder_only, "task_id": task_id}
    converter = HuggingFaceFeatureConverter(pack=True, pad_token_id=5, decoder_start_token_id=6, **settings)
    expected = torch.utils.data.DataLoader(UL2IterableDataset(rows, feature_converter=converter), batch_size=8)
    assert_same(loader(rows, converter), expected, 10)


@pytest.mark.parametrize("pack", [True, False])
def test_chats_are_those_of_the_iterable_dataset(pack):
    found = ul2_tasks.examples(Chat(truncation="drop"), {"tokens": 512}, pack=pack, task_id=True)
    converter = HuggingFaceChatConverter(pack, pad_token_id=3, task_id=True)
    expected = UL2IterableDataset(found, feature_converter=converter)
    batches = loader(found, pickle.loads(pickle.dumps(converter)), batch_size=2)
    assert_same(batches, torch.utils.data.DataLoader(expected, batch_size=2), 1)
    long = {key: values.repeat(99) for key, values in found[0].items() if not isinstance(values, str)} | {"task": "default_chat"}
    with pytest.raises(ValueError, match=r"element 0 of the batch must have|all input arrays must have the same shape"):
        ExamplesCollator(converter, found)([long, found[1]])


def test_what_does_not_fit_is_an_error_that_says_what_to_pass(found):
    rows = ul2_tasks.examples(Mixture(chunk_tokens=20), LENGTHS, pack=True)
    chats = ul2_tasks.examples(Chat(truncation="drop"), {"tokens": 512})
    for converter, examples, named in (
        ({"padding": "longest", "batch_size": 8}, found, "batch_size"),
        ({"pack": True}, found, "feature_converter"),
        ({}, rows, "feature_converter"),
        ({"span_id": True}, found, "feature_converter"),
        ({}, chats, "feature_converter"),
        ({}, found[:3], "examples"),
        ({"pack": True, "task_id": True}, rows, "task_id"),
        ({"embedding_rows": 20}, found, "embedding_rows"),
    ):
        with pytest.raises(ValueError, match=named):
            ExamplesCollator(HuggingFaceFeatureConverter(**converter), examples)
    with pytest.raises(ValueError, match="batch_size"):
        UL2IterableDataset(found, feature_converter=HuggingFaceFeatureConverter("longest"))


def test_elements_of_others_are_an_error_that_says_what_to_pass(found):
    collate = ExamplesCollator(HuggingFaceFeatureConverter(), found)
    for elements, named in (
        ([found[0], {"text": "a"}], "element 1 "),
        ([], "elements"),
        (found[0], "elements"),
        ([found[0] | {"inputs": found[0]["inputs"].repeat(99)}], "element 0 .* inputs"),
    ):
        with pytest.raises(ValueError, match=named):
            collate(elements)
    rows = ul2_tasks.examples(Mixture(chunk_tokens=20), LENGTHS, pack=True)
    packed = ExamplesCollator(HuggingFaceFeatureConverter(pack=True), rows)
    with pytest.raises(ValueError, match="inputs_segment_ids"):
        packed(found[:2])
    few = ExamplesCollator(HuggingFaceFeatureConverter(embedding_rows=600), found)
    with pytest.raises(ValueError, match="embedding_rows"):
        few(found[:8])
