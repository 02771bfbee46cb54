"""One view of an example of any kind: what training reads, each token in its place, and nothing in a text is a command."""

import dataclasses
import io
import itertools
import json
import re

import numpy as np
import pytest
from rich.console import Console

import ul2_tasks
from tests.images.image_support import NOISE, SPECIAL, VOCABULARY, image, record_of
from tests.support import restore
from ul2_tasks import T5GEMMA2, CausalDenoiser, Chat, ImageText, Mix, Mixture, SequentialDenoiser
from ul2_tasks.chat.harmony import MARKERS, HarmonyRenderer
from ul2_tasks.denoisers.reconstruction import invert
from ul2_tasks.inspect.find import find, print_found
from ul2_tasks.inspect.printing import visible
from ul2_tasks.inspect.run import Run, stores
from ul2_tasks.inspect.show import print_shown, show
from ul2_tasks.inspect.view import locations_of, view, views
from ul2_tasks.mixtures.mixture import described_tasks
from ul2_tasks.sources.memory import MemoryDataSource

SHORT, PAIRS = {"inputs": 64, "targets": 64}, {"inputs": 256, "targets": 256}
TEXTS = [f"the document of number {number} has {number % 7} words more" + " more" * (number % 7) for number in range(90)]
RECORDS = [
    record_of([f"Image {n} of a cat that sits: ", image(n), "It sleeps.", *([NOISE, "Noise."] if n % 2 else [])]) for n in range(20)
]
HOSTILE = (
    "A text in [bold]brackets[/bold] [/] :smile: with \x1b[31mescapes\x07 and\ttabs,\r\nline\nends\u2028of all kinds and a"
    " \u202eturn. 日本語の文章です。我能吞下玻璃而不伤身体。 나는 유리를 먹을 수 있어요. أنا قادر على أكل الزجاج 👨‍👩‍👧‍👦🇨🇿👍🏽"
)


def in_memory(*texts) -> MemoryDataSource:
    return MemoryDataSource(lambda: texts, validation=0)


def all_kinds() -> Mix:
    """A mixture of texts, conversations, and what has images."""
    vocabulary = ul2_tasks.open_renderer("harmony:default").vocabulary
    tokens = ul2_tasks.ImageTokens(boi_id=203, image_id=204, eoi_id=205, image_seq_length=4)
    settings = {"vocabulary": vocabulary, "denoisers": T5GEMMA2[3:], "sentinels": range(3, 203)}
    images = ImageText("view_seen", RECORDS, image_tokens=tokens, **settings)
    web = Mixture("view_web", in_memory(*[f"text {number} of few words" for number in range(400)]), **settings)
    return Mix("view_all", {web: 1, Chat("view_talks", truncation="drop"): 1, images: 2})


def runs() -> dict[str, Run]:
    text = Mixture("view_text", in_memory(*TEXTS), chunk_tokens=20)
    chat, images = Chat("view_chat", truncation="drop"), ImageText("view_images", RECORDS, VOCABULARY, **SPECIAL)
    found = {
        "text": Run(text, SHORT, seed=1, batch_size=64),
        "chat": Run(chat, {"tokens": 128}, batch_size=8),
        "pairs": Run(chat, PAIRS, batch_size=8),
        "images": Run(images, PAIRS, batch_size=4),
        "all": Run(all_kinds(), PAIRS, batch_size=8, seed=1),
    }
    return found | {f"{key}, packed": dataclasses.replace(found[key], pack=True) for key in ("text", "chat", "pairs")}


RUNS = runs()


def printed(run: Run, width: int = 300, **options) -> str:
    console = Console(file=io.StringIO(), width=width, legacy_windows=False)
    print_shown(run, show(run, **options), console)
    return console.file.getvalue()


@pytest.mark.parametrize("kind", RUNS)
def test_views_are_all_that_training_reads_and_each_token_once(kind):
    run, found = RUNS[kind], RUNS[kind].examples()
    numbers = range(len(found) - 6, len(found) + 6)
    seen = views(found, numbers)
    assert {(each.number, each.segment or 1): each.location for each in seen} == {
        (number, segment): location for number in numbers for segment, location in enumerate(locations_of(found, number), start=1)
    }
    assert [each.task for each in seen] == sorted(each.task for each in seen)
    for each in seen:
        (row,), key = found.epochs().__getitems__([each.number]), [*each.features][-1]
        own = {name: row[f"{name}_segment_ids"] == each.segment if run.pack else slice(None) for name in each.features}
        assert each.ids == {name: row[name][own[name]].tolist() for name in each.features}
        assert {name: sum(part.tokens for part in parts) for name, parts in each.features.items()} == {
            name: each.numbers[name] for name in each.ids
        }
        json.dumps(each.as_plain(), allow_nan=False)
        assert view(found, each.number, each.segment) == each
        parts = each.features[key]
        if "messages" in each.numbers:
            groups = np.where(row["loss_mask"][own[key]], row["span_id"][own[key]], 0)
            assert [group for part in parts for group in [part.group or 0] * part.tokens] == groups.tolist()
            assert each.numbers["messages"], "each is whole messages of its conversation"
        elif "images" in each.numbers:
            sizes = [part.text for parts in each.features.values() for part in parts if part.kind == "image"]
            assert sizes == ["[image {}x{}]".format(*ul2_tasks.images.pixels.size_of(one)) for one in row["images"]]
        else:
            noise = [part for part in parts if part.kind in ("text", "bytes")]
            assert (sum(part.tokens for part in noise), len({part.group for part in noise})) == (
                each.numbers["noise"],
                each.numbers["spans"],
            )


@pytest.mark.parametrize("kind", ["text", "text, packed"])
def test_a_text_is_whole_and_of_the_place_that_it_names(kind):
    found = RUNS[kind].examples()
    _, store = stores(found)["view_text_corpus"]
    tasks = {task.name: task for task in described_tasks(RUNS[kind].mixture)}
    for each in views(found, range(8)):
        chunk = np.concatenate([store.read_tokens(*tokens) for tokens in each.location.tokens])
        task = tasks[each.task]
        assert list(restore(each.ids, task.denoiser, task.special_tokens())) == chunk.tolist()
        assert each.numbers["chunk"] == len(chunk)


def test_of_each_denoiser_as_many_are_shown_as_are_asked_for():
    run = RUNS["text"]
    found = show(run, 2, (3, 4), count=2, denoisers=["x1", "s"])
    assert [each.name for each in found.views] == ["s"] * 2 + ["x1"] * sum(each.name == "x1" for each in found.views)
    assert all(each.number % 4 == 3 and 128 <= each.number < 192 for each in found.views)
    assert {each.name for each in show(RUNS["all"], 1, denoisers=["prompt_completion"]).views} == {"prompt_completion"}
    for mixed in (run, RUNS["all"]):
        with pytest.raises(ValueError, match="denoiser"):
            show(mixed, 1, denoisers=["q"])


def test_a_row_has_segments():
    found = RUNS["chat, packed"].examples()
    assert view(found, 0, 1).segment == 1
    for segment in (None, 0, 99):
        with pytest.raises(IndexError, match="segment"):
            view(found, 0, segment)


BORDERED = (
    T5GEMMA2[1],
    T5GEMMA2[4],
    SequentialDenoiser(name="prefix", noise_density=0.5, split="uniform", sentinel=False),
    CausalDenoiser(),
)
LETTERS = [letter.upper() + letter * (3 * number + 1) for number, letter in enumerate("abcdefghijklmnopqrstuvwxyz")]
BORDERS = {
    "joined": (LETTERS, BORDERED, {}),
    "separated": (LETTERS, BORDERED[:1], {"separate_documents": True}),
    "apart": (LETTERS, BORDERED[:1], {"merge_examples": False}),
    "of one": (["Ab"], BORDERED[3:], {}),
}


@pytest.mark.parametrize("kind", BORDERS)
def test_borders_stand_where_another_document_begins_and_nowhere_else(kind):
    texts, denoisers, settings = BORDERS[kind]
    mixture = Mixture("view_borders", in_memory(*texts), "bytes", denoisers, **settings)
    tasks = {task.name: task for task in described_tasks(mixture)}
    borders = 0
    for each in show(Run(mixture, SHORT, is_beginning=True), count=4).views:
        chunk = invert(each.ids, tasks[each.task].denoiser, tasks[each.task].special_tokens()).chunk
        begins = sum(id - 3 in range(ord("A"), ord("Z") + 1) for id in chunk[1:].tolist())  # of a document its only capital
        found = [
            (before.kind, after.text[:1].isupper())
            for parts in each.features.values()
            for before, after in itertools.pairwise(parts)
            if after.kind == "text" and (before.kind == "border" or after.text[:1].isupper())
        ]
        assert all(is_upper for _, is_upper in found)
        borders += begins
        assert begins == sum(part.kind == "border" for parts in each.features.values() for part in parts)
    assert (borders == 0) == (kind == "apart")


def test_to_look_at_examples_the_first_documents_are_read_alone(tmp_path):
    """The second file is no JSON, and would be an error."""
    record = json.dumps({"text": "A word, and another word. " * 400})
    (tmp_path / "a.jsonl").write_text(f"{record}\n" * 200)
    (tmp_path / "b.jsonl").write_text("no JSON\n")
    run = Run(Mixture("view_first", str(tmp_path / "*.jsonl"), vocabulary="bytes"), SHORT, is_beginning=True)
    assert [each.name for each in show(run).views] == [name for name in ("r1", "r2", "s", "x1", "x2") for _ in range(2)]
    with pytest.raises(ValueError, match=r"b\.jsonl"):
        dataclasses.replace(run, is_beginning=False).examples()


@pytest.mark.parametrize("kind", ["text", "chat"])
def test_only_a_terminal_gets_colours_and_nothing_in_a_text_is_a_command(kind, tmp_path):
    if kind == "text":
        mixture = Mixture("view_odd", in_memory(HOSTILE), "bytes", [T5GEMMA2[4]], merge_examples=False)
        run = Run(mixture, {"inputs": 96, "targets": 96}, is_beginning=True)
    else:
        messages = [{"role": "user", "content": HOSTILE}, {"role": "assistant", "channel": "final", "content": HOSTILE}]
        (tmp_path / "a.jsonl").write_text(json.dumps({"messages": messages}))
        renderer = HarmonyRenderer(ul2_tasks.open_vocabulary("bytes", modes=MARKERS))
        run = Run(Chat("view_odd_chat", str(tmp_path / "a.jsonl"), renderer), {"tokens": None}, is_beginning=True)
    plain = printed(run, 1000, count=8)
    assert not set(plain) & {*map(chr, range(32)), "\x7f", "\u2028", "\u202e"} - {"\n"}
    console = Console(file=io.StringIO(), width=150, force_terminal=True, color_system="256", legacy_windows=False)
    print_shown(run, show(run, count=8), console)
    coloured = console.file.getvalue()
    without = re.sub(r"\x1b\[[\d;]*m", "", coloured)
    assert without == printed(run, 150, count=8)
    assert len(coloured) > len(without)
    for literal in ("[bold]", ":smile:", "\\u001b[31m", "\\u0007", "\\u2028", "\\u202e"):
        assert literal in plain.replace("\n", "")


def test_each_message_has_its_kind_and_its_loss_group(tmp_path):
    messages = [
        {"role": "developer", "content": "You may add."},
        {"role": "user", "content": "2 and 2?"},
        {"role": "assistant", "channel": "analysis", "content": "I add."},
        {"role": "assistant", "channel": "commentary", "recipient": "functions.add", "content": "[2, 2]"},
        {"role": "tool", "name": "functions.add", "channel": "commentary", "recipient": "assistant", "content": "4"},
        {"role": "assistant", "channel": "final", "content": "4.", "weight": 0},
    ]
    (tmp_path / "a.jsonl").write_text(json.dumps({"messages": messages}))
    renderer = HarmonyRenderer(ul2_tasks.open_vocabulary("bytes", modes=MARKERS))
    run = Run(Chat("view_call", str(tmp_path / "a.jsonl"), renderer), {"tokens": None}, is_beginning=True)
    ((parts,),) = (view.features.values() for view in show(run, count=1).views)
    names = [part.text for part in parts if part.kind == "message"]
    texts = [(part.text, part.group) for part in parts if part.kind == "text"]
    assert list(zip(names, texts, strict=True)) == [
        ("developer", ("You may add.", None)),
        ("user", ("2 and 2?", None)),
        ("assistant/analysis", ("I add.", 1)),
        ("assistant/commentary>tool", ("[2, 2]", 3)),
        ("tool/commentary>tool", ("4", None)),
        ("assistant/final", ("4.", None)),
    ]
    assert [part.kind for part in parts[-2:]] == ["stop", "eos"]


def test_characters_that_move_the_cursor_are_symbols():
    assert visible("a\tb\r\nc\rd\x00\u2029\u200f") == "a⇥b⏎\nc\\u000dd\\u0000\\u2029\\u200f"
    same = "👨‍👩‍👧 é e\u0301 \u00a0 [red] אנא 日\u3000本"
    assert visible(same) == same


@pytest.mark.parametrize("kind", ["chat", "pairs", "chat, packed", "all", "images"])
def test_a_document_of_any_kind_is_found_in_the_examples_that_have_it(kind):
    run, found = RUNS[kind], RUNS[kind].examples()
    for each in views(found, range(0, len(found), 7), count=3):
        ((record, _), *_) = each.location.documents
        (document,) = find(run, document=f"{each.corpus}:{record}").documents
        assert not document.problem
        (seen,) = [one for one in document.seen if (one.number, one.segment) == (each.number, each.segment)]
        assert (seen.task, seen.step) == (each.task, run.step_of(each.number))
        if "messages" in each.numbers:
            trained = sum(part.tokens for parts in each.features.values() for part in parts if part.group)
            held = sum(stop - start for start, stop in seen.tokens)
            assert (seen.trained, held) == (trained, sum(map(len, each.ids.values())))


@pytest.mark.parametrize("kind", ["chat", "pairs", "chat, packed", "pairs, packed"])
def test_a_text_of_a_conversation_says_how_much_of_it_is_trained_on(kind):
    for text, is_trained in {"91 = 7 * 13": True, "91 a prime number": False}.items():  # of the assistant, and of the user
        (document,) = find(RUNS[kind], text=text, epochs=3).documents
        assert document.seen
        for seen in document.seen:
            held = sum(stop - start for start, stop in seen.tokens)
            assert held >= 3
            assert seen.trained == held * is_trained


def test_a_record_without_an_example_says_why():
    records = [*RECORDS[:3], record_of([image(1)])]
    images = ImageText("view_skipped", records, VOCABULARY, **SPECIAL, denoisers=T5GEMMA2[0], on_unusable="skip")
    run = Run(images, PAIRS, batch_size=4)
    found = find(run, document="3")
    print_found(run, found, console := Console(file=io.StringIO(), width=300))
    assert "view_skipped_r1" in console.file.getvalue()
    with pytest.raises(ValueError, match="document"):
        find(run, document="4")
