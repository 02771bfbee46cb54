"""Looking at texts and images: the commands, the measurements, and the drawings."""

import dataclasses
import functools
import html.parser
import io
import json
import re
import sys

import image_sources
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from test_command_line import ul2
from test_video import video

from ul2_tasks.image_rows.attention import dense_mask, places
from ul2_tasks.image_rows.looking.doctor import examine_recipe
from ul2_tasks.image_rows.looking.drawing import MODE_COLOURS, mask, strip
from ul2_tasks.image_rows.looking.measure import PERCENTS, first_rows, look_at, measure_images, recipe_to_look_at
from ul2_tasks.image_rows.looking.report import write_image_report
from ul2_tasks.image_rows.looking.show import show_images
from ul2_tasks.image_rows.looking.table import print_images
from ul2_tasks.image_rows.recipe import Source, example_sources
from ul2_tasks.image_rows.row_arrays import lay_out
from ul2_tasks.image_rows.samples import Counts
from ul2_tasks.images import example_set
from ul2_tasks.images.example_set import example_records, write_example_set
from ul2_tasks.looking.statistics import Summary
from ul2_tasks.sources.image_records import listed_records


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


@pytest.fixture(scope="module")
def recipe():
    return recipe_to_look_at(example_sources(12))


def bad_recipe():
    """Four records, of which one is right."""
    (good,) = example_records("t2i_pretrain", 1)
    records = [{**good, "captions": ""}, {**good, "image": "no/such/file.png"}, {**good, "image": good["image"][:-100]}, good]
    return recipe_to_look_at([Source(listed_records(records, "mine"), "t2i_pretrain")])


# What the commands say.


def test_the_embedded_set_is_shown():
    done = ul2("show", "images", "--count", 1)
    assert done.exit_code == 0
    for line in (
        "t2i_pretrain: embedded set",
        "  T N  ",
        "  C V T N  ",
        "story: embedded set",
        ", learned",
        ", dropped",
        ", timestep ",
    ):
        assert line in done.stdout


def test_what_is_shown_of_files_is_what_the_plans_have(folder):
    options = ["--corpus", folder / "vlm_sft.jsonl", "--schema", "vlm_sft", "--count", 5, "--json", "--seed", 3]
    lines = [json.loads(line) for line in ul2("show", *options).stdout.splitlines()]
    assert len(lines) == 5
    for line in lines:
        assert re.fullmatch(rf"{folder}/vlm_sft.jsonl, line \d+, epoch 0", line["record"])
        assert line["source"] == "vlm_sft"
        kinds = "".join({"text": "T", "vit": "V"}[element["kind"]] for element in line["elements"])
        assert line["layout"].replace(" ", "") == kinds
        tokens = sum(2 + element.get("ids", 0) + int(np.prod(element.get("patches", [0]))) for element in line["elements"])
        assert line["counts"]["tokens"] == tokens


def test_images_are_shown_as_what_they_become():
    done = ul2("show", "--schema", "unified_edit", "--json", "--count", 12)
    elements = [element for line in done.stdout.splitlines() for element in json.loads(line)["elements"]]
    for element in elements:
        if element["kind"] != "text":
            patch_size = 14 if element["kind"] == "vit" else 16
            assert element["resized"] == [element["patches"][1] * patch_size, element["patches"][0] * patch_size]
            assert (element["width"] > element["height"]) == (element["resized"][0] > element["resized"][1])
            assert ("timestep" in element) == (element["kind"] == "noised")
    assert {element["kind"] for element in elements if element["dropped"]} >= {"vit"}


def test_a_plan_of_ones_own_and_a_folder_of_images(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_plans.py").write_text(
        "from ul2_tasks.images.elements import Image, Text\n\n\n"
        "def last_page(record, draws):\n    return Text(record['texts'][-1]), Image(record['images'][-1], 'noised')\n"
    )
    (tmp_path / "moved.jsonl").write_text((folder / "story.jsonl").read_text())
    options = ["--corpus", tmp_path / "moved.jsonl", "--folder", folder, "--schema", "own_plans:last_page"]
    done = ul2("show", *options, "--json", "--count", 3)
    assert [json.loads(line)["layout"] for line in done.stdout.splitlines()] == ["T N"] * 3
    assert "last_page: 12 of 12 records" in ul2("stats", *options).stdout


def test_stats_has_the_measurements(folder):
    options = ["--corpus", folder / "unified_edit.parquet", "--schema", "unified_edit", "--lengths", "30000,6000,1500"]
    measured = json.loads(ul2("stats", *options, "--json").stdout)
    (source,) = measured["sources"]
    assert (source["records"], source["looked_at"], sum(source["layouts"].values())) == (12, 12, 12)
    assert 0 < source["too_long"]["any"] == source["too_long"]["vae"] <= 12
    assert all(check["passed"] for check in measured["checks"])
    text = ul2("stats", *options).stdout
    assert f"{source['too_long']['any']} samples do not fit into a row" in text
    assert "about " in text


def test_the_doctor_finds_what_is_wrong(folder, tmp_path):
    (good,) = example_records("t2i_pretrain", 1)
    pq.write_table(pa.Table.from_pylist([good, {**good, "captions": "[]"}, {**good, "image": b"GIF"}]), tmp_path / "bad.parquet")
    options = ["--schema", "t2i_pretrain", "--corpus", tmp_path / "bad.parquet"]
    done = ul2("doctor", *options, "--position_embeddings", "70,32", "--json")
    found = json.loads(done.stdout)["findings"]
    problems = [finding["what"] for finding in found if finding["kind"] == "problem"]
    assert done.exit_code == 1
    assert r"vae_patches_per_side must be at least 64 for images of 1024 pixels, got 32" in problems[0]
    assert re.search(r"wrong, of 3 records: 1 \(schema\), the first: .*bad.parquet, .*must have a caption", problems[1])
    assert "wrong, of 3 records: 1 (sample), the first: " in problems[2]
    assert "the image must be one of JPEG, PNG, WEBP, GIF, BMP, got a file that begins with b'GIF'" in problems[2]


def test_the_doctor_has_nothing_to_say_of_the_embedded_set_but_of_budgets(recipe):
    assert not [finding for finding in examine_recipe(recipe) if finding.kind == "problem"]
    short = dataclasses.replace(recipe, budgets=Counts(3000, 16_384, 28_672))
    problems = [finding for finding in examine_recipe(short) if finding.kind == "problem"]
    assert {finding.concerns for finding in problems} == {("unified_edit",), ("vlm_sft",), ("story",)}
    assert all("samples do not fit into a row" in finding.what for finding in problems)
    assert all("hold them all; or shrink=True" in finding.remedy for finding in problems)


def test_the_doctor_says_which_rows_lack_what():
    small = image_sources.recipe(*(image_sources.source(records, schema, schema) for records, schema in SMALL), epochs=None)
    (note,) = [finding for finding in examine_recipe(small) if "required_modalities" in finding.remedy]
    assert re.fullmatch(r"of \d+ rows there are \d+ without ViT patches", note.what)
    assert note.remedy.startswith("required_modalities=('vit',) gives each row a dummy")


def test_the_report_is_written(folder, tmp_path):
    options = ["--corpus", folder / "unified_edit.parquet", "--schema", "unified_edit"]
    done = ul2("report", *options, "--count", 1, "--output", tmp_path / "page.html")
    assert (done.exit_code, done.stdout.strip()) == (0, f"wrote {tmp_path / 'page.html'}")


def test_a_video_of_a_conversation_is_shown_frame_by_frame(tmp_path):
    (tmp_path / "seven.mp4").write_bytes(video(7))
    turns = [{"from": "human", "value": "<video> How many?"}, {"from": "gpt", "value": "Seven."}]
    (tmp_path / "talk.jsonl").write_text(json.dumps({"video": "seven.mp4", "conversations": turns}))
    done = ul2("show", "--schema", "vlm_sft", "--corpus", tmp_path / "talk.jsonl", "--json")
    assert json.loads(done.stdout)["layout"] == "V V V V V V V T T"


@pytest.mark.parametrize(
    ("package", "schema", "sentence"),
    [("PIL", "t2i_pretrain", "images need the package pillow"), ("av", "vlm_sft", "videos need the package av")],
)
def test_a_package_that_is_missing_is_named_with_its_extra(package, schema, sentence, tmp_path, monkeypatch):
    turns = [{"from": "human", "value": "<video>"}, {"from": "gpt", "value": "Seven."}]
    (image,) = example_records("t2i_pretrain", 1)
    (tmp_path / "image.png").write_bytes(image["image"])
    record = {"image": "image.png", "captions": "a"} if package == "PIL" else {"video": "image.png", "conversations": turns}
    (tmp_path / "one.jsonl").write_text(json.dumps(record))
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not there
    done = ul2("show", "--schema", schema, "--corpus", tmp_path / "one.jsonl")
    assert done.exit_code == 2
    assert re.search(rf"{sentence} .*; pip install 'ul2_tasks\[images\]'", done.stderr), done.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["show", "images", "--split", "train"], "`ul2 show --split` does not support image-text records (images)"),
        (["show", "--schema", "t2i_pretrain", "--denoiser", "r1"], "`ul2 show --denoiser` does not support image-text"),
        (["show", "--folder", "x"], "--folder must be given with --schema, got no --schema. Pass both"),
        (["stats", "--schema", "mine"], "--schema must be one of t2i_pretrain, unified_edit, vlm_sft without --corpus, got 'mine'"),
        (["stats", "--schema", "mine", "--corpus", "SET/*.parquet"], "vlm_sft, or MODULE:FUNCTION, got 'mine'."),
        (["stats", "--schema", "json:nothing", "--corpus", "SET/*.parquet"], "must name a function of 'json', got 'nothing'."),
        (["stats", "--schema", "no_such_module:f", "--corpus", "SET/*.parquet"], "No module named 'no_such_module'"),
        (
            ["stats", "images", "--lengths", "512,512"],
            "must be tokens, ViT patches and VAE patches, such as 36864,16384,28672, got '512,512'.",
        ),
        (["stats", "images", "--lengths", "0,1,1"], "tokens must be an integer of at least 1, got 0"),
        (
            ["stats", "images", "--position_embeddings", "70"],
            "must be patches per side for ViT and VAE, such as 70,64, got '70'.",
        ),
        (
            ["stats", "images", "--position_embeddings", "8,8"],
            r"vit_patches_per_side must be at least 37 for images of 518 pixels, got 8",
        ),
        (
            ["show", "--schema", "t2i_pretrain", "--corpus", "SET/vlm_sft.jsonl"],
            "none of 12 records of t2i_pretrain makes a sample",
        ),
        (["show", "--schema", "t2i_pretrain", "--corpus", "SET/none.jsonl"], "no file matches"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(arguments, sentence, folder):
    done = ul2(*(argument.replace("SET", str(folder)) for argument in arguments))
    assert (done.exit_code, sentence in done.stderr) == (2, True), done.stderr


# What is measured.


def test_measurements_are_those_of_what_is_looked_at(recipe):
    statistics = measure_images(recipe, 12)
    assert [source.schema for source in statistics.sources] == ["t2i_pretrain", "unified_edit", "vlm_sft", "story"]
    for source, looked in zip(statistics.sources, look_at(recipe, 12)):
        samples = [sample for _, sample in looked.samples]
        assert len({name for name, _ in looked.samples}) == len(samples) == sum(source.layouts.values()) == 12
        for number, name in enumerate(Counts._fields):
            assert source.counts[name] == Summary.of([sample.counts[number] for sample in samples], PERCENTS)
        assert sum(found["all"] for found in source.elements.values()) == sum(len(sample.layout) for sample in samples)
        assert sum(found["dropped"] for found in source.elements.values()) == sum(not k for sample in samples for k in sample.kept)
    rows = list(first_rows(recipe, 12))
    assert (statistics.rows, statistics.samples) == (len(rows), sum(map(len, rows)))
    used = np.sum([sample.counts for row in rows for _, sample in row], axis=0) / len(rows)
    np.testing.assert_allclose(list(statistics.fill.values()), used / np.array(recipe.budgets))


def test_what_is_wrong_is_counted_by_cause_and_the_rest_is_shown():
    recipe = bad_recipe()
    (looked,) = look_at(recipe, 4)
    no_caption, no_file = (
        "schema: captions must have a caption that is not empty, got '..'.",
        "sample: the image must be a file that can be read, got '..'",
    )
    assert (len(looked.samples), list(looked.problems.counts.values())) == (2, [1, 1])
    assert [kind.startswith(known) for kind, known in zip(looked.problems.counts, (no_caption, no_file))] == [True, True]
    assert list(looked.problems.first.values()) == [
        "mine, record 0: captions must have a caption that is not empty, got ''.",
        "mine, record 1: the image must be a file that can be read, got 'no/such/file.png': No such file or directory.",
    ]
    console = Console(file=io.StringIO(), width=200)
    show_images(recipe, 4, console)
    print_images(measure_images(recipe), console)
    assert (
        "wrong, of 4 records: 1 (schema), the first: mine, record 0: captions must have a caption that is not empty, got ''."
        in console.file.getvalue()
    )
    assert "wrong     1 (sample), the first: mine, record 1" in console.file.getvalue()


def test_the_doctor_decodes_images():
    problems = [finding.what for finding in examine_recipe(bad_recipe()) if finding.about == "images" and finding.kind == "problem"]
    assert len(problems) == 1
    assert problems[0].startswith("1 of 2 images cannot be decoded; the first: mine, record 2, epoch 0: the image is damaged")


def test_the_doctor_counts_an_image_once_that_is_seen_in_two_ways():
    """The first as condition and by the ViT; the second is made."""
    edit = {"image_list": [image_sources.png(40, 30), image_sources.png(30, 40)], "instruction_list": [["Turn it."]]}
    found = examine_recipe(recipe_to_look_at([Source(listed_records([edit], "mine"), "unified_edit")]))
    assert "2 of 2 images are enlarged more than 2 times" in [finding.what for finding in found]


def test_a_budget_may_be_nothing(tmp_path):
    recipe = dataclasses.replace(recipe_to_look_at(example_sources(4)[:1]), budgets=Counts(4000, 0, 4000))
    statistics = measure_images(recipe)
    assert (statistics.fill["vit"], statistics.passed) == (None, True)
    assert write_image_report(recipe, tmp_path / "page.html")[1].exists()


def test_of_no_record_that_is_right_there_is_a_measurement():
    recipe = recipe_to_look_at([Source(listed_records([{}] * 300, "mine"), "vlm_sft")])
    statistics = measure_images(recipe)
    assert (statistics.rows, statistics.fill["tokens"], *statistics.sources[0].problems.values()) == (0, None, 300)
    console = Console(file=io.StringIO(), width=200)
    print_images(statistics, console)
    assert "no rows, since no record makes a sample that fits; `ul2 doctor` says why" in console.file.getvalue()
    assert any("none of 300 records is right" in finding.what for finding in examine_recipe(recipe))


# What is drawn.

SMALL = [
    (image_sources.made(), "t2i_pretrain"),
    (image_sources.edits(), "unified_edit"),
    (image_sources.talks(), "vlm_sft"),
]


def painted(svg, side):
    """The places of a mask that are painted: its rectangles and triangles, at the middles of the places."""
    seen = np.zeros((side, side), bool)
    row, column = np.mgrid[:side, :side]
    for x, y, width, height in re.findall(r'<rect x="(\d+)" y="(\d+)" width="(\d+)" height="(\d+)"', svg):
        x, y, width, height = map(int, (x, y, width, height))
        seen[y : y + height, x : x + width] = True
    for points in re.findall(r'<polygon points="([\d, ]+)"', svg):
        start, _, end = (int(point.split(",")[0]) for point in points.split())
        seen |= (row >= start) & (row < end) & (column >= start) & (column <= row)
    return seen


def test_the_mask_that_is_drawn_is_the_mask():
    small = image_sources.recipe(
        *(image_sources.source(records, schema, schema) for records, schema in SMALL), epochs=None, budgets=(500, 300, 300)
    )
    for row in list(first_rows(small, 20)):
        found = lay_out([sample for _, sample in row], small.special_tokens)
        lens = found.sample_lens, found.split_lens, found.attn_modes
        np.testing.assert_array_equal(painted(mask(found), sum(found.split_lens)), dense_mask(places(*lens)))
        widths = [int(width) for width in re.findall(r' width="(\d+)" height="1"', strip(found))]
        assert widths == found.split_lens.tolist()
        assert strip(found).count("<path") == len(found.sample_lens) - 1


def test_a_page_has_what_is_shown_and_nothing_from_outside(recipe, tmp_path):
    statistics, path = write_image_report(recipe, tmp_path / "page.html", records=12, count=2)
    page = path.read_text()
    shown = [sample for looked in look_at(recipe, 2) for _, sample in looked.samples]
    assert page.count('<img src="data:image/png;base64,') == sum(
        element.kind != "text" for sample in shown for element in sample.layout
    )
    assert page.count('class="mask"') == page.count('class="strip"') == len(shown) + min(8, statistics.rows)
    assert all(colour in page for colour in MODE_COLOURS.values())
    assert "All 4 checks pass." in page
    tags = []
    parser = html.parser.HTMLParser()
    parser.handle_starttag = lambda tag, attributes: tags.append((tag, dict(attributes)))
    parser.feed(page)
    assert not [tag for tag, _ in tags if tag in ("script", "iframe", "object")]
    assert all(value.startswith("data:") for _, attributes in tags for name, value in attributes.items() if name in ("src", "href"))


def test_texts_of_records_are_escaped_and_damaged_images_said(tmp_path):
    (good,) = example_records("t2i_pretrain", 1)
    records = [{"image": good["image"][:-100], "captions": "<script>alert(1)</script>"}]
    hostile = recipe_to_look_at([Source(listed_records(records, "<b>mine</b>"), "t2i_pretrain")])
    page = write_image_report(hostile, tmp_path / "page.html")[1].read_text()
    assert "<script>" not in page
    assert "<b>mine" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "it cannot be decoded" in page
