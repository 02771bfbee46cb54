"""Corpora that are tokenized already: read in place, checked against the vocabulary, EOD taken off."""

import numpy as np
import pytest

import ul2_tasks
from tests.support import byte_vocabulary, special_for, write_pair
from ul2_tasks import T5GEMMA2, Mixture, open_source

BYTES, MODES = byte_vocabulary()
TEXTS = [f"the document of number {number}, in letters" for number in range(40)]


def write(folder, texts=TEXTS, end=(1,), pairs=3):
    for pair in range(pairs):
        write_pair(f"{folder}/part_{pair}", ([*BYTES.encode(text), *end] for text in texts[pair::pairs]))
    return f"megatron:{folder}/part_*"


def read(spec, split="train", **arguments) -> list[str]:
    """The texts that a denoiser reads."""
    mixture = Mixture("stored", open_source(spec, **arguments), BYTES, modes=MODES)
    store = mixture.corpus().stored(split)
    tokens, lengths = store.read_documents(np.arange(store.documents))
    assert ul2_tasks.examples(mixture, {"inputs": 64, "targets": 64}, split=split)[:]
    return [BYTES.decode(ids.tolist()) for ids in np.split(tokens, np.cumsum(lengths)[:-1])]


def test_prefixes_are_given_as_files_are(tmp_path):
    glob, prefix = write(tmp_path), f"megatron:{tmp_path}/part"
    by_split = {"train": glob, "validation": f"{prefix}_0.idx"}
    for spec in (glob, [f"{prefix}_{pair}" for pair in range(3)], by_split):
        assert sorted(read(spec)) == sorted(TEXTS)
    assert read(f"{prefix}_0") == read(by_split, "validation") == TEXTS[::3]
    assert sorted(open_source(by_split).splits) == ["train", "validation"]
    assert open_source(by_split).count("validation") == len(TEXTS[::3])


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
    assert read(write(tmp_path, end=end), eod=eod)[0] == TEXTS[0] + left


SENTINEL = special_for(T5GEMMA2[0], BYTES, MODES).sentinels[0]
WRONG = {  # the ids of documents, the argument eod, and what is named
    "another eod": ([[5, 1]], 99, "eod"),
    "one without eod behind those that are looked at first": ([[5, 1]] * 503 + [[5, 6]] + [[5, 1]] * 400, None, "another id"),
    "an id that the vocabulary lacks": ([[5, 400]], None, "400"),
    "a sentinel": ([[5, SENTINEL]], None, str(SENTINEL)),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_corpus_of_this_vocabulary_is_refused(tmp_path, name):
    documents, eod, named = WRONG[name]
    with pytest.raises(ValueError, match=named):
        read(write_pair(tmp_path / "a", documents), eod=eod)
