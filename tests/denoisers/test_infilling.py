"""In-filling is the published algorithm, with the draws of a key, and lossless."""

import collections
import dataclasses
import json

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

import ul2_tasks
from ul2_tasks import FIM_TOKENS, FIMDenoiser
from ul2_tasks.denoisers.reconstruction import invert
from ul2_tasks.order.permutation import GOLDEN, mix
from ul2_tasks.sources.memory import MemoryDataSource
from ul2_tasks.tokenizers.borders import border_table
from ul2_tasks.tokenizers.special_ids import special_tokens
from ul2_tasks.tokenizers.text_bytes import text_bytes

MARKS = ("<extra_id_0>", "<extra_id_1>", "<extra_id_2>")
VOCABULARY = ul2_tasks.default_vocabulary()
PRE, SUF, MID = map(VOCABULARY.piece_id, MARKS)
EOS = VOCABULARY.eos_id


def drawn(key: int, number: int, below: int) -> int:
    own = np.array([~np.uint64(key)])
    with np.errstate(over="ignore"):
        return int(mix(mix(own) + np.uint64(number) * np.uint64(GOLDEN))[0] >> np.uint64(32)) * below >> 32


def published(document: list[int], key: int, rate: float, spm_rate: float) -> tuple[list[int], int]:
    """Bavarian and others, 2022, section 3 and appendix D, as it is released with StarCoder; and where the middle begins."""
    if drawn(key, 1, 1 << 32) >= rate * 2**32:
        return [*document, EOS], 1
    one, two = sorted(drawn(key, number, len(document) + 1) for number in (3, 4))
    prefix, middle, suffix = document[:one], document[one:two], document[two:]
    if drawn(key, 2, 1 << 32) < spm_rate * 2**32:
        return [PRE, SUF, *suffix, MID, *prefix, *middle, EOS], 3 + len(prefix) + len(suffix)
    return [PRE, *prefix, SUF, *suffix, MID, *middle, EOS], 3 + len(prefix) + len(suffix)


@pytest.mark.parametrize("loss", ["all", "middle"])
def test_a_thousand_documents_are_filled_in_as_it_is_published(loss):
    generator = np.random.default_rng(0)
    denoiser = FIMDenoiser(tokens=MARKS, loss=loss, rate=0.7, spm_rate=0.4)
    special, orders = special_tokens(VOCABULARY, None, own=MARKS), collections.Counter()
    for length in generator.integers(1, 60, 1000).tolist():
        document, key = generator.integers(600, 3000, length).tolist(), int(generator.integers(1 << 62))
        example = ul2_tasks.denoise(document, denoiser, key, vocabulary=VOCABULARY)
        inputs, targets = (example[feature].tolist() for feature in ("inputs", "targets"))
        sequence, middle = published(document, key, 0.7, 0.4)
        assert inputs + targets == sequence
        assert len(inputs) == (middle if loss == "middle" else 1)
        assert invert(example, denoiser, special).chunk.tolist() == document
        orders[PRE in sequence, sequence[:2] == [PRE, SUF]] += 1
    assert 640 < orders[True, False] + orders[True, True] < 760
    assert 220 < orders[True, True] < 340  # 280, and where the prefix is empty


@pytest.mark.parametrize("borders", ["words", "lines", "sentences", "characters"])
def test_a_loss_on_the_middle_alone_is_of_the_same_sequence_whatever_the_borders(borders):
    """Of each document once, also packed: what a row has is no longer than it was taken to be."""
    found = {}
    for loss in ("all", "middle"):
        denoiser = FIMDenoiser(tokens=MARKS, rate=0.9, borders=borders, loss=loss, keep_first=2)
        mixture = ul2_tasks.Mixture("cut", denoisers=[denoiser], merge_examples=False)
        lengths = {"inputs": 300, "targets": 300}
        found[loss] = ul2_tasks.examples(mixture, lengths, shuffle=False)
        rows = ul2_tasks.examples(mixture, lengths, shuffle=False, pack=True)
        of_rows = sorted(ids for row in rows for ids in parts_of(row))
        assert of_rows == sorted((*each["inputs"].tolist(), -1, *each["targets"].tolist()) for each in found[loss])
    filled = 0
    of_all = {(*each["inputs"].tolist(), *each["targets"].tolist()) for each in found["all"]}
    for each in found["middle"]:
        sequence = (*each["inputs"].tolist(), *each["targets"].tolist())
        filled += MID in sequence
        assert MID not in each["targets"]
        assert sequence in of_all or len(sequence) > 250, "long documents are cut into other pieces"
    assert filled > 300


def parts_of(row) -> list[tuple[int, ...]]:
    """The examples of a packed row, each with -1 between its inputs and its targets."""
    of = {key: row[f"{key}_segment_ids"] for key in ("inputs", "targets")}
    numbers = range(1, of["targets"].max() + 1)
    return [(*row["inputs"][of["inputs"] == n].tolist(), -1, *row["targets"][of["targets"] == n].tolist()) for n in numbers]


@pytest.mark.parametrize("loss", ["all", "middle"])
def test_a_thousand_documents_are_cut_at_characters(loss):
    """Where a half of a token is no token the cut is at the nearest character where both are; the halves are the text's."""
    denoiser = FIMDenoiser(tokens=MARKS, rate=1, borders="characters", loss=loss)
    special, spelled = special_tokens(VOCABULARY, None, own=MARKS), text_bytes(VOCABULARY, range(260, VOCABULARY.vocab_size))
    special, pieces = dataclasses.replace(special, borders=border_table(VOCABULARY, "characters")), {*spelled.values()}
    generator, within = np.random.default_rng(0), 0
    for length in generator.integers(1, 60, 1000).tolist():
        document, key = generator.integers(600, 3000, length).tolist(), int(generator.integers(1 << 62))
        example = ul2_tasks.denoise(document, denoiser, key, vocabulary=VOCABULARY)
        sequence = [*example["inputs"].tolist(), *example["targets"].tolist()]
        assert invert(example, denoiser, special).chunk.tolist() == document
        if PRE not in sequence:
            continue
        tokens = [spelled[id].decode() for id in document]
        expected, is_spm = [], drawn(key, 2, 1 << 32) < 2**31
        for character in sorted(drawn(key, number, sum(map(len, tokens)) + 1) for number in (3, 4)):
            before = next((n for n in range(length) if sum(map(len, tokens[: n + 1])) > character), length)
            start, token = sum(map(len, tokens[:before])), (*tokens, "")[before]
            halves = ((at, token[:at].encode() in pieces and token[at:].encode() in pieces) for at in range(1, len(token)))
            may = [0, *(at for at, are_both in halves if are_both), len(token)]
            expected.append((start, token, start + min(may, key=lambda at: (abs(at - (character - start)), at))))
        (start, token, one), (other_start, _, other) = expected
        if is_spm:  # which does not mark the first cut
            one = start if one < start + len(token) else one
        elif start == other_start and start < one < other:
            other = start + len(token)
        text = "".join(tokens)
        parts = [text[one:other], text[other:]] if not is_spm else [text[:other], text[other:]]
        suffix, middle = sequence.index(SUF), sequence.index(MID)
        if loss == "middle":  # after the prefix of SPM, which ends where the first cut is
            of_prefix = next(n for n in range(length + 1) if sum(map(len, tokens[:n])) == one) if is_spm else 0
            assert len(example["inputs"]) == middle + 1 + of_prefix
        found = ["".join(spelled[id].decode() for id in ids) for ids in (sequence[middle + 1 : -1], sequence[suffix + 1 : middle])]
        assert found == parts
        within += len(sequence) > length + 4
    assert within > 400


@pytest.mark.parametrize(
    ("argument", "value"),
    [("tokens", "gpt"), ("tokens", ("a", "b")), ("rate", 1.5), ("loss", "suffix"), ("keep_first", -1), ("borders", "a")],
)
def test_what_is_wrong_is_said(argument, value):
    with pytest.raises(ValueError, match=f"{argument} must be"):
        FIMDenoiser(**{argument: value})


@pytest.mark.parametrize("model", FIM_TOKENS)
def test_a_models_own_tokens_are_found_and_no_text_becomes_one(model, tmp_path):
    """They are added tokens, which text is encoded to, and which a configuration may name."""
    marks = FIM_TOKENS[model]
    tokenizer = Tokenizer(models.BPE({letter: id for id, letter in enumerate(pre_tokenizers.ByteLevel.alphabet())}, []))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer.add_special_tokens(["</s>"])
    tokenizer.add_tokens([*marks])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>", "prefix_token": marks[0]}))
    texts = [f"{number} {marks[0]} {'a' * number}" for number in range(40)]
    denoisers = [FIMDenoiser(tokens=model, rate=1, spm_rate=0)]
    mixture = ul2_tasks.Mixture(
        "own", MemoryDataSource(lambda: texts, validation=0), str(tmp_path), denoisers, merge_examples=False
    )
    ids = [tokenizer.token_to_id(mark) for mark in (*marks[:3], marks[3] if marks[3:] else "</s>")]
    found = []
    for example in ul2_tasks.examples(mixture, {"inputs": 64, "targets": 128}):
        sequence = [*example["inputs"].tolist(), *example["targets"].tolist()]
        assert [id for id in sequence if id > 255] == ids
        assert (sequence[0], sequence[-1]) == (ids[0], ids[3])
        prefix, suffix, middle, end = (sequence.index(id) for id in ids)
        parts = (prefix, suffix), (middle, end), (suffix, middle)
        found.append(mixture.vocabulary.decode([id for start, stop in parts for id in sequence[start + 1 : stop]]))
    assert sorted(found) == sorted(texts)


def test_numbers_of_numpy_are_as_plain_ones():
    own = FIMDenoiser(tokens=(np.int64(PRE), np.int32(SUF), MID), keep_first=np.int64(2), rate=np.float64(0.25))
    assert own == FIMDenoiser(tokens=(PRE, SUF, MID), keep_first=2, rate=0.25)
    assert json.loads(json.dumps(own.described)) == own.described
