"""The recipe of a vocabulary: its special ids, whatever the text; every text comes back; and the one that is shipped."""

import gzip
import json

import pytest
import seqio

from tests.recipes import recipe
from ul2_tasks import embedded_documents
from ul2_tasks.tokenizers.sentencepiece import DEFAULT_MODEL
from ul2_tasks.tokenizers.special_ids import SpecialTokensRequest, as_vocabulary, check_round_trip, special_tokens

MODES = ("[R]", "[S]", "[X]")
of_recipe = recipe.imported("train_vocabulary")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "own.model"
    path.write_bytes(of_recipe.train([*embedded_documents()[:60], "\n\t    return\n"], 700, sentinels=8))
    return as_vocabulary(seqio.SentencePieceVocabulary(str(path)))


def test_it_has_what_the_denoisers_need(trained):
    trained.check()
    assert (trained.vocab_size, trained.pad_id, trained.eos_id, trained.unk_id) == (700, 0, 1, 2)
    special = [special_tokens(trained, mode) for mode in MODES]
    assert special[0].sentinels == tuple(range(3, 11))
    assert [each.mode for each in special] == [(11,), (12,), (13,)]
    assert trained.encodable_ids(SpecialTokensRequest(mode_names=MODES).ids(trained)) == []
    assert check_round_trip(trained) == []


def test_the_command_reads_files_and_writes_over_none(run_recipe, tmp_path):
    with gzip.open(tmp_path / "a.jsonl.gz", "wt") as file:
        file.write("".join(json.dumps({"content": text}) + "\n" for text in embedded_documents()[:99]))
    asked = [tmp_path / "*.jsonl.gz", "--key", "content", "--size", 600, "--sentinels", 8]
    assert "600 ids; nothing is lost" in run_recipe("train_vocabulary.py", *asked)
    with pytest.raises(AssertionError, match="FileExistsError"):
        run_recipe("train_vocabulary.py", *asked)


@pytest.mark.train
def test_it_gives_the_vocabulary_that_is_shipped_or_says_what_differs():
    """Another Python has other documentation; another sentencepiece may train otherwise."""
    import hashlib

    import sentencepiece

    shipped = json.loads(DEFAULT_MODEL.with_suffix(".json").read_text())
    texts = embedded_documents()
    here = {
        "sentencepiece": sentencepiece.__version__,
        "corpus_sha256": hashlib.sha256("\0".join(texts).encode()).hexdigest(),
    }
    model = of_recipe.train(of_recipe.sentences(texts, 10**8), 4096, normalization="nmt_nfkc")
    assert (model == DEFAULT_MODEL.read_bytes()) == (here.items() <= shipped.items())
