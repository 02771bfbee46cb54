"""The script reproduces the vocabulary that ships; what can differ is told apart from what may not."""

import json
import subprocess
import sys

import pytest
import seqio
from sentencepiece import sentencepiece_model_pb2

from ul2_tasks import train_vocabulary
from ul2_tasks.vocabularies import DEFAULT_MODEL, special_tokens

SHIPPED = json.loads(DEFAULT_MODEL.with_suffix(".json").read_text())


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """What the README's command writes."""
    path = tmp_path_factory.mktemp("vocabulary") / "again.model"
    done = subprocess.run([sys.executable, "-m", "ul2_tasks.train_vocabulary", path], check=True, capture_output=True, text=True)
    assert f"wrote {path}" in done.stdout
    return path


def pieces(path):
    return sentencepiece_model_pb2.ModelProto.FromString(path.read_bytes()).pieces


def test_the_script_reproduces_the_shipped_vocabulary_or_says_what_differs(trained):
    """Another Python has other documentation; another sentencepiece may train otherwise. With both the same, so are the bytes."""
    here = json.loads(trained.with_suffix(".json").read_text())
    different = sorted(key for key in ("corpus_sha256", "sentencepiece") if here[key] != SHIPPED[key])
    if different:
        assert trained.read_bytes() != DEFAULT_MODEL.read_bytes()
        pytest.skip(f"this Python {here['python']} differs from the one that trained the vocabulary in {different}")
    assert trained.read_bytes() == DEFAULT_MODEL.read_bytes()


def test_whatever_the_text_the_special_ids_are_the_same(trained):
    again, shipped = pieces(trained), pieces(DEFAULT_MODEL)
    assert len(again) == len(shipped) == 4096
    text = 3 + 256 + 3 + 256  # pad, EOS, unknown; sentinels; modes; bytes
    assert [(piece.piece, piece.type) for piece in again[:text]] == [(piece.piece, piece.type) for piece in shipped[:text]]
    assert len(special_tokens(seqio.SentencePieceVocabulary(str(trained)), "[S]").sentinels) == 256


def test_training_twice_gives_the_same_bytes(trained):
    assert train_vocabulary.train() == trained.read_bytes()


def test_the_command_asks_for_its_output():
    done = subprocess.run([sys.executable, "-m", "ul2_tasks.train_vocabulary"], capture_output=True, text=True)
    assert done.returncode != 0
    assert "usage: python -m ul2_tasks.train_vocabulary OUTPUT.model" in done.stderr
