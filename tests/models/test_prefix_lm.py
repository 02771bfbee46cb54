"""Rows for decoder-only models of t5x have an index, and masks. `test_table.py` has what is in them."""

import numpy as np
import pytest
import seqio

import ul2_tasks
from ul2_tasks import PrefixLMFeatureConverter
from ul2_tasks.tasks.tf_data import reading_of

LENGTHS = {"inputs": 96, "targets": 96}
REGISTERED = {
    "a stream": {},
    "joined": {"chunk_tokens": 50},
    "random lengths": {"chunk_tokens": 50, "denoisers": ul2_tasks.UL2},
    "apart": {"merge_examples": False},
}


@pytest.fixture(scope="module")
def mixtures() -> dict[str, str]:
    return {key: ul2_tasks.register(f"plm_{key.replace(' ', '_')}", **given) for key, given in REGISTERED.items()}


def dataset(name, converter, lengths=LENGTHS, **settings):
    settings = {"dataset_split": "train", "shuffle": True, "seed": 3, "num_epochs": 1, **settings}
    return seqio.get_dataset(name, lengths, converter, **settings)


def test_rows_continue_at_any_row_and_are_shared_out_among_hosts(mixtures):
    def rows(**settings):
        return dataset(mixtures["apart"], PrefixLMFeatureConverter(pack=True), num_epochs=None, **settings)

    whole = [row["decoder_target_tokens"] for row in rows().take(24).as_numpy_iterator()]
    later = [row["decoder_target_tokens"] for row in reading_of(rows()).continued(17).take(7).as_numpy_iterator()]
    np.testing.assert_array_equal(later, whole[17:])
    second = rows(shard_info=seqio.ShardInfo(1, 3)).take(8).as_numpy_iterator()
    np.testing.assert_array_equal([row["decoder_target_tokens"] for row in second], whole[1::3])


def test_targets_that_are_masked_have_no_loss():
    lengths = {"inputs": 512, "targets": 512}
    told = ul2_tasks.register_chat("plm_told", format="prompt_completion")
    examples = ul2_tasks.examples(told, lengths, seed=3)
    rows = dataset(told, PrefixLMFeatureConverter(pack=False), lengths, num_epochs=None).take(20).as_numpy_iterator()
    for number, row in enumerate(rows):
        example = examples[number]
        start = len(example["inputs"])
        np.testing.assert_array_equal(
            row["decoder_loss_weights"][start : start + len(example["targets"])], example["loss_mask"].astype(np.int32)
        )
        assert row["decoder_loss_weights"].sum() == example["loss_mask"].sum() > 0
