"""A read that fails is never the end of a file, and never a bad record: it is tried again, and then an error names the object."""

import functools
import gzip
import json
import resource

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.image_sources import made, write_tar
from tests.sources.faulty import FAULTS, LASTING, SHORT, FaultyFileSystem
from tests.sources.test_sources import (
    write_arrow,
    write_arrow_stream,
    write_csv,
    write_json,
    write_lines,
    write_parquet,
    write_tfrecord,
)
from tests.support import records_of
from ul2_tasks import open_image_text, open_source
from ul2_tasks.files import retries
from ul2_tasks.files.listing import list_files
from ul2_tasks.image_rows.records import Piece, listed_records, open_records
from ul2_tasks.image_rows.video import FrameSampler
from ul2_tasks.images import pixels
from ul2_tasks.images.draws import draws_of
from ul2_tasks.sources.dataset_objects import DatasetSource
from ul2_tasks.sources.files import Layout, Shard

TEXTS = [f"document {number} {np.random.default_rng(number).bytes(40).hex()}" for number in range(300)]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(retries, "_WAITS", (0.0,) * 3)
    yield
    FaultyFileSystem.fails()


RECORDS = made(6)
TEXT_FILES = {
    "a.txt": (write_lines, {"documents": "line"}),
    "paragraphs.txt": (lambda path, texts: path.write_text("\n\n".join(texts)), {"documents": "paragraph"}),
    **{f"a.jsonl{suffix}": (write_json, {}) for suffix in ("", ".gz", ".bz2", ".xz", ".zst")},
    "a.csv": (write_csv, {}),
    "a.parquet": (write_parquet, {}),
    "a.arrow": (write_arrow, {}),
    "a.tfrecord": (write_tfrecord, {}),
    "stream.arrow": (write_arrow_stream, {}),
}


def write_records(path) -> None:
    pq.write_table(pa.Table.from_pylist(RECORDS), path, row_group_size=2, compression="none", use_dictionary=False)


def write_captions(path) -> None:
    path.write_text("".join(json.dumps({"captions": [f"caption {number} {text}"]}) + "\n" for number, text in enumerate(TEXTS)))


def write_samples(path) -> None:
    parts = [(f"{n}.png", record["image"], f"{n}.txt", record["captions"][0].encode()) for n, record in enumerate(RECORDS)]
    write_tar(path, [pair for image, content, name, caption in parts for pair in ((image, content), (name, caption))])
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(path.read_bytes()))


IMAGE_FILES = {
    "images.parquet": write_records,
    "captions.jsonl": write_captions,
    "images.tar": write_samples,
    "images.tar.gz": write_samples,
}


def texts_of(path: str, name: str) -> list:
    return [(record.text, record.problem) for record in records_of(open_source(path, **TEXT_FILES[name][1]))]


def images_of(path: str, name: str) -> list:
    records = open_records(path)
    return [(place, str(record)) for piece in records.pieces for place, record in records.read(piece, 0)]


FORMATS = {
    **{name: (functools.partial(write, texts=TEXTS), texts_of) for name, (write, _) in TEXT_FILES.items()},
    **{name: (write, images_of) for name, write in IMAGE_FILES.items()},
}


def found_or_error(read, path: str, name: str) -> list | OSError:
    try:
        return read(path, name)
    except OSError as error:
        return error


@pytest.mark.parametrize("name", FORMATS)
def test_each_fault_of_each_request_changes_nothing_or_is_an_error_that_names_the_file(tmp_path, name):
    write, read = FORMATS[name]
    write(tmp_path / name)
    path = f"faulty://{tmp_path / name}"
    FaultyFileSystem.fails()
    wanted, requests = read(path, name), FaultyFileSystem.requests
    assert len(wanted) == (6 if name.startswith("images") else 300)
    assert not any(problem for _, problem in wanted) or read is images_of
    for number in range(0, requests, 1 + requests // 8):
        for fault in FAULTS.values():
            FaultyFileSystem.fails(fault, number)
            assert read(path, name) == wanted, (number, fault)
    for number in {0, requests // 2, requests - 1}:
        for fault in {**FAULTS, **LASTING}.values():
            FaultyFileSystem.fails(fault, number, last=-1)
            found = found_or_error(read, path, name)
            if isinstance(found, OSError):
                assert name in str(found)
            else:  # the last request that a thread of a reader makes may be one that nobody needs
                assert found == wanted, (number, fault)
                assert fault == SHORT or number == requests - 1, (number, fault)


class Remote:
    """Records of one's own, which are read when they are asked for."""

    def __init__(self, error: Exception, times: int = 1000):
        self.error, self.times = error, times

    def __len__(self) -> int:
        return 3

    def __getitem__(self, number: int) -> dict:
        if number == 1 and self.times:
            self.times -= 1
            raise self.error
        return {"captions": "a cat"}


def problems(records, **settings) -> list[str]:
    return [record.problem for record in records_of(open_image_text(records, **settings))]


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if type(FAULTS[fault]) not in (str, OSError, RuntimeError)])
def test_no_read_that_fails_is_a_bad_record_of_images(tmp_path, fault):
    def kind(record, draws):
        raise FAULTS[fault]

    with pytest.raises(OSError, match="train, record 0"):
        problems([{"captions": "a cat"}], kind=kind)
    with pytest.raises(OSError, match="mine, record 1"):
        list(listed_records(Remote(FAULTS[fault]), "mine").read(Piece(Shard("mine"), 3), 0))
    again = listed_records(Remote(FAULTS[fault], times=2), "mine").read(Piece(Shard("mine"), 3), 0)
    assert [record for _, record in again] == [{"captions": "a cat"}] * 3
    _, missing, _ = listed_records(Remote(KeyError("none")), "mine").read(Piece(Shard("mine"), 3), 0)
    assert isinstance(missing[1], ValueError), "a record that says so is bad"


def test_an_image_that_cannot_be_opened_is_no_bad_record_and_one_that_is_damaged_is(tmp_path):
    image = RECORDS[0]["image"]
    for name, content in {"whole.png": image, "cut.png": image[:-40]}.items():
        (tmp_path / name).write_bytes(content)
    records = [{"image": name, "captions": "a cat"} for name in ("whole.png", "none.png", "cut.png")]
    read = {"kind": "captions", "folder": str(tmp_path)}
    assert [bool(problem) for problem in problems(records, **read)] == [False, True, False], "pixels are looked at later"
    with pytest.raises(ValueError, match="damaged"):
        pixels.pixels(str(tmp_path / "cut.png"))
    limits, source = resource.getrlimit(resource.RLIMIT_NOFILE), open_image_text(records, **read)
    found = source.read(source.shards("train")[0])
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        with pytest.raises(OSError, match=r"whole\.png.*Too many open files"):
            next(found)
        with pytest.raises(OSError, match=r"cut\.png.*Too many open files"):
            pixels.pixels(str(tmp_path / "cut.png"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_an_image_or_a_video_of_which_no_byte_can_be_read_is_no_damaged_one():
    path = "/proc/self/mem"  # a regular file, whose first byte is an input/output error
    for read in (pixels.pixels, pixels.size_of, lambda path: FrameSampler()(path, draws_of(0, 0, "r"))):
        with pytest.raises(OSError, match=path):
            read(path)


def test_rows_of_a_dataset_that_streams_are_read_on_after_a_fault():
    left = []

    def rows():
        for number, text in enumerate(TEXTS):
            if number == 200 and left:
                raise left.pop()
            yield {"text": text}

    dataset = datasets.IterableDataset.from_generator(rows)
    source = DatasetSource({"train": dataset}, Layout())
    left[:] = [FAULTS["aiohttp"], FAULTS["time-out"], FAULTS["requests"]]
    assert [record.text.decode() for record in records_of(source)] == TEXTS
    left[:] = [FAULTS["aiohttp"]] * 10
    with pytest.raises(OSError, match=r"IterableDataset.*split train.*ClientPayloadError"):
        list(records_of(source))


@pytest.mark.parametrize("pattern", ["", "/*/a.jsonl", "/**", "/b/*"])
@pytest.mark.parametrize("fault", [fault for fault, error in (FAULTS | LASTING).items() if isinstance(error, Exception)])
def test_a_folder_that_cannot_be_listed_is_no_empty_one(tmp_path, monkeypatch, pattern, fault):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.jsonl").write_text("{}")
    monkeypatch.setattr(FaultyFileSystem, "listed", "/b")
    path, error = f"faulty://{tmp_path}{pattern}", (FAULTS | LASTING)[fault]
    wanted = list_files(path)
    FaultyFileSystem.fails(error, 0, last=-1)
    with pytest.raises(type(error) if fault in LASTING else OSError):
        list_files(path)
    if fault in FAULTS:
        FaultyFileSystem.fails(error, 0)
        assert list_files(path) == wanted
