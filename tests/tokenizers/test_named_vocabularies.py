"""Every layout that is in use gets sentinels and modes, and text becomes none of them."""

import pickle

import pytest
import sentencepiece
import seqio
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from tests.support import flat, trained_model
from ul2_tasks.tasks.vocabulary import seqio_vocabulary
from ul2_tasks.tokenizers.by_name import open_vocabulary
from ul2_tasks.tokenizers.sentencepiece import DEFAULT_MODEL
from ul2_tasks.tokenizers.special_ids import (
    SpecialTokensRequest,
    as_vocabulary,
    special_tokens,
    vocabulary_identity,
)

MODES = ("[R]", "[S]", "[X]")
LAYOUTS = {
    "t5": {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1},
    "umt5": {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1, "user_defined_symbols": [f"<extra_id_{n}>" for n in range(8)]},
    "gemma": {"pad_id": 0, "eos_id": 1, "bos_id": 2, "unk_id": 3, "user_defined_symbols": [f"<unused{n}>" for n in range(8)]},
    "llama": {"unk_id": 0, "bos_id": 1, "eos_id": 2, "pad_id": -1},
}
TEXTS = ["plain text of 7 words, naïve 日本", "<extra_id_0> [R] </s> <unused0> <pad> ▁[X]▁<extra_id_7>", "[S]<extra_id_1>\t[S]", ""]


@pytest.fixture(scope="module", params=[f"{layout}-{kind}" for layout in LAYOUTS for kind in ("unigram", "bpe")])
def model(request, tmp_path_factory):
    """A small SentencePiece model of each layout and kind."""
    layout, kind = request.param.split("-")
    path = tmp_path_factory.mktemp("models") / f"{request.param}.model"
    sentences = [f"plain text of {number} <words>, naïve _id_ extra relation tradition station" for number in range(60)]
    path.write_bytes(trained_model(sentences, model_type=kind, vocab_size=300, byte_fallback=True, **LAYOUTS[layout]))
    return str(path)


def test_every_layout_gets_sentinels_and_modes(model):
    plain, vocabulary = seqio.SentencePieceVocabulary(model), open_vocabulary(model, sentinels=8)
    vocabulary.check()
    bos_id = None if plain.bos_id < 0 else plain.bos_id  # of a model without one
    assert (vocabulary.eos_id, vocabulary.unk_id, vocabulary.bos_id) == (plain.eos_id, plain.unk_id, bos_id)
    specials = [special_tokens(vocabulary, mode) for mode in MODES]
    assert [*map(vocabulary.id_to_piece, specials[0].sentinels)] == [f"<extra_id_{n}>" for n in range(8)]
    assert [[*map(vocabulary.id_to_piece, special.mode)] for special in specials] == [[mode] for mode in MODES]
    added = 3 if "umt5" in model else 11
    assert vocabulary.vocab_size == 300 + added
    assert specials[2].mode == (300 + added - 1,)


@given(text=st.text() | st.text(alphabet="<>_ \n\u2581unsedxtrai0RSX[]") | st.sampled_from(TEXTS))
def test_no_text_becomes_a_special_id_and_other_text_stays_what_it_was(text, model):
    plain, vocabulary = seqio.SentencePieceVocabulary(model), open_vocabulary(model, sentinels=8)
    special = SpecialTokensRequest(mode_names=MODES).ids(vocabulary)
    barred = vocabulary.never_encoding(special)
    assert (barred is vocabulary) == ("umt5" not in model)
    ids, before = barred.encode(text), plain.encode(text)
    assert not special & {*ids}
    assert ids == before or special & {*before}
    assert seqio_vocabulary(barred).encode_tf(tf.constant(text)).numpy().tolist() == barred.encode_batch([text])[0].tolist() == ids


AT_0 = {
    "unknown": {},  # spm_train's own layout: unknown 0, BOS 1, EOS 2
    "unknown-bpe": {"model_type": "bpe"},
    "end": {"eos_id": 0, "unk_id": 1, "bos_id": -1, "byte_fallback": True},
    "mode": {"control_symbols": ["[R]"], "unk_id": 1, "eos_id": 2, "bos_id": -1, "byte_fallback": True},
    "text": {"user_defined_symbols": ["one", "<s>"], "unk_id": 1, "bos_id": -1, "eos_id": 2, "byte_fallback": True},
}


@pytest.mark.parametrize("layout", AT_0)
def test_where_0_is_no_padding_seqio_has_all_ids_one_higher(layout, tmp_path):
    sentences = [f"plain text of {number} <words>, naïve one _id_ extra" for number in range(60)]
    settings = {"vocab_size": 300, "hard_vocab_limit": False, "pad_id": -1, **AT_0[layout]}
    (tmp_path / "own.model").write_bytes(trained_model(sentences, **settings))
    model = str(tmp_path / "own.model")
    own, vocabulary = sentencepiece.SentencePieceProcessor(model), open_vocabulary(model, sentinels=4)
    of_seqio = seqio_vocabulary(vocabulary)
    vocabulary.check()
    assert vocabulary.uses_0
    assert of_seqio.id_shift == 1
    assert (vocabulary.pad_id, vocabulary.eos_id, vocabulary.unk_id) == (None, own.eos_id(), own.unk_id())
    assert (of_seqio.pad_id, of_seqio.eos_id, of_seqio.unk_id) == (0, own.eos_id() + 1, own.unk_id() + 1)
    special = special_tokens(vocabulary, "[R]")
    added = [*special.sentinels, *flat(special_tokens(vocabulary, name).mode for name in MODES)]
    assert len({*added, special.eos}) == 4 + 3 + 1
    assert vocabulary.vocab_size == max(added) + 1 == of_seqio.vocab_size - 1
    text = vocabulary.never_encoding(SpecialTokensRequest(mode_names=MODES).ids(vocabulary))
    for each in (*TEXTS, "one one ☃ 日本"):
        ids, higher = text.encode(each), seqio_vocabulary(text).encode(each)
        assert ids == own.encode(each)
        assert higher == [id + 1 for id in ids]
        assert seqio_vocabulary(text).encode_tf(tf.constant(each)).numpy().tolist() == higher
        assert of_seqio.decode([*higher, 0, 0]) == vocabulary.decode(ids) == own.decode(ids)
        assert of_seqio.decode_tf(tf.constant([*higher, 0, 0], tf.int32)).numpy().decode() == own.decode(ids)
    words = vocabulary.encode("plain text")
    shown = vocabulary.decode([*special.mode, *words, special.sentinels[3], vocabulary.eos_id, *words])
    assert shown == "[R] plain text<extra_id_3>"
    assert vocabulary == open_vocabulary(model, sentinels=4) == pickle.loads(pickle.dumps(vocabulary))
    assert of_seqio == seqio_vocabulary(open_vocabulary(model, sentinels=4)) == pickle.loads(pickle.dumps(of_seqio))
    plain = seqio.SentencePieceVocabulary(model)
    assert vocabulary_identity(as_vocabulary(plain)) != vocabulary_identity(vocabulary)
    if layout == "mode":  # in the file itself that piece is any control piece, and no text becomes it
        return
    with pytest.raises(ValueError, match="id 0"):
        as_vocabulary(plain).check()


class Custom(seqio.ByteVocabulary):
    """A user's."""


@pytest.mark.parametrize(
    "theirs", [seqio.ByteVocabulary(), Custom(), seqio.SentencePieceVocabulary(str(DEFAULT_MODEL)), seqio.PassThroughVocabulary(9)]
)
def test_there_and_back_is_the_very_object(theirs):
    assert seqio_vocabulary(theirs) is theirs
    assert seqio_vocabulary(as_vocabulary(theirs)) is theirs
    ours = open_vocabulary("bytes")
    assert as_vocabulary(seqio_vocabulary(ours)) is ours
    assert as_vocabulary(ours) is ours
    assert as_vocabulary(theirs) == as_vocabulary(pickle.loads(pickle.dumps(theirs)))


def test_bytes_have_modes_by_name():
    vocabulary = open_vocabulary("bytes")
    specials = [special_tokens(vocabulary, mode) for mode in MODES]
    assert [special.mode for special in specials] == [(259,), (260,), (261,)]
    assert specials[0].sentinels == tuple(range(517, 261, -1))
    names = [vocabulary.id_to_piece(id) for id in (0, 1, 2, 3 + ord("A"), 259, 517)]
    assert names == ["<pad>", "</s>", "<unk>", "<0x41>", "[R]", "<extra_id_0>"]
    ids = vocabulary.encode("[R] <extra_id_0>\0")
    assert max(ids) < 259
    assert ids == seqio.ByteVocabulary().encode("[R] <extra_id_0>\0")
    assert vocabulary.never_encoding(SpecialTokensRequest(mode_names=MODES).ids(vocabulary)) is vocabulary
    with pytest.raises(ValueError, match="sentinels"):
        special_tokens(vocabulary, None, sentinels=[68])
    same = pickle.loads(pickle.dumps(vocabulary))
    assert (same, hash(same), vocabulary_identity(same)) == (vocabulary, hash(vocabulary), vocabulary_identity(vocabulary))
    for other in (open_vocabulary("bytes", sentinels=9), as_vocabulary(seqio.ByteVocabulary(259))):
        assert other != vocabulary
        assert vocabulary_identity(other) != vocabulary_identity(vocabulary)
