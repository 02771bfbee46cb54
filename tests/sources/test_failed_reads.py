"""A read that fails is never the end of a file, and never a bad record: it is tried again, and then an error names the object."""

import gzip
import io
import json
import lzma
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from backports import zstd
from faulty import FAULTS, LASTING, SHORT, FaultyFileSystem
from image_sources import made

from ul2_tasks import open_source
from ul2_tasks.files import retries
from ul2_tasks.images.records import open_records
from ul2_tasks.sources.shard_records import shard_records

TEXTS = [f"document {number} {np.random.default_rng(number).bytes(40).hex()}" for number in range(300)]
LINES = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS).encode()
TABLE = pa.table({"text": TEXTS})


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(retries, "_WAITS", (0.0,) * 3)
    yield
    FaultyFileSystem.fails()


def arrow(new) -> bytes:
    sink = io.BytesIO()
    with new(sink, TABLE.schema) as writer:
        writer.write_table(TABLE, max_chunksize=100)
    return sink.getvalue()


def parquet(table=TABLE) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=-(-len(table) // 3), compression="none", use_dictionary=False)
    return sink.getvalue()


def tar() -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        for number, record in enumerate(RECORDS):
            for name, content in ((f"{number}.png", record["image"]), (f"{number}.txt", record["captions"][0].encode())):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return sink.getvalue()


RECORDS = made(6)
CAPTIONS = [{"captions": [f"caption {number} {text}"]} for number, text in enumerate(TEXTS)]
CAPTION_LINES = "".join(json.dumps(record) + "\n" for record in CAPTIONS).encode()
TEXT_FILES = {
    "a.txt": ("\n".join(TEXTS).encode(), {"documents": "line"}),
    "whole.txt": ("\n".join(TEXTS).encode(), {"documents": "file"}),
    "paragraphs.txt": ("\n\n".join(TEXTS).encode(), {"documents": "paragraph"}),
    "a.jsonl": (LINES, {}),
    "a.jsonl.gz": (gzip.compress(LINES), {}),
    "a.jsonl.bz2": (__import__("bz2").compress(LINES), {}),
    "a.jsonl.xz": (lzma.compress(LINES), {}),
    "a.jsonl.zst": (zstd.compress(LINES), {}),
    "a.parquet": (parquet(), {}),
    "a.arrow": (arrow(pa.ipc.new_file), {}),
    "stream.arrow": (arrow(pa.ipc.new_stream), {}),
}
IMAGE_FILES = {
    "images.parquet": parquet(pa.Table.from_pylist(RECORDS)),
    "captions.jsonl": CAPTION_LINES,
    "captions.jsonl.gz": gzip.compress(CAPTION_LINES),
    "images.tar": tar(),
    "images.tar.gz": gzip.compress(tar()),
}


def texts_of(path: str, name: str) -> list:
    source = open_source(path, **TEXT_FILES[name][1])
    shards = len(source.list_shards("train"))
    return [
        (each.text, each.problem) for shard in range(shards) for _, each in shard_records(source, ["train"], shard, shards, "text")
    ]


def images_of(path: str, name: str) -> list:
    records = open_records(path)
    return [(place, str(record)) for piece in records.pieces for place, record in records.read(piece, 0)]


FORMATS = {
    **{name: (content, texts_of) for name, (content, _) in TEXT_FILES.items()},
    **{name: (content, images_of) for name, content in IMAGE_FILES.items()},
}


@pytest.mark.parametrize("name", FORMATS)
def test_each_fault_of_each_request_changes_nothing_or_is_an_error_that_names_the_file(tmp_path, name):
    content, read = FORMATS[name]
    (tmp_path / name).write_bytes(content)
    path = f"faulty://{tmp_path / name}"
    FaultyFileSystem.fails()
    wanted, requests = read(path, name), FaultyFileSystem.requests
    assert len(wanted) == {"whole.txt": 1}.get(name, 6 if name.startswith("images") else 300)
    assert not any(problem for _, problem in wanted) or read is images_of
    for number in range(requests):
        for fault in FAULTS.values():
            FaultyFileSystem.fails(fault, number)
            assert read(path, name) == wanted, (number, fault)
    for number in {0, 1, requests // 2, requests - 1}:
        for fault in {**FAULTS, **LASTING}.values():
            FaultyFileSystem.fails(fault, number, last=-1)
            try:
                found = read(path, name)
            except OSError as error:
                assert name in str(error), (number, fault)
            else:  # what is short for ever is read in the end, but nothing else
                assert (fault, found) == (SHORT, wanted)
