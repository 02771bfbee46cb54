"""Where documents are from is shown, and documents are found by their ids, rows and lists."""

import json
import pickle

import numpy as np
import pytest
from click.testing import CliRunner

import ul2_tasks
import ul2_tasks.cli
from ul2_tasks.store.provenance import Origin, hash_of

TEXTS = [f"{number}. " + "The same words again and again. " * (1 + number % 7) for number in range(120)]
LENGTHS = {"inputs": 96, "targets": 96}


def ul2(*arguments, code=0):
    done = CliRunner().invoke(ul2_tasks.cli.main, list(map(str, arguments)), env={"COLUMNS": "400"})
    assert done.exit_code == code, done.output
    return done


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """The options of a corpus with a cache, and its file."""
    folder = tmp_path_factory.mktemp("origins")
    path = folder / "web.jsonl"
    path.write_text("".join(json.dumps({"text": text, "id": f"doc-{n % 100}"}) + "\n" for n, text in enumerate(TEXTS)))
    ul2_tasks.Mixture("looked", str(path)).cache(folder / "CACHE")
    return ["looked", "--corpus", path, "--lengths", "96,96", "--cache", folder / "CACHE", "--batch_size", "8"], path


def examples_of(corpus):
    _, path = corpus
    return ul2_tasks.examples(ul2_tasks.Mixture("looked", str(path)), LENGTHS, cache_dirs=[str(path.parent / "CACHE")])


def test_a_location_has_the_origins_of_its_documents(corpus):
    _, path = corpus
    examples = examples_of(corpus)
    for found in (examples, pickle.loads(pickle.dumps(examples))):
        location = found.locate(5)
        documents = [document for first, stop in location.documents for document in range(first, stop)]
        expected = [Origin(str(path), number + 1, f"doc-{number % 100}", hash_of(TEXTS[number].encode())) for number in documents]
        assert location.origins == pickle.loads(pickle.dumps(location)).origins == expected
    packed = ul2_tasks.examples(ul2_tasks.Mixture("looked", str(path)), LENGTHS, cache_dirs=[str(path.parent / "CACHE")], pack=True)
    assert all(location.origins for location in packed.locate(0))
    assert ul2_tasks.examples("ul2_mix", LENGTHS).locate(0).origins is None


def test_the_examples_of_a_step_say_where_they_are_from(corpus):
    options, path = corpus
    shown = ul2("show", *options, "--step", 2).stdout
    assert f", from {path}, row " in shown
    for line in map(json.loads, ul2("show", *options, "--step", 2, "--json").stdout.splitlines()):
        documents = [document for first, stop in line["location"]["documents"] for document in range(first, stop)]
        assert [origin["row"] for origin in line["origins"]] == [number + 1 for number in documents]
        assert line["origins"][0]["hash"] == f"{hash_of(TEXTS[documents[0]].encode()):016x}"


@pytest.mark.parametrize("packed", [False, True])
def test_a_list_gives_what_trains_on_each_document(corpus, tmp_path, packed):
    options, path = corpus
    entries = [{"id": "doc-7", "reason": "asked"}, {"file": "web.jsonl", "row": 31}, {"document": 50}, {"id": "absent"}]
    entries += [{"document": 60}]
    listed = tmp_path / "list.jsonl"
    listed.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    arguments = [*options, *(["--packed"] if packed else []), "--list", listed, "--epochs", 2]
    *lines, last = map(json.loads, ul2("find", *arguments).stdout.splitlines())
    assert last == {"not_found": {"id": "absent"}}
    assert [line["document"] for line in lines] == [7, 30, 50, 60, 107]
    assert [(line["file"], line["row"], line["id"]) for line in lines[:2]] == [(str(path), 8, "doc-7"), (str(path), 31, "doc-30")]
    for line in lines:
        held = np.zeros(line["tokens"], int)
        for each in line["seen"]:
            assert each["step"] == each["number"] // 8
            assert (each["segment"] is not None) == packed
            for start, stop in each["tokens"]:
                held[start:stop] += 1
        assert held.min() >= 1, "each token in each epoch but for what a mixture leaves at its end"
        assert held.max() <= 2


def test_ids_and_rows_are_found(corpus):
    options, path = corpus
    shown = ul2("find", *options, "--id", "doc-7", "--id", "nobody").stdout
    assert "document 7 of looked_corpus" in shown
    assert f"from {path}, row 108, id doc-7" in shown
    assert 'no document has {"id": "nobody"}' in shown
    assert "document 30 of" in ul2("find", *options, "--source", "web.jsonl:31").stdout
    many = ul2("find", *options, "--source", path, "--count", 2).stdout
    assert "these are the first 2 of 120 documents (--count)" in many
    assert f"from {path}, row 31, id doc-30" in ul2("find", *options, "--document", 30).stdout


def test_what_cannot_be_found_so_is_refused(corpus):
    options, _ = corpus
    for arguments, got in (([], "none"), (["--id", "a", "--document", 1], "--document and --id, --source")):
        refused = ul2("find", *options, *arguments, code=2).output
        assert f"--source, --list must be given, got {got}. Pass one of them." in refused
    refused = ul2("find", "--id", "a", "--batch_size", 8, code=2).output
    assert "must be recorded by the cache of ul2_corpus" in refused


def test_conversations_say_their_file_and_row(tmp_path):
    path = tmp_path / "talks.jsonl"
    talks = [[{"role": "user", "content": f"Ask {n}"}, {"role": "assistant", "content": f"Say {n}"}] for n in range(30)]
    path.write_text("".join(json.dumps({"messages": each, "id": f"talk {n}"}) + "\n" for n, each in enumerate(talks)))
    options = [ul2_tasks.register_chat("talked", str(path), loss_groups="plain")]
    ul2("cache", *options, "--output", tmp_path / "CACHE")
    options += ["--lengths", 256, "--cache", tmp_path / "CACHE", "--batch_size", 4]
    assert f"which is of {path}, row " in ul2("show", *options, "--step", 1).stdout
    found = ul2("find", *options, "--id", "talk 12").stdout
    assert f"from {path}, row 13, id talk 12" in found
    assert "document 12 of talked_corpus" in found


def test_texts_with_images_are_found_by_their_ids(tmp_path):
    pillow = pytest.importorskip("PIL.Image", reason="the extra images is not installed")
    pillow.new("RGB", (6, 4)).save(tmp_path / "a.png")
    records = [{"texts": [f"The image of number {n}.", None], "images": [None, "a.png"], "id": f"x{n}"} for n in range(40)]
    path = tmp_path / "seen.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    (tmp_path / "seen_module.py").write_text(
        "import ul2_tasks\n"
        "tokens = ul2_tasks.ImageTokens(boi_id=3000, image_id=3001, eoi_id=3002, image_seq_length=4)\n"
        f"ul2_tasks.register_image_text('seen', {str(path)!r}, 'default', image_tokens=tokens)\n"
    )
    options = [f"{tmp_path}/seen_module.py:seen"]
    ul2("cache", *options, "--output", tmp_path / "CACHE")
    options += ["--lengths", "128,128", "--cache", tmp_path / "CACHE", "--batch_size", 4]
    assert f"from {path}, row 13, id x12" in ul2("find", *options, "--id", "x12").stdout
    listed = tmp_path / "list.txt"
    listed.write_text("x3\nx5\n")
    first, second = map(json.loads, ul2("find", *options, "--list", listed).stdout.splitlines())
    assert (first["row"], second["row"]) == (4, 6)
    assert first["seen"]
    assert second["seen"]
