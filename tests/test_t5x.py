"""t5x trains on the mixture for real: through the gin files, with stops, kills and several processes."""

import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

import pytest
import tensorflow as tf

from ul2_tasks import T5GEMMA2

pytest.importorskip(
    "t5x",
    reason="t5x is not importable; put checkouts of t5x, airio and jestimator on PYTHONPATH (README, Train)",
    exc_type=ImportError,
)
pytestmark = pytest.mark.t5x

REPOSITORY = pathlib.Path(__file__).parent.parent
FILES = sorted(str(path.relative_to(REPOSITORY)) for path in (REPOSITORY / "gin").rglob("*.gin"))
TASKS = [f"ul2_{denoiser.name}" for denoiser in T5GEMMA2]
STEPS = 40


def command(model_dir, *arguments, files=("gin/ul2_tiny.gin",)) -> list[str]:
    gin_files = [f"--gin_file={file}" for file in files]
    return [sys.executable, "-m", "t5x.train", *gin_files, f'--gin.MODEL_DIR="{model_dir}"', *arguments]


def start(model_dir, *arguments, **settings) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])}
    with open(f"{model_dir}.log", "w") as log:
        return subprocess.Popen(command(model_dir, *arguments, **settings), cwd=REPOSITORY, env=environment, stdout=log, stderr=log)


def train(model_dir, *arguments, **settings) -> str:
    """Runs to its end; returns the log."""
    process = start(model_dir, *arguments, **settings)
    code = process.wait(timeout=600)
    log = pathlib.Path(f"{model_dir}.log").read_text()
    assert code == 0, log[-3000:]
    return log


def refused(model_dir, *arguments, **settings) -> str:
    """Runs and fails; returns the log."""
    assert start(model_dir, *arguments, **settings).wait(timeout=600) != 0
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


def copy(model_dir, to):
    """A copy of a stopped run, to go on from."""
    subprocess.run(["cp", "-r", model_dir, to], check=True)
    return to


def test_the_training_loss_falls_and_every_denoiser_has_its_own(whole):
    for collection in ["train", *(f"training_eval/{task}" for task in [*TASKS, "ul2_mix"])]:
        assert whole[collection, STEPS] < whole[collection, 10] < 9, collection  # ln 4096 = 8.3


def test_a_resumed_run_is_the_uninterrupted_one_to_the_last_digit(whole, stopped, tmp_path):
    resumed = copy(stopped, tmp_path / "resumed")
    train(resumed, steps(STEPS))
    assert losses(resumed) == whole


def test_a_killed_run_resumes_as_the_uninterrupted_one(whole, tmp_path):
    killed = tmp_path / "killed"
    process = start(killed, steps(100_000))
    deadline = time.monotonic() + 300
    while not list(killed.glob("checkpoint_1?/*")):
        assert process.poll() is None, "it ended before it was killed"
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    last = max(int(path.name.split("_")[1]) for path in killed.glob("checkpoint_*") if path.name.split("_")[1].isdigit())
    assert last < STEPS
    train(killed, steps(STEPS))
    after = {key: loss for key, loss in losses(killed).items() if last < key[1] <= STEPS}
    assert len(after) >= len(TASKS)
    assert after == {key: whole[key] for key in after}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gin.train/utils.DatasetConfig.seed=7"], "seed: 7"),
        (["--gin.TASK_FEATURE_LENGTHS={'inputs': 128, 'targets': 64}"], "targets: 64"),
    ],
)
def test_another_stream_is_refused_by_the_old_checkpoint(stopped, tmp_path, arguments, message):
    log = refused(copy(stopped, tmp_path / "other"), steps(STEPS), *arguments)
    assert "this iterator was saved by another pipeline" in log
    assert message in log.split("this iterator was saved by another pipeline")[1]


OWN = """
from __gin__ import dynamic_registration
import ul2_tasks
MIXTURE_OR_TASK_NAME = @ul2_tasks.register()
ul2_tasks.register.name = 'again'
ul2_tasks.register.denoisers = [@regular/ul2_tasks.SpanDenoiser(), @sequential/ul2_tasks.SequentialDenoiser()]
regular/ul2_tasks.SpanDenoiser:
  name = 'r'
  mode = '[R]'
  mean_span_length = 3
  noise_density = 0.15
sequential/ul2_tasks.SequentialDenoiser:
  name = 's'
  mode = '[S]'
  noise_density = 0.75
  weight = %WEIGHT
"""


def test_other_rates_are_refused_by_the_old_checkpoint(tmp_path):
    """With denoisers of one's own, written in gin."""
    (tmp_path / "own.gin").write_text(OWN)
    files = ("gin/ul2_tiny.gin", str(tmp_path / "own.gin"))
    train(tmp_path / "own", "--gin.WEIGHT=1", steps(10), files=files)
    assert {("training_eval/again_r", 10), ("training_eval/again_s", 10)} <= set(losses(tmp_path / "own"))
    log = refused(tmp_path / "own", "--gin.WEIGHT=4", steps(20), files=files)
    assert "this iterator was saved by another pipeline" in log


def test_two_processes_train_together(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = ["--multiprocess_gpu", f"--coordinator_address=127.0.0.1:{port}", "--process_count=2", steps(10)]
    logs = [tmp_path / "process0", tmp_path / "process1"]
    processes = [
        start(log, *shared, f"--process_index={index}", f'--gin.MODEL_DIR="{tmp_path / "model"}"') for index, log in enumerate(logs)
    ]
    for process, log in zip(processes, logs):
        assert process.wait(timeout=600) == 0, pathlib.Path(f"{log}.log").read_text()[-3000:]
    found = losses(tmp_path / "model")
    assert {(f"training_eval/{task}", 10) for task in TASKS} <= set(found)
    iterators = sorted(path.name for path in (tmp_path / "model" / "checkpoint_10").rglob("*train_ds*") if "index" not in path.name)
    assert iterators, "each process saves its own iterator"


@pytest.mark.parametrize("file", [file for file in FILES if not re.search(r"models/(network|t5_1_1)|own_corpus", file)])
def test_every_run_and_size_is_complete(file, tmp_path):
    """Parsed by t5x, all names resolved, nothing left to bind but MODEL_DIR."""
    files = (
        ("gin/ul2.gin", file) if "models" in file else ("gin/ul2.gin", "gin/models/base.gin") if file == "gin/ul2.gin" else (file,)
    )
    log = train(tmp_path / "dry", "--dry_run", files=files)
    assert "ul2_tasks.register" in log


@pytest.mark.parametrize("size", ["large"])
def test_the_scalable_network_trains(size, tmp_path):
    """With the sizes of tiny, which fit here."""
    small = {"emb_dim": 64, "num_heads": 4, "num_encoder_layers": 2, "num_decoder_layers": 2, "head_dim": 16, "mlp_dim": 128}
    arguments = [f"--gin.network.T5Config.{key}={value}" for key, value in small.items()]
    train(tmp_path / size, *arguments, steps(10), files=("gin/ul2_tiny.gin", f"gin/models/{size}.gin"))
    assert losses(tmp_path / size)["training_eval/ul2_s", 10] < 9
