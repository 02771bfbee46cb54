"""Trains a T5Gemma 2 on interleaved image-text data: images go to the encoder, and UL2 masks the texts around them.

At a tiny size, on a CPU, with random weights and the built-in records (`pip install '.[images,torch]'`):

    python recipes/images_t5gemma2.py

At a real size, from a checkpoint of T5Gemma 2 in a folder, with its tokenizer. The vision tower is not trained:

    python recipes/images_t5gemma2.py --model t5gemma2 --records 'records/*.parquet' --inputs 2048 --targets 512 \
        --rows 32 --microbatch 4 --steps 10000 --warmup 200 --learning_rate 1e-4 --bf16 --log_every 50 --output trained

Cost: the tiny run takes 15 CPU seconds. Real sizes: not measured.

Look at: the loss, which falls, also that of each denoiser, and the images of a step.
"""

import argparse
from typing import Any

import torch
import transformers

import ul2_tasks

UNUSED = [f"<unused{i}>" for i in [*range(96), *range(100, 200)]]  # of Gemma 3's tokenizer; <unused99> is the image token


def main() -> None:
    args = arguments()
    torch.manual_seed(0)
    accumulation, rest = divmod(args.rows, args.microbatch)
    if rest or not accumulation:
        raise SystemExit(f"--rows must be a multiple of --microbatch, {args.microbatch}, got {args.rows}.")

    # The model, and its special tokens: those of a checkpoint, or of a tiny model with four places for an image of 8 x 8 pixels.
    special: dict[str, Any] = {}
    if args.model == "tiny":
        vocabulary, image_tokens = "default", ul2_tasks.ImageTokens(4060, 4061, 4062, image_seq_length=4)
        model = tiny_model(ul2_tasks.embedding_rows(ul2_tasks.default_vocabulary()), image_tokens)
    else:
        vocabulary, image_tokens = args.model, ul2_tasks.ImageTokens()
        special = {"sentinels": UNUSED, "modes": {"[R]": "<unused96>", "[S]": "<unused97>", "[X]": "<unused98>"}}
        model = transformers.AutoModelForSeq2SeqLM.from_pretrained(args.model)
    model.to(args.device).train()
    for name, weight in model.named_parameters():
        weight.requires_grad_("vision_tower" not in name)
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=args.learning_rate)
    schedule = transformers.get_cosine_schedule_with_warmup(optimizer, args.warmup, args.steps)

    # The data, by index: a run resumes by `dataset.load_state_dict`, as in recipes/t5_loop.py.
    lengths = {"inputs": args.inputs, "targets": args.targets}
    records = ul2_tasks.ImageText(
        "records",
        args.records,
        vocabulary,
        image_tokens=image_tokens,
        on_unusable="skip",  # records that are too long, or have no text
        **special,
    )
    dataset = ul2_tasks.UL2IterableDataset(ul2_tasks.examples(records, lengths, task_id=True), batch_size=args.microbatch)
    collate = ul2_tasks.T5Gemma2Collator(model=model)  # its ids, its images, and the rows of its embedding
    batches = iter(torch.utils.data.DataLoader(dataset, args.microbatch, num_workers=args.workers, collate_fn=collate))

    losses, images = ul2_tasks.GroupLosses(ul2_tasks.TokenGroups.of_tasks(dataset.tasks)), 0
    for step in range(1, args.steps + 1):
        parts = [{name: values.to(args.device) for name, values in next(batches).items()} for _ in range(accumulation)]
        targets = torch.stack([losses.counts(part["task_id"]) for part in parts]).sum(0)
        for part in parts:
            task_id, labels = part.pop("task_id"), part.pop("labels")
            images += len(part.get("pixel_values", ()))
            with torch.autocast(args.device, torch.bfloat16, enabled=args.bf16):
                logits = model(**part, use_cache=False).logits
            losses.loss(logits, labels, task_id, targets).backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        if step % args.log_every == 0 or step == args.steps:
            means = ", ".join(f"{name} {mean:.4f}" for name, mean in losses.metrics().items() if "loss" in name)
            print(f"step {step}: {means}, images {images}", flush=True)
            images = 0
    if args.output:
        model.save_pretrained(args.output)


def tiny_model(rows: int, image_tokens: ul2_tasks.ImageTokens) -> Any:
    """A T5Gemma 2 with random weights."""
    text = {"vocab_size": rows, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    text |= {"head_dim": 16, "num_key_value_heads": 1}
    vision = {"model_type": "siglip_vision_model", "image_size": 8, "patch_size": 2, "num_hidden_layers": 1}
    vision |= {"num_attention_heads": 1, "hidden_size": 16, "intermediate_size": 16}
    of_images = {"boi_token_index": image_tokens.boi_id, "eoi_token_index": image_tokens.eoi_id}
    of_images |= {"mm_tokens_per_image": image_tokens.image_seq_length}
    encoder = {"text_config": text, "vision_config": vision, **of_images}
    config = transformers.T5Gemma2Config(encoder=encoder, decoder=dict(text), image_token_index=image_tokens.image_id)
    return transformers.T5Gemma2ForConditionalGeneration(config)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--model", default="tiny", help="train the checkpoint in this folder")
    parser.add_argument("--records", default="embedded", help="read these files of records with texts and images")
    parser.add_argument("--inputs", type=int, default=256, help="the tokens of inputs")
    parser.add_argument("--targets", type=int, default=128, help="the tokens of targets")
    parser.add_argument("--rows", type=int, default=8, help="the rows of a step")
    parser.add_argument("--microbatch", type=int, default=4, help="the rows that are in memory at a time")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--warmup", type=int, default=4, help="raise the learning rate for so long")
    parser.add_argument("--learning_rate", type=float, default=5e-3)
    parser.add_argument("--bf16", action="store_true", help="compute in bfloat16, with weights in float32")
    parser.add_argument("--workers", type=int, default=0, help="the processes that read and decode")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--output", help="write the trained model into this folder")
    parser.add_argument("--log_every", type=int, default=10)
    return parser.parse_args()


if __name__ == "__main__":
    main()
