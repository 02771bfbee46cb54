"""Exports of conversations and images, alone and mixed: as training reads them, in each format."""

import functools
import io
import itertools
import json
import os
import pathlib

import numpy as np
import pytest
import seqio
from rich.console import Console
from test_command_line import ul2

import ul2_tasks
from ul2_tasks.cli.registration import Registration
from ul2_tasks.example_features import TEXT
from ul2_tasks.export.folder import read_examples, read_manifest
from ul2_tasks.export.formats import FORMATS
from ul2_tasks.export.write import write_examples
from ul2_tasks.jobs.manifest import write_manifest
from ul2_tasks.sources.memory import MemoryDataSource

pytest.importorskip("PIL", reason="the extra images is not installed")

QUIET = Console(quiet=True)
PAIRS, CHAT = {"inputs": 512, "targets": 512}, {"tokens": 512}
VOCABULARY = ul2_tasks.open_renderer("harmony:default").vocabulary
OBJECTIVE = {"vocabulary": VOCABULARY, "denoisers": ul2_tasks.T5GEMMA2[3:], "sentinels": range(3, 203)}
RUN = ul2_tasks.ImageTokens(boi_id=203, image_id=204, eoi_id=205, image_seq_length=4)
TALKS = [
    [
        {"role": "user", "content": f"What is {number} and 2?"},
        {"role": "assistant", "content": "Let me think.", "channel": "analysis", "weight": number % 2},
        {"role": "assistant", "content": f"{number + 2}.", "channel": "final"},
    ]
    for number in range(40)
]


def texts():
    return [f"text {number} of few words, which are about nothing" for number in range(300)]


def registered(kind: str) -> str:
    """The mixture or task of a kind of data, or of two."""
    name = f"kinds_{kind}"
    if kind in ("chat", "reply"):
        format = {"chat": "chat", "reply": "prompt_completion"}[kind]
        return ul2_tasks.register_chat("kinds_talks", talks(), format=format)
    if kind == "texts":
        return ul2_tasks.register(name, MemoryDataSource(texts, validation=0), **OBJECTIVE)
    if kind == "images":
        return ul2_tasks.register_image_text(name, image_tokens=RUN, **OBJECTIVE)
    return ul2_tasks.mix(name, {registered(each): 1 for each in kind.split(" and ")})


def talks() -> MemoryDataSource:
    return MemoryDataSource(functools.partial(list, [json.dumps(talk) for talk in TALKS]), validation=0)


def lengths_of(kind: str) -> dict[str, int]:
    return CHAT if kind == "chat" else PAIRS


KINDS = {
    "chat": ["tokens", "loss_mask", "span_id"],
    "reply": ["inputs", "targets", "loss_mask", "span_id"],
    "images": ["inputs", "targets", "images"],
    "texts and reply": ["inputs", "targets", "loss_mask", "span_id"],
    "images and reply": ["inputs", "targets", "loss_mask", "span_id", "images"],
}


@pytest.fixture(scope="module")
def write(tmp_path_factory):
    """A function that writes an export once, and returns its folder."""

    @functools.cache
    def write(kind, format):
        folder = tmp_path_factory.mktemp(kind.replace(" ", "_")) / format
        settings = {"format": format, "seed": 3, "shards": 2, "console": QUIET}
        write_examples(registered(kind), str(folder), lengths_of(kind), **settings)
        return folder

    return write


def plain(example) -> dict[str, object]:
    """An example as values that can be compared, also of their types."""
    return {key: (value.dtype.name, value.tolist()) if isinstance(value, np.ndarray) else value for key, value in example.items()}


def of_shards(folder) -> list[list[dict]]:
    found = map(plain, read_examples(str(folder)))
    return [list(itertools.islice(found, shard["examples"])) for shard in read_manifest(str(folder))["shards"]]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("kind", KINDS)
def test_with_random_access_the_shards_are_those_of_hosts(write, kind, format):
    found = list(itertools.chain.from_iterable(itertools.zip_longest(*of_shards(write(kind, format)))))
    expected = ul2_tasks.examples(registered(kind), lengths_of(kind), seed=3)
    # Hosts take their turns of each step in an order that changes, where corpora are mixed.
    steps = [[each for each in found[first : first + 2] if each] for first in range(0, len(found), 2)]
    assert [sorted(step, key=repr) for step in steps] == [
        sorted(map(plain, expected[first : first + 2]), key=repr) for first in range(0, len(expected), 2)
    ]
    assert list(found[0]) == [*KINDS[kind], "denoiser", "task"]


def test_the_manifest_has_the_loss_groups_and_what_is_left_out(write):
    manifest = read_manifest(str(write("texts and reply", "parquet")))
    groups = manifest["ids"]["loss_groups"]
    assert groups["kinds_texts_s"] == {"targets": TEXT}
    assert (groups["kinds_talks_prompt_completion"]["assistant/final"], manifest.get("left_out")) == (2, None)
    masks = {
        (example["task"].endswith("completion"), *np.unique(example["span_id"]).tolist())
        for example in read_examples(str(write("texts and reply", "parquet")))
    }
    assert masks == {(False, TEXT), (True, 1, 2), (True, 0, 2)}
    ids = read_manifest(str(write("images", "parquet")))["ids"]["tasks"]["kinds_images_s"]
    assert ids["image_tokens"].items() >= {"boi_id": 203, "image_id": 204, "eoi_id": 205, "image_seq_length": 4}.items()


def test_examples_that_are_too_long_are_counted_and_told(tmp_path):
    name = ul2_tasks.register_chat("kinds_dropped", talks(), truncation="drop")
    lengths = sorted(len(each["tokens"]) for each in ul2_tasks.examples(name, {"tokens": None}))
    console = Console(record=True, width=200, file=io.StringIO())
    manifest = write_examples(name, str(tmp_path), {"tokens": lengths[5]}, format="parquet", console=console)
    dropped = sum(length > lengths[5] for length in lengths)
    assert manifest["left_out"] == {name: {"too long": dropped}}
    assert f"{name}: {dropped} too long" in console.export_text()
    assert manifest["totals"]["examples"] == len(TALKS) - dropped


@pytest.mark.torch
def test_datasets_gives_images_and_the_collator_takes_them(write, tmp_path):
    datasets, image = (
        pytest.importorskip("datasets", reason="the extra huggingface is not installed"),
        pytest.importorskip("PIL.Image"),
    )
    torch = pytest.importorskip("torch", reason="the extra torch is not installed")
    folder = write("images", "parquet")
    found = datasets.load_dataset("parquet", data_files=f"{folder}/*.parquet", cache_dir=str(tmp_path), split="train")
    expected = list(read_examples(str(folder)))
    assert len(found) == len(expected)
    for row, example in zip(found, expected):
        assert row["inputs"] == example["inputs"].tolist()
        assert len(row["images"]) == len(example["images"]) > 0
        for seen, held in zip(row["images"], example["images"]):
            assert isinstance(seen, image.Image)
            assert seen.tobytes() == image.open(io.BytesIO(held)).tobytes()
    rows = found.rename_columns({"inputs": "input_ids", "targets": "labels"})
    rows = rows.cast_column("images", datasets.Sequence(datasets.Image(decode=False)))
    collator = ul2_tasks.T5Gemma2Collator(image_tokens=RUN, image_size=8)
    batch = next(iter(torch.utils.data.DataLoader(rows, batch_size=4, collate_fn=collator)))
    own = [{"input_ids": each["inputs"], "labels": each["targets"], "images": each["images"]} for each in expected[:4]]
    assert all(torch.equal(batch[key], value) for key, value in collator(own).items())
    assert len(batch["pixel_values"]) == sum(len(each["images"]) for each in expected[:4])


def test_texts_beside_images_are_tokens_of_megatron_and_the_images_are_named(tmp_path):
    registered("texts and images")
    registered("images and reply")
    done = ul2("export", "kinds_texts and images", "--format", "megatron", "--output", tmp_path)
    assert (done.exit_code, sorted(path.name for path in tmp_path.glob("*.bin"))) == (0, ["kinds_texts-train.bin"])
    assert done.stderr == "left out, because they are images, which such files cannot hold: kinds_images.\n"
    for asked, said in (
        (
            ["kinds_images and reply", "--format", "megatron"],
            "--format must be parquet or tfrecord for images",
        ),
        (["kinds_images", "--format", "megatron"], "--format must be parquet or tfrecord for images"),
        (["kinds_images", "--format", "megatron", "--seed", 3], "--seed must be left out with --format megatron"),
    ):
        done = ul2("export", *asked, "--output", tmp_path / "new")
        assert (done.exit_code, said in done.stderr) == (2, True), done.stderr


def registration(name: str, folder: pathlib.Path, **arguments) -> Registration:
    (folder / "talks.jsonl").write_text("".join(json.dumps({"messages": talk}) + "\n" for talk in TALKS * 20))
    given = {"renderer": "harmony:default", "format": "prompt_completion", **arguments}
    return Registration(name, (), {"spec": str(folder / "talks.jsonl")}, given)


def test_a_changed_source_and_other_loss_groups_are_refused(tmp_path):
    (tmp_path / "source").mkdir()
    asked = registration("kinds_changed", tmp_path / "source", loss_groups="harmony")
    settings = {"format": "parquet", "prepare": asked.apply, "console": QUIET}
    name = asked.apply()
    write_examples(name, str(tmp_path / "out"), PAIRS, **settings)
    manifest = read_manifest(str(tmp_path / "out"))
    manifest["pipeline"]["tasks"][name]["supervision"] = {**manifest["pipeline"]["tasks"][name]["supervision"], "turns": "last"}
    write_manifest(str(tmp_path / "out" / "_manifest.json"), manifest)
    with pytest.raises(
        ValueError,
        match=r"other arguments: pipeline\.tasks\.kinds_changed_prompt_completion\.supervision\.turns was .last., and is now",
    ):
        write_examples(name, str(tmp_path / "out"), PAIRS, **settings)

    def touch(*_):
        os.utime(tmp_path / "source" / "talks.jsonl", (1, 1))
        asked.apply()

    with pytest.raises(RuntimeError, match=r"the source changed during the job: .*talks\.jsonl"):
        write_examples(name, str(tmp_path / "changed"), PAIRS, **{**settings, "prepare": touch})


def test_what_cannot_be_exported_is_named(tmp_path):
    chat, images = registered("chat"), registered("images")
    seqio.MixtureRegistry.add("kinds_stock", [(task.name, 1) for task in seqio.get_subtasks(seqio.get_mixture_or_task(chat))])
    for name, lengths, split, named in (
        (chat, PAIRS, "train", "sequence_length"),
        (chat, CHAT, "test", "split"),
        (images, {**PAIRS, "images": 2}, "train", "sequence_length"),
        ("kinds_stock", CHAT, "train", "kinds_stock"),
    ):
        with pytest.raises(ValueError, match=named):
            write_examples(name, str(tmp_path / "new"), lengths, format="parquet", split=split, console=QUIET)
    assert not (tmp_path / "new").exists()
