"""The kinds of files that `fuzz.py` alters: how valid ones are made, and how they are read."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import io
import itertools
import json
import os
import pathlib
import random
import tarfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from unittest import mock

import apache_beam  # noqa: F401 (imported before the forks, as all that takes long)
import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import seqio
import tensorflow as tf
from fuzz_mutations import mutated_bytes, mutated_json, mutated_lines, mutated_values
from PIL import Image
from rich.console import Console
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import ul2_tasks
from ul2_tasks.chat.by_name import open_renderer
from ul2_tasks.corpus.build_cache import build
from ul2_tasks.export.write import write_examples
from ul2_tasks.images.draws import draws_of
from ul2_tasks.images.example_set import example_records
from ul2_tasks.images.interleaved import ImageTokens
from ul2_tasks.images.pixels import pixels, size_of
from ul2_tasks.images.problems import RecordError
from ul2_tasks.images.recipe import Source
from ul2_tasks.images.records import Reader, open_records
from ul2_tasks.images.video import FrameSampler
from ul2_tasks.looking.rows.measure import measure_images, recipe_to_look_at
from ul2_tasks.looking.run import read_record, run_of
from ul2_tasks.looking.verification import examine
from ul2_tasks.sources.memory import embedded_documents
from ul2_tasks.store.write import PairWriter
from ul2_tasks.vocabulary.sentencepiece import DEFAULT_MODEL

LENGTHS = {"inputs": 64, "targets": 64}
QUIET = Console(file=io.StringIO())
RUN = ImageTokens(boi_id=262, image_id=263, eoi_id=264, image_seq_length=4)
WORDS = "the quick brown fox jumps over the lazy dog, and runs; 0 1 2 <s> </s> été 中文"


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of files.

    Attributes:
        make: writes valid files into a folder.
        read: reads such a folder, and gives what was read. Raises what this package raises.
        names: of the files that are altered, globs.
        mutated: how the content of one is altered.
        is_guarded: whether checksums say that what is read is what was written.
        values: instead of `mutated`, alters all files of a folder.
    """

    make: Callable[[pathlib.Path], object]
    read: Callable[[str], object]
    names: Sequence[str] = ("*",)
    mutated: Callable[[bytes, random.Random], bytes] = mutated_bytes
    is_guarded: bool = False
    values: Callable[[pathlib.Path, random.Random], None] | None = None

    def alter(self, folder: pathlib.Path, draw: random.Random) -> None:
        if self.values is not None:
            self.values(folder, draw)
            return
        files = sorted({path for name in self.names for path in folder.glob(name) if path.is_file()})
        for path in draw.sample(files, min(len(files), draw.choice((1, 1, 1, 2)))):
            path.write_bytes(self.mutated(path.read_bytes(), draw))


def _documents() -> list[dict[str, Any]]:
    texts = itertools.islice(embedded_documents(), 12)
    beside = {"meta": {"a": [1, None], "b": "é"}}
    return [{"text": text[:400], "id": f"id {number}", "n": number, **beside} for number, text in enumerate(texts)]


def _lines(records: Sequence[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def _number(folder: str) -> int:
    """Of a case; 0 of the valid files."""
    digits = folder.rpartition("-")[2]
    return int(digits) if digits.isdigit() else 0


def name_of(folder: str) -> str:
    """Under which a case registers what it reads."""
    return "of_" + os.path.basename(folder).replace("-", "_").replace(".", "_")


def read_corpus(folder: str, streamed: bool = True, **options: Any) -> object:
    """Caches a corpus, and in one case of twelve reads examples of it as tf.data does."""
    (path,) = pathlib.Path(folder).glob("corpus.*")
    number, name = _number(folder), name_of(folder)
    source = ul2_tasks.open_source(str(path), **({"id_key": "id", "validation": 0.2} if number % 2 and not options else options))
    mixture = ul2_tasks.register(name, source, on_error="skip" if number % 3 == 0 else "raise")
    if streamed and number % 12 == 11:
        return _streamed(mixture, 20, split=next(iter(source.splits)))
    manifest = build(f"{name}_corpus", f"{folder}/out", console=QUIET)
    return manifest["totals"]["documents"]


def _streamed(name: str, count: int, **settings: Any) -> int:
    dataset = seqio.get_mixture_or_task(name).get_dataset(LENGTHS, **{"num_epochs": 1, "shuffle": False, "seed": 0, **settings})
    return sum(1 for _ in dataset.take(count).as_numpy_iterator())


def make_jsonl(folder: pathlib.Path) -> None:
    (folder / "corpus.jsonl").write_text(_lines(_documents()))


def make_text(folder: pathlib.Path) -> None:
    (folder / "corpus.txt").write_text("\n\n".join(record["text"] for record in _documents()))


def make_gz(folder: pathlib.Path) -> None:
    import gzip

    (folder / "corpus.jsonl.gz").write_bytes(gzip.compress(_lines(_documents()).encode(), mtime=0))


def make_zst(folder: pathlib.Path) -> None:
    (folder / "corpus.jsonl.zst").write_bytes(pa.compress(_lines(_documents()).encode(), "zstd", asbytes=True))


def make_parquet(folder: pathlib.Path) -> None:
    pq.write_table(pa.Table.from_pylist(_documents()), folder / "corpus.parquet", row_group_size=5)


def alter_parquet(folder: pathlib.Path, draw: random.Random) -> None:
    """Other values, in columns of any type that Arrow infers for them."""
    _write_values(folder / "corpus.parquet", _documents(), draw)


def _write_values(path: pathlib.Path, records: list[dict[str, Any]], draw: random.Random) -> None:
    before = path.read_bytes()
    for _ in range(20):
        try:
            pq.write_table(pa.Table.from_pylist(mutated_values(records, draw)), path, row_group_size=draw.choice((1, 5, 100)))
            return
        except (pa.ArrowException, OverflowError, UnicodeEncodeError, TypeError, ValueError):
            continue  # no column has both
    path.write_bytes(before)


def make_arrow(folder: pathlib.Path) -> None:
    table = pa.Table.from_pylist(_documents())
    with pa.ipc.new_stream(str(folder / "corpus.arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=5)


def make_tfrecord(folder: pathlib.Path) -> None:
    def feature(value: str) -> tf.train.Feature:
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value.encode()]))

    with tf.io.TFRecordWriter(str(folder / "corpus.tfrecord")) as writer:
        for record in _documents():
            example = tf.train.Features(feature={key: feature(record[key]) for key in ("text", "id")})
            writer.write(tf.train.Example(features=example).SerializeToString())


def make_pair(folder: pathlib.Path) -> None:
    lengths = np.array([40, 300, 7, 1000, 5])
    tokens = np.random.default_rng(0).integers(300, 3000, lengths.sum())
    with PairWriter(str(folder / "pair.bin"), str(folder / "pair.idx"), np.dtype(np.uint16)) as pair:
        pair.add(tokens, lengths)


def read_pair(folder: str) -> object:
    """Reads examples of Megatron's pair by number, and as tf.data does; and its documents."""
    mixture = ul2_tasks.register(name_of(folder), f"megatron:{folder}/pair")
    if _number(folder) % 12 == 11:
        return _streamed(mixture, 5)
    found = ul2_tasks.examples(mixture, LENGTHS)
    read = [(found[number]["inputs"].tolist(), found.locate(number)) for number in range(min(len(found), 20))]
    return len(read)


def _cached() -> str:
    """Registers the corpus whose caches are altered, whose own file is not."""
    path = pathlib.Path("cached.jsonl")
    if not path.exists():
        path.write_text(_lines(_documents()))
    return ul2_tasks.register("cached", ul2_tasks.open_source(str(path), id_key="id", validation=0.2))


def make_cache(folder: pathlib.Path) -> None:
    _cached()
    build("cached_corpus", str(folder), console=QUIET)


def verified(folder: str) -> None:
    """As `ul2 verify`."""
    for where, wrong, _ in examine(folder):
        if wrong:
            raise ValueError(f"{where}: {'; '.join(wrong)}")


def read_cache(folder: str) -> object:
    """Verifies a cache; or reads examples of it, by number or as tf.data does."""
    for registry in (seqio.TaskRegistry, seqio.MixtureRegistry):
        registry.reset()  # a task that has found its cache stays with it
    mixture = _cached()
    if _number(folder) % 3 == 0:
        verified(folder)
        return "verified"
    seqio.utils.set_global_cache_dirs([folder])
    if _number(folder) % 3 == 1:
        _streamed(mixture, 5, use_cached=True)
        return "verified"
    found = ul2_tasks.examples(mixture, LENGTHS)
    for number in range(min(len(found), 20)):
        found[number]
    return "verified"


def verify_cache(folder: str) -> object:
    verified(folder)
    return "verified"


def go_on(folder: str) -> object:
    """Goes on with a cache that was not finished."""
    _cached()
    if _number(folder) % 3 == 2:
        verified(folder)
    manifest = build("cached_corpus", folder, console=QUIET)
    return manifest["totals"]["documents"]


def make_unfinished(folder: pathlib.Path) -> None:
    """A cache whose job was ended before it wrote the manifest."""
    with mock.patch("ul2_tasks.corpus.build_cache._finish", side_effect=KeyboardInterrupt), contextlib.suppress(KeyboardInterrupt):
        make_cache(folder)
    (folder / "cached_corpus" / "parts" / "running").write_text(json.dumps({"host": "elsewhere", "process": 1, "time": 0.0}))


def make_export(folder: pathlib.Path, format: str) -> None:
    ul2_tasks.register("exported", ul2_tasks.MemoryDataSource(_texts, validation=0))
    write_examples("exported_mix", str(folder), LENGTHS, format=format, shards=1, console=QUIET)


def _texts() -> list[str]:
    return [record["text"] for record in _documents()]


def read_export(folder: str) -> object:
    if _number(folder) % 3 == 2:
        verified(folder)
    digest, count = hashlib.sha256(), 0
    for example in ul2_tasks.read_examples(folder):
        digest.update(repr({key: getattr(value, "tolist", lambda: value)() for key, value in example.items()}).encode())  # noqa: B023
        count += 1
    return count, digest.hexdigest()


def read_unverified(folder: str) -> object:
    """What a format's reader makes of altered files, where no checksum is compared."""
    return sum(len(example["inputs"]) for example in ul2_tasks.read_examples(folder, verify=False)) and None


def make_conversations(folder: pathlib.Path) -> None:
    (folder / "corpus.jsonl").write_text(_lines(_conversations()))


def _conversations(in_parts: bool = True) -> list[dict[str, Any]]:
    """Conversations; not all columns of Parquet can hold a content in parts."""
    tools = [{"type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}]
    said: Any = [{"type": "text", "text": "7"}] if in_parts else "7"
    talks = [
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": f"What is {number}+2?"},
            {"role": "assistant", "channel": "analysis", "content": "Easy."},
            {
                "role": "assistant",
                "channel": "final",
                "content": said,
                "weight": 1,
            },
        ]
        for number in range(6)
    ]
    talks.append([{"role": "user", "content": "Look."}, {"role": "assistant", "content": "", "tool_calls": tools}])
    talks.append([{"role": "user", "content": "Hi"}, {"role": "assistant", "reasoning_content": "Hm.", "content": "Hello"}])
    return [{"messages": talk, "id": number, "metadata_json": json.dumps({"id": number})} for number, talk in enumerate(talks)]


def read_conversations(folder: str) -> object:
    (path,) = pathlib.Path(folder).glob("corpus.*")
    number, name = _number(folder), name_of(folder)
    keys = {"id_key": "id", "validation": 0.2} if number % 2 else {}
    chat = ul2_tasks.register_chat(name, str(path), on_error="raise" if number % 3 else "skip", **keys)
    if number % 12 == 11:
        dataset = seqio.get_mixture_or_task(chat).get_dataset(None, num_epochs=1, shuffle=False, seed=0)
        return sum(1 for _ in dataset.take(20).as_numpy_iterator())
    return build(f"{name}_corpus", f"{folder}/out", console=QUIET)["totals"]["documents"]


def alter_conversations_parquet(folder: pathlib.Path, draw: random.Random) -> None:
    _write_values(folder / "corpus.parquet", _conversations(in_parts=False), draw)


def make_conversations_parquet(folder: pathlib.Path) -> None:
    pq.write_table(pa.Table.from_pylist(_conversations(in_parts=False)), folder / "corpus.parquet")


TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}\n"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def make_tokenizer(folder: pathlib.Path, kind: str) -> None:
    texts = [*_texts(), WORDS]
    special = ["<unk>", "</s>", "<|user|>", "<|assistant|>"]
    if kind == "bpe":
        tokenizer, trainer = (
            Tokenizer(models.BPE()),
            trainers.BpeTrainer(vocab_size=400, special_tokens=special, show_progress=False),
        )
        tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    elif kind == "unigram":
        tokenizer = Tokenizer(models.Unigram())
        trainer = trainers.UnigramTrainer(vocab_size=400, special_tokens=special, unk_token="<unk>", show_progress=False)
        tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    else:
        tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
        trainer = trainers.WordPieceTrainer(vocab_size=400, special_tokens=special, show_progress=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    companion = {"eos_token": "</s>", "bos_token": {"content": "<unk>", "lstrip": False}, "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(companion))


def read_tokenizer(folder: str) -> object:
    """Opens a tokenizer, and encodes and decodes; or renders a conversation with its chat template."""
    if _number(folder) % 3 == 2:
        renderer = open_renderer(f"template:{folder}")
        try:
            segments = renderer.render([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}])
        except ValueError as error:  # of a conversation, whose place its source tells
            error.args = (f"{folder}: {error}",)
            raise
        return sum(len(segment.ids) for segment in segments)
    return _used(ul2_tasks.open_vocabulary(folder), folder)


def _used(vocabulary: seqio.Vocabulary, path: str) -> int:
    ids = vocabulary.encode("The quick brown fox <s> </s> été 中文 \x00 <extra_id_0>")
    vocabulary.decode(ids)
    vocabulary.decode_tf(vocabulary.encode_tf(tf.constant("The quick brown fox")))
    mixture = ul2_tasks.register(f"{name_of(path)}", ul2_tasks.MemoryDataSource(_texts, validation=0), vocabulary)
    _streamed(mixture, 3)
    return vocabulary.vocab_size and len(ids)


def make_sentencepiece(folder: pathlib.Path) -> None:
    (folder / "some.model").write_bytes(DEFAULT_MODEL.read_bytes())


def read_sentencepiece(folder: str) -> object:
    return _used(ul2_tasks.open_vocabulary(f"{folder}/some.model"), folder)


IMAGE_FORMATS = {"png": "PNG", "jpg": "JPEG", "gif": "GIF", "bmp": "BMP", "webp": "WEBP"}


def _image(format: str, **options: Any) -> bytes:
    file = io.BytesIO()
    colours = np.random.default_rng(0).integers(0, 256, (24, 32, 3), np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6
    more = {"exif": exif} if format in ("JPEG", "PNG", "WEBP") else {}
    Image.fromarray(colours).save(file, format, **more, **options)
    return file.getvalue()


def make_images(folder: pathlib.Path) -> None:
    """An image of each format, and records that name them."""
    for suffix, format in IMAGE_FORMATS.items():
        (folder / f"a.{suffix}").write_bytes(_image(format))
    (folder / "grey.png").write_bytes(_grey())
    (folder / "slow.jpg").write_bytes(_image("JPEG", progressive=True))
    names = sorted(path.name for path in folder.iterdir())
    (folder / "records.jsonl").write_text(_lines([{"image": name, "captions": ["an image"]} for name in names]))


def _grey() -> bytes:
    file = io.BytesIO()
    Image.fromarray((np.arange(24 * 32).reshape(24, 32) * 80).astype(np.uint16)).save(file, "PNG")
    return file.getvalue()


def read_records(folder: str, schema: str = "t2i_pretrain", file: str = "records.*") -> object:
    """Makes rows of records, and decodes their images; in one case of three they are measured."""
    (path,) = pathlib.Path(folder).glob(file)
    number = _number(folder)
    source = Source(open_records(str(path)), schema)
    if number % 3 == 0:
        return measure_images(recipe_to_look_at([source]), 50) and None
    if number % 3 == 1:
        return _rows(source, "skip")
    return _rows(source, "raise")


def _rows(source: Source, on_error: Any) -> int:
    recipe = recipe_to_look_at([source])
    dataset = ul2_tasks.ImageTextDataset(
        source,
        recipe.special_tokens,
        recipe.encode,
        recipe.budgets._asdict(),
        num_epochs=1,
        pool=16,
        on_error=on_error,
        shrink=True,
    )
    return sum(len(row["samples"]) for row in dataset)


def read_each_image(folder: str) -> object:
    """Decodes each image of a folder by itself, in full and as a draft. The sentence has no name: it is of bytes."""
    for path in sorted(pathlib.Path(folder).glob("*.*")):
        if path.suffix == ".jsonl":
            continue
        try:
            content = path.read_bytes()
            size = size_of(content)
            assert pixels(content).shape == (size[1], size[0], 3)
            pixels(content, draft=(8, 8))
        except ValueError as error:
            error.args = (f"{path}: {error}",)
            raise
    return None


def make_records(folder: pathlib.Path, kind: str, format: str) -> None:
    _write_records(folder / f"records.{format}", _plain_records(kind, in_files=format == "jsonl", folder=folder))


def json_like(value: Any) -> Any:
    """The same with lists for tuples."""
    if isinstance(value, dict):
        return {key: json_like(each) for key, each in value.items()}
    return [json_like(each) for each in value] if isinstance(value, list | tuple) else value


def _plain_records(kind: str, in_files: bool, folder: pathlib.Path) -> list[dict[str, Any]]:
    """Records of the embedded set; of JSON, which has no bytes, with paths of files."""
    records = [
        {key: list(value) if isinstance(value, tuple) else value for key, value in one.items()} for one in example_records(kind, 5)
    ]
    if not in_files:
        for record in records:
            for key in record.keys() & {"image", "video"} if kind == "vlm_sft" else ():
                record[key] = record[key] if isinstance(record[key], list) else [record[key]]
        return records
    numbers = itertools.count()

    def named(value: Any) -> Any:
        if isinstance(value, bytes):
            path = folder / f"{next(numbers)}.png"
            path.write_bytes(value)
            return path.name
        return [named(each) for each in value] if isinstance(value, list) else value

    return [{key: named(value) for key, value in record.items()} for record in records]


def _write_records(path: pathlib.Path, records: list[dict[str, Any]]) -> None:
    if path.suffix == ".jsonl":
        path.write_text(_lines(records))
    else:
        pq.write_table(pa.Table.from_pylist(records), path, row_group_size=3)


def alter_records(folder: pathlib.Path, draw: random.Random, kind: str) -> None:
    _write_values(folder / "records.parquet", _plain_records(kind, in_files=False, folder=folder), draw)


def make_tar(folder: pathlib.Path) -> None:
    with tarfile.open(folder / "records.tar", "w") as tar:
        for number, record in enumerate(example_records("t2i_pretrain", 5)):
            for name, content in (
                (f"{number:03}.png", record["image"]),
                (f"{number:03}.json", json.dumps({"captions": record["captions"], "n": number}).encode()),
                (f"{number:03}.txt", b"an image"),
            ):
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))


def read_all_records(folder: str) -> object:
    """Reads records alone, of which those that are wrong are errors in their places."""
    records = open_records(f"{folder}/records.tar")
    reader = Reader(records)
    for place, piece in enumerate(records.pieces):
        for name, record in reader.read(place, 0, piece.records):
            if isinstance(record, ValueError):
                raise RecordError("record", f"{name}: {record}")
    return None


def read_tar(folder: str) -> object:
    return read_records(folder) if _number(folder) % 2 else read_all_records(folder)


VIDEOS = {
    "mp4": ("libx264", "mp4"),
    "avi": ("mpeg4", "avi"),
    "webm": ("libvpx-vp9", "webm"),
    "mkv": ("libx264", "matroska"),
    "mpg": ("mpeg2video", "mpegts"),
}


def make_videos(folder: pathlib.Path) -> None:
    for suffix, (codec, format) in VIDEOS.items():
        with av.open(str(folder / f"a.{suffix}"), "w", format=format) as container:
            stream = container.add_stream(codec, rate=25, options={"g": "5"})
            stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
            for number in range(20):
                container.mux(stream.encode(av.VideoFrame.from_ndarray(np.full((48, 64, 3), number * 12, np.uint8))))
            container.mux(stream.encode())


def read_videos(folder: str) -> object:
    """Draws frames of each video, and decodes them."""
    for path in sorted(pathlib.Path(folder).iterdir()):
        try:
            frames = FrameSampler(2, 4)(str(path), draws_of(0, 0, "r"))
            for frame in frames:
                assert frame.read().shape == (frame.height, frame.width, 3)
        except ValueError as error:
            error.args = (f"{path}: {error}",)
            raise
    return None


def make_interleaved(folder: pathlib.Path) -> None:
    images = [_image(format) for format in ("PNG", "JPEG")]
    records = [
        {"texts": ["A cat:", None, f"It sleeps {number}."], "images": [None, images[number % 2], None]} for number in range(5)
    ]
    pq.write_table(pa.Table.from_pylist(records), folder / "records.parquet", row_group_size=3)


def alter_interleaved(folder: pathlib.Path, draw: random.Random) -> None:
    records = pq.read_table(folder / "records.parquet").to_pylist()
    _write_values(folder / "records.parquet", records, draw)


def read_interleaved(folder: str) -> object:
    number, name = _number(folder), name_of(folder)
    vocabulary = seqio.ByteVocabulary(extra_ids=110)
    mixture = ul2_tasks.register_image_text(
        name,
        str(pathlib.Path(folder, "records.parquet")),
        vocabulary,
        image_tokens=RUN,
        sentinels=list(range(368, 264, -1)),
        modes={"[R]": 259, "[S]": 260, "[X]": 261},
        on_error="skip" if number % 3 == 0 else "raise",
        on_unusable="skip",
    )
    if number % 2:
        return build(f"{name}_corpus", f"{folder}/out", console=QUIET)["totals"]["documents"]
    return _streamed(mixture, 10, use_cached=False) and None


def make_run(folder: pathlib.Path) -> None:
    record = {"mixture": "ul2_mix", "sequence_length": LENGTHS, "split": "train", "shuffle": True, "seed": 0}
    (folder / "ul2_run.json").write_text(json.dumps({**record, "pack": False, "batch_size": 8, "first_step": 0}))


def read_run(folder: str) -> object:
    run = run_of(read_record(folder))
    return list(run.numbers(run.first_step + 1))


def _made(function: Callable, *arguments: Any, **named: Any) -> Callable[[pathlib.Path], object]:
    return functools.partial(_call, function, arguments, named)


def _call(function: Callable, arguments: tuple, named: dict, folder: pathlib.Path) -> object:
    return function(folder, *arguments, **named)


_TEXT = functools.partial(read_corpus, documents="paragraph")

KINDS: dict[str, Kind] = {
    "text": Kind(make_text, _TEXT),
    "jsonl": Kind(make_jsonl, read_corpus, mutated=mutated_lines),
    "gz": Kind(make_gz, read_corpus),
    "zst": Kind(make_zst, read_corpus),
    "parquet": Kind(make_parquet, read_corpus),
    "parquet_values": Kind(make_parquet, read_corpus, values=alter_parquet),
    "arrow": Kind(make_arrow, read_corpus),
    # As a stream TensorFlow reads it, whose error does not name the file.
    "tfrecord": Kind(make_tfrecord, functools.partial(read_corpus, streamed=False)),
    "pair": Kind(make_pair, read_pair),
    "cache": Kind(make_cache, verify_cache, ("*/*.bin", "*/*.idx", "*/manifest.json"), is_guarded=True),
    "cache_manifest": Kind(make_cache, read_cache, ("*/*.json",), mutated_json),
    "unfinished_cache": Kind(make_unfinished, go_on, ("*/parts/*",), mutated_json),
    "export_parquet": Kind(_made(make_export, "parquet"), read_export, is_guarded=True),
    "export_tfrecord": Kind(_made(make_export, "tfrecord"), read_export, is_guarded=True),
    "export_manifest": Kind(_made(make_export, "parquet"), read_export, ("_manifest.json",), mutated_json, is_guarded=True),
    "parquet_unverified": Kind(_made(make_export, "parquet"), read_unverified, ("*.parquet",)),
    "tfrecord_unverified": Kind(_made(make_export, "tfrecord"), read_unverified, ("*.tfrecord",)),
    "tokenizer_bpe": Kind(_made(make_tokenizer, "bpe"), read_tokenizer, ("*.json",), mutated_json),
    "tokenizer_unigram": Kind(_made(make_tokenizer, "unigram"), read_tokenizer, ("*.json",), mutated_json),
    "tokenizer_wordpiece": Kind(_made(make_tokenizer, "wordpiece"), read_tokenizer, ("*.json",), mutated_json),
    "sentencepiece": Kind(make_sentencepiece, read_sentencepiece),
    "conversations": Kind(make_conversations, read_conversations, mutated=mutated_lines),
    "conversations_values": Kind(make_conversations_parquet, read_conversations, values=alter_conversations_parquet),
    "images": Kind(make_images, read_each_image, tuple(f"*.{suffix}" for suffix in IMAGE_FORMATS)),
    "image_rows": Kind(make_images, read_records),
    "captions": Kind(_made(make_records, "t2i_pretrain", "jsonl"), read_records, ("records.jsonl",), mutated_lines),
    "edits": Kind(
        _made(make_records, "unified_edit", "jsonl"),
        functools.partial(read_records, schema="unified_edit"),
        ("records.jsonl",),
        mutated_lines,
    ),
    "talks": Kind(
        _made(make_records, "vlm_sft", "jsonl"),
        functools.partial(read_records, schema="vlm_sft"),
        ("records.jsonl",),
        mutated_lines,
    ),
    "image_parquet": Kind(_made(make_records, "t2i_pretrain", "parquet"), read_records),
    "image_values": Kind(
        _made(make_records, "t2i_pretrain", "parquet"), read_records, values=functools.partial(alter_records, kind="t2i_pretrain")
    ),
    "talk_values": Kind(
        _made(make_records, "vlm_sft", "parquet"),
        functools.partial(read_records, schema="vlm_sft"),
        values=functools.partial(alter_records, kind="vlm_sft"),
    ),
    "tar": Kind(make_tar, read_tar),
    "videos": Kind(make_videos, read_videos),
    "interleaved": Kind(make_interleaved, read_interleaved),
    "interleaved_values": Kind(make_interleaved, read_interleaved, values=alter_interleaved),
    "run_record": Kind(make_run, read_run, mutated=mutated_json),
}
