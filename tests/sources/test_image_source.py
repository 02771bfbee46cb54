"""Files of interleaved image-text data as a SeqIO source: each kind of record, and what is wrong with one."""

import json

import pytest
import seqio

from tests.images.image_support import image
from tests.support import flat, records_of
from ul2_tasks import open_image_text
from ul2_tasks.images.elements import Image, Text
from ul2_tasks.images.example_set import example_records, write_example_set
from ul2_tasks.tasks.sources import seqio_source

COUNT = 6


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return {path.stem: str(path) for path in write_example_set(tmp_path_factory.mktemp("set"), COUNT)}


def read(source, **settings) -> list[list]:
    """Each record as a list of texts and images."""
    found = []
    for record in seqio_source(source).get_dataset("train", **{"shuffle": False, **settings}).as_numpy_iterator():
        assert not record["problem"]
        assert len(record["texts"]) == len(record["images"])
        places = [place for both in zip(record["texts"], record["images"]) for place in both if place]
        found.append([place if place.startswith(b"\x89PNG") else place.decode() for place in places])
    return found


def test_stories_of_json_lines_and_a_folder(files):
    wanted = [[place for page in zip(one["texts"], one["images"]) for place in page] for one in example_records("story", COUNT)]
    assert read(open_image_text(files["story"])) == wanted
    assert read(open_image_text(example_records("story", COUNT))) == wanted


def test_each_caption_is_an_example_of_its_own_after_its_image(files):
    records = example_records("t2i_pretrain", COUNT)
    wanted = [[record["image"], caption] for record in records for caption in json.loads(record["captions"]).values()]
    assert read(open_image_text(files["t2i_pretrain"], "captions")) == wanted
    named = open_image_text([{"image": image(), "captions": captions} for captions in (["a", "b"], ["a"], "b")], "captions")
    where = [record["where"].decode() for record in seqio_source(named).get_dataset("train", shuffle=False).as_numpy_iterator()]
    names = [f"train, record {number}" for number in range(3)]
    assert where == [f"{names[0]}, caption 1", f"{names[0]}, caption 2", *names[1:]]


def both_ways(record, draws):
    """A kind of one's own."""
    return [Image(record["image"], "vit"), Text("This was it.")]


def test_hosts_share_the_pieces_and_splits_are_files_of_their_own(files):
    records = [{"texts": [f"text {n}"], "images": [None]} for n in range(200)]
    source = open_image_text({"train": records, "validation": files["story"]})
    hosts = [read(source, shard_info=seqio.ShardInfo(host, 3)) for host in range(3)]
    assert sorted(flat(hosts)) == sorted([record["texts"][0]] for record in records)
    assert sum(source.rows_of(shard, len(list(source.read(shard))), None) for shard in source.shards("train")) == 200
    assert len(records_of(source, "validation")) == COUNT
    with pytest.raises(ValueError, match="split"):
        seqio_source(source).get_dataset("test")


def test_the_identity_tells_what_is_read(files):
    def one(*arguments):
        return open_image_text(*arguments).identity

    records = [{"texts": ["a"], "images": [image()]}]
    assert one(records) == one([dict(records[0])])
    different = [one(records), one(records * 2), one([{**records[0], "texts": ["b"]}]), one(files["story"]), one(files["vlm_sft"])]
    different += [one(files["vlm_sft"], "vlm_sft"), one(files["vlm_sft"], both_ways), one(files["vlm_sft"], "vlm_sft", "/folder")]
    assert len(set(different)) == len(different)
    assert one(records, lambda record, draws: []) is None, "a lambda cannot tell"


MISSING = {"bytes": None, "path": "missing.png"}
NO_RECORDS = [{"texts": ["a"]}, {"texts": ["a"], "images": []}]
NO_RECORDS += [{"texts": [None], "images": [image]} for image in ("missing.png", MISSING, 3.5, [1, 2])]


@pytest.mark.parametrize("record", NO_RECORDS, ids=str)
def test_a_record_that_is_none_is_a_problem(record):
    (found,) = seqio_source(open_image_text([record])).get_dataset("train", shuffle=False).as_numpy_iterator()
    assert b"image" in found["problem"]
    assert found["where"] == b"train, record 0"
    assert not len(found["texts"])


def test_lines_in_parts_of_a_file_have_places_and_rows_of_their_own(tmp_path):
    """Also where lines are blank, and a line is several records."""
    lines = ["" if number % 7 == 3 else json.dumps({"image": "x" * 300, "captions": ["a", "b"]}) for number in range(1000)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    source = open_image_text(str(tmp_path / "a.jsonl"), "captions")
    shards, before, rows, places = source.shards("train"), 0, [], set()
    assert len(shards) > 3
    for shard in shards:
        found = list(source.read(shard))
        rows += [before + record.where.row for record in found]
        places |= {(str(record.where), record.problem) for record in found}
        before += source.rows_of(shard, len(found), found[-1].where)
    filled = [number for number, line in enumerate(lines, 1) if line]
    assert (before, sorted(set(rows))) == (1000, filled)
    assert {place for place, _ in places} == {f"{tmp_path}/a.jsonl, line {number}" for number in filled}
