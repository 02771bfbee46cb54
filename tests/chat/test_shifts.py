"""Where each trainer shifts: one conversation, as t5x, Transformers and Megatron-LM are fed it. Docs have this table."""

import numpy as np
import pytest
import seqio
from chat_support import GOLDEN
from rich.console import Console
from test_register_chat import write_jsonl

import ul2_tasks
from ul2_tasks.export.conversations import write_conversations

ROW = 200


@pytest.fixture(scope="module")
def name(tmp_path_factory):
    path = write_jsonl(tmp_path_factory.mktemp("shifts") / "golden.jsonl", [GOLDEN])
    return ul2_tasks.register_chat("shifts", path, "harmony:default")


@pytest.fixture(scope="module")
def said(name):
    """The conversation: its tokens, as the tokenizer has them, and the span of each."""
    task = seqio.get_mixture_or_task(name)
    [example] = task.get_dataset(None, "train", shuffle=False).as_numpy_iterator()
    assert ul2_tasks.id_shift(task.corpus.renderer.vocabulary) == 0
    return example["tokens"], example["span_id"]


def row(name, converter) -> dict[str, np.ndarray]:
    dataset = seqio.get_dataset(
        name, {"tokens": ROW}, converter, dataset_split="train", shuffle=False, num_epochs=1, use_cached=False
    )
    [only] = dataset.as_numpy_iterator()
    return only


def test_t5x_shifts_the_inputs(name, said):
    tokens, spans = said
    fed, size = row(name, ul2_tasks.ChatFeatureConverter(pack=True)), len(tokens)
    assert fed["decoder_target_tokens"][:size].tolist() == tokens.tolist()
    assert fed["decoder_input_tokens"][:size].tolist() == [0, *tokens[:-1]]
    assert fed["decoder_span_ids"][:size].tolist() == spans.tolist()
    assert fed["decoder_loss_weights"][:size].tolist() == (spans > 0).tolist()


@pytest.mark.parametrize("pack", [False, True])
def test_transformers_shift_labels_themselves(name, said, pack):
    tokens, spans = said
    fed, size = row(name, ul2_tasks.HuggingFaceChatConverter(pack=pack)), len(tokens)
    assert fed["packed_input_ids" if pack else "input_ids"][:size].tolist() == tokens.tolist()
    assert fed["labels"][:size].tolist() == np.where(spans > 0, tokens, -100).tolist()
    assert fed["span_id"][:size].tolist() == spans.tolist()


@pytest.mark.torch
def test_megatron_takes_everything_from_the_second_token_on(name, said, tmp_path):
    pytest.importorskip("megatron.core.datasets.gpt_dataset")
    from megatron.core.datasets.gpt_dataset import GPTDatasetConfig
    from megatron.core.datasets.utils import Split
    from megatron.core.tokenizers.text.libraries.null_tokenizer import NullTokenizer

    from ul2_tasks.megatron import AlignedGPTDataset

    tokens, spans = said
    write_conversations(name, str(tmp_path / "out"), console=Console(quiet=True))
    prefix = str(tmp_path / "out" / "train" / "shard_00")
    config = GPTDatasetConfig(
        random_seed=1,
        sequence_length=len(tokens) - 1,
        tokenizer=NullTokenizer(int(tokens[-1])),
        path_to_cache=str(tmp_path / "cache"),
        split="1",
        blend=([prefix], None),
        reset_position_ids=False,
        reset_attention_mask=False,
        eod_mask_loss=False,
    )
    low = AlignedGPTDataset.build_low_level_dataset(prefix, config)
    [fed] = AlignedGPTDataset(low, prefix, np.arange(1, dtype=np.int32), 1, Split.train, config)
    assert fed["tokens"].tolist() == tokens[:-1].tolist()
    assert fed["labels"].tolist() == tokens[1:].tolist()
    assert fed["span_id"].tolist() == spans[1:].tolist()
    assert fed["loss_mask"].tolist() == (spans[1:] > 0).tolist()
