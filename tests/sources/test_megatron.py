"""Corpora that are tokenized already: read in place, checked against the vocabulary, EOD taken off."""

import numpy as np
import pytest
import seqio

from tests.support import byte_vocabulary, restore, special_for
from ul2_tasks import T5GEMMA2, open_source, register
from ul2_tasks.store.write import PairWriter

BYTES, MODES = byte_vocabulary()
LENGTHS = {"inputs": 64, "targets": 64}
TEXTS = [f"the document of number {number}, in letters" for number in range(40)]
R1 = [denoiser for denoiser in T5GEMMA2 if denoiser.name == "r1"]


def write(folder, texts=TEXTS, end=(1,), pairs=3, dtype="uint16"):
    for pair in range(pairs):
        with PairWriter(f"{folder}/part_{pair}.bin", f"{folder}/part_{pair}.idx", np.dtype(dtype)) as written:
            for text in texts[pair::pairs]:
                ids = [*BYTES.encode(text), *end]
                written.add(np.array(ids), np.array([len(ids)]))
    return f"megatron:{folder}/part_*"


def documents(name, **arguments) -> list[str]:
    """The texts that a denoiser reads."""
    task = seqio.TaskRegistry.get(f"{name}_r1")
    found = task.source.get_dataset("train", **{"shuffle": False, "seed": 1, **arguments})
    return [BYTES.decode(document["targets"].tolist()) for document in found.as_numpy_iterator()]


def registered(name, source, **arguments):
    register(name, source, BYTES, R1, modes=MODES, **arguments)
    return name


def test_prefixes_are_given_as_files_are(tmp_path):
    glob, prefix = write(tmp_path), f"megatron:{tmp_path}/part"
    by_split = {"train": glob, "validation": f"{prefix}_0.idx"}
    for number, spec in enumerate((glob, [f"{prefix}_{pair}" for pair in range(3)], by_split)):
        assert sorted(documents(registered(f"megatron_spec_{number}", open_source(spec)))) == sorted(TEXTS)
    assert sorted(documents(registered("megatron_one", open_source(f"{prefix}_0")))) == sorted(TEXTS[::3])
    source = open_source(by_split)
    assert sorted(source.splits) == ["train", "validation"]
    assert source.count("validation") == len(TEXTS[::3])


def test_examples_are_lossless_with_the_cache_and_without(tmp_path):
    mixture = register("megatron_all", write(tmp_path), BYTES, R1, modes=MODES, merge_examples=False)
    (task,) = seqio.get_mixture_or_task(mixture).tasks
    special = special_for(task.denoiser, BYTES, MODES)
    for use_cached in (False, True):
        dataset = task.get_dataset(LENGTHS, "train", use_cached=use_cached, shuffle=True, seed=2)
        found = [restore(example, task.denoiser, special) for example in dataset.as_numpy_iterator()]
        assert sorted(map(BYTES.decode, found)) == sorted(TEXTS)


ENDS = {
    "eos by default": ((1,), None, ""),
    "no eod": ((), None, ""),
    "another id": ((36, 37), None, '!"'),
    "given": ((37,), 37, ""),
    "kept": ((37,), "keep", '"'),
}


@pytest.mark.parametrize("name", ENDS)
def test_the_end_of_documents_is_taken_off_or_kept(tmp_path, name):
    end, eod, left = ENDS[name]
    source = open_source(write(tmp_path, end=end), eod=eod)
    assert documents(registered(f"megatron_end_{name.replace(' ', '_')}", source))[0] == TEXTS[0] + left


def test_a_wrong_eod_and_one_that_is_missing_later_are_said(tmp_path):
    with pytest.raises(ValueError, match=r"eod must be the id that ends each document of.*eod=99\), such as 1, got 99"):
        documents(registered("megatron_wrong_eod", open_source(write(tmp_path), eod=99)))
    many = [str(number) for number in range(1000)]
    with PairWriter(f"{tmp_path}/b.bin", f"{tmp_path}/b.idx", np.dtype(np.uint16)) as written:
        for number, text in enumerate(many):
            ids = [*BYTES.encode(text), *([] if number == 503 else [1])]
            written.add(np.array(ids), np.array([len(ids)]))
    with pytest.raises(Exception, match=r"others do, but ends with another id"):
        documents(registered("megatron_late_eod", f"megatron:{tmp_path}/b"))


def test_another_vocabulary_is_told_by_an_id_that_it_lacks(tmp_path):
    with PairWriter(f"{tmp_path}/a.bin", f"{tmp_path}/a.idx", np.dtype(np.int32)) as written:
        written.add(np.array([5, 400]), np.array([2]))
    with pytest.raises(ValueError, match=r"MegatronSource\(\{'train':.*must have the tokenizer's ids 0 to 361, got 400"):
        documents(registered("megatron_vocabulary", f"megatron:{tmp_path}/a"))


def test_a_special_id_in_the_text_is_refused(tmp_path):
    sentinel = special_for(R1[0], BYTES, MODES).sentinels[0]
    task = seqio.get_mixture_or_task(register("megatron_special", write(tmp_path, end=(sentinel,)), BYTES, R1, modes=MODES)).tasks[
        0
    ]
    with pytest.raises(Exception, match="sentinel"):
        list(task.get_dataset(LENGTHS, "train", seed=1))
