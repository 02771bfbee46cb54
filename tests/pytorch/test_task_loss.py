"""Losses by task are those of the global batch, however it is divided; without weights nothing else changes."""

import json
import pathlib
import socket

import pytest

from tests import programs

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
transformers = pytest.importorskip("transformers", reason="the extra torch is not installed")
pytest.importorskip("accelerate", reason="the extra torch is not installed")

import ul2_tasks  # noqa: E402
from ul2_tasks import (  # noqa: E402
    GroupLosses,
    GroupLossMixin,
    GroupLossTrainer,
    HuggingFaceFeatureConverter,
    Mix,
    Mixture,
    TokenGroups,
    UL2IterableDataset,
)
from ul2_tasks.random_access.tasks import TaskInfo  # noqa: E402

pytestmark = pytest.mark.train

SECONDS = 600
IDS, ROWS = 50, 8
TASKS = (
    TaskInfo("own_s", "s", "own_corpus"),
    TaskInfo("web_s", "s", "web_corpus"),
    TaskInfo("web_x1", "x1", "web_corpus"),
)
WEIGHTS = {"s": 0.5, "web_corpus": 3.0}
OF_TASKS = [0.5, 1.5, 3.0]
GROUPS = {"s": (0, 1), "x1": (2,), "own_corpus": (0,), "web_corpus": (1, 2), "own_s": (0,), "web_s": (1,), "web_x1": (2,)}
QUIET = {"use_cpu": True, "report_to": [], "disable_tqdm": True, "save_strategy": "no", "max_grad_norm": 0}


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def llama():
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=IDS, **sizes))


def t5(ids=IDS):
    torch.manual_seed(0)
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2, "dropout_rate": 0.0}
    return transformers.T5ForConditionalGeneration(transformers.T5Config(vocab_size=ids, decoder_start_token_id=0, **sizes))


MODELS = {"T5": t5, "Llama": llama}
of_models = pytest.mark.parametrize("kind", MODELS)


def rows(kind, count=ROWS) -> list[dict]:
    """Rows of two examples, of tasks of which each has another number of targets in each row."""
    draw = torch.Generator().manual_seed(1)
    made = []
    for number in range(count):
        ids = torch.randint(1, IDS, (12,), generator=draw)
        first, last = 2 + number % 4, 7 + number % 5
        task_id = torch.full([12], -1)
        task_id[1:first], task_id[first:last] = number % 3, (number + 1 + number // 3) % 3
        row = {"input_ids": ids, "labels": torch.where(task_id < 0, -100, ids), "task_id": task_id}
        if kind == "T5":
            row |= {"decoder_input_ids": torch.roll(ids, 1)}
        made.append(row)
    return made


def batch_of(given) -> dict:
    return {key: torch.stack([row[key] for row in given]) for key in given[0]}


def written_down(kind, given, weights=(1.0, 1.0, 1.0)) -> tuple[torch.Tensor, dict]:
    """The gradient of the weighted loss of all rows at once, and the mean of each group, token by token."""
    model, batch = MODELS[kind](), batch_of(given)
    task_id = batch.pop("task_id")
    logits, labels = model(**batch).logits, batch["labels"]
    at = [(row, place) for row in range(len(labels)) for place in range(12) if labels[row, place] >= 0]
    before = int(kind == "Llama")
    losses = torch.stack([-logits[row, place - before].log_softmax(-1)[labels[row, place]] for row, place in at])
    of_each = torch.stack([task_id[row, place] for row, place in at])
    weight = torch.tensor(weights)[of_each]
    loss = (losses * weight).sum() / weight.sum()
    loss.backward()
    means = {name: losses[sum(of_each == task for task in tasks) > 0].mean().item() for name, tasks in GROUPS.items()}
    gradient = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    return gradient, {"loss": loss.item(), **{f"loss/{name}": mean for name, mean in means.items()}}


def tokens_of(given) -> dict[str, int]:
    """How many labels each group has."""
    task_id = torch.stack([row["task_id"] for row in given])
    counts = {name: int(torch.isin(task_id, torch.tensor(tasks)).sum()) for name, tasks in GROUPS.items()}
    return {"tokens": int((task_id >= 0).sum()), **{f"tokens/{name}": count for name, count in counts.items()}}


def assert_near(gradient, wanted):
    """Within 1e-6 of the largest, and some rounding of the weights that were subtracted."""
    assert (gradient - wanted).abs().max() <= 1e-6 * wanted.abs().max() + 2e-7


def assert_told(logged, wanted):
    assert {key: logged[key] for key in wanted} == pytest.approx(wanted, rel=1e-4)


@of_models
@pytest.mark.parametrize("parts", [1, 2, 4])
def test_the_weighted_loss_of_a_loop_is_that_of_the_undivided_step(kind, parts):
    model, losses = MODELS[kind](), GroupLosses(TokenGroups.of_tasks(TASKS, WEIGHTS), decoder_only=kind == "Llama")
    given = [batch_of(rows(kind)[first::parts]) for first in range(parts)]
    total = sum(losses.counts(batch["task_id"]) for batch in given)
    for batch in given:
        task_id = batch.pop("task_id")
        losses.loss(model(**batch).logits, batch["labels"], task_id, total if parts > 1 else None).backward()
    gradient, told = written_down(kind, rows(kind), OF_TASKS)
    assert_near(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]), gradient)
    found = losses.metrics()
    assert {name: found.pop(name) for name in [*found] if "tokens" in name} == tokens_of(rows(kind))
    assert found.pop("loss") == pytest.approx(written_down(kind, rows(kind))[1]["loss"], rel=1e-5)
    assert found == pytest.approx({name: mean for name, mean in told.items() if name != "loss"}, rel=1e-5)


def test_no_step_waits_for_the_device():
    """A tensor without values, on the device "meta", raises an error where a value would have to be read."""
    losses = GroupLosses(TokenGroups.of_tasks(TASKS, WEIGHTS), decoder_only=True)
    logits, labels, task_id = (
        torch.zeros(*shape, dtype=dtype, device="meta")
        for shape, dtype in (((2, 5, IDS), torch.bfloat16), ((2, 5), torch.int64), ((2, 5), torch.int64))
    )
    losses.add(logits, labels, task_id)
    losses.loss(logits.requires_grad_(), labels, task_id, losses.counts(task_id)).backward()
    with pytest.raises((NotImplementedError, RuntimeError)):
        losses.metrics()


class Both(GroupLossMixin, transformers.Seq2SeqTrainer):
    """Another trainer of Transformers, which measures groups, too."""


def trainer(kind, given, folder, of=GroupLossTrainer, model=None, **settings):
    weights = settings.pop("loss_weights", None)
    of_trainer = {} if of is transformers.Trainer else {"groups": TokenGroups.of_tasks(TASKS, weights)}
    kind_of = transformers.Seq2SeqTrainingArguments if of is Both else transformers.TrainingArguments
    arguments = kind_of(
        str(folder),
        **{"max_steps": 1, "logging_steps": 1, "per_device_train_batch_size": ROWS, "learning_rate": 1.0, **QUIET, **settings},
        optim="sgd",
        lr_scheduler_type="constant",
    )
    return of(model or MODELS[kind](), arguments, train_dataset=given, **of_trainer)


def step(kind, given, folder, **settings) -> tuple[torch.Tensor, dict]:
    """What a step of SGD at the rate 1 takes from the weights, which is the gradient, and what is logged."""
    model = MODELS[kind]()
    before = torch.nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    run = trainer(kind, given, folder, model=model, **settings)
    run.train()
    return before - torch.nn.utils.parameters_to_vector(model.parameters()).detach(), run.state.log_history[0]


def without_tasks(given) -> list[dict]:
    return [{key: values for key, values in row.items() if key != "task_id"} for row in given]


@of_models
@pytest.mark.parametrize(("parts", "smoothing"), [(1, 0.1), (4, 0.0)])
def test_without_weights_the_loss_and_the_gradient_are_trainers_own(tmp_path, kind, parts, smoothing):
    given = rows(kind)
    settings = {"per_device_train_batch_size": ROWS // parts, "gradient_accumulation_steps": parts}
    settings["label_smoothing_factor"] = smoothing
    gradient, logged = step(kind, given, tmp_path, **settings)
    same, before = step(kind, without_tasks(given), tmp_path, of=transformers.Trainer, **settings)
    assert torch.equal(gradient, same)
    assert logged["loss"] == before["loss"]
    assert {key for key in logged.keys() - before.keys()} == {f"{what}/{name}" for what in ("loss", "tokens") for name in GROUPS}
    assert_told(logged, {name: count for name, count in tokens_of(given).items() if name != "tokens"})
    if not smoothing:
        assert_told(logged, {key: mean for key, mean in written_down(kind, given)[1].items() if key != "loss"})


@of_models
@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("weights", [{}, WEIGHTS])
def test_with_weights_the_gradient_is_that_of_the_undivided_batch(tmp_path, kind, parts, weights):
    settings = {"per_device_train_batch_size": ROWS // parts, "gradient_accumulation_steps": parts, "loss_weights": weights}
    gradient, logged = step(kind, rows(kind), tmp_path, **settings)
    wanted, told = written_down(kind, rows(kind), TokenGroups.of_tasks(TASKS, weights).label_weights()[:-1])
    assert_near(gradient, wanted)
    assert_told(logged, told)


def test_the_mix_in_makes_any_trainer_measure_and_weigh(tmp_path):
    gradient, logged = step("T5", rows("T5"), tmp_path, of=Both, loss_weights=WEIGHTS)
    same, alone = step("T5", rows("T5"), tmp_path, loss_weights=WEIGHTS)
    assert torch.equal(gradient, same)
    assert {name: logged[name] for name in alone if "/" in name} == {name: alone[name] for name in alone if "/" in name}


def steps_beside_another_process(folder) -> None:
    torch.set_num_threads(1)
    settings = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "ddp_backend": "gloo"}
    found = []
    for kind in MODELS:
        gradient, logged = step(kind, rows(kind), folder, loss_weights=WEIGHTS, **settings)
        _, plain = step(kind, rows(kind), folder, **settings)
        metrics = trainer(kind, rows(kind), folder, per_device_eval_batch_size=2, ddp_backend="gloo").evaluate(rows(kind, 7))
        losses, model = GroupLosses(TokenGroups.of_tasks(TASKS), decoder_only=kind == "Llama"), MODELS[kind]()
        own = batch_of(rows(kind)[torch.distributed.get_rank() :: 2])
        task_id = own.pop("task_id")
        losses.add(model(**own).logits, own["labels"], task_id)
        found.append([gradient.tolist(), logged, plain, metrics, losses.metrics()])
        if torch.distributed.get_rank() == 1:
            losses.add(model(**own).logits, own["labels"], task_id)
        assert losses.metrics()["loss"] > 0, "also where nothing was added"
    if torch.distributed.get_rank() == 0:
        (pathlib.Path(folder) / "found").write_text(json.dumps(found))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def test_two_processes_have_the_losses_of_the_undivided_batch(tmp_path):
    """An evaluation of 7 rows counts none twice, though the last batch of 2 x 2 is filled up."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    processes = [
        programs.start(
            "-c",
            "import sys; from tests.pytorch import test_task_loss as t; t.steps_beside_another_process(sys.argv[1])",
            tmp_path,
            env=programs.environment(**environment, RANK=str(rank), LOCAL_RANK=str(rank)),
        )
        for rank in range(2)
    ]
    for process in processes:
        _, errors = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, errors[-3000:]
    for kind, (gradient, logged, plain, metrics, looped) in zip(MODELS, json.loads((tmp_path / "found").read_text())):
        wanted, told = written_down(kind, rows(kind), OF_TASKS)
        assert_near(torch.tensor(gradient), wanted)
        assert_told(logged, told)
        of_tasks = {name: mean for name, mean in told.items() if name != "loss"}
        assert_told(plain, of_tasks)
        if kind == "T5":  # as the guide says, of 2 microbatches in 2 processes
            assert plain["loss"] == pytest.approx(4 * written_down(kind, rows(kind))[1]["loss"], rel=0.05)
        assert_told(looped, of_tasks)
        means = written_down(kind, rows(kind, 7))[1]
        assert_told(metrics, {f"eval_{name}": mean for name, mean in means.items() if name != "loss"})


LENGTHS = {"inputs": 128, "targets": 128}


def test_data_of_two_corpora_say_their_tasks_and_one_can_be_evaluated_alone(tmp_path):
    web, own = Mixture("loss_web", denoisers=ul2_tasks.T5GEMMA2[::4]), Mixture("loss_own", denoisers="UL2R")

    def data(mixture, task_id=True, **settings):
        converter = HuggingFaceFeatureConverter(task_id=task_id)
        return UL2IterableDataset(mixture, LENGTHS, feature_converter=converter, batch_size=4, **settings)

    arguments = transformers.TrainingArguments(
        str(tmp_path), max_steps=6, logging_steps=6, per_device_train_batch_size=4, gradient_accumulation_steps=2, **QUIET
    )
    train = data(Mix("loss_both", {web: 1, own: 1}))
    groups = TokenGroups.of_tasks(train.tasks, {"loss_own_corpus": 2})
    run = GroupLossTrainer(t5(4096), arguments, train_dataset=train, groups=groups)
    run.train()
    (logged,) = [entry for entry in run.state.log_history if "loss" in entry]
    names = {name for info in train.tasks for name in (info.task, info.denoiser, info.corpus)}
    assert {key for key in logged if key.startswith("loss/")} == {f"loss/{name}" for name in names}
    alone = data(web, split="validation", num_epochs=1)
    metrics = run.evaluate(alone)
    assert {key for key in metrics if key.startswith("eval_loss")} == {
        "eval_loss",
        *(f"eval_loss/{name}" for name in ("r1", "s", "loss_web_corpus", "loss_web_r1", "loss_web_s")),
    }
    assert metrics["eval_loss"] > min(metrics["eval_loss/r1"], metrics["eval_loss/s"])
    with pytest.raises(ValueError, match="task_id"):
        run.evaluate(data(web, task_id=False, split="validation", num_epochs=1))


def test_what_cannot_be_measured_is_an_error(tmp_path):
    def made(model=None, **settings):
        arguments = transformers.TrainingArguments(str(tmp_path), max_steps=1, use_cpu=True)
        return GroupLossTrainer(model or llama(), arguments, **settings)

    with pytest.raises(ValueError, match="groups"):
        made(train_dataset=rows("T5"))
    with pytest.raises(ValueError, match="compute_loss_func"):
        made(groups=TokenGroups.of_tasks(TASKS, {}), compute_loss_func=print)
    model = llama()
    model.config.output_router_logits = True
    with pytest.raises(ValueError, match="output_router_logits"):
        made(model, groups=TokenGroups.of_tasks(TASKS, {}))
    collator = ul2_tasks.UL2DataCollator("default", LENGTHS, task_id=True)
    assert made(data_collator=collator)._losses.groups == TokenGroups.of_tasks(collator.tasks)
