"""Trains Megatron core's T5Model, with its schedules, on packed rows of UL2 examples, on any number of data-parallel processes.

Positions are T5's relative ones, and no example of a row attends to another. At a tiny size, on a CPU, with the built-in corpus:

    torchrun --nproc_per_node 2 recipes/megatron_t5.py
    python recipes/megatron_t5.py --output run  # run it again with more --steps, with any number of processes

At a real size, on 8 GPUs. The cache is written once, before the launch:

    ul2 cache mine --corpus 'corpus/*.jsonl.gz' --vocabulary my.model --output CACHE
    torchrun --nproc_per_node 8 recipes/megatron_t5.py --corpus 'corpus/*.jsonl.gz' --vocabulary my.model --cache CACHE \
        --layers 12 --hidden 768 --heads 12 --length 512 --rows 256 --microbatch 16 --steps 100000 --output run

Cost: 20 steps take 13 s of CPU time in one process. Real sizes: not measured.

Look at: the loss, which begins near ln(vocabulary) and falls. It is the mean over all labels of a step, so it does not depend on
the number of processes and microbatches. The loss, the labels and the weight of each denoiser are printed behind it.

It needs megatron-core 0.16, but neither Apex nor Transformer Engine. Tensor and pipeline parallelism, Megatron's optimizer and its
sharded checkpoints are left out; rows are read by the data-parallel rank, so with them the data stay as they are. NeMo 2 trained
this T5Model, too; NeMo 3 has only speech models.
"""

import argparse
import functools
import itertools
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed
from megatron.core import parallel_state
from megatron.core.models.T5.t5_model import T5Model
from megatron.core.models.T5.t5_spec import get_t5_decoder_with_local_block_spec, get_t5_encoder_with_local_block_spec
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.torch_norm import WrappedTorchNorm

import ul2_tasks


def main() -> None:
    args = arguments()
    torch.manual_seed(0)

    # The processes. torchrun sets these variables; without it there is one process.
    for variable, value in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}.items():
        os.environ.setdefault(variable, value)
    device = torch.device(f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if args.device == "cuda" else "cpu")
    if args.device == "cuda":
        torch.cuda.set_device(device)
    torch.distributed.init_process_group("nccl" if args.device == "cuda" else "gloo")
    parallel_state.initialize_model_parallel()
    rank, processes = parallel_state.get_data_parallel_rank(), parallel_state.get_data_parallel_world_size()
    microbatches, rest = divmod(args.rows, args.microbatch * processes)
    if rest or not microbatches:
        raise SystemExit(f"--rows must be a multiple of --microbatch times processes, {args.microbatch} * {processes}.")

    # The data: packed rows of one length, and the masks of the examples in them.
    lengths = {"inputs": args.length, "targets": args.length}
    chunk_tokens = ul2_tasks.best_chunk_tokens(ul2_tasks.T5GEMMA2, lengths)
    mixture = ul2_tasks.Mixture("mine", args.corpus, args.vocabulary, chunk_tokens=chunk_tokens)
    dataset = ul2_tasks.UL2IterableDataset(
        ul2_tasks.examples(mixture, lengths, pack=True, cache_dirs=[args.cache] if args.cache else []),
        rank=rank,
        world_size=processes,
        feature_converter=ul2_tasks.HuggingFaceFeatureConverter(pack=True, task_id=True),
        batch_size=args.microbatch,
    )

    model = new_model(args, ul2_tasks.embedding_rows(mixture.vocabulary)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, betas=(0.9, 0.98))

    # The last checkpoint, if there is one. The data resume at an index, so the number of processes is free.
    first, checkpoint = 0, pathlib.Path(args.output or ".") / "last.pt"
    if args.output and checkpoint.exists():
        saved = torch.load(checkpoint, map_location=device)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        dataset.load_state_dict(saved["data"])
        first = saved["step"]
    data = dataset.state_dict()  # where the data begin

    groups = ul2_tasks.GroupLosses(ul2_tasks.TokenGroups.of_tasks(dataset.tasks))
    batches = iter(torch.utils.data.DataLoader(dataset, args.microbatch, num_workers=args.workers))
    for step in range(first, args.steps):
        with OnCPU() if args.device == "cpu" else torch.device(device):
            reports = get_forward_backward_func()(
                forward_step_func=functools.partial(forward, groups=groups, parts=microbatches * processes),
                data_iterator=({name: values.to(device) for name, values in batch.items()} for batch in batches),
                model=model,
                num_microbatches=microbatches,
                seq_length=args.length,
                decoder_seq_length=args.length,
                micro_batch_size=args.microbatch,
            )
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

        done = step + 1
        if done % args.log_every == 0 or done == args.steps:
            # As Megatron's own loop does it: pairs are summed over microbatches and processes, then divided.
            totals = torch.stack([torch.stack([*report.values()]) for report in reports]).sum(0)
            torch.distributed.all_reduce(totals)
            logged = dict(zip(reports[0], (totals[:, 0] / totals[:, 1]).tolist()))
            if rank == 0:
                print(f"step {done}: " + ", ".join(f"{name} {value:.4f}" for name, value in logged.items()), flush=True)
        if rank == 0 and args.output and (done % args.save_every == 0 or done == args.steps):
            checkpoint.parent.mkdir(parents=True, exist_ok=True)
            place = {**data, "number": done * args.rows}  # not what workers have read ahead
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "data": place, "step": done}
            torch.save(state, checkpoint.with_suffix(".new"))
            os.replace(checkpoint.with_suffix(".new"), checkpoint)  # so that it is whole at any moment
    torch.distributed.destroy_process_group()


def new_model(args: argparse.Namespace, vocab_size: int) -> T5Model:
    """A T5 whose gradients are summed over labels; `finish` divides them by the number of labels of the step."""
    config = TransformerConfig(
        num_layers=args.layers,
        hidden_size=args.hidden,
        num_attention_heads=args.heads,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        use_cpu_initialization=True,
        perform_initialization=True,
        calculate_per_token_loss=True,
        finalize_model_grads_func=finish,
    )
    encoder, decoder = get_t5_encoder_with_local_block_spec(args.layers), get_t5_decoder_with_local_block_spec(args.layers)
    for spec in (encoder, decoder):
        spec.layer_norm = WrappedTorchNorm  # the default is Transformer Engine's
        for layer in spec.layer_specs:
            layer.submodules.self_attention.submodules.core_attention = MaskedAttention
    for layer in decoder.layer_specs:
        layer.submodules.cross_attention.submodules.core_attention = MaskedAttention
    return T5Model(
        config,
        config,
        encoder,
        decoder,
        vocab_size=vocab_size,
        max_sequence_length=args.length,
        share_embeddings_and_output_weights=True,
        position_embedding_type="relative",
    )


def forward(batches: Iterator[dict[str, torch.Tensor]], model: T5Model, groups: Any, parts: int) -> tuple[torch.Tensor, Any]:
    """The losses of a microbatch, and how to sum and report them. A mask of Megatron is True where a query must not attend."""
    batch = next(batches)
    masks: Any = ul2_tasks.packed_attention_masks(batch)  # True where it attends
    is_trained = batch["labels"] >= 0
    losses = model(
        batch["packed_input_ids"],
        batch["decoder_input_ids"],
        ~masks["encoder"],
        ~masks["decoder"],
        ~masks["cross"],
        lm_labels=batch["labels"].clamp(min=0),
    )

    def summed(losses: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
        total, labels = (losses * is_trained).sum(), is_trained.sum()
        return total, labels.int(), groups.report(losses, batch["task_id"], parts=parts)

    return losses, summed


def finish(models: list[T5Model], labels: torch.Tensor, **groups: Any) -> None:
    """Sums the gradients of all processes, and divides them by their labels. Megatron calls it after the last microbatch."""
    torch.distributed.all_reduce(labels)
    for parameter in itertools.chain.from_iterable(model.parameters() for model in models):
        torch.distributed.all_reduce(parameter.grad)
        parameter.grad /= labels


class MaskedAttention(torch.nn.Module):
    """Attention with any mask and T5's position bias, on any device. Megatron's own takes no bias, and runs on GPUs alone."""

    def __init__(self, **settings: Any):
        super().__init__()

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor,
        attention_bias: torch.Tensor | None = None,
        **settings: Any,
    ) -> torch.Tensor:
        """[tokens, batch, heads, of a head] each to [tokens, batch, heads * of a head]."""
        scores = torch.zeros((), device=query.device, dtype=query.dtype) if attention_bias is None else attention_bias
        query, key, value = (states.permute(1, 2, 0, 3) for states in (query, key, value))
        mask = scores.masked_fill(attention_mask, -torch.inf)
        attended = torch.nn.functional.scaled_dot_product_attention(query, key, value, mask)
        return attended.permute(2, 0, 1, 3).flatten(2)


class OnCPU(torch.overrides.TorchFunctionMode):
    """Makes tensors on the CPU that are asked for on a GPU: the schedule counts labels in one."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        return function(*args, **(kwargs | {"device": "cpu"} if kwargs.get("device") == "cuda" else kwargs))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--layers", type=int, default=2, help="the layers of the encoder, and of the decoder")
    parser.add_argument("--hidden", type=int, default=64, help="the size of a hidden state")
    parser.add_argument("--heads", type=int, default=4, help="attention heads")
    parser.add_argument("--corpus", default="embedded", help="read these files")
    parser.add_argument("--vocabulary", default="default", help="use this tokenizer")
    parser.add_argument("--cache", help="read the tokens that `ul2 cache` wrote here; without it tokenize into memory")
    parser.add_argument("--length", type=int, default=128, help="the tokens of inputs, and of targets, of a row")
    parser.add_argument("--rows", type=int, default=16, help="the rows of a step, in all processes")
    parser.add_argument("--microbatch", type=int, default=4, help="the rows of a process that are in memory at a time")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--learning_rate", type=float, default=3e-3)
    parser.add_argument("--workers", type=int, default=0, help="the processes that read, for each process that trains")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--output", help="keep the last checkpoint in this folder, and resume from it")
    parser.add_argument("--log_every", type=int, default=10)
    parser.add_argument("--save_every", type=int, default=20)
    return parser.parse_args()


if __name__ == "__main__":
    main()
