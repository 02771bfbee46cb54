"""t5x trains on the mixture for real: through the gin files, with stops, kills and several processes."""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf
from support import byte_vocabulary, long_documents, restore, t5_model

from ul2_tasks import T5GEMMA2
from ul2_tasks.vocabulary.special_ids import special_tokens

pytest.importorskip(
    "t5x",
    reason="t5x is not importable; put checkouts of t5x, airio and jestimator on PYTHONPATH (docs/guides/train_with_t5x.md)",
    exc_type=ImportError,
)
pytestmark = pytest.mark.t5x

REPOSITORY = pathlib.Path(__file__).parent.parent
FILES = sorted(str(path.relative_to(REPOSITORY)) for path in (REPOSITORY / "gin").rglob("*.gin"))
TASKS = [f"ul2_{denoiser.name}" for denoiser in T5GEMMA2]
STEPS = 40


def python(name, arguments) -> subprocess.Popen:
    """Starts Python in the repository's root, with its output in NAME.log."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])}
    with open(f"{name}.log", "w") as log:
        return subprocess.Popen([sys.executable, *arguments], cwd=REPOSITORY, env=environment, stdout=log, stderr=log)


def start(model_dir, *arguments, files=("gin/ul2_tiny.gin",)) -> subprocess.Popen:
    gin_files = [f"--gin_file={file}" for file in files]
    return python(model_dir, ["-m", "t5x.train", *gin_files, f'--gin.MODEL_DIR="{model_dir}"', *arguments])


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


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def test_two_processes_train_together(tmp_path):
    shared = ["--multiprocess_gpu", f"--coordinator_address=127.0.0.1:{free_port()}", "--process_count=2", steps(10)]
    logs = [tmp_path / "process0", tmp_path / "process1"]
    processes = [
        start(log, *shared, f"--process_index={index}", f'--gin.MODEL_DIR="{tmp_path / "model"}"') for index, log in enumerate(logs)
    ]
    for process, log in zip(processes, logs):
        assert process.wait(timeout=600) == 0, pathlib.Path(f"{log}.log").read_text()[-3000:]
    found = losses(tmp_path / "model")
    assert {(f"training_eval/{task}", 10) for task in TASKS} <= set(found)
    saved = {path.name for path in (tmp_path / "model" / "checkpoint_10").rglob("train_ds-*.index")}
    assert saved == {"train_ds-000-of-002.index", "train_ds-001-of-002.index"}, "each process saves its own iterator"


def test_two_processes_read_disjoint_documents_with_different_noise(tmp_path):
    port = str(free_port())
    outputs = [tmp_path / "0.npz", tmp_path / "1.npz"]
    arguments = [["tests/read_shard.py", port, "2", str(index), str(output)] for index, output in enumerate(outputs)]
    processes = [python(output, arguments) for output, arguments in zip(outputs, arguments)]
    assert [process.wait(timeout=600) for process in processes] == [0, 0]
    shards = [np.load(output) for output in outputs]
    assert [shard["shard"].tolist() for shard in shards] == [[0, 2], [1, 2]]
    examples = [unpacked(shard) for shard in shards]

    vocabulary, modes = byte_vocabulary()
    windows, spans = [], []
    for shard in examples:
        specials = [special_tokens(vocabulary, name, modes=modes) for name in modes]
        by_mode = {special.mode[0]: special for special in specials}
        chunks = [restore(example, None, by_mode[int(example["inputs"][0])]) for example in shard]
        windows.append({tuple(chunk[at : at + 16]) for chunk in chunks for at in range(len(chunk) - 15)})
        spans.append([tuple(np.flatnonzero(np.isin(example["targets"], specials[0].sentinels))) for example in shard])
    assert min(map(len, windows)) > 10_000
    assert not windows[0] & windows[1]
    # Where several spans are drawn they are drawn anew: the n-th example of one host has the spans of the other's by chance.
    several = [(a, b) for a, b in zip(*spans) if min(len(a), len(b)) > 4]
    assert len(several) > 100
    assert np.mean([a == b for a, b in several]) < 0.05


def unpacked(rows) -> list[dict[str, np.ndarray]]:
    return [
        {
            "inputs": tokens[encoder == segment],
            "targets": targets[decoder == segment],
        }
        for tokens, encoder, targets, decoder in zip(
            *(rows[key] for key in ("encoder_input_tokens", "encoder_segment_ids", "decoder_target_tokens", "decoder_segment_ids"))
        )
        for segment in range(1, encoder.max() + 1)
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gin.TASK_FEATURE_LENGTHS={'inputs': 128, 'targets': 2}"], "inputs 128, targets 2: "),
        (["--gin.TASK_FEATURE_LENGTHS={'inputs': 16384, 'targets': 16384}"], "sentinels"),
        (["--gin.USE_CACHED_TASKS=True"], "'ul2_corpus' is in none of the cache directories"),
    ],
)
def test_what_cannot_be_trained_on_fails_before_the_first_step(tmp_path, arguments, message):
    log = refused(tmp_path / "refused", *arguments)
    error = log[log.rindex("ValueError: ") :]
    assert message in error
    assert not losses(tmp_path / "refused")


def test_it_trains_on_the_cache(tmp_path):
    build = python(tmp_path / "build", ["-m", "ul2_tasks", "cache", "ul2", "--output", str(tmp_path / "cache")])
    assert build.wait(timeout=600) == 0, (tmp_path / "build.log").read_text()[-3000:]
    arguments = ["--gin.USE_CACHED_TASKS=True", f"--seqio_additional_cache_dirs={tmp_path / 'cache'}"]
    log = train(tmp_path / "model", *arguments, steps(20))
    assert "Switching to on-the-fly" not in log
    found = losses(tmp_path / "model")
    for collection in ["train", *(f"training_eval/{task}" for task in TASKS)]:
        assert found[collection, 20] < found[collection, 10] < 9, collection


VOCABULARY = """
from __gin__ import dynamic_registration
import seqio
VOCABULARY = @seqio.ByteVocabulary()
seqio.ByteVocabulary.extra_ids = 100
import ul2_tasks
ul2_tasks.register.name = 'bytes'
"""


def test_a_vocabulary_without_the_modes_fails_before_the_first_step(tmp_path):
    (tmp_path / "bytes.gin").write_text(VOCABULARY)
    log = refused(tmp_path / "refused", files=("gin/ul2_tiny.gin", str(tmp_path / "bytes.gin")))
    assert re.search(r"ValueError: mode '\[.\]' is not a piece of .*; give modes=", log)


def test_a_vocabulary_that_is_not_the_models_fails_before_the_first_step(tmp_path):
    (tmp_path / "bytes.gin").write_text(
        "from __gin__ import dynamic_registration\nimport seqio\nfrom t5x import models\n"
        "models.EncoderDecoderModel.output_vocabulary = @seqio.ByteVocabulary()\n"
    )
    log = refused(tmp_path / "refused", files=("gin/ul2_tiny.gin", str(tmp_path / "bytes.gin")))
    assert "ValueError: Model and Task vocabularies do not match" in log


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
    """With other denoisers than the checkpoint's, so also with other data."""
    files = ("gin/ul2_continue.gin", "gin/models/tiny.gin")
    checkpoint = stopped / f"checkpoint_{STEPS // 2}"
    train(tmp_path / "whole", *begin_at(checkpoint), steps(STEPS), files=files)
    whole = losses(tmp_path / "whole")
    first, last = STEPS // 2 + 10, STEPS
    assert {step for _, step in whole} == {first, last}
    for task in ("ul2r_r", "ul2r_x1", "ul2r_x2", "ul2r_s", "ul2r_mix"):
        assert whole[f"training_eval/{task}", last] < whole[f"training_eval/{task}", first]
    assert whole["train", first] < losses(stopped)["train", 10], "it did not start anew"

    train(tmp_path / "parts", *begin_at(checkpoint), steps(first), files=files)
    train(tmp_path / "parts", *begin_at(checkpoint), steps(last), files=files)
    assert losses(tmp_path / "parts") == whole


def test_a_checkpoint_of_another_embedding_is_refused(stopped, tmp_path):
    checkpoint = stopped / f"checkpoint_{STEPS // 2}"
    arguments = begin_at(checkpoint, steps(STEPS), "--gin.EMBEDDING_ROWS=5120")
    log = refused(tmp_path / "other", *arguments, files=("gin/ul2_continue.gin", "gin/models/tiny.gin"))
    assert re.search(r"ValueError: .* is \(.*4096.*\) in the checkpoint .*, and \(.*5120.*\) in the model; take", log)


def test_fine_tuning_and_inference_switch_modes(stopped, tmp_path):
    checkpoint = stopped / f"checkpoint_{STEPS // 2}"
    files = ("gin/ul2_finetune.gin", "gin/models/tiny.gin")
    train(tmp_path / "tuned", *begin_at(checkpoint), steps(STEPS), files=files)
    found = losses(tmp_path / "tuned")
    assert found["training_eval/topics_title_r", STEPS] < found["training_eval/topics_title_r", STEPS - 10]

    scores = {}
    for mode in ("[R]", "[S]"):
        output = tmp_path / mode[1]
        values = {"CHECKPOINT_PATH": str(tmp_path / "tuned" / f"checkpoint_{STEPS}"), "INFER_OUTPUT_DIR": str(output), "MODE": mode}
        bindings = [f'--gin.{name}="{value}"' for name, value in values.items()]
        files = [f"--gin_file={file}" for file in ("gin/ul2_infer.gin", "gin/models/tiny.gin")]
        assert python(output, ["-m", "t5x.infer", *files, *bindings, TINY[0], '--gin.infer.mode="score"']).wait(timeout=600) == 0
        (results,) = output.glob(f"topics_title_{mode[1].lower()}-score.jsonl-*-of-00001")
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


def test_a_decoder_only_model_trains(tmp_path):
    (tmp_path / "small.gin").write_text(SMALL_DECODER)
    files = ("gin/ul2_decoder_only.gin", str(tmp_path / "small.gin"))
    train(tmp_path / "decoder", *TINY, steps(20), files=files)
    found = losses(tmp_path / "decoder")
    for collection in ["train", *(f"training_eval/{task}" for task in TASKS)]:
        assert found[collection, 20] < found[collection, 10] < 9, collection


OWN_FILES = {"gin/own_corpus.gin", "gin/t5_vocabulary.gin"}
PARTS = re.compile(r"gin/models/(network|t5_1_1)")
RUNS = {
    "gin/ul2.gin": ["gin/models/base.gin"],
    "gin/ul2_continue.gin": ["gin/models/base.gin"],
    "gin/ul2_finetune.gin": ["gin/models/base.gin"],
    "gin/ul2_infer.gin": ["gin/models/base.gin"],
    "gin/own_corpus.gin": ["gin/ul2.gin", "gin/models/base.gin", "gin/own_corpus.gin"],
    "gin/t5_vocabulary.gin": ["gin/ul2_continue.gin", "gin/models/base.gin", "gin/t5_vocabulary.gin"],
}


@pytest.mark.parametrize("file", [file for file in FILES if not PARTS.match(file)])
def test_every_run_and_size_is_complete(file, tmp_path):
    """t5x reads it, builds its datasets, and draws a batch of each; only paths and the number of steps are left to give."""
    files = ["gin/ul2.gin", file] if "models" in file else RUNS.get(file, [])
    files = files if file in files else [file, *files]
    (tmp_path / "documents.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in long_documents()))
    paths = {name: tmp_path for name in ("MODEL_DIR", "INITIAL_CHECKPOINT_PATH", "CHECKPOINT_PATH", "INFER_OUTPUT_DIR")}
    if file in OWN_FILES:
        paths["VOCABULARY_FILE"] = t5_model(tmp_path / "t5.model")
        paths["TRAIN_FILES"] = paths["VALIDATION_FILES"] = tmp_path / "documents.jsonl"
    bindings = [*(f'{name}="{path}"' for name, path in paths.items()), "TRAIN_STEPS=10", "USE_CACHED_TASKS=False"]
    arguments = [*(f"--gin_file={name}" for name in files), *(f"--gin={binding}" for binding in bindings)]
    drawing = python(tmp_path / "drawn", ["tests/draw_batches.py", *arguments])
    code = drawing.wait(timeout=600)
    log = (tmp_path / "drawn.log").read_text()
    assert code == 0, log[-3000:]
    datasets = ["infer"] if "infer" in file else ["train", "train_eval"]
    assert re.findall(r"^(infer|train|train_eval) {", log, re.MULTILINE) == datasets


@pytest.mark.parametrize("size", ["large"])
def test_the_scalable_network_trains(size, tmp_path):
    """With the sizes of tiny, which fit here."""
    small = {"emb_dim": 64, "num_heads": 4, "num_encoder_layers": 2, "num_decoder_layers": 2, "head_dim": 16, "mlp_dim": 128}
    arguments = [f"--gin.network.T5Config.{key}={value}" for key, value in small.items()]
    train(tmp_path / size, *TINY, *arguments, steps(10), files=("gin/ul2.gin", f"gin/models/{size}.gin"))
    assert losses(tmp_path / size)["training_eval/ul2_s", 10] < 9
