"""Many texts at once: the ids of TensorFlow's own path, text by text, for every kind of vocabulary."""

import pathlib
import tempfile

import numpy as np
import pytest
import seqio
import tensorflow as tf
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support import t5_model
from ul2_tasks import default_vocabulary, open_vocabulary
from ul2_tasks.sources.memory import embedded_documents
from ul2_tasks.tasks.vocabulary import id_shift, seqio_vocabulary
from ul2_tasks.tokenizers import batches
from ul2_tasks.tokenizers.base import Vocabulary
from ul2_tasks.tokenizers.batches import encode_batch
from ul2_tasks.tokenizers.special_ids import SpecialTokensRequest, as_vocabulary


class OneByOne(seqio.ByteVocabulary):
    """Somebody else's, which knows single texts alone."""

    def _encode_tf(self, s):
        s.shape.assert_has_rank(0)
        return super()._encode_tf(s)[::-1]


def vocabularies() -> dict[str, Vocabulary]:
    default = default_vocabulary()
    model = t5_model(pathlib.Path(tempfile.mkdtemp()) / "t5.model")
    return {
        "default": default,
        "default for text": default.never_encoding(SpecialTokensRequest(mode_names=["[R]"]).ids(default)),
        "t5": as_vocabulary(seqio.SentencePieceVocabulary(model)),
        "t5 by its path": open_vocabulary(model),
        "bytes": open_vocabulary("bytes"),
        "byt5": as_vocabulary(seqio.ByteVocabulary()),
        "one by one": as_vocabulary(OneByOne()),
        "byte-level BPE": open_vocabulary(byte_level_bpe(pathlib.Path(tempfile.mkdtemp()))),
    }


def byte_level_bpe(folder: pathlib.Path) -> str:
    """A folder with a tokenizer.json like GPT-2's, of 1,000 tokens."""
    from tokenizers import ByteLevelBPETokenizer

    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(embedded_documents(), vocab_size=1000, special_tokens=["</s>"], show_progress=False)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"eos_token": "</s>"}')
    return str(folder)


VOCABULARIES = vocabularies()


def one_by_one(vocabulary, texts) -> list[list[int]]:
    own = seqio_vocabulary(vocabulary)
    return [(own.encode_tf(tf.constant(text)).numpy() - id_shift(vocabulary)).tolist() for text in texts]


def at_once(vocabulary, texts) -> list[list[int]]:
    tokens, lengths = encode_batch(vocabulary, texts)
    assert (tokens.dtype, lengths.dtype) == (np.int32, np.int64)
    return [part.tolist() for part in np.split(tokens, np.cumsum(lengths)[:-1])]


@given(st.lists(st.text(), min_size=1, max_size=5))
@example([" "])
def test_any_text_has_the_ids_of_tensorflows_op(texts):
    texts = [text.encode() for text in texts]
    for name in ("default for text", "t5", "byt5"):
        assert at_once(VOCABULARIES[name], texts) == one_by_one(VOCABULARIES[name], texts), name


LONG_TEXT = " ".join(embedded_documents()[:40])
LONG_TEXTS = {"prose": LONG_TEXT, "two spaces": LONG_TEXT.replace(" ", "  "), "lines": LONG_TEXT.replace(". ", ".\n\n ")}


@pytest.mark.parametrize("name", [name for name in VOCABULARIES if name != "one by one"])
@pytest.mark.parametrize("text", LONG_TEXTS.values(), ids=LONG_TEXTS)
def test_a_long_text_has_the_ids_of_the_whole(name, text, monkeypatch):
    monkeypatch.setattr(batches, "LONG", 8000)
    vocabulary = VOCABULARIES[name]
    assert at_once(vocabulary, [b"short", text.encode()]) == [ids.tolist() for ids in vocabulary.encode_batch([b"short", text])]
