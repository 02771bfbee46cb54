"""Pre-trains an encoder-decoder of fifty lines in JAX and Flax, with packed rows that grain reads, on any number of hosts.

The package packs the rows, and the model makes its masks of their segment ids. A step has the same rows on any number of hosts, so
the state of the data is one integer. Install jax, flax, optax and grain. At a tiny size, on a CPU, with the built-in corpus:

    python recipes/jax_grain.py
    python recipes/jax_grain.py --output run  # stopped? Run it again, also on another number of hosts

On two hosts, or as here in two processes of one:

    for i in 0 1; do python recipes/jax_grain.py --output run --coordinator localhost:9911 --hosts 2 --host $i & done; wait

At a real size. The cache is written once, before the launch; on Cloud TPU `--coordinator auto` finds the hosts:

    ul2 cache mine --corpus 'corpus/*.jsonl.gz' --vocabulary my.model --output CACHE
    python recipes/jax_grain.py --model base --corpus 'corpus/*.jsonl.gz' --vocabulary my.model --cache CACHE --length 512 \
        --rows 256 --workers 4 --steps 100000 --warmup 2000 --learning_rate 1e-3 --log_every 100 --save_every 2000 --output run

Cost: the tiny run takes 13 CPU seconds, half of them to compile. `--model base --length 512 --rows 32` on one NVIDIA H200, with the
built-in corpus: 80,000 targets/s, once it is compiled, which took half a minute. A real run: not measured.

Look at: the loss, which begins near ln(vocabulary) and falls, and that of each denoiser. TensorFlow is not imported.
"""

import argparse
import os
import pathlib
import time
from typing import Any

import flax.serialization
import grain
import jax
import jax.numpy as jnp
import numpy as np
import optax
from absl import flags
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import ul2_tasks

SIZES = {  # width, heads, layers of the encoder and of the decoder
    "tiny": (64, 4, 2),
    "base": (768, 12, 12),
}


class Block(nnx.Module):
    """Attention to its own row, attention to the encoder's in a decoder, and an MLP, each after a norm."""

    def __init__(self, width: int, heads: int, is_decoder: bool, rngs: nnx.Rngs):
        self.norms = nnx.List([nnx.RMSNorm(width, rngs=rngs) for _ in range(3)])
        of_attention: dict[str, Any] = {"num_heads": heads, "in_features": width, "decode": False, "rngs": rngs}
        self.own = nnx.MultiHeadAttention(**of_attention)
        self.cross = nnx.MultiHeadAttention(**of_attention) if is_decoder else None
        self.wide, self.narrow = nnx.Linear(width, 4 * width, rngs=rngs), nnx.Linear(4 * width, width, rngs=rngs)

    def __call__(self, x, mask, encoded=None, cross_mask=None):
        x = x + self.own(self.norms[0](x), mask=mask)
        if self.cross is not None:
            x = x + self.cross(self.norms[1](x), encoded, mask=cross_mask)
        return x + self.narrow(nnx.gelu(self.wide(self.norms[2](x))))


class EncoderDecoder(nnx.Module):
    """Logits of the targets of packed rows."""

    def __init__(self, ids: int, width: int, heads: int, layers: int, rngs: nnx.Rngs):
        self.embed, self.norm = nnx.Embed(ids, width, rngs=rngs), nnx.RMSNorm(width, rngs=rngs)
        self.encoder = nnx.List([Block(width, heads, False, rngs) for _ in range(layers)])
        self.decoder = nnx.List([Block(width, heads, True, rngs) for _ in range(layers)])

    def __call__(self, batch):
        of_inputs, of_targets = batch["inputs_segment_ids"], batch["targets_segment_ids"]
        encoded = self.read(batch["inputs"], batch["inputs_positions"])
        for block in self.encoder:
            encoded = block(encoded, within(of_inputs, of_inputs))
        positions = batch["targets_positions"]
        shifted = jnp.where(positions == 0, 0, jnp.roll(batch["targets"], 1, axis=1))  # each example begins with id 0
        x = self.read(shifted, positions)
        causal = jnp.tril(jnp.ones((x.shape[1],) * 2, bool))
        for block in self.decoder:
            x = block(x, within(of_targets, of_targets) & causal, encoded, within(of_targets, of_inputs))
        return self.embed.attend(self.norm(x))

    def read(self, ids, positions):
        """Embeddings with the sines of positions, which begin again with each example of a row."""
        width = self.embed.features
        angles = positions[..., None] / 10_000 ** (jnp.arange(0, width, 2) / width)
        return self.embed(ids) * width**0.5 + jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)


def within(queries, keys):
    """[rows, 1, queries, keys], true where both are of one example."""
    return queries[:, None, :, None] == keys[:, None, None, :]


def loss_of(model: EncoderDecoder, batch, count_of_tasks: int):
    """The mean loss of the targets; and the losses and targets of each task, and of padding, summed, [2, tasks + 1]."""
    losses = optax.softmax_cross_entropy_with_integer_labels(model(batch), batch["targets"])
    task_id = jnp.where(batch["task_id"] < 0, count_of_tasks, batch["task_id"])
    sums = jnp.zeros((2, count_of_tasks + 1)).at[:, task_id].add(jnp.stack([losses, jnp.ones_like(losses)]))
    return sums[0, :-1].sum() / sums[1, :-1].sum(), sums


@nnx.jit(static_argnames="count_of_tasks")
def train(model: EncoderDecoder, optimizer: nnx.Optimizer, batch, count_of_tasks: int):
    (loss, sums), gradients = nnx.value_and_grad(loss_of, has_aux=True)(model, batch, count_of_tasks)
    optimizer.update(model, gradients)
    return loss, sums


def main() -> None:
    args = arguments()
    if args.coordinator:
        found = {} if args.coordinator == "auto" else {"num_processes": args.hosts, "process_id": args.host}
        jax.distributed.initialize(None if args.coordinator == "auto" else args.coordinator, **found)
    host, hosts = jax.process_index(), jax.process_count()
    mesh = Mesh(np.array(jax.devices()), ("data",))
    each, rest = divmod(args.rows, jax.device_count())
    if rest or not each:
        raise SystemExit(f"--rows must be a multiple of the number of devices, {jax.device_count()}, got {args.rows}.")

    # The data: packed rows of fixed lengths, by index.
    lengths = {"inputs": args.length, "targets": args.length}
    chunk_tokens = ul2_tasks.best_chunk_tokens(ul2_tasks.T5GEMMA2, lengths)
    mixture = ul2_tasks.Mixture("mine", args.corpus, args.vocabulary, chunk_tokens=chunk_tokens)
    caches = [args.cache] if args.cache else []
    examples = ul2_tasks.examples(mixture, lengths, pack=True, task_id=True, cache_dirs=caches)

    # The model, the same on all hosts.
    width, heads, layers = SIZES[args.model]
    model = EncoderDecoder(ul2_tasks.embedding_rows(mixture.vocabulary), width, heads, layers, nnx.Rngs(0))
    rate = optax.warmup_cosine_decay_schedule(0.0, args.learning_rate, args.warmup, args.steps)
    optimizer = nnx.Optimizer(model, optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(rate)), wrt=nnx.Param)

    # The last checkpoint, if there is one: weights, optimizer, and the index of the next row, which is the state of the data.
    first, row, checkpoint = 0, 0, pathlib.Path(args.output or ".") / "last.msgpack"
    state = nnx.to_pure_dict(nnx.state((model, optimizer)))
    if args.output and checkpoint.exists():
        saved = flax.serialization.msgpack_restore(checkpoint.read_bytes())
        if saved["mixture"] != mixture.fingerprint():
            raise SystemExit(
                f"{checkpoint} is of other data: its corpus, tokenizer, denoisers or chunks were others. Move it away."
            )
        first, row, state = saved["step"], saved["row"], flax.serialization.from_state_dict(state, saved["state"])
    everywhere = NamedSharding(mesh, PartitionSpec())
    nnx.update((model, optimizer), jax.tree.map(lambda values: jax.device_put(np.asarray(values), everywhere), state))

    # Host h of H reads the rows h, h + H, .. of a step. An epoch has other chunks and masks than the one before.
    stop = row + (args.steps - first) * args.rows
    rows = grain.MapDataset.source(examples.epochs())
    own = rows.slice(slice(row + host, stop, hosts)).batch(args.rows // hosts)
    batches = own.to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=4))
    if args.workers:
        flags.FLAGS.mark_as_parsed()  # of absl, which grain's processes ask for theirs
        batches = batches.mp_prefetch(grain.MultiprocessingOptions(num_workers=args.workers))

    by_row, count, sums, began = NamedSharding(mesh, PartitionSpec("data")), len(examples.tasks), 0.0, time.perf_counter()
    for done, batch in enumerate(batches, first + 1):
        placed = {name: jax.make_array_from_process_local_data(by_row, values) for name, values in batch.items()}
        loss, of_step = train(model, optimizer, placed, count)
        sums = sums + of_step
        if host == 0 and (done % args.log_every == 0 or done == args.steps):
            of_tasks, targets = np.asarray(sums)[:, :-1]
            each_task = ", ".join(
                f"{task.denoiser} {mean:.4f}" for task, mean in zip(examples.tasks, of_tasks / np.maximum(targets, 1))
            )
            speed = targets.sum() / (time.perf_counter() - began)
            print(f"step {done}: loss {loss:.4f}, since the last line {each_task}, {speed:.0f} targets/s", flush=True)
            sums, began = 0.0, time.perf_counter()
        if host == 0 and args.output and (done % args.save_every == 0 or done == args.steps):
            checkpoint.parent.mkdir(parents=True, exist_ok=True)
            state = jax.tree.map(np.asarray, flax.serialization.to_state_dict(nnx.to_pure_dict(nnx.state((model, optimizer)))))
            saved = {"step": done, "row": row + (done - first) * args.rows, "mixture": mixture.fingerprint(), "state": state}
            checkpoint.with_suffix(".new").write_bytes(flax.serialization.msgpack_serialize(saved))
            os.replace(checkpoint.with_suffix(".new"), checkpoint)  # so that it is whole at any moment


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--model", choices=SIZES, default="tiny", help="train a model of this size")
    parser.add_argument("--corpus", default="embedded", help="read these files")
    parser.add_argument("--vocabulary", default="default", help="use this tokenizer")
    parser.add_argument("--cache", help="read the tokens that `ul2 cache` wrote here; without it tokenize into memory")
    parser.add_argument("--length", type=int, default=64, help="the tokens of inputs, and of targets")
    parser.add_argument("--rows", type=int, default=8, help="the rows of a step, on all hosts")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--warmup", type=int, default=4, help="raise the learning rate for so long")
    parser.add_argument("--learning_rate", type=float, default=3e-3)
    parser.add_argument("--workers", type=int, default=0, help="the processes that read, on each host; without them a thread reads")
    parser.add_argument("--coordinator", help="host:port of host 0, or auto; without it there is one host")
    parser.add_argument("--hosts", type=int, default=1, help="the number of hosts")
    parser.add_argument("--host", type=int, default=0, help="which of them this is")
    parser.add_argument("--output", help="keep the last checkpoint in this folder, which all hosts see, and resume from it")
    parser.add_argument("--log_every", type=int, default=10)
    parser.add_argument("--save_every", type=int, default=20)
    return parser.parse_args()


if __name__ == "__main__":
    main()
