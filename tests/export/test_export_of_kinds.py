"""Exports of conversations and images, alone and mixed: as training reads them, in each format."""

import dataclasses
import functools
import io
import itertools
import json
import os
import pathlib
import shutil

import numpy as np
import pytest
from rich.console import Console

import ul2_tasks
from tests.chat.chat_support import read_shard
from tests.commands.running import ul2
from ul2_tasks.example_features import TEXT
from ul2_tasks.export.folder import read_examples, read_manifest, verify
from ul2_tasks.export.write import write_examples
from ul2_tasks.sources.memory import MemoryDataSource
from ul2_tasks.store.provenance import provenance_of_pairs

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


def described(kind: str):
    """A kind of data, or two."""
    name = f"kinds_{kind.replace(' ', '_')}"
    if kind in ("chat", "reply"):
        return ul2_tasks.Chat("kinds_talks", talks())
    if kind == "texts":
        return ul2_tasks.Mixture(name, MemoryDataSource(texts, validation=0), **OBJECTIVE)
    if kind == "images":
        return ul2_tasks.ImageText(name, image_tokens=RUN, **OBJECTIVE)
    return ul2_tasks.Mix(name, {described(each): 1 for each in kind.split(" and ")})


def registered(kind: str) -> str:
    """The same, registered."""
    if kind == "reply":
        return ul2_tasks.register_chat("kinds_talks", talks(), format="prompt_completion")
    if " and " not in kind:
        return ul2_tasks.register(described(kind))
    return ul2_tasks.mix(f"kinds_{kind.replace(' ', '_')}", {registered(each): 1 for each in kind.split(" and ")})


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
        write_examples(described(kind), str(folder), lengths_of(kind), **settings)
        return folder

    return write


def plain(example) -> dict[str, object]:
    """An example as values that can be compared, also of their types."""
    return {key: (value.dtype.name, value.tolist()) if isinstance(value, np.ndarray) else value for key, value in example.items()}


def of_shards(folder) -> list[list[dict]]:
    found = map(plain, read_examples(str(folder)))
    return [list(itertools.islice(found, shard["examples"])) for shard in read_manifest(str(folder))["shards"]]


@pytest.mark.parametrize("format", ["tfrecord", "arrayrecord", "jsonl", "parquet"])
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
    chat = ul2_tasks.Chat("kinds_dropped", talks(), truncation="drop")
    lengths = sorted(len(each["tokens"]) for each in ul2_tasks.examples(chat, {"tokens": None}))
    console = Console(record=True, width=200, file=io.StringIO())
    manifest = write_examples(chat, str(tmp_path), {"tokens": lengths[5]}, format="parquet", console=console)
    dropped = sum(length > lengths[5] for length in lengths)
    assert manifest["left_out"] == {"kinds_dropped_corpus": {"too long": dropped}}
    assert f"kinds_dropped_corpus: {dropped} too long" in console.export_text()
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
    done = ul2("export", "kinds_texts_and_images", "--format", "megatron", "--output", tmp_path)
    assert (done.exit_code, sorted(path.name for path in tmp_path.glob("*.bin"))) == (0, ["kinds_texts-train.bin"])
    assert done.stderr == "left out, because they are images, which such files cannot hold: kinds_images.\n"
    for name in ("kinds_images_and_reply", "kinds_images"):
        done = ul2("export", name, "--format", "megatron", "--output", tmp_path / "new")
        assert (done.exit_code, "--format must be parquet or another for images" in done.stderr) == (2, True), done.stderr
    with pytest.raises(ValueError, match="sequence_length"):
        write_examples(described("images"), str(tmp_path / "new"), {**PAIRS, "images": 2}, format="parquet", console=QUIET)


def test_a_changed_source_and_other_loss_groups_are_refused(tmp_path):
    path = tmp_path / "talks.jsonl"
    path.write_text("".join(json.dumps({"messages": talk}) + "\n" for talk in TALKS * 20))
    chat = ul2_tasks.Chat("kinds_changed", str(path), "harmony:default", loss_groups="harmony")
    settings = {"format": "parquet", "console": QUIET}
    write_examples(chat, str(tmp_path / "out"), PAIRS, **settings)
    with pytest.raises(ValueError, match=r"kinds_changed_prompt_completion\.supervision\.turns was 'each', and is now"):
        write_examples(dataclasses.replace(chat, turns="last"), str(tmp_path / "out"), PAIRS, **settings)
    os.utime(path, (1, 1))
    with pytest.raises(ValueError, match=r"other arguments: reads\..*talks\.jsonl"):
        write_examples(chat, str(tmp_path / "out"), PAIRS, **settings)


def flip(path: pathlib.Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def test_pairs_of_megatron_are_the_examples_and_each_fault_of_theirs_is_named(write, tmp_path):
    folder = pathlib.Path(shutil.copytree(write("chat", "megatron"), tmp_path / "copy"))
    shards, expected = read_manifest(str(folder))["shards"], ul2_tasks.examples(described("chat"), CHAT, seed=3)
    for number, shard in enumerate(shards):
        values, lengths = read_shard(str(folder), shard["shard"])
        own = expected[number :: len(shards)]
        assert lengths.tolist() == [len(example["tokens"]) for example in own]
        for column, key in zip(values, ("tokens", "loss_mask", "span_id")):
            assert values[column].tolist() == np.concatenate([example[key] for example in own]).tolist()
    ids = read_manifest(str(folder))["ids"]["tasks"]["kinds_talks_chat"]
    assert {example["tokens"][-1] for example in expected} == {ids["eod_id"]}
    with pytest.raises(ValueError, match=r"must be read by Megatron-LM"):
        list(read_examples(str(folder)))
    assert list(verify(str(folder))) == []
    stem = shards[0]["shard"]
    flip(folder / f"{stem}_tokens.bin", 40)
    (folder / f"{stem}_span.bin").unlink()
    (folder / "train-9_tokens.bin").write_bytes(b"")
    found = "; ".join(verify(str(folder)))
    for sentence in (f"{stem}_tokens.bin is altered", f"{stem}_span.bin is missing", "train-9_tokens.bin is not in"):
        assert sentence in found


def test_a_cache_says_where_each_sequence_is_from_and_gives_the_same_tokens(write, tmp_path):
    path = tmp_path / "talks.jsonl"
    path.write_text("".join(json.dumps({"id": f"talk-{number}", "messages": talk}) + "\n" for number, talk in enumerate(TALKS)))
    chat = ul2_tasks.Chat("kinds_origins", str(path), id_key="id")
    chat.cache(tmp_path / "cache")
    for format in ("megatron", "parquet", "tfrecord", "jsonl", "arrayrecord"):
        write_examples(chat, tmp_path / format, CHAT, format=format, cache_dirs=[tmp_path / "cache"], console=QUIET)
    write_examples(chat, tmp_path / "uncached", CHAT, format="megatron", console=QUIET)
    for file in (tmp_path / "uncached").glob("*.bin"):
        assert (tmp_path / "megatron" / file.name).read_bytes() == file.read_bytes()
    stem = "train-00000-of-00001"
    values, lengths = read_shard(str(tmp_path / "megatron"), stem)
    tokens = np.split(values["tokens"], np.cumsum(lengths)[:-1])
    of_pairs = provenance_of_pairs([str(tmp_path / "megatron" / f"{stem}_tokens")], [len(TALKS)]).of(np.arange(len(TALKS)))
    found = ul2_tasks.examples(chat, CHAT, cache_dirs=[tmp_path / "cache"])
    for format in ("parquet", "tfrecord", "jsonl", "arrayrecord"):
        for example, own, origin, number in itertools.zip_longest(
            read_examples(str(tmp_path / format)), tokens, of_pairs, range(len(found))
        ):
            assert example["tokens"].tolist() == own.tolist()
            assert example["origins"] == found.locate(number).origins == [origin]
            assert (origin.file, origin.id) == (str(path), f"talk-{origin.row - 1}")
