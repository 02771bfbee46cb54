"""Ids as text for people: wherever a span begins or ends, its text is exact, and half a character is its bytes."""

import functools
import itertools
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import mistral_model
from tests.tokenizers.test_hugging_face_vocabulary import TEXTS, byte_fallback, byte_level, unigram
from ul2_tasks.inspect.readable import Stretch, stretches
from ul2_tasks.tokenizers.by_name import open_vocabulary
from ul2_tasks.tokenizers.special_ids import SpecialTokens, special_tokens

TOKENIZERS = {"byte_level": byte_level, "byte_fallback": byte_fallback, "unigram": unigram}
VOCABULARIES = ("default", "bytes", "mistral", *TOKENIZERS)
SCRIPTS = "aé ß▁ñ\n\t日本語나는мя👨‍👩🇨🇿👍🏽\ufffdאע\0<0xE6>"
texts = st.sampled_from(list(TEXTS.values())) | st.text(SCRIPTS) | st.text()


@functools.cache
def tokenizer(name: str) -> str:
    return TOKENIZERS[name]().to_str()


@pytest.fixture(scope="module", params=VOCABULARIES)
def vocabulary(request, tmp_path_factory):
    if request.param == "mistral":
        return open_vocabulary(mistral_model())
    if request.param not in TOKENIZERS:
        return open_vocabulary(request.param)
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "tokenizer.json").write_text(tokenizer(request.param), encoding="utf-8")
    eos = "<|endoftext|>" if request.param == "byte_level" else "</s>"
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": eos}))
    return open_vocabulary(str(folder))


def parted(ids, cuts, special: SpecialTokens) -> list[int]:
    """The ids with a sentinel at each of the cuts, and EOS."""
    for number, cut in reversed(list(enumerate(sorted(cuts)))):
        ids = [*ids[:cut], special.sentinels[number], *ids[cut:]]
    return [*ids, special.eos]


def restored(parts: list[Stretch]) -> bytes:
    """The bytes of the text, of which no part may be missing, doubled or guessed."""
    data = b""
    for part in parts:
        if part.kind == "bytes":
            assert re.fullmatch("(<0x[0-9A-F]{2}>)+", part.text)
            data += bytes.fromhex(re.sub("[<>]|0x", "", part.text))
        elif part.kind == "text":
            assert part.text
            data += part.text.encode()
    return data


@given(data=st.data(), text=texts)
def test_cut_anywhere_the_parts_are_the_text(data, text, vocabulary):
    special = special_tokens(vocabulary, "[R]")
    ids = vocabulary.encode(text)
    cuts = data.draw(st.sets(st.integers(0, len(ids)), max_size=9))
    for feature, start in (("inputs", special.mode), ("targets", ())):
        whole = [*start, *parted(ids, cuts, special)]
        parts = stretches(vocabulary, whole, special, feature)
        decoded = vocabulary.decode(ids)
        assert restored(parts).decode() in (decoded, " " + decoded)
        assert sum(part.tokens for part in parts) == len(whole)
        assert sum(part.text.count("\ufffd") for part in parts) <= decoded.count("\ufffd"), "one that the text has may be cut"
        assert [part.group for part in parts if part.kind == "sentinel"] == list(range(len(cuts)))
        kinds = [part.kind for part in parts]
        assert not any(a == b for a, b in itertools.pairwise(kinds) if a in ("text", "bytes")), "in as few parts as there can be"


def test_a_token_with_a_character_and_a_part_of_another_counts_where_it_begins(tmp_path):
    (tmp_path / "tokenizer.json").write_text(tokenizer("byte_level"), encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|endoftext|>"}))
    vocabulary = open_vocabulary(str(tmp_path))
    special = special_tokens(vocabulary, None)
    mixed = vocabulary.piece_id("Ġæ")
    assert vocabulary.decode([mixed]) == " \ufffd"
    parts = stretches(vocabulary, [special.sentinels[0], mixed, special.eos], special, "targets")
    assert parts[1:3] == [Stretch(" ", "text", 0, 1), Stretch("<0xE6>", "bytes", 0, 0)]
