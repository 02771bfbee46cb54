"""A script that registers under `if __name__ == "__main__"`, and reads through workers that are spawned."""

import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="the extra torch is not installed")

pytestmark = pytest.mark.torch

SCRIPT = """
import sys

import datasets
import torch

import ul2_tasks
from ul2_tasks import HuggingFaceFeatureConverter, UL2IterableDataset

TEXTS = [f"document {number} with several words in it, and some more" for number in range(300)]


def main(context):
    held = ul2_tasks.register("held", datasets.Dataset.from_dict({"text": TEXTS}), denoisers=ul2_tasks.T5GEMMA2[0])
    memory = ul2_tasks.register("memory", ul2_tasks.MemoryDataSource(lambda: TEXTS, validation=0), denoisers=ul2_tasks.T5GEMMA2[4])
    name = ul2_tasks.mix("both", {held: 3, memory: 1})

    def batches(name, workers, count, **settings):
        converter = HuggingFaceFeatureConverter("longest", batch_size=4)
        dataset = UL2IterableDataset(name, {"inputs": 64, "targets": 64}, feature_converter=converter, **settings)
        how = {"num_workers": workers, "multiprocessing_context": context} if workers else {}
        read = iter(torch.utils.data.DataLoader(dataset, batch_size=None, **how))
        return [{key: values.tolist() for key, values in next(read).items()} for _ in range(count)]

    of_workers = batches(name, 2, 8)
    shares = [batches(name, 0, 4, rank=rank, world_size=2) for rank in range(2)]
    print("the same" if of_workers == [shares[number % 2][number // 2] for number in range(8)] else "others")


if __name__ == "__main__":
    main(sys.argv[1])
"""


def test_workers_register_what_the_script_did(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    root = pathlib.Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    run = subprocess.run([sys.executable, script, "spawn"], check=True, capture_output=True, text=True, env=environment)
    assert run.stdout == "the same\n"
