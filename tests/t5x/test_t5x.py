"""t5x trains on the mixture for real: through the gin files, with stops, kills and several processes."""

import itertools
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
import seqio
import tensorflow as tf
from rich.console import Console

from tests import programs
from tests.support import byte_vocabulary, corpus_named, long_documents, t5_model
from ul2_tasks import (
    T5GEMMA2,
    EncDecFeatureConverter,
    MemoryDataSource,
    Stage,
    examples,
    get_dataset_at_step,
    mix,
    open_source,
    register,
    register_chat,
)
from ul2_tasks.corpus.build_cache import build
from ul2_tasks.inspect.run import read_record, run_of
from ul2_tasks.random_access import windows
from ul2_tasks.t5x.dataset import RUN_RECORD

pytest.importorskip(
    "t5x",
    reason="t5x is not importable; put checkouts of t5x, airio and jestimator on PYTHONPATH (docs/guides/train_with_t5x.md)",
    exc_type=ImportError,
)
from t5x import utils

pytestmark = pytest.mark.t5x

REPOSITORY = pathlib.Path(__file__).parents[2]
FILES = sorted(str(path.relative_to(REPOSITORY)) for path in (REPOSITORY / "gin").rglob("*.gin"))
TASKS = [f"ul2_{denoiser.name}" for denoiser in T5GEMMA2]
STEPS = 40
LAST_STEP = 30  # of the run over three kinds
PATIENCE = 1800  # seconds: a run takes one minute, and more where other tests run


def python(name, arguments) -> subprocess.Popen:
    """Starts Python in the repository's root, with its output in NAME.log."""
    with open(f"{name}.log", "w") as log:
        settings = {"cwd": REPOSITORY, "env": programs.environment(), "stdout": log, "stderr": log}
        return subprocess.Popen([sys.executable, *arguments], **settings)


def start(model_dir, *arguments, files=("gin/ul2_tiny.gin",)) -> subprocess.Popen:
    gin_files = [f"--gin_file={file}" for file in files]
    return python(model_dir, ["-m", "t5x.train", *gin_files, f'--gin.MODEL_DIR="{model_dir}"', *arguments])


def train(model_dir, *arguments, **settings) -> str:
    """Runs to its end; returns the log."""
    process = start(model_dir, *arguments, **settings)
    code = process.wait(PATIENCE)
    log = pathlib.Path(f"{model_dir}.log").read_text()
    assert code == 0, log[-3000:]
    return log


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def start_together(model_dir, *arguments, processes=2, **settings) -> dict[pathlib.Path, subprocess.Popen]:
    """The same with several processes of one device each; by what their logs begin with."""
    shared = ["--multiprocess_gpu", f"--coordinator_address=127.0.0.1:{free_port()}", f"--process_count={processes}", *arguments]
    logs = [model_dir.with_name(f"{model_dir.name}-process{index}") for index in range(processes)]
    return {
        log: start(log, *shared, f"--process_index={index}", f'--gin.MODEL_DIR="{model_dir}"', **settings)
        for index, log in enumerate(logs)
    }


def train_together(model_dir, *arguments, **settings) -> None:
    for log, process in start_together(model_dir, *arguments, **settings).items():
        assert process.wait(PATIENCE) == 0, pathlib.Path(f"{log}.log").read_text()[-3000:]


def kill_after(checkpoint, started) -> None:
    """Kills processes that have no end, once they have written a checkpoint."""
    deadline = time.monotonic() + PATIENCE
    while not checkpoint.exists():
        for log, process in started.items():
            assert process.poll() is None, pathlib.Path(f"{log}.log").read_text()[-3000:]
        assert time.monotonic() < deadline
        time.sleep(0.02)
    for process in started.values():
        process.kill()
        process.wait()


def refused(model_dir, *arguments, **settings) -> str:
    """Runs and fails; returns the log."""
    assert start(model_dir, *arguments, **settings).wait(PATIENCE) != 0
    return pathlib.Path(f"{model_dir}.log").read_text()


def losses(model_dir) -> dict[tuple[str, int], float]:
    """The mean loss a token, by collection (`train`, `training_eval/ul2_r1`, ..) and step, as TensorBoard would show them."""
    found = {}
    for path in sorted(pathlib.Path(model_dir).rglob("events.out.tfevents.*"), key=os.path.getmtime):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                if value.tag == "loss_per_nonpadding_target_token":
                    found[str(path.parent.relative_to(model_dir)), event.step] = float(tf.make_ndarray(value.tensor))
    return found


def scalars(model_dir) -> dict[tuple[str, str, int], float]:
    """All that TensorBoard would show, by collection, name and step."""
    return {
        (str(path.parent.relative_to(model_dir)), value.tag, event.step): float(tf.make_ndarray(value.tensor))
        for path in pathlib.Path(model_dir).rglob("events.out.tfevents.*")
        for event in tf.compat.v1.train.summary_iterator(str(path))
        for value in event.summary.value
        if value.tensor.dtype == tf.float32.as_datatype_enum and not value.tensor.tensor_shape.dim
    }


def steps(count) -> str:
    return f"--gin.TRAIN_STEPS={count}"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def whole(runs):
    """The losses of a run that nothing interrupts."""
    train(runs / "whole", steps(STEPS))
    return losses(runs / "whole")


@pytest.fixture(scope="module")
def stopped(runs):
    """A run that was stopped at half of its steps."""
    train(runs / "stopped", steps(STEPS // 2))
    return runs / "stopped"


def test_the_training_loss_falls_and_every_denoiser_has_its_own(whole):
    for collection in ["train", *(f"training_eval/{task}" for task in [*TASKS, "ul2_mix"])]:
        assert whole[collection, STEPS] < whole[collection, 10] < 9, collection  # ln 4096 = 8.3


def test_a_killed_run_resumes_as_the_uninterrupted_one(whole, tmp_path):
    killed = tmp_path / "killed"
    kill_after(killed / "checkpoint_10", {killed: start(killed, steps(100_000))})
    last = max(int(path.name.split("_")[1]) for path in killed.glob("checkpoint_*") if path.name.split("_")[1].isdigit())
    assert last < STEPS
    train(killed, steps(STEPS))
    after = {key: loss for key, loss in losses(killed).items() if last < key[1] <= STEPS}
    assert len(after) >= len(TASKS)
    assert after == {key: whole[key] for key in after}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--gin.TASK_FEATURE_LENGTHS={'inputs': 128, 'targets': 2}"],
            "sequence_length",
        ),
        (["--gin.TASK_FEATURE_LENGTHS={'inputs': 16384, 'targets': 16384}"], "sentinels"),
        (["--gin.USE_CACHED_TASKS=True"], "ul2_corpus"),
    ],
)
def test_what_cannot_be_trained_on_fails_before_the_first_step(tmp_path, arguments, message):
    log = refused(tmp_path / "refused", *arguments)
    error = log[log.rindex("ValueError: ") :]
    assert message in error
    assert not losses(tmp_path / "refused")


@pytest.fixture(scope="module")
def cache(runs) -> str:
    """The argument that names the cache of `ul2_corpus`."""
    build = python(runs / "build", ["-m", "ul2_tasks", "cache", "ul2", "--output", str(runs / "cache")])
    assert build.wait(PATIENCE) == 0, (runs / "build.log").read_text()[-3000:]
    return f"--seqio_additional_cache_dirs={runs / 'cache'}"


KINDS = """
from __gin__ import dynamic_registration
import __main__ as train_script
from tests.t5x import t5x_batches
from t5x import adafactor
from t5x import utils
import ul2_tasks
from ul2_tasks.t5x import losses

REPLIES = @ul2_tasks.register_chat()
ul2_tasks.register_chat:
  name = 'told'
  format = 'prompt_completion'
  truncation = 'drop'
VOCABULARY = @losses.vocabulary_of()
losses.vocabulary_of.task = %REPLIES
DENOISERS = %ul2_tasks.UL2R
joined/ul2_tasks.register.name = 'joined'
apart/ul2_tasks.register:
  name = 'apart'
  merge_examples = False

MIXTURE_OR_TASK_NAME = @ul2_tasks.mix()
ul2_tasks.mix:
  name = 'kinds'
  schedule = [@first/ul2_tasks.Stage(), @second/ul2_tasks.Stage(), @last/ul2_tasks.Stage()]
  batch_size = %BATCH_SIZE
  steps = 30
first/ul2_tasks.Stage:
  first_step = 0
  mixtures = [(@joined/ul2_tasks.register(), 3), (%REPLIES, 1)]
second/ul2_tasks.Stage:
  first_step = 8
  mixtures = [(@joined/ul2_tasks.register(), 1), (@apart/ul2_tasks.register(), 2), (%REPLIES, 2)]
last/ul2_tasks.Stage:
  first_step = 17
  mixtures = [(@apart/ul2_tasks.register(), 3), (%REPLIES, 2)]
  ramp_steps = 6
  ramp_every = 2

train_script.train.model = @losses.GroupLossEncoderDecoderModel()
losses.GroupLossEncoderDecoderModel:
  mixture = %MIXTURE_OR_TASK_NAME
  module = %NETWORK
  input_vocabulary = %VOCABULARY
  output_vocabulary = %VOCABULARY
  optimizer_def = @adafactor.Adafactor()
train_script.train.trainer_cls = @t5x_batches.LoggingTrainer
t5x_batches.LoggingTrainer.learning_rate_fn = @utils.create_learning_rate_scheduler()

TASK_FEATURE_LENGTHS = {'inputs': 256, 'targets': 256}
BATCH_SIZE = 6
utils.SaveCheckpointConfig.period = 5
utils.SaveCheckpointConfig.keep = 20
"""


def batches(model_dir) -> dict[tuple[int, int], list[str]]:
    """What a run was fed, by the number of hosts and the step: the digests of all rows of the global batch.

    A host that is killed may lack its last step, which is left out.
    """
    logs = [[json.loads(line) for line in path.open()] for path in sorted(pathlib.Path(model_dir).glob("batches-*.jsonl"))]
    parts = {(line["hosts"], line["step"], host): line["rows"] for host, log in enumerate(logs) for line in log}
    whole = {(hosts, step) for hosts, step, _ in parts if all((hosts, step, host) in parts for host in range(hosts))}
    return {(hosts, step): sorted(itertools.chain(*(parts[hosts, step, host] for host in range(hosts)))) for hosts, step in whole}


def test_three_kinds_packed_in_stages_are_the_same_batches_on_two_hosts_then_one_then_three(tmp_path, nothing_registered):
    """Texts joined, documents apart, and replies. The runs on two hosts and on one are killed. (Models of t5x take no images.)

    Losses are those of the uninterrupted run: to the last digit on one host, and without their last digits on several, which add
    numbers up in another order.
    """
    (tmp_path / "kinds.gin").write_text(KINDS)
    replies = register_chat("told", format="prompt_completion")
    vocabulary = seqio.TaskRegistry.get(replies).output_features["targets"].vocabulary
    for name in ("joined", "apart"):
        register(name, vocabulary=vocabulary)
    for corpus in ("told_corpus", "joined_corpus", "apart_corpus"):
        build(corpus_named(corpus), str(tmp_path / "cache"), console=Console(quiet=True))
    arguments = [f"--seqio_additional_cache_dirs={tmp_path / 'cache'}", "--gin.train.train_eval_dataset_cfg=None"]
    settings = {"files": ("gin/ul2_tiny.gin", str(tmp_path / "kinds.gin"), "gin/elastic.gin")}
    whole, resumed, run = tmp_path / "whole", tmp_path / "resumed", tmp_path / "run"

    train(whole, *arguments, steps(LAST_STEP), **settings)
    shutil.copytree(whole, resumed, ignore=shutil.ignore_patterns(f"checkpoint_{LAST_STEP}", "train", "batches-*"))
    train(resumed, *arguments, steps(LAST_STEP), **settings)
    kill_after(run / "checkpoint_5", start_together(run, *arguments, steps(100_000), **settings))
    record = json.loads((run / RUN_RECORD).read_text())
    kill_after(run / "checkpoint_15", {run: start(run, *arguments, steps(100_000), **settings)})
    train_together(run, *arguments, steps(LAST_STEP), processes=3, **settings)
    assert json.loads((run / RUN_RECORD).read_text()) == record
    assert not list(run.rglob("train_ds-*")), "no iterator is saved"

    expected = {step: rows for (_, step), rows in batches(whole).items()}
    found = {key: rows for key, rows in batches(run).items() if key[1] < LAST_STEP} | batches(resumed)
    assert sorted(expected) == [*range(LAST_STEP)]
    assert len({row for rows in expected.values() for row in rows}) > 5.5 * LAST_STEP, "there are few replies alone"
    for hosts, of_hosts in ((2, range(5)), (1, range(10, 15)), (1, range(25, 30)), (3, range(20, 30))):
        assert {(hosts, step) for step in of_hosts} <= found.keys()
    assert found == {(hosts, step): expected[step] for hosts, step in found}
    tokens = {(name, step): value for (_, name, step), value in scalars(whole).items() if name.startswith("tokens/")}
    for step, read in ((5, ["joined", "told"]), (15, ["apart", "joined", "told"]), (LAST_STEP, ["apart", "told"])):
        assert [name for name in ("apart", "joined", "told") if tokens[f"tokens/{name}_corpus", step]] == read
    of_whole = losses(whole)
    assert losses(resumed) == {("train", LAST_STEP): of_whole["train", LAST_STEP]}
    of_run = {key: loss for key, loss in losses(run).items() if key[1] <= LAST_STEP}
    assert of_run == pytest.approx({key: of_whole[key] for key in of_run}, rel=1e-4)


LENGTHS = {"inputs": 80, "targets": 80}


def cached_corpus(folder, texts) -> str:
    """A mixture whose corpus has a cache."""
    vocabulary, modes = byte_vocabulary()
    name = register("steps", MemoryDataSource(lambda: texts, validation=0), vocabulary, modes=modes)
    build(corpus_named("steps_corpus"), str(folder), console=Console(quiet=True))
    seqio.set_global_cache_dirs([str(folder)])
    return name


@pytest.fixture
def nothing_registered(monkeypatch):
    for registry in (seqio.TaskRegistry, seqio.MixtureRegistry):
        monkeypatch.setattr(registry, "_REGISTRY", {})
    before = seqio.get_global_cache_dirs()
    yield
    seqio.set_global_cache_dirs(before)


@pytest.fixture
def mixture(tmp_path, nothing_registered) -> str:
    return cached_corpus(tmp_path / "cache", long_documents())


def batches_at_step(model_dir, mixture, shard=0, shards=1, count=4, initial=None, left_out=None, **settings) -> list[list[str]]:
    """The next batches of one of several data shards, by t5x's own configuration; each batch a list of its rows."""
    defaults = {"split": "train", "batch_size": 8, "shuffle": True, "seed": 0, "use_cached": True, "pack": True}
    config = utils.DatasetConfig(mixture, **{"task_feature_lengths": LENGTHS, **defaults, **settings})
    checkpoints = utils.CheckpointConfig(save=utils.SaveCheckpointConfig(), restore=utils.RestoreCheckpointConfig(path=[]))
    reads = (config, shard, shards, EncDecFeatureConverter)
    begun = {"model_dir": str(model_dir), "checkpoint_cfg": checkpoints, "initial_checkpoint": initial}
    dataset = get_dataset_at_step(*reads, **begun, **(left_out or {}))
    assert set(utils.get_dataset(*reads).element_spec) == set(dataset.element_spec)
    rows = range(config.batch_size // shards)
    batches = itertools.islice(dataset.as_numpy_iterator(), count)
    return [[str({key: value[row].tolist() for key, value in batch.items()}) for row in rows] for batch in batches]


def test_a_stream_is_refused_with_its_reason_and_what_to_do(mixture, tmp_path, monkeypatch):
    monkeypatch.setattr(windows, "WINDOW_TOKENS", 1000)
    with pytest.raises(ValueError, match="random access"):
        batches_at_step(tmp_path / "run", mixture, use_cached=False)


@pytest.mark.parametrize("first", [0, 1_000_000])
def test_steps_have_the_same_rows_on_any_number_of_hosts_also_where_documents_and_steps_are_left_out(mixture, tmp_path, first):
    """From a checkpoint of another run, too; the test of three kinds has what a run reads."""
    run, initial = tmp_path / "run", f"/another/run/checkpoint_{first}" if first else None
    left_out = {"exclude": [{"document": 3}, {"document": 11}], "skip": [(first + 6, first + 9)]}
    plain = batches_at_step(tmp_path / "plain", mixture, count=16, initial=initial)
    whole = batches_at_step(run, mixture, count=12, initial=initial, left_out=left_out)
    assert json.loads((run / RUN_RECORD).read_text())["first_step"] == first
    for batch, data in zip(whole, [*range(6), *range(9, 15)], strict=True):
        assert len({*batch} & {*plain[data]}) >= 3, "most rows stay"
    for step, hosts in ((3, 4), (5, 2), (8, 1)):
        (run / f"checkpoint_{first + step}").mkdir()
        (run / f"checkpoint_{first + step + 1}.orbax-checkpoint-tmp-123").mkdir()  # half-written
        shares = [batches_at_step(run, mixture, host, hosts, initial=initial, left_out=left_out) for host in range(hosts)]
        for number, parts in enumerate(zip(*shares)):
            assert list(itertools.chain(*zip(*parts))) == whole[step + number], "host h of H has each H-th row from h on"
    with pytest.raises(ValueError, match=r"exclude|skip"):
        batches_at_step(run, mixture, initial=initial)


def test_a_stage_with_other_lengths_and_another_batch_begins_at_a_restart(mixture, tmp_path):
    """On one host and on two, each reads what `examples` has; without the restart the stage is refused."""
    longer = {"inputs": 160, "targets": 120}
    stages = [Stage(0, {mixture: 1}, lengths=LENGTHS), Stage(5, {mixture: 1}, lengths=longer, batch_size=4)]
    name = mix("longer", schedule=stages, batch_size=8, steps=9)
    found = examples(name, longer, pack=True)
    assert len(found) == 5 * 8 + 4 * 4
    assert len(batches_at_step(tmp_path, name, count=5)) == 5
    with pytest.raises(tf.errors.InvalidArgumentError, match="step 5, element 40"):
        batches_at_step(tmp_path, name, count=6)
    (tmp_path / "checkpoint_6").mkdir()
    with pytest.raises(ValueError, match="batch_size of step 6"):
        batches_at_step(tmp_path, name)
    with pytest.raises(tf.errors.InvalidArgumentError, match="sequence_length"):
        batches_at_step(tmp_path, name, batch_size=4)
    settings = {"task_feature_lengths": longer, "batch_size": 4}
    whole = batches_at_step(tmp_path, name, count=3, **settings)
    shares = [batches_at_step(tmp_path, name, host, 2, count=3, **settings) for host in range(2)]
    assert [list(itertools.chain(*zip(*parts))) for parts in zip(*shares)] == whole
    run = run_of(read_record(str(tmp_path)))
    assert (run.numbers(4), run.numbers(6), run.step_of(45)) == (range(32, 40), range(44, 48), 6)
    for row, made in zip(itertools.chain(*whole), found[44:], strict=True):
        assert f"'decoder_target_tokens': {made['targets'].tolist()}" in row


LONGER = """
from __gin__ import dynamic_registration
import __main__ as train_script
from t5x import utils
import ul2_tasks
ul2_tasks.mix:
  name = 'longer'
  schedule = [@short/ul2_tasks.Stage(), @long/ul2_tasks.Stage()]
  batch_size = 8
  steps = 12
short/ul2_tasks.Stage:
  first_step = 0
  mixtures = [(@ul2_tasks.register(), 1)]
  lengths = {'inputs': 128, 'targets': 128}
long/ul2_tasks.Stage:
  first_step = 6
  mixtures = [(@ul2_tasks.register(), 1)]
  lengths = {'inputs': 256, 'targets': 256}
  batch_size = 4
MIXTURE_OR_TASK_NAME = @ul2_tasks.mix()
utils.SaveCheckpointConfig.period = 6
train_script.train.eval_period = 6
"""


def test_t5x_goes_on_with_longer_examples_in_smaller_batches(cache, tmp_path):
    (tmp_path / "longer.gin").write_text(LONGER)
    files = ("gin/ul2_tiny.gin", str(tmp_path / "longer.gin"), "gin/elastic.gin")
    short = ["--gin.TASK_FEATURE_LENGTHS={'inputs': 128, 'targets': 128}", "--gin.BATCH_SIZE=8"]
    long = ["--gin.TASK_FEATURE_LENGTHS={'inputs': 256, 'targets': 256}", "--gin.BATCH_SIZE=4"]
    train(tmp_path / "run", cache, *short, steps(6), files=files)
    assert "batch_size of step 6 must be" in refused(tmp_path / "run", cache, *short, steps(12), files=files)
    train(tmp_path / "run", cache, *long, steps(12), files=files)
    found = losses(tmp_path / "run")
    assert {("train", 6), ("train", 12), ("training_eval/longer_mix", 12)} <= found.keys()
    assert found["train", 12] < found["train", 6]


SMALL_SCHEDULE = """
from __gin__ import dynamic_registration
import ul2_tasks
ul2_tasks.open_source.validation = 0.1
ul2_tasks.BlockShuffle:
  block_tokens = 4096
  partitions = 4
  window_blocks = 2
second/ul2_tasks.Stage.first_step = 6
last/ul2_tasks.Stage:
  first_step = 13
  ramp_steps = 4
  ramp_every = 2
"""


@pytest.fixture
def on_a_schedule(tmp_path, nothing_registered):
    """Arguments of a run of `schedule.gin` over two small corpora that have caches."""
    (tmp_path / "small.gin").write_text(SMALL_SCHEDULE)
    arguments = [f"--seqio_additional_cache_dirs={tmp_path / 'cache'}"]
    for number, name in enumerate(("web", "code")):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in long_documents()[number::2]))
        register(name, open_source(str(path), validation=0.1))
        build(corpus_named(f"{name}_corpus"), str(tmp_path / "cache"), console=Console(quiet=True))
        arguments.append(f'--gin.{name.upper()}_FILES="{path}"')
    files = ("gin/ul2_tiny.gin", "gin/schedule.gin", str(tmp_path / "small.gin"), "gin/elastic.gin")
    return arguments, {"files": files}


TINY = [
    "--gin.TASK_FEATURE_LENGTHS={'inputs': 128, 'targets': 128}",
    "--gin.BATCH_SIZE=8",
    "--gin.train.eval_period=10",
    "--gin.train.eval_steps=2",
    "--gin.utils.SaveCheckpointConfig.period=10",
]


def begin_at(checkpoint, *arguments) -> list[str]:
    return [*TINY, f'--gin.INITIAL_CHECKPOINT_PATH="{checkpoint}"', *arguments]


def test_continued_pre_training_begins_at_a_checkpoint_and_resumes_exactly(stopped, tmp_path):
    """With other denoisers than the checkpoint's, so also with other data, and with more rows in the embedding."""
    files = ("gin/ul2_continue.gin", "gin/models/tiny.gin")
    more_rows = ("--gin.EMBEDDING_ROWS=4224", "--gin.initial_checkpoint.FromCheckpoint.add_rows=True")
    begun = begin_at(stopped / f"checkpoint_{STEPS // 2}", *more_rows)
    train(tmp_path / "whole", *begun, steps(STEPS), files=files)
    whole = losses(tmp_path / "whole")
    first, last = STEPS // 2 + 10, STEPS
    assert {step for _, step in whole} == {first, last}
    for task in ("ul2r_r", "ul2r_x1", "ul2r_x2", "ul2r_s", "ul2r_mix"):
        assert whole[f"training_eval/{task}", last] < whole[f"training_eval/{task}", first]
    assert whole["train", first] < losses(stopped)["train", 10], "it did not start anew"

    train(tmp_path / "parts", *begun, steps(first), files=files)
    train(tmp_path / "parts", *begun, steps(last), files=files)
    assert losses(tmp_path / "parts") == whole


def test_a_checkpoint_of_another_embedding_is_refused(stopped, tmp_path):
    checkpoint = stopped / f"checkpoint_{STEPS // 2}"
    arguments = begin_at(checkpoint, steps(STEPS), "--gin.EMBEDDING_ROWS=5120")
    log = refused(tmp_path / "other", *arguments, files=("gin/ul2_continue.gin", "gin/models/tiny.gin"))
    assert re.search(r"ValueError: .*5120.*4096", log)


TITLES = """
from __gin__ import dynamic_registration
from tests.docs import titles
TASK = @titles.titles()
"""


def test_fine_tuning_and_inference_switch_modes(stopped, tmp_path):
    checkpoint = stopped / f"checkpoint_{STEPS // 2}"
    (tmp_path / "titles.gin").write_text(TITLES)
    task = str(tmp_path / "titles.gin")
    files = ("gin/ul2_finetune.gin", "gin/models/tiny.gin", task)
    train(tmp_path / "tuned", *begin_at(checkpoint), steps(STEPS), files=files)
    found = losses(tmp_path / "tuned")
    assert found["training_eval/titles_r", STEPS] < found["training_eval/titles_r", STEPS - 10]

    scores = {}
    for mode in ("[R]", "[S]"):
        output = tmp_path / mode[1]
        values = {"CHECKPOINT_PATH": str(tmp_path / "tuned" / f"checkpoint_{STEPS}"), "INFER_OUTPUT_DIR": str(output), "MODE": mode}
        bindings = [f'--gin.{name}="{value}"' for name, value in values.items()]
        files = [f"--gin_file={file}" for file in ("gin/ul2_infer.gin", "gin/models/tiny.gin", task)]
        assert python(output, ["-m", "t5x.infer", *files, *bindings, TINY[0], '--gin.infer.mode="score"']).wait(PATIENCE) == 0
        (results,) = output.glob(f"titles_{mode[1].lower()}-score.jsonl-*-of-00001")
        scores[mode] = {line["inputs"]["inputs_pretokenized"]: line["score"] for line in map(json.loads, results.open())}
    assert len(scores["[R]"]) > 5
    assert scores["[R]"].keys() == scores["[S]"].keys()
    assert all(scores["[R]"][text] != scores["[S]"][text] for text in scores["[R]"]), "the model sees the mode"


SMALL_DECODER = """
from __gin__ import dynamic_registration
from t5x.examples.decoder_only import network
network.TransformerConfig:
  emb_dim = 64
  num_heads = 4
  num_layers = 2
  head_dim = 16
  mlp_dim = 128
  dtype = 'float32'
"""


@pytest.fixture
def decoder(tmp_path) -> tuple[str, str]:
    """The gin files of a small decoder-only model."""
    (tmp_path / "small.gin").write_text(SMALL_DECODER)
    return "gin/ul2_decoder_only.gin", str(tmp_path / "small.gin")


def test_a_decoder_only_run_goes_on_with_other_hosts_and_tells_the_loss_of_each_denoiser(decoder, cache, tmp_path):
    """The file with losses by task changes none of t5x's own."""
    arguments, by_task = [*TINY, cache, "--gin.train.train_eval_dataset_cfg=None"], "gin/loss_by_task_decoder_only.gin"
    train(tmp_path / "whole", *arguments, steps(20), files=(*decoder, "gin/elastic.gin"))
    files = (*decoder, by_task, "gin/elastic.gin")
    train_together(tmp_path / "run", *arguments, steps(10), files=files)
    train(tmp_path / "run", *arguments, steps(20), files=files)
    whole = losses(tmp_path / "whole")
    assert whole["train", 20] < whole["train", 10] < 9
    assert losses(tmp_path / "run") == pytest.approx(whole, rel=1e-5)
    values = scalars(tmp_path / "run")
    for step in (10, 20):
        tokens, means = ([values["train", f"{name}/{each.name}", step] for each in T5GEMMA2] for name in ("tokens", "loss"))
        assert np.average(means, weights=tokens) == pytest.approx(whole["train", step], rel=1e-2), "which has the z-loss, too"


@pytest.mark.parametrize("more", [(), ("gin/loss_by_task_decoder_only.gin",)])
def test_a_decoder_only_model_reads_all_inputs_and_no_later_target(decoder, more, tmp_path):
    files = [f"--gin_file={file}" for file in (*decoder, *more)]
    process = python(tmp_path / "sees", ["tests/t5x/sees_prefix.py", *files, f"--gin=MODEL_DIR='{tmp_path}'"])
    assert process.wait(PATIENCE) == 0, (tmp_path / "sees.log").read_text()[-3000:]


OWN_FILES = {"gin/own_corpus.gin", "gin/t5_vocabulary.gin"}
# Three of them need a cache: two are trained on above, and loss_by_task.gin in test_t5x_losses.py.
PARTS = re.compile(r"gin/models/(network|t5_1_1)|gin/(chat|schedule|loss_by_task|loss_by_task_decoder_only)\.gin")
RUNS = {
    "gin/ul2.gin": ["gin/models/base.gin"],
    "gin/ul2_continue.gin": ["gin/models/base.gin"],
    "gin/ul2_finetune.gin": ["gin/models/base.gin"],
    "gin/chat_prompt_completion.gin": ["gin/models/base.gin"],
    "gin/ul2_infer.gin": ["gin/models/base.gin"],
    "gin/elastic.gin": ["gin/ul2.gin", "gin/models/base.gin", "gin/elastic.gin"],
    "gin/own_corpus.gin": ["gin/ul2.gin", "gin/models/base.gin", "gin/own_corpus.gin"],
    "gin/t5_vocabulary.gin": ["gin/ul2_continue.gin", "gin/models/base.gin", "gin/t5_vocabulary.gin"],
}


@pytest.mark.parametrize("file", [file for file in FILES if not PARTS.match(file)])
def test_every_run_and_size_is_complete(file, tmp_path):
    """t5x reads it, builds its datasets, and draws a batch of each; only paths and the number of steps are left to give."""
    files = ["gin/ul2.gin", file] if "models" in file else RUNS.get(file, [])
    files = files if file in files else [file, *files]
    (tmp_path / "documents.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in long_documents()))
    if file in ("gin/ul2_finetune.gin", "gin/ul2_infer.gin"):
        (tmp_path / "titles.gin").write_text(TITLES)
        files = [*files, str(tmp_path / "titles.gin")]
    paths = {name: tmp_path for name in ("MODEL_DIR", "INITIAL_CHECKPOINT_PATH", "CHECKPOINT_PATH", "INFER_OUTPUT_DIR")}
    if file in OWN_FILES:
        paths["VOCABULARY_FILE"] = t5_model(tmp_path / "t5.model")
        paths["TRAIN_FILES"] = paths["VALIDATION_FILES"] = tmp_path / "documents.jsonl"
    bindings = [*(f'{name}="{path}"' for name, path in paths.items()), "TRAIN_STEPS=10", "USE_CACHED_TASKS=False"]
    arguments = [*(f"--gin_file={name}" for name in files), *(f"--gin={binding}" for binding in bindings)]
    drawing = python(tmp_path / "drawn", ["tests/t5x/draw_batches.py", *arguments])
    code = drawing.wait(PATIENCE)
    log = (tmp_path / "drawn.log").read_text()
    assert code == 0, log[-3000:]
    datasets = ["infer"] if "infer" in file else ["train", "train_eval"]
    assert re.findall(r"^(infer|train|train_eval) {", log, re.MULTILINE) == datasets
