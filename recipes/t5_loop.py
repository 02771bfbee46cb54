"""Pre-trains a T5 from scratch in a PyTorch loop of your own, on any number of processes, with exact resume.

The loop has DistributedDataParallel, bf16, gradient accumulation, clipping, a schedule, checkpoints of model, optimizer and data,
and an evaluation for each denoiser. At a tiny size, in 10 seconds on a CPU, with the built-in corpus:

    python recipes/t5_loop.py
    torchrun --nproc_per_node 2 recipes/t5_loop.py --output run  # stopped? Run it again, with any number of processes

At a real size, on 8 GPUs. The cache is written once, before the launch:

    echo "from ul2_tasks import *; mine = Mixture('mine', open_source('corpus/*.jsonl.gz', validation=0.01), 'my.model')" > mine.py
    ul2 cache mine.py:mine --output CACHE
    torchrun --nproc_per_node 8 recipes/t5_loop.py --model base --corpus 'corpus/*.jsonl.gz' --vocabulary my.model --cache CACHE \
        --pack --bf16 --compile --length 512 --rows 256 --microbatch 32 --workers 2 --steps 100000 --warmup 2000 \
        --learning_rate 1e-3 --log_every 100 --save_every 2000 --output run

Cost: the tiny run takes 10 CPU seconds. `--model base --length 512 --rows 128 --microbatch 32 --bf16 --pack` ran on one NVIDIA
H200, where such a T5 trains on 100,000 tokens/s, without `--compile` (docs/explanation/performance.md). A real run: not measured.

Look at: the loss, which begins near ln(vocabulary) and falls, also that of each denoiser on held-out documents; and in the table
at the end "waiting for data", which is about 0 if the data keep up, and "padding", which `--pack` reduces.
"""

import argparse
import contextlib
import itertools
import math
import os
import pathlib
import time
from typing import Any

import torch
import torch.distributed
import transformers

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


def main() -> None:
    args = arguments()
    torch.manual_seed(0)

    # The processes: torchrun sets these variables.
    rank, processes = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    device = torch.device(f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if args.device == "cuda" else "cpu")
    if args.device == "cuda":
        torch.cuda.set_device(device)
    if processes > 1:
        torch.distributed.init_process_group("nccl" if args.device == "cuda" else "gloo")
    accumulation, rest = divmod(args.rows, args.microbatch * processes)
    if rest or not accumulation:
        raise SystemExit(f"--rows must be a multiple of --microbatch times processes, {args.microbatch} * {processes}.")

    # The data.
    lengths = {"inputs": args.length, "targets": args.length}
    source = ul2_tasks.open_source(args.corpus, validation=None if args.corpus == "embedded" else 0.01)
    chunk_tokens = ul2_tasks.best_chunk_tokens(ul2_tasks.T5GEMMA2, lengths) if args.pack else None
    mixture = ul2_tasks.Mixture("mine", source, args.vocabulary, chunk_tokens=chunk_tokens)

    def open_split(split: str, workers: int = 0) -> tuple[ul2_tasks.UL2IterableDataset, torch.utils.data.DataLoader]:
        converter = ul2_tasks.HuggingFaceFeatureConverter("max_length", pack=args.pack, task_id=True)
        cache_dirs = [args.cache] if args.cache else []
        examples = ul2_tasks.examples(mixture, lengths, split=split, pack=args.pack, cache_dirs=cache_dirs)
        dataset = ul2_tasks.UL2IterableDataset(examples, feature_converter=converter, batch_size=args.microbatch)
        pin = args.device == "cuda"
        return dataset, torch.utils.data.DataLoader(dataset, args.microbatch, num_workers=workers, pin_memory=pin)

    dataset, loader = open_split("train", args.workers)
    _, held_out = open_split("validation")
    of_masks = ["segment_ids", "decoder_segment_ids"] if args.pack else ["attention_mask", "decoder_attention_mask"]

    # The model, with a row of the embedding for each id, rounded up to a multiple of 128.
    rows = ul2_tasks.embedding_rows(mixture.vocabulary)
    model: Any = transformers.T5ForConditionalGeneration(transformers.T5Config(vocab_size=rows, **SIZES[args.model], **T5))
    model.to(device)
    if args.pack:
        ul2_tasks.accept_packed_sequences(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, betas=(0.9, 0.98), fused=args.device == "cuda")
    precision = torch.autocast(args.device, torch.bfloat16, enabled=args.bf16)

    # The last checkpoint, if there is one. The data resume at an index, so the number of processes and workers is free.
    first, checkpoint = 0, pathlib.Path(args.output or ".") / "last.pt"
    if args.output and checkpoint.exists():
        saved = torch.load(checkpoint, map_location=device)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        dataset.load_state_dict(saved["data"])
        first = saved["step"]
    data = dataset.state_dict()  # where the data begin

    trained: Any = torch.compile(model) if args.compile else model  # the weights are those of `model`
    if processes > 1:
        trained = torch.nn.parallel.DistributedDataParallel(trained)
    batches = iter(loader)

    training, evaluation = (ul2_tasks.GroupLosses(ul2_tasks.TokenGroups.of_tasks(dataset.tasks)) for _ in range(2))

    def logits_of(batch: dict[str, torch.Tensor], network: torch.nn.Module) -> torch.Tensor:
        inputs = {name: values.to(device, non_blocking=True) for name, values in batch.items() if name not in ("labels", "task_id")}
        with precision:
            return network(**inputs, use_cache=False).logits

    def summed(values: torch.Tensor) -> torch.Tensor:
        """Adds the values of all processes."""
        if processes > 1:
            torch.distributed.all_reduce(values)
        return values

    # The loop. `measured` has seconds, those of waiting for data, tokens, and places, after the first steps, which warm up.
    measured, measured_steps = torch.zeros(4, dtype=torch.float64), 0
    for step in range(first, args.steps):
        began = time.perf_counter()
        parts = [next(batches) for _ in range(accumulation)]
        waited = time.perf_counter() - began

        # The loss is the mean over the targets of the whole step, of all its parts and processes.
        targets = summed(torch.stack([training.counts(part["task_id"]) for part in parts]).sum(0).to(device))
        for number, part in enumerate(parts):
            is_last = number == accumulation - 1
            with contextlib.nullcontext() if processes == 1 or is_last else trained.no_sync():
                loss = training.loss(logits_of(part, trained), part["labels"], part["task_id"], targets)
                (loss * processes).backward()  # of which DistributedDataParallel takes the mean
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = args.learning_rate * factor(step, args)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

        done = step + 1
        is_due = done % args.log_every == 0 or done % args.save_every == 0 or done == args.steps
        if is_due:
            metrics = training.metrics()  # of all processes; waits for the device
            if rank == 0:
                print(f"step {done}: {in_words(metrics)}, learning rate {group['lr']:.1e}", flush=True)
        masks = [part[name] for part in parts for name in of_masks]
        tokens, places = sum(int((mask > 0).sum()) for mask in masks), sum(mask.numel() for mask in masks)
        measured += torch.tensor([time.perf_counter() - began, waited, tokens, places], dtype=torch.float64)
        measured_steps += 1
        if is_due and measured_steps == done - first and done < args.steps:
            measured, measured_steps = torch.zeros(4, dtype=torch.float64), 0

        if done % args.save_every == 0 or done == args.steps:
            with torch.no_grad():  # the same rows each time, which the processes share
                for batch in itertools.islice(held_out, -(-args.eval_rows // (args.microbatch * processes))):
                    evaluation.add(logits_of(batch, model), batch["labels"], batch["task_id"])
            metrics = evaluation.metrics()
            if rank == 0:
                print(f"held out: {in_words(metrics)}", flush=True)
            if rank == 0 and args.output:
                checkpoint.parent.mkdir(parents=True, exist_ok=True)
                read = {**data, "number": data["number"] + (done - first) * args.rows}  # not what workers have read ahead
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "data": read, "step": done}
                torch.save(state, checkpoint.with_suffix(".new"))
                os.replace(checkpoint.with_suffix(".new"), checkpoint)  # so that it is whole at any moment

    seconds, waiting, tokens, places = (summed(measured.to(device)) / processes).tolist()
    if rank == 0 and measured_steps:
        print(f"{'tokens/s':>12} {'step (ms)':>12} {'waiting for data':>18} {'padding':>10}")
        shares = f"{waiting / seconds:>18.2%} {1 - tokens / places:>10.1%}"
        print(f"{tokens * processes / seconds:>12.0f} {1e3 * seconds / measured_steps:>12.1f} {shares}")
    if processes > 1:
        torch.distributed.destroy_process_group()


def factor(step: int, args: argparse.Namespace) -> float:
    """The learning rate of a step, as a part of the highest: a linear warm-up, then a cosine, or 1 / sqrt(step)."""
    if step < args.warmup:
        return (step + 1) / args.warmup
    if args.schedule == "rsqrt":
        return math.sqrt(max(args.warmup, 1) / (step + 1))
    return 0.5 + 0.5 * math.cos(math.pi * (step - args.warmup) / max(args.steps - args.warmup, 1))


def in_words(metrics: dict[str, float]) -> str:
    return ", ".join(f"{name} {mean:.4f}" for name, mean in metrics.items() if name.startswith("loss"))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--model", choices=SIZES, default="tiny", help="train a T5 of this size")
    parser.add_argument("--corpus", default="embedded", help="read these files")
    parser.add_argument("--vocabulary", default="default", help="use this tokenizer")
    parser.add_argument("--cache", help="read the tokens that `ul2 cache` wrote here; without it tokenize into memory")
    parser.add_argument("--length", type=int, default=64, help="the tokens of inputs, and of targets")
    parser.add_argument("--pack", action="store_true", help="put several examples into a row")
    parser.add_argument("--rows", type=int, default=8, help="the rows of a step, in all processes")
    parser.add_argument("--microbatch", type=int, default=2, help="the rows of a process that are in memory at a time")
    parser.add_argument("--eval_rows", type=int, default=32, help="the rows of an evaluation, at least a batch for each process")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--warmup", type=int, default=4, help="raise the learning rate for so long")
    parser.add_argument("--schedule", choices=["cosine", "rsqrt"], default="cosine")
    parser.add_argument("--learning_rate", type=float, default=3e-3)
    parser.add_argument("--bf16", action="store_true", help="compute in bfloat16, with weights in float32")
    parser.add_argument("--compile", action="store_true", help="compile the model with torch.compile")
    parser.add_argument("--workers", type=int, default=0, help="the processes that read, for each process that trains")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--output", help="keep the last checkpoint in this folder, which all hosts see, and resume from it")
    parser.add_argument("--log_every", type=int, default=10)
    parser.add_argument("--save_every", type=int, default=20, help="evaluate and save this often")
    return parser.parse_args()


if __name__ == "__main__":
    main()
