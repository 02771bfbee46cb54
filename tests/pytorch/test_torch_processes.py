"""`UL2IterableDataset` in several processes: each document is read once, by workers, by accelerate, by Trainer, by torchrun."""

import importlib.util
import itertools
import json
import os
import pathlib
import string
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
R1 = T5GEMMA2[0]
SETTINGS = {"vocabulary": BYTES, "modes": MODES, "denoisers": [R1], "merge_examples": False}


def short_documents() -> list[str]:
    """64 documents of 40 letters, each another one."""
    return ["".join(letters) + string.ascii_letters[:37] for letters in itertools.product("wxyz", "ijkl", "mnop")]


def an_epoch(**settings) -> UL2IterableDataset:
    """Each example is one document."""
    register("documents", MemoryDataSource(short_documents, validation=0), **SETTINGS)
    return UL2IterableDataset("documents_r1", LENGTHS, **{"seed": 5, "num_epochs": 1, **settings})


def plain(elements) -> list[dict]:
    return [{key: value.tolist() for key, value in element.items()} for element in elements]


def documents_of(examples) -> list[str]:
    special = special_for(R1, BYTES, MODES)
    return [BYTES.decode(restore({"inputs": e["input_ids"], "targets": e["labels"]}, R1, special)) for e in examples]


def rows_of(batch) -> list[dict]:
    """The examples of a padded batch."""
    return [
        {"input_ids": ids[: sum(mask)], "labels": [label for label in labels if label != -100]}
        for ids, mask, labels in zip(batch["input_ids"], batch["attention_mask"], batch["labels"])
    ]


def loader(some_dataset, **settings) -> torch.utils.data.DataLoader:
    return torch.utils.data.DataLoader(some_dataset, **{"batch_size": None, **settings})


def lines_of(path: str) -> tf.data.Dataset:
    return tf.data.TextLineDataset(path)


def reads_a_source_of_tensorflow(folder) -> None:
    """In windows, by workers: the forked ones would hang."""
    windows.WINDOW_TOKENS = 500
    name = register("of_tensorflow", seqio.FileDataSource(lines_of, {"train": f"{folder}/*.txt"}), **SETTINGS)
    some = UL2IterableDataset(name, LENGTHS, num_epochs=1)
    with pytest.raises(RuntimeError, match='multiprocessing_context="spawn"'):
        next(iter(loader(some, num_workers=2)))
    here = plain(some)
    assert plain(loader(some, num_workers=1, multiprocessing_context="spawn")) == here
    assert len({*map(str, here)}) == 64


def test_windows_of_tensorflow_are_read_by_spawned_workers_and_not_by_forked_ones(tmp_path):
    for number in range(4):
        (tmp_path / f"{number}.txt").write_text("\n".join(short_documents()[number::4]))
    code = "from tests.pytorch import test_torch_processes as t; t.reads_a_source_of_tensorflow({!r})"
    programs.run("-c", code.format(str(tmp_path)), check=True)


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
            shares |= {"dispatch": dealt_out(True), "share": dealt_out(False), "told trainer": trained(rank=0, world_size=1)}
            shares["warnings"] = [[str(each.message) for each in told if "accelerate" in str(each.message)]]
            shares["trainer"] = trained()
            share_of_a_share = an_epoch(rank=int(numbers["RANK"]), world_size=2)
            for some in (share_of_a_share, share_of_a_share, an_epoch()):
                next(iter(some))
            shares["warnings"] += [[str(each.message) for each in told if "accelerate" in str(each.message)]]
    pathlib.Path(to, numbers["RANK"]).write_text(json.dumps(shares))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def dealt_out(dispatch_batches) -> list[dict]:
    import accelerate

    settings = accelerate.DataLoaderConfiguration(dispatch_batches=dispatch_batches)
    given = loader(an_epoch(feature_converter=HuggingFaceFeatureConverter("max_length"), rank=0, world_size=1), batch_size=4)
    batches = plain(accelerate.Accelerator(cpu=True, dataloader_config=settings).prepare(given))
    return [example for batch in batches for example in rows_of(batch)]


def trained(**process) -> list[dict]:
    """The examples of which Trainer makes steps in this process."""
    import transformers

    from tests import tiny_models

    class Recorder(transformers.Trainer):
        def training_step(self, model, inputs, *others):
            found.extend(rows_of({name: values.tolist() for name, values in inputs.items()}))
            return super().training_step(model, inputs, *others)

    found = []
    more = {"per_device_train_batch_size": 4, "max_steps": 8, "ddp_backend": "gloo", "use_cpu": True, "save_strategy": "no"}
    arguments = transformers.TrainingArguments("unused", report_to=[], disable_tqdm=True, **more)
    data = an_epoch(feature_converter=HuggingFaceFeatureConverter("max_length"), batch_size=4, **process)
    Recorder(tiny_models.t5(1024, decoder_start_token_id=0), arguments, train_dataset=data).train()
    return found


@pytest.fixture(scope="module")
def read_by_two(tmp_path_factory) -> list[dict]:
    """What each of two processes reads. None says which process it is."""
    folder = tmp_path_factory.mktemp("two")
    programs.run_two("tests.pytorch.test_torch_processes", "reads_beside_another_process", folder)
    return [json.loads((folder / str(rank)).read_text()) for rank in range(2)]


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
        assert "all of the data" in whole
        assert f"share {rank} of 2" in share
        assert "rank=0 and world_size=1" in share


def test_processes_of_torchrun_share_before_they_are_a_group(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert plain(an_epoch()) == plain(an_epoch(rank=1, world_size=2))
    assert len(plain(an_epoch(rank=0, world_size=1))) == 64
