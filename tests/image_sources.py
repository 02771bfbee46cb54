"""Small records with images of one colour each, for the tests of rows."""

import functools
import io
import tarfile

import numpy as np
import pytest

pytest.importorskip("PIL", reason="the extra images is not installed")

from PIL import Image

from ul2_tasks.image_rows.recipe import Recipe, Source
from ul2_tasks.image_rows.records import listed_records
from ul2_tasks.image_rows.samples import Sizes
from ul2_tasks.image_rows.sizes import Size
from ul2_tasks.image_rows.special_tokens import SpecialTokenConfig

FORM = SpecialTokenConfig(bos_id=1, eos_id=2, boi_id=3, eoi_id=4, vit_patches_per_side=8, vae_patches_per_side=8)
SIZES = Sizes(vit=Size(48, 12, 6, 10_000), vae=Size(64, 16, 8, 10_000))


def ids(text: str) -> list[int]:
    return [5 + byte for byte in text.encode()]


@functools.cache
def png(width: int, height: int, seed: int = 0) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)).save(file, "PNG")
    return file.getvalue()


def image(number: int) -> bytes:
    return png(10 + 7 * number % 53, 10 + 11 * number % 47, number % 10)


def made(count: int = 40, name: str = "made") -> list[dict]:
    return [{"image": image(number), "captions": [f"{name} {number}", "short"]} for number in range(count)]


def edits(count: int = 40) -> list[dict]:
    images = [[image(number + step) for step in range(2 + number % 3)] for number in range(count)]
    return [{"image_list": some, "instruction_list": [[f"step {step}"] for step in range(len(some) - 1)]} for some in images]


def talks(count: int = 40) -> list[dict]:
    said = ("<image> what?", "nothing")
    return [
        {"image": image(n), "conversations": [{"from": "human", "value": said[n % 2 and 0]}, {"from": "gpt", "value": f"a {n}"}]}
        for n in range(count)
    ]


def source(records: list[dict], schema="t2i_pretrain", name: str = "made", **settings) -> Source:
    return Source(listed_records(records, name), schema, **{"sizes": SIZES, **settings})


def recipe(*sources: Source, budgets=(150, 100, 120), **settings) -> Recipe:
    of_each = dict(zip(("tokens", "vit", "vae"), budgets))
    return Recipe(sources or (source(made()),), FORM, ids, of_each, **{"pool": 16, "epochs": 1, **settings})


def write_tar(path, files):
    with tarfile.open(path, "w") as tar:
        for name, content in files:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
