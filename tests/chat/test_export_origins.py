"""Exported conversations say where each sequence is from, and list what they leave out."""

import json
import pathlib

import numpy as np
import pytest
import seqio
from chat_support import read_shard
from rich.console import Console
from test_register_chat import CONVERSATIONS

import ul2_tasks
from ul2_tasks.corpus.build_cache import build
from ul2_tasks.corpus.documents import documents_of
from ul2_tasks.export.conversations import write_conversations
from ul2_tasks.export.conversations_folder import LEFT_OUT, verify
from ul2_tasks.store.provenance import hash_of, provenance_of_pairs

QUIET = Console(quiet=True)
UNTRAINED, UNKNOWN = CONVERSATIONS[0][:2], [{"role": "critic", "content": "x"}]


def line(number: int) -> str:
    """Of some the conversation has nothing to train on, or a role that there is not."""
    messages = UNTRAINED if number % 50 == 3 else UNKNOWN if number % 60 == 9 else CONVERSATIONS[number % 150]
    return json.dumps({"id": f"talk-{number}", "messages": messages})


def write_lines(path: pathlib.Path, numbers) -> pathlib.Path:
    path.write_text("".join(f"{line(number)}\n" for number in numbers))
    return path


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Two files, of which one is read in several parts."""
    folder = tmp_path_factory.mktemp("source")
    write_lines(folder / "a.jsonl", range(700))
    write_lines(folder / "b.jsonl", range(700, 800))
    return folder


def registered(name: str, source: pathlib.Path, **settings) -> str:
    return ul2_tasks.register_chat(name, str(source / "*.jsonl"), on_error="skip", id_key="id", validation=0.1, **settings)


@pytest.fixture(scope="module")
def written(source, tmp_path_factory):
    folder = tmp_path_factory.mktemp("written") / "out"
    return folder, write_conversations(registered("eo", source), str(folder), console=QUIET)


def origins_of(folder: pathlib.Path, entry: dict, shard: dict):
    return provenance_of_pairs([str(folder / entry["folder"] / f"{shard['shard']}_tokens")], [shard["sequences"]]).of(
        np.arange(shard["sequences"])
    )


def left_out_of(folder: pathlib.Path, entry: dict, shard: dict) -> list[dict]:
    path = folder / entry["folder"] / f"{shard['shard']}.{LEFT_OUT}"
    return list(map(json.loads, path.read_text().splitlines())) if path.exists() else []


def shards_of(manifest):
    return [(split, entry, shard) for split, entry in manifest["splits"].items() for shard in entry["shards"]]


@pytest.mark.parametrize("turns", ["all", "each"])
def test_each_sequence_and_each_that_is_left_out_has_its_row(source, tmp_path, turns):
    name = registered(f"eo_{turns}", source, turns=turns)
    manifest = write_conversations(name, str(tmp_path / "out"), console=QUIET)
    assert len(seqio.get_mixture_or_task(name).corpus.source.list_shards("train")) > 2, "no file has several parts"
    folder, task = tmp_path / "out", seqio.get_mixture_or_task(name)
    in_files = {str(path): path.read_text().splitlines() for path in source.glob("*.jsonl")}
    told = []
    for split, entry, shard in shards_of(manifest):
        reader = documents_of(task.corpus, split, use_cached=False)
        by_tokens = {}
        for found in task.objective.of_all(reader, {}):
            for number, tokens in zip(
                found.conversations.tolist(), np.split(found.values["tokens"], np.cumsum(found.lengths["tokens"]))
            ):
                by_tokens.setdefault(tokens.tobytes(), set()).add(reader.locate(number))
        values, lengths = read_shard(str(folder / entry["folder"]), shard["shard"])
        for origin, tokens in zip(origins_of(folder, entry, shard), np.split(values["tokens"], np.cumsum(lengths)), strict=False):
            row = json.loads(in_files[origin.file][origin.row - 1])
            assert (origin.id, origin.hash) == (row["id"], hash_of(json.dumps(row["messages"], sort_keys=True).encode()))
            assert f"{origin.file}, line {origin.row}" in by_tokens[tokens.tobytes()]
            told.append(origin.id)
        left_out = left_out_of(folder, entry, shard)
        assert len(left_out) == sum(shard["left_out"].values())
        for record in left_out:
            row = json.loads(in_files[record["file"]][record["row"] - 1])
            assert record["id"] == row["id"]
            assert row["messages"] == (UNTRAINED if record["cause"] == "without a token to train on" else UNKNOWN)
        told += [record["id"] for record in left_out]
    assert {*told} == {f"talk-{number}" for number in range(800)}
    assert (len(told) == 800) == (turns == "all"), "an example is of one conversation"
    assert list(verify(str(folder))) == []


def contents(folder) -> dict[str, bytes]:
    paths = sorted(path for path in pathlib.Path(folder).rglob("*") if path.is_file() and path.name != "manifest.json")
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_a_cache_gives_the_same_origins_and_one_without_gives_none(source, written, tmp_path, monkeypatch):
    folder, _ = written
    monkeypatch.setattr(seqio.utils, "_GLOBAL_CACHE_DIRECTORIES", [str(tmp_path / "cache")])
    build("eo_corpus", str(tmp_path / "cache"), console=QUIET)
    manifest = write_conversations("eo_chat", str(tmp_path / "out"), use_cached=True, console=QUIET)
    from_text, from_cache = contents(folder), contents(tmp_path / "out")
    assert from_text.keys() == from_cache.keys()
    for path, content in from_text.items():
        if path.endswith(LEFT_OUT):
            assert sorted(content.splitlines()) == sorted(from_cache[path].splitlines())
        else:
            assert from_cache[path] == content, path
    assert [shard["left_out"] for *_, shard in shards_of(manifest)] == [shard["left_out"] for *_, shard in shards_of(written[1])]


def test_processes_of_a_job_write_the_same(written, source, tmp_path):
    folder, _ = written
    settings = {"pipeline_options": ["--runner=FnApiRunner"], "prepare": lambda: None, "console": QUIET}
    write_conversations("eo_chat", str(tmp_path / "out"), **settings)
    assert contents(tmp_path / "out") == contents(folder)
