"""`NAME_mix` as SeqIO's users see it: independence, determinism, epochs."""

import hashlib
import itertools
import string

import numpy as np
import pytest
import scipy.stats
import seqio

from tests.support import byte_vocabulary, long_documents, restore, special_for
from ul2_tasks import T5GEMMA2, register
from ul2_tasks.sources.memory import MemoryDataSource

BYTES, MODES = byte_vocabulary()
LENGTHS = {"inputs": 128, "targets": 128}
SIGNIFICANCE = 1e-3
PAIRS = list(itertools.combinations([denoiser.name for denoiser in T5GEMMA2], 2))


def short_documents() -> list[str]:
    """8,192 documents of 4 letters, each another one."""
    return ["".join(letters) for letters in itertools.islice(itertools.product("abcdefghij", repeat=4), 8192)]


@pytest.fixture(scope="module")
def short_mixture():
    """Each example is one document."""
    name = register("short", MemoryDataSource(short_documents, validation=0), BYTES, modes=MODES, merge_examples=False)
    return seqio.get_mixture_or_task(name)


@pytest.fixture(scope="module")
def long_mixture():
    return seqio.get_mixture_or_task(register("long", MemoryDataSource(long_documents, validation=0.1), BYTES, modes=MODES))


def restored(examples, denoiser):
    special = special_for(denoiser, BYTES, MODES)
    return [tuple(restore(example, denoiser, special)) for example in examples]


def test_denoisers_see_different_documents_at_a_time(short_mixture):
    """The first 1,024 documents of two denoisers share 128, as two random draws from 8,192 do; stock tasks share all."""
    first = {}
    for task in short_mixture.tasks:
        examples = list(task.get_dataset(LENGTHS, split="train", seed=3).take(1024).as_numpy_iterator())
        first[task.denoiser.name] = restored(examples, task.denoiser)
        assert len(set(first[task.denoiser.name])) == 1024
    chance = scipy.stats.hypergeom(8192, 1024, 1024)
    for a, b in PAIRS:
        overlap = len(set(first[a]) & set(first[b]))
        assert chance.ppf(SIGNIFICANCE / 2) <= overlap <= chance.ppf(1 - SIGNIFICANCE / 2), (a, b)
        assert sum(x == y for x, y in zip(first[a], first[b])) <= 3, "1024 / 8192 are expected in the same place"


def test_hosts_draw_different_noise(long_mixture):
    """SeqIO gives all hosts one seed, so without more the n-th example of every host would be masked alike."""
    task = next(task for task in long_mixture.tasks if task.denoiser.name == "r1")
    special = special_for(task.denoiser, BYTES, MODES)

    def masks(index):
        dataset = task.get_dataset(LENGTHS, split="train", seed=3, shard_info=seqio.ShardInfo(index, 2))
        return [np.flatnonzero(np.isin(example["inputs"], special.sentinels)).tolist() for example in dataset.as_numpy_iterator()]

    assert np.mean([a == b for a, b in zip(masks(0), masks(1))]) < 0.05


def test_golden_of_the_stream(long_mixture):
    """Guards determinism across machines and versions; tests/laws those across processes. If the stream changes on purpose, so must
    `fingerprint.NUMBERED_VERSION`, and then this."""
    sha256 = hashlib.sha256()
    for example in long_mixture.get_dataset(LENGTHS, split="train", seed=1).take(256).as_numpy_iterator():
        for feature in ("inputs", "targets"):
            sha256.update(np.asarray(example[feature], "<i4").tobytes() + b"/")
    assert sha256.hexdigest() == "c77e625bf666ec9220e9386b9a76f484a5537abc1393a007d7d2df959c544268"


def test_golden_examples_that_a_reader_sees():
    """The letters and digits by each denoiser, seed 0: `<n>` is the n-th sentinel, $ is EOS."""
    name = register("alphabet", MemoryDataSource(lambda: [string.ascii_letters + string.digits], validation=0), BYTES, modes=MODES)
    mixture = seqio.get_mixture_or_task(name)
    sentinels = special_for(T5GEMMA2[0], BYTES, MODES).sentinels
    names = {1: "$"} | {id: f"<{n}>" for n, id in enumerate(sentinels)} | {id: mode for mode, id in MODES.items()}
    names |= {id: chr(id - 3) for id in range(3, 259)}
    shown = {}
    for task in mixture.tasks:
        (example,) = task.get_dataset(LENGTHS, split="train", seed=0, shuffle=False).as_numpy_iterator()
        shown[task.denoiser.name] = tuple("".join(names[id] for id in example[key].tolist()) for key in ("inputs", "targets"))
    # 62 characters: r1 masks round(62 * 0.15) = 9 in 3 spans, r2 31 in 3, x1 9 in 1, x2 31 in 1, s the last round(62 * 0.75) = 46.
    assert shown == {
        "r1": ("[R]abcdefghijklmnopqrs<0>yzABCDEFGHIJKLMNOPQRSTUVWXYZ0<1>45678<2>$", "<0>tuvwx<1>123<2>9$"),
        "r2": ("[R]abcdefghijklmnop<0>vwxyzABCDEFGH<1>KL<2>$", "<0>qrstu<1>IJ<2>MNOPQRSTUVWXYZ0123456789$"),
        "x1": ("[X]abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0<0>$", "<0>123456789$"),
        "x2": ("[X]abcdefghijklmnopqrstuvwxyzABCDE<0>$", "<0>FGHIJKLMNOPQRSTUVWXYZ0123456789$"),
        "s": ("[S]abcdefghijklmnop<0>$", "<0>qrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789$"),
    }


def test_the_corpus_is_not_frozen_in_memory_and_epochs_differ_in_order():
    """SeqIO would hold a source of less than 10,000 examples in memory, in the order of the first epoch."""
    source = MemoryDataSource(long_documents, validation=0.1)
    register("ordered", source, BYTES, T5GEMMA2[4:], modes=MODES, merge_examples=False)
    settings = {"split": "validation", "seed": 5, "num_epochs": 2, "shuffle_buffer_size": 1}
    twice = seqio.get_mixture_or_task("ordered_s").get_dataset({"inputs": 600, "targets": 600}, **settings)
    documents = [BYTES.decode(example["inputs"][1:20]) for example in twice.as_numpy_iterator()]
    first, second = documents[: len(documents) // 2], documents[len(documents) // 2 :]
    assert sorted(first) == sorted(second)
    assert first != second
