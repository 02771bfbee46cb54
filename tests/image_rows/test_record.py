"""A record by its name: where it is found, the row that it is in, and an own dataset that commands look at."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from image_sources import SIZES, image, made, recipe, source, write_tar
from test_command_line import ul2

from ul2_tasks.image_rows.looking.record import find_record
from ul2_tasks.image_rows.recipe import Source
from ul2_tasks.image_rows.rows import RowMaker
from ul2_tasks.images.elements import Text
from ul2_tasks.sources.image_records import listed_records, open_records

BAD = {"image": b"none", "captions": "a"}


@pytest.fixture
def files(tmp_path):
    """Records in several pieces of each format, and lines that are blank."""
    lines = [json.dumps({"image": f"{n}.png", "captions": "a"}) + "\n" * (1 + n % 3) for n in range(300)]
    (tmp_path / "lines.jsonl").write_text("\n\n" + "".join(lines))
    pq.write_table(pa.Table.from_pylist(made(50)), tmp_path / "groups.parquet", row_group_size=7)
    write_tar(tmp_path / "samples.tar", [(f"s/{n:03}.png", image(n)) for n in range(100)])
    return tmp_path


@pytest.mark.parametrize("name", ["lines.jsonl", "groups.parquet", "samples.tar", None])
def test_each_record_is_found_by_its_name(files, name):
    records = listed_records(made(150), "a, line 3") if name is None else open_records(files / name)
    assert len(records.pieces) > 1
    for piece, place in enumerate(records.pieces):
        for number, (found, _) in enumerate(records.read(place, 0)):
            assert records.find(found) == records.find(found.partition(" (")[0]) == (piece, number)
    for none in (f"{records.pieces[0].path}, line 9999", f"{records.pieces[0].path}, row group 3, row 7", "none", ""):
        assert records.find(none) is None


def test_each_record_of_two_epochs_is_in_the_row_that_training_has():
    """Also where two sources have the same records, of which one is bad and one is dropped."""
    nothing = {"image": image(1), "captions": "nothing"}
    records = [*made(20), BAD, nothing, *made(10)]
    sources = [source(records), source(records, lambda record, draws: [Text(str(record["captions"]), droppable=False)], weight=2)]
    two = recipe(*sources, epochs=None, on_error="skip")
    maker = RowMaker(two)
    rows = {}
    for pool in range(20):
        for number, row in enumerate(maker.packed(pool)):
            for name, sample in row:
                rows.setdefault((maker.source_of(sample), name), (pool, number, [other for other, _ in row]))
    for epoch in (0, 1):
        for number in range(len(records)):
            name = f"made, record {number}, epoch {epoch}"
            for of, found in enumerate(find_record(two, name)):
                shown = found.pool, found.row, [other for other, _ in found.samples]
                if (of, name) in rows:
                    assert shown == rows[of, name]
                else:
                    assert (found.row, found.samples, found.source) == (None, [], sources[0])
                    assert found.problem.startswith("made, record 20: the image must be one of JPEG")
    with pytest.raises(
        ValueError, match=r"^record must be the name of a record of .*such as 'made, record 0', got 'made, record 32'"
    ):
        list(find_record(two, "made, record 32"))


MODULE = """
import ul2_tasks
from ul2_tasks.image_rows.dropout import Dropout
from ul2_tasks.images.example_set import example_records
from ul2_tasks.image_rows.recipe import Source
from ul2_tasks.sources.image_records import listed_records
from ul2_tasks.image_rows.special_tokens import SpecialTokenConfig

def encode(text):
    return [5 + byte for byte in text.encode()]

sources = [
    Source(listed_records(example_records("t2i_pretrain", 12), "cats"), "t2i_pretrain", dropout=Dropout(text=0), weight=3),
    Source(listed_records(example_records("unified_edit", 4), "edits"), "unified_edit"),
]
mine = ul2_tasks.ImageTextDataset(
    sources, SpecialTokenConfig(1, 2, 3, 4), encode, {"tokens": 3000, "vit": 900, "vae": 3000}, pool=8, seed=5, on_error="skip"
)
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"{tmp_path.name}_images.py").write_text(MODULE)
    return ["mine", "--module", f"{tmp_path.name}_images"]


@pytest.mark.torch
def test_commands_look_at_an_own_dataset(own):
    lines = [json.loads(line) for line in ul2("show", *own, "--json", "--count", 3).stdout.splitlines()]
    assert [line["record"].partition(",")[0] for line in lines] == ["cats"] * 3 + ["edits"] * 3
    assert lines[0]["elements"][0]["ids"] == len(lines[0]["elements"][0]["text"].encode())
    measured = json.loads(ul2("stats", *own, "--json").stdout)
    assert (measured["seed"], measured["budgets"]) == (5, {"tokens": 3000, "vit": 900, "vae": 3000})
    assert [each["records"] for each in measured["sources"]] == [12, 4]
    assert measured["sources"][0]["elements"]["text"]["dropped"] == 0
    examined = json.loads(ul2("doctor", *own, "--json").stdout)
    assert examined["budgets"] == measured["budgets"]
    assert any("of patches of latents" in found["what"] for found in examined["findings"])
    done = ul2("report", *own, "--count", 1, "--output", "page.html")
    assert (done.exit_code, done.stdout.strip()) == (0, "wrote page.html")


@pytest.mark.torch
def test_the_row_of_a_record_of_an_own_dataset_is_that_of_training(own, monkeypatch):
    monkeypatch.syspath_prepend(".")
    data = __import__(own[-1]).mine
    rows = [row["samples"] for row, _ in zip(data, range(8))]
    assert {name for row in rows for name in row if name.startswith("cats")}
    for row in rows:
        for name in row:
            (found,) = (json.loads(line) for line in ul2("show", *own, "--record", name, "--json").stdout.splitlines())
            assert (found["record"], found["samples"]) == (name, row)
            assert found["row_counts"]["tokens"] <= 3000
    printed = ul2("show", *own, "--record", rows[0][0]).stdout
    assert rows[0][0] in printed
    assert f"row {0} of pool {0}: " in printed


@pytest.mark.torch
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["show", "OWN", "--lengths", "1,1,1"], "--lengths` does not support image-text records (mine). Leave it out: the dataset"),
        (
            ["stats", "OWN", "--seed", "1"],
            "`ul2 stats --seed` does not support image-text records (mine). Leave it out: the dataset",
        ),
        (["cache", "OWN", "--output", "c"], "`ul2 cache` does not support image-text records (mine). Training reads them"),
        (["show", "OWN", "--vocabulary", "bytes"], "--vocabulary must be left out with --module, got both."),
        (
            ["show", "OWN", "--record", "dogs, record 0"],
            "record must be the name of a record of the sources, such as 'cats, record 0'",
        ),
        (["show", "--record", "dogs, record 0"], "--record must be given with --schema, got no --schema."),
    ],
)
def test_what_an_own_dataset_has_cannot_be_an_option(own, arguments, sentence):
    done = ul2(*(each for given in arguments for each in (own if given == "OWN" else [given])))
    assert (done.exit_code, sentence in done.stderr) == (2, True), done.stderr


def test_a_record_of_files_is_shown_with_its_row(files):
    (files / "0.png").write_bytes(image(3))
    options = ["show", "--schema", "t2i_pretrain", "--corpus", files / "groups.parquet"]
    done = ul2(*options, "--record", f"{files}/groups.parquet, row group 6, row 3")
    assert f"t2i_pretrain: {files}/groups.parquet, row group 6, row 3, epoch 0" in done.stdout.replace("\n", "")
    bad = ["show", "--schema", "t2i_pretrain", "--corpus", files / "lines.jsonl", "--record", f"{files}/lines.jsonl, line 10"]
    assert "in no row: " in ul2(*bad).stdout


def test_sources_of_an_own_size_are_measured_with_it():
    """`SIZES` are those of the tests."""
    (found,) = find_record(recipe(Source(listed_records(made(3)), "t2i_pretrain", SIZES)), "records, record 2")
    assert found.sample.counts.vae < 120
