"""A tokenizer in memory is the vocabulary, the collator and the mixture that the folder is that it would save."""

import pickle

import pytest
import transformers

import ul2_tasks
from tests.tokenizers.test_hugging_face_vocabulary import exclamation_first, unigram
from ul2_tasks import Mixture, UL2DataCollator, open_vocabulary
from ul2_tasks.tokenizers.special_ids import special_tokens

KINDS = {"byte_level": (exclamation_first, "<|im_end|>"), "unigram": (unigram, "</s>")}
LENGTHS = {"inputs": 96, "targets": 80}
TEXTS = ["The metaclass of a class is determined by its bases.", "naïve café, 東京", "<extra_id_0> [R] </s> <pad>", "a"]


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request):
    make, eos = KINDS[request.param]
    return transformers.PreTrainedTokenizerFast(tokenizer_object=make(), eos_token=eos)


@pytest.fixture(scope="module")
def folder(tokenizer, tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("tokenizer")
    tokenizer.save_pretrained(path)
    return str(path)


def test_it_is_the_vocabulary_of_the_folder_that_it_saves(tokenizer, folder):
    opened, saved = open_vocabulary(tokenizer), open_vocabulary(folder)
    assert (opened, hash(opened), opened.identity) == (saved, hash(saved), saved.identity)
    properties = ("eos_id", "bos_id", "unk_id", "vocab_size", "extra_ids", "uses_0", "roles")
    assert [getattr(opened, name) for name in properties[:-1]] == [getattr(saved, name) for name in properties[:-1]]
    assert [opened.encode(text) for text in TEXTS] == [saved.encode(text) for text in TEXTS]
    assert open_vocabulary(tokenizer, sentinels=2, modes=["[S]"]) == open_vocabulary(folder, sentinels=2, modes=["[S]"])


def test_a_call_that_pads_or_truncates_makes_no_other_vocabulary(tokenizer):
    before = open_vocabulary(tokenizer)
    changed = pickle.loads(pickle.dumps(tokenizer))
    changed.pad_token = changed.eos_token
    changed(TEXTS, padding=True, truncation=True, max_length=4)
    assert changed.backend_tokenizer.padding
    assert changed.backend_tokenizer.truncation
    assert open_vocabulary(changed) == before
    assert changed.backend_tokenizer.truncation, "it is as it was"


def test_a_mixture_of_it_is_that_of_the_folder(tokenizer, folder, tmp_path):
    mixture, saved = Mixture("mine", vocabulary=tokenizer), Mixture("mine", vocabulary=folder)
    assert mixture == saved
    assert mixture.fingerprint() == saved.fingerprint()
    saved.cache(tmp_path, max_documents=20)
    found, expected = (ul2_tasks.examples(each, LENGTHS, cache_dirs=[tmp_path])[:4] for each in (mixture, saved))
    assert [example["targets"].tolist() for example in found] == [example["targets"].tolist() for example in expected]
    assert Mixture("two", vocabulary=tokenizer, source=mixture).vocabulary == mixture.vocabulary


def test_tokens_that_were_added_to_it_are_the_sentinels_and_modes():
    """As T5's are, which go from the last id downwards; what is added later is not seen."""
    names = [f"<extra_id_{number}>" for number in range(99, -1, -1)]
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=exclamation_first(), eos_token="<|im_end|>", extra_special_tokens=names
    )
    tokenizer.add_tokens(["[R]", "[S]"], special_tokens=True)
    vocabulary = open_vocabulary(tokenizer, sentinels=100)
    tokenizer.add_tokens(["[X]", "<mine>"], special_tokens=True)
    special = special_tokens(vocabulary, "[R]")
    assert list(special.sentinels) == tokenizer.convert_tokens_to_ids(names[::-1])
    assert list(special.mode) == [tokenizer.convert_tokens_to_ids("[R]")]
    assert (vocabulary.extra_ids, open_vocabulary(tokenizer, sentinels=100).extra_ids) == (1, 0)
    for changed in ({"sentinels": ["<mine>", *names[-2::-1]]}, {"modes": {"[S]": "<mine>"}}):
        collator = UL2DataCollator(tokenizer, {"inputs": 24, "targets": 24}, return_tensors="np", decoder_only=True, **changed)
        batch = collator(["so an" + number * " and" for number in range(9)])
        assert tokenizer.convert_tokens_to_ids("<mine>") in {*batch["input_ids"].ravel().tolist()}


def test_t5s_own_has_its_sentinels_and_its_modes_take_spare_rows():
    tokenizer = transformers.T5Tokenizer()  # without a file it has a few pieces, and 100 sentinels as ever
    vocabulary = open_vocabulary(tokenizer, sentinels=100)
    special = special_tokens(vocabulary, "[R]")
    assert list(special.sentinels) == tokenizer.convert_tokens_to_ids([f"<extra_id_{number}>" for number in range(100)])
    assert (special.mode, special.eos, vocabulary.vocab_size) == ((len(tokenizer),), tokenizer.eos_token_id, len(tokenizer) + 3)
