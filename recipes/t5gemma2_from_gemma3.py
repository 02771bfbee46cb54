"""Turns a decoder-only Gemma 3 into T5Gemma 2, continues its pre-training with UL2, and lets it fill in a masked text.

Tiny, with random weights and the built-in corpus, in half a minute on a CPU:

    python recipes/t5gemma2_from_gemma3.py

Real. First accept the checkpoint's license on the Hub and log in, or pass a folder:

    python recipes/t5gemma2_from_gemma3.py --checkpoint google/gemma-3-270m --corpus 'corpus/*.jsonl.gz' --cache CACHE \
        --pack --length 2048 --batch_size 4 --steps 20000 --learning_rate 1e-4 --device cuda --dtype bfloat16

Cost: the tiny run takes 25 CPU seconds. With random weights of the size of Gemma 3 270M one NVIDIA H200 trained on 60,000 tokens/s
with `--pack` and 50,000 without, at `--length 512 --batch_size 16 --dtype bfloat16`, in 47 GiB. A real run: not measured.

Look at: every tensor of Gemma 3 is copied, and the two differences to Gemma 3 are 0 up to rounding; the held-out loss of each
denoiser goes down; the text that is filled in at the end. Each line of training has tokens per second.
The model is saved only at the end; `recipes/t5_loop.py` saves checkpoints and resumes.

As in the paper (arXiv 2512.14856), the encoder and the decoder begin with the weights of Gemma 3. The embedding of the encoder,
that of the decoder and the head are one tensor. The decoder has one attention for its own tokens and the encoder's outputs, with
the weights of Gemma 3's self-attention for both. So no tensor for text is new. A text-only checkpoint has no vision tower: the
new one is random and has one layer. That of a multimodal checkpoint is copied.
"""

import argparse
import dataclasses
import glob
import os
import re
import shutil
import time

import huggingface_hub
import sentencepiece
import torch
import transformers

import ul2_tasks

# Gemma's spare tokens. <unused99> is T5Gemma 2's image token; the modes take the three before it.
MODES = {"[R]": "<unused96>", "[S]": "<unused97>", "[X]": "<unused98>"}
PAD, BOS = 0, 2  # of Gemma's tokenizer; T5Gemma 2's decoder starts with BOS


def main():
    args = arguments()
    torch.manual_seed(0)
    folder = args.checkpoint or write_tiny_checkpoint(os.path.join(args.output, "gemma3"))
    folder = folder if os.path.isdir(folder) else huggingface_hub.snapshot_download(folder)
    gemma = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    model = t5gemma2_of(gemma)
    for part, difference in differences(gemma, model).items():
        print(f"{part} differs from Gemma 3 by {difference:.1e} of its largest value")
        assert difference < 1e-3, "the weights are not where they belong"
    del gemma

    converter = ul2_tasks.HuggingFaceFeatureConverter("max_length", model=model, pack=args.pack, task_id=True)
    mixture = describe(args, folder)
    # With which its targets end: <end_of_turn> of a chat tokenizer.
    model.generation_config.eos_token_id = mixture.vocabulary.eos_id
    if args.pack:
        model = ul2_tasks.accept_packed_sequences(model)
    model = model.to(args.device)
    before = held_out_losses(model, mixture, converter, args)
    train(model, mixture, converter, args)
    after = held_out_losses(model, mixture, converter, args)
    for denoiser, loss in after.items():
        print(f"held-out loss of {denoiser}: {before[denoiser]:.3f} before, {loss:.3f} after")

    output = os.path.join(args.output, "t5gemma2")
    model.save_pretrained(output)
    for path in glob.glob(os.path.join(folder, "*token*")):  # the files of the tokenizer
        shutil.copy(path, output)
    model = transformers.T5Gemma2ForConditionalGeneration.from_pretrained(output)
    fill_in(model.to(args.device), mixture, output)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--checkpoint", help="a Gemma 3 on the Hub or in a folder; tiny and random by default")
    parser.add_argument("--corpus", default="embedded", help="files of documents; by default the built-in corpus")
    parser.add_argument("--cache", help="a folder for the tokenized corpus; by default it is tokenized into memory")
    parser.add_argument("--output", default="t5gemma2_run", help="a folder for what is saved")
    parser.add_argument("--length", type=int, default=128, help="tokens of the inputs, and of the targets")
    parser.add_argument("--pack", action="store_true", help="put several examples into a row")
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--learning_rate", type=float, default=3e-3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--dtype", default="float32", choices=["float32", "bfloat16"], help="of the computation; weights are float32"
    )
    return parser.parse_args()


def write_tiny_checkpoint(folder):
    """Saves a random Gemma 3 of two kinds of layers, and a tokenizer that has Gemma's special tokens in its order."""
    os.makedirs(folder, exist_ok=True)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(ul2_tasks.embedded_documents()),
        model_prefix=os.path.join(folder, "tokenizer"),
        vocab_size=1000,
        pad_id=PAD,
        eos_id=1,
        bos_id=BOS,
        unk_id=3,
        eos_piece="<eos>",
        bos_piece="<bos>",
        user_defined_symbols=["<mask>", "[multimodal]", *(f"<unused{i}>" for i in range(99))],
        minloglevel=2,
    )
    config = transformers.Gemma3TextConfig(
        vocab_size=1000,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        query_pre_attn_scalar=16,
        sliding_window=64,
        layer_types=["sliding_attention", "full_attention"] * 2,
    )
    transformers.Gemma3ForCausalLM(config).save_pretrained(folder)
    return folder


def t5gemma2_of(gemma):
    """Returns a T5Gemma 2 with the weights of a Gemma 3, and prints where each went."""
    text_config = gemma.config.get_text_config()
    known = {field.name for field in dataclasses.fields(transformers.T5Gemma2TextConfig)} - {"dtype", "architectures"}
    text = {key: value for key, value in text_config.to_dict().items() if key in known}  # sizes, windows, rope, scaling
    tiny = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1}
    vision = {"model_type": "siglip_vision_model", "image_size": 28, "patch_size": 14, **tiny}
    images = {"vision_config": vision, "mm_tokens_per_image": 1}
    if hasattr(gemma.config, "vision_config"):
        images = {key: getattr(gemma.config, key) for key in ("mm_tokens_per_image", "boi_token_index", "eoi_token_index")}
        images["vision_config"] = gemma.config.vision_config.to_dict()
    config = transformers.T5Gemma2Config(encoder={"text_config": text, **images}, decoder=dict(text))
    model = transformers.T5Gemma2ForConditionalGeneration(config).eval()
    model.generation_config = transformers.GenerationConfig(
        decoder_start_token_id=BOS, bos_token_id=BOS, eos_token_id=1, pad_token_id=PAD
    )

    found, new = gemma.state_dict(), []
    copied = {"encoder": set(), "decoder": set(), "head": set(), "images": set()}
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            part, source = name_in_gemma(name, found)
            if source in found:
                assert tensor.shape == found[source].shape, (name, tensor.shape, found[source].shape)
                tensor.copy_(found[source])
                copied[part].add(source)
            elif name.endswith("eoi_embedding") and (eoi := config.eoi_token_index) < text_config.vocab_size:
                tensor.copy_(gemma.get_input_embeddings()(torch.tensor(eoi)))  # with Gemma's scale, which this tensor does not get
            else:
                new.append(name)
    left = found.keys() - set().union(*copied.values())
    assert not left, f"tensors of Gemma 3 that were not copied: {sorted(left)}"
    print(f"Gemma 3 has {len(found)} tensors, {sum(each.numel() for each in gemma.parameters()):,} parameters. Copied:")
    for part, sources in copied.items():
        print(f"  {len(sources):4} to the {part}")
    print(f"  {len(left):4} to nowhere")
    images, others = [name for name in new if "vision" in name or "multi_modal" in name], [name for name in new if "eoi" in name]
    assert len(new) == len(images) + len(others), new
    print(f"T5Gemma 2 has {sum(each.numel() for each in model.parameters()):,} parameters. New, without a source:")
    print(f"  {len(images):4} for images")
    print(f"  {len(others):4} for the end of an image, a token that this vocabulary lacks")
    return model


def name_in_gemma(name, found):
    """The part of T5Gemma 2 that a tensor is in, and its name in Gemma 3."""
    text = "model.language_model." if "model.language_model.norm.weight" in found else "model."
    if match := re.fullmatch(r"model\.(encoder)\.text_model\.(.*)|model\.(decoder)\.(.*)", name):
        part, rest = filter(None, match.groups())
        return part, text + rest.replace("pre_self_attn", "input").replace("post_self_attn", "post_attention")
    if name.startswith("lm_head."):
        return "head", "lm_head.weight"
    return "images", name.replace("model.encoder.", "model.")


@torch.no_grad()
def differences(gemma, model):
    """The largest differences to what Gemma 3 computes, relative to its largest value: of the decoder, and of the encoder.

    A decoder that attends to none of the encoder's outputs is Gemma 3. The encoder is Gemma 3 whose tokens attend to all others;
    this text is shorter than its sliding window.
    """
    ids = torch.randint(3, model.config.decoder.vocab_size, (2, 24))
    encoded = model.get_encoder()(input_ids=ids)
    hidden = torch.zeros_like(ids)  # a mask by which the encoder's outputs are padding
    of_decoder = model(encoder_outputs=encoded, attention_mask=hidden, decoder_input_ids=ids).logits
    everything = dict.fromkeys(["full_attention", "sliding_attention"], torch.ones(2, 1, 24, 24, dtype=torch.bool))
    bidirectional = getattr(gemma.model, "language_model", gemma.model)(input_ids=ids, attention_mask=everything)
    pairs = {
        "the decoder without the encoder": (of_decoder, gemma(input_ids=ids).logits),
        "the encoder": (encoded.last_hidden_state, bidirectional.last_hidden_state),
    }
    return {part: ((found - expected).abs().max() / expected.abs().max()).item() for part, (found, expected) in pairs.items()}


def describe(args, folder):
    """The mixture: T5Gemma 2's denoisers over the corpus."""
    source = ul2_tasks.open_source(args.corpus, validation=None if args.corpus == "embedded" else 0.01)
    lengths = {"inputs": args.length, "targets": args.length}
    needed = max(96, args.length // 12)  # R2 needs the most: targets of 12 tokens and a sentinel, again and again
    sentinels = [f"<unused{i}>" for i in range(needed + 4) if not 96 <= i < 100]
    chunk_tokens = ul2_tasks.best_chunk_tokens(ul2_tasks.T5GEMMA2, lengths) if args.pack else None
    mixture = ul2_tasks.Mixture("t5gemma2", source, folder, sentinels=sentinels, modes=MODES, chunk_tokens=chunk_tokens)
    if args.cache:
        mixture.cache(args.cache)
    return mixture


def dataset_of(mixture, converter, args, split):
    return ul2_tasks.UL2IterableDataset(
        mixture,
        {"inputs": args.length, "targets": args.length},
        split=split,
        num_epochs=None if split == "train" else 1,
        feature_converter=converter,
        cache_dirs=[args.cache] if args.cache else [],
    )


def computation(args):
    return torch.autocast(torch.device(args.device).type, torch.bfloat16, enabled=args.dtype == "bfloat16")


def train(model, mixture, converter, args):
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, weight_decay=0.0)
    schedule = transformers.get_cosine_schedule_with_warmup(optimizer, args.steps // 20, args.steps)
    model.train()
    every, tokens, start = max(1, args.steps // 10), 0, time.perf_counter()
    rows = torch.utils.data.DataLoader(dataset_of(mixture, converter, args, "train"), batch_size=args.batch_size)
    for step, batch in zip(range(1, args.steps + 1), rows):
        ids = batch["packed_input_ids" if args.pack else "input_ids"]
        tokens += int((ids != PAD).sum() + (batch["labels"] != -100).sum())
        batch = {name: values.to(args.device) for name, values in batch.items() if name != "task_id"}
        with computation(args):
            loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % every == 0:
            loss, seconds = loss.item(), time.perf_counter() - start
            print(f"step {step}: loss {loss:.3f}, {tokens / seconds:,.0f} tokens/s, {1000 * seconds / every:.0f} ms/step")
            tokens, start = 0, time.perf_counter()
    if args.device != "cpu":
        print(f"peak memory {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB")


@torch.no_grad()
def held_out_losses(model, mixture, converter, args, most_batches=32):
    """The loss per target token of each denoiser, on documents that are not trained on."""
    model.eval()
    held_out = dataset_of(mixture, converter, args, "validation")
    sums, counts = [torch.zeros(len(held_out.tasks), device=args.device) for _ in range(2)]
    for batch, _ in zip(torch.utils.data.DataLoader(held_out, batch_size=args.batch_size), range(most_batches)):
        batch = {name: values.to(args.device) for name, values in batch.items()}
        task_id, labels = batch.pop("task_id").flatten(), batch.pop("labels").flatten()
        with computation(args):
            logits = model(**batch).logits.flatten(0, 1)
        losses = torch.nn.functional.cross_entropy(logits[labels >= 0].float(), labels[labels >= 0], reduction="none")
        sums.index_add_(0, task_id[labels >= 0], losses)
        counts.index_add_(0, task_id[labels >= 0], torch.ones_like(losses))
    return {task.denoiser: loss for task, loss in zip(held_out.tasks, (sums / counts).tolist())}


@torch.no_grad()
def fill_in(model, mixture, folder):
    """Prints a held-out text of R1 as the model reads it, with what it writes, and as it was."""
    model.eval()
    vocabulary = ul2_tasks.open_vocabulary(folder, sentinels=0, modes=[])
    r1 = dataclasses.replace(mixture, denoisers=mixture.denoisers[:1], chunk_tokens=None)
    example = ul2_tasks.examples(r1, {"inputs": 64, "targets": 64}, split="validation")[0]
    inputs = torch.tensor(example["inputs"][None].astype("int64"), device=model.device)
    written = model.generate(input_ids=inputs, max_new_tokens=64, do_sample=False)[0]
    masked = vocabulary.decode(example["inputs"][1:-1].tolist())  # without its mode token and EOS
    print("masked:   ", repr(masked))
    for name, targets in (("written", written), ("expected", example["targets"])):
        text = vocabulary.decode([token for token in targets.tolist() if token not in (PAD, vocabulary.eos_id, BOS)])
        parts = re.split(r"(<unused\d+>)", text)
        spans = dict(zip(parts[1::2], parts[2::2]))  # what is after each sentinel
        print(f"{name + ':':10}", repr(text))
        print("filled in:", repr(re.sub(r"<unused\d+>", lambda sentinel, spans=spans: f"[{spans.get(sentinel[0], '?')}]", masked)))


if __name__ == "__main__":
    main()
