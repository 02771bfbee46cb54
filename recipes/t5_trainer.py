"""Pre-trains a T5 from scratch with Transformers' Trainer: the loss of each denoiser, and exact resume on any number of processes.

At a tiny size, on a CPU, with the built-in corpus:

    python recipes/t5_trainer.py --use_cpu
    torchrun --nproc_per_node 2 recipes/t5_trainer.py --use_cpu  # stopped? Run it again, with any number of processes

At a real size, on 8 GPUs. The cache is written once, before the launch:

    echo "from ul2_tasks import *; mine = Mixture('mine', open_source('corpus/*.jsonl.gz', validation=0.01), 'my.model')" > mine.py
    ul2 cache mine.py:mine --output CACHE
    torchrun --nproc_per_node 8 recipes/t5_trainer.py --model base --corpus 'corpus/*.jsonl.gz' --vocabulary my.model \
        --cache CACHE --pack --bf16 --length 512 --rows 256 --microbatch 32 --workers 2 --steps 100000 --warmup 2000 \
        --learning_rate 1e-3 --log_every 100 --save_every 2000

Cost: the tiny run takes 12 CPU seconds. Real sizes: not measured.

Look at: `loss`, which begins near ln(vocabulary) and falls, `loss/r1` and so on of each denoiser, and `eval_loss` of held-out
documents.
"""

import argparse
import itertools
import os
import pathlib
from typing import Any

import torch
import transformers
from transformers.trainer_utils import get_last_checkpoint

import ul2_tasks

SIZES: dict[str, dict[str, Any]] = {  # of T5 1.1
    "tiny": {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4},
    "small": {"d_model": 512, "d_kv": 64, "d_ff": 1024, "num_layers": 8, "num_heads": 6},
    "base": {"d_model": 768, "d_kv": 64, "d_ff": 2048, "num_layers": 12, "num_heads": 12},
}
# Tied embeddings make the first logits small. T5 1.1 is pre-trained without dropout.
T5: dict[str, Any] = {
    "feed_forward_proj": "gated-gelu",
    "tie_word_embeddings": True,
    "dropout_rate": 0.0,
    "decoder_start_token_id": 0,
}


class Lines(transformers.TrainerCallback):
    """Prints each log as a line."""

    def on_log(self, args, state, control, logs=None, **settings):
        if state.is_world_process_zero and logs:
            losses = ", ".join(f"{name} {value:.4f}" for name, value in logs.items() if "loss" in name)
            print(f"step {state.global_step}: {losses}", flush=True)


def main() -> None:
    args = arguments()
    torch.manual_seed(0)
    processes = int(os.environ.get("WORLD_SIZE", 1))  # which torchrun sets
    accumulation, rest = divmod(args.rows, args.microbatch * processes)
    if rest or not accumulation:
        raise SystemExit(f"--rows must be a multiple of --microbatch times processes, {args.microbatch} * {processes}.")

    # The data: rows of one length, each with the task of each target, by which losses are logged.
    lengths = {"inputs": args.length, "targets": args.length}
    source = ul2_tasks.open_source(args.corpus, validation=None if args.corpus == "embedded" else 0.01)
    chunk_tokens = ul2_tasks.best_chunk_tokens(ul2_tasks.T5GEMMA2, lengths) if args.pack else None
    mixture = ul2_tasks.Mixture("mine", source, args.vocabulary, chunk_tokens=chunk_tokens)
    converter = ul2_tasks.HuggingFaceFeatureConverter(pack=args.pack, task_id=True)
    settings: dict[str, Any] = {"pack": args.pack, "cache_dirs": [args.cache] if args.cache else []}
    examples, validation = (ul2_tasks.examples(mixture, lengths, split=split, **settings) for split in ("train", "validation"))
    # Trainer splits the rows among the processes, so a dataset has to give all of them.
    of_all: dict[str, Any] = {"feature_converter": converter, "rank": 0, "world_size": 1}
    dataset = ul2_tasks.UL2IterableDataset(examples, **of_all, batch_size=args.microbatch)
    evaluated = ul2_tasks.UL2IterableDataset(validation, **of_all)
    held_out = list(itertools.islice(evaluated, args.eval_rows))

    # The model, with a row of the embedding for each id, rounded up to a multiple of 128.
    rows = ul2_tasks.embedding_rows(mixture.vocabulary)
    config = transformers.T5Config(vocab_size=rows, **SIZES[args.model], **T5)
    model: Any = transformers.T5ForConditionalGeneration(config)
    if args.pack:
        ul2_tasks.accept_packed_sequences(model)

    training = transformers.TrainingArguments(
        args.output,
        max_steps=args.steps,
        per_device_train_batch_size=args.microbatch,
        per_device_eval_batch_size=args.microbatch,
        gradient_accumulation_steps=accumulation,
        learning_rate=args.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=args.warmup,
        bf16=args.bf16,
        use_cpu=args.use_cpu,
        dataloader_num_workers=args.workers,
        logging_steps=args.log_every,
        eval_strategy="steps",
        eval_steps=args.save_every,
        save_steps=args.save_every,
        save_total_limit=2,
        remove_unused_columns=False,  # segment ids are no argument of the model
        disable_tqdm=True,
        report_to=[],
    )

    # The last checkpoint, if there is one. The data begin at its step, on any number of processes, and must be those of the run.
    kept = pathlib.Path(args.output) / "data.pt"
    last = get_last_checkpoint(args.output) if pathlib.Path(args.output).is_dir() else None
    if last:
        dataset.load_state_dict({**torch.load(kept), "number": int(last.rpartition("-")[2]) * args.rows})
        training.ignore_data_skip = True
    elif training.process_index == 0:
        kept.parent.mkdir(parents=True, exist_ok=True)
        torch.save(dataset.state_dict(), kept)

    # With weights, here equal ones, the loss is the mean over the targets of the whole step. Trainer's own loss of a T5 is a mean
    # of the means of microbatches, which depends on their number, and so on the number of processes.
    trainer = ul2_tasks.GroupLossTrainer(
        model,
        training,
        train_dataset=dataset,
        eval_dataset=held_out,
        groups=ul2_tasks.TokenGroups.of_tasks(dataset.tasks, {}),
        callbacks=[Lines()],
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train(resume_from_checkpoint=last)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--model", choices=SIZES, default="tiny", help="train a T5 of this size")
    parser.add_argument("--corpus", default="embedded", help="read these files")
    parser.add_argument("--vocabulary", default="default", help="use this tokenizer")
    parser.add_argument("--cache", help="read the tokens that `ul2 cache` wrote here; without it tokenize into memory")
    parser.add_argument("--length", type=int, default=64, help="the tokens of inputs, and of targets")
    parser.add_argument("--pack", action="store_true", help="put several examples into a row")
    parser.add_argument("--rows", type=int, default=8, help="the rows of a step, in all processes; the same in each run")
    parser.add_argument("--microbatch", type=int, default=2, help="the rows of a process that are in memory at a time")
    parser.add_argument("--eval_rows", type=int, default=32, help="the rows of an evaluation")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--warmup", type=int, default=4, help="raise the learning rate for so long")
    parser.add_argument("--learning_rate", type=float, default=3e-3)
    parser.add_argument("--bf16", action="store_true", help="compute in bfloat16, with weights in float32")
    parser.add_argument("--use_cpu", action="store_true", help="train on the CPU, also where there is a GPU")
    parser.add_argument("--workers", type=int, default=0, help="the processes that read")
    parser.add_argument("--output", default="run", help="keep checkpoints in this folder, and resume from the last")
    parser.add_argument("--log_every", type=int, default=10)
    parser.add_argument("--save_every", type=int, default=20, help="evaluate and save this often")
    return parser.parse_args()


if __name__ == "__main__":
    main()
