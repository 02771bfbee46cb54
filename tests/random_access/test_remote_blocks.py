"""A host reads its own blocks of a remote corpus, each once an epoch, also where corpora are mixed and weights change."""

import fsspec
import numpy as np
import pytest
from support import byte_vocabulary

import ul2_tasks
from ul2_tasks import T5GEMMA2, BlockShuffle, Mix, Mixture, Stage, open_source
from ul2_tasks.random_access.numbering import Share
from ul2_tasks.random_access.sequence import read_rows
from ul2_tasks.store.block_cache import is_remote
from ul2_tasks.store.write import PairWriter

BYTES, MODES = byte_vocabulary()
LENGTHS = {"inputs": 64, "targets": 64}
BLOCKS = BlockShuffle(block_tokens=512, partitions=8, window_blocks=2)
TOKENS = 8 * 2 * 3 * 512  # three rounds of whole windows


@pytest.fixture
def mixtures(tmp_path):
    """Two corpora, each in memory and behind fsspec."""
    found = {}
    for name in ("near", "far"):
        rng = np.random.default_rng(len(name))
        with PairWriter(f"{tmp_path}/{name}.bin", f"{tmp_path}/{name}.idx", np.dtype(np.uint16)) as pair:
            pair.add(rng.integers(0, 50, TOKENS, np.int32) + 3, np.full(TOKENS // 64, 64))
        fsspec.filesystem("memory").put(f"{tmp_path}/{name}.*", f"/{tmp_path.name}/")
        for place, folder in (("disk", tmp_path), ("store", f"memory://{tmp_path.name}")):
            source = open_source(f"megatron:{folder}/{name}")
            found[name, place] = Mixture(f"{name}_text", source, BYTES, T5GEMMA2, modes=MODES, block_shuffle=BLOCKS)
    yield found
    ul2_tasks.set_block_cache()


def mixed(mixtures, place) -> Mix:
    near, far = (mixtures[name, place] for name in ("near", "far"))
    return Mix("remote", schedule=[Stage(0, {near: 1, far: 1}), Stage(40, {far: 3, near: 1})], batch_size=8, steps=100)


@pytest.mark.parametrize("pack", [False, True])
def test_what_is_read_in_blocks_is_what_lies_on_a_disk(mixtures, pack):
    ul2_tasks.set_block_cache(1 << 15)
    found, expected = (ul2_tasks.examples(mixed(mixtures, place), LENGTHS, pack=pack) for place in ("store", "disk"))
    assert [is_remote(examples.numbering.corpora[0].store) for examples in (found, expected)] == [True, False]
    for one, other in zip(found[:], expected[:]):
        assert all(np.array_equal(one[key], other[key]) for key in ("inputs", "targets"))


@pytest.mark.parametrize("hosts", [1, 2, 8])
@pytest.mark.parametrize("kinds", [("near",), ("near", "far")], ids=["one corpus", "mixed"])
def test_a_host_reads_each_of_its_own_blocks_once(mixtures, hosts, kinds, fetched):
    mixed = Mix("own", {mixtures[kind, "store"]: 1 for kind in kinds})
    for host in range(0, hosts, max(1, hosts // 2)):
        found, share = ul2_tasks.examples(mixed, LENGTHS), Share(host, hosts)
        elements = found.numbering.corpora[0].order.windows.starts[1] * len(kinds)  # whole windows of each corpus
        elements = elements // found.numbering.timeline.stages[0].mixing.unit * found.numbering.timeline.stages[0].mixing.unit
        numbers = share.numbers(np.arange(share.count(int(elements))))
        for first in range(0, len(numbers), 64):
            read_rows(found, numbers[first : first + 64])
        of_host = [fetched[corpus.store] for corpus in found.numbering.corpora]
        assert all(set(counter.values()) == {1} for counter in of_host)
        # What comes after the last window is fetched ahead, too, and the last one may not be read to its end.
        own, ahead = 48 // hosts, 16 // hosts
        assert all(own - ahead <= len(counter) <= own + ahead for counter in of_host)
