"""Files that are altered: each read ends with what was read, or with an error of this package, one sentence that names the file."""

from __future__ import annotations

import dataclasses
import functools
import gzip
import io
import json
import pathlib
import random
import re
import shutil
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import seqio
from click.testing import CliRunner
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import ul2_tasks
from tests.chat.test_register_chat import CONVERSATIONS
from tests.chat.test_register_chat import write_jsonl as write_conversations
from tests.image_sources import write_tar
from tests.sources import token_files
from tests.sources.test_sources import write_arrow_stream
from tests.support import write_jsonl
from ul2_tasks.cli import main

CASES = 6  # of each kind; raise it to look for more
LENGTHS = {"inputs": 64, "targets": 64}
REPOSITORY = pathlib.Path(ul2_tasks.__file__).parent.parent
# An error of ours that tells of one of these was not foreseen.
UNFORESEEN = re.compile(
    r"\b(KeyError|TypeError|IndexError|AttributeError|AssertionError|ZeroDivisionError|UnboundLocalError|RecursionError"
    r"|OverflowError|MemoryError|StopIteration|PanicException|struct\.error|Traceback)\b"
)

# How files are altered.

VALUES = [None, True, 0, -1, 2**31, 2**63, 10**30, 0.5, "", "0", "a\x00b", [], {}, [None], {"": None}, "x" * 10_000]
WRITTEN = [
    "NaN",
    "-Infinity",
    "1e999",
    "9" * 5000,
    '"\\ud800"',
    '"../../../etc/passwd"',
    '"/dev/zero"',
    "[" * 20_000 + "]" * 20_000,
]
RAW = "what stands for one of them"


def altered(content: bytes, draw: random.Random) -> bytes:
    """With some bytes changed, cut, repeated, or put in."""
    for _ in range(draw.choice((1, 1, 1, 2, 4, 16))):
        start = draw.randrange(min(len(content), draw.choice((64, 1 << 30))) + 1)  # headers are at the beginning
        stop = start + draw.choice((0, 1, 2, 4, 8, 64, len(content)))
        stretch = content[start:stop]
        width = min(len(stretch), 8)
        number = draw.choice((0, 1, 0x7F, 0x80, 0xFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 63)) & ((1 << 8 * width) - 1)
        flipped = bytes(byte ^ 1 << draw.randrange(8) for byte in stretch[:1]) + stretch[1:]
        new = (
            flipped,
            draw.randbytes(4),
            b"",
            stretch * 2,
            number.to_bytes(width, "little") + stretch[width:],
            b"\xff\xfe",
            b"{" * 50,
        )
        content = content[:start] + draw.choice(new) + content[stop:]
    return content


def places(value: Any, path: tuple = ()) -> Iterator[tuple]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        yield (*path, key)
        yield from places(each, (*path, key))


def altered_json(content: bytes, draw: random.Random) -> bytes:
    """With some values, keys or bytes changed."""
    value = json.loads(content)
    found = list(places(value))
    if not found or not draw.randrange(6):
        return altered(content, draw)
    *path, last = draw.choice(found)
    parent = value
    for step in path:
        parent = parent[step]
    what = draw.randrange(5)
    if what == 0:
        del parent[last]
    elif what == 1 and isinstance(parent, dict):
        parent[draw.choice((str(last).upper(), "", "\x00", "__class__"))] = parent.pop(last)
    else:
        parent[last] = draw.choice((RAW, [parent[last]], str(parent[last]), *VALUES))
    return json.dumps(value).replace(f'"{RAW}"', draw.choice(WRITTEN)).encode()


def altered_lines(content: bytes, draw: random.Random) -> bytes:
    """JSON Lines, one of them altered."""
    lines = content.splitlines()
    place = draw.randrange(len(lines))
    lines[place] = altered_json(lines[place], draw)
    return b"\n".join(lines) + b"\n"


# What is written and read.

TEXTS = [text[:400] for text in ul2_tasks.embedded_documents()[:12]]
RECORDS = [{"text": text, "id": f"id {number}", "n": number, "meta": {"a": [1, None]}} for number, text in enumerate(TEXTS)]
LINES = "".join(json.dumps(record) + "\n" for record in RECORDS)
IDS = [[*range(5, 60)]] * 12
IMAGE_TOKENS = ul2_tasks.ImageTokens(boi_id=262, image_id=263, eoi_id=264, image_seq_length=4)


def ul2(*arguments: object) -> int:
    """The status of a command; an error of it is raised."""
    done = CliRunner().invoke(main, list(map(str, arguments)))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    if done.exit_code == 2:
        raise ValueError(done.stderr)
    return done.exit_code


def write_corpus(name: str, content: str | bytes) -> Callable[[pathlib.Path], object]:
    return lambda folder: (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)


def as_parquet(records: list[dict]) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(records), file, row_group_size=5)
    return file.getvalue()


def corpus_of(folder: pathlib.Path) -> str:
    (path,) = folder.glob("corpus.*")
    return str(path)


def read_corpus(folder: pathlib.Path, number: int) -> None:
    options = {"id_key": "id", "validation": 0.2} if number % 2 else {}
    if corpus_of(folder).endswith(".txt"):
        options = {"documents": "paragraph"}
    source = ul2_tasks.open_source(corpus_of(folder), **options)
    mixture = ul2_tasks.Mixture("altered", source, on_error="raise" if number % 3 else "skip")
    mixture.cache(str(folder / "out"))


def read_conversations(folder: pathlib.Path, number: int) -> None:
    chat = ul2_tasks.Chat("altered", corpus_of(folder), on_error="raise" if number % 3 else "skip")
    chat.cache(str(folder / "out"))


def read_images(folder: pathlib.Path, number: int, kind: str = "captions") -> None:
    source = ul2_tasks.open_image_text(corpus_of(folder), kind=kind)
    special = {"sentinels": range(368, 264, -1), "modes": {"[R]": 259, "[S]": 260, "[X]": 261}}
    settings = {"image_tokens": IMAGE_TOKENS, "on_unusable": "skip", **special}
    images = ul2_tasks.ImageText("altered", source, seqio.ByteVocabulary(extra_ids=110), **settings)
    images.cache(str(folder / "out"))


def image(format: str) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (24, 32, 3), np.uint8)).save(file, format)
    return file.getvalue()


def write_image_files(folder: pathlib.Path) -> None:
    names = [f"{format}.{format}" for format in ("png", "jpeg", "gif", "bmp", "webp")]
    for name in names:
        (folder / name).write_bytes(image(name.rpartition(".")[2].upper()))
    write_jsonl(folder / "corpus.jsonl", ({"image": name, "captions": ["an image"]} for name in names))


def write_samples(folder: pathlib.Path) -> None:
    parts = (("png", image("PNG")), ("json", b'{"captions": ["an image"]}'))
    write_tar(folder / "corpus.tar", [(f"{number}.{ending}", content) for number in range(4) for ending, content in parts])


def write_interleaved(folder: pathlib.Path) -> None:
    records = [{"texts": ["A cat:", None, "It sleeps."], "images": [None, image("PNG"), None]} for _ in range(4)]
    (folder / "corpus.parquet").write_bytes(as_parquet(records))


OWN = ul2_tasks.Mixture("altered_cache")


def read_cache(folder: pathlib.Path, number: int) -> None:
    assert ul2_tasks.examples(OWN, LENGTHS, cache_dirs=[str(folder)])[:10]


def write_pair(folder: pathlib.Path) -> None:
    assert ul2("export", "ul2", "--format", "megatron", "--output", folder) == 0


def read_pair(folder: pathlib.Path, number: int) -> None:
    (prefix,) = {str(path.with_suffix("")) for path in folder.glob("*train*.bin")}
    examples = ul2_tasks.examples(ul2_tasks.Mixture("altered", f"megatron:{prefix}"), LENGTHS)
    assert [(examples[index], examples.locate(index)) for index in range(5)]


def read_tokens(name: str, folder: pathlib.Path, number: int) -> None:
    source = ul2_tasks.open_source(token_files.CASES[name].spec.format(folder))
    examples = ul2_tasks.examples(ul2_tasks.Mixture("altered", source, "bytes"), LENGTHS)
    assert [(examples[index], examples.locate(index)) for index in range(5)]


def write_export(format: str) -> Callable[[pathlib.Path], object]:
    options = ("--lengths", "64,64", "--max_examples", 40, "--shards", 1)
    return lambda folder: ul2("export", "ul2", "--format", format, *options, "--output", folder)


def read_export(folder: pathlib.Path, number: int, verify: bool = True) -> object:
    examples = ul2_tasks.read_examples(str(folder), verify=verify)
    found = [{key: np.asarray(value).tolist() for key, value in each.items()} for each in examples]
    return found if verify else None


def write_tokenizer(folder: pathlib.Path) -> None:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=["<unk>", "</s>"], show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ eos_token }}{% endfor %}"
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>", "chat_template": template}))


def read_tokenizer(folder: pathlib.Path, number: int) -> None:
    vocabulary = ul2_tasks.open_vocabulary(str(folder if (folder / "tokenizer.json").exists() else folder / "some.model"))
    vocabulary.decode(vocabulary.encode("The quick brown fox <s> </s> été 中文 \x00 <extra_id_0>"))
    assert ul2_tasks.examples(ul2_tasks.Mixture("altered", "embedded", vocabulary), LENGTHS)[0]


@dataclasses.dataclass(frozen=True)
class Kind:
    """Files that `write` writes, of which those of `names` are altered, and `read` reads; what it returns is what was written."""

    write: Callable[[pathlib.Path], object]
    read: Callable[[pathlib.Path, int], object]
    alter: Callable[[bytes, random.Random], bytes] = altered
    names: str = "*"


KINDS = {
    "text": Kind(write_corpus("corpus.txt", "\n\n".join(TEXTS)), read_corpus),
    "jsonl": Kind(write_corpus("corpus.jsonl", LINES), read_corpus, altered_lines),
    "gz": Kind(write_corpus("corpus.jsonl.gz", gzip.compress(LINES.encode(), mtime=0)), read_corpus),
    "zst": Kind(write_corpus("corpus.jsonl.zst", pa.compress(LINES.encode(), "zstd", asbytes=True)), read_corpus),
    "parquet": Kind(write_corpus("corpus.parquet", as_parquet(RECORDS)), read_corpus),
    "arrow": Kind(lambda folder: write_arrow_stream(folder / "corpus.arrow", TEXTS), read_corpus),
    "megatron's pair": Kind(write_pair, read_pair, names="*.[bi]*"),
    **{
        name: Kind(functools.partial(token_files.CASES[name].write, documents=IDS), functools.partial(read_tokens, name))
        for name in ("flat of dolma", "datatrove, by bytes", "litdata, by bytes", "mds, by bytes")
    },
    "cache": Kind(lambda folder: OWN.cache(str(folder)), read_cache, names="*/*"),
    "export, parquet": Kind(write_export("parquet"), read_export),
    "export, tfrecord": Kind(write_export("tfrecord"), read_export),
    "export, arrayrecord": Kind(write_export("arrayrecord"), read_export),
    "export, jsonl": Kind(write_export("jsonl"), read_export),
    "export, not verified": Kind(write_export("parquet"), lambda *case: read_export(*case, verify=False)),
    "tokenizer.json": Kind(write_tokenizer, read_tokenizer, altered_json),
    "sentencepiece": Kind(
        lambda folder: shutil.copy(REPOSITORY / "ul2_tasks" / "data" / "default.model", folder / "some.model"), read_tokenizer
    ),
    "conversations": Kind(
        lambda folder: write_conversations(folder / "corpus.jsonl", CONVERSATIONS[:7]),
        read_conversations,
        altered_lines,
    ),
    "images": Kind(write_image_files, read_images, names="*.[pgbw]*"),
    "tar": Kind(write_samples, read_images),
    "texts with images": Kind(write_interleaved, lambda *case: read_images(*case, "interleaved")),
}


def fault_of(error: BaseException, folder: pathlib.Path) -> str:
    """What is wrong with an error that is none of this package's sentences about this file; empty where it is right."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    from_us = any(name in frames[-1].filename for name in ("/ul2_tasks/", "/ul2_tasks/cli/", __file__))
    is_ours = type(error) in (ValueError, RuntimeError) or type(error).__module__.startswith("ul2_")
    if not (from_us and is_ours):
        return "not an error of this package"
    if UNFORESEEN.search(str(error)):
        return "not foreseen"
    # Those that are skipped were logged, each with its name.
    return "" if str(folder) in str(error) or "skipped" in str(error) else "does not name the file"


@pytest.mark.parametrize("kind", KINDS)
def test_an_altered_file_is_read_or_named(kind, tmp_path):
    of_kind, good = KINDS[kind], tmp_path / "good"
    good.mkdir()
    of_kind.write(good)
    wanted = of_kind.read(shutil.copytree(good, tmp_path / "case"), 1)
    for number in range(CASES):
        draw, folder = random.Random(f"{kind}/{number}"), tmp_path / f"case-{number}"
        shutil.copytree(good, folder)
        path = draw.choice(sorted(path for path in folder.glob(of_kind.names) if path.is_file()))
        path.write_bytes(of_kind.alter(path.read_bytes(), draw))
        fault = ""
        try:
            found = of_kind.read(folder, number)
        except Exception as error:
            fault = (wrong := fault_of(error, folder)) and f"{wrong}: {type(error).__name__}: {error}"
        else:
            if found != wanted and path.read_bytes() != (good / path.relative_to(folder)).read_bytes():
                fault = "is accepted"
        assert not fault, f"{path.name} of case {number}"
