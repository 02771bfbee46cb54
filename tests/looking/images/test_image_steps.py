"""Texts with images with random access, alone and beside texts and replies: the examples of a step, and the steps of a record."""

import dataclasses
import io
import json
import re

import numpy as np
import pytest
import seqio
from image_support import NOISE, SENTINELS, SPECIAL, VOCABULARY, image, record_of
from rich.console import Console

import ul2_tasks
from ul2_tasks.denoising.denoisers import T5GEMMA2
from ul2_tasks.images.interleaved import ImageCodes
from ul2_tasks.looking.find import find
from ul2_tasks.looking.run import RUN_RECORD, Run, identities, locations_of, read_record, run_of
from ul2_tasks.looking.steps import FedImages, chats_at, fed_at, show_step

LENGTHS, PAIRS = {"inputs": 64, "targets": 64}, {"inputs": 256, "targets": 256}
CODES = ImageCodes(boi_id=262, eoi_id=263, first_code_id=264, num_codes=8)
RECORDS = [
    record_of([f"Image {n} of a cat that sits: ", image(n), "It sleeps.", *([NOISE, "Noise."] if n % 2 else [])]) for n in range(20)
]
DRAWN = [
    {"texts": [f"This is <b>number</b> {n}: ", "and so on " * (n % 5 + 1)], "images": [[n % 8] * 4, [n % 3, 1] if n % 2 else []]}
    for n in range(30)
]


@pytest.fixture(scope="module")
def photos() -> str:
    settings = {**SPECIAL, "denoisers": T5GEMMA2[::4], "random_access": True}
    return ul2_tasks.register_image_text("stepped_photos", RECORDS, VOCABULARY, **settings)


@pytest.fixture(scope="module")
def codes() -> str:
    settings = {**SPECIAL, "image_tokens": CODES, "sentinels": SENTINELS[:80], "denoisers": T5GEMMA2[::4]}
    return ul2_tasks.register_image_text("stepped_codes", DRAWN, VOCABULARY, random_access=True, **settings)


def all_kinds(of_images: str) -> str:
    """A mixture of texts, replies, and what has images or codes."""
    vocabulary = ul2_tasks.open_renderer("harmony:default").vocabulary
    run = {
        "photos": ul2_tasks.ImageTokens(boi_id=203, image_id=204, eoi_id=205, image_seq_length=4),
        "codes": ImageCodes(boi_id=203, eoi_id=204, first_code_id=205, num_codes=16),
    }[of_images]
    settings = {"vocabulary": vocabulary, "denoisers": T5GEMMA2[3:], "sentinels": range(3, 203), "random_access": True}
    texts = ul2_tasks.MemoryDataSource(lambda: [f"text {number} of few words" for number in range(400)], validation=0)
    web = ul2_tasks.register(f"stepped_web_{of_images}", texts, **settings)
    reply = ul2_tasks.register_chat(f"stepped_talks_{of_images}", format="prompt_completion", truncation="drop", random_access=True)
    source = {"photos": RECORDS, "codes": DRAWN}[of_images]
    seen = ul2_tasks.register_image_text(f"stepped_{of_images}_beside", source, image_tokens=run, **settings)
    return ul2_tasks.mix(f"stepped_all_{of_images}", {web: 1, reply: 1, seen: 2})


@pytest.fixture(scope="module")
def runs(photos, codes) -> list[Run]:
    mixed = {kind: Run(all_kinds(kind), PAIRS, batch_size=8, seed=1) for kind in ("photos", "codes")}
    of_codes = [Run(codes, LENGTHS, batch_size=4), mixed["codes"]]
    packed = [dataclasses.replace(run, pack=True) for run in of_codes]
    return [Run(photos, PAIRS, batch_size=4), mixed["photos"], *of_codes, *packed]


def printed(show, *arguments, **settings) -> str:
    console = Console(file=io.StringIO(), width=300, legacy_windows=False)
    show(*arguments, console=console, **settings)
    return console.file.getvalue()


def test_the_examples_of_steps_are_all_that_training_reads(runs):
    with_images = 0
    for run in runs:
        found, numbers = run.examples(), range(len(run.examples()) // 2, len(run.examples()) + 12)
        fed, chats = fed_at(found, numbers, 1000), chats_at(found, numbers, 1000)
        shown = {(each.sample.number, each.segment or 1): each.location for each in fed}
        shown |= {(chat.number, chat.segment or 1): chat.location for chat in chats}
        assert shown == {
            (number, segment): location
            for number in numbers
            for segment, location in enumerate(locations_of(found, number), start=1)
        }
        with_images += any(isinstance(each, FedImages) for each in fed)
        for each in fed:
            epoch, index = found.at(each.sample.number)
            row = epoch[index]
            for key, ids in each.sample.ids.items():
                own = row[f"{key}_segment_ids"] == each.segment if run.pack else slice(None)
                assert row[key][own].tolist() == ids
                assert sum(stretch.tokens for stretch in getattr(each.sample, key)) == len(ids)
    assert with_images > 2


def test_images_are_told_by_number_size_and_place(runs):
    for run in runs:
        found = run.examples()
        marks = next(m for corpus in found.numbering.corpora for m in corpus.members if hasattr(m, "has_images") and m.denoiser)
        tokens = marks.corpus.image_tokens
        for each in fed_at(found, range(20), 1000):
            if not isinstance(each, FedImages):
                continue
            assert [place.number for place in each.images] == list(range(1, len(each.images) + 1))
            for place in each.images:
                own = each.sample.ids[place.feature][place.start : place.stop]
                assert (own[0], own[-1]) == (tokens.boi_id, tokens.eoi_id)
                assert place.size in ((6, 4), (30, 20)) if place.codes is None else place.size is None
                assert place.codes in (None, len(own) - 2)
            in_all = sum(ids.count(tokens.boi_id) for ids in each.sample.ids.values())
            assert len(each.images) == in_all


def test_a_chunk_of_a_record_says_which_of_its_tokens_it_has(codes):
    """The chunks of a record are all of its tokens, each once, and a text in one of them is found there alone."""
    run = Run(codes, {"inputs": 30, "targets": 40}, batch_size=4)
    found = run.examples()
    fed = fed_at(found, range(len(found)), 1000)
    index = found.numbering.corpora[0].index
    for record in range(index.data.count):
        own = [each for each in fed if each.location.documents == ((record, record + 1),)]
        ranges = sorted(each.location.tokens[0] for each in own)
        assert [start for start, _ in ranges] + [own[0].record[1]] == [own[0].record[0]] + [stop for _, stop in ranges]
        for each in own:
            (start, stop), (first, last) = each.location.tokens[0], each.record
            is_told = f", tokens {start - first} to {stop - first - 1} of its {last - first}" in each.place
            assert is_told == (len(own) > 1)
    long = next(n for n in range(30) if len(set(range(*index.examples_of(n)))) > 1)
    output = printed(find, run, None, f"number</b> {long}:")
    assert f"document {long} of stepped_codes_corpus" in output
    rows = [line for line in output.splitlines() if re.match(r" +0 +\d", line)]
    assert 1 <= len(rows) < len(range(*index.examples_of(long))), "it is in some of the chunks of its record"
    assert len(re.findall(r"^ +0 +\d", printed(find, run, str(long), None), re.MULTILINE)) == len(range(*index.examples_of(long)))


def test_a_step_is_shown_and_printed_as_json(runs):
    for run in runs:
        fed = [each for each in fed_at(run.examples(), run.numbers(1), 2) if isinstance(each, FedImages)]
        output, file = printed(show_step, run, 1), io.StringIO()
        for each in fed:
            assert f"\n{each.name}: {each.sample.counts.chunk} tokens, " in output
            assert f"\n{each.place}\n" in output
            assert f"record {each.location.documents[0][0]}" in each.place
        show_step(run, 1, console=Console(file=file), as_json=True)
        lines = [line for line in map(json.loads, file.getvalue().splitlines()) if "images" in line]
        assert [line["images"] for line in lines] == [json.loads(json.dumps(list(map(vars, each.images)))) for each in fed]
        assert [line["where"] for line in lines] == [each.where for each in fed]
        assert [line["location"]["task"] for line in lines] == [each.sample.task for each in fed]
        only = printed(show_step, run, 1, denoisers=["s"])
        assert "_r1" not in only
        assert "_talks" not in only
    with pytest.raises(ValueError, match="the denoiser must be one of"):
        show_step(run, 1, denoisers=["none"])


def test_hosts_have_their_parts_of_a_step(photos):
    run = Run(photos, PAIRS, batch_size=4)
    own = [[each.sample.number for each in fed_at(run.examples(), run.numbers(2, (host, 2)), 100)] for host in (0, 1)]
    assert sorted(own[0] + own[1]) == list(run.numbers(2))
    assert [[number % 2 for number in each] for each in own] == [[0, 0], [1, 1]]


def test_a_record_is_found_in_each_epoch_under_one_denoiser(photos):
    run = Run(photos, PAIRS, batch_size=4)
    output = printed(find, run, "7", None, epochs=3)
    assert "train, record 7" in output
    rows = [line.split() for line in output.splitlines() if re.match(r" +\d +\d", line)]
    assert [int(row[0]) for row in rows] == [0, 1, 2]
    for epoch, number, step, denoiser, *_ in rows:
        location = run.examples().epoch(int(epoch)).locate(int(number) - 20 * int(epoch))
        assert (location.documents, location.denoiser, int(step)) == (((7, 8),), denoiser, int(number) // 4)


def test_a_record_without_an_example_says_why(codes):
    records = [*RECORDS[:3], record_of([image(1)])]
    settings = {**SPECIAL, "denoisers": T5GEMMA2[0], "random_access": True, "on_unusable": "skip"}
    name = ul2_tasks.register_image_text("stepped_skipped", records, VOCABULARY, **settings)
    run = Run(name, PAIRS, batch_size=4)
    assert "it makes no example with these lengths: stepped_skipped_r1: there is no text" in printed(find, run, "3", None)
    with pytest.raises(ValueError, match="document must be from 0 to 3 in 'stepped_skipped_corpus', got 4"):
        find(run, "4", None)


def test_a_run_of_codes_is_known_by_its_record(codes, tmp_path):
    run = Run(codes, LENGTHS, pack=True, batch_size=4)
    unsaid = {"cache_dirs", "exclude", "skip"}
    own = {field.name: getattr(run, field.name) for field in dataclasses.fields(run) if field.name not in unsaid}
    (tmp_path / RUN_RECORD).write_text(json.dumps({**own, **identities(run), "mixture": run.name}))
    read = read_record(str(tmp_path))
    assert run_of(read) == run
    run.check(read, "folder")


def test_images_cannot_be_packed_and_streams_have_no_steps(photos):
    with pytest.raises(ValueError, match="pack must be False for 'stepped_photos_corpus', whose examples have images"):
        show_step(Run(photos, PAIRS, batch_size=4, pack=True), 0)
    stream = ul2_tasks.register_image_text("stepped_stream", RECORDS, VOCABULARY, **SPECIAL, denoisers=T5GEMMA2[0])
    with pytest.raises(ValueError, match="must have tasks with random access alone"):
        show_step(Run(stream, PAIRS, batch_size=4), 0)


def test_a_cache_is_shown_as_its_records_are(codes, tmp_path, monkeypatch):
    from ul2_tasks.corpus.build_cache import build

    before = fed_at(Run(codes, LENGTHS).examples(), range(9), 9)
    monkeypatch.setattr(seqio.utils, "_GLOBAL_CACHE_DIRECTORIES", [str(tmp_path)])
    build("stepped_codes_corpus", str(tmp_path), console=Console(quiet=True))
    cached = fed_at(Run(codes, LENGTHS).examples(), range(9), 9)
    assert [each.sample.ids for each in cached] == [each.sample.ids for each in before]
    assert all(each.where.startswith(f"record {each.location.documents[0][0]} of the cache, number ") for each in cached)


def test_numpy_integers_are_numbers_of_examples(codes):
    found = Run(codes, LENGTHS).examples()
    assert [each.sample for each in fed_at(found, np.arange(4), 9)] == [each.sample for each in fed_at(found, range(4), 9)]
