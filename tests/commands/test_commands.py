"""The commands: what each does for each kind of data, what they print, and how they say what is wrong."""

import ast
import dataclasses
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time

import click
import pytest
from click.testing import CliRunner

import ul2_tasks
from tests import programs
from tests.commands.running import described, ul2
from ul2_tasks import T5GEMMA2
from ul2_tasks.cli import main
from ul2_tasks.cli.errors import sentence_of
from ul2_tasks.cli.help import FILE
from ul2_tasks.cli.kinds import UNSUPPORTED
from ul2_tasks.inspect.run import Run, identities
from ul2_tasks.order.cycles import nearest_cycle
from ul2_tasks.random_access.fingerprint import LEFT_OUT
from ul2_tasks.random_access.numbering import RUN_RECORD
from ul2_tasks.scalars import fractions
from ul2_tasks.sources.memory import embedded_documents

MOST_OPTIONS = 20
SCHEDULE = """
from ul2_tasks import Mix, Mixture, Stage

first, second = (Mixture(name, denoisers="UL2R") for name in ("first", "second"))
both = Mix("both", schedule=[Stage(0, {first: 1, second: 1}), Stage(10, {second: 1})], batch_size=8, steps=20)
"""


@pytest.fixture(scope="session")  # a process imports my_data.py once
def folder(tmp_path_factory):
    """What the examples of `--help` name."""
    path, documents = tmp_path_factory.mktemp("help"), embedded_documents()[:80]
    (path / "texts").mkdir()
    (path / "texts" / "a.txt").write_text("\n\n".join(documents))
    (path / "texts" / "a.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in documents))
    (path / "my_data.py").write_text(FILE)
    (path / "my_schedule.py").write_text(SCHEDULE)
    (path / "benchmark.jsonl").write_text(json.dumps({"question": documents[3][:300]}) + "\n")
    return path


def examples_of_help() -> list[str]:
    shown = [line for command in (main, *main.commands.values()) for line in command.epilog.splitlines()]
    return [re.search(r"ul2[^|)>#]*", line)[0].strip() for line in shown if "ul2" in line]


def test_each_help_has_all_options_which_are_few_and_ends_with_two_examples():
    assert len(examples_of_help()) == 2 * (1 + len(main.commands))
    for name, command in main.commands.items():
        told = CliRunner().invoke(main, [name, "--help"], env={"COLUMNS": "80"}).stdout
        options = [option.opts[0] for option in command.params if isinstance(option, click.Option)]
        assert len(options) <= MOST_OPTIONS, name
        assert [option for option in options if not re.search(rf"^  {option}\b", told, re.MULTILINE)] == []
        assert re.search(r"\n  Examples:\n    .*ul2 .*\n    .*ul2 .*\n$", told), told
        of_data = any(parameter.name == "name" for parameter in command.params)
        assert of_data == all(f"      {line}".rstrip() in told.splitlines() for line in FILE.splitlines())


@pytest.mark.parametrize("line", examples_of_help())
def test_the_examples_of_help_run(line, folder, monkeypatch):
    monkeypatch.chdir(folder)
    if line.startswith("ul2 verify"):
        assert ul2("cache", "my_data.py:mine", "--output", "cache").exit_code == 0
    done = ul2(*shlex.split(line)[1:])
    assert done.exit_code < (2 if "doctor" in line else 1), done.output  # which may find packages that clash
    assert done.output


NEEDED = {  # what each command needs beside the data
    "show": "",
    "find": "--document 0",
    "contamination": "--texts benchmark.jsonl --field question",
    "schedule": "",
    "audit": "--until 3 --batch_size 4",
    "stats": "--examples 30",
    "report": "--output OUT.html",
    "cache": "--output OUT",
    "export": "--format parquet --output OUT",
    "export, megatron": "--format megatron --output OUT",
}
VALUES = {  # of options of which a kind has none
    **{"--packed": "", "--step": "1", "--denoiser": "r1", "--text": "words", "--source": "one", "--document": "0", "--id": "a"},
    **{"--lengths": "64,64", "--seed": "1", "--skip": "1:2", "--split": "train"},
    **dict.fromkeys(("--cache", "--run", "--exclude", "--list"), "OUT"),
}
SEEN = "ImageText('kinds_seen', image_tokens=ImageTokens(3000, 3001, 3002, 2), denoisers=T5GEMMA2[0])"
DATA = {"text": "ul2", "conversations": "chat", "interleaved image-text data": SEEN, "image rows": "images"}
CAN = {  # beside the examples of `--help`, and tests/golden, which has what `show`, `stats`, `doctor` and `lengths` print of each
    "conversations": ("find", "audit", "contamination", "report", "cache", "export", "export, megatron"),
    "interleaved image-text data": ("find", "audit", "contamination", "report", "cache", "export"),
    "image rows": ("report",),
}
CANNOT = [(kind, asked, instead) for (kind, asked), instead in UNSUPPORTED.items()]


@pytest.fixture
def of_kind(folder, tmp_path, monkeypatch):
    """Runs a command on a kind of data."""
    monkeypatch.chdir(folder)

    def run(kind, command, needed):
        name = described(tmp_path, DATA[kind]) if "(" in DATA[kind] else DATA[kind]
        return ul2(command, name, *(word.replace("OUT", str(tmp_path / "out")) for word in shlex.split(needed)))

    return run


@pytest.mark.parametrize(("kind", "asked"), [(kind, asked) for kind, of_it in CAN.items() for asked in of_it], ids=str)
def test_a_kind_answers(kind, asked, of_kind):
    done = of_kind(kind, asked.partition(",")[0], NEEDED[asked])
    assert done.exit_code == 0, done.output
    assert done.output


@pytest.mark.parametrize(("kind", "asked", "instead"), CANNOT, ids=str)
def test_what_a_kind_cannot_do_is_said_with_what_to_do_instead(kind, asked, instead, of_kind, tmp_path):
    """Before anything is written."""
    command, _, option = asked.rpartition(" ") if "--" in asked else (asked, "", "")
    has_option = (name for name, each in main.commands.items() if any(option in one.opts for one in each.params))
    command = command or next(has_option)
    needed = "" if option in ("--id", "--list", "--text") else NEEDED.get(command, "")
    done = of_kind(kind, command, f"{needed} {option} {VALUES.get(option, '')}")
    said = [f"ul2 {f'{command} {option}'.strip()}", kind, instead]
    assert (done.exit_code, [each in done.stderr for each in said]) == (2, [True] * 3), done.output
    assert not {path.name for path in tmp_path.iterdir()} & {"out", "out.html"}


def test_beside_texts_other_kinds_are_shown_too(tmp_path):
    more = "chat = Chat('kinds_talks', truncation='drop')\n"
    more += "text = Mixture('kinds_beside', vocabulary=chat.vocabulary, sentinels=range(3, 203))"
    name = described(tmp_path, "Mix('kinds_mixed', {text: 1, chat: 1})", more)
    shown = ul2("show", name, "--count", 1, "--lengths", "128,128").stdout.split()
    assert {"kinds_talks_prompt_completion", "kinds_beside_r1"} <= {*shown}


ERRORS = [  # what is asked, and the argument, or the name, that the sentence has
    (["show", "nothing"], "nothing"),
    (["cache", "nothing", "--output", "out"], "nothing"),
    (["show", "x", "--corpus", "/nowhere/*.txt"], "/nowhere/*.txt"),
    (["show", "x2", "--vocabulary", "/nowhere/my.voc"], "vocabulary"),
    (["show", "--lengths", "512"], "--lengths"),
    (["show", "--denoiser", "q"], "denoiser"),
    (["show", "--text", "a", "--corpus", "a.txt"], "--text"),
    (["show", "--step", "3"], "--batch_size"),
    (["show", "--step", "3", "--batch_size", "8", "--host", "64/64"], "--host"),
    (["show", "--step", "3", "--run", "folder"], "ul2_run.json"),
    (["show", "my_data.py:mine", "--corpus", "a", "--preset", "UL2"], "--corpus, --preset"),
    (["show", "my_data.py:nothing"], "'nothing'"),
    (["show", "my_data.py:Mixture"], "NAME"),
    (["show", "images", "--corpus", "texts/a.jsonl"], "NAME"),
    (["show", "no.py:both"], "no.py"),
    (["show", "texts/json.py:both"], "FILE.py"),
    (["stats", "--examples", "0"], "--examples"),
    (["show", "ul2", "--module", "json"], "--module"),
    (["export", "--format", "megatron", "--output", "out", "--part", "0/2"], "--part"),
    (["cache", "--output", "out", "--part", "0/2", "--merge"], "part"),
    (["cache", "--output", "out", "--part", "2/2"], "--part"),
    (["find"], "--document, --text, --id, --source, --list"),
    (["find", "--document", "x"], "document"),
    (["verify", "/nowhere"], "/nowhere"),
    (["report", "--lengths", "3,3", "--output", "no/such/page.html"], "page.html"),
    (["show", "--no_such_option=1"], "--no_such_option"),
]


@pytest.mark.parametrize(("arguments", "named"), ERRORS, ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_what_is_wrong_is_named_in_one_sentence(arguments, named, folder, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "texts" / "json.py").write_text("both = 3")
    done = ul2(*arguments)
    assert done.exit_code == 2
    assert named in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("package", "arguments", "extra"),
    [
        ("apache_beam", ["cache", "ul2", "--output", "out", "--workers", "2"], "ul2_tasks[beam]"),
        ("datasets", ["show", "absent", "--corpus", "hf:folder"], "ul2_tasks[huggingface]"),
    ],
)
def test_a_package_that_is_not_installed_is_named_with_its_extra(monkeypatch, package, arguments, extra):
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not there
    monkeypatch.delitem(sys.modules, "ul2_tasks.corpus.build_cache", raising=False)
    done = ul2(*arguments)
    assert (done.exit_code, extra in done.stderr) == (2, True), done.stderr


def test_ones_own_text_is_shown_whole():
    text = "The quick brown fox jumps over the lazy dog."
    sample = json.loads(ul2("show", "--denoiser", "r1", "--count", 1, "--json", "--text", text).stdout)
    inputs, targets = (sample["features"][key] for key in ("inputs", "targets"))
    spans = {part["group"]: part["text"] for part in targets if part["kind"] == "text"}
    parts = [part["text"] if part["kind"] == "text" else spans.get(part["group"], "") for part in inputs]
    assert "".join(parts).strip() == text


@pytest.mark.parametrize(
    ("content", "options", "found"),
    [
        ('{"text": "good"}\nbad\n', [], "a.jsonl, line 2"),
        ("", [], "empty"),
        ('{"text": ""}\n', [], "1 empty"),
        ('{"text": "good"}\n', ["--lengths", "4096,4096"], "sentinels"),
        ('{"text": "good"}\n', ["--split", "test"], "split"),
    ],
)
def test_the_doctor_names_each_problem_first_and_again_last(tmp_path, content, options, found):
    (tmp_path / "a.jsonl").write_text(content)
    done = ul2("doctor", re.sub(r"\W", "_", tmp_path.name), "--corpus", tmp_path / "a.jsonl", *options)
    first, *_, last = done.stdout.splitlines()
    assert (done.exit_code, first.startswith("problem "), found in first, found in last) == (1, True, True, True), done.stdout


def test_what_is_skipped_and_what_a_vocabulary_loses_is_no_problem(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "good"}\nbad\n')
    for vocabulary, loses in (("default", True), ("bytes", False)):
        name = described(tmp_path, f"Mixture('skipping', {str(tmp_path / 'a.jsonl')!r}, {vocabulary!r}, on_error='skip')")
        done = ul2("doctor", name)
        assert (done.exit_code, "line feeds, tabs" in done.stdout) == (0, loses)
        assert "they are left out and counted" in done.stdout


def findings(*arguments) -> list[dict]:
    return json.loads(ul2("doctor", *arguments, "--json").stdout)["findings"]


def test_the_doctor_looks_at_all_corpora_of_a_mixture_and_at_each_once(tmp_path):
    (tmp_path / "doctor_corpora.py").write_text(
        "import seqio, tensorflow as tf, ul2_tasks\n"
        "def other_field(split, shuffle_files, seed=None):\n"
        "    return tf.data.Dataset.from_tensor_slices({'content': ['a text']})\n"
        "fields = seqio.FunctionDataSource(other_field, splits=['train'])\n"
        "three = [(ul2_tasks.register(f'doctor_{n}', 'embedded', denoisers=ul2_tasks.T5GEMMA2[n:]), 1) for n in (2, 3)]\n"
        "ul2_tasks.mix('doctor_three', [*three, (ul2_tasks.register('doctor_fields', fields), 1)])\n"
    )
    told = findings(f"{tmp_path}/doctor_corpora.py:doctor_three")
    (problem,) = (finding for finding in told if finding["kind"] == "problem")
    assert "text_key" in problem["what"]
    assert problem["concerns"] == ["doctor_fields_corpus"]
    (embedded,) = (finding for finding in told if finding["what"].startswith("MemoryDataSource(embedded_documents"))
    assert embedded["concerns"] == ["doctor_2_corpus", "doctor_3_corpus"]


def test_the_doctor_looks_at_all_kinds_of_a_mixture(tmp_path):
    more = "chat = Chat('doctor_talk', renderer='harmony:default')\n"
    more += "own = Mixture('doctor_own', vocabulary=chat.vocabulary, sentinels=range(3, 203), denoisers=T5GEMMA2[:1])"
    told = findings(described(tmp_path, "Mix('doctor_beside', {own: 1, chat: 1})", more))
    lengths = [finding["concerns"] for finding in told if (finding["kind"], finding["about"]) == ("ok", "lengths")]
    assert lengths == [["doctor_own_mix"], ["doctor_talk_prompt_completion"]]


def test_a_bad_record_ends_the_job_in_one_sentence(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{"text": 2}\n')
    done = ul2("cache", "bad_records", "--corpus", tmp_path / "a.jsonl", "--output", tmp_path / "out")
    assert (done.exit_code, f"{tmp_path}/a.jsonl, line 2: 'text'" in done.stderr, "Traceback" in done.stderr) == (2, True, False)


@pytest.mark.parametrize("data", ["texts", "conversations"])
def test_the_doctor_finds_what_a_package_lacks_that_is_needed_here(data, tmp_path, monkeypatch):
    asked = ["numpy<1", "click>=8", "not_there[extra]>2", "optional; extra == 'x'", "old; python_version < '3'", "not a name"]
    for name in ("rich", "of_others"):
        (tmp_path / f"{name}-99.dist-info").mkdir()
        lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 99", *(f"Requires-Dist: {line}" for line in asked)]
        (tmp_path / f"{name}-99.dist-info" / "METADATA").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    done = ul2("doctor", "ul2" if data == "texts" else "chat")
    assert done.exit_code == 1
    found = re.findall(r"(rich|of_others) 99 asks for ([\w'<>]+)", " ".join(done.stdout.split()))
    assert found == [("rich", "numpy<1"), ("rich", "not_there>2"), ("rich", "'not")] * 2, "found, and summed up"


FAULTY = {  # what is wrong in a FILE.py, and the type of the error
    "{}['missing']": "KeyError",
    "import numpy as np\nnp.ones(3) + np.ones(4)": "ValueError",
    "assert not 'true'": "AssertionError",
    "import json\njson.loads('{')": "JSONDecodeError",
}
FOR_USERS = {  # the same, with what the error names
    "import ul2_tasks\nul2_tasks.Mixture(denoisers='UL3')": "denoisers",
    "open('/nowhere/at/all')": "/nowhere/at/all",
    "import not_installed": "not_installed",
}


@pytest.mark.parametrize(("code", "named"), [*FAULTY.items(), *FOR_USERS.items()])
def test_an_error_in_a_file_names_its_line_and_is_a_bug_where_it_is_not_for_users(code, named, tmp_path):
    file = tmp_path / f"faulty_{tmp_path.name}.py"
    file.write_text(code)
    done = ul2("show", f"{file}:any")
    assert done.exit_code == 2
    assert [each in done.stderr for each in (named, f"{file}, line {len(code.splitlines())}", "bug")] == [
        True,
        True,
        code in FAULTY,
    ]
    if code in FAULTY:
        debugged = CliRunner().invoke(main, ["show", f"{file}:any", "--debug"])
        assert type(debugged.exception).__name__ == named


def test_an_operation_that_fails_in_the_package_is_a_bug_too():
    with pytest.raises(TypeError) as caught:
        fractions({"web": "a word"})
    assert re.search(r"TypeError.*scalars\.py, line \d+.*bug", sentence_of(caught.value))


@pytest.fixture
def two(tmp_path):
    """Options for a mixture of two denoisers."""
    return [described(tmp_path, "Mixture('two', denoisers=T5GEMMA2[3:])"), "--lengths", "64,64"]


def test_a_folder_without_the_cache_that_is_asked_for_is_told_alike(tmp_path):
    (tmp_path / "registers.py").write_text("import ul2_tasks\nul2_tasks.register('uncached')\n")
    for what in ("ul2", f"{tmp_path}/registers.py:uncached"):
        for command in (["show", "--step", 9, "--batch_size", 8], ["find", "--document", 3]):
            done = ul2(command[0], what, *command[1:], "--cache", tmp_path)
            assert (done.exit_code, f"'{tmp_path}'" in done.stderr) == (2, True), done.stderr


def test_a_glob_that_the_shell_has_opened_is_told_by_its_first_file():
    done = ul2("doctor", "mine", "--corpus", *(f"{number}.jsonl" for number in range(1000)))
    assert done.exit_code == 2
    assert "got 999 more, the first '1.jsonl'. Quote a glob" in done.stderr


def test_the_record_in_the_folder_of_a_run_says_all_of_it(folder, tmp_path):
    corpus = str(folder / "texts" / "a.jsonl")
    what = ["--corpus", corpus]
    assert ul2("cache", "fed", *what, "--output", tmp_path / "cache").exit_code == 0
    cached = [*what, "--cache", tmp_path / "cache"]
    asked = ["--lengths", "64,64", "--seed", 5, "--batch_size", 16]
    wanted = [ul2("show", "fed", *cached, *asked, "--step", 9).stdout, ul2("find", "fed", *cached, *asked, "--document", 3).stdout]
    mixture = ul2_tasks.Mixture("fed", corpus)
    run = Run(mixture, {"inputs": 64, "targets": 64}, seed=5, batch_size=16, cache_dirs=[tmp_path / "cache"])
    record = {field.name: getattr(run, field.name) for field in dataclasses.fields(Run)} | {"mixture": "fed_mix", "cache_dirs": []}
    record = {key: value for key, value in record.items() if key not in LEFT_OUT}
    (tmp_path / RUN_RECORD).write_text(json.dumps(record | identities(run)))
    recorded = [*cached, "--run", tmp_path]
    assert [ul2("show", *recorded, "--step", 9).stdout, ul2("find", *recorded, "--document", 3).stdout] == wanted
    for given in (["--seed", 0], ["--lengths", "64,32"], ["--batch_size", 8], ["--packed"], ["--split", "validation"], ["other"]):
        done = ul2("find", "--document", 3, *recorded, *given)
        assert done.exit_code == 2
        assert (given[0] if given[0].startswith("--") else "NAME") in done.stderr
    (tmp_path / RUN_RECORD).write_text(json.dumps(record | identities(run) | {"vocabulary": "another"}))
    assert "vocabulary was 'another'" in ul2("show", *recorded, "--step", 9).stderr


def test_a_broken_law_is_the_exit_status(tmp_path, monkeypatch):
    """Denoisers that are mixed as if their weights were equal."""
    monkeypatch.setattr("ul2_tasks.random_access.corpora.nearest_cycle", lambda rates: nearest_cycle([1] * len(rates)))
    name = ul2_tasks.register("unequal", denoisers=ul2_tasks.T5GEMMA2[3:])
    for command in (["stats"], ["report", "--output", tmp_path / "page.html"]):
        done = ul2(*command, name, "--lengths", "64,64", "--examples", 100)
        assert done.exit_code == 1, done.stderr


def test_examples_are_exported_and_verified(tmp_path, two):
    folder = tmp_path / "out"
    asked = ["export", *two, "--format", "parquet", "--shards", 2, "--output", folder]
    assert ul2(*asked).exit_code == 0
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["_manifest.json", "train-00000-of-00002.parquet", "train-00001-of-00002.parquet"]
    lines = len(list(ul2_tasks.read_examples(str(folder))))
    assert f"{lines:,} examples" in ul2("verify", folder).stdout
    assert "complete already" in ul2(*asked).stderr
    (folder / names[1]).write_text("")
    done = ul2("verify", folder)
    assert done.exit_code == 1
    assert names[1] in done.stdout


def test_lengths_and_advice_are_shown_and_can_be_pasted(tmp_path):
    done = ul2("lengths", "--lengths", "2048,512")
    assert done.exit_code == 0
    advised = ast.literal_eval(re.search(r"chunk_tokens=(\{.*?\})", done.stdout)[1])
    pasted = described(tmp_path, f"Mixture('pasted', chunk_tokens={advised})")
    (capped,) = json.loads(ul2("lengths", pasted, "--lengths", "2048,512", "--json").stdout)["corpora"]
    assert {chunk["task"].removeprefix("pasted_"): chunk["tokens"] for chunk in capped["chunks"]} == advised
    assert capped["ways"][0]["chunk_tokens"] == advised


def test_lengths_that_do_not_fit_are_the_exit_status():
    done = ul2("lengths", "--lengths", "8192,8192", "--json")
    assert done.exit_code == 1
    assert ["sentinels" in problem for problem in json.loads(done.stdout)["problems"]] == [True] * 2


def test_an_interrupt_is_one_line_and_one_exit_status(tmp_path):
    (tmp_path / "waiting_module.py").write_text(
        f"import pathlib, time\npathlib.Path({str(tmp_path / 'reached')!r}).touch()\ntime.sleep(600)\n"
    )
    program = ["-m", "ul2_tasks.cli", "cache", f"{tmp_path}/waiting_module.py:waiting", "--output", str(tmp_path / "out")]
    process = programs.start(*program)
    while not (tmp_path / "reached").exists() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate()
    assert (process.returncode, stdout, stderr.count("\n")) == (130, "", 1), stderr


def test_libraries_are_quiet_and_errors_are_not(tmp_path):
    (tmp_path / "noisy_module.py").write_text(
        "import logging, sys\n"
        "import tensorflow as tf\n"
        "tf.constant(1) + 1\n"
        "logging.warning('a warning of ones own')\n"
        "for n in range(8):\n"
        "    tf.function(lambda: tf.constant(1))()\n"
        "print('an error of ones own', file=sys.stderr)\n"
        "import ul2_tasks\n"
        "ul2_tasks.register('noisy')\n"
    )
    environment = {key: value for key, value in os.environ.items() if key != "TF_CPP_MIN_LOG_LEVEL"}
    environment["PYTHONPATH"] = os.getcwd()
    asked = ["show", f"{tmp_path}/noisy_module.py:noisy", "--denoiser", "s", "--count", "1", "--lengths", "64,64"]
    done = subprocess.run([sys.executable, "-m", "ul2_tasks.cli", *asked], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    wanted = "WARNING:root:a warning of ones own\nan error of ones own\n"
    assert without_tensorflow(done.stderr) == wanted


def without_tensorflow(stderr: str) -> str:
    """Without the lines that TensorFlow writes before it reads how much it is to write."""
    return re.sub(r"^(WARNING: All log messages before absl|[IWE]\d{4} ).*\n", "", stderr, flags=re.MULTILINE)


def test_the_first_command_shows_the_examples_and_their_checks():
    done = ul2()
    assert (done.exit_code, all(f"ul2_{denoiser.name} " in done.stdout for denoiser in T5GEMMA2)) == (0, True)
    assert "8 of 8 PASS" in done.stdout
