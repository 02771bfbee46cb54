"""A cache says of each document where it is from, and which records it refused; each source has its own places."""

import gzip
import json
import pathlib

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import seqio

import ul2_tasks
from tests.images.image_support import image
from ul2_tasks.corpus import cache
from ul2_tasks.corpus.build_cache import build
from ul2_tasks.export.megatron import write_megatron
from ul2_tasks.sources.memory import MemoryDataSource
from ul2_tasks.sources.tokens import TokenSource
from ul2_tasks.store.provenance import Origin, hash_of

TEXTS = [f"{number}: " + "one two three four five six seven. " * (number % 5) for number in range(300)]


def cached(folder: pathlib.Path, source, **options) -> tuple[str, dict]:
    mixture = ul2_tasks.Mixture("origins", source, on_error="skip")
    manifest = build(mixture.corpus(), str(folder), **options)
    return str(folder / "origins_corpus"), manifest


def origins_of(folder: str, split: str = "train") -> list[Origin]:
    manifest = cache.read_manifest(folder)
    found = cache.open_store(folder, manifest, split).provenance
    return found.of(np.arange(len(found)))


def lines(file) -> str:
    return json.dumps({"text": TEXTS[file], "id": f"doc-{file}"})


def jsonl(path: pathlib.Path, numbers=range(300)) -> pathlib.Path:
    """A document a line, of which some are blank, and some are no JSON."""
    found = ["" if number % 50 == 7 else "{bad" if number % 60 == 9 else lines(number) for number in numbers]
    path.write_text("".join(f"{line}\n" for line in [*found, "", ""]) * 8)
    return path


def parquet(path: pathlib.Path) -> pathlib.Path:
    texts = [None if number % 60 == 9 else text for number, text in enumerate(TEXTS)]
    pq.write_table(pa.table({"text": texts, "id": range(len(TEXTS))}), path, row_group_size=70)
    return path


def refused_records(folder: str, manifest: dict, split: str = "train") -> list[dict]:
    return [record for shard in manifest["splits"][split]["shards"] for record in cache.refused_of(folder, shard)]


def arrow(path: pathlib.Path) -> pathlib.Path:
    table = pa.table({"text": [None if number % 60 == 9 else text for number, text in enumerate(TEXTS)]})
    with pa.ipc.new_file(path, table.schema) as file:
        file.write_table(table, max_chunksize=70)
    return path


def text(path: pathlib.Path) -> pathlib.Path:
    path.write_text("".join(f"{line}\n" for line in TEXTS) * 12)
    return path


@pytest.mark.parametrize("validation", [None, 0.2])
def test_lines_are_counted_in_the_file_whatever_its_segments_are(tmp_path, monkeypatch, validation):
    if validation:
        monkeypatch.setattr("ul2_tasks.sources.formats._MIN_SHARD", 1 << 12)  # 64 parts, of which several become a shard
    path = jsonl(tmp_path / "a.jsonl")
    folder, manifest = cached(tmp_path / "CACHE", ul2_tasks.open_source(str(path), validation=validation))
    in_file = path.read_text().splitlines()
    assert 3 < len(manifest["splits"]["train"]["shards"]) < 40
    seen = 0
    for split in manifest["splits"]:
        found = origins_of(folder, split)
        rows = [json.loads(in_file[origin.row - 1]) for origin in found]
        expected = [Origin(str(path), origin.row, row["id"], hash_of(row["text"].encode())) for origin, row in zip(found, rows)]
        assert found == expected
        assert len({origin.row for origin in found}) == len(found)
        seen += len(found)
        for record in refused_records(folder, manifest, split):
            assert record["file"] == str(path)
            assert in_file[record["row"] - 1] == "{bad"
            assert f"line {record['row']}" in record["cause"]
        refused = len(list(refused_records(folder, manifest, split)))
        assert refused == manifest["splits"][split]["skipped"]
    assert seen == sum(map(lines_with_text, in_file))
    assert list(cache.verify(folder)) == []


def lines_with_text(line: str) -> bool:
    return line.startswith("{") and line != "{bad"


def test_rows_of_parquet_and_arrow_are_counted_in_the_file(tmp_path):
    for make, ids in ((parquet, True), (arrow, False)):
        path = make(tmp_path / f"a.{make.__name__}")
        folder, manifest = cached(tmp_path / make.__name__, str(path))
        assert len(manifest["splits"]["train"]["shards"]) == 5
        expected = [
            Origin(str(path), row, str(row) if ids else "", hash_of(TEXTS[row].encode())) for row in range(300) if row % 60 != 9
        ]
        assert origins_of(folder) == expected
        refused = list(refused_records(folder, manifest))
        assert [record["id"] for record in refused] == (["9", "69", "129", "189", "249"] if ids else [""] * 5)


def test_other_sources_have_what_they_have(tmp_path):
    found = text(tmp_path / "a.txt")
    folder, _ = cached(tmp_path / "lines", ul2_tasks.open_source(str(found), documents="line"))
    assert [origin.row for origin in origins_of(folder)] == list(range(1, 3601))
    compressed = tmp_path / "b.jsonl.gz"
    compressed.write_bytes(gzip.compress("".join(f"{lines(number)}\n" for number in range(300)).encode()))
    folder, _ = cached(tmp_path / "gz", str(compressed))
    assert origins_of(folder)[17] == Origin(str(compressed), 18, "doc-17", hash_of(TEXTS[17].encode()))
    (tmp_path / "c.txt").write_text("one\ntwo\n\n\nthree\n")
    folder, _ = cached(tmp_path / "paragraphs", ul2_tasks.open_source(str(tmp_path / "c.txt"), documents="paragraph"))
    assert [origin.row for origin in origins_of(folder)] == [1, 5]
    folder, _ = cached(tmp_path / "memory", MemoryDataSource(lambda: TEXTS, validation=0))
    assert {*origins_of(folder)} == {Origin("", row, "", hash_of(text.encode())) for row, text in enumerate(TEXTS)}
    folder, _ = cached(tmp_path / "dataset", datasets.Dataset.from_dict({"text": TEXTS}))
    assert [origin.hash for origin in origins_of(folder)] == [hash_of(text.encode()) for text in TEXTS]
    assert {origin.file for origin in origins_of(folder)} == {"Dataset, split train"}
    folder, _ = cached(tmp_path / "seqio", seqio.TextLineDataSource({"train": [str(found)]}))
    assert origins_of(folder)[9] == Origin(str(found), 10, "", hash_of(TEXTS[9].encode()))


def test_a_trial_run_counts_rows_within_the_parts_of_a_file(tmp_path):
    path = jsonl(tmp_path / "a.jsonl")
    folder, _ = cached(tmp_path / "CACHE", str(path), max_documents=40)
    found = origins_of(folder)
    in_file = path.read_bytes()
    for origin in found:
        start = int(origin.file.partition("[")[2].partition(":")[0] or 0)
        beginning = in_file.index(b"\n", start - 1) + 1 if start else 0
        assert json.loads(in_file[beginning:].split(b"\n")[origin.row - 1])["id"] == origin.id


def test_small_files_share_shards_and_each_document_has_its_own_file_and_row(tmp_path):
    paths = [tmp_path / f"{number:03}.jsonl" for number in range(100)]
    for number, path in enumerate(paths):
        path.write_text("".join(f"{lines(each)}\n" for each in range(3 * number, 3 * number + 3)))
    source = ul2_tasks.open_source(str(tmp_path / "*.jsonl"), validation=0.2)
    folder, manifest = cached(tmp_path / "CACHE", source)
    shards = manifest["splits"]["train"]["shards"]
    assert 32 <= len(shards) < 60
    assert [part for shard in shards for part, _ in shard["reads"]] == list(map(str, paths))
    found = [*origins_of(folder), *origins_of(folder, "validation")]
    for origin in found:
        assert json.loads(pathlib.Path(origin.file).read_text().split("\n")[origin.row - 1])["id"] == origin.id
    assert sorted(origin.id for origin in found) == sorted(f"doc-{number}" for number in range(300))


@pytest.mark.parametrize("use_cached", [False, True])
def test_a_pair_of_megatron_says_where_its_documents_are_from(tmp_path, use_cached):
    paths = [jsonl(tmp_path / "a.jsonl"), jsonl(tmp_path / "b.jsonl", range(100, 200))]
    source = ul2_tasks.open_source(str(tmp_path / "*.jsonl"), validation=0.2)
    folder, _ = cached(tmp_path / "CACHE", source)
    corpus = ul2_tasks.Mixture("origins", source, on_error="skip").corpus([str(tmp_path / "CACHE")] if use_cached else [])
    written = write_megatron(corpus, str(tmp_path / "MEGATRON"), "train", use_cached=use_cached)
    expected = origins_of(folder)
    store = TokenSource("megatron", {"train": written["prefix"]}).store("train")
    found = store.provenance
    assert found.of(range(len(found))) == expected
    assert found.files == [str(path) for path in paths]
    chosen = [(each.file, each.row) for each in expected[5::31]]
    assert {expected[number][:2] for number in found.in_rows(chosen).documents.tolist()} == {*chosen}
    of_b = [number for number, origin in enumerate(expected) if origin.file == str(paths[1])]
    assert found.in_files(["b.jsonl"]).documents.tolist() == of_b


def test_texts_with_images_say_where_they_are_from(tmp_path):
    records = [{"texts": [f"image {n}", None], "images": [None, b"bad" if n == 4 else image(n)], "id": n} for n in range(50)]
    pq.write_table(pa.Table.from_pylist(records), tmp_path / "a.parquet", row_group_size=20)
    hashes = []
    for name, source in (("file", str(tmp_path / "a.parquet")), ("memory", records)):
        tokens = ul2_tasks.ImageTokens(4060, 4061, 4062, 4)
        ul2_tasks.ImageText(f"photos_{name}", source, image_tokens=tokens, on_error="skip").cache(tmp_path / "CACHE")
        folder = str(tmp_path / "CACHE" / f"photos_{name}_corpus")
        found = origins_of(folder)
        assert [origin[:3] for origin in found] == [(source if name == "file" else "", n, str(n)) for n in range(50) if n != 4]
        (refused,) = refused_records(folder, cache.read_manifest(folder))
        assert refused["id"] == "4"
        hashes.append([origin.hash for origin in found])
    assert hashes[0] == hashes[1]
