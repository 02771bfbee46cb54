"""Pre-trains a T5 with t5x in two stages over two corpora, packed, and prints the loss of each denoiser at the end of each stage.

The second stage has more of the better corpus. The run is stopped on two processes and resumed on one, with the batches of a run
that nothing interrupts. At a tiny size, with the built-in corpus, on a CPU; docs/guides/train_with_t5x.md says how to install t5x:

    python recipes/t5x_staged.py

At a real size the first command writes the caches and the gin file. Run the second on each host, again after each interruption:

    python recipes/t5x_staged.py --web 'web/*.jsonl.gz' --best 'best/*.jsonl.gz' --vocabulary my.model --model base --length 512 \
        --rows 128 --steps 100000 --second_stage 80000 --every 1000 --output run --launches
    PYTHONPATH=recipes:$PYTHONPATH python -m t5x.train --gin_file=run/run.gin --seqio_additional_cache_dirs=run/cache \
        --gin_search_paths=$(python -m ul2_tasks.t5x.gin_files)

Cost: the tiny run takes 80 CPU seconds, most of which t5x needs to start and to compile. Real sizes: not measured.

Look at: the losses at the end of each stage, which fall; the tokens of each corpus in a step, which are about equal in the second
stage; and "waiting for data", which is near 0 if the data keep up. TensorBoard shows the same at all steps.
"""

import argparse
import os
import pathlib
import socket
import subprocess
import sys
from typing import Any

import seqio

import ul2_tasks

# What is not here is in ul2.gin and in the model's file.
GIN = """
from __gin__ import dynamic_registration
import __main__ as train_script
import t5x_staged
from t5x import utils

include 'gin/ul2.gin'
include 'gin/models/{model}.gin'
include 'gin/loss_by_task.gin'
include 'gin/elastic.gin'

VOCABULARY = @t5x_staged.vocabulary_of()
t5x_staged.vocabulary_of.spec = '{vocabulary}'
MIXTURE_OR_TASK_NAME = @t5x_staged.mixture()
t5x_staged.mixture:
  web = '{web}'
  best = '{best}'
  vocabulary = %VOCABULARY
  second_stage = {second_stage}
  rows = {rows}
  steps = {steps}

MODEL_DIR = '{output}/model'
TASK_FEATURE_LENGTHS = {{'inputs': {length}, 'targets': {length}}}
BATCH_SIZE = {rows}
TRAIN_STEPS = {steps}
LOSS_WEIGHTS = {{}}  # {{'s': 0.5}} halves the weight of S in the loss, and not how often it is read
utils.SaveCheckpointConfig.period = {every}
train_script.train.eval_period = {every}
train_script.train.train_eval_dataset_cfg = None  # the losses of denoisers are those of the training steps
"""

HERE = pathlib.Path(__file__).resolve().parent  # t5x imports this file, for `mixture`
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")])}


def vocabulary_of(spec: str) -> seqio.Vocabulary:
    return ul2_tasks.seqio_vocabulary(spec or "default")


def mixture(web: str, best: str, vocabulary: seqio.Vocabulary, second_stage: int, rows: int, steps: int) -> str:
    """Registers the data, in the processes of t5x. Names, files and vocabulary are those of the caches."""
    of_web, of_best = (ul2_tasks.register(name, source_of(files), vocabulary) for name, files in (("web", web), ("best", best)))
    stages = [ul2_tasks.Stage(0, {of_web: 9, of_best: 1}), ul2_tasks.Stage(second_stage, {of_web: 1, of_best: 1})]
    return ul2_tasks.mix("staged", schedule=stages, batch_size=rows, steps=steps)


def source_of(files: str) -> seqio.DataSource:
    return ul2_tasks.open_source(files, validation=None if files == "embedded" else 0.01)  # which has that split


def main() -> None:
    args = arguments()
    args.output = args.output.resolve()
    args.output.mkdir(parents=True, exist_ok=True)
    (args.output / "run.gin").write_text(GIN.format(**vars(args)))

    for name, files in (("web", args.web), ("best", args.best)):
        source = ul2_tasks.open_source(files, validation=None if files == "embedded" else 0.01)
        ul2_tasks.Mixture(name, source, args.vocabulary or "default").cache(args.output / "cache")

    for launch in args.launches:
        processes, until = map(int, launch.split(":"))
        print(f"training on {processes} process{'es' * (processes > 1)} until step {until}", flush=True)
        train(args, processes, until)
    if args.launches:
        for step in (args.second_stage, args.steps):
            report(step, metrics_at(args.output / "model" / "train", step))


def train(args: argparse.Namespace, processes: int, until: int) -> None:
    """Runs t5x to a step; on a cluster each host has one of these processes."""
    gin_folder = subprocess.check_output([sys.executable, "-m", "ul2_tasks.t5x.gin_files"], text=True, env=ENVIRONMENT).strip()
    command = ["-m", "t5x.train", f"--gin_file={args.output / 'run.gin'}", f"--gin.TRAIN_STEPS={until}"]
    command += [f"--seqio_additional_cache_dirs={args.output / 'cache'}", f"--gin_search_paths={gin_folder}"]
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"--coordinator_address=localhost:{free.getsockname()[1]}"
    together = ["--multiprocess_gpu", address, f"--process_count={processes}"]  # as on GPUs, also on CPUs
    commands = [[*command, *together, f"--process_index={index}"] for index in range(processes)] if processes > 1 else [command]
    run_together(commands, args.output / f"until-{until}.log")


def run_together(commands: list[list[Any]], log: pathlib.Path) -> None:
    """Runs Python's processes to their end; what they print goes to a file."""
    with log.open("a") as out:
        started = [
            subprocess.Popen([sys.executable, *map(str, command)], stdout=out, stderr=out, env=ENVIRONMENT) for command in commands
        ]
        codes = [process.wait() for process in started]
    if any(codes):
        sys.exit(f"{' '.join(map(str, commands[0]))} failed. Its last lines:\n{log.read_text()[-3000:]}")


def metrics_at(folder: pathlib.Path, step: int) -> dict[str, float]:
    """What t5x has written for TensorBoard at a step."""
    import tensorflow as tf

    return {
        value.tag: float(tf.make_ndarray(value.tensor))
        for path in sorted(folder.glob("events.out.tfevents.*"), key=os.path.getmtime)
        for event in tf.compat.v1.train.summary_iterator(str(path))
        for value in event.summary.value
        if event.step == step and value.tag.startswith(("loss", "tokens/", "timing/data"))
    }


def report(step: int, found: dict[str, float]) -> None:
    names = ("web_corpus", "best_corpus", *sorted(name[5:] for name in found if name.startswith("loss/") and "_" not in name))
    print(f"step {step}: loss {found['loss_per_nonpadding_target_token']:.6f}, waiting for data", end=" ")
    print(f"{found['timing/data_loading_fraction']:.1%}")
    for name in names:
        loss = f"loss {found[f'loss/{name}']:.6f}" if found[f"tokens/{name}"] else "not read"
        print(f"  {name:12} {loss:13}   tokens in a step {found[f'tokens/{name}']:.2f}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--web", default="embedded", help="files of the first corpus  [default: the built-in corpus]")
    parser.add_argument("--best", default="embedded", help="files of the better corpus  [default: the built-in corpus again]")
    parser.add_argument("--vocabulary", default="", help="a SentencePiece model, or tokenizer.json  [default: a built-in one]")
    parser.add_argument("--model", default="tiny", help="tiny, or small, base, large, xl, xxl of T5 1.1")
    parser.add_argument("--length", type=int, default=64, help="of packed inputs and of targets, in tokens")
    parser.add_argument("--rows", type=int, default=8, help="packed sequences in a step, over all processes")
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--second_stage", type=int, default=8, help="its first step")
    parser.add_argument("--every", type=int, default=4, help="save and log every N steps")
    parser.add_argument("--launches", nargs="*", default=["2:12", "1:16"], help="the processes of each launch, and its last step")
    parser.add_argument("--output", type=pathlib.Path, default="run")
    return parser.parse_args()


if __name__ == "__main__":
    main()
