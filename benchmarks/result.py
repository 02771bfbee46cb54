"""What a model learns: held-out loss by tokens and by seconds, of the recipe of t5 0.9.4 with SeqIO and of this package.

    python benchmarks/result.py FOLDER [--sides t5 joined packed] [--seeds 0 1] [--output docs/result.json]

A T5 1.1 of 5.6 million parameters is trained on the denoisers of T5Gemma 2, 1:1:1:1:4, at 256/256, on one thread, in bfloat16, with
the same documents, first weights, AdamW, and learning rate of each token. `t5` is `t5.data.preprocessors` in SeqIO's mixture and
`joined` this package, both padded, 8 rows a step; `packed` is this package with the recommended chunk lengths, 6 rows a step.

The text is that of sources and pages below `--text`, each content once, in an order by chance; the vocabulary is trained on it. The
held-out loss is of the same rows for all: of each of 48 other documents a piece of 256 tokens, or all of it, that each denoiser
masks in NumPy (`peers/algorithms.py`). It is the mean over the targets of a denoiser, and the mean of these by weight. Seconds are
of the CPU: of the thread in a step (model), and of all else (data), but for evaluations. FOLDER keeps the corpus, checkpoints and
runs that are done: after a kill, the same command goes on.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import pathlib
import sys
import time
from collections.abc import Iterator
from typing import Any

os.environ.update({"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""})

import numpy as np
import torch
from exact_ids import texts
from measure import HERE, in_new_process, machine

import ul2_tasks

sys.path += [str(HERE / "peers"), str(HERE.parent / "recipes")]
DENOISERS, LENGTHS, IDS, SENTINELS = ul2_tasks.T5GEMMA2, {"inputs": 256, "targets": 256}, 8192, 100
ROWS = {"t5": 8, "joined": 8, "packed": 6}
SIZE: dict[str, Any] = {"vocab_size": IDS, "d_model": 256, "d_kv": 64, "d_ff": 640, "num_layers": 2, "num_heads": 4}
LEARNING_RATE, WARM_UP = 2e-3, 0.05
HELD_OUT, LEAST, PIECE, CHARACTERS, EVALUATIONS = 48, 64, 256, 5_000_000, 8


def prepare(folder: pathlib.Path, text: str, tokens: int) -> None:
    """Writes vocabulary, held-out pieces, and documents of a fourth more tokens than are trained on."""
    from corpus import write_documents, write_records
    from sentencepiece import SentencePieceProcessor
    from train_vocabulary import sentences, train

    folder.mkdir(parents=True, exist_ok=True)
    documents = list(texts(text, max(5 * tokens, 2_000_000), (".py", ".md", ".rst")))
    model = train(sentences(documents, CHARACTERS), IDS - SENTINELS, sentinels=0)
    (folder / "my.model").write_bytes(model)
    encoded = [np.array(ids, np.int32) for ids in SentencePieceProcessor(model_proto=model).encode(documents) if len(ids) >= LEAST]
    random, (held_out, others) = np.random.default_rng(0), (encoded[:HELD_OUT], encoded[HELD_OUT:])
    starts = [random.integers(max(0, len(each) - PIECE) + 1) for each in held_out]
    np.savez(folder / "held_out.npz", *(each[start : start + PIECE] for each, start in zip(held_out, starts)))
    sizes = np.cumsum([len(each) for each in others])
    kept = others[: int(np.searchsorted(sizes, 1.25 * tokens)) + 1]
    for write in (write_documents, write_records):
        write(folder, [[each] for each in kept])
    (folder / "ready.json").write_text(json.dumps({"documents": len(kept), "tokens": int(sizes[len(kept) - 1])}))


def vocabulary(folder: pathlib.Path) -> tuple[Any, tuple[int, ...]]:
    """The model with sentinels after it, and these from the last one downwards, as t5 counts them."""
    return ul2_tasks.open_vocabulary(str(folder / "my.model"), sentinels=SENTINELS), tuple(range(IDS - 1, IDS - 1 - SENTINELS, -1))


def batch_of(inputs: np.ndarray, targets: np.ndarray) -> dict[str, torch.Tensor]:
    ids, labels = (torch.from_numpy(half).long() for half in (inputs, targets))
    return {"input_ids": ids, "attention_mask": ids > 0, "labels": labels.masked_fill(labels == 0, -100)}


def of_t5(folder: pathlib.Path, seed: int) -> Iterator[dict[str, torch.Tensor]]:
    import seqio
    import tensorflow as tf
    from recipe import add_t5_mixture, token_records

    features = {key: seqio.Feature(seqio.SentencePieceVocabulary(str(folder / "my.model"), SENTINELS)) for key in LENGTHS}
    name = add_t5_mixture("result", *token_records(folder), features, DENOISERS, vocabulary(folder)[1])
    given = {"dataset_split": "train", "shuffle": True, "seed": seed, "num_epochs": None, "batch_size": ROWS["t5"]}
    dataset = seqio.get_dataset(name, LENGTHS, seqio.EncDecFeatureConverter(pack=False), **given)
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    for batch in dataset.with_options(options).as_numpy_iterator():
        yield batch_of(batch["encoder_input_tokens"], batch["decoder_target_tokens"])


def of_ours(folder: pathlib.Path, seed: int, pack: bool) -> Iterator[dict[str, torch.Tensor]]:
    caps = ul2_tasks.best_chunk_tokens(DENOISERS, LENGTHS) if pack else None
    pieces, sentinels = vocabulary(folder)
    source = ul2_tasks.open_source(f"megatron:{folder / 'documents'}")
    mixture = ul2_tasks.Mixture("result", source, pieces, DENOISERS, sentinels=sentinels, chunk_tokens=caps)
    converter = ul2_tasks.HuggingFaceFeatureConverter("max_length", pack=pack, decoder_start_token_id=0)
    dataset = ul2_tasks.UL2IterableDataset(mixture, LENGTHS, seed=seed, feature_converter=converter)
    yield from torch.utils.data.DataLoader(dataset, ROWS["packed" if pack else "joined"])


def held_out_batches(folder: pathlib.Path) -> Iterator[list[dict[str, torch.Tensor]]]:
    """Those of each denoiser."""
    from algorithms import corrupt, padded

    from ul2_tasks.tokenizers.special_ids import special_tokens

    random, (pieces, sentinels) = np.random.default_rng(0), vocabulary(folder)
    for denoiser in DENOISERS:
        special = special_tokens(pieces, denoiser.mode, sentinels)
        rows = [corrupt(piece, denoiser, special, random) for piece in np.load(folder / "held_out.npz").values()]
        parts = [rows[first : first + 16] for first in range(0, len(rows), 16)]
        yield [batch_of(*(padded([row[key] for row in part], LENGTHS[key]) for key in LENGTHS)) for part in parts]


def train(place: str, side: str, number: str, of_text: str) -> dict[str, Any]:
    """The curve of a side, and what it took."""
    from t5_loop import T5
    from transformers import T5Config, T5ForConditionalGeneration

    folder, seed, tokens = pathlib.Path(place), int(number), int(of_text)
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    held_out, weights = list(held_out_batches(folder)), [denoiser.weight for denoiser in DENOISERS]
    model: Any = ul2_tasks.accept_packed_sequences(T5ForConditionalGeneration(T5Config(**SIZE, **T5)))
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.01)
    is_text = (torch.arange(IDS) > 5) & (torch.arange(IDS) < IDS - SENTINELS)  # not padding, EOS, unknown, three modes
    done: dict[str, Any] = {"side": side, "seed": seed, "parameters": model.num_parameters(), "curve": []}
    done |= {"steps": 0, "places": 0, "text": 0, "model": 0.0, "data": 0.0}
    checkpoint = folder / f"{side}_{seed}.pt"
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        done = saved["done"]
    batches = of_t5(folder, seed) if side == "t5" else of_ours(folder, seed, side == "packed")
    if done["steps"]:
        next(itertools.islice(batches, done["steps"] - 1, None))
    apart = time.process_time() - done["model"] - done["data"]  # what no side is charged with
    while done["text"] < tokens:
        batch, began = next(batches), time.thread_time()
        part = min(1.0, done["text"] / tokens)
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * min(1, (part + 1e-3) / WARM_UP) * (0.5 + 0.5 * math.cos(math.pi * part))
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        done["model"] += time.thread_time() - began
        halves = [batch["input_ids" if "input_ids" in batch else "packed_input_ids"], batch["labels"].clamp(min=0)]
        before, done["text"] = done["text"], done["text"] + sum(int(is_text[half].sum()) for half in halves)
        done.update(steps=done["steps"] + 1, places=done["places"] + sum(half.numel() for half in halves))
        if done["text"] * EVALUATIONS // tokens == before * EVALUATIONS // tokens:
            continue
        done["data"], began = time.process_time() - apart - done["model"], time.thread_time()
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            of_each = [zip(*((float(model(**each).loss), int((each["labels"] > 0).sum())) for each in rows)) for rows in held_out]
        means = [float(np.average(losses, weights=counts)) for losses, counts in of_each]
        point = {key: done[key] for key in ("text", "model", "data")} | {"loss": float(np.average(means, weights=weights))}
        done["curve"].append(point | {denoiser.name: mean for denoiser, mean in zip(DENOISERS, means)})
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "done": done}, checkpoint.with_suffix(".new"))
        checkpoint.with_suffix(".new").replace(checkpoint)
        apart += time.thread_time() - began
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--tokens", type=int, default=2_000_000, help="of text, of each run")
    parser.add_argument("--sides", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--text", default=str(pathlib.Path(np.__file__).parents[1]), help="by default the packages of this Python")
    parser.add_argument("--output", type=pathlib.Path)
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(train(*sys.argv[2:])))
        return
    given = parser.parse_args()
    if not (given.folder / "ready.json").exists():
        prepare(given.folder, given.text, given.tokens)
    for seed, side in itertools.product(given.seeds, given.sides):
        path = given.folder / f"{side}_{seed}.json"
        if not path.exists():
            path.write_text(json.dumps(in_new_process(__file__, given.folder, side, seed, given.tokens)))
    if given.output:
        runs = [json.loads(path.read_text()) for path in sorted(given.folder.glob("*_*.json"))]  # and what was there
        result = {"machine": machine(), "corpus": json.loads((given.folder / "ready.json").read_text()), "runs": runs}
        given.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
