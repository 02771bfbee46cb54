"""recipes/torchtitan_ul2.py on a CPU: rows by index, labels of what follows, resume on other ranks, and the model's attention.

torchtitan's trainer needs a GPU. It loads triton, which cannot be in a process with TensorFlow, so each test is a process.
"""

import importlib.util
import json
import os
import subprocess
import sys

import numpy as np
import pytest

import ul2_tasks
from tests.recipes import recorded

if importlib.util.find_spec("torchtitan") is None:
    pytest.skip("needs the package torchtitan", allow_module_level=True)

pytestmark = pytest.mark.train

BEGINNING = """
import sys
sys.modules["tensorflow"] = None
import itertools, json, tempfile, torch.distributed.checkpoint, torchtitan_ul2

def loader(rank, ranks, batch):
    arguments = {"tokenizer": None, "seq_len": 128, "local_batch_size": batch, "snapshot_every_n_steps": None}
    return torchtitan_ul2.tiny().dataloader.build(dp_world_size=ranks, dp_rank=rank, **arguments)

def read(loader, steps):
    batches = itertools.islice(loader, steps)
    return [[inputs["input"].tolist(), inputs["positions"].tolist(), labels.tolist()] for inputs, labels in batches]
"""
READ = """
whole = read(loader(0, 1, 4), 6)
ranks = [loader(rank, 2, 2) for rank in (0, 1)]
first = [read(rank, 3) for rank in ranks]
states = [rank.state_dict() for rank in ranks]
later = loader(0, 1, 4)
with tempfile.TemporaryDirectory() as folder:  # as torchtitan keeps it
    torch.distributed.checkpoint.save({"dataloader": ranks[1]}, checkpoint_id=folder)
    torch.distributed.checkpoint.load({"dataloader": later}, checkpoint_id=folder)
print(json.dumps({"whole": whole, "ranks": first, "states": states, "later": read(later, 3)}))
"""
ATTEND = """
config = torchtitan_ul2.tiny()
config.model_spec.model.update_from_config(config=config)
model = config.model_spec.model.build().requires_grad_(False)
model.init_weights()
inputs, labels = next(iter(loader(0, 1, 2)))
positions = inputs["positions"]
example = torch.cumsum(positions == 0, 1)
masks = model.get_attention_masks(positions=positions)
logits = [model(ids, positions=positions, attention_masks=masks) for ids in (inputs["input"], inputs["input"] + (example == 2))]
loss, _ = config.loss.loss_fn.build()(logits[0], labels, (labels >= 0).sum())
differs = ((logits[0] - logits[1]).abs().amax(-1) > 1e-4)
print(json.dumps({"loss": loss.item(), "example": example.tolist(), "differs": differs.tolist()}))
"""


def run(program):
    paths = [str(recorded.REPOSITORY), str(recorded.REPOSITORY / "recipes"), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", BEGINNING + program], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_its_batches_are_rows_by_index_and_resume_on_other_ranks():
    found = run(READ)
    whole = np.array(found["whole"]).transpose(1, 0, 2, 3).reshape(3, 24, 128)
    lengths = {"inputs": 64, "targets": 64}
    mixture = ul2_tasks.Mixture("mine", denoisers=ul2_tasks.UL2R, chunk_tokens=ul2_tasks.best_chunk_tokens(ul2_tasks.UL2R, lengths))
    for row, ids, positions, labels in zip(ul2_tasks.examples(mixture, lengths, pack=True), *whole):
        examples = range(1, row["inputs_segment_ids"].max() + 1)
        parts = [[row[key][row[f"{key}_segment_ids"] == number] for key in ("inputs", "targets")] for number in examples]
        tokens = np.concatenate([part for pair in parts for part in pair])
        np.testing.assert_array_equal(ids[: len(tokens)], tokens)
        assert not ids[len(tokens) :].any()
        starts = np.cumsum([0, *(len(inputs) + len(targets) for inputs, targets in parts)])
        np.testing.assert_array_equal(np.flatnonzero(positions[: len(tokens)] == 0), starts[:-1])
        expected = np.full(128, -100)
        for start, (inputs, targets) in zip(starts, parts):
            expected[start + len(inputs) - 1 :][: len(targets)] = targets
        np.testing.assert_array_equal(labels, expected)

    for rank, read in enumerate(found["ranks"]):
        read = np.array(read).transpose(1, 0, 2, 3)
        np.testing.assert_array_equal(read, whole[:, :12].reshape(3, 3, 2, 2, 128)[:, :, rank])
    assert found["states"][0] == found["states"][1]
    np.testing.assert_array_equal(np.array(found["later"]).transpose(1, 0, 2, 3).reshape(3, 12, 128), whole[:, 12:])


def test_no_example_of_a_row_attends_to_another_in_its_model():
    found = run(ATTEND)
    example, differs = np.array(found["example"]), np.array(found["differs"])
    np.testing.assert_array_equal(differs, example == 2)
    assert abs(found["loss"] - np.log(4224)) < 1
