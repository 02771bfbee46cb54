"""`examples(..)` goes to another process, as grain's workers and PyTorch's spawned ones take it."""

import pickle

import numpy as np
import pytest
import seqio
from rich.console import Console

from tests import programs
from tests.support import byte_vocabulary, corpus_named
from ul2_tasks import T5GEMMA2, examples, mix, register
from ul2_tasks.corpus.build_cache import build
from ul2_tasks.sources.memory import MemoryDataSource
from ul2_tasks.store.write import PairWriter

BYTES, MODES = byte_vocabulary()
LENGTHS = {"inputs": 64, "targets": 64}
TEXTS = [f"the document of number {number}, in letters" for number in range(60)]
KINDS = ["memory", "tokens", "cache", "mixture"]


def write(folder, texts=TEXTS):
    for pair in range(2):
        with PairWriter(f"{folder}/{pair}.bin", f"{folder}/{pair}.idx", np.dtype("uint16")) as written:
            for text in texts[pair::2]:
                written.add(np.array(BYTES.encode(text)), np.array([len(text)]))
    return f"megatron:{folder}/*"


@pytest.fixture(scope="module")
def mixtures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pickled")
    settings = {"vocabulary": BYTES, "denoisers": T5GEMMA2[::4], "modes": MODES}
    register("pickled_memory", MemoryDataSource(lambda: TEXTS, validation=0), **settings)
    register("pickled_tokens", write(folder), **settings)
    register("pickled_cache", MemoryDataSource(lambda: TEXTS[::-1], validation=0), separate_documents=True, **settings)
    before = seqio.get_global_cache_dirs()
    build(corpus_named("pickled_cache_corpus"), str(folder / "cache"), console=Console(quiet=True))
    seqio.set_global_cache_dirs([str(folder / "cache")])
    names = {kind: f"pickled_{kind}_mix" for kind in KINDS[:3]}
    yield names | {"mixture": mix("pickled_mixture", dict.fromkeys(names.values(), 1))}
    seqio.set_global_cache_dirs(before)


def same(one, other):
    assert one.keys() == other.keys()
    assert all(np.array_equal(one[key], other[key]) for key in one)


def test_a_new_process_in_which_nothing_is_registered_reads_it(mixtures, tmp_path):
    found = examples(mixtures["mixture"], LENGTHS, seed=3)
    (tmp_path / "examples").write_bytes(pickle.dumps(found))
    program = (
        "import pickle; found = pickle.load(open('examples', 'rb')); pickle.dump((found[7], found.locate(7)), open('read', 'wb'))"
    )
    programs.run("-c", program, cwd=tmp_path, check=True)
    element, location = pickle.loads((tmp_path / "read").read_bytes())
    same(element, found[7])
    assert location == found.locate(7)


def test_other_files_at_the_same_paths_are_refused(tmp_path):
    name = register("pickled_anew", write(tmp_path), vocabulary=BYTES, denoisers=T5GEMMA2[:1], modes=MODES)
    state = pickle.dumps(examples(name, LENGTHS))
    for path in tmp_path.iterdir():
        path.unlink()
    write(tmp_path, TEXTS[1:])
    with pytest.raises(ValueError, match=" must have 30 documents and 1105 tokens, as when its dataset was made, got 29 and 1069"):
        pickle.loads(state)[:]
