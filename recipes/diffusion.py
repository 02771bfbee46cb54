"""Pre-trains a diffusion language model from scratch, a Llama that reads both ways, in PyTorch, with exact resume.

At a tiny size, in 20 seconds on a CPU, with the built-in corpus:

    python recipes/diffusion.py                                  # LLaDA's masked diffusion
    python recipes/diffusion.py --kind block                     # by blocks, as BD3-LM; or uniform, or canvas, as DiffusionGemma
    python recipes/diffusion.py --output run --steps 100         # stopped? Run it again

Cost: 20 CPU seconds. A real run: not measured.

Look at: the loss, which begins near ln(vocabulary), 8.3, for canvas near twice as much, as it has two parts; and falls.
"""

import argparse
import pathlib

import torch
import transformers

import ul2_tasks

MASK = "<extra_id_0>"  # of the built-in vocabulary
KINDS = {  # the denoiser, and whether it reads the clean text beside the noised one
    "mask": (ul2_tasks.MaskDiffusion(mask=MASK), False),
    "uniform": (ul2_tasks.UniformDiffusion(), False),
    "block": (ul2_tasks.BlockDiffusion(mask=MASK, block_length=16), True),
    "canvas": (ul2_tasks.CanvasDiffusion(block_length=32, clean_weight=1.0), True),
}


def loss_of(logits: torch.Tensor, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """The weighted cross entropy over noised tokens, and of a canvas that over the others. No label is shifted."""
    losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), batch["labels"].flatten(), reduction="none")
    losses = losses.view_as(batch["t"]) * batch["loss_weight"]
    is_noised, is_said = batch["t"] > 0, batch["loss_weight"] > 0
    noised, clean = (losses[part & is_said].sum() / part.sum().clamp(min=1) for part in (is_noised, is_said & ~is_noised))
    return noised + clean


def main() -> None:
    args = arguments()
    torch.manual_seed(0)
    denoiser, clean = KINDS[args.kind]
    source = ul2_tasks.open_source(args.corpus, validation=None if args.corpus == "embedded" else 0.01)
    mixture = ul2_tasks.Mixture("mine", source, args.vocabulary, [denoiser], merge_examples=False)

    # The model. It has no causal mask of its own: `packed_attention_masks` says what attends to what.
    rows = ul2_tasks.embedding_rows(mixture.vocabulary)
    size = {"hidden_size": args.width, "intermediate_size": 2 * args.width, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=rows, pad_token_id=0, **size)).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)

    lengths = {"inputs": args.length, "targets": args.length}
    converter = ul2_tasks.DiffusionConverter(clean, model=model)
    dataset = ul2_tasks.UL2IterableDataset(mixture, lengths, feature_converter=converter, rank=0, world_size=1)
    checkpoint, first = pathlib.Path(args.output or ".") / "last.pt", 0
    if args.output and checkpoint.exists():
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        dataset.load_state_dict(saved["data"])
        first = saved["step"]

    batches = iter(torch.utils.data.DataLoader(dataset, args.rows))
    for step in range(first, args.steps):
        batch = {name: values.to(args.device) for name, values in next(batches).items()}
        mask = ul2_tasks.packed_attention_masks(batch)["decoder"]
        read = {"input_ids": batch["input_ids"], "position_ids": batch["position_ids"], "attention_mask": mask}
        loss = loss_of(model(**read, use_cache=False).logits, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step + 1}: loss {loss.item():.4f}", flush=True)
    if args.output:
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "data": dataset.state_dict(), "step": args.steps}
        torch.save(state, checkpoint)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--kind", choices=KINDS, default="mask", help="what replaces tokens, and what attends to what")
    parser.add_argument("--corpus", default="embedded", help="read these files")
    parser.add_argument("--vocabulary", default="default", help="use this tokenizer")
    parser.add_argument("--length", type=int, default=64, help="the tokens of a row")
    parser.add_argument("--rows", type=int, default=16, help="the rows of a step, best a power of 2")
    parser.add_argument("--width", type=int, default=64, help="of the model")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--learning_rate", type=float, default=3e-3)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--output", help="keep a checkpoint in this folder, and resume from it")
    return parser.parse_args()


if __name__ == "__main__":
    main()
