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
from ul2_tasks.tasks.registration import Registration


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


def test_stats_read_the_cache(cached, corpus):
    measured = ["talked", *options(corpus), "--cache", cached / "cache"]
    done = ul2("stats", *measured, "--json")
    assert (done.exit_code, json.loads(done.stdout)["use_cached"]) == (0, True), done.output


def test_workers_register_the_conversations_themselves(cached, corpus):
    command = ["cache", "talked", *options(corpus), "--output", cached / "beam", "--workers", 2]
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[2])}
    done = new_process.run("-c", new_process.AS_A_SCRIPT, new_process.executable(cached), *command, env=environment, cwd=cached)
    assert done.returncode == 0, done.stderr
    names = sorted(path.name for path in (cached / "cache" / "talked_corpus").glob("*.bin"))
    for name in names:
        assert (cached / "beam" / "talked_corpus" / name).read_bytes() == (cached / "cache" / "talked_corpus" / name).read_bytes()


def test_the_conversations_that_come_with_the_package_need_no_option():
    assert Registration("chat").apply() == "chat_chat"
    assert Registration("chat_prompt_completion").apply() == "chat_prompt_completion"


def test_loss_groups_and_turns_are_options(corpus):
    arguments = {"renderer": "harmony:default", "loss_groups": {"assistant/final": 2, "assistant/analysis": 0}, "turns": "last"}
    name = Registration("talked_answers_prompt_completion", source={"spec": str(corpus / "*.jsonl")}, arguments=arguments).apply()
    assert name == "talked_answers_prompt_completion"
    assert {group for example in examples(name, count=20) for group in example["span_id"]} == {0, 2}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--renderer", "harmony:default", "--preset", "UL2"], "--preset must be left out with --renderer, got both. Pass one"),
        (["--renderer", "harmony:nowhere.txt"], "vocabulary must be 'default'"),
        (["--renderer", "chatml"], "or a renderer, got 'chatml'. Pass one of these."),
    ],
)
def test_wrong_options_are_one_sentence(arguments, sentence, tmp_path):
    done = ul2("cache", "talked_wrong", *arguments, "--output", tmp_path)
    assert done.exit_code != 0
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_what_does_not_go_with_an_export_of_conversations(corpus, tmp_path):
    named = ["export", "talked", *options(corpus), "--output", tmp_path / "x"]
    assert "--lengths must be one number of tokens" in ul2(*named, "--format", "parquet", "--lengths", "64,64").stderr
    assert (
        "`ul2 export --shards` does not support conversations (talked_chat). Leave it out."
        in ul2(*named, "--format", "megatron", "--shards", 2).stderr
    )
    assert ul2_tasks.register_chat("talked", **_arguments(corpus)) == "talked_chat"


def test_examples_of_conversations_are_exported_and_verified(corpus, tmp_path):
    for name, features in (("talked", "tokens"), ("talked_prompt_completion", "inputs")):
        folder = tmp_path / name
        done = ul2("export", name, *options(corpus), "--format", "parquet", "--split", "validation", "--output", folder)
        assert done.exit_code == 0, done.output
        assert {features, "loss_mask", "span_id"} < next(ul2_tasks.read_examples(str(folder))).keys()
        assert "trained tokens" in ul2("verify", folder).stdout


def test_a_mixture_of_conversations_is_looked_at_and_cached_and_exported_one_by_one(corpus, tmp_path):
    for number in range(2):
        ul2_tasks.register_chat(f"talked_{number}", str(corpus / f"{number}.jsonl"))
    ul2_tasks.mix("talked_both", {"talked_0_chat": 1, "talked_1_chat": 2})
    assert ul2("show", "talked_both", "--count", 1).stdout.count(": conversation ") == 2
    assert "checks pass" in ul2("stats", "talked_both").stdout
    done = ul2("cache", "talked_both", "--output", tmp_path / "cache")
    assert (done.exit_code, sorted(path.name for path in (tmp_path / "cache").iterdir())) == (
        0,
        ["talked_0_corpus", "talked_1_corpus"],
    )
    refused = ul2("export", "talked_both", "--format", "megatron", "--output", tmp_path / "out").stderr
    assert "NAME must be one corpus of conversations, got talked_both_mix. Export talked_0_chat, talked_1_chat." in refused


def _arguments(corpus):
    source = ul2_tasks.open_source(str(corpus / "*.jsonl"), text_key="messages", id_key="id", validation=0.1, as_json=True)
    return {"source": source, "renderer": "harmony:default"}


def test_commands_that_look(corpus, tmp_path):
    shown = ul2("show", "chat", "--count", 1).stdout
    assert "<|channel|> analysis<|message|>" in shown
    [example] = map(json.loads, ul2("show", "chat_prompt_completion", "--count", 1, "--json").stdout.splitlines())
    assert example["task"] == "chat_prompt_completion"
    stats = ul2("stats", "talked", *options(corpus), "--lengths", "4096")
    assert (stats.exit_code, "checks pass" in stats.stdout) == (0, True), stats.output
    assert json.loads(ul2("stats", "chat", "--json").stdout)
    doctor = ul2("doctor", "talked", *options(corpus))
    assert "conversations of" in doctor.stdout
    assert (
        "`ul2 show --denoiser` does not support conversations (chat_chat). Leave it out."
        in ul2("show", "chat", "--denoiser", "r1").stderr
    )


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
