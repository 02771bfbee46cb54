"""Tokens that others made: read as they were written, shared out, cached; what is wrong with files is said with their names."""

import dataclasses
import itertools
import pickle
import shutil

import numpy as np
import pytest

import ul2_tasks
from tests.sources.token_files import CASES, EOS, litdata_itself, parquet
from ul2_tasks.corpus.documents import documents_of
from ul2_tasks.corpus.token_batches import document_shards

DOCUMENTS = [[5 + number, *range(7, 7 + number % 11), EOS] for number in range(40)]
WITHOUT_END = [each[:-1] for each in DOCUMENTS]


def marked(name, *others):
    """A case, which is run where the library is that writes it."""
    return pytest.param(name, *others, marks=pytest.mark.torch if CASES[name].needs else ())


def mixture_of(name, folder):
    source = ul2_tasks.open_source(CASES[name].spec.format(folder), **CASES[name].options or {})
    return dataclasses.replace(ul2_tasks.Mixture("tokens", source, "bytes"), denoisers=ul2_tasks.T5GEMMA2[:1])


def written(name, folder, documents=DOCUMENTS):
    folder.mkdir(exist_ok=True)
    CASES[name].write(folder, documents)
    return mixture_of(name, folder).corpus()


def shards(corpus, wanted=0):
    """What reads each shard from one of its documents on, as lists."""
    count, read = document_shards(corpus, "train", False, wanted)

    def read_from(shard, first=0):
        parts = [documents.columns["tokens"] for documents, _ in read(shard, first, True)]
        return [ids.tolist() for tokens, lengths in parts for ids in np.split(tokens, np.cumsum(lengths)[:-1])]

    return [lambda first=0, shard=shard: read_from(shard, first) for shard in range(count)]


def read_all(corpus):
    return [*itertools.chain(*(read() for read in shards(corpus)))]


@pytest.mark.parametrize("name", map(marked, CASES))
def test_documents_are_as_they_were_written_also_from_the_middle_of_a_shard(name, tmp_path):
    corpus = pickle.loads(pickle.dumps(written(name, tmp_path)))
    assert read_all(corpus) == WITHOUT_END
    found = shards(corpus, 3 if corpus.is_tokens else 0)
    assert [*itertools.chain(*(read() for read in found))] == WITHOUT_END
    assert all(read(len(read()) // 2) == read()[len(read()) // 2 :] for read in found)
    assert len(found) >= 3 or not corpus.is_tokens


IDS = [(name, 60000) for name in CASES if not CASES[name].needs] + [
    (name, -3) for name in ("litdata, by bytes", "parquet", "jsonl")
]


@pytest.mark.parametrize(("name", "id"), IDS)
def test_an_id_that_the_vocabulary_lacks_is_told_with_file_and_document(name, id, tmp_path):
    with pytest.raises(ValueError, match=rf"(document 33 of {tmp_path}|{tmp_path}.*(record|row|line) \d+).* got \[?{id}"):
        read_all(written(name, tmp_path, [*DOCUMENTS[:33], [5, id, EOS], *DOCUMENTS[34:]]))


def test_an_id_of_eight_bytes_does_not_wrap_round(tmp_path):
    np.save(tmp_path / "a.npy", np.array([5, 2**32 + 6, EOS]))
    source = ul2_tasks.open_source(f"flat:{tmp_path}/a.npy", eod=EOS)
    with pytest.raises(ValueError, match=f"{tmp_path}"):
        read_all(ul2_tasks.Mixture("tokens", source, "bytes").corpus())


@pytest.mark.parametrize("array", [np.array([5.0, EOS]), np.array([5, EOS], ">u2"), np.asfortranarray([[5, EOS], [6, EOS]])])
def test_an_array_of_something_else_than_ids_in_order_is_refused(array, tmp_path):
    np.save(tmp_path / "a.npy", array)
    source = ul2_tasks.open_source(f"flat:{tmp_path}/a.npy", eod=EOS)
    with pytest.raises(ValueError, match=f"{tmp_path}/a.npy must have integers"):
        read_all(ul2_tasks.Mixture("tokens", source, "bytes").corpus())


def test_it_is_told_of_a_document_that_is_not_looked_at_before(tmp_path):
    corpus = written("megatron", tmp_path, [[5, 60000 if number == 503 else 7] for number in range(1000)])
    with pytest.raises(ValueError, match=rf"document 503 of {tmp_path}/a must .* got 60000"):
        read_all(corpus)
    examples = ul2_tasks.examples(mixture_of("megatron", tmp_path), {"inputs": 64, "targets": 64})
    with pytest.raises(ValueError, match=rf"{tmp_path}/a, row 503, must .*60000"):
        examples[: len(examples)]


def truncate(name, folder):
    largest = max((path for path in folder.glob("*") if path.suffix != ".json"), key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-3])


def mistake(name, folder):
    """Files with what is beside those of other documents."""
    written(name, folder / "other", DOCUMENTS[:-1])
    shutil.copy(folder / "other" / CASES[name].beside, folder / CASES[name].beside)
    shutil.rmtree(folder / "other")


HARMED = [marked(name, truncate) for name in CASES if name != "hf"]
HARMED += [marked(name, mistake) for name in CASES if CASES[name].beside]


@pytest.mark.parametrize(("name", "harm"), HARMED)
def test_files_that_are_cut_or_do_not_belong_together_are_named(name, harm, tmp_path):
    written(name, tmp_path)
    harm(name, tmp_path)
    with pytest.raises(ValueError, match=str(tmp_path)):
        read_all(mixture_of(name, tmp_path).corpus())


def test_ids_in_columns_are_cached_as_they_are_with_where_they_are_from(tmp_path):
    written("parquet", tmp_path)
    mixture = mixture_of("parquet", tmp_path)
    mixture.cache(tmp_path / "cache")
    columns = documents_of(mixture.corpus([str(tmp_path / "cache")]), "train", True)
    assert [ids.tolist() for ids in columns.tokens.read_each(np.arange(40))] == WITHOUT_END
    assert str(columns.tokens.provenance.of([33])[0]) == f"{tmp_path}/a.parquet, row 33"


@pytest.mark.torch
@pytest.mark.parametrize("settings", [{"compression": "zstd", "compression_level": "chunk"}, {"item_loader": None}])
def test_chunks_of_litdata_that_are_no_plain_tokens_are_refused(settings, tmp_path):
    litdata_itself(tmp_path, DOCUMENTS, **settings)
    with pytest.raises(ValueError, match=r"item_loader=TokensLoader\(\)"):
        read_all(mixture_of("litdata", tmp_path).corpus())


def test_a_document_of_dolma_may_go_on_in_the_next_file_and_lists_may_have_one_length(tmp_path):
    assert read_all(written("flat of dolma", tmp_path, [*DOCUMENTS[:9], [5, 6]])) == [*WITHOUT_END[:9], [5, 6]]
    parquet(tmp_path, lists := [[number, 7, 8] for number in range(5, 40)], size=3)
    assert read_all(mixture_of("parquet", tmp_path / "a.parquet").corpus()) == lists
