"""Trains a small Flax encoder-decoder in Kauldron on packed rows of UL2 examples, as a random-access data source.

At a tiny size, on a CPU, with the built-in corpus:

    python recipes/kauldron_ul2.py --output run
    python recipes/kauldron_ul2.py --output run --steps 80  # resumes

At a real size, on all devices. The cache is written once, before the launch:

    ul2 cache mine --corpus 'corpus/*.jsonl.gz' --vocabulary my.model --output CACHE
    python recipes/kauldron_ul2.py --corpus 'corpus/*.jsonl.gz' --vocabulary my.model --cache CACHE --layers 12 --hidden 768 \
        --heads 12 --length 512 --rows 256 --workers 8 --steps 100000 --log_every 100 --save_every 2000 --output run

Cost: 41 steps take 50 s of CPU time, of which 40 s compile. Real sizes: not measured.

Look at: the loss, which begins near ln(vocabulary) and falls. Kauldron writes it into OUTPUT, for TensorBoard.

It needs the package kauldron, 1.4. `examples` has random access and is already shuffled, so grain reads, shards and
resumes it, and does not shuffle.
"""

import argparse
import bisect
import dataclasses
import itertools
import os
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import optax
from flax import linen as nn
from kauldron import kd

import ul2_tasks


class Epochs:
    """The rows of several epochs, one after another; each epoch has other masks and another order."""

    def __init__(self, examples: Any, count: int):
        self.epochs = [examples.epoch(epoch) for epoch in range(count)]
        self.stops = list(itertools.accumulate(map(len, self.epochs)))

    def __len__(self) -> int:
        return self.stops[-1]

    def __getitem__(self, index: int) -> dict[str, Any]:
        epoch = bisect.bisect(self.stops, index)
        return self.epochs[epoch][index - (self.stops[epoch - 1] if epoch else 0)]


@dataclasses.dataclass(frozen=True, eq=True, kw_only=True)
class Printed(kd.train.KDMetricWriter):
    """Kauldron's writer, which also prints the loss."""

    def write_scalars(self, step: int, scalars: Mapping[str, Any]) -> None:
        print(f"step {step}: loss {scalars['losses/loss']:.4f}", flush=True)
        super().write_scalars(step, scalars)


class Block(nn.Module):
    """A layer of the encoder, or, with `read`, of the decoder."""

    heads: int

    @nn.compact
    def __call__(self, x, mask, read=None, read_mask=None):
        def attend(x, to, mask):
            return nn.MultiHeadDotProductAttention(self.heads, use_bias=False)(nn.RMSNorm()(x), to, mask=mask)

        x += attend(x, None, mask)
        if read is not None:
            x += attend(x, read, read_mask)
        return x + nn.Dense(x.shape[-1])(nn.gelu(nn.Dense(4 * x.shape[-1])(nn.RMSNorm()(x))))


class EncoderDecoder(nn.Module):
    """A plain encoder-decoder, in which no example of a row attends to another."""

    vocab_size: int
    length: int
    hidden: int
    layers: int
    heads: int

    inputs: kd.kontext.Key = "batch.inputs"
    inputs_segment_ids: kd.kontext.Key = "batch.inputs_segment_ids"
    inputs_positions: kd.kontext.Key = "batch.inputs_positions"
    targets: kd.kontext.Key = "batch.targets"
    targets_segment_ids: kd.kontext.Key = "batch.targets_segment_ids"
    targets_positions: kd.kontext.Key = "batch.targets_positions"

    @nn.compact
    def __call__(self, inputs, inputs_segment_ids, inputs_positions, targets, targets_segment_ids, targets_positions):
        tokens, positions = nn.Embed(self.vocab_size, self.hidden), nn.Embed(self.length, self.hidden)
        encoder_mask = nn.make_attention_mask(inputs_segment_ids, inputs_segment_ids, jnp.equal)
        decoder_mask = nn.make_attention_mask(targets_segment_ids, targets_segment_ids, jnp.equal)
        decoder_mask = nn.combine_masks(decoder_mask, nn.make_causal_mask(targets))
        cross_mask = nn.make_attention_mask(targets_segment_ids, inputs_segment_ids, jnp.equal)

        x = tokens(inputs) + positions(inputs_positions)
        for _ in range(self.layers):
            x = Block(self.heads)(x, encoder_mask)
        before = jnp.where(targets_positions == 0, 0, jnp.roll(targets, 1, axis=1))  # what the decoder reads
        y = tokens(before) + positions(targets_positions)
        for _ in range(self.layers):
            y = Block(self.heads)(y, decoder_mask, nn.RMSNorm()(x), cross_mask)
        logits = tokens.attend(nn.RMSNorm()(y))
        return {"logits": logits, "labels": targets[..., None], "is_trained": (targets_segment_ids > 0)[..., None]}


def main() -> None:
    new_trainer(arguments()).train()


def new_trainer(args: argparse.Namespace) -> kd.train.Trainer:
    lengths = {"inputs": args.length, "targets": args.length}
    chunk_tokens = ul2_tasks.best_chunk_tokens(ul2_tasks.T5GEMMA2, lengths)
    mixture = ul2_tasks.Mixture("mine", args.corpus, args.vocabulary, chunk_tokens=chunk_tokens)
    examples = ul2_tasks.examples(mixture, lengths, pack=True, cache_dirs=[args.cache] if args.cache else [])
    epochs = args.rows * args.steps // len(examples) + 2  # one more, because epochs differ by a few rows
    data = kd.data.py.DataSource(
        data_source=Epochs(examples, epochs), shuffle=False, num_epochs=1, batch_size=args.rows, num_workers=args.workers
    )
    loss = kd.losses.SoftmaxCrossEntropyWithIntLabels(logits="preds.logits", labels="preds.labels", mask="preds.is_trained")
    return kd.train.Trainer(
        seed=0,
        workdir=os.path.abspath(args.output),
        train_ds=data,
        model=EncoderDecoder(ul2_tasks.embedding_rows(mixture.vocabulary), args.length, args.hidden, args.layers, args.heads),
        num_train_steps=args.steps,
        train_losses={"loss": loss},
        log_metrics_every=args.log_every,
        writer=Printed(),
        optimizer=optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(args.learning_rate, b2=0.98)),
        checkpointer=kd.ckpts.Checkpointer(save_interval_steps=args.save_every),
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--layers", type=int, default=2, help="the layers of the encoder, and of the decoder")
    parser.add_argument("--hidden", type=int, default=64, help="the size of a hidden state")
    parser.add_argument("--heads", type=int, default=4, help="attention heads")
    parser.add_argument("--corpus", default="embedded", help="read these files")
    parser.add_argument("--vocabulary", default="default", help="use this tokenizer")
    parser.add_argument("--cache", help="read the tokens that `ul2 cache` wrote here; without it tokenize into memory")
    parser.add_argument("--length", type=int, default=128, help="the tokens of inputs, and of targets, of a row")
    parser.add_argument("--rows", type=int, default=16, help="the rows of a step, on all devices and hosts")
    parser.add_argument("--workers", type=int, default=0, help="the processes of grain that read")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--learning_rate", type=float, default=3e-3)
    parser.add_argument("--output", default="run", help="keep checkpoints and metrics in this folder, and resume from it")
    parser.add_argument("--log_every", type=int, default=10)
    parser.add_argument("--save_every", type=int, default=20)
    return parser.parse_args()


if __name__ == "__main__":
    main()
