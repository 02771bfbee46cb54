"""Where documents are from is shown, and documents are found by their ids, rows and lists."""

import json
import pickle

import numpy as np
import pytest

import ul2_tasks
from tests.commands.running import described, ul2
from tests.images.image_support import image
from tests.support import write_jsonl
from ul2_tasks.store.provenance import Origin, hash_of

TEXTS = [f"{number}. " + "The same words again and again. " * (1 + number % 7) for number in range(120)]
LENGTHS = {"inputs": 96, "targets": 96}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """The options of a corpus with a cache, and its file."""
    folder = tmp_path_factory.mktemp("origins")
    path = write_jsonl(folder / "web.jsonl", ({"text": text, "id": f"doc-{n % 100}"} for n, text in enumerate(TEXTS)))
    ul2_tasks.Mixture("looked", path).cache(folder / "CACHE")
    return ["looked", "--corpus", path, "--lengths", "96,96", "--cache", folder / "CACHE", "--batch_size", "8"], path


def test_a_location_has_the_origins_of_its_documents(corpus):
    options, path = corpus
    examples, packed = (
        ul2_tasks.examples(ul2_tasks.Mixture("looked", path), LENGTHS, cache_dirs=[str(options[6])], pack=pack)
        for pack in (False, True)
    )
    for found in (examples, pickle.loads(pickle.dumps(examples))):
        location = found.locate(5)
        documents = [document for first, stop in location.documents for document in range(first, stop)]
        expected = [Origin(path, number + 1, f"doc-{number % 100}", hash_of(TEXTS[number].encode())) for number in documents]
        assert location.origins == pickle.loads(pickle.dumps(location)).origins == expected
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
    assert [(line["file"], line["row"], line["id"]) for line in lines[:2]] == [(path, 8, "doc-7"), (path, 31, "doc-30")]
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
    assert "nobody" in shown
    assert "document 30 of" in ul2("find", *options, "--source", "web.jsonl:31").stdout
    many = ul2("find", *options, "--source", path, "--count", 2).stdout
    assert "2 of 120" in many
    assert f"from {path}, row 31, id doc-30" in ul2("find", *options, "--document", 30).stdout


def test_what_cannot_be_found_so_is_refused(corpus):
    """`tests/commands` has the table of errors."""
    for arguments, named in ((["--id", "a", "--document", 1], "--id"), (["--id", "a", "--batch_size", 8], "ul2_corpus")):
        refused = ul2("find", *(corpus[0] if "--document" in arguments else []), *arguments)
        assert (refused.exit_code, named in refused.stderr) == (2, True), refused.output


def test_conversations_say_their_file_and_row(tmp_path):
    talks = [[{"role": "user", "content": f"Ask {n}"}, {"role": "assistant", "content": f"Say {n}"}] for n in range(30)]
    path = write_jsonl(tmp_path / "talks.jsonl", ({"messages": each, "id": f"talk {n}"} for n, each in enumerate(talks)))
    options = [ul2_tasks.register_chat("talked", path, loss_groups="plain")]
    ul2("cache", *options, "--output", tmp_path / "CACHE")
    options += ["--lengths", 256, "--cache", tmp_path / "CACHE", "--batch_size", 4]
    assert f"which is of {path}, row " in ul2("show", *options, "--step", 1).stdout
    found = ul2("find", *options, "--id", "talk 12").stdout
    assert f"from {path}, row 13, id talk 12" in found
    assert "document 12 of talked_corpus" in found


def test_texts_with_images_are_found_by_their_ids(tmp_path):
    (tmp_path / "a.png").write_bytes(image())
    records = [{"texts": [f"The image of number {n}.", None], "images": [None, "a.png"], "id": f"x{n}"} for n in range(40)]
    path = write_jsonl(tmp_path / "seen.jsonl", records)
    options = [described(tmp_path, f"ImageText('seen', {path!r}, image_tokens=ImageTokens(3000, 3001, 3002, 4))")]
    ul2("cache", *options, "--output", tmp_path / "CACHE")
    options += ["--lengths", "128,128", "--cache", tmp_path / "CACHE", "--batch_size", 4]
    assert f"from {path}, row 13, id x12" in ul2("find", *options, "--id", "x12").stdout
    (tmp_path / "list.txt").write_text("x3\nx5\n")
    found = [*map(json.loads, ul2("find", *options, "--list", tmp_path / "list.txt").stdout.splitlines())]
    assert [(line["row"], bool(line["seen"])) for line in found] == [(4, True), (6, True)]
