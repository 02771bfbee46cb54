"""Texts with images with random access, alone and beside texts and replies: the examples of a step, and the steps of a record."""

import io
import json
import re

import pytest
from image_support import NOISE, SPECIAL, VOCABULARY, image, record_of
from rich.console import Console

import ul2_tasks
from ul2_tasks.denoisers.denoisers import T5GEMMA2
from ul2_tasks.inspect.find import find
from ul2_tasks.inspect.run import Run, locations_of
from ul2_tasks.inspect.steps import FedImages, chats_at, fed_at, show_step

PAIRS = {"inputs": 256, "targets": 256}
RECORDS = [
    record_of([f"Image {n} of a cat that sits: ", image(n), "It sleeps.", *([NOISE, "Noise."] if n % 2 else [])]) for n in range(20)
]


@pytest.fixture(scope="module")
def photos() -> str:
    settings = {**SPECIAL, "denoisers": T5GEMMA2[::4]}
    return ul2_tasks.register_image_text("stepped_photos", RECORDS, VOCABULARY, **settings)


def all_kinds() -> str:
    """A mixture of texts, replies, and what has images."""
    vocabulary = ul2_tasks.open_renderer("harmony:default").vocabulary
    run = ul2_tasks.ImageTokens(boi_id=203, image_id=204, eoi_id=205, image_seq_length=4)
    settings = {"vocabulary": vocabulary, "denoisers": T5GEMMA2[3:], "sentinels": range(3, 203)}
    texts = ul2_tasks.MemoryDataSource(lambda: [f"text {number} of few words" for number in range(400)], validation=0)
    web = ul2_tasks.register("stepped_web", texts, **settings)
    reply = ul2_tasks.register_chat("stepped_talks", format="prompt_completion", truncation="drop")
    seen = ul2_tasks.register_image_text("stepped_beside", RECORDS, image_tokens=run, **settings)
    return ul2_tasks.mix("stepped_all", {web: 1, reply: 1, seen: 2})


@pytest.fixture(scope="module")
def runs(photos) -> list[Run]:
    return [Run(photos, PAIRS, batch_size=4), Run(all_kinds(), PAIRS, batch_size=8, seed=1)]


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
                assert row[key].tolist() == ids
                assert sum(stretch.tokens for stretch in getattr(each.sample, key)) == len(ids)
    assert with_images == len(runs)


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


def test_a_record_is_found_in_each_epoch_under_one_denoiser(photos):
    run = Run(photos, PAIRS, batch_size=4)
    output = printed(find, run, "7", None, epochs=3)
    assert "train, record 7" in output
    rows = [line.split() for line in output.splitlines() if re.match(r" +\d +\d", line)]
    assert [int(row[0]) for row in rows] == [0, 1, 2]
    for epoch, number, step, denoiser, *_ in rows:
        location = run.examples().epoch(int(epoch)).locate(int(number) - 20 * int(epoch))
        assert (location.documents, location.denoiser, int(step)) == (((7, 8),), denoiser, int(number) // 4)


def test_a_record_without_an_example_says_why():
    records = [*RECORDS[:3], record_of([image(1)])]
    settings = {**SPECIAL, "denoisers": T5GEMMA2[0], "on_unusable": "skip"}
    name = ul2_tasks.register_image_text("stepped_skipped", records, VOCABULARY, **settings)
    run = Run(name, PAIRS, batch_size=4)
    assert "it makes no example with these lengths: stepped_skipped_r1: there is no text" in printed(find, run, "3", None)
    with pytest.raises(ValueError, match="document must be from 0 to 3 in 'stepped_skipped_corpus', got 4"):
        find(run, "4", None)


def test_images_cannot_be_packed(photos):
    with pytest.raises(ValueError, match="pack must be False for 'stepped_photos_corpus', whose examples have images"):
        show_step(Run(photos, PAIRS, batch_size=4, pack=True), 0)
