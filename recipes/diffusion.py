"""Pre-trains a diffusion language model from scratch, in PyTorch or JAX, a Transformer that reads both ways, with exact resume.

At a tiny size, in 20 seconds on a CPU, with the built-in corpus:

    python recipes/diffusion.py                                  # LLaDA's masked diffusion
    python recipes/diffusion.py --kind block                     # by blocks, as BD3-LM; or uniform, or canvas, as DiffusionGemma
    python recipes/diffusion.py --framework jax                  # PyTorch reads; install jax and optax, too
    python recipes/diffusion.py --output run --steps 100         # stopped? Run it again

Cost: 20 CPU seconds. A real run: not measured.

Look at: the loss, which begins near ln(vocabulary), 8.3, for canvas near twice as much, as it has two parts; and falls.
"""

import argparse
import contextlib
import pathlib
from typing import Any

import numpy as np
import torch
import transformers

import ul2_tasks

with contextlib.suppress(ImportError):  # which PyTorch does without
    import jax
    import jax.numpy as jnp
    import optax

MASK = "<extra_id_0>"  # of the built-in vocabulary
KINDS = {  # the denoiser, and whether it reads the clean text beside the noised one
    "mask": (ul2_tasks.MaskDiffusion(mask=MASK), False),
    "uniform": (ul2_tasks.UniformDiffusion(), False),
    "block": (ul2_tasks.BlockDiffusion(mask=MASK, block_length=16), True),
    "canvas": (ul2_tasks.CanvasDiffusion(block_length=32, clean_weight=1.0), True),
}


def loss_of(losses, batch):
    """The weighted mean of the cross entropies of noised tokens, and of a canvas that of the others. No label is shifted."""
    losses, is_noised = losses * batch["loss_weight"], batch["t"] > 0
    is_clean = (batch["loss_weight"] > 0) & ~is_noised
    return sum((losses * part).sum() / part.sum().clip(min=1) for part in (is_noised, is_clean))


def loss_in_torch(logits: torch.Tensor, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return loss_of(torch.nn.functional.cross_entropy(logits.float().transpose(1, 2), batch["labels"], reduction="none"), batch)


def loss_in_jax(logits, batch):
    return loss_of(optax.softmax_cross_entropy_with_integer_labels(logits, batch["labels"].clip(min=0)), batch)


class InTorch:
    """A Llama. It has no causal mask of its own: the batch's says what attends to what."""

    def __init__(self, args: argparse.Namespace, rows: int):
        size = {"hidden_size": args.width, "intermediate_size": 2 * args.width, "num_hidden_layers": 2, "num_attention_heads": 4}
        config = transformers.LlamaConfig(vocab_size=rows, pad_token_id=0, **size)
        self.model, self.device = transformers.LlamaForCausalLM(config).to(args.device), args.device
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.learning_rate)

    def step(self, batch: dict[str, Any]) -> float:
        batch = {name: values.to(self.device) for name, values in batch.items()}
        read = {name: batch[name] for name in ("input_ids", "position_ids", "attention_mask")}
        loss = loss_in_torch(self.model(**read, use_cache=False).logits, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()

    def state(self) -> list:
        return [self.model.state_dict(), self.optimizer.state_dict()]

    def load(self, state: list) -> None:
        for part, saved in zip((self.model, self.optimizer), state):
            part.load_state_dict(saved)


class InJax:
    """The same in jax.numpy, with sines of positions."""

    def __init__(self, args: argparse.Namespace, rows: int):
        width, keys = args.width, iter(jax.random.split(jax.random.key(0), 9))
        shapes = {"attend": (width, 3 * width), "join": (width, width), "widen": (width, 4 * width), "narrow": (4 * width, width)}
        layers = [{name: jax.random.normal(next(keys), of) / of[0] ** 0.5 for name, of in shapes.items()} for _ in range(2)]
        weights = {"layers": layers, "embedding": jax.random.normal(next(keys), (rows, width)) / width**0.5}
        optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(args.learning_rate))
        self.trained = weights, optimizer.init(weights)

        @jax.jit
        def update(weights, of_optimizer, batch):
            loss, gradients = jax.value_and_grad(lambda weights: loss_in_jax(self.logits(weights, batch), batch))(weights)
            changes, of_optimizer = optimizer.update(gradients, of_optimizer, weights)
            return loss, (optax.apply_updates(weights, changes), of_optimizer)

        self.update = update

    @staticmethod
    def logits(weights, batch):
        def normed(x):
            return x * jax.lax.rsqrt((x * x).mean(axis=2, keepdims=True) + 1e-6)

        x, width = weights["embedding"][batch["input_ids"]], weights["embedding"].shape[1]
        angles = batch["position_ids"][..., None] / 10_000 ** (jnp.arange(0, width, 2) / width)
        x = x * width**0.5 + jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=2)
        for layer in weights["layers"]:
            query_key_value = jnp.moveaxis((normed(x) @ layer["attend"]).reshape(*x.shape[:2], 3, 4, -1), 2, 0)  # of 4 heads
            x = x + jax.nn.dot_product_attention(*query_key_value, mask=batch["attention_mask"]).reshape(x.shape) @ layer["join"]
            x = x + jax.nn.gelu(normed(x) @ layer["widen"]) @ layer["narrow"]
        return normed(x) @ weights["embedding"].T

    def step(self, batch: dict[str, Any]) -> float:
        loss, self.trained = self.update(*self.trained, {name: values.numpy() for name, values in batch.items()})
        return float(loss)

    def state(self) -> list:
        return [torch.from_numpy(np.array(values)) for values in jax.tree.leaves(self.trained)]

    def load(self, state: list) -> None:
        self.trained = jax.tree.unflatten(jax.tree.structure(self.trained), [values.numpy() for values in state])


def main() -> None:
    args = arguments()
    torch.manual_seed(0)
    denoiser, clean = KINDS[args.kind]
    source = ul2_tasks.open_source(args.corpus, validation=None if args.corpus == "embedded" else 0.01)
    mixture = ul2_tasks.Mixture("mine", source, args.vocabulary, [denoiser], merge_examples=False)
    rows = ul2_tasks.embedding_rows(mixture.vocabulary)
    model = InJax(args, rows) if args.framework == "jax" else InTorch(args, rows)

    lengths = {"inputs": args.length, "targets": args.length}
    converter = ul2_tasks.DiffusionConverter(clean, pad_token_id=0, embedding_rows=rows)
    dataset = ul2_tasks.UL2IterableDataset(mixture, lengths, feature_converter=converter, rank=0, world_size=1)
    checkpoint, first = pathlib.Path(args.output or ".") / "last.pt", 0
    if args.output and checkpoint.exists():
        saved = torch.load(checkpoint)
        model.load(saved["model"])
        dataset.load_state_dict(saved["data"])
        first = saved["step"]

    batches = iter(torch.utils.data.DataLoader(dataset, args.rows))
    for step in range(first, args.steps):
        batch = next(batches)
        loss = model.step({**batch, "attention_mask": ul2_tasks.packed_attention_masks(batch)["decoder"]})
        print(f"step {step + 1}: loss {loss:.4f}", flush=True)
    if args.output:
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        torch.save({"model": model.state(), "data": dataset.state_dict(), "step": args.steps}, checkpoint)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--kind", choices=KINDS, default="mask", help="what replaces tokens, and what attends to what")
    parser.add_argument(
        "--framework", choices=["torch", "jax"], default="torch", help="train in it; PyTorch reads the rows of both"
    )
    parser.add_argument("--corpus", default="embedded", help="read these files")
    parser.add_argument("--vocabulary", default="default", help="use this tokenizer")
    parser.add_argument("--length", type=int, default=64, help="the tokens of a row")
    parser.add_argument("--rows", type=int, default=16, help="the rows of a step, best a power of 2")
    parser.add_argument("--width", type=int, default=64, help="of the model")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--learning_rate", type=float, default=3e-3)
    parser.add_argument(
        "--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu", help="of PyTorch"
    )
    parser.add_argument("--output", help="keep a checkpoint in this folder, and resume from it")
    return parser.parse_args()


if __name__ == "__main__":
    main()
