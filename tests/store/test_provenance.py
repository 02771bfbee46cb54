"""Tables of where documents are from: what is written is found again, by number, id, hash, file and row."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ul2_tasks.store import provenance
from ul2_tasks.store.provenance import Origin, Provenance, Table, TableWriter, hashes_of, provenance_of_pairs
from ul2_tasks.store.write import PairWriter

FILES = ("corpus/web-0000.jsonl", "corpus/web-0001.jsonl", "books/web-0001.jsonl", "")
IDS = st.sampled_from(["", "a", "b", "ß", "a longer id"])
TABLES = st.lists(st.tuples(st.sampled_from(FILES), st.integers(0, 50), st.lists(IDS, max_size=9)), max_size=6)


def written(folder, tables) -> tuple[Provenance, list[Origin]]:
    """Tables, each of a file, what comes before its rows, and the ids; and the origins of all documents."""
    made, origins = [], []
    for number, (file, before, ids) in enumerate(tables):
        path, rows = str(folder / f"{number}.origins.arrow"), np.arange(len(ids)) * 2 + 1
        hashes = hashes_of(f"{number} {row}".encode() for row in rows // 4)
        with TableWriter(path, file) as table:
            for first in range(0, len(ids), 2):
                some = slice(first, first + 2)
                table.add(rows[some], [id.encode() for id in ids[some]], hashes[some])
        if ids:
            made.append(Table(path, file, before, len(ids), table.entry["sha256"]))
        origins += map(Origin, [file] * len(ids), (rows + before).tolist(), ids, hashes.tolist())
    return Provenance(tuple(made)), origins


@pytest.mark.parametrize("rows_at_a_time", [1, 3, 1 << 16])
@settings(max_examples=20, deadline=None)
@given(tables=TABLES, data=st.data())
def test_each_document_is_where_it_was_written(tmp_path_factory, rows_at_a_time, tables, data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "_ROWS_AT_A_TIME", rows_at_a_time)
        found, origins = written(tmp_path_factory.mktemp("tables"), tables)
    assert len(found) == len(origins)
    assert found.of(range(len(origins))) == origins
    some = data.draw(st.lists(st.integers(0, len(origins) - 1), max_size=5)) if origins else []
    assert pickle.loads(pickle.dumps(found)).of(some) == [origins[number] for number in some]

    def expected(values, is_meant):
        return [
            (number, which)
            for number, origin in enumerate(origins)
            for which, value in enumerate(values)
            if is_meant(origin, value)
        ]

    def pairs(found):
        return list(zip(found.documents.tolist(), found.which.tolist()))

    assert pairs(found.with_ids(["ß", "b", "no"])) == expected(["ß", "b", "no"], lambda origin, id: origin.id == id)
    names = ["web-0001.jsonl", "books/web-0001.jsonl"]
    assert pairs(found.in_files(names)) == expected(names, lambda origin, name: f"/{origin.file}".endswith(f"/{name}"))
    rows = [("web-0000.jsonl", 1), ("web-0001.jsonl", 13), ("web-0001.jsonl", 2), ("web-0000.jsonl", 23)]
    is_row = lambda origin, row: (origin.file.split("/")[-1], origin.row) == row  # noqa: E731
    assert pairs(found.in_rows(rows)) == expected(rows, is_row)


def test_a_pair_without_a_table_is_known_by_its_name(tmp_path):
    prefixes = [str(tmp_path / name) for name in ("one", "two")]
    for prefix in prefixes:
        with PairWriter(f"{prefix}.bin", f"{prefix}.idx", np.dtype(np.uint16)) as pair:
            pair.add(np.array([5, 6, 7]), np.array([2, 1]))
    with TableWriter(f"{prefixes[1]}.origins.arrow", "a.jsonl") as table:
        table.add(np.array([4, 9]), [b"x", b"y"], np.array([1, 2], np.uint64))
    found = provenance_of_pairs(prefixes, [2, 2])
    assert found.of([1, 2]) == [Origin(prefixes[0], 1, "", 0), Origin("a.jsonl", 4, "x", 1)]
    assert str(found.of([2])[0]) == "a.jsonl, row 4, id x"
    assert found.in_rows([("one", 1), ("a.jsonl", 9)]).documents.tolist() == [1, 3]


def test_what_is_no_table_of_these_documents_is_refused(tmp_path):
    found, _ = written(tmp_path, [("a.jsonl", 0, ["x", "y"])])
    (table,) = found.tables
    with pytest.raises(IndexError, match="documents"):
        found.of([0, 2])
    with pytest.raises(ValueError, match="3 documents"):
        Provenance((table._replace(documents=3),)).of([0])
    (tmp_path / "other").write_bytes(b"no table")
    with pytest.raises(ValueError, match="other"):
        Provenance((table._replace(path=str(tmp_path / "other")),)).of([0])
