"""Images as codes: runs of reserved ids, joined, that every denoiser keeps whole, or that S asks for; packed."""

import json
import logging

import numpy as np
import pytest
import seqio
import tensorflow as tf
from image_support import S
from support import flat, restore_all

import ul2_tasks
from ul2_tasks import T5GEMMA2, EncDecFeatureConverter, ImageCodes, SequentialDenoiser
from ul2_tasks.images.elements import Image, Text
from ul2_tasks.images.interleaved import interleaved
from ul2_tasks.vocabulary.special_ids import special_tokens

# ByT5's ids, the modes, the marks and 64 codes, and sentinels.
MODES = {"[R]": 259, "[S]": 260, "[X]": 261}
RUN = ImageCodes(boi_id=262, eoi_id=263, first_code_id=264, num_codes=64)
SENTINELS = list(range(427, 327, -1))
VOCABULARY = seqio.ByteVocabulary(extra_ids=169)
SPECIAL = {"image_tokens": RUN, "sentinels": SENTINELS, "modes": MODES}
RECORDS = [
    {"texts": [f"Image {n} has many things: ", "Here is another one, of what comes next:"], "images": [[n, 63, 0, 7], [5, n]]}
    for n in range(12)
]
LENGTHS = {"inputs": 128, "targets": 128}


def run(codes) -> list[int]:
    return [RUN.boi_id, *(RUN.first_code_id + code for code in codes), RUN.eoi_id]


def whole(record) -> list[int]:
    return [id for text, codes in zip(record["texts"], record["images"]) for id in (*VOCABULARY.encode(text), *run(codes))]


def registered(name, records=RECORDS, **settings) -> str:
    return ul2_tasks.register_image_text(name, records, VOCABULARY, **{**SPECIAL, **settings})


def read(name, lengths=LENGTHS, **settings) -> list[dict]:
    dataset = seqio.get_mixture_or_task(name).get_dataset(lengths, **{"seed": 0, "shuffle": False, "num_epochs": 1, **settings})
    return [{key: value.tolist() for key, value in one.items()} for one in dataset.as_numpy_iterator()]


def runs_in(ids) -> list[list[int]]:
    starts = [place for place, id in enumerate(ids) if id == RUN.boi_id]
    return [ids[start : ids.index(RUN.eoi_id, start) + 1] for start in starts]


@pytest.mark.parametrize("denoiser", [T5GEMMA2[1], S], ids=["r2", "s"])
def test_records_are_joined_and_a_denoiser_keeps_the_codes_whole(denoiser):
    """Where chunks are cut, tests/denoising/test_joined_pieces.py says; what becomes of their texts, test_pieces.py there."""
    name = f"codes_whole_{denoiser.name}"
    registered(name, denoisers=denoiser)
    special = special_tokens(VOCABULARY, denoiser.mode, SENTINELS, MODES)
    examples = read(f"{name}_mix")
    stream = flat(map(whole, RECORDS))
    assert restore_all(examples, denoiser, special) == stream
    assert flat(runs_in(example["inputs"]) for example in examples) == runs_in(stream)
    for example in examples:
        assert example.keys() == {"inputs", "targets"}
        assert all(len(example[key]) <= LENGTHS[key] for key in example)
        assert not {*RUN.ids} & {*example["targets"]}


def test_an_example_of_joined_records():
    """Half of each text is noise. The chunk that could be "abcd", codes, "efgh" gives the codes that come after it the "h"."""
    half = SequentialDenoiser(name="half", mode="[S]", noise_density=0.5)
    records = [{"texts": ["abcd", "ef"], "images": [[1, 2], []]}, {"texts": ["gh"], "images": [[3]]}]
    registered("joined_codes", records, denoisers=half)
    a, b, c, d, e, f, g, h = VOCABULARY.encode("abcdefgh")
    first, second = SENTINELS[:2]
    assert read("joined_codes_half", lengths={"inputs": 12, "targets": 12}) == [
        {"inputs": [260, a, b, first, *run([1, 2]), e, second, 1], "targets": [first, c, d, second, f, g, 1]},
        {"inputs": [260, first, *run([3]), 1], "targets": [first, h, 1]},
    ]


def test_an_image_that_is_longer_than_a_chunk_is_refused_with_its_record(caplog):
    long = {"texts": ["A long one:"], "images": [[1] * 130]}
    registered("long_codes", [*RECORDS[:2], long], denoisers=S)
    message = "long_codes_s: a record makes no example: an image is longer than a chunk, 132 tokens.* begins with 'A long one:'"
    with pytest.raises(tf.errors.OpError, match=message):
        read("long_codes_s")
    registered("long_codes_skipped", [*RECORDS[:2], long], denoisers=S, on_unusable="skip")
    with caplog.at_level(logging.WARNING):
        examples = read("long_codes_skipped_s")
    assert "1 records until now make no example, because an image is longer than a chunk" in caplog.text
    assert flat(runs_in(one["inputs"]) for one in examples) == flat(runs_in(whole(record)) for record in RECORDS[:2])


def test_s_asks_for_the_codes_of_a_file(tmp_path):
    path = tmp_path / "codes.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in RECORDS[:3]))
    registered("asked", str(path), denoisers=S, split="before_last_image")
    for example, record in zip(read("asked_mix"), RECORDS):
        last = run(record["images"][-1])
        assert example["inputs"] == [260, *whole(record)[: -len(last)], SENTINELS[0], 1]
        assert example["targets"] == [SENTINELS[0], *last, 1]


def test_codes_are_packed_whole_and_mixed_with_texts():
    registered("packed", denoisers=S)
    dataset = seqio.get_dataset("packed_mix", LENGTHS, feature_converter=EncDecFeatureConverter(pack=True), num_epochs=1, seed=0)
    found = [one for row in dataset.as_numpy_iterator() for one in runs_in(row["encoder_input_tokens"].tolist())]
    assert sorted(found) == sorted(run(codes) for record in RECORDS for codes in record["images"])
    texts = ul2_tasks.register("packed_texts", vocabulary=VOCABULARY, denoisers=S, sentinels=SENTINELS, modes=MODES)
    mixture = seqio.get_mixture_or_task(ul2_tasks.mix("packed_both", {"packed_mix": 1, texts: 1}))
    assert mixture.output_features.keys() == {"inputs", "targets"}


@pytest.mark.parametrize("codes", [[64], [-1], []], ids=str)
def test_codes_out_of_range_are_refused(codes):
    with pytest.raises(ValueError, match="must be"):
        interleaved([Text("a"), Image(np.array(codes, "<i4").tobytes(), "vit")], list, RUN)


@pytest.mark.parametrize(
    "settings", [{"boi_id": 300}, {"boi_id": 263}, {"num_codes": 0}, {"around": None}], ids=["within", "same", "none", "around"]
)
def test_runs_that_cannot_be_are_refused(settings):
    with pytest.raises(ValueError, match="must be"):
        ImageCodes(**{"boi_id": 262, "eoi_id": 263, "first_code_id": 264, "num_codes": 64, **settings})
