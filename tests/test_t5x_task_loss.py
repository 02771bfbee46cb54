"""t5x tells the loss of each task from the step's own forward pass, and weighs tasks, however the batch is divided."""

import json
from typing import Any

import numpy as np
import pytest

pytest.importorskip(
    "t5x",
    reason="t5x is not importable; put checkouts of t5x, airio and jestimator on PYTHONPATH (docs/guides/train_with_t5x.md)",
    exc_type=ImportError,
)
import jax
import jax.numpy as jnp
import seqio
from t5x import models
from t5x.examples.t5 import network
from test_t5x import (
    RUN_RECORD,
    nothing_registered,  # noqa: F401
    on_a_schedule,  # noqa: F401
    scalars,
    steps,
    train,
    train_together,
)
from test_t5x_chat import GRADIENT_KEPT, IDS, LENGTH, ROWS, SIZE, assert_close, trainer

from ul2_tasks.random_access.tasks import task_weights
from ul2_tasks.t5x_task_loss import TaskLossEncoderDecoderModel, TaskLossTrainer, tasks_of
from ul2_tasks.t5x_training import WAITING

pytestmark = pytest.mark.t5x

TASKS = [f"ul2_{name}" for name in ("r1", "r2", "s", "x1", "x2")]
WEIGHTS = {"ul2_r1": 0.5, "s": 2.0, "x1": 0}


def batch_of(tasks, seed=0) -> dict[str, np.ndarray]:
    """Rows whose first have much of the first task, and whose last have much of the last."""
    random = np.random.RandomState(seed)
    task_ids = np.full([ROWS, LENGTH], -1, np.int32)
    for row in range(ROWS if tasks else 0):
        task_ids[row, : 4 + row % 7] = random.choice(tasks, 4 + row % 7)
        task_ids[row, : 2 + row // 2] = tasks[0] if row < ROWS // 2 else tasks[-1]
    targets = random.randint(1, IDS, [ROWS, LENGTH]) * (task_ids >= 0)
    batch = {
        "encoder_input_tokens": random.randint(1, IDS, [ROWS, LENGTH]),
        "decoder_target_tokens": targets,
        "decoder_input_tokens": np.pad(targets[:, :-1], [[0, 0], [1, 0]]),
        "decoder_loss_weights": task_ids >= 0,
        "decoder_task_ids": task_ids,
    }
    return {key: value.astype(np.int32) for key, value in batch.items()}


def model_of(cls=TaskLossEncoderDecoderModel, **settings):
    config = network.T5Config(**SIZE, num_encoder_layers=1, num_decoder_layers=1, mlp_activations=("gelu", "linear"))
    vocabulary = seqio.PassThroughVocabulary(IDS)
    given = {"mixture": "ul2_mix"} if cls is TaskLossEncoderDecoderModel else {}
    return cls(network.Transformer(config), vocabulary, vocabulary, optimizer_def=GRADIENT_KEPT, **given, **settings)


def expected(model, params, batch, weights) -> tuple[float, np.ndarray, Any]:
    """L by its definition, the loss of each token, and the gradient of L, of the undivided batch."""
    ids = batch["decoder_task_ids"]
    of_each = np.where(ids >= 0, np.array(weights)[ids], 0)
    of_each = of_each * ((ids >= 0).sum() / of_each.sum() if of_each.sum() else 0)

    def total(params):
        scores = jax.nn.log_softmax(model._compute_logits(params, batch))
        losses = -jnp.take_along_axis(scores, batch["decoder_target_tokens"][..., None], axis=-1)[..., 0]
        return jnp.sum(losses * of_each), losses

    (loss, losses), gradient = jax.device_get(jax.jit(jax.value_and_grad(total, has_aux=True))(params))
    return float(loss), losses, gradient


@pytest.mark.parametrize("num_microbatches", [1, 2, 4])
def test_the_gradient_is_that_of_the_undivided_batch(num_microbatches):
    """Also where the batch lacks tasks, has only tokens of weight 0, or none at all."""
    model = model_of()
    weights = task_weights(model.tasks, WEIGHTS)
    assert weights == [0.5, 1, 2, 0, 1]
    batches = [batch_of(tasks, len(tasks)) for tasks in ([0, 1, 2, 3, 4], [4, 1], [2], [3], [])]
    with trainer(model, batches[0], num_microbatches, TaskLossTrainer, loss_weights=WEIGHTS) as running:
        params = jax.device_get(running.train_state.params)
        for batch in batches:
            loss, _, gradient = expected(model, params, batch, weights)
            metrics = {key: float(value.value) for key, value in running.train(iter([batch]), 1).result().items() if "/" not in key}
            assert_close(running.train_state.param_states, gradient)
            assert metrics["loss"] == pytest.approx(loss, rel=1e-6)
            assert (
                metrics["loss_per_nonpadding_target_token"]
                == pytest.approx(loss / max((batch["decoder_task_ids"] >= 0).sum(), 1), rel=1e-6, nan_ok=True)
                or not (batch["decoder_task_ids"] >= 0).any()
            )


@pytest.mark.parametrize("loss_weights", [{}, WEIGHTS])
def test_each_task_has_the_mean_loss_and_accuracy_of_its_tokens_over_all_steps(loss_weights):
    """Weights change none of these."""
    model, batches = model_of(), [batch_of([0, 1, 2, 3, 4]), batch_of([2, 4], 1)]
    with trainer(model, batches[0], 2, TaskLossTrainer, loss_weights=loss_weights) as running:
        params = jax.device_get(running.train_state.params)
        metrics = {key: float(value.value) for key, value in running.train(iter(batches), 2).result().items()}
    ids, losses = np.stack([batch["decoder_task_ids"] for batch in batches]), []
    for batch in batches:
        losses.append(expected(model, params, batch, np.ones(5))[1])
    right = [np.argmax(model._compute_logits(params, batch), -1) == batch["decoder_target_tokens"] for batch in batches]
    for number, task in enumerate(TASKS):
        assert metrics[f"loss/{task}"] == pytest.approx(np.stack(losses)[ids == number].mean(), rel=1e-6)
        assert metrics[f"accuracy/{task}"] == pytest.approx(np.stack(right)[ids == number].mean())
        assert metrics[f"tokens/{task}"] == (ids == number).sum() / 2
    assert not {key for key in metrics if key.startswith("loss/")} - {f"loss/{task}" for task in TASKS}


def test_a_model_without_tasks_and_tasks_of_others_are_rejected(nothing_registered):  # noqa: F811
    with pytest.raises(ValueError, match=r"model must be a TaskLossEncoderDecoderModel or .*, got EncoderDecoderModel\. Pass"):
        trainer(model_of(models.EncoderDecoderModel), batch_of([0]), trainer_cls=TaskLossTrainer)
    features = {key: seqio.Feature(seqio.PassThroughVocabulary(IDS)) for key in ("inputs", "targets")}
    source = seqio.FunctionDataSource(lambda split, shuffle_files: None, ["train"])
    seqio.TaskRegistry.add("others", source=source, output_features=features)
    with pytest.raises(ValueError, match=r"mixture must have tasks of ul2_tasks\.register .*, got 'others' with \['others'\]"):
        tasks_of("others")


def of_training(model_dir) -> dict[tuple[str, int], float]:
    """All metrics of a run's training but times, by name and step."""
    found = scalars(model_dir).items()
    return {(name, step): value for (where, name, step), value in found if where == "train" and "timing" not in name}


def test_a_schedule_of_two_corpora_packed_on_one_and_two_processes(on_a_schedule, tmp_path):  # noqa: F811
    """Each stage's tasks have tokens; with the file no loss changes by a bit, with weights losses are those of one process."""
    arguments, settings = on_a_schedule
    files = (*settings["files"], "gin/loss_by_task.gin")
    arguments += ["--gin.train.train_eval_dataset_cfg=None", "--gin.utils.SaveCheckpointConfig.period=6"]
    train(tmp_path / "plain", *arguments, steps(12), **settings)
    train(tmp_path / "by_task", *arguments, steps(12), files=files)
    plain, by_task = of_training(tmp_path / "plain"), of_training(tmp_path / "by_task")
    assert plain == {key: by_task[key] for key in plain}

    names = {name.removeprefix("loss/") for name, _ in by_task if name.startswith("loss/")}
    tasks = [f"{corpus}_{name}" for corpus in ("web", "code") for name in ("r1", "r2", "s", "x1", "x2")]
    assert names == {*tasks, "web_corpus", "code_corpus", "r1", "r2", "s", "x1", "x2"}
    for step in (6, 12):
        total = sum(by_task[f"loss/{task}", step] * by_task[f"tokens/{task}", step] for task in tasks)
        assert by_task["loss", step] - by_task["z_loss", step] == pytest.approx(total - by_task["z_loss", step], rel=1e-5)
        of_denoiser = [by_task[f"tokens/{corpus}_s", step] for corpus in ("web", "code")]
        assert by_task["tokens/s", step] == pytest.approx(sum(of_denoiser))
        assert by_task["tokens/web_corpus", step] > 0
    assert by_task["tokens/code_corpus", 6] == 0 < by_task["tokens/code_corpus", 12], "the second corpus joins at step 6"
    assert ("train", WAITING, 12) in scalars(tmp_path / "by_task")

    weighted = [*arguments, "--gin.LOSS_WEIGHTS={'s': 0.5, 'code_corpus': 3}"]
    train(tmp_path / "weighted", *weighted, steps(12), files=files)
    train_together(tmp_path / "parts", *weighted, steps(6), files=files)
    train(tmp_path / "parts", *weighted, steps(12), files=files)
    whole, parts = of_training(tmp_path / "weighted"), of_training(tmp_path / "parts")
    assert whole["loss/web_s", 6] != by_task["loss/web_s", 6]
    assert whole["loss", 6] != by_task["loss", 6]
    assert parts == pytest.approx(whole, rel=1e-4)
    records = [json.loads((tmp_path / run / RUN_RECORD).read_text()) for run in ("plain", "by_task", "weighted")]
    assert records[0] == records[1] == records[2], "a run may get the file or other weights when it resumes"
