"""A tokenizer.json gives what `transformers` gives of it, and no text becomes a special token."""

import base64
import json
import pathlib
import pickle

import mistral_common
import pytest
import seqio
import tensorflow as tf
from hypothesis import assume, given
from hypothesis import strategies as st
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from ul2_tasks.tasks.vocabulary import seqio_vocabulary
from ul2_tasks.tokenizers.hugging_face import HuggingFaceVocabulary
from ul2_tasks.tokenizers.sentencepiece import DEFAULT_MODEL
from ul2_tasks.tokenizers.special_ids import (
    SpecialTokensRequest,
    as_vocabulary,
    special_tokens,
    vocabulary_identity,
)

CARRIED = pathlib.Path(mistral_common.__file__).parent / "data"
RANKS = 1 << 15  # of 150,000: enough for all scripts below, few enough to load in no time
KINDS = ("byte_level", "byte_fallback", "unigram")
MODES = ("[R]", "[S]", "[X]")
TEXTS = {
    "latin": "Žluťoučký kůň pěl ďábelské ódy; naïve façade, Straße, ﬁn",
    "greek and cyrillic": "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. Съешь ещё этих мягких булок",
    "east asian": "日本語の文章です。我能吞下玻璃而不伤身体。나는 유리를 먹을 수 있어요.",
    "right to left": "أنا قادر على أكل الزجاج و هذا لا يؤلمني. אני יכול לאכול זכוכית",
    "devanagari": "मैं काँच खा सकता हूँ और मुझे उससे कोई चोट नहीं पहुंचती.",
    "emoji": "family 👨‍👩‍👧‍👦, flag 🇨🇿, skin 👍🏽, heart ❤️",
    "code": "def f(x):\n\tif x != 0x1F:  # don't\n\t\treturn {'a': [1, 2.5e-3]}\r\n",
    "white space": "  two  spaces\t\ttabs\n\n\nlines\u00a0no-break \u3000 wide ",
    "nul": "before\0after",
    "empty": "",
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A folder for each kind of tokenizer, made of what packages carry."""
    folders = {kind: tmp_path_factory.mktemp(kind) for kind in KINDS}
    for kind, (make, eos) in {
        "byte_level": (byte_level, {"content": "<|endoftext|>", "special": True}),
        "byte_fallback": (byte_fallback, "</s>"),
        "unigram": (unigram, "</s>"),
    }.items():
        make().save(str(folders[kind] / "tokenizer.json"))
        (folders[kind] / "tokenizer_config.json").write_text(json.dumps({"eos_token": eos, "bos_token": None}))
    return folders


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def vocabulary(folders, kind):
    return HuggingFaceVocabulary(str(folders[kind]))


@pytest.fixture(scope="module")
def oracle(folders, kind):
    return PreTrainedTokenizerFast(tokenizer_file=str(folders[kind] / "tokenizer.json"))


def byte_level() -> Tokenizer:
    """A byte-level BPE of Tekken's first ranks, with special tokens after them, as Qwen's and GPT-2's. Id 0 is the byte 0."""
    carried = json.loads((CARRIED / "tekken_240911.json").read_text())
    letters = byte_letters()
    ranks = {"".join(letters[byte] for byte in token): rank for token, rank in tekken_ranks(carried).items()}
    tokenizer = Tokenizer(models.BPE(ranks, merges(ranks)))
    split = pre_tokenizers.Split(Regex(carried["config"]["pattern"]), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_end|>"])
    tokenizer.add_tokens(["<think>"])
    return tokenizer


def exclamation_first() -> Tokenizer:
    """A byte-level BPE of a few merges, whose ids begin as GPT-2's and Qwen's: 0 is "!"."""
    letters = sorted(byte_letters(), key=lambda letter: (letter != "!", letter))
    ids = {token: id for id, token in enumerate([*letters, "an", "and", "Ġand", "so"])}
    tokenizer = Tokenizer(models.BPE(ids, [("a", "n"), ("an", "d"), ("Ġ", "and"), ("s", "o")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_end|>"])
    tokenizer.add_tokens(["<think>"])
    return tokenizer


def byte_fallback() -> Tokenizer:
    """Mistral's first vocabulary, of the layout of Llama's: id 0 is <unk>, and bytes stand for what is no piece."""
    pieces = sentencepiece_pieces(CARRIED / "tokenizer.model.v1")
    ids = {piece.piece: id for id, piece in enumerate(pieces)}
    ranks = {piece.piece: -piece.score for piece in pieces if piece.type == piece.NORMAL}
    tokenizer = Tokenizer(models.BPE(ids, merges(ranks), unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return tokenizer


def unigram() -> Tokenizer:
    """The vocabulary that ships with this package, which has sentinels and modes."""
    model = sentencepiece_model_pb2.ModelProto.FromString(DEFAULT_MODEL.read_bytes())
    tokenizer = Tokenizer(models.Unigram([(piece.piece, piece.score) for piece in model.pieces], unk_id=2, byte_fallback=True))
    steps = [normalizers.Precompiled(model.normalizer_spec.precompiled_charsmap), normalizers.Replace(Regex(" {2,}"), " ")]
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    tokenizer.add_special_tokens([piece.piece for piece in model.pieces if piece.type in (piece.CONTROL, piece.UNKNOWN)])
    return tokenizer


def sentencepiece_pieces(path):
    return sentencepiece_model_pb2.ModelProto.FromString(path.read_bytes()).pieces


def tekken_ranks(carried) -> dict[bytes, int]:
    return {base64.b64decode(token["token_bytes"]): token["rank"] for token in carried["vocab"][:RANKS]}


def byte_letters() -> list[str]:
    """The letter that byte-level tokenizers write for each byte: itself if it can be seen, otherwise one from U+0100 on."""
    seen = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = [byte for byte in range(256) if byte not in seen]
    return [chr(byte if byte in seen else 256 + others.index(byte)) for byte in range(256)]


def merges(ranks) -> list[tuple[str, str]]:
    """All pairs of tokens that make a token, best first."""
    pairs = []
    for token in sorted(ranks, key=ranks.get):
        halves = [(token[:cut], token[cut:]) for cut in range(1, len(token))]
        pairs += sorted([pair for pair in halves if ranks.keys() >= {*pair}], key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))
    return pairs


def small(folder, words, model=models.WordLevel, special=("</s>",), added=(), eos="</s>", **settings) -> pathlib.Path:
    """A tokenizer of a few words between blanks."""
    tokenizer = Tokenizer(model(words, **settings))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(list(special))
    tokenizer.add_tokens(list(added))
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    if eos:
        (folder / "special_tokens_map.json").write_text(json.dumps({"eos_token": eos}))
    return folder


@given(text=st.text())
def test_any_text_becomes_what_transformers_makes_of_it(text, vocabulary, oracle):
    # The next test but one has the names of special tokens, which `transformers` makes into the tokens.
    assume(not any(str(token) in text for token in oracle.added_tokens_decoder.values()))
    ids, of_seqio = vocabulary.encode(text), seqio_vocabulary(vocabulary)
    assert ids == oracle.encode(text, add_special_tokens=False)
    assert of_seqio.encode_tf(tf.constant(text)).numpy().tolist() == [id + of_seqio.id_shift for id in ids]


@given(data=st.data())
def test_any_ids_decode_as_in_transformers_halves_of_characters_too(data, vocabulary, oracle):
    of_seqio = seqio_vocabulary(vocabulary)
    ids = [id for id in data.draw(st.lists(st.integers(4, len(oracle) - 1), max_size=8)) if id != vocabulary.eos_id]
    expected = oracle.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    assert vocabulary.decode(ids) == expected
    higher = [id + of_seqio.id_shift for id in ids]
    assert of_seqio.decode_tf(tf.constant(higher, tf.int32)).numpy().decode() == expected


def test_no_text_becomes_a_special_token(vocabulary):
    special = [*MODES, *(f"<extra_id_{n}>" for n in (0, 7, 255)), "<|endoftext|>", "<|im_end|>", "</s>", "<unk>", "<s>", "<pad>"]
    ids = {vocabulary.piece_id(name) for name in special} - {None}
    assert len(ids) >= 7
    for name in special:
        for text in (name, f"a {name} b", f"a{name}b", f"▁{name}", name * 3, f"{name}\n{name}"):
            assert not ids & set(vocabulary.encode(text)), text
            assert name in vocabulary.decode(vocabulary.encode(text))


def test_0_is_used_where_text_can_become_it(folders, tmp_path):
    byte_level, byte_fallback, unigram = (HuggingFaceVocabulary(str(folders[kind])) for kind in KINDS)
    assert byte_level.encode("\0") == [0]
    assert (byte_level.uses_0, byte_fallback.uses_0, unigram.uses_0) == (True, False, False)
    assert (byte_level.decode([0]), byte_level.vocab_size) == ("\0", RANKS + 3 + 259)
    assert (byte_level.eos_id, byte_level.unk_id, byte_level.bos_id) == (RANKS, None, None)
    assert (byte_fallback.eos_id, byte_fallback.unk_id, byte_fallback.vocab_size) == (2, 0, 32000 + 259)
    assert (unigram.eos_id, unigram.unk_id, unigram.vocab_size, unigram.extra_ids) == (1, 2, 4096, 0)
    for name, words, settings in (
        ("unknown", {"<unk>": 0, "a": 1}, {"unk_token": "<unk>", "special": ["<unk>", "</s>"]}),
        ("end", {"</s>": 0, "a": 1}, {}),
        ("sentinel", {"<extra_id_0>": 0, "a": 1}, {"special": ["<extra_id_0>", "</s>"]}),
    ):
        vocabulary = HuggingFaceVocabulary(str(small(tmp_path / name, words, **settings)), sentinels=1)
        assert vocabulary.uses_0
        assert seqio_vocabulary(vocabulary).encode("a a") == [2, 2]
        assert seqio_vocabulary(vocabulary).decode([0, 2, 0, 0]) == "a"
    words = {"<pad>": 0, "a": 1, "<unk>": 2}
    padded = HuggingFaceVocabulary(str(small(tmp_path / "padded", words, special=["<pad>", "</s>"], unk_token="<unk>")))
    assert padded.encode("a <pad>") == seqio_vocabulary(padded).encode("a <pad>") == [1, 2]
    assert not padded.uses_0


def test_what_the_tokenizer_lacks_comes_after_its_last_id_and_gaps_stay(tmp_path):
    words = {"a": 1, "<unk>": 2, "</s>": 3, "<extra_id_1>": 4, "[S]": 5, "[R]": 7, "b": 9}
    folder = small(tmp_path / "gaps", words, special=["<unk>", "</s>"], added=["<extra_id_1>", "[R]"], unk_token="<unk>")
    vocabulary = HuggingFaceVocabulary(str(folder), sentinels=3, modes=["[R]", "[S]"])
    assert vocabulary.encode("a b </s> [R] [S] <extra_id_1>") == [1, 9, 2, 2, 5, 2]
    names = ["<extra_id_0>", "<extra_id_1>", "<extra_id_2>", "[R]", "[S]"]
    assert [vocabulary.piece_id(name) for name in names] == [10, 4, 11, 7, 12]
    assert (vocabulary.vocab_size, vocabulary.extra_ids) == (13, 3)
    assert vocabulary.decode([10, 4, 6, 11, 7, 0, -4]) == "<extra_id_0> <extra_id_1> <extra_id_2> [R]"
    # "[S]" is a word that text has, so the mode has another spelling.
    assert vocabulary.decode([5, 12]) == "[S] <[S]>"
    assert special_tokens(vocabulary, "[S]").mode == (12,)


def test_an_added_token_is_text_until_it_is_a_sentinel(folders):
    vocabulary = HuggingFaceVocabulary(str(folders["byte_level"]))
    think = vocabulary.piece_id("<think>")
    text = "so <think> I am"
    assert think in vocabulary.encode(text)
    assert vocabulary.encodable_ids(SpecialTokensRequest(mode_names=MODES).ids(vocabulary)) == []
    assert vocabulary.never_encoding(SpecialTokensRequest(mode_names=MODES).ids(vocabulary)) is vocabulary

    special = {think, *SpecialTokensRequest(["<extra_id_0>"], mode_names=MODES).ids(vocabulary)}
    assert vocabulary.encodable_ids(special) == [think]
    barred = vocabulary.never_encoding(special)
    assert think not in barred.encode(text)
    assert barred.decode(barred.encode(text)) == text
    assert barred.vocab_size == vocabulary.vocab_size
    assert barred != vocabulary
    assert vocabulary_identity(barred) != vocabulary_identity(vocabulary)
    assert pickle.loads(pickle.dumps(barred)) == barred
    for other in TEXTS.values():
        assert barred.encode(other) == vocabulary.encode(other)


@pytest.mark.parametrize(
    ("words", "settings", "text", "ids"),
    [
        (
            {"[PAD]": 0, "[UNK]": 1, "[SEP]": 2, "a": 3, "##b": 4},
            {"model": models.WordPiece, "special": ["[PAD]", "[UNK]", "[SEP]"], "eos": "[SEP]", "unk_token": "[UNK]"},
            "ab [SEP] [PAD] a",
            [3, 4, 1, 1, 3],
        ),
        (  # as Llama 3 has it: a word that is a token is not put together of others
            {"<": 1, "s": 2, ">": 3, "<s>": 4, "</s>": 5, "/": 6, "<pad>": 0},
            {"model": models.BPE, "special": ["<pad>", "<s>", "</s>"], "merges": [], "ignore_merges": True},
            "<s> </s> ss",
            [1, 2, 3, 1, 6, 2, 3, 2, 2],
        ),
        (
            {"<pad>": 0, "[": 1, "R": 2, "]": 3, "[R": 4, "[R]": 5, "</s>": 6},
            {"model": models.BPE, "special": ["<pad>", "</s>"], "added": ["[R]"], "merges": [("[", "R"), ("[R", "]")]},
            "[R]",
            [4, 3],
        ),
    ],
    ids=["WordPiece", "ignore_merges", "merges"],
)
def test_no_model_makes_a_special_token_of_text(tmp_path, words, settings, text, ids):
    assert HuggingFaceVocabulary(str(small(tmp_path / "model", words, **settings))).encode(text) == ids


def test_it_is_pickled_and_equal_by_content(folders, tmp_path):
    folder = folders["byte_level"]
    vocabulary = HuggingFaceVocabulary(str(folder))
    (tmp_path / "moved.json").write_bytes((folder / "tokenizer.json").read_bytes())
    for same in (pickle.loads(pickle.dumps(vocabulary)), HuggingFaceVocabulary(str(tmp_path / "moved.json"), eos="<|endoftext|>")):
        assert (same, hash(same), vocabulary_identity(same)) == (vocabulary, hash(vocabulary), vocabulary_identity(vocabulary))
        assert same.encode("naïve") == vocabulary.encode("naïve")
    others = [
        HuggingFaceVocabulary(str(folder), sentinels=255),
        HuggingFaceVocabulary(str(folder), modes=("[R]", "[X]", "[S]")),
        HuggingFaceVocabulary(str(folder), eos="<|im_end|>"),
        HuggingFaceVocabulary(str(folders["byte_fallback"])),
        as_vocabulary(seqio.ByteVocabulary()),
    ]
    assert all(other != vocabulary for other in others)
    assert len({vocabulary_identity(other) for other in [vocabulary, *others]}) == 6
