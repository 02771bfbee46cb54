"""Losses by task and by span are those of the global batch, however it is divided; without weights nothing else changes."""

import json
import pathlib

import pytest

from tests import programs

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
transformers = pytest.importorskip("transformers", reason="the extra torch is not installed")
pytest.importorskip("accelerate", reason="the extra torch is not installed")

import ul2_tasks  # noqa: E402
from tests import tiny_models  # noqa: E402
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

pytestmark = [pytest.mark.train, pytest.mark.usefixtures("seeded_torch")]

IDS, ROWS, LENGTH = 64, 8, 12
TASKS = (TaskInfo("own_s", "s", "own_corpus"), TaskInfo("web_s", "s", "web_corpus"), TaskInfo("web_x1", "x1", "web_corpus"))
OF_TASKS = {"s": (0, 1), "x1": (2,), "own_corpus": (0,), "web_corpus": (1, 2), "own_s": (0,), "web_s": (1,), "web_x1": (2,)}
OF_SPANS = {"reasoning": (0,), "answer": (1,), "other": (2,)}
# Each: the feature, the groups of its three integers, how they are made of weights, weights, and those of the integers.
BY = {
    "task_id": (OF_TASKS, lambda weights: TokenGroups.of_tasks(TASKS, weights), {"s": 0.5, "web_corpus": 3.0}, [0.5, 1.5, 3.0]),
    "span_id": (OF_SPANS, TokenGroups.of_chat, {"reasoning": 1.0, "answer": 0.5, "other": 2.0}, [1.0, 0.5, 2.0]),
}
MODELS = {"T5": lambda: tiny_models.t5(IDS, decoder_start_token_id=0), "Llama": lambda: tiny_models.decoder("llama", IDS)}
QUIET = {"use_cpu": True, "report_to": [], "disable_tqdm": True, "save_strategy": "no", "max_grad_norm": 0}
IN_PROCESSES = [("T5", "task_id"), ("Llama", "task_id"), ("Llama", "span_id")]
of_models = pytest.mark.parametrize("kind", MODELS)
of_features = pytest.mark.parametrize("feature", BY)


def rows(kind, feature, count=ROWS, integers=(0, 1, 2)) -> list[dict]:
    """Rows of which each has another number of labels of two of the integers."""
    draw, made = torch.Generator().manual_seed(1), []
    for number in range(count):
        ids = torch.randint(1, IDS, (LENGTH,), generator=draw)
        first, last, group = 2 + number % 4, 7 + number % 5, torch.full([LENGTH], -1)
        group[1:first] = integers[number % len(integers)]
        group[first:last] = integers[(number + 1 + number // 3) % len(integers)]
        row = {"input_ids": ids, "labels": torch.where(group < 0, -100, ids), feature: group + int(feature == "span_id")}
        made.append(row | ({"decoder_input_ids": torch.roll(ids, 1)} if kind == "T5" else {}))
    return made


def batch_of(given) -> dict:
    return {key: torch.stack([row[key] for row in given]) for key in given[0]}


def gradient_of(model) -> torch.Tensor:
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def written_down(kind, feature, given, weights=(1.0, 1.0, 1.0)) -> tuple[torch.Tensor, dict]:
    """The gradient of the weighted loss of all rows at once, and the mean and the number of each group, label by label."""
    model, batch = MODELS[kind](), batch_of(given)
    groups = batch.pop(feature) - int(feature == "span_id")
    logits, labels, before = model(**batch).logits, batch["labels"], int(kind == "Llama")
    at = [(row, place) for row in range(len(labels)) for place in range(LENGTH) if labels[row, place] >= 0]
    losses = torch.stack([-logits[row, place - before].log_softmax(-1)[labels[row, place]] for row, place in at])
    of_each = torch.stack([groups[row, place] for row, place in at])
    members = {name: sum(of_each == each for each in of) > 0 for name, of in BY[feature][0].items()}
    if feature == "span_id":
        loss = sum(weight * losses[is_of].mean() for weight, is_of in zip(weights, members.values()) if is_of.any())
    else:
        weight = torch.tensor(weights)[of_each]
        loss = (losses * weight).sum() / weight.sum()
    loss.backward()
    told = {"loss": loss.item(), "mean": losses.mean().item()}
    told |= {f"loss/{name}": losses[is_of].mean().item() for name, is_of in members.items() if is_of.any()}
    told |= {f"tokens/{name}": int(is_of.sum()) for name, is_of in members.items() if is_of.any()}
    return gradient_of(model), told


def assert_near(gradient, wanted):
    """Within 1e-6 of the largest, and some rounding of the weights that were subtracted."""
    assert (gradient - wanted).abs().max() <= 1e-6 * wanted.abs().max() + 2e-7


def assert_told(found, told, prefix="", without=("mean",)):
    wanted = {f"{prefix}{key}": value for key, value in told.items() if key not in without}
    assert {key: found[key] for key in wanted} == pytest.approx(wanted, rel=1e-4)


@of_models
@of_features
@pytest.mark.parametrize("parts", [1, 4])
def test_the_weighted_loss_of_a_loop_is_that_of_the_undivided_step(kind, feature, parts):
    _, of_weights, weights, of_each = BY[feature]
    model, losses = MODELS[kind](), GroupLosses(of_weights(weights), decoder_only=kind == "Llama")
    given = [batch_of(rows(kind, feature)[first::parts]) for first in range(parts)]
    total = sum(losses.counts(batch[feature]) for batch in given)
    for batch in given:
        ids = batch.pop(feature)
        losses.loss(model(**batch).logits, batch["labels"], ids, total if parts > 1 else None).backward()
    wanted, told = written_down(kind, feature, rows(kind, feature), of_each)
    assert_near(gradient_of(model), wanted)
    found = losses.metrics()
    assert found["loss"] == pytest.approx(told["mean"], rel=1e-5)
    assert_told(found, told, without=("loss", "mean"))
    assert found.keys() == told.keys() - {"mean"} | {"tokens"}


def test_no_step_waits_for_the_device():
    """A tensor without values, on the device "meta", raises an error where a value would have to be read."""
    losses = GroupLosses(BY["task_id"][1]({"s": 0.5}), decoder_only=True)
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


def trainer(kind, feature, given, folder, weights=None, of=GroupLossTrainer, model=None, **settings):
    groups = {} if of is transformers.Trainer else {"groups": BY[feature][1](weights)}
    kind_of = transformers.Seq2SeqTrainingArguments if of is Both else transformers.TrainingArguments
    given_by_all = {"max_steps": 1, "logging_steps": 1, "per_device_train_batch_size": ROWS, "learning_rate": 1.0, **QUIET}
    arguments = kind_of(str(folder), **given_by_all | settings, optim="sgd", lr_scheduler_type="constant")
    return of(model or MODELS[kind](), arguments, train_dataset=given, **groups)


def step(kind, feature, given, folder, *arguments, **settings) -> tuple[torch.Tensor, dict]:
    """What a step of SGD at the rate 1 takes from the weights, which is the gradient, and what is logged."""
    model = MODELS[kind]()
    before = torch.nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    run = trainer(kind, feature, given, folder, *arguments, model=model, **settings)
    run.train()
    return before - torch.nn.utils.parameters_to_vector(model.parameters()).detach(), run.state.log_history[0]


def in_parts(parts) -> dict[str, int]:
    return {"per_device_train_batch_size": ROWS // parts, "gradient_accumulation_steps": parts}


@of_models
@pytest.mark.parametrize(("feature", "parts", "smoothing"), [("task_id", 1, 0.1), ("task_id", 4, 0.0), ("span_id", 4, 0.0)])
def test_without_weights_the_loss_and_the_gradient_are_trainers_own(tmp_path, kind, feature, parts, smoothing):
    given, settings = rows(kind, feature), in_parts(parts) | {"label_smoothing_factor": smoothing}
    gradient, logged = step(kind, feature, given, tmp_path, **settings)
    without = [{key: values for key, values in row.items() if key != feature} for row in given]
    same, before = step(kind, feature, without, tmp_path, of=transformers.Trainer, **settings)
    assert torch.equal(gradient, same)
    assert logged["loss"] == before["loss"]
    assert logged.keys() - before.keys() == {f"{what}/{name}" for what in ("loss", "tokens") for name in BY[feature][0]}
    if not smoothing:
        assert_told(logged, written_down(kind, feature, given)[1], without=("loss", "mean"))


@of_models
@pytest.mark.parametrize(("feature", "weights"), [(feature, BY[feature][2]) for feature in BY] + [("task_id", {})])
@pytest.mark.parametrize("parts", [1, 4])
def test_with_weights_the_gradient_is_that_of_the_undivided_batch(tmp_path, kind, feature, weights, parts):
    gradient, logged = step(kind, feature, rows(kind, feature), tmp_path, weights, **in_parts(parts))
    wanted, told = written_down(kind, feature, rows(kind, feature), BY[feature][3] if weights else (1.0, 1.0, 1.0))
    assert_near(gradient, wanted)
    assert_told(logged, told)


@pytest.mark.parametrize("integers", [(1, 2), (0,)])
def test_a_step_without_a_span_is_the_others_alone(tmp_path, integers):
    given, weights = rows("Llama", "span_id", integers=integers), BY["span_id"][2]
    gradient, logged = step("Llama", "span_id", given, tmp_path, weights, **in_parts(2))
    wanted, told = written_down("Llama", "span_id", given, BY["span_id"][3])
    assert_near(gradient, wanted)
    assert_told(logged, told)
    assert {key for key in logged if "/" in key} == {key for key in told if "/" in key}


def test_a_step_without_any_label_moves_nothing(tmp_path):
    """Whatever the ids say of what is ignored."""
    given = [row | {"labels": torch.full([LENGTH], -100)} for row in rows("Llama", "span_id")]
    gradient, logged = step("Llama", "span_id", given, tmp_path, BY["span_id"][2], **in_parts(2))
    assert not gradient.any()
    assert not any("/" in key for key in logged)


def test_the_mix_in_makes_any_trainer_measure_and_weigh(tmp_path):
    given, weights = rows("T5", "task_id"), BY["task_id"][2]
    gradient, logged = step("T5", "task_id", given, tmp_path, weights, of=Both)
    same, alone = step("T5", "task_id", given, tmp_path, weights)
    assert torch.equal(gradient, same)
    assert {name: logged[name] for name in alone if "/" in name} == {name: alone[name] for name in alone if "/" in name}


def steps_beside_another_process(folder) -> None:
    torch.set_num_threads(1)
    settings = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "ddp_backend": "gloo"}
    found = []
    for kind, feature in IN_PROCESSES:
        given, (_, of_weights, weights, _) = rows(kind, feature), BY[feature]
        gradient, logged = step(kind, feature, given, folder, weights, **settings)
        _, plain = step(kind, feature, given, folder, **settings)
        evaluated = trainer(kind, feature, given, folder, weights, per_device_eval_batch_size=2, ddp_backend="gloo")
        metrics = evaluated.evaluate(rows(kind, feature, 7))
        losses, model = GroupLosses(of_weights(None), decoder_only=kind == "Llama"), MODELS[kind]()
        own = batch_of(given[torch.distributed.get_rank() :: 2])
        ids = own.pop(feature)
        losses.add(model(**own).logits, own["labels"], ids)
        found.append([gradient.tolist(), logged, plain, metrics, losses.metrics()])
        if torch.distributed.get_rank() == 1:
            losses.add(model(**own).logits, own["labels"], ids)
        assert losses.metrics()["loss"] > 0, "also where nothing was added"
    if torch.distributed.get_rank() == 0:
        (pathlib.Path(folder) / "found").write_text(json.dumps(found))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def test_two_processes_have_the_losses_of_the_undivided_batch(tmp_path):
    """An evaluation of 7 rows counts none twice, though the last batch of 2 x 2 is filled up."""
    programs.run_two("tests.pytorch.test_group_losses", "steps_beside_another_process", tmp_path)
    told = iter(json.loads((tmp_path / "found").read_text()))
    for kind, feature in IN_PROCESSES:
        given, (gradient, logged, plain, metrics, looped) = rows(kind, feature), next(told)
        wanted, means = written_down(kind, feature, given, BY[feature][3])
        assert_near(torch.tensor(gradient), wanted)
        assert_told(logged, means)
        for found in (plain, looped):
            assert_told(found, means, without=("loss", "mean"))
        if kind == "T5":  # as the guide says, of 2 microbatches in 2 processes
            assert plain["loss"] == pytest.approx(4 * means["mean"], rel=0.05)
        assert_told(metrics, written_down(kind, feature, rows(kind, feature, 7), BY[feature][3])[1], "eval_")


def test_data_of_two_corpora_say_their_tasks_and_one_can_be_evaluated_alone(tmp_path):
    web, own = Mixture("loss_web", denoisers=ul2_tasks.T5GEMMA2[::4]), Mixture("loss_own", denoisers="UL2R")

    def data(mixture, task_id=True, **settings):
        converter = HuggingFaceFeatureConverter(task_id=task_id)
        return UL2IterableDataset(mixture, {"inputs": 128, "targets": 128}, feature_converter=converter, batch_size=4, **settings)

    settings = {"max_steps": 6, "logging_steps": 6, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, **QUIET}
    train = data(Mix("loss_both", {web: 1, own: 1}))
    groups = TokenGroups.of_tasks(train.tasks, {"loss_own_corpus": 2})
    model = tiny_models.t5(decoder_start_token_id=0)
    run = GroupLossTrainer(model, transformers.TrainingArguments(str(tmp_path), **settings), train_dataset=train, groups=groups)
    run.train()
    (logged,) = [entry for entry in run.state.log_history if "loss" in entry]
    names = {name for info in train.tasks for name in (info.task, info.denoiser, info.corpus)}
    assert {key for key in logged if key.startswith("loss/")} == {f"loss/{name}" for name in names}
    metrics = run.evaluate(data(web, split="validation", num_epochs=1))
    assert {key.removeprefix("eval_loss/") for key in metrics if key.startswith("eval_loss/")} == {
        *("r1", "s", "loss_web_corpus", "loss_web_r1", "loss_web_s")
    }
    assert metrics["eval_loss"] > min(metrics["eval_loss/r1"], metrics["eval_loss/s"])
    with pytest.raises(ValueError, match="task_id"):
        run.evaluate(data(web, task_id=False, split="validation", num_epochs=1))


def test_what_cannot_be_measured_is_an_error(tmp_path):
    def made(model=None, **settings):
        arguments = transformers.TrainingArguments(str(tmp_path), max_steps=1, use_cpu=True, report_to=[])
        return GroupLossTrainer(model or MODELS["Llama"](), arguments, **settings)

    routed = MODELS["Llama"]()
    routed.config.output_router_logits = True
    groups = TokenGroups.of_tasks(TASKS, {})
    for settings, argument in (
        ({"train_dataset": rows("T5", "task_id")}, "groups"),
        ({"groups": groups, "compute_loss_func": print}, "compute_loss_func"),
        ({"groups": groups, "model": routed}, "output_router_logits"),
    ):
        with pytest.raises(ValueError, match=argument):
            made(**settings)
    without = [{key: values for key, values in row.items() if key != "span_id"} for row in rows("Llama", "span_id")]
    with pytest.raises(ValueError, match="span_id"):
        made(groups=TokenGroups.of_chat(), train_dataset=without).train()
    collator = ul2_tasks.UL2DataCollator("default", {"inputs": 128, "targets": 128}, task_id=True)
    assert made(data_collator=collator)._losses.groups == TokenGroups.of_tasks(collator.tasks)
