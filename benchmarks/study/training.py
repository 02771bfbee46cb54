"""A model of Transformers, and its training on one objective."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import seqio
import torch
import transformers
from objectives import Objective

from ul2_tasks import UL2DataCollator, embedding_rows
from ul2_tasks.denoising.denoisers import Denoiser


@dataclasses.dataclass(frozen=True)
class Size:
    """How large a model is, how long it is trained, and on how many held-out chunks it is evaluated."""

    d_model: int
    layers: int
    heads: int
    vocabulary: int
    chunk: int
    batch: int
    steps: int
    learning_rate: float
    held_out: int

    @property
    def sentinels(self) -> int:
        """More than any of the denoisers needs: at a rate of a half, spans of three tokens."""
        return self.chunk // 4


SIZES = {
    "smoke": Size(32, 1, 2, 500, 32, 4, 3, 5e-2, 8),
    "small": Size(64, 2, 4, 2048, 128, 8, 800, 5e-2, 256),
    "base": Size(512, 6, 8, 32_000, 512, 128, 10_000, 1e-2, 4096),
}
WARM_UP = 0.1  # of the steps


@dataclasses.dataclass
class Seen:
    """What a training run has worked on, in tokens without padding.

    Attributes:
        text: of the corpus.
        inputs, targets: of the encoder and the decoder.
        flops: six for each token and each parameter that it meets: the encoder's for inputs, the decoder's and the output's for
            targets. What attention costs beyond its parameters is left out.
    """

    text: int = 0
    inputs: int = 0
    targets: int = 0
    flops: float = 0


def new_model(size: Size, vocabulary: seqio.Vocabulary, seed: int) -> transformers.T5ForConditionalGeneration:
    torch.manual_seed(seed)
    config = transformers.T5Config(
        vocab_size=embedding_rows(vocabulary),
        d_model=size.d_model,
        d_kv=size.d_model // size.heads,
        d_ff=4 * size.d_model,
        num_layers=size.layers,
        num_heads=size.heads,
        dropout_rate=0,
        decoder_start_token_id=0,
        use_cache=False,
    )
    return transformers.T5ForConditionalGeneration(config)


def collator(denoisers: tuple[Denoiser, ...] | Denoiser, vocabulary: seqio.Vocabulary, chunk: int, seed: int) -> UL2DataCollator:
    """Corrupts chunks of `chunk` tokens, whichever the denoisers."""
    budgets = {"inputs": 2 * chunk, "targets": 2 * chunk}
    return UL2DataCollator(vocabulary, budgets, denoisers, chunk_tokens=chunk, seed=seed)


def on(device: torch.device, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: rows.to(device) for name, rows in batch.items()}


def precision(device: torch.device) -> torch.autocast:
    """bfloat16 on a GPU."""
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type != "cpu")


def train(
    objective: Objective, size: Size, text: np.ndarray, vocabulary: seqio.Vocabulary, seed: int, device: torch.device
) -> tuple[transformers.T5ForConditionalGeneration, Seen]:
    """Trains a model. The seed decides its weights and which chunks each step has, whatever the objective."""
    model = new_model(size, vocabulary, seed).to(device)
    corrupt = collator(objective.denoisers, vocabulary, size.chunk, seed)
    # T5's weights are drawn for Adafactor, whose steps grow with the size of what they change. AdamW learned far less in as many.
    optimizer = transformers.Adafactor(model.parameters(), size.learning_rate, relative_step=False)
    warm_up = max(1, int(WARM_UP * size.steps))
    rate = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warm_up, (size.steps - step) / max(1, size.steps - warm_up))
    )
    encoder, decoder = (sum(each.numel() for each in part.block.parameters()) for part in (model.encoder, model.decoder))
    output, seen = model.lm_head.weight.numel(), Seen()
    for step, chosen in enumerate(batches(len(text), size.batch, size.steps, seed)):
        corrupt.set_epoch(step * size.batch // len(text))
        batch = on(device, corrupt(list(text[chosen])))
        with precision(device):
            loss = model(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rate.step()
        inputs, targets = int(batch["attention_mask"].sum()), int(batch["decoder_attention_mask"].sum())
        seen.text += text[chosen].size
        seen.inputs += inputs
        seen.targets += targets
        seen.flops += 6 * (encoder * inputs + (decoder + output) * targets)
    return model.eval(), seen


def batches(count: int, size: int, steps: int, seed: int) -> Iterator[np.ndarray]:
    """The numbers of the chunks of each step: permutations of all chunks, one after the other."""
    random, left = np.random.default_rng(seed), np.zeros(0, np.int64)
    for _ in range(steps):
        while len(left) < size:
            left = np.concatenate([left, random.permutation(count)])
        chosen, left = left[:size], left[size:]
        yield chosen
