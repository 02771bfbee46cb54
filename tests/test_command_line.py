"""The commands with one's own corpus and vocabulary: what they print, and how they say what is wrong."""

import json
import re
import sys

import pytest
import seqio
from click.testing import CliRunner
from support import mistral_model

from ul2_tasks.__main__ import main
from ul2_tasks.memory import embedded_documents

LENGTHS = ["--lengths", "128,128"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    for part in range(3):
        lines = [json.dumps({"content": text, "id": f"{part}/{n}"}) for n, text in enumerate(embedded_documents()[part::3])]
        (folder / f"{part}.jsonl").write_text("\n".join(lines))
    return folder


def ul2(*arguments):
    done = CliRunner().invoke(main, list(map(str, arguments)), env={"COLUMNS": "600"})
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
    done = ul2(
        "show", "shown", "--corpus", corpus, "--text_key", "content", "--vocabulary", own_model, "--preset", "UL2R", *LENGTHS
    )
    assert done.exit_code == 0
    shown = set(re.findall(r"^shown_\w+", done.stdout, re.MULTILINE))
    assert shown == {"shown_mix", "shown_r", "shown_x1", "shown_x2", "shown_s"}
    assert "<extra_id_0>" in done.stdout
    assert len(re.findall(r"\b(the|of|is|a|to)\b", done.stdout)) > 20, "English"


@pytest.mark.parametrize("vocabulary", ["default", "bytes", "own", "mistral"])
def test_the_doctor_finds_nothing_wrong_with_a_good_corpus(corpus, own_model, vocabulary):
    path = {"own": own_model, "mistral": mistral_model()}.get(vocabulary, vocabulary)
    options = ["--corpus", f"{corpus}/*.jsonl", "--text_key", "content", "--validation", 0.1, "--id_key", "id"]
    done = ul2("doctor", f"good_{vocabulary}", *options, "--vocabulary", path, *LENGTHS)
    assert done.exit_code == 0, done.stdout
    assert "no problem" in done.stdout
    assert "splits train, validation" in done.stdout
    for denoiser in ("r1", "r2", "x1", "x2", "s"):
        assert re.search(
            rf"lengths, good_{vocabulary}_{denoiser} +│ chunks of \d+ tokens, \d+ of them noise, spans \d+", done.stdout
        )
    assert "documents looked at" in done.stdout
    assert re.search(r"Python 3.*seqio \d.*tensorflow 2", done.stdout)


@pytest.mark.parametrize(
    ("content", "options", "found", "remedy"),
    [
        ('{"text": "good"}\n["bad"]\n', [], r"a.jsonl, line 2: is of type list", "mend them, or register with on_error='skip'"),
        ('{"text": "good"}\nbad\n', [], r"a.jsonl, line 2: is not JSON", "mend them, or register with on_error='skip'"),
        ("", [], "each of the 1 files is empty", "mend it, or name other files"),
        ('{"text": ""}\n', [], "1 documents looked at: 0 with text, 1 empty, 0 bad", "name other files"),
        (
            '{"text": "good"}\n',
            ["--lengths", "4096,4096"],
            r"needs \d+ sentinels for a chunk of \d+ tokens, the vocabulary has 256",
            "as it says",
        ),
        ('{"text": "good"}\n', ["--sentinels", "<unused{}>"], "has no piece '<unused0>'; give ids, or another name", "as it says"),
        ('{"text": "good"}\n', ["--split", "test"], "there is no split 'test'", "mend it, or name other files"),
    ],
)
def test_the_doctor_names_each_problem_with_what_mends_it(tmp_path, content, options, found, remedy):
    (tmp_path / "a.jsonl").write_text(content)
    done = ul2("doctor", re.sub(r"\W", "_", tmp_path.name), "--corpus", tmp_path / "a.jsonl", *options)
    assert done.exit_code == 1
    row = next(line for line in done.stdout.splitlines() if re.search(found, line))
    assert "problem" in row
    assert remedy in row
    assert re.search(r"^\d+ problems", done.stdout, re.MULTILINE)


def test_what_is_skipped_on_purpose_is_no_problem(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "good"}\nbad\n')
    done = ul2("doctor", "skipping", "--corpus", tmp_path / "a.jsonl", "--on_error", "skip")
    assert done.exit_code == 0
    assert "they are left out and counted" in done.stdout


def test_a_corpus_is_cached_from_the_command_line_by_two_workers_too(corpus, tmp_path):
    options = ["--corpus", corpus, "--text_key", "content", "--validation", "0.1", "--vocabulary", "bytes", "--output"]
    assert ul2("cache", "cached", *options, tmp_path / "one").exit_code == 0
    assert ul2("cache", "cached", *options, tmp_path / "two", "--workers", 2).exit_code == 0
    files = sorted(path.name for path in (tmp_path / "one" / "cached_corpus").iterdir())
    assert "COMPLETED" in files
    for name in files:
        one, two = ((tmp_path / folder / "cached_corpus" / name).read_bytes() for folder in ("one", "two"))
        assert one == two, name
    manifest = json.loads((tmp_path / "one" / "cached_corpus" / "manifest.json").read_text())
    assert manifest["totals"]["documents"] == len(embedded_documents())
    assert manifest["totals"]["tokens"] == sum(len(text.encode()) for text in embedded_documents())
    assert manifest["split_rule"] == "validation: the first 64 bits of the SHA-256 of the text, as a fraction, are below 0.1"
    seqio.add_global_cache_dirs([str(tmp_path / "one")])
    mixture = seqio.get_mixture_or_task("cached_mix")
    example = next(mixture.get_dataset({"inputs": 64, "targets": 64}, "validation", use_cached=True).as_numpy_iterator())
    assert len(example["inputs"]) > 2


def test_bad_records_end_the_job_in_one_sentence_or_are_counted(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{"text": 2}\nthree\n{"text": "four"}\n')
    done = ul2("cache", "bad_records", "--corpus", tmp_path / "a.jsonl", "--output", tmp_path / "out")
    assert done.exit_code == 2
    assert (
        f"{tmp_path}/a.jsonl, line 2: 'text' is of type int, expected a text. Mend the corpus, or register it with" in done.stderr
    )
    assert "Traceback" not in done.stderr
    done = ul2("cache", "bad_skipped", "--corpus", tmp_path / "a.jsonl", "--on_error", "skip", "--output", tmp_path / "out")
    assert done.exit_code == 0
    totals = json.loads((tmp_path / "out" / "bad_skipped_corpus" / "manifest.json").read_text())["totals"]
    assert (totals["documents"], totals["skipped"]) == (4, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "nothing"], "there is no mixture 'nothing_mix', only ["),
        (["doctor", "nothing"], "there is no mixture 'nothing_mix', only ["),
        (["show", "x", "--corpus", "/nowhere/*.txt"], "no file matches '/nowhere/*.txt'; expected a file, a folder or a glob"),
        (["show", "x2", "--vocabulary", "/nowhere/my.voc"], "the vocabulary is '/nowhere/my.voc', expected 'default', 'bytes', a"),
        (["show", "x3", "--corpus", "a.txt", "--documents", "page"], "documents is 'page', expected one of"),
        (["vocab", "train", "--corpus", "/nowhere/a.txt", "--output", "a.model"], "no file matches '/nowhere/a.txt'"),
        (["vocab", "train", "--output", "a.txt"], "the output is 'a.txt', expected a file that ends in .model"),
        (["show", "--lengths", "512"], "got '512', expected the tokens of inputs and of targets, such as 512,512"),
        (["cache", "nothing", "--output", "out"], "there is no mixture 'nothing_mix', only ["),
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
        ("apache_beam", ["cache", "ul2", "--output", "out"], "caching needs Apache Beam .*; pip install 'ul2_tasks\\[cache\\]'"),
        (
            "datasets",
            ["show", "absent", "--corpus", "hf:folder"],
            "need the package datasets .*; pip install 'ul2_tasks\\[huggingface\\]'",
        ),
    ],
)
def test_a_package_that_is_not_installed_is_named_with_its_extra(monkeypatch, package, arguments, extra):
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not there
    monkeypatch.delitem(sys.modules, "ul2_tasks.build_cache", raising=False)
    done = ul2(*arguments)
    assert done.exit_code == 2
    assert re.search(extra, done.stderr), done.stderr
