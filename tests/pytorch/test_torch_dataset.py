"""`UL2IterableDataset`: each document is read once among workers and processes, by number and in windows, and resumed exactly."""

import functools
import importlib.util
import itertools
import json
import os
import pathlib
import pickle
import socket
import string
import subprocess
import warnings

import pytest
import seqio
import tensorflow as tf

from tests import programs
from tests.support import byte_vocabulary, restore, special_for

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from ul2_tasks import T5GEMMA2, register  # noqa: E402
from ul2_tasks.models.transformers import HuggingFaceFeatureConverter  # noqa: E402
from ul2_tasks.pytorch.dataset import UL2IterableDataset  # noqa: E402
from ul2_tasks.random_access import windows  # noqa: E402
from ul2_tasks.sources.memory import MemoryDataSource  # noqa: E402

pytestmark = pytest.mark.torch

BYTES, MODES = byte_vocabulary()
LENGTHS = {"inputs": 64, "targets": 64}
DENOISERS = [T5GEMMA2[0], T5GEMMA2[4]]
SETTINGS = {"vocabulary": BYTES, "modes": MODES, "denoisers": DENOISERS, "merge_examples": False}
SECONDS = 590  # more than any of the programs needs on a busy machine, and less than for ever


def short_documents() -> list[str]:
    """64 documents of 40 letters, each another one."""
    return ["".join(letters) + string.ascii_letters[:37] for letters in itertools.product("wxyz", "ijkl", "mnop")]


def documents_mixture() -> str:
    """Each example is one document."""
    return register("documents", MemoryDataSource(short_documents, validation=0), **SETTINGS)


def dataset(mixture="documents_r1", **settings) -> UL2IterableDataset:
    documents_mixture()
    return UL2IterableDataset(mixture, LENGTHS, **{"seed": 5, **settings})


def an_epoch(task="documents_r1", **settings) -> UL2IterableDataset:
    return dataset(task, num_epochs=1, **settings)


@functools.cache
def examples_of_an_epoch(rank=0, world_size=1) -> list[dict]:
    return plain(an_epoch(rank=rank, world_size=world_size))


def plain(elements) -> list[dict]:
    return [{key: value.tolist() for key, value in element.items()} for element in elements]


def take(count, elements) -> list[dict]:
    return plain(itertools.islice(elements, count))


def documents_of(examples, denoiser="r1") -> list[str]:
    """The documents that plain examples of one denoiser were made of."""
    denoiser = next(other for other in T5GEMMA2 if other.name == denoiser)
    special = special_for(denoiser, BYTES, MODES)
    return [BYTES.decode(restore({"inputs": e["input_ids"], "targets": e["labels"]}, denoiser, special)) for e in examples]


def rows_of(batch) -> list[dict]:
    """The examples of a padded batch."""
    return [
        {
            "input_ids": batch["input_ids"][row][: sum(batch["attention_mask"][row])],
            "labels": [label for label in batch["labels"][row] if label != -100],
        }
        for row in range(len(batch["input_ids"]))
    ]


def start(program: str, *arguments, **environment) -> subprocess.Popen:
    """Runs a function of this file in a new process, in which TensorFlow did not run yet."""
    code = f"import sys; from tests.pytorch import test_torch_dataset as t; t.{program}(*sys.argv[1:])"
    return programs.start("-c", code, *arguments, env=programs.environment(**environment))


def finish(process: subprocess.Popen) -> None:
    """Waits for the end of a process; one that hangs fails the test."""
    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, errors


def write(path, what) -> None:
    pathlib.Path(path).write_text(json.dumps(what))


def read(path):
    return json.loads(pathlib.Path(path).read_text())


def loader(some_dataset, **settings) -> torch.utils.data.DataLoader:
    return torch.utils.data.DataLoader(some_dataset, **{"batch_size": None, **settings})


BATCHES_OF_TWO = HuggingFaceFeatureConverter("longest", batch_size=2)


@pytest.mark.parametrize("saved_after", [[0], [3, 40]], ids=["unread", "read"])
@pytest.mark.parametrize("converter", [None, BATCHES_OF_TWO], ids=["examples", "batches"])
def test_a_state_goes_on_where_it_was_taken(saved_after, converter):
    """It is asked for several times, and written to a file."""
    original = dataset("documents_mix" if converter else "documents_r1", feature_converter=converter)
    iterator, taken = iter(original), 0
    for count in saved_after:
        take(count - taken, iterator)
        taken, state = count, pickle.dumps(original.state_dict())
    loaded = dataset("documents_mix" if converter else "documents_r1", feature_converter=converter)
    loaded.load_state_dict(pickle.loads(state))
    assert loaded.state_dict() == pickle.loads(state)
    assert take(40, iter(loaded)) == take(40, iterator)
    assert loaded.state_dict()["number"] == (saved_after[-1] + 40) * (2 if converter else 1)


@pytest.fixture(scope="module")
def state() -> dict:
    some = dataset()
    take(3, some)
    return some.state_dict()


@pytest.mark.parametrize(
    ("place", "value", "told"),
    [
        ("number", -1, "number"),
        ("windows", [3, "x"], "windows"),
        ("pipeline", "mine", "pipeline"),
    ],
)
def test_a_state_of_another_form_is_refused_and_forgotten(state, place, value, told):
    some = dataset()
    beginning = some.state_dict()
    with pytest.raises(ValueError, match=f"^the state's {told}"):
        some.load_state_dict({**state, place: value})
    assert some.state_dict() == beginning


@pytest.mark.parametrize("wrong", [{"rank": 1}, {"world_size": 2}, {"rank": 2, "world_size": 2}, {"rank": -1, "world_size": 2}])
def test_half_a_process_is_refused(wrong):
    with pytest.raises(ValueError, match="rank and world_size"):
        dataset(**wrong)


def reads_in_workers(to) -> None:
    """Workers by fork."""
    batches = loader(an_epoch(rank=1, world_size=2), batch_size=4, num_workers=2, collate_fn=list)
    told = {"forked": [plain(batch) for batch in batches]}
    if importlib.util.find_spec("torchdata"):
        told["resumed"] = [resumed_and_wanted(num_workers) for num_workers in (2, 0)]
    write(to, told)


def lines_of(path: str) -> tf.data.Dataset:
    return tf.data.TextLineDataset(path)


def reads_a_source_of_tensorflow(folder) -> None:
    """In windows, by workers: the forked ones would hang."""
    windows.WINDOW_TOKENS = 500
    name = register("of_tensorflow", seqio.FileDataSource(lines_of, {"train": f"{folder}/*.txt"}), **SETTINGS)
    some = UL2IterableDataset(name, LENGTHS, num_epochs=1)
    try:
        next(iter(loader(some, num_workers=2)))
        told = {}
    except RuntimeError as error:
        told = {"forked": str(error)}
    told |= {"spawned": plain(loader(some, num_workers=1, multiprocessing_context="spawn")), "here": plain(some)}
    write(f"{folder}/told", told)


def test_windows_of_tensorflow_are_read_by_spawned_workers_and_not_by_forked_ones(tmp_path):
    for number in range(4):
        (tmp_path / f"{number}.txt").write_text("\n".join(short_documents()[number::4]))
    finish(start("reads_a_source_of_tensorflow", tmp_path))
    told = read(tmp_path / "told")
    assert 'multiprocessing_context="spawn"' in told["forked"]
    assert told["spawned"] == told["here"]
    assert len({*map(str, told["here"])}) == 64


def test_a_bad_record_is_an_error_that_names_its_line(tmp_path):
    lines = [json.dumps({"text": text}) for text in short_documents()]
    path = tmp_path / "bad.jsonl"
    path.write_text("\n".join([*lines[:17], '{"text": "a', *lines[17:]]))
    with pytest.raises(ValueError, match=r"bad\.jsonl, line 18"):
        list(UL2IterableDataset(register("bad_record", path, **SETTINGS), LENGTHS))


def resumed_and_wanted(num_workers) -> tuple[list, list]:
    """Of two loaders: one reads on, the other is loaded with its state."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    def new():
        return StatefulDataLoader(dataset(feature_converter=BATCHES_OF_TWO), batch_size=None, num_workers=num_workers)

    original, loaded = new(), new()
    iterator = iter(original)
    take(7, iterator)
    loaded.load_state_dict(original.state_dict())
    return take(10, loaded), take(10, iterator)


@pytest.fixture(scope="module")
def read_in_workers(tmp_path_factory):
    to = tmp_path_factory.mktemp("workers") / "told"
    finish(start("reads_in_workers", to))
    return read(to)


def test_forked_workers_share_out_what_their_process_reads(read_in_workers):
    shares = [list(itertools.chain(*read_in_workers["forked"][worker::2])) for worker in range(2)]
    assert [len(share) for share in shares] == [16, 16]
    assert sorted(map(str, itertools.chain(*shares))) == sorted(map(str, plain(an_epoch(rank=1, world_size=2))))


def test_a_stateful_data_loader_resumes_all_of_its_workers(read_in_workers):
    pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed")
    for resumed, wanted in read_in_workers["resumed"]:
        assert resumed == wanted
        assert len({json.dumps(batch) for batch in wanted}) == 10


def reads_beside_another_process(to) -> None:
    """What one of two processes reads of an epoch, in batches of 4, in each of `WAYS`; first by workers, which are forked."""
    torch.distributed.init_process_group("gloo")
    numbers = {name: os.environ.pop(name) for name in ("RANK", "WORLD_SIZE")}

    def joined(**workers) -> list[dict]:
        return [example for batch in loader(an_epoch(), batch_size=4, collate_fn=list, **workers) for example in plain(batch)]

    shares = {"forked": joined(num_workers=2), "spawned": joined(num_workers=1, multiprocessing_context="spawn")}
    os.environ.update(numbers)
    if importlib.util.find_spec("accelerate"):
        import transformers  # noqa: F401

        with warnings.catch_warnings(record=True) as told:
            shares |= {"dispatch": dealt_out(True, rank=0, world_size=1), "share": dealt_out(False, rank=0, world_size=1)}
            shares["told trainer"] = trained(rank=0, world_size=1)
            shares["warnings"] = [[str(each.message) for each in told if "accelerate" in str(each.message)]]
            shares["trainer"] = trained()
            share_of_a_share = an_epoch(rank=int(numbers["RANK"]), world_size=2)
            for some in (share_of_a_share, share_of_a_share, an_epoch()):
                next(iter(some))
            shares["warnings"] += [[str(each.message) for each in told if "accelerate" in str(each.message)]]
    write(f"{to}/{numbers['RANK']}", shares)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def dealt_out(dispatch_batches, **process) -> list[dict]:
    import accelerate

    settings = accelerate.DataLoaderConfiguration(dispatch_batches=dispatch_batches)
    given = loader(an_epoch(feature_converter=HuggingFaceFeatureConverter("max_length"), **process), batch_size=4)
    batches = plain(accelerate.Accelerator(cpu=True, dataloader_config=settings).prepare(given))
    return [example for batch in batches for example in rows_of(batch)]


def trained(rank=None, world_size=None, **settings) -> list[dict]:
    """The examples of which Trainer makes steps in this process."""
    import transformers

    class Recorder(transformers.Trainer):
        def training_step(self, model, inputs, *others):
            found.extend(rows_of({name: values.tolist() for name, values in inputs.items()}))
            return super().training_step(model, inputs, *others)

    found = []
    sizes = {"d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 1, "decoder_start_token_id": 0}
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(vocab_size=1024, **sizes))
    more = {"per_device_train_batch_size": 4, "max_steps": 8, "ddp_backend": "gloo", "use_cpu": True, "save_strategy": "no"}
    arguments = transformers.TrainingArguments("unused", report_to=[], disable_tqdm=True, **more, **settings)
    converter = HuggingFaceFeatureConverter("max_length")
    data = an_epoch(feature_converter=converter, batch_size=4, rank=rank, world_size=world_size)
    Recorder(model, arguments, train_dataset=data).train()
    return found


@pytest.fixture(scope="module")
def read_by_two(tmp_path_factory) -> list[dict]:
    """What each of two processes reads. None says which process it is."""
    folder = tmp_path_factory.mktemp("two")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    processes = [start("reads_beside_another_process", folder, **environment, RANK=str(rank)) for rank in range(2)]
    for process in processes:
        finish(process)
    return [read(folder / str(rank)) for rank in range(2)]


WAYS = {
    "forked": "on their own, by workers",
    "spawned": "by a worker that is spawned, where there is no process group",
    "dispatch": "as Trainer has it by default",
    "share": "as Trainer has it with dispatch_batches=False",
    "trainer": "by a plain Trainer",
    "told trainer": "by one, with rank=0 and world_size=1",
}


@pytest.mark.parametrize("how", WAYS)
def test_two_processes_read_each_document_once(read_by_two, how):
    if how not in ("forked", "spawned"):
        pytest.importorskip("accelerate", reason="the extra torch is not installed")
    shares = [documents_of(of_process[how]) for of_process in read_by_two]
    assert [len(share) for share in shares] == [32, 32]
    assert sorted(itertools.chain(*shares)) == sorted(short_documents())


def test_what_accelerate_would_split_or_split_again_is_told_once(read_by_two):
    pytest.importorskip("accelerate", reason="the extra torch is not installed")
    for rank, of_process in enumerate(read_by_two):
        before, (whole, share) = of_process["warnings"]
        assert before == [], "rank and world_size say that accelerate splits the data"
        assert "each of the 2 processes of accelerate reads all of the data" in whole
        assert f"reads share {rank} of 2 of the data" in share
        assert "pass rank=0 and world_size=1" in share


def test_processes_of_torchrun_share_before_they_are_a_group(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert plain(an_epoch()) == examples_of_an_epoch(rank=1, world_size=2)
    assert len(plain(an_epoch(rank=0, world_size=1))) == 64
