"""Where documents come from: the split by hash, orders, shards."""

import pytest
import seqio
import tensorflow as tf
from rich.console import Console

from ul2_tasks import CausalDenoiser, register
from ul2_tasks.corpus.build_cache import build
from ul2_tasks.corpus.view import CorpusView
from ul2_tasks.sources.memory import MemoryDataSource


def read_two(split, shuffle_files, seed=None):
    return tf.data.Dataset.from_tensor_slices({"text": ["one", "two"]})


SILENT = {
    "source": (lambda: {"source": seqio.FunctionDataSource(lambda split, shuffle_files, seed=None: read_two(split, 0), ["train"])}),
    "vocabulary": lambda: {"source": MemoryDataSource(lambda: ["a"], 0), "vocabulary": seqio.UnigramVocabulary(["a"])},
}


@pytest.mark.parametrize("what", SILENT)
def test_what_cannot_tell_what_it_is_has_no_cache(tmp_path, what):
    """Neither is one written, nor is one read that SeqIO's own job wrote."""
    register(f"corpora_silent_{what}", denoisers=[CausalDenoiser(mode=None)], **SILENT[what]())
    corpus = seqio.get_mixture_or_task(f"corpora_silent_{what}_corpus")
    message = rf"'corpora_silent_{what}_corpus' cannot be cached or exported: .* (told apart|what its ids mean)"
    with pytest.raises(ValueError, match=message):
        build(corpus.name, str(tmp_path), console=Console(quiet=True))
    assert list(tmp_path.iterdir()) == []
    corpus._cache_dir = str(tmp_path)
    with pytest.raises(ValueError, match=message):
        CorpusView(corpus, "lm", use_cached=True).get_dataset()


def test_a_cache_that_is_not_there_is_missed_by_name(tmp_path):
    corpus = seqio.get_mixture_or_task("ul2_corpus")
    before = seqio.get_global_cache_dirs()
    seqio.set_global_cache_dirs([str(tmp_path)])
    try:
        for name in ("ul2_r1", "ul2_mix"):
            with pytest.raises(ValueError, match=rf"'ul2_corpus' is in none of the cache directories \['{tmp_path}'\]\. Write it"):
                seqio.get_mixture_or_task(name).get_dataset({"inputs": 64, "targets": 64}, use_cached=True)
        assert corpus.cache_dir is None
    finally:
        seqio.set_global_cache_dirs(before)
