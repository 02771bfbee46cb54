"""`ImageRows`: rows with an index are those of the stream, byte for byte, for whoever reads them."""

import collections
import functools
import json
import multiprocessing
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.image_sources import FORM, SIZES, edits, ids, made, png, recipe, source, talks
from ul2_tasks.image_rows.index import ImageRows
from ul2_tasks.image_rows.recipe import Source
from ul2_tasks.image_rows.records import open_records
from ul2_tasks.image_rows.rows import RowMaker
from ul2_tasks.images.elements import Text

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

import ul2_tasks  # noqa: E402

pytestmark = pytest.mark.torch

BUDGETS = {"tokens": 150, "vit": 100, "vae": 120}
BAD = {"image": b"none", "captions": "a"}
CUT = {"image": png(40, 40)[:-40], "captions": "its header is right"}


def plain(row: dict) -> dict:
    return {
        key: (str(value.dtype), value.shape, value.tobytes()) if hasattr(value, "dtype") else value for key, value in row.items()
    }


def as_numpy(row: dict) -> dict:
    return {key: value.numpy() if isinstance(value, torch.Tensor) else value for key, value in row.items()}


def dataset(*sources, **arguments) -> ul2_tasks.ImageTextDataset:
    given = {"pool": 12, "num_epochs": 1, "rank": 0, "world_size": 1, **arguments}
    return ul2_tasks.ImageTextDataset(sources or [source(made())], FORM, ids, BUDGETS, **given)


def streamed(recipe, pools: int | None = None, iteration: int = 0) -> list[dict]:
    maker, found = RowMaker(recipe, iteration=iteration), []
    for number in range(recipe.pools(iteration).count if pools is None else pools):
        found += [row for samples in maker.packed(number) if (row := maker.row(samples)) is not None]
    return list(map(plain, found))


def names(location) -> str:
    return f"{location.record}, epoch {location.epoch}"


@settings(max_examples=6, deadline=None)
@given(
    st.integers(0, 9),
    st.integers(1, 40),
    st.sampled_from([(1, 1), (3, 1), (0.5, 2)]),
    st.integers(0, 2),
    st.sampled_from([1, 2, None]),
)
def test_rows_are_those_of_the_stream_in_its_order(seed, pool, weights, shuffle_blocks, epochs):
    sources = source(made(20), weight=weights[0]), source(talks(31), "vlm_sft", "talks", weight=weights[1])
    of = recipe(*sources, seed=seed, pool=pool, shuffle_blocks=shuffle_blocks, epochs=epochs, budgets=(400, 200, 300))
    for number in range(2):
        found = ImageRows(of, epoch=number)
        if epochs is None:
            following = streamed(of, pools=found.epoch(2)._first_pool)
            expected = following[: len(found)] if number == 0 else following[-len(found) :]
        else:
            expected = streamed(of, iteration=number)
        assert [plain(row) for row in found] == expected
        assert plain(found[-1]) == expected[-1]
        assert list(map(plain, found[1::7])) == expected[1::7]
        assert [list(map(names, found.locate(index))) for index in range(len(found))] == [row["samples"] for row in expected]


def test_the_index_of_a_dataset_has_the_rows_of_its_iterator_and_of_set_epoch(tmp_path):
    data = dataset(source([*made(20), BAD, *made(30)]), on_error="skip", counts_folder=tmp_path)
    found = data.rows()
    assert len(found) > 0
    assert [path.name for path in tmp_path.iterdir()] == [".ul2_rows"]
    for epoch in range(3):
        data.set_epoch(epoch)
        assert [plain(row) for row in found.epoch(epoch)] == [plain(as_numpy(row)) for row in data]
    every = [name for index in range(len(found)) for name in map(names, found.locate(index))]
    assert len(every) == len(set(every)) == 50
    list(found)
    assert found.skipped == data.skipped == {"sample": 1}
    list(found)
    assert found.skipped == data.skipped


def test_each_record_of_an_epoch_is_in_one_row_and_find_is_the_inverse_of_locate():
    of = recipe(source(made(30), weight=2), source(edits(17), "unified_edit", "edits"), epochs=2, budgets=(900, 400, 500), pool=20)
    for number in range(2):
        found = ImageRows(of, epoch=number)
        where = collections.defaultdict(list)
        for index in range(len(found)):
            for location in found.locate(index):
                where[location.record].append(index)
                assert location.file == location.record.split(",")[0] == ("made", "edits")[location.source]
        assert len(where) == 47
        for record, indices in where.items():
            assert found.find(record) == sorted(set(indices))
        with_epoch = found.locate(3)[0]
        assert 3 in found.find(names(with_epoch))
        assert found.find(f"{with_epoch.record}, epoch 99") == []
    with pytest.raises(ValueError, match="record must be the name of a record of the sources, such as 'made, record 0', got 'x'"):
        found.find("x")


class Once:
    """Records that are read as often as `most` says."""

    def __init__(self, records, most):
        self.records, self.left = records, most

    def read(self, piece, start):
        self.left -= 1
        assert self.left >= 0, "the records were read"
        return self.records.read(piece, start)


def test_a_second_opening_reads_no_record_to_count_and_another_recipe_counts_anew(tmp_path):
    write(tmp_path / "talks.jsonl", talks(300))
    of_file = functools.partial(recipe, budgets=(400, 200, 300), pool=10)

    def opened(most=10**6, name="talks.jsonl", **arguments):
        records = open_records(tmp_path / name)
        object.__setattr__(records, "read", Once(open_records(tmp_path / name), most).read)
        return ImageRows(of_file(Source(records, text_alone, sizes=SIZES), **arguments))

    first = opened()
    assert len(first) == len(opened(most=0)) > 10
    assert (tmp_path / ".ul2_rows").exists()
    assert plain(opened(most=2)[40]) == plain(first[40])
    for others in ({"seed": 1}, {"pool": 11}, {"budgets": (401, 200, 300)}):
        with pytest.raises(AssertionError, match="the records were read"):
            len(opened(most=0, **others))
    (tmp_path / ".ul2_rows").write_bytes(b"of another program")
    assert len(opened()) == len(opened(most=0)) == len(first)
    write(tmp_path / "talks.jsonl", talks(200))
    with pytest.raises(AssertionError, match="the records were read"):
        len(opened(most=0))
    assert len(opened()) < len(first)


def test_records_that_changed_since_they_were_counted_are_refused(tmp_path):
    """A path in a record leads to another image: the records say nothing of that."""
    (tmp_path / "a.png").write_bytes(png(10, 10))
    write(tmp_path / "all.jsonl", [{"image": "a.png", "captions": "a"}] * 40)
    of = recipe(Source(open_records(tmp_path / "all.jsonl"), "t2i_pretrain", sizes=SIZES), pool=10)
    assert len(ImageRows(of))
    (tmp_path / "a.png").write_bytes(png(60, 60))
    with pytest.raises(ValueError, match=r"pool 0 of the records must have the \d+ rows that were counted, got \d+"):
        ImageRows(of)[0]


def test_a_row_of_which_no_image_can_be_decoded_has_the_content_of_the_next():
    of = recipe(source([CUT, *made(8)]), on_error="skip", budgets=(150, 100, 120), pool=1)
    found, expected = ImageRows(of), streamed(of)
    given = [plain(row) for row in found]
    assert [row for number, row in enumerate(given) if row != given[number - 1]] == expected
    assert len(given) == len(expected) + 1
    assert found.skipped["image"] >= 1
    with pytest.raises(ValueError, match="made, record 0"):
        list(ImageRows(recipe(source([CUT, *made(8)]), budgets=(150, 100, 120), pool=1)))


@pytest.mark.filterwarnings("ignore:This DataLoader will create", "ignore:.*fork.*:DeprecationWarning")
def test_workers_of_a_loader_read_the_rows_of_a_sampler(tmp_path):
    """Also after the file was read here: its place is not that of the workers."""
    write(tmp_path / "talks.jsonl", talks(60))
    of = recipe(Source(open_records(tmp_path / "talks.jsonl"), text_alone, sizes=SIZES), budgets=(200, 200, 300), pool=10)
    found = ImageRows(of)
    expected = [plain(row) for row in found]
    order = torch.randperm(len(found), generator=torch.Generator().manual_seed(0)).tolist()
    loader = torch.utils.data.DataLoader(
        found, batch_size=None, sampler=order, num_workers=2, multiprocessing_context=multiprocessing.get_context("fork")
    )
    assert [plain(as_numpy(row)) for row in loader] == [expected[index] for index in order]
    assert plain(pickle.loads(pickle.dumps(found))[-1]) == expected[-1]


def test_an_index_is_a_number_of_the_epoch_and_other_arguments_are_refused():
    found = dataset().rows()
    assert plain(found[np.int64(2)]) == plain(found[2])
    for index in (len(found), -len(found) - 1):
        with pytest.raises(IndexError, match=rf"index must be 0 to {len(found) - 1}, got {index}"):
            found[index]
    with pytest.raises(ValueError, match="epoch must be an integer of at least 0, got -1"):
        found.epoch(-1)
    assert found[1:3][0].keys() == found[1].keys()
    twice = found.__getitems__([1, 1])
    assert twice[0]["sample_lens"] is not twice[1]["sample_lens"]


def text_alone(record, draws):
    return [Text(turn["value"] * 3, learned=True) for turn in record["conversations"]]


def write(path, records):
    texts = [{key: value for key, value in record.items() if not isinstance(value, bytes)} for record in records]
    path.write_text("".join(json.dumps(record) + "\n" for record in texts))
