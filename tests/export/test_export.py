"""Exports: read back they are the stream that training reads; their bytes depend on the arguments alone, whoever wrote them."""

import collections
import functools
import io
import itertools
import pathlib
import shutil

import numpy as np
import pytest
import seqio
import tensorflow as tf
from rich.console import Console

import ul2_tasks
from tests import programs
from tests.support import SPOILT_FILES, byte_vocabulary, long_documents
from ul2_tasks import T5GEMMA2, Mixture
from ul2_tasks.export.folder import read_examples, read_manifest, verify
from ul2_tasks.export.write import write_examples
from ul2_tasks.files.systems import names_in, read
from ul2_tasks.files.tf_examples import parsed, serialized
from ul2_tasks.inspect.verify import examine
from ul2_tasks.jobs.manifest import write_manifest
from ul2_tasks.sources.memory import MemoryDataSource
from ul2_tasks.tokenizers.base import Vocabulary
from ul2_tasks.tokenizers.special_ids import as_vocabulary

BYTES, MODES = byte_vocabulary()
LENGTHS = {"inputs": 128, "targets": 128}
FORMATS = ["tfrecord", "arrayrecord", "jsonl", "parquet"]
QUIET = Console(quiet=True)
SHARDS, SEED, EPOCHS = 2, 7, 2
IN_PROCESS = ["--runner=FnApiRunner"]
TWO_PROCESSES = [*IN_PROCESS, "--direct_num_workers=2", "--direct_running_mode=multi_processing"]


def described(name, denoisers, **arguments) -> Mixture:
    """A mixture, no two of whose examples are of the same text. A worker can make it, too, from what is pickled.

    The large validation split leaves 160 documents to train on.
    """
    given = {"source": MemoryDataSource(long_documents, 0.6), "vocabulary": BYTES, "modes": MODES, **arguments}
    return Mixture(name, denoisers=denoisers, **given)


BOTH = described("exported", (T5GEMMA2[0], T5GEMMA2[-1]))
ALONE = described("alone", T5GEMMA2[-1:])  # written faster, for what is written anew


def write(folder, mixture=BOTH, **changed) -> dict:
    given = {"format": "parquet", "sequence_length": LENGTHS, "shards": SHARDS, "seed": SEED, "epochs": EPOCHS, "console": QUIET}
    return write_examples(mixture, str(folder), **given | changed)


write_alone = functools.partial(write, mixture=ALONE)


def in_each_format(write, tmp_path_factory):
    """A function of a format; returns the folder of an export in it."""

    @functools.cache
    def find(format):
        folder = tmp_path_factory.mktemp(format)
        write(folder, format=format)
        return folder

    return find


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return in_each_format(write, tmp_path_factory)


@pytest.fixture(scope="module")
def folders_alone(tmp_path_factory):
    return in_each_format(write_alone, tmp_path_factory)


@pytest.fixture(scope="module")
def wanted():
    """The examples of each shard: those of a host."""
    found = ul2_tasks.examples(BOTH, LENGTHS, seed=SEED)
    both = [*found.epoch(0), *found.epoch(1)]
    return [both[shard::SHARDS] for shard in range(SHARDS)]


def files(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(pathlib.Path(folder).iterdir())}


def test_a_trial_run_has_the_first_examples_of_each_shard_and_says_so(wanted, tmp_path, caplog):
    """By examples and by tokens, of whole examples; its manifest, its readers and `ul2 verify` say so."""
    sizes = [np.cumsum([len(example["inputs"]) + len(example["targets"]) for example in of_shard]) for of_shard in wanted]
    few = write(tmp_path / "few", max_examples=7, git_revision="0123abc")
    assert (few["arguments"]["max_examples"], few["arguments"]["max_tokens"], few["git_revision"]) == (7, None, "0123abc")
    numbers = [7 // SHARDS + (shard < 7 % SHARDS) for shard in range(SHARDS)]
    assert [shard["examples"] for shard in few["shards"]] == numbers
    found = list(read_examples(str(tmp_path / "few")))
    first = [example for of_shard, number in zip(wanted, numbers) for example in of_shard[:number]]
    assert [example["inputs"].tolist() for example in found] == [example["inputs"].tolist() for example in first]
    assert f"{tmp_path / 'few'} is a trial run, of at most 7 examples of each split" in caplog.messages
    ((_, wrong, counts),) = examine(str(tmp_path / "few"))
    assert (wrong, counts["max_examples of a trial run"]) == ([], 7)
    most = int(sizes[0][300]) + 1
    trial = write(tmp_path / "tokens", max_tokens=most, shards=1)
    totals = trial["totals"]
    assert most - sum(LENGTHS.values()) < totals["inputs_tokens"] + totals["targets_tokens"] <= most
    assert totals["examples"] == len(list(read_examples(str(tmp_path / "tokens"))))
    with pytest.raises(ValueError, match="no example"):
        write(tmp_path / "none", max_tokens=1)
    with pytest.raises(ValueError, match=r"max_examples was 7, and is now None"):
        write(tmp_path / "few")


def same_examples(found, wanted) -> None:
    found = list(found)
    assert len(found) == len(wanted) > 100
    for example, other in zip(found, wanted):
        for key in ("inputs", "targets"):
            np.testing.assert_array_equal(example[key], other[key])
        assert [example[key] for key in ("denoiser", "task")] == [other[key] for key in ("denoiser", "task")]


@pytest.mark.parametrize("format", FORMATS)
def test_reading_gives_the_examples_that_training_reads_in_their_order(folders, wanted, format):
    found = list(read_examples(str(folders(format))))
    same_examples(found, list(itertools.chain(*wanted)))
    assert {(example[key].dtype, example[key].flags.writeable) for example in found for key in ("inputs", "targets")} == {
        (np.dtype(np.int32), True)
    }
    assert {type(example[key]) for example in found for key in ("denoiser", "task")} == {str}


def names_of(manifest) -> list[str]:
    """The files of an export, of which each shard is one."""
    return [file["file"] for shard in manifest["shards"] for file in shard["files"]]


def test_the_manifest_counts_what_each_shard_and_task_has(folders, wanted):
    folder, format = folders("parquet"), "parquet"
    manifest = read_manifest(str(folder))
    assert sorted(files(folder)) == ["_manifest.json", *names_of(manifest)]
    assert names_of(manifest) == [f"train-0000{shard}-of-00002.{format}" for shard in range(SHARDS)]
    for shard, examples in zip(manifest["shards"], wanted):
        counts = collections.defaultdict(lambda: {"examples": 0, "inputs_tokens": 0, "targets_tokens": 0})
        for example in examples:
            for own in (counts[example["task"]], counts["all"]):
                own["examples"] += 1
                own["inputs_tokens"] += len(example["inputs"])
                own["targets_tokens"] += len(example["targets"])
        assert {key: shard[key] for key in counts["all"]} == counts.pop("all")
        assert shard["tasks"] == counts
        assert set(counts) == {"exported_r1", "exported_s"}
        assert shard["bytes"] == (folder / shard["files"][0]["file"]).stat().st_size
    assert manifest["totals"]["examples"] == sum(map(len, wanted))
    totals = manifest["totals"]["tasks"]
    assert totals["exported_s"]["examples"] > 2 * totals["exported_r1"]["examples"] > 0
    assert manifest["arguments"]["sequence_length"] == LENGTHS
    assert "ByteVocabulary" in manifest["pipeline"]["vocabulary"]
    assert manifest["pipeline"]["tasks"]["exported_s"]["denoiser"]["noise_density"] == 0.75


class Lower(Vocabulary):
    """ByT5's vocabulary with ids one lower: EOS is 0."""

    identity, uses_0, eos_id, unk_id, vocab_size, extra_ids = "bytes from 2 on", True, 0, 1, 361, 103

    def encode_batch(self, texts):
        return [ids - np.int32(1) for ids in as_vocabulary(BYTES).encode_batch(texts)]


def test_ids_are_the_tokenizers_own_and_the_manifest_says_what_they_mean(tmp_path):
    source = MemoryDataSource(long_documents, 0.6)
    plain = described("export_unshifted", T5GEMMA2[:1], source=source)
    own = {name: id - 1 for name, id in MODES.items()}
    shifted = described("export_shifted", T5GEMMA2[:1], source=source, vocabulary=Lower(), modes=own)
    one, two = (write(tmp_path / each.name, each, shards=1, epochs=1) for each in (plain, shifted))
    folders = [str(tmp_path / each.name) for each in (plain, shifted)]
    for example, other in itertools.zip_longest(*map(read_examples, folders)):
        for key in ("inputs", "targets"):
            np.testing.assert_array_equal(example[key] - 1, other[key])
    ids, other = one["ids"], two["ids"]
    assert [(each["vocabulary_size"], each["eos_id"]) for each in (ids, other)] == [(362, 1), (361, 0)]
    assert other["tasks"]["export_shifted_r1"]["mode_ids"] == [258]
    example = next(read_examples(folders[1]))
    assert example["inputs"][0] == 258
    used = [int(id) for id in example["inputs"] if id > 258]
    assert used
    assert used == other["tasks"]["export_shifted_r1"]["sentinel_ids"][: len(used)]
    assert example["inputs"][-1] == example["targets"][-1] == other["eos_id"]


def test_two_processes_write_the_same_bytes_from_a_cache_too(tmp_path, monkeypatch):
    """Workers know neither the mixture nor where the cache is, before they are told."""
    monkeypatch.setenv("PYTHONPATH", str(programs.REPOSITORY))
    ALONE.cache(tmp_path / "cache")
    settings = {"cache_dirs": [tmp_path / "cache"], "format": "parquet"}
    one = write_alone(tmp_path / "one", **settings)
    two = write_alone(tmp_path / "two", **settings, pipeline_options=TWO_PROCESSES)
    assert one == two
    assert files(tmp_path / "one") == files(tmp_path / "two")
    assert one["pipeline"]["use_cached"]
    origins = [origin for example in read_examples(str(tmp_path / "one")) for origin in example["origins"]]
    assert len(set(origins)) == 173


def test_a_remote_folder_gets_the_same_bytes_and_is_read(folders_alone):
    write_alone("memory://written/export/", format="parquet")
    assert names_in("memory://written/export") == set(files(folders_alone("parquet")))
    for name, content in files(folders_alone("parquet")).items():
        assert read(f"memory://written/export/{name}") == content, name
    same_examples(read_examples("memory://written/export/"), list(read_examples(str(folders_alone("parquet")))))


def test_what_is_complete_is_not_written_again_and_what_is_missing_is(folders_alone, tmp_path):
    folder = pathlib.Path(shutil.copytree(folders_alone("parquet"), tmp_path / "copy"))
    first, second = (folder / name for name in names_of(read_manifest(str(folder))))
    times = [path.stat().st_mtime_ns for path in (first, second)]
    console = Console(record=True, width=300, file=io.StringIO())
    assert write_alone(folder, format="parquet", console=console) == read_manifest(str(folder))
    assert "is complete already, and was made with these arguments" in console.export_text()
    assert [path.stat().st_mtime_ns for path in (first, second)] == times

    second.write_bytes(second.read_bytes()[:-1])
    write_alone(folder, format="parquet")
    assert first.stat().st_mtime_ns == times[0]
    assert files(folder) == files(folders_alone("parquet"))


SPOILT = SPOILT_FILES | {
    "added": (lambda path: shutil.copy(path, f"{path}".replace("of-00002", "of-00003")), "train-00001-of-00003.{suffix} is not in"),
}


@pytest.mark.parametrize("spoil", SPOILT)
def test_a_spoilt_shard_is_named(folders, tmp_path, spoil):
    folder = pathlib.Path(shutil.copytree(folders("parquet"), tmp_path / "copy"))
    path = folder / "train-00001-of-00002.parquet"
    change, sentence = SPOILT[spoil]
    change(path)
    sentence = sentence.format(path.name, suffix="parquet")
    (found,) = verify(str(folder))
    assert found.startswith(sentence)
    with pytest.raises(ValueError, match=sentence):
        list(read_examples(str(folder)))


def test_without_checksums_counts_are_compared_all_the_same(folders, tmp_path):
    folder = pathlib.Path(shutil.copytree(folders("parquet"), tmp_path / "copy"))
    manifest = read_manifest(str(folder))
    manifest["shards"][1]["tasks"]["exported_s"]["targets_tokens"] += 1
    write_manifest(str(folder / "_manifest.json"), manifest)
    found = read_examples(str(folder), verify=False)
    whole = [next(found) for _ in range(manifest["shards"][0]["examples"])]
    assert {example["denoiser"] for example in whole} == {"r1", "s"}
    wrong = r"has other counts than the manifest: exported_s\.targets_tokens was \d+, and is now \d+\."
    with pytest.raises(ValueError, match=wrong):
        list(found)


@pytest.mark.parametrize("format", FORMATS)
def test_without_checksums_what_cannot_be_decoded_is_named_too(folders, tmp_path, format):
    folder = pathlib.Path(shutil.copytree(folders(format), tmp_path / "copy"))
    path = folder / f"train-00001-of-00002.{format}"
    path.write_bytes(b"\xff" * path.stat().st_size)
    with pytest.raises(ValueError, match=path.name):
        list(read_examples(str(folder), verify=False))


@pytest.mark.parametrize(
    ("changed", "differs"),
    [
        ({"seed": 8}, "arguments.seed was 7, and is now 8"),
        ({"format": "tfrecord"}, "arguments.format"),
        ({"sequence_length": {"inputs": 128, "targets": 96}}, "arguments.sequence_length.targets"),
        ({"mixture": Mixture()}, "pipeline.mixture"),
    ],
)
def test_other_arguments_are_refused_and_both_are_shown(folders, changed, differs):
    before = files(folders("parquet"))
    with pytest.raises(ValueError, match=differs):
        write(folders("parquet"), **changed)
    assert files(folders("parquet")) == before


@pytest.mark.parametrize(
    ("changed", "argument"),
    [
        ({"format": "csv"}, "format"),
        ({"mixture": "ul2_mix"}, "mixture must be a description"),
        ({"format": "megatron"}, "format must be .* for examples of inputs, targets"),
        ({"split": "test"}, "split"),
        ({"seed": None}, "seed"),
        ({"epochs": 0}, "epochs"),
        ({"shards": True}, "shards"),
        ({"mixture": Mixture(), "shards": 5000}, "5000"),
        ({"sequence_length": {"inputs": 3, "targets": 3}}, "lengths"),
        ({"cache_dirs": ["nowhere"]}, "cache"),
        ({"max_examples": 0}, "max_examples"),
        ({"max_tokens": "3"}, "max_tokens"),
        ({"mixture": described("missing", T5GEMMA2[:1], source=MemoryDataSource(list, validation=0))}, "missing_corpus"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_written(tmp_path, changed, argument):
    with pytest.raises(ValueError, match=argument):
        write(tmp_path / "new", **changed)
    assert not (tmp_path / "new").exists()


NO_EXPORTS = {
    "nowhere": (None, "which does not exist"),
    "empty": ({}, r"which has no _manifest\.json"),
    "newer": ({"_manifest.json": '{"schema_version": 99}'}, "version 99"),
}


@pytest.mark.parametrize("name", NO_EXPORTS)
def test_what_is_no_export_is_not_read(tmp_path, name):
    content, said = NO_EXPORTS[name]
    if content is not None:
        (tmp_path / name).mkdir()
        for file, text in content.items():
            (tmp_path / name / file).write_text(text)
    with pytest.raises(ValueError, match=said):
        read_examples(str(tmp_path / name))


def test_an_unfinished_export_is_not_read(tmp_path):
    write_alone(tmp_path / "new", part=(0, SHARDS))
    with pytest.raises(ValueError, match="unfinished export, with 1 of 2 shards"):
        read_examples(str(tmp_path / "new"))


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "train-00000-of-00002.parquet").write_text("mine")
    with pytest.raises(ValueError, match=r"such as 'train-00000-of-00002\.parquet'"):
        write(tmp_path)
    assert files(tmp_path) == {"train-00000-of-00002.parquet": b"mine"}


def test_hugging_faces_datasets_reads_it(folders, wanted, tmp_path):
    datasets = pytest.importorskip("datasets", reason="the extra huggingface is not installed")
    paths = f"{folders('parquet')}/train-*.parquet"
    found = datasets.load_dataset("parquet", data_files={"train": paths}, cache_dir=str(tmp_path), split="train")
    same_examples(found, list(itertools.chain(*wanted)))


def test_seqio_reads_it(folders, wanted):
    ids = tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True)
    features = {"inputs": ids, "targets": ids, **dict.fromkeys(("denoiser", "task"), tf.io.FixedLenFeature([], tf.string))}
    source = seqio.TFExampleDataSource({"train": f"{folders('tfrecord')}/train-*"}, features)
    found = [
        {**example, **{key: example[key].decode() for key in ("denoiser", "task")}}
        for shard in range(SHARDS)
        for example in source.get_dataset("train", shuffle=False, shard_info=seqio.ShardInfo(shard, SHARDS)).as_numpy_iterator()
    ]
    same_examples(found, list(itertools.chain(*wanted)))


def test_a_tfrecord_is_what_tensorflow_writes_and_reads(folders, tmp_path):
    """Checksums, and bytes of an example, which TensorFlow writes in the order of names."""
    path = next(folders("tfrecord").glob("*-00000-*"))
    records = [record.numpy() for record in tf.data.TFRecordDataset(str(path))]
    with tf.io.TFRecordWriter(str(tmp_path / "again")) as writer:
        for record in records:
            assert tf.train.Example.FromString(record).SerializeToString(deterministic=True) == record
            writer.write(record)
    assert (tmp_path / "again").read_bytes() == path.read_bytes()


def test_an_example_has_the_bytes_of_protocol_buffers():
    """Of ids of any size, of no id, of bytes, and of names and values that are longer than 127 bytes."""
    ids = np.array([0, 1, 127, 128, 16383, 16384, 262_143, 2**31 - 1])
    values = {"ids": ids, "none": ids[:0], "b" * 200: [b"x" * 300, b""], "no bytes": []}
    features = {
        key: tf.train.Feature(int64_list=tf.train.Int64List(value=value.tolist()))
        if isinstance(value, np.ndarray)
        else tf.train.Feature(bytes_list=tf.train.BytesList(value=value))
        for key, value in values.items()
    }
    expected = tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString(deterministic=True)
    assert serialized(values) == expected
    found = parsed(expected)
    assert {key: list(value) for key, value in found.items()} == {key: list(value) for key, value in values.items()}
    with pytest.raises(ValueError, match=r"ids must be at least 0, got -1"):
        serialized({"ids": np.array([-1])})
