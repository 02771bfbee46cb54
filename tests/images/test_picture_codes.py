"""Pictures as codes: runs of reserved ids that every denoiser keeps whole, or that S asks for; packed, and in a t5x batch."""

import json

import numpy as np
import pytest
import seqio
from picture_support import S
from support import restore

import ul2_tasks
from ul2_tasks import T5GEMMA2, CodeRun, EncDecFeatureConverter
from ul2_tasks.images.elements import Picture, Text
from ul2_tasks.images.interleaved import interleaved
from ul2_tasks.vocabulary.special_ids import special_tokens

# ByT5's ids, the modes, the marks and 64 codes, and sentinels.
MODES = {"[R]": 259, "[S]": 260, "[X]": 261}
RUN = CodeRun(start=262, end=263, first=264, codes=64)
SENTINELS = list(range(427, 327, -1))
VOCABULARY = seqio.ByteVocabulary(extra_ids=169)
SPECIAL = {"picture": RUN, "sentinels": SENTINELS, "modes": MODES}
RECORDS = [
    {"texts": [f"Picture {n} has many things: ", "Here is another one, of what comes next:"], "images": [[n, 63, 0, 7], [5, n]]}
    for n in range(30)
]
LENGTHS = {"inputs": 128, "targets": 128}


def run(codes) -> list[int]:
    return [RUN.start, *(RUN.first + code for code in codes), RUN.end]


def whole(record) -> list[int]:
    return [id for text, codes in zip(record["texts"], record["images"]) for id in (*VOCABULARY.encode(text), *run(codes))]


def registered(name, records=RECORDS, **settings) -> str:
    return ul2_tasks.register_pictures(name, records, VOCABULARY, **{**SPECIAL, **settings})


def read(name, **settings) -> list[dict]:
    dataset = seqio.get_mixture_or_task(name).get_dataset(LENGTHS, **{"seed": 0, "shuffle": False, "num_epochs": 1, **settings})
    return [{key: value.tolist() for key, value in one.items()} for one in dataset.as_numpy_iterator()]


def runs_in(ids) -> list[list[int]]:
    starts = [place for place, id in enumerate(ids) if id == RUN.start]
    return [ids[start : ids.index(RUN.end, start) + 1] for start in starts]


def test_a_denoiser_keeps_the_codes_whole():
    """What denoisers do to texts between runs, tests/denoising/test_pieces.py says."""
    denoiser, name = T5GEMMA2[1], "codes_whole"
    registered(name, RECORDS[:3], denoisers=denoiser)
    special = special_tokens(VOCABULARY, denoiser.mode, SENTINELS, MODES)
    for example, record in zip(read(f"{name}_mix"), RECORDS):
        assert example.keys() == {"inputs", "targets"}
        assert restore(example, denoiser, special) == whole(record)
        assert runs_in(example["inputs"]) == [run(codes) for codes in record["images"]]
        assert not {*RUN.ids} & {*example["targets"]}


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
    with pytest.raises(ValueError, match="expected"):
        interleaved([Text("a"), Picture(np.array(codes, "<i4").tobytes(), "vit")], list, RUN)


@pytest.mark.parametrize(
    "settings", [{"start": 300}, {"start": 263}, {"codes": 0}, {"around": None}], ids=["within", "same", "none", "around"]
)
def test_runs_that_cannot_be_are_refused(settings):
    with pytest.raises(ValueError, match="expected"):
        CodeRun(**{"start": 262, "end": 263, "first": 264, "codes": 64, **settings})
