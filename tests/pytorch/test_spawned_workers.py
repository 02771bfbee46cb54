"""A script that registers under `if __name__ == "__main__"`, and reads through workers that are spawned."""

import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="the extra torch is not installed")

SCRIPT = """
import sys

import datasets
import seqio
import torch

import ul2_tasks
from ul2_tasks import HuggingFaceFeatureConverter, UL2IterableDataset

TEXTS = [f"document {number} with several words in it, and some more" for number in range(300)]


def main(context):
    held = ul2_tasks.register("held", datasets.Dataset.from_dict({"text": TEXTS}), denoisers="UL2")
    memory = ul2_tasks.register("memory", ul2_tasks.MemoryDataSource(lambda: TEXTS, validation=0.1))
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
    of_lambda = seqio.FunctionDataSource(lambda split, shuffle_files=False, seed=None: None, splits=["train"])
    try:
        batches(ul2_tasks.register("of_lambda", of_lambda), 1, 1)
    except ValueError as error:
        print(str(error).strip().splitlines()[-1])


if __name__ == "__main__":
    main(sys.argv[1])
"""


@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_workers_register_what_the_script_did(tmp_path, context):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    root = pathlib.Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    run = subprocess.run([sys.executable, script, context], check=True, capture_output=True, text=True, env=environment)
    same, of_lambda = run.stdout.splitlines()
    assert same == "the same"
    assert of_lambda.startswith(
        "ValueError: 'of_lambda_mix' must be registered in this process, which was spawned, and cannot be sent"
    )
    assert "its source, FunctionDataSource" in of_lambda
    assert "lambda" in of_lambda
