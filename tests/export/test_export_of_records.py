"""Exports of replies with random access beside denoisers: as training reads them, with their masks."""

import json

import pytest
import seqio
from rich.console import Console

import ul2_tasks
from ul2_tasks.export.folder import read_examples
from ul2_tasks.export.write import write_examples

LENGTHS = {"inputs": 512, "targets": 512}


def mixed(name: str, source: object = "embedded") -> str:
    chat = ul2_tasks.register_chat(f"{name}_chat", source, format="prompt_completion", random_access=True)
    vocabulary = seqio.TaskRegistry.get(chat).output_features["targets"].vocabulary
    texts = ul2_tasks.MemoryDataSource(lambda: [f"text {number} of few words" for number in range(400)], validation=0)
    return ul2_tasks.mix(name, {ul2_tasks.register(f"{name}_web", texts, vocabulary=vocabulary, random_access=True): 1, chat: 1})


@pytest.mark.parametrize("format", ["tfrecord", "parquet"])
def test_replies_beside_denoisers_are_exported_as_training_reads_them(tmp_path, format):
    mixture = mixed(f"exported_{format}")
    write_examples(mixture, str(tmp_path), LENGTHS, format=format, seed=3, console=Console(quiet=True))
    expected = ul2_tasks.examples(mixture, LENGTHS, seed=3)
    found = list(read_examples(str(tmp_path)))
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        assert (one["task"], one["denoiser"]) == (other["task"], other["denoiser"])
        assert all(one[key].tolist() == other[key].tolist() for key in LENGTHS)


def test_a_message_of_weight_0_is_exported_with_its_mask(tmp_path):
    messages = [
        {"role": "user", "content": "2 and 2?"},
        {"role": "assistant", "content": "5.", "channel": "commentary", "weight": 0},
        {"role": "assistant", "content": "4.", "channel": "final"},
    ]
    (tmp_path / "talks.jsonl").write_text(json.dumps({"messages": messages}) + "\n")
    mixture = mixed("exported_weights", str(tmp_path / "talks.jsonl"))
    write_examples(mixture, str(tmp_path / "out"), LENGTHS, format="parquet", console=Console(quiet=True))
    masks = {(example["denoiser"] == "", *example["loss_mask"].tolist()) for example in read_examples(str(tmp_path / "out"))}
    assert any(of_pair and {0, 1} == set(mask) for of_pair, *mask in masks)
    assert all(of_pair or set(mask) == {1} for of_pair, *mask in masks)
