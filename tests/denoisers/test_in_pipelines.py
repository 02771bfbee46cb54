"""The objective in pipelines of others: the rows of grain and of Hugging Face's datasets, and all epochs as grain reads them."""

import numpy as np
import pytest

from ul2_tasks import T5GEMMA2, default_vocabulary, denoise_batch
from ul2_tasks.denoisers.reconstruction import invert
from ul2_tasks.tokenizers.special_ids import special_tokens

IDS = np.random.default_rng(0).integers(600, 3000, (64, 90)).tolist()


def test_a_row_of_datasets_has_one_of_the_denoisers_and_depends_on_its_index_alone():
    datasets = pytest.importorskip("datasets", reason="the extra huggingface is not installed")
    rows = datasets.Dataset.from_dict({"input_ids": IDS, "name": [str(number) for number in range(64)]})
    settings = {"denoisers": T5GEMMA2, "seed": 1, "vocabulary": "default"}
    masked = rows.map(denoise_batch, batched=True, batch_size=10, with_indices=True, fn_kwargs=settings, remove_columns="input_ids")
    assert masked.column_names == ["name", "inputs", "targets"]
    assert masked[7]["inputs"] == denoise_batch({"input_ids": [IDS[7]]}, [7], **settings)["inputs"][0].tolist()
    assert len({len(example["inputs"]) for example in masked}) == 5  # of the five denoisers
    again = denoise_batch({"input_ids": [IDS[7]]}, [7], **settings | {"seed": 2})
    assert again["inputs"][0].tolist() != masked[7]["inputs"]


def test_a_row_of_grain_keeps_its_other_features_and_is_the_same_again():
    grain = pytest.importorskip("grain", reason="the extra grain is not installed")
    from ul2_tasks.grain import Denoise

    rows = grain.MapDataset.source([{"input_ids": ids, "number": number} for number, ids in enumerate(IDS)])
    masked = rows.seed(3).random_map(Denoise(T5GEMMA2[0], vocabulary=default_vocabulary()))
    assert [sorted(example) for example in masked] == [["inputs", "number", "targets"]] * 64
    assert (masked[5]["inputs"] == masked[5]["inputs"]).all()
    special = special_tokens(default_vocabulary(), "[R]")
    assert invert(masked[5], T5GEMMA2[0], special).chunk.tolist() == IDS[5]
