"""t5x learns from conversations: each span's loss is a mean over the whole batch, however the batch is divided."""

import json
import os
import pathlib
import time
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
from rich.console import Console
from t5x import models, optimizers, partitioning, utils
from t5x import trainer as t5x_trainer
from t5x.examples.decoder_only import network as decoder_network
from t5x.examples.t5 import network
from test_t5x import SMALL_DECODER, nothing_registered, scalars, start, steps, train, train_together  # noqa: F401

import ul2_tasks
from ul2_tasks.corpus.build_cache import build
from ul2_tasks.t5x_chat import LOSS_GROUPS, LossGroupDecoderOnlyModel, LossGroupEncoderDecoderModel, LossGroupTrainer
from ul2_tasks.t5x_dataset import RUN_RECORD

pytestmark = pytest.mark.t5x

ROWS, LENGTH, IDS = 8, 12, 40
WEIGHTS = {"reasoning": 0.5, "answer": 2.0, "other": 1.0}
SIZE = {"vocab_size": IDS, "emb_dim": 16, "num_heads": 2, "head_dim": 8, "mlp_dim": 32, "dropout_rate": 0.0, "dtype": jnp.float32}
METRICS = {"loss", "accuracy", "loss_per_nonpadding_target_token"} | {
    f"{span}/{name}" for span in LOSS_GROUPS for name in ("loss", "accuracy", "tokens", "weight")
}
GRADIENT_KEPT = optimizers.sgd(learning_rate=0.0, momentum=0.0)  # its state is the last gradient


def batch_with(spans: tuple[int, ...], is_decoder_only=True) -> dict[str, np.ndarray]:
    """Rows in which spans are spread unevenly: the first have much of the first span, the last much of the last."""
    random = np.random.RandomState(len(spans))
    span_ids = np.zeros([ROWS, LENGTH], np.int32)
    for row in range(ROWS):
        span_ids[row, 2:-1] = random.choice([0, *spans], LENGTH - 3, p=None if row % 3 else [1, *[0] * len(spans)])
        if spans:
            span_ids[row, 2 : 3 + row] = spans[0] if row < ROWS // 2 else spans[-1]
    targets = random.randint(1, IDS, [ROWS, LENGTH])
    batch = {
        "decoder_target_tokens": targets,
        "decoder_input_tokens": np.pad(targets[:, :-1], [[0, 0], [1, 0]]),
        "decoder_loss_weights": (span_ids > 0).astype(np.int32),
        "decoder_span_ids": span_ids,
    }
    if not is_decoder_only:
        batch["encoder_input_tokens"] = random.randint(1, IDS, [ROWS, LENGTH])
    return {key: value.astype(np.int32) for key, value in batch.items()}


def decoder_only(model=LossGroupDecoderOnlyModel, optimizer=GRADIENT_KEPT, **settings):
    config = decoder_network.TransformerConfig(**SIZE, num_layers=1, mlp_activations=("gelu", "linear"), logits_via_embedding=True)
    vocabulary = seqio.PassThroughVocabulary(IDS)
    return model(decoder_network.DecoderWrapper(config), vocabulary, optimizer_def=optimizer, **settings)


def encoder_decoder():
    config = network.T5Config(**SIZE, num_encoder_layers=1, num_decoder_layers=1, mlp_activations=("gelu", "linear"))
    vocabulary = seqio.PassThroughVocabulary(IDS)
    return LossGroupEncoderDecoderModel(network.Transformer(config), vocabulary, vocabulary, optimizer_def=GRADIENT_KEPT)


def trainer(model, batch, num_microbatches=None, trainer_cls=LossGroupTrainer, **weights) -> t5x_trainer.Trainer:
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
        **weights,
    )


def expected(model, params, batch, weights=WEIGHTS) -> tuple[float, dict[str, float], Any]:
    """L, its means and its gradient by their definition, of the undivided batch; a mean over nothing is 0."""
    kinds = np.minimum(batch["decoder_span_ids"], 3)

    def total(params):
        scores = jax.nn.log_softmax(model._compute_logits(params, batch))
        losses = -jnp.take_along_axis(scores, batch["decoder_target_tokens"][..., None], axis=-1)[..., 0]
        means = {
            span: jnp.sum(losses * (kinds == kind)) / max((kinds == kind).sum(), 1) for kind, span in enumerate(LOSS_GROUPS, 1)
        }
        return sum(weights[span] * mean for span, mean in means.items()), means

    (loss, means), gradient = jax.device_get(jax.jit(jax.value_and_grad(total, has_aux=True))(params))
    return float(loss), {span: float(mean) for span, mean in means.items()}, gradient


def assert_close(found, wanted) -> None:
    """To a millionth of the largest number."""
    scale = max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(wanted))
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-6 * max(scale, 1e-6))


@pytest.mark.parametrize("num_microbatches", [1, 2, 4])
@pytest.mark.parametrize("form", ["decoder-only", "encoder-decoder"])
def test_the_gradient_is_that_of_the_undivided_batch(form, num_microbatches):
    """Also where the batch has no token of a span, or none at all."""
    is_decoder_only = form == "decoder-only"
    model = decoder_only() if is_decoder_only else encoder_decoder()
    batches = [batch_with(spans, is_decoder_only) for spans in [(1, 2, 3, 4), (1, 2), (1,), (2,), ()]]
    with trainer(model, batches[0], num_microbatches, **WEIGHTS) as running:
        params = jax.device_get(running.train_state.params)
        for batch in batches:
            loss, means, gradient = expected(model, params, batch)
            metrics = {key: float(value.value) for key, value in running.train(iter([batch]), 1).result().items() if key in METRICS}
            assert_close(running.train_state.param_states, gradient)
            assert metrics["loss"] == pytest.approx(loss, rel=1e-6)
            assert_metrics(metrics, batch, means)


def assert_metrics(metrics, batch, means) -> None:
    kinds = np.minimum(batch["decoder_span_ids"], 3)
    counts = {span: np.count_nonzero(kinds == kind) for kind, span in enumerate(LOSS_GROUPS, 1)}
    for span, count in counts.items():
        assert metrics[f"{span}/loss"] == pytest.approx(means[span], rel=1e-6)
        assert metrics[f"{span}/tokens"] == count
        assert metrics[f"{span}/weight"] == pytest.approx(WEIGHTS[span] if count else 0)
        assert 0 <= metrics[f"{span}/accuracy"] <= 1
    if learned := sum(counts.values()):
        mean = sum(means[span] * count for span, count in counts.items()) / learned
        assert metrics["loss_per_nonpadding_target_token"] == pytest.approx(mean, rel=1e-6)
        right = sum(metrics[f"{span}/accuracy"] * count for span, count in counts.items())
        assert metrics["accuracy"] == pytest.approx(right / learned)


def test_a_model_that_tells_no_spans_or_would_divide_once_more_is_refused():
    with pytest.raises(ValueError, match=r"model must be a LossGroupDecoderOnlyModel or LossGroupEncoderDecoderModel"):
        trainer(decoder_only(models.DecoderOnlyModel), batch_with((1,)))
    with pytest.raises(ValueError, match=r"loss_normalizing_factor must be None, got NUM_REAL_TARGET_TOKENS"):
        decoder_only(loss_normalizing_factor="NUM_REAL_TARGET_TOKENS")
    assert issubclass(LossGroupTrainer, t5x_trainer.Trainer)


CHAT = """
from __gin__ import dynamic_registration
import __main__ as train_script
import chat_tasks
from t5x import utils
MIXTURE_OR_TASK_NAME = @chat_tasks.conversations()
chat_tasks.conversations.form = '{form}'
TASK_FEATURE_LENGTHS = {lengths}
BATCH_SIZE = 8
DROPOUT_RATE = 0.0
utils.create_learning_rate_scheduler.base_learning_rate = 0.03  # so that few steps tell
utils.SaveCheckpointConfig.period = 10
train_script.train.eval_period = 10
train_script.train.eval_steps = 2
"""
BEFORE, AFTER = 10, 40  # the steps of the checkpoint, and with those of the chat
TINY = ["--gin.BATCH_SIZE=8", "--gin.utils.SaveCheckpointConfig.period=10", "--gin.train.eval_period=10"]


@pytest.fixture(autouse=True)
def tests_on_the_path(monkeypatch):
    """`chat_tasks` for the processes of t5x."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(pathlib.Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))


def begin_at(run) -> str:
    return f'--gin.INITIAL_CHECKPOINT_PATH="{run}/checkpoint_{BEFORE}"'


def chat_file(folder, form, lengths) -> str:
    path = folder / f"{form}.gin"
    path.write_text(CHAT.format(form=form, lengths=lengths))
    return str(path)


def assert_learned(found) -> None:
    for collection in ("train", *{collection for collection, _, _ in found if collection.startswith("training_eval/")}):
        for name in ("loss", "reasoning/loss", "answer/loss", "other/loss"):
            assert found[collection, name, AFTER] < found[collection, name, BEFORE + 10] - 0.1, (collection, name)
        for span in LOSS_GROUPS:
            assert found[collection, f"{span}/weight", AFTER] == pytest.approx(1)
            assert found[collection, f"{span}/tokens", AFTER] > 2
            assert 0 <= found[collection, f"{span}/accuracy", AFTER] <= 1


def test_a_decoder_only_model_learns_conversations(tmp_path):
    """Packed, in two microbatches, from a checkpoint of UL2."""
    (tmp_path / "small.gin").write_text(SMALL_DECODER)
    size = str(tmp_path / "small.gin")
    lengths = "--gin.TASK_FEATURE_LENGTHS={'inputs': 64, 'targets': 64}"
    train(tmp_path / "ul2", *TINY, lengths, steps(BEFORE), files=("gin/ul2_decoder_only.gin", size))
    own = chat_file(tmp_path, "chat", "{'tokens': 64}")
    arguments = [begin_at(tmp_path / "ul2"), "--gin.t5x_chat.LossGroupTrainer.num_microbatches=2"]
    train(tmp_path / "chat", *arguments, steps(AFTER), files=("gin/chat_decoder_only.gin", size, own))
    assert_learned(scalars(tmp_path / "chat"))


def test_a_ul2_model_learns_replies_and_two_processes_as_one(tmp_path):
    """Unpacked and in order, so that a step has the same conversations; the first process has none that is answered.

    The model has more rows in its embedding than the checkpoint.
    """
    train(tmp_path / "ul2", "--gin.train.eval_steps=1", steps(BEFORE))
    own = chat_file(tmp_path, "prompt_completion", "{'inputs': 16, 'targets': 32}")
    files = ("gin/chat_prompt_completion.gin", "gin/models/tiny.gin", own)
    arguments = [f"--gin.{name}/utils.DatasetConfig.pack=False" for name in ("train", "train_eval")]
    arguments += ["--gin.train/utils.DatasetConfig.shuffle=False", "--gin.EMBEDDING_ROWS=4224", begin_at(tmp_path / "ul2")]
    train(tmp_path / "one", *arguments, steps(AFTER), files=files)
    one = scalars(tmp_path / "one")
    assert_learned(one)
    train_together(tmp_path / "two", *arguments, steps(BEFORE + 10), files=files)
    two = scalars(tmp_path / "two")
    names = [f"{span}/{name}" for span in LOSS_GROUPS for name in ("loss", "tokens", "weight")]
    compared = [
        (collection, name, BEFORE + 10)
        for collection in ("train", "training_eval/test_prompt_completion")
        for name in ("loss", *names)
    ]
    assert {key: two[key] for key in compared} == pytest.approx({key: one[key] for key in compared}, rel=1e-5)


TEXT_AND_REPLIES = """
from __gin__ import dynamic_registration
import __main__ as train_script
from t5x import adafactor
from t5x import utils
import ul2_tasks
from ul2_tasks import t5x_chat

REPLIES = @ul2_tasks.register_chat()
ul2_tasks.register_chat:
  name = 'told'
  format = 'prompt_completion'
  truncation = 'drop'
VOCABULARY = @t5x_chat.vocabulary_of()
t5x_chat.vocabulary_of.task = %REPLIES

TEXT = @ul2_tasks.register()
ul2_tasks.register:
  name = 'web'
DENOISERS = %ul2_tasks.UL2R

MIXTURE_OR_TASK_NAME = @ul2_tasks.mix()
ul2_tasks.mix:
  name = 'text_and_replies'
  mixtures = [(%TEXT, 3), (%REPLIES, 1)]

train_script.train.model = @t5x_chat.LossGroupEncoderDecoderModel()
t5x_chat.LossGroupEncoderDecoderModel:
  module = %NETWORK
  input_vocabulary = %VOCABULARY
  output_vocabulary = %VOCABULARY
  feature_converter_cls = @ul2_tasks.PromptCompletionFeatureConverter
  optimizer_def = @adafactor.Adafactor()

TASK_FEATURE_LENGTHS = {'inputs': 256, 'targets': 256}
BATCH_SIZE = 6
utils.SaveCheckpointConfig.period = 5
utils.SaveCheckpointConfig.keep = 20
"""
KINDS = (*LOSS_GROUPS, "text")


def of_training(model_dir) -> dict[tuple[str, int], float]:
    """The losses of a run's training, of all tokens and of each kind, and the tokens of each kind; by name and step."""
    names = ["loss", *(f"{kind}/{name}" for kind in KINDS for name in ("loss", "tokens"))]
    found = scalars(model_dir).items()
    return {(name, step): value for (collection, name, step), value in found if collection == "train" and name in names}


def test_one_run_reads_text_and_replies_packed_on_other_hosts_and_after_a_kill(tmp_path, nothing_registered):  # noqa: F811
    """Two hosts, then one that is killed, then three; each kind of data has its own loss."""
    (tmp_path / "both.gin").write_text(TEXT_AND_REPLIES)
    replies = ul2_tasks.register_chat("told", format="prompt_completion")
    ul2_tasks.register("web", vocabulary=seqio.TaskRegistry.get(replies).output_features["targets"].vocabulary)
    for corpus in ("told_corpus", "web_corpus"):
        build(corpus, str(tmp_path / "cache"), console=Console(quiet=True))
    settings = {"files": ("gin/ul2_tiny.gin", str(tmp_path / "both.gin"), "gin/elastic.gin")}
    cache, without_evaluation = f"--seqio_additional_cache_dirs={tmp_path / 'cache'}", "--gin.train.train_eval_dataset_cfg=None"
    train(tmp_path / "whole", cache, steps(25), "--gin.train.eval_period=25", "--gin.train.eval_steps=1", **settings)
    found, whole = scalars(tmp_path / "whole"), of_training(tmp_path / "whole")
    for kind in KINDS:
        with_some = [step for (name, step), tokens in whole.items() if name == f"{kind}/tokens" and tokens > 0]
        assert 0 < whole[f"{kind}/loss", max(with_some)] < whole[f"{kind}/loss", min(with_some)]
    assert found["training_eval/told_prompt_completion", "text/tokens", 25] == 0
    assert found["training_eval/web_s", "text/tokens", 25] == found["training_eval/web_s", "other/tokens", 25] > 0

    run = tmp_path / "run"
    train_together(run, cache, without_evaluation, steps(5), **settings)
    record = json.loads((run / RUN_RECORD).read_text())
    assert record.keys() >= {"rows_version", "batch_size", "corpora", "first_step"}
    process, deadline = start(run, cache, without_evaluation, steps(100_000), **settings), time.monotonic() + 500
    while not (run / "checkpoint_10").exists():
        assert process.poll() is None, pathlib.Path(f"{run}.log").read_text()[-3000:]
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    process.wait()
    train_together(run, cache, without_evaluation, steps(25), processes=3, **settings)
    again = {key: value for key, value in of_training(run).items() if key[1] <= 25}
    assert {step for _, step in again} >= {5, 10, 25}
    assert again == pytest.approx({key: whole[key] for key in again}, rel=1e-4)
    assert json.loads((run / RUN_RECORD).read_text()) == record
