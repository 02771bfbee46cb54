"""Training gives the right special ids, the same bytes each time, and loses no text; the shipped vocabulary comes of it again."""

import hashlib
import json
import random

import new_process
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import seqio
import tensorflow as tf
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from sentencepiece import sentencepiece_model_pb2

from ul2_command.commands import main
from ul2_tasks.vocabulary import training
from ul2_tasks.vocabulary.by_name import open_vocabulary
from ul2_tasks.vocabulary.sentencepiece import DEFAULT_MODEL
from ul2_tasks.vocabulary.special_ids import (
    check_padding,
    check_round_trip,
    encodable_ids,
    piece_names,
    special_ids,
    special_tokens,
)
from ul2_tasks.vocabulary.training import train, train_to_file

SHIPPED = json.loads(DEFAULT_MODEL.with_suffix(".json").read_text())
MODES = ("[R]", "[S]", "[X]")
WORDS = ["".join(random.Random(n).choices("abcdefghij", k=2 + n % 5)) for n in range(300)]
DOCUMENTS = [" ".join(random.Random(n).choices(WORDS, k=40)) for n in range(200)]
SMALL = {"size": 400, "sentinels": 8}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """What the README's command writes."""
    path = tmp_path_factory.mktemp("vocabulary") / "again.model"
    done = new_process.run("-m", "ul2_tasks.train_vocabulary", path, check=True)
    assert f"wrote {path}" in done.stdout
    return path


def pieces(model: bytes):
    return sentencepiece_model_pb2.ModelProto.FromString(model).pieces


def saved(path, model: bytes) -> seqio.SentencePieceVocabulary:
    path.write_bytes(model)
    return seqio.SentencePieceVocabulary(str(path))


@pytest.mark.train
def test_the_script_reproduces_the_shipped_vocabulary_or_says_what_differs(trained):
    """Another Python has other documentation; another sentencepiece may train otherwise. With both the same, so are the bytes."""
    here = json.loads(trained.with_suffix(".json").read_text())
    different = sorted(key for key in ("corpus_sha256", "sentencepiece") if here[key] != SHIPPED[key])
    assert (trained.read_bytes() == DEFAULT_MODEL.read_bytes()) == (not different)


@pytest.mark.train
def test_whatever_the_text_the_special_ids_are_the_same(trained):
    again, shipped = pieces(trained.read_bytes()), pieces(DEFAULT_MODEL.read_bytes())
    assert len(again) == len(shipped) == 4096
    text = 3 + 256 + 3 + 256  # pad, EOS, unknown; sentinels; modes; bytes
    assert [(piece.piece, piece.type) for piece in again[:text]] == [(piece.piece, piece.type) for piece in shipped[:text]]
    assert len(special_tokens(seqio.SentencePieceVocabulary(str(trained)), "[S]").sentinels) == 256


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_a_vocabulary_of_ones_own_has_what_the_denoisers_need(model_type, tmp_path):
    model = train(DOCUMENTS, model_type=model_type, **SMALL)
    assert train(iter(DOCUMENTS), model_type=model_type, **SMALL) == model, "the same bytes each time"
    vocabulary = saved(tmp_path / "own.model", model)
    check_padding(vocabulary)
    assert (vocabulary.vocab_size, vocabulary.pad_id, vocabulary.eos_id, vocabulary.unk_id) == (400, 0, 1, 2)
    special = [special_tokens(vocabulary, mode) for mode in MODES]
    assert special[0].sentinels == tuple(range(3, 11))
    assert [each.mode for each in special] == [(11,), (12,), (13,)]
    assert encodable_ids(vocabulary, special_ids(vocabulary, MODES)) == []
    text = "<extra_id_0> [R] 日本 " + DOCUMENTS[0]
    assert vocabulary.decode(vocabulary.encode(text)) == text
    assert vocabulary.unk_id not in vocabulary.encode(text)


WHITE = [
    "a\nb",
    "a\tb",
    "a  b",
    " a",
    "a ",
    "  a  ",
    "\n",
    "\n a",
    " ",
    "   ",
    "\r\n",
    "\u3000\xa0x",
    "def f(x):\n\tif x:\n        return\n\n",
]
HARD = [*WHITE, "", "\U0001f642\U00013080", "e\u0301", "ﬁ½Ａ①", "\0", "\u2585", "\ufffd", "\ufeffa", "\u200bz", "Ab aB", "[R]</s>"]


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_text_comes_back_from_its_tokens_as_it_was(model_type, tmp_path):
    code = "def f(x):\n\tif x:\n        return {x:  1}\n\n" * 3
    vocabulary = saved(tmp_path / "kept.model", train([*DOCUMENTS, *[code] * 20], model_type=model_type, **SMALL))
    assert check_round_trip(vocabulary) == []
    for text in (*HARD, code, "".join(HARD), " ".join(DOCUMENTS[:3])):
        ids = vocabulary.encode(text)
        assert vocabulary.decode(ids) == text
        assert vocabulary.encode_tf(tf.constant(text)).numpy().tolist() == ids
        assert vocabulary.decode_tf(tf.constant(ids, tf.int32)).numpy().decode() == text
    assert len(vocabulary.encode("        return")) < 5, "indentation is few pieces"
    assert vocabulary.decode(vocabulary.encode("a\u2581b")) == "a b", "the one that is told"


@given(text=st.text() | st.text(alphabet=" \n\tab\u0301"))
def test_any_text_comes_back(text, kept):
    assert kept.decode(kept.encode(text)) == text.replace("\u2581", " ")


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("kept") / "kept.model", train(DOCUMENTS, **SMALL))


def test_text_is_normalized_if_that_is_asked_for(tmp_path):
    told = train_to_file(DOCUMENTS, tmp_path / "nfkc.model", normalization="nmt_nfkc", **SMALL)
    assert "text is normalized (nmt_nfkc): its tokens give the normalized text back" in told
    assert json.loads((tmp_path / "nfkc.json").read_text())["normalization"] == "nmt_nfkc"
    vocabulary = seqio.SentencePieceVocabulary(str(tmp_path / "nfkc.model"))
    assert vocabulary.decode(vocabulary.encode("a\n\tb  ﬁ")) == "a b fi"
    told = train_to_file(DOCUMENTS, tmp_path / "kept.model", **SMALL)
    assert "text is kept as it is: its tokens give every character back, but U+2581, which comes back as a space" in told


def unread():
    raise AssertionError("a document was read")
    yield


def test_the_output_is_looked_at_before_the_work(tmp_path):
    for name in ("own.model", "own.json"):
        (tmp_path / name).write_text("mine")
        with pytest.raises(ValueError, match=rf"output must be a new file, but .*{name} exists\. Name another output, or remove"):
            train_to_file(unread(), tmp_path / "own.model", **SMALL)
        assert (tmp_path / name).read_text() == "mine"
        (tmp_path / name).unlink()
    with pytest.raises(ValueError, match="output must be in a folder that exists, got"):
        train_to_file(unread(), tmp_path / "no/such/own.model", **SMALL)
    assert not list(tmp_path.iterdir())


def test_the_command_takes_a_normalization_and_says_no_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.txt").write_text("\n".join(DOCUMENTS))
    command = ["vocab", "train", "--corpus", "texts.txt", "--documents", "line", "--size", "400", "--sentinels", "8", "--output"]
    runner = CliRunner()
    assert "nmt_nfkc" in runner.invoke(main, ["vocab", "train", "--help"]).output
    done = runner.invoke(main, [*command, "own.model", "--normalization", "nfkc"])
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "own.json").read_text())["normalization"] == "nfkc"
    for output, message in (("own.model", "must be a new file"), ("no/such.model", "in a folder that exists, got 'no'")):
        done = runner.invoke(main, [*command, output])
        assert done.exit_code == 2
        assert message in done.output


def test_files_of_several_formats_give_one_vocabulary(tmp_path, monkeypatch):
    """Of each as many characters are read, though the first alone has more than are read in all."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("\n".join(100 * DOCUMENTS))
    (tmp_path / "b.jsonl").write_text(json.dumps({"content": "žluťoučký kůň " * 200}))
    pq.write_table(pa.table({"content": ["ψυχή " * 300, "ψυχή"]}), tmp_path / "c.parquet")
    options = ["--documents", "line", "--text_key", "content", "--size", 400, "--sentinels", 8, "--max_characters", 6000]
    for corpus in (["."], ["a.txt", "b.jsonl", "c.parquet"]):
        named = [word for path in corpus for word in ("--corpus", path)]
        done = CliRunner().invoke(main, ["vocab", "train", *named, *map(str, options), "--output", f"{len(corpus)}.model"])
        assert done.exit_code == 0, done.output
        of_texts = {piece.piece for piece in pieces((tmp_path / f"{len(corpus)}.model").read_bytes())}
        assert {"ž", "ψ", "a"} <= of_texts
    assert (tmp_path / "1.model").read_bytes() == (tmp_path / "3.model").read_bytes()


def test_the_names_are_ones_choice(tmp_path):
    vocabulary = saved(tmp_path / "named.model", train(DOCUMENTS, size=400, sentinels=1, modes=["[NLU]", "[S2S]"]))
    assert piece_names(vocabulary, range(3, 7)) == ["<extra_id_0>", "[NLU]", "[S2S]", "<0x00>"]


def test_long_documents_and_reserved_characters_are_not_left_out(tmp_path):
    """As sentencepiece does without a word. In this text only those documents have these letters."""
    long, unbroken, reserved = "quick " * 200_000, "ž" * 300_000, "wwwww \u2585 wwwww " * 2_000
    told = train_to_file([*DOCUMENTS, long, unbroken, reserved], tmp_path / "all.model", model_type="bpe", **SMALL)
    assert "took 2,000 characters U+2585, which sentencepiece reserves, for spaces" in told
    normal = [piece.piece for piece in pieces((tmp_path / "all.model").read_bytes()) if piece.type == piece.NORMAL]
    assert {"q", "ž", "w"} <= set("".join(normal))
    assert "U+2585" not in train_to_file(DOCUMENTS, tmp_path / "plain.model", **SMALL)


@pytest.mark.parametrize(
    "document", ["a word " * 3_000, "\u2028".join(["日本語" * 100] * 30), "x" * 12_000, "\U0001f680\n" * 3_000]
)
def test_sentences_are_short_and_cut_between_words(document):
    sentences = list(training._sentences_of(document))
    assert "".join(sentences) == document
    assert len(sentences) > 1
    assert all(0 < len(sentence) <= 4000 for sentence in sentences)
    has_space = len(document.split()) > 1
    assert all(sentence[-1].isspace() for sentence in sentences[:-1]) == has_space


def test_memory_is_bounded_by_the_characters_that_are_read(tmp_path):
    def endless():
        while True:
            yield from DOCUMENTS

    told = train_to_file(endless(), tmp_path / "some.model", max_characters=20_000, **SMALL)
    described = json.loads((tmp_path / "some.json").read_text())
    longest = max(map(len, DOCUMENTS))
    assert 20_000 <= described["characters"] < 20_000 + longest
    assert f"read {described['documents']} documents, {described['characters']:,} characters, and no more" in told
    first = DOCUMENTS[: described["documents"]]
    assert (tmp_path / "some.model").read_bytes() == train(first, **SMALL)
    assert described["corpus_sha256"] == hashlib.sha256("\0".join(first).encode()).hexdigest()


def test_the_file_beside_the_model_says_what_made_it(tmp_path):
    told = train_to_file(DOCUMENTS, str(tmp_path / "own.model"), model_type="bpe", **SMALL)
    model = (tmp_path / "own.model").read_bytes()
    described = json.loads((tmp_path / "own.json").read_text())
    assert described["model_sha256"] == hashlib.sha256(model).hexdigest()
    expected = {"size": 400, "model_type": "bpe", "sentinels": 8, "modes": list(MODES), "documents": 200}
    assert {key: described[key] for key in expected} == expected
    assert described["characters"] == sum(map(len, DOCUMENTS))
    assert {"python", "sentencepiece"} <= described.keys()
    for line in (
        'ul2_tasks.register("my", source, ',
        "VOCABULARY = @ul2_tasks.open_vocabulary()",
        f"--vocabulary {tmp_path}/own.model",
    ):
        assert line in told
    assert special_tokens(open_vocabulary(str(tmp_path / "own.model"), sentinels=8), "[R]").mode == (11,)


@pytest.mark.parametrize(
    ("documents", "settings", "message"),
    [
        (
            ["a few words"],
            {"size": 1000},
            r"size must be at most 5\d\d, the pieces that the.*11 characters\) has, got 1000",
        ),
        (
            DOCUMENTS,
            {"size": 500},
            r"size must be at least 52\d, the special pieces,.*39,817 characters\), got 500",
        ),
        ([], {}, "the corpus must have text to train on, got 0 documents, all of them empty"),
        (["", ""], {}, "the corpus must have text to train on, got 2 documents, all of them empty"),
        (["a"], {"model_type": "word"}, r"model_type must be one of \('unigram', 'bpe'\), got 'word'"),
        (["a"], {"normalization": "NFKC"}, r"normalization must be one of \('identity',.*'nmt_nfkc_cf'\), got 'NFKC'"),
        (["a"], {"modes": "[R]"}, r"modes must be names such as \('\[R\]', '\[S\]', '\[X\]'\), got '\[R\]'"),
    ],
)
def test_what_cannot_be_trained_is_told(documents, settings, message):
    with pytest.raises(ValueError, match=message):
        train(documents, **settings)


def test_the_largest_size_that_it_tells_is_one():
    with pytest.raises(ValueError, match=r"size must be at most \d+, the pieces that the.*598 characters\) has, got 9000") as error:
        train(DOCUMENTS[:3], size=9000)
    largest = int(str(error.value).split("at most ")[1].split(",")[0])
    assert len(pieces(train(DOCUMENTS[:3], size=largest))) == largest


def test_a_source_that_fails_is_no_end_of_the_text(tmp_path):
    def failing():
        yield from DOCUMENTS
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        train_to_file(failing(), tmp_path / "none.model", **SMALL)
    assert not list(tmp_path.iterdir())


def test_the_output_is_a_model(tmp_path):
    with pytest.raises(ValueError, match=r"output must be a file that ends in \.model, got"):
        train_to_file(DOCUMENTS, tmp_path / "own")


def test_the_command_asks_for_its_output():
    done = new_process.run("-m", "ul2_tasks.train_vocabulary")
    assert done.returncode != 0
    assert "usage: python -m ul2_tasks.train_vocabulary OUTPUT.model" in done.stderr
