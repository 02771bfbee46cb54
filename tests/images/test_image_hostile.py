"""Records and names of files that want to write on the terminal or the page: what is shown of them does nothing there."""

import json

import pytest

from tests.commands.running import described, ul2
from ul2_tasks.images.example_set import example_records

HOSTILE = "\x1b]0;owned\x07\x1b[31m\u202eback\u2066<script>alert(1)</script>[bold]"
MOVING = "\x1b\x07\u202e\u2066"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Images with such texts, and conversations of which some are wrong, in a file with such a name."""
    folder = tmp_path_factory.mktemp("hostile")
    name = HOSTILE.replace("/", "")
    (drawn,) = example_records("t2i_pretrain", 1)
    (folder / f"{name}.png").write_bytes(drawn["image"])

    def record(role, image):
        turns = [{"from": role, "value": f"<image> {HOSTILE}"}, {"from": "gpt", "value": HOSTILE}]
        return {"image": image, "conversations": turns}

    records = [record("human", f"{name}.png"), record(HOSTILE, f"{name}.png"), record("human", f"none{name}.png")]
    path = folder / f"{name}.jsonl"
    path.write_text("\n".join(json.dumps(record) for record in records))
    bad = folder / "bad.jsonl"
    bad.write_text(json.dumps(records[1]))
    return folder


def rows_of(files, folder):
    return described(folder, f"Source(open_records({str(files)!r}), 'vlm_sft')", "from ul2_tasks.image_rows import *")


@pytest.mark.parametrize("file", ["*script*.jsonl", "bad.jsonl"])
@pytest.mark.parametrize("command", ["show", "stats", "doctor"])
def test_a_terminal_gets_no_character_that_moves_or_turns(command, file, corpus):
    done = ul2(command, rows_of(corpus / file, corpus))
    said = done.stdout + done.stderr
    assert "owned" in said
    assert [character for character in MOVING if character in said] == []


def test_a_page_gets_no_markup_and_no_such_character(corpus, tmp_path):
    done = ul2("report", rows_of(corpus / "*script*.jsonl", corpus), "--output", tmp_path / "page.html")
    assert done.exit_code == 0, done.stderr
    page = (tmp_path / "page.html").read_text()
    assert "&lt;script&gt;" in page
    assert "<script" not in page
    assert [character for character in MOVING if character in page] == []
