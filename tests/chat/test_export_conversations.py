"""Conversations for Megatron-LM: the files of the contract, resumed, verified, and as Megatron itself writes and reads them."""

import io
import itertools
import json
import pathlib
import shutil

import numpy as np
import pytest
import seqio
from chat_support import GOLDEN, o200k_file, read_shard
from rich.console import Console
from test_register_chat import CONVERSATIONS, write_jsonl, write_parquet

import ul2_tasks
from ul2_tasks.corpus.build_cache import build
from ul2_tasks.export import conversations
from ul2_tasks.export.conversations import write_conversations
from ul2_tasks.export.conversations_folder import verify
from ul2_tasks.inspect.verification import examine

QUIET = Console(quiet=True)
SETTINGS = {"messages_key": "messages_json", "id_key": "synth_id", "validation": 0.1}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Four files, one of them of several segments, and the input's manifest."""
    folder = tmp_path_factory.mktemp("source")
    for number in range(4):
        write_parquet(
            folder / f"part_{number}.parquet", CONVERSATIONS[number * 35 : (number + 1) * 35 + (40 if number == 3 else 0)]
        )
    (folder / "manifest.json").write_text("{}")
    return folder


@pytest.fixture(scope="module")
def name(source):
    return ul2_tasks.register_chat("ec", str(source / "*.parquet"), **SETTINGS)


@pytest.fixture(scope="module")
def written(name, tmp_path_factory):
    folder = tmp_path_factory.mktemp("written") / "out"
    return folder, write_conversations(name, str(folder), console=QUIET)


def contents(folder) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(pathlib.Path(folder).rglob("*")) if path.is_file()}


def test_the_files_of_the_contract(written, name):
    folder, manifest = written
    shards = manifest["splits"]["train"]["shards"]
    assert [shard["shard"] for shard in shards] == ["shard_00", "shard_01", "shard_02", "shard_03"]
    expected = {
        f"train/shard_{n:02d}_{column}.{suffix}"
        for n in range(4)
        for column in ("tokens", "lossmask", "span")
        for suffix in ("bin", "idx")
    } | {f"train/shard_{n:02d}_tokens.origins.arrow" for n in range(4)}
    assert {path for path in contents(folder) if path.startswith("train/")} == expected
    assert list(verify(str(folder))) == []
    task = seqio.get_mixture_or_task(name)
    for split, entry in manifest["splits"].items():
        examples = list(task.get_dataset(None, split, shuffle=False).as_numpy_iterator())
        assert entry["sequences"] == len(examples)
        read = [read_shard(str(folder / entry["folder"]), shard["shard"]) for shard in entry["shards"] if shard["sequences"]]
        for column, feature, shift in (("tokens", "tokens", 0), ("lossmask", "loss_mask", 0), ("span", "span_id", 0)):
            flat = np.concatenate([values[column] for values, _ in read])
            assert flat.tolist() == np.concatenate([example[feature] - shift for example in examples]).tolist()
        assert np.concatenate([lengths for _, lengths in read]).tolist() == [len(example["tokens"]) for example in examples]


def test_the_same_bytes_from_the_cache_twice_and_after_an_interrupt(written, name, tmp_path, monkeypatch):
    folder, _ = written
    files = {path: content for path, content in contents(folder).items() if not path.endswith(".json")}
    monkeypatch.setattr(seqio.utils, "_GLOBAL_CACHE_DIRECTORIES", [str(tmp_path / "cache")])
    build("ec_corpus", str(tmp_path / "cache"), console=QUIET)
    write_conversations(name, str(tmp_path / "cached"), use_cached=True, console=QUIET)
    assert {path: content for path, content in contents(tmp_path / "cached").items() if not path.endswith(".json")} == files

    real, calls = conversations._write_files, itertools.count()

    def stops(shard, advance):
        if next(calls) == 2:
            raise KeyboardInterrupt
        return real(shard, advance)

    monkeypatch.setattr(conversations, "_write_files", stops)
    with pytest.raises(KeyboardInterrupt):
        write_conversations(name, str(tmp_path / "again"), console=QUIET)
    assert "unfinished export, with 2 of 8 shards" in next(iter(_sentences(tmp_path / "again")))
    write_conversations(name, str(tmp_path / "again"), console=QUIET)
    assert next(calls) == 3 + 6, "two shards were not written again"
    assert {path: content for path, content in contents(tmp_path / "again").items() if not path.endswith(".json")} == files


def _sentences(folder):
    for _, wrong, _ in examine(str(folder)):
        yield from wrong


def flip(path: pathlib.Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def copied(written, tmp_path) -> pathlib.Path:
    return shutil.copytree(written[0], tmp_path / "out")


def test_what_is_wrong_is_named(written, tmp_path):
    folder = copied(written, tmp_path)
    train = folder / "train"
    flip(train / "shard_00_tokens.bin", 40)
    (train / "shard_01_span.bin").unlink()
    (train / "shard_02_lossmask.idx").write_bytes((train / "shard_03_lossmask.idx").read_bytes())
    (train / "shard_99_tokens.bin").write_bytes(b"")
    found = "; ".join(_sentences(folder))
    for sentence in (
        "shard_00_tokens.bin is altered",
        "shard_01_span.bin is missing",
        "shard_02_lossmask.idx is",
        "shard_99_tokens.bin is not in",
    ):
        assert f"train/{sentence}" in found


@pytest.mark.torch
def test_o200k_is_written_with_its_own_ids_and_as_megatron_writes_it(tmp_path):
    indexed_dataset = pytest.importorskip("megatron.core.datasets.indexed_dataset")
    torch = pytest.importorskip("torch")
    file = o200k_file(tmp_path)
    name = ul2_tasks.register_chat("ec_golden", write_jsonl(tmp_path / "golden.jsonl", [GOLDEN, GOLDEN]), f"harmony:{file}")
    manifest = write_conversations(name, str(tmp_path / "out"), console=QUIET)
    assert (manifest["padded_vocabulary"], manifest["eod"], manifest["tokenizer"]["path"]) == (201_088, 199_999, str(file))
    ids = [200006, 1428, 200008, 4827, 382, 220, 17, 10, 17, 30, 200007, 200006, 173781, 200005, 35644, 200008, 41154, 13, 200007]
    ids += [200006, 173781, 200005, 17196, 200008, 19, 13, 200002, 199999]
    rows = {"tokens": ids, "span": [0] * 11 + [1] * 8 + [2] * 8 + [0], "lossmask": [0] * 11 + [1] * 16 + [0]}
    for column, values in rows.items():
        path = tmp_path / "out" / "train" / f"shard_00_{column}"
        dtype = np.int32 if column == "tokens" else np.uint8
        builder = indexed_dataset.IndexedDatasetBuilder(str(tmp_path / f"{column}.bin"), dtype=dtype)
        for _ in range(2):
            builder.add_document(torch.tensor(values), [len(values)])
        builder.finalize(str(tmp_path / f"{column}.idx"))
        for suffix in ("bin", "idx"):
            assert (tmp_path / f"{column}.{suffix}").read_bytes() == path.with_suffix(f".{suffix}").read_bytes()
        read = indexed_dataset.IndexedDataset(str(path))
        assert [row.tolist() for row in read] == [values, values]


def as_chosen(id, messages):
    return {"id": id, "messages": messages}


def as_synthetic(id, messages):
    """What has its id under the name that goes with the messages', or in its metadata."""
    beside = {"synth_id": id} if id in "ab" else {"metadata_json": json.dumps({"synth_id": id})}
    return {"messages_json": json.dumps(messages), **beside}


@pytest.mark.parametrize(
    ("record", "given"),
    [(as_chosen, {"id_key": "id"}), (as_synthetic, {"messages_key": "messages_json"})],
    ids=["id_key", "synth_id"],
)
def test_repeated_ids_are_counted_and_told_by_both_builds_in_all_shards(tmp_path, monkeypatch, record, given):
    def write_ids(path, ids, conversations):
        path.write_text("".join(json.dumps(record(id, one)) + "\n" for id, one in zip(ids, conversations)))

    for number, ids in enumerate((["a", "b", "a"], ["c", "b", "d"])):
        write_ids(tmp_path / f"{number}.jsonl", ids, CONVERSATIONS[3 * number : 3 * number + 3])
    write_ids(tmp_path / "valid.json", ["a", "e"], CONVERSATIONS[6:8])
    files = {"train": str(tmp_path / "*.jsonl"), "validation": str(tmp_path / "valid.json")}
    name = ul2_tasks.register_chat(f"ec_ids_{record.__name__}", files, **given)
    monkeypatch.setattr(seqio.utils, "_GLOBAL_CACHE_DIRECTORIES", [str(tmp_path / "cache")])
    console = Console(record=True, quiet=False, file=io.StringIO(), width=200)
    manifests = [
        build(f"ec_ids_{record.__name__}_corpus", str(tmp_path / "cache"), console=console),
        write_conversations(name, str(tmp_path / "text"), console=console),
        write_conversations(name, str(tmp_path / "cached"), use_cached=True, console=console),
    ]
    for manifest in manifests:
        assert [manifest["splits"][split]["repeated_ids"] for split in ("train", "validation")] == [2, 0]
        assert manifest["totals"]["repeated_ids"] == 3
    assert console.export_text().count("3 have the id of an earlier one, in all splits together") == 3
    manifest = write_conversations(name, str(tmp_path / "some"), use_cached=True, max_tokens=600, console=QUIET)
    assert manifest["totals"]["repeated_ids"] is None
    assert list(verify(str(tmp_path / "some"))) == []
