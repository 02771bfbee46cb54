"""The corpora and pipelines whose results are kept, each made when it is asked for.

The corpora are files here, because the package's own come from Python and Pillow, whose versions differ.
"""

from __future__ import annotations

import functools
import hashlib
import json
import pathlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import seqio
import tensorflow as tf

from ul2_tasks import (
    T5GEMMA2,
    ImageTokens,
    MemoryDataSource,
    mix,
    open_renderer,
    open_source,
    register,
    register_chat,
    register_image_text,
)

FOLDER = pathlib.Path(__file__).parent
CORPUS = FOLDER / "corpus"
LENGTHS = {"inputs": 64, "targets": 64}
BOTH, SEEN = (
    {"inputs": 512, "targets": 256},
    {"inputs": 256, "targets": 192},
)  # of text and replies, and of interleaved image-text data
TWO = T5GEMMA2[::4]  # R1 and S: for what does not depend on how many denoisers there are
BYTES = {"vocabulary": seqio.ByteVocabulary(extra_ids=110), "modes": {"[R]": 259, "[S]": 260, "[X]": 261}}


def texts() -> list[str]:
    lines = (CORPUS / "texts.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
    return [json.loads(line)["text"] for line in lines]


@functools.cache
def images() -> list[bytes]:
    return [(CORPUS / f"{number}.png").read_bytes() for number in range(6)]


def records() -> list[dict[str, list]]:
    """Texts and images in turn: one to three images, and a text before, between and after them."""
    said = [text[:40] for text in texts() if len(text) > 40][:60]
    made = []
    for number in range(20):
        places = [said[3 * number]]
        for place in range(1 + number % 3):
            places += [images()[(number + place) % 6], said[(3 * number + place + 1) % 60]]
        made.append(
            {
                "texts": [place if isinstance(place, str) else None for place in places],
                "images": [None if isinstance(place, str) else place for place in places],
            }
        )
    return made


def memory() -> MemoryDataSource:
    return MemoryDataSource(texts, validation=0.1)


def joined() -> str:
    return register("golden", memory(), denoisers=TWO)


def five() -> str:
    return register("golden_five", memory())


def apart() -> str:
    return register("golden_apart", memory(), denoisers=TWO, merge_examples=False)


def of_files() -> str:
    """The current folder is that of this file."""
    return register("golden_files", open_source("corpus/texts.jsonl", id_key="id", validation=0.1), denoisers=TWO)


def talk(format: str = "chat") -> str:
    """The current folder is that of this file."""
    settings = {"train_on": "generated", "mode": "[S]", "validation": 0.2}
    return register_chat("golden_talk", "corpus/chats.jsonl", format=format, **settings)


def both() -> str:
    """A denoiser and replies."""
    beside = register("golden_beside", memory(), open_renderer("harmony:default").vocabulary, denoisers=TWO[1:])
    return mix("golden_both", {beside: 3, talk("prompt_completion"): 1})


OF_SEEN = {
    "denoisers": TWO,
    "image_tokens": ImageTokens(boi_id=262, image_id=263, eoi_id=264, image_seq_length=4),
    "sentinels": list(range(368, 264, -1)),
    **BYTES,
}


def seen() -> str:
    return register_image_text("golden_seen", records(), **OF_SEEN)


def numbered_seen() -> str:
    return register_image_text("golden_numbered_seen", records(), **OF_SEEN)


def one_of(register: Callable[[], str], denoiser: str) -> str:
    """One task of a mixture."""
    return register().replace("_mix", f"_{denoiser}")


def stream(name: str, lengths=LENGTHS, split: str = "train", seed: int = 1, num_epochs: int | None = 2, **more) -> tf.data.Dataset:
    return seqio.get_mixture_or_task(name).get_dataset(lengths, split, seed=seed, num_epochs=num_epochs, **more)


def image_rows(**settings: Any) -> Any:
    """Rows of two sources. Records with an image that is cut off are skipped."""
    from ul2_tasks import ImageTextDataset, default_vocabulary
    from ul2_tasks.image_rows.recipe import Source
    from ul2_tasks.image_rows.records import listed_records
    from ul2_tasks.image_rows.samples import Sizes
    from ul2_tasks.image_rows.sizes import Size
    from ul2_tasks.image_rows.special_tokens import SpecialTokenConfig

    sizes = Sizes(vit=Size(48, 12, 6, 10_000), vae=Size(64, 16, 8, 10_000))
    said = [text[:30] for text in texts()]
    drawn = [{"image": image, "captions": said[2 * number : 2 * number + 2]} for number, image in enumerate(images() * 3)]
    drawn[7] = {**drawn[7], "image": images()[1][:60]}
    edited = [
        {"image_list": images()[number : number + 3], "instruction_list": [[said[number]], [said[number + 9], said[number + 18]]]}
        for number in range(4)
    ]
    sources = [
        Source(listed_records(drawn, "drawn"), "t2i_pretrain", sizes, weight=2.0),
        Source(listed_records(edited, "edited"), "unified_edit", sizes),
    ]
    special_tokens = SpecialTokenConfig(bos_id=1, eos_id=2, boi_id=3, eoi_id=4, vit_patches_per_side=8, vae_patches_per_side=8)
    budgets = {"tokens": 150, "vit": 100, "vae": 120}
    more = {"seed": 4, "pool": 8, "on_error": "skip", "rank": 0, "world_size": 1, **settings}
    return ImageTextDataset(sources, special_tokens, default_vocabulary(), budgets, **more)


def digest(element: Any) -> str:
    """16 hexadecimal digits of an example, a row or a batch: names, types, shapes and values, floating ones to 3 places."""
    found = hashlib.sha256()
    for key, value in sorted(element.items()):
        array = np.asarray(value)
        if array.dtype.kind in "OSU":  # texts
            found.update(f"{key} {json.dumps(plain(value))}\n".encode())
            continue
        if array.dtype.kind == "f":
            array = np.round(array, 3) + np.zeros_like(array)  # no -0
        found.update(f"{key} {array.dtype.str} {array.shape}\n".encode() + array.tobytes())
    return found.hexdigest()[:16]


def plain(value: Any) -> Any:
    """A value as JSON has it; bytes in hexadecimal."""
    if isinstance(value, bytes):
        return value.decode() if value.isascii() else hashlib.sha256(value).hexdigest()
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return plain(value.tolist()) if hasattr(value, "tolist") else value


def digests(elements: Iterable[Any]) -> list[str]:
    return [digest(element) for element in elements]
