"""A trainer of Transformers goes on at the index of its step."""

import pytest

transformers = pytest.importorskip("transformers", reason="the extra torch is not installed")

from tests import tiny_models  # noqa: E402
from ul2_tasks import Mixture  # noqa: E402
from ul2_tasks.models.transformers import HuggingFaceFeatureConverter  # noqa: E402
from ul2_tasks.pytorch.dataset import UL2IterableDataset  # noqa: E402

pytestmark = [pytest.mark.train, pytest.mark.usefixtures("seeded_torch")]

LENGTHS = {"inputs": 64, "targets": 64}


def test_a_trainer_begins_at_the_step_of_its_checkpoint(tmp_path):
    """As the guide says: at the index after the examples of the steps before, with other workers, and without reading up to it."""
    pytest.importorskip("accelerate", reason="the extra torch is not installed")

    def trained(name, workers, start=0, **settings):
        examples = HuggingFaceFeatureConverter("max_length", decoder_start_token_id=0)
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
        trainer = transformers.Trainer(tiny_models.t5(decoder_start_token_id=0), arguments, train_dataset=data)
        trainer.train(**settings)
        return {entry["step"]: entry["loss"] for entry in trainer.state.log_history if "loss" in entry}

    whole = trained("whole", 2)
    resumed = trained("resumed", 0, start=2 * 2 * 2, resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-2"))
    assert list(whole) == [1, 2, 3, 4]
    assert len(set(whole.values())) == 4
    assert resumed == whole
