"""`NAME_mix` as SeqIO's users see it: documents, and examples to read."""

import itertools
import string

import scipy.stats
import seqio

from tests.support import byte_vocabulary, restore, special_for
from ul2_tasks import T5GEMMA2, register
from ul2_tasks.sources.memory import MemoryDataSource

BYTES, MODES = byte_vocabulary()
LENGTHS = {"inputs": 128, "targets": 128}
SIGNIFICANCE = 1e-3


def test_denoisers_see_different_documents_at_a_time():
    """Of 8,192 documents, an example each, the first 1,024 of two denoisers share 128, as draws do; stock tasks share all."""
    texts = ["".join(letters) for letters in itertools.islice(itertools.product("abcdefghij", repeat=4), 8192)]
    name = register("short", MemoryDataSource(lambda: texts, validation=0), BYTES, modes=MODES, merge_examples=False)
    first = {}
    for task in seqio.get_mixture_or_task(name).tasks:
        special, examples = special_for(task.denoiser, BYTES, MODES), task.get_dataset(LENGTHS, split="train", seed=3).take(1024)
        first[task.name] = [tuple(restore(each, task.denoiser, special)) for each in examples.as_numpy_iterator()]
        assert len(set(first[task.name])) == 1024
    chance = scipy.stats.hypergeom(8192, 1024, 1024)
    for one, other in itertools.combinations(first.values(), 2):
        assert chance.ppf(SIGNIFICANCE / 2) <= len(set(one) & set(other)) <= chance.ppf(1 - SIGNIFICANCE / 2)
        assert sum(a == b for a, b in zip(one, other)) <= 3, "1024 / 8192 are expected in the same place"


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
