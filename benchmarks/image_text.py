"""Texts and images: what rows cost, how full they are, and the memory of a worker; beside BAGEL's own code.

    python benchmarks/image_text.py --bagel ../Bagel

CPU time on one core, the least of several rounds, images of 1024 x 1024 pixels in JPEG:

    t2i sample              a record of a Parquet file with a caption and an image: read, planned, packed, decoded, laid out
    edit's middle image   one image, seen as noised and clean latents and by the ViT
    arrays of a row         eight t2i samples, without their pixels

Rows of edits are first compared with those that BAGEL makes of the same records and draws. Packing is compared by tokens: what
becomes of samples of drawn lengths, in BAGEL's loop and in pools of 256. Without --bagel, a checkout of ByteDance-Seed/Bagel, its
columns are empty. It needs torchvision and opencv-python-headless; decord is stood in for.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import multiprocessing
import os
import pathlib
import random
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image as PILImage
from rich.console import Console
from rich.table import Table

from ul2_tasks.image_rows.batch import bagel_batch
from ul2_tasks.image_rows.dropout import Dropout
from ul2_tasks.image_rows.packing import pack
from ul2_tasks.image_rows.recipe import Recipe, Source
from ul2_tasks.image_rows.row_arrays import lay_out
from ul2_tasks.image_rows.rows import RowMaker
from ul2_tasks.image_rows.samples import Counts, Sample
from ul2_tasks.image_rows.special_tokens import SpecialTokenConfig
from ul2_tasks.images.elements import Image
from ul2_tasks.images.example_set import example_records
from ul2_tasks.sources.image_records import listed_records, open_records

FORM = SpecialTokenConfig(bos_id=1, eos_id=2, boi_id=3, eoi_id=4)
SIDE = 1024
NEVER = Dropout(text=0, vit=0, clean=0)
FILLS = (  # samples from, to; BAGEL's expected_num_tokens, max_num_tokens, max_num_tokens_per_sample
    ("BAGEL's defaults", 200, 8000, 32768, 36864, 16384),
    ("", 4000, 16000, 32768, 36864, 16384),
    ("its flags for fine-tuning", 1000, 9000, 10240, 11520, 10240),
    ("t2i at 1024 px", 4107, 4107, 10240, 11520, 10240),
)


def ids(text: str) -> list[int]:
    return [5 + byte for byte in text.encode()]


def jpegs(count: int) -> list[bytes]:
    """Images of coarse colours and a little noise: about as large as photographs of this size."""
    generator, found = np.random.default_rng(0), []
    for _ in range(count):
        coarse = PILImage.fromarray(generator.integers(0, 256, (SIDE // 32, SIDE // 32, 3), np.uint8)).resize((SIDE, SIDE))
        noisy = np.asarray(coarse) + generator.integers(-4, 5, (SIDE, SIDE, 3))
        file = io.BytesIO()
        PILImage.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
        found.append(file.getvalue())
    return found


def least_ms(function: Callable[[], object], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        before = time.process_time()
        function()
        times.append(time.process_time() - before)
    return 1000 * min(times)


def recipe(source: Source, **settings: Any) -> Recipe:
    return Recipe([source], FORM, ids, Counts(36864, 16384, 36864), **{"epochs": 1, **settings})


def all_rows(of: Recipe) -> Iterator[dict[str, Any]]:
    maker = RowMaker(of)
    for pool in range(of.pools().count or 0):
        for packed in maker.packed(pool):
            yield maker.row(packed)


class Bagel:
    """Its packer and transforms, of a checkout."""

    def __init__(self, folder: str):
        sys.path.insert(0, folder)
        sys.modules.setdefault("decord", types.ModuleType("decord"))
        from data.data_utils import get_flattened_position_ids_extrapolate, pil_img2rgb
        from data.dataset_base import DataConfig, PackedDataset
        from data.transforms import ImageTransform

        torch.set_num_threads(1)
        self.packer_class, self.as_rgb = PackedDataset, pil_img2rgb
        self.vae, self.vit = ImageTransform(1024, 512, 16), ImageTransform(518, 224, 14)
        config = DataConfig(None, *[0.5] * 3, max_latent_size=64)
        marks = {"bos_token_id": 1, "eos_token_id": 2, "start_of_image": 3, "end_of_image": 4}
        self.settings = {
            "data_config": config,
            "get_flattened_position_ids": get_flattened_position_ids_extrapolate,
            "use_flex": True,
            "max_num_tokens": 36864,
            **marks,
        }

    def decoded(self, image: bytes) -> PILImage.Image:
        return self.as_rgb(PILImage.open(io.BytesIO(image)))

    def edited(self, image: bytes) -> list[Any]:
        decoded = self.decoded(image)
        return [self.vae(decoded), self.vae(decoded), self.vit(decoded)]

    def t2i_row(self, images: list[bytes]) -> dict[str, Any]:
        return self.t2i_row_of([self.vae(self.decoded(image)) for image in images])

    def t2i_row_of(self, pixels: list[Any]) -> dict[str, Any]:
        layout = [self.element("text", 0, droppable=False), self.element("vae_image", 1, droppable=False)]
        samples = (
            {"image_tensor_list": [one], "text_ids_list": [ids("a cat on a mat")], "sequence_plan": [*layout]} for one in pixels
        )
        return self.packed(samples)

    def row_of(self, samples: list[Sample]) -> dict[str, Any]:
        """The row of the same samples, whose draws it is given in place of its own."""
        kept = [kept for sample in samples for kept in sample.kept]
        times = [time for sample in samples for time in sample.timesteps if time > -np.inf]
        with (
            mock.patch.object(random, "random", side_effect=[0.9 if one else 0.1 for one in kept]),
            mock.patch.object(np.random, "randn", side_effect=times),
        ):
            return self.packed(map(self.sample, samples))

    def sample(self, sample: Sample) -> dict[str, Any]:
        kinds = {"text": "text", "vit": "vit_image", "clean": "vae_image", "noised": "vae_image"}
        images = [element for element in sample.layout if isinstance(element, Image)]
        return {
            "image_tensor_list": [(self.vit if one.kind == "vit" else self.vae)(self.decoded(one.image)) for one in images],
            "text_ids_list": [content.tolist() for content in sample.contents if isinstance(content, np.ndarray)],
            "sequence_plan": [self.element(kinds[one.kind], int(one.kind == "noised")) for one in sample.layout],
        }

    def element(self, kind: str, loss: int, droppable: bool = True) -> dict[str, Any]:
        return {"type": kind, "enable_cfg": int(droppable), "loss": loss, "special_token_loss": 0, "special_token_label": None}

    def packed(self, samples: Iterable[dict[str, Any]]) -> dict[str, Any]:
        packer = object.__new__(self.packer_class)
        vars(packer).update(self.settings)
        status = packer.set_sequence_status()
        for sample in samples:
            status = packer.pack_sequence(sample, status)
        return packer.to_tensor(status)

    def fill(self, lengths: np.ndarray, expected: int, most: int, of_sample: int) -> tuple[float, float]:
        """How full its rows are, and which part of the samples is in none."""

        class Counting(self.packer_class):
            def pack_sequence(self, sample, status):
                status["curr"] += sample["num_tokens"]
                status["sample_lens"].append(sample["num_tokens"])
                return status

            def to_tensor(self, status):
                return status

        packer = object.__new__(Counting)
        samples = (
            {"num_tokens": int(length), "sequence_plan": [], "data_indexes": number} for number, length in enumerate(lengths)
        )
        vars(packer).update(
            grouped_weights=[1.0],
            is_mandatory=[False],
            dataset_iters=[samples],
            prefer_buffer_before=16384,
            max_buffer_size=50,
            expected_num_tokens=expected,
            max_num_tokens=most,
            max_num_tokens_per_sample=of_sample,
        )
        rows, tokens, taken = 0, 0, 0
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(RuntimeError):  # how its generator ends
            for row in packer:
                rows, tokens, taken = rows + 1, tokens + row["curr"], taken + len(row["sample_lens"])
        return tokens / (rows * most), 1 - taken / len(lengths)


def compare(bagel: Bagel) -> str:
    """Compares rows of edits with those that BAGEL's code makes of the same records and draws."""
    edits = Source(listed_records(example_records("unified_edit", 64)), "unified_edit")
    maker = RowMaker(recipe(edits, pool=64, required_modalities=("vit", "vae")))
    rows = 0
    for packed in maker.packed(0):
        row = maker.row(packed)
        ours = bagel_batch({name: torch.from_numpy(of) if isinstance(of, np.ndarray) else of for name, of in row.items()}, 36864)
        for name, of in bagel.row_of([each.sample for each in packed]).items():
            assert torch.equal(of, ours[name].to(of.dtype)) if isinstance(of, torch.Tensor) else of == ours[name], name
        rows += 1
    return f"{rows} rows of edits are those of BAGEL's code, bit for bit."


def our_fill(lengths: np.ndarray, most: int) -> float:
    pools = [lengths[start : start + 256, np.newaxis] for start in range(0, len(lengths), 256)]
    return lengths.sum() / (sum(len(pack(pool, [most])) for pool in pools) * most)


def speeds(images: list[bytes], bagel: Bagel | None, rounds: int, folder: str) -> Table:
    table = Table(title=f"CPU ms, images of {SIDE} x {SIDE} pixels, {sum(map(len, images)) // len(images) // 1000} kB each")
    for column in ("", "ours", "BAGEL"):
        table.add_column(column, justify="right" if column else "left")
    path = f"{folder}/t2i.parquet"
    pq.write_table(pa.Table.from_pylist([{"image": image, "captions": "a cat on a mat"} for image in images]), path)
    made = Source(open_records(path), "t2i_pretrain", dropout=NEVER)
    ours = least_ms(lambda: list(all_rows(recipe(made))), rounds) / len(images)
    theirs = least_ms(lambda: bagel.t2i_row(images[:8]), rounds) / 8 if bagel else None
    table.add_row("t2i sample", f"{ours:.1f}", f"{theirs:.1f}" if theirs else "")

    def seen(record: dict[str, Any], draws: object) -> list[Image]:
        return [Image(record["image"], kind) for kind in ("noised", "clean", "vit")]

    [middle] = RowMaker(recipe(Source(listed_records([{"image": images[0]}]), seen, dropout=NEVER))).packed(0)
    maker = RowMaker(recipe(made))
    ours = least_ms(lambda: maker.row(middle), rounds)
    theirs = least_ms(lambda: bagel.edited(images[0]), rounds) if bagel else None
    table.add_row("edit's middle image", f"{ours:.1f}", f"{theirs:.1f}" if theirs else "")
    samples = [each.sample for each in maker.packed(0)[0]]
    ours = least_ms(lambda: lay_out(samples, FORM), rounds)
    if bagel:
        decoded = [bagel.vae(bagel.decoded(image)) for image in images[:8]]
        theirs = least_ms(lambda: bagel.t2i_row_of(decoded), rounds)
    table.add_row(f"arrays of a row of {len(samples)}", f"{ours:.2f}", f"{theirs:.1f}" if theirs else "")
    return table


def fills(bagel: Bagel | None) -> Table:
    table = Table(title="Packing 20,000 samples")
    for column in ("", "tokens of a sample", "of a row", "fill %, ours", "BAGEL's", "lost by BAGEL %"):
        table.add_column(column, justify="right" if column else "left")
    generator = np.random.default_rng(0)
    for what, least, longest, *flags in FILLS:
        lengths = generator.integers(least, longest + 1, 20_000)
        lengths = lengths[lengths <= flags[2]]
        fill, lost = bagel.fill(lengths, *flags) if bagel else (None, None)
        row = [what, f"{least} to {longest}", str(flags[1]), f"{100 * our_fill(lengths, flags[1]):.1f}"]
        table.add_row(*row, f"{100 * fill:.1f}" if bagel else "", f"{100 * lost:.1f}" if bagel else "")
    return table


def status_megabytes(name: str) -> float:
    """What Linux says of this process's memory: VmRSS, what it has now; VmHWM, the most it had."""
    [line] = [line for line in pathlib.Path("/proc/self/status").read_text().splitlines() if line.startswith(name)]
    return int(line.split()[1]) / 1024


def peak_megabytes(pattern: str, rows: int, connection: Any) -> None:
    """Reads rows of a corpus in a process of its own, and tells what they took beside the imports."""
    before = status_megabytes("VmRSS")
    maker = RowMaker(recipe(Source(open_records(pattern), "t2i_pretrain"), epochs=None))
    for _ in itertools.islice(all_rows(maker), rows):
        pass
    connection.send((before, status_megabytes("VmHWM")))


def memories(images: list[bytes], rows: int, folder: str) -> Table:
    """The larger corpus is the smaller one, linked again and again."""
    table = Table(title=f"Memory of a worker, MB, pools of 256, {rows} rows")
    for column in ("records", "imports", "peak"):
        table.add_column(column, justify="right")
    records = [{"image": image, "captions": "a cat on a mat"} for image in itertools.islice(itertools.cycle(images), 512)]
    pq.write_table(pa.Table.from_pylist(records), f"{folder}/0.parquet", row_group_size=100)
    for number in range(1, 50):
        os.link(f"{folder}/0.parquet", f"{folder}/{number}.parquet")
    for pattern, times in (("0.parquet", 1), ("[0-9]*.parquet", 50)):
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.get_context("spawn").Process(
            target=peak_megabytes, args=(f"{folder}/{pattern}", rows, theirs), daemon=True
        )
        process.start()
        before, peak = ours.recv()
        process.join()
        table.add_row(f"{512 * times:,}", f"{before:,.0f}", f"{peak:,.0f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bagel", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--rows", type=int, default=100)
    arguments = parser.parse_args()
    bagel = Bagel(str(arguments.bagel.resolve())) if arguments.bagel else None
    if bagel:
        Console().print(compare(bagel))
    images = jpegs(32)
    for make in (
        lambda folder: speeds(images, bagel, arguments.rounds, folder),
        lambda folder: fills(bagel),
        lambda folder: memories(images, arguments.rows, folder),
    ):
        with tempfile.TemporaryDirectory() as folder:
            Console(width=120).print(make(folder))


if __name__ == "__main__":
    main()
