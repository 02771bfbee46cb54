"""Which ids mean what: sentinels and modes found in real layouts, and each bad one named."""

import pytest
import sentencepiece
import seqio
from sentencepiece import sentencepiece_model_pb2
from support import byte_vocabulary, mistral_model, t5_model

from ul2_tasks import default_vocabulary, embedding_rows
from ul2_tasks.vocabularies import check_padding, piece_names, special_tokens, vocabulary_identity

Piece = sentencepiece_model_pb2.ModelProto.SentencePiece
BYTES, MODES = byte_vocabulary()


@pytest.fixture(scope="module")
def mistral():
    return seqio.SentencePieceVocabulary(mistral_model())


def edited(path, edit, **settings):
    """The default model with other pieces."""
    model = sentencepiece_model_pb2.ModelProto.FromString(default_vocabulary().sp_model)
    edit(model)
    path.write_bytes(model.SerializeToString())
    return seqio.SentencePieceVocabulary(str(path), **settings)


def test_the_default_vocabulary_has_all_that_the_design_asks_for():
    vocabulary = default_vocabulary()
    assert vocabulary.vocab_size == 4096
    assert (vocabulary.pad_id, vocabulary.eos_id, vocabulary.unk_id) == (0, 1, 2)
    special = special_tokens(vocabulary, "[R]")
    assert len(special.sentinels) == 256
    assert piece_names(vocabulary, special.sentinels) == [f"<extra_id_{n}>" for n in range(256)]
    modes = [special_tokens(vocabulary, mode).mode for mode in ("[R]", "[S]", "[X]")]
    assert [len(mode) for mode in modes] == [1, 1, 1]
    assert len(set(modes)) == 3
    assert special.eos == 1
    assert special.reserved >= {0, *special.sentinels, *modes[0]}


@pytest.mark.parametrize("text", ["<extra_id_0> [R] </s> <pad>", "déjà vu, 日本語, \U0001f680", "  two  spaces\tand\na tab", ""])
def test_no_text_becomes_a_special_id_of_the_default_vocabulary_or_an_unknown(text):
    vocabulary = default_vocabulary()
    reserved = special_tokens(vocabulary, "[R]").reserved | {vocabulary.eos_id, vocabulary.unk_id}
    ids = vocabulary.encode(text)
    assert not set(ids) & reserved
    normalized = " ".join(text.split())
    assert vocabulary.decode(ids) == normalized


def test_seqios_extra_ids_come_in_t5s_order(tmp_path):
    """`<extra_id_0>` is the last id: T5's own checkpoints were trained so."""
    plain = edited(
        tmp_path / "plain.model",
        lambda model: [setattr(p, "piece", f"x{i}") for i, p in enumerate(model.pieces) if "extra_id" in p.piece],
    )
    vocabulary = seqio.SentencePieceVocabulary(plain.sentencepiece_model_file, extra_ids=100)
    special = special_tokens(vocabulary, "[X]")
    assert vocabulary.vocab_size == 4196
    assert special.sentinels == tuple(range(4195, 4095, -1))
    assert vocabulary.decode([special.sentinels[0]]).strip() == "<extra_id_0>"


def test_the_rows_of_t5s_checkpoints_have_room_for_the_modes(tmp_path):
    """As in gin/t5_vocabulary.gin: every sentinel of T5 keeps its id, and the 32,128 rows are as many as before."""
    vocabulary = seqio.SentencePieceVocabulary(t5_model(tmp_path / "t5.model"), extra_ids=103)
    special = special_tokens(vocabulary, "[R]", modes={"[R]": 32100, "[S]": 32101, "[X]": 32102})
    assert special.sentinels == tuple(range(32099, 31999, -1))
    assert special.mode == (32100,)
    assert special.eos == 1
    assert embedding_rows(vocabulary) == 32128


def test_byte_vocabularys_extra_ids_come_in_byt5s_order_without_the_modes():
    special = special_tokens(BYTES, "[R]", modes=MODES)
    assert special.sentinels == tuple(range(361, 261, -1))
    assert special.mode == (259,)
    assert special.reserved == {0, *range(259, 362)}


def test_sentinels_by_ids_or_by_a_name_with_a_number(tmp_path):
    def add_unused(model):
        model.pieces.extend([Piece(piece=f"<unused{n}>", type=Piece.USER_DEFINED) for n in range(7)])
        model.pieces.extend([Piece(piece="zzyzx", score=-9)])

    vocabulary = edited(tmp_path / "unused.model", add_unused)
    assert special_tokens(vocabulary, None, sentinels="<unused{}>").sentinels == tuple(range(4096, 4103))
    assert special_tokens(vocabulary, None, sentinels=range(4100, 4096, -1)).sentinels == (4100, 4099, 4098, 4097)


def test_mistrals_control_pieces_serve_as_sentinels_and_modes(mistral):
    special = special_tokens(mistral, "[S]", sentinels=range(10, 700), modes={"[S]": 701})
    assert (len(special.sentinels), special.mode, special.eos) == (690, (701,), 2)


@pytest.mark.parametrize(
    ("sentinels", "message"),
    [
        ([5000], r"sentinels: id 5000 is not in the vocabulary, expected 0 < id < 4096"),
        ([-1], r"sentinels: id -1 is not in the vocabulary"),
        ([10, 11, 10], r"sentinels: ids \[10\] are given more than once"),
        ([0], "sentinels: id 0 is padding"),
        ([1], "sentinels: id 1 is EOS"),
        ([2], "sentinels: id 2 is unknown"),
        ([4000], "sentinels: id 4000 is the ordinary token '.*', which text contains"),
        ([300], "sentinels: id 300 is the ordinary token '<0x.*>', which text contains"),
        ("<unused{}>", "sentinels is '<unused{}>', but .* has no piece '<unused0>'; give ids, or another name"),
        ("<unused>", "sentinels is '<unused>', expected ids, or the pieces' name with {} for the number"),
    ],
)
def test_a_bad_sentinel_is_named(sentinels, message):
    with pytest.raises(ValueError, match=message):
        special_tokens(default_vocabulary(), "[R]", sentinels=sentinels)


@pytest.mark.parametrize(
    ("modes", "message"),
    [
        ({"[R]": 5000}, r"mode '\[R\]': id 5000 is not in the vocabulary"),
        ({"[R]": 0}, r"mode '\[R\]': id 0 is padding"),
        ({"[R]": 4000}, r"mode '\[R\]': id 4000 is the ordinary token"),
        ({"[R]": 3}, r"ids \[3\] are sentinels and also the mode '\[R\]'"),
        ({"[R]": ""}, r"mode '\[R\]' is given as '', which makes no token"),
        ({"[R]": []}, r"mode '\[R\]' is given as \[\], which makes no token"),
    ],
)
def test_a_bad_mode_is_named(modes, message):
    vocabulary = default_vocabulary()
    sentinels = [3, 4, 5] if modes == {"[R]": 3} else None
    with pytest.raises(ValueError, match=message):
        special_tokens(vocabulary, "[R]", sentinels=sentinels, modes=modes)


def test_a_mode_that_the_vocabulary_lacks_is_refused_with_the_choices(mistral):
    with pytest.raises(ValueError, match=r"mode '\[R\]' is not a piece of .* \(as text it is 3 tokens: .*\); give modes=") as error:
        special_tokens(mistral, "[R]", sentinels=range(10, 700))
    for choice in ("modes={'[R]': id}", "modes={'[R]': '[R]'}", "mode=None"):
        assert choice in str(error.value)


def test_a_mode_as_text_is_its_tokens_and_they_stay_ordinary(mistral):
    special = special_tokens(mistral, "[R]", sentinels=range(10, 700), modes={"[R]": "[NLU] "})
    assert special.mode == tuple(mistral.encode("[NLU] "))
    assert len(special.mode) > 1
    assert not set(special.mode) & special.reserved


def test_a_mode_of_several_ids():
    assert special_tokens(BYTES, "[R]", modes={**MODES, "[R]": [259, 260]}).mode == (259, 260)


def test_no_mode_is_no_token():
    assert special_tokens(BYTES, None).mode == ()


def test_id_0_that_text_can_produce_is_refused(tmp_path, mistral):
    check_padding(default_vocabulary())
    check_padding(BYTES)
    check_padding(mistral)  # id 0 is <unk>, which no text produces beside byte fallback

    def swap(model):
        model.pieces[0].type, model.pieces[0].piece, model.pieces[0].score = Piece.NORMAL, "zzyzx", -3

    with pytest.raises(ValueError, match=r"id 0 of .* is the token 'zzyzx', but SeqIO takes 0 for padding.* Shift the ids by one"):
        check_padding(edited(tmp_path / "swapped.model", swap))


def test_id_0_as_an_unknown_that_text_can_produce_is_refused(tmp_path):
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["one two three four five six seven"] * 3),
        model_prefix=str(tmp_path / "unknown"),
        vocab_size=18,
        unk_id=0,
        eos_id=1,
        bos_id=-1,
        pad_id=-1,
        minloglevel=2,
    )
    with pytest.raises(ValueError, match=r"id 0 of .* is the token '<unk>'"):
        check_padding(seqio.SentencePieceVocabulary(str(tmp_path / "unknown.model")))


def test_the_identity_is_the_models_bytes_not_its_place(tmp_path):
    default = default_vocabulary()
    copy = edited(tmp_path / "copy.model", lambda model: None)
    other = edited(tmp_path / "other.model", lambda model: setattr(model.pieces[-1], "piece", "another"))
    assert vocabulary_identity(default) == vocabulary_identity(copy)
    assert vocabulary_identity(default) != vocabulary_identity(other)
    assert vocabulary_identity(BYTES) != vocabulary_identity(seqio.ByteVocabulary(extra_ids=7))


def test_pieces_have_names_for_people():
    vocabulary = default_vocabulary()
    special = special_tokens(vocabulary, "[X]")
    assert piece_names(vocabulary, [special.sentinels[0], *special.mode, special.eos]) == ["<extra_id_0>", "[X]", "</s>"]
    assert piece_names(BYTES, [361]) == ["<361>"]
