"""The embedded set: its kinds, and the same as files."""

import itertools
import json

import pyarrow.parquet as pq
import pytest

from ul2_tasks.image_rows.schemas import story
from ul2_tasks.images.draws import draws_of
from ul2_tasks.images.elements import letters
from ul2_tasks.images.example_set import example_records, write_example_set


def test_a_story_ends_with_the_image_to_generate():
    found = {letters(story(record, draws_of(0, 0, "r"))) for record in example_records("story", 20)}
    assert found == {f"{'T V C ' * pages}T N" for pages in (1, 2, 3)}


@pytest.mark.parametrize("kind", ["t2i_pretrain", "unified_edit", "vlm_sft", "story"])
def test_a_record_is_a_function_of_kind_number_and_seed(kind):
    records = example_records(kind, 6)
    assert example_records(kind, 4) == records[:4]
    assert all(first != second for first, second in itertools.combinations(records, 2))
    assert example_records(kind, 4, seed=1) != records[:4]
    with pytest.raises(ValueError, match="kind"):
        example_records(f"{kind}s")


def test_the_set_as_files_is_the_same(tmp_path):
    paths = write_example_set(tmp_path / "set", count=20)
    assert [path.name for path in paths] == ["t2i_pretrain.parquet", "unified_edit.parquet", "vlm_sft.jsonl", "story.jsonl"]
    for path in paths[:2]:
        assert pq.read_table(path).to_pylist() == example_records(path.stem, 20)
        assert pq.ParquetFile(path).num_row_groups == 2

    def read(path):
        return [read(one) for one in path] if isinstance(path, list) else (tmp_path / "set" / path).read_bytes()

    for path, key in zip(paths[2:], ("image", "images")):
        records = [json.loads(line) for line in path.read_text().splitlines()]
        assert [{**record, key: read(record[key])} for record in records] == example_records(path.stem, 20)
