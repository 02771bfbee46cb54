"""Packed rows for Hugging Face's models are the same in SeqIO and in PyTorch. `test_table.py` has what is in them."""

import itertools

import numpy as np
import pytest
import seqio

import ul2_tasks
from ul2_tasks import HuggingFaceFeatureConverter, Mixture, register, seqio_converter
from ul2_tasks.store.write import PairWriter

LENGTHS = {"inputs": 24, "targets": 20}
CHUNKS = {"r1": 8, "r2": 8, "x1": 8, "x2": 8, "s": 8}


@pytest.mark.torch
def test_a_name_with_random_access_gives_seqio_and_pytorch_the_rows_of_examples(tmp_path):
    torch_dataset = pytest.importorskip("ul2_tasks.pytorch.dataset")
    with PairWriter(str(tmp_path / "pair.bin"), str(tmp_path / "pair.idx"), np.dtype(np.uint16)) as pair:
        pair.add(np.arange(300, 3500, dtype=np.int32), np.array([1500, 1700]))
    source = f"megatron:{tmp_path}/pair"
    register("packed_numbers", source, chunk_tokens=CHUNKS)
    mixture = Mixture("packed_numbers", source, chunk_tokens=CHUNKS)
    converter = HuggingFaceFeatureConverter(pack=True, decoder_start_token_id=5)
    examples = ul2_tasks.examples(mixture, LENGTHS, pack=True)
    expected = [
        converter.row_format.arrays({key: values[None] for key, values in row.items()}) for row in itertools.islice(examples, 5)
    ]
    described = torch_dataset.UL2IterableDataset(mixture, LENGTHS, feature_converter=converter)
    same = torch_dataset.UL2IterableDataset(examples, feature_converter=converter)
    by_name = torch_dataset.UL2IterableDataset("packed_numbers_mix", LENGTHS, feature_converter=converter)
    of_seqio = seqio.get_dataset("packed_numbers_mix", LENGTHS, seqio_converter(converter), shuffle=True, num_epochs=None, seed=0)
    for rows in (described, same, by_name, of_seqio.as_numpy_iterator()):
        for row, of_examples in zip(itertools.islice(rows, 5), expected, strict=True):
            assert row.keys() == of_examples.keys() == set(converter.row_format.row_lengths(LENGTHS))
            for name, values in row.items():
                assert np.asarray(values).tolist() == of_examples[name][0].tolist()


@pytest.mark.torch
def test_a_state_of_padded_examples_is_not_taken_for_one_of_packed_rows():
    torch_dataset = pytest.importorskip("ul2_tasks.pytorch.dataset")
    mixture = Mixture("packed_numbers", chunk_tokens=CHUNKS)
    padded, packs = (
        torch_dataset.UL2IterableDataset(mixture, LENGTHS, feature_converter=HuggingFaceFeatureConverter(pack=pack))
        for pack in (False, True)
    )
    rows = iter(packs)
    next(rows)
    state = packs.state_dict()
    expected = next(rows)
    packs.load_state_dict(state)
    assert {name: values.tolist() for name, values in next(iter(packs)).items()} == {
        name: values.tolist() for name, values in expected.items()
    }
    padded.load_state_dict(state)
    with pytest.raises(ValueError, match="feature_converter"):
        iter(padded)
