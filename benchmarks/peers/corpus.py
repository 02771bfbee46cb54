"""Writes the one corpus of this benchmark as each peer reads it: `python corpus.py FOLDER TOKENS`.

Documents of lognormal lengths, 800 tokens on average, made of sentences of the embedded corpus, in the ids of the default
vocabulary. Three folders have them: `all`; and `even` and `odd`, in which each id is made even or odd, so that a mixture of the two
tells of which corpus an example is. In each are, with the same tokens in the same order,

    documents.bin, .idx   Megatron-LM's, a document each: what this package reads
    sentences.bin, .idx   Megatron-LM's, a sentence each, which its T5 dataset wants
    tokens.npy            one array, and lengths.npy, how long each document is
    records               TFRecords of tf.train.Example: what SeqIO reads
    mds_N, litdata        MosaicML Streaming's chunks of N tokens, and litData's tokens
"""

from __future__ import annotations

import contextlib
import pathlib
import sys
from collections.abc import Iterator

import numpy as np
from vocabulary import MODEL

FOLDERS = ("all", "even", "odd")
SHARDS = 16
MEAN_DOCUMENT, MAX_DOCUMENT = 800, 65536  # t5's recipe cuts longer ones, and drops the rest


def draw_documents(tokens: int) -> list[list[np.ndarray]]:
    """The sentences of each document, [tokens] int32."""
    import sentencepiece

    from ul2_tasks import embedded_documents

    processor = sentencepiece.SentencePieceProcessor(model_file=str(MODEL))
    texts = [sentence for text in embedded_documents() for sentence in text.replace("\n", " ").split(". ") if sentence.strip()]
    sentences = [np.array(ids, np.int32) for ids in processor.encode([f"{text}." for text in texts]) if ids]
    random = np.random.default_rng(0)
    documents = []
    for length in random.lognormal(np.log(MEAN_DOCUMENT) - 1 / 2, 1, size=max(SHARDS, tokens // MEAN_DOCUMENT)):
        left, document = min(int(length), MAX_DOCUMENT), []
        while left > 0:
            document.append(sentences[random.integers(len(sentences))][:left])
            left -= len(document[-1])
        documents.append(document)
    return documents


def with_parity(ids: np.ndarray, parity: int | None) -> np.ndarray:
    return ids if parity is None else 1000 + 2 * (ids % 1000) + parity  # all of them are ordinary pieces


def write_arrays(folder: pathlib.Path, documents: list[list[np.ndarray]]) -> None:
    np.save(folder / "tokens.npy", np.concatenate([sentence for document in documents for sentence in document]))
    np.save(folder / "lengths.npy", [sum(map(len, document)) for document in documents])


def write_documents(folder: pathlib.Path, documents: list[list[np.ndarray]]) -> None:
    from ul2_tasks.store.write import PairWriter

    with PairWriter(str(folder / "documents.bin"), str(folder / "documents.idx"), np.dtype(np.uint16)) as pair:
        for document in documents:
            pair.add(np.concatenate(document), np.array([sum(map(len, document))]))


def write_sentences(folder: pathlib.Path, documents: list[list[np.ndarray]]) -> None:
    import torch
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

    builder = IndexedDatasetBuilder(str(folder / "sentences.bin"), dtype=np.uint16)
    for document in documents:
        builder.add_document(torch.from_numpy(np.concatenate(document)), list(map(len, document)))
    builder.finalize(str(folder / "sentences.idx"))


def write_records(folder: pathlib.Path, documents: list[list[np.ndarray]]) -> None:
    import tensorflow as tf

    (folder / "records").mkdir()
    for shard in range(SHARDS):
        with tf.io.TFRecordWriter(str(folder / "records" / f"{shard:05}")) as file:
            for document in documents[shard::SHARDS]:
                feature = tf.train.Feature(int64_list=tf.train.Int64List(value=np.concatenate(document)))
                file.write(tf.train.Example(features=tf.train.Features(feature={"targets": feature})).SerializeToString())


def write_mds(folder: pathlib.Path, lengths: list[int]) -> None:
    """Chunks of so many tokens, as users of MosaicML Streaming write them; what is left at the end is dropped."""
    from streaming import MDSWriter

    tokens = np.load(folder / "tokens.npy")
    for length in lengths:
        with MDSWriter(out=str(folder / f"mds_{length}"), columns={"tokens": "ndarray:uint16"}, compression=None) as writer:
            for chunk in tokens[: len(tokens) // length * length].reshape(-1, length).astype(np.uint16):
                writer.write({"tokens": chunk})


def documents_of(folder: str) -> Iterator:
    import torch

    tokens, lengths = (np.load(pathlib.Path(folder) / f"{name}.npy") for name in ("tokens", "lengths"))
    yield from map(torch.from_numpy, np.split(tokens, np.cumsum(lengths)[:-1]))


def write_litdata(folder: pathlib.Path) -> None:
    from litdata import TokensLoader, optimize

    optimize(
        fn=documents_of,
        inputs=[str(folder)],
        output_dir=str(folder / "litdata"),
        chunk_size=1 << 20,
        item_loader=TokensLoader(),
        num_workers=1,
    )


def main() -> None:
    root, tokens = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    chunks = [int(length) for length in sys.argv[3:]]
    documents = draw_documents(tokens)
    for name, parity in zip(FOLDERS, (None, 0, 1)):
        folder = root / name
        folder.mkdir()
        marked = [[with_parity(sentence, parity) for sentence in document] for document in documents]
        write_arrays(folder, marked)
        write_documents(folder, marked)
        others = (write_records, marked), (write_sentences, marked), (write_mds, chunks), (write_litdata,)
        for write, *given in others:
            with contextlib.suppress(ImportError):  # then that side does not run here either
                write(folder, *given)


if __name__ == "__main__":
    main()
