"""What the tests of interleaved image-text data share: small images, records, and a vocabulary with ids for runs."""

import io

import numpy as np
import seqio
from PIL import Image

import ul2_tasks
from ul2_tasks.denoisers.denoisers import T5GEMMA2
from ul2_tasks.images.interleaved import ImageTokens
from ul2_tasks.order.permutation import GOLDEN, mix

# ByT5's ids, then modes, the marks of images, and sentinels.
MODES = {"[R]": 259, "[S]": 260, "[X]": 261}
RUN = ImageTokens(boi_id=262, image_id=263, eoi_id=264, image_seq_length=4)
SENTINELS = list(range(368, 264, -1))
VOCABULARY = seqio.ByteVocabulary(extra_ids=110)
AROUND = list(VOCABULARY.encode("\n\n"))
A_RUN = [*AROUND, 262, *[263] * 4, 264, *AROUND]
SPECIAL = {"image_tokens": RUN, "sentinels": SENTINELS, "modes": MODES}
S = T5GEMMA2[-1]


def png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(file, "PNG")
    return file.getvalue()


def image(colour: int = 0) -> bytes:
    """A PNG of one grey, which tells images apart."""
    return png(np.full((4, 6, 3), colour))


NOISE = png(np.random.default_rng(0).integers(0, 256, (20, 30, 3)))  # many bytes, as photographs have


def text_keys(key: int, texts: int) -> np.ndarray:
    """The key of each text of an example, empty ones included, [texts] uint64. `key` is the example's."""
    first = np.array([int(key)], np.uint64)
    return np.append(first, mix(first + np.arange(1, texts, dtype=np.uint64) * np.uint64(GOLDEN)))


def record_of(places) -> dict:
    """Texts and images as two lists."""
    return {
        "texts": [place if isinstance(place, str) else None for place in places],
        "images": [place if isinstance(place, bytes) else None for place in places],
    }


def registered(name: str, *records, **settings) -> str:
    """Records as lists of texts and images, registered."""
    return ul2_tasks.register_image_text(name, [record_of(record) for record in records], VOCABULARY, **{**SPECIAL, **settings})


def read(name: str, lengths=(256, 256), **settings) -> list[dict]:
    dataset = seqio.get_mixture_or_task(name).get_dataset(
        dict(zip(("inputs", "targets"), lengths)), **{"seed": 0, "shuffle": False, "num_epochs": 1, **settings}
    )
    return [{key: value.tolist() for key, value in one.items()} for one in dataset.as_numpy_iterator()]
