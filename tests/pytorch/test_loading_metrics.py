"""`LoadingMetricsMixin`: the metrics of loading in the logs of Trainer."""

import json
import math

import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
transformers = pytest.importorskip("transformers", reason="the extra torch is not installed")

import ul2_tasks  # noqa: E402
from ul2_tasks import HuggingFaceFeatureConverter, LoadingMetricsMixin, MeasuredLoader, TaskLossTrainer, UL2IterableDataset  # noqa: E402

pytestmark = pytest.mark.torch

LENGTHS = {"inputs": 64, "targets": 64}
CONVERTER = HuggingFaceFeatureConverter("max_length")
SIZES = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}


class Trainer(LoadingMetricsMixin, transformers.Trainer):
    pass


def trainer_of(folder, made_of=Trainer, converter=CONVERTER, **settings) -> Trainer:
    dataset = UL2IterableDataset(ul2_tasks.Mixture(), LENGTHS, feature_converter=converter, batch_size=2)
    config = transformers.T5Config(vocab_size=4352, decoder_start_token_id=0, **SIZES)
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=2,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        **{"max_steps": 6, "logging_steps": 2, "save_strategy": "no", **settings},
    )
    return made_of(transformers.T5ForConditionalGeneration(config), arguments, train_dataset=dataset)


@pytest.mark.train
@pytest.mark.parametrize("settings", [{}, {"gradient_accumulation_steps": 3, "dataloader_num_workers": 1}])
def test_the_logs_have_what_was_loaded(tmp_path, settings):
    trainer = trainer_of(tmp_path, **settings)
    trainer.train()
    logs = [log for log in trainer.state.log_history if "loss" in log]
    assert len(logs) == 3
    per_step = settings.get("gradient_accumulation_steps", 1)
    for log in logs:
        assert 0 <= log["data/loading_fraction"] <= 1
        assert log["data/rows_per_second"] == pytest.approx(2 * log["data/batches_per_second"])
        assert all(math.isfinite(value) for name, value in log.items() if name.startswith("data/"))
    assert trainer.measured_loader.batches == 6 * per_step
    assert trainer.measured_loader.rows == 2 * 6 * per_step
    assert not any(name.startswith("data/") for name in trainer.state.log_history[-1]), "the summary of the whole training"
    json.dumps(trainer.state.log_history)


@pytest.mark.train
def test_a_resumed_run_counts_what_it_trains_on(tmp_path):
    trainer_of(tmp_path, save_strategy="steps", save_steps=4).train()
    resumed = trainer_of(tmp_path, save_strategy="steps", save_steps=4)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert resumed.measured_loader.batches == 2
    assert {"data/loading_fraction", "data/input_tokens_per_second"} <= resumed.state.log_history[-2].keys()


@pytest.mark.train
def test_it_is_mixed_into_other_trainers(tmp_path):
    class Both(LoadingMetricsMixin, TaskLossTrainer):
        pass

    trainer = trainer_of(tmp_path, Both, HuggingFaceFeatureConverter("max_length", task_id=True), max_steps=2)
    trainer.train()
    assert {"loss", "loss_s", "data/loading_fraction"} <= trainer.state.log_history[0].keys()
    assert trainer.measured_loader.batches == 2


def test_a_mixin_that_would_measure_nothing_is_an_error():
    with pytest.raises(
        ValueError, match=r"must be before Trainer among the bases of Behind, got it after\. Write class Behind\(ul2"
    ):
        type("Behind", (transformers.Trainer, LoadingMetricsMixin), {})
    type("More", (type("Alone", (LoadingMetricsMixin,), {}), transformers.Trainer), {})


def test_counts_of_tensors_are_those_of_arrays():
    batch = {"attention_mask": torch.tensor([[1, 1, 0], [1, 0, 0]]), "labels": torch.tensor([[4, 0], [-100, -100]])}
    on_device = {name: _OfAccelerator(values) for name, values in batch.items()}
    for each in (batch, on_device):
        loader = MeasuredLoader([each])
        assert len(list(loader)) == 1
        assert (loader.rows, loader.input_tokens, loader.target_tokens) == (2, 3, 2)


class _OfAccelerator(torch.Tensor):
    """A tensor that says, as those of accelerators do, that it is not in the memory of the CPU."""

    is_cpu = False
