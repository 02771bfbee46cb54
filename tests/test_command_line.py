"""The commands with one's own corpus and vocabulary: what they print, and how they say what is wrong."""

import ast
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time

import click
import new_process
import pytest
from click.testing import CliRunner

import ul2_tasks
from ul2_tasks import T5GEMMA2
from ul2_tasks.cli import main
from ul2_tasks.inspect.run import Run, identities
from ul2_tasks.order.cycles import nearest_cycle
from ul2_tasks.random_access.fingerprint import LEFT_OUT
from ul2_tasks.random_access.numbering import RUN_RECORD
from ul2_tasks.sources.memory import embedded_documents

LENGTHS = ["--lengths", "128,128"]


pytestmark = pytest.mark.usefixtures("quick_advice")


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch):
    """Advice tries fewer chunks, too."""
    monkeypatch.setattr("ul2_tasks.mixtures.advice.FRACTIONS", (0.71, 0.41, 0.24))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    for part in range(3):
        lines = [json.dumps({"content": text, "id": f"{part}/{n}"}) for n, text in enumerate(embedded_documents()[part::3])]
        (folder / f"{part}.jsonl").write_text("\n".join(lines))
    return folder


COMMANDS = [
    "show",
    "find",
    "audit",
    "stats",
    "report",
    "lengths",
    "doctor",
    "cache",
    "export",
    "verify",
    "completion",
]


@pytest.fixture
def two(tmp_path, monkeypatch):
    """Options for a mixture of two denoisers, which a module registers."""
    (tmp_path / "two_denoisers.py").write_text("import ul2_tasks\nul2_tasks.register('two', denoisers=ul2_tasks.T5GEMMA2[3:])\n")
    monkeypatch.chdir(tmp_path)
    return ["two", "--module", "two_denoisers", "--lengths", "64,64"]


def ul2(*arguments, stdin=None):
    done = CliRunner().invoke(main, list(map(str, arguments)), env={"COLUMNS": "600"}, input=stdin)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


ERRORS = [  # what is asked, and the argument, or the name, that the sentence has
    (["show", "nothing"], "nothing"),
    (["cache", "nothing", "--output", "out"], "nothing"),
    (["show", "x", "--corpus", "/nowhere/*.txt"], "/nowhere/*.txt"),
    (["show", "x2", "--vocabulary", "/nowhere/my.voc"], "vocabulary"),
    (["show", "--lengths", "512"], "--lengths"),
    (["show", "--denoiser", "q"], "denoiser"),
    (["show", "--text", "a", "--corpus", "a.txt"], "--text and --file"),
    (["show", "--step", "3"], "--batch_size"),
    (["show", "--step", "3", "--batch_size", "8", "--host", "64/64"], "--host"),
    (["show", "--step", "3", "--run", "folder"], "ul2_run.json"),
    (["show", "--host", "3/64"], "--host must be given with --step"),
    (["show", "x4", "--module", "json", "--corpus", "a", "--preset", "UL2"], "--corpus, --preset"),
    (["stats", "--examples", "0"], "--examples"),
    (["lengths", "--chunk_tokens", "r1="], "--chunk_tokens"),
    (["find"], "--document, --text, --id, --source, --list, --texts or --record"),
    (["find", "--document", "x"], "document"),
    (["verify", "/nowhere"], "/nowhere"),
    (["report", "--lengths", "3,3", "--output", "no/such/page.html"], "page.html"),
    (["report", "chat"], "ul2 stats"),
    (["show", "--no_such_option=1"], "--no_such_option"),
]


@pytest.mark.parametrize(("arguments", "named"), ERRORS, ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_what_is_wrong_is_named_in_one_sentence(arguments, named):
    done = ul2(*arguments)
    assert done.exit_code == 2
    assert named in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("package", "arguments", "extra"),
    [
        ("apache_beam", ["cache", "ul2", "--output", "out", "--workers", "2"], "ul2_tasks[beam]"),
        ("jinja2", ["report", "ul2", "--examples", "20", "--output", "out.html"], "ul2_tasks[report]"),
        ("datasets", ["show", "absent", "--corpus", "hf:folder"], "ul2_tasks[huggingface]"),
    ],
)
def test_a_package_that_is_not_installed_is_named_with_its_extra(monkeypatch, package, arguments, extra):
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not there
    monkeypatch.delitem(sys.modules, "ul2_tasks.corpus.build_cache", raising=False)
    done = ul2(*arguments)
    assert (done.exit_code, extra in done.stderr) == (2, True), done.stderr


def test_a_corpus_is_examined_shown_and_cached(corpus, tmp_path):
    """Of a mixture that is new, whose whole name is given."""
    options = ["--corpus", f"{corpus}/*.jsonl", "--text_key", "content", "--validation", 0.1, "--id_key", "id"]
    options += ["--vocabulary", "bytes"]
    told = ul2("doctor", "own", *options, "--lengths", "512,512")
    assert (told.exit_code, "no problem" in told.stdout.splitlines()[-1]) == (0, True), told.stdout
    assert "splits train, validation" in told.stdout
    shown = ul2("show", "own_mix", *options, "--preset", "UL2R", "--denoiser", "r", "--denoiser", "S", *LENGTHS).stdout
    assert set(re.findall(r"^own_\w+", shown, re.MULTILINE)) == {"own_mix", "own_r", "own_s"}
    assert "<extra_id_0>" in shown
    assert ul2("cache", "own", *options, "--output", tmp_path).exit_code == 0
    totals = json.loads((tmp_path / "own_corpus" / "manifest.json").read_text())["totals"]
    texts = embedded_documents()
    assert (totals["documents"], totals["tokens"]) == (len(texts), sum(len(text.encode()) for text in texts))


def test_ones_own_text_is_shown_whole(tmp_path):
    text = "The quick brown fox jumps over the lazy dog."
    (tmp_path / "my.txt").write_text(text)
    ways = [(["--file", tmp_path / "my.txt"], None), (["--file", "-"], text), (["--text", text], None)]
    shown = [ul2("show", "--denoiser", "r1", "--count", 1, "--json", *way, stdin=stdin).stdout for way, stdin in ways]
    assert shown[0] == shown[1] == shown[2]
    sample = json.loads(shown[0])
    spans = {segment["span"]: segment["text"] for segment in sample["targets"] if segment["kind"] == "text"}
    parts = [segment["text"] if segment["kind"] == "text" else spans.get(segment["span"], "") for segment in sample["inputs"]]
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
        options = ["--corpus", tmp_path / "a.jsonl", "--on_error", "skip", "--vocabulary", vocabulary]
        done = ul2("doctor", f"skipping_{vocabulary}", *options)
        assert (done.exit_code, "line feeds, tabs" in done.stdout) == (0, loses)
        assert "they are left out and counted" in done.stdout


def findings(*arguments) -> list[dict]:
    return json.loads(ul2("doctor", *arguments, "--json").stdout)["findings"]


def test_the_doctor_looks_at_all_corpora_of_a_mixture_and_at_each_once(tmp_path, monkeypatch):
    (tmp_path / "doctor_corpora.py").write_text(
        "import seqio, tensorflow as tf, ul2_tasks\n"
        "def other_field(split, shuffle_files, seed=None):\n"
        "    return tf.data.Dataset.from_tensor_slices({'content': ['a text']})\n"
        "fields = seqio.FunctionDataSource(other_field, splits=['train'])\n"
        "three = [(ul2_tasks.register(f'doctor_{n}', 'embedded', denoisers=ul2_tasks.T5GEMMA2[n:]), 1) for n in (2, 3)]\n"
        "ul2_tasks.mix('doctor_three', [*three, (ul2_tasks.register('doctor_fields', fields), 1)])\n"
    )
    monkeypatch.chdir(tmp_path)
    told = findings("doctor_three", "--module", "doctor_corpora")
    (problem,) = (finding for finding in told if finding["kind"] == "problem")
    assert "text_key must be a feature of the source, one of ['content'], got 'text'" in problem["what"]
    assert problem["concerns"] == ["doctor_fields_corpus"]
    (embedded,) = (finding for finding in told if finding["what"].startswith("MemoryDataSource(embedded_documents"))
    assert embedded["concerns"] == ["doctor_2_corpus", "doctor_3_corpus"]


def test_doctor_and_lengths_name_the_tasks_that_are_not_text(tmp_path):
    (tmp_path / "doctor_beside.py").write_text(
        "import ul2_tasks\n"
        "chat = ul2_tasks.Chat('doctor_talk', renderer='harmony:default')\n"
        "given = {'sentinels': range(3, 203), 'denoisers': ul2_tasks.T5GEMMA2[:1]}\n"
        "own = ul2_tasks.Mixture('doctor_own', vocabulary=chat.vocabulary, **given)\n"
        "both = ul2_tasks.Mix('doctor_beside', {own: 1, chat: 1})\n"
    )
    asked = [f"{tmp_path}/doctor_beside.py:both"]
    (left_out,) = (finding for finding in findings(*asked) if finding["about"] == "mixture")
    assert left_out["what"] == "not looked at, because they are not text: doctor_talk_prompt_completion"
    told = json.loads(ul2("lengths", *asked, "--json").stdout)
    assert [task["task"] for task in told["tasks"]] == ["doctor_own_r1"]
    assert told["left_out"] == ["doctor_talk_prompt_completion"]
    for wrong, said in (
        ("nothing", "FILE.py:OBJECT of a Mixture"),
        ("chat --preset UL2", "--preset must be left out with FILE.py:OBJECT"),
    ):
        done = ul2("show", *f"{tmp_path}/doctor_beside.py:{wrong}".split())
        assert (done.exit_code, said in done.stderr) == (2, True), done.stderr
    assert "with a file that exists" in ul2("show", f"{tmp_path}/no.py:both").stderr


def test_bad_records_end_the_job_in_one_sentence_or_are_counted(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{"text": 2}\nthree\n{"text": "four"}\n')
    done = ul2("cache", "bad_records", "--corpus", tmp_path / "a.jsonl", "--output", tmp_path / "out")
    assert done.exit_code == 2
    assert f"{tmp_path}/a.jsonl, line 2: 'text' must be a text, got a value of type int. Fix the corpus, or pass" in done.stderr
    assert "Traceback" not in done.stderr
    done = ul2("cache", "bad_skipped", "--corpus", tmp_path / "a.jsonl", "--on_error", "skip", "--output", tmp_path / "out")
    assert done.exit_code == 0
    totals = json.loads((tmp_path / "out" / "bad_skipped_corpus" / "manifest.json").read_text())["totals"]
    assert (totals["documents"], totals["skipped"]) == (2, 2)


def test_help_needs_no_tensorflow():
    program = """
import sys
from click.testing import CliRunner
from ul2_tasks.cli import main
from ul2_tasks.cli.options import Data, of_a_mixture
for line in sys.stdin.read().splitlines():
    done = CliRunner().invoke(main, [*line.split(), "--help"])
    print(done.exit_code, "tensorflow" in sys.modules, done.output.split("[")[0].split())
"""
    asked = ["", *COMMANDS]
    done = subprocess.run([sys.executable, "-c", program], input="\n".join(asked), check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == [f"0 False {['Usage:', 'main', *command.split()]}" for command in asked]


def test_the_help_of_each_command_has_all_of_its_options():
    for line in COMMANDS:
        command = main
        for word in line.split():
            command = command.commands[word]
        told = ul2(*line.split(), "--help").stdout
        names = [option.opts for option in command.params if isinstance(option, click.Option)]
        assert [own for own in names if not any(re.search(rf"^  .*{name}\b", told, re.MULTILINE) for name in own)] == []


@pytest.mark.parametrize("data", ["texts", "conversations"])
def test_the_doctor_finds_packages_that_clash(data, tmp_path, monkeypatch, two):
    metadata = tmp_path / "elsewhere" / "clashing-1.0.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    asked = ["numpy<1", "click>=8", "not_there[extra]>2", "optional; extra == 'x'", "old; python_version < '3'", "not a name"]
    lines = ["Metadata-Version: 2.1", "Name: clashing", "Version: 1.0", *(f"Requires-Dist: {line}" for line in asked)]
    metadata.write_text("\n".join(lines))
    monkeypatch.syspath_prepend(metadata.parents[1])
    done = ul2("doctor", *(two if data == "texts" else ["chat"]))
    assert done.exit_code == 1
    said = " ".join(done.stdout.split())
    assert re.findall(r"clashing 1.0 asks for ([\w'<>]+)", said) == ["numpy<1", "not_there>2", "'not"] * 2, "found, and summed up"


def test_a_traceback_is_shown_on_request_only(tmp_path, monkeypatch):
    (tmp_path / "faulty_module.py").write_text("{}['missing']")
    monkeypatch.chdir(tmp_path)
    done = ul2("show", "faulty", "--module", "faulty_module")
    assert done.exit_code == 2
    assert done.stderr == "Error: KeyError: 'missing' (a bug in ul2_tasks or in your code; add --debug for the traceback)\n"
    done = CliRunner().invoke(main, ["show", "faulty", "--module", "faulty_module", "--debug"])
    assert isinstance(done.exception, KeyError)


def test_a_step_is_shown_and_a_text_found_in_it(two):
    asked = ["--step", 7, "--batch_size", 32, "--seed", 3]
    shown = ul2("show", *two, *asked, "--host", "1/4", "--count", 1).stdout
    assert "two_mix: inputs of at most 64 tokens, targets of at most 64; split train, seed 3\nstep 7, batch of 32: " in shown
    assert "; host 1 of 4 has those whose number mod 4 is 1\n" in shown
    sample = json.loads(ul2("show", *two, *asked, "--denoiser", "s", "--count", 1, "--json").stdout)
    assert (sample["step"], sample["denoiser"], sample["number"] // 32) == (7, "s", 7)
    words = next(part["text"] for part in sample["targets"] if part["kind"] == "text")
    epochs = sample["location"]["epoch"] + 1
    row = rf"^ +{epochs - 1} +{sample['number']} +7 +s +\d+ to \d+"
    of_text = ul2("find", *two, *asked[2:], "--text", words, "--epochs", epochs, "--count", 1000).stdout
    assert re.search(row, of_text, re.MULTILINE)
    document = sample["location"]["documents"][0][0]
    of_document = ul2("find", *two, *asked[2:], "--document", document, "--epochs", epochs).stdout
    assert re.search(row, of_document, re.MULTILINE)


def test_a_folder_without_the_cache_that_is_asked_for_is_told_alike(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr("seqio.utils._GLOBAL_CACHE_DIRECTORIES", [])
    (tmp_path / "uncached.py").write_text("import ul2_tasks\nul2_tasks.register('uncached_own')\n")
    monkeypatch.syspath_prepend(tmp_path)
    for what in (["ul2"], ["uncached", "--corpus", corpus, "--text_key", "content"], ["uncached_own", "--module", "uncached"]):
        for command in (["show", "--step", 9, "--batch_size", 8], ["find", "--document", 3]):
            done = ul2(command[0], *what, *command[1:], "--cache", tmp_path)
            told = (
                f"--cache must be a folder that `ul2 cache` wrote, got '{tmp_path}', which has no cache of {what[0]}_corpus. Write"
            )
            assert (done.exit_code, told in done.stderr) == (2, True), done.stderr


def test_the_record_in_the_folder_of_a_run_says_all_of_it(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr("seqio.utils._GLOBAL_CACHE_DIRECTORIES", [])
    what = ["--corpus", corpus, "--text_key", "content"]
    assert ul2("cache", "fed", *what, "--output", tmp_path / "cache").exit_code == 0
    cached = [*what, "--cache", tmp_path / "cache"]
    asked = ["--lengths", "64,64", "--seed", 5, "--batch_size", 16]
    wanted = [ul2("show", "fed", *cached, *asked, "--step", 9).stdout, ul2("find", "fed", *cached, *asked, "--document", 3).stdout]
    mixture = ul2_tasks.Mixture("fed", corpus, text_key="content")
    run = Run(mixture, {"inputs": 64, "targets": 64}, seed=5, batch_size=16, cache_dirs=[tmp_path / "cache"])
    record = {field.name: getattr(run, field.name) for field in dataclasses.fields(Run)} | {"mixture": "fed_mix", "cache_dirs": []}
    record = {key: value for key, value in record.items() if key not in LEFT_OUT}
    (tmp_path / RUN_RECORD).write_text(json.dumps(record | identities(run)))
    recorded = [*cached, "--run", tmp_path]
    assert [ul2("show", *recorded, "--step", 9).stdout, ul2("find", *recorded, "--document", 3).stdout] == wanted
    assert ul2("show", "fed", *recorded, *asked, "--step", 9).stdout == wanted[0], "what is the same may be given, too"
    for given in (["--seed", 0], ["--lengths", "64,32"], ["--batch_size", 8], ["--packed"], ["--split", "validation"], ["other"]):
        done = ul2("find", "--document", 3, *recorded, *given)
        assert done.exit_code == 2
        assert f"{given[0] if given[0].startswith('--') else 'NAME'} must be " in done.stderr
    (tmp_path / RUN_RECORD).write_text(json.dumps(record | identities(run) | {"vocabulary": "another"}))
    assert "vocabulary was 'another', and is now 'SentencePiece" in ul2("show", *recorded, "--step", 9).stderr


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
    assert f"{folder} is as it was written: " in ul2("verify", folder).stdout
    assert f"{lines:,} examples" in ul2("verify", folder).stdout
    assert "is complete already" in ul2(*asked).stderr
    (folder / names[1]).write_text("")
    done = ul2("verify", folder)
    assert done.exit_code == 1
    assert names[1] in done.stdout


def test_lengths_and_advice_are_shown_and_can_be_pasted():
    done = ul2("lengths", "--lengths", "2048,512")
    assert done.exit_code == 0
    pasted = re.search(r"^  (--lengths 2048,512 --chunk_tokens \S+)$", done.stdout, re.MULTILINE).group(1).split()
    advised = ast.literal_eval(re.search(r"^  register\(\.\., chunk_tokens=(.*)\)$", done.stdout, re.MULTILINE).group(1))
    capped = json.loads(ul2("lengths", "pasted", *pasted, "--json").stdout)
    assert {task["denoiser"]: task["chunk"]["length"] for task in capped["tasks"]} == advised
    assert [way["name"] for way in capped["ways"]] == ["now", "recommended chunks", "recommended lengths", "both"]
    assert capped["ways"][0]["chunk_tokens"] == advised


def test_lengths_that_do_not_fit_are_the_exit_status():
    done = ul2("lengths", "--lengths", "8192,8192", "--json")
    assert done.exit_code == 1
    assert [problem["task"] for problem in json.loads(done.stdout)["problems"]] == ["ul2_r1", "ul2_r2"]


def test_an_interrupt_is_one_line_and_one_exit_status(tmp_path):
    (tmp_path / "waiting_module.py").write_text(
        f"import pathlib, time\npathlib.Path({str(tmp_path / 'reached')!r}).touch()\ntime.sleep(600)\n"
    )
    program = ["-m", "ul2_tasks.cli", "cache", "waiting", "--module", "waiting_module", "--output", str(tmp_path / "out")]
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.getcwd()}"}
    process = new_process.Program(program, env=environment, torn_down=True)
    while not (tmp_path / "reached").exists() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert (process.wait(), process.stdout) == (130, "")
    assert process.stderr == "Interrupted. Re-run the same command to resume.\n"


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
    environment["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{os.getcwd()}"
    asked = ["show", "noisy", "--module", "noisy_module", "--denoiser", "s", "--count", "1", "--lengths", "64,64"]
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
