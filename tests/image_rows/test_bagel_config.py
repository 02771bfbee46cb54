"""BAGEL's data configuration as sources: all of it is used, or refused by name."""

import copy
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.image_sources import edits, made, png
from ul2_tasks.image_rows.bagel_config import bagel_sources
from ul2_tasks.image_rows.dropout import Dropout
from ul2_tasks.image_rows.samples import Sizes
from ul2_tasks.image_rows.sizes import VAE, VIT_CONVERSATION, VIT_EDIT
from ul2_tasks.image_rows.video import FrameSampler

# What `yaml.safe_load` gives of its data/configs/example.yaml (Bagel @ 056b5fd), with other numbers of files.
LATENTS = {"image_stride": 16, "max_image_size": 1024, "min_image_size": 512}
CONFIG = {
    "t2i_pretrain": {
        **{"dataset_names": ["t2i"], "image_transform_args": LATENTS, "is_mandatory": True, "num_used_data": [10], "weight": 1},
    },
    "unified_edit": {
        "dataset_names": ["seedxedit_multi", "more"],
        "image_transform_args": LATENTS,
        "vit_image_transform_args": {"image_stride": 14, "max_image_size": 518, "min_image_size": 224},
        **{"is_mandatory": False, "num_used_data": [4, 1], "weight": 2},
    },
    "vlm_sft": {
        "dataset_names": ["llava_ov"],
        "image_transform_args": {"image_stride": 14, "max_image_size": 980, "min_image_size": 378, "max_pixels": 2_007_040},
        "frame_sampler_args": {"max_num_frames": 12, "min_num_frames": 8},
        **{"is_mandatory": True, "shuffle_lines": True, "shuffle_seed": 0, "num_used_data": [1000], "weight": 1},
    },
}


@pytest.fixture(scope="module")
def info(tmp_path_factory):
    """Its DATASET_INFO: three files of 5 pairs; two of 3 edits, and two of 4, of which one is used; 7 conversations."""
    root = tmp_path_factory.mktemp("bagel_example")
    for folder, files in {"t2i": [made(5)] * 3, "multi": [edits(3)] * 2, "more": [edits(4)] * 2}.items():
        (root / folder).mkdir()
        for number, records in enumerate(files):
            pq.write_table(pa.Table.from_pylist(records), root / folder / f"{number}.parquet")
        (root / folder / "notes.json").write_text("[]")
    (root / "photos").mkdir()
    (root / "photos/a.png").write_bytes(png(9, 9))
    turns = [{"from": "human", "value": "<image> what?"}, {"from": "gpt", "value": "a cat"}]
    (root / "talks.jsonl").write_text(f"{json.dumps({'image': 'a.png', 'conversations': turns})}\n" * 7)
    return {
        "t2i_pretrain": {"t2i": {"data_dir": str(root / "t2i"), "num_files": 3, "num_total_samples": 15}},
        "unified_edit": {
            "seedxedit_multi": {"data_dir": f"{root / 'multi'}/", "parquet_info_path": "nowhere.json"},
            "more": {"data_dir": str(root / "more")},
        },
        "vlm_sft": {"llava_ov": {"data_dir": str(root / "photos"), "jsonl_path": str(root / "talks.jsonl")}},
    }


def test_its_example_is_four_sources(info):
    pairs, multi, more, talks = bagel_sources(CONFIG, info)
    assert [len(source.records) for source in (pairs, multi, more, talks)] == [15, 6, 4, 7]
    # Of files that are read more than once the records count as often: 4 * 3 of `multi` and 4 of `more`, of weight 2.
    assert [source.weight for source in (pairs, multi, more, talks)] == [1, 1.5, 0.5, 1]
    assert [source.schema for source in (pairs, multi, more)] == ["t2i_pretrain", "unified_edit", "unified_edit"]
    assert talks.schema.keywords == {"frames": FrameSampler(8, 12)}
    assert pairs.sizes == multi.sizes == Sizes(vit=VIT_EDIT, vae=VAE)
    assert talks.sizes == Sizes(vit=VIT_CONVERSATION)
    assert pairs.dropout == Dropout()
    dropout = Dropout(text=0.1, vit=0.3, clean=0.3)
    assert {source.dropout for source in bagel_sources(CONFIG, info, dropout)} == {dropout}
    _, record = next(talks.records.read(talks.records.pieces[0], 0))
    assert [element.kind for element in talks.elements(record, None)] == ["vit", "text", "text"]
    assert record["image"].endswith("photos/a.png")


def changed(group, **options):
    config = copy.deepcopy(CONFIG)
    config.setdefault(group, {}).update(options)
    return config


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (changed("my_group"), "config .*'my_group'"),
        (changed("t2i_pretrain", dataset_names=["t2i", "laion"], num_used_data=[1, 1]), "dataset_info.*'laion'"),
        (changed("t2i_pretrain", num_used_data=[1, 2]), "t2i_pretrain .*num_used_data"),
        (changed("t2i_pretrain", weight=0), "t2i_pretrain .*weight"),
        (changed("unified_edit", max_edits=3), "unified_edit .*'max_edits'"),
        (changed("vlm_sft", num_used_data=[6]), "num_used_data of llava_ov .* 6"),
        (changed("vlm_sft", frame_sampler_args={"max_num_frames": 12, "sample": "middle"}), "sample"),
        (changed("t2i_pretrain", image_transform_args={**LATENTS, "image_mean": [0, 0, 0]}), "image transform .*image_mean"),
    ],
)
def test_what_would_be_read_otherwise_is_refused(info, config, named):
    with pytest.raises((ValueError, TypeError), match=named):
        bagel_sources(config, info)
