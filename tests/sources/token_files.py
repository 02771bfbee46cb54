"""Documents of tokens in each format that is read, written by bytes here, and by the libraries whose formats they are."""

from __future__ import annotations

import functools
import json
import pathlib
import struct
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from ul2_tasks.store.write import PairWriter

Documents = Sequence[Sequence[int]]
EOS = 1


class Case(NamedTuple):
    """What writes documents into a folder, and what `open_source` is given then, of which {} is the folder.

    `beside` is the file that says what another one has, and `needs` whether a library writes them.
    """

    write: Callable[[pathlib.Path, Documents], object]
    spec: str = "{}"
    options: dict[str, Any] | None = None
    beside: str = ""
    needs: bool = False


def joined(documents: Documents, dtype: str) -> np.ndarray:
    return np.concatenate([np.array(each, dtype) for each in documents])


def ends(documents: Documents) -> np.ndarray:
    return np.cumsum([*map(len, documents)])


def pair(folder: pathlib.Path, documents: Documents) -> None:
    with PairWriter(f"{folder}/a.bin", f"{folder}/a.idx", np.dtype(np.uint16)) as written:
        written.add(joined(documents, "u2"), np.array([*map(len, documents)]))


def dolma(folder: pathlib.Path, documents: Documents) -> None:
    joined(documents, "<u4").tofile(folder / "a.npy")
    lines = [f'{end - len(each)},{end},id,"a, b",1\n' for end, each in zip(ends(documents), documents)]
    (folder / "a.csv.gz").write_bytes(pa.compress("".join(lines).encode(), "gzip", asbytes=True))


def datatrove(folder: pathlib.Path, documents: Documents) -> None:
    joined(documents, "<u2").tofile(folder / "a.ds")
    ends(documents).astype("<u8").tofile(folder / "a.ds.index")


def datatrove_itself(folder: pathlib.Path, documents: Documents) -> None:
    tokenizer = pytest.importorskip("datatrove.pipeline.tokens.tokenizer")
    file = tokenizer.TokenizedFile(str(folder), "a.ds", tokenizer_name_or_path="bytes", save_final_metadata=True, token_size=4)
    for each in documents:
        file.write([*each], None)
    file.close()


def litdata(folder: pathlib.Path, documents: Documents) -> None:
    count, tokens = len(documents), joined(documents, "<i4")
    header = [count, *(4 * (count + 2) + 4 * np.append(0, ends(documents)))]
    (folder / "chunk-0-0.bin").write_bytes(struct.pack(f"<{count + 2}I", *header) + tokens.tobytes())
    chunk = {"chunk_size": count, "dim": len(tokens), "filename": "chunk-0-0.bin"}
    config = {"compression": None, "encryption": None, "data_format": ["no_header_tensor:16"]}
    (folder / "index.json").write_text(json.dumps({"chunks": [chunk], "config": config}))


def litdata_itself(folder: pathlib.Path, documents: Documents, **settings: Any) -> None:
    loader, writer = pytest.importorskip("litdata").TokensLoader(), pytest.importorskip("litdata.streaming.writer")
    writer = writer.BinaryWriter(str(folder), **{"chunk_size": 80, "item_loader": loader} | settings)
    for number, each in enumerate(documents):
        writer[number] = np.array(each, np.int64)
    writer.done(), writer.merge()


def mds(folder: pathlib.Path, documents: Documents | Sequence[str], encoding: str = "ndarray:uint16") -> None:
    """Records of ids, or where `encoding` is that of texts, of texts."""
    said = {"column_names": ["id", "text"], "column_encodings": ["int", encoding], "column_sizes": [8, None]}
    config, records = json.dumps(said).encode(), []
    for number, each in enumerate(documents):
        value = each.encode() if isinstance(each, str) else struct.pack("<BH", 5, len(each)) + joined([each], "<u2").tobytes()
        records.append(struct.pack("<Iq", len(value), number) + value)
    begins = 4 * (len(records) + 2) + len(config) + np.append(0, ends(records))
    content = struct.pack("<I", len(records)) + begins.astype("<u4").tobytes() + config + b"".join(records)
    (folder / "shard.00000.mds").write_bytes(content)
    raw = {"basename": "shard.00000.mds", "bytes": len(content)}
    (folder / "index.json").write_text(json.dumps({"version": 2, "shards": [{"raw_data": raw, "zip_data": None}]}))


def mds_itself(folder: pathlib.Path, documents: Documents, encoding: str = "ndarray", compression: str | None = None) -> None:
    stand_in = types.ModuleType("torchvision")  # a module for images imports it, of which there is no build for the CPU alone
    stand_in.VisionDataset, stand_in.to_tensor = type("VisionDataset", (), {}), None
    pytest.importorskip("transformers")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("torchvision", "torchvision.datasets", "torchvision.transforms", "torchvision.transforms.functional"):
            patch.setitem(sys.modules, name, stand_in)
        streaming = pytest.importorskip("streaming")
    columns = {"text": encoding, "other": "json", "name": "str"}
    with streaming.MDSWriter(columns=columns, out=str(folder), compression=compression, size_limit=2000) as writer:
        for each in documents:
            ids = np.array(each, np.int64 if encoding == "bytes" else np.int32)
            writer.write({"text": ids.tobytes() if encoding == "bytes" else ids, "other": {"a": 1}, "name": "x"})


def table(documents: Documents, kind: pa.DataType) -> pa.Table:
    return pa.table({"text": pa.array(documents, kind)})


def parquet(folder: pathlib.Path, documents: Documents, size: int = -1) -> None:
    pq.write_table(table(documents, pa.list_(pa.int64(), size)), folder / "a.parquet", row_group_size=7)


def arrow(folder: pathlib.Path, documents: Documents) -> None:
    pyarrow.feather.write_feather(table(documents, pa.large_list(pa.uint16())), folder / "a.arrow", chunksize=7)


def lines(folder: pathlib.Path, documents: Documents) -> None:
    (folder / "a.jsonl").write_text("".join(json.dumps({"text": [*each]}) + "\n" for each in documents))


def saved(folder: pathlib.Path, documents: Documents) -> None:
    pytest.importorskip("datasets").Dataset(table(documents, pa.list_(pa.int32()))).save_to_disk(folder / "a")


CASES = {
    "megatron": Case(pair, "megatron:{}/a", None, "a.idx"),
    "flat": Case(
        lambda folder, documents: joined(documents, "<u2").tofile(folder / "a.npy"), "flat:{}", {"dtype": "uint16", "eod": EOS}
    ),
    "flat with a header": Case(lambda folder, documents: np.save(folder / "a", joined(documents, "<u4")), "flat:{}", {"eod": EOS}),
    "flat of dolma": Case(dolma, "flat:{}", None, "a.csv.gz"),
    "datatrove, by bytes": Case(datatrove, "datatrove:{}", None, "a.ds.index"),
    "datatrove": Case(datatrove_itself, "datatrove:{}/*.ds", None, "a.ds.index", True),
    "litdata, by bytes": Case(litdata, "litdata:{}", None, "index.json"),
    "litdata": Case(litdata_itself, "litdata:{}", None, "index.json", True),
    "mds, by bytes": Case(mds, beside="index.json"),
    "mds": Case(mds_itself, beside="index.json", needs=True),
    "mds of bytes": Case(functools.partial(mds_itself, encoding="bytes"), options={"dtype": "int64"}, needs=True),
    "mds, zstd": Case(
        functools.partial(mds_itself, encoding="ndarray:int32", compression="zstd:3"), beside="index.json", needs=True
    ),
    "parquet": Case(parquet),
    "arrow": Case(arrow),
    "jsonl": Case(lines),
    "hf": Case(saved, "hf:{}/a"),
}
