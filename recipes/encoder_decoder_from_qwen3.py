"""Turns a decoder-only Qwen3 into an encoder-decoder, continues its pre-training with UL2, and lets it fill in a masked text.

Tiny, with random weights and the built-in corpus, in 15 seconds on a CPU:

    python recipes/encoder_decoder_from_qwen3.py

Real:

    python recipes/encoder_decoder_from_qwen3.py --checkpoint Qwen/Qwen3-0.6B-Base --corpus 'corpus/*.jsonl.gz' --cache CACHE \
        --pack --length 2048 --batch_size 4 --steps 20000 --learning_rate 1e-4 --device cuda --dtype bfloat16

Cost: the tiny run takes 15 CPU seconds. A real run: not measured.

Look at: every tensor of Qwen3 is copied, and the two differences to Qwen3 are 0 up to rounding; the held-out loss of each
denoiser goes down; the text that is filled in at the end. Each line of training has tokens per second.
The model is saved only at the end; `recipes/t5_loop.py` saves checkpoints and resumes.

Transformers has no encoder-decoder of Qwen3, so it is written here from Qwen3's modules, as T5Gemma 2 (arXiv 2512.14856) is built
from Gemma 3's. The encoder is Qwen3 without the causal mask. The decoder has one attention for its own tokens and the encoder's
outputs, with the weights of Qwen3's self-attention for both. Both have the same embedding, so no tensor is new. `generate` has no
cache: it reads the whole text again for each token.

Qwen3's tokenizer has no spare tokens, so sentinels and modes are added. They take the spare rows of the embedding first. It has
no BOS either: the decoder starts with <|endoftext|>, which also pads. Labels are -100 in padding alone, so the loss counts the
end of a text.
"""

import argparse
import dataclasses
import os
import re
import time

import huggingface_hub
import tokenizers
import torch
import transformers
from transformers.models.qwen3 import modeling_qwen3

import ul2_tasks


class MergedAttention(modeling_qwen3.Qwen3Attention):
    """Attends to the decoder's own tokens and to the encoder's outputs at once, with the weights of self-attention."""

    def forward(self, hidden_states, position_embeddings, attention_mask, encoder_hidden_states, **kwargs):
        def heads(projected):
            return projected.unflatten(-1, (-1, self.head_dim))

        query = self.q_norm(heads(self.q_proj(hidden_states))).transpose(1, 2)
        own_key = self.k_norm(heads(self.k_proj(hidden_states))).transpose(1, 2)
        query, own_key = modeling_qwen3.apply_rotary_pos_emb(query, own_key, *position_embeddings)
        cross_key = self.k_norm(heads(self.k_proj(encoder_hidden_states))).transpose(1, 2)  # without a position, as in T5Gemma 2
        value = heads(self.v_proj(torch.cat([hidden_states, encoder_hidden_states], dim=1))).transpose(1, 2)
        attended = torch.nn.functional.scaled_dot_product_attention(
            query, torch.cat([own_key, cross_key], dim=2), value, attention_mask, scale=self.scaling, enable_gqa=True
        )
        return self.o_proj(attended.transpose(1, 2).flatten(2)), None


class Encoder(transformers.Qwen3Model):
    """Qwen3 whose tokens attend to all tokens of their segment."""

    def forward(self, input_ids, attention_mask, position_ids=None, **kwargs):
        mask = ul2_tasks.packed_attention_masks({"segment_ids": attention_mask, "decoder_segment_ids": attention_mask})["encoder"]
        return super().forward(input_ids, {"full_attention": mask}, position_ids)


class Decoder(transformers.Qwen3Model):
    """Qwen3 with merged attention. It reads embeddings, which the encoder has."""

    def __init__(self, config):
        super().__init__(config)
        self.embed_tokens = None
        for index, layer in enumerate(self.layers):
            layer.self_attn = MergedAttention(config, index)


class Qwen3EncoderDecoderConfig(transformers.Qwen3Config):
    model_type = "qwen3_encoder_decoder"  # so that no other class loads what is saved


class Qwen3EncoderDecoder(transformers.Qwen3PreTrainedModel, transformers.GenerationMixin):
    """Packed rows have `packed_input_ids` and segment ids. Another row is one segment, as long as its attention mask."""

    config_class = Qwen3EncoderDecoderConfig
    # Where the config ties them, as that of Qwen3 0.6B does.
    _tied_weights_keys = {"lm_head.weight": "encoder.embed_tokens.weight"}  # noqa: RUF012

    def __init__(self, config):
        super().__init__(config)
        self.encoder, self.decoder = Encoder(config), Decoder(config)
        self.lm_head = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def get_encoder(self, modality=None):
        return self.encoder

    def get_input_embeddings(self):
        return self.encoder.embed_tokens

    def get_output_embeddings(self):
        return self.lm_head

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        decoder_input_ids=None,
        decoder_attention_mask=None,
        labels=None,
        packed_input_ids=None,
        segment_ids=None,
        decoder_segment_ids=None,
        position_ids=None,
        decoder_position_ids=None,
        encoder_outputs=None,
        **kwargs,
    ):
        segments, own_segments = segment_ids, decoder_segment_ids
        if packed_input_ids is None:
            segments, own_segments = attention_mask, decoder_attention_mask
            if own_segments is None:
                own_segments = torch.ones_like(decoder_input_ids)
        if encoder_outputs is None:
            encoder_outputs = self.encoder(input_ids if packed_input_ids is None else packed_input_ids, segments, position_ids)
        masks = ul2_tasks.packed_attention_masks({"segment_ids": segments, "decoder_segment_ids": own_segments})
        decoded = self.decoder(
            inputs_embeds=self.encoder.embed_tokens(decoder_input_ids),
            attention_mask={"full_attention": torch.cat([masks["decoder"], masks["cross"]], dim=-1)},
            position_ids=decoder_position_ids,
            encoder_hidden_states=encoder_outputs.last_hidden_state,
        )
        logits = self.lm_head(decoded.last_hidden_state)
        loss = None
        if labels is not None:
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), ignore_index=-100)
        return transformers.modeling_outputs.Seq2SeqLMOutput(loss=loss, logits=logits)


def main():
    args = arguments()
    torch.manual_seed(0)
    folder = args.checkpoint or write_tiny_checkpoint(os.path.join(args.output, "qwen3"))
    folder = folder if os.path.isdir(folder) else huggingface_hub.snapshot_download(folder)
    qwen = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = add_special_tokens(transformers.AutoTokenizer.from_pretrained(folder), args)
    tokenizer.save_pretrained(os.path.join(args.output, "encoder_decoder"))
    rows = max(qwen.get_input_embeddings().num_embeddings, len(tokenizer))  # never fewer than there are
    print(f"{len(tokenizer):,} tokens, {qwen.get_input_embeddings().num_embeddings:,} rows of the embedding, which become {rows:,}")
    qwen.resize_token_embeddings(rows)
    model = encoder_decoder_of(qwen, tokenizer)
    for part, difference in differences(qwen, model).items():
        print(f"{part} differs from Qwen3 by {difference:.1e} of its largest value")
        assert difference < 1e-3, "the weights are not where they belong"
    del qwen

    converter = ul2_tasks.HuggingFaceFeatureConverter("max_length", model=model, pack=args.pack, task_id=True)
    mixture = describe(args)
    model = model.to(args.device)
    before = held_out_losses(model, mixture, converter, args)
    train(model, mixture, converter, args)
    after = held_out_losses(model, mixture, converter, args)
    for denoiser, loss in after.items():
        print(f"held-out loss of {denoiser}: {before[denoiser]:.3f} before, {loss:.3f} after")

    model.save_pretrained(os.path.join(args.output, "encoder_decoder"))
    model = Qwen3EncoderDecoder.from_pretrained(os.path.join(args.output, "encoder_decoder"))
    fill_in(model.to(args.device), mixture, tokenizer)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--checkpoint", help="a Qwen3 on the Hub or in a folder; tiny and random by default")
    parser.add_argument("--corpus", default="embedded", help="files of documents; by default the built-in corpus")
    parser.add_argument("--cache", help="a folder for the tokenized corpus; by default it is tokenized into memory")
    parser.add_argument("--output", default="qwen3_run", help="a folder for what is saved")
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
    """Saves a random Qwen3, and a byte-level BPE tokenizer whose special tokens come after its others, so that id 0 is a letter."""
    core = tokenizers.Tokenizer(tokenizers.models.BPE())
    core.normalizer = tokenizers.normalizers.NFC()
    core.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = tokenizers.decoders.ByteLevel()
    letters = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    core.train_from_iterator(
        ul2_tasks.embedded_documents(),
        tokenizers.trainers.BpeTrainer(vocab_size=997, initial_alphabet=letters, show_progress=False),
    )
    core.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    end = {"eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=core, **end).save_pretrained(folder)
    config = transformers.Qwen3Config(
        vocab_size=1024,  # 24 rows are spare
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        tie_word_embeddings=True,
    )
    transformers.Qwen3ForCausalLM(config).save_pretrained(folder)
    return folder


def add_special_tokens(tokenizer, args):
    """Adds the sentinels and the modes, by the names that `Mixture` looks for."""
    sentinels = [f"<extra_id_{i}>" for i in range(sentinels_of(args))]
    tokenizer.add_tokens([*sentinels, "[R]", "[S]", "[X]"], special_tokens=True)
    return tokenizer


def sentinels_of(args):
    return max(64, args.length // 12)  # R2 needs the most: targets of 12 tokens and a sentinel, again and again


def encoder_decoder_of(qwen, tokenizer):
    """Returns the encoder-decoder with the weights of a Qwen3, and prints where each went."""
    assert qwen.config.model_type == "qwen3", qwen.config.model_type
    assert {*qwen.config.layer_types} == {"full_attention"}, "sliding windows are not written here"
    changed = {"model_type": "qwen3_encoder_decoder", "is_encoder_decoder": True, "use_cache": False}
    config = Qwen3EncoderDecoderConfig.from_dict(qwen.config.to_dict() | changed)
    model = Qwen3EncoderDecoder(config).eval()
    pad, eos = tokenizer.pad_token_id, tokenizer.eos_token_id
    model.generation_config = transformers.GenerationConfig(
        decoder_start_token_id=pad, pad_token_id=pad, eos_token_id=eos, use_cache=False
    )
    found = qwen.state_dict()
    copied = {"encoder": set(), "decoder": set(), "head": set()}
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            part = "head" if name.startswith("lm_head.") else name.partition(".")[0]
            source = name if part == "head" else name.replace(part, "model", 1)
            assert tensor.shape == found[source].shape, (name, tensor.shape, found[source].shape)
            tensor.copy_(found[source])
            copied[part].add(source)
    left = found.keys() - set().union(*copied.values())
    assert not left, f"tensors of Qwen3 that were not copied: {sorted(left)}"
    print(f"Qwen3 has {len(found)} tensors, {sum(each.numel() for each in qwen.parameters()):,} parameters. Copied:")
    for part, sources in copied.items():
        print(f"  {len(sources):4} to the {part}")
    print(f"  {len(left):4} to nowhere")
    print(f"The encoder-decoder has {sum(each.numel() for each in model.parameters()):,} parameters, none of them new.")
    return model


@torch.no_grad()
def differences(qwen, model):
    """The largest differences to what Qwen3 computes, relative to its largest value: of the decoder, and of the encoder.

    A decoder that attends to none of the encoder's outputs is Qwen3. The encoder is Qwen3 whose tokens attend to all others.
    """
    ids = torch.randint(0, model.config.vocab_size, (2, 24))
    encoded = model.encoder(ids, torch.ones_like(ids))
    hidden = torch.zeros_like(ids)  # a mask by which the encoder's outputs are padding
    of_decoder = model(encoder_outputs=encoded, attention_mask=hidden, decoder_input_ids=ids).logits
    everything = {"full_attention": torch.ones(2, 1, 24, 24, dtype=torch.bool)}
    bidirectional = qwen.model(input_ids=ids, attention_mask=everything)
    pairs = {
        "the decoder without the encoder": (of_decoder, qwen(input_ids=ids).logits),
        "the encoder": (encoded.last_hidden_state, bidirectional.last_hidden_state),
    }
    return {part: ((found - expected).abs().max() / expected.abs().max()).item() for part, (found, expected) in pairs.items()}


def describe(args):
    """The mixture: T5Gemma 2's denoisers over the corpus."""
    source = ul2_tasks.open_source(args.corpus, validation=None if args.corpus == "embedded" else 0.01)
    lengths = {"inputs": args.length, "targets": args.length}
    chunk_tokens = ul2_tasks.best_chunk_tokens(ul2_tasks.T5GEMMA2, lengths) if args.pack else None
    vocabulary = os.path.join(args.output, "encoder_decoder")
    mixture = ul2_tasks.Mixture("qwen3", source, vocabulary, sentinels=sentinels_of(args), chunk_tokens=chunk_tokens)
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
    mask = "segment_ids" if args.pack else "attention_mask"
    every, tokens, start = max(1, args.steps // 10), 0, time.perf_counter()
    rows = torch.utils.data.DataLoader(dataset_of(mixture, converter, args, "train"), batch_size=args.batch_size)
    for step, batch in zip(range(1, args.steps + 1), rows):
        tokens += int((batch[mask] > 0).sum() + (batch["labels"] != -100).sum())
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
def fill_in(model, mixture, tokenizer):
    """Prints a held-out text of R1 as the model reads it, with what it writes, and as it was."""
    model.eval()
    r1 = dataclasses.replace(mixture, denoisers=mixture.denoisers[:1], chunk_tokens=None)
    example = ul2_tasks.examples(r1, {"inputs": 64, "targets": 64}, split="validation")[0]
    inputs = torch.tensor(example["inputs"][None].astype("int64"), device=model.device)
    written = model.generate(input_ids=inputs, attention_mask=torch.ones_like(inputs), max_new_tokens=64, do_sample=False)[0]
    masked = tokenizer.decode(example["inputs"][1:-1])  # without its mode token and EOS
    print("masked:   ", repr(masked))
    for name, targets in (("written", written), ("expected", example["targets"])):
        text = tokenizer.decode(
            [token for token in targets.tolist() if token not in (tokenizer.pad_token_id, tokenizer.eos_token_id)]
        )
        parts = re.split(r"(<extra_id_\d+>)", text)
        spans = dict(zip(parts[1::2], parts[2::2]))  # what is after each sentinel
        print(f"{name + ':':10}", repr(text))
        print(
            "filled in:", repr(re.sub(r"<extra_id_\d+>", lambda sentinel, spans=spans: f"[{spans.get(sentinel[0], '?')}]", masked))
        )


if __name__ == "__main__":
    main()
