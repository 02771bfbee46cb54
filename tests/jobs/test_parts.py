"""Several processes write one cache, or one export, together: each a part, and then the manifest is written."""

import functools
import json
import pathlib

import pytest

from tests import programs
from tests.chat.test_register_chat import CONVERSATIONS, write_jsonl
from ul2_tasks import Chat, ImageText, ImageTokens, Mixture, embedded_documents
from ul2_tasks.corpus.build_cache import build
from ul2_tasks.export.write import write_examples
from ul2_tasks.jobs.claim import part_name, taken

PARTS = 3


@pytest.fixture
def texts(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(70):  # from 64 files on each is a shard
        (folder / f"{number:02}.jsonl").write_text(
            "".join(json.dumps({"text": text}) + "\n" for text in embedded_documents()[number : number + 3])
        )
    return Mixture("parts", f"{folder}/*.jsonl")


def chats(folder: pathlib.Path) -> Chat:
    for number in range(5):
        write_jsonl(folder / f"{number}.jsonl", CONVERSATIONS[number * 8 : number * 8 + 8])
    return Chat("parts_chat", f"{folder}/*.jsonl")


def pictures(folder: pathlib.Path) -> ImageText:
    return ImageText("parts_seen", image_tokens=ImageTokens(3000, 3001, 3002, 2))


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def cache(mixture: Mixture, output: str, **settings) -> dict:
    return build(mixture.corpus(), output, **settings)


def export(mixture: Mixture, output: str, **settings) -> dict:
    return write_examples(mixture, output, {"inputs": 64, "targets": 64}, format="parquet", shards=4, **settings)


@pytest.mark.parametrize("write", [cache, export])
def test_parts_are_merged_to_the_bytes_of_one_process(write, texts, tmp_path):
    write(texts, str(tmp_path / "alone"))
    together = functools.partial(write, texts, str(tmp_path / "together"))
    assert together(part=(0, PARTS)) == together(part=(2, PARTS)) == {}
    with pytest.raises(ValueError, match="merge"):
        together(merge=True)
    together(part=(1, PARTS))
    assert together(part=(70, 71)) == {}, "there are no more shards"
    assert together(merge=True)
    assert contents(tmp_path / "together") == contents(tmp_path / "alone")
    assert together(part=(1, PARTS)), "it is complete"


@pytest.mark.parametrize("made", [chats, pictures])
def test_so_are_those_of_other_kinds(made, tmp_path):
    (tmp_path / "records").mkdir()
    corpus = made(tmp_path / "records").corpus()
    alone = build(corpus, str(tmp_path / "alone"))
    shards = sum(len(split["shards"]) for split in alone["splits"].values())
    parts = min(2, shards)
    for number in range(parts):
        build(corpus, str(tmp_path / "together"), part=(number, parts))
    build(corpus, str(tmp_path / "together"), merge=True)
    assert contents(tmp_path / "together") == contents(tmp_path / "alone")


@pytest.mark.parametrize("are_merged", [True, False])
def test_a_killed_part_goes_on_by_itself_or_in_a_job_of_the_whole_folder(are_merged, texts, tmp_path):
    build(texts.corpus(), str(tmp_path / "alone"))
    folder = tmp_path / "together"
    command = ["-m", "ul2_tasks", "cache", "parts", "--corpus", tmp_path / "texts" / "*.jsonl", "--output", folder, "--part", "0/2"]
    process = programs.start(*command)
    while not list(folder.glob("parts_corpus/parts/*.json")) and process.poll() is None:
        pass
    process.kill()
    process.communicate()
    assert (folder / "parts_corpus" / "parts" / part_name(0, 2)).exists(), "it was killed while it wrote"
    if are_merged:
        for number in (1, 0):
            build(texts.corpus(), str(folder), part=(number, 2))
    build(texts.corpus(), str(folder), merge=are_merged)
    assert contents(folder) == contents(tmp_path / "alone")


def test_parts_of_other_settings_are_refused(texts, tmp_path):
    build(texts.corpus(), str(tmp_path), part=(0, PARTS))
    other = Mixture("parts", texts.source, "bytes")
    for settings in ({"part": (1, PARTS)}, {"merge": True}):
        with pytest.raises(ValueError, match="settings"):
            build(other.corpus(), str(tmp_path), **settings)


def test_a_part_runs_beside_no_job_of_the_whole_folder_and_no_other_number_of_parts(tmp_path):
    records = str(tmp_path / "parts")
    with taken(records, part_name(0, 2)), taken(records, part_name(1, 2)):
        for name in ("running", part_name(0, 3), part_name(0, 2)):
            with pytest.raises(ValueError, match="another job"), taken(records, name):
                pass
    assert not pathlib.Path(records).exists()
    with taken(records), pytest.raises(ValueError, match="another job"), taken(records, part_name(0, 2)):
        pass
