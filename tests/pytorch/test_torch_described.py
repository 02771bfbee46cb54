"""`UL2IterableDataset` of a description: what it gives of the name, in the same order, and each other's states."""

import itertools
import random

import numpy as np
import pytest
import seqio

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

import ul2_tasks  # noqa: E402
from ul2_tasks import Chat, EncDecFeatureConverter, HuggingFaceFeatureConverter, Mix, Mixture, UL2IterableDataset, examples  # noqa: E402
from ul2_tasks.random_access.sequence import Examples  # noqa: E402
from ul2_tasks.store.write import PairWriter  # noqa: E402

pytestmark = pytest.mark.torch

LENGTHS = {"inputs": 64, "targets": 48}
SETTINGS = {"separate_documents": True}
CONVERTERS = {
    "single": None,
    "longest": HuggingFaceFeatureConverter("longest", 4, pad_token_id=7, decoder_start_token_id=2),
    "max_length": HuggingFaceFeatureConverter(),
    "one row": HuggingFaceFeatureConverter("longest", 3, decoder_only=True),
}


def letters() -> list[str]:
    return ["".join(random.Random(number).choices("abcdefghijklmnopqrstuvwxyz ", k=300)) for number in range(120)]


@pytest.fixture(scope="module")
def mixture():
    return Mixture("torch_told", ul2_tasks.MemoryDataSource(letters, validation=0), **SETTINGS)


@pytest.fixture(scope="module")
def cache(mixture, tmp_path_factory):
    folder, before = tmp_path_factory.mktemp("cache"), seqio.get_global_cache_dirs()
    mixture.cache(folder)
    ul2_tasks.register("torch_told", ul2_tasks.MemoryDataSource(letters, validation=0), **SETTINGS)
    seqio.set_global_cache_dirs([str(folder)])
    yield str(folder)
    seqio.set_global_cache_dirs(before)


def named(**settings) -> UL2IterableDataset:
    return UL2IterableDataset("torch_told_mix", LENGTHS, **{"seed": 5, "use_cached": True, **settings})


def told(elements) -> list:
    return [{key: (values.dtype, values.tolist()) for key, values in element.items()} for element in elements]


@pytest.mark.parametrize("kind", CONVERTERS)
def test_it_gives_what_the_name_gives(mixture, cache, kind):
    for process in ({}, {"rank": 1, "world_size": 3}):
        settings = {"feature_converter": CONVERTERS[kind], "num_epochs": 2, **process}
        described, same = UL2IterableDataset(mixture, LENGTHS, seed=5, cache_dirs=[cache], **settings), named(**settings)
        found, wanted = told(described), told(same)
        assert found == wanted
        assert len(found) > 20
        assert described.state_dict() == same.state_dict()


def iterated(dataset: UL2IterableDataset, elements: int) -> UL2IterableDataset:
    assert len(list(itertools.islice(iter(dataset), elements))) == elements
    return dataset


@pytest.mark.parametrize("elements", [0, 7])
def test_each_loads_the_others_state(mixture, cache, elements):
    settings = {"feature_converter": CONVERTERS["longest"]}
    described = [UL2IterableDataset(mixture, LENGTHS, seed=5, cache_dirs=[cache], **settings) for _ in range(2)]
    first = iterated(described[0], elements) if elements else described[0]
    other = iterated(named(**settings), elements) if elements else named(**settings)
    wanted = told(itertools.islice(iter(named(**settings)), elements, elements + 5))
    for saved, loaded in ((first, named(**settings)), (other, described[1])):
        loaded.load_state_dict(saved.state_dict())
        assert told(itertools.islice(iter(loaded), 5)) == wanted


def test_what_examples_returned_is_read_with_its_own_settings(mixture, cache):
    rows = ul2_tasks.examples(mixture, LENGTHS, seed=5, pack=True, shuffle=False, cache_dirs=[cache])
    dataset = UL2IterableDataset(rows, num_epochs=1)
    found = list(dataset)
    assert len(found) == len(rows)
    for row, same in zip(found, rows):
        assert {key: values.tolist() for key, values in row.items()} == {key: values.tolist() for key, values in same.items()}
        assert {values.dtype for values in row.values()} == {torch.int64}
    second = UL2IterableDataset(rows.epoch(1))
    assert second.state_dict()["number"] == len(rows)
    assert next(iter(second))["inputs"].tolist() == rows.epoch(1)[0]["inputs"].tolist()
    of_name = UL2IterableDataset(ul2_tasks.examples("torch_told_mix", LENGTHS, seed=5))
    assert told(itertools.islice(iter(of_name), 5)) == told(itertools.islice(iter(named()), 5))


def test_without_a_shuffle_it_gives_what_examples_and_the_name_give(mixture, cache):
    described = UL2IterableDataset(mixture, LENGTHS, seed=5, shuffle=False, cache_dirs=[cache], num_epochs=1)
    of_name, rows = (
        named(shuffle=False, num_epochs=1),
        ul2_tasks.examples(mixture, LENGTHS, seed=5, shuffle=False, cache_dirs=[cache]),
    )
    found = told(described)
    assert found == told(of_name) == told(UL2IterableDataset(rows, num_epochs=1))
    assert described.state_dict() == of_name.state_dict()
    loaded = named()
    loaded.load_state_dict(of_name.state_dict())
    with pytest.raises(ValueError, match="shuffle was False, is True"):
        iter(loaded)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_share_it_out(mixture, method):
    """From memory, where a source that is no file is not asked again in workers that are spawned."""
    whole = UL2IterableDataset(mixture, LENGTHS, seed=5, batch_size=2, num_epochs=1)
    loader = torch.utils.data.DataLoader(whole, batch_size=2, collate_fn=list, num_workers=2, multiprocessing_context=method)
    found = [str(example) for batch in itertools.islice(loader, 30) for example in batch]
    assert sorted(found) == sorted(map(str, itertools.islice(iter(whole), 60)))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"lengths": {"inputs": 64, "targets": 64}}, "sequence_length was .*48.*, is .*64"),
        ({"seed": 6}, "seed was 5, is 6"),
        ({"converter": "max_length"}, "feature_converter was None, is .HuggingFaceFeatureConverter"),
        ({"cached": False}, "corpora was .*store of 16 shards.*, is .*tokens in memory, sha256"),
        ({"pack": True}, "feature_converter was None, is 'packed rows'"),
        ({"shuffle": False}, "shuffle was True, is False"),
    ],
)
def test_the_state_of_another_one_is_refused(mixture, cache, change, sentence):
    state = iterated(UL2IterableDataset(mixture, LENGTHS, seed=5, cache_dirs=[cache]), 3).state_dict()
    if change.get("cached", True) is False:
        seqio.set_global_cache_dirs([])  # a description reads a cache that is in one of these, too
    try:
        read = ul2_tasks.examples(
            mixture,
            change.get("lengths", LENGTHS),
            seed=change.get("seed", 5),
            shuffle=change.get("shuffle", True),
            pack=change.get("pack", False),
            cache_dirs=[cache] if change.get("cached", True) else [],
        )
    finally:
        seqio.set_global_cache_dirs([cache])
    other = UL2IterableDataset(read, feature_converter=CONVERTERS[change.get("converter", "single")])
    other.load_state_dict(state)
    with pytest.raises(ValueError, match=f"^the state was saved by another pipeline: .*{sentence}"):
        iter(other)


def test_the_state_of_a_stream_is_refused(mixture, cache):
    stream = iterated(named(use_cached=False), 3)
    other = UL2IterableDataset(mixture, LENGTHS, seed=5, cache_dirs=[cache])
    other.load_state_dict(stream.state_dict())
    with pytest.raises(ValueError, match=r"another pipeline: .*use_cached was False, is True"):
        iter(other)


def test_a_mix_is_that_of_its_name(tmp_path):
    """Of pairs of Megatron's, which are read by number without a cache."""
    mixtures = []
    for number, name in enumerate(("torch_one", "torch_two")):
        with PairWriter(str(tmp_path / f"{name}.bin"), str(tmp_path / f"{name}.idx"), np.dtype(np.uint16)) as pair:
            pair.add(np.arange(300, 2300 + 500 * number, dtype=np.int32), np.array([1500, 500 + 500 * number]))
        mixtures.append(Mixture(name, f"megatron:{tmp_path}/{name}"))
        ul2_tasks.register(name, f"megatron:{tmp_path}/{name}")
    described = UL2IterableDataset(Mix("torch_mixed", dict(zip(mixtures, (3, 1)))), LENGTHS)
    same = UL2IterableDataset(ul2_tasks.mix("torch_mixed", {"torch_one_mix": 3, "torch_two_mix": 1}), LENGTHS)
    assert told(itertools.islice(iter(described), 20)) == told(itertools.islice(iter(same), 20))
    assert described.state_dict() == same.state_dict() | {"number": 20}
    same.load_state_dict(described.state_dict())
    assert told(itertools.islice(iter(same), 5)) == told(itertools.islice(iter(described), 20, 25))


def test_a_pair_of_megatrons_is_that_of_its_name(tmp_path):
    with PairWriter(str(tmp_path / "pair.bin"), str(tmp_path / "pair.idx"), np.dtype(np.uint16)) as pair:
        pair.add(np.arange(300, 3500, dtype=np.int32), np.array([1500, 1700]))
    source = f"megatron:{tmp_path}/pair"
    name = ul2_tasks.register("torch_pair", source)
    described, same = (UL2IterableDataset(each, LENGTHS, seed=2) for each in (Mixture("torch_pair", source), name))
    assert told(itertools.islice(iter(described), 20)) == told(itertools.islice(iter(same), 20))
    iterated(same, 20)
    assert described.state_dict() == same.state_dict()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"use_cached": True}, r"use_cached must be False with a description,.*of its cache, cache_dirs=\[\.\.\]"),
        ({"sequence_length": None}, 'sequence_length must be {"inputs": int, "targets": int}, got None. Give the lengths'),
        ({"sequence_length": 512}, 'sequence_length must be {"inputs": int, "targets": int}, got 512. Give the lengths'),
        ({"seed": None}, "seed must be an integer, because it decides the examples, got None"),
        ({"shuffle": 0}, "shuffle must be True or False, got 0"),
        ({"num_epochs": 0}, "num_epochs must be an integer of at least 1, or None for no end, got 0"),
        (
            {"feature_converter": EncDecFeatureConverter()},
            "feature_converter must be a HuggingFaceFeatureConverter without",
        ),
        ({"feature_converter": HuggingFaceFeatureConverter(span_id=True)}, "HuggingFaceFeatureConverter without span_id, or None"),
        (
            {"mixture": "ul2_mix", "cache_dirs": ["CACHE"]},
            r"cache_dirs must be \(\) with a name, got.*and call seqio\.add_global_cache_dirs",
        ),
        ({"mixture": "ul2_mix", "sequence_length": None}, "sequence_length must be"),
        (
            {"mixture": Chat("talks", ul2_tasks.MemoryDataSource(letters, validation=0), "harmony:default")},
            "mixture must be a Mixture",
        ),
    ],
)
def test_arguments_that_do_not_go_with_the_mixture_are_refused(mixture, arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        UL2IterableDataset(**{"mixture": mixture, "sequence_length": LENGTHS, **arguments})


def test_arguments_that_do_not_go_with_examples_are_refused(mixture):
    rows = ul2_tasks.examples(mixture, LENGTHS, pack=True)
    for arguments, sentence in (
        ({"sequence_length": LENGTHS}, r"sequence_length must be None with what examples.*got \{'inputs': 64, 'targets': 48\}"),
        ({"shuffle": False}, r"shuffle must be True with what examples returned, got False\. Pass it to ul2_tasks\.examples"),
        ({"seed": 3}, r"seed must be 0 with what examples returned, got 3\. Pass it to ul2_tasks\.examples\(\.\.\)"),
        (
            {"feature_converter": CONVERTERS["longest"]},
            r"feature_converter must be a HuggingFaceFeatureConverter without span_id with pack=True, or None,",
        ),
    ):
        with pytest.raises(ValueError, match=sentence):
            UL2IterableDataset(rows, **arguments)
    with pytest.raises(ValueError, match=r"HuggingFaceFeatureConverter without span_id with pack=False, or None, for the examples"):
        UL2IterableDataset(ul2_tasks.examples(mixture, LENGTHS), feature_converter=HuggingFaceFeatureConverter(pack=True))


def test_an_id_that_the_model_has_no_row_for_and_hosts_that_get_nothing_are_refused(mixture):
    few, some = (HuggingFaceFeatureConverter("longest", 4, embedding_rows=rows) for rows in (50, 500))
    with pytest.raises(ValueError, match=r"embedding_rows must be above \d+, the largest id of the examples, .*, got 50\. Call"):
        UL2IterableDataset(mixture, LENGTHS, feature_converter=few)
    dataset = UL2IterableDataset(mixture, LENGTHS, feature_converter=some)  # enough for sentinels and modes
    with pytest.raises(ValueError, match=r"example \d of the dataset, counted from 0: its inputs hold the id \d+, but embedding_"):
        next(iter(dataset))
    few = Mixture("torch_few", ul2_tasks.MemoryDataSource(lambda: ["a text"], validation=0))
    with pytest.raises(ValueError, match=r"'torch_few_mix' must have an example of split.*of 90 hosts, got 1\. Use fewer hosts"):
        iter(UL2IterableDataset(few, LENGTHS, num_epochs=1, rank=0, world_size=90))


def conversations(length: int | None = None, **settings) -> Examples:
    """Indexed conversations: chats of a length, else pairs of prompt and completion."""
    chat = Chat("torch_talks", truncation="drop", random_access=True, **settings)
    return examples(chat, {"tokens": length} if length else {"inputs": 512, "targets": 512})


def test_targets_that_are_not_trained_on_are_no_labels():
    found = conversations(train_on="content")
    batches = UL2IterableDataset(found, num_epochs=1, feature_converter=HuggingFaceFeatureConverter("longest", batch_size=4))
    rows = (row for batch in batches for row in batch["labels"].tolist())
    labels = [row[: len(example["targets"])] for row, example in zip(rows, found, strict=True)]
    assert labels == [np.where(example["loss_mask"], example["targets"], -100).tolist() for example in found]
    with pytest.raises(ValueError, match=r"feature_converter must be a HuggingFaceChatConverter .* of chats, got HuggingFace"):
        UL2IterableDataset(conversations(512), feature_converter=HuggingFaceFeatureConverter("longest", batch_size=4))
