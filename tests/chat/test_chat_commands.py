"""The commands with conversations."""

import json
import os
import pathlib
import re

import new_process
import pytest
import seqio
from test_command_line import ul2
from test_register_chat import CONVERSATIONS, examples, write_jsonl

import ul2_tasks


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("talk")
    for number in range(2):
        write_jsonl(folder / f"{number}.jsonl", CONVERSATIONS[number * 40 : number * 40 + 40])
    return folder


def options(corpus):
    return ["--corpus", corpus / "*.jsonl", "--renderer", "harmony:default", "--id_key", "id", "--validation", 0.1]


@pytest.fixture(scope="module")
def cached(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("commands")
    done = ul2("cache", "talked", *options(corpus), "--output", folder / "cache")
    assert done.exit_code == 0, done.output
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seqio.utils, "_GLOBAL_CACHE_DIRECTORIES", [])
        yield folder


def test_a_cache_says_how_to_use_it_and_is_verified(cached, corpus):
    again = ul2("cache", "talked", *options(corpus), "--output", cached / "cache")
    assert "is complete already" in again.stderr
    done = ul2("verify", cached / "cache" / "talked_corpus")
    assert (done.exit_code, "is as it was written: 80 documents" in done.stdout) == (0, True)
    fresh = ul2("cache", "talked", *options(corpus), "--output", cached / "other")
    assert "seqio.get_mixture_or_task('talked_chat').get_dataset({'tokens': 4096}, use_cached=True)" in fresh.stderr


def test_an_export_from_the_cache_has_the_examples_of_the_task(cached, corpus):
    done = ul2(
        "export", "talked", *options(corpus), "--cache", cached / "cache", "--format", "megatron", "--output", cached / "out"
    )
    assert done.exit_code == 0, done.output
    manifest = json.loads((cached / "out" / "manifest.json").read_text())
    for split in ("train", "validation"):
        assert manifest["splits"][split]["sequences"] == len(examples("talked_chat", split))
    assert len(manifest["splits"]["train"]["shards"]) == 2
    done = ul2("verify", cached / "out")
    assert (done.exit_code, "is as it was written: 80 sequences" in done.stdout) == (0, True)
    assert re.search(r", (2[0-9]|3[0-2]) rendered again$", done.stdout.strip()), "8 of each shard of train, and what valid has"


def test_an_export_of_a_text_that_was_changed_is_named(tmp_path):
    path = tmp_path / "a.jsonl"
    write_jsonl(path, CONVERSATIONS[:9])
    named = ["talked_again", "--corpus", path, "--renderer", "harmony:default"]
    assert ul2("export", *named, "--format", "megatron", "--output", tmp_path / "out").exit_code == 0
    path.write_text(path.read_text().replace("I add 3 and 0.", "I add 3 and O."))
    done = ul2("verify", tmp_path / "out")
    assert (done.exit_code, "a.jsonl, of which 8 sequences were rendered again" in done.stdout) == (1, True), done.output
    path.unlink()
    assert "0 rendered again" in ul2("verify", tmp_path / "out").stdout


def test_workers_register_the_conversations_themselves(cached, corpus):
    command = ["cache", "talked", *options(corpus), "--output", cached / "beam", "--workers", 2]
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[2])}
    done = new_process.run("-c", new_process.AS_A_SCRIPT, new_process.executable(cached), *command, env=environment, cwd=cached)
    assert done.returncode == 0, done.stderr
    names = sorted(path.name for path in (cached / "cache" / "talked_corpus").glob("*.bin"))
    for name in names:
        assert (cached / "beam" / "talked_corpus" / name).read_bytes() == (cached / "cache" / "talked_corpus" / name).read_bytes()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--loss_groups", "harmony"], "--loss_groups"),
        (["--renderer", "harmony:default", "--preset", "UL2"], "--preset"),
        (["--renderer", "harmony:default", "--loss_groups", "user=1"], "loss_groups"),
        (["--renderer", "chatml"], "renderer"),
    ],
)
def test_wrong_options_are_one_sentence(arguments, named, tmp_path):
    done = ul2("cache", "talked_wrong", *arguments, "--output", tmp_path)
    assert done.exit_code != 0
    assert named in done.stderr
    assert "Traceback" not in done.stderr


def test_examples_of_conversations_are_exported_and_verified(corpus, tmp_path):
    for name, features in (("talked", "tokens"), ("talked_prompt_completion", "inputs")):
        folder = tmp_path / name
        done = ul2("export", name, *options(corpus), "--format", "jsonl", "--split", "validation", "--output", folder)
        assert done.exit_code == 0, done.output
        assert {features, "loss_mask", "span_id"} < next(ul2_tasks.read_examples(str(folder))).keys()
        assert "trained tokens" in ul2("verify", folder).stdout


def test_commands_that_look_at_a_run_of_conversations(corpus, tmp_path):
    ul2("cache", "talked_run", *options(corpus), "--output", tmp_path)
    run = ["talked_run", *options(corpus), "--cache", tmp_path, "--batch_size", 4, "--lengths", 512, "--packed"]
    shown = ul2("show", *run, "--step", 1, "--count", 1).stdout
    assert shown.startswith("talked_run_chat: at most 512 tokens; split train, seed 0\nstep 1, batch of 4: rows 4 to 7, in epoch")
    assert re.search(r"^epoch \d of talked_run_corpus, conversation \d+ of the cache, number \d+ of ", shown, re.MULTILINE)
    [line] = map(json.loads, ul2("show", *run, "--step", 1, "--count", 1, "--json").stdout.splitlines())
    assert line["where"].startswith(f"conversation {line['conversation']} of the cache")
    assert re.search(r"^ +0 +\d+ +\d+ +\d+ +talked_run_chat +\d+ +\d+ *$", ul2("find", *run, "--document", 3).stdout, re.MULTILINE)
    found = json.loads(ul2("lengths", "talked_run", *options(corpus), "--lengths", 512, "--json").stdout)
    assert [way["name"] for way in found["tasks"][0]["ways"]] == ["now", "half", "double"]
    assert ul2("lengths", "talked_run", *options(corpus), "--lengths", 16).exit_code == 1
    wrong = ul2("find", "talked_run", *options(corpus), "--document", 3, "--lengths", "512,512").stderr
    assert "--lengths must be one number of tokens, such as 4096, for talked_run_chat, got 512,512." in wrong
