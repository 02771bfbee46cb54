"""The table of pipelines with images; see `pipelines`."""

import dataclasses
import functools
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import ul2_tasks
from tests.image_sources import FORM, SIZES, ids, made
from tests.images.image_support import MODES, RUN, SENTINELS, VOCABULARY, image, record_of
from tests.laws import pipelines
from tests.laws.pipelines import (
    A_SEQUENCE,
    ENDS_EARLY,
    NOT_BY_NUMBER,
    NUMBER,
    R1,
    SEED,
    SEEDS,
    STATE_DICT,
    Other,
    Pipeline,
    S,
    as_above,
    of_numbers,
    of_seqio,
)
from ul2_tasks import MemoryDataSource
from ul2_tasks.image_rows.recipe import Source
from ul2_tasks.image_rows.records import listed_records

RECORDS, IN_ROWS = 24, 40
LENGTHS = {"inputs": 160, "targets": 96}
OTHER_LENGTHS = Other({"lengths": {"inputs": 160, "targets": 92}}, "targets: 96", "targets: 92")
OTHER_CORPUS = Other({"corpus": "other"}, "corpus: ", "corpus: ")
IMAGE_WINDOW = 500  # tokens, of a few records
NO_WORDS = "Its texts are of bytes: tests/images has which ids they become."


def register_image_text(corpus: str, weight: float = 4, *, in_files: bool = False) -> str:
    """Records of a text, an image of a grey of its own, and another text."""
    records = [
        record_of([f"This is what the {corpus} corpus has to say in its record {n}: ", image(n), f"it is number {n}."])
        for n in range(RECORDS)
    ]
    denoisers = dataclasses.replace(R1, weight=weight)
    marks: dict[str, Any] = {"image_tokens": RUN, "sentinels": SENTINELS, "modes": MODES}
    source = files_of(corpus, records) if in_files else records
    return ul2_tasks.register_image_text("laws_seen", source, VOCABULARY, denoisers, **marks)


def files_of(corpus: str, records: list[dict]) -> str:
    """Four files of these records."""
    folder = pipelines.FOLDER / f"{corpus}_seen"
    if not folder.exists():  # it does in another process
        folder.mkdir()
        for file in range(4):
            pq.write_table(pa.Table.from_pylist(records[file::4]), folder / f"{file}.parquet")
    return f"{folder}/*.parquet"


def register_beside_texts(corpus: str, weight: float = 1, *, in_files: bool = False) -> str:
    """Those beside texts without an image."""
    source = MemoryDataSource(lambda: [f"Some text of the {corpus} corpus, number {n}." for n in range(50)], validation=0)
    read = ul2_tasks.register("laws_read", source, VOCABULARY, S, sentinels=SENTINELS, modes=MODES)
    return ul2_tasks.mix("laws_looked_at", {register_image_text(corpus, in_files=in_files): weight, read: 1})


def seen(element) -> list[list[bytes]]:
    return [[*element["images"]]]


def rows_of_images(seed=SEED, shard=(0, 1), epochs=None, lengths=150, corpus="one", weight=None) -> Any:
    """Rows of one source; of two, with a weight."""
    read = [Source(listed_records(made(IN_ROWS, corpus), corpus), "t2i_pretrain", SIZES)]
    if weight:
        read.append(Source(listed_records(made(IN_ROWS, "more"), "more"), "t2i_pretrain", SIZES, weight=weight))
    budgets = {"tokens": lengths, "vit": 100, "vae": 120}
    process = dict(zip(("rank", "world_size"), shard))
    return ul2_tasks.ImageTextDataset(read, FORM, ids, budgets, seed=seed, pool=8, num_epochs=epochs, **process)


def records_of_row(row) -> list[list[int]]:
    """From "one, record 3, epoch 0"."""
    return [[int(name.split(", ")[1].removeprefix("record ")) for name in row["samples"]]]


IMAGES = [
    Pipeline(
        name="texts with images",
        build=of_seqio(register_image_text, LENGTHS),
        others={
            "seed": SEEDS,
            "lengths": OTHER_LENGTHS,
            "rates": Other({"weight": 7}, "weight: 4", "weight: 7"),
            "corpus": OTHER_CORPUS,
        },
        texts=seen,
        corpus=lambda: map(image, range(RECORDS)),
        hosts=(2,),
        lacks={"ids": NO_WORDS},
    ),
    Pipeline(
        name="texts with images beside texts",
        build=of_seqio(register_beside_texts, LENGTHS),
        others={"rates": Other({"weight": 7}, "laws_seen_r1: 0.5", "laws_seen_r1: 0.875")},
        texts=seen,
        hosts=(3,),
        lacks={
            **as_above("another seed", "another lengths", "another corpus", "no seed"),
            **ENDS_EARLY,
            "ids": NO_WORDS,
        },
    ),
    Pipeline(
        name="texts with images in windows",
        build=of_seqio(functools.partial(register_image_text, in_files=True), LENGTHS, window=IMAGE_WINDOW),
        others={"seed": SEEDS, "lengths": OTHER_LENGTHS, "corpus": pipelines.OTHER_CORPUS},
        texts=seen,
        corpus=lambda: map(image, range(RECORDS)),
        hosts=(2, 3),
        state_bytes=10_000,
        refused_late=True,
        lacks={"ids": NO_WORDS, **as_above("another rates"), **NOT_BY_NUMBER},
    ),
    Pipeline(
        name="texts with images in windows beside texts",
        build=of_seqio(functools.partial(register_beside_texts, in_files=True), LENGTHS, window=IMAGE_WINDOW),
        others={"rates": Other({"weight": 7}, "laws_seen_r1: 0.5", "laws_seen_r1: 0.875")},
        texts=seen,
        state_bytes=10_000,
        refused_late=True,
        lacks={
            **as_above("another seed", "another lengths", "another corpus", "no seed"),
            **ENDS_EARLY,
            **NOT_BY_NUMBER,
            "ids": NO_WORDS,
        },
    ),
    Pipeline(
        name="examples of texts with images",
        build=of_numbers(register_image_text, LENGTHS),
        state=NUMBER,
        texts=seen,
        corpus=lambda: map(image, range(RECORDS)),
        same="texts with images",
        shift_of_same=0,
        lacks={"ids": NO_WORDS, **A_SEQUENCE, **as_above("no seed")},
    ),
    Pipeline(
        name="rows of images",
        build=rows_of_images,
        state=STATE_DICT,
        others={
            "seed": Other({"seed": SEED + 1}, f"seed was '{SEED}'", f"is '{SEED + 1}'"),
            "lengths": Other({"lengths": 140}, "was '(150", "is '(140"),
            "rates": Other({"weight": 2}, "sources was", "is"),
            "corpus": Other({"corpus": "other"}, "sources was", "is"),
        },
        texts=records_of_row,
        corpus=lambda: range(IN_ROWS),
        refusal=ValueError,
        no_seed="seed must be an integer, got None",
        needs_torch=True,
        lacks={
            "ids": "tests/image_rows/test_image_dataset.py says it, of a tokenizer whose id 0 is a word.",
            **dict.fromkeys(("steps", "other hosts"), "Processes take turns at runs of 32 rows."),
        },
    ),
]
