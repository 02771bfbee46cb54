"""t5x with a loss for each group of tokens, and weights of these, however the batch is divided."""

import functools
import json
import os
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
from t5x import models, optimizers, partitioning, utils
from t5x import trainer as t5x_trainer
from t5x.examples.decoder_only import network as decoder_network
from t5x.examples.t5 import network

from tests import programs
from tests.t5x.test_t5x import (
    RUN_RECORD,
    SMALL_DECODER,
    nothing_registered,  # noqa: F401
    on_a_schedule,  # noqa: F401
    scalars,
    steps,
    train,
    train_together,
)
from ul2_tasks.t5x.losses import GroupLossDecoderOnlyModel, GroupLossEncoderDecoderModel, GroupLossTrainer, tasks_of
from ul2_tasks.t5x.training import WAITING

pytestmark = pytest.mark.t5x

ROWS, LENGTH, IDS = 8, 12, 40
SIZE = {"vocab_size": IDS, "emb_dim": 16, "num_heads": 2, "head_dim": 8, "mlp_dim": 32, "dropout_rate": 0.0, "dtype": jnp.float32}
GRADIENT_KEPT = optimizers.sgd(learning_rate=0.0, momentum=0.0)  # its state is the last gradient

# The integers of each group, by the mixture.
LOSS_GROUPS = {"reasoning": [1], "answer": [2], "other": [3, 4, 5], "text": [4]}
TASKS = {name: [number] for number, name in enumerate(("r1", "r2", "s", "x1", "x2"))}
GROUPS = {None: LOSS_GROUPS, "ul2_mix": TASKS}
SETTINGS = {
    "conversations": {"mean": "each", "loss_weights": {"reasoning": 0.5, "answer": 2.0, "other": 1.0}},
    "conversations, all": {"loss_weights": {"reasoning": 0.5, "text": 3.0}},
    "tasks": {"mixture": "ul2_mix", "loss_weights": {"r1": 0.5, "s": 2.0, "x1": 0}},
    "tasks, each": {"mixture": "ul2_mix", "mean": "each", "loss_weights": dict(zip(TASKS, (1, 2, 3, 0, 5)))},
    "tasks without weights": {"mixture": "ul2_mix"},
}


def model_of(form="encoder-decoder", cls=None, **settings):
    settings["optimizer_def"] = GRADIENT_KEPT
    vocabulary, layers = seqio.PassThroughVocabulary(IDS), {"mlp_activations": ("gelu", "linear")}
    if form == "decoder-only":
        config = decoder_network.TransformerConfig(**SIZE, **layers, num_layers=1, logits_via_embedding=True)
        return (cls or GroupLossDecoderOnlyModel)(decoder_network.DecoderWrapper(config), vocabulary, **settings)
    config = network.T5Config(**SIZE, **layers, num_encoder_layers=1, num_decoder_layers=1)
    return (cls or GroupLossEncoderDecoderModel)(network.Transformer(config), vocabulary, vocabulary, **settings)


def batch_of(integers, mixture=None, seed=0, is_decoder_only=False) -> dict[str, np.ndarray]:
    """Labels of these groups, spread unevenly: the first rows have much of the first, the last rows much of the last."""
    random, none = np.random.RandomState(seed), -1 if mixture else 0
    ids = np.full([ROWS, LENGTH], none)
    for row in range(ROWS if integers else 0):
        ids[row, 2 : 6 + row % 6] = random.choice([none, *integers], 4 + row % 6)
        ids[row, 2 : 3 + row // 2] = integers[0] if row < ROWS // 2 else integers[-1]
    targets = random.randint(1, IDS, [ROWS, LENGTH])
    batch = {
        "decoder_target_tokens": targets,
        "decoder_input_tokens": np.pad(targets[:, :-1], [[0, 0], [1, 0]]),
        "decoder_loss_weights": ids != none,
        "decoder_task_ids" if mixture else "decoder_span_ids": ids,
    }
    if not is_decoder_only:
        batch["encoder_input_tokens"] = random.randint(1, IDS, [ROWS, LENGTH])
    return {key: value.astype(np.int32) for key, value in batch.items()}


def batches_of(mixture, is_decoder_only=False) -> list[dict[str, np.ndarray]]:
    """Also without some groups, with the only one of weight 0, and without any."""
    several = ([0, 1, 2, 3, 4], [4, 1], [2], [3], []) if mixture else ([1, 2, 3, 4, 5], [1, 2], [4], [2], [])
    return [batch_of(integers, mixture, len(integers), is_decoder_only) for integers in several]


def trainer(model, batch, num_microbatches=None, trainer_cls=GroupLossTrainer) -> t5x_trainer.Trainer:
    rules = partitioning.standard_logical_axis_rules()
    partitioner = partitioning.PjitPartitioner(num_partitions=1, logical_axis_rules=rules)
    shapes, types = ({key: getattr(value, name) for key, value in batch.items()} for name in ("shape", "dtype"))
    initializer = utils.TrainStateInitializer(model.optimizer_def, model.get_initial_variables, shapes, partitioner, types)
    return trainer_cls(
        model=model,
        train_state=initializer.from_scratch(jax.random.PRNGKey(0)),
        partitioner=partitioner,
        eval_names=["eval"],
        summary_dir=None,
        train_state_axes=initializer.train_state_axes,
        rng=jax.random.PRNGKey(1),
        learning_rate_fn=lambda step: 0.0,
        num_microbatches=num_microbatches,
    )


def members(batch, mixture=None) -> dict[str, np.ndarray]:
    """Which labels are in each group."""
    ids = batch["decoder_task_ids" if mixture else "decoder_span_ids"]
    return {name: np.isin(ids, integers) for name, integers in GROUPS[mixture].items()}


@functools.cache
def loss_of(model):
    """Compiled once for a model: a sum of the losses of tokens, each with its part in it, and these losses; and the gradient."""

    def total(params, batch, part):
        scores = jax.nn.log_softmax(model._compute_logits(params, batch))
        losses = -jnp.take_along_axis(scores, batch["decoder_target_tokens"][..., None], axis=-1)[..., 0]
        return jnp.sum(losses * part), losses

    return jax.jit(jax.value_and_grad(total, has_aux=True))


def expected(model, params, batch, mixture=None, mean="all", loss_weights=()) -> tuple[float, np.ndarray, Any]:
    """L by its definition, the loss of each token, and the gradient of L, of the undivided batch."""
    is_label, weights, is_in = batch["decoder_loss_weights"] > 0, dict(loss_weights), members(batch, mixture)
    if mean == "each":
        part = sum(weights[name] * is_in[name] / max(is_in[name].sum(), 1) for name in weights)
    else:
        part = is_label * np.prod([np.where(is_in[name], weight, 1) for name, weight in weights.items()], axis=0)
        part = part * (is_label.sum() / part.sum() if part.sum() else 0)

    (loss, losses), gradient = jax.device_get(loss_of(model)(params, batch, part))
    return float(loss), losses, gradient


def assert_close(found, wanted) -> None:
    """To a millionth of the largest number."""
    scale = max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(wanted))
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-6 * max(scale, 1e-6))


def values_of(metrics) -> dict[str, float]:
    return {key: float(value.value) for key, value in metrics.items() if "timing" not in key}


@pytest.mark.parametrize("num_microbatches", [1, 4])
@pytest.mark.parametrize(
    ("form", "settings"), [("decoder-only", "conversations"), *(("encoder-decoder", name) for name in SETTINGS)]
)
def test_loss_and_gradient_are_those_of_the_undivided_batch(form, settings, num_microbatches):
    settings = SETTINGS[settings]
    model, batches = model_of(form, **settings), batches_of(settings.get("mixture"), form == "decoder-only")
    with trainer(model, batches[0], num_microbatches) as running:
        params = jax.device_get(running.train_state.params)
        for batch in batches:
            loss, losses, gradient = expected(model, params, batch, **settings)
            metrics = values_of(running.train(iter([batch]), 1).result())
            assert_close(running.train_state.param_states, gradient)
            assert metrics["loss"] == pytest.approx(loss, rel=1e-6)
            if (is_label := batch["decoder_loss_weights"] > 0).any():
                assert metrics["loss_per_nonpadding_target_token"] == pytest.approx(losses[is_label].mean(), rel=1e-6)


@pytest.mark.parametrize("settings", SETTINGS)
def test_each_group_has_the_mean_loss_and_accuracy_of_its_tokens_over_all_steps(settings):
    """Weights change none of these."""
    settings = SETTINGS[settings]
    mixture = settings.get("mixture")
    model, batches = model_of(**settings), batches_of(mixture)[:2]
    with trainer(model, batches[0], 2) as running:
        params = jax.device_get(running.train_state.params)
        metrics = values_of(running.train(iter(batches), 2).result())
    losses = np.stack([expected(model, params, batch, **settings)[1] for batch in batches])
    right = [np.argmax(model._compute_logits(params, batch), -1) == batch["decoder_target_tokens"] for batch in batches]
    is_in = [members(batch, mixture) for batch in batches]
    for name in GROUPS[mixture]:
        of_group = np.stack([of_batch[name] for of_batch in is_in])
        assert metrics[f"loss/{name}"] == pytest.approx(losses[of_group].mean(), rel=1e-6)
        assert metrics[f"accuracy/{name}"] == pytest.approx(np.stack(right)[of_group].mean())
        assert metrics[f"tokens/{name}"] == of_group.sum() / 2
    assert {key.split("/")[1] for key in metrics if key.startswith("loss/")} == GROUPS[mixture].keys()


def test_an_evaluation_has_the_means_over_all_batches_as_over_one():
    settings = SETTINGS["conversations"]
    model, (first, second, *_) = model_of(**settings), batches_of(None)
    with trainer(model, first) as running:
        params = jax.device_get(running.train_state.params)
        metrics = values_of(running.eval({"eval": iter([first, second])})["eval"])
    both = {key: np.concatenate([first[key], second[key]]) for key in first}
    assert metrics["loss"] == pytest.approx(expected(model, params, both, **settings)[0], rel=1e-6)


WRONG = {
    "model": {"cls": models.EncoderDecoderModel},
    "loss_weights .*'reasoning'": {"mean": "each", "loss_weights": {"answer": 1, "other": 1}},
    "mean": {"mean": "one"},
    "loss_weights .*'x1'": {"loss_weights": {"x1": 1}},
    "loss_normalizing_factor": {**SETTINGS["conversations"], "loss_normalizing_factor": "NUM_REAL_TARGET_TOKENS"},
}


@pytest.mark.parametrize("named", WRONG)
def test_what_has_no_groups_or_would_leave_labels_out_is_rejected(named):
    with pytest.raises(ValueError, match=named):
        trainer(model_of(**WRONG[named]), batch_of([1]))


def test_a_mixture_of_others_has_no_groups(nothing_registered):  # noqa: F811
    features = {key: seqio.Feature(seqio.PassThroughVocabulary(IDS)) for key in ("inputs", "targets")}
    source = seqio.FunctionDataSource(lambda split, shuffle_files: None, ["train"])
    seqio.TaskRegistry.add("others", source=source, output_features=features)
    with pytest.raises(ValueError, match="others"):
        tasks_of("others")


CHAT = """
from __gin__ import dynamic_registration
import __main__ as train_script
from tests.t5x import chat_tasks
from t5x import utils
MIXTURE_OR_TASK_NAME = @chat_tasks.conversations()
TASK_FEATURE_LENGTHS = {'tokens': 64}
BATCH_SIZE = 8
DROPOUT_RATE = 0.0
utils.create_learning_rate_scheduler.base_learning_rate = 0.03  # so that few steps tell
utils.SaveCheckpointConfig.period = 10
train_script.train.eval_period = 10
train_script.train.eval_steps = 2
"""
BEFORE, AFTER = 10, 40  # the steps of the checkpoint, and with those of the chat
TINY = ["--gin.BATCH_SIZE=8", "--gin.utils.SaveCheckpointConfig.period=10", "--gin.train.eval_period=10"]
ROLES = ("reasoning", "answer", "other")


@pytest.fixture(autouse=True)
def tests_on_the_path(monkeypatch):
    """`chat_tasks` for the processes of t5x."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(programs.REPOSITORY), os.environ.get("PYTHONPATH", "")]))


def test_a_decoder_only_model_learns_conversations(tmp_path):
    """Packed, in two microbatches, from a checkpoint of UL2."""
    for name, text in {"small": SMALL_DECODER, "chat": CHAT}.items():
        (tmp_path / f"{name}.gin").write_text(text)
    size, own = (str(tmp_path / f"{name}.gin") for name in ("small", "chat"))
    lengths = "--gin.TASK_FEATURE_LENGTHS={'inputs': 64, 'targets': 64}"
    train(tmp_path / "ul2", *TINY, lengths, steps(BEFORE), files=("gin/ul2_decoder_only.gin", size))
    checkpoint = f'--gin.INITIAL_CHECKPOINT_PATH="{tmp_path}/ul2/checkpoint_{BEFORE}"'
    arguments = [checkpoint, "--gin.losses.GroupLossTrainer.num_microbatches=2"]
    train(tmp_path / "told", *arguments, steps(AFTER), files=("gin/chat_decoder_only.gin", size, own))
    found = scalars(tmp_path / "told")
    for collection in ("train", *{collection for collection, _, _ in found if collection.startswith("training_eval/")}):
        for name in ("loss", *(f"loss/{role}" for role in ROLES)):
            assert found[collection, name, AFTER] < found[collection, name, BEFORE + 10] - 0.1, (collection, name)
        of_roles = [found[collection, f"loss/{role}", AFTER] for role in ROLES]
        assert found[collection, "loss", AFTER] == pytest.approx(sum(of_roles), rel=0.05), (
            "a mean of the steps, and of their tokens"
        )
        for role in ROLES:
            assert found[collection, f"tokens/{role}", AFTER] > 2
            assert 0 <= found[collection, f"accuracy/{role}", AFTER] <= 1


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
