"""The commands with one's own corpus and vocabulary: what they print, and how they say what is wrong."""

import ast
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time

import click
import new_process
import pytest
import seqio
from click.testing import CliRunner
from support import mistral_model

import ul2_tasks
from ul2_command import main
from ul2_command.options import Data, of_a_mixture
from ul2_tasks import T5GEMMA2, chunk_length, open_source, register
from ul2_tasks.looking.findings import examine_installation, examine_vocabulary
from ul2_tasks.looking.run import Run, identities
from ul2_tasks.random_access.fingerprint import LEFT_OUT
from ul2_tasks.random_access.numbering import RUN_RECORD
from ul2_tasks.sources.memory import embedded_documents
from ul2_tasks.tasks.providers import denoising_tasks

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
    "bench",
    "lengths",
    "doctor",
    "vocab train",
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


@pytest.fixture(scope="module")
def own_model(corpus, tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "own.model"
    done = ul2("vocab", "train", "--corpus", corpus, "--text_key", "content", "--size", 1000, "--sentinels", 64, "--output", path)
    assert done.exit_code == 0
    assert f"wrote {path} and {path.with_suffix('.json')}: 1,000 pieces" in done.stdout
    assert f"ul2 show my --corpus .. --vocabulary {path}" in done.stdout
    assert json.loads(path.with_suffix(".json").read_text())["documents"] == len(embedded_documents())
    return path


def test_a_corpus_and_its_own_vocabulary_are_shown(corpus, own_model):
    """Of a mixture that is new, whose whole name is given."""
    options = ["--corpus", corpus, "--text_key", "content", "--vocabulary", own_model, "--preset", "UL2R"]
    done = ul2("show", "shown_mix", *options, "--denoiser", "r", "--denoiser", "s", *LENGTHS)
    assert done.exit_code == 0
    assert done.stdout.startswith("shown_mix: ")
    shown = set(re.findall(r"^shown_\w+", done.stdout, re.MULTILINE))
    assert shown == {"shown_mix", "shown_r", "shown_s"}
    assert "<extra_id_0>" in done.stdout
    assert len(re.findall(r"\b(the|of|is|a|to)\b", done.stdout)) > 20, "English"


@pytest.mark.parametrize("vocabulary", ["default", "bytes", "own", "mistral"])
def test_the_doctor_finds_nothing_wrong_with_a_good_corpus(corpus, own_model, vocabulary):
    path = {"own": own_model, "mistral": mistral_model()}.get(vocabulary, vocabulary)
    options = ["--corpus", f"{corpus}/*.jsonl", "--text_key", "content", "--validation", 0.1, "--id_key", "id"]
    done = ul2("doctor", f"good_{vocabulary}", *options, "--vocabulary", path, "--lengths", "512,512")
    assert done.exit_code == 0, done.stdout
    assert "no problem" in done.stdout.splitlines()[-1]
    assert "splits train, validation" in done.stdout
    full = chunk_length(T5GEMMA2[0], {"inputs": 512, "targets": 512}).length
    assert f"tokens of a full-length chunk: good_{vocabulary}_r1 {full}, good_{vocabulary}_r2 " in done.stdout
    assert "documents looked at" in done.stdout
    assert re.search(r"Python 3.*seqio \d.*tensorflow 2", done.stdout)


def findings(*arguments) -> list[dict]:
    return json.loads(ul2("doctor", *arguments, "--json").stdout)["findings"]


@pytest.mark.parametrize(
    ("content", "options", "found", "remedy"),
    [
        (
            '{"text": "good"}\n["bad"]\n',
            [],
            r"1 of 2 records are bad, .*a.jsonl, line 2: must be an object with the field 'text', got a value of type list",
            "fix them, or --on_error",
        ),
        ('{"text": "good"}\nbad\n', [], r"a.jsonl, line 2: is not JSON", "fix them, or --on_error skip"),
        ("", [], "each of the 1 files is empty", ""),
        ('{"text": ""}\n', [], "1 documents looked at: 0 with text, 1 empty, 0 bad", "name other files"),
        (
            '{"text": "good"}\n',
            ["--lengths", "4096,4096"],
            r"needs \d+ sentinels for a chunk of \d+ tokens, but the vocabulary has 256",
            "",
        ),
        ('{"text": "good"}\n', ["--sentinels", "<unused{}>"], "which has no '<unused0>'", ""),
        ('{"text": "good"}\n', ["--split", "test"], "split must be one of .'train'", ""),
    ],
)
def test_the_doctor_names_each_problem_with_what_mends_it(tmp_path, content, options, found, remedy):
    (tmp_path / "a.jsonl").write_text(content)
    done = ul2("doctor", re.sub(r"\W", "_", tmp_path.name), "--corpus", tmp_path / "a.jsonl", *options)
    assert done.exit_code == 1
    first, *rest = done.stdout.splitlines()
    assert first.startswith("problem ")
    assert re.search(found, first)
    assert remedy in rest[0]
    assert re.fullmatch(r"1 problem, \d+ notes?:", rest[-2])
    assert re.search(found, rest[-1]), "first, and again last"


def test_what_is_skipped_on_purpose_is_no_problem(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "good"}\nbad\n')
    done = ul2("doctor", "skipping", "--corpus", tmp_path / "a.jsonl", "--on_error", "skip")
    assert done.exit_code == 0
    assert "they are left out and counted" in done.stdout


def test_the_doctor_tells_one_fault_of_many_tasks_once():
    told = findings("doctor_once", "--sentinels", "<unused{}>")
    (problem,) = (finding for finding in told if finding["kind"] == "problem")
    assert problem["about"] == "vocabulary"
    assert problem["concerns"] == [f"doctor_once_{name}" for name in ("r1", "r2", "s", "x1", "x2")]


def test_the_doctor_is_short_at_eighty_columns():
    done = CliRunner().invoke(main, ["doctor"], env={"COLUMNS": "80"})
    lines = done.stdout.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in done.stdout


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
    assert problem["what"] == "the source has no feature 'text', only ['content']"
    assert problem["remedy"] == "pass text_key"
    assert problem["concerns"] == ["doctor_fields_corpus"]
    (embedded,) = (finding for finding in told if finding["what"].startswith("MemoryDataSource(embedded_documents"))
    assert embedded["concerns"] == ["doctor_2_corpus", "doctor_3_corpus"]


def test_doctor_and_lengths_name_the_tasks_that_are_not_of_this_package(tmp_path, monkeypatch):
    (tmp_path / "doctor_supervised.py").write_text(
        "import functools, seqio, ul2_tasks\n"
        "from ul2_tasks.sources.memory import texts_in_memory\n"
        "feature = seqio.Feature(ul2_tasks.default_vocabulary())\n"
        "def rename(dataset, **_):\n"
        "    return dataset.map(lambda x: {'inputs': x['text'], 'targets': x['text']})\n"
        "seqio.TaskRegistry.add('doctor_plain', source=texts_in_memory(['a', 'b']),\n"
        "    preprocessors=[rename, seqio.preprocessors.tokenize], output_features={'inputs': feature, 'targets': feature})\n"
        "seqio.MixtureRegistry.add('doctor_beside_mix', [('ul2_r1', 1), ('doctor_plain', 1)])\n"
    )
    monkeypatch.chdir(tmp_path)
    asked = ["doctor_beside", "--module", "doctor_supervised"]
    (left_out,) = (finding for finding in findings(*asked) if finding["about"] == "mixture")
    assert left_out["what"] == "not looked at, because ul2_tasks.register did not make them: doctor_plain"
    told = json.loads(ul2("lengths", *asked, "--json").stdout)
    assert [task["task"] for task in told["tasks"]] == ["ul2_r1"]
    assert told["left_out"] == ["doctor_plain"]
    shown = ul2("lengths", *asked).stdout
    assert "left out, because they are not text of ul2_tasks: doctor_plain" in shown
    assert "recommendations need one corpus at a time: run ul2 lengths with ul2_mix" in shown


def test_the_doctor_doubts_that_lines_of_wrapped_prose_are_documents(tmp_path):
    paragraphs = ["\n".join(textwrap.wrap(text, 60)) for text in embedded_documents()[:40]]
    (tmp_path / "a.txt").write_text("\n\n".join(paragraphs))
    asked = ["--corpus", tmp_path / "a.txt", "--documents"]
    doubts = [finding for finding in findings("doctor_lines", *asked, "line") if "may not be a document" in finding["what"]]
    assert [doubt["kind"] for doubt in doubts] == ["note"]
    assert re.fullmatch(r"a line may not be a document: of [\d,]+, .*[\d,]+ end in mid-sentence", doubts[0]["what"])
    assert "'paragraph' gives 40 documents" in doubts[0]["remedy"]
    told = findings("doctor_paragraphs", *asked, "paragraph")
    assert not [finding for finding in told if "may not be a document" in finding["what"]]


def test_the_doctor_says_what_a_vocabulary_loses():
    told = {name: findings(f"doctor_loses_{name}", "--vocabulary", name) for name in ("default", "bytes")}
    lost = {
        name: [finding["what"] for finding in of_one if "decoding does not restore" in finding["what"]]
        for name, of_one in told.items()
    }
    assert lost["bytes"] == []
    (sentence,) = lost["default"]
    assert "line feeds, tabs" in sentence


@pytest.mark.parametrize(
    ("vocabulary", "said"),
    [
        ("default", None),
        ("bytes", ("259 to 517, beyond the 259 that it has itself", 640)),
        (mistral_model(), ("32768 to 33025, beyond the 32768 that it has itself", 33152)),
    ],
    ids=["default", "bytes", "mistral"],
)
def test_the_doctor_says_how_many_rows_an_embedding_needs_beyond_the_tokenizers_own(vocabulary, said):
    """Modes and sentinels that were added after the tokenizer's last id have none in a model of that tokenizer."""
    registered = register(f"doctor_rows_{said and said[1]}", "embedded", vocabulary, T5GEMMA2[::4])
    tasks = denoising_tasks(registered)
    notes = [each for each in examine_vocabulary(tasks, tasks[0].source.corpus) if "embedding" in each.what]
    assert [(note.kind, note.remedy.partition(";")[0]) for note in notes] == (
        [("note", f"where it has fewer, model.resize_token_embeddings({said[1]})")] if said else []
    )
    assert not said or said[0] in notes[0].what


def test_the_doctor_says_what_a_missing_package_is_for(monkeypatch):
    monkeypatch.setattr("ul2_tasks.looking.findings._version", lambda name: None if name == "apache-beam" else "1.0")
    (missing,) = (each for each in examine_installation() if each.what.startswith("not installed"))
    assert missing.what == "not installed: apache-beam"
    assert missing.remedy == "for --workers and --runner of ul2 cache and export, pip install 'ul2_tasks[cache]'"


def test_a_lone_span_is_told_by_doctor_and_lengths():
    wanted = "a full chunk of 147 tokens has one noise span, which placement 't5' puts at its end: always the last 22 tokens"
    remedy = "use longer lengths (two spans need 273,51), or placement='uniform'"
    (note,) = (
        finding for finding in findings("--lengths", "128,128") if finding["about"] == "lengths" and finding["kind"] == "note"
    )
    assert note["what"].startswith(wanted)
    assert (note["remedy"], note["concerns"]) == (remedy, ["ul2_x1"])
    done = ul2("lengths", "--lengths", "128,128")
    assert f"ul2_x1: {wanted}, prefix LM by another name; {remedy}" in done.stdout
    assert "one noise span" not in ul2("doctor", "--lengths", "273,51").stdout


def test_the_demo_shows_several_spans_of_each_span_denoiser():
    shown = ul2("show", "--count", 1).stdout
    spans = {
        task: int(count)
        for task, count in re.findall(r"^ul2_(\w+) ─.*?full-length chunk: .*?spans: (\d+)", shown, re.MULTILINE | re.DOTALL)
    }
    assert spans.keys() == {"r1", "r2", "s", "x1", "x2"}
    assert min(count for task, count in spans.items() if task != "s") >= 2


def test_a_corpus_is_cached_from_the_command_line(corpus, tmp_path):
    options = ["--corpus", corpus, "--text_key", "content", "--validation", "0.1", "--vocabulary", "bytes"]
    assert ul2("cache", "cached", *options, "--output", tmp_path).exit_code == 0
    assert (tmp_path / "cached_corpus" / "COMPLETED").exists()
    manifest = json.loads((tmp_path / "cached_corpus" / "manifest.json").read_text())
    assert manifest["totals"]["documents"] == len(embedded_documents())
    assert manifest["totals"]["tokens"] == sum(len(text.encode()) for text in embedded_documents())
    assert manifest["split_rule"] == "validation: the first 64 bits of the SHA-256 of the text, as a fraction, are below 0.1"
    seqio.add_global_cache_dirs([str(tmp_path)])
    name = register("cached", open_source(corpus, text_key="content", validation=0.1), "bytes")  # the command registers nothing
    mixture = seqio.get_mixture_or_task(name)
    example = next(mixture.get_dataset({"inputs": 64, "targets": 64}, "validation", use_cached=True).as_numpy_iterator())
    assert len(example["inputs"]) > 2


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "nothing"], "nothing named 'nothing' is registered (known: ["),
        (["doctor", "nothing"], "nothing named 'nothing' is registered (known: ["),
        (["show", "x", "--corpus", "/nowhere/*.txt"], "no file matches '/nowhere/*.txt'. Pass a file, a folder or a glob"),
        (["show", "x2", "--vocabulary", "/nowhere/my.voc"], "vocabulary must be 'default', 'bytes', a"),
        (["show", "x3", "--corpus", "a.txt", "--documents", "page"], "documents must be one of"),
        (["vocab", "train", "--corpus", "/nowhere/a.txt", "--output", "a.model"], "no file matches '/nowhere/a.txt'"),
        (["vocab", "train", "--output", "a.txt"], "output must be a file that ends in .model, got 'a.txt'"),
        (["show", "--lengths", "512"], "--lengths must be the tokens of inputs and targets, such as 512,512, got '512'."),
        (["cache", "nothing", "--output", "out"], "nothing named 'nothing' is registered (known: ["),
        (["verify", "/nowhere"], "the folder must be the --output of `ul2 cache` or of `ul2 export`, got '/nowhere'"),
        (["show", "--text", "a", "--corpus", "a.txt"], "--text and --file must be left out with --corpus, got both. Pass one"),
        (["show", "--denoiser", "q"], "the denoiser must be one of ['r1', 'r2', 's', 'x1', 'x2'] in 'ul2_mix', got ['q']"),
        (["stats", "--examples", "0"], "0 is not in the range x>=1"),
        (["lengths", "--chunk_tokens", "r1="], "such as 256, or one for each denoiser, such as r1=286,r2=289, got 'r1='."),
        (
            ["show", "--step", "3"],
            "a step needs a batch size, and there is none. Pass --batch_size, or --run",
        ),
        (["show", "--host", "3/64"], "--host must be given with --step, got no --step. Pass both, or neither."),
        (["show", "--run", "folder"], "--run must be given with --step, got no --step. Pass both, or neither."),
        (["show", "--exclude", "list.jsonl"], "--exclude must be given with --step, got no --step. Pass both, or neither."),
        (["show", "--skip", "1:2"], "--skip must be given with --step, got no --step. Pass both, or neither."),
        (["show", "--step", "3", "--batch_size", "8", "--text", "a"], "--text and --file must be left out with --step, got both"),
        (
            ["show", "--step", "3", "--batch_size", "8", "--host", "64/64"],
            "--host must be the index of a host, from 0, and the number",
        ),
        (
            ["show", "--step", "3", "--run", "folder"],
            "there is no ul2_run.json in folder. Name the folder of a run with random access",
        ),
        (["find"], "--document, --text, --id, --source, --list, --texts or --record must be given, got none. Pass one of them."),
        (["find", "--document", "x"], "document must be ul2_corpus:NUMBER, got 'x'"),
        (["show", "ul2_r1"], "'ul2_r1' is a task, and a mixture is needed. Name one of those that hold it, ["),
        (
            ["show", "x4", "--module", "json", "--corpus", "a", "--preset", "UL2"],
            "--corpus, --preset must be left out with --module, got both. Pass the settings to register(..) in the module.",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(arguments, message):
    done = ul2(*arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("package", "arguments", "extra"),
    [
        (
            "apache_beam",
            ["cache", "ul2", "--output", "out", "--workers", "2"],
            "a Beam job needs Apache Beam .*. Run .pip install 'ul2_tasks\\[cache\\]'",
        ),
        (
            "datasets",
            ["show", "absent", "--corpus", "hf:folder"],
            "need the package datasets .*. Run .pip install 'ul2_tasks\\[huggingface\\]'",
        ),
    ],
)
def test_a_package_that_is_not_installed_is_named_with_its_extra(monkeypatch, package, arguments, extra):
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not there
    monkeypatch.delitem(sys.modules, "ul2_tasks.corpus.build_cache", raising=False)
    done = ul2(*arguments)
    assert done.exit_code == 2
    assert re.search(extra, done.stderr), done.stderr


def test_help_needs_no_tensorflow():
    program = """
import sys
from click.testing import CliRunner
from ul2_command import main
from ul2_command.options import Data, of_a_mixture
for line in sys.stdin.read().splitlines():
    done = CliRunner().invoke(main, [*line.split(), "--help"])
    print(done.exit_code, "tensorflow" in sys.modules, done.output.split("[")[0].split())
"""
    asked = ["", *COMMANDS]
    done = subprocess.run([sys.executable, "-c", program], input="\n".join(asked), check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == [f"0 False {['Usage:', 'main', *command.split()]}" for command in asked]


def test_the_commands_are_told_in_the_order_in_which_they_are_used():
    listed = re.findall(r"^  (\w+) {2,}\w", ul2("--help").stdout.split("Commands:")[1], re.MULTILINE)
    assert listed == list(dict.fromkeys(command.split()[0] for command in COMMANDS))


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


@pytest.mark.parametrize("command", COMMANDS)
def test_what_a_corpus_and_a_mixture_are_is_said_alike_everywhere(command):
    options = set(re.findall(r"^  (?:-\w, )?(--\w+)", ul2(*command.split(), "--help").stdout, re.MULTILINE))
    if command in ("verify", "completion"):
        assert options <= {"--debug", "--help", "--module"}
        return
    assert options >= {"--corpus", "--text_key", "--validation", "--corpus_format", "--documents", "--debug", "--help"}
    if command != "vocab train":
        assert options >= {"--module", "--vocabulary", "--preset", "--sentinels", "--on_error", "--chunk_tokens"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands_and_options(shell):
    assert "_UL2_COMPLETE" in ul2("completion", shell).stdout
    program = [sys.executable, "-m", "ul2_command"]
    for words, number, expected in (("ul2 re", 1, {"report"}), ("ul2 stats --pre", 2, {"--preset"})):
        asked = {"_UL2_COMPLETE": f"{shell}_complete", "COMP_WORDS": words, "COMP_CWORD": str(number)}
        asked["COMP_CWORD"] = words.split()[number] if shell == "fish" else asked["COMP_CWORD"]
        done = subprocess.run(program, env={**os.environ, **asked}, check=True, capture_output=True, text=True)
        assert set(re.findall(r"-{0,2}\b(?!plain)[\w-]{5,}", done.stdout.split("\t")[0])) >= expected, done.stdout


def test_a_traceback_is_shown_on_request_only(tmp_path, monkeypatch):
    (tmp_path / "faulty_module.py").write_text("{}['missing']")
    monkeypatch.chdir(tmp_path)
    done = ul2("show", "faulty", "--module", "faulty_module")
    assert done.exit_code == 2
    assert done.stderr == "Error: KeyError: 'missing' (a bug in ul2_tasks or in your code; add --debug for the traceback)\n"
    done = CliRunner().invoke(main, ["show", "faulty", "--module", "faulty_module", "--debug"])
    assert isinstance(done.exception, KeyError)


def test_ones_own_text_is_shown_whole(tmp_path):
    text = "The quick brown fox jumps over the lazy dog."
    (tmp_path / "my.txt").write_text(text)
    ways = [(["--file", tmp_path / "my.txt"], None), (["--file", "-"], text)]
    shown = [ul2("show", "--denoiser", "r1", "--count", 1, "--json", *way, stdin=stdin).stdout for way, stdin in ways]
    assert shown[0] == shown[1]
    sample = json.loads(shown[0])
    spans = {segment["span"]: segment["text"] for segment in sample["targets"] if segment["kind"] == "text"}
    parts = [segment["text"] if segment["kind"] == "text" else spans.get(segment["span"], "") for segment in sample["inputs"]]
    assert "".join(parts).strip() == text
    plain = ul2("show", "--denoiser", "r1", "--count", 1, "--text", text).stdout
    assert "\x1b" not in plain
    assert "<extra_id_0>" in plain
    assert all(part["text"].strip() in plain for part in (*sample["inputs"], *sample["targets"])), "it is the same example"


def test_shown_examples_are_chosen_and_names_are_found():
    """Of a denoiser in any case, of a mixture with its ending and without."""
    asked = ["--count", 3, "--json", "--lengths", "64,64", "--denoiser"]
    shown = ul2("show", *asked, "S", "--denoiser", "x1").stdout
    samples = [json.loads(line) for line in shown.splitlines()]
    assert [sample["task"] for sample in samples] == ["ul2_s"] * 3 + ["ul2_x1"] * 3
    assert all(len(sample["ids"][feature]) <= 64 for sample in samples for feature in ("inputs", "targets"))
    same, other = (ul2("show", name, *asked, "s", "--seed", seed).stdout for name, seed in (("ul2", 0), ("ul2_mix", 1)))
    assert "".join(shown.splitlines(True)[:3]) == same != other
    assert [json.loads(line)["task"] for line in other.splitlines()] == ["ul2_s"] * 3


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


def test_a_description_is_made_once():
    data = Data(main, "described_once", None, (), {"spec": "embedded"}, {}, {})
    assert seqio.MixtureRegistry.get(data.mixture).configuration is data.described
    assert Data(main, "ul2", None, (), {}, {}, {}).mixture == "ul2_mix"


def test_the_lengths_of_a_step_are_those_of_training():
    shown = ul2("show", "--step", 0, "--batch_size", 8, "--json", "--denoiser", "r2", "--count", 1).stdout
    assert len(json.loads(shown)["ids"]["inputs"]) == 512


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
    for given, told in [
        (["--seed", 0], "--seed must be 5, as the run in "),
        (["--lengths", "64,32"], "--lengths must be {'inputs': 64, 'targets': 64}, as the run in "),
        (["--batch_size", 8], "--batch_size must be 16, as"),
        (["--packed"], "--packed must be False, as"),
        (["--split", "validation"], "--split must be 'train', as"),
        (["other"], "NAME must be 'fed_mix', as"),
    ]:
        for command in (["show", "--step", 9], ["find", "--document", 3]):
            done = ul2(*command, *recorded, *given)
            assert done.exit_code == 2
            assert told in done.stderr
            assert re.search(r" recorded it, got .+\. Leave it out\.\n$", done.stderr)
    (tmp_path / RUN_RECORD).write_text(json.dumps(record | {"vocabulary": "another"}))
    assert "vocabulary was 'another', and is now 'SentencePiece" in ul2("show", *recorded, "--step", 9).stderr


def test_a_broken_law_is_the_exit_status(tmp_path, monkeypatch):
    (tmp_path / "unequal_corpora.py").write_text(
        "import seqio, ul2_tasks\n"
        "from ul2_tasks.tasks.mixing import sample_examples\n"
        "mixture = seqio.MixtureRegistry.get(ul2_tasks.register('unequal', denoisers=ul2_tasks.T5GEMMA2[3:]))\n"
        "mixture._sample_fn = lambda datasets, rates, seed: sample_examples(datasets, [1] * len(datasets), seed)\n"
    )
    monkeypatch.chdir(tmp_path)
    asked = ["unequal", "--module", "unequal_corpora", "--lengths", "64,64", "--examples", 100]
    for command in (["stats"], ["report", "--output", tmp_path / "page.html"]):
        done = ul2(*command, *asked)
        assert done.exit_code == 1, done.stderr


def test_a_page_without_a_place_is_refused_before_anything_is_measured(tmp_path):
    for output, message in (
        (tmp_path / "no" / "r.html", "the page 'r.html' must be in a folder that exists, got '.*no'"),
        (tmp_path, "must be of a file, got the folder"),
    ):
        done = ul2("report", "--lengths", "3,3", "--output", output)  # which do not fit, and would be told otherwise
        assert done.exit_code == 2
        assert re.search(message, done.stderr), done.stderr


def test_examples_are_exported_and_verified(tmp_path, two):
    folder = tmp_path / "out"
    asked = ["export", *two, "--format", "jsonl", "--shards", 2, "--output", folder]
    assert ul2(*asked).exit_code == 0
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["_manifest.json", "train-00000-of-00002.jsonl", "train-00001-of-00002.jsonl"]
    lines = sum(len((folder / name).read_text().splitlines()) for name in names[1:])
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
    for denoiser in T5GEMMA2:
        chunk = chunk_length(denoiser, {"inputs": 2048, "targets": 512})
        row = next(line for line in done.stdout.splitlines() if line.startswith(f"│ ul2_{denoiser.name} "))
        numbers = [int(cell.replace(",", "").split("(")[0]) for cell in row.split("│")[2:-2]]
        assert numbers == [chunk.length, chunk.noise, chunk.spans, chunk.inputs, chunk.targets]
    lengths = re.search(r"--lengths +│ +2048,512 │ +2048,512 │ +(\d+),(\d+) │", done.stdout)
    assert int(lengths.group(1)) + int(lengths.group(2)) == 2048 + 512
    inputs, targets = (
        re.findall(r"(\d+\.\d)%", line) for line in done.stdout.splitlines() if re.match("│ (in|tar)(pu|ge)ts ", line)
    )
    _, chunks, _, both = (min(map(float, pair)) for pair in zip(inputs, targets))
    assert ("both: paste one of these" in done.stdout) == (both > chunks), "what fills rows less is not advised"

    pasted = re.search(r"^  (--lengths 2048,512 --chunk_tokens \S+)$", done.stdout, re.MULTILINE).group(1).split()
    advised = ast.literal_eval(re.search(r"^  register\(\.\., chunk_tokens=(.*)\)$", done.stdout, re.MULTILINE).group(1))
    capped = json.loads(ul2("lengths", "pasted", *pasted, "--json").stdout)
    assert {task["denoiser"]: task["chunk"]["length"] for task in capped["tasks"]} == advised
    assert [way["name"] for way in capped["ways"]] == ["now", "recommended chunks", "recommended lengths", "both"]
    assert capped["ways"][0]["chunk_tokens"] == advised


def test_lengths_that_do_not_fit_are_the_exit_status():
    done = ul2("lengths", "--lengths", "8192,8192")
    assert done.exit_code == 1
    assert "ul2_r1 does not fit: denoiser 'r1' needs 455 sentinels for a chunk of" in done.stdout
    done = ul2("lengths", "--lengths", "8192,8192", "--json")
    assert done.exit_code == 1
    assert [problem["task"] for problem in json.loads(done.stdout)["problems"]] == ["ul2_r1", "ul2_r2"]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (["--chunk_tokens", "r1=286,X2=289"], {"chunk_tokens": {"r1": 286, "x2": 289}}),
        (["--chunk-tokens", "256", "--sentinels", "512"], {"chunk_tokens": 256, "sentinels": 512}),
        (["--preset", "ul2", "--On-Error", "SKIP"], {"preset": "UL2", "on_error": "skip"}),
    ],
)
def test_options_are_the_same_with_dashes_and_in_any_case(given, wanted):
    @click.command(context_settings=main.context_settings)
    @of_a_mixture
    def asked(data):
        click.echo(repr(data.arguments))

    assert ast.literal_eval(CliRunner().invoke(asked, given).stdout) == wanted


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_can_be_written_with_dashes(command):
    names = re.findall(r"^  (?:-\w, )?(--\w+_\w+)", ul2(*command.split(), "--help").stdout, re.MULTILINE)
    for name in names:
        assert "No such option" not in ul2(*command.split(), f"{name.replace('_', '-')}=1", "--help").stderr
    assert "No such option" in ul2(*command.split(), "--no-such-option=1", "--help").stderr


@pytest.mark.parametrize(
    ("command", "said"), [("show", "Interrupted.\n"), ("cache", "Interrupted. Re-run the same command to resume.\n")]
)
def test_an_interrupt_is_one_line_and_one_exit_status(tmp_path, command, said):
    (tmp_path / "waiting_module.py").write_text(
        f"import pathlib, time\npathlib.Path({str(tmp_path / 'reached')!r}).touch()\ntime.sleep(600)\n"
    )
    program = ["-m", "ul2_command", command, "waiting", "--module", "waiting_module"]
    program += ["--output", str(tmp_path / "out")] if command == "cache" else []
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.getcwd()}"}
    process = new_process.Program(program, env=environment, torn_down=True)
    while not (tmp_path / "reached").exists() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert (process.wait(), process.stdout, process.stderr) == (130, "", said)


def test_libraries_are_quiet_and_errors_are_not(tmp_path):
    (tmp_path / "noisy_module.py").write_text(
        "import logging, sys\n"
        "import apache_beam, tensorflow as tf\n"
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
    done = subprocess.run([sys.executable, "-m", "ul2_command", *asked], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    wanted = "WARNING:root:a warning of ones own\nan error of ones own\n"
    assert without_tensorflow(done.stderr) == wanted


def without_tensorflow(stderr: str) -> str:
    """Without the lines that TensorFlow writes before it reads how much it is to write."""
    return re.sub(r"^(WARNING: All log messages before absl|[IWE]\d{4} ).*\n", "", stderr, flags=re.MULTILINE)


def test_the_first_command_fits_one_screen_of_80_columns():
    done = CliRunner().invoke(main, [], env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    for denoiser in T5GEMMA2:
        (row,) = (line.split() for line in lines if line.startswith(f"ul2_{denoiser.name} "))
        full = chunk_length(denoiser, {"inputs": 512, "targets": 512})
        assert row[1:] == [
            denoiser.mode,
            "suffix" if denoiser.single_span else f"{denoiser.mean_span_length}",
            f"{denoiser.noise_density:.0%}",
            *map(str, (full.length, full.inputs, full.targets)),
            f"{denoiser.weight / 8:.1%}",
        ]
    assert "Checked on 4,000 examples, seed 0: 8 of 8 PASS" in lines
