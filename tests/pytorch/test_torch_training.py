"""Real training: tiny models of Transformers on the mixture, on the CPU."""

import json
import pathlib

import new_process
import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
transformers = pytest.importorskip("transformers", reason="the extra torch is not installed")

from ul2_tasks import T5GEMMA2, Mixture, default_vocabulary, embedding_rows, register  # noqa: E402
from ul2_tasks.converters.hugging_face import HuggingFaceFeatureConverter  # noqa: E402
from ul2_tasks.pytorch.dataset import UL2IterableDataset  # noqa: E402

pytestmark = [pytest.mark.train, pytest.mark.usefixtures("seeded_torch")]

LENGTHS = {"inputs": 64, "targets": 64}
ROWS = embedding_rows(default_vocabulary())
DENOISERS = T5GEMMA2[::2]  # of each mode one


def t5():
    sizes = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4}
    config = transformers.T5Config(vocab_size=ROWS, dropout_rate=0.0, decoder_start_token_id=0, **sizes)
    return transformers.T5ForConditionalGeneration(config), {"decoder_start_token_id": config.decoder_start_token_id}


@pytest.fixture(scope="module", autouse=True)
def registered():
    register("trained", denoisers=DENOISERS)


def train(model, data, steps, learning_rate=3e-3) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
    losses = []
    model.train()
    for _, batch in zip(range(steps), data):
        loss = model(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def train_with_trainer(folder) -> None:
    """8 steps; and again the last 4 of them, from the checkpoint after the first 4. Writes the losses of both, by workers."""
    torch.set_num_threads(1)
    of_all = {workers: losses_of(workers, f"{folder}/{workers}") for workers in (2, 0)}  # without workers TensorFlow runs here
    (pathlib.Path(folder) / "losses").write_text(json.dumps(of_all))


def losses_of(num_workers, folder) -> list[dict[int, float]]:
    def trainer(name):
        torch.manual_seed(0)
        model, converter = t5()
        examples = HuggingFaceFeatureConverter("max_length", **converter)
        data = UL2IterableDataset(
            register("one", denoisers=T5GEMMA2[:1]), LENGTHS, seed=1, rank=0, world_size=1, feature_converter=examples
        )
        arguments = transformers.TrainingArguments(
            f"{folder}/{name}",
            max_steps=8,
            save_steps=4,
            logging_steps=1,
            per_device_train_batch_size=4,
            dataloader_num_workers=num_workers,
            learning_rate=1e-3,
            use_cpu=True,
            report_to=[],
            disable_tqdm=True,
        )
        return transformers.Trainer(model, arguments, train_dataset=data)

    whole, resumed = trainer("whole"), trainer("resumed")
    whole.train()
    resumed.train(resume_from_checkpoint=f"{folder}/whole/checkpoint-4")
    return [{entry["step"]: entry["loss"] for entry in each.state.log_history if "loss" in entry} for each in (whole, resumed)]


def test_a_trainer_begins_at_the_step_of_its_checkpoint(tmp_path):
    """As the guide says: at the index after the examples of the steps before, with other workers, and without reading up to it."""
    pytest.importorskip("accelerate", reason="the extra torch is not installed")

    def trained(name, workers, start=0, **settings):
        torch.manual_seed(0)
        model, converter = t5()
        examples = HuggingFaceFeatureConverter("max_length", **converter)
        data = UL2IterableDataset(Mixture(), LENGTHS, feature_converter=examples, batch_size=2)
        data.load_state_dict({**data.state_dict(), "number": start})
        arguments = transformers.TrainingArguments(
            str(tmp_path / name),
            max_steps=4,
            save_steps=2,
            logging_steps=1,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=2,
            dataloader_num_workers=workers,
            ignore_data_skip=start > 0,
            use_cpu=True,
            report_to=[],
            disable_tqdm=True,
        )
        trainer = transformers.Trainer(model, arguments, train_dataset=data)
        trainer.train(**settings)
        return {entry["step"]: entry["loss"] for entry in trainer.state.log_history if "loss" in entry}

    whole = trained("whole", 2)
    resumed = trained("resumed", 0, start=2 * 2 * 2, resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-2"))
    assert list(whole) == [1, 2, 3, 4]
    assert len(set(whole.values())) == 4
    assert resumed == whole


def test_trainer_resumes_with_the_losses_of_an_uninterrupted_run(tmp_path):
    """In a new process, in which TensorFlow has not run before its workers are forked."""
    pytest.importorskip("accelerate", reason="the extra torch is not installed")
    code = f"import sys; sys.path[:0] = {new_process.FOLDERS}; import test_torch_training as t; t.train_with_trainer(sys.argv[1])"
    new_process.run("-c", code, tmp_path, check=True, timeout=240)
    for whole, resumed in json.loads((tmp_path / "losses").read_text()).values():
        assert list(whole) == [str(step) for step in range(1, 9)]
        assert resumed == whole
        assert len(set(whole.values())) > 4
