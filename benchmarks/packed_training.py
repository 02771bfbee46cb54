"""What packing gives a training step: `python benchmarks/packed_training.py [--device cuda --size real] [--models t5 t5gemma2]`.

Models of Transformers with random weights take steps of AdamW on the built-in corpus: padded rows of one example each, with the
chunks that the lengths give, and packed rows with the recommended chunks, in turns. Both see the same number of rows. For each it
prints tokens per second of real tokens, inputs and targets, without padding; milliseconds a step; the part of places that have a
token; and the largest memory. Before that, each packed row's loss is compared with the losses of its examples alone, in float32.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time

import torch
import transformers
from rich.console import Console
from rich.table import Table

import ul2_tasks
from ul2_tasks import T5GEMMA2, HuggingFaceFeatureConverter, UL2IterableDataset, accept_packed_sequences, best_chunk_tokens

SIZES = {
    "tiny": {"width": 64, "feed_forward": 128, "layers": 2, "heads": 4, "head": 16, "rows": 512},
    "real": {"width": 768, "feed_forward": 2048, "layers": 12, "heads": 12, "head": 64, "rows": 32128},  # T5 1.1 base
}


def t5(size: dict[str, int], rows: int, implementation: str, name: str = "T5"):
    sizes = {"d_model": size["width"], "d_kv": size["head"], "d_ff": size["feed_forward"]}
    sizes |= {"num_layers": size["layers"], "num_heads": size["heads"], "feed_forward_proj": "gated-gelu", "dropout_rate": 0.0}
    config = getattr(transformers, f"{name}Config")(vocab_size=rows, decoder_start_token_id=0, **sizes)
    return getattr(transformers, f"{name}ForConditionalGeneration")._from_config(config, attn_implementation=implementation)


def gemma_sizes(size: dict[str, int], rows: int) -> dict:
    return {
        "vocab_size": rows,
        "hidden_size": size["width"],
        "intermediate_size": size["feed_forward"],
        "num_hidden_layers": size["layers"],
        "num_attention_heads": size["heads"],
        "num_key_value_heads": max(1, size["heads"] // 4),
        "head_dim": size["head"],
        "query_pre_attn_scalar": size["head"],
        "pad_token_id": 0,
        "attn_logit_softcapping": None,
    }


def t5gemma(size: dict[str, int], rows: int, implementation: str):
    sizes = gemma_sizes(size, rows)
    decoder = {**sizes, "is_decoder": True, "cross_attention_hidden_size": size["width"]}
    config = transformers.T5GemmaConfig(encoder=sizes, decoder=decoder, dropout_rate=0.0, vocab_size=rows)
    return transformers.T5GemmaForConditionalGeneration._from_config(config, attn_implementation=implementation)


def t5gemma2(size: dict[str, int], rows: int, implementation: str):
    sizes = gemma_sizes(size, rows)
    vision = {"model_type": "siglip_vision_model", "image_size": 8, "patch_size": 4, "num_hidden_layers": 1}
    vision |= {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 1}
    encoder = {"text_config": sizes, "vision_config": vision, "mm_tokens_per_image": 4}
    config = transformers.T5Gemma2Config(encoder=encoder, decoder=dict(sizes), dropout_rate=0.0)
    return transformers.T5Gemma2ForConditionalGeneration._from_config(config, attn_implementation=implementation)


MODELS = {
    "t5, sdpa": (t5, "sdpa"),
    "t5, eager": (t5, "eager"),
    "umt5, sdpa": (lambda *given: t5(*given, "UMT5"), "sdpa"),
    "t5gemma, eager": (t5gemma, "eager"),
    "t5gemma, flex_attention": (t5gemma, "flex_attention"),
    "t5gemma2, sdpa": (t5gemma2, "sdpa"),
}


def batches(packed: bool, length: int, count: int):
    """Batches of the built-in corpus without an end."""
    lengths = {"inputs": length, "targets": length}
    chunks = best_chunk_tokens(T5GEMMA2, lengths) if packed else None
    mixture = ul2_tasks.Mixture("packed" if packed else "padded", chunk_tokens=chunks)
    dataset = UL2IterableDataset(mixture, lengths, feature_converter=HuggingFaceFeatureConverter(pack=packed))
    return iter(torch.utils.data.DataLoader(dataset, batch_size=count))


def tokens_of(batch) -> tuple[int, int]:
    """How many places of a batch have a token, and how many places there are."""
    names = ("segment_ids", "decoder_segment_ids") if "segment_ids" in batch else ("attention_mask", "decoder_attention_mask")
    return sum(int((batch[name] > 0).sum()) for name in names), sum(batch[name].numel() for name in names)


def largest_difference(model, batch, device: str) -> float:
    """How far the loss of a packed row is from that of its examples alone, relative, at most."""
    differences = []
    for row in range(len(batch["labels"])):
        one = {name: values[row : row + 1].to(device) for name, values in batch.items()}
        losses, counts = [], []
        for segment in range(1, int(one["segment_ids"].max()) + 1):
            of_encoder, of_decoder = one["segment_ids"] == segment, one["decoder_segment_ids"] == segment
            alone = {"input_ids": one["packed_input_ids"][of_encoder][None], "labels": one["labels"][of_decoder][None]}
            alone["decoder_input_ids"] = one["decoder_input_ids"][of_decoder][None]
            losses.append(model(**alone).loss.item() * int(of_decoder.sum()))
            counts.append(int(of_decoder.sum()))
        packed = model(**one).loss.item()
        differences.append(abs(packed - sum(losses) / sum(counts)) / packed)
    return max(differences)


def steps(model, data, device: str, count: int) -> dict[str, float]:
    """Trains for some steps, of which the first third is not measured."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
    seconds, tokens, places = [], [], []
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    for batch in itertools.islice(data, count):
        found, of_all = tokens_of(batch)
        on_device = {name: values.to(device) for name, values in batch.items()}
        synchronize()
        begun = time.perf_counter()
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
            loss = model(**on_device).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        synchronize()
        seconds.append(time.perf_counter() - begun)
        tokens.append(found)
        places.append(of_all)
    kept = slice(count // 3, None)
    step = statistics.median(seconds[kept])
    memory = torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else float("nan")
    full = sum(tokens[kept]) / sum(places[kept])
    return {"tokens_per_second": statistics.mean(tokens[kept]) / step, "ms": step * 1e3, "full": full, "gib": memory}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument("--models", nargs="*", default=["t5, sdpa"], choices=MODELS)
    parser.add_argument("--length", type=int, default=128, help="of inputs and of targets")
    parser.add_argument("--rows", type=int, default=4, help="of a batch")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--json", help="a file for the numbers")
    arguments = parser.parse_args()
    size, device = SIZES[arguments.size], arguments.device
    rows = max(size["rows"], ul2_tasks.embedding_rows(ul2_tasks.default_vocabulary()))
    table = Table(
        "model", "rows", "tokens/s", "ms a step", "places with a token", "GiB", "packed / padded", "loss of a row differs by"
    )
    told = []
    for name in arguments.models:
        torch.manual_seed(0)
        make, implementation = MODELS[name]
        model = accept_packed_sequences(make(size, rows, implementation)).to(device)
        with torch.no_grad():
            difference = largest_difference(model.eval(), next(batches(True, arguments.length, 2)), device)
        model.train()
        measured: dict[bool, list[dict[str, float]]] = {False: [], True: []}
        for _ in range(arguments.repeats):
            for packed, found in measured.items():
                found.append(steps(model, batches(packed, arguments.length, arguments.rows), device, arguments.steps))
        medians = {
            packed: {key: statistics.median(each[key] for each in found) for key in found[0]} for packed, found in measured.items()
        }
        ratio = medians[True]["tokens_per_second"] / medians[False]["tokens_per_second"]
        for packed, each in medians.items():
            numbers = f"{each['tokens_per_second']:,.0f}", f"{each['ms']:.1f}", f"{each['full']:.1%}", f"{each['gib']:.1f}"
            last = (f"{ratio:.2f}", f"{difference:.1e}") if packed else ("", "")
            table.add_row(name, "packed" if packed else "padded", *numbers, *last)
        told.append({"model": name, "padded": medians[False], "packed": medians[True], "ratio": ratio, "difference": difference})
        print(json.dumps(told[-1]), flush=True)
    Console(width=130).print(table)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(
                {"device": torch.cuda.get_device_name() if device == "cuda" else "cpu", **vars(arguments), "runs": told}, file
            )


if __name__ == "__main__":
    main()
