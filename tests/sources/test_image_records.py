"""`records`: any stretch of any piece is read, each record has a name of its own, and what is wrong is said of its record."""

import gzip
import io
import json
import tarfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.image_sources import write_tar
from ul2_tasks.image_rows.records import Reader, open_records


def all_of(records) -> list:
    reader = Reader(records)
    return [named for number, piece in enumerate(records.pieces) for named in reader.read(number, 0, piece.records)]


def write_parquet(path, rows, of_group=20, **settings):
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=of_group, **settings)


@pytest.fixture(params=["parquet", "jsonl", "tar"])
def numbered(request, tmp_path):
    """50 records or more, in pieces, each with its number."""
    path = tmp_path / f"of.{request.param}"
    if request.param == "parquet":
        write_parquet(path, [{"number": number, "image": b"%d" % number} for number in range(50)])
    elif request.param == "jsonl":
        path.write_text("".join(json.dumps({"number": number}) + "\n" * (1 + number % 2) for number in range(450)))
    else:
        files = [
            (f"{n:03}.{suffix}", content) for n in range(150) for suffix, content in (("json", b'{"number": %d}' % n), ("png", b""))
        ]
        write_tar(path, files)
    return open_records(path)


def test_each_record_is_there_once_and_any_stretch_is_read_by_one_reader_in_any_order(numbered):
    found = all_of(numbered)
    assert (len(numbered.pieces), len({name for name, _ in found})) == (3, len(numbered))
    assert [record["number"] for _, record in found] == list(range(len(numbered)))
    whole = {number: found[sum(piece.records for piece in numbered.pieces[:number]) :] for number in range(3)}
    reader = Reader(numbered)
    for piece, start, stop in [(1, 3, 5), (1, 5, 9), (1, 12, 20), (0, 0, 1), (0, 0, 2), (2, 7, 8), (1, 2, 6), (1, 7, 7)]:
        assert reader.read(piece, start, stop) == whole[piece][start:stop]


def test_samples_of_a_tar(tmp_path):
    """The fields of a .json may name the files beside it."""
    of_both = b'{"image": "some/c.jpg", "captions": "a", "video": null, "width": 3}'
    files = [
        ("a.jpg", b"1"),
        ("a.txt", "naïve".encode()),
        ("a.seg.png", b"2"),
        ("b.json", b'{"captions": ["x"]}'),
        ("b.WEBP", b"3"),
        *(("c.jpg", b"4"), ("c.json", of_both), ("c.mp4", b"v"), ("c.txt", b"a")),
    ]
    write_tar(tmp_path / "a.tar", files)
    assert [record for _, record in all_of(open_records(tmp_path / "a.tar"))] == [
        {"image": b"1", "captions": "naïve", "seg.png": b"2"},
        {"captions": ["x"], "image": b"3"},
        {"image": b"4", "captions": "a", "video": b"v", "width": 3},
    ]


def member(name, content=b"", **more):
    """A file of a tar, or what `more` says of it; the member and what it holds."""
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in more.items():
        setattr(info, key, value)
    return info, content


def write_members(path, *members, format=tarfile.PAX_FORMAT):
    with tarfile.open(path, "w", format=format) as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))


@pytest.mark.parametrize("format", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_what_a_tar_has_beside_samples_does_not_tear_them_apart_and_is_counted(tmp_path, caplog, format):
    deep, long = "a" * 120, "é" * 150
    write_members(
        tmp_path / "a.tar",
        member("d/", type=tarfile.DIRTYPE),
        member("d/._1.jpg", b"mac"),
        member("d/1.jpg", b"1"),
        member("d/._1.txt", b"mac"),
        member("__MACOSX/d/._1.txt", b"mac"),
        member("d/1.txt", b"one"),
        member(".DS_Store", b"mac"),
        member("d/README", b"no suffix"),
        member(f"{deep}/{long}.jpg", b"2", **({"pax_headers": {"comment": "x"}} if format == tarfile.PAX_FORMAT else {})),
        member(f"{deep}/", type=tarfile.DIRTYPE),
        member(f"{deep}/{long}.txt", b"two"),
        format=format,
    )
    records = open_records(tmp_path / "a.tar")
    assert [record for _, record in all_of(records)] == [{"image": b"1", "captions": "one"}, {"image": b"2", "captions": "two"}]
    assert "a.tar: left out 5 files" in caplog.text
    assert [record for _, record in records.read(records.pieces[0], 1)] == [{"image": b"2", "captions": "two"}]


LINK = {"type": tarfile.SYMTYPE, "linkname": "0.jpg"}
WRONG_SAMPLES = {
    "two images": [member("1.jpg", b"a"), member("1.png", b"b")],
    "two images of other cases": [member("1.jpg", b"a"), member("1.JPG", b"b")],
    "two of a name": [member("1.cls", b"a"), member("1.cls", b"b")],
    "two captions": [member("1.json", b'{"captions": "a"}'), member("1.txt", b"b")],
    "an image in its .json": [member("1.jpg", b"a"), member("1.json", b'{"image": "other.jpg"}')],
    "a link": [member("1.jpg", **LINK), member("1.txt", b"a")],
    "a hard link": [member("1.txt", b"a"), member("1.webp", **LINK | {"type": tarfile.LNKTYPE})],
    "a device": [member("1.txt", b"a"), member("1.webp", type=tarfile.CHRTYPE)],
}


@pytest.mark.parametrize("name", WRONG_SAMPLES)
def test_a_sample_whose_files_are_not_one_each_is_an_error_in_its_place(tmp_path, name):
    write_members(tmp_path / "a.tar", member("0.jpg", b"0"), *WRONG_SAMPLES[name], member("2.jpg", b"2"))
    (_, first), (_, wrong), (_, last) = all_of(open_records(tmp_path / "a.tar"))
    assert (first, last) == ({"image": b"0"}, {"image": b"2"})
    assert isinstance(wrong, ValueError)


def test_a_tar_that_is_torn_cut_or_goes_on_is_an_error_that_names_it(tmp_path):
    write_members(tmp_path / "good.tar", *(member(f"{n}.txt", bytes(600)) for n in range(4)))
    good = (tmp_path / "good.tar").read_bytes()
    end = 4 * 3 * 512
    wrong = {
        "another one behind it": good + good,
        "cut between files": good[: 2 * 3 * 512],
        "cut before its end": good[:end],
        "cut in a file": good[: 2 * 3 * 512 + 700],
        "a header that is none": good[: 2 * 3 * 512] + b"x" * 512 + good[2 * 3 * 512 + 512 :],
        "text behind it": good + b"garbage",
    }
    for suffix, compress in (("", bytes), (".gz", gzip.compress)):
        for name, content in wrong.items():
            (tmp_path / f"wrong.tar{suffix}").write_bytes(compress(content))
            with pytest.raises(ValueError, match=f"wrong.tar{suffix}"):
                open_records(tmp_path / f"wrong.tar{suffix}"), name
    write_members(tmp_path / "torn.tar", *(member(f"{n}.{suffix}", b"a") for suffix in ("txt", "jpg") for n in range(3)))
    with pytest.raises(ValueError, match=r"torn\.tar"):
        open_records(tmp_path / "torn.tar")


def test_what_is_wrong_with_a_record_stands_in_its_place(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"x": 1}\n{"x": \n[1]\n"\xff"\n' + b"[" * 100_000 + b'\n{"x": 2}')
    write_tar(tmp_path / "b.tar", [("0.json", b"{"), ("1.json", b"[]"), ("2.txt", b"\xff"), ("3.txt", b"right")])
    found = all_of(open_records([tmp_path / "a.jsonl", tmp_path / "b.tar"]))
    assert [isinstance(record, dict) for _, record in found] == [True, *[False] * 4, True, *[False] * 3, True]
    assert all(isinstance(record, ValueError | dict) for _, record in found)
    assert (found[1][0], found[8][0]) == (f"{tmp_path}/a.jsonl, line 2", f"{tmp_path}/b.tar, sample 2 (2)")
