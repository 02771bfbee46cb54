"""What is saved has the names of version 1, so that states, caches and exports of 1.x are read."""

import pytest

import ul2_tasks


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
