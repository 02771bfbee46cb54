"""What is saved has the names of version 1, so that states, caches and exports of 1.x are read."""

import functools

import pytest

import ul2_tasks
from ul2_tasks.images import schemas
from ul2_tasks.images.recipe import _name
from ul2_tasks.images.video import FrameSampler


@pytest.mark.torch
def test_a_converter_is_described_in_a_state_as_version_1_did():
    pytest.importorskip("torch", reason="the extra torch is not installed")
    from ul2_tasks.pytorch.dataset import _describe_converter

    words = _describe_converter(ul2_tasks.T5Gemma2FeatureConverter(2, image_tokens=ul2_tasks.ImageTokens(image_seq_length=4)))
    run = r"PictureRun(start=255999, placeholder=256001, end=256000, tokens=4, around='\n\n')"
    assert f"('_passthrough_features', {{}}), ('_picture', {run}), ('_row_format', RowFormat(" in words
    assert "('_side', 896)" in words
    assert "image" not in words
    packed = _describe_converter(ul2_tasks.PromptCompletionFeatureConverter(pack=True))
    assert packed.startswith("ReplyFeatureConverter [(")


def test_a_schema_with_arguments_is_named_as_version_1_named_its_plan():
    limited = functools.partial(schemas.unified_edit, max_steps=2)
    assert _name(limited) == "unified_edit with 1dacfb098e4e1eb6"
    sampled = functools.partial(schemas.vlm_sft, frames=FrameSampler(min_frames=2, max_frames=4))
    assert _name(sampled) == "vlm_sft with 4a32e9baa3be734a"
