"""Which ids mean what: sentinels and modes found in real layouts, and each bad one named."""

import numpy as np
import pytest
import seqio
from sentencepiece import sentencepiece_model_pb2

from tests.support import byte_vocabulary, mistral_model, t5_model
from ul2_tasks import default_vocabulary, embedding_rows
from ul2_tasks.tokenizers.special_ids import (
    TextIds,
    as_vocabulary,
    special_tokens,
)

Piece = sentencepiece_model_pb2.ModelProto.SentencePiece
BYTES = as_vocabulary(byte_vocabulary()[0])


@pytest.fixture(scope="module")
def mistral():
    return as_vocabulary(seqio.SentencePieceVocabulary(mistral_model()))


def edited(path, edit, **settings):
    """The default model with other pieces."""
    model = sentencepiece_model_pb2.ModelProto.FromString(default_vocabulary().model)
    edit(model)
    path.write_bytes(model.SerializeToString())
    return as_vocabulary(seqio.SentencePieceVocabulary(str(path), **settings))


def test_the_default_vocabulary_has_all_that_the_design_asks_for():
    vocabulary = default_vocabulary()
    assert vocabulary.vocab_size == 4096
    assert (vocabulary.pad_id, vocabulary.eos_id, vocabulary.unk_id) == (0, 1, 2)
    special = special_tokens(vocabulary, "[R]")
    assert len(special.sentinels) == 256
    assert [vocabulary.id_to_piece(id) for id in special.sentinels] == [f"<extra_id_{n}>" for n in range(256)]
    modes = [special_tokens(vocabulary, mode).mode for mode in ("[R]", "[S]", "[X]")]
    assert [len(mode) for mode in modes] == [1, 1, 1]
    assert len(set(modes)) == 3
    assert special.eos == 1
    assert special.reserved >= {0, *special.sentinels, *modes[0]}


def test_the_rows_of_t5s_checkpoints_have_room_for_the_modes(tmp_path):
    """As in gin/t5_vocabulary.gin: every sentinel of T5 keeps its id, and the 32,128 rows are as many as before."""
    vocabulary = as_vocabulary(seqio.SentencePieceVocabulary(t5_model(tmp_path / "t5.model"), extra_ids=103))
    special = special_tokens(vocabulary, "[R]", modes={"[R]": 32100, "[S]": 32101, "[X]": 32102})
    assert special.sentinels == tuple(range(32099, 31999, -1))
    assert special.mode == (32100,)
    assert special.eos == 1
    assert embedding_rows(vocabulary) == 32128


def test_sentinels_by_ids_or_by_a_name_with_a_number(tmp_path):
    def add_unused(model):
        model.pieces.extend([Piece(piece=f"<unused{n}>", type=Piece.USER_DEFINED) for n in range(7)])
        model.pieces.extend([Piece(piece="zzyzx", score=-9)])

    vocabulary = edited(tmp_path / "unused.model", add_unused)
    assert special_tokens(vocabulary, None, sentinels="<unused{}>").sentinels == tuple(range(4096, 4103))
    assert special_tokens(vocabulary, None, sentinels=range(4100, 4096, -1)).sentinels == (4100, 4099, 4098, 4097)


BAD = {
    "sentinels": [[5000], [-1], [10, 11, 10], [0], [1], [300], "<unused{}>", "<unused>"],
    "mode": [{"[R]": mode} for mode in (5000, 0, 4000, 3, "", [])],
}


@pytest.mark.parametrize(("argument", "value"), [(argument, value) for argument in BAD for value in BAD[argument]])
def test_bad_special_tokens_are_named(argument, value):
    given = {"sentinels": value} if argument == "sentinels" else {"sentinels": [3, 4, 5], "modes": value}
    with pytest.raises(ValueError, match=argument):
        special_tokens(default_vocabulary(), "[R]", **given)


def test_a_mode_as_text_is_its_tokens_and_they_stay_ordinary(mistral):
    special = special_tokens(mistral, "[R]", sentinels=range(10, 700), modes={"[R]": "[NLU] "})
    assert special.mode == tuple(mistral.encode("[NLU] "))
    assert len(special.mode) > 1
    assert not set(special.mode) & special.reserved


def test_id_0_that_text_can_produce_is_refused(tmp_path, mistral):
    default_vocabulary().check()
    BYTES.check()
    mistral.check()  # id 0 is <unk>, which no text produces beside byte fallback

    def swap(model):
        model.pieces[0].type, model.pieces[0].piece, model.pieces[0].score = Piece.NORMAL, "zzyzx", -3

    with pytest.raises(ValueError, match="id 0"):
        edited(tmp_path / "swapped.model", swap).check()


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint16, np.uint64])
def test_ids_of_text_alone(dtype):
    of_text, of_rows = (TextIds(264, [0, 259, 263], rows) for rows in (None, 200))
    ids = np.array([[0, 3, 258], [259, 260, 263], [264, 199, 200]], dtype)
    assert of_text.are_in(ids).tolist() == [[False, True, True], [False, True, False], [False, True, True]]
    assert of_rows.are_in(ids).tolist() == [[False, True, False], [False, False, False], [False, True, False]]
    of_text.check(ids[0, 1:], "ids", "")
    with pytest.raises(ValueError, match=r"this .*\[0, 259, 263, 264\]"):
        of_text.check(np.repeat(ids, 2), "this", "Do it.")
    if np.iinfo(dtype).min < 0:
        assert not of_text.are_in(np.array([-1, -264, np.iinfo(dtype).min, np.iinfo(dtype).max], dtype)).any()
