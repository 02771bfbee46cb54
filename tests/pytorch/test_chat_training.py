"""`GroupLossTrainer` of loss groups: the gradient of the global batch however it is split, packed rows as apart, metrics."""

import json
import pathlib
import socket

import numpy as np
import pytest
import tensorflow as tf

from tests import programs

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
transformers = pytest.importorskip("transformers", reason="the extra torch is not installed")
pytest.importorskip("accelerate", reason="the extra torch is not installed")

from ul2_tasks import (  # noqa: E402
    GroupLossTrainer,
    HuggingFaceFeatureConverter,
    TokenGroups,
    default_vocabulary,
    seqio_converter,
)

pytestmark = pytest.mark.train

ROWS, LENGTH, IDS = 8, 12, 64
WEIGHTS = {"reasoning": 1.0, "answer": 0.5, "other": 2.0}
SECONDS = 240


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def replies(drawn) -> tf.data.Dataset:
    """Inputs, targets and loss groups, of each its mask, too."""
    dtypes = {"inputs": tf.int32, "targets": tf.int32, "loss_mask": tf.uint8, "span_id": tf.uint8}

    def examples():
        for inputs, targets, spans in drawn:
            yield dict(zip(dtypes, (inputs, targets, (np.array(spans) > 0).astype(np.uint8), spans)))

    return tf.data.Dataset.from_generator(examples, output_signature={key: tf.TensorSpec([None], of) for key, of in dtypes.items()})


def llama():
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=IDS, pad_token_id=0, **sizes))


def chats(count=ROWS, spans=(0, 1, 2, 3)) -> list[dict]:
    """Rows whose spans are of many sizes, so that means of parts are not the mean of the whole."""
    rng = np.random.default_rng(0)
    rows = []
    for number in range(count):
        chance = np.array([1 + (number * (1 + span)) % 5 for span in spans], float)
        ids, span = rng.integers(1, IDS, LENGTH), rng.choice(spans, LENGTH, p=chance / chance.sum())
        rows.append({"input_ids": ids, "labels": np.where(span > 0, ids, -100), "span_id": span})
    return [{key: torch.from_numpy(np.array(value)) for key, value in row.items()} for row in rows]


def trainer(rows, folder, *, model=None, weights=WEIGHTS, **settings):
    arguments = transformers.TrainingArguments(
        str(folder),
        **{"max_steps": 1, "logging_steps": 1, "per_device_train_batch_size": ROWS, "learning_rate": 1.0, **settings},
        optim="sgd",
        lr_scheduler_type="constant",
        max_grad_norm=0,
        save_strategy="no",
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
    )
    return GroupLossTrainer(model or llama(), arguments, train_dataset=rows, groups=TokenGroups.of_chat(weights))


def step(rows, folder, **settings) -> tuple[torch.Tensor, dict]:
    """What a step of SGD at the rate 1 takes from the weights, which is the gradient, and what is logged."""
    model = llama()
    before = torch.nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    run = trainer(rows, folder, model=model, **settings)
    run.train()
    return before - torch.nn.utils.parameters_to_vector(model.parameters()).detach(), run.state.log_history[0]


def undivided(rows) -> tuple[torch.Tensor, dict]:
    """The gradient of the loss, and the mean of each span, as they are written down, of all rows at once."""
    model = llama()
    batch = {key: torch.stack([row[key] for row in rows]) for key in rows[0]}
    logits = model(batch["input_ids"]).logits[:, :-1]
    losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["input_ids"][:, 1:].flatten(), reduction="none")
    span_id = batch["span_id"][:, 1:].flatten()
    means = {name: losses[span_id == span].mean() for span, name in enumerate(WEIGHTS, 1) if (span_id == span).any()}
    loss = sum(WEIGHTS[name] * mean for name, mean in means.items())
    loss.backward()
    told = {"loss": loss.item()} | {f"loss/{name}": mean.item() for name, mean in means.items()}
    told |= {f"tokens/{name}": int((span_id == span).sum()) for span, name in enumerate(WEIGHTS, 1) if name in means}
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()]), told


def assert_near(gradient, wanted):
    """Within 1e-6 of the largest, and some rounding of the weights that were subtracted."""
    assert (gradient - wanted).abs().max() <= 1e-6 * wanted.abs().max() + 2e-7


def assert_told(logged, wanted):
    assert {key: logged[key] for key in wanted} == pytest.approx(wanted, rel=1e-4)


def steps_beside_another_process(folder) -> None:
    torch.set_num_threads(1)
    settings = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "ddp_backend": "gloo"}
    rows = chats()
    gradient, logged = step(rows, folder, **settings)
    metrics = trainer(rows, folder, per_device_eval_batch_size=2, ddp_backend="gloo").evaluate(rows[:7])
    if torch.distributed.get_rank() == 0:
        (pathlib.Path(folder) / "found").write_text(json.dumps([gradient.tolist(), logged, metrics]))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def test_two_processes_have_the_gradient_of_the_undivided_batch(tmp_path):
    """An evaluation of 7 rows counts none twice, though the last batch of 2 x 2 is filled up."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    processes = [
        programs.start(
            "-c",
            "import sys; from tests.pytorch import test_chat_training as t; t.steps_beside_another_process(sys.argv[1])",
            tmp_path,
            env=programs.environment(**environment, RANK=str(rank), LOCAL_RANK=str(rank)),
        )
        for rank in range(2)
    ]
    for process in processes:
        _, errors = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, errors[-3000:]
    gradient, logged, metrics = json.loads((tmp_path / "found").read_text())
    wanted, told = undivided(chats())
    assert_near(torch.tensor(gradient), wanted)
    assert_told(logged, told)
    assert_told(metrics, {f"eval_{key}": value for key, value in undivided(chats()[:7])[1].items()})


@pytest.mark.parametrize("missing", ["reasoning", "both"])
def test_a_step_without_a_span_is_the_others_alone(tmp_path, missing):
    spans = {"reasoning": (0, 2), "answer": (0, 1), "both": (0,)}[missing]
    rows = chats(spans=spans)
    gradient, logged = step(rows, tmp_path, per_device_train_batch_size=4, gradient_accumulation_steps=2)
    assert gradient.isfinite().all()
    for name in ("reasoning", "answer"):
        is_there = missing not in (name, "both")
        assert (f"loss/{name}" in logged) == (f"tokens/{name}" in logged) == is_there
    assert "tokens/other" not in logged
    if missing == "both":
        assert not gradient.any()
    else:
        assert_near(gradient, undivided(rows)[0])


def test_without_weights_groups_are_measured_and_the_loss_is_trainers_own(tmp_path):
    rows = chats()
    gradient, logged = step(rows, tmp_path, weights=None)
    model, batch = llama(), {key: torch.stack([row[key] for row in rows]) for key in rows[0]}
    model(batch["input_ids"], labels=batch["labels"]).loss.backward()
    assert_near(gradient, torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))
    assert_told(logged, {key: value for key, value in undivided(rows)[1].items() if key != "loss"})


def t5():
    torch.manual_seed(0)
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2, "dropout_rate": 0.0}
    return transformers.T5ForConditionalGeneration(transformers.T5Config(vocab_size=IDS, decoder_start_token_id=0, **sizes))


def reply_rows() -> list[dict]:
    """Replies as `HuggingFaceFeatureConverter(span_id=True)` converts them: headers that are context, reasoning, an answer."""
    rng = np.random.default_rng(1)
    drawn = [
        (rng.integers(1, IDS, 5), rng.integers(1, IDS, 6), [0, 0] + [1] * (1 + n % 3) + [2] * (3 - n % 3)) for n in range(ROWS)
    ]
    converter = seqio_converter(HuggingFaceFeatureConverter(span_id=True), default_vocabulary())
    converted = converter(replies(drawn), {"inputs": 8, "targets": 8})
    return [{key: torch.from_numpy(value).long() for key, value in row.items()} for row in converted.as_numpy_iterator()]


@pytest.mark.parametrize("parts", [1, 2])
def test_an_encoder_and_a_decoder_learn_replies(tmp_path, parts):
    """Its labels are not shifted; what is not learned adds nothing, however the batch is divided."""
    rows, model = reply_rows(), t5()
    batch = {key: torch.stack([row[key] for row in rows]) for key in rows[0]}
    span_id = batch.pop("span_id")
    losses = torch.nn.functional.cross_entropy(model(**batch).logits.transpose(1, 2), batch["labels"], reduction="none")
    means = [losses[span_id == span].mean() for span in (1, 2)]
    (WEIGHTS["reasoning"] * means[0] + WEIGHTS["answer"] * means[1]).backward()
    wanted = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])

    trained = t5()
    before = torch.nn.utils.parameters_to_vector(trained.parameters()).detach().clone()
    settings = {"per_device_train_batch_size": ROWS // parts, "gradient_accumulation_steps": parts}
    run = trainer(rows, tmp_path, model=trained, **settings)
    run.train()
    assert_near(before - torch.nn.utils.parameters_to_vector(trained.parameters()).detach(), wanted)
    logged = run.state.log_history[0]
    assert [logged["tokens/reasoning"], logged["tokens/answer"]] == [int((span_id == span).sum()) for span in (1, 2)]
    assert [logged["loss/reasoning"], logged["loss/answer"]] == pytest.approx([mean.item() for mean in means], rel=1e-4)


def test_batches_without_spans_are_refused_in_a_sentence(tmp_path):
    rows = [{key: value for key, value in row.items() if key != "span_id"} for row in reply_rows()]
    with pytest.raises(ValueError, match="span_id"):
        trainer(rows, tmp_path, model=t5(), remove_unused_columns=False).train()
