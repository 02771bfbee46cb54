"""recipes/megatron_t5.py: rows, resume, and masks, by which Megatron's T5 gives an example the losses that it has alone."""

import argparse
import importlib

import numpy as np
import pytest

import ul2_tasks
from ul2_tasks import HuggingFaceFeatureConverter

torch = pytest.importorskip("torch", reason="needs megatron-core and torch")
pytest.importorskip("megatron.core.models.T5", reason="needs megatron-core and torch")

from megatron.core import parallel_state  # noqa: E402

from tests.recipes import recorded  # noqa: E402
from tests.recipes.recipe import losses_of  # noqa: E402
from tests.recipes.trainer_rows import rows  # noqa: E402
from ul2_tasks import UL2IterableDataset  # noqa: E402

pytestmark = pytest.mark.train

MODEL = "megatron.core.models.T5.t5_model:T5Model", "encoder_input_ids,lm_labels", "megatron_t5.py"
SMALL = "--length", 32, "--log_every", 1, "--rows", 4, "--microbatch", 1


def test_two_processes_resume_on_one(run_recipe, tmp_path):
    whole, read = recorded.run(run_recipe, tmp_path / "whole", *MODEL, *SMALL, "--steps", 8)
    expected = rows(32, 32)
    np.testing.assert_array_equal(read[0]["encoder_input_ids"], expected["inputs"])
    np.testing.assert_array_equal(read[0]["lm_labels"], expected["targets"])

    first, read = recorded.run(run_recipe, tmp_path / "resumed", *MODEL, *SMALL, "--steps", 5, "--output", "run", processes=2)
    for rank in (0, 1):
        np.testing.assert_array_equal(read[rank]["encoder_input_ids"], expected["inputs"][:20][rank::2])
    arguments = *SMALL, "--steps", 8, "--output", "run", "--microbatch", 4, "--workers", 2
    second, read = recorded.run(run_recipe, tmp_path / "resumed", *MODEL, *arguments)
    np.testing.assert_array_equal(read[0]["encoder_input_ids"], expected["inputs"][20:])
    assert [*losses_of(first), *losses_of(second)] == [*range(1, 9)]
    assert losses_of(first) | losses_of(second) == pytest.approx(losses_of(whole), abs=2e-4)


def test_the_loss_falls(run_recipe, tmp_path):
    losses = losses_of(recorded.run(run_recipe, tmp_path, *MODEL, "--length", 64, "--steps", 40)[0])
    assert losses[40] < 0.9 * losses[10] < 0.9 * 9


@pytest.fixture
def one_process():
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    parallel_state.initialize_model_parallel()
    yield
    parallel_state.destroy_model_parallel()
    torch.distributed.destroy_process_group()


def test_an_example_of_a_row_has_the_losses_that_it_has_alone(one_process, monkeypatch):
    monkeypatch.syspath_prepend(recorded.REPOSITORY / "recipes")
    recipe = importlib.import_module("megatron_t5")
    model = recipe.new_model(argparse.Namespace(layers=2, hidden=32, heads=4, length=64), 4608)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)

    def losses_of(batch):
        return recipe.forward(iter([batch]), model, (), parts=1)[0]

    lengths = {"inputs": 64, "targets": 64}
    mixture = ul2_tasks.Mixture(chunk_tokens=24)
    dataset = UL2IterableDataset(mixture, lengths, feature_converter=HuggingFaceFeatureConverter(pack=True))
    batch = next(iter(torch.utils.data.DataLoader(dataset, 4)))
    losses, compared = losses_of(batch), 0
    for row, segments in enumerate(batch["segment_ids"]):
        for segment in range(1, int(segments.max()) + 1):
            of_encoder, of_decoder = segments == segment, batch["decoder_segment_ids"][row] == segment
            where = {"packed_input_ids": of_encoder, "segment_ids": of_encoder}
            where |= dict.fromkeys(("decoder_input_ids", "decoder_segment_ids", "labels"), of_decoder)
            alone = losses_of({name: batch[name][row][here][None] for name, here in where.items()})
            torch.testing.assert_close(alone[0], losses[row][of_decoder], atol=2e-5, rtol=1e-5)
            compared += 1
    assert compared > len(losses)
