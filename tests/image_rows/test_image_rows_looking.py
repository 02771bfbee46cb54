"""What the command `ul2` says of image rows: of the embedded set, of files, and of a dataset of your own."""

import functools
import json
import shlex
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.commands.running import described, ul2
from tests.image_sources import image, made, write_tar
from ul2_tasks.image_rows.inspect.measure import look_at, measure_images, recipe_to_look_at
from ul2_tasks.image_rows.recipe import example_sources
from ul2_tasks.image_rows.records import listed_records, open_records
from ul2_tasks.image_rows.rows import RowMaker
from ul2_tasks.images import example_set
from ul2_tasks.images.example_set import example_records, write_example_set

ROWS = "from ul2_tasks.image_rows import *"


@pytest.fixture(autouse=True, scope="module")
def drawn_once():
    """The images of the embedded set."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(example_set, "example_records", functools.cache(example_records))
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("set")
    write_example_set(path, 12)
    return path


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("show images --step 1 --batch_size 2", "index 2 of epoch 0"),
        ("find images --source 'embedded set, vlm_sft, record 3' --batch_size 8", "is in "),
    ],
)
def test_commands_look_at_the_embedded_set(arguments, said):
    done = ul2(*shlex.split(arguments))
    assert (done.exit_code, said in done.stdout) == (0, True), done.stderr


def test_a_schema_of_ones_own_and_a_folder_of_images(folder, tmp_path):
    (tmp_path / "moved.jsonl").write_text((folder / "story.jsonl").read_text())
    source = f"Source(open_records({str(tmp_path / 'moved.jsonl')!r}, {str(folder)!r}), last_page)"
    last_page = "def last_page(record, draws):\n    return Text(record['texts'][-1]), Image(record['images'][-1], 'noised')\n"
    done = ul2("show", described(tmp_path, source, f"{ROWS}\n{last_page}"), "--json", "--count", 3)
    assert [json.loads(line)["layout"] for line in done.stdout.splitlines()] == ["T N"] * 3


def test_the_doctor_finds_what_is_wrong(tmp_path):
    (good,) = example_records("t2i_pretrain", 1)
    records = [good, {**good, "captions": "[]"}, {**good, "image": b"GIF"}, {**good, "image": good["image"][:-100]}]
    pq.write_table(pa.Table.from_pylist(records), tmp_path / "bad.parquet")
    source = f"Source(open_records({str(tmp_path / 'bad.parquet')!r}), 't2i_pretrain')"
    done = ul2("doctor", described(tmp_path, source, ROWS), "--json")
    problems = [each["what"] for each in json.loads(done.stdout)["findings"] if each["kind"] == "problem"]
    assert done.exit_code == 1
    for problem, said in zip(problems, ("(schema)", "(sample)", "cannot be decoded"), strict=True):
        assert said in problem


def test_a_package_that_is_missing_is_named(tmp_path, monkeypatch):
    turns = [{"from": "human", "value": "<video>"}, {"from": "gpt", "value": "Seven."}]
    (tmp_path / "one.jsonl").write_text(json.dumps({"video": "seven.mp4", "conversations": turns}))
    (tmp_path / "seven.mp4").write_bytes(image(1))
    monkeypatch.setitem(sys.modules, "av", None)  # as if it were not there
    done = ul2("show", described(tmp_path, f"Source(open_records({str(tmp_path / 'one.jsonl')!r}), 'vlm_sft')", ROWS))
    assert (done.exit_code, "ul2_tasks[images]" in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["show", "images", "--source", "x", "--step", "1"], "--source"),
        (["find", "images", "--source", "x", "--source", "y"], "--source"),
        (["show", "Source(open_records('SET/vlm_sft.jsonl'), 't2i_pretrain')"], "none of 12 records"),
        (["show", "images", "--source", "dogs, record 0"], "record"),
        (["show", "[]"], "NAME"),
    ],
)
def test_what_cannot_be_is_refused(arguments, said, folder):
    command, name, *options = arguments
    name = name if name == "images" else described(folder, name.replace("SET", str(folder)), ROWS)
    done = ul2(command, name, *options)
    assert (done.exit_code, said in done.stderr) == (2, True), done.stderr


def test_measurements_are_those_of_what_is_looked_at():
    of_set = recipe_to_look_at(example_sources(12))
    statistics = measure_images(of_set, 12)
    assert [each.schema for each in statistics.sources] == ["t2i_pretrain", "unified_edit", "vlm_sft", "story"]
    for measured, looked in zip(statistics.sources, look_at(of_set, 12)):
        samples = [each.sample for each in looked.samples]
        assert len({each.name for each in looked.samples}) == len(samples) == sum(measured.layouts.values()) == 12
        assert measured.counts["tokens"].max == max(sample.counts["tokens"] for sample in samples)
        assert sum(found["dropped"] for found in measured.elements.values()) == sum(not k for each in samples for k in each.kept)
    maker = RowMaker(of_set)
    rows = [[each.sample for each in row] for row in maker.packed(0)]
    assert (statistics.rows, statistics.samples) == (len(rows), sum(map(len, rows)))
    used = np.sum([[*sample.counts.values()] for row in rows for sample in row], axis=0) / len(rows)
    np.testing.assert_allclose(list(statistics.fill.values()), used / np.array([*of_set.budgets.values()]))


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


MODULE = """
import ul2_tasks
from ul2_tasks.image_rows.recipe import Source
from ul2_tasks.image_rows.special_tokens import SpecialTokenConfig
from ul2_tasks.images.example_set import example_records
from ul2_tasks.image_rows.records import listed_records

read = {"cats": ("t2i_pretrain", 12), "edits": ("unified_edit", 4)}
sources = [Source(listed_records(example_records(*each), name), each[0]) for name, each in read.items()]
encode, budgets = lambda text: [5 + byte for byte in text.encode()], {"tokens": 3000, "vit": 900, "vae": 3000}
mine = ul2_tasks.ImageTextDataset(
    sources, SpecialTokenConfig(1, 2, 3, 4), encode, budgets, pool=8, seed=5, on_error="skip"
)
"""


@pytest.mark.torch
def test_commands_look_at_an_own_dataset(tmp_path):
    (tmp_path / f"{tmp_path.name}_images.py").write_text(MODULE)
    own = [f"{tmp_path}/{tmp_path.name}_images.py:mine"]
    measured = json.loads(ul2("stats", *own, "--json").stdout)
    assert (measured["seed"], measured["budgets"]) == (5, {"tokens": 3000, "vit": 900, "vae": 3000})
    assert [each["records"] for each in measured["sources"]] == [12, 4]
    assert json.loads(ul2("doctor", *own, "--json").stdout)["budgets"] == measured["budgets"]
    rows = [row["samples"] for row, _ in zip(__import__(f"{tmp_path.name}_images").mine, range(4))]
    for row in rows:
        for name in row:
            (found,) = (json.loads(line) for line in ul2("show", *own, "--source", name, "--json").stdout.splitlines())
            assert (found["record"], found["samples"]) == (name, row)
    assert ul2("stats", *own, "--seed", "1").exit_code == 2
