"""What `caching.py` runs in processes of their own, and the corpus that SeqIO's own job caches.

    python caching_peers.py make FOLDER MEGABYTES
    python caching_peers.py bare|datasets FORMAT TOKENIZER PATH OUTPUT

The first writes the corpora, of all documents and of the first ten. TOKENIZER is a SentencePiece model, or a folder with a
tokenizer.json.
"""

from __future__ import annotations

import json
import os
import pathlib
import random
import sys
from collections.abc import Callable, Iterator

FEW = 10  # documents, to measure the start-up


def make(folder: str, megabytes: str) -> None:
    """The corpora in all formats, and a folder with a byte-level BPE of 8,000 tokens."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from backports import zstd
    from tokenizers import ByteLevelBPETokenizer

    from ul2_tasks.sources.memory import embedded_documents

    root, draw, embedded = pathlib.Path(folder), random.Random(0), embedded_documents()
    documents, size = [], 0
    while size < float(megabytes) * 1e6:
        documents.append(" ".join(" ".join(draw.choice(embedded).split()) for _ in range(draw.randint(1, 3))))
        size += len(documents[-1])
    for name, some in (("few", documents[:FEW]), ("all", documents)):
        rows = "".join(json.dumps({"text": text}) + "\n" for text in some)
        (root / f"{name}.jsonl").write_text(rows)
        (root / f"{name}.jsonl.zst").write_bytes(zstd.compress(rows.encode()))
        (root / f"{name}.txt").write_text("".join(f"{text}\n" for text in some))
        pq.write_table(pa.table({"text": some}), root / f"{name}.parquet", row_group_size=1000)

    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(embedded, vocab_size=8000, special_tokens=["</s>"], show_progress=False)
    (root / "bpe").mkdir()
    tokenizer.save(str(root / "bpe" / "tokenizer.json"))
    (root / "bpe" / "tokenizer_config.json").write_text('{"eos_token": "</s>"}')


def encoder(tokenizer: str) -> Callable[[list[str]], list[list[int]]]:
    """The tokenizer's own library, on a list of texts; SentencePiece is called for each."""
    if os.path.isdir(tokenizer):
        from tokenizers import Tokenizer

        opened = Tokenizer.from_file(f"{tokenizer}/tokenizer.json")
        return lambda texts: [each.ids for each in opened.encode_batch_fast(texts, add_special_tokens=False)]
    from sentencepiece import SentencePieceProcessor

    processor = SentencePieceProcessor(model_file=tokenizer)
    return lambda texts: [processor.encode(text) for text in texts]


def texts(format: str, path: str) -> Iterator[str]:
    if format == "parquet":
        import pyarrow.parquet as pq

        for batch in pq.ParquetFile(path).iter_batches(columns=["text"]):
            yield from batch.column("text").to_pylist()
        return
    if format == "zst":
        from backports import zstd

        file = zstd.open(path, "rt", encoding="utf-8")
    else:
        file = open(path, encoding="utf-8")  # noqa: SIM115 - it is closed below
    with file:
        for line in file:
            yield line.rstrip("\n") if format == "text" else json.loads(line)["text"]


def bare(format: str, tokenizer: str, path: str, output: str) -> None:
    encode, waiting, tokens = encoder(tokenizer), [], 0
    for text in texts(format, path):
        waiting.append(text)
        if len(waiting) == 1000:
            tokens += sum(map(len, encode(waiting)))
            waiting = []
    print(tokens + sum(map(len, encode(waiting))))


def datasets_map(format: str, tokenizer: str, path: str, output: str) -> None:
    import datasets

    encode = encoder(tokenizer)
    kind = {"jsonl": "json", "zst": "json"}.get(format, format)
    rows = datasets.load_dataset(kind, data_files=path, split="train", cache_dir=f"{output}/cache")
    rows = rows.map(lambda batch: {"ids": encode(batch["text"])}, batched=True, remove_columns=["text"])
    rows.save_to_disk(f"{output}/saved")


if __name__ == "__main__":
    {"make": make, "bare": bare, "datasets": datasets_map}[sys.argv[1]](*sys.argv[2:])
elif "BENCH_CORPUS" in os.environ:  # in SeqIO's own job
    from ul2_tasks import open_source, register

    register("bench", open_source(os.environ["BENCH_CORPUS"]))
