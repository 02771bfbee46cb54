"""A document's split: a function of its id or text, and of nothing else."""

import gzip
import json
import re

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ul2_tasks import open_source
from ul2_tasks.sources.memory import MemoryDataSource
from ul2_tasks.sources.splits import hash_fraction
from ul2_tasks.tasks.sources import seqio_source

DOCUMENTS = [f"document {n}" for n in range(3000)]


def write(path, numbers):
    path.write_text("".join(json.dumps({"text": DOCUMENTS[n], "id": f"id {n}", "number": n}) + "\n" for n in numbers))
    return str(path)


def texts(source, split, seed=None, key="text"):
    dataset = seqio_source(source).get_dataset(split, shuffle=seed is not None, seed=seed)
    return [document[key].decode() for document in dataset.as_numpy_iterator()]


def test_golden(tmp_path):
    """The first 8 bytes of SHA-256, big endian, over 2**64; `printf 'UL2' | sha256sum` begins with the same digits."""
    assert hash_fraction(b"") == 0xE3B0C44298FC1C14 / 2**64
    assert hash_fraction(b"UL2") == 0x372046970CC197A7 / 2**64
    source = open_source(write(tmp_path / "a.jsonl", range(3000)), validation=0.001)
    assert texts(source, "validation") == ["document 1036", "document 1191", "document 2650"]
    assert len(texts(source, "train")) == 2997


def test_a_validation_split_that_is_there_is_not_dropped(tmp_path):
    path = write(tmp_path / "a.jsonl", range(10))
    memory = MemoryDataSource(lambda: DOCUMENTS, 0.1)
    twice = open_source(path, validation=0.1)
    for spec in ({"train": path, "validation": path}, memory, twice):
        with pytest.raises(ValueError, match="validation"):
            open_source(spec, validation=0.01)
    (tmp_path / "hub").mkdir()
    for split in ("train", "validation"):
        write(tmp_path / "hub" / f"{split}.jsonl", range(10))
    with pytest.raises(ValueError, match="validation"):
        open_source(f"hf:{tmp_path}/hub", validation=0.01).list_shards("train")


def test_documents_whose_load_was_interrupted_are_loaded_anew():
    begun = []

    def load():
        yield "a"
        begun.append(True)
        if len(begun) == 1:
            raise KeyboardInterrupt
        yield "b"

    source = MemoryDataSource(load, np.float32(0))
    with pytest.raises(KeyboardInterrupt):
        source.documents("train")
    assert source.documents("train") == ["a", "b"]


def talk(n):
    """A conversation, whose messages have other fields in other conversations."""
    answer = {"content": f"answer {n}", "role": "assistant"} | ({"thinking": f"thought {n}"} if n % 3 == 0 else {})
    call = {"name": "f", "arguments": {"x": n if n % 2 else n + 0.5} | ({"y": [n]} if n % 5 == 0 else {})}
    return [{"role": "user", "content": f"question {n} é"}, answer | ({"calls": [call]} if n % 4 == 0 else {})]


def content(messages):
    return messages[0]["content"], messages[1]["content"]


def read_in_jobs(source):
    """What a job reads of each split, in any order."""
    read = [item for shard in source.shards("train") for item in source.read_group(shard)]
    return {split: [each.as_text for name, each in read if name == split] for split in source.splits}


def test_the_split_of_a_conversation_is_that_of_its_content_in_every_format(tmp_path):
    rows = [{"messages": talk(n)} for n in range(400)]
    as_text = [{"messages": json.dumps(row["messages"], indent=n % 3, sort_keys=n % 2 == 0)} for n, row in enumerate(rows)]

    def lines(rows, **options):
        return "".join(json.dumps(row, **options) + "\n" for row in rows).encode()

    for name, written in {
        "plain.jsonl": lines(rows),
        "sorted.jsonl": lines(rows, sort_keys=True, ensure_ascii=False),
        "packed.jsonl.gz": gzip.compress(lines(rows[::-1], separators=(",", ":"))),
        "text.jsonl": lines(as_text),
        "of_two/a.jsonl": lines(rows[:100]),
        "of_two/b.jsonl": lines(rows[100:]),
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(written)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet", row_group_size=90)
    pq.write_table(pa.Table.from_pylist(as_text), tmp_path / "text.parquet")
    with pa.ipc.new_file(tmp_path / "rows.arrow", pa.Table.from_pylist(rows).schema) as file:
        file.write_table(pa.Table.from_pylist(rows))
    held = datasets.Dataset.from_list(rows)
    held.save_to_disk(tmp_path / "saved")
    files = ("plain.jsonl", "sorted.jsonl", "packed.jsonl.gz", "text.jsonl", "of_two", "rows.parquet", "text.parquet", "rows.arrow")
    sources = [str(tmp_path / name) for name in files] + [f"hf:{tmp_path}/saved", held]
    of_plain = None
    for source in sources:
        for id_key in (None, "messages") if "text." in str(source) else (None,):
            opened = open_source(source, text_key="messages", validation=0.2, id_key=id_key, as_json=True)
            found = {split: sorted(content(json.loads(text)) for text in texts) for split, texts in read_in_jobs(opened).items()}
            of_plain = of_plain or found
            assert found == of_plain, source
        if source in (sources[0], sources[5], sources[6]):  # a stream of JSON Lines, of Parquet, and of text
            streamed = texts(opened, "validation", key="messages")
            assert sorted(content(json.loads(text)) for text in streamed) == of_plain["validation"]
    assert abs(len(of_plain["validation"]) - 80) < 4 * np.sqrt(400 * 0.2 * 0.8)
    assert sum(map(len, of_plain.values())) == 400


def test_a_document_without_an_id_is_a_problem_and_no_document_of_its_own(tmp_path):
    ids = ["a", None, "", 7, True, 1.5, "b"]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": f"t{n}", "id": id}) + "\n" for n, id in enumerate(ids)))
    pq.write_table(
        pa.table({"text": [f"t{n}" for n in range(3)], "id": pa.array([b"1", None, b""], pa.binary())}), tmp_path / "a.parquet"
    )
    bad_lines, bad_rows = ["line 2", "line 3", "line 5", "line 6"], ["row 1", "row 2"]
    for name, whole, bad in (("a.jsonl", ["t0", "t3", "t6"], bad_lines), ("a.parquet", ["t0"], bad_rows)):
        source = open_source(tmp_path / name, id_key="id", validation=0.5)
        read = [d for split in source.splits for d in seqio_source(source).get_dataset(split, shuffle=False).as_numpy_iterator()]
        assert sorted(d["text"].decode() for d in read if not d["problem"]) == whole
        assert sorted(re.findall(r"(?:line|row) \d+", d["problem"].decode())[0] for d in read if d["problem"]) == bad
