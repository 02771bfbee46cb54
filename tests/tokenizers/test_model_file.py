"""The pieces of a SentencePiece model are read and changed as protobuf would, and what is no model is an error that names it."""

import contextlib
import pathlib

import mistral_common
import pytest
import sentencepiece
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from sentencepiece import sentencepiece_model_pb2

from ul2_tasks.tokenizers.model_file import CONTROL, NORMAL, USER_DEFINED, read_pieces, with_pieces
from ul2_tasks.tokenizers.sentencepiece import DEFAULT_MODEL

Model = sentencepiece_model_pb2.ModelProto
Piece = Model.SentencePiece
CARRIED = pathlib.Path(mistral_common.__file__).parent / "data"
REAL = {
    "default": DEFAULT_MODEL,
    "v1": CARRIED / "tokenizer.model.v1",
    "v2": CARRIED / "mistral_instruct_tokenizer_240216.model.v2",
}

TYPES = st.sampled_from(Piece.Type.values())
PIECES = st.builds(Piece, piece=st.none() | st.text(max_size=300), score=st.none() | st.floats(width=32), type=st.none() | TYPES)
# Fields that no version of the format has: varints of up to 64 bits, 8 bytes, 4 bytes, and bytes.
UNKNOWN_FIELDS = st.sampled_from(
    [b"\xb8\x1e\x07", b"\xb8\x1e" + b"\xff" * 9 + b"\x01", b"\xb9\x1e12345678", b"\xbd\x1e1234", b"\xba\x1e\x03abc"]
)


@st.composite
def models(draw) -> bytes:
    """A model of any pieces, some of which have fields that nobody knows, as the whole may have."""
    pieces = [
        piece.SerializeToString() + draw(st.just(b"") | UNKNOWN_FIELDS) for piece in draw(st.lists(PIECES, min_size=1, max_size=5))
    ]
    model = Model(pieces=map(Piece.FromString, pieces))
    if draw(st.booleans()):
        model.trainer_spec.eos_piece = draw(st.text())
        model.normalizer_spec.precompiled_charsmap = draw(st.binary())
    return Model.FromString(model.SerializeToString() + draw(st.just(b"") | UNKNOWN_FIELDS)).SerializeToString()


def check_as_protobuf(content, types, added):
    model = Model.FromString(content)
    assert read_pieces(content) == (tuple(each.piece for each in model.pieces), tuple(each.type for each in model.pieces))
    assert with_pieces(content, {}) == content
    for id, type in types.items():
        model.pieces[id].type = type
    for name, type in added:
        model.pieces.add(piece=name, type=type)
    assert with_pieces(content, types, added) == model.SerializeToString()


@pytest.mark.parametrize("name", REAL)
def test_real_models_are_read_and_changed_as_by_protobuf(name):
    content = REAL[name].read_bytes()
    check_as_protobuf(content, dict.fromkeys(range(0, 4000, 7), USER_DEFINED), [("<extra_id_0>", CONTROL), ("日本" * 99, NORMAL)])


@given(data=st.data(), content=models())
def test_any_model_is_read_and_changed_as_by_protobuf(data, content):
    ids = st.integers(0, len(Model.FromString(content).pieces) - 1)
    types, added = st.dictionaries(ids, TYPES), st.lists(st.tuples(st.text(max_size=200), TYPES), max_size=3)
    check_as_protobuf(content, data.draw(types), data.draw(added))


@given(content=st.binary() | models().flatmap(lambda model: st.integers(0, len(model)).map(lambda size: model[:size])))
def test_what_is_not_read_is_no_model_for_sentencepiece(content):
    try:
        pieces = read_pieces(content)
    except ValueError:
        with pytest.raises(RuntimeError):
            sentencepiece.SentencePieceProcessor().LoadFromSerializedProto(content)
        return
    with contextlib.suppress(DecodeError):  # what is wrong behind the pieces is found by `sentencepiece`
        assert pieces.names == tuple(piece.piece for piece in Model.FromString(content).pieces)
