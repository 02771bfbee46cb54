"""The cache of a corpus: written by the real Beam jobs, read in blocks, and never taken for what it is not."""

import functools
import io
import json
import os
import pathlib
import shutil

import numpy as np
import pytest
import seqio
import tensorflow as tf
from click.testing import CliRunner
from rich.console import Console

from tests import programs, support
from tests.chat.test_register_chat import CONVERSATIONS
from tests.support import SPOILT_FILES, built, byte_vocabulary, corpus_named, long_documents, telling, write_jsonl
from ul2_tasks import T5GEMMA2, embedded_documents, mix, register
from ul2_tasks.cli import main
from ul2_tasks.corpus import cache
from ul2_tasks.corpus.build_cache import build
from ul2_tasks.corpus.configuration import digest
from ul2_tasks.corpus.corpus import corpus_settings
from ul2_tasks.corpus.token_batches import document_shards
from ul2_tasks.sources.memory import MemoryDataSource
from ul2_tasks.tasks.corpus_task import CorpusView

REPOSITORY = pathlib.Path(__file__).parents[2]
BYTES, MODES = byte_vocabulary()
LENGTHS = {"inputs": 128, "targets": 128}


def register_cached(**settings):
    """A mixture of two denoisers, of more documents than a cache has files."""
    source = MemoryDataSource(lambda: embedded_documents()[:80], validation=0.05)
    return register("cache_small", **{"source": source, "denoisers": T5GEMMA2[::4], **settings})


@pytest.fixture(scope="module", autouse=True)
def registered():
    register_cached()


@pytest.fixture
def cache_dirs(monkeypatch):
    """Sets SeqIO's cache directories for one test; a task remembers where its cache was found, so that is forgotten."""
    with support.cache_dirs():

        def use(*folders):
            seqio.set_global_cache_dirs([*map(str, folders)])
            for name in seqio.TaskRegistry.names():
                monkeypatch.setattr(seqio.TaskRegistry.get(name), "_cache_dir", None)

        yield use


@pytest.fixture
def clean_registries(monkeypatch):
    """As in another program, that registers otherwise."""
    for registry in (seqio.TaskRegistry, seqio.MixtureRegistry):
        monkeypatch.setattr(registry, "_REGISTRY", {})


def run(*command, folder=REPOSITORY):
    return programs.run(*command, env=programs.environment(folder), cwd=folder)


@pytest.fixture(scope="module")
def stock(registered, tmp_path_factory):
    """A cache of `cache_small_corpus` by SeqIO's own job."""
    folder, module = tmp_path_factory.mktemp("stock"), tmp_path_factory.mktemp("module")
    (module / "registers.py").write_text("from tests.corpus import test_cache; test_cache.register_cached()")
    arguments = [
        "--module_import=registers",
        "--tasks=cache_small_.*",
        f"--output_cache_dir={folder}",
        "--min_shards=16",
        "--pipeline_options=--runner=FnApiRunner",
    ]
    done = run("-m", "seqio.scripts.cache_tasks_main", *arguments, folder=module)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.fixture(scope="module")
def own(registered, tmp_path_factory):
    """A cache of `cache_small_corpus` by `build`."""
    folder = tmp_path_factory.mktemp("own")
    built("cache_small_corpus", folder)
    return folder


def records(folder, corpus="cache_small_corpus", split="train") -> list[tf.train.Example]:
    paths = sorted(map(str, (folder / corpus).glob(f"{split}.tfrecord-*")))
    return [tf.train.Example.FromString(record) for record in tf.data.TFRecordDataset(paths).as_numpy_iterator()]


def tokens(examples) -> list[tuple[int, ...]]:
    return sorted(tuple(example.features.feature["targets"].int64_list.value) for example in examples)


@functools.cache
def uncached(split="train") -> list[tuple[int, ...]]:
    dataset = seqio.get_mixture_or_task("cache_small_corpus").get_dataset(None, split, shuffle=False)
    return sorted(tuple(document["targets"].tolist()) for document in dataset.as_numpy_iterator())


def documents(corpus="cache_small_corpus", split="train", salt="a", **arguments) -> list[tuple[int, ...]]:
    """The documents of a cache, in the order in which a denoiser reads them."""
    view = CorpusView(seqio.get_mixture_or_task(corpus).corpus, salt=salt, use_cached=True)
    return [tuple(document["targets"].tolist()) for document in view.get_dataset(split, **arguments).as_numpy_iterator()]


def test_shards_of_any_cache_have_each_document_once_and_are_read_from_any_record_on(stock, own, cache_dirs):
    for folder in (stock, own):
        cache_dirs(folder)
        corpus = seqio.get_mixture_or_task("cache_small_corpus").corpus
        shards = document_shards(corpus, "train", True, wanted=4)
        assert shards.shards >= 4
        found = []
        for shard in range(shards.shards):
            batches = list(shards.read(shard, 0, True))
            for documents, _ in batches:
                ends = np.cumsum(documents.lengths)[:-1]
                found += [tuple(document.tolist()) for document in np.split(documents.tokens, ends)]
            for number, (_, records) in enumerate(batches[:1]):
                left = [each.tokens.tolist() for each, _ in shards.read(shard, records, True)]
                assert left == [each.tokens.tolist() for each, _ in batches[number + 1 :]]
        assert sorted(filter(None, found)) == sorted(filter(None, uncached()))


@pytest.mark.parametrize("split", ["train", "validation"])
def test_seqios_job_writes_one_corpus_and_of_it_only_tokens_and_what_made_them(split, stock):
    assert os.listdir(stock) == ["cache_small_corpus"]
    examples = records(stock, split=split)
    assert tokens(examples) == uncached(split=split)
    assert {key for example in examples for key in example.features.feature} == {"targets", "document"}
    names = [example.features.feature["document"].bytes_list.value[0].decode() for example in examples]
    assert len({name.split("/")[0] for name in names}) == len(set(tokens(examples))), "an id for each text"
    assert len({name.split("/")[1] for name in names}) == 1
    told = [json.loads(name.split("/", 2)[2]) for name in names if name.count("/") > 1]
    assert {digest(settings) for settings in told} == {names[0].split("/")[1]}


@pytest.mark.parametrize("job", ["stock", "own"])
def test_it_is_read_by_the_corpus_the_mixture_and_each_denoiser(job, request, cache_dirs, monkeypatch):
    cache_dirs(request.getfixturevalue(job))
    corpus, expected = seqio.get_mixture_or_task("cache_small_corpus"), uncached()
    monkeypatch.setattr(type(corpus.source), "get_dataset", None)  # so that reading the source fails
    found = corpus.get_dataset(None, "train", use_cached=True, shuffle=False).as_numpy_iterator()
    assert sorted(tuple(document["targets"].tolist()) for document in found) == expected == sorted(documents())
    assert corpus.get_cached_stats("train")["examples"] == len(expected)
    for name in ("cache_small_mix", "cache_small_r1"):
        dataset = seqio.get_mixture_or_task(name).get_dataset(LENGTHS, "train", use_cached=True, seed=3, num_epochs=None)
        assert len(list(dataset.take(50).as_numpy_iterator())) == 50


SPOILT = SPOILT_FILES | {
    "added": (lambda path: path.with_name("train-00000-of-00007.idx").write_bytes(b""), "train-00000-of-00007.idx is not in"),
}


@pytest.mark.parametrize(
    ("spoil", "suffix"), [*((spoil, "bin") for spoil in SPOILT), ("altered", "origins.arrow"), ("truncated", "idx")]
)
def test_a_spoilt_file_is_named(own, cache_dirs, tmp_path, spoil, suffix):
    shutil.copytree(own / "cache_small_corpus", tmp_path / "cache_small_corpus")
    path = tmp_path / "cache_small_corpus" / f"train-00005-of-00016.{suffix}"
    change, sentence = SPOILT[spoil]
    change(path)
    (found,) = cache.verify(str(tmp_path / "cache_small_corpus"))
    assert found.startswith(sentence.format(path.name))
    cache_dirs(tmp_path)
    if spoil != "altered":  # only reading it all tells this one, which `verify` does
        with pytest.raises(ValueError, match="manifest"):
            documents()


def test_a_stock_cache_with_files_of_an_interrupted_job_is_refused(stock, cache_dirs, tmp_path):
    shutil.copytree(stock / "cache_small_corpus", tmp_path / "cache_small_corpus")
    (tmp_path / "cache_small_corpus" / "train.tfrecord-00000-of-00032").write_bytes(b"")
    cache_dirs(tmp_path)
    with pytest.raises(ValueError, match=r"train\.tfrecord-00000-of-00032"):
        documents()


@pytest.mark.parametrize(
    ("job", "settings", "name"),
    [
        ("stock", {"vocabulary": BYTES, "modes": MODES}, "vocabulary"),
        ("own", {"vocabulary": BYTES, "modes": MODES}, "vocabulary"),
        ("own", {"source": MemoryDataSource(long_documents, 0.05)}, "source"),
        ("own", {"on_error": "skip"}, "on_error"),
    ],
)
def test_a_cache_of_other_settings_is_refused(request, cache_dirs, job, settings, name):
    cache_dirs(request.getfixturevalue(job))
    request.getfixturevalue("clean_registries")
    for provider in (register_cached(**settings), "cache_small_r1"):
        with pytest.raises(ValueError, match=f"settings: {name} is"):
            seqio.get_mixture_or_task(provider).get_dataset({"inputs": 32, "targets": 32}, "train", use_cached=True)


def test_a_cache_that_is_not_there_is_missed_by_name(cache_dirs, tmp_path):
    cache_dirs(tmp_path)
    for name in ("cache_small_r1", "cache_small_mix"):
        with pytest.raises(ValueError, match=f"cache_small_corpus.*{tmp_path}"):
            seqio.get_mixture_or_task(name).get_dataset(LENGTHS, "train", use_cached=True)


def test_hosts_and_splits_without_a_document_are_refused(cache_dirs, tmp_path):
    one, empty = register_texts("one", ["a single document"]), register_texts("no_validation", ["a document"] * 3, 1e-9)
    assert built(one, tmp_path)["totals"]["documents"] == 1
    assert built(empty, tmp_path)["splits"]["validation"]["documents"] == 0
    cache_dirs(tmp_path)
    assert documents(one) == [tuple(BYTES.encode("a single document"))]
    with pytest.raises(ValueError, match="2 hosts, got 1"):
        documents(one, shard_info=seqio.ShardInfo(0, 2))
    for use_cached in (True, False):
        with pytest.raises(ValueError, match="no_validation_corpus"):
            seqio.get_mixture_or_task("no_validation_mix").get_dataset(LENGTHS, "validation", use_cached=use_cached)
    with pytest.raises(ValueError, match="split must be one of"):
        documents(empty, split="test")


def register_texts(name, texts, validation=0.0, **settings):
    register(name, MemoryDataSource(lambda: texts, validation), BYTES, modes=MODES, **settings)
    return f"{name}_corpus"


def test_a_trial_run_of_tokens_has_whole_documents_and_says_so(tmp_path, caplog):
    """Each split has the first documents of a shard, as far as they fit; readers and the manifest say so."""
    lines = [document.encode() for document in long_documents()[:50]]
    text_files(tmp_path, lines, files=2)
    source = seqio.TextLineDataSource(dict.fromkeys(("train", "validation"), f"{tmp_path}/texts/*.txt"))
    register("trial", source, BYTES, modes=MODES)
    sizes = np.cumsum([len(line) for line in lines[::2]])  # of the file that alone has tokens, as few as there are
    most = int(sizes[4]) + 3
    manifest = built("trial_corpus", tmp_path, max_tokens=most, git_revision="0123abc")
    assert (manifest["max_documents"], manifest["max_tokens"], manifest["git_revision"]) == (None, most, "0123abc")
    assert [(split["documents"], split["tokens"]) for split in manifest["splits"].values()] == [(5, sizes[4])] * 2
    corpus = seqio.TaskRegistry.get("trial_corpus").corpus
    cache.check(f"{tmp_path}/trial_corpus", corpus, corpus_settings(corpus))
    assert any(f"{tmp_path}/trial_corpus" in line for line in caplog.messages)
    for other in ({"max_tokens": most + 1}, {}, {"max_tokens": most, "max_documents": 9}):
        with pytest.raises(ValueError, match=r"max_tokens|max_documents"):
            built("trial_corpus", tmp_path, **other)
    with pytest.raises(ValueError, match="token"):
        built("trial_corpus", f"{tmp_path}/none", max_tokens=3)
    both = built("trial_corpus", f"{tmp_path}/both", max_tokens=most, max_documents=4)
    assert both["totals"]["documents"] == 2 * 2  # of the one file that has tokens, half of the documents


def test_a_corpus_without_a_token_is_no_cache(tmp_path):
    corpus = register_texts("cache_tokenless", ["", "", ""])
    for _ in range(2):
        with pytest.raises(ValueError, match=corpus):
            built(corpus, tmp_path)
        assert os.listdir(tmp_path / corpus) == []


def test_an_interrupted_job_says_so_and_is_gone_on_with(tmp_path):
    """`tests/jobs` has what it writes then, and what is refused."""
    prepared, corpus = [], "cache_interrupted_corpus"
    register("cache_interrupted", text_files(tmp_path, [document.encode() for document in long_documents()]), BYTES, modes=MODES)

    def interrupt_the_third_part():
        prepared.append(1)
        if len(prepared) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(telling(corpus_named(corpus), interrupt_the_third_part), str(tmp_path), console=Console(quiet=True))
    folder = tmp_path / corpus
    assert not list(folder.rglob("*.tmp"))
    for where in (folder, tmp_path):
        found = CliRunner().invoke(main, ["verify", str(where)])
        assert (found.exit_code, f"{folder} is an unfinished cache" in found.stdout) == (1, True)
    next(folder.glob("*.bin")).unlink()  # a shard that has lost a file is written again
    console = Console(record=True, width=200, file=io.StringIO())
    assert built(corpus, tmp_path, console=console)["totals"]["documents"] == 400
    assert "1 of 8 shards" in console.export_text()


def test_the_corpora_of_a_mix_are_cached_one_after_the_other_and_verified_together(tmp_path):
    for name in ("cache_left", "cache_right"):
        register_texts(name, long_documents()[:4])
    mix("cache_sides", {"cache_left_mix": 1, "cache_right_mix": 1})
    done = CliRunner().invoke(main, ["cache", "cache_sides_mix", "--output", str(tmp_path)])
    assert done.exit_code == 0, done.stderr
    assert sorted(os.listdir(tmp_path)) == ["cache_left_corpus", "cache_right_corpus"]
    assert CliRunner().invoke(main, ["verify", str(tmp_path)]).exit_code == 0
    (tmp_path / "cache_right_corpus" / "train-00003-of-00004.bin").unlink()
    spoilt = CliRunner().invoke(main, ["verify", str(tmp_path)])
    assert spoilt.exit_code == 1
    assert f"{tmp_path}/cache_right_corpus: train-00003-of-00004.bin is missing\n" in spoilt.stdout


def text_files(folder, documents, files=8):
    (folder / "texts").mkdir()
    for file in range(files):
        (folder / "texts" / f"{file}.txt").write_bytes(b"\n".join(documents[file::files]))
    return seqio.TextLineDataSource({"train": f"{folder}/texts/*.txt"})


OWN = """
from ul2_tasks import Chat, Mix, Mixture, open_source
talks = Chat("talks", "{folder}/talks.jsonl")
lines = open_source("{folder}/*.txt", documents="line")
texts = Mixture("texts", lines, talks.vocabulary, sentinels=range(3, 203))
own = Mix("own", {{texts: 1, talks: 1}})
"""


def test_workers_and_a_dask_cluster_write_what_one_process_writes(tmp_path):
    """Of texts and of conversations, which the workers describe themselves."""
    for file in range(8):
        (tmp_path / f"{file}.txt").write_text("\n".join(long_documents()[file::8]))
    write_jsonl(tmp_path / "talks.jsonl", ({"messages": talk} for talk in CONVERSATIONS))
    (tmp_path / "own_corpora.py").write_text(OWN.format(folder=tmp_path))
    before, found = {*os.listdir(tmp_path), "cache", "__pycache__"}, []
    for options in ([], ["--workers", 2], ["--pipeline_option=--runner=apache_beam.runners.dask.dask_runner.DaskRunner"]):
        command = ["-m", "ul2_tasks", "cache", f"{tmp_path}/own_corpora.py:own", "--output", tmp_path / "cache"]
        done = run(*command, *options, folder=tmp_path)
        assert done.returncode == 0, done.stderr[-3000:]
        assert {*os.listdir(tmp_path)} <= before, "nothing is left behind"
        found.append({str(path): path.read_bytes() for path in (tmp_path / "cache").rglob("*") if path.is_file()})
        shutil.rmtree(tmp_path / "cache")
    assert sum(path.endswith(".bin") for path in found[0]) > 2
    assert found[0] == found[1] == found[2]
