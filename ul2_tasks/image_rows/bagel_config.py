"""BAGEL's data configuration as sources: its YAML, and where its data sets are."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from ul2_tasks.files.listing import list_files
from ul2_tasks.image_rows.dropout import Dropout
from ul2_tasks.image_rows.recipe import Source
from ul2_tasks.image_rows.records import Records, open_records
from ul2_tasks.image_rows.samples import Sizes
from ul2_tasks.image_rows.schemas import SCHEMAS
from ul2_tasks.image_rows.sizes import VIT_EDIT, Size
from ul2_tasks.image_rows.video import FrameSampler
from ul2_tasks.images.schemas import vlm_sft

# What other arguments do here: `required_modalities`, the order of pools, the footers of Parquet files, states of the dataset.
_REPLACED = {"is_mandatory", "shuffle_lines", "shuffle_seed", "resume_data_status"}
_NORMALIZED = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}  # as `bagel_batch` does


def bagel_sources(
    config: Mapping[str, Mapping[str, Any]],
    dataset_info: Mapping[str, Mapping[str, Mapping[str, Any]]],
    dropout: Dropout | None = None,
) -> list[Source]:
    """Opens the data sets of a configuration of BAGEL's trainer, such as its `data/configs/example.yaml`.

    A data set's part of its group's weight is that of the records that `num_used_data` selects. Of Parquet files the first ones of
    that number are read, all where there are fewer. `is_mandatory`, `shuffle_lines`, `shuffle_seed` and `resume_data_status` change
    nothing: `ImageTextDataset` has `required_modalities`, always shuffles, and has states of its own.

    Args:
        config: what `yaml.safe_load` returns for the file.
        dataset_info: the `DATASET_INFO` of BAGEL's `data/dataset_info.py`.
        dropout: of all sources; by default `Dropout()`. BAGEL's trainer has `Dropout(text=0.1, vit=0.3, clean=0.3)`.

    Raises:
        ValueError: a group, data set or option is not known; or not all lines of a JSON Lines file are to be read.
    """
    sources = []
    for group, given in config.items():
        if group not in SCHEMAS:
            raise ValueError(f"config must have groups of {list(SCHEMAS)}, got {group!r}. Make a Source with a schema of your own.")
        options = {name: value for name, value in given.items() if name not in _REPLACED}
        names, used, weight = (options.pop(name, None) for name in ("dataset_names", "num_used_data", "weight"))
        if not names or not weight or len(names) != len(used or ()):
            raise ValueError(
                f"{group} must have dataset_names, as many num_used_data, and a weight above 0, got {names}, {used}, {weight}."
            )
        sizes, schema = _rules(group, options)
        if options:
            raise ValueError(f"{group} must have options of BAGEL's own data sets, got {sorted(options)}.")
        opened = [_opened(group, name, number, dataset_info.get(group, {})) for name, number in zip(names, used)]
        all_used = sum(records for _, records in opened)
        sources += [Source(each, schema, sizes, dropout or Dropout(), weight * records / all_used) for each, records in opened]
    return sources


def _rules(group: str, options: dict[str, Any]) -> tuple[Sizes, Any]:
    """Sizes and schema of a group; what they are made of is taken out of its options."""
    images, for_vit = (options.pop(name, None) for name in ("image_transform_args", "vit_image_transform_args"))
    if group != "vlm_sft":
        return Sizes(**{kind: _size(args) for kind, args in (("vae", images), ("vit", for_vit)) if args}), group
    frames = options.pop("frame_sampler_args", {})
    sampler = FrameSampler(
        **{name.replace("num_", ""): number for name, number in frames.items() if (name, number) != ("sample", "rand")}
    )
    return Sizes(vit=_size(images, shared=True)), functools.partial(vlm_sft, frames=sampler)


def _size(args: Mapping[str, Any], shared: bool = False) -> Size:
    """The rule of BAGEL's `ImageTransform` with these arguments."""
    known = {"max_image_size", "min_image_size", "image_stride", "max_pixels"}
    if others := {name: value for name, value in args.items() if name not in known and value != _NORMALIZED.get(name)}:
        raise ValueError(f"the arguments of an image transform must be {sorted(known)}, got {others}.")
    longest, shortest, stride = (args[name] for name in ("max_image_size", "min_image_size", "image_stride"))
    return Size(longest, shortest, stride, args.get("max_pixels", VIT_EDIT.max_pixels), shared)


def _opened(group: str, name: str, number: int, known: Mapping[str, Mapping[str, Any]]) -> tuple[Records, float]:
    """The records of a data set, and how many of them an epoch of BAGEL reads."""
    if name not in known:
        raise ValueError(f"dataset_info[{group!r}] must have each of dataset_names, got no {name!r} in {sorted(known)}.")
    info = known[name]
    if group == "vlm_sft":
        records = open_records(info["jsonl_path"], folder=info["data_dir"])
        if number < len(records):
            raise ValueError(
                f"num_used_data of {name} must be at least its {len(records)} records, got {number}. Write the lines that you want"
                " to a file of their own."
            )
        return records, len(records)
    files: Sequence[str] = list_files(f"{info['data_dir'].rstrip('/')}/*.parquet")[:number]
    records = open_records(files)
    return records, len(records) * number / len(files)
