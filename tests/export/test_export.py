"""Exports: read back they are the stream that training reads; their bytes depend on the arguments alone, whoever wrote them."""

import collections
import functools
import io
import itertools
import os
import pathlib
import pickle
import re
import shutil
import signal
import sys
import time

import new_process
import numpy as np
import pytest
import seqio
import tensorflow as tf
from rich.console import Console
from support import SPOILT_FILES, byte_vocabulary, long_documents

from ul2_tasks import T5GEMMA2, mix, register
from ul2_tasks.cli.registration import Registration
from ul2_tasks.corpus.build_cache import build
from ul2_tasks.export import formats as export_formats
from ul2_tasks.export.folder import read_examples, read_manifest, verify
from ul2_tasks.export.write import write_examples
from ul2_tasks.files.systems import copy, names_in, read
from ul2_tasks.inspect.verification import examine
from ul2_tasks.jobs.manifest import write_manifest
from ul2_tasks.sources.memory import MemoryDataSource

WORKERS_PATH = os.pathsep.join([str(new_process.TESTS.parent), *new_process.FOLDERS])
BYTES, MODES = byte_vocabulary()
LENGTHS = {"inputs": 128, "targets": 128}
FORMATS = ["tfrecord", "parquet"]
QUIET = Console(quiet=True)
SHARDS, SEED, EPOCHS = 2, 7, 2
IN_PROCESS = ["--runner=FnApiRunner"]
TWO_PROCESSES = [*IN_PROCESS, "--direct_num_workers=2", "--direct_running_mode=multi_processing"]


def registered(name, denoisers) -> Registration:
    """A mixture, no two of whose examples are of the same text. A worker can make it, too, from what is pickled.

    The large validation split leaves 160 documents to train on.
    """
    arguments = {"vocabulary": BYTES, "modes": MODES, "denoisers": denoisers}
    registration = Registration(name, source={"spec": MemoryDataSource(long_documents, 0.6)}, arguments=arguments)
    registration.apply()
    return registration


@pytest.fixture(scope="module")
def registration():
    """Of r1 and s."""
    return registered("exported", (T5GEMMA2[0], T5GEMMA2[-1]))


@pytest.fixture(scope="module")
def of_one_denoiser():
    """Of s alone, which is written faster, for what is written anew."""
    return registered("alone", T5GEMMA2[-1:])


@pytest.fixture(scope="module")
def write(registration):
    def write(folder, mixture="exported_mix", **changed) -> dict:
        arguments = {
            "format": "parquet",
            "sequence_length": LENGTHS,
            "shards": SHARDS,
            "seed": SEED,
            "epochs": EPOCHS,
            "prepare": registration.apply,
            "console": QUIET,
        }
        return write_examples(mixture, str(folder), **{**arguments, **changed})

    return write


def in_each_format(write, tmp_path_factory):
    """A function of a format; returns the folder of an export in it."""

    @functools.cache
    def find(format):
        folder = tmp_path_factory.mktemp(format)
        write(folder, format=format)
        return folder

    return find


@pytest.fixture(scope="module")
def folders(write, tmp_path_factory):
    return in_each_format(write, tmp_path_factory)


@pytest.fixture(scope="module")
def write_alone(write, of_one_denoiser):
    return functools.partial(write, mixture="alone_mix", prepare=of_one_denoiser.apply)


@pytest.fixture(scope="module")
def folders_alone(write_alone, tmp_path_factory):
    return in_each_format(write_alone, tmp_path_factory)


@pytest.fixture(scope="module")
def wanted(registration):
    """The examples of each shard, as SeqIO gives them to a trainer."""
    return [
        list(
            seqio.get_mixture_or_task("exported_mix")
            .get_dataset(
                LENGTHS,
                "train",
                shuffle=True,
                seed=SEED,
                num_epochs=EPOCHS,
                shard_info=seqio.ShardInfo(shard, SHARDS),
                passthrough_features=["denoiser", "task"],
            )
            .as_numpy_iterator()
        )
        for shard in range(SHARDS)
    ]


def files(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(pathlib.Path(folder).iterdir())}


def test_a_trial_run_has_the_first_examples_of_each_shard_and_says_so(write, wanted, tmp_path, caplog):
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
    with pytest.raises(ValueError, match=r"max_examples was 7, and is now None"):
        write(tmp_path / "few")
    with pytest.raises(ValueError, match=r"would have no example, because it is a trial run, of at most 1 tokens"):
        write(tmp_path / "none", max_tokens=1)


def same_examples(found, wanted) -> None:
    found = list(found)
    assert len(found) == len(wanted) > 100
    for example, other in zip(found, wanted):
        for key in ("inputs", "targets"):
            np.testing.assert_array_equal(example[key], other[key])
        for key in ("denoiser", "task"):
            assert example[key] == other[key].decode()


@pytest.mark.parametrize("format", FORMATS)
def test_reading_gives_the_examples_that_training_reads_in_their_order(folders, wanted, format):
    found = list(read_examples(str(folders(format))))
    same_examples(found, list(itertools.chain(*wanted)))
    assert {(example[key].dtype, example[key].flags.writeable) for example in found for key in ("inputs", "targets")} == {
        (np.dtype(np.int32), True)
    }
    assert {type(example[key]) for example in found for key in ("denoiser", "task")} == {str}


def test_the_manifest_counts_what_each_shard_and_task_has(folders, wanted):
    folder, format = folders("parquet"), "parquet"
    manifest = read_manifest(str(folder))
    assert sorted(files(folder)) == ["_manifest.json", *(shard["file"] for shard in manifest["shards"])]
    assert [shard["file"] for shard in manifest["shards"]] == [f"train-0000{shard}-of-00002.{format}" for shard in range(SHARDS)]
    for shard, examples in zip(manifest["shards"], wanted):
        counts = collections.defaultdict(lambda: {"examples": 0, "inputs_tokens": 0, "targets_tokens": 0})
        for example in examples:
            for own in (counts[example["task"].decode()], counts["all"]):
                own["examples"] += 1
                own["inputs_tokens"] += len(example["inputs"])
                own["targets_tokens"] += len(example["targets"])
        assert {key: shard[key] for key in counts["all"]} == counts.pop("all")
        assert shard["tasks"] == counts
        assert set(counts) == {"exported_r1", "exported_s"}
        assert shard["bytes"] == (folder / shard["file"]).stat().st_size
    assert manifest["totals"]["examples"] == sum(map(len, wanted))
    totals = manifest["totals"]["tasks"]
    assert totals["exported_s"]["examples"] > 2 * totals["exported_r1"]["examples"] > 0
    assert manifest["arguments"]["sequence_length"] == LENGTHS
    assert "ByteVocabulary" in manifest["pipeline"]["corpora"]["exported_corpus"]["vocabulary"]
    assert manifest["pipeline"]["tasks"]["exported_s"]["denoiser"]["noise_density"] == 0.75


class Shifted(seqio.ByteVocabulary):
    """A vocabulary whose ids are one higher than its tokenizer's, in which 0 is a token."""

    identity = "shifted bytes"
    id_shift = 1


def test_ids_are_the_tokenizers_own_and_the_manifest_says_what_they_mean(write, tmp_path):
    source = MemoryDataSource(long_documents, 0.6)
    plain = register("export_unshifted", source, BYTES, T5GEMMA2[:1], modes=MODES)
    own = {name: id - 1 for name, id in MODES.items()}
    shifted = register("export_shifted", source, Shifted(extra_ids=103), T5GEMMA2[:1], modes=own)
    one, two = (write(tmp_path / name, name, shards=1, epochs=1) for name in (plain, shifted))
    for example, other in itertools.zip_longest(read_examples(str(tmp_path / plain)), read_examples(str(tmp_path / shifted))):
        for key in ("inputs", "targets"):
            np.testing.assert_array_equal(example[key] - 1, other[key])
    ids, other = one["ids"], two["ids"]
    assert {key: ids[key] for key in ("vocabulary_size", "id_shift", "pad_id", "eos_id")} == {
        "vocabulary_size": 362,
        "id_shift": 0,
        "pad_id": 0,
        "eos_id": 1,
    }
    assert (other["vocabulary_size"], other["id_shift"], other["pad_id"], other["eos_id"]) == (361, 1, None, 0)
    assert other["tasks"]["export_shifted_r1"]["mode_ids"] == [258]
    example = next(read_examples(str(tmp_path / shifted)))
    assert example["inputs"][0] == 258
    used = [int(id) for id in example["inputs"] if id > 258]
    assert used
    assert used == other["tasks"]["export_shifted_r1"]["sentinel_ids"][: len(used)]
    assert example["inputs"][-1] == example["targets"][-1] == other["eos_id"]
    assert "null, where each id is a token's" in " ".join(other["meaning"])


def test_examples_of_tasks_that_are_not_ours_are_exported_too(write, tmp_path):
    """They have a task and no denoiser, and are as SeqIO gives them."""
    feature = seqio.Feature(BYTES, add_eos=True)
    texts = [f"question {number}" for number in range(300)]
    seqio.TaskRegistry.add(
        "export_questions",
        source=MemoryDataSource(lambda: texts, 0),
        preprocessors=[
            functools.partial(seqio.preprocessors.rekey, key_map={"inputs": "text", "targets": "text"}),
            seqio.preprocessors.tokenize,
            seqio.preprocessors.append_eos,
        ],
        output_features={"inputs": feature, "targets": feature},
    )
    ours = register("export_ours", MemoryDataSource(long_documents, 0), BYTES, T5GEMMA2[:1], modes=MODES)
    seqio.MixtureRegistry.add("export_questions_mix", ["export_questions"], default_rate=1)
    mixture = mix("export_supervised", {ours: 1, "export_questions_mix": 1})
    manifest = write(tmp_path / "new", mixture, shards=1, epochs=1)
    examples = list(read_examples(str(tmp_path / "new")))
    assert {(example["task"], example["denoiser"]) for example in examples} == {("export_questions", ""), ("export_ours_r1", "r1")}
    counts = {task: counts["examples"] for task, counts in manifest["totals"]["tasks"].items()}
    assert counts == collections.Counter(example["task"] for example in examples)
    questions = [example for example in examples if example["task"] == "export_questions"]
    assert {BYTES.decode(example["inputs"].tolist()) for example in questions} <= set(texts)
    assert all(example["inputs"][-1] == 1 for example in questions)
    assert manifest["pipeline"]["tasks"]["export_questions"]["denoiser"] is None
    assert set(manifest["ids"]["tasks"]) == {"export_ours_r1"}


def test_two_processes_write_the_same_bytes_from_a_cache_too(write_alone, tmp_path, monkeypatch):
    """Workers know neither the mixture nor where the cache is, before they are told."""
    monkeypatch.setenv("PYTHONPATH", WORKERS_PATH)
    monkeypatch.setattr(sys, "executable", new_process.executable(tmp_path))
    before = seqio.get_global_cache_dirs()
    build("alone_corpus", str(tmp_path / "cache"), console=QUIET)
    try:
        seqio.set_global_cache_dirs([str(tmp_path / "cache")])
        one = write_alone(tmp_path / "one", use_cached=True, format="parquet")
        two = write_alone(tmp_path / "two", use_cached=True, format="parquet", pipeline_options=TWO_PROCESSES)
    finally:
        seqio.set_global_cache_dirs(before)
    assert one == two
    assert files(tmp_path / "one") == files(tmp_path / "two")
    assert one["pipeline"]["corpora"]["alone_corpus"]["read"].startswith("cache: store of ")


def test_a_remote_folder_gets_the_same_bytes(folders_alone, write_alone):
    write_alone("memory://written/export/", format="parquet")
    assert names_in("memory://written/export") == set(files(folders_alone("parquet")))
    for name, content in files(folders_alone("parquet")).items():
        assert read(f"memory://written/export/{name}") == content, name


@pytest.mark.parametrize("format", ["parquet"])  # files of others are read by their own packages
def test_a_remote_folder_is_read(folders, wanted, format):
    for path in folders(format).iterdir():
        copy(str(path), f"memory://{format}/{path.name}")
    same_examples(read_examples(f"memory://{format}/"), list(itertools.chain(*wanted)))


KILLED = """
import pickle, sys
from ul2_tasks.files.systems import copy, names_in, read
from ul2_tasks.export.write import write_examples
pickle.load(open(sys.argv[1], "rb")).apply()
write_examples("alone_mix", sys.argv[2], {"inputs": 128, "targets": 128}, format="tfrecord", shards=2, seed=7, epochs=2)
"""


def test_a_killed_export_is_none_and_goes_on_where_it_stopped(folders_alone, write_alone, of_one_denoiser, tmp_path):
    folder = tmp_path / "killed"
    (tmp_path / "registration").write_bytes(pickle.dumps(of_one_denoiser))
    process = new_process.Program(["-c", KILLED, tmp_path / "registration", folder], env={**os.environ, "PYTHONPATH": WORKERS_PATH})
    deadline = time.monotonic() + 120
    while len(list(folder.glob("_parts/*.tfrecord.json"))) < 1:
        assert process.poll() is None, "it ended before it was killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert [path.name for path in folder.glob("_parts/*.tfrecord.json")] == ["train-00000-of-00002.tfrecord.json"]
    with pytest.raises(ValueError, match=r"killed is an unfinished export, with 1 of 2 shards\. Re-run the command that began it"):
        read_examples(str(folder))
    first, second = (folder / shard["file"] for shard in read_manifest(str(folders_alone("tfrecord")))["shards"])
    written = first.stat().st_mtime_ns
    # What a kill can leave at other moments: a file without its note, and a part of a file.
    second.write_bytes(b"whole, or not")
    (folder / "_parts" / f"{second.name}.0.tmp").write_bytes(b"half")

    write_alone(folder, format="tfrecord")
    assert first.stat().st_mtime_ns == written
    assert files(folder) == files(folders_alone("tfrecord"))


FULL_DISK = """
import pathlib, pickle, resource, signal, sys
from ul2_tasks.files.systems import copy, names_in, read
from ul2_tasks.export.write import write_examples
pickle.load(open(sys.argv[1], "rb")).apply()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))
for format in sys.argv[3:]:
    folder = pathlib.Path(sys.argv[2], format)
    try:
        write_examples("alone_mix", str(folder), {"inputs": 128, "targets": 128}, format=format, epochs=2)
        print(format, "was written")
    except RuntimeError as error:
        print(format, error, sorted(path.name for path in folder.rglob("*")))
"""


def test_a_disk_without_room_leaves_no_half_file(of_one_denoiser, tmp_path):
    """A limit on the size of files stands for the disk."""
    (tmp_path / "registration").write_bytes(pickle.dumps(of_one_denoiser))
    environment = {**os.environ, "PYTHONPATH": WORKERS_PATH}
    done = new_process.run("-c", FULL_DISK, tmp_path / "registration", tmp_path, *FORMATS, env=environment)
    assert done.returncode == 0, done.stderr
    told = done.stdout.splitlines()
    assert len(told) == len(FORMATS)
    for line, format in zip(told, FORMATS):
        assert re.match(rf"{format} alone_mix, train-00000-of-00001\.{format}: \w+: .*\['_parts', 'begun\.json'\]$", line), told


def test_what_is_complete_is_not_written_again_and_what_is_missing_is(folders_alone, write_alone, tmp_path):
    folder = pathlib.Path(shutil.copytree(folders_alone("parquet"), tmp_path / "copy"))
    first, second = (folder / shard["file"] for shard in read_manifest(str(folder))["shards"])
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
        ({"mixture": "ul2_mix"}, "arguments.mixture"),
    ],
)
def test_other_arguments_are_refused_and_both_are_shown(folders, write, changed, differs):
    before = files(folders("parquet"))
    with pytest.raises(ValueError, match=differs):
        write(folders("parquet"), **changed)
    assert files(folders("parquet")) == before


@pytest.mark.parametrize(
    ("changed", "argument"),
    [
        ({"format": "jsonl"}, "format"),
        ({"mixture": "nothing_mix"}, "mixture"),
        ({"mixture": "exported_r1"}, "mixture"),
        ({"split": "test"}, "split"),
        ({"seed": None}, "seed"),
        ({"epochs": 0}, "epochs"),
        ({"shards": True}, "shards"),
        ({"mixture": "ul2_mix", "shards": 5000}, "5000"),
        ({"sequence_length": {"inputs": 3, "targets": 3}}, "lengths"),
        ({"use_cached": True}, "cache"),
        ({"max_examples": 0}, "max_examples"),
        ({"max_tokens": "3"}, "max_tokens"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_written(write, tmp_path, changed, argument):
    with pytest.raises(ValueError, match=argument):
        write(tmp_path / "new", **changed)
    assert not (tmp_path / "new").exists()


def test_a_corpus_that_cannot_be_read_is_named(write, tmp_path):
    mixture = register("missing", MemoryDataSource(list, validation=0), BYTES, T5GEMMA2[:1], modes=MODES)
    with pytest.raises(ValueError, match="'missing_corpus' must have an example"):
        write(tmp_path / "new", mixture)
    (tmp_path / "texts.jsonl").write_text('{"text": "good"}\nbad\n')
    mixture = register("not_json", str(tmp_path / "texts.jsonl"), BYTES, T5GEMMA2[:1], modes=MODES)
    with pytest.raises(ValueError, match=r"texts\.jsonl, line 2: is not JSON"):
        write(tmp_path / "new", mixture, shards=1)
    assert not list((tmp_path / "new").glob("*.jsonl*"))


def test_a_folder_of_something_else_is_left_alone(write, tmp_path):
    (tmp_path / "train-00000-of-00002.parquet").write_text("mine")
    with pytest.raises(ValueError, match=r"with files that do not belong to an export, such as 'train-00000-of-00002\.parquet'"):
        write(tmp_path)
    assert files(tmp_path) == {"train-00000-of-00002.parquet": b"mine"}


def test_what_is_no_export_is_not_read(tmp_path, folders):
    with pytest.raises(ValueError, match=r"must be one that `ul2 export` wrote, got '.*nowhere', which does not exist"):
        read_examples(str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match=r"which has no _manifest\.json"):
        read_examples(str(tmp_path))
    (tmp_path / "_manifest.json").write_text('{"schema_version": 99}')
    with pytest.raises(ValueError, match="version 99"):
        read_examples(str(tmp_path))


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


def test_padding_in_an_example_is_no_id_of_a_tokenizer_whose_0_is_a_token():
    batch = {
        "inputs": np.array([[5, 0, 6], [5, -1, -1]], np.int32),
        "targets": np.array([[1, -1], [1, 1]], np.int32),
        "denoiser": np.array([b"", b""]),
        "task": np.array([b"other", b"another"]),
    }
    kept = export_formats.Examples.from_padded(batch)
    assert kept.ids["inputs"].tolist() == [5, 0, 6, 5]
    with pytest.raises(ValueError, match=r"inputs of \['other'\] must have no id 0, SeqIO's padding, among their tokens"):
        export_formats.Examples.from_padded(batch, id_shift=1)
