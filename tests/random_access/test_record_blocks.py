"""Whole records shuffled in blocks: each example once an epoch, the inverse, and of a remote cache each block once a host."""

import dataclasses
import json
import pickle

import fsspec
import numpy as np
import pytest

import ul2_tasks
from ul2_tasks import BlockShuffle, Chat, Mixture
from ul2_tasks.random_access.numbering import Share
from ul2_tasks.random_access.sequence import read_rows

PARTITIONS = 4
BLOCKS = BlockShuffle(block_tokens=1500, partitions=PARTITIONS, window_blocks=2)
CHATS, PAIRS = {"tokens": 1024}, {"inputs": 1024, "targets": 1024}


def talk(number: int) -> list[dict]:
    return [
        message
        for turn in range(1 + number % 5)
        for message in (
            {"role": "user", "content": f"{number} plus {turn}?"},
            {"role": "assistant", "channel": "analysis", "content": f"I add {number} and {turn}."},
            {"role": "assistant", "channel": "final", "content": f"{number + turn}. " * (1 + number % 7)},
        )
    ]


@dataclasses.dataclass(frozen=True)
class Case:
    """Records that are whole, and the lengths at which they are read."""

    described: object
    lengths: dict[str, int]
    can_pack: bool = True


def cases(folder) -> dict[str, Case]:
    for shard in range(3):
        lines = (json.dumps({"messages": talk(number)}) for number in range(shard, 400, 3))
        (folder / f"{shard}.jsonl").write_text("\n".join(lines))
        texts = (json.dumps({"text": f"{number} " * (1 + number % 90)}) for number in range(shard, 400, 3))
        (folder / f"{shard}.texts.jsonl").write_text("\n".join(texts))
    talks = Chat("talks", f"{folder}/?.jsonl", truncation="drop", block_shuffle=BLOCKS)
    found = {
        "documents": Case(Mixture("apart", f"{folder}/*.texts.jsonl", merge_examples=False, block_shuffle=BLOCKS), PAIRS),
        "chat": Case(talks, CHATS),
        "reply": Case(talks, PAIRS),
    }
    if pytest.importorskip("PIL", reason="the extra images is not installed"):
        from tests.images import image_support, test_image_index

        arguments = {"block_shuffle": BLOCKS}
        seen = [image_support.record_of([f"Record {n}: " + "words, " * (n % 9), image_support.image(n), "."]) for n in range(400)]
        photos = test_image_index.described([*seen, image_support.record_of(["A text alone."])], "photos", **arguments)
        found["photos"] = Case(photos, PAIRS, can_pack=False)
    return found


@pytest.fixture(scope="module")
def described(tmp_path_factory):
    """Each case, with its cache in a folder and behind fsspec."""
    folder = tmp_path_factory.mktemp("records")
    found = cases(folder)
    for case in {case.described.name: case for case in found.values()}.values():
        case.described.cache(folder / "near")
    fsspec.filesystem("memory").put(f"{folder}/near/", f"/{folder.name}/", recursive=True)
    return {name: (case, str(folder / "near"), f"memory://{folder.name}") for name, case in found.items()}


@pytest.fixture(autouse=True)
def bound():
    """Puts back what a test sets."""
    yield ul2_tasks.set_block_cache
    ul2_tasks.set_block_cache()


KINDS = ["documents", "chat", "reply", "photos"]


def of_kind(described, kind, pack=False, far=False, **changes):
    case, near, remote = described[kind]
    if pack and not case.can_pack:
        pytest.skip("examples with images are not packed")
    description = dataclasses.replace(case.described, **changes) if changes else case.described
    return ul2_tasks.examples(description, case.lengths, pack=pack, cache_dirs=[remote if far else near])


def plain(example) -> dict:
    return {key: np.asarray(value).tolist() for key, value in example.items()}


@pytest.mark.parametrize("max_bytes", [1 << 14, 1 << 24])
@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_read_in_blocks_is_what_lies_on_a_disk(described, kind, pack, max_bytes, bound):
    bound(max_bytes)
    far, near = (of_kind(described, kind, pack, far=each) for each in (True, False))
    assert far.describe()["corpora"] == near.describe()["corpora"]
    for one, other in zip(far[:], near[:], strict=True):
        assert plain(one) == plain(other)
    again = pickle.loads(pickle.dumps(far))
    assert plain(again[5]) == plain(near[5])


@pytest.mark.parametrize("hosts", [1, 2, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_a_host_reads_each_of_its_own_blocks_once(described, kind, hosts, fetched):
    for host in range(hosts):
        found = of_kind(described, kind, far=True)
        (corpus,) = found.numbering.corpora
        caches = corpus.kind.caches
        order, share = corpus.order, Share(host, hosts)
        whole = order.sections[0].windows * order.sections[0].inner.examples  # windows of each partition
        numbers = share.numbers(np.arange(share.count(whole)))
        own = {block for window in order.windows_of(*order.slots(numbers)) for block in order.blocks_of(*window).tolist()}
        for first in range(0, len(numbers), 32):
            read_rows(found, numbers[first : first + 32])
        for cache in caches:
            of_cache = fetched[cache]
            assert set(of_cache.values()) <= {1}
            assert own <= {*of_cache} | {block for block in own if not cache.size(block)}
            assert len(of_cache) <= len(own) + PARTITIONS // hosts * order.blocks.window_blocks + order.blocks.window_blocks
