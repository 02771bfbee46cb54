"""Conversations with random access, alone and beside texts: the examples of a step, and the steps that train on a text."""

import dataclasses
import io
import json

import pytest
import seqio
from rich.console import Console

import ul2_tasks
from ul2_tasks import Chat
from ul2_tasks.inspect.find import find
from ul2_tasks.inspect.run import Run, locations_of
from ul2_tasks.inspect.steps import chats_at, fed_at, show_step
from ul2_tasks.inspect.texts.schedule import schedule_of

PAIRS = {"inputs": 512, "targets": 512}


@pytest.fixture(scope="module")
def both() -> str:
    chat = ul2_tasks.register_chat("looked_chat", format="prompt_completion")
    vocabulary = seqio.TaskRegistry.get(chat).output_features["targets"].vocabulary
    texts = ul2_tasks.MemoryDataSource(lambda: [f"text {number} of few words" for number in range(1200)], validation=0)
    return ul2_tasks.mix("looked", {ul2_tasks.register("looked_web", texts, vocabulary=vocabulary): 1, chat: 1})


def runs(both: str) -> list[Run]:
    chat = Chat("looked_alone", truncation="drop")
    alone = [Run(chat, lengths, batch_size=8) for lengths in ({"tokens": 128}, PAIRS)]
    mixed = Run(both, PAIRS, batch_size=8, seed=1)
    return [each for run in (*alone, mixed) for each in (run, dataclasses.replace(run, pack=True))]


def printed(show, *arguments, **settings) -> str:
    console = Console(file=io.StringIO(), width=300, legacy_windows=False)
    show(*arguments, console=console, **settings)
    return console.file.getvalue()


def test_the_conversations_of_a_step_are_the_examples_that_training_reads(both):
    for run in runs(both):
        found, numbers = run.examples(), range(len(run.examples()) // 2, len(run.examples()) + 4)
        chats, texts = chats_at(found, numbers, 1000), fed_at(found, numbers, 1000)
        shown = {(chat.number, chat.segment or 1): chat.location for chat in chats}
        shown |= {(text.sample.number, text.segment or 1): text.location for text in texts}
        assert shown == {
            (number, segment): location
            for number in numbers
            for segment, location in enumerate(locations_of(found, number), start=1)
        }
        assert chats
        for chat in chats:
            assert chat.example.numbers, "each is whole messages of the conversation that its location names"
            epoch, index = found.at(chat.number)
            row, mark_key = epoch[index], list(run.sequence_length)[-1]
            own = row[f"{mark_key}_segment_ids"] == chat.segment if run.pack else slice(None)
            assert chat.example.span_id[-len(row["span_id"][own]) :].tolist() == row["span_id"][own].tolist()


def test_a_step_shows_conversations_message_by_message_beside_texts(both):
    for run in runs(both):
        chats = chats_at(run.examples(), run.numbers(1), 2)
        output, file = printed(show_step, run, 1), io.StringIO()
        for chat in chats:
            assert f"\n{chat.name}: conversation {chat.example.conversation}, {len(chat.example.ids)} tokens: " in output
            assert f"\nepoch {chat.location.epoch} of {chat.location.corpus}, record {chat.example.conversation}" in output
        assert (" = document boundary" in output) == (run.mixture == both)
        show_step(run, 1, console=Console(file=file), as_json=True)
        lines = [line for line in map(json.loads, file.getvalue().splitlines()) if "messages" in line]
        assert [line["number"] for line in lines] == [chat.number for chat in chats]
        for line, chat in zip(lines, chats):
            assert line["location"] == json.loads(json.dumps(dataclasses.asdict(chat.location)))
            assert (line["step"], line["segment"], line["where"]) == (1, chat.segment, chat.where)
            assert sum(message["trained"] for message in line["messages"]) == sum(line["loss_mask"])
    assert "looked_chat" not in printed(show_step, run, 1, denoisers=["s"])


def test_a_text_is_found_in_the_examples_that_have_it_and_says_what_is_trained_on(both):
    for run in runs(both):
        every = chats_at(run.examples(), range(len(run.examples())), 1000)
        task = every[0].task
        number = every[0].example.conversation
        output = printed(find, run, f"{task.corpus.name}:{number}", None)
        chats = [chat for chat in every if chat.example.conversation == number]
        rows = [line.split() for line in output.splitlines() if f" {task.name} " in line]
        assert sorted((int(row[1]), int(row[-2]), int(row[-1])) for row in rows) == sorted(
            (chat.number, len(chat.example.ids), int(chat.example.loss_mask.sum())) for chat in chats
        )
        for text, is_trained in {"91 = 7 * 13": True, "91 a prime number": False}.items():  # of the assistant, and of the user
            output = printed(find, run, None, text, epochs=3)
            counts = {tuple(map(int, line.split()[-2:])) for line in output.splitlines() if f" {task.name} " in line}
            ((has, trained),) = counts
            assert has >= 3
            assert trained == has * is_trained


@pytest.mark.parametrize("pack", [False, True])
def test_a_schedule_counts_the_tokens_of_documents_kept_apart_and_not_their_pieces(pack):
    texts = ul2_tasks.MemoryDataSource(lambda: ["many words " * (number % 40 + 1) for number in range(300)], validation=0)
    apart = ul2_tasks.register(f"looked_apart_{pack}", texts, merge_examples=False)
    other = ul2_tasks.register(f"looked_other_{pack}")
    stages = [ul2_tasks.Stage(0, {apart: 1}), ul2_tasks.Stage(30, {apart: 1, other: 1})]
    run = Run(ul2_tasks.mix(f"looked_planned_{pack}", schedule=stages, batch_size=4, steps=90), PAIRS, pack=pack)
    found, rows = run.examples(), schedule_of(run)
    assert [row.stage for row in rows] == [0, 1, 1]
    for row in rows:
        assert row.is_exact
        located = [each for number in range(4 * row.first_step, 4 * row.stop_step) for each in locations_of(found, number)]
        own = [each for each in located if each.corpus == row.corpus]
        assert row.tokens == sum(stop - start for each in own for start, stop in each.tokens)
        corpus = next(each for each in found.numbering.corpora if each.name == row.corpus)
        read = len(own) / corpus.order.examples if corpus.data.unit == "pieces" else row.tokens / corpus.store.tokens
        assert row.epochs[1] - row.epochs[0] == pytest.approx(read)
