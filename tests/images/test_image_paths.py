"""Paths that records name stay in their folder; and what is no file of an image is told."""

import json
import os
import re

import fsspec
import numpy as np
import pytest
from PIL import Image as PILImage

from tests.image_sources import SIZES, png, recipe, source, write_tar
from ul2_tasks import open_image_text
from ul2_tasks.image_rows.problems import RecordError
from ul2_tasks.image_rows.recipe import Source
from ul2_tasks.image_rows.records import open_records
from ul2_tasks.image_rows.rows import RowMaker
from ul2_tasks.image_rows.video import FrameSampler
from ul2_tasks.images.draws import draws_of
from ul2_tasks.images.elements import Image, Text
from ul2_tasks.images.paths import Address, Outside, located
from ul2_tasks.tasks.sources import seqio_source


def problems(source) -> list[str]:
    return [record["problem"].decode() for record in seqio_source(source).get_dataset("train", shuffle=False).as_numpy_iterator()]


@pytest.mark.parametrize(
    "path", ["../out.png", "{}/out.png", "link.png", "links/out.png", "http://a.org/a.png", "sub/../../out.png"]
)
@pytest.mark.parametrize("kind", ["jsonl", "tar"])
def test_a_path_that_leads_out_of_its_folder_is_a_problem_of_its_record(tmp_path, path, kind):
    """And no other is: one that leads back, an absolute one, and one that no schema reads."""
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "out.png").write_bytes(png(9, 9))
    (folder / "in.png").write_bytes(png(9, 9))
    (folder / "link.png").symlink_to(tmp_path / "out.png")
    (folder / "links").symlink_to(tmp_path)
    paths, file = [path.format(tmp_path), "sub/../in.png", str(folder / "in.png")], folder / f"a.{kind}"
    lines = [json.dumps({"image": each, "captions": "a", "video": "http://a.org/unused"}) for each in paths]
    if kind == "jsonl":
        file.write_text("\n".join(lines))
    else:
        write_tar(file, [(f"{number}.json", line.encode()) for number, line in enumerate(lines)])
    sentence = f"a path must stay within the folder {str(folder)!r}, got {paths[0]!r}. Pass folder="
    of_file = Source(open_records(file), "t2i_pretrain", SIZES)
    maker = RowMaker(recipe(of_file, on_error="skip"))
    assert sum(len(row) for row in maker.packed(0)) == 2
    assert maker.problems.counts == {"schema": 1}
    with pytest.raises(RecordError, match=rf"^{file}, .*: {re.escape(sentence)}"):
        RowMaker(recipe(of_file)).packed(0)
    first, *others = problems(open_image_text(str(file), "captions"))
    assert first.startswith(sentence)
    assert others == ["", ""]


@pytest.mark.parametrize("path", ["a.png/b.png", "x" * 5000, "loop.png", "pipe.png"])
def test_a_path_that_leads_to_no_file_is_a_problem_of_its_record_and_a_pipe_is_not_waited_for(tmp_path, path):
    (tmp_path / "a.png").write_bytes(png(9, 9))
    (tmp_path / "loop.png").symlink_to(tmp_path / "loop.png")
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "a.jsonl").write_text(json.dumps({"image": path, "captions": "a"}))
    with pytest.raises(RecordError, match=r"line 1.*: the image must be a file that can be read|a device or a pipe"):
        RowMaker(recipe(Source(open_records(tmp_path / "a.jsonl"), "t2i_pretrain", SIZES))).packed(0)


def test_the_folder_that_is_given_is_where_paths_stay(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"image": f"{tmp_path}/a.png", "captions": "a"}))
    (tmp_path / "a.png").write_bytes(png(9, 9))
    for folder, is_right in ((str(tmp_path), True), ("/", True), (str(tmp_path / "sub"), True), ("/usr", True)):
        assert (problems(open_image_text(str(tmp_path / "a.jsonl"), "captions", folder)) == [""]) == is_right, (
            "it is beside its record"
        )
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/a.jsonl").write_text((tmp_path / "a.jsonl").read_text())
    assert problems(open_image_text(str(tmp_path / "sub/a.jsonl"), "captions", str(tmp_path))) == [""]
    assert problems(open_image_text(str(tmp_path / "sub/a.jsonl"), "captions", "/usr")) != [""]


def test_records_in_memory_have_paths_of_the_program_and_no_address(tmp_path):
    (tmp_path / "a.png").write_bytes(png(9, 9))
    records = [{"texts": ["a"], "images": [str(path)]} for path in (tmp_path / "a.png", "http://127.0.0.1:9/a.png")]
    first, second = problems(open_image_text(records))
    assert first == ""
    assert second.startswith("the image on another file system must be below folder, got 'http://127.0.0.1:9/a.png'")
    assert "must stay within the folder" in problems(open_image_text(records, folder="/usr"))[0]
    own = open_image_text([{}], lambda record, draws: [Text("a"), Image("memory://b/a.png", "vit")], folder="memory://b")
    assert problems(own)[0].startswith("the image must be a file that can be read, got 'memory://b/a.png'")


@pytest.mark.parametrize("root", ["memory://set/", "memory://"])
@pytest.mark.parametrize("folder", [None, "photos"])
def test_rows_and_examples_find_images_and_videos_on_the_file_system_of_their_records(root, folder):
    """Beside a JSON Lines file, and below a folder; a missing one and one elsewhere are problems of their records."""
    memory = fsspec.filesystem("memory")
    files = {"a.png": png(20, 30), "photos/a.png": png(20, 30), "out.png": png(9, 9)}
    lines = [{"image": each, "captions": "a"} for each in ("a.png", f"{root}photos/a.png", "no.png", "../out.png", "s3://b/a.png")]
    memory.pipe({f"{root}{name}": content for name, content in files.items()})
    memory.pipe(f"{root}a.jsonl", "\n".join(map(json.dumps, lines)).encode())
    memory.pipe(f"{root}b.jsonl", json.dumps({"image": "a.png", "captions": "a"}).encode())
    try:
        where = folder and f"{root}{folder}"
        maker = RowMaker(recipe(Source(open_records(f"{root}*.jsonl", where), "t2i_pretrain", SIZES), on_error="skip"))
        rows = [maker.row(row) for row in maker.packed(0)]
        assert sum(len(row["vae_latent_shapes"]) for row in rows) == 3
        assert maker.problems.counts == {"schema": 2, "sample": 1}
        assert [not problem for problem in problems(open_image_text(f"{root}a.jsonl", "captions", where))] == [True] * 2 + [
            False
        ] * 3
        with pytest.raises(
            ValueError, match="the video on another file system must be below folder" if not folder else "must be one of mov"
        ):
            FrameSampler()(f"{root}a.png" if not folder else Address(f"{root}a.png"), draws_of(0, 0, ""))
    finally:
        memory.rm("/", recursive=True)


def test_a_cache_of_links_to_one_folder_is_read(tmp_path):
    """As the Hugging Face Hub has it: names are links to what lies in one folder."""
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs/0").write_text('{"image": "a.png", "captions": "a"}')
    (tmp_path / "blobs/1").write_bytes(png(9, 9))
    (tmp_path / "snapshot").mkdir()
    for name, blob in (("a.jsonl", "0"), ("a.png", "1")):
        (tmp_path / "snapshot" / name).symlink_to(tmp_path / "blobs" / blob)
    assert problems(open_image_text(str(tmp_path / "snapshot/a.jsonl"), "captions")) == [""]


@pytest.mark.parametrize(
    ("path", "folder", "wanted"),
    [
        ("a.png", "s3://b/c", "s3://b/c/a.png"),
        ("s3://b/c/a.png", "s3://b/c/", "s3://b/c/a.png"),
        ("s3://b/d/a.png", "s3://b/c", None),
        ("../d/a.png", "s3://b/c", None),
        ("%2e%2e/d/a.png", "https://b/c", None),
        ("/etc/passwd", "s3://b/c", None),
        ("file:///etc/passwd", "s3://b/c", None),
        ("a::file", "s3://b/c", None),
        ("file:///c/a.png", "/c", None),
        ("a.png", "file:///c", "/c/a.png"),
        ("a\0.png", "/c", "/c/a\0.png"),
    ],
)
def test_an_address_is_below_the_folder_that_is_one(path, folder, wanted):
    assert located(path, folder) == (wanted or Outside(path, folder))


@pytest.mark.parametrize("image", [PILImage.new("RGB", (9, 9)), np.zeros((9, 9, 3), np.uint8)], ids=["PIL", "array"])
def test_a_decoded_image_says_how_to_have_its_file(image):
    hint = r"got a value of type \w+, which is decoded\. Read its file instead: dataset\.cast_column\(NAME, datasets\.Image\("
    for schema in ("t2i_pretrain", lambda record, draws: [Image(record["image"], "vit")]):
        with pytest.raises(RecordError, match=rf"^made, record 0: .*{hint}"):
            RowMaker(recipe(source([{"image": image, "captions": "a"}], schema))).packed(0)
    for records, kind in (
        ([{"image": image, "captions": "a"}], "captions"),
        ([{"texts": ["a"], "images": [image]}], "interleaved"),
    ):
        assert re.search(hint, problems(open_image_text(records, kind))[0])
